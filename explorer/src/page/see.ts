/** What is seen: the risk, the overlaps, the neurons, and what is known about the task, in four panels. */
import katex from "katex";
import { choice, toggle } from "../ui/controls";
import { h, uniqueId } from "../ui/dom";
import { fixed, measured, short } from "../ui/numbers";
import { panel } from "../ui/panel";
import { DASHES, MARKERS, colours } from "../ui/palette";
import { Scatter, type Point } from "../ui/scatter";
import type { Store } from "../ui/store";
import { Transport } from "../ui/transport";
import { Chart, type Band, type Curve, type Mark } from "./chart";
import { HeatMap, PlaneMap, type Plane } from "./maps";
import { clockOf, pointAt, type Curves, type Ensemble, type FamilyCurve, type Verdict } from "./results";
import { NAMES, RUNS, STEPWISE, THEORIES, type Clock, type Pin, type Scale, type State, type Tab } from "./task";

export interface Known {
  readonly curves: Curves | null;
  readonly ensemble: Ensemble | null;
  readonly pins: readonly { pin: Pin; curves: Curves | null }[];
  readonly family: { key: string; curves: readonly FamilyCurve[] } | null;
  readonly escape: { times: Record<string, number | null>; steps: Record<string, number | null> } | null;
  readonly best: { alpha: number[]; excess_risk: number[]; threshold: number | null } | null;
  readonly landscape: { m: number[]; phi: number[]; information: number } | null;
}

const AXES: Readonly<Record<Clock, string>> = { time: "t", alpha: "α", step: "steps" };
const FEW = 40; // points of a run that are marked one by one
const TRAIL = 400;

export function math(latex: string, words: string, display = false): HTMLElement {
  const element = h("span", { class: "formula", role: "math", "aria-label": words });
  katex.render(latex, element, { output: "html", throwOnError: false, displayMode: display, strict: "ignore" });
  return element;
}

/** From dark to light, or light to dark: a family in its order. */
function graded(i: number, n: number): string {
  const dark = document.documentElement.dataset["theme"] === "dark";
  const part = n > 1 ? i / (n - 1) : 0.5;
  return dark ? `oklch(${0.55 + 0.35 * part} 0.13 ${270 - 190 * part})` : `oklch(${0.32 + 0.4 * part} 0.13 ${270 - 190 * part})`;
}

function swatch(colour: string): HTMLElement {
  const element = h("span", { class: "swatch", "aria-hidden": "true" });
  element.style.background = colour;
  return element;
}

export class See {
  readonly element = h("main", { class: "see page-see" });
  readonly pin = h("button", { type: "button" }, "Pin");
  private readonly formulas = h("div", { class: "formulas" });
  private readonly chips = h("ul", { class: "chips", "aria-label": "What is known of the target" });
  private readonly spinner = h("span", { class: "spinner", role: "status" });
  private readonly risk: Chart;
  private readonly riskKey = h("p", { class: "key" });
  private readonly overlaps = new Chart("Overlaps", (x) => this.scrub(x));
  private readonly overlapKey = h("span", { class: "told", "aria-hidden": "true" });
  private readonly heat = new HeatMap("Overlaps at the cursor");
  private readonly neurons = new Scatter("Neurons");
  private readonly plane: PlaneMap;
  private readonly planeWords = h("p", { class: "told" });
  private readonly hill = new Chart("Population loss");
  private readonly hillWords = h("p", { class: "told" });
  private readonly methods = h("div", { class: "list" });
  private readonly verdict = h("div", { class: "list", "aria-live": "polite" });
  private readonly pinned = h("div", { class: "list" });
  private readonly message = h("p", { class: "message", role: "status" });
  private readonly transport: Transport;
  private readonly tabs = new Map<Tab, { button: HTMLButtonElement; body: HTMLElement }>();
  private readonly settings: ((state: State) => void)[] = [];
  private pinsShown = "";
  private known: Known = { curves: null, ensemble: null, pins: [], family: null, escape: null, best: null, landscape: null };

