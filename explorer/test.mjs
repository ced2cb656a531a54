/**
 * Runs the tests by node:test: `npm test [name …]` those of tests/*.test.ts, `npm run browser [name …]` those of
 * tests/*.browser.ts, which drive the built page in Chromium. Each name is a part of a file's name.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const [kind, ...wanted] = process.argv.slice(2);
const chosen = (file) => file.endsWith(`.${kind}.ts`) && (wanted.length === 0 || wanted.some((word) => file.includes(word)));
const files = readdirSync("tests").filter(chosen).map((file) => `tests/${file}`);
if (files.length === 0) throw new Error(`No tests: ${process.argv.slice(2).join(" ")}`);
const outdir = "node_modules/.tests";
rmSync(outdir, { recursive: true, force: true });
mkdirSync(outdir, { recursive: true });
await build({
  entryPoints: files,
  bundle: true,
  platform: "node",
  format: "esm",
  outdir,
  outExtension: { ".js": ".test.mjs" },
  packages: "external",
  sourcemap: "inline",
  logLevel: "warning",
});
const compiled = readdirSync(outdir).map((file) => `${outdir}/${file}`);
// files side by side: while one waits for its browser or its server, the other computes
const flags = ["--enable-source-maps", "--test", "--test-reporter=spec", "--test-concurrency=2"];
process.exitCode = spawnSync(process.execPath, [...flags, ...compiled], { stdio: "inherit" }).status ?? 1;
