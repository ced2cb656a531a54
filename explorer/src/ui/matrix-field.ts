/** Rows of numbers to be typed; of a symmetric matrix the upper triangle is. */
import type { Rows } from "../engine/matrix";
import type { Control } from "./controls";
import { h, uniqueId } from "./dom";

export interface MatrixOptions {
  /** What it is, and how its entries are called: "M" gives "M 1,2". */
  readonly label: string;
  readonly name: string;
  readonly symbol: HTMLElement;
  readonly symmetric?: boolean;
  /** Entries that cannot be typed. */
  readonly fixed?: (i: number, j: number) => boolean;
  readonly changed: (rows: Rows) => void;
}

const LARGEST = 100;

export function matrixField(options: MatrixOptions): Control<Rows> {
  const { label, name, symmetric = false, changed } = options;
  const grid = h("div", { class: "entries" });
  const title = h("span", { class: "name", id: uniqueId("name") }, h("span", {}, label), options.symbol);
  const element = h("div", { class: "control matrix", role: "group", "aria-labelledby": title.id }, title, grid);
  let current: Rows = [];
  const take = (i: number, j: number, field: HTMLInputElement): void => {
    const value = Number(field.value);
    if (field.value === "" || !(Math.abs(value) <= LARGEST)) {
      field.setAttribute("aria-invalid", "true");
      return;
    }
    field.removeAttribute("aria-invalid");
    const here = (r: number, c: number): boolean => (r === i && c === j) || (symmetric && r === j && c === i);
    changed(current.map((row, r) => row.map((x, c) => (here(r, c) ? value : x))));
  };
  const set = (rows: Rows): void => {
    const same = rows.length === current.length && rows[0]?.length === current[0]?.length;
    current = rows;
    if (!same) {
      grid.replaceChildren();
      grid.style.setProperty("--columns", String(rows[0].length));
      rows.forEach((row, i) =>
        row.forEach((_, j) => {
          const place = rows.length === 1 ? `${j + 1}` : row.length === 1 ? `${i + 1}` : `${i + 1},${j + 1}`;
          const field = h("input", { type: "number", step: "any", inputmode: "decimal", "aria-label": `${name} ${place}` });
          field.addEventListener("change", () => take(i, j, field));
          grid.append(field);
        }),
      );
    }
    rows.forEach((row, i) =>
      row.forEach((x, j) => {
        const field = grid.children[i * row.length + j] as HTMLInputElement;
        if (document.activeElement !== field || Number(field.value) !== x) field.value = String(Number(x.toPrecision(6)));
        field.disabled = (symmetric && i > j) || (options.fixed?.(i, j) ?? false);
        field.removeAttribute("aria-invalid");
      }),
    );
  };
  return { element, set, show: (shown) => (element.hidden = !shown) };
}
