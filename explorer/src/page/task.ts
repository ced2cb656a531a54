/**
 * A task as the server takes it: the tables of a task file. Here is what the page has to know of them: laws in d,
 * starts that fit the width, and the state that a link restores.
 */

export type Rows = readonly (readonly number[])[];

/** The covariance of the inputs, where it is not I: variances of blocks, or eigenvalues j^(−exponent). */
export interface Inputs {
  readonly kind?: "blocks" | "power_law" | "isotropic";
  readonly variances?: readonly number[];
  readonly fractions?: readonly number[];
  readonly exponent?: number;
  readonly dim?: number;
  readonly [key: string]: unknown;
}

export interface Task {
  readonly problem: {
    readonly target: string | Readonly<Record<string, unknown>>;
    readonly activation: string;
    readonly width?: number;
    readonly noise?: number;
    readonly second_layer?: string | readonly number[];
    readonly inputs?: Inputs;
    readonly [key: string]: unknown;
  };
  readonly algorithm: {
    readonly lr: string | number;
    readonly batch?: string | number;
    readonly [key: string]: unknown;
  };
  readonly start?: { readonly Q?: Rows; readonly M?: Rows; readonly a?: readonly number[]; readonly random?: string; readonly seed?: number; readonly blocks?: Readonly<Record<"Q" | "M" | "P", readonly Rows[]>> };
  readonly run: {
    readonly dim?: number;
    readonly time?: number | readonly number[];
    readonly steps?: number | readonly number[];
    readonly alpha?: number | readonly number[];
    readonly seeds?: number;
    readonly seed?: number;
    readonly [key: string]: unknown;
  };
  readonly method?: Readonly<Record<string, unknown>>;
}

/** coefficient · d^exponent, times schedules as text. */
export interface Law {
  readonly coefficient: number;
  readonly exponent: number;
  readonly schedule: string;
}

const NUMBER = "[0-9.]+(?:e[+-]?[0-9]+)?";
const LAW = new RegExp(`^(?:(${NUMBER})|(?:(${NUMBER})\\*)?d(?:\\*\\*(-?${NUMBER}))?|(${NUMBER})/d(?:\\*\\*(${NUMBER}))?)$`, "i");

