/** Debian's Chromium on the built page, served by a plain file server on loopback. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import type { AddressInfo } from "node:net";
import { after } from "node:test";
import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";

export const STATIC = join(process.cwd(), "..", "src", "twolayer", "explorer", "static");
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const TYPES: Record<string, string> = { html: "text/html", css: "text/css", js: "text/javascript" };

export interface Stage {
  readonly browser: Browser;
  readonly address: string;
}

/** A browser and a server, closed after the tests of the file. */
export async function stage(): Promise<Stage> {
  const server = createServer((request, response) => {
    const name = (request.url ?? "/").split("?")[0].slice(1);
    try {
      const body = readFileSync(join(STATIC, name));
      response.writeHead(200, { "content-type": TYPES[name.split(".").pop() ?? ""] ?? "text/plain" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const browser = await chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: FLAGS });
  after(async () => {
    await browser.close();
    server.close();
  });
  return { browser, address: `http://127.0.0.1:${(server.address() as AddressInfo).port}/playground.html` };
}

/** A page whose console has to stay silent until `close`. */
export async function open(
  { browser, address }: Stage,
  fragment = "",
  options: BrowserContextOptions = {},
): Promise<{ page: Page; close: () => Promise<void> }> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  const heard: string[] = [];
  page.on("console", (message) => heard.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => heard.push(String(error)));
  page.on("requestfailed", (request) => {
    if (request.failure()?.errorText !== "net::ERR_ABORTED") heard.push(`failed: ${request.url()}`); // else the page has withdrawn it
  });
  page.on("request", (request) => {
    if (!/^(blob:|data:)/.test(request.url()) && !request.url().startsWith(address.replace(/[^/]*$/, "")) && !request.url().startsWith("file:")) {
      heard.push(`asked elsewhere: ${request.url()}`);
    }
  });
  page.setDefaultTimeout(120_000);
  await page.goto(fragment.startsWith("file:") ? fragment : address + fragment);
  return {
    page,
    close: async () => {
      assert.deepEqual(heard, []);
      await context.close();
    },
  };
}

/** The first word of a figure's description, once it tells of a whole run. */
export async function riskOf(page: Page): Promise<string> {
  const figure = page.getByRole("img", { name: /^(Risk|Excess risk): from/ });
  await figure.waitFor();
  return (await figure.getAttribute("aria-label")) ?? "";
}

/** Wait until all runs are there. */
export async function allRuns(page: Page): Promise<void> {
  await page.getByText(/^\d+ runs of .* steps$/).waitFor();
}
