/** What the server has answered, as the page keeps it. */
import type { Values } from "./chart";
import type { Clock, Rows } from "./task";

export interface Curves {
  readonly time: number[];
  readonly step: number[];
  readonly sample: number[];
  readonly alpha: number[];
  readonly units: Record<string, string>;
  readonly risk: Values;
  readonly excess_risk: Values;
  readonly M: Rows[];
  readonly Q?: Rows[];
  readonly q?: number[][];
  readonly a: number[][];
  readonly outcome: string;
  readonly advice: string;
  readonly engine: string;
  readonly engine_error: number | null;
  readonly method: string;
  readonly warnings: string[];
}

interface Spread<T> {
  readonly mean: T;
  readonly low: T;
  readonly high: T;
}

export interface BandEvent {
  readonly count: number;
  readonly lost: number;
  readonly first: number;
  readonly time: number[];
  readonly step: number[];
  readonly sample: number[];
  readonly alpha: number[];
  readonly risk?: Spread<Values>;
  readonly excess_risk?: Spread<Values>;
  readonly M?: Spread<Rows[]>;
  readonly Q?: Spread<Rows[]>;
  readonly risks: Values[];
  readonly passages: (number | null)[];
  readonly warnings: string[];
}

export interface Verdict {
  readonly reference?: string;
  readonly reason?: string;
  readonly rows: { quantity: string; entry: string; verdict: string; reason: string; reference: number | null; mean: number | null; standard_error: number | null; worst_ratio: number | null }[];
}

/** Runs of a simulation so far. */
export class Ensemble {
  band: BandEvent | null = null;
  verdict: Verdict | null = null;
  readonly runs: Values[] = [];

  constructor(
    readonly method: string,
    readonly seeds: number,
  ) {}

  add(band: BandEvent): void {
    this.band = band;
    this.runs.push(...band.risks);
  }
}

/** The mean of runs in the place of a theory, for tasks that none follows. */
export function meanOf(ensemble: Ensemble | null): Curves | null {
  const band = ensemble?.band;
  if (!band?.risk || !band.excess_risk || !band.M) return null;
  const { time, step, sample, alpha } = band;
  const about = { units: {}, a: [], outcome: "ok", advice: "", engine: "", engine_error: null, method: ensemble!.method, warnings: [] };
  return { ...about, time, step, sample, alpha, risk: band.risk.mean, excess_risk: band.excess_risk.mean, M: band.M.mean, ...(band.Q ? { Q: band.Q.mean } : {}) };
}

export interface FamilyCurve {
  readonly value: string | number;
  readonly curves: Pick<Curves, "time" | "step" | "alpha" | "risk" | "excess_risk">;
}

/** A clock of a result; of a limit without a dimension it is in units of a power of d. */
export function clockOf(curves: Pick<Curves, "time" | "step" | "alpha">, clock: Clock): number[] {
  return curves[clock];
}

/** The number of the save point at a part of the way. */
export function pointAt(curves: { time: number[] }, part: number): number {
  const end = curves.time.at(-1) ?? 0;
  const wanted = part * end;
  let best = 0;
  curves.time.forEach((t, i) => {
    if (Math.abs(t - wanted) < Math.abs(curves.time[best] - wanted)) best = i;
  });
  return best;
}

/** Rows of comma-separated values: the theory, and mean and band of the runs where there are any. */
export function asCsv(curves: Curves, ensemble: Ensemble | null): string {
  const [p, k] = [curves.M[0].length, curves.M[0][0].length];
  const entries = (name: string, rows: number, columns: number): string[] => Array.from({ length: rows * columns }, (_, n) => `${name}${Math.floor(n / columns) + 1}${(n % columns) + 1}`);
  const head = ["time", "step", "sample", "alpha", "risk", "excess_risk", ...entries("M", p, k), ...(curves.Q ? entries("Q", p, p) : [])];
  const lines = curves.time.map((t, i) => [t, curves.step[i], curves.sample[i], curves.alpha[i], curves.risk[i], curves.excess_risk[i], ...curves.M[i].flat(), ...(curves.Q ? curves.Q[i].flat() : [])].map((x) => x ?? "").join(","));
  const out = [`# ${curves.method}`, head.join(","), ...lines];
  const band = ensemble?.band;
  if (band?.risk) {
    out.push(`# ${ensemble!.method}, ${band.count} runs`, "time,step,sample,alpha,risk_mean,risk_low,risk_high");
    band.time.forEach((t, i) => out.push([t, band.step[i], band.sample[i], band.alpha[i], band.risk!.mean[i], band.risk!.low[i], band.risk!.high[i]].map((x) => x ?? "").join(",")));
  }
  return `${out.join("\n")}\n`;
}
