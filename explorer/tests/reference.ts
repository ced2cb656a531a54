/** Reference numbers made by the Python package (reference.py), and the tests they are put to. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { Overlaps, Task } from "../src/engine/task";

type Numbers = number | readonly Numbers[];

export interface Trajectory {
  name: string;
  task: Task;
  start: Overlaps;
  time: number[];
  M: number[][][];
  Q: number[][][];
  a: number[][];
  excess: number[];
}

export interface Moments {
  name: string;
  task: Task;
  start: Overlaps;
  psi: number[][];
  phi: number[][];
  chi: number[][];
  second: number[];
  excess: number;
}

export interface Path {
  name: string;
  task: Task;
  dim: number;
  rows: number[][];
  a: number[];
  seed: number;
  steps: number[];
  M: number[][][][];
  Q: number[][][][];
  layer: number[][][];
}

export interface Sample {
  name: string;
  task: Task;
  dim: number;
  start: Overlaps;
  steps: number;
  seen: Record<string, number[]>;
}

export interface RandomNumbers {
  normals: { seed: number; role: number; values: number[][] }[];
  quantiles: { n: number; x: number[]; values: number[] }[];
  starts: { p: number; k: number; dim: number; law: "sphere" | "hemisphere" | "gaussian"; Q: number[][][]; M: number[][][] }[];
}

export function reference(name: "ode"): Trajectory[];
export function reference(name: "averages"): Moments[];
export function reference(name: "chain"): { paths: Path[]; samples: Sample[] };
export function reference(name: "random"): RandomNumbers;
export function reference(name: string): unknown {
  return JSON.parse(readFileSync(`tests/reference/${name}.json`, "utf-8"));
}

export function flat(x: Numbers | Float64Array): number[] {
  if (typeof x === "number") return [x];
  return x instanceof Float64Array ? [...x] : x.flatMap(flat);
}

/** Largest |found − expected|, in units of 1 + |expected|. */
export function distance(found: Numbers | Float64Array, expected: Numbers | Float64Array): number {
  const [x, y] = [flat(found), flat(expected)];
  assert.equal(x.length, y.length);
  return x.reduce((worst, value, i) => {
    const away = Math.abs(value - y[i]) / (1 + Math.abs(y[i]));
    return Number.isNaN(away) ? Infinity : Math.max(worst, away);
  }, 0);
}

export function close(found: Numbers | Float64Array, expected: Numbers | Float64Array, tolerance: number, what = ""): void {
  const worst = distance(found, expected);
  assert.ok(worst <= tolerance, `${what}: off by ${worst.toExponential(2)}, more than ${tolerance}`);
}
