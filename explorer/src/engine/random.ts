/**
 * A counter-based generator: every random number is a function of (seed, role, run, step, index).
 *
 *     bits(key, (step, index)) = Threefry-2x32-20,    normal = Φ⁻¹(52-bit uniform)
 *
 * The same hash, the same quantile function and the same roles as in the Python package, so that the same seed gives
 * the same normals there to 1e-12. Nothing is carried from draw to draw: cutting a run into pieces, or running its
 * seeds in several workers, changes no number. No function of the platform's own is used but the square root, which
 * is exact, so all browsers draw the same numbers.
 */

export const Role = { fields: 1, orthogonal: 2, start: 3 } as const;

/** Two words. */
export type Key = readonly [number, number];

const PARITY = 0x1bd11bda;

let outHigh = 0;
let outLow = 0;

/** Threefry-2x32 with 20 rounds; the two words of the result stand in outHigh and outLow. */
function hash(k0: number, k1: number, high: number, low: number): void {
  const k2 = k0 ^ k1 ^ PARITY;
  let x = (high + k0) | 0;
  let y = (low + k1) | 0;
  x = (x + y) | 0; y = ((y << 13) | (y >>> 19)) ^ x;
  x = (x + y) | 0; y = ((y << 15) | (y >>> 17)) ^ x;
  x = (x + y) | 0; y = ((y << 26) | (y >>> 6)) ^ x;
  x = (x + y) | 0; y = ((y << 6) | (y >>> 26)) ^ x;
  x = (x + k1) | 0; y = (y + k2 + 1) | 0;
  x = (x + y) | 0; y = ((y << 17) | (y >>> 15)) ^ x;
  x = (x + y) | 0; y = ((y << 29) | (y >>> 3)) ^ x;
  x = (x + y) | 0; y = ((y << 16) | (y >>> 16)) ^ x;
  x = (x + y) | 0; y = ((y << 24) | (y >>> 8)) ^ x;
  x = (x + k2) | 0; y = (y + k0 + 2) | 0;
  x = (x + y) | 0; y = ((y << 13) | (y >>> 19)) ^ x;
  x = (x + y) | 0; y = ((y << 15) | (y >>> 17)) ^ x;
  x = (x + y) | 0; y = ((y << 26) | (y >>> 6)) ^ x;
  x = (x + y) | 0; y = ((y << 6) | (y >>> 26)) ^ x;
  x = (x + k0) | 0; y = (y + k1 + 3) | 0;
  x = (x + y) | 0; y = ((y << 17) | (y >>> 15)) ^ x;
  x = (x + y) | 0; y = ((y << 29) | (y >>> 3)) ^ x;
  x = (x + y) | 0; y = ((y << 16) | (y >>> 16)) ^ x;
  x = (x + y) | 0; y = ((y << 24) | (y >>> 8)) ^ x;
  x = (x + k1) | 0; y = (y + k2 + 4) | 0;
  x = (x + y) | 0; y = ((y << 13) | (y >>> 19)) ^ x;
  x = (x + y) | 0; y = ((y << 15) | (y >>> 17)) ^ x;
  x = (x + y) | 0; y = ((y << 26) | (y >>> 6)) ^ x;
  x = (x + y) | 0; y = ((y << 6) | (y >>> 26)) ^ x;
  outHigh = (x + k2) | 0;
  outLow = (y + k0 + 5) | 0;
}

/** Threefry-2x32-20 of two words of key and two of counter, as unsigned words. */
export function threefry(key: Key, high: number, low: number): Key {
  hash(key[0] | 0, key[1] | 0, high | 0, low | 0);
  return [outHigh >>> 0, outLow >>> 0];
}

/** Key of the stream for a seed (an integer below 2⁵³), a role and a run. */
export function stream(seed: number, role: number, run = 0): Key {
  return threefry([Math.floor(seed / 2 ** 32), seed % 2 ** 32], role, run);
}

