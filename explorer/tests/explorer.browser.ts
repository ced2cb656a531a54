/** The explorer in a real browser, with its server, by roles and labels; anything on the console fails a test. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import type { Page } from "playwright-core";
import { readLink, type State } from "../src/page/task";
import { open, stage } from "./chromium";
import { pythonOf, serve } from "./server";

const server = await serve();
after(() => server.stop());
const set = { ...(await stage()), address: server.address };
const SCREENSHOTS = join(process.cwd(), "screenshots");
mkdirSync(SCREENSHOTS, { recursive: true });
const PATIENCE = { timeout: 180_000 }; // of a slow core with nothing compiled

const risk = (page: Page) => page.getByRole("img", { name: /^Risk: from/ });

async function ready(page: Page): Promise<string> {
  await risk(page).waitFor(PATIENCE);
  return (await risk(page).getAttribute("aria-label")) ?? "";
}

/** What a label says of the limit; what follows are runs, which come and go while the limit stays. */
const limitOf = (label: string): string => label.split(";")[0];

/** The label of the figure once its limit is another one than before. */
async function redrawn(page: Page, before: string): Promise<string> {
  const changed = (old: string) => ![...document.querySelectorAll(".risk [role=img]")].some((x) => x.getAttribute("aria-label")?.split(";")[0] === old);
  await page.waitForFunction(changed, limitOf(before), PATIENCE);
  return ready(page);
}

async function linked(page: Page, expected: (state: State) => boolean): Promise<State> {
  for (let patience = PATIENCE.timeout / 100; patience > 0; patience--) {
    const state = readLink(new URL(page.url()).hash);
    if (state && expected(state)) return state;
    await page.waitForTimeout(100);
  }
  throw new Error(`the link never was as expected: ${page.url()}`);
}

