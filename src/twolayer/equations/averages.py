"""What the equations of motion need from the fields: five averages, and the engines
that compute them.

    psi_jr = a_j E[σ'(λ_j) λ*_r e]
    phi_jl = a_j E[σ'(λ_j) λ_l e]
    chi_jl = a_j a_l E[σ'(λ_j) σ'(λ_l) e²]
    second_j = E[e σ(λ_j)]
    excess_risk = ½ E[(E[y|z] − f)²],    E[y|z] = h unless labels are flipped

and, for those who carry the rows themselves, the mean gradient as a combination of them
(Stein):

    a_j E[σ'(λ_j) e z] = Σ_l own_jl w_l + Σ_r star_jr w*_r

An `Engine` is chosen once, on the host (engines.py); from then on it is a pytree and a
pure function (Q, M, a, Δ) → Expectations for jit, vmap and grad. Its derivatives with
respect to Q, M and a are those of the averages, in forward and in reverse mode. Where
fields coincide, averages of kinked activations have a cusp: the derivative is then that
along directions in which they go on coinciding. Sampled averages drop derivatives in
directions that raise the rank of Q⊥.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx

from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers, Real, Scalar

__all__ = ["Engine", "Expectations", "Gradient"]


class Expectations(NamedTuple):
    """The averages at one point (Q, M, a), as arrays (p, k), (p, p), (p, p),
    (p,), ().
    """

    psi: Numbers
    phi: Numbers
    chi: Numbers
    second: Numbers
    excess_risk: Any


class Gradient(NamedTuple):
    """Coefficients (p, p) and (p, k) of the mean gradient in the rows of student and
    target, and second (p,).
    """

    own: Numbers
    star: Numbers
    second: Numbers


class Engine(eqx.Module):
    """(Q, M, a, Δ) → Expectations."""

    @abc.abstractmethod
    def __call__(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Expectations:
        """The averages at one point, inside compiled code."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Which rules are used, for reports."""

    @abc.abstractmethod
    def gradient(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Gradient:
        """The mean gradient as a combination of the rows, inside compiled code."""

    @abc.abstractmethod
    def work(self, p: int) -> float:
        """Terms of one evaluation: elementary function values, about 5 ns each on one
        core.
        """

    def irreducible(self, noise: Number) -> Number:
        """½ E Var(y|z), what the risk contains beyond the excess risk."""
        return noise / 2

    def excess_risk(self, Q: Gram, M: Cross, a: Layer) -> Real:
        """The excess risk alone at one point, inside compiled code."""
        return self(Q, M, a, 0.0).excess_risk

    def risk_work(self, p: int) -> float:
        """Terms of the excess risk alone."""
        return self.work(p)
