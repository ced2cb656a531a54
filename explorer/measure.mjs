/**
 * How quick the page is: `npm run measure`. First paint, and the time from a key press on a slider to the redrawn curve,
 * for several tasks, in Chromium.
 */
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const page = fileURLToPath(new URL("../src/twolayer/explorer/static/playground.html", import.meta.url));
const flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const tasks = {
  "He2, p = 2, k = 1": "runs=1",
  "erf, p = k = 2": "activation=erf&k=2&geometry=free&gamma=1.5&time=10&runs=1",
  "erf, p = k = 4": "activation=erf&p=4&k=4&start=random&geometry=free&gamma=1.5&time=20&runs=1",
  "ReLU, p = k = 2": "activation=relu&k=2&start=random&geometry=free&time=10&runs=1",
  "ReLU, p = k = 4": "activation=relu&p=4&k=4&start=random&geometry=free&time=10&runs=1",
};

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });

const paints = [];
for (let i = 0; i < 9; i++) {
  const tab = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await tab.goto(`file://${page}`);
  await tab.getByRole("img", { name: /^Risk: from/ }).waitFor();
  paints.push(await tab.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  await tab.close();
}
console.log(`first contentful paint: median ${median(paints).toFixed(0)} ms, slowest ${Math.max(...paints).toFixed(0)} ms`);

for (const [name, link] of Object.entries(tasks)) {
  const tab = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await tab.goto(`file://${page}#${link}`);
  await tab.getByRole("img", { name: /^Risk: from/ }).waitFor();
  await tab.waitForTimeout(1000);
  // from the input event to the frame after the figure has changed its description
  const times = await tab.evaluate(async () => {
    const slider = document.querySelector('input[type="range"][aria-label="Learning rate"]');
    const figure = document.querySelector(".risk [role=img]");
    const out = [];
    for (let i = 0; i < 25; i++) {
      const before = figure.getAttribute("aria-label");
      const began = performance.now();
      slider.value = String(Number(slider.value) + (i % 2 ? 30 : -30));
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      while (figure.getAttribute("aria-label") === before && performance.now() - began < 5000) {
        await new Promise((resolve) => setTimeout(resolve));
      }
      await new Promise((resolve) => requestAnimationFrame(resolve));
      out.push(performance.now() - began);
    }
    return out;
  });
  console.log(`slider to curve, ${name}: median ${median(times).toFixed(0)} ms, slowest ${Math.max(...times).toFixed(0)} ms`);
  await tab.close();
}
await browser.close();
