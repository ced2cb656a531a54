"""What the samples of a batch add up to, in vector instructions.

    ḡ ξᵀ in the basis (ξ*, ξ⊥),    C with C Cᵀ = Gᵀ G / n_b²,    mean of e σ(λ)        (equations/orthogonal.py)

Up to p samples are written out; more are looped over, and their G is brought to p columns by reflections in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twolayer.compiled.calculus import value_and_slope, value_of
from twolayer.compiled.shape import Matrix, Numbers, Row, Shape, State, dot, reflection
from twolayer.compiled.vector import DOUBLE, Code, Vector

__all__ = ["Draw", "Totals", "batch_totals"]

Draw = Callable[[Any, int], Vector]
"""Normal number i of a sample."""


class Totals(NamedTuple):
    """Means of g ξᵀ (p, r + p) and of e σ(λ) (p, where the second layer moves), and C (p, min(p, n_b))."""

    along: Matrix
    C: Matrix
    second: Row


def batch_totals(code: Code, shape: Shape, state: State, numbers: Numbers, draw: Draw, scratch: Any) -> Totals:
    """The totals of a batch; ``scratch`` is room for its G where it has more samples than neurons."""
    if shape.batch <= shape.p:
        return few_samples(code, shape, state, numbers, draw)
    return many_samples(code, shape, state, numbers, draw, scratch)


def push(code: Code, shape: Shape, state: State, xi: Row, root: Vector) -> tuple[Row, Row]:
    """g and e σ(λ) of one sample."""
    W, a = state
    r, n = shape.rank, shape.rank + shape.p
    target = []
    for row in shape.frame:
        parts = [x if c == 1.0 else x * c for x, c in zip(xi[:r], row, strict=True) if c]
        target.append(sum(parts[1:], parts[0]) if parts else code.constant(0.0))
    e = value_of(code, shape.target, target)
    if shape.noisy:
        e = code.fma(root, xi[n], e)
    fields = [dot(code, w, xi[:n]) for w in W]
    pairs = [value_and_slope(code, shape.activation, field) for field in fields]
    if shape.student:
        f = dot(code, a, [value for value, _ in pairs])
        e = code.fma(f, -shape.student / shape.p, e)
    weighted = e if shape.batch == 1 else e * (1.0 / shape.batch)
    first = [x * slope * weighted for x, (_, slope) in zip(a, pairs, strict=True)]
    return first, [value * weighted for value, _ in pairs] if shape.form.trained else []


def few_samples(code: Code, shape: Shape, state: State, numbers: Numbers, draw: Draw) -> Totals:
    """Of at most as many samples as neurons: C = Gᵀ."""
    p, n = shape.p, shape.rank + shape.p
    draws = [[draw(nu, i) for i in range(shape.used)] for nu in range(shape.batch)]
    pushes = [push(code, shape, state, xi, numbers.root) for xi in draws]
    C = [[g[j] for g, _ in pushes] for j in range(p)]
    along = [[dot(code, C[j], [xi[i] for xi in draws]) for i in range(n)] for j in range(p)]
    second = [sum((s[j] for _, s in pushes[1:]), pushes[0][1][j]) for j in range(p)] if shape.form.trained else []
    return Totals(along, C, second)


class Sum:
    """A number that a loop adds to."""

    def __init__(self, code: Code) -> None:
        self.code, self._place = code, code.variable(code.constant(0.0))

    @property
    def value(self) -> Vector:
        """The sum so far."""
        return Vector(self.code, self.code.builder.load(self._place, typ=self.code.type(DOUBLE)), DOUBLE)

    def add(self, x: Vector, y: Any = 1.0) -> None:
        """Add x·y."""
        self.code.builder.store(self.code.fma(x, y, self.value).value, self._place)


class Stored:
    """G of a batch in memory, one row (n_b) for each neuron."""

    def __init__(self, code: Code, memory: Any, size: int) -> None:
        self.code, self.memory, self.size = code, memory, size

    def _place(self, j: int, nu: Any) -> Any:
        number = self.code.constant_index(j * self.size)
        return self.code.builder.add(number, self.code.constant_index(nu) if isinstance(nu, int) else nu)

    def get(self, j: int, nu: Any) -> Vector:
        """Entry of a row."""
        return self.code.load(self.memory, self._place(j, nu), DOUBLE)

    def put(self, x: Vector, j: int, nu: Any) -> None:
        """Set an entry of a row."""
        self.code.store(x, self.memory, self._place(j, nu))

    def product(self, j: int, k: int, first: int) -> Vector:
        """Of two rows, from sample ``first`` on."""
        total = Sum(self.code)
        self.code.loop(self.size, lambda nu: total.add(self.get(j, nu), self.get(k, nu)), first)
        return total.value

    def add(self, k: int, factor: Vector, j: int, first: int) -> None:
        """Add a multiple of row j to row k, from sample ``first`` on."""

        def one(nu: Any) -> None:
            self.put(self.code.fma(factor, self.get(j, nu), self.get(k, nu)), k, nu)

        self.code.loop(self.size, one, first)


def many_samples(code: Code, shape: Shape, state: State, numbers: Numbers, draw: Draw, scratch: Any) -> Totals:
    """Of more samples than neurons, one after the other."""
    p, n = shape.p, shape.rank + shape.p
    G = Stored(code, scratch, shape.batch)
    along = [[Sum(code) for _ in range(n)] for _ in range(p)]
    second = [Sum(code) for _ in range(p)] if shape.form.trained else []

    def sample(nu: Any) -> None:
        xi = [draw(nu, i) for i in range(shape.used)]
        first, own = push(code, shape, state, xi, numbers.root)
        for j in range(p):
            for i in range(n):
                along[j][i].add(first[j], xi[i])
            G.put(first[j], j, nu)
        for total, x in zip(second, own, strict=True):
            total.add(x)

    code.loop(shape.batch, sample)
    C = [[code.constant(0.0)] * p for _ in range(p)]
    for i in range(p):
        corner = G.get(i, i)
        head, scale = reflection(code, corner, code.fma(corner, corner, G.product(i, i, i + 1)))
        v, C[i][i] = corner + head, -head
        for k in range(i + 1, p):
            x = G.get(k, i)
            factor = -(scale * code.fma(x, v, G.product(k, i, i + 1)))
            C[k][i] = code.fma(factor, v, x)
            G.add(k, factor, i, i + 1)
    return Totals([[total.value for total in row] for row in along], C, [total.value for total in second])
