"""How one step fluctuates around its mean, and what it knows of a finite dimension: nodes over all fields.

    X_M = g_j λ*_r,    X_Q = g_j ρ_l + g_l ρ_j + η (d/n_b) g_j g_l,    X_a = e σ(λ_j)
    Cov of (M', Q', a') = (η²/n_b) [ Cov X + χ_jj' Γ_ll' + χ_jl' Γ_lj' + χ_lj' Γ_jl' + χ_ll' Γ_jj' ]

ρ are the fields of the mean new rows. The four terms belong to Q alone; Γ = ½ η² (d/n_b) χ is the
part of the gradient that is orthogonal to all fields, whose Gram matrix is a Wishart matrix. Spherical: each sample's
gradient loses its component along w_j.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.equations.optimiser_step import form_of
from twolayer.equations.state import Overlap, pack
from twolayer.gaussian.single_samples import SampleNodes, Visited, covariance
from twolayer.numerics.types import Cross, Gram, Number, Numbers, Real
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem

__all__ = ["OwnCovariance", "StepNodes"]


class OwnCovariance(NamedTuple):
    """Covariances with the squared norms: of M_jr and Q_jl with Q_jj, (p, k) and (p, p), and of Q_jj with Q_ll."""

    M: Cross
    Q: Gram
    norms: Real


class StepNodes(SampleNodes):
    """The nodes of a task, and what a step makes of their samples."""

    tangent: bool = eqx.field(
        static=True
    )  # whether gradients lose their component along their own row

    @classmethod
    def of(cls, problem: Problem, algorithm: SGD) -> StepNodes:
        """Nodes that fit the problem."""
        return cls.build(problem, algorithm, tangent=form_of(algorithm).tangent)

    def finite_dimension(self, y: Overlap, at: Visited) -> Numbers:
        """E[g_j g_l (uᵀΩ⁺u − r)], r = rank Ω, less the normal components where gradients are tangent."""
        # a null direction of Q⊥ adds one to r and an independent ξ² of mean one: nothing in all
        inside = (at.xi**2).sum(1) - at.xi.shape[1]
        total = (at.weights[:, None] * inside[:, None] * at.g).T @ at.g
        if self.tangent:
            norm = jnp.diagonal(y.Q)
            square = (
                at.weights[:, None] * at.g * at.student**2 / norm
            ).T @ at.g  # E[g_j λ_j² g_l]/Q_jj
            along = at.g * at.student / norm
            total = (
                total
                - square
                - square.T
                + (at.weights[:, None] * along).T @ along * y.Q
            )
        return total

    def _normal(self, y: Overlap, at: Visited) -> Numbers:
        """g_j λ_j/Q_jj where it is removed, else zero."""
        return at.g * at.student / jnp.diagonal(y.Q) * self.tangent

    def _features(
        self, y: Overlap, at: Visited, rho: Numbers, own: Number, ratio: Number
    ) -> tuple[Numbers, Numbers]:
        """X_M (n, p, k) and X_Q (n, p, p); ``own`` is W·(mean new rows)ᵀ and ``ratio`` is η d/n_b."""
        normal = self._normal(y, at)
        star = at.g[:, :, None] * at.target[:, None, :] - normal[:, :, None] * y.M
        mixed = at.g[:, :, None] * rho[:, None, :] - normal[:, :, None] * own
        return star, mixed + mixed.swapaxes(1, 2) + ratio * at.g[:, :, None] * at.g[
            :, None, :
        ]

    def own_covariance(
        self,
        y: Overlap,
        at: Visited,
        rho: Numbers,
        own: Number,
        ratio: Number,
        chi: Numbers,
        gamma: Number,
    ) -> OwnCovariance:
        """Covariances with the norms in units of η²/n_b. Cost O(nodes · p (p + k))."""
        w = at.weights
        star, square = self._features(y, at, rho, own, ratio)
        norms = jnp.diagonal(square, axis1=1, axis2=2)
        centred = w[:, None] * (norms - w @ norms)
        c, g = jnp.diagonal(chi), jnp.diagonal(gamma)
        return OwnCovariance(
            jnp.einsum("nj,njr->jr", centred, star),
            jnp.einsum("nj,njl->jl", centred, square)
            + 2 * (c[:, None] * gamma + chi * g[:, None]),
            (centred.T @ norms) + 4 * chi * gamma,
        )

    def covariance(
        self,
        trained: bool,
        y: Overlap,
        at: Visited,
        rho: Real,
        own: Real,
        ratio: Real,
        chi: Real,
        gamma: Real,
    ) -> Real:
        """Cov of the packed (M, Q, a) in units of η²/n_b. Cost O(nodes · F²), F = p k + p (p + 1)/2 + p."""
        star, square = self._features(y, at, rho, own, ratio)
        X = pack(square, star, at.second, trained)
        total = jnp.asarray(covariance(at.weights, X))
        j, l = np.triu_indices(len(chi))
        ends = ((j, l), (l, j))
        wishart = sum(
            chi[np.ix_(a, c)] * gamma[np.ix_(b, d)] for a, b in ends for c, d in ends
        )
        first = star.shape[1] * star.shape[2]
        return total.at[first : first + len(j), first : first + len(j)].add(wishart)
