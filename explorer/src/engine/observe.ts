/** What is recorded of a state at one time, in one row of numbers: the excess risk, M, the upper triangle of Q, and a. */
import { covariance, gaussianOf } from "./gaussian/averages";
import type { Task } from "./task";

/** Places of the quantities in a row. */
export class Channels {
  readonly size: number;

  constructor(
    readonly p: number,
    readonly k: number,
  ) {
    this.size = 1 + p * k + (p * (p + 1)) / 2 + p;
  }

  readonly excess = 0;

  M(j: number, r: number): number {
    return 1 + j * this.k + r;
  }

  Q(j: number, l: number): number {
    const [row, column] = j < l ? [j, l] : [l, j];
    return 1 + this.p * this.k + row * this.p - (row * (row - 1)) / 2 + column - row;
  }

  a(j: number): number {
    return this.size - this.p + j;
  }
}

export type Observer = (Q: Float64Array, M: Float64Array, a: Float64Array, out: Float64Array, row: number) => void;

/** Writes the row with the given number. */
export function observer(task: Task): Observer {
  const { p, k } = task;
  const gaussian = gaussianOf(task);
  const omega = covariance(task);
  const { size } = new Channels(p, k);
  return (Q, M, a, out, row) => {
    let at = row * size;
    out[at++] = gaussian.excess(omega(Q, M), a);
    for (let i = 0; i < p * k; i++) out[at++] = M[i];
    for (let j = 0; j < p; j++) for (let l = j; l < p; l++) out[at++] = Q[j * p + l];
    for (let j = 0; j < p; j++) out[at++] = a[j];
  };
}
