"""Hermite polynomials and expansions under the standard Gaussian.

He_{n+1}(x) = x He_n(x) − n He_{n−1}(x),    h_n = He_n/√n!,    E[h_m(z) h_n(z)] = δ_mn
f = Σ_n c_n h_n,    c_n = E[f(z) h_n(z)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = [
    "gauss_panels",
    "hermite_coefficients",
    "hermite_he",
    "hermite_table",
    "monomials_of_he",
]

RANGE = 12.0
"""Half-width of the interval on which Gaussian averages in one dimension are taken
(mass outside: 4e-33).
"""


def hermite_he(n: int, x: Any) -> Any:
    """Probabilists' He_n at x, for NumPy or JAX arrays."""
    previous, current = 0.0 * x, 0.0 * x + 1.0
    for m in range(n):
        previous, current = current, x * current - m * previous
    return current


def hermite_table(degree: int, x: np.ndarray) -> np.ndarray:
    """Orthonormal h_0 … h_degree at x, stacked on the first axis."""
    rows = [np.ones_like(x)]
    if degree >= 1:
        rows.append(x.copy())
    for n in range(1, degree):
        rows.append((x * rows[n] - math.sqrt(n) * rows[n - 1]) / math.sqrt(n + 1))
    return np.stack(rows)


@lru_cache(maxsize=64)
def monomials_of_he(n: int) -> tuple[float, ...]:
    """Coefficients of 1, x, x², … in He_n."""
    # numpy.polynomial, which has this, takes some milliseconds to import
    out = [0.0] * (n + 1)
    for i in range(n // 2 + 1):
        out[n - 2 * i] = (
            (-1) ** i
            * math.factorial(n)
            / (math.factorial(i) * math.factorial(n - 2 * i) * 2**i)
        )
    return tuple(out)


@lru_cache(maxsize=32)
def _legendre(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss and Legendre, which take a hundred times longer to
    find than to use.
    """
    node, weight = np.polynomial.legendre.leggauss(order)
    for array in (node, weight):
        array.flags.writeable = False
    return node, weight


def gauss_panels(
    kinks: Sequence[float] = (), order: int = 40, panels: int = 12
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for E[f(z)], z ~ N(0, 1): Gauss–Legendre panels that end at the
    kinks of f.

    >>> x, w = gauss_panels(kinks=(0.0,))
    >>> abs(float((w * np.abs(x)).sum()) - math.sqrt(2 / math.pi)) < 1e-14
    True
    """
    inside = [k for k in kinks if -RANGE < k < RANGE]
    edges = np.unique(np.concatenate([np.linspace(-RANGE, RANGE, panels + 1), inside]))
    node, weight = _legendre(order)
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    x = (middle[:, None] + half[:, None] * node).ravel()
    w = (half[:, None] * weight).ravel() * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return x, w


def hermite_coefficients(
    f: Callable[[np.ndarray], np.ndarray], degree: int, kinks: Sequence[float] = ()
) -> np.ndarray:
    """c_0 … c_degree of f in the orthonormal basis, by quadrature split at the
    kinks.
    """
    x, w = gauss_panels(kinks)
    return np.asarray(hermite_table(degree, x) @ (w * np.asarray(f(x))))
