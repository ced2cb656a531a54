"""Whether a function has the Gaussian moments that the dynamics needs.

E[h(z)²] < ∞,  z ~ N(0, I_k):    no pole in the bulk, and slower growth than exp(|z|²/4)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twolayer.numerics.arguments import ArrayFunction
from twolayer.numerics.quadrature_rules import draw_sobol_normals

__all__ = ["difference", "square_integrable"]

FAR = 30.0
STEP = 1e-6  # of a central difference
SCRAMBLINGS, RISE = (
    4,
    5.0,
)  # 32 times as many points raise E[h²] by this much only where there is a pole


def square_integrable(function: ArrayFunction, k: int, poles: bool = True) -> bool:
    """Probe E[h²] on four times 2¹⁶ points, where a pole makes it grow with their
    number, and the growth far away.

    The function maps arrays (n, k) of NumPy to (n,); ``poles`` says whether to look for
    some, which formulas tell by themselves (poles.py).

    >>> (
    ...     square_integrable(lambda z: 1 / z[:, 0], 1),
    ...     square_integrable(lambda z: np.exp(z[:, 0]), 1),
    ... )
    (False, True)
    """
    directions = np.random.default_rng(1).normal(size=(64, k))
    far = FAR * directions / np.linalg.norm(directions, axis=1)[:, None]
    rises = []
    with np.errstate(all="ignore"):
        for scrambling in range(SCRAMBLINGS if poles else 0):
            points = draw_sobol_normals(k, 16, scrambling)
            points = points[(np.abs(points) < 4).all(1)]
            square = np.asarray(function(points)) ** 2 + 1e-300
            rises.append(np.log(np.mean(square) / np.mean(square[:2048])))
        growth = 2 * np.log(np.abs(np.asarray(function(far))) + 1e-300)
    # 445 < FAR²/2: not quite exp(|z|²/4) at the far points
    return bool(np.exp(np.mean(rises or [0.0])) < RISE and np.max(growth) < 445.0)


def difference(function: ArrayFunction) -> ArrayFunction:
    """The slope of a smooth function by a central difference: for its size, without
    JAX.
    """

    def slope(x: Any) -> Any:
        with np.errstate(
            all="ignore"
        ):  # where the function overflows, so does its slope
            return (function(x + STEP) - function(x - STEP)) / (2 * STEP)

    return slope
