"""Explicit Runge–Kutta steps with error control and dense output, several starts side
by side.

    k_i = F(y + h Σ_j A_ij k_j),    y' = y + h Σ_i b_i k_i,    h ← 0.9 h error^(−1/5),
        each start with its own h

The pair of order 5 and 4 of Dormand and Prince, with Shampine's interpolant of order 4.
A compiled call takes a few steps and returns them with the polynomials that interpolate
them; the host reads save points and thresholds off these. So the compiled code knows
neither, a call lasts as long as the host likes, and numbers do not depend on it. A
start stops where a watched quantity reaches its level, or where a squared norm exceeds
a bound.
"""

from __future__ import annotations

import abc
import time as wall
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.loops.host_loop import settled
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.method import Outcome

__all__ = ["STAGES", "Control", "Equation", "Track", "slopes", "watched_at"]

# squared norm beyond which a solution counts as diverged; the equations blow up in
# finite time
LIMIT = 1e6
RESOLUTION = 1e-14  # smallest step, relative to the end of the run
FAR = 1e3  # beyond so many times the time passed, the end of the run does not matter
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
# a compiled call should last about this long, so that the bar moves and Ctrl-C is heard
CALL_SECONDS = 0.3
CAPACITY, HELD = (
    16,
    2**18,
)  # steps that a call can return, and numbers that it may hold for them
TOGETHER = 1024  # states at save points that are read off the steps at once
HALVINGS = 50  # of the interval in which a threshold is passed
OK, REACHED, DIVERGED, MAX_STEPS = (
    Outcome.CODES.index(x)
    for x in (Outcome.OK, Outcome.REACHED, Outcome.DIVERGED, Outcome.MAX_STEPS)
)

# of a step; stage number 6 is the slope at its end, and the first of the next step
STAGES = 6
A = np.zeros((7, 7))
A[1, :1] = [1 / 5]
A[2, :2] = [3 / 40, 9 / 40]
A[3, :3] = [44 / 45, -56 / 15, 32 / 9]
A[4, :4] = [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729]
A[5, :5] = [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656]
A[6, :6] = [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]  # b
# b of order 4, less b
ERROR = np.array(
    [-71 / 57600, 0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40]
)
# coefficients of x, x², x³, x⁴ in the weights of the stages at the fraction x of a step
DENSE = np.array(
    [
        [
            1,
            -8048581381 / 2820520608,
            8663915743 / 2820520608,
            -12715105075 / 11282082432,
        ],
        [0, 0, 0, 0],
        [
            0,
            131558114200 / 32700410799,
            -68118460800 / 10900136933,
            87487479700 / 32700410799,
        ],
        [
            0,
            -1754552775 / 470086768,
            14199869525 / 1410260304,
            -10690763975 / 1880347072,
        ],
        [
            0,
            127303824393 / 49829197408,
            -318862633887 / 49829197408,
            701980252875 / 199316789632,
        ],
        [0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844],
        [0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423],
    ]
)


def interpolate(y: np.ndarray, dense: np.ndarray, x: np.ndarray) -> np.ndarray:
    """y at the fraction x (n,) of steps (n, …) with coefficients (n, 4, …)."""
    x = x.reshape(-1, *[1] * (y.ndim - 1))
    total = np.zeros_like(y)
    for c in np.moveaxis(dense, 1, 0)[::-1]:
        total = (total + c) * x
    return y + total


class Equation(eqx.Module):
    """A right-hand side, with what has to be known to stop."""

    @abc.abstractmethod
    def __call__(self, t: Number, y: Tree, args: object = None) -> Tree:
        """dy/dt."""

    @abc.abstractmethod
    def size(self, y: Tree) -> Real:
        """The largest squared norm, of a row or of the second layer."""

    @abc.abstractmethod
    def watched(self, quantity: str | None, y: Tree) -> Real:
        """The quantity that a threshold refers to; zero if there is none."""


class Control(NamedTuple):
    """Tolerances, the level at which each start stops, and whether it is met from above
    (+1) or from below (−1).
    """

    rtol: Real
    atol: Real
    level: Real
    sign: Real


