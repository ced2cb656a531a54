"""Gauss–Legendre panels that shrink towards the points where an integrand is rough.

∫ f ≈ Σ_panels Σ_i w_i f(x_i),    panel widths at most proportional to the distance from
the nearest rough point
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

__all__ = ["gauss_nodes", "graded_edges"]


def graded_edges(
    low: float,
    high: float,
    centres: np.ndarray,
    first: float,
    growth: float,
    widest: float = np.inf,
) -> np.ndarray:
    """Edges from low to high whose spacing is ``first`` at the centres and grows in
    proportion to the distance.

    Examples
    --------
    >>> graded_edges(0.0, 7.0, np.array([0.0]), first=1.0, growth=1.0).tolist()
    [0.0, 1.0, 2.0, 4.0, 7.0]
    """
    inside = np.unique(np.clip(centres, low, high)) if len(centres) else np.array([low])
    steps = [0.0]
    while steps[-1] < high - low:
        steps.append(steps[-1] + min(max(first, growth * steps[-1]), widest))
    away = np.array(steps)
    parts = [np.array([low, high])]
    borders = np.concatenate([[low], (inside[1:] + inside[:-1]) / 2, [high]])
    for centre, left, right in zip(inside, borders[:-1], borders[1:], strict=True):
        there = np.concatenate([centre - away, centre + away])
        parts.append(there[(there >= left) & (there <= right)])
    edges = np.unique(np.concatenate(parts))
    keep = np.concatenate(
        [[True], np.diff(edges) > 1e-13 * max(abs(low), abs(high), 1e-3)]
    )
    return edges[keep]


@lru_cache(maxsize=32)
def _legendre(order: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = np.polynomial.legendre.leggauss(order)
    return (1 + x) / 2, w / 2


def gauss_nodes(
    left: np.ndarray, right: np.ndarray, order: int
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on panels, both of shape (panels, order).

    Examples
    --------
    >>> x, w = gauss_nodes(np.array([0.0]), np.array([2.0]), 3)
    >>> round(float((w * x**4).sum()), 12)
    6.4
    """
    x, w = _legendre(order)
    width = (right - left)[:, None]
    return left[:, None] + width * x, width * w
