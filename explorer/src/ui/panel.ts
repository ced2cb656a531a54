/** A figure with its title, what can be set about it, and its body. */
import { h, uniqueId } from "./dom";

export function panel(word: string, title: readonly (HTMLElement | string)[], settings: readonly HTMLElement[], ...body: HTMLElement[]): HTMLElement {
  const heading = h("h2", { id: uniqueId("panel") }, ...title);
  return h(
    "section",
    { class: `panel ${word}`, "aria-labelledby": heading.id },
    h("header", {}, heading, ...settings),
    h("div", { class: "body" }, ...body),
  );
}
