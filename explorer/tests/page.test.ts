/** The state of the explorer's page: laws in d, starts that fit, links that restore everything. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { lineText, shadeOf, SHADES } from "../src/page/maps";
import { asCsv, Ensemble, meanOf, pointAt, type BandEvent, type Curves } from "../src/page/results";
import { fitted, lawOf, lawText, lensesOf, opened, readLink, withDim, withInputs, writeLink, type State, type Task } from "../src/page/task";

const TASK: Task = {
  problem: { target: "He2(z1)", activation: "tanh(z + 0.5)", width: 2, noise: 0.1 },
  algorithm: { lr: "0.2/d * cosine(horizon=5, clock='alpha')", batch: 1 },
  start: { Q: [[1, 0.1], [0.1, 1]], M: [[0.3], [0.2]] },
  run: { dim: 400, time: 2 },
};

test("laws in d are read and written", () => {
  for (const text of ["0.2/d", "64", "4*d**0.5", "0.1*d**-0.5", "d**2", "2*d", "0.2/d * cosine(horizon=5, clock='alpha')", "1e-3/d**2"]) {
    const law = lawOf(text);
    assert.ok(law, text);
    assert.deepEqual(lawOf(lawText(law)), law);
  }
  assert.deepEqual(lawOf("0.2 / d"), { coefficient: 0.2, exponent: -1, schedule: "" });
  assert.deepEqual(lawOf(0.5), { coefficient: 0.5, exponent: 0, schedule: "" });
  assert.equal(lawOf("0.2/d * warmup(1) * inverse(scale=2*d, clock='step')")!.schedule, "warmup(1) * inverse(scale=2*d, clock='step')");
  for (const text of ["1/(12*d)", "d + 1", "x", ""]) assert.equal(lawOf(text), null);
});

test("starts get a row for each neuron and a column for each direction, and stay positive", () => {
  const { start } = fitted(TASK, 4, 2);
  assert.deepEqual(start!.M!.slice(0, 2), [[0.3, 0], [0.2, 0]]);
  assert.equal(start!.M!.length, 4);
  assert.deepEqual(start!.Q!.map((row) => row.length), [4, 4, 4, 4]);
  start!.Q!.forEach((row, i) => row.forEach((q, j) => assert.equal(q, start!.Q![j][i])));
  assert.equal(fitted(TASK, 2, 1), TASK);
  const few = fitted(TASK, 1, 1).start!;
  assert.deepEqual([few.M, few.Q], [[[0.3]], [[1]]]);
});

test("inputs with a spectrum come with a start for them", () => {
  const blocks = { kind: "blocks", variances: [1.5, 0.5], fractions: [0.5, 0.5] } as const;
  const other = withInputs(TASK, blocks);
  assert.deepEqual([other.problem.inputs, other.start], [blocks, { seed: 0 }], "overlaps of other inputs are none of these");
  const given = { blocks: { Q: [[[1]], [[1]]], M: [[[0]], [[0]]], P: [[[1]], [[1]]] } };
  assert.deepEqual(withInputs({ ...other, start: given }, { ...blocks, variances: [2, 1] }).start, given);
  assert.deepEqual(withInputs({ ...other, start: given }, { ...blocks, variances: [2, 1, 1] }).start, { seed: 0 });
  assert.deepEqual(fitted({ ...other, start: given }, 2, 1).start, { seed: 0 });
  assert.deepEqual(withInputs(other, undefined), { ...TASK, start: { seed: 0 } });
  const law = withInputs(TASK, { kind: "power_law", exponent: 1, dim: 400 });
  assert.deepEqual([withDim(law, 50).problem.inputs!.dim, withDim(law, 50).run.dim, withDim(TASK, 50).problem], [50, 50, TASK.problem]);
});

test("a link restores everything", () => {
  const state: State = { ...opened(TASK), scale: "loglog", at: 0.25, pins: [{ name: "1: it's (a) {pin}, [x]: \"é\"", task: TASK, theory: "ode" }], best: true };
  const link = writeLink(state);
  assert.deepEqual(readLink(`#${link}`), state);
  assert.match(link, /^[\w'()[\]:,.%*!~-]*$/, "signs that addresses may hold");
  assert.deepEqual(readLink(`#${decodeURI(encodeURI(link))}`), state);
  for (const broken of ["#", "#x", "#('task':1)", `#${link.slice(0, -3)}`, "#%E0%A4%A"]) assert.equal(readLink(broken), null, broken);
});

test("the methods that a task names are shown", () => {
  assert.deepEqual(lensesOf(TASK), { theory: "ode", runs: "chain" });
  assert.deepEqual(lensesOf({ ...TASK, run: { ...TASK.run, methods: ["DMFT", "vectors"] } }), { theory: "dmft", runs: "vectors" });
});

test("values with commas hold every entry", () => {
  const curves: Curves = {
    time: [0, 1], step: [0, 10], sample: [0, 10], alpha: [0, 0.1], units: {}, risk: [1, null], excess_risk: [0.9, 0.4], M: [[[0.1], [0.2]], [[0.3], [0.4]]],
    Q: [[[1, 0], [0, 1]], [[1, 0.5], [0.5, 1]]], a: [[1, 1], [1, 1]], outcome: "ok", advice: "", engine: "", engine_error: null, method: "ode", warnings: [],
  };
  assert.equal(asCsv(curves, null), "# ode\ntime,step,sample,alpha,risk,excess_risk,M11,M21,Q11,Q12,Q21,Q22\n0,0,0,0,1,0.9,0.1,0.2,1,0,0,1\n1,10,10,0.1,,0.4,0.3,0.4,1,0.5,0.5,1\n");
  assert.deepEqual([pointAt(curves, 0.4), pointAt(curves, 0.6)], [0, 1]);
});

test("runs that no theory follows are shown by their mean", () => {
  const runs = new Ensemble("vectors", 4);
  assert.equal(meanOf(runs), null);
  const spread = <T>(mean: T) => ({ mean, low: mean, high: mean });
  const band = { count: 4, lost: 0, first: 0, time: [0, 1], step: [0, 9], sample: [0, 9], alpha: [0, 0.1], risks: [[1, 0.5]], passages: [], warnings: [] };
  runs.add({ ...band, risk: spread([1, 0.5]), excess_risk: spread([0.9, 0.4]), M: spread([[[0.1]], [[0.3]]]) } satisfies BandEvent);
  const shown = meanOf(runs)!;
  assert.deepEqual([shown.risk, shown.M[1], shown.method, shown.Q], [[1, 0.5], [[0.3]], "vectors", undefined]);
});

test("a regime has the same colour whatever the target, and greys do not learn", () => {
  for (const dark of [false, true]) {
    const shades = Object.keys(SHADES).map((regime) => shadeOf(regime, dark));
    assert.equal(new Set(shades).size, shades.length);
    for (const regime of Object.keys(SHADES)) {
      const channels = shadeOf(regime, dark).match(/[0-9a-f]{2}/g)!.map((x) => parseInt(x, 16));
      const grey = Math.max(...channels) - Math.min(...channels) < 16;
      assert.equal(grey, regime.startsWith("not learning"), `${regime} ${dark}`);
    }
  }
  assert.equal(lineText("theta = 0", "δ = −1/2"), "θ = 0: δ = −1/2");
});
