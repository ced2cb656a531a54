"""Whether a function has the Gaussian moments that the dynamics needs.

E[h(z)²] < ∞,  z ~ N(0, I_k):    no pole in the bulk, and slower growth than exp(|z|²/4)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

__all__ = ["square_integrable"]

FAR = 30.0


def square_integrable(function: Callable[[Any], Any], k: int) -> bool:
    """Probe E[h²] on 2¹⁶ points, where a pole makes it grow with their number, and the growth far away.

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
    from scipy.stats import qmc  # takes a second to import

    points = ndtri(qmc.Sobol(k, rng=np.random.default_rng(0)).random(2**16))
    points = points[(np.abs(points) < 4).all(1)]
    directions = np.random.default_rng(1).normal(size=(64, k))
    far = FAR * directions / np.linalg.norm(directions, axis=1)[:, None]
    with np.errstate(all="ignore"):
        square = np.asarray(function(jnp.asarray(points))) ** 2
        growth = 2 * np.log(np.abs(np.asarray(function(jnp.asarray(far)))) + 1e-300)
    # 445 < FAR²/2: not quite exp(|z|²/4) at the far points
    return bool(np.mean(square) < 8 * np.mean(square[:2048]) + 1e-300 and np.max(growth) < 445.0)
