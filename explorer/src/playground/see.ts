/** The right side of the page: risk, overlaps and neurons, at all times and at the cursor of time. */
import { choice, picker } from "../ui/controls";
import { h } from "../ui/dom";
import { formula, type FormulaName } from "../ui/formula";
import { MatrixLegend, type Entry } from "../ui/legend";
import { LinePlot, type Line } from "../ui/lines";
import { count, fixed, measured, short } from "../ui/numbers";
import { panel } from "../ui/panel";
import { MARKERS } from "../ui/palette";
import { Scatter, type Cast, type Point } from "../ui/scatter";
import type { Store } from "../ui/store";
import { Transport } from "../ui/transport";
import { frame, isIdentity } from "../engine/matrix";
import { Channels } from "../engine/observe";
import { stepsPerTime } from "../engine/task";
import type { Ensemble, Limit } from "./results";
import { taskOf, type Coordinate, type State } from "./state";

const FIRST = 1e-5; // of the whole time: where a logarithmic axis of time begins
const FAINT_RUNS = 24;

const COORDINATES: readonly { value: Coordinate; label: string }[] = [
  { value: "m1", label: "m₁" },
  { value: "m2", label: "m₂" },
  { value: "m3", label: "m₃" },
  { value: "m4", label: "m₄" },
  { value: "q", label: "q" },
  { value: "qperp", label: "q⊥" },
];

/** A description of how a quantity went, for those who do not see it. */
function told(what: string, values: readonly (number | null)[], times: ArrayLike<number>): string {
  const known = values.map((y, i) => [times[i], y] as const).filter((pair): pair is [number, number] => pair[1] !== null);
  if (known.length === 0) return `${what}: nothing yet`;
  const [[, first], [end, last]] = [known[0], known[known.length - 1]];
  return `${what}: from ${short(first)} at time 0 to ${short(last)} at time ${short(end)}`;
}

export class See {
  readonly element: HTMLElement;
  readonly transport: Transport;
  private readonly risk: LinePlot;
  private readonly overlaps: LinePlot;
  private readonly norms: LinePlot;
  private readonly neurons = new Scatter("Neurons");
  private readonly legendM: MatrixLegend;
  private readonly legendQ: MatrixLegend;
  private readonly strip = h("div", { class: "strip", role: "group", "aria-label": "Model" });
  private readonly riskNow = h("output", { class: "now" });
  private readonly message = h("p", { class: "message", role: "status", hidden: true });
  private readonly key = h("p", { class: "key" });
  private limit: Limit | null = null;
  private ensemble: Ensemble | null = null;
  /** Where each neuron is at each place of the grid, in the chosen plane; and what does not move there. */
  private stage: { paths: Point[][]; window: Cast["window"]; targets: Point[]; border: Point[] | null } | null = null;
  private inverse: readonly (readonly number[])[] = [];
  private shape = "";

  constructor(private readonly store: Store<State>) {
    const moved = (time: number): void => this.moveTo(this.partOf(time));
    this.risk = new LinePlot("Risk", moved);
    this.overlaps = new LinePlot("Overlaps M", moved);
    this.norms = new LinePlot("Overlaps Q", moved);
    const toggled = (key: string): void => {
      const { hidden } = store.state;
      store.update({ hidden: hidden.includes(key) ? hidden.filter((word) => word !== key) : [...hidden, key] }, `hide ${key}`);
    };
    const about = "at the cursor of time; press an entry to hide or show its line";
    this.legendM = new MatrixLegend(`Overlaps M ${about}`, toggled);
    this.legendQ = new MatrixLegend(`Overlaps Q ${about}`, toggled);
    this.transport = new Transport((part) => this.moveTo(part));
    this.element = h(
      "main",
      { class: "see" },
      this.strip,
      panel("risk", [h("span", {}, "Risk"), formula("risk"), this.riskNow], [...this.riskSettings(), this.key], this.risk.element, this.message),
      panel("neurons", [h("span", {}, "Neurons")], this.neuronSettings(), this.neurons.element),
      panel("overlaps", [h("span", {}, "Overlaps"), formula("M")], [this.overlapSettings()], this.overlaps.element, this.legendM.element),
      panel("norms", [h("span", {}, "Overlaps"), formula("Q")], [], this.norms.element, this.legendQ.element),
      this.transport.element,
    );
    store.subscribe((state) => this.settled(state));
    this.settled(store.state);
  }

