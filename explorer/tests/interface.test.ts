/** What the page is made of, without a page: numbers in words, history, links, descriptions, statistics. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { normals, stream } from "../src/engine/random";
import { Channels, observer } from "../src/engine/observe";
import { PRESETS } from "../src/playground/presets";
import { formula } from "../src/playground/python";
import { Ensemble, gridOf, Limit, quantile } from "../src/playground/results";
import { CODECS, DEFAULT, refusal, settle, stepsOf, taskOf, type State } from "../src/playground/state";
import { count, duration, fixed, measured, short, typed } from "../src/ui/numbers";
import { readLink, writeLink } from "../src/ui/permalink";
import { Store } from "../src/ui/store";
import { close } from "./reference";

test("numbers in few characters", () => {
  const cases: [number, string][] = [
    [0, "0"], [0.03125, "0.0313"], [-0.4, "−0.4"], [1e6, "10⁶"], [1.234e-5, "1.23×10⁻⁵"], [-1e-7, "−10⁻⁷"], [12345, "12300"],
    [999.96, "1000"], [NaN, "–"], [0.001, "0.001"],
  ];
  for (const [x, text] of cases) assert.equal(short(x), text);
  assert.equal(fixed(-0.001), "0.00");
  assert.equal(fixed(-0.456), "−0.46");
  assert.equal(fixed(497_000), "5×10⁵");
  assert.equal(typed(1e9), "1e9");
  assert.equal(typed(500), "500");
  assert.equal(count(120_000), "120\u2009000");
  assert.equal(duration(0.2), "under a second");
  assert.equal(duration(7200), "2 h");
});

test("a mean has the digits that its error leaves", () => {
  assert.equal(measured(0.09142, 0.00131), "0.0914 ± 0.0013");
  assert.equal(measured(1.2345e-5, 2.3e-6), "(1.23 ± 0.23)×10⁻⁵");
  assert.equal(measured(-0.5, 0.25), "−0.50 ± 0.25");
  assert.equal(measured(0.5, 0), "0.5");
});

interface Small {
  readonly x: number;
  readonly y: number;
  readonly at: number;
}

test("history: changes of one control in quick succession are one", () => {
  let now = 0;
  const store = new Store<Small>({ x: 0, y: 0, at: 0 }, (s) => s, ["at"], () => now);
  for (const x of [1, 2, 3]) {
    store.update({ x }, "x");
    now += 100;
  }
  store.update({ y: 1 }, "y");
  now += 5000;
  store.update({ y: 2 }, "y");
  store.amend({ at: 0.5 });
  store.undo();
  assert.deepEqual(store.state, { x: 3, y: 1, at: 0.5 });
  store.undo();
  store.undo();
  assert.deepEqual(store.state, { x: 0, y: 0, at: 0.5 });
  assert.ok(!store.canUndo && store.canRedo);
  store.undo();
  store.redo();
  store.redo();
  store.redo();
  assert.deepEqual(store.state, { x: 3, y: 2, at: 0.5 });
  store.undo();
  store.update({ x: 9 }, "x");
  assert.ok(!store.canRedo, "a new change ends the future");
});

test("history: what changes nothing is no change, and listeners hear the rest", () => {
  const heard: number[] = [];
  const store = new Store<Small>({ x: 0, y: 0, at: 0 }, (s) => ({ ...s, x: Math.min(s.x, 2) }));
  store.subscribe(({ x }) => heard.push(x));
  store.update({ x: 0 }, "x");
  store.update({ x: 5 }, "x");
  store.update({ x: 7 }, "x");
  assert.deepEqual(heard, [2]);
});

/** A state with every value drawn at random. */
function anyState(number: number): State {
  const draw = new Float64Array(100);
  normals(stream(11, 1, number), 0, 100, draw);
  let next = 0;
  const real = (): number => Number(draw[next++].toPrecision(4));
  const pick = <T>(values: readonly T[]): T => values[Math.floor(Math.abs(1000 * real())) % values.length];
  const p = pick([1, 2, 3, 4]);
  const k = pick([1, 2, 3, 4]);
  const rows = (n: number, m: number): number[][] => Array.from({ length: n }, () => Array.from({ length: m }, real));
  return settle({
    activation: pick(["erf", "square", "He2", "relu"] as const),
    p,
    k,
    target: pick(["committee", "quadratic"] as const),
    teacher: rows(1, k)[0],
    H: rows(k, k),
    h0: real(),
    P: rows(k, k),
    a: rows(1, p)[0],
    noise: Math.abs(real()),
    gamma: Math.abs(real()) + 0.1,
    batch: pick([1, 2, 17]),
    geometry: pick(["free", "projected", "spherical"] as const),
    loss: pick(["squared", "correlation"] as const),
    trained: pick([true, false]),
    start: pick(["random", "given"] as const),
    law: pick(["sphere", "hemisphere", "gaussian"] as const),
    M: rows(p, k),
    Q: rows(p, p),
    dim: pick([10, 500, 123_456_789]),
    seed: pick([0, 7, 4_294_967_295]),
    time: Math.abs(real()) + 0.01,
    runs: pick([1, 32, 200]),
    scale: pick(["linear", "log", "loglog"] as const),
    quantity: pick(["risk", "excess"] as const),
    size: pick(["linear", "log"] as const),
    x: pick(["m1", "m2", "q", "qperp"] as const),
    y: pick(["m1", "m3", "q", "qperp"] as const),
    hidden: pick([[], ["M11"], ["M11", "Q12", "Q44"]]),
    at: pick([0, 0.25, 1]),
  });
}

