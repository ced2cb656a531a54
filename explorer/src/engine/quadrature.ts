/** Gauss–Legendre nodes and weights on [0, 1]. */
export function legendre(order: number): { node: number[]; weight: number[] } {
  const node: number[] = [];
  const weight: number[] = [];
  for (let i = 0; i < order; i++) {
    let x = Math.cos((Math.PI * (i + 0.75)) / (order + 0.5));
    let slope = 0;
    for (let change = 1; Math.abs(change) > 1e-15; ) {
      let before = 1;
      let now = x;
      for (let n = 2; n <= order; n++) [before, now] = [now, ((2 * n - 1) * x * now - (n - 1) * before) / n];
      slope = (order * (x * now - before)) / (x * x - 1);
      change = now / slope;
      x -= change;
    }
    node.push((1 - x) / 2);
    weight.push(1 / ((1 - x * x) * slope * slope));
  }
  return { node, weight };
}
