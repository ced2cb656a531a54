/** Pictures made of cells: a matrix of overlaps, and the plane of batch and rate. */
import { h } from "../ui/dom";
import { fixed, short } from "../ui/numbers";
import { colours, FONT, MATH } from "../ui/palette";
import type { Rows } from "./task";

abstract class Picture {
  readonly element: HTMLElement;
  protected readonly canvas = h("canvas");

  constructor(label: string) {
    this.element = h("div", { class: "plot", role: "img", "aria-label": label }, this.canvas);
    new ResizeObserver(() => this.repaint()).observe(this.element);
  }

  describe(text: string): void {
    this.element.setAttribute("aria-label", text);
  }

  repaint(): void {
    const ratio = devicePixelRatio;
    const [width, height] = [this.element.clientWidth, this.element.clientHeight];
    if (width < 40 || height < 40) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.paint(context, width, height);
  }

  protected abstract paint(context: CanvasRenderingContext2D, width: number, height: number): void;
}

/** From orange over paper to blue: signs are told apart without red and green. */
function heat(value: number, dark: boolean): string {
  const part = Math.round(100 * Math.min(1, Math.abs(value)));
  const [plus, minus] = dark ? ["#3f8ef5", "#e2762e"] : ["#0a5fb4", "#d85a00"];
  return `color-mix(in srgb, ${value >= 0 ? plus : minus} ${part}%, ${dark ? "#181b20" : "#fffefb"})`;
}

/** (M | Q) at one time. */
export class HeatMap extends Picture {
  private M: Rows = [];
  private Q: Rows = [];

  show(M: Rows, Q: Rows): void {
    this.M = M;
    this.Q = Q;
    this.repaint();
  }

  protected paint(context: CanvasRenderingContext2D, width: number, height: number): void {
    const [p, k] = [this.M.length, this.M[0]?.length ?? 0];
    if (p === 0) return;
    const dark = document.documentElement.dataset["theme"] === "dark";
    const columns = k + (this.Q.length ? p + 0.6 : 0);
    const size = Math.min((width - 30) / columns, (height - 40) / p, 64);
    const [left, top] = [(width - columns * size) / 2, 26 + Math.max(0, (height - 40 - p * size) / 2)];
    context.textAlign = "center";
    context.textBaseline = "middle";
    const most = Math.max(1, ...this.M.flat().map(Math.abs), ...this.Q.flat().map(Math.abs));
    const block = (rows: Rows, x0: number, name: string): void => {
      context.fillStyle = colours().muted;
      context.font = `15px ${MATH}`;
      context.fillText(name, x0 + (rows[0].length * size) / 2, top - 12);
      context.font = `${Math.min(12, size / 3.2)}px ${FONT}`;
      rows.forEach((row, i) =>
        row.forEach((value, j) => {
          context.fillStyle = heat(value / most, dark);
          context.fillRect(x0 + j * size, top + i * size, size - 1, size - 1);
          if (size < 22) return;
          context.fillStyle = !dark && Math.abs(value / most) > 0.55 ? "#ffffff" : colours().ink;
          context.fillText(fixed(value), x0 + (j + 0.5) * size, top + (i + 0.5) * size);
        }),
      );
    };
    block(this.M, left, "M");
    if (this.Q.length) block(this.Q, left + (k + 0.6) * size, "Q");
  }
}

export interface Plane {
  readonly ell: number;
  readonly mu: readonly number[];
  readonly delta: readonly number[];
  readonly regimes: readonly string[];
  readonly cells: Rows;
  readonly theta: readonly (readonly (number | null)[])[];
  readonly lines: readonly { name: string; equation: string; mu: readonly number[]; delta: readonly number[] }[];
  readonly optimal: readonly [number, number];
  readonly here: { mu: number; delta: number; regime?: string; growth?: string | null; dynamics?: string; learns?: boolean; note?: string };
  readonly caveat: string;
}

/** Light and dark shade of every regime: the same regime has the same colour for every target. Greys do not learn. */
export const SHADES: Readonly<Record<string, readonly [string, string]>> = {
  "SGD learning": ["#dceaf6", "#1b3450"],
  "correlation-loss learning": ["#f8e3d2", "#4a2f1c"],
  polylogarithmic: ["#d8f0e4", "#173d2c"],
  "constant number of steps": ["#ead3ee", "#42264a"],
  "one step": ["#f3efc9", "#3d3a1a"],
  "not learning": ["#e2e2e2", "#2c2f34"],
  "not learning (expansion not defined)": ["#cbcbcb", "#3d4148"],
};
const OTHER = ["#cfe3e8", "#1e3a40"] as const;

export function shadeOf(regime: string, dark: boolean): string {
  return (SHADES[regime] ?? OTHER)[dark ? 1 : 0];
}

/** What is written along a boundary. */
export function lineText(name: string, equation: string): string {
  const greek = name.replace(/\btheta\b/g, "θ");
  return `${greek}: ${equation}`;
}

export class PlaneMap extends Picture {
  private plane: Plane | null = null;
  private box = { left: 46, top: 8, width: 1, height: 1 };

