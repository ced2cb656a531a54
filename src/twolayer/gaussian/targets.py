"""How the target enters averages of first order in e: Linear = (E[σ'_j λ*_r h], E[σ'_j
λ_l h], E[σ_j h], E[h²]).

ridge sum  h = Σ_r c_r σ*(v_r · λ*):   pairs of fields (λ_j, v_r · λ*)
any other:                             condition on λ* at the nodes of a rule
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.functions.activation import Activation
from twolayer.functions.target import Target
from twolayer.gaussian.closed_forms import forms_of, pair_of, pair_work
from twolayer.gaussian.nodes import NodeRule, target_frame
from twolayer.gaussian.two_point import Forms, Pair
from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers

__all__ = [
    "Linear",
    "NodeTarget",
    "RidgeTarget",
    "TargetRows",
    "ridge_target",
    "student_rows",
    "student_terms",
]


class Linear(NamedTuple):
    """E[σ'_j λ*_r X], E[σ'_j λ_l X], E[σ_j X] and E[X²] for X = h or X = f."""

    star: Numbers
    own: Numbers
    value: Numbers
    square: Numbers


def student_terms(forms: Forms, Q: Gram, M: Cross, a: Layer) -> tuple[Linear, Pair]:
    """X = f: all pairs of student neurons. Cost O(p²) pairs, O(p²(p + k)) products."""
    variance, weight = jnp.diagonal(Q), a / a.shape[0]
    pair = forms.pair(variance[:, None], Q, variance[None, :])
    K, D = pair.dd * weight, (pair.hd * weight).sum(1)[:, None]
    return Linear(
        K @ M + D * M, K @ Q + D * Q, pair.ff @ weight, weight @ pair.ff @ weight
    ), pair


class TargetRows(NamedTuple):
    """E[σ'_j z X] = (own w + star w*)_j for X = h or X = f, and E[σ_j X]."""

    own: Numbers
    star: Numbers
    value: Numbers


def student_rows(forms: Forms, Q: Gram, M: Cross, a: Layer) -> TargetRows:
    """X = f: all pairs of student neurons."""
    variance, weight = jnp.diagonal(Q), a / a.shape[0]
    pair = forms.pair(variance[:, None], Q, variance[None, :])
    return TargetRows(
        pair.dd * weight + jnp.diag(pair.hd @ weight),
        jnp.zeros_like(M),
        pair.ff @ weight,
    )


class RidgeTarget(eqx.Module):
    """h = Σ_r c_r σ*(t_r) with t = V λ*."""

    activation: Activation = eqx.field(static=True)
    ridge: Activation = eqx.field(static=True)
    order: int = eqx.field(static=True)
    V: np.ndarray
    c: np.ndarray
    P: np.ndarray

    @property
    def label(self) -> str:
        """What is done, for reports."""
        return "closed form" if self.closed else "quadrature over pairs"

    @property
    def ridge_forms(self) -> Forms:
        """The averages of σ*."""
        return forms_of(self.ridge, self.order)

    @property
    def closed(self) -> bool:
        """Whether student and teacher have closed pair averages together."""
        return (
            forms_of(self.activation, self.order).pair_with(self.ridge_forms)
            is not None
        )

    def pair(self, c11: Number, c12: Number, c22: Number) -> Pair:
        """Averages at a student field and a ridge."""
        return pair_of(self.activation, self.ridge, self.order)(c11, c12, c22)

    def signed_weights(self, student: float, a: Layer) -> Numbers:
        """(−s a/p, c): h − s f as one sum over all fields."""
        return jnp.concatenate([-student * a / a.shape[0], jnp.asarray(self.c)])

    def work(self, p: int) -> float:
        """Terms of one evaluation of the pairs."""
        ridges = len(self.c)
        return pair_work(
            self.activation, self.ridge, self.order, p + ridges, p * ridges
        )

    def covariance(self, Q: Gram, M: Cross) -> Numbers:
        """Covariance of the student and target fields (λ, t)."""
        cross = M @ self.V.T
        return jnp.block([[Q, cross], [cross.T, self.V @ self.P @ self.V.T]])

    def terms(self, Q: Gram, M: Cross) -> Linear:
        """X = h. Cost O(p · ridges) pairs."""
        cross, gram = M @ self.V.T, self.V @ self.P @ self.V.T
        variance = jnp.diagonal(gram)
        pair = self.pair(jnp.diagonal(Q)[:, None], cross, variance[None, :])
        K, D = pair.dd * self.c, (pair.hd * self.c).sum(1)[:, None]
        return Linear(
            K @ (self.V @ self.P) + D * M,
            K @ cross.T + D * Q,
            pair.ff @ self.c,
            self.square(),
        )

    def square(self) -> Numbers:
        """E[h²]."""
        gram = jnp.asarray(self.V @ self.P @ self.V.T)
        variance = jnp.diagonal(gram)
        return (
            self.c
            @ self.ridge_forms.pair(variance[:, None], gram, variance[None, :]).ff
            @ self.c
        )

    def rows(self, Q: Gram, M: Cross) -> TargetRows:
        """X = h, as a combination of the rows."""
        variance = jnp.diagonal(self.V @ self.P @ self.V.T)
        pair = self.pair(jnp.diagonal(Q)[:, None], M @ self.V.T, variance[None, :])
        return TargetRows(
            jnp.diag(pair.hd @ self.c), (pair.dd * self.c) @ self.V, pair.ff @ self.c
        )


class NodeTarget(eqx.Module):
    """Any h, at the nodes λ*_ν of a rule."""

    forms: Forms = eqx.field(static=True)
    label: str = eqx.field(static=True)
    sampled: bool = eqx.field(static=True)
    xi: np.ndarray
    weights: np.ndarray
    h: np.ndarray
    L: np.ndarray
    inverse: np.ndarray

    @classmethod
    def build(cls, forms: Forms, rule: NodeRule, P: np.ndarray) -> NodeTarget:
        """From a rule for the same P."""
        return cls(
            forms,
            rule.label,
            rule.sampled,
            rule.points,
            rule.weights,
            rule.values,
            *target_frame(P),
        )

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        return self.forms.single_work(len(self.weights) * p)

    def conditional(self, Q: Gram, M: Cross) -> tuple[Numbers, Numbers]:
        """Means of the student fields at the nodes (N, p), and their covariance Q⊥
        given λ*.
        """
        A = M @ self.inverse.T
        return self.xi @ A.T, Q - A @ A.T

    def _slopes(self, mean: Numbers, perp: Number) -> tuple[Numbers, Numbers, Numbers]:
        """Weighted h σ'_j at the nodes (N, p), E[h σ''_j] (p,) and E[h σ_j] (p,)."""
        single = self.forms.single(mean, jnp.diagonal(perp))
        weighted = self.weights * self.h
        return (
            weighted[:, None] * single.slope,
            weighted @ single.bend,
            weighted @ single.value,
        )

    def terms(self, Q: Gram, M: Cross) -> Linear:
        """X = h. Cost O(nodes · p) one-field averages."""
        mean, perp = self.conditional(Q, M)
        slope, curvature, value = self._slopes(mean, perp)
        return Linear(
            slope.T @ (self.xi @ self.L.T),
            slope.T @ mean + curvature[:, None] * perp,
            value,
            self.weights @ self.h**2,
        )

    def rows(self, Q: Gram, M: Cross) -> TargetRows:
        """X = h, as a combination of the rows; what is orthogonal to the target is w −
        M P⁺ w*.
        """
        slope, curvature, value = self._slopes(*self.conditional(Q, M))
        inside = slope.T @ self.xi - curvature[:, None] * (M @ self.inverse.T)
        return TargetRows(jnp.diag(curvature), inside @ self.inverse, value)


def ridge_target(
    target: Target, activation: Activation, P: np.ndarray, order: int
) -> RidgeTarget | None:
    """The ridge form of a target next to a student activation, or None."""
    ridge = target.ridge
    if ridge is None:
        return None
    both = forms_of(activation, order), forms_of(ridge.activation, order)
    return RidgeTarget(
        activation,
        ridge.activation,
        0 if both[0].pair_with(both[1]) is not None else order,
        np.array(ridge.directions),
        np.array(ridge.weights),
        np.asarray(P),
    )
