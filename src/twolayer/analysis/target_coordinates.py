"""A target in orthonormal coordinates: h(λ*) with λ* = L u, P = L Lᵀ and u ~ N(0, I).

L is lower triangular: u_1 is along w*_1, u_2 along what of w*_2 is orthogonal to w*_1,
and so on. A direction that depends on those before it adds no coordinate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from twolayer.analysis.directions import written
from twolayer.functions.target import Target, TargetLike
from twolayer.numerics.arguments import Array
from twolayer.numerics.errors import reject
from twolayer.task.problem import Problem, check_gram

__all__ = [
    "Framed",
    "Terms",
    "frame_of",
    "framed",
    "in_frame",
    "multiplied",
    "told_frame",
]

NEGLIGIBLE = 1e-10  # of a direction's squared length: it depends on those before it
MOST_TERMS = 20_000  # of a polynomial that is expanded

Terms = dict[tuple[int, ...], float]


def frame_of(P: np.ndarray) -> np.ndarray:
    """L (k, r) with P = L Lᵀ, by Gram and Schmidt in the order of the directions.

    Examples
    --------
    >>> frame_of(np.array([[1.0, 0.6], [0.6, 1.0]])).round(6).tolist()
    [[1.0, 0.0], [0.6, 0.8]]
    """
    P = np.asarray(P, dtype=float)
    columns: list[np.ndarray] = []
    rest = P.copy()
    for i in range(len(P)):
        left = rest[i, i]
        if left <= NEGLIGIBLE * max(P[i, i], 1e-300):
            continue
        column = rest[:, i] / np.sqrt(left)
        columns.append(column)
        rest = rest - np.outer(column, column)
    return np.stack(columns, axis=1) if columns else np.zeros((len(P), 0))


class Framed(NamedTuple):
    """A target in its own frame L; and the problem, where one was given."""

    target: Target
    frame: np.ndarray
    problem: Problem | None


def framed(
    target: TargetLike | Problem,
    directions: int | None = None,
    gram: Array | None = None,
    **others: object,
) -> Framed:
    """The target of a problem, or one with a Gram matrix, in orthonormal coordinates.

    ``others`` are further arguments that a problem has itself, None where they were
    left out.

    Examples
    --------
    >>> found = framed("z1*z2", gram=[[1.0, 0.6], [0.6, 1.0]])
    >>> {key: round(float(x), 6) for key, x in found.target.polynomial.items()}
    {(2, 0): 0.6, (1, 1): 0.8}
    """
    if not isinstance(target, Problem):
        given = Target.of(target, directions)
        L = frame_of(check_gram(gram, given.directions))
        return Framed(in_frame(given, L), L, None)
    for name, value in {"directions": directions, "gram": gram, **others}.items():
        if value is not None:
            reject(name, value, "left out where a problem is given, which has its own")
    L = frame_of(target.P)
    return Framed(in_frame(target.target, L), L, target)


def told_frame(frame: np.ndarray) -> str:
    """The coordinates as they are printed; nothing where they are the fields."""
    if np.array_equal(frame, np.eye(len(frame))):
        return ""
    return "; ".join(f"z{r + 1} = {written(row)}·u" for r, row in enumerate(frame))


def in_frame(target: Target, L: np.ndarray) -> Target:
    """u ↦ h(L u), a polynomial again where h is one."""
    if np.array_equal(L, np.eye(target.directions)):
        return target
    terms = None if target.polynomial is None else _compose(target.polynomial, L)
    return replace(
        target,
        directions=L.shape[1],
        function=lambda u: target.function(u @ L.T),
        polynomial=terms,
        ridge=None,
        key=("in frame", target.key, L.shape, L.tobytes()),
    )


def _compose(polynomial: Terms, L: np.ndarray) -> Terms | None:
    """Coefficients of h(L u), or None where there are too many of them."""
    r = L.shape[1]
    rows = [_linear(row) for row in L]
    out: Terms = {}
    for exponents, coefficient in polynomial.items():
        term: Terms = {(0,) * r: coefficient}
        for row, power in zip(rows, exponents, strict=True):
            for _ in range(power):
                term = multiplied(term, row)
                if len(term) > MOST_TERMS:
                    return None
        for key, value in term.items():
            out[key] = out.get(key, 0.0) + value
    size = max(map(abs, out.values()), default=0.0)
    return {key: value for key, value in out.items() if abs(value) > 1e-14 * size}


def _linear(row: Iterable[float]) -> Terms:
    """Σ_i row_i u_i."""
    values = list(row)
    return {
        tuple(int(i == j) for j in range(len(values))): value
        for i, value in enumerate(values)
        if value
    }


def multiplied(left: Terms, right: Terms) -> Terms:
    """The product of two polynomials.

    Examples
    --------
    >>> multiplied({(1,): 2.0}, {(1,): 1.0, (0,): 3.0})
    {(2,): 2.0, (1,): 6.0}
    """
    out: Terms = {}
    for alpha, x in left.items():
        for beta, y in right.items():
            key = tuple(i + j for i, j in zip(alpha, beta, strict=True))
            out[key] = out.get(key, 0.0) + x * y
    return out
