/** The page of the explorer: what is asked of the server when, and what is done with its answers. */
import { h } from "../ui/dom";
import { count } from "../ui/numbers";
import { copy, Notice, TextDialog } from "../ui/sharing";
import { Store } from "../ui/store";
import { ThemeSwitch } from "../ui/theme";
import { ask, get, Newest, Refusal, stream } from "./api";
import { Describe, type Catalogue } from "./describe";
import type { Plane } from "./maps";
import { asCsv, Ensemble, meanOf, type BandEvent, type Curves, type FamilyCurve, type Verdict } from "./results";
import { See, type Known } from "./see";
import { fitted, lawOf, lawText, NAMES, opened, question, readLink, writeLink, type Pin, type State, type Task } from "./task";

const COMPILING_MILLISECONDS = 350; // an answer that takes longer is being compiled
const AHEAD_MILLISECONDS = 1500; // of quiet, before neighbouring widths are compiled
const DRAFT_POINTS = 64; // save points while a slider moves; the last answer has all of them
const SETTLED_MILLISECONDS = 250;
const DETAILS_MILLISECONDS = 300; // of quiet, before panels ask for what they show

const KEYS = `R              run, or stop the runs
P              pin the curves
Space          play
, and .        one save point back, or on
Ctrl+Z         undo
Ctrl+Shift+Z   redo
← and →        the next tab, where a tab has the focus
?              this list`;

type Answer = Record<string, any>;

class Page {
  private readonly store: Store<State>;
  private readonly describe: Describe;
  private readonly see: See;
  private readonly notice = new Notice();
  private readonly dialogs: Record<string, TextDialog>;
  private readonly undo = h("button", { type: "button", title: "Ctrl+Z", onclick: () => this.store.undo() }, "Undo");
  private readonly redo = h("button", { type: "button", title: "Ctrl+Shift+Z", onclick: () => this.store.redo() }, "Redo");
  private readonly theme: ThemeSwitch;
  private readonly theories: Newest<Curves>;
  private readonly formulas: Newest<Answer>;
  private readonly analyses: Newest<Answer>;
  private readonly supports: Newest<Answer>;
  private readonly planes: Newest<Plane>;
  private readonly landscapes: Newest<Answer>;
  private readonly escapes: Newest<Answer>;
  private readonly bests: Newest<Answer>;
  private curves: Curves | null = null;
  private readonly answered = new WeakMap<Curves, string>(); // the question that curves are the answer to
  private shownTab = "";
  private ensemble: Ensemble | null = null;
  private readonly pinned = new Map<string, Curves>();
  private family: Known["family"] = null;
  private escape: Known["escape"] = null;
  private best: Known["best"] = null;
  private landscape: Known["landscape"] = null;
  private running: AbortController | null = null;
  private sweeping: AbortController | null = null;
  private asked = "";
  private askedTask = "";
  private askedFormula = "";
  private slow = 0;
  private settled = 0;
  private ahead = 0;
  private linking = 0;
  private detailing = 0;
  private drawing = 0;

