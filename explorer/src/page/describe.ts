/** The description: what is learnt, by which algorithm, from where and how far. Every control writes one key of the task. */
import { choice, picker, slider, toggle, type Control } from "../ui/controls";
import { h, uniqueId } from "../ui/dom";
import { matrixField } from "../ui/matrix-field";
import type { Store } from "../ui/store";
import { fitted, lawOf, lawText, opened, withDim, withInputs, type Inputs, type Law, type Rows, type State, type Task } from "./task";

export interface Preset {
  readonly name: string;
  readonly title: string;
  readonly group?: string;
  /** A sentence for those that are shown as cards. */
  readonly card?: string;
  readonly task: Task;
}

export interface Catalogue {
  readonly presets: readonly Preset[];
  readonly figures: readonly { name: string; title: string; group: string; preset: string }[];
  readonly zoo: readonly Preset[];
  readonly sources: Readonly<Record<string, string>>;
  readonly activations: readonly string[];
  readonly rules: readonly string[];
  readonly losses: readonly string[];
  readonly version: string;
  readonly limits: Readonly<Record<string, number>>;
  readonly task: Task | null;
}

const SCHEDULES = ["cosine(horizon=5, clock='alpha')", "linear(horizon=5, clock='alpha')", "warmup(1)", "inverse(scale=5)", "power(0.5, scale=5)", "piecewise(at=[5], values=[1, 0.1])"];

/** A line of text with suggestions, and a place for what is wrong with it. */
function textField(label: string, suggestions: readonly string[], changed: (text: string) => void, live = false): Control<string> & { fail(error: string | null, position?: number | null): void; input: HTMLInputElement } {
  const id = uniqueId("text");
  const listed = h("datalist", { id: `${id}-list` }, ...suggestions.map((word) => h("option", { value: word })));
  const input = h("input", { type: "text", id, spellcheck: "false", autocomplete: "off", autocapitalize: "off", list: `${id}-list`, "aria-describedby": `${id}-error` });
  const error = h("p", { class: "refused at-text", id: `${id}-error`, "aria-live": "polite" });
  error.hidden = true;
  input.addEventListener(live ? "input" : "change", () => changed(input.value));
  const element = h("div", { class: "control text" }, h("label", { for: id }, label), input, listed, error);
  return {
    element,
    input,
    set: (value) => {
      if (document.activeElement !== input || input.value !== value) input.value = value;
    },
    show: (shown) => (element.hidden = !shown),
    fail: (text, position = null) => {
      error.hidden = text === null;
      input.toggleAttribute("aria-invalid", false);
      if (text === null) return;
      input.setAttribute("aria-invalid", "true");
      error.replaceChildren(h("span", {}, text.replace(/^.*?cannot read the expression '.*?': /, "")));
      if (position === null) return;
      const [before, at, after] = [input.value.slice(0, position), input.value.slice(position, position + 1) || "␣", input.value.slice(position + 1)];
      error.prepend(h("code", { "aria-label": `at character ${position + 1}` }, before, h("mark", {}, at), after), " ");
    },
  };
}

/** A law in d: a slider and a field for its coefficient, a field for its exponent. */
function lawField(label: string, letter: string, min: number, max: number, changed: (change: Partial<Law>) => void): Control<Law> {
  const coefficient = slider({ label, min, max, least: 1e-9, most: 1e9, scale: "log", changed: (value) => changed({ coefficient: value }) });
  const exponent = h("input", { type: "number", step: 0.25, min: -9, max: 9, "aria-label": `${label}, exponent of d` });
  exponent.addEventListener("change", () => {
    if (exponent.value !== "" && Number.isFinite(Number(exponent.value))) changed({ exponent: Number(exponent.value) });
  });
  coefficient.element.classList.add("law");
  coefficient.element.append(h("span", { class: "power", "aria-hidden": "true" }, `·${letter}`), exponent);
  return {
    ...coefficient,
    set: (law) => {
      coefficient.set(law.coefficient);
      if (document.activeElement !== exponent) exponent.value = String(law.exponent);
    },
  };
}

