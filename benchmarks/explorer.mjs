/**
 * How quick the explorer is, in Chromium: node benchmarks/explorer.mjs [TASKS] (after `npm ci` in explorer/).
 *
 *     address        from the command to the line that tells the address
 *     first paint    of the page
 *     first curve    from opening a task to its curve, with imports and compilation
 *     slider         from the input event of the slider of the learning rate to the frame with the new curve
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "../explorer/node_modules/playwright-core/index.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const python = process.env.PYTHON ?? (existsSync(`${root}.venv/bin/python`) ? `${root}.venv/bin/python` : "python3");
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const MOVES = 41;
const presets = ["Phase retrieval by four neurons", "Escape of one neuron from a random start", "The symmetric plateau of erf committees and its end", "Two rectifiers learn one: the last mile"].slice(0, Number(process.argv[2] ?? 4));
const sorted = (values) => [...values].sort((a, b) => a - b);
const median = (values) => sorted(values)[Math.floor(values.length / 2)];

const began = performance.now();
const server = spawn(python, ["-m", "twolayer", "explore", `${root}examples/phase_retrieval.toml`, "--no-browser"], { stdio: ["ignore", "pipe", "inherit"] });
const address = await new Promise((resolve) => {
  let said = "";
  server.stdout.on("data", (text) => {
    said += text;
    const found = /http:\S+/.exec(said);
    if (found) resolve(found[0]);
  });
});
console.log(`address: ${((performance.now() - began) / 1000).toFixed(1)} s`);

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });
const tab = await browser.newPage({ viewport: { width: 1440, height: 900 } });
tab.setDefaultTimeout(180_000);
await tab.goto(address);
await tab.getByRole("img", { name: /^Risk: from/ }).waitFor();
const paint = await tab.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
console.log(`first paint: ${paint.toFixed(0)} ms`);

for (const [number, preset] of presets.entries()) {
  const opened = performance.now();
  if (number > 0) {
    const before = await tab.locator(".risk [role=img]").getAttribute("aria-label");
    await tab.getByRole("combobox", { name: "Open" }).selectOption({ label: preset });
    await tab.waitForFunction((old) => document.querySelector(".risk [role=img]").getAttribute("aria-label") !== old, before);
  }
  const first = number > 0 ? performance.now() - opened : performance.now() - began;
  await tab.waitForTimeout(15_000); // what is compiled ahead would share the cores
  const measured = await tab.evaluate(async (moves) => {
    const slider = document.querySelector('input[type="range"][aria-label="Learning rate"]');
    const figure = document.querySelector(".risk [role=img]");
    const out = [];
    for (let i = 0; i < moves; i++) {
      const before = figure.getAttribute("aria-label");
      const start = performance.now();
      slider.value = String(Number(slider.value) + (i % 2 ? 12 : -12));
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      while (figure.getAttribute("aria-label") === before && performance.now() - start < 5000) await new Promise((resolve) => setTimeout(resolve));
      await new Promise((resolve) => requestAnimationFrame(resolve));
      out.push([performance.now() - start, Number(document.documentElement.dataset.answer)]);
      await new Promise((resolve) => setTimeout(resolve, 60));
    }
    return out;
  }, MOVES);
  const [times, answers] = [measured.map(([whole]) => whole), measured.map(([, answer]) => answer)];
  console.log(`${preset}: first curve ${(first / 1000).toFixed(1)} s; slider to curve median ${median(times).toFixed(0)} ms (the server's answer ${median(answers)} ms), nine tenths below ${sorted(times)[Math.floor(0.9 * times.length)].toFixed(0)} ms`);
}
await browser.close();
server.kill("SIGINT");
