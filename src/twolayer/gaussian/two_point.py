"""One- and two-point Gaussian averages of an activation: what the gradient-flow part of
every equation needs.

    one field, mean μ, variance v:     E[f],  E[f'],  E[f''];
        E[f'(μ + s g) h_n(g)], n = 0, 1, …
    two fields, covariance C:          E[f(x) g(y)],  E[f'(x) g'(y)],  E[f''(x) g(y)]

The f' of E[f' g'] and of f'' is the pointwise slope: it stands for what a push takes of
the student, and a step of the student moves nothing. All that follows from it is meant
in the weak sense (Stein): g' has a delta function where g jumps, and f'' where f' does.
So E[f'(x) u g(y)] = Cov(x, u) E[f'' g] + Cov(y, u) E[f' g'] for every Gaussian field u.

Families with closed averages (closed_forms.py) derive from `Forms`. For all others, f_n
= E[f(s g) h_n(g)] and the same of f', by quadrature in one dimension, give every pair
by Mehler's sum, ρ the correlation:

    E[f' g'] = Σ_n ρⁿ f'_n g'_n,    E[f g] = Σ_n ρⁿ f_n g_n,
        E[f'' g] = (1/s) Σ_n ρⁿ √(n + 1) f'_{n+1} g_n
    weak slopes, by parts:  g'_n = √(n + 1) g_{n+1}/s_g

It converges fast if g is smooth and no steeper than f is wide. A g with kinks takes
panels in both fields instead.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.functions.activation import Activation
from twolayer.functions.hermite import hermite_table
from twolayer.gaussian.quadrature import (
    blurred_crossings,
    crossing,
    even_rule,
    panel_rule,
)
from twolayer.numerics.special import root
from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers, Real, Tree

if TYPE_CHECKING:
    from twolayer.gaussian.targets import NodeTarget, RidgeTarget

__all__ = [
    "Forms",
    "Ladder",
    "NumericForms",
    "Pair",
    "PairOf",
    "Single",
    "cross_pair",
    "mehler_pair",
    "orthonormal",
]

# added to variances, so that derivatives with respect to a vanishing one are those of
# the limit
TINY = 1e-12
SIDE = 1e-9  # distance from a kink at which the slope is that of the side
NODES_PER_ORDER = 3  # of equidistant nodes, where panels have so many as order says
FEW = 4  # Hermite polynomials that are written out
TERMS_PER_ORDER, NODES_PER_TERM = 4, 1.5  # of Mehler's sum


class Single(NamedTuple):
    """E[f], E[f'] and E[f'']."""

    value: Numbers
    slope: Numbers
    bend: Real


class Pair(NamedTuple):
    """E[f g], E[f' g'] and E[f'' g]."""

    ff: Real
    dd: Real
    hd: Real


class Ladder(NamedTuple):
    """E[f], and E[f' h_n] for n = 0, 1, … on a first axis, at one field μ + s g, with
    the pointwise slope f'.

    An f that jumps gives ``coefficients`` E[f h_n] too; for any other they follow by
    parts, (s/√n) E[f' h_{n−1}].
    """

    value: Numbers
    slopes: Real
    coefficients: Real | None = None

    def values(self, width: Numbers) -> Real:
        """E[f h_n] for as many n as there are slopes."""
        if self.coefficients is not None:
            return self.coefficients
        n = np.arange(1, len(self.slopes)).reshape(-1, *[1] * (self.slopes.ndim - 1))
        return jnp.concatenate(
            [self.value[None], width / np.sqrt(n) * self.slopes[:-1]]
        )

    def weak_slopes(self, width: Numbers) -> Real:
        """E[f' h_n] with the delta functions where f jumps, for all n but the last."""
        if self.coefficients is None:
            return self.slopes[:-1]
        n = np.arange(1, len(self.slopes)).reshape(-1, *[1] * (self.slopes.ndim - 1))
        moves = width > 0
        by_parts = np.sqrt(n) * self.coefficients[1:] / jnp.where(moves, width, 1.0)
        return jnp.where(moves, by_parts, self.slopes[:-1])


PairOf = Callable[[Number, Number, Number], Pair]
"""(C11, C12, C22) → the averages at two fields of zero mean; arrays broadcast."""


@runtime_checkable
class SecondOrder(Protocol):
    """The part E[σ'_j σ'_l (h − s f)²] of chi, (p, p)."""

    @property
    def label(self) -> str:
        """What is done, for reports."""

    def __call__(self, Q: Gram, M: Cross, a: Layer, student: float) -> Numbers:
        """The averages at one point, with s = ``student``."""

    def work(self, p: int) -> float:
        """Terms of one evaluation."""


class Forms(abc.ABC):
    """The averages of one activation. Subclasses are frozen dataclasses: they are part
    of compiled code.
    """

    closed: bool = True
    name: str

    @property
    def jumps(self) -> tuple[tuple[float, float], ...]:
        """Where the slope jumps, and by how much."""
        return ()

    @abc.abstractmethod
    def single(self, mean: Numbers, variance: Numbers) -> Single:
        """Averages at one field; arrays broadcast."""

    @abc.abstractmethod
    def ladder(self, mean: Numbers, width: Number, orders: int) -> Ladder:
        """Hermite coefficients of f' in the fluctuation of one field, g = (field −
        mean)/width; arrays broadcast.
        """

    @abc.abstractmethod
    def pair_with(self, other: Forms) -> PairOf | None:
        """The averages of this activation at one field and another at a second, or None
        if they are not closed.
        """

    def pair(self, c11: Number, c12: Number, c22: Number) -> Pair:
        """Both fields with this activation."""
        same = self.pair_with(self)
        assert same is not None
        return same(c11, c12, c22)

    def ridge_variance(
        self, target: RidgeTarget, p: int, order: int
    ) -> SecondOrder | None:
        """The closed second-order part E[σ'_j σ'_l (h − s f)²] against a sum of ridges
        (targets.py), or None.
        """
        return None

    def node_variance(self, target: NodeTarget, p: int) -> SecondOrder | None:
        """The same against a target at nodes, or None."""
        return None

    def pair_work(self, fields: int, pairs: int) -> float:
        """Terms of so many pairs between so many fields."""
        return 4.0 * pairs

    def single_work(self, fields: int) -> float:
        """Terms of so many one-field averages."""
        return 4.0 * fields


@dataclass(frozen=True)
class NumericForms(Forms):
    """Quadrature for any activation: O(order) per field; per pair O(order) where it is
    smooth, else O(order²).
    """

    activation: Activation
    order: int = 16
    name: str = "quadrature"
    closed = False

    @property
    def jumps(self) -> tuple[tuple[float, float], ...]:
        """Those of the activation."""
        kinks = np.asarray(self.activation.kinks)
        below, above = (
            np.asarray(self.activation.slope(jnp.asarray(kinks + side)))
            for side in (-SIDE, SIDE)
        )
        return tuple(zip(kinks.tolist(), (above - below).tolist(), strict=True))

    def _rule(
        self, mean: Real, width: Real, count: float | None = None
    ) -> tuple[Any, Numbers, Numbers]:
        """Nodes x, weights, and fields mean + width·x, with panels that end at the
        kinks.
        """
        count = int(count or NODES_PER_ORDER * self.order)
        x: Numbers
        w: Numbers
        x, w = even_rule(count)
        if self.activation.kinks:
            breaks = [crossing(kink, mean, width) for kink in self.activation.kinks]
            x, w = panel_rule(jnp.stack(breaks, -1), -(-count // NODES_PER_ORDER))
        return x, w, mean[..., None] + width[..., None] * x

    def single(self, mean: Numbers, variance: Numbers) -> Single:
        """Averages at one field."""
        mean, variance = jnp.broadcast_arrays(mean, variance)
        width = jnp.sqrt(jnp.where(variance > -TINY, variance, 0.0) + 2 * TINY)
        x, w, u = self._rule(mean, width)
        slope = self.activation.slope(u)
        return Single(
            (w * self.activation(u)).sum(-1),
            (w * slope).sum(-1),
            (w * x * slope).sum(-1) / width,
        )

    def ladder(self, mean: Number, width: Number, orders: int) -> Ladder:
        """Hermite coefficients at one field."""
        mean, width = jnp.broadcast_arrays(mean, width)
        x, w, u = self._rule(
            mean, width, max(NODES_PER_ORDER * self.order, NODES_PER_TERM * orders)
        )
        value, slope = w * self.activation(u), w * self.activation.slope(u)
        if x.ndim == 1:  # the same nodes for all fields, and nothing jumps
            return Ladder(
                value.sum(-1),
                jnp.einsum("...m,nm->n...", slope, hermite_table(orders - 1, x)),
            )
        h = orthonormal(x, orders)
        return Ladder(value.sum(-1), (slope * h).sum(-1), (value * h).sum(-1))

    def pair_with(self, other: Forms) -> None:
        """Nothing is closed."""

    def pair(self, c11: Number, c12: Number, c22: Number) -> Pair:
        """Mehler's sum where the activation is smooth, else panels."""
        if self.activation.kinks:
            return cross_pair(
                self.activation, self.activation, self.order, c11, c12, c22
            )
        return mehler_pair(self, self, self.order, c11, c12, c22)

    def pair_work(self, fields: int, pairs: int) -> float:
        """Values at nodes of each field and a sum for each pair; a grid for each pair
        of kinked ones.
        """
        if self.activation.kinks:
            return pairs * float((4 + 3 * len(self.activation.kinks)) * self.order) ** 2
        terms = TERMS_PER_ORDER * self.order
        return fields * NODES_PER_TERM * terms * (4 + 0.5 * terms) + 0.5 * terms * pairs

    def single_work(self, fields: int) -> float:
        """Values at nodes."""
        return 2.0 * fields * self.order * (3 + len(self.activation.kinks))


def orthonormal(x: Real, count: int, scale: Number = 1.0) -> Tree:
    """scale^n h_n(x), n = 0 … count − 1, by their recursion; stacked on a new first
    axis.
    """
    x, square = x * scale, jnp.asarray(scale) ** 2

    def step(pair: Tree, n: Number) -> Tree:
        above = (x * pair[1] - jnp.sqrt(n) * square * pair[0]) / jnp.sqrt(n + 1)
        return (pair[1], above), above

    first = jnp.ones_like(x)
    if count <= FEW:  # fused with what uses them
        found = [jnp.zeros_like(x), first]
        for n in range(count - 1):
            found.append(step((found[-2], found[-1]), float(n))[1])
        return jnp.stack(found[1:])
    _, rest = jax.lax.scan(
        step, (jnp.zeros_like(x), first), jnp.arange(count - 1, dtype=x.dtype)
    )
    return jnp.concatenate([first[None], rest])


def mehler_pair(
    f: Forms, g: Forms, order: int, c11: Number, c12: Number, c22: Number
) -> Pair:
    """E[f g], E[f' g'], E[f'' g] from the Hermite coefficients of each. Cost O(terms)
    per pair and O(terms²) per field.

    The three covariances broadcast; coefficients are computed in the shapes of c11 and
    c22 alone.
    """
    terms = TERMS_PER_ORDER * order
    width, other = root(jnp.asarray(c11, float)), root(jnp.asarray(c22, float))
    left = f.ladder(jnp.zeros_like(width), width, terms + 1)
    right = g.ladder(jnp.zeros_like(other), other, terms + 1)
    own, across = left.weak_slopes(width), right.weak_slopes(other)
    moves = (width > 0) & (other > 0)
    rho = jnp.where(moves, c12, 0.0) / jnp.where(moves, width * other, 1.0)
    # the sums over n by Horner's rule; E[f g] = f_0 g_0 + C12 Σ_n ρⁿ f'_n g'_n/(n + 1)
    # with weak slopes of both
    n = np.arange(terms)
    lift = np.sqrt(n + 1.0)

    def step(sums: Pair, term: Tree) -> tuple[Pair, None]:
        n, lift, f_weak, f_slope, f_next, g_weak, g_value = term
        return Pair(
            sums.ff * rho + f_weak * g_weak / (n + 1),
            sums.dd * rho + f_slope * g_weak,
            sums.hd * rho + lift * f_next * g_value,
        ), None

    empty = jnp.zeros(jnp.broadcast_shapes(rho.shape, width.shape, other.shape))
    columns = (
        n,
        lift,
        own,
        left.slopes[:-1],
        left.slopes[1:],
        across,
        right.values(other)[:-1],
    )
    sums, _ = jax.lax.scan(step, Pair(empty, empty, empty), columns, reverse=True)
    bend = sums.hd / jnp.where(width > 0, width, 1.0)
    return Pair(left.value * right.value + c12 * sums.ff, sums.dd, bend)


def cross_pair(
    f: Activation, g: Activation, order: int, c11: Number, c12: Number, c22: Number
) -> Pair:
    """E[f g], E[f' g'], E[f'' g] for two activations by iterated quadrature, field by
    field.

    With x = √c11 ξ1 and y = r ξ1 + s ξ2: E[f' g'] = E[f' ξ2 g]/s and E[f'' g] from E[f'
    ξ1 g].
    """
    shape = jnp.broadcast_shapes(jnp.shape(c11), jnp.shape(c12), jnp.shape(c22))
    flat = [jnp.broadcast_to(c, shape).reshape(-1) for c in (c11, c12, c22)]

    def one(c: tuple[jax.Array, jax.Array, jax.Array]) -> Pair:
        c11, c12, c22 = c
        width = jnp.sqrt(c11)
        r = c12 / width
        s = root(c22 - r**2)
        outer: list[Real] = [k / width for k in f.kinks]
        for k in g.kinks:
            outer += blurred_crossings(k, 0.0, r, s)
        x1, w1 = panel_rule(jnp.stack(outer) if outer else jnp.zeros(0), order)
        inner = [crossing(k, r * x1, s) for k in g.kinks]
        x2, w2 = panel_rule(
            jnp.stack(inner, -1) if inner else jnp.zeros((x1.shape[0], 0)), order
        )
        y = r * x1[:, None] + s * x2
        gy = g(y)
        mean, moment = (w2 * gy).sum(-1), (w2 * x2 * gy).sum(-1)
        value, slope = f(width * x1), f.slope(width * x1)
        # where y is a multiple of x the weak derivative of g is its slope at that point
        degenerate = s < 1e-6 * jnp.sqrt(c22)
        weak = jnp.where(
            degenerate,
            (w2 * g.slope(y)).sum(-1),
            moment / jnp.where(degenerate, 1.0, s),
        )
        dd = (w1 * slope * weak).sum()
        hd = ((w1 * slope * x1 * mean).sum() - r * dd) / width
        return Pair((w1 * value * mean).sum(), dd, hd)

    out = jax.lax.map(one, tuple(flat), batch_size=max(1, 2**14 // order**2))
    return Pair(*(v.reshape(shape) for v in out))
