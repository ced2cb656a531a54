"""When a deviation counts: one chance of a false alarm for everything that is judged
together.

    numbers:   P(max |t| > c)       ≤  n · 2 P(t_ν > c)
    a curve:   P(sup_s |t(s)| > c)  ≤  2 P(t_ν > c) + (κ/π) (1 + c²/ν)^(−ν/2)

t has Student's law with ν degrees of freedom. κ is the length of the path that the
standardised curve draws on the unit sphere of residuals, Σ arccos of the correlation
between neighbouring points (Naiman 1986, Sun and Loader 1994): a curve that hardly
changes costs no more than one number, however often it is saved. Where few points are
far apart the first bound is the smaller one, and that is taken.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from twolayer.numerics.arguments import Array
from twolayer.numerics.errors import reject

__all__ = ["LEVEL", "limit_of", "limit_of_curves", "path_length"]

LEVEL = 1e-4
"""Chance that a correct theory is called wrong, for each verdict of a comparison or of
a figure.
"""


def limit_of(count: int = 1, freedom: float = np.inf, level: float = LEVEL) -> float:
    """Standard errors that the largest of so many deviations exceeds with the given
    chance, at most.

    >>> (
    ...     round(limit_of(), 3),
    ...     round(limit_of(count=100), 3),
    ...     round(limit_of(count=100, freedom=15), 2),
    ... )
    (3.891, 4.892, 7.9)
    """
    if count < 1 or freedom < 1:
        reject("count, freedom", (count, freedom), "at least 1 each")
    tail = level / (2 * count)
    return float(
        -special.ndtri(tail) if np.isinf(freedom) else -special.stdtrit(freedom, tail)
    )


def limit_of_curves(lengths: Array, points: Array, freedom: float) -> float:
    """The same for the largest deviation of several curves, each with its length κ and
    its number of points.

    >>> round(limit_of_curves([0.0], [200], 63), 3) == round(limit_of(freedom=63), 3)
    True
    >>> limit_of(1, 63) < limit_of_curves([3.0], [200], 63) < limit_of(200, 63)
    True
    """
    from scipy import optimize

    kappa, count = np.asarray(lengths, dtype=float), np.asarray(points, dtype=float)

    def excess(c: float) -> float:
        one = 2 * float(
            special.ndtr(-c) if np.isinf(freedom) else special.stdtr(freedom, -c)
        )
        tail = (
            -(c**2) / 2
            if np.isinf(freedom)
            else -freedom / 2 * np.log1p(c**2 / freedom)
        )
        return (
            float(np.fmin(count * one, one + kappa / np.pi * np.exp(tail)).sum())
            - LEVEL
        )

    highest = limit_of(max(1, int(count.sum())), freedom)
    return (
        highest
        if excess(highest) >= 0
        else float(optimize.brentq(excess, 0.0, highest, xtol=1e-6))
    )


def path_length(correlations: Array) -> np.ndarray:
    """κ from the correlations between neighbouring points, (points − 1, …).

    >>> float(path_length([1.0, 0.0]) / np.pi)
    0.5
    """
    return np.arccos(np.clip(np.asarray(correlations, dtype=float), -1.0, 1.0)).sum(
        axis=0
    )
