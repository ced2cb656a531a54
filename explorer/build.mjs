/**
 * Builds the pages into src/twolayer/explorer/static: `npm run build`, or `npm run build -- --check` to compare what is
 * there with what would be built. The same sources give the same bytes.
 *
 *     playground      formulas.json is TeX, typeset by KaTeX now: the page needs neither its 270 kB nor the fonts it does not use;
 *                     its worker is bundled into it as text, so that it starts from a file as well as from a server
 *     explorer        its formulas are typed: it carries what of KaTeX they take, and the browser asks for fonts it needs
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import katex from "katex";

const ROOT = dirname(fileURLToPath(import.meta.url));
const STATIC = join(ROOT, "..", "src", "twolayer", "explorer", "static");
const MOST_BYTES = 400_000; // of a page in all, not compressed
const FONTS = ["KaTeX_Main-Regular", "KaTeX_Math-Italic", "KaTeX_Size1-Regular", "KaTeX_Size2-Regular"];
const MORE_FONTS = [...FONTS, "KaTeX_Size3-Regular", "KaTeX_Size4-Regular"]; // brackets as tall as what people type
const COMMON_FONTS = ["KaTeX_Main-Regular", "KaTeX_Math-Italic", "KaTeX_Size1-Regular"]; // of formulas without towers of fractions
// of KaTeX's functions those that src/twolayer/functions/typeset.py can ask for, with what they are made of
const FUNCTIONS = ["accent", "delimsizing", "font", "genfrac", "htmlmathml", "kern", "lap", "math", "mathchoice", "mclass", "op", "operatorname", "ordgroup", "overline", "phantom", "relax", "rule", "sizing", "smash", "sqrt", "styling", "supsub", "symbolsOp", "symbolsOrd", "symbolsSpacing", "text"];

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
  return [...faces(FONTS), ...used].join("\n");
}

const fontFile = (font) => readFileSync(join(ROOT, "node_modules/katex/dist/fonts", `${font}.woff2`));

/** Rules for fonts, which are carried as data, or stand beside the page. */
function faces(fonts, source = (font) => `data:font/woff2;base64,${fontFile(font).toString("base64")}`) {
  return fonts.map((font) => {
    const [family, style] = font.split("-");
    return `@font-face{font-family:${family};font-style:${style === "Italic" ? "italic" : "normal"};src:url(${source(font)}) format("woff2")}`;
  });
}

/** KaTeX's whole style sheet, for formulas that are not known yet. */
function allStyles() {
  const css = readFileSync(join(ROOT, "node_modules/katex/dist/katex.min.css"), "utf-8");
  return [...faces(MORE_FONTS, (font) => `${font}.woff2`), css.replace(/@font-face\{[^}]*\}/g, "")].join("\n");
}

/** KaTeX from its sources, less the functions and the metrics of fonts that no formula of the package takes. */
const lean = {
  name: "katex",
  setup(builder) {
    const folder = join(ROOT, "node_modules/katex");
    builder.onResolve({ filter: /^katex$/ }, () => ({ path: join(folder, "katex.ts") }));
    builder.onLoad({ filter: /katex\/src\/(functions|environments)\.ts$/ }, ({ path }) => {
      const kept = (line) => !/^import "/.test(line) || FUNCTIONS.some((name) => line === `import "./functions/${name}";`);
      return { contents: readFileSync(path, "utf-8").split("\n").filter(kept).join("\n"), loader: "ts", resolveDir: dirname(path) };
    });
    builder.onLoad({ filter: /fontMetricsData\.js$/ }, async ({ path }) => {
      const { default: metrics } = await import(`data:text/javascript,${encodeURIComponent(readFileSync(path, "utf-8"))}`);
      const kept = MORE_FONTS.map((font) => font.replace("KaTeX_", "")).map((font) => [font, metrics[font]]);
      return { contents: JSON.stringify(Object.fromEntries(kept)), loader: "json" };
    });
  },
};

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

/** The files of a page: the playground, which stands by itself, or the explorer, which has a server. */
async function page(name, folder) {
  const explorer = name === "explorer";
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
      builder.onResolve({ filter: /^katex-(used|all)\.css$/ }, ({ path, importer }) => ({ path, namespace: "katex", pluginData: importer }));
      builder.onLoad({ filter: /.*/, namespace: "katex" }, ({ path }) => {
        // the explorer takes the styles of the playground, but all of KaTeX
        const contents = path === "katex-all.css" ? allStyles() : explorer ? "" : usedStyles(html);
        return { contents, loader: "css" };
      });
    },
  };
  const define = { __VERSION__: '""' }; // which KaTeX's sources ask for
  const script = await build({ ...common, entryPoints: [`src/${folder}/main.ts`], format: "iife", define, plugins: [sources, lean] });
  const style = await build({ ...common, entryPoints: [`src/${folder}/style.css`], external: ["*.woff2"], plugins: [sources] });
  const header = `twolayer ${name}; built from explorer/; licences of its parts: third-party.txt`;
  return {
    [`${name}.html`]: readFileSync(join(ROOT, `src/${folder}/index.html`), "utf-8"),
    [`${name}.css`]: `/* ${header} */\n${style.outputFiles[0].text}`,
    [`${name}.js`]: `// ${header}\n${script.outputFiles[0].text}`,
  };
}

const [alone, served] = [await page("playground", "playground"), await page("explorer", "page")];
const fonts = Object.fromEntries(MORE_FONTS.map((font) => [`${font}.woff2`, fontFile(font)]));
const files = { ...alone, ...served, ...fonts, "third-party.txt": licences() };
const bytes = (parts) => parts.reduce((sum, part) => sum + Buffer.byteLength(part), 0);
const sizes = { playground: bytes(Object.values(alone)), explorer: bytes([...Object.values(served), ...COMMON_FONTS.map(fontFile)]) };
if (process.argv.includes("--check")) {
  const there = existsSync(STATIC) ? readdirSync(STATIC).sort() : [];
  const same = (name) => there.includes(name) && readFileSync(join(STATIC, name)).equals(Buffer.from(files[name]));
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
    console.log(`${name.padEnd(26)} ${(Buffer.byteLength(text) / 1000).toFixed(1).padStart(7)} kB`);
  }
}
for (const [name, size] of Object.entries(sizes)) {
  console.log(`${name}: ${(size / 1000).toFixed(1)} kB`);
  if (size <= MOST_BYTES) continue;
  console.error(`A page has at most ${MOST_BYTES} bytes, but the ${name} has ${size}.`);
  process.exitCode = 1;
}
