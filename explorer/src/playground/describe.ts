/** The left side of the page: what is learnt, by which network, by which steps, from where. */
import type { Rows } from "../engine/matrix";
import { choice, picker, slider, toggle, type Control } from "../ui/controls";
import { h } from "../ui/dom";
import { symbol } from "../ui/formula";
import { matrixField } from "../ui/matrix-field";
import { count, duration } from "../ui/numbers";
import type { Store } from "../ui/store";
import { PRESETS } from "./presets";
import { isQuadratic, startOf, stepsOf, type State } from "./state";

const WIDTHS = ["1", "2", "3", "4"].map((value) => ({ value, label: value }));
const DIGITS = 4; // of a random start that is taken over to be edited

export interface Progress {
  readonly done: number;
  readonly part: number;
  readonly running: boolean;
  /** Seconds left or needed, null where nothing is known. */
  readonly seconds: number | null;
  readonly refusal: string | null;
}

export class Describe {
  readonly element: HTMLElement;
  private readonly bound: ((state: State) => void)[] = [];
  private readonly run = h("button", { type: "button", class: "primary run" }, "Run the chain");
  private readonly bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the chain" });
  private readonly told = h("p", { class: "told" });
  private readonly refused = h("p", { class: "refused", role: "alert", hidden: true });

  /** `runOrStop` is called by the button of the chain. */
  constructor(
    private readonly store: Store<State>,
    runOrStop: () => void,
  ) {
    this.run.addEventListener("click", runOrStop);
    this.element = h(
      "form",
      { class: "describe", "aria-label": "Description", onsubmit: (event: Event) => event.preventDefault() },
      this.presets(),
      this.group("Task", this.task()),
      this.group("Descent", this.descent()),
      this.group("Start", this.start()),
      this.group("Chain", [...this.chain(), h("div", { class: "run-row" }, this.run, this.told), this.bar]),
    );
    store.subscribe((state) => this.show(state));
    this.show(store.state);
  }

  refuse(reason: string | null): void {
    this.refused.hidden = reason === null;
    this.refused.textContent = reason ?? "";
  }

  progress({ done, part, running, seconds, refusal }: Progress): void {
    const { runs } = this.store.state;
    this.run.textContent = running ? "Stop" : done > 0 ? "Run again" : "Run the chain";
    this.run.disabled = refusal !== null && !running;
    this.bar.value = part;
    this.bar.hidden = !running;
    const steps = `${count(stepsOf(this.store.state))} steps`;
    if (refusal) this.told.textContent = refusal;
    else if (running) this.told.textContent = `${done} of ${runs} runs${seconds === null ? "" : `, ${duration(seconds)} left`}`;
    else if (done > 0) this.told.textContent = `${done} runs of ${steps}`;
    else this.told.textContent = `${runs} runs of ${steps}${seconds === null ? "" : `: ${duration(seconds)}`}`;
  }

  private show(state: State): void {
    for (const set of this.bound) set(state);
  }

  private update(change: Partial<State>, name: string): void {
    this.store.update(change, name);
  }

  /** Keep a control and the state the same. */
  private bind<T>(control: Control<T>, get: (state: State) => T, shown: (state: State) => boolean = () => true): HTMLElement {
    this.bound.push((state) => {
      control.set(get(state));
      control.show(shown(state));
    });
    return control.element;
  }

  private group(title: string, controls: readonly HTMLElement[]): HTMLElement {
    return h("fieldset", { class: "group" }, h("legend", {}, title), ...controls);
  }

  private presets(): HTMLElement {
    const options = [{ value: "", label: "Own description" }, ...PRESETS.map(({ title }, i) => ({ value: String(i), label: title }))];
    const control = picker("Example", options, (value) => {
      const found = PRESETS[Number(value)];
      if (value !== "" && found) this.update(found.state, "example");
    });
    return this.bind(control, (state) => {
      const same = PRESETS.findIndex(({ state: preset }) => JSON.stringify({ ...preset, at: state.at }) === JSON.stringify(state));
      return same < 0 ? "" : String(same);
    });
  }

  private task(): HTMLElement[] {
    const activation = choice(
      "Neurons",
      [
        { value: "erf", label: "erf" },
        { value: "square", label: "x²" },
        { value: "He2", label: "He₂" },
        { value: "relu", label: "ReLU" },
      ] as const,
      (value) => this.update({ activation: value }, "activation"),
    );
    const target = choice(
      "Target",
      [
        { value: "committee", label: "committee" },
        { value: "quadratic", label: "quadratic" },
      ] as const,
      (value) => this.update({ target: value }, "target"),
    );
    const p = choice("Width", WIDTHS, (value) => this.update({ p: Number(value) }, "p"), symbol("p"));
    const k = choice("Directions", WIDTHS, (value) => this.update({ k: Number(value) }, "k"), symbol("k"));
    const noise = slider({
      label: "Noise",
      symbol: symbol("Delta"),
      min: 0,
      max: 1,
      most: 100,
      changed: (value) => this.update({ noise: value }, "noise"),
    });
    const a = matrixField({
      label: "Second layer",
      name: "a",
      symbol: symbol("a"),
      changed: ([values]) => this.update({ a: values }, "a"),
    });
    const teacher = matrixField({
      label: "Target layer",
      name: "a*",
      symbol: symbol("teacher"),
      changed: ([values]) => this.update({ teacher: values }, "teacher"),
    });
    const P = matrixField({
      label: "Target",
      name: "P",
      symbol: symbol("P"),
      symmetric: true,
      changed: (P) => this.update({ P }, "P"),
    });
    const H = matrixField({
      label: "Form",
      name: "H",
      symbol: symbol("H"),
      symmetric: true,
      changed: (H) => this.update({ H }, "H"),
    });
    const h0 = slider({
      label: "Constant",
      symbol: symbol("h0"),
      min: -2,
      max: 2,
      least: -100,
      most: 100,
      changed: (value) => this.update({ h0: value }, "h0"),
    });
    const quadratic = (state: State): boolean => state.target === "quadratic";
    return [
      this.bind(activation, (state) => state.activation),
      this.bind(p, (state) => String(state.p)),
      this.bind(k, (state) => String(state.k)),
      this.bind(target, (state) => state.target, (state) => isQuadratic(state.activation)),
      this.bind(noise, (state) => state.noise),
      h(
        "details",
        { class: "more" },
        h("summary", {}, "Weights and target overlaps"),
        this.bind(a, (state) => [state.a]),
        this.bind(teacher, (state) => [state.teacher], (state) => !quadratic(state)),
        this.bind(H, (state) => state.H, quadratic),
        this.bind(h0, (state) => state.h0, quadratic),
        this.bind(P, (state) => state.P),
      ),
    ];
  }