  constructor(catalogue: Catalogue) {
    const linked = readLink(location.hash);
    this.store = new Store<State>(linked ?? opened(catalogue.task ?? catalogue.presets[0].task), (state) => state, ["at", "tab"]);
    if (location.hash && !linked) this.notice.say("The link is not understood; the usual task is shown.", 8);
    const quiet = (): void => {};
    this.theories = new Newest<Curves>(
      2,
      (curves, milliseconds) => this.heard(curves, milliseconds),
      (error) => this.refused(error),
      (busy) => this.waiting("theory", busy),
    );
    this.formulas = new Newest<Answer>(1, (found) => this.heardFormula(found), quiet);
    this.analyses = new Newest<Answer>(1, (found) => this.see.showAnalysis(found), () => this.see.showAnalysis(null));
    this.supports = new Newest<Answer>(1, (found) => this.see.showMethods(found["methods"], found["reasons"]), quiet);
    this.planes = new Newest<Plane>(1, (plane) => this.see.showPlane(plane), (error) => this.see.showPlane(null, error.message), (busy) => this.waiting("the plane", busy));
    const land = (found: Answer | null, reason: string): void => {
      this.landscape = found as Known["landscape"];
      this.see.sayLandscape(reason);
      this.drawSoon();
    };
    this.landscapes = new Newest<Answer>(1, (found) => land(found, ""), (error) => land(null, error.message), (busy) => this.waiting("the landscape", busy));
    this.escapes = new Newest<Answer>(1, (found) => this.marked("escape", found), (error) => this.unmarked("escape", error), (busy) => this.waiting("escape times", busy));
    this.bests = new Newest<Answer>(1, (found) => this.marked("best", found), (error) => this.unmarked("best", error), (busy) => this.waiting("the best possible", busy));
    this.describe = new Describe(this.store, catalogue, () => (this.running ? this.stop() : void this.run()));
    this.see = new See(this.store, (mu, delta) => this.choose(mu, delta), (i) => this.unpin(i), (i) => this.reopen(i), (key) => void this.sweep(key));
    this.see.pin.addEventListener("click", () => this.pin());
    this.theme = new ThemeSwitch(() => this.see.repaint());
    this.dialogs = Object.fromEntries([["python", "The same in Python"], ["toml", "The same as a task file"], ["shell", "The same as a command"], ["bibtex", "The papers behind it"], ["keys", "Keys"]].map(([key, title]) => [key, new TextDialog(title, this.notice)]));
    this.lay();
    this.store.subscribe(() => this.changed());
    this.store.subscribeAmended((state) => {
      if (state.tab !== this.shownTab) {
        this.shownTab = state.tab;
        this.see.update(state);
        this.askDetails();
        this.drawSoon();
      }
      this.see.moved();
      this.keepLink();
    });
    addEventListener("hashchange", () => {
      const found = readLink(location.hash);
      if (found) this.store.update(found, "link");
      else this.notice.say("The link is not understood.", 6);
    });
    addEventListener("keydown", (event) => this.key(event));
    this.see.showVerdict(null);
    this.changed();
  }

  private lay(): void {
    const button = (text: string, act: () => void): HTMLButtonElement => h("button", { type: "button", onclick: act }, text);
    const share = button("Copy link", () => {
      this.writeLink();
      void copy(location.href).then((copied) => this.notice.say(copied ? "Link copied." : "The address of this page is the link.", copied ? 2.5 : 5));
    });
    const menu = h("details", { class: "menu" }, h("summary", {}, "Take away"));
    const close = (act: () => void) => (): void => {
      menu.open = false;
      act();
    };
    menu.append(
      h(
        "div",
        { class: "menu-body", role: "group", "aria-label": "Take away" },
        button("Python", close(() => void this.text("python"))),
        button("Task file", close(() => void this.text("toml"))),
        button("Shell command", close(() => void this.text("shell"))),
        button("BibTeX", close(() => void this.text("bibtex"))),
        button("netCDF of the theory", close(() => void this.netcdf(this.store.state.theory))),
        button("netCDF of the runs", close(() => void this.netcdf(this.store.state.runs))),
        button("CSV", close(() => void this.csv())),
        button("SVG", close(() => this.save("twolayer.svg", new Blob([this.see.riskChart.svg(document.title)], { type: "image/svg+xml" })))),
        button("PNG", close(() => void this.see.riskChart.png().then((blob) => blob && this.save("twolayer.png", blob)))),
      ),
    );
    document.addEventListener("click", (event) => {
      if (!menu.contains(event.target as Node)) menu.open = false;
    });
    const theme = h("button", { type: "button", class: "theme", "aria-label": "Light or dark", onclick: () => this.theme.turn() });
    const keys = h("button", { type: "button", title: "Keys: ?", "aria-label": "Keys", onclick: () => this.dialogs["keys"].open(KEYS) }, "?");
    document.querySelector("header")!.append(h("nav", { "aria-label": "Tools" }, this.undo, this.redo, share, menu, keys, theme));
    const side = h("details", { class: "side", open: true }, h("summary", {}, "Description"), this.describe.element);
    const wide = matchMedia("(min-width: 900px)");
    const fit = (): void => {
      side.open = wide.matches;
    };
    wide.addEventListener("change", fit);
    fit();
    document.body.append(side, this.see.element, this.notice.element, ...Object.values(this.dialogs).map(({ element }) => element));
  }

  // -- questions --------------------------------------------------------------------------------------------------

