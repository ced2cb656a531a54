"""Methods that take the algorithm's own steps: the compiled loop between save points, shared by all of them.

A step never changes a seed that has stopped: when it would leave the finite range the seed keeps its last state
and is marked as diverged at that step; when it passes the threshold of `until` it is marked as reached, at the
step interpolated linearly. Random numbers are functions of (seed, run, step, index) and seeds are computed in
groups of fixed size, so neither the number of seeds nor the cutting of the steps into calls changes a number.

Several tasks may share a compiled call: each lane of a group carries its own rates, thresholds and step numbers, so
runs that differ in such numbers alone stand side by side. Compiled code may treat the lanes of a group differently in
the last bit (vectors first, then a remainder), so a run keeps its place in a group, (run + seed) mod lanes, whatever
its company: every bit is that of the run taken by itself.
"""

from __future__ import annotations

import abc
import time as wall
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.kernel import Rates
from twolayer.gaussian.engines import select
from twolayer.gaussian.nodes import target_frame
from twolayer.numerics import random
from twolayer.numerics.errors import InputError
from twolayer.task.algorithm import SGD
from twolayer.task.method import Evolution, Outcome, Snapshot, Task
from twolayer.task.problem import Problem

__all__ = [
    "Lane",
    "StepwiseEvolution",
    "Watch",
    "accept",
    "embed",
    "in_groups",
    "lane_axes",
    "lane_numbers",
    "rates_at",
    "watched_value",
]

LIMIT = 1e8
"""Squared norm of a row beyond which a run counts as diverged."""

DIVERGED, REACHED = Outcome.CODES.index(Outcome.DIVERGED), Outcome.CODES.index(Outcome.REACHED)
CALL_SECONDS = 0.3  # a compiled call should last about this long, so that the bar moves and Ctrl-C is heard
CPU_LANES, DEVICE_LANES = 16, 4096


class Lane(NamedTuple):
    """Bookkeeping of one seed: outcome code, step where it stopped, and the watched quantity."""

    code: Any
    stop: Any
    watched: Any


class Watch(NamedTuple):
    """The threshold of `until`: the quantity falls to the level (sign +1) or rises to it (sign −1)."""

    level: Any
    sign: Any


def watched_value(quantity: str | None, engine: Any, Q: Any, M: Any, a: Any, noise: Any) -> Any:
    """The watched quantity of one seed."""
    if quantity is None:
        return jnp.zeros(())
    if quantity == "overlap":
        return jnp.sqrt((M * M).sum())
    if quantity == "alignment":
        return M[0, 0]
    excess = engine(Q, M, a, noise).excess_risk
    return excess + noise / 2 if quantity == "risk" else excess


@partial(jax.jit, static_argnums=0)
def watched_values(quantity: str, engine: Any, Q: Any, M: Any, a: Any, noise: Any) -> Any:
    """The watched quantity of all lanes, one group after the other."""
    group = jax.vmap(lambda Q, M, a, noise: watched_value(quantity, engine, Q, M, a, noise))
    return in_groups(group, Q, M, a, noise)


