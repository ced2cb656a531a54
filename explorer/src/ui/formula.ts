/** Formulas, typeset by KaTeX when the page is built: the page carries neither its code nor the fonts it does not need. */
import typeset from "./formulas.json";
import { h } from "./dom";

export type FormulaName = keyof typeof typeset;

/** A formula, read aloud in words. */
export function formula(name: FormulaName): HTMLElement {
  const [html, words] = typeset[name];
  const element = h("span", { class: "formula", role: "math", "aria-label": words });
  element.innerHTML = html;
  return element;
}

/** The same beside words that say it already. */
export function symbol(name: FormulaName): HTMLElement {
  const element = h("span", { class: "formula", "aria-hidden": "true" });
  element.innerHTML = typeset[name][0];
  return element;
}
