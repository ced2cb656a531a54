"""The part of second order in e:  V_jl = E[σ'_j σ'_l (h − s f)²],  without a_j a_l and without the label noise.

closed for erf, ReLU and polynomials against a ridge sum of the same kind,
Σ_{q,r} w_q w_r E[σ'_j σ'_l σ_q σ_r]  over all fields,  w = (−s a/p, c);
against any other target:  E[σ'σ'h²] − (2s/p) Σ_m a_m E[σ'σ'σ_m h] + (s²/p²) Σ_mn a_m a_n E[σ'σ'σ_m σ_n],
the first two conditioned on λ*
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from twolayer.gaussian import erf, polynomial, relu
from twolayer.gaussian.targets import NodeTarget, RidgeTarget

__all__ = ["ErfNodes", "ErfRidge", "PolynomialNodes", "PolynomialRidge", "ReluRidge"]


def _signed_weights(student: float, a: Any, ridge: RidgeTarget) -> Any:
    return jnp.concatenate([-student * a / a.shape[0], jnp.asarray(ridge.c)])


class ErfRidge(eqx.Module):
    """erf student, sum of erf ridges: cost O(p²(p + k)²)."""

    target: RidgeTarget
    label: str = eqx.field(static=True, default="closed form")

    def __call__(self, Q: Any, M: Any, a: Any, student: float) -> Any:
        """V (p, p)."""
        weights = _signed_weights(student, a, self.target)
        return erf.four_point(self.target.covariance(Q, M), weights, a.shape[0])


class ReluRidge(eqx.Module):
    """ReLU student, sum of ReLU ridges: cost O(order · p²(p + k)²)."""

    target: RidgeTarget
    order: int = eqx.field(static=True)
    label: str = eqx.field(static=True, default="closed form with a 1-d quadrature")

    def __call__(self, Q: Any, M: Any, a: Any, student: float) -> Any:
        """V (p, p)."""
        weights = _signed_weights(student, a, self.target)
        return relu.four_point(self.target.covariance(Q, M), weights, a.shape[0], self.order)


class PolynomialRidge(eqx.Module):
    """Polynomial student, sum of polynomial ridges: cost O(graphs · p²(p + k)²)."""

    target: RidgeTarget
    label: str = eqx.field(static=True, default="closed form")

    def __call__(self, Q: Any, M: Any, a: Any, student: float) -> Any:
        """V (p, p)."""
        own, other = self.target.activation.polynomial, self.target.ridge.polynomial
        assert own is not None and other is not None
        p, C = a.shape[0], self.target.covariance(Q, M)
        variance, orders = jnp.diagonal(C), max(len(own), len(other))
        value = jnp.concatenate(
            [
                polynomial.derivative_means(own, 0.0, variance[:p], orders),
                polynomial.derivative_means(other, 0.0, variance[p:], orders),
            ],
            axis=1,
        )
        slope = value[1 : len(own)]
        return polynomial.four_point(C, slope, value, _signed_weights(student, a, self.target), p)


class PolynomialNodes(eqx.Module):
    """Polynomial student, any target: cost O(graphs · (p⁴ + nodes · p³))."""

    target: NodeTarget
    coefficients: tuple[float, ...] = eqx.field(static=True)

    @property
    def label(self) -> str:
        """What is done, for reports."""
        return f"Wick sums, target by {self.target.label}"

    def __call__(self, Q: Any, M: Any, a: Any, student: float) -> Any:
        """V (p, p)."""
        t, orders, weights = self.target, len(self.coefficients), a / a.shape[0]
        mean, perp = t.conditional(Q, M)
        value = polynomial.derivative_means(self.coefficients, mean, jnp.diagonal(perp), orders)
        total = polynomial.two_point(perp, value[1:], t.weights * t.h**2)
        if student:
            cross = polynomial.three_point(perp, value[1:], value, weights, t.weights * t.h)
            still = polynomial.derivative_means(self.coefficients, 0.0, jnp.diagonal(Q), orders)
            own = polynomial.four_point(Q, still[1:], still, weights, a.shape[0])
            total = total - 2 * student * cross + student**2 * own
        return total


class ErfNodes(eqx.Module):
    """erf student, any target: cost O(nodes · p³ + p⁴)."""

    target: NodeTarget

    @property
    def label(self) -> str:
        """What is done, for reports."""
        return f"closed form, target by {self.target.label}"

    def __call__(self, Q: Any, M: Any, a: Any, student: float) -> Any:
        """V (p, p)."""
        t, p, weights = self.target, a.shape[0], a / a.shape[0]
        mean, perp = t.conditional(Q, M)

        def entry(pair: Any) -> Any:
            j, l = pair
            wide = jnp.eye(2) + perp[jnp.ix_(jnp.stack([j, l]), jnp.stack([j, l]))]
            inverse = jnp.linalg.inv(wide)
            shift = mean[:, jnp.stack([j, l])] @ inverse  # (N, 2)
            density = jnp.exp(-(shift * mean[:, jnp.stack([j, l])]).sum(-1) / 2)
            density = 2 / math.pi * density / jnp.sqrt(jnp.linalg.det(wide))
            total = (t.weights * t.h**2) @ density
            if student:
                to = perp[:, jnp.stack([j, l])]  # (p, 2)
                tilted = mean - shift @ to.T
                spread = jnp.diagonal(perp) - jnp.einsum("mi,ij,mj->m", to, inverse, to)
                f = jax.lax.erf(tilted / jnp.sqrt(2 * (1 + spread))) @ weights
                total = total - 2 * student * (t.weights * t.h * f) @ density
            return total

        grid = jnp.meshgrid(jnp.arange(p), jnp.arange(p), indexing="ij")
        V = jax.lax.map(entry, (grid[0].reshape(-1), grid[1].reshape(-1))).reshape(p, p)
        return V + student**2 * erf.four_point(Q, weights, p) if student else V