export class Describe {
  readonly element = h("form", { class: "describe", "aria-label": "Description" });
  readonly run = h("button", { type: "button", class: "primary" }, "Run");
  private readonly bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the runs" });
  private readonly told = h("p", { class: "told", role: "status" });
  private readonly refused = h("p", { class: "refused", role: "alert" });
  private readonly target;
  private readonly activation;
  private readonly updates: ((task: Task) => void)[] = [];

  constructor(
    private readonly store: Store<State>,
    private readonly catalogue: Catalogue,
    pressed: () => void,
  ) {
    this.element.addEventListener("submit", (event) => event.preventDefault());
    this.run.addEventListener("click", pressed);
    this.refused.hidden = true;
    this.target = textField("Target", ["He2(z1)", "z1 + z1*z2", "z1*z2*z3", "He3(z1)", "tanh(z1)", "relu(z1) + relu(z2)"], (text) => this.problem({ target: text.trim().startsWith("{") ? asTable(text) : text }, "target"), true);
    this.activation = textField("Activation", catalogue.activations, (text) => this.problem({ activation: text }, "activation"), true);
    this.element.append(this.presets(), this.task(), this.algorithm(), this.start(), this.runs());
    this.show(store.state);
  }

  show({ task }: State): void {
    for (const update of this.updates) update(task);
  }

  wrong(what: "target" | "activation", error: string | null, position: number | null): void {
    this[what].fail(error, position);
  }

  refuse(reason: string | null): void {
    this.refused.hidden = reason === null;
    this.refused.textContent = reason ?? "";
  }

  progress(running: boolean, part: number, words: string): void {
    this.run.textContent = running ? "Stop" : "Run";
    this.run.setAttribute("aria-pressed", String(running));
    this.bar.value = part;
    this.told.textContent = words;
  }

  private change(task: Task, control: string): void {
    this.store.update({ task }, control);
  }

  private problem(change: Record<string, unknown>, control: string): void {
    const { task } = this.store.state;
    this.change({ ...task, problem: cleaned({ ...task.problem, ...change }) as Task["problem"] }, control);
  }

  private algorithmChange(change: Record<string, unknown>, control: string): void {
    const { task } = this.store.state;
    this.change({ ...task, algorithm: cleaned({ ...task.algorithm, ...change }) as Task["algorithm"] }, control);
  }

  private runChange(change: Record<string, unknown>, control: string): void {
    const { task } = this.store.state;
    this.change({ ...task, run: cleaned({ ...task.run, ...change }) }, control);
  }

  private group(title: string, ...parts: HTMLElement[]): HTMLElement {
    return h("fieldset", { class: "group" }, h("legend", {}, title), ...parts);
  }

  private more(title: string, ...parts: HTMLElement[]): HTMLElement {
    return h("details", { class: "more" }, h("summary", {}, title), ...parts);
  }

