/** What has been computed: the limit at all times, and the runs of the chain as far as they have come. */
import { Channels } from "../engine/observe";
import type { PieceReply } from "../worker/protocol";
import { stepsOf, taskOf, type State } from "./state";
import { stepsPerTime } from "../engine/task";

/** Times at which things are known: `steps` those of the chain, `times` these and more for smooth curves. */
export interface Grid {
  readonly times: Float64Array;
  readonly steps: Float64Array;
  /** For each step its place in `times`. */
  readonly places: Int32Array;
}

const LINEAR = 240;
const DECADES = 5; // of a logarithmic axis
const PER_DECADE = 30;

export function gridOf(state: State): Grid {
  const end = state.time;
  const rate = stepsPerTime(taskOf(state), state.dim);
  const last = stepsOf(state);
  const linear = Array.from({ length: LINEAR + 1 }, (_, i) => (end * i) / LINEAR);
  const logarithmic = Array.from({ length: DECADES * PER_DECADE }, (_, i) => end * 10 ** (-(i + 1) / PER_DECADE));
  const coarse = [...linear.filter((_, i) => i % 2 === 0), ...logarithmic.filter((_, i) => i % 3 === 0)];
  const steps = [...new Set(coarse.map((t) => Math.min(last, Math.round(t * rate))))].sort((a, b) => a - b);
  const atSteps = steps.map((step) => step / rate);
  const times = [...new Set([...linear, ...logarithmic, ...atSteps])].sort((a, b) => a - b);
  return {
    times: Float64Array.from(times),
    steps: Float64Array.from(steps),
    places: Int32Array.from(atSteps.map((t) => times.indexOf(t))),
  };
}

/** Rows of the limit. */
export class Limit {
  readonly reached: number;
  private readonly channels: Channels;

  constructor(
    readonly grid: Grid,
    readonly p: number,
    readonly k: number,
    private readonly rows: Float64Array,
    readonly diverged: number | null,
  ) {
    this.channels = new Channels(p, k);
    this.reached = rows.length / this.channels.size;
  }

  /** One quantity at all times; null beyond a blow-up. */
  line(channel: number): (number | null)[] {
    const { size } = this.channels;
    return Array.from(this.grid.times, (_, i) => (i < this.reached ? this.rows[i * size + channel] : null));
  }

  /** One quantity at one place of the grid. */
  value(channel: number, place: number): number {
    return this.rows[place * this.channels.size + channel];
  }

  /** The first place of the grid not before a time, among those reached. */
  placeOf(time: number): number {
    const { times } = this.grid;
    let [low, high] = [0, this.reached - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** One quantity at any time, interpolated. */
  at(channel: number, time: number): number {
    const { times } = this.grid;
    const high = this.placeOf(time);
    const low = Math.max(0, high - 1);
    const part = high > low ? Math.min(1, (time - times[low]) / (times[high] - times[low])) : 0;
    return (1 - part) * this.value(channel, low) + part * this.value(channel, high);
  }
}

export interface Statistics {
  readonly mean: (number | null)[];
  readonly low: (number | null)[];
  readonly high: (number | null)[];
}

/** Value at a part of the way through sorted numbers, interpolated. */
export function quantile(sorted: ArrayLike<number>, part: number): number {
  const place = part * (sorted.length - 1);
  const low = Math.floor(place);
  const high = Math.min(sorted.length - 1, low + 1);
  return sorted[low] + (place - low) * (sorted[high] - sorted[low]);
}

/** Runs of the chain. */
export class Ensemble {
  /** Runs that have come to their end. */
  done = 0;
  /** Runs that left the finite range, and the first step at which one did. */
  diverged = 0;
  firstDivergence = Infinity;
  private readonly rows: Float64Array[];
  private readonly reached: Int32Array;
  private readonly step: Float64Array;
  readonly channels: Channels;

  constructor(
    readonly grid: Grid,
    p: number,
    k: number,
    readonly count: number,
  ) {
    this.channels = new Channels(p, k);
    this.rows = Array.from({ length: count }, () => new Float64Array(grid.steps.length * this.channels.size));
    this.reached = new Int32Array(count);
    this.step = new Float64Array(count);
  }

  add({ run, first, rows, step }: PieceReply): void {
    this.rows[run].set(rows, first * this.channels.size);
    this.reached[run] = first + rows.length / this.channels.size;
    this.step[run] = step;
  }

  /** Steps taken by all runs together. */
  get steps(): number {
    return this.step.reduce((sum, step) => sum + step, 0);
  }

  /** Mean and the central 80 % of the runs that have come so far, at the times of the grid. */
  statistics(channel: number, seen: (x: number) => number = (x) => x): Statistics {
    const n = this.grid.times.length;
    const out: Statistics = { mean: new Array(n).fill(null), low: new Array(n).fill(null), high: new Array(n).fill(null) };
    this.grid.places.forEach((place, i) => {
      const values = this.across(channel, i, seen).sort();
      if (values.length === 0) return;
      out.mean[place] = values.reduce((sum, x) => sum + x, 0) / values.length;
      out.low[place] = quantile(values, 0.1);
      out.high[place] = quantile(values, 0.9);
    });
    return out;
  }

  /** The values of one quantity in all runs that have come to step number i of the grid. */
  across(channel: number, i: number, seen: (x: number) => number = (x) => x): Float64Array {
    const { size } = this.channels;
    const values: number[] = [];
    this.rows.forEach((rows, run) => {
      if (i < this.reached[run]) values.push(seen(rows[i * size + channel]));
    });
    return Float64Array.from(values);
  }

  /** Mean of one quantity over the runs that have come to step number i of the grid, and its standard error. */
  summary(channel: number, i: number): { count: number; mean: number; error: number } {
    const values = this.across(channel, i);
    const n = values.length;
    const mean = values.reduce((sum, x) => sum + x, 0) / n;
    const square = values.reduce((sum, x) => sum + (x - mean) ** 2, 0);
    return { count: n, mean, error: Math.sqrt(square / (n * (n - 1))) };
  }

  /** One quantity of single runs, at the times of the grid. */
  lines(channel: number, most: number, seen: (x: number) => number): (number | null)[][] {
    const { size } = this.channels;
    return this.rows.slice(0, most).map((rows, run) => {
      const line = new Array<number | null>(this.grid.times.length).fill(null);
      for (let i = 0; i < this.reached[run]; i++) line[this.grid.places[i]] = seen(rows[i * size + channel]);
      return line;
    });
  }

  /** The number of the last step of the grid not after a time. */
  placeOf(time: number): number {
    const { places, times } = this.grid;
    let i = places.length - 1;
    while (i > 0 && times[places[i]] > time) i -= 1;
    return i;
  }
}
