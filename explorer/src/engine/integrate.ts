/**
 * Dormand–Prince 5(4) with adaptive steps and dense output.
 *
 *     dy/dt = F(y),    local error of each step below atol + rtol |y|,    y between steps by the quartic of the method
 */

const C = [
  [1 / 5],
  [3 / 40, 9 / 40],
  [44 / 45, -56 / 15, 32 / 9],
  [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
  [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
  [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
];
const ERROR = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40];
const DENSE = [
  -12715105075 / 11282082432, 0, 87487479700 / 32700410799, -10690763975 / 1880347072,
  701980252875 / 199316789632, -1453857185 / 822651844, 69997945 / 29380423,
];

export type RightHandSide = (y: Float64Array, dy: Float64Array) => void;

export interface Control {
  readonly rtol: number;
  readonly atol: number;
  /** Where the solution counts as diverged. */
  readonly diverged: (y: Float64Array) => boolean;
}

export interface Solution {
  /** States at the requested times that were reached. */
  readonly states: Float64Array[];
  /** The time of a blow-up, or null. */
  readonly diverged: number | null;
  readonly evaluations: number;
}

const LEAST = 1e-14; // a step below this part of the whole time cannot be resolved: the solution blows up

/** From times[0] on, with the states at all times (increasing). */
export function integrate(f: RightHandSide, start: Float64Array, times: ArrayLike<number>, control: Control): Solution {
  const n = start.length;
  const end = times[times.length - 1];
  const k = Array.from({ length: 7 }, () => new Float64Array(n));
  let y = Float64Array.from(start);
  let next = new Float64Array(n);
  const states: Float64Array[] = [];
  let evaluations = 1;
  let t = times[0];
  f(y, k[0]);

  const scale = (i: number): number => control.atol + control.rtol * Math.max(Math.abs(y[i]), Math.abs(next[i]));
  let speed = 0;
  for (let i = 0; i < n; i++) speed = Math.max(speed, Math.abs(k[0][i]) / (Math.abs(y[i]) + 1e-3));
  let h = Math.min(end - t, 0.01 / Math.max(speed, 1e-6));
  let before = 1e-4; // error of the step before, for the controller

  const save = (upTo: number, from: number, length: number): void => {
    while (states.length < times.length && times[states.length] <= upTo) {
      const theta = length > 0 ? (times[states.length] - from) / length : 0;
      const rest = 1 - theta;
      const state = new Float64Array(n);
      for (let i = 0; i < n; i++) {
        const change = next[i] - y[i];
        const bend = length * k[0][i] - change;
        let dense = 0;
        for (let s = 0; s < 7; s++) dense += DENSE[s] * k[s][i];
        const twist = change - length * k[6][i] - bend;
        state[i] = y[i] + theta * (change + rest * (bend + theta * (twist + rest * length * dense)));
      }
      states.push(state);
    }
  };
  next.set(y);
  k[6].set(k[0]);
  save(t, t, 0);
  if (control.diverged(y)) return { states, diverged: t, evaluations };

  while (t < end) {
    if (h < LEAST * end) return { states, diverged: t, evaluations };
    const last = t + h >= end - LEAST * end;
    if (last) h = end - t;
    for (let s = 0; s < 6; s++) {
      const row = C[s];
      for (let i = 0; i < n; i++) {
        let sum = 0;
        for (let m = 0; m <= s; m++) sum += row[m] * k[m][i];
        next[i] = y[i] + h * sum;
      }
      f(next, k[s + 1]);
    }
    evaluations += 6;
    let error = 0;
    for (let i = 0; i < n; i++) {
      let sum = 0;
      for (let s = 0; s < 7; s++) sum += ERROR[s] * k[s][i];
      error += ((h * sum) / scale(i)) ** 2;
    }
    error = Math.sqrt(error / n);
    if (!(error <= 1)) {
      h *= Number.isFinite(error) ? Math.max(0.2, 0.9 * error ** -0.2) : 0.1;
      continue;
    }
    const reached = last ? end : t + h;
    save(reached, t, h);
    [y, next] = [next, y];
    k[0].set(k[6]);
    t = reached;
    if (control.diverged(y)) return { states, diverged: t, evaluations };
    const grow = 0.9 * Math.max(error, 1e-10) ** -0.17 * before ** 0.04;
    before = Math.max(error, 1e-4);
    h *= Math.min(10, Math.max(0.2, grow));
  }
  return { states, diverged: null, evaluations };
}
