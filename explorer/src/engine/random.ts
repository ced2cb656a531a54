/**
 * A counter-based generator: every random number is a function of (seed, role, run, step, index).
 *
 *     bits(key, (step, index)) = Threefry-2x32-20,    normal = Φ⁻¹(52-bit uniform)
 *
 * The same hash, the same bits and the same roles as in the Python package, so that the same seed gives the same normals
 * there to 1e-12. Nothing is carried from draw to draw: cutting a run into pieces, or running its
 * seeds in several workers, changes no number. No function of the platform's own is used but the square root, which
 * is exact, so all browsers draw the same numbers.
 */

export const Role = { fields: 1, orthogonal: 2, start: 3 } as const;

/** Two words. */
export type Key = readonly [number, number];

const PARITY = 0x1bd11bda;

const bits = new Int32Array(2);

/** Threefry-2x32 with 20 rounds; the two words of the result stand in `bits`. */
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
  bits[0] = (x + k2) | 0;
  bits[1] = (y + k0 + 5) | 0;
}

/** Threefry-2x32-20 of two words of key and two of counter, as unsigned words. */
export function threefry(key: Key, high: number, low: number): Key {
  hash(key[0] | 0, key[1] | 0, high | 0, low | 0);
  return [bits[0] >>> 0, bits[1] >>> 0];
}

/** Key of the stream for a seed (an integer below 2⁵³), a role and a run. */
export function stream(seed: number, role: number, run = 0): Key {
  return threefry([Math.floor(seed / 2 ** 32), seed % 2 ** 32], role, run);
}

// Φ⁻¹ by the rational functions of M. J. Wichura (Algorithm AS 241, Applied Statistics 37, 477 (1988)): in the centre of
// q² with q = u − ½, in the tails of √(−log u). Relative error 1e-16.

function centre(q: number): number {
  const r = 0.180625 - q * q;
  const above = (((((((2509.0809287301227 * r + 33430.57558358813) * r + 67265.7709270087) * r + 45921.95393154987) * r
    + 13731.69376550946) * r + 1971.5909503065513) * r + 133.14166789178438) * r + 3.3871328727963665);
  const below = (((((((5226.495278852854 * r + 28729.085735721943) * r + 39307.89580009271) * r + 21213.794301586597) * r
    + 5394.196021424751) * r + 687.1870074920579) * r + 42.31333070160091) * r + 1);
  return (q * above) / below;
}

function tail(root: number): number {
  if (root <= 5) {
    const r = root - 1.6;
    const above = (((((((7.745450142783414e-4 * r + 0.022723844989269184) * r + 0.2417807251774506) * r
      + 1.2704582524523684) * r + 3.6478483247632045) * r + 5.769497221460691) * r + 4.630337846156546) * r
      + 1.4234371107496835);
    const below = (((((((1.0507500716444169e-9 * r + 5.475938084995345e-4) * r + 0.015198666563616457) * r
      + 0.14810397642748008) * r + 0.6897673349851) * r + 1.6763848301838038) * r + 2.053191626637759) * r + 1);
    return above / below;
  }
  const r = root - 5;
  const above = (((((((2.0103343992922881e-7 * r + 2.7115555687434876e-5) * r + 0.0012426609473880784) * r
    + 0.026532189526576123) * r + 0.2965605718285049) * r + 1.7848265399172913) * r + 5.463784911164114) * r
    + 6.657904643501103);
  const below = (((((((2.0442631033899397e-15 * r + 1.4215117583164459e-7) * r + 1.8463183175100547e-5) * r
    + 7.868691311456133e-4) * r + 0.014875361290850615) * r + 0.1369298809227358) * r + 0.599832206555888) * r + 1);
  return above / below;
}

const HALVES = Float64Array.from({ length: 54 }, (_, n) => 2 ** -n);

/** Log of n/2⁵³, n a positive integer below 2⁵³: its length in bits, and the atanh series of the mantissa. */
function logOfPart(n: number): number {
  const high = (n * 2 ** -32) | 0;
  let length = high > 0 ? 64 - Math.clz32(high) : 32 - Math.clz32(n >>> 0);
  let mantissa = n * HALVES[length];
  if (mantissa < Math.SQRT1_2) {
    mantissa *= 2;
    length -= 1;
  }
  const f = (mantissa - 1) / (mantissa + 1);
  const g = f * f;
  let sum = 1 / 23;
  for (let m = 21; m > 0; m -= 2) sum = sum * g + 1 / m;
  return (length - 53) * Math.LN2 + 2 * f * sum;
}

/** Standard normal from two random words; odd under complementing them; range ±8.21. */
export function quantile(high: number, low: number): number {
  const odd = 2 * ((high >>> 0) * 1048576 + (low >>> 12)) + 1; // u = odd/2⁵³
  const q = odd * 2 ** -53 - 0.5;
  if (q > -0.425 && q < 0.425) return centre(q);
  const size = tail(Math.sqrt(-logOfPart(q < 0 ? odd : 2 ** 53 - odd)));
  return q < 0 ? -size : size;
}

/** Fill out[0 … count − 1] with the normals at counters (step, offset + i). */
export function normals(key: Key, step: number, count: number, out: Float64Array, offset = 0): void {
  const k0 = key[0] | 0;
  const k1 = key[1] | 0;
  for (let i = 0; i < count; i++) {
    hash(k0, k1, step, (offset + i) | 0);
    out[i] = quantile(bits[0], bits[1]);
  }
}
