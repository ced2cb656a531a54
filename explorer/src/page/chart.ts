/** Curves of many kinds in one frame: axes by uPlot, curves, bands and marks drawn into it; the same as SVG. */
import uPlot from "uplot";
import { h } from "../ui/dom";
import { short, superscript } from "../ui/numbers";
import { colours, FONT, MATH, outline, type Colours, type Marker } from "../ui/palette";

export type Values = readonly (number | null)[];

export interface Curve {
  readonly x: Values;
  readonly y: Values;
  /** A colour of the palette: ink, chain, muted or a neuron's number, or a CSS colour. */
  readonly colour: string;
  readonly dash?: readonly number[];
  readonly width?: number;
  readonly faint?: boolean;
  /** Points are marked, as of methods that take steps. */
  readonly marker?: Marker;
  readonly name?: string;
}

export interface Band {
  readonly x: Values;
  readonly low: Values;
  readonly high: Values;
  readonly colour: string;
}

/** A vertical line with a name, or bars of a histogram above the x axis. */
export interface Mark {
  readonly x: number;
  readonly name: string;
}

export interface Picture {
  readonly curves: readonly Curve[];
  readonly bands: readonly Band[];
  readonly marks: readonly Mark[];
  readonly histogram: readonly number[];
  readonly logX: boolean;
  readonly logY: boolean;
  readonly label: readonly [string, string];
  readonly always?: readonly [number, number];
}

interface Frame {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  x(value: number): number;
  y(value: number): number;
}

export function tick(value: number): string {
  const exponent = Math.log10(Math.abs(value));
  const power = Number.isInteger(exponent) && (exponent < -2 || exponent > 3);
  return power ? `${value < 0 ? "−" : ""}10${superscript(exponent)}` : short(value);
}

function logSplits(low: number, high: number): number[] {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (last - first < 2) {
    const all = [first - 1, first, first + 1, first + 2].flatMap((n) => [1, 2, 5].map((m) => Number(`${m}e${n}`)));
    return all.filter((x) => x >= low * 0.999 && x <= high * 1.001);
  }
  const stride = Math.ceil((last - first + 1) / 7);
  return Array.from({ length: Math.floor((last - first) / stride) + 1 }, (_, i) => Number(`1e${last - i * stride}`)).reverse();
}

export function inkOf(c: Colours, colour: string): string {
  if (colour === "ink" || colour === "chain" || colour === "muted") return c[colour];
  return /^\d$/.test(colour) ? c.neurons[Number(colour) % c.neurons.length] : colour;
}

