"""Methods that take the algorithm's own steps: the compiled loop between save points, shared by all of them.

A step never changes a seed that has stopped: when it would leave the finite range the seed keeps its last state
and is marked as diverged at that step; when it passes the threshold of `until` it is marked as reached, at the
step interpolated linearly. Random numbers are functions of (seed, run, step, index) and seeds are computed in
groups of fixed size, so neither the number of seeds nor the cutting of the steps into calls changes a number.
"""

from __future__ import annotations

import abc
import time as wall
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twolayer import random
from twolayer.algorithm import SGD
from twolayer.errors import InputError
from twolayer.gaussian.engines import select
from twolayer.gaussian.nodes import target_frame
from twolayer.kernel import Kernel, Rates
from twolayer.methods.base import Evolution, Outcome, Snapshot, Task
from twolayer.problem import Problem

__all__ = [
    "Lane",
    "StepwiseEvolution",
    "Watch",
    "accept",
    "embed",
    "in_groups",
    "kernel_of",
    "rates_at",
    "shared_between_seeds",
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
    excess = engine(Q, M, a, noise).excess_risk
    return excess + noise / 2 if quantity == "risk" else excess


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
    groups there are.
    """
    return jax.lax.map(lambda x: group(*x), arguments)


def shared_between_seeds(kind: Any, watch: Watch | None) -> Any:
    """Axes of vmap for the parameters of a group: all shared, but for the thresholds."""
    return kind(
        **{name: None for name in kind._fields if name != "watch"}, watch=None if watch is None else Watch(0, 0)
    )


def kernel_of(problem: Problem, algorithm: SGD) -> Kernel:
    """The increment kernel of a problem and an algorithm."""
    return Kernel(problem.activation, problem.target, algorithm.loss, algorithm.geometry, algorithm.train_second_layer)


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


class StepwiseEvolution(Evolution):
    """Runs the compiled loop for all groups of seeds, in pieces of a fraction of a second.

    A state is (method state, Lane) with leading axes (groups, lanes). Methods that draw random numbers for several
    steps at once set ``block`` to that many steps.
    """

    def __init__(self, task: Task, lanes: int | None = None) -> None:
        self.task = task
        lanes = lanes or (CPU_LANES if jax.default_backend() == "cpu" else min(DEVICE_LANES, task.seeds))
        self.shape = (-(-task.seeds // lanes), lanes)
        self.runs = np.arange(self.shape[0] * lanes)
        self.block = 1
        self._blocks = 1
        self.quantity = None if task.until is None else task.until.quantity
        risky = self.quantity in ("risk", "excess_risk")
        self.engine = select(task.problem, "squared").engine if risky else None
        self.lane, self.watch = self._bookkeeping()

    def starts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q, M, a of all lanes in one row; the last seed fills up the last group."""
        index = np.minimum(self.runs, self.task.seeds - 1)
        Q, M, a = self.task.starts()
        return Q[index], M[index], a[index]

    def grouped(self, x: Any) -> Any:
        """Fold the row of lanes into groups."""
        return jnp.asarray(x).reshape(*self.shape, *np.shape(x)[1:])

    def keys(self, *roles: random.Role) -> Any:
        """Keys (groups, lanes, roles, 2) of the random streams."""
        return self.grouped(np.stack([random.stream(self.task.seed, role, self.runs) for role in roles], axis=1))

    def _bookkeeping(self) -> tuple[Lane, Watch | None]:
        """Initial bookkeeping; lanes beyond the requested seeds count as stopped."""
        noise, until = self.task.problem.noise, self.task.until
        value = jax.jit(jax.vmap(lambda Q, M, a: watched_value(self.quantity, self.engine, Q, M, a, noise)))
        values = np.zeros(len(self.runs)) if until is None else np.asarray(value(*self.starts()))
        code = np.where(self.runs < self.task.seeds, 0, DIVERGED).astype(np.int32)
        lane = Lane(*map(self.grouped, (code, np.full(len(code), np.nan), values)))
        if until is None:
            return lane, None
        level = until.value * values if until.relative else np.full_like(values, until.value)
        sign = np.full_like(values, -1.0 if until.quantity == "overlap" else 1.0)
        return lane, Watch(self.grouped(level), self.grouped(sign))

    @abc.abstractmethod
    def initial_state(self) -> Any:
        """The method's own state at the start."""

    @abc.abstractmethod
    def run(self, carry: Any, start: int, stop: int) -> Any:
        """Compiled: steps start … stop − 1 of all groups."""

    @abc.abstractmethod
    def overlaps(self, state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q, M, a with leading axes (groups, lanes)."""

    def initial(self) -> Any:
        """State and bookkeeping."""
        return self.initial_state(), self.lane

    def advance(self, state: Any, first: int, tick: Callable[[float], None]) -> tuple[Any, Snapshot]:
        """To the next save point, in as many calls as it takes."""
        at, end = (int(x) for x in self.task.points[first : first + 2])
        while at < end:
            # whole blocks: a call that cuts one throws away the random numbers drawn for the rest of it
            stop = min(end, at + self._blocks * self.block)
            began = wall.perf_counter()
            state = jax.tree.map(lambda x: x.block_until_ready(), self.run(state, at, stop))
            seconds, blocks = wall.perf_counter() - began, -(-(stop - at) // self.block)
            if blocks == self._blocks or seconds > CALL_SECONDS:
                self._blocks = int(np.clip(CALL_SECONDS * blocks / seconds, 1, 8 * self._blocks))
            at = stop
            tick(at)
        return state, self.snapshot(state)

    def snapshot(self, state: Any) -> Snapshot:
        """Overlaps of all seeds."""
        n = self.task.seeds
        return Snapshot(*(x.reshape(-1, *x.shape[2:])[:n, None] for x in self.overlaps(state[0])))

    def stopped(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and the steps where the seeds stopped."""
        n, lane = self.task.seeds, state[1]
        return np.asarray(lane.code).reshape(-1)[:n], np.asarray(lane.stop).reshape(-1)[:n]
