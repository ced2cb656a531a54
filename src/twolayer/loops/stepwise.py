"""Methods that take the algorithm's own steps: seeds side by side, from save point to
save point in short calls.

    Stepper: start → [run(state, from step, to step)]* → snapshot
        what a method compiles, and what it means
    Lanes:   groups of lanes, each with its own rates, thresholds and random streams

Random numbers are functions of (seed, run, step, index), so the cutting into calls
changes no number. Seeds are computed in groups of fixed size, one group after the
other, so that their number changes none either. Several tasks may share a compiled
call: runs that differ in numbers alone stand side by side. Compiled code may treat the
lanes of a group differently in the last bit (vectors first, then a remainder), so a run
keeps its place in a group, (run + seed) mod lanes, whatever its company: every bit is
that of the run taken by itself.
"""

from __future__ import annotations

import dataclasses
import math
import time as wall
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.equations.optimiser_step import (
    Coefficients,
    Form,
    Memory,
    coefficients_of,
)
from twolayer.gaussian.engines import select
from twolayer.loops.host_loop import settled
from twolayer.loops.stopping import DIVERGED, REACHED, Lane, Watch, watched_value
from twolayer.numerics import random
from twolayer.numerics.arguments import Notes, Options
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.method import Accountable, Snapshot, Stand, Task
from twolayer.task.overlaps import Overlaps
from twolayer.task.schedule_factors import Tempo

__all__ = ["Lanes", "Stepper", "Stepwise", "for_each_group", "lane_axes"]

# a compiled call should last about this long, so that the bar moves and Ctrl-C is heard
CALL_SECONDS = 0.3
CPU_LANES, DEVICE_LANES = 16, 4096


def in_groups(group: Callable[..., Tree], *arguments: Tree) -> Tree:
    """Apply a compiled function to one group after the other; groups are the first axis
    of all arguments.

    One after the other, so that the code of a group, and with it every bit of a result,
    does not depend on how many groups there are. Their number is read off the data (the
    last argument is never negative): a loop known to run once would be dissolved into
    its surroundings and rounded differently.
    """

    def of(i: Number) -> Tree:
        return jax.tree.map(
            lambda x: jax.lax.dynamic_index_in_dim(x, i, keepdims=False), arguments
        )

    last = arguments[-1]
    count = (last.reshape(last.shape[0], -1)[:, 0] >= 0).sum()
    shapes = jax.eval_shape(lambda: group(*of(0)))
    empty = jax.tree.map(
        lambda x: jnp.zeros((last.shape[0], *x.shape), x.dtype), shapes
    )

    def body(i: Number, results: Tree) -> Tree:
        put = lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, i, 0)  # noqa: E731
        return jax.tree.map(put, results, group(*of(i)))

    return jax.lax.fori_loop(0, count, body, empty)


def for_each_group(group: Callable[..., Tree], params: Tree, *arguments: Tree) -> Tree:
    """The same of a function that takes parameters first, those of its group among
    them.
    """

    def with_own(own: Options, *here: Tree) -> Tree:
        return group(params._replace(**own), *here)

    return in_groups(with_own, lane_numbers(params), *arguments)


LANE_NUMBERS = ("rates", "tempo", "noise", "table", "watch")
"""Parameters with a value of its own in each lane; the others are shared by all
lanes.
"""


def lane_numbers(params: Tree) -> Options:
    """The parameters that differ from lane to lane, with leading axes (groups,
    lanes).
    """
    return {
        name: getattr(params, name)
        for name in LANE_NUMBERS
        if getattr(params, name, None) is not None
    }


def lane_axes(params: Tree) -> Tree:
    """Axes of vmap for the parameters of a group: the first for the numbers of a lane,
    none for what is shared.
    """
    own = lane_numbers(params)
    return type(params)(**{name: 0 if name in own else None for name in params._fields})


@partial(jax.jit, static_argnums=0)
def watched_values(
    quantity: str, engine: object, Q: Real, M: Real, a: Real, noise: Number
) -> Array:
    """The watched quantity of all lanes, one group after the other."""
    group = jax.vmap(
        lambda Q, M, a, noise: watched_value(quantity, engine, Q, M, a, noise)
    )
    return in_groups(group, Q, M, a, noise)