class Starts(NamedTuple):
    """Where each start is: time, next step, state, slope, outcome code, steps tried.

    Before the first step the slope is not known and the next step is 0, or −h for a
    guess h.
    """

    t: Real
    h: Real
    y: Tree
    slope: Tree
    code: Real
    tried: Real


class Steps(NamedTuple):
    """Steps taken, (capacity, lanes, …): where each began, its length (0 if there was
    none), and its polynomial.
    """

    t: Real
    h: Real
    y: Tree
    dense: Tree


def begin(y: Tree, t: float, guess: Number = 0.0) -> Starts:
    """Starts with a leading axis, before their first step, for which there may be a
    guess.
    """
    n = len(jax.tree.leaves(y)[0])
    y = jax.tree.map(lambda x: np.asarray(x, float), y)
    zero = np.zeros(n, np.int32)
    slope = jax.tree.map(np.zeros_like, y)
    return Starts(
        np.full(n, float(t)),
        np.broadcast_to(-np.asarray(guess, float), (n,)),
        y,
        slope,
        zero,
        zero,
    )


def _by_lane(h: Real, x: Real, axis: int = 0) -> Real:
    """x times h, which belongs to one of its axes."""
    return x * h.reshape(*[1] * axis, -1, *[1] * (x.ndim - axis - 1))


def _mean_square(x: Tree, scale: Tree) -> Array:
    """Mean of (x/scale)² over all entries of each start."""
    parts = jax.tree.map(lambda x, s: ((x / s) ** 2).reshape(len(x), -1), x, scale)
    return jnp.concatenate(jax.tree.leaves(parts), axis=1).mean(1)


