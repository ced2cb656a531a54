/**
 * The limit d → ∞ of the overlaps with lr = γ/d and a fixed batch, in the time t = lr·step/p.
 *
 *     dM/dt = psi,    dQ/dt = phi + phiᵀ + (γ/(p n_b)) chi,    da/dt = second (if trained)
 *     projected, spherical:  dQ_jl − ½ Q_jl (dQ_jj/Q_jj + dQ_ll/Q_ll),   dM_jr − ½ M_jr dQ_jj/Q_jj
 *
 * The state is (M, upper triangle of Q, and a if it is trained) in one vector.
 */
import { covariance, emptyAverages, gaussianOf } from "./gaussian/averages";
import { integrate, type RightHandSide, type Solution } from "./integrate";
import type { Overlaps, Task } from "./task";

const LIMIT = 1e6; // squared norm beyond which a solution counts as diverged

/** (M, upper triangle of Q, and a if it is trained) as one vector, and back. */
export class Packing {
  readonly size: number;
  private readonly Q: Float64Array;
  private readonly a: Float64Array;
  private readonly p: number;
  private readonly k: number;

  constructor(
    private readonly task: Task,
    a: readonly number[],
  ) {
    this.p = task.p;
    this.k = task.k;
    this.Q = new Float64Array(this.p * this.p);
    this.a = Float64Array.from(a);
    this.size = this.p * this.k + (this.p * (this.p + 1)) / 2 + (task.trained ? this.p : 0);
  }

  pack({ Q, M, a }: Overlaps): Float64Array {
    const upper = Q.flatMap((row, j) => row.slice(j));
    return Float64Array.from([...M.flat(), ...upper, ...(this.task.trained ? a : [])]);
  }

  /** Views of Q (p × p), M (p × k) and a of a packed state; they are overwritten by the next call. */
  unpack(y: Float64Array): { Q: Float64Array; M: Float64Array; a: Float64Array } {
    const { p, k, Q } = this;
    let at = p * k;
    for (let j = 0; j < p; j++) {
      for (let l = j; l < p; l++) Q[j * p + l] = Q[l * p + j] = y[at++];
    }
    return { Q, M: y.subarray(0, p * k), a: this.task.trained ? y.subarray(at) : this.a };
  }
}

/** dy/dt as a function of the packed state. */
export function field(task: Task, packing: Packing): RightHandSide {
  const { p, k } = task;
  const gaussian = gaussianOf(task);
  const omega = covariance(task);
  const average = emptyAverages(p, k);
  const { psi, phi, chi, second } = average;
  const noise = task.gamma / (p * task.batch);
  const normalises = task.geometry !== "free";
  const radial = new Float64Array(p);
  return (y, dy) => {
    const { Q, M, a } = packing.unpack(y);
    gaussian.averages(omega(Q, M), a, average);
    for (let j = 0; j < p; j++) {
      const own = 2 * phi[j * p + j] + noise * chi[j * p + j];
      radial[j] = normalises ? own / (2 * Q[j * p + j]) : 0;
      for (let r = 0; r < k; r++) dy[j * k + r] = psi[j * k + r] - M[j * k + r] * radial[j];
    }
    let at = p * k;
    for (let j = 0; j < p; j++) {
      for (let l = j; l < p; l++) {
        const change = phi[j * p + l] + phi[l * p + j] + noise * chi[j * p + l];
        dy[at++] = change - Q[j * p + l] * (radial[j] + radial[l]);
      }
    }
    if (task.trained) for (let j = 0; j < p; j++) dy[at++] = second[j];
  };
}

/** The packed states at the given times (increasing, from 0). */
export function solve(task: Task, start: Overlaps, times: ArrayLike<number>, rtol = 1e-8): Solution {
  const packing = new Packing(task, start.a);
  const diverged = (y: Float64Array): boolean => {
    const { Q, a } = packing.unpack(y);
    for (let j = 0; j < task.p; j++) if (!(Q[j * task.p + j] < LIMIT && a[j] * a[j] < LIMIT)) return true;
    return false;
  };
  return integrate(field(task, packing), packing.pack(start), times, { rtol, atol: 1e-5 * rtol, diverged });
}
