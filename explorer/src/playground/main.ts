/** The page: its parts, and what happens between them. */
import workerSource from "../worker/worker.ts?text";
import { h } from "../ui/dom";
import { count } from "../ui/numbers";
import { readLink, writeLink } from "../ui/permalink";
import { copy, Notice, TextDialog } from "../ui/sharing";
import { Store } from "../ui/store";
import { ThemeSwitch } from "../ui/theme";
import { LimitClient, RunPool } from "../worker/clients";
import { Describe } from "./describe";
import { python } from "./python";
import { Ensemble, gridOf, Limit, type Grid } from "./results";
import { See } from "./see";
import { CODECS, DEFAULT, MOST_STEPS, refusal, settle, startOf, stepsOf, taskOf, type State } from "./state";

const SHORT_SECONDS = 6; // a chain that takes no longer is run without being asked
const PAUSE_MILLISECONDS = 350; // after the last change, before it is
const DRAW_MILLISECONDS = 120; // between two pictures of a growing ensemble
const WORKERS = Math.max(1, Math.min(4, (navigator.hardwareConcurrency || 2) - 1));

/** Seconds that all runs together will take on one core of usual speed. */
function effort(state: State): number {
  const { p, k, batch, runs, activation } = state;
  const sample = 60 * (p + k + 1) + 45 * p + (activation === "erf" ? 90 * (p + k) : 0);
  const rows = Math.min(p, batch);
  return 1e-9 * stepsOf(state) * runs * (150 + batch * sample + 30 * rows * (rows + 1) + 6 * p ** 3);
}

/** The values that computed numbers depend on. */
function question(state: State): string {
  const { scale, quantity, size, x, y, hidden, at, runs, ...rest } = state;
  return JSON.stringify(rest);
}

class Page {
  private readonly store: Store<State>;
  private readonly describe: Describe;
  private readonly see: See;
  private readonly notice = new Notice();
  private readonly dialog = new TextDialog("The same in Python", this.notice);
  private readonly undo = h("button", { type: "button", onclick: () => this.store.undo() }, "Undo");
  private readonly redo = h("button", { type: "button", onclick: () => this.store.redo() }, "Redo");
  private readonly theme: ThemeSwitch;
  private readonly limits: LimitClient;
  private readonly pool: RunPool;
  private grid: Grid;
  private limit: Limit | null = null;
  private ensemble: Ensemble | null = null;
  private asked = "";
  private runs = 0;
  private began = 0;
  private slowness = 1 / WORKERS; // seconds for a second of effort, measured on every run
  private pause = 0;
  private drawing = 0;
  private linking = 0;

  constructor() {
    const url = URL.createObjectURL(new Blob([workerSource], { type: "text/javascript" }));
    const spawn = (): Worker => new Worker(url);
    const { values, refused } = readLink(CODECS, location.hash);
    this.store = new Store({ ...DEFAULT, ...values }, settle, ["at"]);
    this.grid = gridOf(this.store.state);
    this.limits = new LimitClient(
      spawn,
      ({ rows, diverged }) => {
        const { p, k } = this.store.state;
        this.limit = new Limit(this.grid, p, k, rows, diverged);
        this.show();
      },
      (message) => this.see.say(message),
    );
    this.pool = new RunPool(spawn, WORKERS);
    this.describe = new Describe(this.store, () => (this.pool.active ? this.stopRuns() : this.startRuns()));
    this.see = new See(this.store);
    this.theme = new ThemeSwitch(() => this.see.repaint());
    this.lay();
    this.store.subscribe(() => this.changed());
    this.store.subscribeAmended(() => this.keepLink());
    addEventListener("hashchange", () => this.follow());
    addEventListener("keydown", (event) => this.key(event));
    if (refused.length > 0) this.refuseLink(refused);
    // the letters of formulas are drawn on canvases too, once they are there
    void document.fonts.load("16px KaTeX_Math").then(() => this.see.repaint());
    this.changed();
  }

  private lay(): void {
    const share = h("button", { type: "button" }, "Copy link");
    share.addEventListener("click", () => {
      this.writeLink();
      void copy(location.href).then((copied) => {
        if (copied) this.notice.say("Link copied.");
        else this.notice.say("The address of this page is the link.", 5);
      });
    });
    const code = h("button", { type: "button", onclick: () => this.dialog.open(python(this.store.state)) }, "Python");
    const theme = h("button", { type: "button", class: "theme", "aria-label": "Light or dark", onclick: () => this.theme.turn() });
    document.querySelector("header")!.append(h("nav", { "aria-label": "Tools" }, this.undo, this.redo, share, code, theme));
    const side = h("details", { class: "side", open: true }, h("summary", {}, "Description"), this.describe.element);
    // where there is room the description always stands open
    const wide = matchMedia("(min-width: 900px)");
    const fit = (): void => {
      side.open = wide.matches;
    };
    wide.addEventListener("change", fit);
    fit();
    document.body.append(side, this.see.element, this.notice.element, this.dialog.element);
  }

