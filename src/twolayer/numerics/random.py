"""A pinned counter-based generator: every random number is a function of (seed, role,
run, step, index).

    bits(key, (step, index)) = Threefry-2x32-20,    normal = Φ⁻¹(52-bit uniform)

Because nothing is carried from draw to draw, chunking a run, batching seeds or adding
seeds changes no number. Threefry is JAX's own default hash, unrolled in plain jnp
because that is several times faster on CPU; the inverse normal distribution is
evaluated by two polynomials that vectorise: error below 1e-12, or below 1e-6 in the
single-precision version that draws the d-dimensional inputs (2 ns each on a core; range
±6.3).
"""

from __future__ import annotations

import enum
import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.numerics.errors import integer, require
from twolayer.numerics.precision import float64
from twolayer.numerics.types import Number, Real

__all__ = [
    "Role",
    "check_seed",
    "fold",
    "host_normal",
    "normal",
    "rule_key",
    "stream",
    "threefry",
]

Key: TypeAlias = Real
"""Two uint32 words, on the last axis."""

NAME = "threefry2x32-20/normal-1"
"""Recorded with every result; changes whenever the numbers would."""


class Role(enum.IntEnum):
    """What a stream of numbers is for; streams of different roles are independent."""

    FIELDS = 1
    ORTHOGONAL = 2
    START = 3
    SECOND_LAYER = 4
    INPUTS = 5
    LABELS = 6
    DIFFUSION = 7
    BATCHES = 8
    TARGET = 9


