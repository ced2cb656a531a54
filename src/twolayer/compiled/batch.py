"""What the samples of a batch add up to, number by number.

    ḡ ξᵀ in the basis (ξ*, ξ⊥),    C with C Cᵀ = Gᵀ G / n_b²,    mean of e σ(λ)
        (equations/orthogonal.py)

Up to p samples are written out here; more are looped over (batch_loops.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twolayer.compiled.calculus import value_and_slope, value_of
from twolayer.compiled.shape import (
    Arithmetic,
    Matrix,
    Quantity,
    Row,
    Shape,
    UnrolledNumbers,
    UnrolledState,
    dot,
)

__all__ = ["Draw", "Totals", "few_samples", "push", "response"]

Draw = Callable[[Quantity, int], Quantity]
"""Normal number i of a sample."""


class Totals(NamedTuple):
    """Means of g ξᵀ (p, r + p) and of e σ(λ) (p, where the second layer moves), and C
    (p, min(p, n_b)).
    """

    along: Matrix
    C: Matrix
    second: Row


def push(
    code: Arithmetic, shape: Shape, state: UnrolledState, xi: Row, root: Quantity
) -> tuple[Row, Row]:
    """g and e σ(λ) of one sample."""
    W, a = state
    r, n = shape.rank, shape.columns
    target = []
    for row in shape.frame:
        parts = [
            x if c == 1.0 else x * c for x, c in zip(xi[:r], row, strict=True) if c
        ]
        target.append(sum(parts[1:], parts[0]) if parts else code.constant(0.0))
    fields = [dot(code, w, xi[:n]) for w in W]
    return response(
        code, shape, a, target, fields, root, xi[n] if shape.noisy else None
    )


def response(
    code: Arithmetic,
    shape: Shape,
    a: Row,
    target: Row,
    fields: Row,
    root: Quantity,
    noise: Quantity,
) -> tuple[Row, Row]:
    """The same from the fields and a normal for the noise."""
    e = value_of(code, shape.target, target)
    if shape.noisy:
        e = code.fma(root, noise, e)
    pairs = [value_and_slope(code, shape.activation, field) for field in fields]
    if shape.student:
        f = code.total(dot(code, a, [value for value, _ in pairs]))
        e = code.fma(f, -shape.student / shape.p, e)
    weighted = e if shape.batch == 1 else e * (1.0 / shape.batch)
    first = [x * slope * weighted for x, (_, slope) in zip(a, pairs, strict=True)]
    return first, [value * weighted for value, _ in pairs] if shape.form.trained else []


def few_samples(
    code: Arithmetic,
    shape: Shape,
    state: UnrolledState,
    numbers: UnrolledNumbers,
    draw: Draw,
) -> Totals:
    """Of at most as many samples as neurons: C = Gᵀ."""
    n = shape.rank + shape.p
    draws = [[draw(nu, i) for i in range(shape.used)] for nu in range(shape.batch)]
    pushes = [push(code, shape, state, xi, numbers.root) for xi in draws]
    p = len(state.W)
    C = [[g[j] for g, _ in pushes] for j in range(p)]
    along = [
        [dot(code, C[j], [xi[i] for xi in draws]) for i in range(n)] for j in range(p)
    ]
    second = (
        [sum((s[j] for _, s in pushes[1:]), pushes[0][1][j]) for j in range(p)]
        if shape.form.trained
        else []
    )
    return Totals(along, C, second)