  constructor(
    private readonly store: Store<State>,
    chosen: (mu: number, delta: number) => void,
    private readonly unpin: (number: number) => void,
    private readonly reopen: (number: number) => void,
    sweep: (key: string) => void,
  ) {
    this.risk = new Chart("Risk", (x) => this.scrub(x));
    this.plane = new PlaneMap("The plane of batch and learning rate", chosen);
    this.transport = new Transport((part) => store.amend({ at: part }));
    this.transport.element.prepend(this.stepButton("Previous save point", "◂", -1), this.stepButton("Next save point", "▸", 1));
    const strip = h("div", { class: "strip" }, this.formulas, this.chips, this.spinner);
    this.message.hidden = true;
    this.element.append(strip, this.riskPanel(sweep), this.overlapPanel(), this.neuronPanel(), this.morePanel(), this.transport.element);
  }

  private stepButton(label: string, face: string, by: number): HTMLElement {
    return h("button", { type: "button", class: "step", "aria-label": label, title: label, onclick: () => this.step(by) }, face);
  }

  /** Go to the next or the previous save point: one step of methods that take steps. */
  step(by: number): void {
    const { curves } = this.known;
    if (!curves) return;
    const at = Math.min(curves.time.length - 1, Math.max(0, pointAt(curves, this.store.state.at) + by));
    this.store.amend({ at: curves.time[at] / (curves.time.at(-1) || 1) });
  }

  play(): void {
    this.transport.element.querySelector<HTMLButtonElement>(".play")!.click();
  }

  private scrub(x: number): void {
    const { curves } = this.known;
    if (!curves) return;
    const clock = clockOf(curves, this.store.state.clock);
    const i = clock.reduce((best, value, n) => (Math.abs(value - x) < Math.abs(clock[best] - x) ? n : best), 0);
    this.store.amend({ at: curves.time[i] / (curves.time.at(-1) || 1) });
  }

  private riskPanel(sweep: (key: string) => void): HTMLElement {
    const { store } = this;
    const scale = choice<Scale>("Axes", [{ value: "linear", label: "linear" }, { value: "log", label: "logarithmic", short: "log" }, { value: "loglog", label: "both logarithmic", short: "log–log" }], (value) => store.update({ scale: value }, "scale"));
    const clock = choice<Clock>("Clock", [{ value: "time", label: "time t", short: "t" }, { value: "alpha", label: "samples over d", short: "α" }, { value: "step", label: "steps of SGD", short: "steps" }], (value) => store.update({ clock: value }, "axis"));
    const excess = toggle("excess", (value) => store.update({ quantity: value ? "excess_risk" : "risk" }, "quantity"));
    const marks = toggle("escape", (value) => store.update({ marks: value, ...(value && store.state.clock === "alpha" ? { clock: "time" as const } : {}) }, "marks"));
    const best = toggle("best", (value) => store.update({ best: value, ...(value ? { clock: "alpha" as const } : {}) }, "best"));
    const id = uniqueId("sweep");
    const options: [string, string][] = [["", "family of …"], ["algorithm.lr", "learning rates"], ["problem.noise", "noises"], ["algorithm.batch", "batches"], ["problem.width", "widths"], ["start.seed", "starts"], ["run.dim", "dimensions"]];
    const family = h("select", { id, "aria-label": "Family of curves" }, ...options.map(([value, label]) => h("option", { value }, label)));
    family.addEventListener("change", () => sweep(family.value));
    const theory = h("select", { "aria-label": "Theory" }, ...THEORIES.map((word) => h("option", { value: word }, NAMES[word])));
    theory.addEventListener("change", () => store.update({ theory: theory.value }, "theory"));
    const runs = h("select", { "aria-label": "Simulation" }, ...RUNS.map((word) => h("option", { value: word }, NAMES[word])));
    runs.addEventListener("change", () => store.update({ runs: runs.value }, "runs"));
    this.settings.push((state) => {
      scale.set(state.scale);
      clock.set(state.clock);
      excess.set(state.quantity === "excess_risk");
      marks.set(state.marks);
      best.set(state.best);
      family.value = state.family;
      theory.value = state.theory;
      runs.value = state.runs;
    });
    const bar = h("div", { class: "settings" }, theory, runs, scale.element, clock.element, excess.element, marks.element, best.element, family, this.pin);
    return panel("risk", ["Risk"], [bar], h("div", { class: "column" }, this.risk.element, this.riskKey, this.message));
  }