  /** The state has changed: ask for what is not known. */
  private changed(): void {
    const { state } = this.store;
    this.shownTab = state.tab;
    this.undo.disabled = !this.store.canUndo;
    this.redo.disabled = !this.store.canRedo;
    this.describe.show(state);
    this.see.update(state);
    this.keepLink();
    const asked = question(state);
    const formula = JSON.stringify([state.task.problem.target, state.task.problem.activation]);
    if (formula !== this.askedFormula) {
      this.askedFormula = formula;
      this.formulas.ask(() => ask("formula", state.task) as Promise<Answer>);
    }
    const task = JSON.stringify(state.task);
    // a new task is drawn when its curves are there: until then it would be the old picture once more
    if (asked === this.asked || this.ensemble || this.family || !this.curves) this.drawSoon();
    if (asked !== this.asked) {
      this.asked = asked;
      this.stop();
      this.sweeping?.abort();
      if (this.ensemble && this.old) this.see.say(null); // what was said of its runs
      this.ensemble = null;
      this.family = null;
      this.see.showVerdict(null);
      this.describe.progress(false, 0, "");
      this.askTheory();
    }
    if (task !== this.askedTask) {
      this.askedTask = task;
      this.landscape = this.escape = this.best = null;
    }
    clearTimeout(this.detailing);
    this.detailing = setTimeout(() => this.askDetails(), this.detailed.size > 0 ? DETAILS_MILLISECONDS : 0);
    this.askPins();
  }

  private askTheory(): void {
    const { task, theory } = this.store.state;
    const save = task.run["save"];
    const many = save === undefined || (typeof save === "number" && save > DRAFT_POINTS);
    const listed = [task.run.time, task.run.steps, task.run.alpha].some(Array.isArray);
    const draft = many && !listed ? { ...task, run: { ...task.run, save: DRAFT_POINTS } } : task;
    const { asked } = this;
    const answer = async (wanted: Task): Promise<Curves> => {
      const curves = (await ask("theory", wanted, { method: theory })) as Curves;
      this.answered.set(curves, asked);
      return curves;
    };
    this.theories.ask(() => answer(draft));
    clearTimeout(this.settled);
    if (draft !== task) this.settled = setTimeout(() => this.theories.ask(() => answer(task)), SETTLED_MILLISECONDS);
  }

  /** What stands in a panel is asked for when that is open. */
  private askDetails(): void {
    const { task, tab, marks, best, threshold } = this.store.state;
    const once = (word: string, act: () => void): void => {
      const asked = `${word} ${JSON.stringify(task)}`;
      if (this.detailed.get(word) === asked) return;
      this.detailed.set(word, asked);
      act();
    };
    once("support", () => this.supports.ask(() => ask("support", task) as Promise<Answer>));
    const problem = JSON.stringify(task.problem);
    if (this.detailed.get("analysis") !== problem) {
      this.detailed.set("analysis", problem);
      this.analyses.ask(() => ask("analysis", task) as Promise<Answer>);
    }
    if (tab === "plane") once("plane", () => this.planes.ask(() => ask("phases", task) as Promise<Plane>));
    if (tab === "landscape") once("landscape", () => this.landscapes.ask(() => ask("landscape", task) as Promise<Answer>));
    if (marks) once("escape", () => this.escapes.ask(() => ask("escape", task, { threshold }) as Promise<Answer>));
    if (best) once("best", () => this.bests.ask(() => ask("best", task, { alpha: this.curves?.alpha.at(-1) ?? 10 }) as Promise<Answer>));
  }
  private readonly detailed = new Map<string, string>();

  private askPins(): void {
    for (const pin of this.store.state.pins) {
      const key = keyOf(pin);
      if (this.pinned.has(key) || this.asking.has(key)) continue;
      this.asking.add(key);
      void (ask("theory", pin.task, { method: pin.theory }) as Promise<Curves>).then(
        (curves) => {
          this.pinned.set(key, curves);
          this.drawSoon();
        },
        () => this.notice.say(`${pin.name} cannot be computed here.`),
      );
    }
  }
  private readonly asking = new Set<string>();

  // -- answers ----------------------------------------------------------------------------------------------------

  private heard(curves: Curves, milliseconds: number): void {
    this.curves = curves;
    this.old = false;
    this.describe.refuse(null);
    const parts = [...curves.warnings, ...(curves.outcome === "ok" ? [] : [`The theory ended early (${curves.outcome}): ${curves.advice}.`])];
    this.see.say(parts.length > 0 ? parts.join(" ") : null);
    document.documentElement.dataset["answer"] = String(Math.round(milliseconds)); // for the measurement of latency
    this.draw();
    clearTimeout(this.ahead);
    this.ahead = setTimeout(() => this.compileAhead(), AHEAD_MILLISECONDS);
  }

