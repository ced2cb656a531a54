/** Elements in one expression. */

type Child = Node | string | null;

type Attributes = Readonly<Record<string, string | number | boolean | ((event: never) => void)>>;

/** An element with attributes, listeners (`onclick`, …) and children; `false` leaves an attribute out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

let numbered = 0;

/** An id that no other element has. */
export function uniqueId(word: string): string {
  numbered += 1;
  return `${word}-${numbered}`;
}