test("a link restores every state", () => {
  for (let i = 0; i < 500; i++) {
    const state = anyState(i);
    const link = writeLink(CODECS, state, DEFAULT);
    const { values, refused } = readLink(CODECS, `#${link}`);
    assert.deepEqual(refused, []);
    assert.deepEqual(settle({ ...DEFAULT, ...values }), state);
    assert.ok(!/[\s<>"]/.test(link));
  }
  assert.equal(writeLink(CODECS, settle(DEFAULT), DEFAULT), "");
});

test("what a link cannot mean is refused and named, and the rest is taken", () => {
  const { values, refused } = readLink(CODECS, "#p=9&gamma=-1&k=2&Q=1,2;3&constructor=1&noise=%E0%A4%A&dim=1.5&seed=&loss=hinge");
  assert.deepEqual(values, { k: 2 });
  assert.equal(refused.length, 8);
});

test("settled states fit together whatever they were", () => {
  for (let i = 0; i < 200; i++) {
    const state = settle({ ...anyState(i), p: 3, k: 2 });
    assert.equal(state.a.length, 3);
    assert.equal(state.teacher.length, 2);
    assert.deepEqual([state.M.length, state.M[0].length, state.Q.length, state.P.length, state.H.length], [3, 2, 3, 2, 2]);
    for (const rows of [state.Q, state.P, state.H]) rows.forEach((row, r) => row.forEach((x, c) => assert.equal(x, rows[c][r])));
    if (state.geometry !== "free") state.Q.forEach((row, j) => assert.equal(row[j], 1));
    assert.deepEqual(settle(state), state);
  }
});

test("impossible descriptions are refused in one sentence", () => {
  const given = { ...DEFAULT, start: "given" as const };
  assert.equal(refusal(settle(DEFAULT)), null);
  assert.match(refusal(settle({ ...given, M: [[1.2], [0]] }))!, /No vectors have these overlaps.*eigenvalue is -0\.\d+/);
  assert.match(refusal(settle({ ...given, k: 2, P: [[1, 2], [2, 1]] }))!, /^P must be positive semidefinite/);
  assert.match(refusal(settle({ ...given, P: [[-1]] }))!, /positive norm/);
  assert.match(refusal(settle({ ...given, geometry: "free", Q: [[-1, 0], [0, 1]] }))!, /cannot be negative/);
  assert.match(refusal(settle({ ...given, activation: "relu", geometry: "free", M: [[0], [0]], Q: [[0, 0], [0, 1]] }))!, /rectifier/);
});

test("every example can be run, and is a state of its own", () => {
  const links = PRESETS.map(({ state }) => writeLink(CODECS, state, DEFAULT));
  assert.equal(new Set(links).size, PRESETS.length);
  for (const { title, state } of PRESETS) {
    assert.equal(refusal(state), null, title);
    assert.deepEqual(settle(state), state, title);
    assert.ok(stepsOf(state) < 500_000, title);
  }
});

test("formulas of quadratic targets", () => {
  assert.equal(formula([[1, 0], [0, -1]], 0), "z1**2 - z2**2");
  assert.equal(formula([[0, 0.5], [0.5, 0]], -0.25), "z1*z2 - 0.25");
  assert.equal(formula([[-2]], 1), "-2*z1**2 + 1");
});

test("grids of times: increasing, from 0 to the end, with the steps of the chain among them", () => {
  for (let i = 0; i < 100; i++) {
    const state = anyState(i);
    const { times, steps, places } = gridOf(state);
    assert.equal(times[0], 0);
    const rate = (state.p * state.dim) / state.gamma;
    const last = times[times.length - 1];
    assert.ok(last > (1 - 1e-12) * state.time && last <= state.time + 0.51 / rate, "the last step is the nearest one to the end");
    for (let n = 1; n < times.length; n++) assert.ok(times[n] > times[n - 1]);
    for (let n = 1; n < steps.length; n++) assert.ok(steps[n] > steps[n - 1] && Number.isInteger(steps[n]));
    assert.equal(steps[steps.length - 1], stepsOf(state));
    steps.forEach((step, n) => close(times[places[n]], step / rate, 1e-12));
  }
});

test("places of the quantities in a row", () => {
  const state = settle({ ...DEFAULT, p: 3, k: 2, Q: [], M: [] });
  const channels = new Channels(3, 2);
  const row = new Float64Array(channels.size);
  const Q = [[1, 0.2, 0.3], [0.2, 4, 0.5], [0.3, 0.5, 6]];
  const M = [[0.01, 0.02], [0.03, 0.04], [0.05, 0.06]];
  observer(taskOf(state))(Float64Array.from(Q.flat()), Float64Array.from(M.flat()), Float64Array.from([7, 8, 9]), row, 0);
  for (let j = 0; j < 3; j++) {
    assert.equal(row[channels.a(j)], 7 + j);
    for (let l = 0; l < 3; l++) assert.equal(row[channels.Q(j, l)], Q[j][l]);
    for (let r = 0; r < 2; r++) assert.equal(row[channels.M(j, r)], M[j][r]);
  }
});

test("means, bands and single runs of an ensemble that is still growing", () => {
  const state = settle({ ...DEFAULT, p: 1, k: 1 });
  const grid = gridOf(state);
  const size = new Channels(1, 1).size;
  const ensemble = new Ensemble(grid, 1, 1, 11);
  const row = (x: number): number[] => new Array<number>(size).fill(x);
  for (let run = 0; run < 11; run++) {
    const rows = Float64Array.from([...row(run), ...(run < 5 ? row(10 * run) : [])]);
    ensemble.add({ kind: "piece", id: 1, run, first: 0, rows, step: run < 5 ? 7 : 3 });
  }
  const { mean, low, high } = ensemble.statistics(1, (x) => x + 100);
  const [first, second, third] = grid.places;
  assert.deepEqual([mean[first], low[first], high[first]], [105, 101, 109]);
  assert.equal(mean[second], 120);
  assert.equal(mean[third], null);
  assert.equal(ensemble.steps, 5 * 7 + 6 * 3);
  assert.deepEqual(ensemble.summary(0, 0), { count: 11, mean: 5, error: Math.sqrt(110 / 110) });
  assert.deepEqual(ensemble.lines(0, 2, (x) => x).map((line) => line[second]), [0, 10]);
  assert.equal(quantile([0, 10], 0.25), 2.5);
});

test("the limit between two times, and up to a blow-up", () => {
  const grid = gridOf(settle(DEFAULT));
  const size = new Channels(1, 1).size;
  const reached = 50;
  const rows = Float64Array.from({ length: reached * size }, (_, i) => grid.times[Math.floor(i / size)] * 3);
  const limit = new Limit(grid, 1, 1, rows, 0.3);
  const between = (grid.times[10] + grid.times[11]) / 2;
  close(limit.at(2, between), 3 * between, 1e-12);
  assert.equal(limit.line(0)[reached], null);
  close(limit.at(0, 1e9), 3 * grid.times[reached - 1], 1e-12);
});
