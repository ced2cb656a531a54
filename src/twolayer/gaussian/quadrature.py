"""Gaussian averages by Gauss–Legendre panels that end where the integrand bends.

    E[F(u)],  u = L ξ,  ξ ~ N(0, I_n):   iterate over ξ_1, ξ_2, …; the panels of ξ_i end where one of the fields
    u_f crosses a kink,  ξ_i = (κ_f − Σ_{s<i} L_fs ξ_s) / L_fi,  and where the later ξ blur that crossing

so that sign, abs and relu are integrated as fast as smooth functions, also when fields almost coincide. All
shapes are static: the rules run inside compiled code with L as data (and in NumPy when L is a NumPy array).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np

__all__ = ["nested_rule", "panel_rule"]

REACH = 9.0
"""Half-width of the interval; the Gaussian mass outside is 2e-19."""

INNER = 3.0
"""Panels also end at ±3 (and at 0 where nothing bends), so that each is short against the Gaussian."""

BLUR = 5.0
"""A kink seen through a remaining Gaussian of width s is smooth beyond this many s."""


@lru_cache(maxsize=64)
def legendre(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(order)
    return (x + 1) / 2, w / 2


def _namespace(x: Any) -> Any:
    return np if isinstance(x, np.ndarray | float) else jnp


def panel_rule(breaks: Any, order: int) -> tuple[Any, Any]:
    """Nodes and weights for E[f(ξ)], ξ ~ N(0, 1), with panels split at the breaks (last axis).

    Breaks outside (−9, 9) are harmless. Shapes (..., b) → (..., max(b + 3, 4)·order).

    Examples
    --------
    >>> x, w = panel_rule(np.array([0.0]), 12)
    >>> abs(float((w * abs(x)).sum()) - math.sqrt(2 / math.pi)) < 1e-10
    True
    """
    xp = _namespace(breaks)
    node, weight = legendre(order)
    fixed = (-REACH, -INNER, INNER, REACH) if breaks.shape[-1] else (-REACH, -INNER, 0.0, INNER, REACH)
    ends = xp.broadcast_to(xp.asarray(fixed), (*breaks.shape[:-1], len(fixed)))
    edges = xp.sort(xp.concatenate([xp.clip(breaks, -REACH, REACH), ends], axis=-1), axis=-1)
    width = xp.diff(edges, axis=-1)[..., None]
    x = edges[..., :-1, None] + width * node
    w = width * weight * xp.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return x.reshape((*breaks.shape[:-1], -1)), w.reshape((*breaks.shape[:-1], -1))


def crossing(kink: float, offset: Any, slope: Any) -> Any:
    """Where offset + slope·x = kink; far outside when the slope vanishes."""
    xp = _namespace(slope)
    moves = xp.abs(slope) > 1e-12
    return xp.where(moves, (kink - offset) / xp.where(moves, slope, 1.0), 2 * REACH)


def blurred_crossings(kink: float, offset: Any, slope: Any, rest: Any) -> list[Any]:
    """Panel ends for a kink of offset + slope·x + rest·η with η still to be integrated."""
    xp = _namespace(slope)
    moves = xp.abs(slope) > 1e-12
    centre = crossing(kink, offset, slope)
    spread = xp.where(moves, BLUR * rest / xp.where(moves, xp.abs(slope), 1.0), 0.0)
    return [centre - spread, centre, centre + spread]


def nested_rule(L: Any, kinks: Sequence[Sequence[float]], order: int, structure: np.ndarray) -> tuple[Any, Any]:
    """Points ξ (N, n) and weights (N,) for averages over fields u = L ξ that bend at their kinks.

    Parameters
    ----------
    L : array (fields, n)
    kinks : sequence of sequences
        One list for each field.
    order : int
        Nodes per panel.
    structure : bool array (fields, n)
        Which entries of L can differ from zero; the fewer, the fewer panels.

    Notes
    -----
    N = Π_i (b_i + 3)·order; b_i counts one break for each kink of a field that ends with ξ_i, three for each kink
    of a field that goes on, and one if there are none.
    """
    xp = _namespace(L)
    fields, n = L.shape
    points, weights, offset = xp.zeros((1, 0)), xp.ones(1), xp.zeros((1, fields))
    for i in range(n):
        breaks: list[Any] = []
        for f in range(fields):
            if structure[f, i]:
                last = not structure[f, i + 1 :].any()
                rest = xp.sqrt((L[f, i + 1 :] ** 2).sum())
                for kink in kinks[f]:
                    ends = blurred_crossings(kink, offset[:, f], L[f, i] * xp.ones(len(points)), rest)
                    breaks += ends[1:2] if last else ends
        split = xp.stack(breaks, -1) if breaks else xp.zeros((len(points), 0))
        x, w = panel_rule(split, order)
        count = x.shape[-1]
        points = xp.concatenate([xp.repeat(points, count, axis=0), x.reshape(-1, 1)], axis=-1)
        weights = (weights[:, None] * w).reshape(-1)
        offset = xp.repeat(offset, count, axis=0) + x.reshape(-1, 1) * L[:, i]
    return points, weights
