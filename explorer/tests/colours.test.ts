/** The colours of both themes: text can be read, and neurons are told apart by those who see fewer colours. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

type Colour = readonly [number, number, number];

const css = readFileSync("src/playground/style.css", "utf-8");
const light = variables(/:root \{([^}]*)\}/);
const themes = { light, dark: { ...light, ...variables(/:root\[data-theme="dark"\] \{([^}]*)\}/) } };

function variables(block: RegExp): Record<string, string> {
  return Object.fromEntries([...block.exec(css)![1].matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map((match) => [match[1], match[2]]));
}

/** Linear red, green and blue. */
function linear(hex: string): Colour {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255).map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
  return [r, g, b];
}

const luminance = ([r, g, b]: Colour): number => 0.2126 * r + 0.7152 * g + 0.0722 * b;

function contrast(x: string, y: string): number {
  const [low, high] = [luminance(linear(x)), luminance(linear(y))].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** What is seen without one kind of cones (Machado, Oliveira and Fernandes 2009, severity 1). */
const SIGHT: Record<string, readonly Colour[]> = {
  full: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

/** Distance in CIE Lab; 2 is just noticeable. */
function distance(x: string, y: string, sight: readonly Colour[]): number {
  const lab = (hex: string): Colour => {
    const c = linear(hex);
    const [r, g, b] = sight.map((row) => Math.min(1, Math.max(0, row.reduce((sum, w, i) => sum + w * c[i], 0))));
    const f = (t: number): number => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116);
    const X = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
    const Y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
    const Z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
    return [116 * Y - 16, 500 * (X - Y), 200 * (Y - Z)];
  };
  const [u, v] = [lab(x), lab(y)];
  return Math.hypot(...u.map((value, i) => value - v[i]));
}

for (const [name, theme] of Object.entries(themes)) {
  test(`text can be read: ${name}`, () => {
    for (const ground of ["paper", "surface", "raised"]) {
      for (const word of ["ink", "muted", "warn", "accent"]) {
        const ratio = contrast(theme[word], theme[ground]);
        assert.ok(ratio >= 4.5, `${word} on ${ground}: ${ratio.toFixed(2)}`);
      }
      for (const word of ["neuron-1", "neuron-2", "neuron-3", "neuron-4", "chain"]) {
        const ratio = contrast(theme[word], theme[ground]);
        assert.ok(ratio >= 3, `${word} on ${ground}: ${ratio.toFixed(2)}`);
      }
    }
    assert.ok(contrast(theme["on-accent"], theme["accent"]) >= 4.5);
  });

  test(`neurons are told apart: ${name}`, () => {
    for (const [sight, matrix] of Object.entries(SIGHT)) {
      for (let i = 1; i <= 4; i++) {
        for (let j = 1; j < i; j++) {
          const away = distance(theme[`neuron-${i}`], theme[`neuron-${j}`], matrix);
          assert.ok(away > 18, `${sight}, ${i} and ${j}: ${away.toFixed(1)}`);
        }
      }
    }
  });
}

test("red and green are not", () => {
  assert.ok(distance("#c44e52", "#6f7f3f", SIGHT["deuteranopia"]) < 18);
});
