/** The same question in Python: what is copied gives the numbers that the page shows. */
import { isIdentity, type Rows } from "../engine/matrix";
import { MOST_STEPS, startOf, stepsOf, type State } from "./state";

const real = (x: number): string => (Number.isInteger(x) && Math.abs(x) < 1e15 ? x.toFixed(1) : String(x));
const list = (values: readonly number[]): string => `[${values.map(real).join(", ")}]`;
const matrix = (rows: Rows): string => `[${rows.map(list).join(", ")}]`;
const whole = (n: number): string => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "_");
const all = (values: readonly number[], x: number): boolean => values.every((value) => value === x);

/** λ*ᵀ H λ* + h0 in the package's language of formulas. */
export function formula(H: Rows, h0: number): string {
  const terms: [number, string][] = [];
  H.forEach((row, r) =>
    row.slice(r).forEach((x, i) => {
      if (x !== 0) terms.push(i === 0 ? [x, `z${r + 1}**2`] : [2 * x, `z${r + 1}*z${r + i + 1}`]);
    }),
  );
  if (h0 !== 0) terms.push([h0, ""]);
  const text = terms.map(([x, word], i) => {
    const sign = i === 0 ? (x < 0 ? "-" : "") : x < 0 ? " - " : " + ";
    const size = String(Math.abs(x));
    return sign + (word === "" ? size : size === "1" ? word : `${size}*${word}`);
  });
  return text.join("") || "0*z1";
}

/** Lines `name=value,` of a call. */
function call(head: string, parts: readonly (readonly [string, string] | null)[]): string {
  const given = parts.filter((part) => part !== null).map(([name, value]) => `${name}=${value}`);
  const line = `${head}(${given.join(", ")})`;
  return line.length <= 100 ? line : `${head}(\n${given.map((part) => `    ${part},\n`).join("")})`;
}

export function python(state: State): string {
  const { activation, p, k, P, dim, seed, gamma } = state;
  const weights = all(state.teacher, 1) ? "" : `, weights=${list(state.teacher)}`;
  const committee = `tl.Teacher("${activation}"${k > 1 ? `, k=${k}` : ""}${weights})`;
  const quadratic = state.target === "quadratic";
  const largest = state.H.reduce((last, row, r) => (row.some((x) => x !== 0) ? r + 1 : last), 0);
  const { Q, M } = startOf(state);
  // random starts depend on the basis in which P is factored, so theirs are written out unless P = 1
  const drawn = state.start === "random" && isIdentity(P);
  const law = state.law === "sphere" ? "" : `, law="${state.law}"`;
  const run = `time=${real(state.time)}, save=200`;
  return [
    "import twolayer as tl",
    "from twolayer import d",
    "",
    call("problem = tl.Problem", [
      ["target", quadratic ? `"${formula(state.H, state.h0)}"` : committee],
      ["activation", `"${activation}"`],
      ["width", String(p)],
      ["noise", real(state.noise)],
      isIdentity(P) ? null : ["gram", matrix(P)],
      all(state.a, 1) ? null : ["second_layer", list(state.a)],
      quadratic && largest !== k ? ["directions", String(k)] : null,
    ]),
    call("algorithm = tl.SGD", [
      ["lr", `${real(gamma)} / d`],
      state.batch === 1 ? null : ["batch", String(state.batch)],
      state.loss === "squared" ? null : ["loss", `"${state.loss}"`],
      state.geometry === "free" ? null : ["geometry", `"${state.geometry}"`],
      state.trained ? ["train_second_layer", "True"] : null,
    ]),
    drawn
      ? `start = tl.Overlaps.random(problem, dim=${whole(dim)}, seed=${seed}${law})`
      : call("start = tl.Overlaps", [
          ["Q", matrix(Q)],
          ["M", matrix(M)],
          isIdentity(P) ? null : ["P", matrix(P)],
          ["dim", whole(dim)],
        ]),
    "",
    `theory = tl.solve(problem, algorithm, tl.ODE(), start, ${run})`,
    stepsOf(state) < MOST_STEPS
      ? `runs = tl.solve(problem, algorithm, tl.Chain(${whole(dim)}), start, ${run}, seeds=${state.runs}, seed=${seed})`
      : `# a run of the chain at this d and time would have more steps than it counts`,
    "",
  ].join("\n");
}
