"""Rules that put other weights in the place of the second layer.

    ĝ_j = w_j σ'(λ_j) e,    w = fixed + share ⊙ a

Plain gradients have w = a, scaled ones a multiple of it, and direct feedback alignment
a fixed vector. All averages of such a push are those of plain gradients with w as
their factor, so that closed forms stay closed.

A rule is a function of samples, and whether it is of this kind is found by trying it:
residuals over 16 decades, fields over 4, several second layers. One that looks at inner
products or at shifted fields is not of this kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from twolayer.functions.activation import Activation
from twolayer.numerics.types import Layer, Real
from twolayer.task.rules import Rule, Sight

__all__ = ["PushWeights", "weights_of"]

PROBES = 2048
RESIDUALS = 8.0  # decades below and above 1
FIELDS = (-3.0, 1.0)  # decades of their width
CLOSE = 1e-9  # relative differences that are rounding
STEEP = 0.01  # of the largest slope: where a factor of it can be read off


class PushWeights(NamedTuple):
    """The weights fixed + share ⊙ a of a push, in the place of a."""

    fixed: tuple[float, ...]
    share: tuple[float, ...]

    def at(self, a: Layer) -> Real:
        """The weights at a second layer."""
        return jnp.asarray(self.fixed) + jnp.asarray(self.share) * a


class _LookedElsewhere(Exception):
    """A rule has asked for gradients at other fields."""


def _elsewhere(*_: Any) -> Any:
    raise _LookedElsewhere


@lru_cache(maxsize=64)
def weights_of(
    rule: Rule,
    activation: Activation,
    p: int,
    divisor: float,
    batch: float,
    rate: float,
) -> PushWeights | None:
    """The weights of a rule, or None where it is not of this kind; inside double
    precision.
    """
    plain = rule.registered or rule.name == "formula"
    if not plain or rule.push is None or rule.draws or rule.sizes or rule.products:
        return None
    rng = np.random.default_rng(0)
    first, second, third = rng.normal(size=(3, p))

    def factors(a: np.ndarray) -> np.ndarray | None:
        return _factors(rule.push, activation, a, rng, (divisor, batch, rate))

    fixed, moved, checked = factors(np.zeros(p)), factors(first), factors(second)
    last = factors(10 * third)
    if fixed is None or moved is None or checked is None or last is None:
        return None
    share = (moved - fixed) / first
    for a, found in ((second, checked), (10 * third, last)):
        size = np.abs(fixed) + np.abs(share * a)
        if (np.abs(fixed + share * a - found) > 10 * CLOSE * size).any():
            return None
    return PushWeights(tuple(fixed.tolist()), tuple(share.tolist()))


def _factors(
    push: Callable[[Sight], Real] | None,
    activation: Activation,
    a: np.ndarray,
    rng: np.random.Generator,
    numbers: tuple[float, float, float],
) -> np.ndarray | None:
    """What σ' e is multiplied by at a second layer; None if samples differ in it."""
    assert push is not None
    width = 10 ** rng.uniform(*FIELDS, size=(PROBES, 1))
    fields = jnp.asarray(width * rng.normal(size=(PROBES, len(a))))
    size = 10 ** rng.uniform(-RESIDUALS, RESIDUALS, size=PROBES)
    e = size * rng.choice([-1.0, 1.0], size=PROBES)
    slope = np.asarray(activation.slope(fields))
    unit = slope * e[:, None]
    sight = Sight(
        jnp.asarray(a * unit),
        fields,
        jnp.asarray(e),
        1.0,
        _elsewhere,
        _elsewhere,
        *numbers,
    )
    try:
        found = np.asarray(push(sight), dtype=float)
    except Exception:  # a rule that fails says so where it is used
        return None
    if found.shape != unit.shape or not np.isfinite(found).all():
        return None
    steepest = np.abs(slope).max(axis=0)
    steep = np.abs(slope) > STEEP * steepest
    if not steep.any(axis=0).all():
        return None
    ratio = np.where(steep, found / np.where(steep, unit, 1.0), np.nan)
    weights = np.nanmedian(ratio, axis=0)
    room = CLOSE * np.abs(weights) * np.abs(e)[:, None] * (steepest + np.abs(slope))
    return weights if (np.abs(found - weights * unit) <= room).all() else None
