/** Lines against time by uPlot: theory as lines, a simulation as marks with a band, and a cursor of time to drag. */
import uPlot from "uplot";
import { h } from "./dom";
import { short, superscript } from "./numbers";
import { colours, DASHES, FONT, MATH, outline, type Colours, type Marker } from "./palette";

export interface Line {
  /** Colour by name: ink, chain, or a neuron's number. */
  readonly colour: "ink" | number;
  readonly dash: number;
  readonly marker: Marker;
  readonly theory: readonly (number | null)[];
  readonly simulation: Simulation | null;
  readonly hidden: boolean;
}

export interface Simulation {
  readonly mean: readonly (number | null)[];
  readonly low: readonly (number | null)[];
  readonly high: readonly (number | null)[];
  /** Single runs, drawn faintly. */
  readonly runs: readonly (readonly (number | null)[])[];
}

export interface Picture {
  readonly x: readonly number[];
  readonly lines: readonly Line[];
  readonly logX: boolean;
  readonly logY: boolean;
  /** Range of the y axis that is always shown. */
  readonly always: readonly [number, number] | null;
}

const MARKS = 16; // along a line
const MANY = 8; // more lines than this are drawn without bands

function translucent(colour: string, alpha: number): string {
  return `color-mix(in srgb, ${colour} ${Math.round(100 * alpha)}%, transparent)`;
}

/** Powers of ten, not more than a handful; between few of them also 2 and 5. */
function logSplits(low: number, high: number): number[] {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (last - first < 2) {
    const all = [first - 1, first, first + 1, first + 2].flatMap((n) => [1, 2, 5].map((m) => Number(`${m}e${n}`)));
    return all.filter((x) => x >= low * 0.999 && x <= high * 1.001);
  }
  const stride = Math.ceil((last - first + 1) / 7);
  const count = Math.floor((last - first) / stride) + 1;
  return Array.from({ length: count }, (_, i) => Number(`1e${last - i * stride}`)).reverse();
}

function tick(x: number): string {
  const exponent = Math.log10(Math.abs(x));
  const power = Number.isInteger(exponent) && (exponent < -2 || exponent > 3);
  return power ? `${x < 0 ? "−" : ""}10${superscript(exponent)}` : short(x);
}

export class LinePlot {
  readonly element: HTMLElement;
  private readonly mark = h("div", { class: "time-mark" });
  private plot: uPlot | null = null;
  private form = "";
  private picture: Picture | null = null;
  private time = 0;