  private refused(error: Refusal): void {
    this.old = true;
    this.describe.refuse(error.message);
    const theory = NAMES[this.store.state.theory];
    // new runs beside the theory of another task would look like a theory that fails
    if (this.running || this.ensemble) this.see.say(`${theory} cannot follow this task: the runs are shown alone.`);
    else if (this.curves) this.see.say(`${theory} cannot follow this task. The pale curves are those of the last task that it could follow.`);
    else this.see.say(`${theory} cannot follow this task: ${error.message} Run simulates it, and Methods lists what can follow it.`);
    this.drawSoon();
  }

  /** Say what is waited for, once it takes long: of a theory, that is compiling. */
  private waiting(what: string, busy: boolean): void {
    this.awaited = busy ? [...this.awaited.filter((word) => word !== what), what] : this.awaited.filter((word) => word !== what);
    clearTimeout(this.slow);
    const tell = (): void => {
      const theory = this.awaited.includes("theory");
      const words = theory ? (this.curves ? "compiling …" : "warming up …") : this.awaited.length > 0 ? `${this.awaited[0]} …` : null;
      this.see.busy(words, theory || this.stale);
    };
    if (this.awaited.length > 0) this.slow = setTimeout(tell, COMPILING_MILLISECONDS);
    if (!this.awaited.includes("theory")) this.see.busy(null, this.stale);
  }

  /** Whether what is shown is the theory of another task. */
  private get stale(): boolean {
    return this.old && this.running === null && this.ensemble === null;
  }
  private old = false; // whether the curves are those of an earlier task
  private awaited: readonly string[] = [];

  private heardFormula(found: Answer): void {
    for (const name of ["target", "activation"] as const) this.describe.wrong(name, found[name].error ?? null, found[name].position ?? null);
    this.see.showFormulas(found["target"].latex ?? null, found["activation"].latex ?? null);
    const { task } = this.store.state;
    const k = found["k"] as number | undefined;
    if (k === undefined) return;
    const fit = fitted(task, task.problem.width ?? 1, k);
    if (fit !== task) this.store.update({ task: fit }, "target");
  }

  private marked(what: "escape" | "best", found: Answer): void {
    this[what] = found as never;
    this.drawSoon();
  }

  private unmarked(what: "escape" | "best", error: Refusal): void {
    this[what] = null;
    this.notice.say(error.message, 6);
  }

  /** Neighbouring widths are compiled while nobody asks for anything. */
  private compileAhead(): void {
    const { task, theory } = this.store.state;
    const p = task.problem.width ?? 1;
    if (this.running || theory === "dmft" || Array.isArray(task.problem.second_layer)) return;
    const k = this.curves?.M[0][0].length ?? 1;
    for (const width of [p + 1, p - 1]) {
      if (width < 1 || width > 8) continue;
      const other = fitted({ ...task, problem: { ...task.problem, width } }, width, k);
      const key = JSON.stringify([theory, { ...other.problem, noise: 0 }, other.algorithm["geometry"], other.algorithm["loss"]]);
      if (this.compiled.has(key)) continue;
      this.compiled.add(key);
      void ask("theory", { ...other, run: { ...other.run, save: DRAFT_POINTS } }, { method: theory, ahead: true }).catch(() => {});
    }
  }
  private readonly compiled = new Set<string>();

  // -- runs and families ------------------------------------------------------------------------------------------

  private async run(): Promise<void> {
    const { task, runs } = this.store.state;
    this.stop();
    const control = (this.running = new AbortController());
    const ensemble = new Ensemble(runs, task.run.seeds ?? 32);
    if (this.old) {
      this.see.busy(null, false); // runs are not pale: the curves of the other task are gone
      this.see.say(`${NAMES[this.store.state.theory]} cannot follow this task: the runs are shown alone.`);
    }
    this.describe.progress(true, 0, "preparing …");
    let seeds = ensemble.seeds;
    try {
      await stream(
        "run",
        task,
        { method: runs, threshold: this.store.state.threshold },
        (event, data) => {
          if (control !== this.running) return;
          this.ensemble = ensemble;
          if (event === "start") {
            seeds = data.seeds;
            this.describe.progress(true, 0, `${count(data.steps)} steps a run`);
          }
          if (event === "progress") {
            const done = ensemble.band ? ensemble.runs.length : 0;
            this.describe.progress(true, (done + Math.min(4, seeds - done) * (data.share ?? 0)) / seeds, `${done} of ${seeds} runs`);
          }
          if (event === "band") {
            ensemble.add(data as BandEvent);
            this.describe.progress(true, ensemble.runs.length / seeds, `${ensemble.runs.length} of ${seeds} runs`);
            if (data.lost > 0) this.see.say(`${data.lost} runs diverged: use a smaller rate, or weights on the sphere.`);
            this.drawSoon();
          }
          if (event === "verdict") {
            ensemble.verdict = data as Verdict;
            this.see.showVerdict(ensemble.verdict);
          }
        },
        control.signal,
      );
      if (control === this.running) this.describe.progress(false, 1, `${ensemble.runs.length} runs at d = ${count(task.run.dim ?? 0)}`);
    } catch (error) {
      if (control === this.running && !control.signal.aborted) {
        this.describe.progress(false, 0, "");
        this.describe.refuse((error as Error).message);
      }
    } finally {
      if (control === this.running) this.running = null;
    }
  }

