/**
 * The moving picture of README.md: node film.mjs [OUT.gif]. Plays the explorer in Chromium, one screenshot for each frame,
 * and puts them together by Pillow, from the environment of the repository.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const out = process.argv[2] ?? "../docs/images/explorer.gif";
const python = process.env.PYTHON ?? "../.venv/bin/python";
const MOST_BYTES = 1_000_000;
const frames = mkdtempSync(join(tmpdir(), "film-"));
const times = [];

const server = spawn(python, ["-m", "twolayer", "explore", "../examples/phase_retrieval.toml", "--set", "run.dim=400", "--no-browser"], { stdio: ["ignore", "pipe", "inherit"] });
const address = await new Promise((resolve) => {
  let said = "";
  server.stdout.on("data", (text) => {
    said += text;
    const found = /http:\S+/.exec(said);
    if (found) resolve(found[0]);
  });
});
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
page.setDefaultTimeout(120_000);

/** A frame that is shown for so many milliseconds. */
async function frame(milliseconds) {
  await page.screenshot({ path: join(frames, `${String(times.length).padStart(3, "0")}.png`) });
  times.push(milliseconds);
}

const figure = page.locator(".risk [role=img]");
const redrawn = (old) => page.waitForFunction((before) => document.querySelector(".risk [role=img]").getAttribute("aria-label") !== before, old);

/** Press an arrow key so many times on a slider, with a frame for every new curve. */
async function move(name, key, times, by) {
  for (let i = 0; i < times; i++) {
    const before = await figure.getAttribute("aria-label");
    for (let n = 0; n < by; n++) await page.getByRole("slider", { name, exact: true }).press(key);
    await redrawn(before);
    await frame(110);
  }
}

await page.goto(address);
await page.getByRole("img", { name: /^Risk: from/ }).waitFor();
await page.getByRole("img", { name: /^Plane of batch/ }).waitFor();
await page.waitForTimeout(3000); // until neighbouring widths are being compiled
await frame(1200);
await move("Learning rate", "ArrowLeft", 5, 7);
await move("Learning rate", "ArrowRight", 8, 7);
await move("Learning rate", "ArrowLeft", 3, 7);
await page.getByRole("spinbutton", { name: "Runs, value" }).fill("24");
await page.getByRole("spinbutton", { name: "Runs, value" }).press("Enter");
await page.getByRole("button", { name: "Run", exact: true }).click();
for (const runs of [4, 8, 12, 16, 20, 24]) {
  await page.waitForFunction((n) => Number(/\((\d+) runs\)/.exec(document.querySelector(".risk [role=img]").getAttribute("aria-label"))?.[1] ?? 0) >= n, runs);
  await frame(runs === 24 ? 700 : 200);
}
await page.getByRole("tab", { name: "Verdict" }).click();
await page.getByRole("table", { name: "Verdict" }).waitFor();
await frame(1200);
await page.getByRole("button", { name: "Pin", exact: true }).click();
await page.waitForTimeout(200);
await frame(700);
await move("Noise Δ", "ArrowRight", 6, 12);
await page.getByRole("tab", { name: "Plane" }).click();
const cursor = page.getByRole("slider", { name: "Cursor of time" });
for (let i = 0; i <= 12; i++) {
  await cursor.evaluate((range, part) => {
    range.value = String(1000 * part);
    range.dispatchEvent(new Event("input", { bubbles: true }));
  }, i / 12);
  await page.waitForTimeout(60);
  await frame(i === 12 ? 1500 : 120);
}
await browser.close();
server.kill("SIGINT");

const glue = `
import json, sys
from pathlib import Path
import numpy as np
from PIL import Image
folder, times, out = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
shown = [Image.open(path).convert("RGB").resize((960, 600), Image.Resampling.LANCZOS) for path in sorted(folder.glob("*.png"))]
# one palette for all: of the colours of a few frames, those far from grey count as often as grey ones
samples = np.concatenate([np.asarray(image.resize((480, 300))).reshape(-1, 3) for image in shown[:: max(1, len(shown) // 8)]])
bright = samples[np.ptp(samples.astype(int), axis=1) > 24]
chosen = np.concatenate([x[:: max(1, len(x) // 60_000)] for x in (samples, bright)])
palette = Image.fromarray(chosen[None])
palette = palette.quantize(128, Image.Quantize.MAXCOVERAGE, kmeans=2)
first, *rest = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in shown]
first.save(out, save_all=True, append_images=rest, duration=times, loop=0, optimize=True)
`;
const glued = spawnSync(python, ["-c", glue, frames, JSON.stringify(times), out], { stdio: "inherit" });
rmSync(frames, { recursive: true });
const { size } = statSync(out);
console.log(`${times.length} frames, ${(size / 1000).toFixed(0)} kB: ${out}`);
process.exitCode = glued.status || (size > MOST_BYTES ? 1 : 0);
