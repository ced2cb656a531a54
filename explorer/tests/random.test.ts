/** Random numbers, χ² quantiles and starts: the same as in Python. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { normals, stream, threefry } from "../src/engine/random";
import { chiSquareQuantile, erf, upperTail } from "../src/engine/special";
import { identity } from "../src/engine/matrix";
import { randomOverlaps } from "../src/engine/start";
import { GramFactor } from "../src/engine/wishart";
import { close, reference } from "./reference";

const numbers = reference("random");

test("the hash gives its published values", () => {
  assert.deepEqual(threefry([0, 0], 0, 0), [0x6b200159, 0x99ba4efe]);
  assert.deepEqual(threefry([0xffffffff, 0xffffffff], 0xffffffff, 0xffffffff), [0x1cb996fc, 0xbb002be7]);
  assert.deepEqual(threefry([0x13198a2e, 0x03707344], 0x243f6a88, 0x85a308d3), [0xc4923a9c, 0x483df7a0]);
});

test("normals are those of Python", () => {
  for (const { seed, role, values } of numbers.normals) {
    values.forEach((expected, run) => {
      const out = new Float64Array(expected.length);
      normals(stream(seed, role, run), 0, out.length, out);
      close(out, expected, 1e-12, `seed ${seed}, role ${role}, run ${run}`);
    });
  }
});

test("normals from an offset are those of one long draw", () => {
  const key = stream(4, 1);
  const whole = new Float64Array(50);
  const part = new Float64Array(20);
  normals(key, 7, 50, whole);
  normals(key, 7, 20, part, 30);
  assert.deepEqual([...part], [...whole.slice(30)]);
});

test("erf and the normal tail agree with their integrals", () => {
  const simpson = (f: (x: number) => number, from: number, to: number): number => {
    const n = 20_000;
    const h = (to - from) / n;
    let sum = f(from) + f(to);
    for (let i = 1; i < n; i++) sum += (i % 2 ? 4 : 2) * f(from + i * h);
    return (sum * h) / 3;
  };
  for (const x of [0, 1e-3, 0.3, 1, 2.2, 4]) {
    const expected = (2 / Math.sqrt(Math.PI)) * simpson((t) => Math.exp(-t * t), 0, x);
    close(erf(x), expected, 1e-14, `erf(${x})`);
    close(erf(-x), -erf(x), 1e-15, `erf(−${x})`);
  }
  for (const x of [0, 1, 3, 6, 8.2]) {
    const expected = simpson((t) => Math.exp(-t * t / 2), x, x + 12) / Math.sqrt(2 * Math.PI);
    assert.ok(Math.abs(upperTail(x) / expected - 1) < 1e-10, `Φ(−${x})`);
  }
});

test("χ² quantiles are those of Python", () => {
  for (const { n, x, values } of numbers.quantiles) {
    x.forEach((point, i) => {
      const found = chiSquareQuantile(n, point);
      assert.ok(Math.abs(found / values[i] - 1) < 1e-11, `n = ${n}, x = ${point}: ${found} instead of ${values[i]}`);
    });
  }
});

test("χ² variables have their first three moments, for few and for many degrees of freedom", () => {
  const count = 40_000;
  for (const n of [70, 1000, 1e6, 1e9]) {
    const factor = new GramFactor(1, n);
    const x = new Float64Array(1);
    const T = new Float64Array(1);
    const power = [0, 0, 0];
    for (let i = 0; i < count; i++) {
      normals(stream(n, 2), i, 1, x);
      factor.build(x, T);
      const z = (T[0] * T[0] - n) / Math.sqrt(2 * n);
      for (let m = 0; m < 3; m++) power[m] += z ** (m + 1) / count;
    }
    // standard errors of the three moments of a nearly normal variable: 1, √2, √15 over √count
    const skewness = Math.sqrt(8 / n);
    [0, 1, skewness].forEach((expected, m) => {
      const error = Math.sqrt([1, 2 + 12 / n, 15 + 400 / n][m] / count);
      assert.ok(Math.abs(power[m] - expected) < 4.5 * error, `n = ${n}, moment ${m + 1}: ${power[m]}`);
    });
  }
});

test("random starts are those of Python", () => {
  for (const { p, k, dim, law, Q, M } of numbers.starts) {
    Q.forEach((expected, run) => {
      const start = randomOverlaps(p, identity(k), dim, law, 3, run);
      close(start.Q, expected, 1e-11, `Q, d = ${dim}, ${law}`);
      close(start.M, M[run], 1e-11, `M, d = ${dim}, ${law}`);
      // and to the same relative accuracy, for they are small in many dimensions
      close(start.M.flat().map((x, i) => x / M[run].flat()[i]), M[run].flat().map(() => 1), 1e-9, "M, relative");
    });
  }
});