  private presets(): HTMLElement {
    const { presets, figures, zoo, sources } = this.catalogue;
    const id = uniqueId("presets");
    const tasks = new Map<string, Task>();
    const entry = (key: string, title: string, task: Task): HTMLOptionElement => {
      tasks.set(key, task);
      return h("option", { value: key }, title);
    };
    const home = new Map(presets.map((preset) => [preset.name, preset]));
    const groups = Object.entries(sources).map(([group, title]) =>
      h("optgroup", { label: title }, ...presets.filter((preset) => preset.group === group).map(({ name, title, task }) => entry(`preset:${name}`, title, task))),
    );
    const drawn = h("optgroup", { label: "Figures of the gallery" }, ...figures.map(({ name, title, preset }) => entry(`figure:${name}`, `${name}: ${title}`, home.get(preset)!.task)));
    const published = h("optgroup", { label: "Published set-ups" }, ...zoo.map(({ name, title, task }) => entry(`zoo:${name}`, title, task)));
    const other = h("option", { value: "" }, "a set-up …");
    const select = h("select", { id }, other, ...groups, drawn, published);
    const open = (task: Task): void => this.store.update({ ...opened(task), pins: this.store.state.pins, tab: this.store.state.tab }, "preset");
    select.addEventListener("change", () => {
      const task = tasks.get(select.value);
      if (task) open(task);
    });
    const keys = new Map<string, string>(); // of several entries with the same task, the first has its name
    for (const [key, task] of tasks) if (!keys.has(JSON.stringify(task))) keys.set(JSON.stringify(task), key);
    let last = "";
    this.updates.push((task) => {
      const key = keys.get(JSON.stringify(task));
      const titled = (value: string): string => [...select.options].find((option) => option.value === value)?.text ?? "";
      if (key) last = titled(key);
      other.text = !key && last ? `changed: ${last}` : "a set-up …";
      // figures that open the chosen task keep their own name
      const chosen = tasks.get(select.value);
      if (!chosen || JSON.stringify(chosen) !== JSON.stringify(task)) select.value = key ?? "";
      else last = titled(select.value);
      document.title = last ? `${select.selectedOptions[0].text} · twolayer explorer` : "twolayer explorer";
    });
    const examples = h("details", { class: "cards", open: location.hash === "" && this.catalogue.task === null }, h("summary", {}, "Six examples"));
    const cards = presets.filter((preset) => preset.card);
    for (const { title, card, task } of cards)
      examples.append(
        h(
          "button",
          {
            type: "button",
            onclick: () => {
              examples.open = false;
              open(task);
            },
          },
          h("b", {}, title),
          h("span", {}, card!),
        ),
      );
    return h("div", {}, ...(cards.length > 0 ? [examples] : []), h("div", { class: "control picker" }, h("label", { for: id }, "Open"), select));
  }

  private task(): HTMLElement {
    const width = slider({ label: "Neurons", min: 1, max: 8, most: this.catalogue.limits["width"], whole: true, changed: (p) => this.resize(p) });
    const noise = slider({ label: "Noise Δ", min: 0, max: 1, most: 1e6, changed: (value) => this.problem({ noise: value }, "noise") });
    const layer = picker("Second layer", [{ value: "ones", label: "all one" }, { value: "signs", label: "random signs" }, { value: "gaussian", label: "Gaussian" }, { value: "given", label: "as given" }], (value) => this.problem({ second_layer: value === "given" ? undefined : value }, "layer"));
    const normalisation = choice("Output", [{ value: "mean", label: "mean over neurons", short: "mean" }, { value: "sqrt", label: "sum over √p", short: "Σ/√p" }, { value: "sum", label: "sum over neurons", short: "sum" }], (value) => this.problem({ normalisation: value }, "normalisation"));
    const flips = slider({ label: "Flipped signs", min: 0, max: 0.5, changed: (value) => this.problem({ flips: value }, "flips") });
    const spectrum = this.spectrum();
    this.updates.push(({ problem }) => {
      this.target.set(typeof problem.target === "string" ? problem.target : JSON.stringify(problem.target));
      this.activation.set(problem.activation);
      width.set(problem.width ?? 1);
      noise.set(problem.noise ?? 0);
      layer.set(Array.isArray(problem.second_layer) ? "given" : ((problem.second_layer ?? "ones") as "ones"));
      normalisation.set((problem["normalisation"] ?? "mean") as "mean");
      flips.set((problem["flips"] ?? 0) as number);
    });
    return this.group("Task", this.target.element, this.activation.element, width.element, noise.element, this.more("Inputs, second layer, labels", ...spectrum, layer.element, normalisation.element, flips.element));
  }

