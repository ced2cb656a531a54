"""The pinned random numbers of numerics/random.py, in vector instructions.

bits(key, (step, index)) = Threefry-2x32-20,    normal = Φ⁻¹(52-bit uniform)
"""

from __future__ import annotations

import math

import numpy as np

from twolayer.compiled.vector import DOUBLE, LONG, Code, Vector
from twolayer.numerics import random

__all__ = ["log", "normal"]


def log(code: Code, x: Vector) -> Vector:
    """Log of positive doubles by exponent and atanh series."""
    bits = code.bits(x, LONG)
    exponent = code.shift_signed(bits - random.SQRT_HALF_BITS, 52)
    mantissa = code.bits(bits - (exponent << 52), DOUBLE)
    f = (mantissa - 1.0) / (mantissa + 1.0)
    series = code.polynomial(random.LOG_SERIES, f * f)
    return code.fma(code.cast(exponent, DOUBLE), math.log(2.0), 2.0 * f * series)


def normal(
    code: Code, key: tuple[Vector, Vector], step: Vector, index: Vector
) -> Vector:
    """Standard normals at counters (step, index)."""
    with np.errstate(over="ignore"):
        high, low = random.threefry(key, step, index)
    word = (code.cast(high, LONG) << 20) | code.cast(low >> 12, LONG)
    unit = code.bits(word | 0x3FF0000000000000, DOUBLE)
    z = code.fma(unit - 1.5, 2.0, 2.0**-52)
    distance = code.abs(z)
    w = -log(code, (1.0 - distance) * (1.0 + distance))
    centre = z * code.polynomial(random.CENTRAL, code.fma(w, 2.0 / random.SPLIT, -1.0))
    first, last = math.sqrt(random.SPLIT), math.sqrt(random.LAST)

    def tail() -> Vector:
        return code.copysign(
            code.polynomial(
                random.TAIL, (code.sqrt(w) - first) * (2.0 / (last - first)) - 1.0
            ),
            z,
        )

    return code.rarely(w >= random.SPLIT, tail, centre)
