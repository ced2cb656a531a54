/**
 * σ(x) = max(x, 0): two- and three-point averages in closed form, the four-point one by a 1-d quadrature.
 *
 *     E[σσ] = √(C11 C22) (sin θ + (π−θ) cos θ)/2π      E[σ'σ'] = (π−θ)/2π      E[σ''(1)σ(2)] = √(C11 C22 − C12²)/(2π C11)
 *     E[H1 H2 σ3 σ4] = C34 P4 + Σ_q Σ_{s≠q} C3q (C4s − Cqs C4q/Cqq) F_qs
 *
 * with θ the angle between the fields, F_qs = density of (h_q, h_s) at 0 times the probability that the other two are
 * positive there, and P4 the orthant probability, an integral over correlation matrices 1 + t(R − 1):
 *
 *     P4 = 1/16 + ∫₀¹ Σ_{q<s} r_qs/(2π√(1 − t² r_qs²)) · P(the other two > 0 | h_q = h_s = 0; t) dt
 *
 * A Heaviside on a field that also carries a rectifier drops out, and so does a repeated one; what is left has two, three or four
 * different fields.
 */
import { legendre } from "../quadrature";
import type { Forms } from "./ridge";

const TWO_PI = 2 * Math.PI;
const PANEL = 8; // nodes of a panel
const FINEST = 24; // panels, less one
const SINGULAR = 1e-14; // squared sines and eigenvalues below this are rounding: coincident fields
const clip = (x: number): number => Math.min(1, Math.max(-1, x));

/** P(x > 0, y > 0); ¼ when one of them has no variance left (half of the mass on either side). */
function bothPositive(v1: number, v2: number, c: number): number {
  return v1 > 1e-11 && v2 > 1e-11 ? 0.25 + Math.asin(clip(c / Math.sqrt(v1 * v2))) / TWO_PI : 0.25;
}

/** The six ways to take two of four fields, (q, s), with the two that are left, (m, n); as places in a 4 × 4 matrix. */
const SPLITS = [
  [0, 1, 2, 3], [0, 2, 1, 3], [0, 3, 1, 2], [1, 2, 0, 3], [1, 3, 0, 2], [2, 3, 0, 1],
].map(([q, s, m, n]) => ({ qs: 4 * q + s, qm: 4 * q + m, qn: 4 * q + n, sm: 4 * s + m, sn: 4 * s + n, mn: 4 * m + n }));

type Split = (typeof SPLITS)[number];

/**
 * Probability that the other two fields are positive given that two vanish; correlations t·r off the diagonal.
 *
 * Written in differences of correlations, so that fields that nearly coincide keep their digits.
 */
function restPositive(r: Float64Array, t: number, at: Split): number {
  const sign = r[at.qs] < 0 ? -t : t; // a field and its negative vanish together
  const c = sign * r[at.qs];
  const qm = t * r[at.qm];
  const qn = t * r[at.qn];
  const sm = sign * r[at.sm];
  const sn = sign * r[at.sn];
  const determinant = Math.max((1 - c) * (1 + c), SINGULAR);
  const m = qm - sm;
  const n = qn - sn;
  return bothPositive(
    1 - (m * m + 2 * (1 - c) * qm * sm) / determinant,
    1 - (n * n + 2 * (1 - c) * qn * sn) / determinant,
    t * r[at.mn] - (m * n + (1 - c) * (qm * sn + sm * qn)) / determinant,
  );
}

/** Nodes t = sin(πu/2), which takes the square root out of the densities, and their weights. */
interface Rule {
  readonly t: Float64Array;
  readonly weight: Float64Array;
}