@eqx.filter_jit
def steps(
    equation: Equation,
    quantity: str | None,
    control: Control,
    capacity: int,
    lanes: Starts,
    end: Tree,
    count: Real,
) -> tuple[Starts, Steps]:
    """At most ``count`` ≤ capacity tried steps of every start that runs, towards the
    time ``end``.
    """
    right: Callable[[Tree], Tree] = jax.vmap(lambda y: equation(0.0, y))
    watched: Callable[[Tree], Real] = jax.vmap(lambda y: equation.watched(quantity, y))
    weights = jnp.asarray(A)

    def one(i: Number, carry: tuple[Starts, Steps]) -> tuple[Starts, Steps]:
        lanes, log = carry
        runs = (lanes.code == OK) & (lanes.t < end)
        fresh = ~(
            lanes.h > 0
        ).any()  # the first look of all: the slope at the start, and a first guess of h
        left = end - lanes.t
        h = jnp.where(runs & ~fresh, jnp.minimum(lanes.h, left), 0.0)

        def moved(row: Real, K: Tree) -> Tree:
            """y + h Σ_j row_j k_j."""
            return jax.tree.map(
                lambda y, k: y + _by_lane(h, jnp.tensordot(row, k, axes=1)), lanes.y, K
            )

        def stage(s: Array, K: Tree) -> Tree:
            slope = right(
                moved(jax.lax.dynamic_index_in_dim(weights, s, keepdims=False), K)
            )
            return jax.tree.map(
                lambda k, new: jax.lax.dynamic_update_index_in_dim(k, new, s, 0),
                K,
                slope,
            )

        K = jax.tree.map(
            lambda f: jnp.zeros((STAGES + 1, *f.shape)).at[0].set(f), lanes.slope
        )
        K = jax.lax.fori_loop(
            jnp.where(fresh, 0, 1), jnp.where(fresh, 1, STAGES + 1), stage, K
        )
        new = moved(A[STAGES], K)
        scale = jax.tree.map(
            lambda y, z: control.atol + control.rtol * jnp.maximum(abs(y), abs(z)),
            lanes.y,
            new,
        )
        error = h * jnp.sqrt(
            _mean_square(
                jax.tree.map(lambda k: jnp.tensordot(ERROR, k, axes=1), K), scale
            )
        )
        fine = error <= 1.0  # not so for NaN
        taken = runs & fine & ~fresh
        power = jnp.maximum(error, 1e-10) ** -0.2
        factor = jnp.where(
            jnp.isfinite(error), jnp.clip(SAFETY * power, SHRINK, GROW), SHRINK
        )

        # a step cut short by the end of the run says nothing against the one before
        following = jnp.where(fine & (h < lanes.h), lanes.h, h * factor)
        speed = jnp.sqrt(_mean_square(jax.tree.map(lambda k: k[0], K), scale))
        guess = (
            0.01
            * jnp.sqrt(_mean_square(lanes.y, scale))
            / jnp.where(speed > 0, speed, 1.0)
        )
        guess = jnp.where((speed > 0) & (guess > 0), jnp.minimum(guess, left), left)

        def pick(a: Tree, b: Tree) -> Tree:
            return jax.tree.map(lambda x, y: jnp.where(_flag(taken, x), x, y), a, b)

        y = pick(new, lanes.y)
        slope = pick(jax.tree.map(lambda k: k[STAGES], K), lanes.slope)
        slope = jax.tree.map(lambda k, s: jnp.where(fresh, k[0], s), K, slope)
        t = jnp.where(taken, jnp.where(h >= left, end, lanes.t + h), lanes.t)

        sizes: Callable[[Tree], Real] = jax.vmap(equation.size)
        size = sizes(y)
        # of a run that is to last far longer than this, the clock here counts
        clock = jnp.clip(FAR * (lanes.t + h), 1e-280, end)
        stuck = runs & ~fine & ~fresh & (following < RESOLUTION * clock)
        # steps too small for the clock are a blow-up, unless only rounding is left of
        # the way to the end
        near = stuck & (left <= 100 * RESOLUTION * end)
        t = jnp.where(near, end, t)
        code = jnp.where(
            (taken & ~(size <= LIMIT)) | (stuck & ~near), DIVERGED, lanes.code
        )
        if quantity is not None:
            passed = (taken | (fresh & runs)) & (
                control.sign * (watched(y) - control.level) <= 0
            )
            code = jnp.where(passed & (code == OK), REACHED, code)
        now = Starts(
            t,
            jnp.where(
                fresh,
                jnp.where(lanes.h < 0, -lanes.h, guess),
                jnp.where(runs, following, lanes.h),
            ),
            y,
            slope,
            code.astype(jnp.int32),
            lanes.tried + (runs & ~fresh),
        )
        dense = jax.tree.map(
            lambda k: _by_lane(h, jnp.tensordot(DENSE.T, k, axes=1), 1), K
        )
        made = Steps(lanes.t, jnp.where(taken, t - lanes.t, 0.0), lanes.y, dense)
        log = jax.tree.map(
            lambda all_, x: jax.lax.dynamic_update_index_in_dim(all_, x, i, 0),
            log,
            made,
        )
        return now, log

    four = jax.tree.map(lambda x: jnp.stack([x] * DENSE.shape[1]), lanes.y)
    log = jax.tree.map(
        lambda x: jnp.zeros((capacity, *x.shape)),
        Steps(lanes.t, lanes.t, lanes.y, four),
    )

    def going(carry: Tree) -> Tree:
        i, (lanes, _) = carry
        return (i < count) & ((lanes.code == OK) & (lanes.t < end)).any()

    _, found = jax.lax.while_loop(
        going, lambda c: (c[0] + 1, one(c[0], c[1])), (0, (lanes, log))
    )
    return found


def _flag(flag: Real, x: Real) -> Real:
    return flag.reshape(-1, *[1] * (x.ndim - 1))


@eqx.filter_jit
def watched_at(equation: Equation, quantity: str, y: Tree) -> Real:
    """The watched quantity of all starts."""
    return jax.vmap(lambda y: equation.watched(quantity, y))(y)