  private overlapPanel(): HTMLElement {
    const shown = choice<State["overlaps"]>("Shown", [{ value: "M", label: "overlaps with the target", short: "M" }, { value: "Q", label: "overlaps between neurons", short: "Q" }, { value: "map", label: "heat map at the cursor", short: "map" }], (value) => this.store.update({ overlaps: value }, "overlaps"));
    this.settings.push((state) => {
      shown.set(state.overlaps);
      this.overlaps.element.hidden = state.overlaps === "map";
      this.heat.element.hidden = state.overlaps !== "map";
    });
    return panel("overlaps", ["Overlaps"], [this.overlapKey, shown.element], this.overlaps.element, this.heat.element);
  }

  private neuronPanel(): HTMLElement {
    return panel("neurons", ["Neurons"], [], this.neurons.element);
  }

  private morePanel(): HTMLElement {
    const bodies: [Tab, string, HTMLElement][] = [
      ["plane", "Plane", h("div", { class: "column" }, this.plane.element, this.planeWords)],
      ["landscape", "Landscape", h("div", { class: "column" }, this.hill.element, this.hillWords)],
      ["methods", "Methods", this.methods],
      ["verdict", "Verdict", this.verdict],
      ["pinned", "Pinned", this.pinned],
    ];
    const list = h("div", { role: "tablist", class: "tabs", "aria-label": "More" });
    const area = h("div", { class: "tab-area" });
    for (const [tab, title, content] of bodies) {
      const id = uniqueId("tab");
      const button = h("button", { type: "button", role: "tab", id, "aria-controls": `${id}-body`, onclick: () => this.store.amend({ tab }) }, title);
      const body = h("div", { role: "tabpanel", id: `${id}-body`, "aria-labelledby": id, class: "tab-body", tabindex: 0 }, content);
      this.tabs.set(tab, { button, body });
      list.append(button);
      area.append(body);
    }
    list.addEventListener("keydown", (event) => {
      const all = [...this.tabs.keys()];
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!by) return;
      const next = all[(all.indexOf(this.store.state.tab) + by + all.length) % all.length];
      this.store.amend({ tab: next });
      this.tabs.get(next)!.button.focus();
    });
    this.settings.push((state) => {
      for (const [tab, { button, body }] of this.tabs) {
        const on = tab === state.tab;
        button.setAttribute("aria-selected", String(on));
        button.tabIndex = on ? 0 : -1;
        body.hidden = !on;
      }
    });
    return panel("more-panel", [], [list], area);
  }

  // -- what the server has said -----------------------------------------------------------------------------------

  /** What is being computed; curves of a task that is no longer the present one are pale. */
  busy(words: string | null, stale: boolean): void {
    this.spinner.textContent = words ?? "";
    this.spinner.classList.toggle("on", words !== null);
    this.element.classList.toggle("stale", stale);
  }

  say(text: string | null): void {
    this.message.hidden = text === null;
    this.message.textContent = text ?? "";
  }

  showFormulas(target: string | null, activation: string | null): void {
    this.formulas.replaceChildren();
    if (target) this.formulas.append(math(`h = ${target}`, "target"));
    if (activation) this.formulas.append(math(`\\sigma = ${activation}`, "activation"));
  }

  showAnalysis(found: Record<string, any> | null): void {
    this.chips.replaceChildren();
    if (!found) return;
    const chip = (name: string, value: string, title: string): void => {
      this.chips.append(h("li", { title }, h("span", {}, name), ` ${value}`));
    };
    const chain = (steps: [number, number][]): string => steps.map(([order, n]) => (n > 1 ? `${order}×${n}` : `${order}`)).join(" → ") || "–";
    chip("information", String(found["information"] ?? "∞"), "information exponent");
    chip("leap", String(found["leap"] ?? "∞"), "largest jump of the leap chain");
    chip("chain", chain(found["chain"]), "orders at which directions appear");
    chip("generative", chain(found["generative_chain"]), "the same with any function of the label, as with reused data");
    const stairs = (steps: (number | null)[] | null): string => steps?.map((step) => step ?? "never").join(", ") ?? "not known";
    chip("staircase", `${stairs(found["staircase"])}${JSON.stringify(found["staircase"]) === JSON.stringify(found["staircase_reused"]) ? "" : ` (reused ${stairs(found["staircase_reused"])})`}`, found["staircase_unknown"] ?? `giant step at which each direction is learned\n${found["staircase_why"]}`);
  }

  showMethods(methods: readonly string[], reasons: Readonly<Record<string, string>>): void {
    const rows = [...methods.map((name) => [name, ""] as const), ...Object.entries(reasons)];
    const table = h("table", { "aria-label": "Methods that apply" }, h("tbody", {}, ...rows.map(([name, why]) => h("tr", { class: why ? "no" : "yes" }, h("th", { scope: "row" }, name), h("td", {}, why ? `no: ${why}` : "applies")))));
    this.methods.replaceChildren(table);
  }

  showPlane(plane: Plane | null, reason = ""): void {
    this.plane.show(plane);
    this.plane.element.classList.toggle("empty", plane === null);
    if (!plane) {
      this.planeWords.textContent = reason;
      this.plane.describe(`Plane: ${reason}`);
      return;
    }
    const { here } = plane;
    const time = here.growth ? `, T ~ ${here.growth} steps` : here.learns === false ? ", not learned" : "";
    const words = `ℓ = ${plane.ell}. Here μ = ${short(here.mu)}, δ = ${short(here.delta)}: ${here.regime ?? "outside"}${time}. ${here.dynamics ?? ""} ${plane.caveat}`;
    this.planeWords.textContent = `${words} A click sets rate and batch.`;
    this.plane.describe(`Plane of batch n = d to the μ and rate d to the minus δ. ${words}`);
  }

  showVerdict(verdict: Verdict | null): void {
    if (!verdict) {
      this.verdict.replaceChildren(h("p", { class: "told" }, "Press Run: the verdict on the runs appears here and grows sharper with every seed."));
      return;
    }
    if (verdict.reason) {
      this.verdict.replaceChildren(h("p", { class: "told" }, verdict.reason));
      return;
    }
    const rows = verdict.rows.map((row) =>
      h("tr", { class: row.verdict }, h("th", { scope: "row" }, row.entry || row.quantity), h("td", { class: "verdict", title: row.reason }, row.verdict), h("td", {}, row.reference === null ? "" : short(row.reference, 4)), h("td", {}, row.mean === null ? "" : measured(row.mean, row.standard_error ?? 0)), h("td", {}, row.worst_ratio === null ? "" : fixed(row.worst_ratio))),
    );
    const head = h("thead", {}, h("tr", {}, ...["entry", "verdict", NAMES[verdict.reference ?? ""] ?? "theory", "mean", "worst"].map((word) => h("th", { scope: "col" }, word))));
    const reasons = [...new Set(verdict.rows.map(({ reason }) => reason).filter(Boolean))];
    this.verdict.replaceChildren(h("table", { "aria-label": "Verdict" }, head, h("tbody", {}, ...rows)), ...reasons.map((text) => h("p", { class: "told" }, text)));
  }

  private showPinned(): void {
    const { pins } = this.known;
    const shown = JSON.stringify(pins.map(({ pin, curves }) => [pin.name, curves?.risk.at(-1), document.documentElement.dataset["theme"]]));
    if (shown === this.pinsShown) return;
    this.pinsShown = shown;
    if (pins.length === 0) {
      this.pinned.replaceChildren(h("p", { class: "told" }, "Pin a run, change something, and see both."));
      return;
    }
    const rows = pins.map(({ pin, curves }, i) => {
      const last = curves?.risk.at(-1) ?? null;
      const name = h("button", { type: "button", title: "Open it again", onclick: () => this.reopen(i) }, pin.name);
      name.prepend(swatch(colours().neurons[(i + 1) % 4]));
      const away = h("button", { type: "button", "aria-label": `Unpin ${pin.name}`, onclick: () => this.unpin(i) }, "×");
      return h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, NAMES[pin.theory] ?? pin.theory), h("td", {}, short(pin.task.problem.noise ?? 0)), h("td", {}, last === null ? "…" : short(last, 4)), h("td", {}, away));
    });
    const head = h("thead", {}, h("tr", {}, ...["run", "theory", "Δ", "last risk", ""].map((word) => h("th", { scope: "col" }, word))));
    this.pinned.replaceChildren(h("table", { "aria-label": "Pinned runs" }, head, h("tbody", {}, ...rows)));
  }

  // -- pictures ---------------------------------------------------------------------------------------------------

  update(state: State): void {
    for (const set of this.settings) set(state);
  }

  show(known: Known): void {
    this.known = known;
    this.drawRisk();
    this.drawOverlaps();
    this.drawHill();
    this.showPinned();
    this.moved();
  }

  repaint(): void {
    for (const chart of [this.risk, this.overlaps, this.hill]) chart.repaint();
    this.heat.repaint();
    this.plane.repaint();
    this.neurons.repaint();
    if (this.known.curves) this.show(this.known);
  }

  private drawRisk(): void {
    const { state } = this.store;
    const { curves, ensemble, pins, family, escape, best } = this.known;
    const { clock, quantity, scale } = state;
    const list: Curve[] = [];
    const bands: Band[] = [];
    const band = ensemble?.band ?? null;
    if (band) {
      const x = clockOf(band, clock);
      if (quantity === "risk") for (const y of ensemble!.runs.slice(0, 100)) list.push({ x, y, colour: "chain", faint: true });
      const spread = band[quantity];
      if (spread) {
        bands.push({ x, low: spread.low, high: spread.high, colour: "chain" });
        list.push({ x, y: spread.mean, colour: "chain", width: 1.5, dash: [1, 3], name: `mean of ${band.count} runs` });
      }
    }
    family?.curves.forEach((one, i) => list.push({ x: clockOf(one.curves, clock), y: one.curves[quantity], colour: graded(i, family.curves.length), width: 1.5, name: `${family.key} = ${one.value}` }));
    pins.forEach(({ pin, curves: other }, i) => {
      if (other) list.push({ x: clockOf(other, clock), y: other[quantity], colour: String((i + 1) % 4), dash: DASHES[(1 + (i % 3)) as 1], name: pin.name });
    });
    if (curves) {
      const marked = curves.time.length <= FEW || STEPWISE.includes(curves.method);
      list.push({ x: clockOf(curves, clock), y: curves[quantity], colour: "ink", name: NAMES[curves.method] ?? curves.method, ...(marked ? { marker: "circle" as const } : {}) });
    }
    if (best && state.best && curves && clock === "alpha") {
      const floor = quantity === "risk" ? (curves.risk[0] ?? 0) - (curves.excess_risk[0] ?? 0) : 0;
      list.push({ x: best.alpha, y: best.excess_risk.map((y) => y + floor), colour: "muted", dash: [6, 4], name: "best possible" });
    }
    const marks: Mark[] = [];
    if (escape && state.marks && clock !== "alpha") {
      for (const [name, value] of Object.entries(clock === "time" ? escape.times : escape.steps)) if (value !== null) marks.push({ x: value, name: name === "ode" ? "mean of the ODE" : name });
    }
    const histogram = band && state.marks && clock === "time" ? band.passages.filter((t) => t !== null) : [];
    this.risk.draw({ curves: list, bands, marks, histogram, logX: scale === "loglog", logY: scale !== "linear", label: [AXES[clock], ""], ...(scale === "linear" ? { always: [0, 0] as const } : {}) });
    const name = quantity === "risk" ? "Risk" : "Excess risk";
    if (!curves) return;
    const ends = [curves[quantity][0], curves[quantity].at(-1) ?? null].map((y) => (y === null ? "–" : short(y, 4)));
    const simulated = band?.[quantity] ? `; ${NAMES[ensemble!.method]} at d = ${state.task.run.dim}: ${short(band[quantity]!.mean.at(-1) ?? NaN, 4)} (${band.count} runs)` : "";
    this.risk.describe(`${name}: from ${ends[0]} to ${ends[1]} at time ${short(curves.time.at(-1)!)}${simulated}`);
    const keys = [h("span", {}, `${NAMES[curves.method]}: ${ends[1]} at the end`)];
    if (band) keys.push(h("span", { class: "chain" }, `${NAMES[ensemble!.method]}, d = ${state.task.run.dim}: ${band[quantity] ? short(band[quantity]!.mean.at(-1) ?? NaN, 4) : "–"} (${band.count} runs, band 80 %)`));
    if (family) {
      const values = family.curves.flatMap(({ value }, i) => [i > 0 ? ", " : "", swatch(graded(i, family.curves.length)), String(value)]);
      keys.push(h("span", { class: "plain" }, `family: ${family.key} `, ...values));
    }
    if (best && state.best && clock === "alpha") keys.push(h("span", { class: "plain" }, swatch(colours().muted), best.threshold === null ? "best possible" : `best possible, from α = ${short(best.threshold)} on`));
    this.riskKey.replaceChildren(...keys);
  }

  private drawOverlaps(): void {
    const { curves, ensemble } = this.known;
    const { clock, overlaps } = this.store.state;
    if (!curves || overlaps === "map") return;
    const which = overlaps === "Q" && curves.Q ? "Q" : "M";
    const rows = which === "Q" ? curves.Q! : curves.M;
    const list: Curve[] = [];
    const bands: Band[] = [];
    const spread = ensemble?.band?.[which];
    const [p, columns] = [rows[0].length, rows[0][0].length];
    for (let j = 0; j < p; j++)
      for (let r = which === "Q" ? j : 0; r < columns; r++) {
        const colour = String(j % 4);
        const dash = DASHES[r % 4];
        if (spread && p * columns <= 8) {
          const at = (all: typeof rows): (number | null)[] => all.map((matrix) => matrix[j][r]);
          bands.push({ x: clockOf(ensemble!.band!, clock), low: at(spread.low), high: at(spread.high), colour });
        }
        list.push({ x: clockOf(curves, clock), y: rows.map((matrix) => matrix[j][r]), colour, dash, width: 1.75, name: `${which}${j + 1}${r + 1}`, ...(rows.length <= FEW ? { marker: MARKERS[j % 4] } : {}) });
      }
    this.overlaps.draw({ curves: list, bands, marks: [], histogram: [], logX: this.store.state.scale === "loglog", logY: false, label: [AXES[clock], which] });
    const last = rows.at(-1)!.slice(0, 8).map((row, j) => `neuron ${j + 1} ${row.map((x) => fixed(x)).join(" ")}`);
    this.overlaps.describe(`Overlaps ${which} at the end: ${last.join("; ")}`);
    const names = Array.from({ length: Math.min(p, 4) }, (_, j) => [swatch(colours().neurons[j]), `${j + 1}  `]).flat();
    this.overlapKey.replaceChildren(...(p > 1 && p <= 4 ? names : []));
  }

  private drawHill(): void {
    const { landscape } = this.known;
    if (this.store.state.tab !== "landscape") return;
    if (!landscape) return;
    this.hill.draw({ curves: [{ x: landscape.m, y: landscape.phi, colour: "ink", name: "φ(m)" }], bands: [], marks: [], histogram: [], logX: false, logY: false, label: ["m", "φ"] });
    this.hill.describe(`Population loss φ(m), flat to order ${landscape.information} at m = 0`);
  }

  sayLandscape(reason: string): void {
    this.hill.describe(reason);
    this.hillWords.textContent = reason;
    this.hill.element.classList.toggle("empty", reason !== "");
  }

  /** The cursor of time has moved. */
  moved(): void {
    const { curves } = this.known;
    const { state } = this.store;
    if (!curves) return;
    const i = pointAt(curves, state.at);
    const x = clockOf(curves, state.clock)[i];
    this.risk.setCursor(x);
    this.overlaps.setCursor(x);
    const words = `t = ${short(curves.time[i])}, risk ${curves.risk[i] === null ? "–" : short(curves.risk[i]!, 4)}`;
    const unit = curves.units["step"] ? ` ${curves.units["step"]}` : "";
    const readout = [h("b", {}, `t = ${short(curves.time[i])}`), h("span", {}, `risk ${curves.risk[i] === null ? "–" : short(curves.risk[i]!, 4)}`), h("span", {}, `${short(curves.step[i])}${unit} steps`)];
    this.transport.set(state.at, "", words);
    this.transport.element.querySelector("output")!.replaceChildren(...readout);
    if (state.overlaps === "map") {
      this.heat.show(curves.M[i], curves.Q?.[i] ?? []);
      this.heat.describe(`Overlaps at t = ${short(curves.time[i])}: M = ${curves.M[i].map((row) => row.map((m) => fixed(m)).join(" ")).join("; ")}`);
    }
    if (state.tab === "landscape" && this.known.landscape && curves.M[i].length === 1) this.hill.setCursor(curves.M[i][0][0]);
    this.drawNeurons(curves, i);
  }

  /** Neurons in the plane of their overlaps with two directions, or of overlap and norm. */
  private drawNeurons(curves: Curves, now: number): void {
    const k = curves.M[0][0].length;
    const p = Math.min(curves.M[0].length, 4 * 16);
    const place = (i: number, j: number): Point => {
      const m = curves.M[i][j];
      if (k > 1) return [m[0], m[1]];
      // the part of the norm outside the target: Q itself is a flat line on the sphere
      const Q = curves.Q?.[i][j][j];
      return [m[0], Q === undefined ? (curves.q?.[i][j] ?? 0) : Math.max(0, Q - m[0] ** 2)];
    };
    const stride = Math.max(1, Math.ceil(now / TRAIL));
    const trails = Array.from({ length: p }, (_, j) => Array.from({ length: Math.floor(now / stride) + 1 }, (_, n) => place(n * stride, j)).concat([place(now, j)]));
    const all = Array.from({ length: p }, (_, j) => [0, 0.25, 0.5, 0.75, 1].map((part) => place(Math.round(part * (curves.time.length - 1)), j))).flat();
    const range = (axis: 0 | 1, low: number, high: number): Point => [Math.min(low, ...all.map((point) => point[axis])) - 0.05, Math.max(high, ...all.map((point) => point[axis])) + 0.05];
    const circle = Array.from({ length: 73 }, (_, n): Point => [Math.cos((n * Math.PI) / 36), Math.sin((n * Math.PI) / 36)]);
    const free = (this.store.state.task.algorithm["geometry"] ?? "free") === "free";
    this.neurons.draw({
      axes: k > 1 ? [["m", "1"], ["m", "2"]] : [["m", "1"], ["q", "⊥"]],
      window: k > 1 ? [range(0, -1, 1), range(1, -1, 1)] : [range(0, -1, 1), range(1, 0, 1)],
      alike: k > 1,
      trails,
      clouds: [],
      targets: k > 1 ? [[1, 0], [0, 1]] : [[1, 0]],
      border: k > 1 && !free ? circle : null,
    });
    this.neurons.describe(`Neurons at t = ${short(curves.time[now])}: ${trails.slice(0, 8).map((trail, j) => `${j + 1} at ${fixed(trail.at(-1)![0])}, ${fixed(trail.at(-1)![1])}`).join("; ")}`);
  }

  get riskChart(): Chart {
    return this.risk;
  }
}
