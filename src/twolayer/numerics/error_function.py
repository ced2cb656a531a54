"""The error function by two polynomials, which vectorise.

erf(x) = x N(x²) for |x| ≤ 1,    1 − e^(−x²) v S(v) with v = 1/(x + 2) beyond
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.numerics.special import horner
from twolayer.numerics.types import Real

__all__ = ["error_function"]

FARTHEST = 6.0  # erfc is 2e-17 there


def _error_series() -> tuple[list[float], list[float]]:
    """Coefficients of erf(√z)/√z on 0 ≤ z ≤ 1 in powers of 2z − 1, and of S on 1/3 ≥ v
    ≥ 1/8 in those of (48v − 11)/5.

    S = e^(x²) erfc(x)/v with v = 1/(x + 2); both are Chebyshev interpolants.
    """

    def near(t: float) -> float:
        x = math.sqrt((t + 1) / 2)
        return math.erf(x) / x

    def far(t: float) -> float:
        v = (5 * t + 11) / 48
        x = 1 / v - 2
        return math.exp(x * x) * math.erfc(x) / v

    fits = (
        np.polynomial.chebyshev.chebinterpolate(np.vectorize(f), n)
        for f, n in ((near, 12), (far, 15))
    )
    first, second = (list(np.polynomial.chebyshev.cheb2poly(x)) for x in fits)
    return first, second


NEAR, FAR = _error_series()


@jax.custom_jvp
def error_function(x: Real) -> Array:
    """The error function in double precision, several times as fast as the
    library's.
    """
    a = jnp.minimum(jnp.abs(x), FARTHEST)
    v = 1 / (a + 2)
    far = 1 - jnp.exp(-a * a) * v * horner(FAR, (48 * v - 11) / 5)
    z = jnp.minimum(a, 1.0) ** 2
    return jnp.where(a > 1, jnp.sign(x) * far, x * horner(NEAR, 2 * z - 1))


@error_function.defjvp
def _error_function_jvp(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return error_function(x), 2 / math.sqrt(math.pi) * jnp.exp(-(x**2)) * dx