  /** New numbers. */
  show(limit: Limit | null, ensemble: Ensemble | null): void {
    this.limit = limit;
    this.ensemble = ensemble;
    this.draw();
  }

  say(message: string | null): void {
    this.message.hidden = message === null;
    this.message.textContent = message ?? "";
  }

  /** All again, in the present colours. */
  repaint(): void {
    for (const legend of [this.legendM, this.legendQ]) {
      legend.repaint();
      legend.hide(this.store.state.hidden);
    }
    for (const plot of [this.risk, this.overlaps, this.norms, this.neurons]) plot.repaint();
    this.drawCursor();
  }

  private riskSettings(): HTMLElement[] {
    const quantity = choice(
      "Quantity",
      [
        { value: "risk", label: "total" },
        { value: "excess", label: "excess" },
      ] as const,
      (value) => this.store.update({ quantity: value }, "quantity"),
    );
    const scale = choice(
      "Axes",
      [
        { value: "linear", label: "linear" },
        { value: "log", label: "log" },
        { value: "loglog", label: "log–log" },
      ] as const,
      (value) => this.store.update({ scale: value }, "scale"),
    );
    this.store.subscribe((state) => (quantity.set(state.quantity), scale.set(state.scale)));
    quantity.set(this.store.state.quantity);
    scale.set(this.store.state.scale);
    return [quantity.element, scale.element];
  }

  private overlapSettings(): HTMLElement {
    const size = choice(
      "Scale of M",
      [
        { value: "linear", label: "linear" },
        { value: "log", label: "log |M|" },
      ] as const,
      (value) => this.store.update({ size: value }, "size"),
    );
    this.store.subscribe((state) => size.set(state.size));
    size.set(this.store.state.size);
    return size.element;
  }

  private neuronSettings(): HTMLElement[] {
    const x = picker("across", COORDINATES, (value) => this.store.update({ x: value }, "x"));
    const y = picker("up", COORDINATES, (value) => this.store.update({ y: value }, "y"));
    const set = (state: State): void => {
      const offered = COORDINATES.map(({ value }) => value).filter((c) => !/^m\d$/.test(c) || Number(c[1]) <= state.k);
      for (const control of [x, y]) control.offer(offered);
      x.set(state.x);
      y.set(state.y);
    };
    this.store.subscribe(set);
    set(this.store.state);
    return [x.element, y.element];
  }

  /** The model in formulas, and the legends, when what they show has changed. */
  private settled(state: State): void {
    const { activation, target, loss, geometry, p, k } = state;
    const names: FormulaName[] = [
      `student-${activation}`,
      target === "quadratic" ? "target-quadratic" : `target-${activation}`,
      `step-${loss}`,
      ...(geometry === "free" ? [] : [`geometry-${geometry}` as const]),
    ];
    const shape = JSON.stringify([names, p, k]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.strip.replaceChildren(...names.map(formula));
      this.legendM.set(this.entriesM(p, k));
      this.legendQ.set(this.entriesQ(p));
    }
    this.legendM.hide(state.hidden);
    this.legendQ.hide(state.hidden);
    this.draw();
  }

  private entriesM(p: number, k: number): Entry[] {
    return Array.from({ length: p * k }, (_, i) => {
      const [row, column] = [Math.floor(i / k), i % k];
      return { key: `M${row + 1}${column + 1}`, name: `M ${row + 1},${column + 1}`, row, column, neuron: row, dash: column };
    });
  }

  private entriesQ(p: number): Entry[] {
    const all = Array.from({ length: p * p }, (_, i) => [Math.floor(i / p), i % p] as const);
    return all.filter(([row, column]) => row <= column).map(([row, column]) => ({
      key: `Q${row + 1}${column + 1}`, name: `Q ${row + 1},${column + 1}`, row, column, neuron: row, dash: column - row,
    }));
  }

  /** A part of the way is a time: on a logarithmic axis as one sees it. */
  private timeOf(part: number): number {
    const { time, scale } = this.store.state;
    return scale === "loglog" ? time * FIRST ** (1 - part) : time * part;
  }

  private partOf(time: number): number {
    const { time: end, scale } = this.store.state;
    const part = scale === "loglog" ? 1 - Math.log(Math.max(time / end, FIRST)) / Math.log(FIRST) : time / end;
    return Math.min(1, Math.max(0, Number.isFinite(part) ? part : 0));
  }

  private moveTo(part: number): void {
    // the cursor is no change that one would want to undo
    this.store.amend({ at: Number(part.toFixed(4)) });
    this.drawCursor();
  }