  private stop(): void {
    if (!this.running) return;
    this.running.abort();
    this.running = null;
    this.describe.progress(false, 0, `stopped after ${this.ensemble?.runs.length ?? 0} runs`);
  }

  /** A curve for several values of one key around the present one. */
  private async sweep(key: string): Promise<void> {
    this.sweeping?.abort();
    const { task, theory } = this.store.state;
    this.store.update({ family: key }, "family");
    this.family = null;
    this.drawSoon();
    if (!key) return;
    const control = (this.sweeping = new AbortController());
    const list: FamilyCurve[] = [];
    this.family = { key: key.split(".")[1], curves: list };
    const draft = { ...task, run: { ...task.run, save: DRAFT_POINTS } };
    let refused = "";
    const hear = (value: string | number, curves: FamilyCurve["curves"] & { error?: string }): void => {
      if (control.signal.aborted) return;
      if (curves.error) refused ||= curves.error;
      else list.push({ value, curves });
      this.drawSoon();
    };
    try {
      if (key === "problem.width") await this.widths(draft, hear, control.signal);
      else await stream("family", draft, { method: theory, key, values: valuesOf(task, key) }, (event, data) => event === "curve" && hear(data.value, data), control.signal);
    } catch (error) {
      if (!control.signal.aborted) refused = (error as Error).message;
    }
    if (list.length === 0 && refused) this.notice.say(refused, 6);
  }

  /** Every width has a start of its own: given overlaps lose rows, or get new ones. */
  private async widths(task: Task, hear: (value: number, curves: Curves) => void, signal: AbortSignal): Promise<void> {
    const k = this.curves?.M[0][0].length ?? 1;
    for (const width of [1, 2, 3, 4]) hear(width, (await ask("theory", fitted({ ...task, problem: { ...task.problem, width } }, width, k), { method: this.store.state.theory }, signal)) as Curves);
  }

  // -- pins -------------------------------------------------------------------------------------------------------

  private pin(): void {
    const { state } = this.store;
    if (!this.curves) return;
    const { problem, algorithm } = state.task;
    const target = typeof problem.target === "string" ? problem.target : "teacher";
    const pin: Pin = { name: `${state.pins.length + 1}: ${target}, p = ${problem.width ?? 1}, lr = ${algorithm.lr}`, task: state.task, theory: state.theory };
    this.pinned.set(keyOf(pin), this.curves);
    this.store.update({ pins: [...state.pins, pin], tab: "pinned" }, "pin");
    this.notice.say("Pinned: change something, and see both.");
  }

  private unpin(number: number): void {
    this.store.update({ pins: this.store.state.pins.filter((_, i) => i !== number) }, "unpin");
  }

  private reopen(number: number): void {
    const pin = this.store.state.pins[number];
    this.store.update({ task: pin.task, theory: pin.theory }, "reopen");
  }

  /** A click into the plane: batch d^μ and rate d^(−δ), and run. */
  private choose(mu: number, delta: number): void {
    const { task } = this.store.state;
    const [lr, batch] = [lawOf(task.algorithm.lr), lawOf(task.algorithm.batch ?? 1)];
    const algorithm = {
      ...task.algorithm,
      lr: lawText({ coefficient: lr?.coefficient ?? 0.1, exponent: -delta, schedule: lr?.schedule ?? "" }),
      batch: lawText({ coefficient: batch?.coefficient ?? 1, exponent: mu, schedule: batch?.schedule ?? "" }),
    };
    this.store.update({ task: { ...task, algorithm } }, "plane");
    void this.run();
  }

  // -- taking away ------------------------------------------------------------------------------------------------

