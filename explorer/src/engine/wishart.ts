/**
 * Gram matrices of Gaussian vectors in many dimensions, without the vectors.
 *
 *     X (s × n) with iid N(0, 1) entries:   X Xᵀ = T Tᵀ in law,   T lower triangular (Bartlett),
 *     T_ii² ~ χ²_{n−i+1},   T_il ~ N(0, 1) for l < i
 *
 * For n < 64 + s the plain s × n matrix of normals is used instead. A χ² with more degrees of freedom is its own
 * quantile function at a normal x, n·c(x)³ with a polynomial c fitted to the exact quantiles: the distribution
 * function is off by less than 1e-10 everywhere.
 */
import { chiSquareQuantile } from "./special";

const DIRECT = 64;
const REACH = 8.25; // the normals stay within ±8.21
const DEGREE = 16;

/** Power-series coefficients of (χ²/n)^{1/3} in x/REACH: interpolation at Chebyshev points. */
function cubeRoot(n: number): number[] {
  const count = DEGREE + 1;
  const angle = (i: number): number => (Math.PI * (i + 0.5)) / count;
  const value = Array.from({ length: count }, (_, i) => Math.cbrt(chiSquareQuantile(n, REACH * Math.cos(angle(i))) / n));
  const power = new Array<number>(count).fill(0);
  let before = [1];
  let now = [0, 1];
  for (let degree = 0; degree < count; degree++) {
    let sum = 0;
    for (let i = 0; i < count; i++) sum += value[i] * Math.cos(degree * angle(i));
    const coefficient = ((degree === 0 ? 1 : 2) * sum) / count;
    const T = degree === 0 ? before : now;
    T.forEach((x, i) => (power[i] += coefficient * x));
    if (degree > 0) {
      const next = [0, ...now.map((x) => 2 * x)];
      before.forEach((x, i) => (next[i] -= x));
      [before, now] = [now, next];
    }
  }
  return power;
}

/** How to draw T with T Tᵀ = X Xᵀ in law, X a matrix of iid normals with the given rows and columns. */
export class GramFactor {
  readonly rows: number;
  /** Columns of T. */
  readonly width: number;
  /** Normals that `build` takes. */
  readonly draws: number;
  private readonly table: readonly (readonly number[])[];
  private readonly root: readonly number[];

  constructor(rows: number, columns: number) {
    const bartlett = columns >= DIRECT + rows;
    this.rows = rows;
    this.width = bartlett ? rows : columns;
    this.draws = bartlett ? (rows * (rows + 1)) / 2 : rows * columns;
    const freedom = bartlett ? Array.from({ length: rows }, (_, i) => columns - i) : [];
    this.table = freedom.map(cubeRoot);
    this.root = freedom.map(Math.sqrt);
  }

  /** T (rows × width, flat) from the normals. */
  build(normals: Float64Array, T: Float64Array): void {
    const s = this.rows;
    if (this.table.length === 0) {
      for (let i = 0; i < this.draws; i++) T[i] = normals[i];
      return;
    }
    for (let i = 0, next = s; i < s; i++) {
      for (let l = 0; l < i; l++) T[i * s + l] = normals[next++];
      const coefficients = this.table[i];
      const x = normals[i] / REACH;
      let c = 0;
      for (let n = DEGREE; n >= 0; n--) c = c * x + coefficients[n];
      T[i * s + i] = this.root[i] * c * Math.sqrt(c);
      for (let l = i + 1; l < s; l++) T[i * s + l] = 0;
    }
  }
}