  private draw(): void {
    this.drawRisk();
    this.drawOverlaps();
    this.stage = this.limit && this.current ? this.setStage(this.limit) : null;
    this.drawCursor();
  }

  /** Whether what has been computed has the widths of what is asked. */
  private get current(): boolean {
    const { p, k } = this.store.state;
    return this.limit !== null && this.limit.p === p && this.limit.k === k;
  }

  private drawRisk(): void {
    const { state } = this.store;
    if (!this.limit || !this.current) return;
    const shift = state.quantity === "risk" ? state.noise / 2 : 0;
    const seen = (x: number): number => x + shift;
    const theory = this.limit.line(0).map((x) => (x === null ? null : seen(x)));
    const { ensemble } = this;
    const simulation = ensemble ? { ...ensemble.statistics(0, seen), runs: ensemble.lines(0, FAINT_RUNS, seen) } : null;
    this.risk.draw({
      x: Array.from(this.limit.grid.times),
      lines: [{ colour: "ink", dash: 0, marker: "circle", theory, simulation, hidden: false }],
      logX: state.scale === "loglog",
      logY: state.scale !== "linear",
      always: [0, 0],
    });
    this.risk.describe(told(state.quantity === "risk" ? "Risk" : "Excess risk", theory, this.limit.grid.times));
  }

  private drawOverlaps(): void {
    const { state } = this.store;
    if (!this.limit || !this.current) return;
    const { limit, ensemble } = this;
    const { p, k } = state;
    const channels = new Channels(p, k);
    const absolute = state.size === "log";
    const seen = absolute ? Math.abs : (x: number): number => x;
    const lineOf = (entry: Entry, channel: number, hidden: boolean, look: (x: number) => number): Line => ({
      colour: entry.neuron,
      dash: entry.dash,
      marker: MARKERS[entry.neuron],
      theory: limit.line(channel).map((x) => (x === null ? null : look(x))),
      simulation: ensemble ? { ...ensemble.statistics(channel, look), runs: [] } : null,
      hidden,
    });
    const x = Array.from(limit.grid.times);
    const logX = state.scale === "loglog";
    const M = this.entriesM(p, k).map((e) => lineOf(e, channels.M(e.row, e.column), state.hidden.includes(e.key), seen));
    const Q = this.entriesQ(p).map((e) => lineOf(e, channels.Q(e.row, e.column), state.hidden.includes(e.key), (q) => q));
    this.overlaps.draw({ x, lines: M, logX, logY: absolute, always: absolute ? null : [0, 0] });
    this.norms.draw({ x, lines: Q, logX, logY: false, always: [0, 1] });
    this.overlaps.describe(`Overlaps with the target. ${told("M 1,1", M[0].theory, limit.grid.times)}`);
    this.norms.describe(`Overlaps between neurons. ${told("Q 1,1", Q[0].theory, limit.grid.times)}`);
  }

  /** What depends on the cursor of time alone. */
  private drawCursor(): void {
    const { state } = this.store;
    const time = this.timeOf(state.at);
    const steps = time * stepsPerTime(taskOf(state), state.dim);
    const samples = (steps * state.batch) / state.dim;
    const words = `time ${short(time)}, ${count(Math.round(steps))} steps`;
    this.transport.set(
      state.at,
      `<b><i>t</i> = ${short(time)}</b><span>${count(Math.round(steps))} steps</span><span>${short(samples)} <i>d</i> samples</span>`,
      words,
    );
    for (const plot of [this.risk, this.overlaps, this.norms]) plot.setTime(time);
    const { limit, stage } = this;
    if (!limit || !stage) return;
    const { p, k } = state;
    const channels = new Channels(p, k);
    const until = limit.grid.times[limit.reached - 1] ?? 0;
    const now = Math.min(time, until);
    const shift = state.quantity === "risk" ? state.noise / 2 : 0;
    this.riskNow.textContent = `= ${short(limit.at(0, now) + shift)}`;
    this.tellKey(now, shift);
    this.legendM.show(this.entriesM(p, k).map((e) => limit.at(channels.M(e.row, e.column), now)));
    this.legendQ.show(this.entriesQ(p).map((e) => limit.at(channels.Q(e.row, e.column), now)));
    const cast = this.cast(limit, stage, now);
    this.neurons.draw(cast);
    const places = cast.trails.map((trail, j) => `neuron ${j + 1} at ${trail[trail.length - 1].map((x) => fixed(x)).join(", ")}`);
    this.neurons.describe(`Neurons in the plane of ${state.x} and ${state.y} at ${words}: ${places.join("; ")}`);
  }