  private async text(kind: "python" | "toml" | "shell" | "bibtex"): Promise<void> {
    const { task, theory, runs } = this.store.state;
    try {
      const found = (await ask("text", task, { methods: [theory, runs] })) as Record<string, string>;
      this.dialogs[kind].open(found[kind]);
    } catch (error) {
      this.notice.say((error as Error).message, 6);
    }
  }

  private async netcdf(method: string): Promise<void> {
    this.notice.say("The file is being computed …", 30);
    try {
      const found = (await ask("netcdf", this.store.state.task, { method })) as { name: string; base64: string };
      const bytes = Uint8Array.from(atob(found.base64), (sign) => sign.charCodeAt(0));
      this.save(found.name, new Blob([bytes], { type: "application/x-netcdf" }));
    } catch (error) {
      this.notice.say((error as Error).message, 6);
    }
  }

  /** The theory at all its save points, of which fewer are drawn while a slider moves, and the runs. */
  private async csv(): Promise<void> {
    const { task, theory } = this.store.state;
    try {
      const curves = (await ask("theory", task, { method: theory })) as Curves;
      this.save("twolayer.csv", new Blob([asCsv(curves, this.ensemble)], { type: "text/csv" }));
    } catch (error) {
      this.notice.say((error as Error).message, 6);
    }
  }

  private save(name: string, blob: Blob): void {
    const link = h("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    this.notice.say(`Saved ${name}.`);
  }

  // -- drawing, keys, links ---------------------------------------------------------------------------------------

  private drawSoon(): void {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => this.draw());
  }

  private draw(): void {
    cancelAnimationFrame(this.drawing);
    this.drawing = 0;
    const pins = this.store.state.pins.map((pin) => ({ pin, curves: this.pinned.get(keyOf(pin)) ?? null }));
    const simulated = this.running !== null || this.ensemble !== null;
    const other = this.curves !== null && this.answered.get(this.curves) !== this.asked;
    const curves = simulated && other ? null : this.curves;
    this.see.show({ curves: curves ?? meanOf(this.ensemble), ensemble: this.ensemble, pins, family: this.family, escape: this.escape, best: this.best, landscape: this.landscape });
  }

  private keepLink(): void {
    clearTimeout(this.linking);
    this.linking = setTimeout(() => this.writeLink(), 200);
  }

  private writeLink(): void {
    clearTimeout(this.linking);
    const link = writeLink(this.store.state);
    if (link !== location.hash.slice(1)) history.replaceState(null, "", `${location.pathname}${location.search}#${link}`);
  }

  private key(event: KeyboardEvent): void {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement || event.target instanceof HTMLSelectElement;
    const letter = event.key.toLowerCase();
    if ((event.ctrlKey || event.metaKey) && !event.altKey && (letter === "z" || letter === "y") && !(event.target instanceof HTMLTextAreaElement)) {
      event.preventDefault();
      if (letter === "y" || event.shiftKey) this.store.redo();
      else this.store.undo();
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const acts: Record<string, () => void> = {
      r: () => (this.running ? this.stop() : void this.run()),
      p: () => this.pin(),
      " ": () => this.see.play(),
      ".": () => this.see.step(1),
      ",": () => this.see.step(-1),
      "?": () => this.dialogs["keys"].open(KEYS),
    };
    if (letter === " " && event.target instanceof HTMLButtonElement) return;
    if (acts[letter]) {
      event.preventDefault();
      acts[letter]();
    }
  }
}

function keyOf(pin: Pin): string {
  return JSON.stringify([pin.task, pin.theory]);
}

/** Values around the present one, on a scale that suits the key. */
function valuesOf(task: Task, key: string): (string | number)[] {
  const factors = [0.25, 0.5, 1, 2, 4];
  const scaled = (text: string | number): string[] => {
    const law = lawOf(text) ?? { coefficient: 0.1, exponent: -1, schedule: "" };
    return factors.map((factor) => lawText({ ...law, coefficient: Number((law.coefficient * factor).toPrecision(6)) }));
  };
  if (key === "algorithm.lr") return scaled(task.algorithm.lr);
  if (key === "algorithm.batch") return scaled(task.algorithm.batch ?? 1);
  if (key === "problem.noise") return [0, 0.01, 0.1, 0.5, 1];
  if (key === "run.dim") return [100, 1000, 10_000, 100_000];
  return [0, 1, 2, 3, 4, 5, 6, 7];
}

void (get("api/catalogue") as Promise<Catalogue>).then(
  (catalogue) => new Page(catalogue),
  (error: Error) => document.body.append(h("main", { class: "see" }, h("p", { class: "refused", role: "alert" }, error.message))),
);