def accept(old: Any, new: Any, lane: Lane, size: Any, value: Any, watch: Watch | None, step: Any, on: Any) -> Any:
    """Keep the new state if the seed still runs and the state is finite; mark what happened otherwise.

    Parameters
    ----------
    old, new : pytrees
        States before and after the step.
    size : scalar
        Largest squared row norm after the step; NaN counts as infinite.
    value : scalar
        The watched quantity after the step.
    step : integer
        Number of this step, from 0.
    on : bool
        Whether this step is to be taken at all.
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
        part = jnp.where(gap == 0, 1.0, (lane.watched - watch.level) / jnp.where(gap == 0, 1.0, gap))
        code = jnp.where(passed, REACHED, code)
        stop = jnp.where(passed, step + jnp.clip(part, 0.0, 1.0), stop)
        watched = jnp.where(moves, value, lane.watched)
    return state, Lane(code.astype(jnp.int32), stop, watched)


def in_groups(group: Callable[..., Any], *arguments: Any) -> Any:
    """Apply a compiled function to one group after the other; groups are the first axis of all arguments.

    One after the other, so that the code of a group, and with it every bit of a result, does not depend on how many
    groups there are. Their number is read off the data (the last argument is never negative): a loop known to run
    once would be dissolved into its surroundings and rounded differently.
    """

    def of(i: Any) -> Any:
        return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, keepdims=False), arguments)

    last = arguments[-1]
    count = (last.reshape(last.shape[0], -1)[:, 0] >= 0).sum()
    shapes = jax.eval_shape(lambda: group(*of(0)))
    empty = jax.tree.map(lambda x: jnp.zeros((last.shape[0], *x.shape), x.dtype), shapes)

    def body(i: Any, results: Any) -> Any:
        put = lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, i, 0)  # noqa: E731
        return jax.tree.map(put, results, group(*of(i)))

    return jax.lax.fori_loop(0, count, body, empty)


LANE_NUMBERS = ("rates", "noise", "table", "watch")
"""Parameters with a value of its own in each lane; the others are shared by all lanes."""


def lane_numbers(params: Any) -> dict[str, Any]:
    """The parameters that differ from lane to lane, with leading axes (groups, lanes)."""
    return {name: getattr(params, name) for name in LANE_NUMBERS if getattr(params, name, None) is not None}


def lane_axes(params: Any) -> Any:
    """Axes of vmap for the parameters of a group: the first for the numbers of a lane, none for what is shared."""
    own = lane_numbers(params)
    return type(params)(**{name: 0 if name in own else None for name in params._fields})


def rates_at(problem: Problem, algorithm: SGD, dim: int) -> Rates:
    """The numbers of one step at dimension d."""
    lr = algorithm.lr(dim)
    return Rates(lr / problem.p, 1.0 - lr * algorithm.weight_decay, algorithm.momentum, float(np.sqrt(problem.noise)))


def embed(Q: np.ndarray, M: np.ndarray, P: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (A, B) with M = A L_Pᵀ and Q = A Aᵀ + B Bᵀ, B with the given number of columns."""
    _, inverse = target_frame(P)
    A = M @ inverse.T
    values, vectors = np.linalg.eigh(Q - A @ A.swapaxes(-1, -2))
    values, vectors = values[..., ::-1], vectors[..., ::-1]
    B = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    lost = float(np.abs(values[..., columns:]).max(initial=0.0))
    if lost > 1e-8:
        raise InputError(
            f"Argument `dim` must leave room for the start: its overlaps need more than {columns} directions outside "
            f"the target's, but a squared length of {lost:.2g} would be cut off."
        )
    missing = max(0, columns - B.shape[-1])
    return A, np.concatenate([B[..., :columns], np.zeros((*B.shape[:-1], missing))], axis=-1)


