"""Gaussian averages by panels that end where the integrand bends.

    E[F(u)],  u = L ξ,  ξ ~ N(0, I_n):
        iterate over ξ_1, ξ_2, …; the panels of ξ_i end where one of the fields
    u_f crosses a kink,  ξ_i = (κ_f − Σ_{s<i} L_fs ξ_s) / L_fi,
        and where the later ξ blur that crossing

so that sign, abs and relu are integrated as fast as smooth functions, also when fields
almost coincide. Surfaces that are not planes, such as the margin y f = 1 of the hinge
loss, end the panels of the last ξ where a given level function crosses zero. All shapes
are static: the rules run inside compiled code with L as data (and in NumPy when L is a
NumPy array).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.numerics.types import Number, Numbers, Real, Tree

__all__ = [
    "Partial",
    "blurred_crossings",
    "crossing",
    "even_rule",
    "last_axis",
    "legendre",
    "nested_rule",
    "panel_rule",
]

REACH = 9.0
"""Half-width of the interval; the Gaussian mass outside is 2e-19."""

INNER = 3.0
"""Panels also end at ±3 (and at 0 where nothing bends), so that each is short against
the Gaussian.
"""

BLUR = 5.0
"""A kink seen through a remaining Gaussian of width s is smooth beyond this many s."""

EVEN_REACH = 8.3  # of equidistant nodes
# steps of the search for a level: the Illinois rule gains a digit or more with each
SECANTS = 12

Level = Callable[[Numbers], Numbers]
"""Fields (…, F) → values (…, c) that vanish where the integrand bends."""


@lru_cache(maxsize=64)
def legendre(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(order)
    return (x + 1) / 2, w / 2


def _namespace(x: Number) -> ModuleType:
    return np if isinstance(x, np.ndarray | float) else jnp


def panel_rule(breaks: Real, order: int) -> tuple[Numbers, Numbers]:
    """Nodes and weights for E[f(ξ)], ξ ~ N(0, 1), with panels split at the breaks (last
    axis).

    Breaks outside (−9, 9) are harmless. Shapes (..., b) → (..., max(b + 3, 4)·order).

    Examples
    --------
    >>> x, w = panel_rule(np.array([0.0]), 12)
    >>> abs(float((w * abs(x)).sum()) - math.sqrt(2 / math.pi)) < 1e-10
    True
    """
    return _on_panels(_edges(breaks), order)


def even_rule(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Equidistant nodes for E[f(ξ)]: the error of a function that is analytic near the
    real line falls exponentially.

    Examples
    --------
    >>> x, w = even_rule(28)
    >>> abs(float((w * np.cos(x)).sum()) - math.exp(-0.5)) < 1e-14
    True
    """
    x = np.linspace(-EVEN_REACH, EVEN_REACH, count)
    w = np.exp(-(x**2) / 2)
    return x, w / w.sum()


def _edges(breaks: Real) -> Real:
    """Sorted ends of all panels."""
    xp = _namespace(breaks)
    fixed = (
        (-REACH, -INNER, INNER, REACH)
        if breaks.shape[-1]
        else (-REACH, -INNER, 0.0, INNER, REACH)
    )
    ends = xp.broadcast_to(xp.asarray(fixed), (*breaks.shape[:-1], len(fixed)))
    return xp.sort(
        xp.concatenate([xp.clip(breaks, -REACH, REACH), ends], axis=-1), axis=-1
    )


def _on_panels(edges: Real, order: int) -> tuple[Numbers, Numbers]:
    """Gauss–Legendre nodes between sorted edges, weighted with the Gaussian."""
    xp, (node, weight) = _namespace(edges), legendre(order)
    width = xp.diff(edges, axis=-1)[..., None]
    x = edges[..., :-1, None] + width * node
    w = width * weight * xp.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return x.reshape((*edges.shape[:-1], -1)), w.reshape((*edges.shape[:-1], -1))


def crossing(kink: Number, offset: Number, slope: Number) -> Real:
    """Where offset + slope·x = kink; far outside when the slope vanishes."""
    xp = _namespace(slope)
    moves = xp.abs(slope) > 1e-12
    return xp.where(moves, (kink - offset) / xp.where(moves, slope, 1.0), 2 * REACH)


def blurred_crossings(
    kink: float, offset: Number, slope: Real, rest: Number
) -> list[Real]:
    """Panel ends for a kink of offset + slope·x + rest·η with η still to be
    integrated.
    """
    xp = _namespace(slope)
    moves = xp.abs(slope) > 1e-12
    centre = crossing(kink, offset, slope)
    spread = xp.where(moves, BLUR * rest / xp.where(moves, xp.abs(slope), 1.0), 0.0)
    return [centre - spread, centre, centre + spread]


class Partial(NamedTuple):
    """Points (N, i) and weights (N,) over the first i variables, and the fields (N, F)
    as far as these make them.
    """

    points: Tree
    weights: Numbers
    fields: Numbers


