"""The four clocks of a run, and where it is saved.

    sample = step·n_b,    alpha = sample/d,    time t = lr·step/N
        where lr and n_b are constant
    sample = Σ n_b,       alpha = sample/d,    time t = Σ lr/N
        where they have schedules (timeline.py)

N = p unless the problem says otherwise. A limit without a dimension has clocks in units
of powers of d: with lr = γ0 d^(−δ), step = (t N/γ0) d^δ. Limits that take steps have δ
= 0 and need no dimension to count them. Flows with a schedule run in τ = lr_ref·step/N.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np

from twolayer.numerics.arguments import Array, End, Options, Save, named_ends
from twolayer.numerics.errors import (
    InputError,
    choice,
    finite_number,
    positive_integer,
    reject,
    require,
)
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling
from twolayer.task.schedule_factors import Course, Tempo
from twolayer.task.schedules import Factor
from twolayer.task.timeline import MAX_STEPS, FlowLine, StepLine

__all__ = ["Clocks", "save_steps", "save_times", "without_passes"]

MAX_POINTS = 10**6
LOG_POINTS, SPAN = (
    200,
    1e-6,
)  # save="log": how many points, and the first one of a continuous clock


@dataclass(frozen=True)
class Clocks:
    """Conversions between the clocks; ``dim`` is None for a limit without a
    dimension.
    """

    problem: Problem
    algorithm: SGD
    dim: int | None

    @property
    def step_in_time(self) -> Scaling:
        """lr/N: how much time one step takes at the rate without its schedule."""
        return self.algorithm.lr.plain / self.problem.divisor

    def steps(self, time: float) -> float:
        """Number of steps in a time, at finite dimension or with lr of order one."""
        if self.algorithm.scheduled:
            return float(
                self.steps_line.steps_at(
                    "time", np.array([time]), f"`time` = {time:g}"
                )[0]
            )
        with np.errstate(over="ignore"):  # infinitely many are refused by name
            return time / self.one_step

    def time(self, steps: float | np.ndarray) -> np.ndarray:
        """Time of a number of steps at the rate without its schedule, at finite
        dimension or with lr of order one.
        """
        return np.asarray(steps) * self.one_step

    @property
    def one_step(self) -> float:
        """lr/p, at finite dimension or with lr of order one."""
        law = self.step_in_time
        assert self.dim is not None or law.exponent == 0
        return law.coefficient if self.dim is None else law(self.dim)

    @property
    def steps_in_pass(self) -> float:
        """n/n_b, how many steps visit as many samples as there are in the fixed set."""
        algorithm = self.algorithm
        self._check_set()
        assert algorithm.dataset is not None
        if self.dim is not None:
            size = algorithm.dataset_at(self.dim)
            assert size is not None
            return size / algorithm.batch_at(self.dim)
        if algorithm.dataset.exponent != algorithm.batch.exponent:
            raise InputError(
                f"Argument `passes` needs a dimension to become steps where dataset ="
                f" {algorithm.dataset} and batch = {algorithm.batch}: give a start that"
                " has a `dim`."
            )
        return algorithm.dataset.coefficient / algorithm.batch.coefficient

    @property
    def alpha_in_pass(self) -> float:
        """n/d, the samples of a pass over d."""
        algorithm = self.algorithm
        self._check_set()
        assert algorithm.dataset is not None
        if self.dim is not None:
            size = algorithm.dataset_at(self.dim)
            assert size is not None
            return size / self.dim
        if algorithm.dataset.exponent != 1:
            raise InputError(
                "Argument `passes` needs a dimension to become samples/d where dataset"
                f" = {algorithm.dataset}: give a start that has a `dim`."
            )
        return algorithm.dataset.coefficient

    def _check_set(self) -> None:
        if self.algorithm.dataset is None:
            raise InputError(
                "Argument `passes` counts passes through a fixed set of samples, and"
                " here every sample is new: give a `dataset`, or the end as `time`,"
                " `steps` or `alpha`."
            )

    def reference(
        self, time: np.ndarray, unit: float = 0.0
    ) -> dict[str, tuple[np.ndarray, str]]:
        """The four clocks at times t = time·d^unit without schedules, each with its
        unit ("" or a power of d).
        """
        if self.dim is None:
            return {
                name: (time * law.coefficient, _unit(law.exponent))
                for name, law in self._laws(unit).items()
            }
        t = time * float(self.dim) ** unit
        steps = t / self.step_in_time(self.dim)
        samples = steps * self.algorithm.batch_at(self.dim)
        known = {
            "time": t,
            "step": steps,
            "sample": samples,
            "alpha": samples / self.dim,
        }
        return {name: (values, "") for name, values in known.items()}

    def _laws(self, unit: float) -> dict[str, Scaling]:
        """The clocks at time 1·d^unit as laws."""
        step, batch = Scaling(1.0, unit) / self.step_in_time, self.algorithm.batch.plain
        return {
            "time": Scaling(1.0, unit),
            "step": step,
            "sample": step * batch,
            "alpha": step * batch * Scaling(1.0, -1.0),
        }

    def coordinates(
        self, position: np.ndarray, stepwise: bool, unit: float = 0.0
    ) -> dict[str, tuple[np.ndarray, str]]:
        """The four clocks and the rate ``lr`` at positions on a method's clock, each
        with its unit.

        Positions are steps of a stepwise method, else times in units of d^unit. Where
        the batch has a schedule, it is there too.
        """
        position = np.asarray(position, float)
        time = self.time(position) if stepwise else position
        known = self.reference(time, unit)
        if stepwise:
            known["step"] = position, known["step"][1]
        rate = self.algorithm.lr.plain
        known["lr"] = (
            np.full(position.shape, rate(self.dim or 1)),
            _unit(0.0 if self.dim else rate.exponent),
        )
        if not self.algorithm.scheduled or not position.size:
            return known
        if stepwise:
            clock, f, n = self.steps_line.at(position.ravel())
            time, sample = np.asarray(clock.time), np.asarray(clock.sample)
            samples = 1.0
        else:
            clock, f, n = self.flow_line(unit).at(position.ravel())
            one = self.reference(np.ones(1), unit)
            time, sample = (
                np.asarray(getattr(clock, x)) * one[x][0] for x in ("time", "sample")
            )
            batch = self.algorithm.batch.plain
            samples = (
                batch.coefficient
                if self.dim is None
                else self.algorithm.batch_at(self.dim)
            )
        alpha = sample / self.dim if self.dim else sample
        for name, values in (
            ("time", time),
            ("sample", sample),
            ("alpha", alpha),
            ("lr", known["lr"][0].ravel() * f),
        ):
            known[name] = values.reshape(position.shape), known[name][1]
        if self.algorithm.batch.schedule is not None:
            exponent = 0.0 if self.dim else self.algorithm.batch.exponent
            known["batch"] = (n * samples).reshape(position.shape), _unit(exponent)
        return known

    def _lengths(
        self, factor: Factor, law: Scaling, exponents: dict[str, float]
    ) -> Options:
        """Lengths of a factor as numbers: at the dimension, or in units of the clock's
        power of d.
        """

        def value(length: Scaling) -> float:
            if self.dim is not None:
                return length(self.dim)
            if (
                length.coefficient
                and abs(length.exponent - exponents[factor.clock]) > 1e-9
            ):
                power = _unit(exponents[factor.clock]) or "a number"
                raise InputError(
                    "Argument `lr` or `batch` must have schedules that exist in the"
                    f" limit d → ∞, where the clock {factor.clock!r} runs in units of"
                    f" {power}, but got {law}: give lengths of that power, another"
                    " clock, or a start that has a `dim`."
                )
            return float(length.coefficient)

        if (
            self.dim is None
            and factor.name == "custom"
            and abs(exponents[factor.clock]) > 1e-9
        ):
            value(Scaling(1.0))  # functions have no lengths to tell the power of
        return {
            k: tuple(map(value, v)) if isinstance(v, tuple) else value(v)
            for k, v in factor.lengths
        }

    def _tempo(self, stepwise: bool, unit: float) -> tuple[Tempo, list[list[float]]]:
        """The schedules with their numbers, and where each factor jumps or bends."""
        algorithm, one = self.algorithm, self.reference(np.ones(1), unit)
        exponents = {name: law.exponent for name, law in self._laws(unit).items()}
        whole = stepwise and self.dim is not None
        count = float(algorithm.batch_at(self.dim)) if whole and self.dim else 1.0
        if stepwise and not whole:
            count = float(algorithm.batch.coefficient)
        courses: dict[str, list[Course]] = {"lr": [], "batch": []}
        breaks = []
        for name, law in (("lr", algorithm.lr), ("batch", algorithm.batch)):
            for factor in () if law.schedule is None else law.schedule.factors:
                lengths = self._lengths(factor, law, exponents)
                if stepwise:
                    scale = (
                        1.0 / self.dim if factor.clock == "alpha" and self.dim else 1.0
                    )
                else:
                    scale = float(one[factor.clock][0][0])
                clock = "sample" if factor.clock == "alpha" else factor.clock
                numbers = {
                    k: np.asarray(v, float)
                    for k, v in (*lengths.items(), *factor.numbers)
                }
                courses[name].append(
                    Course(factor.form, clock, np.asarray(scale), numbers)
                )
                breaks.append(factor.breaks(lengths))
        return (
            Tempo(
                tuple(courses["lr"]), tuple(courses["batch"]), np.asarray(count), whole
            ),
            breaks,
        )

    @property
    def law(self) -> str:
        """What is scheduled, for messages."""
        laws = {"lr": self.algorithm.lr, "batch": self.algorithm.batch}
        return " and ".join(
            f"{name} = {law}" for name, law in laws.items() if law.schedule
        )

    @cached_property
    def steps_line(self) -> StepLine:
        """The clocks of a scheduled run that takes steps."""
        return StepLine(self._tempo(True, 0.0)[0], self.one_step, self.law)

    def flow_line(self, unit: float = 0.0) -> FlowLine:
        """The clocks of a scheduled flow in τ, in units of d^unit."""
        lines = self.__dict__.setdefault("_flow_lines", {})
        if unit not in lines:
            lines[unit] = FlowLine(*self._tempo(False, unit), self.law)
        line: FlowLine = lines[unit]
        return line

    @property
    def form(self) -> Hashable:
        """What of the schedules fixes compiled code: functions, clocks and lengths of
        tables.
        """
        if self.tempo is None:
            return None
        leaves, structure = jax.tree.flatten(self.tempo)
        return structure, tuple(np.shape(x) for x in leaves)

    @cached_property
    def tempo(self) -> Tempo | None:
        """The schedules for methods that take steps; None where there are none."""
        return self.steps_line.tempo if self.algorithm.scheduled else None


def _unit(exponent: float) -> str:
    return "" if abs(exponent) < 1e-12 else f"d**{exponent:g}"


def _increasing(name: str, values: Array) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=float).ravel()
    except (TypeError, ValueError, OverflowError):
        reject(name, values, "a number or an increasing sequence of numbers")
    if (
        array.size == 0
        or not np.isfinite(array).all()
        or array[0] < 0
        or (np.diff(array) <= 0).any()
    ):
        reject(
            name,
            np.asarray(values).tolist(),
            "finite, non-negative and strictly increasing",
        )
    return array


def without_passes(
    clocks: Clocks, ends: Mapping[str, End], save: Save, stepwise: bool
) -> Options:
    """The same end on a clock that every method has, where it was given in passes
    through the fixed set of samples: in steps for a stepwise method, else in samples/d.

    >>> from twolayer.task.scaling import d
    >>> algorithm = SGD(lr=1 / d, dataset=2 * d, sampling="reshuffled")
    >>> clocks = Clocks(Problem("z1", "linear"), algorithm, 100)
    >>> without_passes(clocks, {"passes": 3}, 3, stepwise=True)["steps"].tolist()
    [0.0, 200.0, 400.0, 600.0]
    """
    given = {name: end for name, end in ends.items() if end is not None}
    if "passes" not in given:
        return given
    _check_one(given)
    points = _points("passes", given["passes"], save)
    one = clocks.steps_in_pass if stepwise else clocks.alpha_in_pass
    if stepwise and np.round(points[-1] * one) < 1:
        reject("passes", given["passes"], f"at least one step, {1 / one:.3g} passes")
    return {"steps" if stepwise else "alpha": points * one}


def _check_one(given: Options) -> None:
    if len(given) != 1:
        names = " and ".join(f"`{name}`" for name in given) or "none of them"
        raise InputError(f"Give one of {named_ends()}, but got {names}.")


def _end(
    time: End, steps: End, alpha: End
) -> tuple[str, float | Sequence[float] | np.ndarray]:
    """The one of time=, steps= and alpha= that was given."""
    given = {
        name: x
        for name, x in (("time", time), ("steps", steps), ("alpha", alpha))
        if x is not None
    }
    _check_one(given)
    return next(iter(given.items()))


def save_times(
    clocks: Clocks,
    time: End,
    steps: End,
    save: Save,
    unit: float = 0.0,
    alpha: End = None,
) -> np.ndarray:
    """Save points of a continuous method, in units of d^unit when there is no
    dimension.

    ``time`` (or ``steps``, or ``alpha``) is the end of the run or the save points
    themselves, with or without 0; ``save`` is how many intervals to save from 0 on, the
    save points, or "log" for 0 and points in geometric progression. With a schedule
    they are points of τ.
    """
    name, end = _end(time, steps, alpha)
    points = _points(name, end, save)
    clock = "step" if name == "steps" else name
    one, power = clocks.reference(np.ones(1), unit)[clock]
    if power and name != "time":
        raise InputError(
            f"Argument `{name}` needs a dimension to become a time: give `time`, or a"
            " start that has a `dim`."
        )
    if clocks.algorithm.scheduled:
        kind = "sample" if clock == "alpha" else clock
        return clocks.flow_line(unit).tau_at(
            kind, points / one[0], f"`{name}` = {points[-1]:g}"
        )
    if name == "time":
        return points if clocks.dim is None else points * float(clocks.dim) ** -unit
    scale = float(clocks.time(1.0)) if name == "steps" else 1 / float(one[0])
    return (
        points * scale
        if clocks.dim is None or name == "alpha"
        else points * scale * float(clocks.dim) ** -unit
    )


def save_steps(
    clocks: Clocks, time: End, steps: End, save: Save, alpha: End = None
) -> np.ndarray:
    """Save points of a stepwise method, as integers; those that fall on the same step
    are one.
    """
    name, end = _end(time, steps, alpha)
    points = _points(name, end, save)
    if name == "alpha":
        _, power = clocks.reference(np.ones(1))["alpha"]
        if power:
            raise InputError(
                "Argument `alpha` needs a dimension to become steps: give `steps`, or a"
                " start with a `dim`."
            )
    if name != "steps" and clocks.algorithm.scheduled:
        clock = "time" if name == "time" else "sample"
        values = points * (clocks.dim or 1) if name == "alpha" else points
        points = clocks.steps_line.steps_at(clock, values, f"`{name}` = {points[-1]:g}")
    elif name == "time":
        points = np.array([clocks.steps(t) for t in points])
    elif name == "alpha":
        with np.errstate(over="ignore"):
            points = (
                points
                / float(clocks.reference(np.ones(1))["alpha"][0][0])
                / clocks.one_step
            )
    if name != "steps":
        one = float(clocks.coordinates(np.ones(1), stepwise=True)[name][0][0])
        require(np.round(points[-1]) >= 1, name, end, f"at least one step of {one:.3g}")
    rounded = np.unique(np.round(points))
    if not rounded[-1] <= MAX_STEPS:
        raise InputError(
            f"Argument `{name}` must amount to fewer than 2**32 steps, but {end} is"
            f" {rounded[-1]:.3g}."
        )
    if clocks.algorithm.scheduled:
        clocks.steps_line.check(int(rounded[-1]))
    return rounded.astype(np.int64)


def _several(name: str, value: Array) -> bool:
    """Whether a value is a sequence; what is no array at all is rejected."""
    try:
        return np.ndim(value) > 0
    except (TypeError, ValueError):
        reject(name, value, "a number or an increasing sequence of numbers")


def _points(
    name: str, end: float | Sequence[float] | np.ndarray, save: Save
) -> np.ndarray:
    if _several(name, end):
        return _increasing(name, end)
    if name == "steps":
        last: float = positive_integer("steps", end)
    else:
        last = finite_number(name, end, minimum=0.0, accepted="a positive number")
        require(last > 0, name, end, "a positive number")
    if _several("save", save):
        points = _increasing("save", save)
        require(
            points[-1] <= last * (1 + 1e-12),
            "save",
            np.asarray(save).tolist(),
            f"at most {name} = {end}",
        )
        return points
    if isinstance(save, str):
        choice("save", save, ("log",))
        first = min(1.0, last) if name == "steps" else last * SPAN
        return np.concatenate([[0.0], np.geomspace(first, last, LOG_POINTS)])
    count = positive_integer("save", save)
    require(count <= MAX_POINTS, "save", save, f"at most {MAX_POINTS:.0e} intervals")
    return np.linspace(0.0, last, count + 1)
