/**
 * SGD in d dimensions that carries only the overlaps, exact in law.
 *
 *     rows of W in an orthonormal basis:  A (target span),  B (span of the students' own orthogonal parts);
 *     M = A L_Pᵀ,  Q = A Aᵀ + B Bᵀ,  fields  λ* = L_P ξ*,  λ = A ξ* + B ξ⊥
 *     A ← A + η Gᵀ ξ*,    B ← LQ[ B + η Gᵀ ξ⊥ ,  η C T ],    C Cᵀ = Gᵀ G,    η = γ/(d p n_b)
 *
 * The part of a batch outside both spans has a Gram matrix of Wishart law; T is its Bartlett factor with d − rank − p
 * degrees of freedom. Only B Bᵀ matters, so B is brought back to p columns by an LQ decomposition: positivity cannot be
 * lost and no matrix is inverted. Cost O(n_b p (p + k) + p³) per step, whatever d.
 */
import { ACTIVATIONS, type Activation } from "./activation";
import { eigen, frame, lq, type Rows } from "./matrix";
import { normals, Role, stream, type Key } from "./random";
import type { Overlaps, Task } from "./task";
import { GramFactor } from "./wishart";

const LIMIT = 1e8; // squared norm beyond which a run counts as diverged
const CHUNK = 32; // samples whose pushes are held at once

/** Rows (A, B) with M = A L_Pᵀ and Q = A Aᵀ + B Bᵀ, B with p columns. */
export function embed(start: Overlaps, inverse: Rows): number[][] {
  const A = start.M.map((row) => inverse.map((l) => row.reduce((sum, x, r) => sum + x * l[r], 0)));
  const rest = start.Q.map((row, j) => row.map((q, l) => q - A[j].reduce((sum, x, r) => sum + x * A[l][r], 0)));
  const { values, vectors } = eigen(rest);
  return A.map((row, j) => [...row, ...values.map((v, i) => vectors[j][i] * Math.sqrt(Math.max(v, 0)))]);
}

/** h as a function of the fields λ*, which stand at an offset of an array. */
function targetOf(task: Task, sigma: Activation): (fields: Float64Array) => number {
  const { k, target } = task;
  if (target.kind === "committee") {
    const weights = target.weights.map((w) => w / k);
    return (fields) => {
      let sum = 0;
      for (let r = 0; r < k; r++) sum += weights[r] * sigma.value(fields[r]);
      return sum;
    };
  }
  const { H, h0 } = target;
  return (fields) => {
    let sum = h0;
    for (let r = 0; r < k; r++) for (let s = 0; s < k; s++) sum += H[r][s] * fields[r] * fields[s];
    return sum;
  };
}

/** One run. */
export class Chain {
  /** Steps taken. */
  step = 0;
  /** The step at which the run left the finite range, or null. */
  diverged: number | null = null;
  private readonly a: Float64Array;
  private readonly W: Float64Array; // p × (rank + p)
  private readonly rank: number;
  private readonly width: number; // normals of a sample: ξ*, ξ⊥ and the label noise
  private readonly L: Rows;
  private readonly sigma: Activation;
  private readonly target: (fields: Float64Array) => number;
  private readonly keys: { readonly fields: Key; readonly orthogonal: Key };
  private readonly eta: number;
  private readonly noise: number;
  private readonly student: number;
  // work space
  private readonly xi: Float64Array;
  private readonly star: Float64Array;
  private readonly lambda: Float64Array;
  private readonly value: Float64Array;
  private readonly push: Float64Array;
  private readonly second: Float64Array;
  private readonly C: Float64Array;
  private readonly columns: number; // of C
  private readonly outer: Float64Array;
  private readonly T: Float64Array;
  private readonly new: Float64Array;

  /** `rows` (A, B) as from `embed`; runs of one seed are independent. The Gram factor may be shared between runs. */
  constructor(
    private readonly task: Task,
    dim: number,
    rows: Rows,
    a: readonly number[],
    seed: number,
    run: number,
    private readonly factor: GramFactor = Chain.factor(task, dim),
  ) {
    const { p, k, batch } = task;
    const { rank, L } = frame(task.P);
    this.a = Float64Array.from(a);
    this.W = Float64Array.from(rows.flat());
    this.rank = rank;
    this.width = rank + p + 1;
    this.L = L;
    this.sigma = ACTIVATIONS[task.activation];
    this.target = targetOf(task, this.sigma);
    this.keys = { fields: stream(seed, Role.fields, run), orthogonal: stream(seed, Role.orthogonal, run) };
    this.eta = task.gamma / (dim * p);
    this.noise = Math.sqrt(task.noise);
    this.student = task.loss === "squared" ? 1 : 0;
    this.xi = new Float64Array(this.width);
    this.star = new Float64Array(k);
    this.lambda = new Float64Array(p);
    this.value = new Float64Array(p);
    this.push = new Float64Array(p * (rank + p));
    this.second = new Float64Array(p);
    this.columns = batch <= p ? batch : p;
    this.C = new Float64Array(p * (batch <= p ? batch : Math.min(batch, p + CHUNK)));
    this.outer = new Float64Array(Math.max(1, factor.draws));
    this.T = new Float64Array(Math.max(1, factor.rows * factor.width));
    this.new = new Float64Array(p * (p + factor.width));
  }