def earlier(values: np.ndarray) -> np.ndarray:
    """For each value, how many equal ones stand before it.

    Examples
    --------
    >>> earlier(np.array([5, 3, 5, 5, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(values, kind="stable")
    first = np.searchsorted(values[order], values)
    place = np.empty(len(values), int)
    place[order] = np.arange(len(values))
    return place - first


def steps_before(task: Task) -> np.ndarray:
    """Steps that earlier stages of a run have taken on its fixed set, of each seed."""
    return np.zeros(task.seeds, int) if task.after is None else task.after.steps


class Lanes:
    """The seeds of one task, or of several of the same compiled form, in one row of
    groups of lanes.

    Each run has its own place in a group; lanes that no run takes count as stopped from
    the start. ``shape`` is (groups, lanes). ``points`` (groups · lanes, save points)
    are step numbers counted from the first stage on the same fixed set, on which
    earlier ones have taken ``before`` (groups · lanes,) steps; one row where all share
    it.
    """

    def __init__(self, tasks: Sequence[Task], lanes: int | None = None) -> None:
        self.tasks, self.task = tasks, tasks[0]
        self._rates: list[np.ndarray] = []
        self.seeds = sum(task.seeds for task in tasks)
        lanes = lanes or (
            CPU_LANES
            if jax.default_backend() == "cpu"
            else min(DEVICE_LANES, self.seeds)
        )
        self.index = np.arange(self.seeds)
        if lanes > 1:
            place = np.concatenate(
                [(task.runs + task.seed % lanes) % lanes for task in tasks]
            )
            self.index = earlier(place) * lanes + place
        groups = int(self.index.max()) // lanes + 1
        if (
            len(tasks) > 1
        ):  # powers of two, so that stacks of many sizes share a few compiled shapes
            groups = 2 ** (groups - 1).bit_length()
        self.shape = (groups, lanes)
        self._in_order = (
            lanes == 1 and groups == self.seeds
        )  # nothing to look up, which counts for 10⁶ seeds
        self.taken, self._source = np.ones(self.seeds, bool), self.index
        if not self._in_order:
            self.taken = np.zeros(groups * lanes, bool)
            self.taken[self.index] = True
            self._source = np.zeros(groups * lanes, int)
            self._source[self.index] = np.arange(self.seeds)
        until = self.task.until
        # what is watched, the averages it takes, and the thresholds; None where nothing
        # is
        self.quantity = None if until is None else until.quantity
        risky = self.quantity in ("risk", "excess_risk")
        self.engine = select(self.task.problem, "squared").engine if risky else None
        self.before, self.points = self.per_lane(steps_before), self.task.points[None]
        if len(tasks) > 1 or self.task.after is not None:
            points = self.per_lane(
                lambda task: np.broadcast_to(
                    task.points, (task.seeds, len(task.points))
                )
            )
            self.points = np.where(
                self.taken[:, None], points + self.before[:, None], 0
            )
        self.bookkeeping, self.watch = self._bookkeeping()

    @cached_property
    def noise(self) -> Array:
        """Δ of each lane."""
        return self.fold(
            self.per_lane(lambda task: np.full(task.seeds, task.problem.noise))
        )

    def per_lane(self, values: Callable[[Task], np.ndarray]) -> np.ndarray:
        """What each task says for its seeds, in one row of lanes; those that no run
        takes repeat the first.
        """
        row = np.concatenate([values(task) for task in self.tasks])
        return row if self._in_order else row[self._source]

    def spread(self, values: Sequence[object]) -> np.ndarray:
        """One value of each task, repeated for its lanes."""
        given = iter(values)
        return self.per_lane(
            lambda task: np.repeat(
                np.asarray(next(given), float)[None], task.seeds, axis=0
            )
        )

    def fold(self, x: Tree) -> Array:
        """Fold a row of lanes into groups; a single value is that of all of them."""
        every = (math.prod(self.shape), *np.shape(x)[1:])
        return jnp.broadcast_to(jnp.asarray(x), every).reshape(*self.shape, *every[1:])

    def fold_seeds(self, x: np.ndarray) -> Array:
        """Put an array with one entry per seed into groups of lanes."""
        return self.fold(x[self._source])

    def resumed(self, form: Form) -> Memory | None:
        """What an earlier stage left to a step of this form; None where there was
        none.
        """
        after = self.task.after
        if after is None:
            return None
        held: Memory = jax.tree.map(self.fold_seeds, after.state)
        return held.under(form, self.tempo)

    def unfold(self, x: Tree) -> np.ndarray:
        """One entry per seed of what stands in groups of lanes."""
        values = np.asarray(x)
        return self.of_seeds(values.reshape(-1, *values.shape[2:]))

    def of_seeds(self, row: np.ndarray) -> np.ndarray:
        """One entry per seed of a row of lanes."""
        return row if self._in_order else row[self.index]

    def starts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q, M, a of all lanes in one row."""
        every = [task.starts() for task in self.tasks]
        Q, M, a = (np.concatenate(x)[self._source] for x in zip(*every, strict=True))
        return Q, M, a

    def block_starts(self) -> tuple[np.ndarray, np.ndarray]:
        """Q and M of all lanes in each block of the inputs."""
        every = [task.block_starts() for task in self.tasks]
        Q, M = (np.concatenate(x)[self._source] for x in zip(*every, strict=True))
        return Q, M

    def only_start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Q, M, a with a first axis of length 1 where all lanes start alike; else
        None.
        """
        start = self.task.start
        if len(self.tasks) > 1 or not isinstance(start, Overlaps) or start.batch:
            return None
        Q, M, a = dataclasses.replace(self.task, seeds=1).starts()
        return Q, M, a

    def rates(self, dims: Sequence[int]) -> Coefficients:
        """The numbers of one step in each lane, from the dimension of each task."""
        each = [
            coefficients_of(task.algorithm, task.problem.divisor, dim)
            for task, dim in zip(self.tasks, dims, strict=True)
        ]
        found: list[Any] = [
            None if x[0] is None else self.fold(self.spread(x))
            for x in zip(*each, strict=True)
        ]
        return Coefficients(*found)

    @property
    def tempo(self) -> Tempo | None:
        """The schedules of each lane; None where there are none."""
        if self.task.clocks.tempo is None:
            return None
        tempo: Tempo = jax.tree.map(
            lambda *x: self.fold(self.spread(x)),
            *(task.clocks.tempo for task in self.tasks),
        )
        return tempo

    def see(self, form: Form, extra: Tree) -> None:
        """Put aside the rate that a rule has in force, relative to the law, at a save
        point.
        """
        if form.rule is not None and form.rule.adapts is not None:
            self._rates.append(1 / np.sqrt(form.rule.adapts**2 + self.unfold(extra)))

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """The rates put aside, as a variable of the result."""
        return (
            {"lr": (("seed", "time"), np.stack(self._rates, axis=1))}
            if self._rates
            else {}
        )

    def keys(self, *roles: random.Role) -> Array:
        """Keys (groups, lanes, roles, 2) of the random streams."""

        def draw(task: Any) -> np.ndarray:
            return np.stack(
                [random.stream(task.seed, role, task.runs) for role in roles], axis=1
            )

        return self.fold(self.per_lane(draw))

    def _bookkeeping(self) -> tuple[Lane, Watch | None]:
        """Initial bookkeeping; lanes that no run takes count as stopped, and starts
        that are there do not move.
        """
        code = np.where(self.taken, 0, DIVERGED).astype(np.int32)
        if self.quantity is None:
            return (
                Lane(
                    self.fold(code),
                    jnp.full(self.shape, jnp.nan, float),  # no weak type: compiled once
                    jnp.zeros(self.shape),
                ),
                None,
            )
        state = (self.engine, *map(self.fold, self.starts()), self.noise)
        values = np.asarray(watched_values(self.quantity, *state)).reshape(-1)
        untils = [task.until for task in self.tasks if task.until is not None]
        value, relative = (
            self.spread([u.value for u in untils]),
            self.spread([u.relative for u in untils]),
        )
        level = np.where(relative > 0, value * values, value)
        sign = np.full_like(values, untils[0].sign)
        there = self.taken & (sign * (values - level) <= 0)
        lane = (
            np.where(there, REACHED, code).astype(np.int32),
            np.where(there, self.before, np.nan),
            values,
        )
        return Lane(*map(self.fold, lane)), Watch(self.fold(level), self.fold(sign))


class Stepper(Protocol):
    """A method's own part of a stepwise run. States have leading axes (groups,
    lanes).
    """

    lanes: Lanes
    block: int = 1
    """Steps whose random numbers are drawn at once."""

    def start(self) -> Tree:
        """The method's state at the start."""

    def run(
        self, carry: tuple[Tree, Lane], start: Real, stop: Real
    ) -> tuple[Tree, Lane]:
        """Compiled: steps start … stop − 1 of all groups, with step numbers (groups,
        lanes).
        """

    def snapshot(self, state: Tree) -> Snapshot:
        """What is seen of a state, as one save point of all seeds."""

    def left(self, state: Tree) -> Tree:
        """What a stage that follows needs to know of a state beyond the overlaps, seeds
        first.
        """
        return None

    def claims(self, state: Tree) -> list[Stand]:
        """What is relied on at the start and at a state, beside the risk."""
        return []

    def notes(self, diverged: bool) -> Notes:
        """What the result should record about the numerics, and advice if a seed
        diverged.
        """
        return {}

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """More variables of the result, after the run: the rate in force, where a rule
        chooses it.
        """
        return self.lanes.extras()


