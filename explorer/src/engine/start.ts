/**
 * Where a run starts: given overlaps, or the exact law of random weights without any vector of length d.
 *
 *     rows w_j of iid normals:  A (p × rank) of iid normals along the target directions, B the Bartlett factor of the rest
 *     sphere: rows divided by their norm;   hemisphere: and turned so that M_j1 > 0;   gaussian: divided by √d
 */
import { eigen, frame, type Rows } from "./matrix";
import { normals, Role, stream } from "./random";
import type { Overlaps } from "./task";
import { GramFactor } from "./wishart";

export type Law = "sphere" | "hemisphere" | "gaussian";

/** Overlaps of p random rows with the directions of Gram matrix P, and with each other. */
export function randomOverlaps(p: number, P: Rows, dim: number, law: Law, seed: number, run = 0): Omit<Overlaps, "a"> {
  const { rank, L } = frame(P);
  const A = new Float64Array(p * rank);
  normals(stream(seed, Role.start, 2 * run), 0, p * rank, A);
  const factor = new GramFactor(p, dim - rank);
  const outer = new Float64Array(factor.draws);
  normals(stream(seed, Role.start, 2 * run + 1), 0, factor.draws, outer);
  const B = new Float64Array(p * factor.width);
  factor.build(outer, B);
  const dot = (X: Float64Array, width: number, j: number, l: number): number => {
    let sum = 0;
    for (let c = 0; c < width; c++) sum += X[j * width + c] * X[l * width + c];
    return sum;
  };
  const gram = (j: number, l: number): number => dot(A, rank, j, l) + dot(B, factor.width, j, l);
  const inside = (j: number, r: number): number => L[r].reduce((sum, x, c) => sum + x * A[j * rank + c], 0);
  const rows = Array.from({ length: p }, (_, j) => j);
  const norm = rows.map((j) => {
    if (law === "gaussian") return Math.sqrt(dim);
    return law === "hemisphere" && inside(j, 0) < 0 ? -Math.sqrt(gram(j, j)) : Math.sqrt(gram(j, j));
  });
  return {
    Q: rows.map((j) => rows.map((l) => (j === l && law !== "gaussian" ? 1 : gram(j, l) / (norm[j] * norm[l])))),
    M: rows.map((j) => L.map((_, r) => inside(j, r) / norm[j])),
  };
}

/** Why no vectors have these overlaps, or null if some do. */
export function impossible(Q: Rows, M: Rows, P: Rows): string | null {
  const lowest = (A: Rows): number => Math.min(...eigen(A).values);
  const check = (what: string, A: Rows): string | null => {
    const size = Math.max(1, ...A.flat().map(Math.abs));
    const value = lowest(A);
    return value < -1e-8 * size ? `${what}: its smallest eigenvalue is ${value.toPrecision(3)}.` : null;
  };
  const omega = [
    ...Q.map((row, j) => [...row, ...M[j]]),
    ...P.map((row, r) => [...M.map((m) => m[r]), ...row]),
  ];
  return (
    check("P must be positive semidefinite", P) ??
    check("Q must be positive semidefinite", Q) ??
    check("No vectors have these overlaps; the covariance (Q, M; Mᵀ, P) must be positive semidefinite", omega)
  );
}
