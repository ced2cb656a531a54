/**
 * Builds the page into src/twolayer/explorer/static: `npm run build`, or `npm run build -- --check` to compare what is
 * there with what would be built. The same sources give the same bytes.
 *
 *     formulas.json   TeX, typeset by KaTeX now, so that the page needs neither its 270 kB nor the fonts it does not use
 *     worker          bundled into the page as text, so that it starts from a file as well as from a server
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import katex from "katex";

const ROOT = dirname(fileURLToPath(import.meta.url));
const STATIC = join(ROOT, "..", "src", "twolayer", "explorer", "static");
const MOST_BYTES = 400_000;
const FONTS = ["KaTeX_Main-Regular", "KaTeX_Math-Italic", "KaTeX_Size1-Regular", "KaTeX_Size2-Regular"];

const target = ["es2022", "chrome111", "firefox113", "safari16.4"];
const common = { bundle: true, minify: true, target, charset: "utf8", write: false, logLevel: "warning", legalComments: "none", absWorkingDir: ROOT };

/** TeX and words to HTML and words. */
function typeset() {
  const formulas = JSON.parse(readFileSync(join(ROOT, "src/ui/formulas.json"), "utf-8"));
  const display = /^(student|target|step)-/;
  return Object.fromEntries(
    Object.entries(formulas).map(([name, [tex, words]]) => {
      const style = display.test(name) ? "\\displaystyle " : "";
      return [name, [katex.renderToString(style + tex, { output: "html", throwOnError: true, strict: "error" }), words]];
    }),
  );
}

/** Of KaTeX's style sheet, the rules for classes that the formulas have, and the fonts they take. */
function usedStyles(html) {
  const folder = join(ROOT, "node_modules/katex/dist");
  const css = readFileSync(join(folder, "katex.min.css"), "utf-8");
  const classes = new Set([...html.matchAll(/class="([^"]*)"/g)].flatMap((match) => match[1].split(/\s+/)));
  const rules = [...css.matchAll(/([^{}]+)\{([^{}]*)\}/g)].filter(([, selector]) => !selector.startsWith("@"));
  const used = rules.flatMap(([, selectors, body]) => {
    const kept = selectors.split(",").filter((selector) => {
      const named = [...selector.matchAll(/\.([\w-]+)/g)].map((match) => match[1]);
      return named.length > 0 && named.every((word) => classes.has(word));
    });
    return kept.length > 0 ? [`${kept.join(",")}{${body}}`] : [];
  });
  const faces = FONTS.map((font) => {
    const [family, style] = font.split("-");
    const data = readFileSync(join(folder, "fonts", `${font}.woff2`)).toString("base64");
    const slant = style === "Italic" ? "italic" : "normal";
    return `@font-face{font-family:${family};font-style:${slant};src:url(data:font/woff2;base64,${data}) format("woff2")}`;
  });
  return [...faces, ...used].join("\n");
}

/** What the page is made of besides its own sources. */
function licences() {
  const packages = { uplot: "uPlot", katex: "KaTeX (typesetting and fonts)" };
  return Object.entries(packages)
    .map(([name, title]) => {
      const folder = join(ROOT, "node_modules", name);
      const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf-8"));
      const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
      return `${title} ${version}\n\n${readFileSync(join(folder, file), "utf-8").trim()}\n`;
    })
    .join("\n----\n\n");
}

async function page() {
  const formulas = typeset();
  const html = Object.values(formulas).map(([text]) => text).join("");
  const sources = {
    name: "sources",
    setup(builder) {
      builder.onLoad({ filter: /formulas\.json$/ }, () => ({ contents: JSON.stringify(formulas), loader: "json" }));
      builder.onResolve({ filter: /\?text$/ }, ({ path, resolveDir }) => ({ path: join(resolveDir, path.slice(0, -5)), namespace: "text" }));
      builder.onLoad({ filter: /.*/, namespace: "text" }, async ({ path }) => {
        const { outputFiles } = await build({ ...common, entryPoints: [path], format: "iife" });
        return { contents: outputFiles[0].text, loader: "text" };
      });
      builder.onResolve({ filter: /^katex-used\.css$/ }, ({ path }) => ({ path, namespace: "katex" }));
      builder.onLoad({ filter: /.*/, namespace: "katex" }, () => ({ contents: usedStyles(html), loader: "css" }));
    },
  };
  const script = await build({ ...common, entryPoints: ["src/playground/main.ts"], format: "iife", plugins: [sources] });
  const style = await build({ ...common, entryPoints: ["src/playground/style.css"], plugins: [sources] });
  const header = "twolayer playground; built from explorer/; licences of its parts: third-party.txt";
  return {
    "playground.html": readFileSync(join(ROOT, "src/playground/index.html"), "utf-8"),
    "playground.css": `/* ${header} */\n${style.outputFiles[0].text}`,
    "playground.js": `// ${header}\n${script.outputFiles[0].text}`,
    "third-party.txt": licences(),
  };
}

const files = await page();
const total = Object.values(files).reduce((sum, text) => sum + Buffer.byteLength(text), 0);
if (process.argv.includes("--check")) {
  const there = existsSync(STATIC) ? readdirSync(STATIC).sort() : [];
  const same = (name) => there.includes(name) && readFileSync(join(STATIC, name), "utf-8") === files[name];
  const wrong = [...Object.keys(files).filter((name) => !same(name)), ...there.filter((name) => !(name in files))];
  if (wrong.length > 0) {
    console.error(`Not what the sources give: ${wrong.join(", ")} in src/twolayer/explorer/static. Run: npm run build`);
    process.exit(1);
  }
  console.log("The committed page is what the sources give.");
} else {
  rmSync(STATIC, { recursive: true, force: true });
  mkdirSync(STATIC, { recursive: true });
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(STATIC, name), text);
    console.log(`${name.padEnd(18)} ${(Buffer.byteLength(text) / 1000).toFixed(1).padStart(7)} kB`);
  }
  console.log(`${"in all".padEnd(18)} ${(total / 1000).toFixed(1).padStart(7)} kB`);
}
if (total > MOST_BYTES) {
  console.error(`The page has ${total} bytes, more than ${MOST_BYTES}.`);
  process.exit(1);
}
