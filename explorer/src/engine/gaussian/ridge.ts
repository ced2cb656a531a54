/**
 * Averages over pairs and quadruples of fields, for a student and a committee of the same activation.
 *
 *     e = Σ_q c_q σ(h_q) + √Δ ξ  over all n = p + k fields,  c = (−s a/p, a⋆/k),  s = 1 (squared) or 0 (correlation loss)
 *     E[σ'_j h_b e] = (K Ω + diag(D) Ω)_jb,   K_jq = c_q E[σ'_j σ'_q],   D_j = Σ_q c_q E[σ''_j σ_q]        (Stein)
 *     E[σ'_j σ'_l e²] = Σ_qs c_q c_s E[σ'_j σ'_l σ_q σ_s] + Δ E[σ'_j σ'_l],    ½ E[(h − f)²] = ½ Σ_qs c_q c_s E[σ_q σ_s]
 */
import type { Averages, Gaussian } from "./averages";
import type { Task } from "../task";

/** E[f g], E[f' g'] and E[f'' g] at two fields. */
export interface Pair {
  ff: number;
  dd: number;
  hd: number;
}

/** The closed averages of one activation. */
export interface Forms {
  /** Averages at two fields with these covariances, written to `out`. */
  pair(c11: number, c12: number, c22: number, out: Pair): void;
  /** Σ_qs c_q c_s E[σ'_j σ'_l σ_q σ_s] for the fields with covariance Ω (n × n, flat). */
  fourPoint(omega: Float64Array, n: number, c: Float64Array, j: number, l: number): number;
}

export function ridgeAverages(task: Task, teacher: readonly number[], forms: Forms): Gaussian {
  const { p, k, noise } = task;
  const n = p + k;
  const student = task.loss === "squared" ? 1 : 0;
  const residual = new Float64Array(n); // c of e
  const error = new Float64Array(n); // c of h − f
  teacher.forEach((w, r) => (residual[p + r] = error[p + r] = w / k));
  const first = new Float64Array(p * n);
  const K = new Float64Array(p * n);
  const slopes = new Float64Array(p * p);
  const pair: Pair = { ff: 0, dd: 0, hd: 0 };

  function weigh(a: Float64Array): void {
    for (let j = 0; j < p; j++) {
      error[j] = -a[j] / p;
      residual[j] = -(student * a[j]) / p;
    }
  }

  function excess(omega: Float64Array, a: Float64Array): number {
    weigh(a);
    let sum = 0;
    for (let q = 0; q < n; q++) {
      for (let s = q; s < n; s++) {
        forms.pair(omega[q * n + q], omega[q * n + s], omega[s * n + s], pair);
        sum += (q === s ? 1 : 2) * error[q] * error[s] * pair.ff;
      }
    }
    return sum / 2;
  }

  function averages(omega: Float64Array, a: Float64Array, out: Averages): void {
    weigh(a);
    for (let j = 0; j < p; j++) {
      let D = 0;
      out.second[j] = 0;
      for (let q = 0; q < n; q++) {
        forms.pair(omega[j * n + j], omega[j * n + q], omega[q * n + q], pair);
        K[j * n + q] = residual[q] * pair.dd;
        D += residual[q] * pair.hd;
        out.second[j] += residual[q] * pair.ff;
        if (q < p) slopes[j * p + q] = pair.dd;
      }
      for (let b = 0; b < n; b++) {
        let sum = D * omega[j * n + b];
        for (let q = 0; q < n; q++) sum += K[j * n + q] * omega[q * n + b];
        first[j * n + b] = a[j] * sum;
      }
      for (let l = 0; l < p; l++) out.phi[j * p + l] = first[j * n + l];
      for (let r = 0; r < k; r++) out.psi[j * k + r] = first[j * n + p + r];
    }
    for (let j = 0; j < p; j++) {
      for (let l = j; l < p; l++) {
        const V = forms.fourPoint(omega, n, residual, j, l) + noise * slopes[j * p + l];
        out.chi[j * p + l] = out.chi[l * p + j] = a[j] * a[l] * V;
      }
    }
  }

  return { excess, averages };
}