  private descent(): HTMLElement[] {
    const gamma = slider({
      label: "Learning rate",
      symbol: symbol("gamma"),
      min: 0.01,
      max: 10,
      least: 1e-6,
      most: 1000,
      scale: "log",
      changed: (value) => this.update({ gamma: value }, "gamma"),
    });
    const batch = slider({
      label: "Batch",
      symbol: symbol("batch"),
      min: 1,
      max: 1000,
      most: 100_000,
      scale: "log",
      whole: true,
      changed: (value) => this.update({ batch: value }, "batch"),
    });
    const geometry = choice(
      "Weights",
      [
        { value: "free", label: "free" },
        { value: "projected", label: "projected" },
        { value: "spherical", label: "spherical" },
      ] as const,
      (value) => this.update({ geometry: value }, "geometry"),
    );
    const loss = choice(
      "Loss",
      [
        { value: "squared", label: "squared" },
        { value: "correlation", label: "correlation" },
      ] as const,
      (value) => this.update({ loss: value }, "loss"),
    );
    const trained = toggle("Train the second layer too", (value) => this.update({ trained: value }, "trained"));
    return [
      this.bind(gamma, (state) => state.gamma),
      this.bind(batch, (state) => state.batch),
      this.bind(geometry, (state) => state.geometry),
      this.bind(loss, (state) => state.loss),
      this.bind(trained, (state) => state.trained),
    ];
  }

  private start(): HTMLElement[] {
    const kind = choice(
      "Overlaps",
      [
        { value: "random", label: "random" },
        { value: "given", label: "given" },
      ] as const,
      (value) => this.takeStart(value),
    );
    const law = choice(
      "Law",
      [
        { value: "sphere", label: "sphere" },
        { value: "hemisphere", label: "hemisphere", short: "half" },
        { value: "gaussian", label: "Gaussian" },
      ] as const,
      (value) => this.update({ law: value }, "law"),
    );
    this.bound.push((state) => law.offer(state.geometry === "free" ? ["sphere", "hemisphere", "gaussian"] : ["sphere", "hemisphere"]));
    const M = matrixField({
      label: "to target",
      name: "M",
      symbol: symbol("Mshort"),
      changed: (M) => this.update({ M }, "M"),
    });
    const Q = matrixField({
      label: "to neurons",
      name: "Q",
      symbol: symbol("Qshort"),
      symmetric: true,
      fixed: (i, j) => i === j && this.store.state.geometry !== "free",
      changed: (Q) => this.update({ Q }, "Q"),
    });
    const seed = slider({
      label: "Seed",
      min: 0,
      max: 100,
      most: 2 ** 32 - 1,
      whole: true,
      changed: (value) => this.update({ seed: value }, "seed"),
    });
    const dim = slider({
      label: "Dimension",
      symbol: symbol("d"),
      min: 10,
      max: 1e9,
      scale: "log",
      whole: true,
      changed: (value) => this.update({ dim: value }, "dim"),
    });
    const given = (state: State): boolean => state.start === "given";
    return [
      this.bind(kind, (state) => state.start),
      this.bind(law, (state) => state.law, (state) => !given(state)),
      this.bind(M, (state) => state.M, given),
      this.bind(Q, (state) => state.Q, given),
      this.refused,
      this.bind(dim, (state) => state.dim),
      this.bind(seed, (state) => state.seed),
    ];
  }

  /** What is random now becomes what is given, to be changed by hand. */
  private takeStart(start: "random" | "given"): void {
    const { state } = this.store;
    const rounded = (rows: Rows): Rows => rows.map((row) => row.map((x) => Number(x.toPrecision(DIGITS))));
    if (start === "given" && state.start === "random") {
      const { Q, M } = startOf(state);
      this.update({ start, Q: rounded(Q), M: rounded(M) }, "start");
    } else this.update({ start }, "start");
  }

  private chain(): HTMLElement[] {
    const time = slider({
      label: "Time",
      symbol: symbol("t"),
      min: 0.1,
      max: 1000,
      least: 1e-6,
      most: 1e6,
      scale: "log",
      changed: (value) => this.update({ time: value }, "time"),
    });
    const runs = slider({
      label: "Runs",
      min: 1,
      max: 200,
      whole: true,
      changed: (value) => this.update({ runs: value }, "runs"),
    });
    return [this.bind(time, (state) => state.time), this.bind(runs, (state) => state.runs)];
  }
}
