"""Seeds in groups of lanes, groups on threads: how a compiled chain advances.

Few seeds are computed one by one, more in vectors of 16. A lane's numbers depend on
nothing but its own, so neither the number of seeds, nor the groups, nor the threads
change a bit.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from twolayer.compiled.program import LANES, Program, program_for
from twolayer.compiled.shape import Shape
from twolayer.compiled.stepper import STREAMS, WrittenStepper
from twolayer.loops.stopping import Lane
from twolayer.numerics.arguments import Notes
from twolayer.numerics.types import Real, Tree
from twolayer.task.method import Snapshot

__all__ = ["CompiledStepper", "LaneGroup"]

SINGLY = 3  # so many seeds are faster one by one
# of the groups for every thread, so that those whose seeds stop early take over from
# the others
SHARES = 16
STOPPED = 1.0  # outcome of lanes that no seed takes: any but 0, for they never move


def cores() -> int:
    """Processors that this process may use."""
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    """Threads that live as long as the process; compiled code runs without the
    interpreter lock.
    """
    return ThreadPoolExecutor(cores(), thread_name_prefix="twolayer")


class CompiledStepper(WrittenStepper):
    """All seeds in machine code."""

    def start(self) -> np.ndarray:
        """One row of numbers for each seed."""
        keys = np.asarray(self.lanes.keys(*STREAMS)).reshape(-1, 4)
        self.ensemble = LaneGroup(self.shape, self.numbers, keys, self.shared)
        rows = self.rows()
        return np.broadcast_to(rows, (self.lanes.shape[0], rows.shape[1]))

    def run(self, carry: Tree, start: Real, stop: Real) -> Tree:
        """Compiled steps of all seeds."""
        state, lane = carry
        full = np.concatenate([state, *(np.asarray(x, float) for x in lane)], axis=1)
        new = self.ensemble.run(full, np.asarray(start)[:, 0], np.asarray(stop)[:, 0])
        code, stopped, watched = new[:, -3:].T[:, :, None]
        return new[:, :-3], Lane(code.astype(np.int32), stopped, watched)

    def snapshot(self, state: np.ndarray) -> Snapshot:
        """Overlaps of all seeds."""
        rows = state[self.lanes.index]
        snapshot = Snapshot(*(x[:, None] for x in self.overlaps(rows)))
        if self.layout is None:
            return snapshot
        Q, M = self.layout.seen(self.opened(rows)[0][:, None])
        return snapshot._replace(Q_block=Q, M_block=M)

    def notes(self, diverged: bool) -> Notes:
        """How the steps were taken."""
        return {"batch_sums": "exact", "steps": "compiled"}


class LaneGroup:
    """Seeds of one shape with their numbers and random streams, and what all of them
    share.

    ``keys`` (seeds, 4) are those of the samples and of what they have outside the known
    directions; ``numbers`` have one row where all seeds share it.
    """

    def __init__(
        self, shape: Shape, numbers: np.ndarray, keys: np.ndarray, shared: np.ndarray
    ) -> None:
        self.shared = np.ascontiguousarray(shared, float)
        self.seeds = len(keys)
        self.lanes = 1 if self.seeds <= SINGLY else LANES
        self.program: Program = program_for(shape, self.lanes)
        shared_by_all = np.broadcast_to(numbers[0], (self.lanes, numbers.shape[1]))
        self.numbers = self.grouped(numbers if len(numbers) > 1 else shared_by_all)
        self.keys = self.grouped(keys.astype(np.uint32))

    def grouped(self, x: np.ndarray) -> np.ndarray:
        """(seeds, n) as (groups, n, lanes); lanes that no seed takes repeat the last
        one.
        """
        missing = -len(x) % self.lanes
        padded = (
            np.concatenate([x, np.repeat(x[-1:], missing, axis=0)]) if missing else x
        )
        return np.ascontiguousarray(
            padded.reshape(-1, self.lanes, x.shape[1]).swapaxes(1, 2)
        )

    def single(self, x: np.ndarray) -> np.ndarray:
        """(groups, n, lanes) as (seeds, n)."""
        return np.ascontiguousarray(
            x.swapaxes(1, 2).reshape(-1, x.shape[1])[: self.seeds]
        )

    def run(self, state: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The states (seeds, Layout.state) after steps start … stop − 1 of each
        seed.
        """
        packed, span = (
            self.grouped(state),
            self.grouped(np.stack([start, stop], axis=1).astype(np.int64)),
        )
        packed[-1, -3, self.lanes - -self.seeds % self.lanes :] = STOPPED
        steps = int((stop - start).max(initial=0))

        def advance(groups: np.ndarray) -> None:
            buffers = tuple(map(np.empty, self.program.layout.buffers))
            for group in groups:
                own = (
                    packed[group],
                    self.numbers[group % len(self.numbers)],
                    self.keys[group],
                    span[group],
                )
                self.program(*own, self.shared, buffers, steps)

        shares = np.array_split(
            np.arange(len(packed)), min(len(packed), SHARES * cores())
        )
        if len(shares) == 1:
            advance(shares[0])
        else:
            list(_pool().map(advance, shares))
        return self.single(packed)
