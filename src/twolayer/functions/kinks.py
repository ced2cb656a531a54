"""Where a function of one variable, or one of its first two derivatives, jumps.

A step keeps its height under bisection, while a smooth change over an interval of width
w is O(w): after forty halvings only the steps are left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twolayer.numerics.arguments import ArrayFunction
from twolayer.numerics.precision import float64

__all__ = ["derivative", "find_kinks"]

SPAN = 9.0
GRID = 1801  # spacing 0.01, moved off the round numbers where kinks usually sit
HALVINGS = 40


def derivative(f: ArrayFunction) -> ArrayFunction:
    """f' of an elementwise JAX function."""

    def slope(x: Any) -> Any:
        import jax

        return jax.jvp(f, (x,), (jax.numpy.ones_like(x),))[1]

    return slope


@float64
def find_kinks(f: ArrayFunction, lines: int = 1) -> list[tuple[float, ...]]:
    """Points in (−9, 9) where f, f' or f'' is discontinuous, for each of several
    functions at once.

    f is elementwise along the last axis of arrays (lines, n).
    """
    import jax

    edges = np.broadcast_to(
        np.linspace(-SPAN - 0.00377, SPAN + 0.00423, GRID), (lines, GRID)
    )
    found: list[list[float]] = [[] for _ in range(lines)]
    for function in (f, derivative(f), derivative(derivative(f))):
        values = jax.jit(function)
        a, b = edges[:, :-1].copy(), edges[:, 1:].copy()
        fa, fb = np.asarray(values(a)), np.asarray(values(b))
        scale = np.maximum(np.abs(fb - fa).max(1), 1e-3 * np.abs(fa).max(1)) + 1e-12
        for _ in range(HALVINGS):
            middle = (a + b) / 2
            fm = np.asarray(values(middle))
            go_left = np.abs(fm - fa) > np.abs(fb - fm)
            a, b = np.where(go_left, a, middle), np.where(go_left, middle, b)
            fa, fb = np.where(go_left, fa, fm), np.where(go_left, fm, fb)
        for line, point in zip(
            *np.nonzero(np.abs(fb - fa) > 1e-7 * scale[:, None]), strict=True
        ):
            found[line].append(float(a[line, point] + b[line, point]) / 2)
    return [_merged(points) for points in found]


def _merged(points: list[float]) -> tuple[float, ...]:
    merged: list[float] = []
    for x in sorted(points):
        if not merged or x - merged[-1] > 1e-8:
            merged.append(round(x, 10) + 0.0)
    return tuple(merged)
