"""What spoils labels: additive noise of some law, and flips of the sign.

    y = s h + √Δ ξ,    s = −1 with probability q, else 1,    ξ = F⁻¹(Φ(x)),  x ~ N(0, 1)

ξ has variance one, so that Δ is the variance of the noise, unless its law has none:
then √Δ is the scale of Student's t. Laws enter through the map from a normal to ξ and
back. So a label takes one normal number whatever its law, and a quadrature over x ends
its panels where the label is at a kink of the loss. Where labels are flipped too, x
decides on that first: it is below the quantile q or above, and what it says beyond that
is again uniform. An algorithm may add Gaussian noise of its own to the labels, with
another normal at every visit to a sample.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from twolayer.functions.expression import written_number
from twolayer.numerics.errors import (
    InputError,
    closest,
    finite_number,
    reject,
    require,
    short,
)

if TYPE_CHECKING:
    from twolayer.numerics.types import Number, Real

__all__ = ["LAWS", "LabelNoise", "Law", "Spoilt"]

LAWS = ("gaussian", "laplace", "uniform", "student(ν)", "cauchy")
LEAST = 0.5  # ν below which the fit of Student's quantile is not good
REACH = 9.5  # normals that the fit covers
DEGREE = 60
MANY = 2**14  # values at once, from which sums are loops


class Spoilt(NamedTuple):
    """What happens to labels: y = sign·h + shift."""

    sign: Number
    shift: Real


@dataclass(frozen=True)
class Law:
    """The law of the label noise ξ; nu are the degrees of freedom of Student's law,
    infinite where tails are light.
    """

    name: str
    nu: float = field(default=math.inf, compare=False)

    @classmethod
    def of(cls, text: str) -> Law:
        """Read a law from its name, with its number in brackets."""
        word = text.strip() if isinstance(text, str) else ""
        if word == "cauchy":
            word = "student(1)"
        if word in ("gaussian", "laplace", "uniform"):
            return cls(word)
        match = re.fullmatch(r"student\((.+)\)", word)
        if match is None:
            known = ["gaussian", "laplace", "uniform", "student(5)", "cauchy"]
            raise InputError(
                f"Argument `noise_law` must be one of {', '.join(LAWS)}, but got"
                f" {short(text)}{closest(word[:40], known)}."
            )
        accepted = f"student(ν) with a number ν of at least {LEAST}"
        nu = written_number(match[1])
        if nu is None or not LEAST <= nu < math.inf:
            reject("noise_law", text, accepted)
        return cls(f"student({nu:.15g})", nu)

    @property
    def moments(self) -> float:
        """The order below which absolute moments are finite."""
        return self.nu

    @property
    def kinks(self) -> tuple[float, ...]:
        """Normals x at which the map to ξ is not smooth."""
        return (0.0,) if self.name == "laplace" else ()

    def from_normal(self, x: Real) -> Real:
        """ξ = F⁻¹(Φ(x))."""
        import jax.numpy as jnp
        from jax.scipy.special import erf, log_ndtr

        if self.name == "laplace":
            size = jnp.abs(x)
            return jnp.sign(x) * (-math.log(2) - log_ndtr(-size)) / math.sqrt(2)
        if self.name == "uniform":
            return math.sqrt(3) * erf(x / math.sqrt(2))
        if self.nu == math.inf:
            return x
        up, _, _ = _student(self.nu)
        s = x * _chebyshev(up, jnp.minimum((x / REACH) ** 2, 1.0))
        w = s**2 / self.nu
        small = w < 1e-8
        return (
            self._scale
            * s
            * jnp.sqrt(
                jnp.where(small, 1 + w / 2, jnp.expm1(w) / jnp.where(small, 1.0, w))
            )
        )

    def to_normal(self, xi: Real) -> Real:
        """x = Φ⁻¹(F(ξ)); what lies beyond the support or the far tails is moved to
        their ends.
        """
        import jax.numpy as jnp
        from jax.scipy.special import erfinv, ndtri

        if self.name == "laplace":
            tail = jnp.exp(-math.sqrt(2) * jnp.minimum(jnp.abs(xi), 100.0)) / 2
            return -jnp.sign(xi) * ndtri(tail)
        if self.name == "uniform":
            return math.sqrt(2) * erfinv(
                jnp.clip(xi / math.sqrt(3), -1 + 1e-16, 1 - 1e-16)
            )
        if self.nu == math.inf:
            return xi
        _, down, end = _student(self.nu)
        t = jnp.clip(xi / self._scale, -1e150, 1e150)
        v = t**2 / self.nu
        small = v < 1e-8
        s = t * jnp.sqrt(
            jnp.where(small, 1 - v / 2, jnp.log1p(v) / jnp.where(small, 1.0, v))
        )
        s = jnp.clip(s, -end, end)
        return s * _chebyshev(down, (s / end) ** 2)

    @property
    def _scale(self) -> float:
        """What gives Student's t variance one, where it has a variance."""
        return math.sqrt((self.nu - 2) / self.nu) if self.nu > 2 else 1.0