def _breaks(
    at: Partial,
    L: Real,
    i: int,
    kinks: Sequence[Sequence[float]],
    structure: np.ndarray,
) -> Real:
    """Where the fields cross their kinks along ξ_i, (N, b)."""
    xp, found = _namespace(L), []
    for f in np.flatnonzero(structure[:, i]).tolist():
        last = not structure[f, i + 1 :].any()
        for kink in kinks[f]:
            slope = L[f, i] * xp.ones(len(at.points))
            rest = 0.0 if last else _norm(L[f, i + 1 :])
            ends = blurred_crossings(kink, at.fields[:, f], slope, rest)
            found += ends[1:2] if last else ends
    return xp.stack(found, -1) if found else xp.zeros((len(at.points), 0))


def _norm(x: Real) -> Real:
    """|x|, with a zero derivative at zero."""
    xp, square = _namespace(x), (x**2).sum()
    return xp.where(square > 0, xp.sqrt(xp.where(square > 0, square, 1.0)), 0.0)


def _extend(at: Partial, x: Real, w: Number, column: Real) -> Partial:
    """All points with all nodes x (N, m) of the next variable."""
    xp, count = _namespace(column), x.shape[-1]
    return Partial(
        xp.concatenate(
            [xp.repeat(at.points, count, axis=0), x.reshape(-1, 1)], axis=-1
        ),
        (at.weights[:, None] * w).reshape(-1),
        xp.repeat(at.fields, count, axis=0) + x.reshape(-1, 1) * column,
    )


def nested_rule(
    L: Real,
    kinks: Sequence[Sequence[float]],
    order: int,
    structure: np.ndarray,
    level: Level | None = None,
) -> Partial:
    """Points ξ (N, n), weights (N,) and fields L ξ (N, fields) for averages over fields
    that bend at their ``kinks``.

    ``structure`` (fields, n) says which entries of L can differ from zero; the fewer,
    the fewer panels. The last variable also splits where a ``level`` vanishes.

    N = Π_i (b_i + 3)·order; b_i counts one break for each kink of a field that ends
    with ξ_i, three for each kink of a field that goes on, and one if there are none.
    With a level of c values every panel of the last variable is cut into c + 1.
    """
    xp = _namespace(L)
    fields, n = L.shape
    at = Partial(xp.zeros((1, 0)), xp.ones(1), xp.zeros((1, fields)))
    for i in range(n - 1):
        at = _extend(
            at, *panel_rule(_breaks(at, L, i, kinks, structure), order), L[:, i]
        )
    return last_axis(at, L, kinks, order, structure, level)


def last_axis(
    at: Partial,
    L: Numbers,
    kinks: Sequence[Sequence[float]],
    order: int,
    structure: np.ndarray,
    level: Level | None,
) -> Partial:
    """The last variable, with panels that end at kinks and where the level vanishes."""
    column, breaks = L[:, -1], _breaks(at, L, L.shape[1] - 1, kinks, structure)
    if level is None:
        return _extend(at, *panel_rule(breaks, order), column)
    edges = _edges(breaks)
    cuts = _roots(
        lambda x: level(at.fields[:, None, None, :] + x[..., None] * column), edges
    )
    both = jnp.sort(
        jnp.concatenate([edges, cuts.reshape(len(edges), -1)], axis=-1), axis=-1
    )
    return _extend(at, *_on_panels(both, order), column)


def _roots(level: Level, edges: Numbers) -> Numbers:
    """In each interval between edges (N, e), where each of the c values of the level
    changes sign, (N, e − 1, c).

    Where it does not, the middle. One crossing per interval is found, by secants that
    keep it bracketed (Illinois). Levels are evaluated at x (N, e − 1, c) and return (N,
    e − 1, c, c), of which the own one is meant.
    """

    def own(x: Numbers) -> Numbers:
        return jnp.diagonal(level(x), axis1=-2, axis2=-1)

    count = jax.eval_shape(level, edges[:, :1, None]).shape[-1]
    wide = (*edges.shape[:1], edges.shape[1] - 1, count)
    # just inside: at the edges themselves the integrand may jump
    low, high = (
        jnp.broadcast_to(x[..., None], wide) for x in (edges[:, :-1], edges[:, 1:])
    )
    inside = 1e-9 * (high - low)
    low, high = low + inside, high - inside

    def step(_: Number, state: Tree) -> Tree:
        a, b, fa, fb, x = state
        gap = jnp.where(fb == fa, 1.0, fb - fa)
        x = jnp.clip(
            jnp.where(fb == fa, (a + b) / 2, b - fb * (b - a) / gap),
            jnp.minimum(a, b),
            jnp.maximum(a, b),
        )
        f = own(x)
        other = f * fb < 0  # the root lies between x and b
        return jnp.where(other, b, a), x, jnp.where(other, fb, fa / 2), f, x

    state = (low, high, own(low), own(high), (low + high) / 2)
    there = state[2] * state[3] < 0
    x = jax.lax.stop_gradient(jax.lax.fori_loop(0, SECANTS, step, state)[-1])
    # one Newton step carries the derivative with respect to everything that the level
    # depends on
    f, slope = jax.jvp(own, (x,), (jnp.ones_like(x),))
    moves = jnp.abs(slope) > 1e-12
    exact = x - f / jax.lax.stop_gradient(jnp.where(moves, slope, 1.0))
    return jnp.where(there & moves, jnp.clip(exact, low, high), (low + high) / 2)
