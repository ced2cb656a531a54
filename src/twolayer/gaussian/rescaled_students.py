"""Engines for students that are no means over neurons, for labels that are flipped, and
for pushes with other weights than the second layer (linear_rules.py).

    f = (1/N) Σ_j a_j σ(λ_j) = (1/p) Σ_j b_j σ(λ_j),    b = (p/N) a
    psi(a) = (N/p) psi(b),  phi(a) = (N/p) phi(b),  chi(a) = (N/p)² chi(b),
        second and risk those at b

    y → −y with probability q, and e linear:
        e(−h, f) = −e(h, −f), which is −e at −a. So
    psi, phi, chi = (1 − q) X(a) + q X(−a),    second = (1 − q) X(a) − q X(−a)
    ½ E[(y − f)²] = (1 − q) R(a) + q R(−a) + Δ/2,    of which no f can take away
        2 q (1 − q) E[h²] + Δ/2

    ĝ_j = w_j σ'(λ_j) e:  psi, phi and chi at b, with w in the place of b in the push,
        and −w at −a

All other engines average over the fields of a mean over neurons; those of linear losses
know true labels only.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from twolayer.equations.averages import Engine, Expectations, Gradient
from twolayer.gaussian.by_parts import PartsEngine
from twolayer.gaussian.linear_rules import PushWeights
from twolayer.gaussian.quadratic import QuadraticEngine
from twolayer.numerics.types import Cross, Gram, Layer, Number, Scalar

__all__ = ["AdaptedEngine"]


class AdaptedEngine(Engine):
    """An engine at a second layer ``scale`` = p/N times as large, mixed with itself at
    −a where labels flip.

    ``square`` is E[h²], and ``weights`` are those of the push where it has its own.
    Cost that of the inner engine, twice with flips.
    """

    inner: Engine
    scale: float = eqx.field(static=True)
    flips: float = eqx.field(static=True)
    square: Number
    weights: PushWeights | None = eqx.field(static=True, default=None)

    @property
    def label(self) -> str:
        """Which rules are used."""
        return self.inner.label

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        return self.inner.work(p) * (2 if self.flips else 1)

    def risk_work(self, p: int) -> float:
        """Terms of the excess risk alone."""
        return self.inner.risk_work(p) * (2 if self.flips else 1)

    def irreducible(self, noise: Number) -> Number:
        """½ E Var(y|z)."""
        return noise / 2 + 2 * self.flips * (1 - self.flips) * self.square

    def __call__(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Expectations:
        """The averages at one point."""
        q = self.flips
        psi, phi, chi, second, risk = self._of_sign(1.0, Q, M, a, noise)
        if q:
            other = self._of_sign(-1.0, Q, M, a, noise)
            pairs = (
                (psi, other.psi),
                (phi, other.phi),
                (chi, other.chi),
                (risk, other.excess_risk),
            )
            psi, phi, chi, risk = ((1 - q) * x + q * y for x, y in pairs)
            second = (1 - q) * second - q * other.second
            risk = jnp.maximum(risk - 2 * q * (1 - q) * self.square, 0.0)
        return Expectations(psi, phi, chi, second, risk)

    def _of_sign(
        self, sign: float, Q: Gram, M: Cross, a: Layer, noise: Scalar
    ) -> Expectations:
        """The averages for labels of one sign, from those for true ones."""
        s = self.scale
        if self.weights is None:
            psi, phi, chi, second, risk = self.inner(Q, M, sign * s * a, noise)
            return Expectations(psi / s, phi / s, chi / s**2, second, risk)
        assert isinstance(self.inner, PartsEngine | QuadraticEngine)
        push = sign * self.weights.at(a)
        return self.inner(Q, M, sign * s * a, noise, push)

    def gradient(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Gradient:
        """The mean gradient as a combination of the rows."""
        q = self.flips
        own, star, second = self._gradient_of_sign(1.0, Q, M, a, noise)
        if q:
            other = self._gradient_of_sign(-1.0, Q, M, a, noise)
            own, star = (1 - q) * own + q * other.own, (1 - q) * star + q * other.star
            second = (1 - q) * second - q * other.second
        return Gradient(own, star, second)

    def _gradient_of_sign(
        self, sign: float, Q: Gram, M: Cross, a: Layer, noise: Scalar
    ) -> Gradient:
        s = self.scale
        if self.weights is None:
            own, star, second = self.inner.gradient(Q, M, sign * s * a, noise)
            return Gradient(own / s, star / s, second)
        assert isinstance(self.inner, PartsEngine | QuadraticEngine)
        push = sign * self.weights.at(a)
        return self.inner.gradient(Q, M, sign * s * a, noise, push)
