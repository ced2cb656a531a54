"""How one step fluctuates around its mean, and what it knows of a finite dimension,
from what single samples do.

    X_M = g_j λ*_r,    X_Q = g_j ρ_l + g_l ρ_j + η (d/n_b) g_j g_l,    X_a = e σ(λ_j)
    Cov of (M', Q', a') = (η²/n_b) [ Cov X + χ_jj' Γ_ll' + χ_jl' Γ_lj' + χ_lj' Γ_jl'
        + χ_ll' Γ_jj' ]

ρ are the fields of the mean new rows. The four terms belong to Q alone; Γ = ½ η²
(d/n_b) χ is the part of the gradient that is orthogonal to all fields, whose Gram
matrix is a Wishart matrix. Spherical: each sample's gradient loses its component along
w_j.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.equations.optimiser_step import form_of
from twolayer.equations.state import Overlap, pack
from twolayer.gaussian.sample_parts import Parts, covariance
from twolayer.gaussian.single_samples import Choice, TaskSamples
from twolayer.numerics.types import Cross, Gram, Number, Numbers, Real
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem

__all__ = ["OwnCovariance", "StepSamples"]


class OwnCovariance(NamedTuple):
    """Covariances with the squared norms: of M_jr and Q_jl with Q_jj, (p, k) and (p,
    p), and of Q_jj with Q_ll.
    """

    M: Cross
    Q: Gram
    norms: Real


class StepSamples(TaskSamples):
    """What single samples of a task do, and what a step makes of them."""

    tangent: bool = eqx.field(
        static=True
    )  # whether gradients lose their component along their own row

    @classmethod
    def of(
        cls, problem: Problem, algorithm: SGD, choice: Choice | None = None
    ) -> StepSamples:
        """Those that fit the problem, or as they were chosen before."""
        return cls.build(problem, algorithm, choice, tangent=form_of(algorithm).tangent)

    def finite_dimension(self, y: Overlap, at: Parts) -> Numbers:
        """E[g_j g_l (uᵀΩ⁺u − r)], r = rank Ω, less the normal components where
        gradients are tangent.
        """
        # a null direction of Q⊥ adds one to r and an independent ξ² of mean one:
        # nothing in all
        weights, pull = at.pulls()
        weighted = weights[:, None, None] * pull
        total = jnp.einsum("vja,vla->jl", weighted, pull)
        total = total - pull.shape[2] * at.mean.pair
        if self.tangent:
            pulled = pull @ self.rows(y).own.T  # g_j λ_l
            own = jnp.diagonal(pulled, axis1=1, axis2=2) / jnp.diagonal(y.Q)
            weighted = weights[:, None] * own
            inside = jnp.einsum("vj,vlj->jl", weighted, pulled)
            total = total - inside - inside.T + (weighted.T @ own) * y.Q
        return total

    def _features(
        self, y: Overlap, at: Parts, rho: Real, own: Number, ratio: Number
    ) -> tuple[Numbers, Numbers]:
        """Parts of X_M (N, p, k) and X_Q (N, p, p); ``rho`` are the mean new rows,
        ``own`` is W·(these)ᵀ and ``ratio`` is η d/n_b.
        """
        rows = self.rows(y)
        star, mixed = at.pull @ rows.star.T, at.pull @ rho.T
        if self.tangent:
            normal = jnp.einsum("vja,ja->vj", at.pull, rows.own) / jnp.diagonal(y.Q)
            star = star - normal[:, :, None] * y.M
            mixed = mixed - normal[:, :, None] * own
        return star, mixed + mixed.swapaxes(1, 2) + ratio * at.pair

    def own_covariance(
        self,
        y: Overlap,
        at: Parts,
        rho: Real,
        own: Number,
        ratio: Number,
        chi: Numbers,
        gamma: Number,
    ) -> OwnCovariance:
        """Covariances with the norms in units of η²/n_b. Cost O(parts · p (p + k))."""
        star, square = self._features(y, at, rho, own, ratio)
        norms = jnp.diagonal(square, axis1=1, axis2=2)
        weighted = at.weights[:, None] * norms
        c, g = jnp.diagonal(chi), jnp.diagonal(gamma)
        return OwnCovariance(
            jnp.einsum("nj,njr->jr", weighted, star),
            jnp.einsum("nj,njl->jl", weighted, square)
            + 2 * (c[:, None] * gamma + chi * g[:, None]),
            (weighted.T @ norms) + 4 * chi * gamma,
        )

    def covariance(
        self,
        trained: bool,
        y: Overlap,
        at: Parts,
        rho: Real,
        own: Real,
        ratio: Real,
        chi: Real,
        gamma: Real,
    ) -> Real:
        """Cov of the packed (M, Q, a) in units of η²/n_b. Cost O(parts · F²), F = p k +
        p (p + 1)/2 + p.
        """
        star, square = self._features(y, at, rho, own, ratio)
        total = jnp.asarray(
            covariance(at.weights, pack(square, star, at.second, trained))
        )
        j, l = np.triu_indices(len(chi))
        ends = ((j, l), (l, j))
        wishart = sum(
            chi[np.ix_(a, c)] * gamma[np.ix_(b, d)] for a, b in ends for c, d in ends
        )
        first = star.shape[1] * star.shape[2]
        return total.at[first : first + len(j), first : first + len(j)].add(wishart)