/** Gauss–Legendre on panels [0, ½], [½, ¾], …, [1 − 2^(−m), 1] of u. */
function graded(m: number): Rule {
  const { node, weight } = legendre(PANEL);
  const edges = [0, ...Array.from({ length: m }, (_, i) => 1 - 2 ** -(i + 1)), 1];
  const u = edges.slice(1).flatMap((end, i) => node.map((x) => edges[i] + (end - edges[i]) * x));
  const du = edges.slice(1).flatMap((end, i) => weight.map((w) => (end - edges[i]) * w));
  return {
    t: Float64Array.from(u, (x) => Math.sin((Math.PI / 2) * x)),
    weight: Float64Array.from(u, (x, i) => (Math.PI / 2) * Math.cos((Math.PI / 2) * x) * du[i]),
  };
}

const RULES = Array.from({ length: FINEST + 1 }, (_, m) => graded(m));

/**
 * The rule that resolves the integrand: it is singular where 1 + t(R − 1) is, at u − 1 ≈ √λ with λ the smallest
 * eigenvalue of R, and λ > det R · 27/64.
 */
function ruleFor(r: Float64Array): Rule {
  const [ab, ac, ad, bc, bd, cd] = [r[1], r[2], r[3], r[6], r[7], r[11]];
  // Schur complement of the first field
  const [bb, cc, dd] = [1 - ab * ab, 1 - ac * ac, 1 - ad * ad];
  const [BC, BD, CD] = [bc - ab * ac, bd - ab * ad, cd - ac * ad];
  const determinant = bb * (cc * dd - CD * CD) - BC * (BC * dd - CD * BD) + BD * (BC * CD - cc * BD);
  const lowest = Math.max((determinant * 27) / 64, SINGULAR);
  return RULES[Math.min(FINEST, Math.max(1, Math.ceil(-Math.log2(lowest) / 2)))];
}

/** P(h1, h2, h3, h4 > 0) from the correlations r (4 × 4, flat). */
function orthant(r: Float64Array): number {
  const { t, weight } = ruleFor(r);
  let total = 1 / 16;
  for (const at of SPLITS) {
    const rho = r[at.qs];
    if (rho === 0) continue;
    let sum = 0;
    for (let i = 0; i < t.length; i++) {
      const c = t[i] * rho;
      sum += (weight[i] * restPositive(r, t[i], at)) / Math.sqrt(Math.max((1 - c) * (1 + c), SINGULAR));
    }
    total += (rho * sum) / TWO_PI;
  }
  return total;
}

/** Coefficient of F_qs, both orders, when the fields of correlations (mq, ms) and (nq, ns) carry the rectifiers. */
function boundary(qs: number, mq: number, ms: number, nq: number, ns: number): number {
  return mq * (ns - qs * nq) + ms * (nq - qs * ns);
}

const index = new Int32Array(4);
const correlation = new Float64Array(16);

/** Correlations of the first `count` fields in `index`. */
function correlate(omega: Float64Array, n: number, count: number): void {
  for (let x = 0; x < count; x++) {
    correlation[4 * x + x] = 1;
    for (let y = 0; y < x; y++) {
      const i = index[x];
      const j = index[y];
      const r = clip(omega[i * n + j] / Math.sqrt(omega[i * n + i] * omega[j * n + j]));
      correlation[4 * x + y] = correlation[4 * y + x] = r;
    }
  }
}

/** E[H(h1) H(h2) σ(h3) σ(h4)] of unit fields with the present correlations. */
function four(): number {
  const r = correlation;
  let total = r[4 * 2 + 3] * orthant(r);
  for (const at of SPLITS) {
    const q = at.qs >> 2;
    const s = at.qs & 3;
    const determinant = Math.max((1 - r[at.qs]) * (1 + r[at.qs]), SINGULAR);
    const weight = boundary(r[at.qs], r[8 + q], r[8 + s], r[12 + q], r[12 + s]);
    total += (weight * restPositive(r, 1, at)) / (TWO_PI * Math.sqrt(determinant));
  }
  return total;
}

