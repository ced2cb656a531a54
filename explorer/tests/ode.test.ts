/** The limit: against trajectories of the Python package, and against what is known exactly. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { integrate } from "../src/engine/integrate";
import { covariance, gaussianOf } from "../src/engine/gaussian/averages";
import { Packing, solve } from "../src/engine/ode";
import type { Task } from "../src/engine/task";
import { close, distance, reference } from "./reference";

const TOLERANCE = 1e-6;

for (const { name, task, start, time, ...expected } of reference("ode")) {
  test(`trajectory of Python: ${name}`, () => {
    const packing = new Packing(task, start.a);
    const { states, diverged } = solve(task, start, time);
    assert.equal(diverged, null);
    const gaussian = gaussianOf(task);
    states.forEach((state, i) => {
      const { Q, M, a } = packing.unpack(state);
      close(M, expected.M[i], TOLERANCE, `M at t = ${time[i]}`);
      close(Q, expected.Q[i], TOLERANCE, `Q at t = ${time[i]}`);
      close(a, expected.a[i], TOLERANCE, `a at t = ${time[i]}`);
      close(gaussian.excess(covariance(task)(Q, M), a), expected.excess[i], TOLERANCE, `risk at t = ${time[i]}`);
    });
  });
}

test("a learning rate wrong by a factor of two is seen", () => {
  for (const { name, task, start, time, M } of reference("ode")) {
    const packing = new Packing(task, start.a);
    const { states } = solve({ ...task, gamma: 2 * task.gamma }, start, time);
    const worst = Math.max(...states.map((state, i) => distance(packing.unpack(state).M, M[i])));
    assert.ok(worst > 100 * TOLERANCE, `${name}: ${worst}`);
  }
});

const phaseRetrieval = (gamma: number, noise: number): Task => ({
  activation: "square",
  p: 1,
  k: 1,
  target: { kind: "committee", weights: [1] },
  P: [[1]],
  noise,
  gamma,
  batch: 1,
  geometry: "projected",
  loss: "squared",
  trained: false,
});

test("phase retrieval by one neuron has its exact solution, from 10⁻⁵ of an overlap on", () => {
  const [gamma, noise] = [0.08, 0.3];
  const [A, B] = [4 * (1 - 6 * gamma), 2 * gamma * noise];
  const end = 1 - B / A;
  const times = Array.from({ length: 41 }, (_, i) => i / 4);
  for (const m0 of [0.01, 1e-5]) {
    const { states } = solve(phaseRetrieval(gamma, noise), { Q: [[1]], M: [[m0]], a: [1] }, times);
    times.forEach((t, i) => {
      const exact = end / (1 + (end / m0 ** 2 - 1) * Math.exp(-2 * (A - B) * t));
      close(states[i][0] ** 2, exact, 2e-7, `u at t = ${t} from ${m0}`);
    });
  }
});

test("a solution that blows up is stopped, and says where", () => {
  const task = { ...phaseRetrieval(3, 0), geometry: "free" as const };
  const { states, diverged } = solve(task, { Q: [[1]], M: [[0.3]], a: [1] }, [0, 1, 2, 100]);
  assert.ok(diverged !== null && diverged < 1);
  assert.equal(states.length, 1);
});

test("the integrator has order five, its dense output order four", () => {
  // a circle: y'' = −y; errors at rtol differing by 2⁵ ⁽ᵖᵉʳ ˢᵗᵉᵖ⁾ fall about as the tolerance
  const circle = (y: Float64Array, dy: Float64Array): void => {
    dy[0] = y[1];
    dy[1] = -y[0];
  };
  const times = Array.from({ length: 101 }, (_, i) => i / 10);
  const errors = [1e-5, 1e-7, 1e-9].map((rtol) => {
    const control = { rtol, atol: rtol, diverged: () => false };
    const { states, evaluations } = integrate(circle, Float64Array.from([0, 1]), times, control);
    const worst = Math.max(...states.map((y, i) => Math.abs(y[0] - Math.sin(times[i]))));
    return { worst, evaluations };
  });
  for (let i = 1; i < errors.length; i++) {
    const order = Math.log(errors[i - 1].worst / errors[i].worst) / Math.log(errors[i].evaluations / errors[i - 1].evaluations);
    assert.ok(order > 4 && order < 7, `order ${order}`);
  }
  assert.ok(errors[2].worst < 1e-7);
});
