"""The four clocks of a run, and where it is saved.

    sample = step·n_b,    alpha = sample/d,    time t = lr·step/N,    N = p unless the problem says otherwise

A limit without a dimension has clocks in units of powers of d: with lr = γ0 d^(−δ), step = (t N/γ0) d^δ. Limits that
take steps have δ = 0 and need no dimension to count them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twolayer.numerics.errors import InputError, choice, finite_number, positive_integer, reject, require
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling

__all__ = ["Clocks", "save_steps", "save_times"]

MAX_STEPS = 2**32 - 1
LOG_POINTS, SPAN = 200, 1e-6  # save="log": how many points, and the first one of a continuous clock


@dataclass(frozen=True)
class Clocks:
    """Conversions between the clocks; ``dim`` is None for a limit without a dimension."""

    problem: Problem
    algorithm: SGD
    dim: int | None

    @property
    def step_in_time(self) -> Scaling:
        """lr/N: how much time one step takes."""
        return self.algorithm.lr / self.problem.divisor

    def steps(self, time: float) -> float:
        """Number of steps in a time, at finite dimension or with lr of order one."""
        return time / self._one_step

    def time(self, steps: Any) -> Any:
        """Time of a number of steps, at finite dimension or with lr of order one."""
        return np.asarray(steps) * self._one_step

    @property
    def _one_step(self) -> float:
        law = self.step_in_time
        assert self.dim is not None or law.exponent == 0
        return law.coefficient if self.dim is None else law(self.dim)

    def coordinates(self, time: np.ndarray, unit: float = 0.0) -> dict[str, tuple[np.ndarray, str]]:
        """The four clocks at times t = time·d^unit, each with its unit ("" or a power of d)."""
        step = Scaling(1.0, unit) / self.step_in_time
        if self.dim is None:
            batch = self.algorithm.batch
            laws = {
                "time": Scaling(1.0, unit),
                "step": step,
                "sample": step * batch,
                "alpha": step * batch * Scaling(1.0, -1.0),
            }
            return {name: (time * law.coefficient, _unit(law.exponent)) for name, law in laws.items()}
        t = time * float(self.dim) ** unit
        steps = t / self.step_in_time(self.dim)
        samples = steps * self.algorithm.batch_at(self.dim)
        return {
            "time": (t, ""),
            "step": (steps, ""),
            "sample": (samples, ""),
            "alpha": (samples / self.dim, ""),
        }


def _unit(exponent: float) -> str:
    return "" if abs(exponent) < 1e-12 else f"d**{exponent:g}"


def _increasing(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=float).ravel()
    except (TypeError, ValueError, OverflowError):
        reject(name, values, "a number or an increasing sequence of numbers")
    if array.size == 0 or not np.isfinite(array).all() or array[0] < 0 or (np.diff(array) <= 0).any():
        reject(name, list(values), "finite, non-negative and strictly increasing")
    return array


def _end(time: Any, steps: Any) -> tuple[str, Any]:
    """The one of time= and steps= that was given."""
    if (time is None) == (steps is None):
        given = "both" if time is not None else "neither"
        raise InputError(f"Give either `time` or `steps`, but got {given}.")
    return ("time", time) if steps is None else ("steps", steps)


def save_times(clocks: Clocks, time: Any, steps: Any, save: Any, unit: float = 0.0) -> np.ndarray:
    """Save points of a continuous method, in units of d^unit when there is no dimension.

    ``time`` (or ``steps``) is the end of the run or the save points themselves, with or without 0; ``save`` is how many
    intervals to save from 0 on, the save points, or "log" for 0 and points in geometric progression.
    """
    name, end = _end(time, steps)
    scale = 1.0
    if name == "steps":
        if clocks.dim is None:
            raise InputError(
                "Argument `steps` needs a dimension to become a time: give `time`, or a start that has a `dim`."
            )
        scale = float(clocks.time(1.0))
    points = _points(name, end, save) * scale
    return points if clocks.dim is None else points * float(clocks.dim) ** -unit


def save_steps(clocks: Clocks, time: Any, steps: Any, save: Any) -> np.ndarray:
    """Save points of a stepwise method, as integers; those that fall on the same step are one."""
    name, end = _end(time, steps)
    points = _points(name, end, save)
    if name == "time":
        points = np.array([clocks.steps(t) for t in points])
        require(round(points[-1]) >= 1, "time", end, f"at least one step of {float(clocks.time(1)):.3g}")
    rounded = np.unique(np.round(points))
    if rounded[-1] > MAX_STEPS:
        raise InputError(f"Argument `{name}` must amount to fewer than 2**32 steps, but {end} is {rounded[-1]:.3g}.")
    return rounded.astype(np.int64)


def _points(name: str, end: Any, save: Any) -> np.ndarray:
    if np.ndim(end):
        return _increasing(name, end)
    if name == "steps":
        last: float = positive_integer("steps", end)
    else:
        last = finite_number("time", end, minimum=0.0, accepted="a positive number")
        require(last > 0, "time", end, "a positive number")
    if np.ndim(save):
        points = _increasing("save", save)
        require(points[-1] <= last * (1 + 1e-12), "save", list(save), f"at most {name} = {end}")
        return points
    if isinstance(save, str):
        choice("save", save, ("log",))
        first = min(1.0, last) if name == "steps" else last * SPAN
        return np.concatenate([[0.0], np.geomspace(first, last, LOG_POINTS)])
    return np.linspace(0.0, last, positive_integer("save", save) + 1)
