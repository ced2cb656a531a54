"""Whether a function has the Gaussian moments that the dynamics needs.

E[h(z)²] < ∞,  z ~ N(0, I_k):    no pole in the bulk, and slower growth than exp(|z|²/4)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from twolayer.numerics.rules import draw_sobol_normals

__all__ = ["square_integrable"]

FAR = 30.0
SCRAMBLINGS, RISE = 4, 5.0  # 32 times as many points raise E[h²] by this much only where there is a pole


def square_integrable(function: Callable[[Any], Any], k: int) -> bool:
    """Probe E[h²] on four times 2¹⁶ points, where a pole makes it grow with their number, and the growth far away.

    Parameters
    ----------
    function : callable
        JAX function from arrays (n, k) to (n,).
    k : int

    Examples
    --------
    >>> square_integrable(lambda z: 1 / z[:, 0], 1), square_integrable(lambda z: jnp.exp(z[:, 0]), 1)
    (False, True)
    """
    directions = np.random.default_rng(1).normal(size=(64, k))
    far = FAR * directions / np.linalg.norm(directions, axis=1)[:, None]
    rises = []
    with np.errstate(all="ignore"):
        for scrambling in range(SCRAMBLINGS):
            points = draw_sobol_normals(k, 16, scrambling)
            points = points[(np.abs(points) < 4).all(1)]
            square = np.asarray(function(jnp.asarray(points))) ** 2 + 1e-300
            rises.append(np.log(np.mean(square) / np.mean(square[:2048])))
        growth = 2 * np.log(np.abs(np.asarray(function(jnp.asarray(far)))) + 1e-300)
    # 445 < FAR²/2: not quite exp(|z|²/4) at the far points
    return bool(np.exp(np.mean(rises)) < RISE and np.max(growth) < 445.0)
