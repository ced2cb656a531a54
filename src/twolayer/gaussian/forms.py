"""One- and two-point Gaussian averages of an activation: what the gradient-flow part of every equation needs.

    one field, mean μ, variance v:     E[f],  E[f'],  v·E[f''];    E[f'(μ + s g) h_n(g)], n = 0, 1, …
    two fields, covariance C:          E[f(x) g(y)],  E[f'(x) g'(y)],  E[f''(x) g(y)]

Derivatives are meant in the weak sense (Stein), so that kinks and jumps need no care:
E[f'(x) u g(y)] = Cov(x, u) E[f'' g] + Cov(y, u) E[f' g'] for every Gaussian field u.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from twolayer.functions.activation import Activation
from twolayer.gaussian.quadrature import blurred_crossings, crossing, panel_rule

__all__ = ["Forms", "Ladder", "NumericForms", "Pair", "Single", "cross_pair", "orthonormal"]


class Single(NamedTuple):
    """E[f], E[f'] and variance·E[f'']."""

    value: Any
    slope: Any
    bend: Any


class Pair(NamedTuple):
    """E[f g], E[f' g'] and E[f'' g]."""

    ff: Any
    dd: Any
    hd: Any


class Ladder(NamedTuple):
    """E[f], and E[f' h_n] for n = 0, 1, … on a first axis, at one field μ + s g; E[f h_n] = (s/√n) E[f' h_{n−1}]."""

    value: Any
    slopes: Any


class Forms(abc.ABC):
    """The averages of one activation, closed or numerical."""

    name: str

    @abc.abstractmethod
    def single(self, mean: Any, variance: Any) -> Single:
        """Averages at one field; arrays broadcast."""

    @abc.abstractmethod
    def pair(self, c11: Any, c12: Any, c22: Any) -> Pair:
        """Averages at two fields of zero mean; arrays broadcast."""

    @abc.abstractmethod
    def ladder(self, mean: Any, width: Any, orders: int) -> Ladder:
        """Hermite coefficients of f' in the fluctuation of one field, g = (field − mean)/width; arrays broadcast."""


@dataclass(frozen=True)
class NumericForms(Forms):
    """Quadrature for any activation: O(order) per field, O(order²) per pair of fields (times panels)."""

    activation: Activation
    order: int = 16
    name: str = "quadrature"

    def single(self, mean: Any, variance: Any) -> Single:
        """Averages at one field."""
        mean, variance = jnp.broadcast_arrays(mean, variance)
        width = jnp.sqrt(variance)
        kinks = self.activation.kinks
        breaks = [crossing(kink, mean, width) for kink in kinks]
        x, w = panel_rule(jnp.stack(breaks, -1) if breaks else jnp.zeros((*mean.shape, 0)), self.order)
        u = mean[..., None] + width[..., None] * x
        slope = self.activation.slope(u)
        return Single((w * self.activation(u)).sum(-1), (w * slope).sum(-1), width * (w * x * slope).sum(-1))

    def ladder(self, mean: Any, width: Any, orders: int) -> Ladder:
        """Hermite coefficients at one field."""
        mean, width = jnp.broadcast_arrays(mean, width)
        breaks = [crossing(kink, mean, width) for kink in self.activation.kinks]
        x, w = panel_rule(jnp.stack(breaks, -1) if breaks else jnp.zeros((*mean.shape, 0)), self.order)
        u = mean[..., None] + width[..., None] * x
        slope = w * self.activation.slope(u)
        return Ladder((w * self.activation(u)).sum(-1), (slope * orthonormal(x, orders)).sum(-1))

    def pair(self, c11: Any, c12: Any, c22: Any) -> Pair:
        """Averages at two fields."""
        return cross_pair(self.activation, self.activation, self.order, c11, c12, c22)


def orthonormal(x: Any, count: int, scale: Any = 1.0) -> Any:
    """scale^n h_n(x), n = 0 … count − 1, by their recursion; stacked on a new first axis."""
    x, square = x * scale, jnp.asarray(scale) ** 2

    def step(pair: tuple[Any, Any], n: Any) -> tuple[tuple[Any, Any], Any]:
        above = (x * pair[1] - jnp.sqrt(n) * square * pair[0]) / jnp.sqrt(n + 1)
        return (pair[1], above), above

    first = jnp.ones_like(x)
    _, rest = jax.lax.scan(step, (jnp.zeros_like(x), first), jnp.arange(count - 1, dtype=x.dtype))
    return jnp.concatenate([first[None], rest])


def cross_pair(f: Activation, g: Activation, order: int, c11: Any, c12: Any, c22: Any) -> Pair:
    """E[f g], E[f' g'], E[f'' g] for two activations by iterated quadrature, field by field.

    With x = √c11 ξ1 and y = r ξ1 + s ξ2: E[f' g'] = E[f' ξ2 g]/s and E[f'' g] from E[f' ξ1 g].
    """
    shape = jnp.broadcast_shapes(jnp.shape(c11), jnp.shape(c12), jnp.shape(c22))
    flat = [jnp.broadcast_to(c, shape).reshape(-1) for c in (c11, c12, c22)]

    def one(c: tuple[Any, Any, Any]) -> Pair:
        c11, c12, c22 = c
        width = jnp.sqrt(c11)
        r = c12 / width
        s = jnp.sqrt(jnp.maximum(c22 - r**2, 0.0))
        outer = [k / width for k in f.kinks]
        for k in g.kinks:
            outer += blurred_crossings(k, 0.0, r, s)
        x1, w1 = panel_rule(jnp.stack(outer) if outer else jnp.zeros(0), order)
        inner = [crossing(k, r * x1, s) for k in g.kinks]
        x2, w2 = panel_rule(jnp.stack(inner, -1) if inner else jnp.zeros((x1.shape[0], 0)), order)
        y = r * x1[:, None] + s * x2
        gy = g(y)
        mean, moment = (w2 * gy).sum(-1), (w2 * x2 * gy).sum(-1)
        value, slope = f(width * x1), f.slope(width * x1)
        # where y is a multiple of x the weak derivative of g is its slope at that point
        degenerate = s < 1e-6 * jnp.sqrt(c22)
        weak = jnp.where(degenerate, (w2 * g.slope(y)).sum(-1), moment / jnp.where(degenerate, 1.0, s))
        dd = (w1 * slope * weak).sum()
        hd = ((w1 * slope * x1 * mean).sum() - r * dd) / width
        return Pair((w1 * value * mean).sum(), dd, hd)

    out = jax.lax.map(one, tuple(flat), batch_size=max(1, 2**14 // order**2))
    return Pair(*(v.reshape(shape) for v in out))
