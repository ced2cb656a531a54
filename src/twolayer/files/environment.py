"""Versions, device, and a check that this JAX computes fields correctly.

jax 0.10.2 miscompiles a vmapped matrix–vector product followed by a sum on CPU: the fields are silently wrong.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.numerics.arguments import Json
from twolayer.numerics.precision import float64
from twolayer.running.dataset import versions

__all__ = ["about", "fields_are_right"]


@float64
def fields_are_right() -> bool:
    """Compare jit(vmap(|W z|²)) with NumPy, the pattern that jax 0.10.2 gets wrong.

    Examples
    --------
    >>> fields_are_right()
    True
    """
    rng = np.random.default_rng(0)
    W, z = rng.normal(size=(3, 3)), rng.normal(size=(40_000, 3))
    for dtype, tolerance in ((jnp.float64, 1e-12), (jnp.float32, 1e-4)):
        weights = jnp.asarray(W, dtype)
        ours = jax.jit(jax.vmap(lambda x, weights=weights: ((weights @ x) ** 2).sum()))(
            jnp.asarray(z, dtype)
        )
        if not np.allclose(
            np.asarray(ours), ((z @ W.T) ** 2).sum(1), rtol=tolerance, atol=tolerance
        ):
            return False
    return True


def about() -> Json:
    """What the numbers depend on: versions, the device, and whether fields are computed correctly.

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
