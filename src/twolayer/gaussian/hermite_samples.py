"""What one sample does where student and target are polynomials: exact, by expansion in
Hermite polynomials.

    x = (g_j ξ_a, g_j g_l, e σ(λ_j)),    λ = R ξ,    ξ ~ N(0, I)
    x = Σ_α x_α h_α(ξ),    E[x] = x_0,    Cov[x] = Σ_{α ≠ 0} x_α x_αᵀ
    σ(λ_j) = Σ_α E[σ^(|α|)(λ_j)] R_j^α/√α! h_α(ξ)
    h_m h_n = Σ_k √(m! n! (m + n − 2k)!)/(k! (m − k)! (n − k)!) h_{m+n−2k}

The last line is Wick's theorem: products of Hermite polynomials are sums over pairings
of their factors. All sums are finite, and nothing is truncated. With label noise √Δ ζ
the coefficients are polynomials of degree two in ζ, which are expanded alike.

Cost: for each pair of neurons as many terms as two polynomials of the degree of g have
products, and O(orders) for each feature.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.increment_kernel import Kernel
from twolayer.functions.hermite import hermite_table
from twolayer.functions.normalisation import divisor
from twolayer.gaussian.polynomial import derivative_means
from twolayer.gaussian.sample_parts import FieldRows, Parts, SampleMean
from twolayer.numerics.quadrature_rules import hermite_rule
from twolayer.numerics.types import Layer, Numbers, Real, Scalar

__all__ = ["HermiteSamples"]

MOST_PRODUCTS = 2**18  # of two polynomials of the degree of g
MOST_NODES = 2**16  # over the target's fields, for its coefficients


class HermiteSamples(eqx.Module):
    """Parts of one sample of a polynomial task whose loss is linear in the output."""

    kernel: Kernel = eqx.field(static=True)
    target: np.ndarray  # coefficients of h over the orders of r variables
    rank: int = eqx.field(static=True)
    degree: int = eqx.field(static=True)  # of h
    noisy: bool = eqx.field(static=True)
    label: str = eqx.field(static=True, default="closed form (Wick)")

    @classmethod
    def of(
        cls, kernel: Kernel, L: np.ndarray, columns: int, noisy: bool
    ) -> HermiteSamples | None:
        """For a task, if it is polynomial and has few enough terms."""
        sigma, h = kernel.activation.polynomial, kernel.target.polynomial
        linear = kernel.loss.student is not None and kernel.rule is None
        if sigma is None or h is None or not (linear and kernel.labels.plain):
            return None
        rank, n = L.shape[1], L.shape[1] + columns
        D, degree = len(sigma) - 1, max(map(sum, h), default=0)
        G = D - 1 + max(D, degree)
        pairs = math.comb(n + G, n) ** 2
        if D < 1 or pairs > MOST_PRODUCTS or (degree + 1) ** rank > MOST_NODES:
            return None
        if len(products(n, G, G).out) > MOST_PRODUCTS:
            return None
        xi, weights = hermite_rule([degree + 1] * rank)
        tables = hermite_table(degree, xi.T)
        basis = np.ones((len(orders(rank, degree)), len(xi)))
        for axis in range(rank):
            basis *= tables[orders(rank, degree)[:, axis], axis]
        coefficients = basis @ (weights * kernel.target.on_host(xi @ L.T))
        return cls(kernel, coefficients, rank, degree, noisy)

    def __call__(self, rows: FieldRows, a: Layer, noise: Scalar) -> Parts:
        """The parts at some rows."""
        sigma = self.kernel.activation.polynomial
        assert sigma is not None
        R = rows.own
        p, n = R.shape
        D = len(sigma) - 1
        E = max(D, self.degree)
        value = _of_fields(sigma, R)
        slope = a[:, None] * _of_fields(_derivative(sigma), R)
        e = self._residual(value, a, n, E)
        g = jax.vmap(lambda x: multiply(x, e, n, D - 1, E))(slope)
        second = jax.vmap(lambda x: multiply(x, e, n, D, E))(value)
        G = D - 1 + E
        j, l = np.triu_indices(p)

        def pairs(one: Real, two: Real, first: int, last: int) -> Real:
            """Products for all j ≤ l, one after the other: each has many terms."""
            return jax.lax.map(
                lambda x: multiply(x[0], x[1], n, first, last), (one[j], two[l])
            )

        pull = times_fields(g, n, G)
        pair = jnp.asarray(pairs(g, g, G, G))
        orders_of_noise: list[tuple[Real, Real, Real]] = [(pull, pair, second)]
        if self.noisy:
            # g = g⁰ + √Δ ζ a σ', and ζ² = 1 + √2 h_2(ζ)
            level = jnp.sqrt(noise)
            double = noise * pairs(slope, slope, D - 1, D - 1)
            pair = pair.at[:, : double.shape[1]].add(double)
            mixed = pairs(g, slope, G, D - 1) + pairs(slope, g, D - 1, G)
            own = times_fields(slope, n, D - 1)
            orders_of_noise = [
                (pull, pair, second),
                (level * own, level * mixed, level * value),
                (0 * own[..., :1], math.sqrt(2) * double, 0 * value[..., :1]),
            ]
        return _parts(orders_of_noise, p)

    def _residual(self, value: Real, a: Layer, n: int, E: int) -> Numbers:
        """Coefficients of h − s f."""
        s = self.kernel.loss.student
        assert s is not None
        f = jnp.asarray(a / divisor(self.kernel.normalisation, len(a))) @ value
        inside = orders(self.rank, self.degree)
        among = np.pad(inside, ((0, 0), (0, n - self.rank)))
        e = jnp.zeros(len(orders(n, E))).at[: f.shape[0]].set(-s * f)
        return e.at[_places(among, n, E)].add(self.target)


def _parts(orders_of_noise: list[tuple[Real, Real, Real]], p: int) -> Parts:
    """All coefficients in one row, those of the pairs as matrices; the first is the
    mean.
    """
    count = [pair.shape[-1] for _, pair, _ in orders_of_noise]

    def joined(which: int) -> Real:
        """(N, …): of each order of the noise as many as pairs have."""
        every = []
        for some, most in zip(orders_of_noise, count, strict=True):
            x = some[which]
            room = [(0, 0)] * (x.ndim - 1) + [(0, most - x.shape[-1])]
            every.append(jnp.pad(x, room))
        return jnp.moveaxis(jnp.concatenate(every, axis=-1), -1, 0)

    pull, upper, second = joined(0), joined(1), joined(2)
    j, l = np.triu_indices(p)
    pair = jnp.zeros((len(upper), p, p)).at[:, j, l].set(upper).at[:, l, j].set(upper)
    mean = SampleMean(pull[0], pair[0], second[0])
    return Parts(jnp.ones(len(pair) - 1), pull[1:], pair[1:], second[1:], mean)


def _derivative(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(m * c for m, c in enumerate(coefficients))[1:]


def _of_fields(coefficients: tuple[float, ...], R: Real) -> Real:
    """Coefficients of f(R_j·ξ), (p, N)."""
    n, degree = R.shape[1], len(coefficients) - 1
    alpha = orders(n, degree)
    means = derivative_means(coefficients, 0.0, (R**2).sum(1), degree + 1)
    powers = [jnp.ones_like(R)]
    for _ in range(degree):
        powers.append(powers[-1] * R)
    table = jnp.stack(powers)
    found = means[alpha.sum(1)].T
    for axis in range(n):
        found = found * table[alpha[:, axis], :, axis].T
    factorials = np.array([math.factorial(m) for m in range(degree + 1)], dtype=float)
    return found / np.sqrt(factorials[alpha].prod(1))


class HermiteProducts(NamedTuple):
    """h_α h_β = Σ_γ c h_γ: places of α, β and γ, and c, in the order of γ."""

    left: np.ndarray
    right: np.ndarray
    out: np.ndarray
    factor: np.ndarray


@lru_cache(maxsize=16)
def orders(n: int, degree: int) -> np.ndarray:
    """All multi-indices of n entries up to a degree (N, n), lower degrees first.

    Examples
    --------
    >>> orders(2, 2).tolist()
    [[0, 0], [1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    """
    rows = [np.zeros((1, n), dtype=np.int64)]
    for _ in range(degree):
        grown = []
        for axis in range(n):
            # nothing behind the axis that grows: no index comes twice
            some = rows[-1][~rows[-1][:, axis + 1 :].any(axis=1)].copy()
            some[:, axis] += 1
            grown.append(some)
        every = np.concatenate(grown)
        rows.append(every[np.lexsort(every.T[::-1])[::-1]])
    return np.concatenate(rows)


def _places(alphas: np.ndarray, n: int, degree: int) -> np.ndarray:
    """Where multi-indices stand among all those up to a degree."""
    base = (degree + 1) ** np.arange(n)[::-1]
    codes = orders(n, degree) @ base
    order = np.argsort(codes)
    return order[np.searchsorted(codes[order], alphas @ base)]


@lru_cache(maxsize=32)
def products(n: int, first: int, last: int) -> HermiteProducts:
    """All products of Hermite polynomials of n variables up to two degrees."""
    alpha, beta = orders(n, first), orders(n, last)
    left, right = (x.ravel() for x in np.indices((len(alpha), len(beta))))
    total, factor = alpha[left] + beta[right], np.ones(len(left))
    for axis in range(n):
        count = np.minimum(alpha[left, axis], beta[right, axis]) + 1
        left, right, total, factor = (
            np.repeat(x, count, axis=0) for x in (left, right, total, factor)
        )
        # pairings along this axis, from none to as many as there can be
        k = np.arange(len(left)) - np.repeat(np.cumsum(count) - count, count)
        factor = factor * _pairings(alpha[left, axis], beta[right, axis], k)
        total[:, axis] -= 2 * k
    out = _places(total, n, first + last)
    order = np.argsort(out, kind="stable")
    return HermiteProducts(left[order], right[order], out[order], factor[order])


def _pairings(m: np.ndarray, n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """√(m! n! (m + n − 2k)!)/(k! (m − k)! (n − k)!)."""
    most = int((m + n).max(initial=0)) + 1
    log = np.array([math.lgamma(i + 1) for i in range(most)])
    above = (log[m] + log[n] + log[m + n - 2 * k]) / 2
    return np.asarray(np.exp(above - log[k] - log[m - k] - log[n - k]))


def multiply(one: Real, two: Real, n: int, first: int, last: int) -> Numbers:
    """The product of two polynomials of n variables of these degrees."""
    table = products(n, first, last)
    terms = table.factor * one[table.left] * two[table.right]
    total = math.comb(n + first + last, n)
    return jax.ops.segment_sum(terms, table.out, total, indices_are_sorted=True)


class Neighbours(NamedTuple):
    """From which orders ξ_a h is made (n, N), and by which factors."""

    below: np.ndarray
    above: np.ndarray
    rise: np.ndarray
    fall: np.ndarray


@lru_cache(maxsize=32)
def neighbours(n: int, degree: int) -> Neighbours:
    """Of each γ: γ − e_a and γ + e_a, or a place behind the end where a polynomial of
    this degree has none.
    """
    new, end = orders(n, degree + 1), math.comb(n + degree, n)
    columns = []
    for axis in range(n):
        unit = np.eye(n, dtype=np.int64)[axis]
        below = _places(np.maximum(new - unit, 0), n, degree + 2)
        above = _places(new + unit, n, degree + 2)
        below = np.where(new[:, axis] > 0, below, end)
        rise, fall = np.sqrt(new[:, axis]), np.sqrt(new[:, axis] + 1.0)
        columns.append((np.minimum(below, end), np.minimum(above, end), rise, fall))
    return Neighbours(*(np.stack(x) for x in zip(*columns, strict=True)))


def times_fields(f: Real, n: int, degree: int) -> Real:
    """ξ_a h_γ = √(γ_a + 1) h_{γ+e_a} + √γ_a h_{γ−e_a}: coefficients of ξ_a f, (p, n,
    N), of polynomials f (p, …).
    """
    near = neighbours(n, degree)
    padded = jnp.pad(f, ((0, 0), (0, 1)))
    return near.rise * padded[:, near.below] + near.fall * padded[:, near.above]
