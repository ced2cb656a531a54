"""Averages by parts: what is of first order in e from one and two fields, what is of
second order from four.

    linear losses, e = h − s f + √Δ ξ:     E[σ'_j u e] = E[σ'_j u h] − s E[σ'_j u f]
        (targets.py, two_point.py)
                                           E[σ'_j σ'_l e²] = V_jl + Δ E[σ'_j σ'_l]
                                               closed, or all fields at once
    any other loss:    E[σ'_j u e] = α E[σ'_j u h] − β E[σ'_j u f] + E[σ'_j u (e − α h
                       + β f)]

with α h − β f the best fit to e at the points: only what is left of it is sampled. (e =
½ y − ¼ f + … for the logistic loss, e = y for the hinge loss while outputs are small.)
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp

from twolayer.equations.averages import Engine, Expectations, Gradient
from twolayer.gaussian.all_fields import FullRule
from twolayer.gaussian.targets import (
    Linear,
    NodeTarget,
    RidgeTarget,
    student_rows,
    student_terms,
)
from twolayer.gaussian.two_point import Forms, SecondOrder
from twolayer.numerics.types import Cross, Gram, Layer, Numbers, Real, Scalar

__all__ = ["FittedEngine", "Nothing", "PartsEngine"]


class Nothing(eqx.Module):
    """In the place of a second-order part that is not wanted."""

    label: str = eqx.field(static=True, default="none")

    def __call__(self, Q: Gram, M: Cross, a: Layer, student: float) -> Numbers:
        """Zeros."""
        return jnp.zeros_like(Q)

    def work(self, p: int) -> float:
        """None."""
        return 0.0


class PartsEngine(Engine):
    """Linear losses: pairs of fields, and a rule for the second-order part. Cost that
    of both.
    """

    student: float = eqx.field(static=True)
    forms: Forms = eqx.field(static=True)
    target: RidgeTarget | NodeTarget
    variance: SecondOrder | FullRule

    @property
    def closed(self) -> bool:
        """Whether no part is truncated or sampled."""
        return (
            self.forms.closed
            and self.variance.label == "closed form" == self.target.label
        )

    @property
    def label(self) -> str:
        """Which rules are used."""
        return _first_label(self.forms, self.target) + (
            "" if self.closed else f"; chi: {self.variance.label}"
        )

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        return self.risk_work(p) + self.variance.work(p)

    def risk_work(self, p: int) -> float:
        """Terms of the first-order part."""
        return self.forms.pair_work(p, p * p) + self.target.work(p)

    def __call__(
        self,
        Q: Gram,
        M: Cross,
        a: Layer,
        noise: Scalar,
        weights: Layer | None = None,
    ) -> Expectations:
        """The averages at one point; ``weights`` stand in the place of a in the push,
        where the second-order part is closed.
        """
        f, pair = student_terms(self.forms, Q, M, a)
        h = self.target.terms(Q, M)
        s = self.student
        w = a if weights is None else weights
        if isinstance(self.variance, FullRule):
            assert weights is None, "nodes over all fields know the push with a"
            chi = self.variance.averages(Q, M, a, noise).chi
        else:
            chi = (
                w[:, None] * w[None, :] * (self.variance(Q, M, a, s) + noise * pair.dd)
            )
        return Expectations(
            psi=w[:, None] * (h.star - s * f.star),
            phi=w[:, None] * (h.own - s * f.own),
            chi=chi,
            second=h.value - s * f.value,
            excess_risk=_risk(h, f, a),
        )

    def excess_risk(self, Q: Gram, M: Cross, a: Layer) -> Numbers:
        """The excess risk alone, for which nothing of second order is needed."""
        return _risk(self.target.terms(Q, M), student_terms(self.forms, Q, M, a)[0], a)

    def gradient(
        self,
        Q: Gram,
        M: Cross,
        a: Layer,
        noise: Scalar,
        weights: Layer | None = None,
    ) -> Gradient:
        """The mean gradient as a combination of the rows; ``weights`` as in a call."""
        f, h, s = (
            student_rows(self.forms, Q, M, a),
            self.target.rows(Q, M),
            self.student,
        )
        w = a if weights is None else weights
        return Gradient(
            w[:, None] * (h.own - s * f.own),
            w[:, None] * (h.star - s * f.star),
            h.value - s * f.value,
        )


class FittedEngine(Engine):
    """Any loss: the linear fit to its residual by parts, the rest at Sobol points over
    all fields.
    """

    forms: Forms = eqx.field(static=True)
    target: RidgeTarget | NodeTarget
    rule: FullRule

    @property
    def label(self) -> str:
        """Which rules are used."""
        return (
            f"{_first_label(self.forms, self.target)} for a linear fit to the loss; the"
            f" rest: {self.rule.label}"
        )

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        return self.risk_work(p) + self.rule.work(p)

    def risk_work(self, p: int) -> float:
        """Terms of the linear part."""
        return self.forms.pair_work(p, p * p) + self.target.work(p)

    def _fit(
        self, Q: Gram, M: Cross, a: Layer, noise: Scalar
    ) -> tuple[Expectations, Real, Real]:
        """Sampled averages with what is left of e in those of first order, and the
        coefficients α and β.
        """
        student, target, w = self.rule.fields(Q, M, a)
        e = self.rule.residual(student, target, a, noise)
        basis = jnp.stack([e.h, -e.f], -1)
        gram = (w[:, None] * basis).T @ basis
        ridge = 1e-9 * jnp.trace(gram) * jnp.eye(2)  # h and f may be proportional
        fit = jnp.linalg.solve(gram + ridge, (w * e.mean) @ basis)
        return self.rule.averages(Q, M, a, noise, fit), fit[0], fit[1]

    def fit(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> tuple[Real, Real]:
        """α and β of the linear fit."""
        return self._fit(*map(jnp.asarray, (Q, M, a, noise)))[1:]

    def __call__(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Expectations:
        """The averages at one point."""
        rest, alpha, beta = self._fit(Q, M, a, noise)
        f, _ = student_terms(self.forms, Q, M, a)
        h = self.target.terms(Q, M)
        return Expectations(
            psi=a[:, None] * (alpha * h.star - beta * f.star) + rest.psi,
            phi=a[:, None] * (alpha * h.own - beta * f.own) + rest.phi,
            chi=rest.chi,
            second=alpha * h.value - beta * f.value + rest.second,
            excess_risk=_risk(h, f, a, self.rule.kernel.labels.keep),
        )

    def gradient(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Gradient:
        """The mean gradient as a combination of the rows, the sampled rest by a
        pseudo-inverse.
        """
        rest, alpha, beta = self._fit(Q, M, a, noise)
        f, h = student_rows(self.forms, Q, M, a), self.target.rows(Q, M)
        own, star = self.rule.rows(Q, M, rest)
        return Gradient(
            a[:, None] * (alpha * h.own - beta * f.own) + own,
            a[:, None] * (alpha * h.star - beta * f.star) + star,
            alpha * h.value - beta * f.value + rest.second,
        )


def _risk(h: Linear, f: Linear, a: Layer, keep: float = 1.0) -> Numbers:
    """½ E[(keep h − f)²]."""
    return (
        jnp.maximum(
            keep**2 * h.square - 2 * keep * (a / a.shape[0]) @ h.value + f.square, 0.0
        )
        / 2
    )


def _first_label(forms: Forms, target: RidgeTarget | NodeTarget) -> str:
    """The rules of first order."""
    first = f"closed form ({forms.name})" if forms.closed else "quadrature over pairs"
    return (
        first
        if target.label in ("closed form", first)
        else f"{first}, target by {target.label}"
    )
