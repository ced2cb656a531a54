"""Batches of more samples than neurons, in loops of the processor.

sums over samples, one after the other;    C = LQ[Gᵀ] by reflections of G in memory
"""

from __future__ import annotations

from llvmlite import ir

from twolayer.compiled.batch import Draw, Totals, push
from twolayer.compiled.shape import (
    Matrix,
    Shape,
    UnrolledNumbers,
    UnrolledState,
    reflection,
)
from twolayer.compiled.vector import DOUBLE, Code, Index, Operand, Vector

__all__ = ["Stored", "Sum", "many_samples", "triangle"]


class Sum:
    """A number that a loop adds to."""

    def __init__(self, code: Code) -> None:
        self.code, self._place = code, code.variable(code.constant(0.0))

    @property
    def value(self) -> Vector:
        """The sum so far."""
        return Vector(
            self.code,
            self.code.builder.load(self._place, typ=self.code.type(DOUBLE)),
            DOUBLE,
        )

    def add(self, x: Vector, y: Operand = 1.0) -> None:
        """Add x·y."""
        self.code.builder.store(self.code.fma(x, y, self.value).value, self._place)


class Stored:
    """A matrix in memory with rows of a size, such as G of a batch, one row (n_b) for
    each neuron.

    ``count`` is how many of a row's entries count, all unless a scalar of the function
    says otherwise.
    """

    def __init__(
        self, code: Code, memory: ir.Value, size: int, count: Index | None = None
    ) -> None:
        self.code, self.memory, self.size = code, memory, size
        self.count = size if count is None else count

    def _place(self, j: int, nu: Index) -> ir.Value:
        number = self.code.constant_index(j * self.size)
        return self.code.builder.add(
            number, self.code.constant_index(nu) if isinstance(nu, int) else nu
        )

    def get(self, j: int, nu: Index) -> Vector:
        """Entry of a row."""
        return self.code.load(self.memory, self._place(j, nu), DOUBLE)

    def put(self, x: Vector, j: int, nu: Index) -> None:
        """Set an entry of a row."""
        self.code.store(x, self.memory, self._place(j, nu))

    def product(self, j: int, k: int, first: int) -> Vector:
        """Of two rows, from entry ``first`` on."""
        total = Sum(self.code)
        self.code.loop(
            self.count, lambda nu: total.add(self.get(j, nu), self.get(k, nu)), first
        )
        return total.value

    def add(self, k: int, factor: Vector, j: int, first: int) -> None:
        """Add a multiple of row j to row k, from entry ``first`` on."""

        def one(nu: Index) -> None:
            self.put(self.code.fma(factor, self.get(j, nu), self.get(k, nu)), k, nu)

        self.code.loop(self.count, one, first)


def triangle(code: Code, G: Stored, p: int) -> Matrix:
    """Lower triangular C with C Cᵀ = G Gᵀ of p rows in memory, which are spent."""
    C = [[code.constant(0.0)] * p for _ in range(p)]
    for i in range(p):
        corner = G.get(i, i)
        head, scale = reflection(
            code, corner, code.fma(corner, corner, G.product(i, i, i + 1))
        )
        v, C[i][i] = corner + head, -head
        for k in range(i + 1, p):
            x = G.get(k, i)
            factor = -(scale * code.fma(x, v, G.product(k, i, i + 1)))
            C[k][i] = code.fma(factor, v, x)
            G.add(k, factor, i, i + 1)
    return C


def many_samples(
    code: Code,
    shape: Shape,
    state: UnrolledState,
    numbers: UnrolledNumbers,
    draw: Draw,
    scratch: ir.Value,
) -> Totals:
    """Of more samples than neurons, one after the other."""
    p, n = shape.p, shape.rank + shape.p
    G = Stored(code, scratch, shape.batch)
    along = [[Sum(code) for _ in range(n)] for _ in range(p)]
    second = [Sum(code) for _ in range(p)] if shape.form.trained else []

    def sample(nu: Index) -> None:
        xi = [draw(nu, i) for i in range(shape.used)]
        first, own = push(code, shape, state, xi, numbers.root)
        for j in range(p):
            for i in range(n):
                along[j][i].add(first[j], xi[i])
            G.put(first[j], j, nu)
        for total, x in zip(second, own, strict=True):
            total.add(x)

    code.loop(shape.batch, sample)
    C = triangle(code, G, p)
    return Totals(
        [[total.value for total in row] for row in along],
        C,
        [total.value for total in second],
    )
