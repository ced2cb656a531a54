"""σ(x) = max(x, 0): two- and three-point averages in closed form, the four-point one by a 1-d quadrature.

    E[σσ] = √(C11 C22) (sin θ + (π−θ) cos θ)/2π      E[σ'σ'] = (π−θ)/2π      E[σ''(1)σ(2)] = √(C11 C22 − C12²)/(2π C11)
    E[H1 H2 σ3 σ4] = C34 P4 + Σ_q Σ_{s≠q} C3q (C4s − Cqs C4q/Cqq) F_qs

with θ the angle between the fields, F_qs = density of (h_q, h_s) at 0 times the probability that the other two
are positive there, and P4 the orthant probability, an integral over correlation matrices 1 + t(R − 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.gaussian.forms import Forms, Ladder, Pair, Single, orthonormal
from twolayer.gaussian.quadrature import legendre

__all__ = ["ReluForms", "four_point"]

TWO_PI = 2 * math.pi


@dataclass(frozen=True)
class ReluForms(Forms):
    """One- and two-point averages of the rectifier."""

    name: str = "relu"

    def single(self, mean: Any, variance: Any) -> Single:
        """E[σ], E[σ'], variance·E[σ''] at given mean and variance."""
        width = jnp.sqrt(variance)
        safe = jnp.where(width > 0, width, 1.0)
        x = jnp.where(width > 0, mean / safe, jnp.sign(mean) * 40.0)
        density = jnp.exp(-(x**2) / 2) / math.sqrt(TWO_PI)
        above = jax.scipy.special.ndtr(x)
        return Single(mean * above + width * density, above, width * density)

    def ladder(self, mean: Any, width: Any, orders: int) -> Ladder:
        """Hermite coefficients of a step at g = −μ/s: h_{n−1}(−μ/s) times the density there, over √n."""
        moves = width > 0
        x = jnp.where(moves, mean / jnp.where(moves, width, 1.0), jnp.sign(mean) * 40.0)
        density = jnp.exp(-(x**2) / 2) / math.sqrt(TWO_PI)
        above = jax.scipy.special.ndtr(x)
        count = np.arange(1, orders).reshape(-1, *[1] * x.ndim)
        steps = density * orthonormal(-x, orders - 1) / np.sqrt(count)
        return Ladder(mean * above + width * density, jnp.concatenate([above[None], steps]))

    def pair(self, c11: Any, c12: Any, c22: Any) -> Pair:
        """Two fields of zero mean."""
        sine = jnp.sqrt(jnp.maximum(c11 * c22 - c12**2, 0.0))  # √(C11 C22) sin θ
        obtuse = math.pi - jnp.arctan2(sine, c12)
        return Pair((sine + obtuse * c12) / TWO_PI, obtuse / TWO_PI, sine / (TWO_PI * c11))


def _positive_pair(v1: Any, v2: Any, c: Any) -> Any:
    """P(x > 0, y > 0); ¼ when one of them has no variance left (half of the mass on either side)."""
    spread = jnp.minimum(v1, v2) > 1e-11
    correlation = jnp.where(spread, c / jnp.sqrt(jnp.where(spread, v1 * v2, 1.0)), 0.0)
    return 0.25 + jnp.arcsin(jnp.clip(correlation, -1.0, 1.0)) / TWO_PI


def _rest_given_zero(c: Any, q: int, s: int) -> tuple[Any, Any, Any, Any]:
    """Determinant of (q, s) and covariance of the other two fields given h_q = h_s = 0. c[i][j] are arrays."""
    m, n = (i for i in range(4) if i not in (q, s))
    determinant = jnp.maximum(c[q][q] * c[s][s] - c[q][s] ** 2, 1e-14 * c[q][q] * c[s][s])

    def conditional(i: int, j: int) -> Any:
        quadratic = (
            c[i][q] * c[s][s] * c[q][j]
            - c[q][s] * (c[i][q] * c[s][j] + c[i][s] * c[q][j])
            + c[i][s] * c[q][q] * c[s][j]
        )
        return c[i][j] - quadratic / determinant

    return determinant, conditional(m, m), conditional(n, n), conditional(m, n)


def orthant_probability(correlation: Any, order: int) -> Any:
    """P(h1, h2, h3, h4 > 0) from the correlations r[i][j], by quadrature in the coupling t = sin(πu/2)."""
    node, weight = legendre(order)
    angle = np.pi / 2 * node
    t, dt = np.sin(angle), np.pi / 2 * np.cos(angle) * weight
    r = [[jnp.asarray(correlation[i][j])[..., None] for j in range(4)] for i in range(4)]
    c = [[jnp.ones_like(r[i][j]) if i == j else t * r[i][j] for j in range(4)] for i in range(4)]
    total = 0.0
    for i in range(4):
        for j in range(i + 1, 4):
            _, v1, v2, v12 = _rest_given_zero(c, i, j)
            density = r[i][j] / (TWO_PI * jnp.sqrt(1 - t**2 * jnp.clip(r[i][j] ** 2, 0.0, 1.0)))
            total = total + (density * _positive_pair(jnp.maximum(v1, 0.0), jnp.maximum(v2, 0.0), v12) * dt).sum(-1)
    return 1 / 16 + total


def expectation_four(c: Any, order: int) -> Any:
    """E[H(h1) H(h2) σ(h3) σ(h4)] from covariances c[i][j] (arrays). Fields may coincide."""
    scale = [jnp.sqrt(c[i][i]) for i in range(4)]
    r = [[jnp.clip(c[i][j] / (scale[i] * scale[j]), -1.0, 1.0) for j in range(4)] for i in range(4)]
    total = r[2][3] * orthant_probability(r, order)
    one = [[jnp.ones_like(r[0][1]) if i == j else r[i][j] for j in range(4)] for i in range(4)]
    for q in range(4):
        for s in range(q + 1, 4):
            determinant, v1, v2, v12 = _rest_given_zero(one, q, s)
            F = _positive_pair(jnp.maximum(v1, 0.0), jnp.maximum(v2, 0.0), v12) / (TWO_PI * jnp.sqrt(determinant))
            total = total + _boundary(one, 2, 3, q, s) * F
    return scale[2] * scale[3] * total


def _boundary(r: Any, m: int, n: int, q: int, s: int) -> Any:
    """Coefficient of F_qs, both orders, when fields m and n carry the rectifiers."""
    return r[m][q] * (r[n][s] - r[q][s] * r[n][q]) + r[m][s] * (r[n][q] - r[q][s] * r[n][s])


def expectation_three(c: Any, m: int, n: int) -> Any:
    """E[H(h0) H(h1) H(h2) h_m h_n] for three fields: one or two Heavisides and a product of rectifiers."""
    scale = [jnp.sqrt(c[i][i]) for i in range(3)]
    r = [[jnp.clip(c[i][j] / (scale[i] * scale[j]), -1.0, 1.0) for j in range(3)] for i in range(3)]
    r = [[jnp.ones_like(r[0][1]) if i == j else r[i][j] for j in range(3)] for i in range(3)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    orthant = 1 / 8 + sum(jnp.arcsin(r[i][j]) for i, j in pairs) / (4 * math.pi)
    total = r[m][n] * orthant
    for q, s in pairs:
        determinant = jnp.maximum(1 - r[q][s] ** 2, 1e-14)
        total = total + _boundary(r, m, n, q, s) / (2 * TWO_PI * jnp.sqrt(determinant))
    return scale[m] * scale[n] * total


def expectation_two(c11: Any, c12: Any, c22: Any) -> Any:
    """E[H(h1) σ(h2)²]."""
    theta = jnp.arctan2(jnp.sqrt(jnp.maximum(c11 * c22 - c12**2, 0.0)), c12)
    return c22 * (math.pi - theta + jnp.sin(theta) * jnp.cos(theta)) / TWO_PI


def four_point(C: Any, weights: Any, p: int, order: int) -> Any:
    """Σ_{q,s} w_q w_s E[σ'_j σ'_l σ_q σ_s] for j, l < p, fields with covariance C (n, n).

    A Heaviside on a field that also carries a rectifier drops out, and so does a repeated one; what is left has
    two, three or four different fields. Cost O(p² n² order) time, memory O(n² order).
    """
    n = C.shape[0]
    q, s = jnp.arange(n)[:, None], jnp.arange(n)[None, :]

    def entry(pair: Any) -> Any:
        j, l = pair
        index = [j, l, q, s]
        c = [[jnp.broadcast_to(C[index[a], index[b]], (n, n)) for b in range(4)] for a in range(4)]
        need_j = (j != q) & (j != s)  # the Heaviside of j is not implied by a rectifier
        need_l = (l != q) & (l != s) & (l != j)
        a = jnp.where(need_j, j, l)  # the only one, when there is one
        with_a = [a, q, s]
        ca = [[jnp.broadcast_to(C[with_a[x], with_a[y]], (n, n)) for y in range(3)] for x in range(3)]
        both, one = need_j & need_l, need_j | need_l
        different = jnp.where(
            both,
            expectation_four(c, order),
            jnp.where(one, expectation_three(ca, 1, 2), ReluForms().pair(c[2][2], c[2][3], c[3][3]).ff),
        )
        three = [[c[x][y] for y in range(3)] for x in range(3)]
        same = jnp.where(
            both,
            expectation_three(three, 2, 2),
            jnp.where(one, expectation_two(ca[0][0], ca[0][1], ca[1][1]), c[2][2] / 2),
        )
        return weights @ jnp.where(q == s, same, different) @ weights

    grid = jnp.meshgrid(jnp.arange(p), jnp.arange(p), indexing="ij")
    flat = (grid[0].reshape(-1), grid[1].reshape(-1))
    return jax.lax.map(entry, flat, batch_size=max(1, 2**16 // (n * n * order))).reshape(p, p)