@lru_cache(maxsize=64)
def _student(nu: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Chebyshev coefficients of s/x in x² and of x/s in s², and the largest s: s² = ν
    log(1 + t²/ν) is almost x².
    """
    from numpy.polynomial import chebyshev
    from scipy.special import ndtr, stdtrit

    def s_of(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.sqrt(nu * np.log1p(stdtrit(nu, ndtr(-x)) ** 2 / nu)))

    u = (1 - np.cos(np.pi * (np.arange(4 * DEGREE) + 0.5) / (4 * DEGREE))) / 2
    x = REACH * np.sqrt(u)
    s, end = s_of(x), float(s_of(np.array([REACH]))[0])
    up = chebyshev.chebfit(2 * u - 1, s / x, DEGREE)
    return up, chebyshev.chebfit(2 * (s / end) ** 2 - 1, x / s, DEGREE), end


def _chebyshev(coefficients: np.ndarray, u: Real) -> Real:
    """Clenshaw's sum at 2u − 1."""
    y, b, c = 2 * (2 * u - 1), 0.0 * u, 0.0 * u
    if np.size(u) > MANY:
        import jax

        # a loop that is written out would be computed again by every sum that its
        # values enter
        each = coefficients[:0:-1].astype(jax.numpy.result_type(u))
        b, c = jax.lax.scan(
            lambda bc, x: ((y * bc[0] - bc[1] + x, bc[0]), None), (b, c), each
        )[0]
    else:
        for coefficient in coefficients[:0:-1].tolist():
            b, c = y * b - c + coefficient, b
    return y / 2 * b - c + float(coefficients[0])


@dataclass(frozen=True)
class LabelNoise:
    """The law of the label noise, the probability q of a flip, and the variance of what
    an algorithm adds.
    """

    law: Law = Law("gaussian")
    flips: float = 0.0
    more: float = 0.0

    @classmethod
    def of(cls, law: str | Law, flips: float) -> LabelNoise:
        """From the arguments of a problem."""
        q = finite_number(
            "flips", flips, minimum=0.0, accepted="a probability in [0, 1/2]"
        )
        require(q <= 0.5, "flips", flips, "a probability in [0, 1/2]")
        return cls(law if isinstance(law, Law) else Law.of(law), q)

    @property
    def normals(self) -> int:
        """Normals that a label takes."""
        return 1 + (self.more > 0)

    def again(self, spoilt: Spoilt, x: Any) -> Spoilt:
        """What an algorithm adds to labels, from normals x that are new at every
        visit.
        """
        return (
            Spoilt(spoilt.sign, spoilt.shift + math.sqrt(self.more) * x)
            if self.more
            else spoilt
        )

    @property
    def plain(self) -> bool:
        """Whether labels have Gaussian noise and nothing else."""
        return self.law.name == "gaussian" and self.flips == 0

    @property
    def keep(self) -> float:
        """1 − 2q: what is left of the target in the mean label."""
        return 1 - 2 * self.flips

    @property
    def signs(self) -> list[tuple[float, float]]:
        """Chances and signs of the labels."""
        return (
            [(1 - self.flips, 1.0), (self.flips, -1.0)] if self.flips else [(1.0, 1.0)]
        )

    def spoil(self, x: Real, noise: Number) -> Spoilt:
        """What normals x do to labels at noise Δ. Cost O(1) per label."""
        import jax.numpy as jnp
        from jax.scipy.special import ndtr, ndtri

        if not self.flips:
            return Spoilt(1.0, jnp.sqrt(noise) * self.law.from_normal(x))
        q = self.flips
        below = ndtr(x)
        flipped = below < q
        # within either part what x says is uniform again; the tail that is nearer keeps
        # its digits
        left = jnp.where(flipped, below / q, (below - q) / (1 - q))
        right = jnp.where(flipped, (q - below) / q, ndtr(-x) / (1 - q))
        low = left < right
        tail = jnp.clip(jnp.where(low, left, right), 1e-300, 0.5)
        rest = jnp.where(low, 1.0, -1.0) * ndtri(tail)
        return Spoilt(
            jnp.where(flipped, -1.0, 1.0), jnp.sqrt(noise) * self.law.from_normal(rest)
        )