  /** What the lines and marks of the risk are, with the mean of the runs at the cursor. */
  private tellKey(time: number, shift: number): void {
    const { ensemble } = this;
    const line = h("span", { class: "theory" }, "limit d → ∞");
    if (!ensemble) {
      this.key.replaceChildren(line);
      return;
    }
    const { mean, error, count: n } = ensemble.summary(0, ensemble.placeOf(time));
    const value = measured(mean + shift, error);
    const runs = n === 1 ? "1 run" : `${n} runs, band 80\u00a0%`;
    this.key.replaceChildren(line, h("span", { class: "chain" }, `SGD at d = ${count(this.store.state.dim)}: ${value} (${runs})`));
  }

  /** A neuron in the chosen plane, from a way to look up its overlaps. */
  private place(get: (channel: number) => number, j: number): Point {
    const { state } = this.store;
    const channels = new Channels(state.p, state.k);
    const coordinate = (c: Coordinate): number => {
      if (c === "q") return get(channels.Q(j, j));
      if (c !== "qperp") return get(channels.M(j, Number(c[1]) - 1));
      const inside = this.inverse.map((l) => l.reduce((sum, x, r) => sum + x * get(channels.M(j, r)), 0));
      return get(channels.Q(j, j)) - inside.reduce((sum, x) => sum + x * x, 0);
    };
    return [coordinate(state.x), coordinate(state.y)];
  }

  private setStage(limit: Limit): NonNullable<See["stage"]> {
    const { p, P, x, y } = this.store.state;
    this.inverse = frame(P).inverse;
    const paths = Array.from({ length: p }, (_, j) =>
      Array.from({ length: limit.reached }, (_, i) => this.place((channel) => limit.value(channel, i), j)),
    );
    // a neuron that is target direction r has m_s = P_rs, and nothing outside
    const targets = P.map((row, r): Point => {
      const of = (c: Coordinate): number => (c === "qperp" ? 0 : c === "q" ? row[r] : row[Number(c[1]) - 1]);
      return [of(x), of(y)];
    });
    const border = this.border();
    const all = [...paths.flat(), ...targets, ...(border ?? [])];
    const span = (axis: 0 | 1): Point => {
      const values = all.map((point) => point[axis]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const pad = 0.07 * (high - low || 1);
      return [low - pad, high + pad];
    };
    return { paths, window: [span(0), span(1)], targets, border };
  }

  /** Neurons at one time, with the way they have come. */
  private cast(limit: Limit, stage: NonNullable<See["stage"]>, time: number): Cast {
    const { state } = this.store;
    const next = limit.placeOf(time);
    const trails = stage.paths.map((path, j) => [...path.slice(0, next), this.place((channel) => limit.at(channel, time), j)]);
    const clouds = this.ensemble ? this.clouds(this.ensemble, time) : [];
    const alike = /^m/.test(state.x) && /^m/.test(state.y);
    return { ...stage, axes: [this.axis(state.x), this.axis(state.y)], alike, trails, clouds };
  }

  private clouds(ensemble: Ensemble, time: number): Point[][] {
    const i = ensemble.placeOf(time);
    const columns = Array.from({ length: ensemble.channels.size }, (_, channel) => ensemble.across(channel, i));
    return Array.from({ length: this.store.state.p }, (_, j) =>
      Array.from(columns[0], (_, run) => this.place((channel) => columns[channel][run], j)),
    );
  }

  /** The circle or parabola on which neurons of norm one lie, or which they cannot leave. */
  private border(): Point[] | null {
    const { geometry, P, k, x, y } = this.store.state;
    if (geometry === "free" || !isIdentity(P)) return null;
    const angle = Array.from({ length: 181 }, (_, i) => (Math.PI * i) / 90);
    if (/^m/.test(x) && /^m/.test(y) && x !== y) return angle.map((t) => [Math.cos(t), Math.sin(t)]);
    if (k === 1 && x === "m1" && y === "qperp") return angle.slice(0, 91).map((t) => [Math.cos(t), Math.sin(t) ** 2]);
    if (k === 1 && x === "qperp" && y === "m1") return angle.slice(0, 91).map((t) => [Math.sin(t) ** 2, Math.cos(t)]);
    return null;
  }

  private axis(c: Coordinate): readonly [string, string] {
    return c === "q" ? ["q", ""] : c === "qperp" ? ["q", "⊥"] : ["m", c[1]];
  }
}
