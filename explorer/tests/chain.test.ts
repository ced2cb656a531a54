/**
 * The chain: path by path against Python from the same rows, in law against samples of Python and against SGD on
 * explicit vectors. Statistical tests have fixed seeds and reject a correct program with probability below 1e-4.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ACTIVATIONS } from "../src/engine/activation";
import { Chain, embed } from "../src/engine/chain";
import { covariance, gaussianOf } from "../src/engine/gaussian/averages";
import { frame } from "../src/engine/matrix";
import { normals, Role, stream } from "../src/engine/random";
import type { Overlaps, Task } from "../src/engine/task";
import { GramFactor } from "../src/engine/wishart";
import { close, reference, type Sample } from "./reference";

const { paths, samples } = reference("chain");

for (const { name, task, dim, rows, a, seed, steps, M, Q, layer } of paths) {
  test(`runs of Python, step by step: ${name}`, () => {
    M.forEach((_, run) => {
      const chain = new Chain(task, dim, rows, a, seed, run);
      steps.forEach((step, i) => {
        chain.advance(step);
        const found = chain.overlaps();
        close(found.Q, Q[run][i], 1e-9, `Q at step ${step}`);
        close(found.M, M[run][i], 1e-9, `M at step ${step}`);
        close(found.a, layer[run][i], 1e-9, `a at step ${step}`);
      });
    });
  });
}

type Seen = Record<string, number[]>;

function look(task: Task, Q: Float64Array, M: Float64Array, a: Float64Array, seen: Seen): void {
  const excess = gaussianOf(task).excess(covariance(task)(Q, M), a);
  const values: Record<string, number> = { M11: M[0], Q12: Q[1], excess };
  if (task.geometry === "free") values["Q11"] = Q[0];
  for (const [word, value] of Object.entries(values)) (seen[word] ??= []).push(value);
}

const SEED = 2024;

/** Final overlaps and risks of many runs. */
function runs({ task, dim, start, steps }: Sample, count: number, factorOf?: (run: number) => GramFactor): Seen {
  const seen: Seen = {};
  const factor = Chain.factor(task, dim);
  const rows = embed(start, frame(task.P).inverse);
  for (let run = 0; run < count; run++) {
    const chain = new Chain(task, dim, rows, start.a, SEED, run, factorOf?.(run) ?? factor);
    chain.advance(steps);
    const { Q, M, a } = chain.overlaps();
    look(task, Q, M, a, seen);
  }
  return seen;
}

/** SGD on explicit weights, the experiment itself: z ∈ R^d, W ← W + (γ/(d p n_b)) Σ g zᵀ. */
function vectors({ task, dim, start, steps }: Sample, count: number): Seen {
  const { p, k, batch } = task;
  const sigma = ACTIVATIONS[task.activation];
  const { rank, L, inverse } = frame(task.P);
  const rows = embed(start, inverse);
  const seen: Seen = {};
  assert.ok(task.target.kind === "committee");
  const teacher = task.target.weights;
  const z = new Float64Array(dim + 1);
  for (let run = 0; run < count; run++) {
    const key = stream(4048, 5, run);
    const W = rows.map((row) => Float64Array.from({ length: dim }, (_, c) => row[c] ?? 0));
    const a = Float64Array.from(start.a);
    for (let step = 0; step < steps; step++) {
      const push = W.map(() => new Float64Array(dim));
      const second = new Float64Array(p);
      for (let i = 0; i < batch; i++) {
        normals(key, step, dim + 1, z, i * (dim + 1));
        const star = L.map((l) => l.reduce((sum, x, r) => sum + x * z[r], 0));
        const lambda = W.map((w) => w.reduce((sum, x, c) => sum + x * z[c], 0));
        const y = star.reduce((sum, x, r) => sum + (teacher[r] * sigma.value(x)) / k, 0) + Math.sqrt(task.noise) * z[dim];
        const f = lambda.reduce((sum, x, j) => sum + (a[j] * sigma.value(x)) / p, 0);
        const e = (task.loss === "squared" ? y - f : y) / batch;
        lambda.forEach((x, j) => {
          second[j] += e * sigma.value(x);
          for (let c = 0; c < dim; c++) push[j][c] += a[j] * sigma.slope(x) * e * z[c];
        });
      }
      const eta = task.gamma / (dim * p);
      W.forEach((w, j) => {
        const square = w.reduce((sum, x) => sum + x * x, 0);
        const along = task.geometry === "spherical" ? w.reduce((sum, x, c) => sum + x * push[j][c], 0) / square : 0;
        for (let c = 0; c < dim; c++) w[c] += eta * (push[j][c] - along * w[c]);
        const norm = task.geometry === "free" ? 1 : Math.sqrt(w.reduce((sum, x) => sum + x * x, 0));
        for (let c = 0; c < dim; c++) w[c] /= norm;
        if (task.trained) a[j] += eta * second[j];
      });
    }
    const dot = (x: Float64Array, y: Float64Array): number => x.reduce((sum, v, c) => sum + v * y[c], 0);
    const Q = Float64Array.from(W.flatMap((w) => W.map((v) => dot(w, v))));
    const M = Float64Array.from(W.flatMap((w) => L.map((l) => l.reduce((sum, x, r) => sum + x * w[r], 0))));
    assert.equal(rank, k);
    look(task, Q, M, a, seen);
  }
  return seen;
}