  /** How to draw what the samples of a batch have outside the known directions. */
  static factor(task: Task, dim: number): GramFactor {
    const { rank } = frame(task.P);
    if (dim < rank + task.p) throw new Error(`The dimension must be at least ${rank + task.p}, but is ${dim}.`);
    return new GramFactor(Math.min(task.p, task.batch), dim - rank - task.p);
  }

  /** Take steps up to number `stop`. */
  advance(stop: number): void {
    while (this.step < stop && this.diverged === null) this.one();
  }

  private one(): void {
    this.sum();
    normals(this.keys.orthogonal, this.step, this.factor.draws, this.outer);
    this.factor.build(this.outer, this.T);
    this.move();
    this.step += 1;
  }

  /** Sums over the batch: means of g ξ*ᵀ, g ξ⊥ᵀ and e σ(λ), and C. */
  private sum(): void {
    const { p, k, batch, trained } = this.task;
    const { rank, width, xi, star, lambda, value, push, second, W, L, a, sigma, C } = this;
    const own = rank + p;
    const wide = C.length / p; // columns of the work space of C
    push.fill(0);
    second.fill(0);
    let held = 0;
    for (let i = 0; i < batch; i++) {
      normals(this.keys.fields, this.step, width, xi, i * width);
      for (let r = 0; r < k; r++) {
        let sum = 0;
        for (let m = 0; m < rank; m++) sum += L[r][m] * xi[m];
        star[r] = sum;
      }
      let f = 0;
      for (let j = 0; j < p; j++) {
        let sum = 0;
        for (let c = 0; c < own; c++) sum += W[j * own + c] * xi[c];
        lambda[j] = sum;
        value[j] = sigma.value(sum);
        f += a[j] * value[j];
      }
      const e = (this.target(star) + this.noise * xi[own] - (this.student * f) / p) / batch;
      if (held === wide) {
        lq(C, p, wide);
        held = p;
      }
      for (let j = 0; j < p; j++) {
        const g = a[j] * sigma.slope(lambda[j]) * e;
        if (trained) second[j] += value[j] * e;
        C[j * wide + held] = g;
        for (let c = 0; c < own; c++) push[j * own + c] += g * xi[c];
      }
      held += 1;
    }
    if (batch > p) {
      for (let j = 0; j < p; j++) C.fill(0, j * wide + held, (j + 1) * wide);
      lq(C, p, wide);
    }
  }

  /** W ← W + η push in the wider basis, the geometry, and B back to p columns. */
  private move(): void {
    const { p, trained, geometry } = this.task;
    const { rank, push, second, W, C, T, eta, factor } = this;
    const own = rank + p;
    const wide = C.length / p;
    const t = factor.width;
    const n = p + t; // columns outside the target span
    const next = this.new;
    let size = 0;
    for (let j = 0; j < p; j++) {
      let keep = 1;
      if (geometry === "spherical") {
        let along = 0;
        let square = 0;
        for (let c = 0; c < own; c++) {
          along += W[j * own + c] * push[j * own + c];
          square += W[j * own + c] ** 2;
        }
        keep -= (eta * along) / square;
      }
      let square = 0;
      for (let c = 0; c < own; c++) {
        const x = keep * W[j * own + c] + eta * push[j * own + c];
        square += x * x;
        if (c < rank) push[j * own + c] = x;
        else next[j * n + c - rank] = x;
      }
      for (let c = 0; c < t; c++) {
        let sum = 0;
        for (let s = 0; s < this.columns; s++) sum += C[j * wide + s] * T[s * t + c];
        next[j * n + p + c] = eta * sum;
        square += (eta * sum) ** 2;
      }
      if (geometry !== "free") {
        const norm = Math.sqrt(square);
        for (let c = 0; c < rank; c++) push[j * own + c] /= norm;
        for (let c = 0; c < n; c++) next[j * n + c] /= norm;
        square = square > 0 && square < Infinity ? 1 : Infinity;
      }
      if (trained) {
        const layer = this.a[j] + eta * second[j];
        size = Math.max(size, layer * layer);
        second[j] = layer;
      }
      size = square <= size ? size : square; // not a number counts as infinite
    }
    if (!(size < LIMIT)) {
      this.diverged = this.step + 1;
      return;
    }
    if (t > 0) lq(next, p, n);
    for (let j = 0; j < p; j++) {
      for (let c = 0; c < rank; c++) W[j * own + c] = push[j * own + c];
      for (let c = 0; c < p; c++) W[j * own + rank + c] = next[j * n + c];
    }
    if (trained) this.a.set(second);
  }

  /** Q (p × p), M (p × k), flat, and a. */
  overlaps(): { Q: Float64Array; M: Float64Array; a: Float64Array } {
    const { p, k } = this.task;
    const { rank, W, L } = this;
    const own = rank + p;
    const Q = new Float64Array(p * p);
    const M = new Float64Array(p * k);
    for (let j = 0; j < p; j++) {
      for (let l = 0; l < p; l++) {
        for (let c = 0; c < own; c++) Q[j * p + l] += W[j * own + c] * W[l * own + c];
      }
      for (let r = 0; r < k; r++) {
        for (let c = 0; c < rank; c++) M[j * k + r] += W[j * own + c] * L[r][c];
      }
    }
    return { Q, M, a: this.a.slice() };
  }
}
