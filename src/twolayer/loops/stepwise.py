"""Methods that take the algorithm's own steps: from save point to save point in calls of a fraction of a second.

    Stepper: start → [run(state, from step, to step)]* → snapshot        what a method compiles, and what it means

Random numbers are functions of (seed, run, step, index), so the cutting into calls changes no number.
"""

from __future__ import annotations

import time as wall
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from twolayer.loops.host import settled
from twolayer.loops.lanes import Lanes
from twolayer.loops.watching import DIVERGED, Lane
from twolayer.task.method import Evolution, Snapshot

__all__ = ["Stepper", "Stepwise"]

CALL_SECONDS = 0.3  # a compiled call should last about this long, so that the bar moves and Ctrl-C is heard


class Stepper(Protocol):
    """A method's own part of a stepwise run. States have leading axes (groups, lanes)."""

    block: int
    """Steps whose random numbers are drawn at once."""

    def start(self) -> Any:
        """The method's state at the start."""

    def run(self, carry: tuple[Any, Lane], start: Any, stop: Any) -> tuple[Any, Lane]:
        """Compiled: steps start … stop − 1 of all groups, with step numbers (groups, lanes)."""

    def snapshot(self, state: Any) -> Snapshot:
        """What is seen of a state, as one save point of all seeds."""

    def left(self, state: Any) -> Any:
        """What a stage that follows needs to know of a state beyond the overlaps, seeds first."""
        return None

    def notes(self, diverged: bool) -> dict[str, Any]:
        """What the result should record about the numerics, and advice if a seed diverged."""
        return {}

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """More variables of the result, after the run."""
        return {}


class Stepwise(Evolution):
    """All seeds of a stepper; one of its steps may stand for ``stride`` steps of the algorithm."""

    def __init__(self, lanes: Lanes, stepper: Stepper, stride: int = 1) -> None:
        self.lanes, self.stepper, self.stride = lanes, stepper, stride
        self._points = lanes.points // stride
        self._blocks = 1
        self._diverged = False

    def initial(self) -> Any:
        """State and bookkeeping."""
        return self.stepper.start(), self.lanes.bookkeeping

    def advance(self, state: Any, first: int, tick: Callable[[float], None]) -> tuple[Any, Snapshot]:
        """To the next save point, in as many calls as it takes."""
        start, end, block = self._points[:, first], self._points[:, first + 1], self.stepper.block
        at, longest, own = 0, int((end - start).max()), self.lanes.index[0]
        while at < longest and (np.asarray(state[1].code) == 0).any():
            # whole blocks: a call that cuts one throws away the random numbers drawn for the rest of it
            stop = min(longest, at + self._blocks * block)
            began = wall.perf_counter()
            piece = (self.lanes.fold(np.minimum(start + x, end)) for x in (at, stop))
            state = settled(self.stepper.run(state, *piece))
            seconds, blocks = wall.perf_counter() - began, -(-(stop - at) // block)
            if blocks == self._blocks or seconds > CALL_SECONDS:
                self._blocks = int(np.clip(CALL_SECONDS * blocks / seconds, 1, 8 * self._blocks))
            at = stop
            tick(float(min(start[own] + at, end[own]) - self.lanes.before[own]) * self.stride)
        return state, self.snapshot(state)

    def snapshot(self, state: Any) -> Snapshot:
        """What is seen of all seeds."""
        return self.stepper.snapshot(state[0])

    def stopped(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and the steps of the algorithm where the seeds stopped."""
        code, stop = self.lanes.unfold(state[1].code), self.lanes.unfold(state[1].stop)
        self._diverged = bool((code == DIVERGED).any())
        return code, (stop - self.lanes.of_seeds(self.lanes.before)) * self.stride

    def left(self, state: Any) -> Any:
        """What the stepper leaves."""
        return self.stepper.left(state[0])

    def notes(self) -> dict[str, Any]:
        """What the stepper has to say."""
        return self.stepper.notes(self._diverged)

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Variables of the stepper."""
        return self.stepper.extras()