  /** `label` names the figure; `moved` hears where the cursor of time is dragged to. */
  constructor(
    label: string,
    private readonly moved: (time: number) => void,
  ) {
    this.element = h("div", { class: "plot", role: "img", "aria-label": label });
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  describe(text: string): void {
    this.element.setAttribute("aria-label", text);
  }

  draw(picture: Picture): void {
    this.picture = picture;
    const { lines, logX, logY } = picture;
    const form = JSON.stringify([logX, logY, lines.map(({ colour, dash, simulation }) => [colour, dash, simulation !== null])]);
    if (this.plot === null || form !== this.form) {
      this.form = form;
      this.build();
    } else {
      lines.forEach((line, i) => {
        for (let s = 0; s < 4; s++) this.plot!.series[4 * i + s + 1].show = !line.hidden;
      });
      this.plot.setData(this.data(), true);
    }
  }

  /** Draw again, in the present colours. */
  repaint(): void {
    if (this.picture) this.build();
  }

  setTime(time: number): void {
    this.time = time;
    this.place();
  }

  /** Every line has four series: theory, and low, high and mean of the simulation. */
  private data(): uPlot.AlignedData {
    const { x, lines, logX, logY } = this.picture!;
    // on a logarithmic axis there is no room for what is not positive
    const first = logX ? x.findIndex((t) => t > 0) : 0;
    const empty = new Array<null>(x.length - first).fill(null);
    const visible = (values: readonly (number | null)[]): (number | null)[] =>
      values.slice(first).map((y) => (y !== null && (!logY || y > 0) ? y : null));
    const all = lines.flatMap(({ theory, simulation }) => [
      visible(theory),
      simulation ? visible(simulation.low) : empty,
      simulation ? visible(simulation.high) : empty,
      simulation ? visible(simulation.mean) : empty,
    ]);
    return [x.slice(first), ...all];
  }

  private build(): void {
    this.plot?.destroy();
    const { lines, logX, logY, always } = this.picture!;
    const c = colours();
    const ratio = devicePixelRatio;
    const axis = (log: boolean, label: string, side: 2 | 3): uPlot.Axis => ({
      side,
      stroke: c.muted,
      font: `11px ${FONT}`,
      label,
      labelFont: `16px ${MATH}`,
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
    const colourOf = (line: Line): string => (line.colour === "ink" ? c.ink : c.neurons[line.colour]);
    const chainOf = (line: Line): string => (line.colour === "ink" ? c.chain : c.neurons[line.colour]);
    const series = lines.flatMap((line): uPlot.Series[] => {
      const none: uPlot.Series = { stroke: "transparent", points: { show: false }, spanGaps: true, show: !line.hidden };
      const mean = { stroke: translucent(chainOf(line), 0.75), width: 1.25 };
      return [
        { stroke: colourOf(line), width: 2, dash: [...DASHES[line.dash]], points: { show: false }, show: !line.hidden },
        none,
        none,
        line.simulation ? { ...none, ...mean } : none,
      ];
    });
    const banded = lines.length <= MANY;
    const bands = lines.flatMap((line, i) =>
      line.simulation && banded
        ? [{ series: [4 * i + 3, 4 * i + 2] as [number, number], fill: translucent(chainOf(line), 0.17) }]
        : [],
    );
    const range = (log: boolean) => (_: uPlot, min: number | null, max: number | null): [number, number] =>
      this.range(log, min, max, always);
    const options: uPlot.Options = {
      ...this.size(),
      padding: [8, 10, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, distr: logX ? 3 : 1, range: (_, min, max) => [min, max] },
        y: { distr: logY ? 3 : 1, range: range(logY) },
      },
      axes: [axis(logX, "t", 2), axis(logY, "", 3)],
      series: [{}, ...series],
      bands,
      hooks: {
        drawSeries: [
          (plot, index) => {
            if (index === 1) this.drawRuns(plot, c, ratio);
          },
        ],
        draw: [
          (plot) => {
            this.drawMarks(plot, lines.map(chainOf), c, ratio);
            this.place(); // the scales are known now
          },
        ],
      },
    };
    const plot = new uPlot(options, this.data(), this.element);
    plot.over.append(this.mark);
    plot.over.addEventListener("pointerdown", (event) => this.drag(event));
    this.plot = plot;
  }

  private range(log: boolean, min: number | null, max: number | null, always: Picture["always"]): [number, number] {
    if (min === null || max === null) return log ? [0.1, 1] : [0, 1];
    if (log) {
      const floor = Math.max(min, max * 1e-15); // what is smaller is rounding
      return [floor / 1.3, max * 1.3];
    }
    const low = always ? Math.min(always[0], min) : min;
    const high = always ? Math.max(always[1], max) : max;
    const pad = 0.05 * (high - low || 1);
    return [always && low === always[0] && low === 0 ? 0 : low - pad, high + pad];
  }

  /** Single runs, faintly, below everything else. */
  private drawRuns(plot: uPlot, c: Colours, ratio: number): void {
    const { x, lines } = this.picture!;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineWidth = 0.75 * ratio;
    for (const line of lines) {
      if (line.hidden || !line.simulation) continue;
      ctx.strokeStyle = translucent(line.colour === "ink" ? c.chain : c.neurons[line.colour], 0.22);
      for (const run of line.simulation.runs) {
        const path = new Path2D();
        let began = false;
        run.forEach((y, i) => {
          if (y === null || (this.picture!.logY && !(y > 0)) || (this.picture!.logX && !(x[i] > 0))) return;
          const at: [number, number] = [plot.valToPos(x[i], "x", true), plot.valToPos(y, "y", true)];
          if (began) path.lineTo(...at);
          else path.moveTo(...at);
          began = true;
        });
        ctx.stroke(path);
      }
    }
    ctx.restore();
  }

  /** Marks on the mean of the simulation, about evenly spaced on the page. */
  private drawMarks(plot: uPlot, inks: readonly string[], c: Colours, ratio: number): void {
    const { x, lines } = this.picture!;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = 1.25 * ratio;
    lines.forEach((line, i) => {
      if (line.hidden || !line.simulation) return;
      ctx.strokeStyle = inks[i];
      ctx.fillStyle = c.surface;
      // lines side by side have their marks at different places
      let next = bbox.left + (bbox.width * ((i % 4) + 1)) / (5 * MARKS);
      line.simulation.mean.forEach((y, n) => {
        if (y === null || (this.picture!.logY && !(y > 0)) || (this.picture!.logX && !(x[n] > 0))) return;
        const at = plot.valToPos(x[n], "x", true);
        if (at < next) return;
        next = at + bbox.width / MARKS;
        const height = plot.valToPos(y, "y", true);
        if (height < bbox.top - 1 || height > bbox.top + bbox.height + 1) return;
        const path = outline(line.marker, at, height, 3.1 * ratio);
        ctx.fill(path);
        ctx.stroke(path);
      });
    });
    ctx.restore();
  }

  private place(): void {
    if (!this.plot || !this.picture) return;
    const { logX, x } = this.picture;
    const first = x.find((t) => t > 0) ?? 1;
    const at = this.plot.valToPos(logX ? Math.max(this.time, first) : this.time, "x");
    this.mark.style.transform = `translateX(${Number.isFinite(at) ? at : 0}px)`;
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
    if (this.plot && (this.plot.width !== width || this.plot.height !== height)) {
      this.plot.setSize({ width, height });
    }
  }
}
