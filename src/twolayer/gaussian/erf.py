"""σ(x) = erf(x/√2): every average in closed form.

    E[σσ] = (2/π) arcsin( C12/√((1+C11)(1+C22)) )          E[σ'σ'] = (2/π)/√Λ,  Λ = (1+C11)(1+C22) − C12²
    E[σ''(1) σ(2)] = −E[σ'σ'] C12/(1+C11)
    E[σ'(1)σ'(2)σ(3)σ(4)] = (4/π²) Λ^(−1/2) arcsin( T34/√((1+T33)(1+T44)) )

where T is the covariance of fields 3, 4 tilted by the two σ': T = C34,34 − C34,12 (1 + C12,12)⁻¹ C12,34.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from twolayer.gaussian.forms import Forms, Ladder, Pair, Single, orthonormal

__all__ = ["ErfForms", "four_point"]

TWO_OVER_PI = 2 / math.pi


@dataclass(frozen=True)
class ErfForms(Forms):
    """One- and two-point averages of erf(x/√2)."""

    name: str = "erf"

    def single(self, mean: Any, variance: Any) -> Single:
        """E[σ], E[σ'], variance·E[σ''] at given mean and variance."""
        wide = 1.0 + variance
        slope = math.sqrt(TWO_OVER_PI) * jnp.exp(-(mean**2) / (2 * wide)) / jnp.sqrt(wide)
        value = jax.lax.erf(mean / jnp.sqrt(2 * wide))
        return Single(value, slope, -variance * mean / wide * slope)

    def ladder(self, mean: Any, width: Any, orders: int) -> Ladder:
        """Hermite coefficients: σ' is a Gaussian, so each is (−s/√(1+s²))^n h_n(μ/√(1+s²)) times the first."""
        wide = jnp.sqrt(1.0 + width**2)
        x = mean / wide
        slope = math.sqrt(TWO_OVER_PI) * jnp.exp(-(x**2) / 2) / wide
        return Ladder(jax.lax.erf(x / math.sqrt(2)), slope * orthonormal(x, orders, -width / wide))

    def pair(self, c11: Any, c12: Any, c22: Any) -> Pair:
        """Two fields of zero mean."""
        wide = (1 + c11) * (1 + c22)
        dd = TWO_OVER_PI / jnp.sqrt(wide - c12**2)
        ff = TWO_OVER_PI * jnp.arcsin(c12 / jnp.sqrt(wide))
        return Pair(ff, dd, -dd * c12 / (1 + c11))


def four_point(C: Any, weights: Any, p: int) -> Any:
    """Σ_{q,s} w_q w_s E[σ'_j σ'_l σ_q σ_s] for j, l < p, fields with covariance C (n, n).

    Cost O(p² n²) time; memory O(p n²): the rows j are taken one after the other.
    """

    def row(j: Any) -> Any:
        jj, jl, ll = 1 + C[j, j], C[j, :p], 1 + jnp.diagonal(C)[:p]
        determinant = jj * ll - jl**2
        # T over all pairs of fields (q, s), for every l:  C − (c_j, c_l) (1 + C_jl)⁻¹ (c_j, c_l)ᵀ
        cj, cl = C[j][None, :], C[:p]
        u = (ll[:, None] * cj - jl[:, None] * cl) / determinant[:, None]
        v = (jj * cl - jl[:, None] * cj) / determinant[:, None]
        T = C[None] - u[:, :, None] * cj[:, None, :] - v[:, :, None] * cl[:, None, :]
        wide = 1 + jnp.diagonal(T, axis1=1, axis2=2)
        ratio = T / jnp.sqrt(wide[:, :, None] * wide[:, None, :])
        total = jnp.einsum("lqs,q,s->l", jnp.arcsin(jnp.clip(ratio, -1.0, 1.0)), weights, weights)
        return TWO_OVER_PI**2 * total / jnp.sqrt(determinant)

    return jax.lax.map(row, jnp.arange(p), batch_size=max(1, 2**15 // (p * C.shape[0] ** 2)))
