/** Runs tests/*.test.ts by node:test: `npm test [name …]`, each name a part of a file's name. */
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const wanted = process.argv.slice(2);
const files = readdirSync("tests")
  .filter((file) => file.endsWith(".test.ts") && (wanted.length === 0 || wanted.some((word) => file.includes(word))))
  .map((file) => `tests/${file}`);
const outdir = "node_modules/.tests";
rmSync(outdir, { recursive: true, force: true });
mkdirSync(outdir, { recursive: true });
await build({
  entryPoints: files,
  bundle: true,
  platform: "node",
  format: "esm",
  outdir,
  outExtension: { ".js": ".mjs" },
  packages: "external",
  sourcemap: "inline",
  logLevel: "warning",
});
const compiled = readdirSync(outdir).map((file) => `${outdir}/${file}`);
const flags = ["--enable-source-maps", "--test"];
process.exitCode = spawnSync(process.execPath, [...flags, ...compiled], { stdio: "inherit" }).status ?? 1;
