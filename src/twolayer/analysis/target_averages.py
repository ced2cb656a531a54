"""What a flat place knows of a target: averages of h and h² with two fields.

    mean = E[h],    square = E[h²],    slope_r = E[∂_r h],
    curvature_rs = E[∂_r ∂_s h],       of_square_rs = E[∂_r ∂_s h²],
    moments_n = E[hⁿ], n ≤ 4

Fields are N(0, I): of a target with another Gram matrix they are those of its frame
(target_coordinates.py). Derivatives are by parts, E[∂_r ∂_s f] = E[f (z_r z_s − δ_rs)],
so that kinks and jumps of h are allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from twolayer.analysis.exponents import nodes_of
from twolayer.analysis.target_coordinates import Terms, multiplied
from twolayer.functions.target import Target

__all__ = ["TargetAverages", "target_averages"]

MOST_SQUARES = 3000  # terms of h² beyond which h⁴ is averaged on nodes


@dataclass(frozen=True, eq=False)
class TargetAverages:
    """Averages of a target over independent normal fields.

    Attributes
    ----------
    mean, square : float
        E[h] and E[h²].
    slope : array (k,)
        E[∂_r h].
    curvature, of_square : array (k, k)
        E[∂_r ∂_s h] and E[∂_r ∂_s h²].
    moments : array (5,)
        E[hⁿ] for n = 0 … 4.
    error : float
        How far they may be off, relative to the size of h; 0 for polynomials.
    """

    mean: float
    square: float
    slope: np.ndarray
    curvature: np.ndarray
    of_square: np.ndarray
    moments: np.ndarray
    error: float

    @property
    def variance(self) -> float:
        """Var h."""
        return max(self.square - self.mean**2, 0.0)

    @property
    def cumulants(self) -> np.ndarray:
        """Cumulants of h, of order 1 to 4 at their own index."""
        return cumulants(self.moments)


def cumulants(moments: np.ndarray) -> np.ndarray:
    """Cumulants of order 1 to 4 from the moments E[xⁿ], n = 0 … 4.

    Examples
    --------
    >>> cumulants(np.array([1.0, 0.0, 1.0, 0.0, 3.0])).tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0]
    """
    found = np.zeros(5)
    for n in range(1, 5):
        lower = sum(
            math.comb(n - 1, j - 1) * found[j] * moments[n - j] for j in range(1, n)
        )
        found[n] = moments[n] - lower
    return found


def from_cumulants(kappa: np.ndarray) -> np.ndarray:
    """The inverse of `cumulants`.

    Examples
    --------
    >>> from_cumulants(np.array([0.0, 1.0, 1.0, 0.0, 0.0])).tolist()
    [1.0, 1.0, 2.0, 4.0, 10.0]
    """
    found = np.ones(5)
    for n in range(1, 5):
        found[n] = sum(
            math.comb(n - 1, j - 1) * kappa[j] * found[n - j] for j in range(1, n + 1)
        )
    return found


@lru_cache(maxsize=32)
def target_averages(target: Target) -> TargetAverages:
    """Averages of a target with orthonormal directions: exact for polynomials.

    Examples
    --------
    >>> target_averages(Target.of("z1**2 - z2**2")).curvature.tolist()
    [[2.0, 0.0], [0.0, -2.0]]
    """
    if target.polynomial is not None:
        found = _of_polynomial(dict(target.polynomial), target.directions)
        if found is not None:
            return found
    return _on_nodes(target)


def _of_polynomial(h: Terms, k: int) -> TargetAverages | None:
    square = multiplied(h, h)
    if len(square) > MOST_SQUARES:
        return None
    unit = np.eye(k, dtype=int)
    slope = np.array([_mean(h, unit[r]) for r in range(k)])

    def curved(f: Terms) -> np.ndarray:
        raw = [[_mean(f, unit[r] + unit[s]) for s in range(k)] for r in range(k)]
        return np.array(raw) - _mean(f) * np.eye(k)

    moments = [1.0, _mean(h), _mean(square), _cross(h, square), _cross(square, square)]
    return TargetAverages(
        moments[1],
        moments[2],
        slope,
        curved(h),
        curved(square),
        np.array(moments),
        0.0,
    )


def _gaussian_moment(n: int) -> float:
    """E[zⁿ] = (n − 1)!! for even n."""
    return 0.0 if n % 2 else float(math.prod(range(n - 1, 0, -2)))


def _mean(f: Terms, extra: np.ndarray | None = None) -> float:
    """E[f(z) z^extra]."""
    total = 0.0
    for alpha, c in f.items():
        powers = alpha if extra is None else np.add(alpha, extra)
        total += c * math.prod(_gaussian_moment(int(n)) for n in powers)
    return total


def _cross(f: Terms, g: Terms) -> float:
    """E[f g]."""
    return sum(c * _mean(g, np.array(alpha)) for alpha, c in f.items())


def _on_nodes(target: Target) -> TargetAverages:
    nodes = nodes_of(target)
    z, weights = nodes.points, nodes.weights
    h = target.on_host(z)
    powers = h[None] ** np.arange(5)[:, None]
    moments = powers @ weights
    k = target.directions

    def curved(f: np.ndarray, mean: float) -> np.ndarray:
        return (z * (weights * f)[:, None]).T @ z - mean * np.eye(k)

    size = math.sqrt(max(moments[2], 1e-300))
    return TargetAverages(
        float(moments[1]),
        float(moments[2]),
        z.T @ (weights * h),
        curved(h, float(moments[1])),
        curved(h**2, float(moments[2])),
        moments,
        float(nodes.tolerance) * size,
    )
