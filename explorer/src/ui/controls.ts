/**
 * Sliders with number fields, choices and switches. Each is a native input with a visible label, so that keyboard and
 * screen readers need nothing more; `set` shows a value without telling anybody.
 */
import { h, uniqueId } from "./dom";
import { typed } from "./numbers";

export interface Control<T> {
  readonly element: HTMLElement;
  set(value: T): void;
  show(shown: boolean): void;
}

function control<T>(element: HTMLElement, set: (value: T) => void): Control<T> {
  return { element, set, show: (shown) => (element.hidden = !shown) };
}

export interface SliderOptions {
  readonly label: string;
  readonly symbol?: HTMLElement;
  /** Range of the slider. */
  readonly min: number;
  readonly max: number;
  /** What the number field takes beyond it. */
  readonly least?: number;
  readonly most?: number;
  readonly scale?: "linear" | "log";
  readonly whole?: boolean;
  readonly changed: (value: number) => void;
}

const NOTCHES = 400;

/** A slider, which takes round numbers, and a number field for the same value. */
export function slider(options: SliderOptions): Control<number> {
  const { label, min, max, scale = "linear", whole = false, changed } = options;
  const least = options.least ?? min;
  const most = options.most ?? max;
  const id = uniqueId("slider");
  const place = (value: number): number => {
    const part = scale === "log" ? Math.log(value / min) / Math.log(max / min) : (value - min) / (max - min);
    return Math.round(NOTCHES * Math.min(1, Math.max(0, part)));
  };
  const exact = (notch: number): number => {
    const part = notch / NOTCHES;
    return scale === "log" ? min * (max / min) ** part : min + (max - min) * part;
  };
  /** A round number near a notch, on its side of the present one: rounding swallows no arrow key, and turns none round. */
  const valueAt = (notch: number, present: number): number => {
    const [raw, way] = [exact(notch), Math.sign(notch - place(present))];
    for (let digits = 2; digits < 12; digits++) {
      const value = whole ? Math.round(Number(raw.toPrecision(digits))) : Number(raw.toPrecision(digits));
      if (way === 0 ? value !== present : (value - present) * way > 0) return value;
    }
    return present + way;
  };
  const range = h("input", { type: "range", min: 0, max: NOTCHES, id, "aria-label": label });
  const field = h("input", {
    type: "number",
    min: least,
    max: most,
    step: whole ? 1 : "any",
    "aria-label": `${label}, value`,
    inputmode: whole ? "numeric" : "decimal",
  });
  let current = NaN;
  const set = (value: number): void => {
    current = value;
    range.value = String(place(value));
    range.setAttribute("aria-valuetext", String(value));
    field.value = typed(value);
    field.removeAttribute("aria-invalid");
  };
  range.addEventListener("input", () => {
    const value = Math.min(most, Math.max(least, valueAt(Number(range.value), current)));
    set(value);
    changed(value);
  });
  const take = (): void => {
    const value = Number(field.value);
    const accepted = field.value !== "" && value >= least && value <= most && (!whole || Number.isInteger(value));
    if (!accepted) field.setAttribute("aria-invalid", "true");
    else if (value !== current) {
      set(value);
      changed(value);
    }
  };
  field.addEventListener("change", take);
  field.addEventListener("blur", () => set(current));
  const name = h("label", { for: id }, h("span", {}, label), options.symbol ?? null);
  return control(h("div", { class: "control slider" }, name, range, field), set);
}

export interface Option<T extends string> {
  readonly value: T;
  readonly label: string;
  /** Shown instead of the label, which is then read aloud. */
  readonly short?: string;
}

/** One of a few, side by side. */
export function choice<T extends string>(
  label: string,
  options: readonly Option<T>[],
  changed: (value: T) => void,
  symbol?: HTMLElement,
): Control<T> & { offer(values: readonly T[]): void } {
  const name = uniqueId("choice");
  const inputs = options.map(({ value, label: text, short }) => {
    const input = h("input", { type: "radio", name, value, "aria-label": text, onchange: () => changed(value) });
    const shown = h("span", { "aria-hidden": "true" }, short ?? text);
    return { value, input, element: h("label", { class: "option", title: short ? text : false }, input, shown) };
  });
  const title = h("span", { class: "name", id: uniqueId("name") }, h("span", {}, label), symbol ?? null);
  const group = h("div", { class: "options", role: "radiogroup", "aria-labelledby": title.id });
  group.append(...inputs.map(({ element }) => element));
  const set = (value: T): void => {
    for (const entry of inputs) entry.input.checked = entry.value === value;
  };
  const offer = (values: readonly T[]): void => {
    for (const entry of inputs) entry.element.hidden = !values.includes(entry.value);
  };
  return { ...control(h("div", { class: "control choice" }, title, group), set), offer };
}

/** One of many, from a list. */
export function picker<T extends string>(
  label: string,
  options: readonly Option<T>[],
  changed: (value: T) => void,
): Control<T> & { offer(values: readonly T[]): void } {
  const id = uniqueId("picker");
  const entries = options.map(({ value, label: text }) => h("option", { value }, text));
  const select = h("select", { id, onchange: () => changed(select.value as T) }, ...entries);
  const offer = (values: readonly T[]): void => {
    for (const entry of entries) entry.hidden = entry.disabled = !values.includes(entry.value as T);
  };
  const element = h("div", { class: "control picker" }, h("label", { for: id }, label), select);
  return { ...control(element, (value: T) => (select.value = value)), offer };
}

export function toggle(label: string, changed: (value: boolean) => void): Control<boolean> {
  const input = h("input", { type: "checkbox", onchange: () => changed(input.checked) });
  const element = h("label", { class: "control toggle" }, input, h("span", {}, label));
  return control(element, (value: boolean) => (input.checked = value));
}
