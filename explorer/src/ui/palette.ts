/**
 * The visual language. Neurons have a colour and a marker, directions a dash: no line is told apart by colour alone.
 * The colours are near those of Okabe and Ito, darker on paper and lighter on black, moved until nobody confuses them
 * (tests/colours.test.ts); they stand in style.css.
 * Theory is a line, simulation is marks with a band.
 */

export interface Colours {
  readonly ink: string;
  readonly muted: string;
  readonly grid: string;
  readonly surface: string;
  readonly chain: string;
  readonly neurons: readonly string[];
}

export const DASHES: readonly (readonly number[])[] = [[], [9, 4], [2, 3], [9, 3, 2, 3]];

export type Marker = "circle" | "square" | "triangle" | "diamond" | "star";
export const MARKERS: readonly Marker[] = ["circle", "square", "triangle", "diamond"];

/** The colours of the present theme. */
export function colours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: get("ink"),
    muted: get("muted"),
    grid: get("grid"),
    surface: get("surface"),
    chain: get("chain"),
    neurons: [1, 2, 3, 4].map((j) => get(`neuron-${j}`)),
  };
}

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
export const MATH = "KaTeX_Math, 'Latin Modern Math', 'Times New Roman', serif";

const CORNERS: Readonly<Record<Exclude<Marker, "circle">, readonly (readonly [number, number])[]>> = {
  square: [[-0.88, -0.88], [0.88, -0.88], [0.88, 0.88], [-0.88, 0.88]],
  triangle: [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]],
  diamond: [[0, -1.3], [1.15, 0], [0, 1.3], [-1.15, 0]],
  star: Array.from({ length: 10 }, (_, i) => {
    const [size, angle] = [i % 2 ? 0.62 : 1.55, (Math.PI * i) / 5];
    return [size * Math.sin(angle), -size * Math.cos(angle)] as const;
  }),
};

/** The outline of a marker of radius r. */
export function outline(marker: Marker, x: number, y: number, r: number): Path2D {
  const path = new Path2D();
  if (marker === "circle") path.arc(x, y, r, 0, 2 * Math.PI);
  else {
    CORNERS[marker].forEach(([u, v], i) => (i === 0 ? path.moveTo(x + r * u, y + r * v) : path.lineTo(x + r * u, y + r * v)));
    path.closePath();
  }
  return path;
}