  /** The state has changed: ask for what is not known. */
  private changed(): void {
    const { state } = this.store;
    this.undo.disabled = !this.store.canUndo;
    this.redo.disabled = !this.store.canRedo;
    this.keepLink();
    const asked = question(state);
    if (asked === this.asked && state.runs === this.runs) return;
    const sameTask = asked === this.asked;
    this.asked = asked;
    this.runs = state.runs;
    this.stopRuns();
    this.ensemble = null;
    const reason = refusal(state);
    this.describe.refuse(reason);
    if (reason) {
      this.limit = null;
      this.see.say("Nothing to show: see the start.");
      this.tell(reason);
      return;
    }
    if (!sameTask) {
      this.grid = gridOf(state);
      this.limits.solve(taskOf(state), startOf(state), this.grid.times);
    } else this.show();
    this.tell();
    clearTimeout(this.pause);
    if (this.cannotRun() === null && this.guess() < SHORT_SECONDS) this.pause = setTimeout(() => this.startRuns(), PAUSE_MILLISECONDS);
  }

  private guess(): number {
    return effort(this.store.state) * this.slowness;
  }

  private cannotRun(): string | null {
    const steps = stepsOf(this.store.state);
    if (steps < 1) return "The time is shorter than one step.";
    if (steps >= MOST_STEPS) return `A run would have ${count(steps)} steps; the chain counts up to 2³². The limit is shown all the same.`;
    return null;
  }

  private startRuns(): void {
    clearTimeout(this.pause);
    const { state } = this.store;
    if (refusal(state) !== null || this.cannotRun() !== null) return;
    const { grid } = this;
    const ensemble = new Ensemble(grid, state.p, state.k, state.runs);
    this.ensemble = ensemble;
    this.began = performance.now();
    this.pool.start(
      { task: taskOf(state), start: startOf(state), dim: state.dim, seed: state.seed, steps: grid.steps, count: state.runs },
      {
        piece: (reply) => {
          ensemble.add(reply);
          this.drawSoon();
        },
        done: ({ diverged }) => {
          ensemble.done += 1;
          if (diverged !== null) {
            ensemble.diverged += 1;
            ensemble.firstDivergence = Math.min(ensemble.firstDivergence, diverged);
          }
        },
        finished: () => {
          const seconds = (performance.now() - this.began) / 1000;
          if (seconds > 0.5) this.slowness = seconds / effort(state);
          this.drawSoon();
        },
        failed: (message) => {
          this.see.say(message);
          this.tell();
        },
      },
    );
    this.tell();
  }

  private stopRuns(): void {
    clearTimeout(this.pause);
    this.pool.stop();
    this.tell();
  }

  private drawSoon(): void {
    if (this.drawing) return;
    this.drawing = setTimeout(() => {
      this.drawing = 0;
      this.show();
      this.tell();
    }, DRAW_MILLISECONDS);
  }

  private show(): void {
    const { limit } = this;
    const ensemble = this.ensemble?.grid === limit?.grid ? this.ensemble : null; // a slow limit may be of an older question
    this.see.show(limit, ensemble);
    const parts: string[] = [];
    const { p, dim, gamma } = this.store.state;
    if (limit?.diverged != null) parts.push(`The limit diverges at t = ${limit.diverged.toPrecision(3)}.`);
    if (ensemble && ensemble.diverged > 0) {
      const time = (ensemble.firstDivergence * gamma) / (p * dim);
      parts.push(`${ensemble.diverged} of ${ensemble.done} runs diverged, the first at t = ${time.toPrecision(3)}.`);
    }
    if (parts.length > 0) parts.push("A smaller learning rate, or weights on the sphere, stay finite.");
    this.see.say(parts.length > 0 ? parts.join(" ") : null);
  }

  /** How far the chain is. */
  private tell(reason: string | null = null): void {
    const { state } = this.store;
    const { ensemble } = this;
    const running = this.pool.active;
    const part = ensemble ? ensemble.steps / (ensemble.count * stepsOf(state)) : 0;
    const elapsed = (performance.now() - this.began) / 1000;
    const left = part > 0.01 || elapsed > 1 ? (elapsed * (1 - part)) / Math.max(part, 1e-9) : null;
    const seconds = running ? left : ensemble ? null : this.guess();
    this.describe.progress({ done: ensemble?.done ?? 0, part, running, seconds, refusal: reason ?? this.cannotRun() });
  }

  /** Keep the address the link to what is shown, but not at every move of a slider. */
  private keepLink(): void {
    clearTimeout(this.linking);
    this.linking = setTimeout(() => this.writeLink(), 200);
  }

  private writeLink(): void {
    clearTimeout(this.linking);
    const link = writeLink(CODECS, this.store.state, settle(DEFAULT));
    if (link !== location.hash.slice(1)) history.replaceState(null, "", `${location.pathname}${location.search}${link ? `#${link}` : ""}`);
  }

  /** A link has been opened in this page. */
  private follow(): void {
    const { values, refused } = readLink(CODECS, location.hash);
    this.store.update({ ...DEFAULT, ...values }, "link");
    if (refused.length > 0) this.refuseLink(refused);
  }

  private refuseLink(words: readonly string[]): void {
    this.notice.say(`Not understood in the link: ${words.join(", ")}. The rest is shown.`, 8);
  }

  private key(event: KeyboardEvent): void {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const letter = event.key.toLowerCase();
    const typing = event.target instanceof HTMLTextAreaElement;
    if (typing || (letter !== "z" && letter !== "y")) return;
    event.preventDefault();
    if (letter === "y" || event.shiftKey) this.store.redo();
    else this.store.undo();
  }
}

new Page();