FOLDED = 0x8000_0000  # set in the counter of folded seeds, beyond all roles
RULES = 0xFFFF_FFFF  # counter of the keys of rules, beyond all numbers of a step
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds: two words of key and two of counter to two random
    words.
    """
    k0, k1 = key[0], key[1]
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = high + schedule[0], low + schedule[1]
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))
            x1 = x1 ^ x0
        x0 = x0 + schedule[(i + 1) % 3]
        x1 = x1 + schedule[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


_threefry = jax.jit(threefry)
MANY = 2**16  # keys from which on compiling pays


def check_seed(seed: object) -> int:
    """Return a seed as an integer of Python, or refuse what is none."""
    accepted = "an integer from 0 to 2**64 − 1"
    number = integer("seed", seed, accepted)
    require(0 <= number < 2**64, "seed", seed, accepted)
    return number


def stream(seed: int, role: Role, run: int | np.ndarray = 0) -> np.ndarray:
    """Key of the stream for a seed, a role and a run (or an array of runs: keys (n,
    2)).
    """
    number = check_seed(seed)
    with np.errstate(over="ignore"):
        base = (np.uint32(number >> 32), np.uint32(number & 0xFFFFFFFF))
        runs = np.atleast_1d(np.asarray(run, dtype=np.uint32))
        hash_ = _threefry if runs.size > MANY else threefry
        words = np.stack(
            [np.asarray(x) for x in hash_(base, np.uint32(int(role)), runs)], axis=-1
        )
    return words if np.ndim(run) else words[0]


def fold(seed: int, number: int) -> int:
    """The seed of one part of what a seed stands for, such as one dimension of several:
    parts with different ``number`` are independent of each other and of the whole.

    >>> fold(0, 100) == fold(0, 100), fold(0, 100) == fold(0, 200)
    (True, False)
    """
    whole = check_seed(seed)
    with np.errstate(over="ignore"):
        key = (np.uint32(whole >> 32), np.uint32(whole & 0xFFFFFFFF))
        high = np.uint32(FOLDED | (number >> 32) & 0x7FFFFFFF)
        words = threefry(key, high, np.uint32(number & 0xFFFFFFFF))
    return int(words[0]) << 32 | int(words[1])


# Φ⁻¹ by w = −log(4p(1−p)): central part  z·A(w)  for w < 6 (z = 1 − 2p), tail  B(√w).
# Chebyshev fits of the quantile, in powers of the variable scaled to [−1, 1].
SPLIT, LAST = 6.0, 37.0
CENTRAL = (
    2.2960351246249893,
    1.0251509839604207,
    -0.0730345378704469,
    -0.03192856945695649,
    0.02234452800690859,
    -0.004370048175903075,
    -0.0018021231589766284,
    0.001391753157874826,
    -0.00021979977627224265,
    -0.00015218386951590436,
    9.276154677050107e-05,
    -7.874411148763369e-06,
    -1.302710922534827e-05,
    6.089939559771365e-06,
    4.840719253579095e-08,
    -1.0825517866305824e-06,
    3.7803199716927614e-07,
    6.021194024604795e-08,
    -8.317534549867005e-08,
    1.3601761054698228e-08,
    7.579993664686239e-09,
    -2.6141611841287214e-09,
)
TAIL = (
    5.810311451932182,
    2.594805530139509,
    0.00318680019854578,
    -0.005020651152833542,
    0.003125560722964845,
    -0.001578111890472886,
    0.0007158499785577669,
    -0.00029588360025083546,
    0.00010438050118772247,
    -1.9890503982197078e-05,
    -1.5480415648978815e-05,
    2.3927596339673795e-05,
    -1.7731136650864967e-05,
    1.1755110550829835e-05,
    -8.5655706446514e-06,
    6.230754422422296e-07,
    5.770099347996904e-06,
    -3.0693594529461583e-06,
    -7.562750562322128e-07,
    6.333937831148845e-07,
)
_LAST_32 = 24.0
_CENTRAL_32 = (
    2.29603525,
    1.02515099,
    -0.0730406119,
    -0.0319288896,
    0.0223940877,
    -0.00436779074,
    -0.00194693366,
    0.00138738605,
    -3.86103458e-05,
    -0.000152568554,
)
_TAIL_32 = (
    4.96543294,
    1.74653049,
    0.00489920343,
    -0.00348691132,
    0.00150050531,
    -0.000560021164,
    0.000165943188,
    7.95976658e-06,
    -2.4570195e-05,
)
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
LOG_SERIES = tuple(1.0 / n for n in range(1, 24, 2))  # atanh(f)/f in powers of f²


def _polynomial(coefficients: tuple[float, ...], x: Real) -> Array:
    """Even and odd halves by Horner: two short dependency chains instead of a
    long one.
    """
    square = x * x
    halves = []
    for half in (coefficients[0::2], coefficients[1::2]):
        value = jnp.full_like(x, half[-1])
        for c in half[-2::-1]:
            value = value * square + x.dtype.type(c)
        halves.append(value)
    return halves[0] + x * halves[1]


def _log(x: Real) -> Array:
    """Log of positive doubles by exponent and atanh series; XLA's own calls libm one
    number at a time.
    """
    bits = jax.lax.bitcast_convert_type(x, jnp.int64)
    exponent = (bits - np.int64(SQRT_HALF_BITS)) >> np.int64(52)
    mantissa = jax.lax.bitcast_convert_type(
        bits - (exponent << np.int64(52)), jnp.float64
    )
    f = (mantissa - 1.0) / (mantissa + 1.0)
    series = _polynomial(LOG_SERIES, f * f)
    return exponent.astype(jnp.float64) * math.log(2.0) + 2.0 * f * series


def quantile(high: Real, low: Real) -> Array:
    """Standard normal from two random words; odd under complementing them."""
    word = (high.astype(jnp.uint64) << np.uint64(20)) | (low >> np.uint32(12)).astype(
        jnp.uint64
    )
    unit = jax.lax.bitcast_convert_type(
        word | np.uint64(0x3FF0000000000000), jnp.float64
    )  # [1, 2)
    z = 2.0 * (unit - 1.5) + 2.0**-52  # exact: odd multiples of 2⁻⁵² in (−1, 1)
    distance = jnp.abs(z)
    w = -_log((1.0 - distance) * (1.0 + distance))
    root = jnp.sqrt(w)
    first = math.sqrt(SPLIT)
    centre = z * _polynomial(CENTRAL, w * (2.0 / SPLIT) - 1.0)
    tail = _polynomial(TAIL, (root - first) * (2.0 / (math.sqrt(LAST) - first)) - 1.0)
    return jnp.where(w < SPLIT, centre, jnp.copysign(tail, z))


def quantile_32(word: Real) -> Array:
    """Standard normal in single precision from one random word: a sign and a 31-bit
    tail probability.
    """
    f = np.float32
    tail_word = (word & np.uint32(0x7FFFFFFF)).astype(jnp.int32)
    p = (tail_word.astype(jnp.float32) + f(0.5)) * f(2.0**-32)
    w = jnp.maximum(-jnp.log(f(4) * p * (f(1) - p)), f(0))
    first = math.sqrt(SPLIT)
    centre = (f(1) - f(2) * p) * _polynomial(_CENTRAL_32, w * f(2 / SPLIT) - f(1))
    tail = _polynomial(
        _TAIL_32, (jnp.sqrt(w) - f(first)) * f(2 / (math.sqrt(_LAST_32) - first)) - f(1)
    )
    size = jax.lax.bitcast_convert_type(
        jnp.where(w < f(SPLIT), centre, tail), jnp.uint32
    )
    return jax.lax.bitcast_convert_type(
        size | (word & np.uint32(0x80000000)), jnp.float32
    )


def normal_32(key: Key, step: Number, index: Real) -> tuple[Array, Array]:
    """Two single-precision standard normals for each counter (step, index)."""
    step, index = jnp.broadcast_arrays(
        jnp.asarray(step, jnp.uint32), jnp.asarray(index, jnp.uint32)
    )
    high, low = threefry((key[..., 0], key[..., 1]), step, index)
    return quantile_32(high), quantile_32(low)


def normal(key: Key, step: Number, index: Real) -> Array:
    """Standard normals at counters (step, index), uint32 arrays that broadcast, and
    keys (..., 2) of `stream`.

    O(1) each, about 4 ns on a core.
    """
    step, index = jnp.broadcast_arrays(
        jnp.asarray(step, jnp.uint32), jnp.asarray(index, jnp.uint32)
    )
    return quantile(*threefry((key[..., 0], key[..., 1]), step, index))


def rule_key(key: Key, step: Number) -> Array:
    """A key of jax.random for every step, from the stream of a run."""
    high, low = threefry(
        (key[..., 0], key[..., 1]),
        jnp.asarray(step).astype(jnp.uint32),
        jnp.uint32(RULES),
    )
    return jax.random.wrap_key_data(jnp.stack([high, low], -1), impl="threefry2x32")


@float64
def host_normal(seed: int, role: Role, n: int, run: int | np.ndarray = 0) -> np.ndarray:
    """n standard normals as a NumPy array, or (runs, n) for an array of runs."""
    keys = stream(seed, role, np.atleast_1d(run))
    index = np.arange(n, dtype=np.uint32)
    draws = np.asarray(_normal(keys[:, None, :], np.uint32(0), index))
    return draws if np.ndim(run) else draws[0]


_normal = jax.jit(normal)
