"""First passages of what no threshold of `until` watches: runs are looked at, leg after
leg, until all of them have passed.

    looks:  every step at first, then LOOKS of them while the steps double,
    T = the first look with  size(Q_t, M_t) ≥ level,    up to 1/LOOKS late

The overlaps and the second layer are a Markov chain, so that a leg may begin where the
one before it ended, with random numbers of its own. Where a run is more than its
overlaps (explicit weights, momentum, an average of the iterates) there is one leg, with
looks in geometric progression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from twolayer.methods.chain import Chain
from twolayer.methods.vectors import Vectors
from twolayer.numerics.arguments import Progress
from twolayer.numerics.precision import float64
from twolayer.numerics.random import fold
from twolayer.running.solve import make_task, run, told
from twolayer.task.algorithm import SGD
from twolayer.task.method import Snapshot
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["Looks", "first_looks"]

LOOKS = 128  # of a leg; the first one has as many steps
SIGHTS = 300  # looks of a run of one leg


class Looks(NamedTuple):
    """Steps at which each of several sizes had reached its level, (seeds, sizes),
    infinite where none had; and the overlaps at the look at which all had, or at the
    last one.
    """

    steps: np.ndarray
    there: Overlaps


@float64
def first_looks(
    problem: Problem,
    algorithm: SGD,
    method: Chain | Vectors,
    starts: Overlaps,
    sizes: Callable[[Snapshot], np.ndarray],
    level: float,
    limit: int,
    seed: int,
    progress: Progress,
) -> Looks:
    """First looks at which sizes (seeds, looks, n) of runs from the starts have reached
    a level, up to a last step.
    """
    whole = isinstance(method, Vectors) or algorithm.momentum > 0
    found = np.empty((0, 0))
    there: list[np.ndarray] = []
    here = starts
    begin = 0
    leg = 0
    while True:
        end = limit if whole else min(limit, max(LOOKS, 2 * begin))
        looks = _looks(end - begin, whole)
        task = make_task(
            problem,
            algorithm,
            method,
            here,
            steps=end - begin,
            save=looks,
            seed=fold(seed, leg),
        )
        # the overlaps alone: risks at all looks would take longer than the steps
        record = run(task, method, progress)
        if record.interrupted:
            told(task, method, record, throw=False)
        seen = record.snapshot
        assert isinstance(seen, Snapshot)
        passed = sizes(seen) >= level
        states = [seen.Q, seen.M, seen.a]
        if leg == 0:
            found = np.full((passed.shape[0], passed.shape[2]), np.inf)
            there = [state[:, -1].copy() for state in states]
        running = np.flatnonzero(np.isinf(found).any(1))
        first = np.where(passed.any(1), looks[passed.argmax(1)] + begin, np.inf)
        found = np.minimum(found, first)
        for i in running:
            last = found[i].max()
            at = -1 if np.isinf(last) else np.searchsorted(looks, last - begin)
            for kept, state in zip(there, states, strict=True):
                kept[i] = state[i, at]
        if np.isfinite(found).all() or end == limit:
            return Looks(found, _overlaps(there, starts))
        here = _overlaps([state[:, -1] for state in states], starts)
        begin = end
        leg += 1


def _overlaps(state: list[np.ndarray], starts: Overlaps) -> Overlaps:
    Q, M, a = state
    return Overlaps(Q, M, starts.P, a, starts.dim)


def _looks(span: int, whole: bool) -> np.ndarray:
    """Steps of a leg at which it is looked at, its start among them."""
    if whole:
        points = np.geomspace(1, span, min(SIGHTS, span))
    else:
        points = np.linspace(0, span, min(LOOKS, span) + 1)[1:]
    return np.concatenate([[0], np.unique(np.round(points))]).astype(int)
