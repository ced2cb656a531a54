/** A matrix of overlaps as legend: each entry shows its line, its value at the cursor, and hides or shows its line. */
import { h } from "./dom";
import { fixed } from "./numbers";
import { DASHES, MARKERS, outline, colours } from "./palette";

export interface Entry {
  /** In a word, such as M12, and to be read: M 1,2. */
  readonly key: string;
  readonly name: string;
  readonly row: number;
  readonly column: number;
  /** Number of the colour and marker, and of the dash. */
  readonly neuron: number;
  readonly dash: number;
}

/** A short piece of the line with its mark, in the colour of its neuron. */
function swatch({ neuron, dash }: Pick<Entry, "neuron" | "dash">): HTMLCanvasElement {
  const ratio = Math.max(2, devicePixelRatio);
  const [width, height] = [30, 10];
  const canvas = h("canvas", { width: width * ratio, height: height * ratio, "aria-hidden": "true" });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d")!;
  const c = colours();
  context.scale(ratio, ratio);
  context.strokeStyle = c.neurons[neuron];
  context.lineWidth = 2;
  context.setLineDash([...DASHES[dash]]);
  context.stroke(new Path2D(`M0 ${height / 2}H${width}`));
  context.setLineDash([]);
  context.lineWidth = 1.25;
  context.fillStyle = c.surface;
  const path = outline(MARKERS[neuron], width / 2, height / 2, 3.1);
  context.fill(path);
  context.stroke(path);
  return canvas;
}

export class MatrixLegend {
  readonly element: HTMLTableElement;
  private entries: readonly Entry[] = [];
  private buttons: HTMLButtonElement[] = [];
  private cells: HTMLElement[] = [];

  /** `toggled` hears whose button is pressed. */
  constructor(
    label: string,
    private readonly toggled: (key: string) => void,
  ) {
    this.element = h("table", { class: "legend", "aria-label": label });
  }

  /** Lay out the entries. */
  set(entries: readonly Entry[]): void {
    this.entries = entries;
    this.repaint();
  }

  repaint(): void {
    this.cells = [];
    this.buttons = [];
    const rows = Math.max(0, ...this.entries.map(({ row }) => row + 1));
    const columns = Math.max(0, ...this.entries.map(({ column }) => column + 1));
    const body = h("tbody");
    for (let i = 0; i < rows; i++) {
      const row = h("tr");
      for (let j = 0; j < columns; j++) {
        const entry = this.entries.find(({ row: r, column: c }) => r === i && c === j);
        row.append(h("td", {}, entry ? this.cell(entry) : null));
      }
      body.append(row);
    }
    this.element.replaceChildren(body);
  }

  /** Which lines are drawn. */
  hide(keys: readonly string[]): void {
    this.entries.forEach(({ key }, i) => this.buttons[i].setAttribute("aria-pressed", String(!keys.includes(key))));
  }

  /** Values at the cursor, in the order of the entries. */
  show(values: readonly number[]): void {
    values.forEach((value, i) => {
      const cell = this.cells[i];
      if (!cell) return;
      cell.textContent = fixed(value);
      cell.parentElement!.style.setProperty("--heat", String(Math.min(1, Math.abs(value))));
    });
  }

  private cell(entry: Entry): HTMLElement {
    const value = h("span", { class: "value" });
    const button = h(
      "button",
      { type: "button", "aria-label": entry.name, title: entry.name, onclick: () => this.toggled(entry.key) },
      swatch(entry),
      value,
    );
    button.style.setProperty("--colour", `var(--neuron-${entry.neuron + 1})`);
    this.buttons.push(button);
    this.cells.push(value);
    return button;
  }
}