/** E[H(h0) H(h1) H(h2) h_m h_n] of unit fields with the present correlations: three fields of which m, n are rectified. */
function three(m: number, n: number): number {
  const r = correlation;
  let total = (r[4 * m + n] * (Math.PI / 2 + Math.asin(r[1]) + Math.asin(r[2]) + Math.asin(r[6]))) / (4 * Math.PI);
  for (let q = 0; q < 3; q++) {
    for (let s = q + 1; s < 3; s++) {
      const qs = r[4 * q + s];
      const weight = boundary(qs, r[4 * m + q], r[4 * m + s], r[4 * n + q], r[4 * n + s]);
      total += weight / (2 * TWO_PI * Math.sqrt(Math.max((1 - qs) * (1 + qs), SINGULAR)));
    }
  }
  return total;
}

/** √(C11 C22) sin θ and θ. */
function angle(c11: number, c12: number, c22: number): readonly [number, number] {
  const sine = Math.sqrt(Math.max(c11 * c22 - c12 * c12, 0));
  return [sine, Math.atan2(sine, c12)];
}

const TWINS = 5e-9; // fields at an angle below 1e-4

/** 1 if two fields are one up to a factor and a small angle, −1 if they are opposite, 0 otherwise. */
function likeness(omega: Float64Array, n: number, i: number, j: number): number {
  if (i === j) return 1;
  const r = omega[i * n + j] / Math.sqrt(omega[i * n + i] * omega[j * n + j]);
  return r > 1 - TWINS ? 1 : r < TWINS - 1 ? -1 : 0;
}

/**
 * E[H_j H_l σ_q σ_s] of four fields, any of which may be the same one.
 *
 * A Heaviside drops out beside a rectifier of nearly the same field: where their signs differ, at an angle θ, the
 * rectifier is of order θ, so the error is of order θ² and far below that of differences of nearly equal terms.
 */
function expectation(omega: Float64Array, n: number, j: number, l: number, q: number, s: number): number {
  const [jq, js, lq, ls] = [likeness(omega, n, j, q), likeness(omega, n, j, s), likeness(omega, n, l, q), likeness(omega, n, l, s)];
  if (jq < 0 || js < 0 || lq < 0 || ls < 0) return 0; // a rectifier where its field is negative
  const needJ = jq === 0 && js === 0;
  const needL = lq === 0 && ls === 0 && l !== j;
  const vq = omega[q * n + q];
  const vs = omega[s * n + s];
  if (needJ && needL) {
    index[0] = j;
    index[1] = l;
    index[2] = q;
    index[3] = s;
    correlate(omega, n, q === s ? 3 : 4);
    return Math.sqrt(vq * vs) * (q === s ? three(2, 2) : four());
  }
  const one = needJ ? j : l; // the only Heaviside left, if there is one
  if (needJ || needL) {
    if (q === s) {
      const [, theta] = angle(omega[one * n + one], omega[one * n + q], vq);
      return (vq * (Math.PI - theta + Math.sin(theta) * Math.cos(theta))) / TWO_PI;
    }
    index[0] = one;
    index[1] = q;
    index[2] = s;
    correlate(omega, n, 3);
    return Math.sqrt(vq * vs) * three(1, 2);
  }
  if (q === s) return vq / 2;
  const c = omega[q * n + s];
  const [sine, theta] = angle(vq, c, vs);
  return (sine + (Math.PI - theta) * c) / TWO_PI;
}

export const RELU: Forms = {
  pair(c11, c12, c22, out) {
    const [sine, theta] = angle(c11, c12, c22);
    const obtuse = Math.PI - theta;
    out.ff = (sine + obtuse * c12) / TWO_PI;
    out.dd = obtuse / TWO_PI;
    out.hd = sine / (TWO_PI * c11);
  },

  fourPoint(omega, n, c, j, l) {
    let sum = 0;
    for (let q = 0; q < n; q++) {
      if (c[q] === 0) continue;
      for (let s = q; s < n; s++) {
        if (c[s] !== 0) sum += (q === s ? 1 : 2) * c[q] * c[s] * expectation(omega, n, j, l, q, s);
      }
    }
    return sum;
  },
};