  constructor(label: string, chosen: (mu: number, delta: number) => void) {
    super(label);
    this.canvas.addEventListener("click", (event) => {
      const { plane, box } = this;
      if (!plane) return;
      const [mu0, mu1, d0, d1] = [plane.mu[0], plane.mu.at(-1)!, plane.delta[0], plane.delta.at(-1)!];
      const mu = mu0 + ((event.offsetX - box.left) / box.width) * (mu1 - mu0);
      const delta = d1 - ((event.offsetY - box.top) / box.height) * (d1 - d0);
      if (mu < mu0 || mu > mu1 || delta < d0 || delta > d1) return;
      chosen(Math.round(mu * 20) / 20, Math.round(delta * 20) / 20);
    });
  }

  show(plane: Plane | null): void {
    this.plane = plane;
    this.repaint();
  }

  protected paint(context: CanvasRenderingContext2D, width: number, height: number): void {
    const { plane } = this;
    if (!plane) return;
    const c = colours();
    const dark = document.documentElement.dataset["theme"] === "dark";
    const shades = plane.regimes.map((regime) => shadeOf(regime, dark));
    const box = (this.box = { left: 46, top: 8, width: width - 58, height: height - 44 });
    const [mu0, mu1, d0, d1] = [plane.mu[0], plane.mu.at(-1)!, plane.delta[0], plane.delta.at(-1)!];
    const X = (mu: number): number => box.left + ((mu - mu0) / (mu1 - mu0)) * box.width;
    const Y = (delta: number): number => box.top + ((d1 - delta) / (d1 - d0)) * box.height;
    const [dx, dy] = [box.width / (plane.mu.length - 1), box.height / (plane.delta.length - 1)];
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
    const centres = plane.regimes.map(() => ({ x: 0, y: 0, n: 0 }));
    plane.cells.forEach((row, i) =>
      row.forEach((cell, j) => {
        context.fillStyle = shades[cell];
        const [x, y] = [X(plane.mu[j]), Y(plane.delta[i])];
        context.fillRect(x - dx / 2, y - dy / 2, dx + 1, dy + 1);
        const centre = centres[cell];
        centre.x += x;
        centre.y += y;
        centre.n += 1;
      }),
    );
    context.strokeStyle = c.ink;
    context.lineWidth = 1.25;
    context.font = `10px ${FONT}`;
    context.fillStyle = c.ink;
    for (const line of plane.lines) {
      const [x0, y0, x1, y1] = [X(line.mu[0]), Y(line.delta[0]), X(line.mu[1]), Y(line.delta[1])];
      context.setLineDash(line.name.includes("published") ? [4, 3] : []);
      context.beginPath();
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
      context.stroke();
      // lines that end inside the window meet others there, so that their names stand at the beginning
      const inside = line.mu[1] < mu1 - 1e-9;
      this.name(context, lineText(line.name, line.equation), [x0, y0], [x1, y1], inside);
    }
    context.setLineDash([]);
    context.font = `11px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    plane.regimes.forEach((name, i) => {
      const { x, y, n } = centres[i];
      if (n <= 20) return;
      const room = box.width - 12;
      let text = name;
      while (context.measureText(text).width > room && text.length > 4) text = `${text.slice(0, -2)}…`;
      const half = context.measureText(text).width / 2 + 6;
      const [left, middle] = [Math.min(box.left + box.width - half, Math.max(box.left + half, x / n)), y / n];
      context.strokeStyle = shades[i]; // boundaries and their names may pass below
      context.lineWidth = 4;
      context.strokeText(text, left, middle);
      context.fillText(text, left, middle);
    });
    context.strokeStyle = c.ink;
    context.lineWidth = 1.25;
    const dot = (mu: number, delta: number, fill: string, radius: number): void => {
      context.beginPath();
      context.arc(X(mu), Y(delta), radius, 0, 2 * Math.PI);
      context.fillStyle = fill;
      context.strokeStyle = c.ink;
      context.fill();
      context.stroke();
    };
    dot(plane.optimal[0], plane.optimal[1], c.surface, 4);
    dot(plane.here.mu, plane.here.delta, c.chain, 6);
    context.restore();
    context.fillStyle = c.muted;
    context.textBaseline = "top";
    for (let x = Math.ceil(mu0); x <= mu1; x++) context.fillText(String(x), X(x), box.top + box.height + 4);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let y = Math.ceil(d0); y <= d1; y++) context.fillText(short(y), box.left - 6, Y(y));
    context.font = `15px ${MATH}`;
    context.textAlign = "center";
    context.fillText("μ", box.left + box.width / 2, height - 8);
    context.fillText("δ", 12, box.top + 10);
  }

  /** Write the name of a boundary along it, at its beginning or at its end, if it is long enough. */
  private name(context: CanvasRenderingContext2D, text: string, from: readonly [number, number], to: readonly [number, number], first: boolean): void {
    const { box } = this;
    // where the line leaves the window: below its edge nobody reads
    const [x0, y0] = from;
    let [x1, y1] = to;
    const bottom = box.top + box.height;
    if (y1 > bottom && y1 > y0) [x1, y1] = [x0 + ((bottom - y0) / (y1 - y0)) * (x1 - x0), bottom];
    const width = context.measureText(text).width;
    if (Math.hypot(x1 - x0, y1 - y0) < width + 16) return;
    context.save();
    context.translate(first ? x0 : x1, first ? y0 : y1);
    context.rotate(Math.atan2(y1 - y0, x1 - x0));
    context.textAlign = first ? "left" : "right";
    context.textBaseline = "bottom";
    context.fillText(text, first ? 12 : -8, -2);
    context.restore();
  }
}