  /** The covariance of the inputs: I, a few variances with their shares of the directions, or a power law. */
  private spectrum(): HTMLElement[] {
    const now = (): Inputs => this.store.state.task.problem.inputs ?? {};
    const change = (inputs: Inputs | undefined, control: string): void => this.change(withInputs(this.store.state.task, inputs), control);
    const even = (n: number): number[] => Array.from({ length: n }, (_, i) => (i < n - 1 ? Number((1 / n).toPrecision(6)) : Number((1 - (n - 1) * Number((1 / n).toPrecision(6))).toPrecision(12))));
    const kind = choice<"isotropic" | "blocks" | "power_law">("Inputs", [{ value: "isotropic", label: "isotropic, N(0, I)", short: "N(0, I)" }, { value: "blocks", label: "blocks of variances", short: "blocks" }, { value: "power_law", label: "power law", short: "power law" }], (value) => {
      const dim = this.store.state.task.run.dim ?? 1000;
      change(value === "isotropic" ? undefined : value === "blocks" ? { kind: value, variances: [1.6, 0.4], fractions: [0.5, 0.5] } : { kind: value, exponent: 1, dim }, "inputs");
    });
    const variances = textField("Variances", ["1.6, 0.4", "2, 0.5, 0.1"], (text) => {
      const found = numbersOf(text);
      variances.fail(found ? null : "Variances are numbers, separated by commas.");
      if (found) change({ kind: "blocks", variances: found, fractions: found.length === now().fractions?.length ? now().fractions! : even(found.length) }, "variances");
    });
    const fractions = textField("Shares of d", ["0.5, 0.5", "0.2, 0.5, 0.3"], (text) => {
      const found = numbersOf(text);
      const fits = found?.length === now().variances?.length && Math.abs(found!.reduce((sum, x) => sum + x, 0) - 1) < 1e-9;
      fractions.fail(fits ? null : "Shares are as many numbers as variances, and sum to one.");
      if (fits) change({ kind: "blocks", variances: now().variances!, fractions: found! }, "fractions");
    });
    const exponent = slider({ label: "Exponent", min: 0, max: 3, most: 100, changed: (value) => change({ ...now(), exponent: value }, "exponent") });
    this.updates.push(({ problem: { inputs } }) => {
      const shown = inputs ? (inputs.kind ?? "blocks") : "isotropic";
      kind.set(shown);
      variances.show(shown === "blocks");
      fractions.show(shown === "blocks" && inputs?.fractions !== undefined);
      exponent.show(shown === "power_law");
      variances.set(inputs?.variances?.join(", ") ?? "");
      fractions.set(inputs?.fractions?.join(", ") ?? "");
      exponent.set(inputs?.exponent ?? 1);
    });
    return [kind.element, variances.element, fractions.element, exponent.element];
  }

