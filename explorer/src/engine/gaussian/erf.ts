/**
 * σ(x) = erf(x/√2): every average in closed form.
 *
 *     E[σσ] = (2/π) arcsin( C12/√((1+C11)(1+C22)) )          E[σ'σ'] = (2/π)/√Λ,  Λ = (1+C11)(1+C22) − C12²
 *     E[σ''(1) σ(2)] = −E[σ'σ'] C12/(1+C11)
 *     E[σ'(1)σ'(2)σ(3)σ(4)] = (4/π²) Λ^(−1/2) arcsin( T34/√((1+T33)(1+T44)) )
 *
 * where T is the covariance of fields 3, 4 tilted by the two σ': T = C34,34 − C34,12 (1 + C12,12)⁻¹ C12,34.
 */
import type { Forms } from "./ridge";

const TWO_OVER_PI = 2 / Math.PI;
const clip = (x: number): number => Math.min(1, Math.max(-1, x));
const u = new Float64Array(16);
const v = new Float64Array(16);
const narrow = new Float64Array(16);

export const ERF: Forms = {
  pair(c11, c12, c22, out) {
    const wide = (1 + c11) * (1 + c22);
    out.dd = TWO_OVER_PI / Math.sqrt(wide - c12 * c12);
    out.ff = TWO_OVER_PI * Math.asin(c12 / Math.sqrt(wide));
    out.hd = (-out.dd * c12) / (1 + c11);
  },

  fourPoint(omega, n, c, j, l) {
    const jj = 1 + omega[j * n + j];
    const ll = 1 + omega[l * n + l];
    const jl = omega[j * n + l];
    const determinant = jj * ll - jl * jl;
    for (let q = 0; q < n; q++) {
      const cj = omega[j * n + q];
      const cl = omega[l * n + q];
      u[q] = (ll * cj - jl * cl) / determinant;
      v[q] = (jj * cl - jl * cj) / determinant;
      narrow[q] = 1 / Math.sqrt(1 + omega[q * n + q] - u[q] * cj - v[q] * cl);
    }
    let sum = 0;
    for (let q = 0; q < n; q++) {
      for (let s = q; s < n; s++) {
        const tilted = omega[q * n + s] - u[q] * omega[j * n + s] - v[q] * omega[l * n + s];
        sum += (q === s ? 1 : 2) * c[q] * c[s] * Math.asin(clip(tilted * narrow[q] * narrow[s]));
      }
    }
    return (TWO_OVER_PI ** 2 * sum) / Math.sqrt(determinant);
  },
};
