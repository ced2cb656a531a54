/**
 * σ(x) = s x² + c and a quadratic target: all averages are matrix products.
 *
 *     e = uᵀ B u + b0 + √Δ ξ,    u = (λ, λ*),    A = Ω B Ω,    t1 = tr BΩ + b0,    t2 = tr BΩBΩ
 *     E[e u uᵀ] = t1 Ω + 2A        E[e² u uᵀ] = (t1² + 2 t2 + Δ) Ω + 4 t1 A + 8 ΩBΩBΩ        E[e²] = t1² + 2 t2 + Δ
 */
import type { Task } from "../task";
import type { Averages, Gaussian } from "./averages";

/** C ← A B for flat n × n matrices. */
function multiply(A: Float64Array, B: Float64Array, n: number, C: Float64Array): void {
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let l = 0; l < n; l++) sum += A[i * n + l] * B[l * n + j];
      C[i * n + j] = sum;
    }
  }
}

/** The target as λ*ᵀ H λ* + h0. */
function targetForm(task: Task, scale: number, shift: number): { H: number[][]; h0: number } {
  const { k, target } = task;
  if (target.kind === "quadratic") return { H: target.H.map((row) => [...row]), h0: target.h0 };
  const H = target.weights.map((w, r) => target.weights.map((_, s) => (r === s ? (scale * w) / k : 0)));
  return { H, h0: (shift * target.weights.reduce((sum, w) => sum + w, 0)) / k };
}

export function quadraticAverages(task: Task, scale: number, shift: number): Gaussian {
  const { p, k, noise } = task;
  const n = p + k;
  const { H, h0 } = targetForm(task, scale, shift);
  const B = new Float64Array(n * n);
  H.forEach((row, r) => row.forEach((x, s) => (B[(p + r) * n + p + s] = x)));
  const BO = new Float64Array(n * n);
  const A = new Float64Array(n * n);
  const third = new Float64Array(n * n);

  /** Fill B, BΩ; return t1 and t1² + 2 t2 with the student entering with this weight. */
  function moments(omega: Float64Array, a: Float64Array, student: number): readonly [number, number] {
    let t1 = h0;
    for (let j = 0; j < p; j++) {
      B[j * n + j] = (-student * scale * a[j]) / p;
      t1 -= (student * shift * a[j]) / p;
    }
    multiply(B, omega, n, BO);
    let t2 = 0;
    for (let i = 0; i < n; i++) {
      t1 += BO[i * n + i];
      for (let j = 0; j < n; j++) t2 += BO[i * n + j] * BO[j * n + i];
    }
    return [t1, t1 * t1 + 2 * t2];
  }

  function averages(omega: Float64Array, a: Float64Array, out: Averages): void {
    const [t1, square] = moments(omega, a, task.loss === "squared" ? 1 : 0);
    multiply(omega, BO, n, A);
    multiply(A, BO, n, third); // ΩBΩBΩ
    const first = (i: number, j: number): number => t1 * omega[i * n + j] + 2 * A[i * n + j];
    for (let j = 0; j < p; j++) {
      const slope = 2 * scale * a[j];
      for (let r = 0; r < k; r++) out.psi[j * k + r] = slope * first(j, p + r);
      for (let l = 0; l < p; l++) {
        const at = j * n + l;
        out.phi[j * p + l] = slope * first(j, l);
        const variance = (square + noise) * omega[at] + 4 * t1 * A[at] + 8 * third[at];
        out.chi[j * p + l] = slope * 2 * scale * a[l] * variance;
      }
      out.second[j] = scale * first(j, j) + shift * t1;
    }
  }

  return { excess: (omega, a) => moments(omega, a, 1)[1] / 2, averages };
}
