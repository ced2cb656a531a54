"""Where a run stops: at the threshold of `until`, or where it leaves the finite range.

    reached:  sign·(value − level) ≤ 0, at the step interpolated linearly;    diverged:
              a squared norm beyond LIMIT

A step never changes a seed that has stopped: when it would leave the finite range the
seed keeps its last state and is marked at that step; when it passes the threshold it is
marked there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.method import Outcome

__all__ = ["Lane", "Watch", "accept", "watched_value"]

LIMIT = 1e8
"""Squared norm of a row beyond which a run counts as diverged."""

DIVERGED, REACHED = (
    Outcome.CODES.index(Outcome.DIVERGED),
    Outcome.CODES.index(Outcome.REACHED),
)


class Lane(NamedTuple):
    """Bookkeeping of one seed: outcome code, step where it stopped, and the watched
    quantity.
    """

    code: Real
    stop: Real
    watched: Real


class Watch(NamedTuple):
    """The threshold of `until`: the quantity falls to the level (sign +1) or rises to
    it (sign −1).
    """

    level: Real
    sign: Real


def watched_value(
    quantity: str | None, engine: Any, Q: Real | None, M: Real, a: Real, noise: Number
) -> Array:
    """The watched quantity of one seed."""
    if quantity is None:
        return jnp.zeros(())
    if quantity == "overlap":
        return jnp.sqrt((M * M).sum())
    if quantity == "alignment":
        return M[0, 0]
    excess = engine(Q, M, a, noise).excess_risk
    return excess + engine.irreducible(noise) if quantity == "risk" else excess


def accept(
    old: Tree,
    new: Tree,
    lane: Lane,
    size: Real,
    value: Number,
    watch: Watch | None,
    step: Number,
    on: bool | Real,
) -> Tree:
    """Keep the new state if the seed still runs and the state is finite; mark what
    happened otherwise.

    After step number ``step``, from 0, the largest squared row norm is ``size``, where
    NaN counts as infinite, and the watched quantity ``value``; ``on`` says whether the
    step is to be taken at all.
    """
    running = on & (lane.code == 0)
    finite = size < LIMIT
    moves = running & finite
    state = jax.tree.map(lambda n, o: jnp.where(moves, n, o), new, old)
    code = jnp.where(running & ~finite, DIVERGED, lane.code)
    stop = jnp.where(running & ~finite, step + 1.0, lane.stop)
    watched = lane.watched
    if watch is not None:
        passed = moves & (watch.sign * (value - watch.level) <= 0)
        gap = lane.watched - value
        part = jnp.where(
            gap == 0, 1.0, (lane.watched - watch.level) / jnp.where(gap == 0, 1.0, gap)
        )
        code = jnp.where(passed, REACHED, code)
        stop = jnp.where(passed, step + jnp.clip(part, 0.0, 1.0), stop)
        watched = jnp.where(moves, value, lane.watched)
    return state, Lane(code.astype(jnp.int32), stop, watched)
