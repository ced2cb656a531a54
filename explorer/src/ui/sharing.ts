/** Taking things away: the clipboard where there is one, else a text to copy by hand; and words that appear and go. */
import { h } from "./dom";

const SECONDS = 2.5;

export class Notice {
  readonly element = h("div", { class: "notice", role: "status" });
  private timer = 0;

  say(text: string, seconds = SECONDS): void {
    this.element.textContent = text;
    this.element.classList.add("shown");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.element.classList.remove("shown"), 1000 * seconds);
  }
}

export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // no permission, or a page that is not served safely
  }
}

/** A dialog with a text, and a button that copies it. */
export class TextDialog {
  readonly element: HTMLDialogElement;
  private readonly focusOnOpen: HTMLElement;
  private readonly text = h("textarea", { readonly: true, spellcheck: "false", rows: 24 });

  constructor(title: string, notice: Notice) {
    this.text.setAttribute("aria-label", title);
    const heading = h("h2", {}, title);
    const take = h("button", { type: "button", class: "primary" }, "Copy");
    const close = h("button", { type: "button", onclick: () => this.element.close() }, "Close");
    take.addEventListener("click", () => {
      void copy(this.text.value).then((copied) => {
        if (copied) {
          this.element.close();
          notice.say("Copied.");
        } else {
          this.text.select();
          notice.say("Press Ctrl+C to copy.", 6);
        }
      });
    });
    this.element = h("dialog", { "aria-label": title }, heading, this.text, h("div", { class: "buttons" }, close, take));
    this.element.addEventListener("click", (event) => {
      if (event.target === this.element) this.element.close(); // beside the text
    });
    this.focusOnOpen = take;
  }

  open(text: string): void {
    this.text.value = text;
    this.element.showModal();
    this.text.scrollTop = 0;
    this.focusOnOpen.focus();
  }
}
