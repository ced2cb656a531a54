"""The learning rate at which a speed is largest, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = ["highest"]


def highest(speed: Callable[[float], float], scale: float | None) -> float:
    """Where a function of ρ that vanishes at both ends is largest; ``scale`` is the
    order of magnitude, where it is known.

    Examples
    --------
    >>> round(highest(lambda rho: rho * (1 - rho), scale=0.3), 3)
    0.5
    """
    from scipy import optimize

    grid = np.geomspace(1e-4, 1e2, 37)
    if scale is not None:
        grid = scale * np.geomspace(1 / 16, 8, 15)
    values = [speed(float(rho)) for rho in grid]
    top = int(np.argmax(values))
    low, high = grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]
    found = optimize.minimize_scalar(
        lambda x: -speed(math.exp(x)),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(found.x)
