/** Everything the page can be asked to show: the description of a task, how it is run, and how it is looked at. */
import { identity, type Rows } from "../engine/matrix";
import { impossible, randomOverlaps, type Law } from "../engine/start";
import { stepsPerTime, type ActivationName, type Geometry, type Loss, type Overlaps, type Task } from "../engine/task";
import { flag, integer, list, matrix, oneOf, real, words, type Codecs } from "../ui/permalink";

export const MOST = 4; // neurons, and directions

export type TimeScale = "linear" | "log" | "loglog";
/** What an axis of the scatter shows of a neuron: its overlap with direction r, its squared norm, or that outside the target. */
export type Coordinate = "m1" | "m2" | "m3" | "m4" | "q" | "qperp";

export interface State {
  readonly activation: ActivationName;
  readonly p: number;
  readonly k: number;
  readonly target: "committee" | "quadratic";
  /** a* */
  readonly teacher: readonly number[];
  readonly H: Rows;
  readonly h0: number;
  readonly P: Rows;
  readonly a: readonly number[];
  readonly noise: number;
  readonly gamma: number;
  readonly batch: number;
  readonly geometry: Geometry;
  readonly loss: Loss;
  readonly trained: boolean;
  readonly start: "random" | "given";
  readonly law: Law;
  readonly M: Rows;
  readonly Q: Rows;
  readonly dim: number;
  readonly seed: number;
  readonly time: number;
  readonly runs: number;
  readonly scale: TimeScale;
  readonly quantity: "risk" | "excess";
  readonly size: "linear" | "log";
  readonly x: Coordinate;
  readonly y: Coordinate;
  /** Lines that are not drawn, such as M12. */
  readonly hidden: readonly string[];
  /** Where the cursor of time stands, as a part of the whole time. */
  readonly at: number;
}

export const DEFAULT: State = {
  activation: "He2",
  p: 2,
  k: 1,
  target: "committee",
  teacher: [1],
  H: [[1]],
  h0: 0,
  P: [[1]],
  a: [1, 1],
  noise: 0.1,
  gamma: 0.2,
  batch: 1,
  geometry: "projected",
  loss: "squared",
  trained: false,
  start: "given",
  law: "sphere",
  M: [[0.3], [-0.2]],
  Q: [[1, -0.06], [-0.06, 1]],
  dim: 500,
  seed: 0,
  time: 2,
  runs: 32,
  scale: "linear",
  quantity: "risk",
  size: "linear",
  x: "m1",
  y: "qperp",
  hidden: [],
  at: 1,
};

const entry = real(-100, 100);
const COORDINATES = ["m1", "m2", "m3", "m4", "q", "qperp"] as const;

export const CODECS: Codecs<State> = {
  activation: oneOf(["erf", "square", "He2", "relu"] as const),
  p: integer(1, MOST),
  k: integer(1, MOST),
  target: oneOf(["committee", "quadratic"] as const),
  teacher: list(entry, MOST),
  H: matrix(entry, MOST),
  h0: entry,
  P: matrix(entry, MOST),
  a: list(entry, MOST),
  noise: real(0, 100),
  gamma: real(1e-6, 1000),
  batch: integer(1, 100_000),
  geometry: oneOf(["free", "projected", "spherical"] as const),
  loss: oneOf(["squared", "correlation"] as const),
  trained: flag,
  start: oneOf(["random", "given"] as const),
  law: oneOf(["sphere", "hemisphere", "gaussian"] as const),
  M: matrix(entry, MOST),
  Q: matrix(entry, MOST),
  dim: integer(10, 1e9),
  seed: integer(0, 2 ** 32 - 1),
  time: real(1e-6, 1e6),
  runs: integer(1, 200),
  scale: oneOf(["linear", "log", "loglog"] as const),
  quantity: oneOf(["risk", "excess"] as const),
  size: oneOf(["linear", "log"] as const),
  x: oneOf(COORDINATES),
  y: oneOf(COORDINATES),
  hidden: words(/^[MQ][1-4][1-4]$/),
  at: real(0, 1),
};

export const isQuadratic = (activation: ActivationName): boolean => activation === "square" || activation === "He2";

function resized(values: readonly number[], n: number, standard: number): readonly number[] {
  return Array.from({ length: n }, (_, i) => values[i] ?? standard);
}

/** A symmetric matrix of another size; its lower triangle follows the upper one. */
function square(rows: Rows, n: number, diagonal: number): Rows {
  const entry = (i: number, j: number): number => rows[i]?.[j] ?? (i === j ? diagonal : 0);
  return Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => (i <= j ? entry(i, j) : entry(j, i))));
}

/** The nearest state whose parts fit together. */
export function settle(state: State): State {
  const { p, k, geometry } = state;
  const drawn = (line: string): boolean => Number(line[1]) <= p && Number(line[2]) <= (line[0] === "M" ? k : p);
  const fits = (c: Coordinate): boolean => !/^m\d$/.test(c) || Number(c[1]) <= k;
  const Q = square(state.Q, p, 1);
  const law = state.law === "gaussian" && geometry !== "free" ? "sphere" : state.law;
  return {
    ...state,
    target: isQuadratic(state.activation) ? state.target : "committee",
    teacher: resized(state.teacher, k, 1),
    H: square(state.H, k, 1),
    P: square(state.P, k, 1),
    a: resized(state.a, p, 1),
    law,
    M: Array.from({ length: p }, (_, j) => resized(state.M[j] ?? [], k, 0)),
    // rows that are divided by their norms have norm one from the start
    Q: geometry === "free" ? Q : Q.map((row, j) => row.map((x, l) => (j === l ? 1 : x))),
    x: fits(state.x) ? state.x : "m1",
    y: fits(state.y) ? state.y : "qperp",
    hidden: state.hidden.filter(drawn),
  };
}

export function taskOf(state: State): Task {
  const { activation, p, k, P, noise, gamma, batch, geometry, loss, trained, H, h0, teacher } = state;
  const target = state.target === "quadratic" ? ({ kind: "quadratic", H, h0 } as const) : ({ kind: "committee", weights: teacher } as const);
  return { activation, p, k, target, P, noise, gamma, batch, geometry, loss, trained };
}

/** The overlaps that a run starts from. */
export function startOf(state: State): Overlaps {
  const { p, P, dim, law, seed, a } = state;
  return { ...(state.start === "random" ? randomOverlaps(p, P, dim, law, seed) : { Q: state.Q, M: state.M }), a };
}

/** Why this cannot be run, or null. */
export function refusal(state: State): string | null {
  if (state.P.some((row, r) => !(row[r] > 0))) return "Every target direction needs a positive norm P_rr.";
  const rowOff = state.start === "given" && state.Q.findIndex((row, j) => row[j] < 0);
  if (rowOff !== false && rowOff >= 0) return "Squared norms Q_jj cannot be negative.";
  const { Q, M } = state.start === "given" ? state : { Q: identity(state.p), M: identity(state.p).map(() => new Array<number>(state.k).fill(0)) };
  const reason = impossible(Q, M, state.P);
  if (reason) return reason;
  if (state.activation === "relu" && Q.some((row, j) => row[j] < 1e-14)) {
    return "A rectifier has no slope at its kink: every neuron needs a positive norm Q_jj.";
  }
  return null;
}

export const MOST_STEPS = 2 ** 32; // they are counted by one word of the random numbers

/** Steps of one run of the chain. */
export function stepsOf(state: State): number {
  return Math.round(state.time * stepsPerTime(taskOf(state), state.dim));
}
