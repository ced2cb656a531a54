/** Light, dark, or as the system says; remembered by this browser, not by the link. */

export type Theme = "auto" | "light" | "dark";
const KEY = "twolayer-theme";

function remembered(): Theme {
  try {
    const word = localStorage.getItem(KEY);
    return word === "light" || word === "dark" ? word : "auto";
  } catch {
    return "auto"; // storage may be forbidden
  }
}

export class ThemeSwitch {
  private theme = remembered();
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");

  constructor(private readonly changed: () => void) {
    this.apply();
    this.dark.addEventListener("change", () => this.apply());
  }

  get isDark(): boolean {
    return this.theme === "auto" ? this.dark.matches : this.theme === "dark";
  }

  /** To the other one. */
  turn(): void {
    this.theme = this.isDark ? "light" : "dark";
    try {
      localStorage.setItem(KEY, this.theme);
    } catch {
      // then it lasts as long as the page
    }
    this.apply();
  }

  private apply(): void {
    document.documentElement.dataset["theme"] = this.isDark ? "dark" : "light";
    this.changed();
  }
}
