"""One step of the chain as straight-line arithmetic on lanes of seeds.

    W ← κ W + η ḡ in the basis (ξ*, ξ⊥, outside),    rows normalised where they are,
        B ← LQ

The same step as equations/orthogonal.py, written out number by number: every entry of a
small matrix is a vector over seeds, so nothing is gathered, transposed or called.
"""

from __future__ import annotations

from collections.abc import Callable

from twolayer.compiled.arrays import Columns
from twolayer.compiled.batch import Totals
from twolayer.compiled.shape import (
    Arithmetic,
    Matrix,
    Quantity,
    Row,
    Shape,
    UnrolledNumbers,
    UnrolledState,
    dot,
    reflection,
)
from twolayer.loops.stopping import LIMIT
from twolayer.numerics.wishart import DEGREE, REACH

__all__ = ["new_state"]


def lower(code: Arithmetic, X: Matrix) -> Matrix:
    """Lower triangular L with L Lᵀ = X Xᵀ by reflections, for fewer rows than columns;
    zeros are left out.
    """
    p = len(X)
    for i in range(p):
        row = X[i][i:]
        head, scale = reflection(code, row[0], dot(code, row, row))
        v = [row[0] + head, *row[1:]]
        X[i][i:] = [-head] + [code.constant(0.0)] * (len(row) - 1)
        for k in range(i + 1, p):
            along = -(scale * dot(code, X[k][i:], v))
            X[k][i:] = [code.fma(along, u, x) for u, x in zip(v, X[k][i:], strict=True)]
    return [row[:p] for row in X]


def lower_columns(code: Columns, X: Row, p: int) -> Row:
    """The same of columns (p, seeds)."""
    for i in range(p):
        row = [code.of(i, x) for x in X[i:]]
        head, scale = reflection(code, row[0], dot(code, row, row))
        v = [row[0] + head, *row[1:]]
        along = -(scale * dot(code, X[i:], v))
        left = [-head] + [code.constant(0.0)] * (len(row) - 1)
        X[i:] = [
            code.put(i, y, code.fma(along, u, x))
            for y, u, x in zip(left, v, X[i:], strict=True)
        ]
    return X[:p]


def factor(
    code: Arithmetic, shape: Shape, table: Matrix, normal: Callable[[int], Quantity]
) -> Matrix:
    """T of the samples' part outside the known directions: rows of a lower triangle
    (numerics/wishart.py).
    """
    s = shape.rows
    T = []
    below = s
    for i in range(s):
        x = normal(i) * (1.0 / REACH)
        c = table[i][DEGREE]
        for n in range(DEGREE - 1, -1, -1):
            c = code.fma(c, x, table[i][n])
        T.append(
            [normal(below + l) for l in range(i)]
            + [table[i][DEGREE + 1] * c * code.sqrt(c)]
        )
        below += i
    return T


def new_state(
    code: Arithmetic,
    shape: Shape,
    state: UnrolledState,
    numbers: UnrolledNumbers,
    totals: Totals,
    outside: Callable[[int], Quantity],
) -> tuple[UnrolledState, Quantity]:
    """The state after a step, and whether it is finite; ``outside(i)`` are the normals
    of T.
    """
    p, r, n = shape.p, shape.rank, shape.rank + shape.p
    W, a = state
    along, C, second = totals
    T = factor(code, shape, numbers.table, outside)
    beyond = [
        [
            dot(code, row[l:], [T[m][l] for m in range(l, len(row))])
            for l in range(len(row))
        ]
        for row in C
    ]
    rows, fine = [], None
    for j in range(len(W)):
        full = along[j] + beyond[j]
        keep = numbers.shrink
        if shape.form.tangent:
            keep = keep - numbers.step * dot(code, W[j], along[j]) / dot(
                code, W[j], W[j]
            )
        new = [
            code.fma(keep, w, numbers.step * g)
            for w, g in zip(W[j], full, strict=False)
        ]
        new += [numbers.step * g for g in full[n:]]
        square = dot(code, new, new)
        good = square < LIMIT
        if shape.form.normalises:
            good = (square > 0.0) & (square < float("inf"))
            inverse = 1.0 / code.sqrt(square)
            new = [x * inverse for x in new]
        rows.append(new)
        fine = good if fine is None else fine & good
    layer = a
    if shape.form.trained:
        layer = [code.fma(numbers.step, s, x) for s, x in zip(second, a, strict=True)]
        for x in layer:
            fine = fine & (x * x < LIMIT)
    outer = [row[r:] for row in rows]
    B = (
        [lower_columns(code, outer[0], p)]
        if isinstance(code, Columns)
        else lower(code, outer)
    )
    assert fine is not None
    return UnrolledState(
        [row[:r] + b for row, b in zip(rows, B, strict=True)], layer
    ), code.every(fine)
