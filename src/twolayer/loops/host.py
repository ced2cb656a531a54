"""The host loop: one save point after the other, with progress, early stop and Ctrl-C.

    initial → [advance → snapshot]*   until the last save point, until every seed has stopped, or until interrupted

Compiled code is called in pieces of a fraction of a second; nothing calls back from inside it.
"""

from __future__ import annotations

import signal
import threading
import time as wall
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np

from twolayer.task.method import Evolution, Measure, Outcome, Snapshot

__all__ = ["Monitor", "Record", "Silent", "StartAgain", "follow", "settled"]


class StartAgain(Exception):
    """What has been followed so far is not accurate enough: ``evolution`` takes its place, from the start."""

    def __init__(self, evolution: Evolution) -> None:
        super().__init__("the run begins again with finer averages")
        self.evolution = evolution


def settled(arrays: Any) -> Any:
    """The same arrays once they are computed; meanwhile Ctrl-C is heard."""
    waiting: list[Any] = [x for x in jax.tree.leaves(arrays) if isinstance(x, jax.Array)]
    pause = 1e-4
    while not all(x.is_ready() for x in waiting):
        wall.sleep(pause)
        pause = min(2 * pause, 0.02)
    return arrays


class Monitor(Protocol):
    """Listens to a run."""

    def begin(self, label: str, end: float) -> None:
        """A run starts; its clock goes to ``end``."""

    def update(self, position: float) -> None:
        """The run is at this position of its clock."""

    def finish(self) -> None:
        """The run is over."""


class Silent:
    """A monitor that does nothing."""

    def begin(self, label: str, end: float) -> None:
        """Ignore."""

    def update(self, position: float) -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""


class Ears:
    """Ctrl-C that does not get lost: an exception raised while JAX is tracing or compiling may be swallowed there."""

    def __init__(self) -> None:
        self.heard = False
        self._listening = False

    def __enter__(self) -> Ears:
        ours = threading.current_thread() is threading.main_thread()
        if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._hear)
            self._listening = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._listening:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _hear(self, *_: object) -> None:
        self.heard = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise what was heard before and has not arrived."""
        if self.heard:
            raise KeyboardInterrupt


@dataclass(frozen=True, eq=False)
class Record:
    """What came out of a run: snapshots at the save points passed, outcomes and where they happened.

    ``extras`` are further variables of the method, by name with their dimensions; ``left`` is for
    the stage that follows.
    """

    snapshot: Snapshot | Measure
    outcome: np.ndarray
    stop: np.ndarray
    interrupted: bool
    notes: dict[str, Any]
    extras: dict[str, tuple[tuple[str, ...], np.ndarray]] = field(default_factory=dict)
    left: Any = None

    def advice(self, outcome: str) -> str:
        """What goes with an outcome: the method's own advice, or the general one."""
        own: dict[str, str] = self.notes.get("advice", {})
        return own.get(outcome, Outcome.ADVICE[outcome])


def follow(prepare: Callable[[], Evolution], points: np.ndarray, label: str, monitor: Monitor) -> Record:
    """Prepare an evolution and run it over its save points."""
    with Ears() as ears:
        return _follow(prepare, points, label, monitor, ears)


def _follow(prepare: Callable[[], Evolution], points: np.ndarray, label: str, monitor: Monitor, ears: Ears) -> Record:
    interrupted = False

    def tick(position: float) -> None:
        ears.check()
        monitor.update(position)

    monitor.begin(label, float(points[-1]))
    try:
        evolution = prepare()
        state, at = evolution.initial(), 0
        parts = [evolution.snapshot(state)]
    except BaseException:
        monitor.finish()
        raise
    try:
        while at < len(points) - 1 and (evolution.stopped(state)[0] == 0).any():
            try:
                state, snapshot = evolution.advance(state, at, tick)
            except StartAgain as again:
                evolution = again.evolution
                state, at = evolution.initial(), 0
                parts = [evolution.snapshot(state)]
                continue
            parts.append(snapshot)
            at += snapshot.a.shape[1]
    except KeyboardInterrupt:
        interrupted = True
    finally:
        monitor.finish()
    codes, stop = evolution.stopped(state)
    outcome = np.array(Outcome.CODES)[codes]
    if interrupted:
        outcome = np.where(codes == 0, Outcome.INTERRUPTED, outcome)
    kind: Any = type(parts[0])
    joined = kind(*(None if x[0] is None else np.concatenate(x, axis=1) for x in zip(*parts, strict=True)))
    more = ({}, {}) if interrupted else (evolution.notes(), evolution.extras())
    return Record(joined, outcome, stop, interrupted, *more, evolution.left(state))