def slopes(equation: Equation, quantity: str | None, control: Control, y: Tree) -> Tree:
    """dy/dt of all starts, by the very code that takes steps: its first look."""
    numbers = (np.asarray(1.0), np.asarray(1))
    lanes = begin(y, 0.0)
    found, _ = steps(equation, quantity, control, capacity_of(lanes.y), lanes, *numbers)
    return jax.tree.map(np.asarray, found.slope)


def capacity_of(y: Tree) -> int:
    """How many steps a call returns."""
    size = sum(x.size for x in jax.tree.leaves(y))
    return int(np.clip(HELD // (5 * size), 1, CAPACITY))


class Track:
    """All starts on their way with one equation, from the first of ``times`` on."""

    def __init__(
        self,
        equation: Equation,
        quantity: str | None,
        control: Control,
        y: Tree,
        times: np.ndarray,
        max_steps: int,
        guess: Number = 0.0,
        code: int | np.ndarray = 0,
    ) -> None:
        self.equation, self.quantity, self.control = equation, quantity, control
        self.times, self.max_steps = times, max_steps
        self.lanes = jax.tree.map(np.asarray, begin(y, times[0], guess))
        self.lanes = self.lanes._replace(
            code=np.broadcast_to(np.int32(code), self.lanes.t.shape)
        )
        self.stop = np.where(
            self.lanes.code == OK, np.nan, -np.inf
        )  # stopped before: frozen from the first point on
        self.at = 0  # save points delivered
        self.calls, self.seconds, self.processor = 0, 0.0, 0.0
        self.tried = 0
        self.capacity = capacity_of(self.lanes.y)
        self.count = 1
        self._ahead: dict[int, Tree] = {}
        self._known = np.zeros(
            len(self.lanes.t), int
        )  # the last save point that each start has passed

    def window(self, last: int, tick: Callable[[float], None]) -> Tree:
        """States (starts, n, …) at the save points after the last ones, up to number
        ``last``.
        """
        while (self._known < last).any():
            self._call()
            # no further than what can be kept if the run is interrupted here
            tick(
                float(
                    np.min(
                        np.where(self.lanes.code == OK, self.lanes.t, np.inf),
                        initial=self.times[last],
                    )
                )
            )
        parts = [self._ahead[i] for i in range(self.at + 1, last + 1)]
        self._ahead = {i: x for i, x in self._ahead.items() if i > last}
        self.at = last
        return jax.tree.map(lambda *x: np.stack(x, axis=1), *parts)

    def _call(self) -> None:
        """One compiled call, and what it passed."""
        before = self.lanes
        began, busy = wall.monotonic(), wall.process_time()
        shape = (self.equation, self.quantity, self.control, self.capacity)
        numbers = (np.asarray(self.times[-1], float), np.asarray(self.count))
        lanes, log = settled(steps(*shape, before, *numbers))
        self.lanes, log = jax.tree.map(np.asarray, (lanes, log))
        if self.calls:  # the first one compiles
            self.seconds += wall.monotonic() - began
            self.processor += wall.process_time() - busy
            self.tried += self.count
            rate = (wall.monotonic() - began) / self.count
            self.count = int(np.clip(CALL_SECONDS / max(rate, 1e-9), 1, self.capacity))
        else:
            self.count = min(2, self.capacity)
        self.calls += 1
        spent = (self.lanes.tried > self.max_steps) & (self.lanes.code == OK)
        code = np.where(spent, MAX_STEPS, self.lanes.code).astype(np.int32)
        self.lanes = self.lanes._replace(code=code)
        self._settle(before, log)
        self._fill(log)

    @property
    def remaining(self) -> float:
        """Seconds that the rest of the run will take if steps stay as long as they are;
        of the processor alone.
        """
        running = self.lanes.code == OK
        if not running.any() or not self.tried:
            return 0.0
        left = (self.times[-1] - self.lanes.t[running]) / np.maximum(
            self.lanes.h[running], 1e-300
        )
        return float(np.max(left)) * self.processor / self.tried

    def _settle(self, before: Starts, log: Steps) -> None:
        """Where starts have stopped, and their states there."""
        ended = (before.code == OK) & (self.lanes.code != OK)
        if not ended.any():
            return
        self.stop = np.where(ended, self.lanes.t, self.stop)
        reached = ended & (self.lanes.code == REACHED)
        index = (
            len(log.h) - 1 - np.argmax((log.h > 0)[::-1], axis=0)
        )  # the last step of each start
        lane = np.arange(len(index))
        y, dense = _at(log, index, lane)
        h, t = log.h[index, lane], log.t[index, lane]
        reached &= h > 0  # a start beyond its threshold stops where it is
        if reached.any():
            x = self._root(y, dense)
            chosen = _chosen(reached, self._between(y, dense, x), self.lanes.y)
            stop = t + x * h
            self.stop = np.where(reached, stop, self.stop)
            self.lanes = self.lanes._replace(
                y=chosen, t=np.where(reached, stop, self.lanes.t)
            )

    def _between(self, y: Tree, dense: Tree, x: np.ndarray) -> Tree:
        return jax.tree.map(lambda y, c: interpolate(y, c, x), y, dense)

    def _root(self, y: Tree, dense: Tree) -> np.ndarray:
        """The fraction of its last step at which each start passes its threshold."""
        low, high = np.zeros(len(self.stop)), np.ones(len(self.stop))
        assert self.quantity is not None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            value = np.asarray(
                watched_at(
                    self.equation, self.quantity, self._between(y, dense, middle)
                )
            )
            beyond = self.control.sign * (value - self.control.level) <= 0
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        return high

    def _fill(self, log: Steps) -> None:
        """States at the save points that have been passed; beyond the end of a start
        its last state.
        """
        starts = len(self.stop)
        until = np.where(self.lanes.code == OK, self.lanes.t, np.inf)
        stop = np.where(np.isnan(self.stop), np.inf, self.stop)
        ahead = np.arange(max(1, TOGETHER // starts))[
            :, None
        ]  # the next save points of every start
        while True:
            wanted = self._known + 1 + ahead
            t = self.times[np.minimum(wanted, len(self.times) - 1)]
            ready = (wanted < len(self.times)) & (t <= until)
            some = int(ready.any(axis=1).sum())
            if not some:
                return
            wanted, t, ready = wanted[:some], t[:some], ready[:some]
            after, before = log.t < t[:, None], t[:, None] <= log.t + log.h
            inside = (log.h > 0) & after & before & (t <= stop)[:, None]
            index, found = np.argmax(inside, axis=1).ravel(), inside.any(axis=1).ravel()
            lane = np.tile(np.arange(starts), some)
            h = np.where(found, log.h[index, lane], 1.0)
            x = np.where(found, (t.ravel() - log.t[index, lane]) / h, 0.0)
            here = self._between(*_at(log, index, lane), x)
            # within rounding of the end of a step, or beyond the end of a start: the
            # state that is there
            values, tree = jax.tree.flatten(
                _chosen(
                    found, here, jax.tree.map(lambda y, at=lane: y[at], self.lanes.y)
                )
            )
            for n, (row, of) in enumerate(zip(ready, wanted, strict=True)):
                value = jax.tree.unflatten(
                    tree, [x[n * starts : (n + 1) * starts] for x in values]
                )
                for i in np.unique(of[row]).tolist():
                    these = row & (of == i)
                    known = these.all() or i not in self._ahead
                    self._ahead[i] = (
                        value if known else _chosen(these, value, self._ahead[i])
                    )
            self._known = self._known + ready.sum(axis=0)


def _chosen(these: Real, new: Tree, old: Tree) -> Tree:
    """New states of these starts, old ones of the others."""
    return jax.tree.map(
        lambda x, y: np.where(these.reshape(-1, *[1] * (x.ndim - 1)), x, y), new, old
    )


def _at(log: Steps, index: np.ndarray, lane: np.ndarray) -> tuple[Tree, Tree]:
    """States and polynomials (starts, m, …) of one step of each start; the log has
    (capacity, m, starts, …).
    """
    return jax.tree.map(lambda y: y[index, lane], log.y), jax.tree.map(
        lambda c: c[index, :, lane], log.dense
    )
