/** Small dense matrices: rows of numbers for descriptions, flat row-major arrays for work. */

export type Rows = readonly (readonly number[])[];

export function identity(n: number): number[][] {
  return Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => (i === j ? 1 : 0)));
}

export function isIdentity(A: Rows): boolean {
  return A.every((row, i) => row.every((x, j) => x === (i === j ? 1 : 0)));
}

/** Eigenvalues (descending) and eigenvectors (columns) of a symmetric matrix, by Jacobi rotations. */
export function eigen(A: Rows): { values: number[]; vectors: number[][] } {
  const n = A.length;
  const S = A.map((row) => [...row]);
  const V = identity(n);
  const rotate = (X: number[][], i: number, j: number, k: number, l: number, s: number, tau: number): void => {
    const g = X[i][j];
    const h = X[k][l];
    X[i][j] = g - s * (h + g * tau);
    X[k][l] = h + s * (g - h * tau);
  };
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    let size = 0;
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        size += S[i][j] ** 2;
        if (i !== j) off += S[i][j] ** 2;
      }
    }
    if (off <= 1e-34 * size) break;
    for (let i = 0; i < n; i++) {
      for (let j = i + 1; j < n; j++) {
        if (S[i][j] === 0) continue;
        const theta = (S[j][j] - S[i][i]) / (2 * S[i][j]);
        const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1));
        const c = 1 / Math.hypot(t, 1);
        const s = t * c;
        const tau = s / (1 + c);
        const move = t * S[i][j];
        S[i][i] -= move;
        S[j][j] += move;
        S[i][j] = 0;
        for (let k = 0; k < i; k++) rotate(S, k, i, k, j, s, tau);
        for (let k = i + 1; k < j; k++) rotate(S, i, k, k, j, s, tau);
        for (let k = j + 1; k < n; k++) rotate(S, i, k, j, k, s, tau);
        for (let k = 0; k < n; k++) rotate(V, k, i, k, j, s, tau);
        for (let k = 0; k < n; k++) {
          for (let l = 0; l < k; l++) S[k][l] = S[l][k];
        }
      }
    }
  }
  const order = S.map((_, i) => i).sort((i, j) => S[j][j] - S[i][i]);
  return { values: order.map((i) => S[i][i]), vectors: V.map((row) => order.map((i) => row[i])) };
}

/** L (k × rank) with P = L Lᵀ, and its left inverse (rank × k); directions of P below 1e-8 of the largest are cut. */
export function frame(P: Rows): { rank: number; L: number[][]; inverse: number[][] } {
  if (isIdentity(P)) return { rank: P.length, L: identity(P.length), inverse: identity(P.length) };
  const { values, vectors } = eigen(P);
  const keep = values.filter((v) => v > 1e-8 * values[0]).map(Math.sqrt);
  return {
    rank: keep.length,
    L: vectors.map((row) => keep.map((root, i) => row[i] * root)),
    inverse: keep.map((root, i) => vectors.map((row) => row[i] / root)),
  };
}

/**
 * Lower triangular L (p × min(p, n)) with L Lᵀ = X Xᵀ, by reflections; signs of its diagonal are free.
 *
 * X (p × n, flat) is overwritten: L stands in its first columns, and zeros elsewhere.
 */
export function lq(X: Float64Array, p: number, n: number): void {
  for (let i = 0; i < p && i < n; i++) {
    const head = i * n + i;
    const end = (i + 1) * n;
    let square = 0;
    for (let c = head; c < end; c++) square += X[c] * X[c];
    const norm = Math.sqrt(square);
    const shift = X[head] >= 0 ? norm : -norm;
    const v = X[head] + shift;
    const length = square - X[head] * X[head] + v * v;
    const scale = length > 0 ? 2 / length : 0;
    for (let row = i + 1; row < p; row++) {
      const at = row * n + i - head;
      let dot = X[row * n + i] * v;
      for (let c = head + 1; c < end; c++) dot += X[at + c] * X[c];
      dot *= scale;
      X[row * n + i] -= dot * v;
      for (let c = head + 1; c < end; c++) X[at + c] -= dot * X[c];
    }
    X[head] = -shift;
    for (let c = head + 1; c < end; c++) X[c] = 0;
  }
}
