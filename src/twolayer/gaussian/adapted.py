"""Engines for students that are no means over neurons.

    f = (1/N) Σ_j a_j σ(λ_j) = (1/p) Σ_j b_j σ(λ_j),    b = (p/N) a
    psi(a) = (N/p) psi(b),  phi(a) = (N/p) phi(b),  chi(a) = (N/p)² chi(b),    second and risk those at b

All other engines average over the fields of a mean over neurons.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx

from twolayer.equations.averages import Averages, Engine, Gradient

__all__ = ["AdaptedEngine"]


class AdaptedEngine(Engine):
    """An engine of means over neurons at a second layer that is ``scale`` = p/N times as large."""

    inner: Engine
    scale: float = eqx.field(static=True)

    @property
    def label(self) -> str:
        """Which rules are used."""
        return self.inner.label

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        return self.inner.work(p)

    def risk_work(self, p: int) -> float:
        """Terms of the excess risk alone."""
        return self.inner.risk_work(p)

    def __call__(self, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
        """The averages at one point."""
        s = self.scale
        psi, phi, chi, second, risk = self.inner(Q, M, s * a, noise)
        return Averages(psi / s, phi / s, chi / s**2, second, risk)

    def gradient(self, Q: Any, M: Any, a: Any, noise: Any) -> Gradient:
        """The mean gradient as a combination of the rows."""
        own, star, second = self.inner.gradient(Q, M, self.scale * a, noise)
        return Gradient(own / self.scale, star / self.scale, second)
