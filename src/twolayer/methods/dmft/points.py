"""Random coordinates of the paths, one column after the other: scrambled Sobol points
first, independent numbers later.

Column i of a replicate is a function of (replicate, i) and of the number of points.
Columns are taken in the order in which a run needs them, since Sobol points are best in
their first coordinates: what decides on the first batch, h*, label noise, the start,
and at each visit what decides on its batch and the noise of new directions.
"""

from __future__ import annotations

import numpy as np

from twolayer.numerics.quadrature_rules import draw_sobol_normals

__all__ = ["KINDS", "Points"]

KINDS = ("sobol", "random")
SOBOL = 64  # columns of Sobol points
SEED = 2402


class Points:
    """Columns of 2**log2_points standard normals."""

    def __init__(self, log2_points: int, kind: str, replicate: int) -> None:
        self.count, self.replicate = 2**log2_points, replicate
        self.kind = kind
        sobol = (
            draw_sobol_normals(SOBOL, log2_points, replicate)
            if kind == "sobol"
            else np.empty((self.count, 0))
        )
        self._sobol = np.ascontiguousarray(sobol.T)

    def column(self, i: int) -> np.ndarray:
        """Column i, (N,)."""
        if i < len(self._sobol):
            return self._sobol[i]
        return np.random.default_rng([SEED, self.replicate, i]).standard_normal(
            self.count
        )