/** Probability of a Kolmogorov–Smirnov distance at least as large, for two samples of one law. */
function kolmogorov(x: readonly number[], y: readonly number[]): number {
  const [u, v] = [[...x].sort((a, b) => a - b), [...y].sort((a, b) => a - b)];
  let largest = 0;
  for (let i = 0, j = 0; i < u.length && j < v.length; ) {
    const at = Math.min(u[i], v[j]);
    while (u[i] <= at) i++;
    while (v[j] <= at) j++;
    largest = Math.max(largest, Math.abs(i / u.length - j / v.length));
  }
  const n = Math.sqrt((u.length * v.length) / (u.length + v.length));
  const lambda = (n + 0.12 + 0.11 / n) * largest;
  let sum = 0;
  for (let i = 1; i < 101; i++) sum += 2 * (i % 2 ? 1 : -1) * Math.exp(-2 * (lambda * i) ** 2);
  return lambda < 0.3 ? 1 : Math.min(1, sum);
}

/** Difference of two means in standard errors. */
function standardised(x: readonly number[], y: readonly number[]): number {
  const moments = (values: readonly number[]): readonly [number, number] => {
    const mean = values.reduce((sum, v) => sum + v, 0) / values.length;
    return [mean, values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / values.length ** 2];
  };
  const [[mx, vx], [my, vy]] = [moments(x), moments(y)];
  return (mx - my) / Math.sqrt(vx + vy);
}

/** The smallest probability and the largest standardised difference over all quantities seen. */
function disagreement(x: Seen, y: Seen): { probability: number; deviation: number } {
  const words = Object.keys(x).filter((word) => word in y);
  assert.ok(words.length >= 3);
  return {
    probability: Math.min(...words.map((word) => kolmogorov(x[word], y[word]))),
    deviation: Math.max(...words.map((word) => Math.abs(standardised(x[word], y[word])))),
  };
}

const COUNT = 3000;
const REJECT = 1e-5; // some twenty tests of probability, each with several quantities: together below 1e-3

for (const sample of samples) {
  test(`the law of Python's chain: ${sample.name}`, () => {
    const { probability, deviation } = disagreement(sample.seen, runs(sample, COUNT));
    assert.ok(probability > REJECT && deviation < 4.6, `probability ${probability}, deviation ${deviation}`);
  });
}

/** The wrong twin: every input lies on the sphere |z|² = d, so that its norm is no longer correlated with its fields. */
class OnSphere extends GramFactor {
  private step = 0;
  private readonly known: Float64Array;
  constructor(
    private readonly dim: number,
    known: number,
    private readonly run: number,
  ) {
    super(1, 1000);
    this.known = new Float64Array(known);
  }
  override build(_: Float64Array, T: Float64Array): void {
    normals(stream(SEED, Role.fields, this.run), this.step++, this.known.length, this.known);
    T[0] = Math.sqrt(Math.max(0, this.dim - this.known.reduce((sum, x) => sum + x * x, 0)));
  }
}

