"""One step of the chain where inputs have blocks: rows stay in memory, and the
processor loops over blocks.

    λ = Σ_c √s_c W_c ξ_c,    W_c ← κ W_c + η Σ_ν g^ν √s_c ξ_c^ν,
        B⁽ⁱ⁾ ← LQ[ B⁽ⁱ⁾, η √s_i C T⁽ⁱ⁾ ]

The step of equations/orthogonal.py with the coordinates of
equations/block_coordinates.py. Only what happens in one block is written out, so that
code is no longer for more of them and the cost is linear in their number. A plain
matrix T of a small block is made a triangle first, which has the same Gram matrix. A
step reads the rows in one place and writes them to another; what normalises them is a
factor of each, part of the state and applied when they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from twolayer.compiled.batch import Draw, response
from twolayer.compiled.batch_loops import Stored, Sum, triangle
from twolayer.compiled.shape import BlockShape, Matrix, Row, Shape, UnrolledNumbers, dot
from twolayer.compiled.step import factor, lower
from twolayer.compiled.vector import DOUBLE, LONG, Code, Index, Vector
from twolayer.loops.stopping import LIMIT
from twolayer.numerics.wishart import DEGREE

__all__ = ["BlockStep", "TwoPlaces", "scratch_of"]


class MemoryRows:
    """W in memory, coordinate after coordinate: rows of powers of two would fall on
    each other in caches.
    """

    def __init__(self, code: Code, memory: ir.Value, p: int) -> None:
        self.code, self.memory, self.p = code, memory, p

    def _place(self, j: int, c: Index) -> ir.Value:
        b = self.code.builder
        return b.add(
            b.mul(c, self.code.constant_index(self.p)), self.code.constant_index(j)
        )

    def get(self, j: int, c: Index) -> Vector:
        """Entry of a row."""
        return self.code.load(self.memory, self._place(j, c), DOUBLE)

    def put(self, x: Vector, j: int, c: Index) -> None:
        """Set an entry of a row."""
        self.code.store(x, self.memory, self._place(j, c))


def widest(shape: Shape) -> int:
    """Columns of memory for a plain matrix T."""
    return (
        max((shape.rows, *(columns for _, _, columns in shape.blocks.plain)))
        if shape.blocks
        else 0
    )


def scratch_of(shape: Shape) -> tuple[int, ...]:
    """Numbers of a lane that a step needs: G, a copy of it to be spent, T, and the new
    rows.
    """
    G = shape.p * shape.batch
    return (
        G,
        G if shape.batch > shape.p else 0,
        shape.rows * widest(shape),
        shape.p * shape.columns,
    )


def place_of(code: Code, shape: Shape, scratch: ir.Value, part: int) -> ir.Value:
    """Where a part of the scratch begins."""
    return code.place(scratch, sum(scratch_of(shape)[:part]), DOUBLE)


class TwoPlaces:
    """The rows in the state or in the scratch, wherever the last step has put them."""

    def __init__(
        self, code: Code, shape: Shape, state: ir.Value, scratch: ir.Value
    ) -> None:
        self.code, self.shape, self.state = code, shape, state
        both = (state, place_of(code, shape, scratch, 3))
        self._now, self._next = (code.kept(x, ir.PointerType()) for x in both)

    @property
    def rows(self) -> tuple[MemoryRows, MemoryRows]:
        """The rows, and room for new ones."""
        b = self.code.builder
        now, following = (
            MemoryRows(self.code, b.load(x, typ=ir.PointerType()), self.shape.p)
            for x in (self._now, self._next)
        )
        return now, following

    def swap(self) -> None:
        """The new rows are the rows."""
        b = self.code.builder
        now, following = (
            b.load(x, typ=ir.PointerType()) for x in (self._now, self._next)
        )
        b.store(following, self._now)
        b.store(now, self._next)

    def settle(self) -> None:
        """Put the rows into the state."""
        now, state = self.rows[0], MemoryRows(self.code, self.state, self.shape.p)

        def one(c: Index) -> None:
            for j in range(self.shape.p):
                state.put(now.get(j, c), j, c)

        self.code.loop(self.shape.columns, one)


def shared_of(shape: Shape) -> tuple[int, ...]:
    """Numbers that all lanes share: √s of every coordinate, L, √s_i of blocks that are
    not held whole, and tables.
    """
    assert shape.blocks is not None
    tables = shape.blocks.triangular * shape.rows * (DEGREE + 2)
    return (
        shape.columns,
        len(shape.target.names) * shape.rank,
        shape.blocks.count,
        tables,
    )


@dataclass(frozen=True)
class BlockStep:
    """A step under construction."""

    code: Code
    shape: Shape
    W: MemoryRows  # the old rows in memory
    fresh: MemoryRows  # room for the new ones
    lengths: Row  # factors of the old rows
    running: Vector  # lanes that take the step
    shared: ir.Value  # the numbers of `shared_of`, one after the other
    scratch: ir.Value  # and those of `scratch_of`
    draw: Draw  # normals of a sample
    outside: Callable[[Index], Vector]  # and of the factors T

    @property
    def blocks(self) -> BlockShape:
        """What the blocks are."""
        assert self.shape.blocks is not None
        return self.shape.blocks

    def taken(self, a: Row, numbers: UnrolledNumbers) -> tuple[Row, Row, Vector]:
        """Factors of the new rows, the new second layer, and whether all is finite."""
        code, shape = self.code, self.shape
        G, spent = self._matrix(0, shape.batch), self._matrix(1, shape.batch)
        drift, second = self._samples(a, numbers, G, spent)
        C = (
            [[G.get(j, nu) for nu in range(shape.batch)] for j in range(shape.p)]
            if shape.batch <= shape.p
            else []
        )
        keep = [numbers.shrink] * shape.p
        if shape.form.tangent:
            squares = [self._square(j) for j in range(shape.p)]
            keep = [
                k - numbers.step * g / x
                for k, g, x in zip(keep, drift, squares, strict=True)
            ]
        keep = [k * x for k, x in zip(keep, self.lengths, strict=True)]
        size = [Sum(code) for _ in range(shape.p)]

        def moved(c: Index) -> Row:
            pushed = self._along(G, C, c)
            return [
                code.fma(keep[j], self.W.get(j, c), numbers.step * pushed[j])
                for j in range(shape.p)
            ]

        def whole(c: Index) -> None:
            for j, x in enumerate(moved(c)):
                self._put(x, j, c)
                size[j].add(x, x)

        first = shape.columns - shape.p * self.blocks.count
        code.loop(first, whole)
        rows = C or triangle(code, spent, shape.p)

        def one(i: Index, T: Matrix) -> None:
            b = code.builder
            scale = numbers.step * self._shared(2, i)
            begin = b.add(
                code.constant_index(first), b.mul(i, code.constant_index(shape.p))
            )
            places = [b.add(begin, code.constant_index(m)) for m in range(shape.p)]
            inside = [moved(c) for c in places]
            X = []
            for j, row in enumerate(rows):
                beyond = [
                    dot(code, row[l:], [T[m][l] for m in range(l, len(row))])
                    for l in range(len(row))
                ]
                X.append([x[j] for x in inside] + [scale * x for x in beyond])
            for j, new in enumerate(lower(code, X)):
                for m, x in enumerate(new):
                    self._put(x, j, places[m])
                    if m <= j:
                        size[j].add(x, x)

        self._plain(one)
        self._triangular(one)
        return self._finished(a, numbers, [x.value for x in size], second)

    def _put(self, x: Vector, j: int, c: Index) -> None:
        """The new entry of a row, where the lane takes the step."""
        self.fresh.put(self.code.where(self.running, x, self.W.get(j, c)), j, c)

    def overlaps(self, factors: Row) -> Matrix:
        """M of the fields of the new rows."""
        code, shape = self.code, self.shape
        M = [[Sum(code) for _ in shape.target.names] for _ in range(shape.p)]

        def add(c: Index) -> None:
            square = self._shared(0, c) * self._shared(0, c)
            for q in range(len(shape.target.names)):
                weight = square * self._L(q, c)
                for j in range(shape.p):
                    M[j][q].add(self.fresh.get(j, c), weight)

        code.loop(shape.rank, add)
        return [[m.value * x for m in row] for row, x in zip(M, factors, strict=True)]

    def restore(self, lost: Vector) -> None:
        """Put back the old rows of lanes whose new ones are not finite."""

        def one(c: Index) -> None:
            for j in range(self.shape.p):
                self.fresh.put(
                    self.code.where(lost, self.W.get(j, c), self.fresh.get(j, c)), j, c
                )

        self.code.if_any(lost, lambda: self.code.loop(self.shape.columns, one))

    def _finished(
        self, a: Row, numbers: UnrolledNumbers, size: Row, second: Row
    ) -> tuple[Row, Row, Vector]:
        """The rules of step.py for what is finite, and the factors that normalise
        rows.
        """
        code, shape = self.code, self.shape
        normalises = shape.form.normalises
        good = [
            (x > 0.0) & (x < float("inf")) if normalises else x < LIMIT for x in size
        ]
        factors = [
            1.0 / code.sqrt(x) if normalises else code.constant(1.0) for x in size
        ]
        layer = a
        if shape.form.trained:
            layer = [
                code.fma(numbers.step, s, x) for s, x in zip(second, a, strict=True)
            ]
            good += [x * x < LIMIT for x in layer]
        fine = good[0]
        for x in good[1:]:
            fine = fine & x
        return factors, layer, fine

    def _samples(
        self, a: Row, numbers: UnrolledNumbers, G: Stored, spent: Stored
    ) -> tuple[Row, Row]:
        """Fill G and what is to be spent of it; Σ_ν g λ and Σ_ν e σ(λ)."""
        code, shape = self.code, self.shape
        drift, second = ([Sum(code) for _ in range(shape.p)] for _ in range(2))

        def sample(nu: Index) -> None:
            fields = [Sum(code) for _ in range(shape.p)]
            target = [Sum(code) for _ in shape.target.names]

            def along(c: Index) -> Vector:
                x = self._input(nu, c)
                for j, field in enumerate(fields):
                    field.add(self.W.get(j, c), x)
                return x

            def star(c: Index) -> None:
                x = along(c)
                for q, field in enumerate(target):
                    field.add(self._L(q, c), x)

            def beside(c: Index) -> None:
                along(c)

            code.loop(shape.rank, star)
            code.loop(shape.columns, beside, shape.rank)
            noise = self.draw(nu, shape.columns) if shape.noisy else None
            own = [
                x.value * length for x, length in zip(fields, self.lengths, strict=True)
            ]
            g, weighted = response(
                code, shape, a, [x.value for x in target], own, numbers.root, noise
            )
            for j in range(shape.p):
                G.put(g[j], j, nu)
                drift[j].add(g[j], own[j])
                if shape.batch > shape.p:
                    spent.put(g[j], j, nu)
            for total, x in zip(second, weighted, strict=False):
                total.add(x)

        code.loop(shape.batch, sample)
        return [x.value for x in drift], [x.value for x in second]

    def _along(self, G: Stored, C: Matrix, c: Index) -> Row:
        """Σ_ν g^ν x_c^ν of all neurons, written out where there are few samples."""
        if C:
            inputs = [self._input(nu, c) for nu in range(self.shape.batch)]
            return [dot(self.code, row, inputs) for row in C]
        total = [Sum(self.code) for _ in range(self.shape.p)]

        def one(nu: Index) -> None:
            x = self._input(nu, c)
            for j, sum_ in enumerate(total):
                sum_.add(G.get(j, nu), x)

        self.code.loop(self.shape.batch, one)
        return [x.value for x in total]

    def _plain(self, one: Callable[[Index, Matrix], None]) -> None:
        """Blocks whose T is a plain matrix of normals."""
        code, shape, plain = self.code, self.shape, self.blocks.plain
        if not plain:
            return
        b, size = code.builder, widest(shape)
        kind = ir.ArrayType(LONG, 4 * len(plain))
        known = ir.GlobalVariable(b.module, kind, "plain")
        known.global_constant = True
        numbers = [
            x
            for first, width, n in plain
            for x in (first, width, n, max(n, shape.rows))
        ]
        known.initializer = ir.Constant(kind, numbers)

        def member(i: Index) -> None:
            at = b.mul(i, code.constant_index(4))
            places = (
                b.gep(known, [b.add(at, code.constant_index(m))], source_etype=LONG)
                for m in range(4)
            )
            first, width, columns, count = (b.load(place, typ=LONG) for place in places)
            T = Stored(code, self._place(2), size, count)
            for row in range(shape.rows):
                begin = b.add(first, b.mul(code.constant_index(row), width))

                def copy(l: Index, row: int = row, begin: Index = begin) -> None:
                    T.put(self.outside(b.add(begin, l)), row, l)

                for l in range(shape.rows):  # there may be fewer columns than rows
                    T.put(code.constant(0.0), row, l)
                code.loop(columns, copy)
            one(i, triangle(code, T, shape.rows))

        code.loop(len(plain), member)

    def _triangular(self, one: Callable[[Index, Matrix], None]) -> None:
        """Blocks whose T is a triangle drawn as such."""
        code, shape = self.code, self.shape
        entries, size, b = shape.rows * (shape.rows + 1) // 2, DEGREE + 2, code.builder

        def member(m: Index) -> None:
            first = b.add(
                code.constant_index(shape.first_triangle),
                b.mul(m, code.constant_index(entries)),
            )
            at = b.mul(m, code.constant_index(shape.rows * size))
            table = [
                [
                    self._shared(3, b.add(at, code.constant_index(i * size + n)))
                    for n in range(size)
                ]
                for i in range(shape.rows)
            ]
            T = factor(
                code,
                shape,
                table,
                lambda i: self.outside(b.add(first, code.constant_index(i))),
            )
            one(b.add(m, code.constant_index(len(self.blocks.plain))), T)

        if self.blocks.triangular:
            code.loop(self.blocks.triangular, member)

    def _square(self, j: int) -> Vector:
        """|w_j|²."""
        total = Sum(self.code)
        self.code.loop(
            self.shape.columns, lambda c: total.add(self.W.get(j, c), self.W.get(j, c))
        )
        return total.value * self.lengths[j] * self.lengths[j]

    def _input(self, nu: Index, c: Index) -> Vector:
        """√s_c ξ_c of a sample."""
        return self.draw(nu, c) * self._shared(0, c)

    def _L(self, q: int, c: Index) -> Vector:
        """Entry of L."""
        return self._shared(
            1, self.code.builder.add(self.code.constant_index(q * self.shape.rank), c)
        )

    def _shared(self, part: int, i: Index) -> Vector:
        """A number that all lanes share."""
        b, before = self.code.builder, sum(shared_of(self.shape)[:part])
        place = b.gep(
            self.shared,
            [b.add(self.code.constant_index(before), i)],
            source_etype=DOUBLE,
        )
        return self.code.splat(b.load(place, typ=DOUBLE), DOUBLE)

    def _place(self, part: int) -> ir.Value:
        """Where a matrix of the scratch begins."""
        return place_of(self.code, self.shape, self.scratch, part)

    def _matrix(self, part: int, size: int) -> Stored:
        """A matrix of the scratch with rows of a size."""
        return Stored(self.code, self._place(part), size)
