"""Polynomial activations of any degree: exact averages by Wick's theorem, without
inverting any matrix.

    E[ Π_i f_i(u_i) ] = Σ_{n_ij ≥ 0}  Π_{i<j} C_ij^{n_ij}/n_ij!
        Π_i E[ f_i^{(Σ_j n_ij)}(u_i) ]

a finite sum over multigraphs because high derivatives of polynomials vanish. The
derivative means follow from E_m = E[u^m],  E_m = μ E_{m−1} + (m−1) v E_{m−2}.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.gaussian.two_point import Forms, Ladder, Pair, PairOf, Single
from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers, Real, Tree

if TYPE_CHECKING:
    from twolayer.gaussian.targets import NodeTarget, RidgeTarget

__all__ = [
    "PolynomialForms",
    "PolynomialNodes",
    "PolynomialRidge",
    "derivative_means",
    "four_point",
    "three_point",
    "two_point",
]

Coefficients = tuple[float, ...]
MAX_WORK = 2**27  # terms of a Wick sum beyond which chi is sampled instead


def derivative_means(
    coefficients: Coefficients, mean: Numbers | float, variance: Number, orders: int
) -> Numbers:
    """E[f^{(n)}(u)], n = 0 … orders − 1, stacked on a new first axis; u ~ N(mean,
    variance), arrays broadcast.
    """
    degree = len(coefficients) - 1
    mean, variance = jnp.broadcast_arrays(
        jnp.asarray(mean, float), jnp.asarray(variance, float)
    )
    moments = [jnp.ones_like(mean), mean]
    for m in range(2, degree + 1):
        moments.append(mean * moments[m - 1] + (m - 1) * variance * moments[m - 2])
    rows = []
    for n in range(orders):
        row = jnp.zeros_like(mean)
        for m in range(n, degree + 1):
            if coefficients[m]:
                row = row + coefficients[m] * math.perm(m, n) * moments[m - n]
        rows.append(row)
    return jnp.stack(rows)


def mehler(f: Real, g: Real, covariance: Number) -> Real:
    """Σ_n C^n/n! f_n g_n for derivative means f, g stacked on the first axis."""
    total: Any = 0.0
    power = jnp.ones_like(covariance)
    for n in range(min(f.shape[0], g.shape[0])):
        total = total + power * f[n] * g[n] / math.factorial(n)
        power = power * covariance
    return total


@dataclass(frozen=True)
class PolynomialForms(Forms):
    """One- and two-point averages of a polynomial. Cost O(degree²) per pair."""

    coefficients: Coefficients
    name: str = "polynomial"

    def single(self, mean: Numbers, variance: Numbers) -> Single:
        """E[σ], E[σ'], E[σ'']."""
        return Single(*derivative_means(self.coefficients, mean, variance, 3))

    def ladder(self, mean: Numbers, width: Number, orders: int) -> Ladder:
        """Hermite coefficients s^n E[σ^(n+1)]/√n!, zero beyond the degree."""
        # beyond the degree nothing is computed: 170! is the last that is a number
        some = min(orders, len(self.coefficients))
        means = derivative_means(self.coefficients, mean, width**2, some + 1)
        powers = [width**n / math.sqrt(math.factorial(n)) for n in range(some)]
        slopes = jnp.stack([x * y for x, y in zip(powers, means[1:], strict=True)])
        none = jnp.zeros((orders - some, *slopes.shape[1:]))
        return Ladder(means[0], jnp.concatenate([slopes, none]))

    def pair_with(self, other: Forms) -> PairOf | None:
        """Two polynomials."""
        if not isinstance(other, PolynomialForms):
            return None
        one, two = self.coefficients, other.coefficients

        def pair(c11: Number, c12: Number, c22: Number) -> Pair:
            zero = jnp.zeros(
                jnp.broadcast_shapes(jnp.shape(c11), jnp.shape(c12), jnp.shape(c22))
            )
            f = derivative_means(one, zero, c11, len(one) + 2)
            g = derivative_means(two, zero, c22, len(two) + 2)
            c = c12 + zero
            return Pair(mehler(f, g, c), mehler(f[1:], g[1:], c), mehler(f[2:], g, c))

        return pair

    def ridge_variance(
        self, target: RidgeTarget, p: int, order: int
    ) -> PolynomialRidge | None:
        """Against a sum of polynomial ridges, while the Wick sum is not too long."""
        if not isinstance(target.ridge_forms, PolynomialForms):
            return None
        found = PolynomialRidge(
            target, self.coefficients, target.ridge_forms.coefficients
        )
        return found if found.work(p) <= MAX_WORK else None

    def node_variance(self, target: NodeTarget, p: int) -> PolynomialNodes | None:
        """Against any target, likewise."""
        found = PolynomialNodes(target, self.coefficients)
        return found if found.work(p) <= MAX_WORK else None


class PolynomialRidge(eqx.Module):
    """The second-order part against polynomial ridges: cost O(graphs · p²(p + k)²)."""

    target: RidgeTarget
    own: Coefficients = eqx.field(static=True)
    other: Coefficients = eqx.field(static=True)
    label: str = eqx.field(static=True, default="closed form")

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        D, top = len(self.own) - 1, max(len(self.own), len(self.other)) - 1
        return (
            0.1
            * len(graphs((D - 1, D - 1, top, top))[1])
            * (p * (p + len(self.target.c))) ** 2
        )

    def __call__(self, Q: Gram, M: Cross, a: Layer, student: float) -> Real:
        """V (p, p)."""
        p, C = a.shape[0], self.target.covariance(Q, M)
        variance, orders = jnp.diagonal(C), max(len(self.own), len(self.other))
        value = jnp.concatenate(
            [
                derivative_means(self.own, 0.0, variance[:p], orders),
                derivative_means(self.other, 0.0, variance[p:], orders),
            ],
            axis=1,
        )
        return four_point(
            C,
            value[1 : len(self.own)],
            value,
            self.target.signed_weights(student, a),
            p,
        )


class PolynomialNodes(eqx.Module):
    """The second-order part against any target: cost O(graphs · (p⁴ + nodes · p³))."""

    target: NodeTarget
    coefficients: Coefficients = eqx.field(static=True)

    @property
    def label(self) -> str:
        """What is done, for reports."""
        return f"Wick sums, target by {self.target.label}"

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        D, nodes = len(self.coefficients) - 1, len(self.target.weights)
        three, four = (
            len(graphs(limits)[1])
            for limits in ((D - 1, D - 1, D), (D - 1, D - 1, D, D))
        )
        return 0.1 * (three * nodes * p**3 + four * p**4)

    def __call__(self, Q: Gram, M: Cross, a: Layer, student: float) -> Real:
        """V (p, p)."""
        t, orders, weights = self.target, len(self.coefficients), a / a.shape[0]
        mean, perp = t.conditional(Q, M)
        value = derivative_means(self.coefficients, mean, jnp.diagonal(perp), orders)
        total = two_point(perp, value[1:], t.weights * t.h**2)
        if student:
            cross = three_point(perp, value[1:], value, weights, t.weights * t.h)
            still = derivative_means(self.coefficients, 0.0, jnp.diagonal(Q), orders)
            own = four_point(Q, still[1:], still, weights, a.shape[0])
            total = total - 2 * student * cross + student**2 * own
        return total


@lru_cache(maxsize=32)
def graphs(limits: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Edge multiplicities (count, edges) of all multigraphs with vertex degrees within
    the limits, and Π 1/n_ij!.

    Edges in the order (0,1), (0,2), …, (1,2), ….
    """
    vertices = len(limits)
    edges = list(itertools.combinations(range(vertices), 2))
    found: list[tuple[int, ...]] = []

    def extend(prefix: tuple[int, ...], room: tuple[int, ...]) -> None:
        if len(prefix) == len(edges):
            found.append(prefix)
            return
        i, j = edges[len(prefix)]
        for n in range(min(room[i], room[j]) + 1):
            left = tuple(r - n if v in (i, j) else r for v, r in enumerate(room))
            extend((*prefix, n), left)

    extend((), tuple(limits))
    multiplicity = np.array(found, dtype=np.int32)
    weight = np.array([1 / math.prod(math.factorial(n) for n in row) for row in found])
    return multiplicity, weight


def _powers(C: Numbers, highest: int) -> Numbers:
    return jnp.stack([C**n for n in range(highest + 1)])


def four_point(
    C: Numbers, slope: Numbers, value: Numbers, weights: Numbers, p: int
) -> Numbers:
    """Σ_{q,s} w_q w_s E[f'_j f'_l f_q f_s], j, l < p, exact, for fields with covariance
    C (n, n), students first.

    ``slope`` (D', n) and ``value`` (D, n) are derivative means of f' and f at each
    field; their lengths bound the orders. Cost O(graphs · p² n²); the number of graphs
    is 15, 112, 460, 1 354 for degree 2, 3, 4, 5.
    """
    d1, d0 = slope.shape[0] - 1, value.shape[0] - 1
    multiplicity, weight = graphs((d1, d1, d0, d0))
    power = _powers(C, max(d0, d1))
    weighted = value * weights

    def add(total: jax.Array, graph: Tree) -> tuple[jax.Array, None]:
        (jl, jq, js, lq, ls, qs), w = graph
        left = power[jq][:p, None, :] * power[lq][None, :p, :] * weighted[jq + lq + qs]
        right = power[js][:p, None, :] * power[ls][None, :p, :] * weighted[js + ls + qs]
        inner = ((left @ power[qs]) * right).sum(-1)
        ends = slope[jl + jq + js][:p, None] * slope[jl + lq + ls][None, :p]
        return total + w * power[jl][:p, :p] * ends * inner, None

    total, _ = jax.lax.scan(
        add, jnp.zeros((p, p)), (jnp.asarray(multiplicity), jnp.asarray(weight))
    )
    return total


def three_point(
    C: Numbers, slope: Numbers, value: Numbers, weights: Numbers, node: Tree
) -> Numbers:
    """Σ_ν node_ν Σ_q w_q E[f'_j f'_l f_q | ν]: fields with covariance C (p, p) and
    node-dependent means.

    ``slope`` and ``value`` hold derivative means (D, nodes, p). Cost O(graphs · nodes ·
    p³).
    """
    d1, d0 = slope.shape[0] - 1, value.shape[0] - 1
    multiplicity, weight = graphs((d1, d1, d0))
    power = _powers(C, max(d0, d1))

    def add(total: jax.Array, graph: Tree) -> tuple[jax.Array, None]:
        (jl, jq, lq), w = graph
        joint = jnp.einsum(
            "n,nj,nl,nq->jlq",
            node,
            slope[jl + jq],
            slope[jl + lq],
            value[jq + lq] * weights,
        )
        return total + w * power[jl] * (
            joint * power[jq][:, None, :] * power[lq][None, :, :]
        ).sum(-1), None

    p = C.shape[0]
    total, _ = jax.lax.scan(
        add, jnp.zeros((p, p)), (jnp.asarray(multiplicity), jnp.asarray(weight))
    )
    return total


def two_point(C: Numbers, slope: Numbers, node: Tree) -> Numbers:
    """Σ_ν node_ν E[f'_j f'_l | ν], arguments as in `three_point`. Cost O(degree · nodes
    · p²).
    """
    total, power = jnp.zeros_like(C), jnp.ones_like(C)
    for n in range(slope.shape[0]):
        total = total + power * jnp.einsum(
            "n,nj,nl->jl", node, slope[n], slope[n]
        ) / math.factorial(n)
        power = power * C
    return total
