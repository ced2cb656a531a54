/**
 * What the equations of motion need from the fields.
 *
 *     psi_jr = a_j E[σ'(λ_j) λ*_r e]    phi_jl = a_j E[σ'(λ_j) λ_l e]    chi_jl = a_j a_l E[σ'(λ_j) σ'(λ_l) e²]
 *     second_j = E[e σ(λ_j)]            excess risk = ½ E[(h − f)²]
 */
import { ACTIVATIONS } from "../activation";
import type { Task } from "../task";
import { ERF } from "./erf";
import { quadraticAverages } from "./quadratic";
import { RELU } from "./relu";
import { ridgeAverages } from "./ridge";

/** Flat arrays (p × k), (p × p), (p × p) and (p). */
export interface Averages {
  readonly psi: Float64Array;
  readonly phi: Float64Array;
  readonly chi: Float64Array;
  readonly second: Float64Array;
}

/** The averages of one task as functions of Ω (n × n, flat) and the second layer. */
export interface Gaussian {
  excess(omega: Float64Array, a: Float64Array): number;
  averages(omega: Float64Array, a: Float64Array, out: Averages): void;
}

export function emptyAverages(p: number, k: number): Averages {
  const zeros = (size: number): Float64Array => new Float64Array(size);
  return { psi: zeros(p * k), phi: zeros(p * p), chi: zeros(p * p), second: zeros(p) };
}

/** Closed forms for every task that the playground can state. */
export function gaussianOf(task: Task): Gaussian {
  const sigma = ACTIVATIONS[task.activation];
  if (sigma.quadratic) return quadraticAverages(task, ...sigma.quadratic);
  if (task.target.kind !== "committee") {
    throw new Error(`A quadratic form is a target for square and He2, but the activation is ${task.activation}.`);
  }
  return ridgeAverages(task, task.target.weights, task.activation === "erf" ? ERF : RELU);
}

/** Ω (n × n, flat) from M (p × k) and Q (p × p), flat, and P. */
export function covariance(task: Task): (Q: Float64Array, M: Float64Array) => Float64Array {
  const { p, k, P } = task;
  const n = p + k;
  const omega = new Float64Array(n * n);
  P.forEach((row, r) => row.forEach((x, s) => (omega[(p + r) * n + p + s] = x)));
  return (Q, M) => {
    for (let j = 0; j < p; j++) {
      for (let l = 0; l < p; l++) omega[j * n + l] = (Q[j * p + l] + Q[l * p + j]) / 2;
      for (let r = 0; r < k; r++) omega[j * n + p + r] = omega[(p + r) * n + j] = M[j * k + r];
    }
    return omega;
  };
}
