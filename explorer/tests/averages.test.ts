/** The closed averages: against Python, and against Monte Carlo over the fields. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ACTIVATIONS } from "../src/engine/activation";
import { covariance, emptyAverages, gaussianOf, type Averages } from "../src/engine/gaussian/averages";
import { RELU } from "../src/engine/gaussian/relu";
import { eigen } from "../src/engine/matrix";
import { normals, stream } from "../src/engine/random";
import type { Overlaps, Task } from "../src/engine/task";
import { close, reference } from "./reference";

function averagesAt(task: Task, start: Overlaps): Averages & { excess: number } {
  const omega = covariance(task)(Float64Array.from(start.Q.flat()), Float64Array.from(start.M.flat()));
  const a = Float64Array.from(start.a);
  const out = emptyAverages(task.p, task.k);
  const gaussian = gaussianOf(task);
  gaussian.averages(omega, a, out);
  return { ...out, excess: gaussian.excess(omega, a) };
}

for (const { name, task, start, ...expected } of reference("averages")) {
  test(`averages are those of Python: ${name}`, () => {
    const found = averagesAt(task, start);
    for (const word of ["psi", "phi", "chi", "second", "excess"] as const) {
      close(found[word], expected[word], 1e-8, word);
    }
  });
}

/** Means and standard errors of the integrands over samples of the fields. */
function monteCarlo(task: Task, start: Overlaps, samples: number): Record<string, { mean: number; error: number }[]> {
  const { p, k } = task;
  const n = p + k;
  const omega = covariance(task)(Float64Array.from(start.Q.flat()), Float64Array.from(start.M.flat()));
  const rows = Array.from({ length: n }, (_, i) => [...omega.subarray(i * n, (i + 1) * n)]);
  const { values, vectors } = eigen(rows);
  const root = values.map((v) => Math.sqrt(Math.max(v, 0)));
  const sigma = ACTIVATIONS[task.activation];
  const draw = new Float64Array(n + 1);
  const key = stream(9, 1);
  const sums: Record<string, { mean: number; error: number }[]> = {};
  const add = (word: string, i: number, x: number): void => {
    const entry = ((sums[word] ??= [])[i] ??= { mean: 0, error: 0 });
    entry.mean += x / samples;
    entry.error += (x * x) / samples;
  };
  for (let s = 0; s < samples; s++) {
    normals(key, s, n + 1, draw);
    const h = vectors.map((row) => root.reduce((sum, r, c) => sum + row[c] * r * draw[c], 0));
    const star = h.slice(p);
    const { target } = task;
    const y =
      target.kind === "committee"
        ? target.weights.reduce((sum, w, r) => sum + (w * sigma.value(star[r])) / k, 0)
        : target.H.reduce((sum, row, r) => sum + row.reduce((t, x, q) => t + x * star[r] * star[q], 0), target.h0);
    const f = start.a.reduce((sum, w, j) => sum + (w * sigma.value(h[j])) / p, 0);
    const e = y + Math.sqrt(task.noise) * draw[n] - (task.loss === "squared" ? f : 0);
    add("excess", 0, (y - f) ** 2 / 2);
    for (let j = 0; j < p; j++) {
      const g = start.a[j] * sigma.slope(h[j]) * e;
      for (let r = 0; r < k; r++) add("psi", j * k + r, g * star[r]);
      for (let l = 0; l < p; l++) {
        add("phi", j * p + l, g * h[l]);
        add("chi", j * p + l, g * start.a[l] * sigma.slope(h[l]) * e);
      }
      add("second", j, e * sigma.value(h[j]));
    }
  }
  for (const entries of Object.values(sums)) {
    for (const entry of entries) entry.error = Math.sqrt((entry.error - entry.mean ** 2) / samples);
  }
  return sums;
}

for (const { name, task, start } of reference("averages").filter(({ name }) => name.endsWith("aligned 1"))) {
  test(`averages are means over the fields: ${name}`, () => {
    const found = averagesAt(task, start);
    const sampled = monteCarlo(task, start, 100_000);
    for (const word of ["psi", "phi", "chi", "second", "excess"] as const) {
      const values = word === "excess" ? [found.excess] : [...found[word]];
      values.forEach((value, i) => {
        const { mean, error } = sampled[word][i];
        // some 300 comparisons, of heavy-tailed means among others
        assert.ok(Math.abs(value - mean) < 5.5 * error, `${word}[${i}]: ${value} against ${mean} ± ${error}`);
      });
    }
  });
}

test("a weight wrong by a factor of two is seen", () => {
  const { task, start } = reference("averages").find(({ name }) => name.startsWith("relu, two"))!;
  const wrong = averagesAt({ ...task, noise: 2 * task.noise + 0.1 }, start);
  const { mean, error } = monteCarlo(task, start, 100_000)["chi"][0];
  assert.ok(Math.abs(wrong.chi[0] - mean) > 20 * error);
});

/** Four unit vectors of which some coincide up to an angle. */
function nearly(angle: number, twins: readonly (readonly [number, number])[]): Float64Array {
  const vectors = [[1, 0.2, -0.3, 0.1], [0.1, 1, 0.4, -0.2], [-0.2, 0.3, 1, 0.5], [0.3, -0.1, 0.2, 1]];
  const aside = [0.3, -0.7, 0.2, 0.6];
  for (const [i, j] of twins) vectors[i] = vectors[j].map((x, c) => x + angle * aside[c]);
  const unit = vectors.map((v) => v.map((x) => x / Math.hypot(...v)));
  return Float64Array.from(unit.flatMap((v) => unit.map((w) => v.reduce((sum, x, c) => sum + x * w[c], 0))));
}

test("rectifiers whose fields nearly coincide: four-point averages go over into three- and two-point ones", () => {
  const weights = Float64Array.from([0, 0, 1, 0.5]);
  /** The same average with one field in the place of its twin: no four different fields are left. */
  const merged = (omega: Float64Array, j: number, l: number, q: number, s: number): number => {
    const c = new Float64Array(4);
    c[q] += weights[2];
    c[s] += weights[3];
    return RELU.fourPoint(omega, 4, c, j, l);
  };
  const cases = [
    { twins: [[3, 2]], places: [0, 1, 2, 2] },
    { twins: [[0, 2]], places: [2, 1, 2, 3] },
    { twins: [[1, 0]], places: [0, 0, 2, 3] },
    { twins: [[0, 2], [1, 3]], places: [2, 3, 2, 3] },
  ] as const;
  for (const { twins, places: [j, l, q, s] } of cases) {
    for (const angle of [1e-2, 1e-3, 3e-4, 1.1e-4, 1e-4, 9e-5, 1e-5, 1e-6, 1e-7]) {
      const omega = nearly(angle, twins);
      const away = RELU.fourPoint(omega, 4, weights, 0, 1) - merged(omega, j, l, q, s);
      assert.ok(Math.abs(away) < angle + 1e-8, `${JSON.stringify(twins)} at ${angle}: ${away}`);
    }
  }
});
