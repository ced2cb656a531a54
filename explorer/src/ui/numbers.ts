/** Numbers as they are shown. */

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

export function superscript(n: number): string {
  const digits = [...String(Math.abs(n))].map((digit) => SUPERSCRIPT[Number(digit)]).join("");
  return (n < 0 ? "⁻" : "") + digits;
}

/** A number in few characters: 0.0312, 1.2×10⁻⁵, 10⁶, −0.4. */
export function short(x: number, digits = 3): string {
  if (x === 0) return "0";
  if (!Number.isFinite(x)) return "–";
  const exponent = Math.floor(Math.log10(Math.abs(x)) + 1e-12);
  if (exponent < -3 || exponent >= 5) {
    const mantissa = Number((x / 10 ** exponent).toPrecision(digits));
    const power = `10${superscript(exponent)}`;
    return (mantissa === 1 ? power : mantissa === -1 ? `−${power}` : `${mantissa}×${power}`).replace(/^-/, "−");
  }
  return String(Number(x.toPrecision(digits))).replace(/^-/, "−");
}

/** An overlap with two decimals, so that a column of them does not jump. */
export function fixed(x: number, decimals = 2): string {
  if (!Number.isFinite(x)) return "–";
  if (Math.abs(x) >= 100) return short(x, 2);
  const text = x.toFixed(decimals);
  return Number(text) === 0 ? (0).toFixed(decimals) : text.replace("-", "−");
}

/** A mean and its standard error, with as many digits as the error has meaning: 0.0914 ± 0.0013. */
export function measured(mean: number, error: number): string {
  if (!(error > 0)) return short(mean);
  const exponent = Math.floor(Math.log10(Math.max(Math.abs(mean), error)));
  const scale = exponent < -3 || exponent >= 5 ? 10 ** exponent : 1;
  const decimals = Math.max(0, 1 - Math.floor(Math.log10(error / scale)));
  const pair = `${(mean / scale).toFixed(decimals)} ± ${(error / scale).toFixed(decimals)}`.replaceAll("-", "−");
  return scale === 1 ? pair : `(${pair})×10${superscript(exponent)}`;
}

/** A number as it is typed: 0.25, 500, 1e9. */
export function typed(x: number): string {
  return Math.abs(x) >= 1e6 ? x.toExponential().replace("+", "") : String(x);
}

/** A duration in words. */
export function duration(seconds: number): string {
  if (seconds < 1) return "under a second";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h`;
  return `${short(seconds / 86_400, 2)} days`;
}

/** A whole number with thin spaces between thousands. */
export function count(n: number): string {
  return n >= 1e7 ? short(n) : String(Math.round(n)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
}