class Stepwise(Accountable):
    """All seeds of a stepper; one of its steps may stand for ``stride`` steps of the
    algorithm.
    """

    def __init__(self, lanes: Lanes, stepper: Stepper, stride: int = 1) -> None:
        self.lanes, self.stepper, self.stride = lanes, stepper, stride
        self._points = lanes.points // stride
        self._blocks = 1
        self._diverged = False

    def initial(self) -> Tree:
        """State and bookkeeping."""
        return self.stepper.start(), self.lanes.bookkeeping

    def advance(
        self, state: Tree, first: int, tick: Callable[[float], None]
    ) -> tuple[Tree, Snapshot]:
        """To the next save point, in as many calls as it takes."""
        start, end, block = (
            self._points[:, first],
            self._points[:, first + 1],
            self.stepper.block,
        )
        at, longest, own = 0, int((end - start).max()), self.lanes.index[0] % len(start)
        while at < longest and (np.asarray(state[1].code) == 0).any():
            # whole blocks: a call that cuts one throws away the random numbers drawn
            # for the rest of it
            stop = min(longest, at + self._blocks * block)
            began = wall.perf_counter()
            piece = (self.lanes.fold(np.minimum(start + x, end)) for x in (at, stop))
            state = settled(self.stepper.run(state, *piece))
            seconds, blocks = wall.perf_counter() - began, -(-(stop - at) // block)
            if blocks == self._blocks or seconds > CALL_SECONDS:
                self._blocks = int(
                    np.clip(CALL_SECONDS * blocks / seconds, 1, 8 * self._blocks)
                )
            at = stop
            tick(
                float(
                    min(start[own] + at, end[own])
                    - self.lanes.before[self.lanes.index[0]]
                )
                * self.stride
            )
        return state, self.snapshot(state)

    def snapshot(self, state: Tree) -> Snapshot:
        """What is seen of all seeds."""
        return self.stepper.snapshot(state[0])

    def stopped(self, state: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and the steps of the algorithm where the seeds stopped."""
        code, stop = self.lanes.unfold(state[1].code), self.lanes.unfold(state[1].stop)
        self._diverged = bool((code == DIVERGED).any())
        return code, (stop - self.lanes.of_seeds(self.lanes.before)) * self.stride

    def left(self, state: Tree) -> Tree:
        """What the stepper leaves."""
        return self.stepper.left(state[0])

    def claims(self, state: Tree) -> list[Stand]:
        """What the stepper relies on."""
        return self.stepper.claims(state[0])

    def notes(self) -> Notes:
        """What the stepper has to say."""
        return self.stepper.notes(self._diverged)

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Variables of the stepper."""
        return self.stepper.extras()