// Φ⁻¹ by w = −log(4p(1−p)): central part z·A(w) for w < 6 (z = 1 − 2p), tail B(√w); Chebyshev fits of the quantile
// in powers of the variable scaled to [−1, 1], even and odd powers apart.
const SPLIT = 6.0;
const FIRST = Math.sqrt(SPLIT);
const TAIL_SCALE = 2 / (Math.sqrt(37) - FIRST);
const CENTRAL = [
  2.2960351246249893, 1.0251509839604207, -0.0730345378704469, -0.03192856945695649,
  0.02234452800690859, -0.004370048175903075, -0.0018021231589766284, 0.001391753157874826,
  -0.00021979977627224265, -0.00015218386951590436, 9.276154677050107e-5, -7.874411148763369e-6,
  -1.302710922534827e-5, 6.089939559771365e-6, 4.840719253579095e-8, -1.0825517866305824e-6,
  3.7803199716927614e-7, 6.021194024604795e-8, -8.317534549867005e-8, 1.3601761054698228e-8,
  7.579993664686239e-9, -2.6141611841287214e-9,
];
const TAIL = [
  5.810311451932182, 2.594805530139509, 0.00318680019854578, -0.005020651152833542,
  0.003125560722964845, -0.001578111890472886, 0.0007158499785577669, -0.00029588360025083546,
  0.00010438050118772247, -1.9890503982197078e-5, -1.5480415648978815e-5, 2.3927596339673795e-5,
  -1.7731136650864967e-5, 1.1755110550829835e-5, -8.5655706446514e-6, 6.230754422422296e-7,
  5.770099347996904e-6, -3.0693594529461583e-6, -7.562750562322128e-7, 6.333937831148845e-7,
];
const ATANH = Array.from({ length: 12 }, (_, n) => 1 / (2 * n + 1));

function polynomial(coefficients: readonly number[], x: number): number {
  const square = x * x;
  let even = 0;
  let odd = 0;
  for (let i = coefficients.length - 2; i >= 0; i -= 2) {
    even = even * square + coefficients[i];
    odd = odd * square + coefficients[i + 1];
  }
  return even + x * odd;
}

const double = new Float64Array(1);
const words = new Int32Array(double.buffer); // little-endian, as on every machine that runs a browser
const ROOT_HALF_HIGH = 0x3fe6a09e;

/** Log of a positive normal double: exponent, and atanh series of the mantissa brought to [√½, √2). */
function log(x: number): number {
  double[0] = x;
  const exponent = (words[1] - ROOT_HALF_HIGH) >> 20;
  words[1] -= exponent << 20;
  const mantissa = double[0];
  const f = (mantissa - 1) / (mantissa + 1);
  return exponent * Math.LN2 + 2 * f * polynomial(ATANH, f * f);
}

/** Standard normal from two random words; odd under complementing them; error below 1e-12, range ±8.21. */
export function quantile(high: number, low: number): number {
  const word = (high >>> 0) * 1048576 + (low >>> 12);
  const z = (2 * word + 1) * 2 ** -52 - 1; // exact: odd multiples of 2⁻⁵² in (−1, 1)
  const distance = Math.abs(z);
  const w = -log((1 - distance) * (1 + distance));
  if (w < SPLIT) return z * polynomial(CENTRAL, w * (2 / SPLIT) - 1);
  const tail = polynomial(TAIL, (Math.sqrt(w) - FIRST) * TAIL_SCALE - 1);
  return z < 0 ? -tail : tail;
}

/** Fill out[0 … count − 1] with the normals at counters (step, offset + i). */
export function normals(key: Key, step: number, count: number, out: Float64Array, offset = 0): void {
  const k0 = key[0] | 0;
  const k1 = key[1] | 0;
  for (let i = 0; i < count; i++) {
    hash(k0, k1, step, (offset + i) | 0);
    out[i] = quantile(outHigh, outLow);
  }
}
