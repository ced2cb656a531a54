"""Points and weights for averages over standard normals ξ ~ N(0, I_n).

Gauss–Hermite    product of n nodes per axis, exact for polynomials of degree 2n − 1
                 in each ξ_i
Sobol            E[F] ≈ (1/N) Σ_i F(Φ⁻¹(s_i)); the spread over independent
                 scramblings is the error
Wide Sobol       E[F] ≈ Σ_i w_i F(s x_i) at Sobol normals x_i,
                 w_i ∝ exp(−(s² − 1)|x_i|²/2): functions that grow are sampled where
                 they are large
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

__all__ = [
    "SCRAMBLINGS",
    "Nodes",
    "draw_sobol_normals",
    "hermite_rule",
    "product_rule",
    "sobol_normals",
    "wide_sobol",
]

SCRAMBLINGS = 8
"""Number of scramblings whose spread estimates the error."""

SEED = 2024
NEGLIGIBLE = 1e-22  # nodes of less weight, relative to the largest, are left out


class Nodes(NamedTuple):
    """Points (N, n) and weights (N,)."""

    xi: np.ndarray
    weights: np.ndarray


def product_rule(
    rules: Sequence[tuple[np.ndarray, np.ndarray]], negligible: float = NEGLIGIBLE
) -> Nodes:
    """The product of one-dimensional rules, without nodes of negligible weight."""
    xi = np.stack(
        [g.ravel() for g in np.meshgrid(*(x for x, _ in rules), indexing="ij")], 1
    )
    weights = np.prod(
        [g.ravel() for g in np.meshgrid(*(w for _, w in rules), indexing="ij")], 0
    )
    keep = weights > negligible * weights.max()
    return Nodes(xi[keep], weights[keep])


def hermite_rule(counts: Sequence[int]) -> Nodes:
    """Gauss–Hermite nodes, so many along each axis."""

    def one(n: int) -> tuple[np.ndarray, np.ndarray]:
        x, w = np.polynomial.hermite_e.hermegauss(n)
        return x, w / w.sum()

    return product_rule([one(n) for n in counts])


def draw_sobol_normals(
    dimension: int,
    log2_points: int,
    scrambling: int = 0,
    seed: int | Sequence[int] | None = None,
    bits: int = 53,
) -> np.ndarray:
    """Normals of shape (2**log2_points, dimension) at scrambled Sobol points, drawn at
    every call.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc  # takes a second to import

    rng = np.random.default_rng([SEED, dimension, scrambling] if seed is None else seed)
    uniform = qmc.Sobol(dimension, scramble=True, bits=bits, rng=rng).random(
        2**log2_points
    )
    return np.asarray(ndtri(np.clip(uniform, 2.0**-54, 1 - 2.0**-53)))


@lru_cache(maxsize=16)
def sobol_normals(dimension: int, log2_points: int, scrambling: int = 0) -> np.ndarray:
    """The same, kept for the next call."""
    out = draw_sobol_normals(dimension, log2_points, scrambling)
    out.flags.writeable = False
    return out


def wide_sobol(dimension: int, log2_points: int, scrambling: int = 0) -> Nodes:
    """Weighted Sobol points of a Gaussian wider than N(0, I), for functions that grow
    like polynomials.

    s² = 1 + min(1, 3/(2√n)): half of the points count, in any dimension n.
    """
    excess = min(1.0, 1.5 / np.sqrt(dimension))
    x = sobol_normals(dimension, log2_points, scrambling)
    weights = np.exp(-excess / 2 * (x**2).sum(1))
    return Nodes(np.sqrt(1 + excess) * x, weights / weights.sum())
