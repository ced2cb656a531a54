"""Versions, device, and a check that this JAX computes fields correctly.

jax 0.10.2 miscompiles a vmapped matrix–vector product followed by a sum on CPU: the
fields are silently wrong.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.numerics.arguments import Json
from twolayer.running.dataset import versions

__all__ = ["about", "fields_are_right"]


def fields_are_right() -> bool:
    """Compare jit(vmap(|W z|²)) with NumPy, the pattern that jax 0.10.2 gets wrong.

    Every version of JAX is tried, also the one that the rest of the package refuses.

    Examples
    --------
    >>> fields_are_right()
    True
    """
    rng = np.random.default_rng(0)
    W, z = rng.normal(size=(3, 3)), rng.normal(size=(40_000, 3))
    expected = ((z @ W.T) ** 2).sum(1)
    for dtype, tolerance in ((jnp.float64, 1e-12), (jnp.float32, 1e-4)):
        with jax.enable_x64(True):
            weights, points = jnp.asarray(W, dtype), jnp.asarray(z, dtype)
            square = jax.jit(
                jax.vmap(lambda x, weights=weights: ((weights @ x) ** 2).sum())
            )
            ours = np.asarray(square(points))
        if not np.allclose(ours, expected, rtol=tolerance, atol=tolerance):
            return False
    return True


def about() -> Json:
    """What the numbers depend on: versions, the device, and whether fields are computed
    correctly.

    Examples
    --------
    >>> about()["fields"]
    'right'
    """
    device = jax.devices()[0]
    return {
        **versions(),
        "device": f"{device.platform} ({device.device_kind})",
        "fields": "right"
        if fields_are_right()
        else "WRONG: do not use this version of jax",
    }