def earlier(values: np.ndarray) -> np.ndarray:
    """For each value, how many equal ones stand before it.

    Examples
    --------
    >>> earlier(np.array([5, 3, 5, 5, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    counts = np.zeros(len(values), int)
    for value in np.unique(values):
        counts[values == value] = np.arange(np.count_nonzero(values == value))
    return counts


class StepwiseEvolution(Evolution):
    """Runs the compiled loop for all groups of seeds, in pieces of a fraction of a second.

    The seeds of all tasks stand in one row of groups of lanes, each run at its own place in a group; lanes that no
    run takes count as stopped from the start. A state is (method state, Lane) with leading axes (groups, lanes).
    Methods that draw random numbers for several steps at once set ``block`` to that many steps.
    """

    def __init__(self, tasks: Sequence[Task], lanes: int | None = None) -> None:
        self.tasks, self.task = tasks, tasks[0]
        self.seeds = sum(task.seeds for task in tasks)
        lanes = lanes or (CPU_LANES if jax.default_backend() == "cpu" else min(DEVICE_LANES, self.seeds))
        place = np.concatenate([(task.runs + task.seed % lanes) % lanes for task in tasks])
        group = earlier(place)
        groups = int(group.max()) + 1
        if len(tasks) > 1:  # powers of two, so that stacks of many sizes share a few compiled shapes
            groups = 2 ** (groups - 1).bit_length()
        self.shape = (groups, lanes)
        self.lanes = group * lanes + place
        self.taken = np.isin(np.arange(groups * lanes), self.lanes)
        self._source = np.zeros(groups * lanes, int)
        self._source[self.lanes] = np.arange(self.seeds)
        self.block = 1
        self._blocks = 1
        until = self.task.until
        self.quantity = None if until is None else until.quantity
        risky = self.quantity in ("risk", "excess_risk")
        self.engine = select(self.task.problem, "squared").engine if risky else None
        points = self.per_lane(lambda task: np.broadcast_to(task.points, (task.seeds, len(task.points))))
        self.points = np.where(self.taken[:, None], points, 0)
        self.noise = self.grouped(self.per_lane(lambda task: np.full(task.seeds, task.problem.noise)))
        self.lane, self.watch = self._bookkeeping()

    def per_lane(self, values: Callable[[Task], Any]) -> np.ndarray:
        """What each task says for its seeds, in one row of lanes; those that no run takes repeat the first."""
        return np.concatenate([values(task) for task in self.tasks])[self._source]

    def starts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q, M, a of all lanes in one row."""
        every = [task.starts() for task in self.tasks]
        Q, M, a = (np.concatenate(x)[self._source] for x in zip(*every, strict=True))
        return Q, M, a

    def grouped(self, x: Any) -> Any:
        """Fold the row of lanes into groups."""
        return jnp.asarray(x).reshape(*self.shape, *np.shape(x)[1:])

    def rates(self, dims: Sequence[int]) -> Rates:
        """The numbers of one step in each lane, from the dimension of each task."""
        each = [rates_at(task.problem, task.algorithm, dim) for task, dim in zip(self.tasks, dims, strict=True)]
        return Rates(*(self.grouped(self.spread(x)) for x in zip(*each, strict=True)))

    def spread(self, values: Sequence[Any]) -> np.ndarray:
        """One value of each task, repeated for its lanes."""
        given = iter(values)
        return self.per_lane(lambda task: np.repeat(np.asarray(next(given), float)[None], task.seeds, axis=0))

    def keys(self, *roles: random.Role) -> Any:
        """Keys (groups, lanes, roles, 2) of the random streams."""
        draw = lambda task: np.stack([random.stream(task.seed, role, task.runs) for role in roles], axis=1)  # noqa: E731
        return self.grouped(self.per_lane(draw))

    def _bookkeeping(self) -> tuple[Lane, Watch | None]:
        """Initial bookkeeping; lanes that no run takes count as stopped, and starts that are there do not move."""
        code = np.where(self.taken, 0, DIVERGED).astype(np.int32)
        if self.quantity is None:
            return Lane(*map(self.grouped, (code, np.full(code.shape, np.nan), np.zeros(code.shape)))), None
        state = (self.engine, *map(self.grouped, self.starts()), self.noise)
        values = np.asarray(watched_values(self.quantity, *state)).reshape(-1)
        untils = [task.until for task in self.tasks if task.until is not None]
        value, relative = self.spread([u.value for u in untils]), self.spread([u.relative for u in untils])
        level = np.where(relative > 0, value * values, value)
        sign = np.full_like(values, untils[0].sign)
        there = self.taken & (sign * (values - level) <= 0)
        lane = (np.where(there, REACHED, code).astype(np.int32), np.where(there, 0.0, np.nan), values)
        return Lane(*map(self.grouped, lane)), Watch(self.grouped(level), self.grouped(sign))

    @abc.abstractmethod
    def initial_state(self) -> Any:
        """The method's own state at the start."""

    @abc.abstractmethod
    def run(self, carry: Any, start: Any, stop: Any) -> Any:
        """Compiled: steps start … stop − 1 of all groups, with step numbers (groups, lanes)."""

    @abc.abstractmethod
    def overlaps(self, state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q, M, a with leading axes (groups, lanes)."""

    def initial(self) -> Any:
        """State and bookkeeping."""
        return self.initial_state(), self.lane

    def advance(self, state: Any, first: int, tick: Callable[[float], None]) -> tuple[Any, Snapshot]:
        """To the next save point, in as many calls as it takes."""
        start, end = self.points[:, first], self.points[:, first + 1]
        at, longest = 0, int((end - start).max())
        while at < longest and (np.asarray(state[1].code) == 0).any():
            # whole blocks: a call that cuts one throws away the random numbers drawn for the rest of it
            stop = min(longest, at + self._blocks * self.block)
            began = wall.perf_counter()
            piece = (self.grouped(np.minimum(start + x, end)) for x in (at, stop))
            state = jax.tree.map(lambda x: x.block_until_ready(), self.run(state, *piece))
            seconds, blocks = wall.perf_counter() - began, -(-(stop - at) // self.block)
            if blocks == self._blocks or seconds > CALL_SECONDS:
                self._blocks = int(np.clip(CALL_SECONDS * blocks / seconds, 1, 8 * self._blocks))
            at = stop
            tick(float(min(start[self.lanes[0]] + at, end[self.lanes[0]])))
        return state, self.snapshot(state)

    def snapshot(self, state: Any) -> Snapshot:
        """Overlaps of all seeds."""
        return Snapshot(*(x.reshape(-1, *x.shape[2:])[self.lanes, None] for x in self.overlaps(state[0])))

    def stopped(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and the steps where the seeds stopped."""
        code, stop, _ = state[1]
        return np.asarray(code).reshape(-1)[self.lanes], np.asarray(stop).reshape(-1)[self.lanes]
