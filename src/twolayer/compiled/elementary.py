"""Elementary functions in vector instructions: range reduction and polynomials, a few
units in the last place.

exp x = 2ⁿ e^r;    tanh, sigmoid, softplus from exp;    erf x = 1 − e^{−x²} erfcx(x);
sin, cos by quarter turns
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erf as exact_erf
from scipy.special import erfcx

from twolayer.compiled import normals
from twolayer.compiled.vector import DOUBLE, LONG, Code, Vector
from twolayer.numerics.random import LOG_SERIES

__all__ = ["FUNCTIONS"]

LARGEST, LEAST = (
    709.78,
    -708.0,
)  # exponents beyond which exp overflows, or is below the normal numbers
LN2 = (0.693147180369123816490, 1.90821492927058770002e-10)
HALF_PI = (
    1.57079632673412561417,
    6.07710050630396597660e-11,
    2.02226624879595063154e-21,
)


@lru_cache
def fitted(
    function: Callable[[np.ndarray], np.ndarray], low: float, high: float, degree: int
) -> tuple[float, ...]:
    """Coefficients of a function on [low, high] in powers of the variable scaled to
    [−1, 1].
    """
    series: Any = chebyshev.chebinterpolate(
        lambda t: function((high - low) / 2 * t + (high + low) / 2), degree
    )
    return tuple(chebyshev.cheb2poly(series).tolist())


def on_interval(
    code: Code,
    function: Callable[[np.ndarray], np.ndarray],
    low: float,
    high: float,
    degree: int,
    x: Vector,
) -> Vector:
    """A fitted function of x in [low, high]."""
    scaled = code.fma(x, 2 / (high - low), -(high + low) / (high - low))
    return code.polynomial(fitted(function, low, high, degree), scaled)


def exp(code: Code, x: Vector) -> Vector:
    """e^x."""
    inside = code.where(x < LARGEST, code.where(x > LEAST, x, LEAST), LARGEST)
    n = code.floor(code.fma(inside, 1 / math.log(2), 0.5))
    r = code.fma(n, -LN2[1], code.fma(n, -LN2[0], inside))
    value = code.polynomial([1 / math.factorial(i) for i in range(14)], r)
    # 2ⁿ in two factors: n + 1023 alone may be beyond the exponents
    whole = code.bits(
        n + 6755399441055744.0, LONG
    )  # 1.5·2⁵²: the integer stands in the last bits
    half = code.shift_signed(whole << 13, 14)
    for part in (half, code.shift_signed(whole << 13, 13) - half):
        value = value * code.bits((part + 1023) << 52, DOUBLE)
    value = code.where(x > LARGEST, math.inf, code.where(x < LEAST, 0.0, value))
    return code.where(x.equals(x), value, math.nan)


def log(code: Code, x: Vector) -> Vector:
    """Log x; −∞ at 0 and nan below."""
    value = normals.log(code, code.where(x > 0.0, x, 1.0))
    return code.where(
        x > 0.0, value, code.where(x.equals(0.0), code.constant(-math.inf), math.nan)
    )


def log_of_more_than_one(code: Code, u: Vector) -> Vector:
    """log(1 + u) for 0 ≤ u ≤ 1."""
    f = u / (u + 2.0)
    return code.where(
        u < 0.4,
        2.0 * f * code.polynomial(LOG_SERIES, f * f),
        normals.log(code, u + 1.0),
    )


def _tanh_ratio(s: np.ndarray) -> np.ndarray:
    return np.tanh(np.sqrt(s)) / np.sqrt(s)


def tanh(code: Code, x: Vector) -> tuple[Vector, Vector]:
    """Tanh x and its slope."""
    size = code.abs(x)
    e = exp(code, -2.0 * size)
    large = (1.0 - e) / (1.0 + e)
    s = code.where(size < 0.5, x * x, 0.125)
    value = code.where(
        size < 0.5,
        x * on_interval(code, _tanh_ratio, 0.0, 0.25, 11, s),
        code.copysign(large, x),
    )
    return value, code.fma(-value, value, 1.0)


def sigmoid(code: Code, x: Vector) -> tuple[Vector, Vector]:
    """1/(1 + e^{−x}) and its slope."""
    e = exp(code, -code.abs(x))
    small = e / (1.0 + e)
    return code.where(x >= 0.0, 1.0 / (1.0 + e), small), small / (1.0 + e)


def softplus(code: Code, x: Vector) -> tuple[Vector, Vector]:
    """log(1 + e^x) and its slope."""
    tail = log_of_more_than_one(code, exp(code, -code.abs(x)))
    return code.where(x > 0.0, x, 0.0) + tail, sigmoid(code, x)[0]


def _erf_ratio(s: np.ndarray) -> np.ndarray:
    return exact_erf(np.sqrt(s)) / np.sqrt(s)


def _erfcx(t: np.ndarray) -> np.ndarray:
    """Erfcx(x) (x + 2)/2 at t = x/(x + 2)."""
    x = 2 * t / (1 - t)
    return erfcx(x) * (x + 2) / 2


def erf(code: Code, x: Vector) -> tuple[Vector, Vector]:
    """Erf x and its slope 2/√π e^{−x²}."""
    size = code.abs(x)
    size = code.where(size < 6.0, size, 6.0)
    bell = exp(code, -(x * x))
    t = size / (size + 2.0)
    scaled = on_interval(code, _erfcx, 0.0, 0.75, 23, t) * (1.0 - t)
    large = code.copysign(1.0 - exp(code, -(size * size)) * scaled, x)
    s = code.where(size < 0.5, x * x, 0.125)
    value = code.where(
        size < 0.5, x * on_interval(code, _erf_ratio, 0.0, 0.25, 10, s), large
    )
    return code.where(x.equals(x), value, math.nan), bell * (2 / math.sqrt(math.pi))


def gelu(code: Code, x: Vector) -> tuple[Vector, Vector]:
    """x Φ(x) and its slope."""
    value, slope = erf(code, x * math.sqrt(0.5))
    cumulative = code.fma(value, 0.5, 0.5)
    return x * cumulative, code.fma(x * slope, math.sqrt(0.125), cumulative)


def _sine_ratio(s: np.ndarray) -> np.ndarray:
    return np.sinc(np.sqrt(s) / np.pi)


def _cosine(s: np.ndarray) -> np.ndarray:
    return np.cos(np.sqrt(s))


def sine_and_cosine(code: Code, x: Vector) -> tuple[Vector, Vector]:
    """sin x and cos x, for |x| up to 10⁵."""
    n = code.floor(code.fma(x, 2 / math.pi, 0.5))
    r = x
    for part in HALF_PI:
        r = code.fma(n, -part, r)
    s = r * r
    sine = r * on_interval(code, _sine_ratio, 0.0, 0.625, 8, s)
    cosine = on_interval(code, _cosine, 0.0, 0.625, 9, s)
    quarter = n - 4.0 * code.floor(n * 0.25)
    odd = quarter.equals(1.0) | quarter.equals(3.0)
    first, second = code.where(odd, cosine, sine), code.where(odd, sine, cosine)
    return (
        code.where(quarter >= 2.0, -first, first),
        code.where(quarter.equals(1.0) | quarter.equals(2.0), -second, second),
    )


def _cos(code: Code, x: Vector) -> tuple[Vector, Vector]:
    sine, cosine = sine_and_cosine(code, x)
    return cosine, -sine


def _exp(code: Code, x: Vector) -> tuple[Vector, Vector]:
    value = exp(code, x)
    return value, value


def _log(code: Code, x: Vector) -> tuple[Vector, Vector]:
    return log(code, x), 1.0 / x


def _sqrt(code: Code, x: Vector) -> tuple[Vector, Vector]:
    value = code.sqrt(x)
    return value, 0.5 / value


def _relu(code: Code, x: Vector) -> tuple[Vector, Vector]:
    zero = code.constant(0.0)
    return code.where(x > 0.0, x, zero), code.where(x > 0.0, code.constant(1.0), zero)


def _sign(code: Code, x: Vector) -> tuple[Vector, Vector]:
    one, zero = code.constant(1.0), code.constant(0.0)
    return code.where(x > 0.0, one, code.where(x < 0.0, -one, zero)), zero


def _abs(code: Code, x: Vector) -> tuple[Vector, Vector]:
    return code.abs(x), _sign(code, x)[0]


FUNCTIONS: dict[str, Callable[[Code, Vector], tuple[Vector, Vector]]] = {
    "relu": _relu,
    "erf": erf,
    "tanh": tanh,
    "sign": _sign,
    "abs": _abs,
    "exp": _exp,
    "log": _log,
    "sin": sine_and_cosine,
    "cos": _cos,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "gelu": gelu,
    "sqrt": _sqrt,
}
"""Value and slope of every function of the formula language (functions/syntax.py)."""
