/**
 * The task: what is learnt, by which network, by which steps.
 *
 *     y = h(λ*) + √Δ ξ,    f = (1/p) Σ_j a_j σ(λ_j),    (λ, λ*) ~ N(0, Ω),    Ω = (Q, M; Mᵀ, P)
 *     committee:  h = (1/k) Σ_r a*_r σ(λ*_r);        quadratic form (σ quadratic):  h = λ*ᵀ H λ* + h0
 *     W ← W + (γ/(d p n_b)) Σ_ν g^ν (z^ν)ᵀ,    g_j = a_j σ'(λ_j) e,    e = y − f (squared) or y (correlation)
 */
import type { Rows } from "./matrix";

export type ActivationName = "erf" | "square" | "He2" | "relu";
export type Geometry = "free" | "projected" | "spherical";
export type Loss = "squared" | "correlation";

export type Target =
  | { readonly kind: "committee"; readonly weights: readonly number[] }
  | { readonly kind: "quadratic"; readonly H: Rows; readonly h0: number };

export interface Task {
  readonly activation: ActivationName;
  readonly p: number;
  readonly k: number;
  readonly target: Target;
  /** Overlaps of the target directions. */
  readonly P: Rows;
  /** Δ, a variance. */
  readonly noise: number;
  /** lr = γ/d. */
  readonly gamma: number;
  readonly batch: number;
  readonly geometry: Geometry;
  readonly loss: Loss;
  /** Whether the second layer takes the same raw step. */
  readonly trained: boolean;
}

/** Overlaps and second layer at one time. */
export interface Overlaps {
  readonly Q: Rows;
  readonly M: Rows;
  readonly a: readonly number[];
}

/** Steps in a unit of time t = lr·step/p. */
export function stepsPerTime(task: Task, dim: number): number {
  return (task.p * dim) / task.gamma;
}