test("describe, analyse, run, stream, pin, link, download, and Python that gives the same numbers", async () => {
  const { page, close } = await open(set, "", { permissions: ["clipboard-read", "clipboard-write"], acceptDownloads: true });
  const first = await ready(page);
  assert.match(first, /^Risk: from 1\.2 to 0\.05873 at time 4$/);
  await page.getByRole("listitem").filter({ hasText: "information 2" }).waitFor(PATIENCE);
  await page.getByRole("math", { name: "target" }).waitFor();

  // another task
  await page.getByRole("spinbutton", { name: "Noise Δ, value" }).fill("0.2");
  await page.getByRole("spinbutton", { name: "Noise Δ, value" }).press("Enter");
  const second = await redrawn(page, first);
  await page.getByRole("spinbutton", { name: "Dimension d, value" }).fill("400");
  await page.getByRole("spinbutton", { name: "Dimension d, value" }).press("Enter");
  await page.getByRole("spinbutton", { name: "Runs, value" }).fill("8");
  await page.getByRole("spinbutton", { name: "Runs, value" }).press("Enter");

  // seeds arrive, and with them the verdict
  await page.getByRole("tab", { name: "Verdict" }).click();
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText(/^8 runs at d = 400$/).waitFor(PATIENCE);
  await page.getByText(/Chain, d = 400: .* \(8 runs, band 80 %\)/).waitFor();
  await page.getByRole("table", { name: "Verdict" }).getByRole("rowheader", { name: "risk" }).waitFor(PATIENCE);

  // pin it, change something, see both
  await page.getByRole("button", { name: "Pin", exact: true }).click();
  await page.getByRole("table", { name: "Pinned runs" }).getByRole("button", { name: /^1: He2/ }).waitFor();
  await page.getByRole("slider", { name: "Learning rate" }).press("ArrowRight");
  const third = await redrawn(page, second);
  const state = await linked(page, ({ pins, task }) => pins.length === 1 && task.algorithm.lr !== "0.2/d");

  // the link restores everything
  await page.getByRole("button", { name: "Copy link" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), page.url());
  await page.reload();
  await page.getByRole("img", { name: limitOf(third) }).waitFor(PATIENCE);
  assert.deepEqual(readLink(new URL(page.url()).hash), state);
  await page.getByRole("table", { name: "Pinned runs" }).getByRole("button", { name: /^1: He2/ }).waitFor();

  // what can be taken away
  const take = async (name: string): Promise<string> => {
    await page.getByText("Take away", { exact: true }).click();
    const [download] = await Promise.all([page.waitForEvent("download", PATIENCE), page.getByRole("button", { name, exact: true }).click()]);
    const path = join(SCREENSHOTS, download.suggestedFilename());
    await download.saveAs(path);
    return path;
  };
  const csv = readFileSync(await take("CSV"), "utf-8").split("\n");
  const columns = csv[1].split(",");
  assert.deepEqual(columns.slice(0, 8), ["time", "step", "sample", "alpha", "risk", "excess_risk", "M11", "M21"]);
  assert.match(readFileSync(await take("SVG"), "utf-8"), /^<svg [\s\S]*<path d="M/);
  assert.equal(readFileSync(await take("PNG")).subarray(1, 4).toString(), "PNG");
  assert.equal(readFileSync(await take("netCDF of the theory")).subarray(1, 4).toString(), "HDF");
  const text = async (button: string, title: string): Promise<string> => {
    await page.getByText("Take away", { exact: true }).click();
    await page.getByRole("button", { name: button, exact: true }).click();
    const dialog = page.getByRole("dialog", { name: title });
    await dialog.waitFor();
    const found = await dialog.getByRole("textbox").inputValue();
    await dialog.getByRole("button", { name: "Close" }).click();
    return found;
  };
  assert.match(await text("BibTeX", "The papers behind it"), /@software\{twolayer/);
  assert.match(await text("Task file", "The same as a task file"), /^\[problem\]\ntarget = "He2\(z1\)"/);
  assert.match(await text("Shell command", "The same as a command"), /twolayer compare task\.toml --methods ode,chain/);

  // the copied Python gives the numbers of the page
  const code = (await text("Python", "The same in Python")).split("\n").filter((line) => !line.startsWith("runs ="));
  const script = join(SCREENSHOTS, "copied.py");
  writeFileSync(script, [...code, "import json", "print(json.dumps([theory.time.values.tolist(), theory.risk.values[0].tolist(), theory.M.values[0, :, 0, 0].tolist()]))"].join("\n"));
  const ran = spawnSync(pythonOf(), [script], { encoding: "utf-8" });
  assert.equal(ran.status, 0, ran.stderr);
  const [time, risks, M11] = JSON.parse(ran.stdout) as number[][];
  const rows = csv.slice(2).filter((line) => /^\d/.test(line)).map((line) => line.split(",").map(Number));
  assert.equal(rows.length, time.length);
  const column = (name: string): number[] => rows.map((row) => row[columns.indexOf(name)]);
  assert.deepEqual([column("time"), column("risk"), column("M11")], [time, risks, M11]);
  await close();
});

test("formulas are wrong at a character, and methods say why they do not apply", async () => {
  const { page, close } = await open(set);
  await ready(page);
  await page.getByRole("tab", { name: "Methods" }).click();
  await page.getByRole("row", { name: /^GiantSteps no: / }).waitFor(PATIENCE);
  await page.getByRole("row", { name: "ODE applies" }).waitFor();
  await page.getByRole("combobox", { name: "Target" }).fill("z1 ^ 2");
  await page.getByLabel("at character 4").waitFor();
  await page.getByText(/write powers as \*\*/).first().waitFor();
  await page.getByRole("combobox", { name: "Target" }).fill("z1 + z1*z2");
  await page.getByRole("listitem").filter({ hasText: "chain 1 → 1" }).waitFor(PATIENCE);
  const state = await linked(page, ({ task }) => task.start?.M?.[0].length === 2);
  assert.equal(state.task.start!.M!.length, 4, "the start has a column for the new direction");
  await page.getByRole("combobox", { name: "Target" }).fill("tanh(z1/2)**2 + sqrt(abs(z1))/(1 + exp(-z1))");
  await page.waitForFunction(() => document.querySelectorAll("[role=math] .mfrac").length >= 2, null, PATIENCE);
  assert.equal(await page.locator(".katex-error").count(), 0, "KaTeX has what the formulas take");
  await close();
});

test("inputs with a spectrum", async () => {
  const { page, close } = await open(set);
  const before = await ready(page);
  await page.getByText("Inputs, second layer, labels").click();
  await page.getByRole("radio", { name: "blocks of variances" }).check();
  await redrawn(page, before);
  await page.getByRole("combobox", { name: "Shares of d" }).fill("0.3, 0.3");
  await page.getByRole("combobox", { name: "Shares of d" }).press("Enter");
  await page.getByText("Shares are as many numbers as variances, and sum to one.").waitFor();
  await page.getByRole("combobox", { name: "Variances" }).fill("2, 0.5, 0.5");
  await page.getByRole("combobox", { name: "Variances" }).press("Enter");
  const blocks = await linked(page, ({ task }) => task.problem.inputs?.variances?.length === 3);
  assert.deepEqual([blocks.task.problem.inputs!.fractions!.length, blocks.task.start], [3, { seed: 0 }]);
  await page.getByRole("radio", { name: "power law" }).check();
  await page.getByRole("spinbutton", { name: "Dimension d, value" }).fill("300");
  await page.getByRole("spinbutton", { name: "Dimension d, value" }).press("Enter");
  await linked(page, ({ task }) => task.problem.inputs?.dim === 300 && task.run.dim === 300);
  await page.getByRole("radio", { name: "isotropic, N(0, I)" }).check();
  await linked(page, ({ task }) => task.problem.inputs === undefined);
  await close();
});

test("a click into the plane sets batch and rate and runs; stop ends it; undo takes it back", async () => {
  const { page, close } = await open(set);
  await ready(page);
  const noises: number[] = [];
  for (let i = 0; i < 5; i++) {
    await page.getByRole("slider", { name: "Noise Δ" }).press("ArrowRight");
    noises.push(Number(await page.getByRole("spinbutton", { name: "Noise Δ, value" }).inputValue()));
  }
  assert.ok(noises.every((value, i) => value > (noises[i - 1] ?? 0.1)), `an arrow key never goes back: ${noises.join(" ")}`);
  await page.getByRole("spinbutton", { name: "Dimension d, value" }).fill("100000");
  await page.getByRole("spinbutton", { name: "Dimension d, value" }).press("Enter");
  const plane = page.getByRole("img", { name: /^Plane of batch/ });
  await plane.waitFor(PATIENCE);
  const box = (await plane.boundingBox())!;
  await plane.click({ position: { x: box.width * 0.3, y: box.height * 0.3 } });
  const state = await linked(page, ({ task }) => task.algorithm.batch !== undefined && task.algorithm.batch !== 1);
  assert.match(String(state.task.algorithm.batch), /^1\*d\*\*0\.\d+$/);
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Run", exact: true }).waitFor();
  await page.keyboard.press("Control+z");
  await linked(page, ({ task }) => task.algorithm.lr === "0.2/d");
  await page.keyboard.press("Control+Shift+z");
  await linked(page, ({ task }) => task.algorithm.lr !== "0.2/d");
  await close();
});

test("runs of a task that the theory cannot follow stand alone, and what is open has a name", async () => {
  const { page, close } = await open(set);
  await ready(page);
  await page.getByText("Six examples").click();
  await page.getByRole("button", { name: /^Phase retrieval by four neurons/ }).click();
  const opened = page.getByRole("combobox", { name: "Open" });
  assert.equal(await opened.evaluate((select: HTMLSelectElement) => select.selectedOptions[0].text), "Phase retrieval by four neurons");
  for (const [name, value] of [["Dimension d, value", "200"], ["Runs, value", "4"], ["Batch, exponent of d", "1"], ["Learning rate, exponent of d", "0"]]) {
    const field = page.getByRole("spinbutton", { name });
    await field.fill(value);
    await field.press("Enter");
  }
  await page.getByText(/^ODE cannot follow this task/).waitFor(PATIENCE);
  assert.equal(await opened.evaluate((select: HTMLSelectElement) => select.selectedOptions[0].text), "changed: Phase retrieval by four neurons");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText(/^4 runs at d = 200$/).waitFor(PATIENCE);
  await page.getByText("ODE cannot follow this task: the runs are shown alone.").waitFor();
  assert.equal(await page.getByText(/^ODE: .* at the end$/).count(), 0, "no curve of the theory of another task");
  await page.screenshot({ path: join(SCREENSHOTS, "explorer-alone.png") });
  // tabs are no steps of undo
  await page.getByRole("tab", { name: "Methods" }).click();
  await page.keyboard.press("Control+z");
  await linked(page, ({ task }) => task.algorithm.lr === "0.2/d");
  assert.equal(await page.getByRole("tab", { name: "Methods" }).getAttribute("aria-selected"), "true");
  await page.getByText("ODE cannot follow this task: the runs are shown alone.").waitFor({ state: "hidden" });
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await close();
});

test("presets, escape times, landscape, giant steps, a family, by keyboard", async () => {
  const { page, close } = await open(set);
  const before = await ready(page);
  await page.getByRole("combobox", { name: "Open" }).selectOption({ label: "Escape of one neuron from a random start" });
  const escape = await redrawn(page, before);
  await page.getByRole("checkbox", { name: "escape" }).check();
  await page.getByRole("tab", { name: "Plane" }).focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.getByRole("tab", { name: "Landscape" }).getAttribute("aria-selected"), "true");
  await page.getByRole("img", { name: /^Population loss φ\(m\), flat to order 2/ }).waitFor(PATIENCE);
  await page.getByRole("combobox", { name: "Family of curves" }).selectOption("learning rates");
  await page.getByText(/^family: lr 0\.02\/d, 0\.04\/d, 0\.08\/d, 0\.16\/d, 0\.32\/d$/).waitFor(PATIENCE);
  await page.screenshot({ path: join(SCREENSHOTS, "explorer-escape.png") });
  await page.getByRole("checkbox", { name: "best" }).check(); // a dashed line against α, which becomes the clock
  await page.getByText(/^best possible, from α = 0\.50\d* on$/).waitFor(PATIENCE);
  await linked(page, ({ best, clock }) => best && clock === "alpha");
  await page.screenshot({ path: join(SCREENSHOTS, "explorer-best.png") });
  await page.getByRole("combobox", { name: "Open" }).selectOption({ label: "Giant steps: batches of order d, rates of order one" });
  await redrawn(page, escape);
  await linked(page, ({ theory }) => theory === "giantsteps");
  await page.getByRole("button", { name: "Previous save point" }).click();
  await linked(page, ({ at }) => at > 0.7 && at < 0.8);
  await page.locator("main").press(",");
  await linked(page, ({ at }) => at > 0.4 && at < 0.6);
  await page.getByRole("radio", { name: "heat map at the cursor" }).check();
  await page.getByRole("img", { name: /^Overlaps at t = .*: M = / }).waitFor();
  await close();
});

for (const [width, height, scheme] of [[1440, 900, "light"], [1440, 900, "dark"], [390, 844, "light"], [390, 844, "dark"]] as const) {
  test(`${width} × ${height}, ${scheme}: everything has its place`, async () => {
    const { page, close } = await open(set, "", { viewport: { width, height }, colorScheme: scheme });
    await ready(page);
    if (width < 900) await page.getByText("Description", { exact: true }).click();
    await page.getByRole("spinbutton", { name: "Dimension d, value" }).fill("200");
    await page.getByRole("spinbutton", { name: "Dimension d, value" }).press("Enter");
    await page.getByRole("spinbutton", { name: "Runs, value" }).fill("16");
    await page.getByRole("spinbutton", { name: "Runs, value" }).press("Enter");
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByText(/^16 runs at d = 200$/).waitFor(PATIENCE);
    if (width < 900) await page.getByText("Description", { exact: true }).click();
    await page.getByRole("img", { name: /^Plane of batch/ }).waitFor(PATIENCE);
    const size = await page.evaluate(() => ({ width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight }));
    assert.equal(size.width, width, "nothing stands out to the side");
    if (width >= 900) assert.equal(size.height, height, "nothing is below the screen");
    assert.equal(await page.evaluate(() => document.documentElement.dataset["theme"]), scheme);
    await page.evaluate(() => scrollTo(0, 0));
    await page.waitForTimeout(300);
    await page.screenshot({ path: join(SCREENSHOTS, `explorer-${width}-${scheme}.png`) });
    await close();
  });
}

test("the playground is served too", async () => {
  const { page, close } = await open(set, "playground.html");
  await page.getByRole("img", { name: /^Risk: from/ }).waitFor();
  await close();
});

test("a server that is gone is told", async () => {
  const { page } = await open(set);
  await ready(page);
  await server.stop();
  await page.getByRole("slider", { name: "Learning rate" }).press("ArrowRight");
  await page.getByText(/The server does not answer/).first().waitFor();
  await page.context().close(); // the browser itself has noted on the console that nobody answered
});
