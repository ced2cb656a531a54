"""What one sample does, as a sum of uncorrelated parts.

    x = (g_j ξ_a, g_j g_l, e σ(λ_j)),    λ = R ξ,  λ* = L ξ,    ξ ~ N(0, I)
    x = E[x] + Σ_ν √w_ν x_ν ζ_ν,    E[ζ_ν] = 0,  E[ζ_ν ζ_ν'] = δ_νν'
    Cov[T x] = Σ_ν w_ν (T x_ν)(T x_ν)ᵀ

Everything that fluctuates in a step is linear in x: increments of the overlaps, the
lengths of rows, sums over a batch. A part is what a sample does at one node, less its
mean, or a term of an expansion.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from twolayer.numerics.types import Gram, Layer, Number, Numbers, Real

__all__ = ["FieldRows", "Parts", "SampleMean", "covariance"]


class FieldRows(NamedTuple):
    """R (p, n) of the student's fields and L (k, n) of the target's."""

    own: Real
    star: Real

    @classmethod
    def of(cls, A: Numbers, B: Numbers, L: Numbers) -> FieldRows:
        """FieldRows (A, B) of the student in the frame of the target and beyond."""
        beyond = jnp.zeros((L.shape[0], B.shape[1]))
        return cls(
            jnp.concatenate([A, B], axis=1), jnp.concatenate([L, beyond], axis=1)
        )


class SampleMean(NamedTuple):
    """E[g_j ξ_a] (p, n), E[g_j g_l] (p, p) and E[e σ(λ_j)] (p,)."""

    pull: Numbers
    pair: Gram
    second: Layer


class Parts(NamedTuple):
    """w (N,) and the parts of g_j ξ_a (N, p, n), g_j g_l (N, p, p) and e σ(λ_j) (N, p);
    and the means.
    """

    weights: Numbers
    pull: Real
    pair: Real
    second: Real
    mean: SampleMean

    def pulls(self) -> tuple[Numbers, Real]:
        """Weights (N + 1,) and parts of g_j ξ_a with the mean as one more: E[g_j ξ_a
        g_l ξ_b] is their sum of products.
        """
        weights = jnp.concatenate([self.weights, jnp.ones(1)])
        return weights, jnp.concatenate([self.pull, self.mean.pull[None]])


def covariance(weights: Numbers, X: Number) -> Numbers:
    """Σ_ν w_ν X_ν X_νᵀ of parts X (N, F). Cost O(N F²)."""
    return (weights[:, None] * X).T @ X