/** Read a law such as 0.2/d, 4*d**0.5 or 64, with schedules behind it; null where it is written in another way. */
export function lawOf(text: string | number): Law | null {
  const words = String(text).split(/\s+\*\s+(?=[a-z]+\()/);
  const match = LAW.exec(words[0].replace(/\s+/g, ""));
  if (!match) return null;
  const [, plain, factor, power, over, root] = match;
  const schedule = words.slice(1).join(" * ");
  if (plain !== undefined) return { coefficient: Number(plain), exponent: 0, schedule };
  if (over !== undefined) return { coefficient: Number(over), exponent: -Number(root ?? 1), schedule };
  return { coefficient: Number(factor ?? 1), exponent: Number(power ?? 1), schedule };
}

export function lawText({ coefficient, exponent, schedule }: Law): string {
  const power = exponent === 1 ? "d" : `d**${exponent}`;
  const law = exponent === 0 ? String(coefficient) : exponent === -1 ? `${coefficient}/d` : `${coefficient}*${power}`;
  return schedule ? `${law} * ${schedule}` : law;
}

/** The start with a row for each neuron and a column for each direction; what is new is orthogonal to the rest. */
export function fitted(task: Task, p: number, k: number): Task {
  const { M, Q, a, blocks } = task.start ?? {};
  if (blocks && (blocks.M[0].length !== p || blocks.M[0][0].length !== k)) return { ...task, start: { seed: 0 } };
  if (!M || !Q || (M.length === p && M[0].length === k && (!a || a.length === p))) return task;
  const rows = Array.from({ length: p }, (_, j) => Array.from({ length: k }, (_, r) => M[j]?.[r] ?? (j >= M.length && r === j % k ? 0.1 : 0)));
  const dot = (i: number, j: number): number => rows[i].reduce((sum, x, r) => sum + x * rows[j][r], 0);
  const gram = rows.map((_, i) =>
    rows.map((_, j) => (i < Q.length && j < Q.length ? Q[i][j] : i === j ? 1 : Number(dot(i, j).toPrecision(6)))),
  );
  const start = { ...task.start, M: rows, Q: gram, ...(a ? { a: rows.map((_, j) => a[j] ?? 1) } : {}) };
  return { ...task, start };
}

/** The task with other inputs, and a start that is one for them: overlaps that were given for others are drawn anew. */
export function withInputs(task: Task, inputs: Inputs | undefined): Task {
  const { inputs: _, ...rest } = task.problem;
  const { M, blocks, random, seed } = task.start ?? {};
  const stays = inputs ? !M && (!blocks || blocks.M.length === inputs.variances?.length) : !blocks;
  const start = stays ? task.start : { ...(random ? { random } : {}), seed: seed ?? 0 };
  return { ...task, problem: { ...rest, ...(inputs ? { inputs } : {}) } as Task["problem"], ...(start ? { start } : {}) };
}

/** The task at another dimension; a power law has as many eigenvalues. */
export function withDim(task: Task, dim: number): Task {
  const run = { ...task.run, dim };
  const { inputs } = task.problem;
  return { ...task, run, ...(inputs?.kind === "power_law" ? { problem: { ...task.problem, inputs: { ...inputs, dim } } } : {}) };
}

export const THEORIES = ["ode", "population", "map", "giantsteps", "dmft", "meanfield"] as const;
export const RUNS = ["chain", "sde", "vectors"] as const;
export const NAMES: Readonly<Record<string, string>> = {
  ode: "ODE", population: "Population", map: "Map", giantsteps: "GiantSteps", dmft: "DMFT", meanfield: "MeanField",
  chain: "Chain", sde: "SDE", vectors: "Vectors",
};
export const STEPWISE: readonly string[] = ["map", "giantsteps", "dmft"];

export type Clock = "time" | "alpha" | "step";
export type Scale = "linear" | "log" | "loglog";
export type Tab = "plane" | "landscape" | "methods" | "verdict" | "pinned";

export interface Pin {
  readonly name: string;
  readonly task: Task;
  readonly theory: string;
}

export interface State {
  readonly task: Task;
  readonly theory: string;
  readonly runs: string;
  readonly clock: Clock;
  readonly scale: Scale;
  readonly quantity: "risk" | "excess_risk";
  readonly overlaps: "M" | "Q" | "map";
  readonly tab: Tab;
  readonly marks: boolean;
  readonly best: boolean;
  readonly threshold: number;
  readonly family: string;
  readonly pins: readonly Pin[];
  /** Cursor of time, as a part of the way. */
  readonly at: number;
}

/** The first theory and the first simulation that a task names, or the usual ones. */
export function lensesOf(task: Task): { theory: string; runs: string } {
  const named = (Array.isArray(task.run["methods"]) ? task.run["methods"] : []).map((word) => String(word).toLowerCase());
  return {
    theory: named.find((word) => (THEORIES as readonly string[]).includes(word)) ?? "ode",
    runs: named.find((word) => (RUNS as readonly string[]).includes(word)) ?? "chain",
  };
}

export const VIEW = {
  clock: "time", scale: "linear", quantity: "risk", overlaps: "M", tab: "plane", marks: false, best: false, threshold: 0.1,
  family: "", pins: [], at: 1,
} as const satisfies Partial<State>;

export function opened(task: Task): State {
  return { ...VIEW, task, ...lensesOf(task) };
}

/** The state as the fragment of an address: JSON, of which nothing is left out but what is usual. */
export function writeLink(state: State): string {
  const rest = Object.entries(state).filter(([key, value]) => !(key in VIEW) || JSON.stringify(value) !== JSON.stringify(VIEW[key as keyof typeof VIEW]));
  const text = encodeURIComponent(JSON.stringify(Object.fromEntries(rest))).replace(/['()]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);
  return text.replace(/%(22|2C|3A|7B|7D|5B|5D)/g, (word) => ({ "%22": "'", "%2C": ",", "%3A": ":", "%7B": "(", "%7D": ")", "%5B": "[", "%5D": "]" })[word]!);
}

/** The state that a fragment tells of, or null. */
export function readLink(fragment: string): State | null {
  const text = fragment.replace(/^#/, "");
  if (!text) return null;
  try {
    // quotes, braces and parentheses of the text itself are escaped as %27, %28 and %29 in a link that was written here
    const json = text.replaceAll("'", '"').replaceAll("(", "{").replaceAll(")", "}");
    const found = JSON.parse(decodeURIComponent(json)) as Partial<State>;
    if (typeof found.task?.problem !== "object" || typeof found.task.algorithm !== "object" || typeof found.task.run !== "object") return null;
    return { ...opened(found.task), ...found };
  } catch {
    return null;
  }
}

/** What the numbers of theory and runs depend on. */
export function question({ task, theory, runs }: State): string {
  return JSON.stringify([task, theory, runs]);
}
