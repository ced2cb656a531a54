/**
 * Error function and χ² quantiles.
 *
 *     erfc(x) = e^{−x²} R(x),   (1 + 2x) R(x) a polynomial in (x − 3.75)/(x + 3.75)         relative error 4e-16
 *     quantile of χ²_n at probability Φ(x):  Newton on the incomplete gamma function for n < 10⁴, beyond it the
 *     Cornish–Fisher series, which is then exact to 1e-11
 */

const SCALED_ERFC = [
  1.2375126308378275, -0.14024059858554522, 0.0035854154854663067, 0.08227673848999159, -0.10880393014193915,
  0.09230432116435616, -0.058693398584491845, 0.028362277371370044, -0.00974657962081509, 0.0017556261692276722,
  0.00029371408777227685, -0.0002901553656394713, 5.164737123871838e-5, 2.238759272534769e-5, -1.143961526007595e-5,
  -9.79297529099823e-7, 1.7438577411359181e-6, -5.0816911811698186e-8, -2.4996538037405243e-7, 1.8778501156468795e-8,
  3.256499083798513e-8, -1.952790162974837e-9, -2.7293941332533855e-9,
];

/** e^{x²} erfc(x) for x ≥ 0. */
function scaledErfc(x: number): number {
  const t = (x - 3.75) / (x + 3.75);
  let sum = 0;
  for (let i = SCALED_ERFC.length - 1; i >= 0; i--) sum = sum * t + SCALED_ERFC[i];
  return sum / (1 + 2 * x);
}

/** Error function; absolute error 4e-16. */
export function erf(x: number): number {
  const size = Math.abs(x);
  const value = 1 - Math.exp(-size * size) * scaledErfc(size);
  return x < 0 ? -value : value;
}

/** Φ(−x) for x ≥ 0, to full relative accuracy. */
export function upperTail(x: number): number {
  return 0.5 * Math.exp((-x * x) / 2) * scaledErfc(x / Math.SQRT2);
}

/** x^a e^{−x}/Γ(a + 1) by its distance from the saddle point, without cancellation for large a. */
function poisson(a: number, x: number): number {
  const series = 1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / (1188 * a * a)) / (a * a)) / (a * a)) / (a * a);
  const u = (x - a) / a;
  return Math.exp(-a * excess(u) - series / a) / Math.sqrt(2 * Math.PI * a);
}

/** u − log(1 + u), by its series where u is small. */
function excess(u: number): number {
  if (Math.abs(u) > 0.1) return u - Math.log1p(u);
  let sum = 0;
  for (let n = 18; n >= 2; n--) sum = (n % 2 ? -1 : 1) / n + u * sum;
  return u * u * sum;
}

/** Lower (x < a) or upper tail of the gamma law of shape a ≥ 32, and its density. */
function gammaTail(a: number, x: number, lower: boolean): { tail: number; density: number } {
  const point = poisson(a, x);
  if (lower) {
    let sum = 1;
    let term = 1;
    for (let n = 1; term > 1e-17 * sum; n++) {
      term *= x / (a + n);
      sum += term;
    }
    return { tail: point * sum, density: (point * a) / x };
  }
  // continued fraction of Γ(a, x), from the front (Lentz)
  let b = x + 1 - a;
  let c = 1e300;
  let d = 1 / b;
  let value = d;
  for (let n = 1; n < 10_000; n++) {
    const step = -n * (n - a);
    b += 2;
    d = 1 / (step * d + b);
    c = b + step / c;
    value *= d * c;
    if (Math.abs(d * c - 1) < 1e-16) break;
  }
  return { tail: point * a * value, density: (point * a) / x };
}

/** Quantile of χ²_n at probability Φ(x), n ≥ 64. */
export function chiSquareQuantile(n: number, x: number): number {
  if (n < 10_000) {
    const lower = x < 0;
    const logWanted = Math.log(upperTail(Math.abs(x)));
    const a = n / 2;
    const c = 2 / (9 * n);
    let value = a * (1 - c + x * Math.sqrt(c)) ** 3; // Wilson–Hilferty
    for (let i = 0; i < 50; i++) {
      // Newton on the logarithm of the tail, which is concave and nearly straight far out
      const { tail, density } = gammaTail(a, value, lower);
      const change = ((Math.log(tail) - logWanted) * tail) / density;
      value -= lower ? change : -change;
      if (Math.abs(change) < 1e-14 * value) break;
    }
    return 2 * value;
  }
  const s = Math.sqrt(2 * n);
  const x2 = x * x;
  return (
    n +
    s * x +
    (2 / 3) * (x2 - 1) +
    (x * (x2 - 7)) / (9 * s) -
    ((6 * x2 + 14) * x2 - 32) / (405 * n) +
    (x * ((9 * x2 + 256) * x2 - 433)) / (4860 * Math.SQRT2 * n ** 1.5) +
    (((12 * x2 - 243) * x2 - 923) * x2 + 1472) / (25515 * n * n) -
    (x * (((3753 * x2 + 4353) * x2 - 289517) * x2 - 289717)) / (9185400 * Math.SQRT2 * n ** 2.5)
  );
}