  private algorithm(): HTMLElement {
    const law = (key: "lr" | "batch", change: Partial<Law>): void => {
      const known = lawOf(this.store.state.task.algorithm[key] ?? 1) ?? { coefficient: 1, exponent: 0, schedule: "" };
      const next = { ...known, ...change };
      this.algorithmChange({ [key]: lawText(next) }, `${key}-${Object.keys(change)[0]}`);
    };
    const lr = lawField("Learning rate", "d^", 0.005, 5, (change) => law("lr", change));
    const batch = lawField("Batch", "d^", 1, 1000, (change) => law("batch", change));
    const schedule = textField("Schedule", SCHEDULES, (text) => law("lr", { schedule: text }));
    const geometry = choice("Weights", [{ value: "free", label: "free" }, { value: "projected", label: "projected" }, { value: "spherical", label: "spherical" }], (value) => this.algorithmChange({ geometry: value }, "geometry"));
    const loss = textField("Loss", this.catalogue.losses, (text) => this.algorithmChange({ loss: text || undefined }, "loss"));
    const rule = textField("Rule", this.catalogue.rules, (text) => this.algorithmChange({ rule: text || undefined }, "rule"));
    const momentum = slider({ label: "Momentum", min: 0, max: 0.95, changed: (value) => this.algorithmChange({ momentum: value || undefined }, "momentum") });
    const decay = slider({ label: "Weight decay", min: 0, max: 1, most: 1e6, changed: (value) => this.algorithmChange({ weight_decay: value || undefined }, "decay") });
    const second = toggle("Train the second layer too", (value) => this.algorithmChange({ train_second_layer: value || undefined, ...(value ? {} : { second_lr: undefined }) }, "second"));
    const ownRate = textField("Its rate", ["0.1/d", "1/d"], (text) => this.algorithmChange({ second_lr: text || undefined }, "second-rate"));
    ownRate.input.placeholder = "as the first layer";
    const dataset = textField("Samples", ["4*d", "d", "8*d"], (text) => this.algorithmChange({ dataset: text || undefined, ...(text ? {} : { sampling: undefined }) }, "dataset"));
    dataset.input.placeholder = "all new; or 4*d";
    const sampling = picker("Batches", [{ value: "sequence", label: "in sequence" }, { value: "reshuffled", label: "reshuffled" }, { value: "subset", label: "random subsets" }, { value: "replacement", label: "with replacement" }], (value) => this.algorithmChange({ sampling: value === "sequence" ? undefined : value }, "sampling"));
    this.updates.push(({ algorithm }) => {
      const [rate, size] = [lawOf(algorithm.lr), lawOf(algorithm.batch ?? 1)];
      lr.show(rate !== null);
      batch.show(size !== null);
      if (rate) lr.set(rate);
      if (size) batch.set(size);
      schedule.set(rate?.schedule ?? "");
      geometry.set((algorithm["geometry"] ?? "free") as "free");
      loss.set(String(algorithm["loss"] ?? "squared"));
      rule.set(String(algorithm["rule"] ?? ""));
      momentum.set((algorithm["momentum"] ?? 0) as number);
      decay.set((algorithm["weight_decay"] ?? 0) as number);
      second.set(Boolean(algorithm["train_second_layer"]));
      ownRate.set(String(algorithm["second_lr"] ?? ""));
      ownRate.show(Boolean(algorithm["train_second_layer"]));
      dataset.set(String(algorithm["dataset"] ?? ""));
      sampling.set((algorithm["sampling"] ?? "sequence") as "sequence");
      sampling.show(algorithm["dataset"] !== undefined);
    });
    return this.group("Algorithm", lr.element, batch.element, geometry.element, loss.element, this.more("Schedule, rule, momentum, data", schedule.element, rule.element, momentum.element, decay.element, second.element, ownRate.element, dataset.element, sampling.element));
  }

  private start(): HTMLElement {
    const law = choice("Weights", [{ value: "given", label: "given overlaps", short: "given" }, { value: "sphere", label: "random on the sphere", short: "sphere" }, { value: "hemisphere", label: "random on the half of the sphere towards the target", short: "half" }, { value: "gaussian", label: "random, Gaussian", short: "Gauss" }], (value) => this.place(value));
    const seed = slider({ label: "Seed of start", min: 0, max: 50, most: 1e9, whole: true, changed: (value) => this.change({ ...this.store.state.task, start: { ...this.store.state.task.start, seed: value } }, "start-seed") });
    const note = (name: string): HTMLElement => h("i", { "aria-hidden": "true" }, name);
    const M = matrixField({ label: "Overlaps with the target", name: "M", symbol: note(" M"), changed: (rows) => this.given({ M: rows }) });
    const Q = matrixField({ label: "Between neurons", name: "Q", symbol: note(" Q"), symmetric: true, changed: (rows) => this.given({ Q: rows }) });
    const fields = this.more("Overlaps M and Q", M.element, Q.element);
    this.updates.push(({ start, problem }) => {
      const given = start?.Q !== undefined && start.M !== undefined;
      law.offer(problem.inputs && !start?.blocks ? ["sphere", "hemisphere", "gaussian"] : ["given", "sphere", "hemisphere", "gaussian"]);
      law.set(given || start?.blocks ? "given" : ((start?.random ?? "sphere") as "sphere"));
      seed.show(!given && !start?.blocks);
      seed.set(start?.seed ?? 0);
      fields.hidden = !given || start.M!.length > 8;
      if (!fields.hidden) {
        M.set(start!.M!);
        Q.set(start!.Q!);
      }
    });
    return this.group("Start", law.element, seed.element, fields);
  }

