/** Activations σ and their slopes: erf(x/√2), x², He₂ = x² − 1, max(x, 0). */
import type { ActivationName } from "./task";
import { erf } from "./special";

export interface Activation {
  readonly value: (x: number) => number;
  readonly slope: (x: number) => number;
  /** (s, c) of σ = s x² + c where it has this form. */
  readonly quadratic?: readonly [number, number];
}

const ROOT_TWO_OVER_PI = Math.sqrt(2 / Math.PI);

export const ACTIVATIONS: Readonly<Record<ActivationName, Activation>> = {
  erf: { value: (x) => erf(x * Math.SQRT1_2), slope: (x) => ROOT_TWO_OVER_PI * Math.exp((-x * x) / 2) },
  square: { value: (x) => x * x, slope: (x) => 2 * x, quadratic: [1, 0] },
  He2: { value: (x) => x * x - 1, slope: (x) => 2 * x, quadratic: [1, -1] },
  relu: { value: (x) => (x > 0 ? x : 0), slope: (x) => (x > 0 ? 1 : 0) },
};
