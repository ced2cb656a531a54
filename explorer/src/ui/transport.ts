/** Play, pause and scrub through the time of a run. */
import { h } from "./dom";

const NOTCHES = 1000;
const WHOLE_MILLISECONDS = 8000;

export class Transport {
  readonly element: HTMLElement;
  private readonly button = h("button", { type: "button", class: "play", "aria-label": "Play" });
  private readonly range = h("input", { type: "range", min: 0, max: NOTCHES, "aria-label": "Cursor of time" });
  private readonly readout = h("output", { class: "readout" });
  private at = 1;
  private frame = 0;

  /** `moved` hears where the cursor is, as a part of the way. */
  constructor(private readonly moved: (part: number) => void) {
    this.element = h("div", { class: "transport", role: "group", "aria-label": "Time of the run" });
    this.element.append(this.button, this.range, this.readout);
    this.button.addEventListener("click", () => (this.frame ? this.pause() : this.play()));
    this.range.addEventListener("input", () => {
      this.pause();
      this.move(Number(this.range.value) / NOTCHES);
    });
    this.face();
  }

  /** Show a part of the way and its time in words, without telling anybody. */
  set(part: number, html: string, words: string): void {
    this.at = part;
    this.range.value = String(Math.round(NOTCHES * part));
    this.range.setAttribute("aria-valuetext", words);
    this.readout.innerHTML = html;
  }

  pause(): void {
    if (!this.frame) return;
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.face();
  }

  private play(): void {
    if (this.at >= 1) this.move(0);
    let last = performance.now();
    const tick = (now: number): void => {
      const part = Math.min(1, this.at + (now - last) / WHOLE_MILLISECONDS);
      last = now;
      this.move(part);
      if (part < 1) this.frame = requestAnimationFrame(tick);
      else this.pause();
    };
    this.frame = requestAnimationFrame(tick);
    this.face();
  }

  private move(part: number): void {
    this.at = part;
    this.moved(part);
  }

  private face(): void {
    const playing = this.frame !== 0;
    this.button.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.button.innerHTML = playing
      ? '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M4 3h3v10H4zM9 3h3v10H9z"/></svg>'
      : '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M4 2.5v11l9-5.5z"/></svg>';
  }
}