  private runs(): HTMLElement {
    const dim = slider({ label: "Dimension d", min: 10, max: 1e9, least: 2, scale: "log", whole: true, changed: (value) => this.change(withDim(this.store.state.task, value), "dim") });
    const clocks = ["time", "steps", "alpha"] as const;
    const clock = choice("Until", [{ value: "time", label: "time t", short: "t" }, { value: "steps", label: "steps" }, { value: "alpha", label: "samples over d", short: "α" }], (value) => {
      const known = this.end();
      this.runChange({ time: undefined, steps: undefined, alpha: undefined, [value]: value === "steps" ? Math.max(1, Math.round(known)) : known }, "clock");
    });
    const end = slider({ label: "End", min: 0.1, max: 100, least: 1e-6, most: 1e9, scale: "log", changed: (value) => {
      const name = clocks.find((word) => this.store.state.task.run[word] !== undefined) ?? "time";
      this.runChange({ [name]: name === "steps" ? Math.max(1, Math.round(value)) : value }, "end");
    } });
    const seeds = slider({ label: "Runs", min: 2, max: 128, least: 1, most: this.catalogue.limits["seeds"], scale: "log", whole: true, changed: (value) => this.runChange({ seeds: value }, "seeds") });
    this.updates.push(({ run }) => {
      dim.set(run.dim ?? 1000);
      clock.set(clocks.find((word) => run[word] !== undefined) ?? "time");
      end.set(this.end());
      seeds.set(run.seeds ?? 32);
    });
    const row = h("div", { class: "run-row" }, this.run, h("div", {}, this.bar, this.told));
    return this.group("Run", dim.element, clock.element, end.element, seeds.element, row, this.refused);
  }

  private end(): number {
    const { time, steps, alpha } = this.store.state.task.run;
    const end = time ?? steps ?? alpha ?? 5;
    return typeof end === "number" ? end : end.at(-1)!;
  }

  private resize(p: number): void {
    const { task } = this.store.state;
    const k = task.start?.M?.[0]?.length ?? 1;
    const layer = Array.isArray(task.problem.second_layer) ? Array.from({ length: p }, (_, j) => (task.problem.second_layer as number[])[j] ?? 1) : undefined;
    const problem = { ...task.problem, width: p, ...(layer ? { second_layer: layer } : {}) };
    this.change(fitted({ ...task, problem }, p, k), "width");
  }

  private given(change: { M?: Rows; Q?: Rows }): void {
    const { task } = this.store.state;
    this.change({ ...task, start: { ...task.start, ...change } }, "start");
  }

  private place(law: string): void {
    const { task } = this.store.state;
    if (law === "given" && task.start?.blocks) return;
    if (law !== "given") {
      this.change({ ...task, start: { ...(law === "sphere" ? {} : { random: law }), seed: task.start?.seed ?? 0 } }, "start-law");
      return;
    }
    const p = task.problem.width ?? 1;
    const M = [[0.2]];
    this.change(fitted({ ...task, start: { M, Q: [[1]] } }, p, 1), "start-law");
  }
}

/** Numbers separated by commas or spaces; null where something else stands there. */
function numbersOf(text: string): number[] | null {
  const found = text.split(/[\s,;]+/).filter(Boolean).map(Number);
  return found.length > 0 && found.every(Number.isFinite) ? found : null;
}

function asTable(text: string): string | Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return text;
  }
}

/** Without what is not set. */
function cleaned(table: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(table).filter(([, value]) => value !== undefined));
}
