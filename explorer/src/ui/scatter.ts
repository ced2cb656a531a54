/** Neurons as points in a plane that move with time, with the way they have come and a cloud of simulated runs. */
import { h } from "./dom";
import { fixed } from "./numbers";
import { colours, FONT, MARKERS, MATH, outline } from "./palette";

export type Point = readonly [number, number];

export interface Cast {
  /** Axis labels: a letter and its index. */
  readonly axes: readonly [readonly [string, string], readonly [string, string]];
  /** What has to be seen of both axes. */
  readonly window: readonly [Point, Point];
  /** Whether a unit is as long across as up. */
  readonly alike: boolean;
  /** For every neuron, where it has been until now, the last point being the present. */
  readonly trails: readonly (readonly Point[])[];
  /** For every neuron, where it is in each simulated run. */
  readonly clouds: readonly (readonly Point[])[];
  /** Where the target is. */
  readonly targets: readonly Point[];
  /** A curve that neurons of norm one cannot leave, or null. */
  readonly border: readonly Point[] | null;
}

const MARGIN = { left: 46, right: 14, top: 10, bottom: 38 };

/** About five round numbers within a range. */
function splits(low: number, high: number): number[] {
  const raw = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) ?? raw;
  const out: number[] = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) out.push(Number((n * step).toPrecision(12)));
  return out;
}

/** The window made larger, so that a unit is as long across as up. */
function widened([across, up]: Cast["window"], room: { width: number; height: number }): [Point, Point] {
  const unit = Math.max((across[1] - across[0]) / room.width, (up[1] - up[0]) / room.height);
  const grow = ([low, high]: Point, length: number): Point => {
    const more = (unit * length - (high - low)) / 2;
    return [low - more, high + more];
  };
  return [grow(across, room.width), grow(up, room.height)];
}

export class Scatter {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas");
  private cast: Cast | null = null;

  constructor(label: string) {
    this.element = h("div", { class: "plot", role: "img", "aria-label": label }, this.canvas);
    new ResizeObserver(() => this.repaint()).observe(this.element);
  }

  describe(text: string): void {
    this.element.setAttribute("aria-label", text);
  }

  draw(cast: Cast): void {
    this.cast = cast;
    this.repaint();
  }

  repaint(): void {
    if (!this.cast) return;
    const ratio = devicePixelRatio;
    const [width, height] = [this.element.clientWidth, this.element.clientHeight];
    if (width < 80 || height < 80) return;
    const { canvas } = this;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.paint(context, width, height, this.cast);
  }

  private paint(context: CanvasRenderingContext2D, width: number, height: number, cast: Cast): void {
    const c = colours();
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    const [[left, right], [bottom, top]] = cast.alike ? widened(cast.window, inner) : cast.window;
    const X = (x: number): number => MARGIN.left + ((x - left) / (right - left)) * inner.width;
    const Y = (y: number): number => MARGIN.top + ((top - y) / (top - bottom)) * inner.height;
    const trace = (points: readonly Point[]): Path2D => {
      const path = new Path2D();
      points.forEach(([x, y], i) => (i === 0 ? path.moveTo(X(x), Y(y)) : path.lineTo(X(x), Y(y))));
      return path;
    };

    context.font = `11px ${FONT}`;
    context.fillStyle = c.muted;
    context.strokeStyle = c.grid;
    context.lineWidth = 1;
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const x of splits(left, right)) {
      context.stroke(trace([[x, bottom], [x, top]]));
      context.fillText(fixed(x, 1), X(x), Y(bottom) + 5);
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const y of splits(bottom, top)) {
      context.stroke(trace([[left, y], [right, y]]));
      context.fillText(fixed(y, 1), MARGIN.left - 6, Y(y));
    }
    this.label(context, cast.axes[0], MARGIN.left + inner.width / 2, height - 6);
    this.label(context, cast.axes[1], 12, MARGIN.top + 6);

    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, inner.width, inner.height);
    context.clip();
    if (cast.border) {
      context.strokeStyle = c.muted;
      context.setLineDash([2, 4]);
      context.stroke(trace(cast.border));
      context.setLineDash([]);
    }
    cast.clouds.forEach((points, j) => {
      context.globalAlpha = 0.5;
      context.fillStyle = c.neurons[j % c.neurons.length];
      for (const [x, y] of points) context.fill(outline(MARKERS[j % MARKERS.length], X(x), Y(y), 2));
      context.globalAlpha = 1;
    });
    cast.trails.forEach((points, j) => {
      context.strokeStyle = c.neurons[j % c.neurons.length];
      context.lineWidth = 1.5;
      context.globalAlpha = 0.55;
      context.stroke(trace(points));
      context.globalAlpha = 1;
    });
    context.restore();
    for (const [x, y] of cast.targets) {
      const path = outline("star", X(x), Y(y), 5);
      context.fillStyle = c.surface;
      context.strokeStyle = c.ink;
      context.lineWidth = 1.25;
      context.fill(path);
      context.stroke(path);
    }
    cast.trails.forEach((points, j) => {
      const [x, y] = points[points.length - 1];
      const path = outline(MARKERS[j % MARKERS.length], X(x), Y(y), 5.5);
      context.fillStyle = c.neurons[j % c.neurons.length];
      context.strokeStyle = c.surface;
      context.lineWidth = 1.5;
      context.fill(path);
      context.stroke(path);
    });
  }

  /** A letter with its index, in the type of formulas. */
  private label(context: CanvasRenderingContext2D, [letter, index]: readonly [string, string], x: number, y: number): void {
    context.fillStyle = colours().muted;
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    context.font = `16px ${MATH}`;
    context.fillText(letter, x, y);
    const half = context.measureText(letter).width / 2;
    context.textAlign = "left";
    context.font = `11px KaTeX_Main, ${FONT}`;
    context.fillText(index, x + half, y + 3);
  }
}
