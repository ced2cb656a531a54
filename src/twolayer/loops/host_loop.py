"""The host loop: one save point after the other, with progress, early stop and Ctrl-C.

    initial → [advance → snapshot]*
        until the last save point, until every seed has stopped, or until interrupted

Compiled code is called in pieces of a fraction of a second; nothing calls back from
inside it.
"""

from __future__ import annotations

import time as wall
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from twolayer.numerics.arguments import Listener, Notes
from twolayer.numerics.types import Tree
from twolayer.task.method import (
    Accountable,
    Evolution,
    Measure,
    Outcome,
    Snapshot,
    Stand,
)

__all__ = [
    "Keeper",
    "Listener",
    "Record",
    "Standing",
    "StartAgain",
    "follow",
    "settled",
]


class StartAgain(Exception):
    """What has been followed so far is not accurate enough: ``evolution`` takes its
    place, from the start.
    """

    def __init__(self, evolution: Evolution) -> None:
        super().__init__("the run begins again with finer averages")
        self.evolution = evolution


def settled(arrays: Tree) -> Tree:
    """The same arrays once they are computed; meanwhile Ctrl-C is heard."""
    waiting: list[Any] = [
        x for x in jax.tree.leaves(arrays) if isinstance(x, jax.Array)
    ]
    pause = 1e-4
    while not all(x.is_ready() for x in waiting):
        wall.sleep(pause)
        pause = min(2 * pause, 0.002)
    return arrays


@dataclass(frozen=True, eq=False)
class Record:
    """What came out of a run: snapshots at the save points passed, outcomes and where
    they happened.

    ``extras`` are further variables of the method, by name with their dimensions;
    ``left`` is for the stage that follows, ``claims`` for the witness.
    """

    snapshot: Snapshot | Measure
    outcome: np.ndarray
    stop: np.ndarray
    interrupted: bool
    notes: Notes
    extras: dict[str, tuple[tuple[str, ...], np.ndarray]] = field(default_factory=dict)
    left: Tree = None
    claims: Callable[[], list[Stand]] = list

    def advice(self, outcome: str) -> str:
        """What goes with an outcome: the method's own advice, or the general one."""
        own: dict[str, str] = self.notes.get("advice", {})
        return own.get(outcome, Outcome.ADVICE[outcome])


class Standing(NamedTuple):
    """Where a run stands: its state at save point number ``at``, and what was seen at
    those up to it.
    """

    state: Tree
    at: int
    seen: Tree


class Keeper(Protocol):
    """Keeps a run where a kill does not reach it (`twolayer.loops.checkpoint`)."""

    def read(self, evolution: Evolution) -> Standing | None:
        """Where the run stood, or None."""

    def write(self, point: Standing) -> None:
        """The run stands here."""

    def finish(self, point: Standing) -> None:
        """The run has come to its end, here; nobody has saved its result yet."""


def joined(parts: list[Any]) -> Any:
    """What was seen one after the other, as one snapshot."""
    return type(parts[0])(
        *(
            None if x[0] is None else np.concatenate(x, axis=1)
            for x in zip(*parts, strict=True)
        )
    )


def follow(
    prepare: Callable[[], Evolution],
    points: np.ndarray,
    label: str,
    monitor: Listener,
    keeper: Keeper | None = None,
) -> Record:
    """Prepare an evolution and run it over its save points, from where a keeper has
    left it.
    """
    interrupted = False
    monitor.begin(label, float(points[-1]))
    try:
        evolution = prepare()
        state, at = evolution.initial(), 0
        parts = [evolution.snapshot(state)]
        kept = None if keeper is None else keeper.read(evolution)
        if kept is not None:
            state, at, parts = kept.state, kept.at, [kept.seen]
    except BaseException:
        monitor.finish()
        raise
    try:
        while at < len(points) - 1 and (evolution.stopped(state)[0] == 0).any():
            try:
                state, snapshot = evolution.advance(state, at, monitor.update)
            except StartAgain as again:
                evolution = again.evolution
                state, at = evolution.initial(), 0
                parts = [evolution.snapshot(state)]
                continue
            parts.append(snapshot)
            at += snapshot.a.shape[1]
            if keeper is not None:
                parts = [joined(parts)]
                keeper.write(Standing(state, at, parts[0]))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        monitor.finish()
    codes, stop = evolution.stopped(state)
    outcome = np.array(Outcome.CODES, object)[codes]
    if interrupted:
        outcome = np.where(codes == 0, Outcome.INTERRUPTED, outcome)
    if keeper is not None and not interrupted:
        keeper.finish(Standing(state, at, joined(parts)))
    claims: Callable[[], list[Stand]] = list
    if isinstance(evolution, Accountable) and not interrupted:
        claims = partial(evolution.claims, state)
    more = ({}, {}) if interrupted else (evolution.notes(), evolution.extras())
    return Record(
        joined(parts),
        outcome,
        stop,
        interrupted,
        *more,
        evolution.left(state),
        claims,
    )
