/** The playground in a real browser, by roles and labels; anything on the console fails a test. */
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Page } from "playwright-core";
import { PRESETS } from "../src/playground/presets";
import { python } from "../src/playground/python";
import { CODECS, DEFAULT, settle, type State } from "../src/playground/state";
import { readLink } from "../src/ui/permalink";
import { allRuns, open, riskOf, stage, STATIC } from "./chromium";

const set = await stage();
const SCREENSHOTS = join(process.cwd(), "screenshots");
mkdirSync(SCREENSHOTS, { recursive: true });

/** The state that the address of the page tells of, once it is as expected: links are written a moment after a change. */
async function linked(page: Page, expected: (state: State) => void): Promise<State> {
  for (let patience = 100; ; patience--) {
    const { values, refused } = readLink(CODECS, new URL(page.url()).hash);
    const state = settle({ ...DEFAULT, ...values });
    try {
      assert.deepEqual(refused, []);
      expected(state);
      return state;
    } catch (error) {
      if (patience === 0) throw error;
      await page.waitForTimeout(200);
    }
  }
}

/** The values of all controls, as one reads them. */
async function controls(page: Page): Promise<string[]> {
  return page.locator("form input, form select, header select, header input").evaluateAll((elements) =>
    elements.map((element) => {
      const input = element as HTMLInputElement;
      return `${input.getAttribute("aria-label") ?? input.id.replace(/\d+/, "")}: ${/radio|checkbox/.test(input.type) ? input.checked : input.value}`;
    }),
  );
}

test("describe, see the limit, watch the chain, take the link and the Python away", async () => {
  const { page, close } = await open(set, "", { permissions: ["clipboard-read", "clipboard-write"] });
  assert.match(await riskOf(page), /^Risk: from 1\.42 at time 0 to 0\.0907 at time 2$/);
  await allRuns(page);
  await page.getByText(/SGD at d = 500: 0\.09\d+ ± 0\.00\d+ \(32 runs, band 80\u00a0%\)/).waitFor();

  await page.getByRole("radio", { name: "erf" }).check();
  await page.getByRole("radiogroup", { name: /^Directions/ }).getByRole("radio", { name: "2" }).check();
  await page.getByRole("radio", { name: "free" }).check();
  await page.getByRole("spinbutton", { name: "Learning rate, value" }).fill("1.5");
  await page.getByRole("spinbutton", { name: "Noise, value" }).fill("0.02");
  await page.getByRole("spinbutton", { name: "Noise, value" }).press("Enter");
  await page.getByRole("spinbutton", { name: "Time, value" }).fill("10");
  await page.getByRole("spinbutton", { name: "Time, value" }).press("Enter");
  await page.getByRole("radio", { name: "log", exact: true }).check();
  await page.getByRole("radio", { name: "excess" }).check();
  await page.getByRole("button", { name: "M 1,2" }).click();
  await page.getByRole("slider", { name: "Cursor of time" }).fill("400");
  await page.getByRole("img", { name: /^Excess risk: from .* at time 10$/ }).waitFor();
  await allRuns(page);
  const asked = { activation: "erf", k: 2, geometry: "free", gamma: 1.5, noise: 0.02, time: 10, scale: "log", quantity: "excess", hidden: ["M12"], at: 0.4 };
  const state = await linked(page, (found) => assert.deepEqual(found, { ...found, ...asked }));

  const before = await controls(page);
  const risk = await riskOf(page);
  await page.getByRole("button", { name: "Copy link" }).click();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(link, page.url());
  await page.reload();
  await page.getByRole("img", { name: risk }).waitFor();
  assert.deepEqual(await controls(page), before);
  await allRuns(page);
  assert.equal(await page.getByRole("button", { name: "M 1,2" }).getAttribute("aria-pressed"), "false");

  await page.getByRole("button", { name: "Python" }).click();
  const dialog = page.getByRole("dialog", { name: "The same in Python" });
  assert.equal(await dialog.getByRole("textbox").inputValue(), python(state));
  await dialog.getByRole("button", { name: "Copy" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), python(state));
  assert.ok(!(await dialog.isVisible()));
  await close();
});

test("the same seed gives the same runs", async () => {
  const { page, close } = await open(set, "#runs=5");
  const mean = async (): Promise<string | null> => {
    await allRuns(page);
    return page.getByText(/^SGD at d/).textContent();
  };
  const first = await mean();
  assert.match(first ?? "", /5 runs/);
  await page.getByRole("button", { name: "Run again" }).click();
  await page.waitForTimeout(300);
  assert.equal(await mean(), first);
  await page.getByRole("spinbutton", { name: "Seed, value" }).fill("1");
  await page.getByRole("spinbutton", { name: "Seed, value" }).press("Enter");
  await page.getByRole("button", { name: "Run the chain" }).or(page.getByRole("button", { name: "Stop" })).waitFor();
  assert.notEqual(await mean(), first);
  await close();
});

