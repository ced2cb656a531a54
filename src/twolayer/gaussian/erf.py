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
import numpy as np

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

    Symmetric in (j, l) and under q ↔ s, so that p(p + 1)/2 · n(n + 1)/2 terms are computed. Cost O(p² n²) time; memory
    O(n²): the pairs (j, l) are taken a few at a time.
    """
    n = C.shape[0]
    q, s = np.triu_indices(n)
    shares = weights[q] * weights[s] * np.where(q == s, 1.0, 2.0)
    variance, between = jnp.diagonal(C), C[q, s]

    def entry(pair: Any) -> Any:
        j, l = pair
        cj, cl, jj, ll, jl = C[j], C[l], 1 + C[j, j], 1 + C[l, l], C[j, l]
        determinant = jj * ll - jl**2
        # T over all pairs of fields (q, s):  C − (c_j, c_l) (1 + C_jl)⁻¹ (c_j, c_l)ᵀ
        u, v = (ll * cj - jl * cl) / determinant, (jj * cl - jl * cj) / determinant
        narrow = jax.lax.rsqrt(1 + variance - u * cj - v * cl)
        ratio = (between - u[q] * cj[s] - v[q] * cl[s]) * narrow[q] * narrow[s]
        return TWO_OVER_PI**2 * (jnp.arcsin(jnp.clip(ratio, -1.0, 1.0)) @ shares) / jnp.sqrt(determinant)

    j, l = np.triu_indices(p)
    found = jax.lax.map(entry, (jnp.asarray(j), jnp.asarray(l)), batch_size=max(1, 2**15 // len(q)))
    return jnp.zeros((p, p)).at[j, l].set(found).at[l, j].set(found)
