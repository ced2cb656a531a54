"""σ(x) = erf(x/√2): every average in closed form.

    E[σσ] = (2/π) arcsin( C12/√((1+C11)(1+C22)) )          E[σ'σ'] = (2/π)/√Λ,
        Λ = (1+C11)(1+C22) − C12²
    E[σ''(1) σ(2)] = −E[σ'σ'] C12/(1+C11)
    E[σ'(1)σ'(2)σ(3)σ(4)] = (4/π²) Λ^(−1/2) arcsin( T34/√((1+T33)(1+T44)) )

where T is the covariance of fields 3, 4 tilted by the two σ': T = C34,34 − C34,12 (1 +
C12,12)⁻¹ C12,34. Against a target at nodes of λ*, E[σ'σ'h²] and E[σ'σ'σh] are the same
Gaussians with means, node by node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.gaussian.two_point import Forms, Ladder, Pair, PairOf, Single, orthonormal
from twolayer.numerics.error_function import error_function
from twolayer.numerics.special import arcsine
from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers, Tree

if TYPE_CHECKING:
    from twolayer.gaussian.targets import NodeTarget, RidgeTarget

__all__ = ["ErfForms", "ErfNodes", "ErfRidge", "four_point"]

TWO_OVER_PI = 2 / math.pi
MAX_NODE_WORK = 2**24  # terms of ErfNodes beyond which chi is sampled instead


@dataclass(frozen=True)
class ErfForms(Forms):
    """One- and two-point averages of erf(x/√2)."""

    name: str = "erf"

    def single(self, mean: Numbers, variance: Numbers) -> Single:
        """E[σ], E[σ'], E[σ''] at given mean and variance."""
        wide = 1.0 + variance
        slope = (
            math.sqrt(TWO_OVER_PI) * jnp.exp(-(mean**2) / (2 * wide)) / jnp.sqrt(wide)
        )
        value = error_function(mean / jnp.sqrt(2 * wide))
        return Single(value, slope, -mean / wide * slope)

    def ladder(self, mean: Numbers, width: Number, orders: int) -> Ladder:
        """Hermite coefficients: σ' is a Gaussian, so each is (−s/√(1+s²))^n
        h_n(μ/√(1+s²)) times the first.
        """
        narrow = jax.lax.rsqrt(1.0 + width**2)
        x = mean * narrow
        slope = math.sqrt(TWO_OVER_PI) * narrow * jnp.exp(-(x**2) / 2)
        return Ladder(
            error_function(math.sqrt(0.5) * x),
            slope * orthonormal(x, orders, -width * narrow),
        )

    def pair_with(self, other: Forms) -> PairOf | None:
        """Two of them."""
        return _pair if isinstance(other, ErfForms) else None

    def ridge_variance(
        self, target: RidgeTarget, p: int, order: int
    ) -> ErfRidge | None:
        """Against a sum of erf ridges."""
        return ErfRidge(target) if target.ridge_forms == self else None

    def node_variance(self, target: NodeTarget, p: int) -> ErfNodes | None:
        """Against any target, while nodes and neurons are few enough."""
        found = ErfNodes(target)
        return found if found.work(p) <= MAX_NODE_WORK else None


def _pair(c11: Number, c12: Number, c22: Number) -> Pair:
    wide = (1 + c11) * (1 + c22)
    dd = TWO_OVER_PI / jnp.sqrt(wide - c12**2)
    ff = TWO_OVER_PI * arcsine(c12 / jnp.sqrt(wide))
    return Pair(ff, dd, -dd * c12 / (1 + c11))


class ErfRidge(eqx.Module):
    """The second-order part against a sum of erf ridges: cost O(p²(p + k)²)."""

    target: RidgeTarget
    label: str = eqx.field(static=True, default="closed form")

    def __call__(self, Q: Gram, M: Cross, a: Layer, student: float) -> Numbers:
        """V (p, p)."""
        return four_point(
            self.target.covariance(Q, M),
            self.target.signed_weights(student, a),
            a.shape[0],
        )

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        return 0.75 * p**2 * (p + len(self.target.c)) ** 2


class ErfNodes(eqx.Module):
    """The second-order part against any target: cost O(nodes · p³ + p⁴)."""

    target: NodeTarget

    @property
    def label(self) -> str:
        """What is done, for reports."""
        return f"closed form, target by {self.target.label}"

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        return len(self.target.weights) * p**2 * (2.0 + 2 * p) + 0.75 * p**4

    def __call__(self, Q: Gram, M: Cross, a: Layer, student: float) -> Numbers:
        """V (p, p)."""
        t, p, weights = self.target, a.shape[0], a / a.shape[0]
        mean, perp = t.conditional(Q, M)

        def entry(pair: Tree) -> Numbers:
            both = jnp.stack(pair)
            wide = jnp.eye(2) + perp[both][:, both]
            inverse = jnp.linalg.inv(wide)
            shift = mean[:, both] @ inverse  # (N, 2)
            density = jnp.exp(-(shift * mean[:, both]).sum(-1) / 2)
            density = TWO_OVER_PI * density / jnp.sqrt(jnp.linalg.det(wide))
            total = (t.weights * t.h**2) @ density
            if student:
                to = perp[:, both]  # (p, 2)
                tilted = mean - shift @ to.T
                spread = jnp.diagonal(perp) - jnp.einsum("mi,ij,mj->m", to, inverse, to)
                f = error_function(tilted / jnp.sqrt(2 * (1 + spread))) @ weights
                total = total - 2 * student * (t.weights * t.h * f) @ density
            return total

        j, l = np.triu_indices(p)
        found = jax.lax.map(entry, (jnp.asarray(j), jnp.asarray(l)))
        V = jnp.zeros((p, p)).at[j, l].set(found).at[l, j].set(found)
        return V + student**2 * four_point(Q, weights, p) if student else V


def four_point(C: Numbers, weights: Numbers, p: int) -> Numbers:
    """Σ_{q,s} w_q w_s E[σ'_j σ'_l σ_q σ_s] for j, l < p, fields with covariance C (n,
    n).

    Symmetric in (j, l), so that p(p + 1)/2 · n² terms are computed. (Strips above the
    diagonal of (q, s) would save a sixth at p = 64 and compile a second longer.) Cost
    O(p² n²) time; memory O(n²): the pairs (j, l) are taken a few at a time.
    """
    variance = jnp.diagonal(C)

    def entry(pair: Tree) -> Numbers:
        j, l = pair
        cj, cl, jj, ll, jl = C[j], C[l], 1 + C[j, j], 1 + C[l, l], C[j, l]
        determinant = jj * ll - jl**2
        # T over all pairs of fields (q, s):  C − (c_j, c_l) (1 + C_jl)⁻¹ (c_j, c_l)ᵀ
        u, v = (ll * cj - jl * cl) / determinant, (jj * cl - jl * cj) / determinant
        narrow = jax.lax.rsqrt(1 + variance - u * cj - v * cl)
        ratio = (
            C * narrow[:, None]
            - (u * narrow)[:, None] * cj
            - (v * narrow)[:, None] * cl
        ) * narrow
        return (
            TWO_OVER_PI**2
            * (weights @ (arcsine(ratio) @ weights))
            / jnp.sqrt(determinant)
        )

    j, l = np.triu_indices(p)
    found = jax.lax.map(
        entry, (jnp.asarray(j), jnp.asarray(l)), batch_size=max(1, 2**18 // C.size)
    )
    return jnp.zeros((p, p)).at[j, l].set(found).at[l, j].set(found)