test("undo, redo, and everything else by the keyboard alone", async () => {
  const { page, close } = await open(set);
  const first = await riskOf(page);
  const focusOn = async (name: string): Promise<void> => {
    for (let i = 0; i < 80; i++) {
      await page.keyboard.press("Tab");
      const here = await page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent ?? "");
      if (here === name) return;
    }
    assert.fail(`Tab does not lead to ${name}`);
  };
  await focusOn("Learning rate");
  for (let i = 0; i < 5; i++) await page.keyboard.press("ArrowRight");
  await page.waitForFunction((text) => document.querySelector('[role="img"]')?.getAttribute("aria-label") !== text, first);
  const { gamma } = await linked(page, (state) => assert.ok(state.gamma > 0.2 && state.gamma < 0.25));
  assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle), "none");
  await page.keyboard.press("Control+z");
  await linked(page, (state) => assert.equal(state.gamma, 0.2));
  await page.getByRole("img", { name: first }).waitFor();
  await page.keyboard.press("Control+Shift+z");
  await linked(page, (state) => assert.equal(state.gamma, gamma));
  await page.keyboard.press("Control+z");
  await focusOn("squared");
  await page.keyboard.press("ArrowRight");
  await linked(page, (state) => assert.equal(state.loss, "correlation"));
  await focusOn("M 1,1");
  await page.keyboard.press("Enter");
  await linked(page, (state) => assert.deepEqual(state.hidden, ["M11"]));
  await focusOn("Play");
  await page.keyboard.press("Space");
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await page.waitForTimeout(300);
  await page.keyboard.press("Space");
  await page.getByRole("button", { name: "Play" }).waitFor();
  await linked(page, ({ at }) => assert.ok(at > 0 && at < 1, `the cursor stands at ${at}`));
  await page.keyboard.press("Tab");
  await page.keyboard.press("End");
  await linked(page, (state) => assert.equal(state.at, 1));
  await close();
});

test("every control has a name", async () => {
  const { page, close } = await open(set, "#p=3&k=2&target=quadratic&start=given&M=0.1,0;0,0.1;0,0&Q=1,0,0;0,1,0;0,0,1");
  await riskOf(page);
  await page.getByText("Weights and target overlaps").click();
  const nameless = await page.locator("input, select, button, textarea, [role=img], [role=group], table, progress").evaluateAll((elements) =>
    elements.filter((element) => {
      const labels = (element as HTMLInputElement).labels;
      const by = element.getAttribute("aria-labelledby");
      const name = element.getAttribute("aria-label") ?? (by ? document.getElementById(by)?.textContent : null) ?? labels?.[0]?.textContent ?? element.textContent;
      return !name?.trim();
    }).map((element) => element.outerHTML),
  );
  assert.deepEqual(nameless, []);
  const ids = await page.locator("[id]").evaluateAll((elements) => elements.map((element) => element.id));
  assert.equal(new Set(ids).size, ids.length);
  assert.equal(await page.getByRole("heading", { level: 1 }).count(), 1);
  await close();
});

test("every example fits on one screen, and runs", async () => {
  const { page, close } = await open(set);
  await riskOf(page);
  for (const { title, state } of PRESETS) {
    await page.getByRole("combobox", { name: "Example" }).selectOption({ label: title });
    await linked(page, (found) => assert.deepEqual(found, { ...state, at: 1 }, title));
    await page.getByRole("img", { name: new RegExp(`at time ${state.time}$`) }).first().waitFor();
    await page.waitForTimeout(500); // short chains begin by themselves, and which are short depends on the machine
    const idle = page.getByRole("button", { name: "Run the chain" });
    if (await idle.isVisible()) await idle.click();
    await page.getByRole("button", { name: /^(Stop|Run again)$/ }).waitFor();
    const over = await page.evaluate(() => {
      const side = document.querySelector("details")!;
      const { scrollWidth, scrollHeight } = document.documentElement;
      return [scrollWidth - innerWidth, scrollHeight - innerHeight, side.scrollHeight - side.clientHeight, side.scrollWidth - side.clientWidth];
    });
    assert.ok(over.every((pixels) => pixels <= 0), `${title}: ${over}`);
  }
  await close();
});

