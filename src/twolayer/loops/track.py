"""Starts on their way with one equation of motion: steps in compiled calls, save points and thresholds read off them.

dy/dt = F(y),    stop where a watched quantity reaches its level, or where a squared norm exceeds a bound
"""

from __future__ import annotations

import abc
import time as wall
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from twolayer.loops.host import settled
from twolayer.loops.runge_kutta import (
    MAX_STEPS,
    OK,
    REACHED,
    Control,
    Starts,
    Steps,
    begin,
    interpolate,
    steps,
)

__all__ = ["Equation", "Track", "watched_at"]

CALL_SECONDS = 0.3  # a compiled call should last about this long, so that the bar moves and Ctrl-C is heard
CAPACITY, HELD = 16, 2**18  # steps that a call can return, and numbers that it may hold for them
TOGETHER = 1024  # states at save points that are read off the steps at once
HALVINGS = 50  # of the interval in which a threshold is passed


class Equation(eqx.Module):
    """A right-hand side, with what has to be known to stop."""

    @abc.abstractmethod
    def __call__(self, t: Any, y: Any, args: Any = None) -> Any:
        """dy/dt."""

    @abc.abstractmethod
    def size(self, y: Any) -> Any:
        """The largest squared norm, of a row or of the second layer."""

    @abc.abstractmethod
    def watched(self, quantity: str | None, y: Any) -> Any:
        """The quantity that a threshold refers to; zero if there is none."""


@eqx.filter_jit
def watched_at(equation: Equation, quantity: str, y: Any) -> Any:
    """The watched quantity of all starts."""
    return jax.vmap(lambda y: equation.watched(quantity, y))(y)


class Track:
    """All starts on their way with one equation, from the first of ``times`` on."""

    def __init__(
        self,
        equation: Equation,
        quantity: str | None,
        control: Control,
        y: Any,
        times: np.ndarray,
        max_steps: int,
        guess: Any = 0.0,
        code: Any = 0,
    ) -> None:
        self.equation, self.quantity, self.control = equation, quantity, control
        self.times, self.max_steps = times, max_steps
        self.lanes = jax.tree.map(np.asarray, begin(y, times[0], guess))
        self.lanes = self.lanes._replace(code=np.broadcast_to(np.int32(code), self.lanes.t.shape))
        self.stop = np.where(self.lanes.code == OK, np.nan, -np.inf)  # stopped before: frozen from the first point on
        self.at = 0  # save points delivered
        self.calls, self.seconds, self.processor = 0, 0.0, 0.0
        self.tried = 0
        size = sum(x.size for x in jax.tree.leaves(self.lanes.y))
        self.capacity = int(np.clip(HELD // (5 * size), 1, CAPACITY))
        self.count = 1
        self._ahead: dict[int, Any] = {}
        self._known = np.zeros(len(self.lanes.t), int)  # the last save point that each start has passed

    def window(self, last: int, tick: Callable[[float], None]) -> Any:
        """States (starts, n, …) at the save points after the last ones, up to number ``last``."""
        while (self._known < last).any():
            self._call()
            # no further than what can be kept if the run is interrupted here
            tick(float(np.min(np.where(self.lanes.code == OK, self.lanes.t, np.inf), initial=self.times[last])))
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
        """Seconds that the rest of the run will take if steps stay as long as they are; of the processor alone."""
        running = self.lanes.code == OK
        if not running.any() or not self.tried:
            return 0.0
        left = (self.times[-1] - self.lanes.t[running]) / np.maximum(self.lanes.h[running], 1e-300)
        return float(np.max(left)) * self.processor / self.tried

    def _settle(self, before: Starts, log: Steps) -> None:
        """Where starts have stopped, and their states there."""
        ended = (before.code == OK) & (self.lanes.code != OK)
        if not ended.any():
            return
        self.stop = np.where(ended, self.lanes.t, self.stop)
        reached = ended & (self.lanes.code == REACHED)
        index = len(log.h) - 1 - np.argmax((log.h > 0)[::-1], axis=0)  # the last step of each start
        lane = np.arange(len(index))
        y, dense = _at(log, index, lane)
        h, t = log.h[index, lane], log.t[index, lane]
        reached &= h > 0  # a start beyond its threshold stops where it is
        if reached.any():
            x = self._root(y, dense)
            chosen = _chosen(reached, self._between(y, dense, x), self.lanes.y)
            stop = t + x * h
            self.stop = np.where(reached, stop, self.stop)
            self.lanes = self.lanes._replace(y=chosen, t=np.where(reached, stop, self.lanes.t))

    def _between(self, y: Any, dense: Any, x: np.ndarray) -> Any:
        return jax.tree.map(lambda y, c: interpolate(y, c, x), y, dense)

    def _root(self, y: Any, dense: Any) -> np.ndarray:
        """The fraction of its last step at which each start passes its threshold."""
        low, high = np.zeros(len(self.stop)), np.ones(len(self.stop))
        assert self.quantity is not None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            value = np.asarray(watched_at(self.equation, self.quantity, self._between(y, dense, middle)))
            beyond = self.control.sign * (value - self.control.level) <= 0
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        return high

    def _fill(self, log: Steps) -> None:
        """States at the save points that have been passed; beyond the end of a start its last state."""
        starts = len(self.stop)
        until = np.where(self.lanes.code == OK, self.lanes.t, np.inf)
        stop = np.where(np.isnan(self.stop), np.inf, self.stop)
        ahead = np.arange(max(1, TOGETHER // starts))[:, None]  # the next save points of every start
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
            # within rounding of the end of a step, or beyond the end of a start: the state that is there
            values, tree = jax.tree.flatten(_chosen(found, here, jax.tree.map(lambda y, at=lane: y[at], self.lanes.y)))
            for n, (row, of) in enumerate(zip(ready, wanted, strict=True)):
                value = jax.tree.unflatten(tree, [x[n * starts : (n + 1) * starts] for x in values])
                for i in np.unique(of[row]).tolist():
                    these = row & (of == i)
                    known = these.all() or i not in self._ahead
                    self._ahead[i] = value if known else _chosen(these, value, self._ahead[i])
            self._known = self._known + ready.sum(axis=0)


def _chosen(these: np.ndarray, new: Any, old: Any) -> Any:
    """New states of these starts, old ones of the others."""
    return jax.tree.map(lambda x, y: np.where(these.reshape(-1, *[1] * (x.ndim - 1)), x, y), new, old)


def _at(log: Steps, index: np.ndarray, lane: np.ndarray) -> tuple[Any, Any]:
    """States and polynomials (starts, m, …) of one step of each start; the log has (capacity, m, starts, …)."""
    return jax.tree.map(lambda y: y[index, lane], log.y), jax.tree.map(lambda c: c[index, :, lane], log.dense)