test("a chain whose inputs have the norm √d is told apart from Python's", () => {
  const sample = samples[0];
  const { task, dim } = sample;
  const twin = runs(sample, COUNT, (run) => new OnSphere(dim, task.k + task.p, run));
  const { probability } = disagreement(sample.seen, twin);
  assert.ok(probability < 1e-3 * REJECT, `probability ${probability}`);
});

for (const geometry of ["free", "projected", "spherical"] as const) {
  for (const batch of [1, 2, 6]) {
    test(`the law of SGD on vectors: ${geometry}, batch ${batch}`, () => {
      const task: Task = {
        activation: batch === 2 ? "erf" : "relu",
        p: 3,
        k: 2,
        target: { kind: "committee", weights: [1, -0.7] },
        P: [[1, 0.4], [0.4, 1]],
        noise: 0.1,
        gamma: 6,
        batch,
        geometry,
        loss: batch === 6 ? "correlation" : "squared",
        trained: geometry === "free",
      };
      const start: Overlaps = {
        Q: [[1, 0.2, 0.1], [0.2, 1, 0], [0.1, 0, 1]],
        M: [[0.5, 0.1], [0, 0.3], [-0.2, 0.2]],
        a: [1, -1, 0.5],
      };
      const sample: Sample = { name: "", task, dim: batch === 1 ? 75 : 10, start, steps: 12, seen: {} };
      const { probability, deviation } = disagreement(vectors(sample, 2000), runs(sample, COUNT));
      assert.ok(probability > REJECT && deviation < 4.6, `probability ${probability}, deviation ${deviation}`);
    });
  }
}

test("pieces of a run are the run", () => {
  const { task, dim, rows, a } = paths[0];
  const whole = new Chain(task, dim, rows, a, 1, 0);
  const pieces = new Chain(task, dim, rows, a, 1, 0);
  whole.advance(57);
  for (const stop of [1, 2, 20, 57]) pieces.advance(stop);
  assert.deepEqual(whole.overlaps(), pieces.overlaps());
});

/** E[g² (ξ*² + ξ⊥²)] of one He2 neuron at overlap m, by a sum over a fine grid (exact to rounding for Gaussian weights). */
function knownPart(m: number): number {
  const h = 0.05;
  let sum = 0;
  for (let x = -9; x <= 9; x += h) {
    for (let y = -9; y <= 9; y += h) {
      const lambda = m * x + Math.sqrt(1 - m * m) * y;
      const g = 2 * lambda * (x * x - lambda * lambda);
      sum += g * g * (x * x + y * y) * Math.exp(-(x * x + y * y) / 2);
    }
  }
  return (sum * h * h) / (2 * Math.PI);
}

test("a batch far larger than the work space has the exact mean of a step", () => {
  // E[ΔQ] = 2η E[g λ] + η² ( E[g² |z|²]/n_b + (1 − 1/n_b) |E[g z]|² ),   E[g z] = 4 (m w* − w)
  const [m, dim, batch] = [0.4, 1000, 2000];
  const task: Task = { ...paths[0].task, batch, noise: 0, geometry: "free", gamma: dim }; // η = 1
  const start: Overlaps = { Q: [[1]], M: [[m]], a: [1] };
  const seen = Array.from({ length: 200 }, (_, run) => {
    const chain = new Chain(task, dim, embed(start, [[1]]), [1], 5, run);
    chain.advance(1);
    return chain.overlaps().Q[0];
  });
  const w = 1 - m * m;
  const expected = 1 - 8 * w + (knownPart(m) + 48 * w * (dim - 2)) / batch + (1 - 1 / batch) * 16 * w;
  const mean = seen.reduce((sum, x) => sum + x, 0) / seen.length;
  const error = Math.sqrt(seen.reduce((sum, x) => sum + (x - mean) ** 2, 0)) / seen.length;
  assert.ok(Math.abs(mean - expected) < 4.5 * error, `${mean} ± ${error} against ${expected}`);
  assert.ok(error < 0.05 * Math.abs(expected - 1), "precise enough to see a factor of two");
});