test("a run that would last is not begun unasked, and stops when told", async () => {
  const { page, close } = await open(set, "#dim=10000000");
  await riskOf(page);
  const run = page.getByRole("button", { name: "Run the chain" });
  await page.getByText(/^32 runs of 2×10⁸ steps: \d+ (min|h)$/).waitFor();
  await run.click();
  await page.getByText(/^0 of 32 runs/).waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText(/^32 runs of/).waitFor();
  await page.getByRole("spinbutton", { name: "Dimension, value" }).fill("1e9");
  await page.getByRole("spinbutton", { name: "Dimension, value" }).press("Enter");
  await page.getByText(/the chain counts up to 2³²/).waitFor();
  assert.ok(await run.isDisabled());
  await close();
});

test("what cannot be is refused in words, and mended", async () => {
  const { page, close } = await open(set, "#p=9&gamma=0.3");
  await page.getByText("Not understood in the link: p=9. The rest is shown.").waitFor();
  await linked(page, (state) => assert.equal(state.gamma, 0.3));
  const entry = page.getByRole("spinbutton", { name: "M 1", exact: true });
  await entry.fill("1.2");
  await entry.press("Enter");
  await page.getByRole("alert").getByText(/No vectors have these overlaps/).waitFor();
  await entry.fill("0.4");
  await entry.press("Enter");
  await page.getByRole("alert").waitFor({ state: "hidden" });
  await riskOf(page);
  const rate = page.getByRole("spinbutton", { name: "Learning rate, value" });
  await rate.fill("-1");
  await rate.press("Enter");
  assert.equal(await rate.getAttribute("aria-invalid"), "true");
  await rate.blur();
  assert.equal(await rate.inputValue(), "0.3");
  await page.getByRole("radio", { name: "free" }).check();
  await rate.fill("5");
  await rate.press("Enter");
  await page.getByText(/The limit diverges at t = /).waitFor();
  await close();
});

test("from a file, without any server", async () => {
  const { page, close } = await open(set, `file://${join(STATIC, "playground.html")}`);
  assert.match(await riskOf(page), /to 0\.0907 at time 2$/);
  await allRuns(page);
  await close();
});

test("a word on the console would have failed these tests", async () => {
  const { page, close } = await open(set);
  await page.evaluate(() => console.warn("planted"));
  await assert.rejects(close, /planted/);
});

test("a link opened in the same page is followed, and can be undone", async () => {
  const { page, close } = await open(set);
  await riskOf(page);
  await page.evaluate(() => (location.hash = "#p=1&noise=0"));
  await page.getByRole("radiogroup", { name: /^Width/ }).getByRole("radio", { name: "1", checked: true }).waitFor();
  await page.getByRole("button", { name: "Undo" }).click();
  await linked(page, (state) => assert.equal(state.p, 2));
  await close();
});

for (const [device, options] of Object.entries({
  desktop: { viewport: { width: 1440, height: 900 } },
  telephone: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
})) {
  for (const colorScheme of ["light", "dark"] as const) {
    test(`${device}, ${colorScheme}`, async () => {
      const { page, close } = await open(set, "", { ...options, colorScheme });
      await riskOf(page);
      if (device === "telephone") {
        assert.ok(!(await page.getByRole("slider", { name: "Learning rate" }).isVisible()));
        await page.getByText("Description", { exact: true }).click();
        await page.getByRole("radiogroup", { name: /^Width/ }).getByRole("radio", { name: "3" }).check();
        await page.getByRole("button", { name: "M 3,1" }).waitFor();
        await page.screenshot({ path: join(SCREENSHOTS, `${device}-${colorScheme}-description.png`), fullPage: true });
        await page.getByText("Description", { exact: true }).click();
      }
      await page.waitForFunction(() => /^\d+ runs of .* steps$/.test(document.querySelector(".told")?.textContent ?? ""));
      // the cursor of time stands at the end of all three figures
      const marks = await page.locator(".time-mark").evaluateAll((all) => all.map((mark) => {
        const room = mark.parentElement!.getBoundingClientRect();
        return (mark.getBoundingClientRect().left - room.left) / room.width;
      }));
      assert.ok(marks.length === 3 && marks.every((part) => part > 0.99 && part < 1.01), String(marks));
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(width <= options.viewport.width, `as wide as ${width}`);
      const paper = async (): Promise<number> =>
        page.evaluate(() => Number(/\d+/.exec(getComputedStyle(document.body).backgroundColor)![0]));
      assert.equal((await paper()) < 128, colorScheme === "dark");
      await page.screenshot({ path: join(SCREENSHOTS, `${device}-${colorScheme}.png`), fullPage: true });
      await page.getByRole("button", { name: "Light or dark" }).click();
      assert.equal((await paper()) < 128, colorScheme === "light");
      await page.reload();
      assert.equal((await paper()) < 128, colorScheme === "light");
      await close();
    });
  }
}