/** Range of all finite values that the axes can show. */
function extent(all: readonly Values[], log: boolean): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const values of all)
    for (const value of values) {
      if (value === null || !Number.isFinite(value) || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  return low <= high ? [low, high] : log ? [0.1, 1] : [0, 1];
}

export class Chart {
  readonly element: HTMLElement;
  private readonly cursor = h("div", { class: "time-mark" });
  private plot: uPlot | null = null;
  private form = "";
  private picture: Picture | null = null;
  private at: number | null = null;

  constructor(
    label: string,
    private readonly moved: (x: number) => void = () => {},
  ) {
    this.element = h("div", { class: "plot", role: "img", "aria-label": label });
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  describe(text: string): void {
    this.element.setAttribute("aria-label", text);
  }

  draw(picture: Picture): void {
    this.picture = picture;
    const form = JSON.stringify([picture.logX, picture.logY, picture.label, this.colourKey()]);
    if (!this.plot || form !== this.form) {
      this.form = form;
      this.build();
    } else this.plot.setData(this.data(), true);
  }

  repaint(): void {
    if (this.picture) this.build();
  }

  setCursor(x: number | null): void {
    this.at = x;
    this.place();
  }

  private colourKey(): string {
    return document.documentElement.dataset["theme"] ?? "";
  }

  /** uPlot sees the corners of everything, so that it knows the ranges; what is drawn is ours. */
  private data(): uPlot.AlignedData {
    const { curves, bands, logX, logY, always } = this.picture!;
    const [left, right] = extent([...curves.map(({ x }) => x), ...bands.map(({ x }) => x)], logX);
    let [low, high] = extent([...curves.map(({ y }) => y), ...bands.flatMap((band) => [band.low, band.high])], logY);
    if (always && !logY) [low, high] = [Math.min(low, always[0]), Math.max(high, always[1])];
    if (logY) low = Math.max(low, high * 1e-15);
    return [[left, right > left ? right : left + 1], [low, high]];
  }

  private build(): void {
    this.plot?.destroy();
    const { logX, logY, label, always } = this.picture!;
    const c = colours();
    const axis = (log: boolean, text: string, side: 2 | 3): uPlot.Axis => ({
      side,
      stroke: c.muted,
      font: `11px ${FONT}`,
      label: text,
      labelFont: `15px ${MATH}`,
      labelSize: side === 2 ? 18 : 0,
      labelGap: 0,
      gap: 4,
      size: side === 2 ? 20 : 46,
      space: side === 2 ? 60 : 34,
      grid: { stroke: c.grid, width: 1 },
      ticks: { show: false },
      border: { show: true, stroke: c.grid, width: 1 },
      values: (_, splits) => splits.map(tick),
      ...(log ? { splits: (_: uPlot, __: number, low: number, high: number) => logSplits(low, high) } : {}),
    });
    const range = (_: uPlot, min: number | null, max: number | null): [number, number] => {
      if (min === null || max === null) return logY ? [0.1, 1] : [0, 1];
      if (logY) return [min / 1.3, max * 1.3];
      const pad = 0.05 * (max - min || 1);
      return [always && min === 0 ? 0 : min - pad, max + pad];
    };
    const options: uPlot.Options = {
      ...this.size(),
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, distr: logX ? 3 : 1, range: (_, min, max) => [min, max] }, y: { distr: logY ? 3 : 1, range } },
      axes: [axis(logX, label[0], 2), axis(logY, "", 3)],
      series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
      hooks: {
        draw: [
          (plot) => {
            this.paint(plot, colours());
            this.place();
          },
        ],
      },
    };
    const plot = new uPlot(options, this.data(), this.element);
    plot.over.append(this.cursor);
    plot.over.addEventListener("pointerdown", (event) => this.drag(event));
    this.plot = plot;
  }

  private paint(plot: uPlot, c: Colours): void {
    const ratio = devicePixelRatio;
    const { ctx, bbox } = plot;
    const frame: Frame = { ...bbox, x: (value) => plot.valToPos(value, "x", true), y: (value) => plot.valToPos(value, "y", true) };
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const band of this.picture!.bands) {
      ctx.fillStyle = `color-mix(in srgb, ${inkOf(c, band.colour)} 18%, transparent)`;
      ctx.fill(new Path2D(this.bandPath(band, frame)));
    }
    this.bars(frame).forEach(([x, y, width, height]) => {
      ctx.fillStyle = `color-mix(in srgb, ${c.chain} 35%, transparent)`;
      ctx.fillRect(x, y, width, height);
    });
    for (const curve of this.picture!.curves) {
      ctx.strokeStyle = inkOf(c, curve.colour);
      ctx.globalAlpha = curve.faint ? 0.22 : 1;
      ctx.lineWidth = (curve.width ?? (curve.faint ? 0.75 : 2)) * ratio;
      ctx.setLineDash((curve.dash ?? []).map((x) => x * ratio));
      ctx.stroke(new Path2D(this.curvePath(curve, frame)));
      ctx.setLineDash([]);
      if (curve.marker) {
        ctx.fillStyle = c.surface;
        ctx.lineWidth = 1.25 * ratio;
        for (const [x, y] of this.points(curve, frame)) {
          const path = outline(curve.marker, x, y, 3.2 * ratio);
          ctx.fill(path);
          ctx.stroke(path);
        }
      }
      ctx.globalAlpha = 1;
    }
    ctx.font = `${11 * ratio}px ${FONT}`;
    ctx.textBaseline = "top";
    [...this.picture!.marks].sort((a, b) => b.x - a.x).forEach(({ x, name }, i) => {
      const at = frame.x(x);
      ctx.strokeStyle = ctx.fillStyle = c.neurons[1];
      ctx.lineWidth = ratio;
      ctx.setLineDash([4 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(at, frame.top);
      ctx.lineTo(at, frame.top + frame.height);
      ctx.stroke();
      ctx.setLineDash([]);
      const [wide, top] = [ctx.measureText(name).width, frame.top + (3 + 14 * i) * ratio];
      const left = at > frame.left + 0.85 * frame.width ? at - 4 * ratio - wide : at + 4 * ratio;
      const ink = ctx.fillStyle;
      ctx.fillStyle = `color-mix(in srgb, ${c.surface} 85%, transparent)`; // so that a name can be read across other lines
      ctx.fillRect(left - 2 * ratio, top - ratio, wide + 4 * ratio, 13 * ratio);
      ctx.fillStyle = ink;
      ctx.textAlign = "left";
      ctx.fillText(name, left, top);
    });
    ctx.restore();
  }

  private points({ x, y }: { x: Values; y: Values }, frame: Frame): [number, number][] {
    const { logX, logY } = this.picture!;
    const out: [number, number][] = [];
    y.forEach((value, i) => {
      const time = x[i];
      if (value === null || time === null || !Number.isFinite(value) || (logY && value <= 0) || (logX && time <= 0)) return;
      out.push([frame.x(time), frame.y(value)]);
    });
    return out;
  }

  private curvePath(curve: { x: Values; y: Values }, frame: Frame): string {
    return this.points(curve, frame).map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  }

  private bandPath({ x, low, high }: Band, frame: Frame): string {
    const floor = this.picture!.logY ? low.map((value, i) => (value !== null && value <= 0 && high[i] !== null && high[i]! > 0 ? high[i]! * 1e-3 : value)) : low;
    const there = this.points({ x, y: high }, frame);
    const back = this.points({ x, y: floor }, frame).reverse();
    return [...there, ...back].map(([u, v], i) => `${i ? "L" : "M"}${u.toFixed(1)} ${v.toFixed(1)}`).join("") + "Z";
  }

  /** Bars of the histogram as boxes, a quarter of the frame high. */
  private bars(frame: Frame): [number, number, number, number][] {
    const { histogram } = this.picture!;
    if (histogram.length === 0) return [];
    const [low, high] = extent([histogram], false);
    const count = Math.max(4, Math.min(20, Math.round(Math.sqrt(histogram.length) * 2)));
    const step = (high - low) / count || 1;
    const bins = new Array<number>(count).fill(0);
    for (const value of histogram) bins[Math.min(count - 1, Math.floor((value - low) / step))] += 1;
    const most = Math.max(...bins);
    return bins.flatMap((n, i): [number, number, number, number][] => {
      if (n === 0) return [];
      const [left, right] = [frame.x(low + i * step), frame.x(low + (i + 1) * step)];
      const height = (0.25 * frame.height * n) / most;
      return [[left, frame.top + frame.height - height, Math.max(1, right - left - 1), height]];
    });
  }

  private place(): void {
    const at = this.plot && this.at !== null ? this.plot.valToPos(this.at, "x") : NaN;
    this.cursor.hidden = !Number.isFinite(at);
    this.cursor.style.transform = `translateX(${Number.isFinite(at) ? at : 0}px)`;
  }

  private drag(down: PointerEvent): void {
    if (down.button !== 0 || !this.plot) return;
    const { over } = this.plot;
    const follow = (event: PointerEvent): void => {
      const box = over.getBoundingClientRect();
      this.moved(this.plot!.posToVal(Math.min(box.width, Math.max(0, event.clientX - box.left)), "x"));
    };
    const end = (): void => {
      over.removeEventListener("pointermove", follow);
      over.removeEventListener("pointerup", end);
      over.removeEventListener("pointercancel", end);
    };
    over.setPointerCapture(down.pointerId);
    over.addEventListener("pointermove", follow);
    over.addEventListener("pointerup", end);
    over.addEventListener("pointercancel", end);
    follow(down);
  }

  private size(): { width: number; height: number } {
    return { width: Math.max(80, this.element.clientWidth), height: Math.max(80, this.element.clientHeight) };
  }

  private resize(): void {
    const { width, height } = this.size();
    if (this.plot && (this.plot.width !== width || this.plot.height !== height)) this.plot.setSize({ width, height });
  }

  /** The canvas, on the colour of the page. */
  png(): Promise<Blob | null> {
    const source = this.element.querySelector("canvas")!;
    const copy = h("canvas", { width: source.width, height: source.height });
    const context = copy.getContext("2d")!;
    context.fillStyle = colours().surface;
    context.fillRect(0, 0, copy.width, copy.height);
    context.drawImage(source, 0, 0);
    return new Promise((resolve) => copy.toBlob(resolve, "image/png"));
  }

  /** The same picture as SVG, 720 × 440. */
  svg(title: string): string {
    const { curves, bands, marks, logX, logY, label } = this.picture!;
    const c = colours();
    const [[left, right], [low, high]] = this.data() as [number[], number[]];
    const pad = logY ? 0 : 0.05 * (high - low || 1);
    const [bottom, top] = logY ? [low / 1.3, high * 1.3] : [low - pad, high + pad];
    const box = { left: 62, top: 34, width: 640, height: 350 };
    const share = (value: number, a: number, b: number, log: boolean): number =>
      log ? Math.log(value / a) / Math.log(b / a) : (value - a) / (b - a);
    const frame: Frame = {
      ...box,
      x: (value) => box.left + box.width * share(value, left, right, logX),
      y: (value) => box.top + box.height * (1 - share(value, bottom, top, logY)),
    };
    const even = (a: number, b: number): number[] => {
      const raw = (b - a) / 5;
      const unit = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= raw) ?? raw;
      return Array.from({ length: 12 }, (_, i) => (Math.ceil(a / step) + i) * step).filter((x) => x <= b + 1e-9 * step);
    };
    const escape = (text: string): string => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
    const xs = logX ? logSplits(left, right) : even(left, right);
    const ys = logY ? logSplits(bottom, top) : even(bottom, top);
    const text = (x: number, y: number, anchor: string, words: string, size = 12): string =>
      `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}" font-size="${size}" fill="${c.muted}">${escape(words)}</text>`;
    const line = (x1: number, y1: number, x2: number, y2: number, stroke: string, dash = ""): string =>
      `<line x1="${x1.toFixed(1)}" y1="${y1.toFixed(1)}" x2="${x2.toFixed(1)}" y2="${y2.toFixed(1)}" stroke="${stroke}"${dash && ` stroke-dasharray="${dash}"`}/>`;
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 440" width="720" height="440" font-family="sans-serif">`,
      `<rect width="720" height="440" fill="${c.surface}"/>`,
      text(box.left, 22, "start", title, 14),
      ...xs.map((x) => line(frame.x(x), box.top, frame.x(x), box.top + box.height, c.grid) + text(frame.x(x), box.top + box.height + 17, "middle", tick(Number(x.toPrecision(12))))),
      ...ys.map((y) => line(box.left, frame.y(y), box.left + box.width, frame.y(y), c.grid) + text(box.left - 7, frame.y(y) + 4, "end", tick(Number(y.toPrecision(12))))),
      text(box.left + box.width / 2, 428, "middle", label[0], 14),
      `<clipPath id="frame"><rect x="${box.left}" y="${box.top}" width="${box.width}" height="${box.height}"/></clipPath><g clip-path="url(#frame)">`,
      ...bands.map((band) => `<path d="${this.bandPath(band, frame)}" fill="${inkOf(c, band.colour)}" fill-opacity="0.18"/>`),
      ...curves.map(
        (curve) =>
          `<path d="${this.curvePath(curve, frame)}" fill="none" stroke="${inkOf(c, curve.colour)}" stroke-width="${curve.faint ? 0.75 : 2}"${curve.faint ? ' stroke-opacity="0.22"' : ""}${curve.dash?.length ? ` stroke-dasharray="${curve.dash.join(" ")}"` : ""}>${curve.name ? `<title>${escape(curve.name)}</title>` : ""}</path>`,
      ),
      ...marks.map(({ x, name }, i) => line(frame.x(x), box.top, frame.x(x), box.top + box.height, c.neurons[1], "4 3") + text(frame.x(x) + 4, box.top + 14 + 14 * i, "start", name)),
      "</g></svg>",
    ].join("\n");
  }
}
