"""Scrambled Sobol points as Gaussian nodes.

E[F] ≈ (1/N) Σ_i F(Φ⁻¹(s_i));   the spread over independent scramblings of the same size is the error
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import ndtri

__all__ = ["SCRAMBLINGS", "draw_sobol_normals", "sobol_normals"]

SCRAMBLINGS = 5
"""Number of scramblings whose spread estimates the error."""

SEED = 2024


def draw_sobol_normals(dimension: int, log2_points: int, scrambling: int = 0) -> np.ndarray:
    """Normals of shape (2**log2_points, dimension), drawn at every call."""
    rng = np.random.default_rng([SEED, dimension, scrambling])
    from scipy.stats import qmc  # takes a second to import

    uniform = qmc.Sobol(dimension, scramble=True, bits=53, rng=rng).random(2**log2_points)
    return np.asarray(ndtri(np.clip(uniform, 2.0**-54, 1 - 2.0**-53)))


@lru_cache(maxsize=16)
def sobol_normals(dimension: int, log2_points: int, scrambling: int = 0) -> np.ndarray:
    """Normals of shape (2**log2_points, dimension), kept for the next call.

    Examples
    --------
    >>> sobol_normals(3, 10).shape
    (1024, 3)
    """
    out = draw_sobol_normals(dimension, log2_points, scrambling)
    out.flags.writeable = False
    return out
