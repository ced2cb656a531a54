/** Classic set-ups: each a state that differs from the default in a few words. */
import { DEFAULT, settle, type State } from "./state";

export interface Preset {
  readonly title: string;
  readonly state: State;
}

function preset(title: string, change: Partial<State>): Preset {
  return { title, state: settle({ ...DEFAULT, ...change }) };
}

const random: Partial<State> = { start: "random", M: [], Q: [], a: [] };

export const PRESETS: readonly Preset[] = [
  preset("Phase retrieval, two neurons", {}),
  preset("Phase retrieval, one neuron escapes", {
    ...random, p: 1, gamma: 0.083, noise: 0, time: 4, dim: 3000, seed: 1, size: "log",
  }),
  preset("Phase retrieval, four neurons choose a sign", { ...random, p: 4, time: 6, dim: 1000, seed: 1 }),
  preset("A step too large: γ/p > 1/6", { gamma: 0.4, noise: 0, time: 12 }),
  preset("Soft committee: plateau, then specialisation", {
    ...random, activation: "erf", k: 2, a: [2, 2], teacher: [2, 2], gamma: 1.5, noise: 0, geometry: "free", time: 120,
    dim: 500, runs: 16, x: "m1", y: "m2", scale: "log",
  }),
  preset("Soft committee, more neurons than it needs", {
    ...random, activation: "erf", p: 4, k: 2, a: [4, 4, 4, 4], teacher: [2, 2], gamma: 1, noise: 0.01, geometry: "free",
    time: 120, dim: 250, runs: 8, x: "m1", y: "m2", quantity: "excess", scale: "log",
  }),
  preset("Rectifiers, two and two", {
    ...random, activation: "relu", k: 2, a: [2, 2], teacher: [2, 2], gamma: 0.5, noise: 0, geometry: "free", time: 30,
    runs: 16, x: "m1", y: "m2", scale: "log",
  }),
  preset("Rectifiers, both layers trained", {
    ...random, activation: "relu", p: 3, k: 2, teacher: [1, -1], a: [1, -1, 1], gamma: 1, geometry: "free",
    trained: true, time: 60, runs: 16, noise: 0, x: "m1", y: "m2", scale: "loglog",
  }),
  preset("The target z₁² − z₂²", {
    ...random, k: 2, target: "quadratic", H: [[1, 0], [0, -1]], a: [2, -2], gamma: 0.05, noise: 0, time: 3, dim: 1000,
    x: "m1", y: "m2",
  }),
  preset("Correlation loss on the sphere", { loss: "correlation", geometry: "spherical", gamma: 0.1, time: 1.5 }),
  preset("A few dimensions: d = 30", { dim: 30, runs: 200, time: 3 }),
];
