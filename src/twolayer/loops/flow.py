"""Integrating an equation of motion from save point to save point, with thresholds and blow-up.

    dy/dt = F(y),    stop where a watched quantity reaches its level, or where a squared norm exceeds a bound

The averages behind F are refined along the way: after each window the rule used is tested at its end, and the window
is integrated again with a finer one while the test fails.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from twolayer.task.method import Evolution, Outcome, Task

__all__ = ["Control", "Equation", "FlowEvolution", "integrate"]

LIMIT = 1e6  # squared norm beyond which a solution counts as diverged; the equations blow up in finite time
RESOLUTION = 1e-14  # smallest step, relative to the time reached
CHUNKS = 10  # calls of the integrator, between which the host looks at accuracy, progress and Ctrl-C
OK, REACHED, DIVERGED, MAX_STEPS = (
    Outcome.CODES.index(x) for x in (Outcome.OK, Outcome.REACHED, Outcome.DIVERGED, Outcome.MAX_STEPS)
)


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


class Control(NamedTuple):
    """Tolerances and the threshold to stop at."""

    rtol: Any
    atol: Any
    level: Any
    sign: Any


@eqx.filter_jit
def integrate(equation: Equation, quantity: str | None, control: Control, max_steps: int, y: Any, times: Any) -> Any:
    """One start from times[0] to times[-1], saved at all later times; vmapped over starts."""

    def diverged(t: Any, y: Any, args: Any, **kwargs: Any) -> Any:
        return equation.size(y) > LIMIT

    def one(y: Any, level: Any, sign: Any) -> Any:
        def distance(t: Any, y: Any, args: Any, **kwargs: Any) -> Any:
            value = equation.watched(quantity, y)
            # what grows or decays exponentially is found in its logarithm
            ratio = jnp.maximum(value / jnp.where(level > 0, level, 1.0), 1e-300)
            away = sign * jnp.where(level > 0, jnp.log(ratio), value - level)
            return jnp.where(diverged(t, y, args), -1.0, away)

        watched = quantity is not None
        root_finder: Any = optx.Newton(rtol=1e-10, atol=1e-10)
        event = diffrax.Event(distance, root_finder) if watched else diffrax.Event(diverged)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(equation),
            diffrax.Dopri8(),
            t0=times[0],
            t1=times[-1],
            dt0=None,
            y0=y,
            saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times[1:]), diffrax.SubSaveAt(t1=True)]),
            # a solution that blows up at a finite time is followed until the clock cannot resolve its steps
            stepsize_controller=diffrax.PIDController(
                rtol=control.rtol, atol=control.atol, dtmin=RESOLUTION * times[-1], force_dtmin=False
            ),
            adjoint=diffrax.ForwardMode(),
            event=event,
            max_steps=max_steps,
            throw=False,
        )
        saved, last = solution.ys
        end, at = jax.tree.map(lambda x: x[0], last), solution.ts[1][0]
        # steps too small for the clock are a blow-up, unless only rounding is left of the way to the end
        stuck = (solution.result == diffrax.RESULTS.dt_min_reached) & (times[-1] - at > 100 * RESOLUTION * times[-1])
        blown = diverged(0.0, end, None) | stuck
        code = jnp.where(
            blown,
            DIVERGED,
            jnp.where(
                solution.event_mask,
                REACHED if watched else DIVERGED,
                jnp.where(solution.result == diffrax.RESULTS.max_steps_reached, MAX_STEPS, OK),
            ),
        )
        saved = jax.tree.map(lambda x, y: jnp.where(jnp.isfinite(x), x, y), saved, end)
        return saved, end, at, code

    return jax.vmap(one)(y, control.level, control.sign)


class FlowEvolution(Evolution):
    """Several starts side by side; subclasses give the equation, the snapshots and the test of its accuracy."""

    def __init__(self, task: Task, max_steps: int) -> None:
        self.task, self.max_steps = task, max_steps
        self.window = max(1, -(-(len(task.points) - 1) // CHUNKS))
        self.control: Control

    @abc.abstractmethod
    def start(self) -> Any:
        """States of all starts, arrays with a leading seed axis."""

    @abc.abstractmethod
    def equation(self) -> Equation:
        """The right-hand side at the present accuracy."""

    @abc.abstractmethod
    def refine(self, end: Any) -> bool:
        """Test the averages at the end of a window: True if they have been made finer and it has to be repeated."""

    @abc.abstractmethod
    def seen(self, states: Any) -> Any:
        """What is kept of states (seeds, save points, …)."""

    def thresholds(self, rtol: float) -> Control:
        """Tolerances, and the level at which each start is to stop."""
        until, quantity = self.task.until, self.quantity
        values = np.asarray(jax.vmap(lambda y: self.equation().watched(quantity, y))(self.start()))
        level = np.zeros_like(values)
        if until is not None:
            level = until.value * values if until.relative else np.full_like(values, until.value)
        sign = np.full_like(values, 1.0 if until is None else until.sign)
        return Control(np.asarray(rtol), np.asarray(rtol * 1e-2), level, sign)

    def initial(self) -> Any:
        """The starts, nothing stopped; the save points of one window are kept to restart from."""
        n = self.task.seeds
        return jax.tree.map(lambda x: x[:, None], self.start()), np.zeros(n, np.int32), np.full(n, np.nan)

    def snapshot(self, state: Any) -> Any:
        """What is kept of the last save point."""
        return self.seen(jax.tree.map(lambda x: x[:, -1:], state[0]))

    def stopped(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and times."""
        return state[1], state[2]

    def advance(self, state: Any, first: int, tick: Callable[[float], None]) -> tuple[Any, Any]:
        """A window of save points; the last window begins earlier rather than be shorter, to reuse compiled code."""
        path, code, stop = state
        points = self.task.points
        begin = min(first, len(points) - 1 - self.window)
        times = points[begin : begin + self.window + 1]
        y = jax.tree.map(lambda x: x[:, begin - first - 1], path)
        saved, end, at, ended = self._integrate(y, times)
        running = code == 0
        code = np.where(running, ended, code).astype(np.int32)
        stop = np.where(running & (code != 0), at, stop)
        # beyond the end of a start its last state is kept
        late = (times[None, 1:] > stop[:, None]) & (code != 0)[:, None]

        def frozen(x: np.ndarray, last: np.ndarray, old: np.ndarray) -> np.ndarray:
            kept = np.where(running.reshape(-1, *[1] * (last.ndim - 1)), last, old[:, -1])
            shape = (*late.shape, *[1] * (x.ndim - 2))
            return np.where(late.reshape(shape), kept[:, None], x)[:, first - begin :]

        new = jax.tree.map(frozen, saved, end, path)
        path = jax.tree.map(lambda old, x: np.concatenate([old, x], axis=1)[:, -self.window - 1 :], path, new)
        tick(float(times[-1]))
        return (path, code, stop), self.seen(new)

    @property
    def quantity(self) -> str | None:
        """What the threshold of the task refers to."""
        return None if self.task.until is None else self.task.until.quantity

    def window_of(self, y: Any, times: np.ndarray) -> Any:
        """One window: states at its save points and at its end, where it ended, and the outcome codes."""
        return integrate(self.equation(), self.quantity, self.control, self.max_steps, y, jnp.asarray(times))

    def _integrate(self, y: Any, times: np.ndarray) -> Any:
        """Integrate, and do it again with finer averages while those used are too coarse at the end."""
        while True:
            saved, end, at, code = jax.tree.map(np.asarray, self.window_of(y, times))
            if code[0] != OK or not self.refine(jax.tree.map(lambda x: x[0], end)):
                return saved, end, at, code
