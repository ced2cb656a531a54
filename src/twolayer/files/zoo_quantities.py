"""What the published numbers of the zoo are numbers of, and how the package computes
each.

    along a run     risk, excess_risk, train_risk, M[j,r], Q[j,l], a[j], overlap[r]
                    = (mean_j M_jr²)^½,
                    cosine[j,r] = |M_jr|/Q_jj^½, max_overlap = max_j M_j1
    of a whole run  stop_time, stop_step, median_stop_step, decay
                    = −d log R/dt and log_slope = d log R/d log step
                    between its last two save points, R the excess risk
    of formulas     information, leap, generative, generative_leap, staircase (0:
                    never), theta, steps, learns,
                    critical_alpha, optimal_lr, escape_gain, stationary_risk, annealed,
                        quenched, escape_ratio =
                    corrected/annealed, recovery_steps

Neurons and directions count from one. Values of a stochastic method are means over its
seeds with their standard error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from twolayer.analysis.escape import escape_time
from twolayer.analysis.exponents import analyse
from twolayer.analysis.optimal_lr import escape_gain, optimal_lr, stationary_risk
from twolayer.analysis.phases import Phase, phase_diagram
from twolayer.analysis.population_loss import critical_alpha
from twolayer.analysis.recovery_steps import recovery_steps
from twolayer.numerics.errors import InputError, choice
from twolayer.numerics.statistics import median

if TYPE_CHECKING:
    from twolayer.files.taskfile import TaskFile

__all__ = ["FORMULAS", "Measured", "from_formula", "from_run"]

ENTRY = re.compile(r"(M|Q|a|overlap|cosine)\[(\d+)(?:,(\d+))?\]")
CURVES = ("risk", "excess_risk", "train_risk", "max_overlap")
NORMAL_95 = 1.96  # half of a 95 % interval in standard errors
WHOLE = ("stop_time", "stop_step", "median_stop_step", "decay", "log_slope")


class Measured(NamedTuple):
    """Values, their standard errors and the spread of single runs, one for each save
    point or a single one.
    """

    value: np.ndarray
    error: np.ndarray
    spread: np.ndarray


def _phase(task: TaskFile) -> Phase:
    problem, algorithm = task.problem(), task.algorithm()
    diagram = phase_diagram(
        problem.target,
        loss=algorithm.loss.name,
        geometry=algorithm.geometry,
        gram=problem.P,
    )
    return diagram.at(algorithm.mu, algorithm.delta)


def _escape(task: TaskFile, threshold: float | None) -> Any:
    dim = task.table.run.dim
    if dim is None or threshold is None:
        raise InputError(
            f"{task.name}: escape times need `run.dim` and the `threshold` of the"
            " reference."
        )
    return escape_time(task.problem(), task.algorithm(), dim, threshold)


def _staircase(task: TaskFile) -> list[int]:
    problem, reuse = task.problem(), bool(task.algorithm().reused)
    return [
        step or 0
        for step in analyse(problem).staircase(problem.activation, reuse=reuse)
    ]


def _critical(task: TaskFile) -> float:
    information = analyse(task.problem()).information
    if task.table.run.dim is None or information is None:
        raise InputError(
            f"{task.name}: critical_alpha needs `run.dim` and a target with an"
            " information exponent."
        )
    return critical_alpha(task.table.run.dim, information)


FORMULAS: dict[str, Callable[[TaskFile, float | None], Any]] = {
    "information": lambda task, _: analyse(task.problem()).information,
    "leap": lambda task, _: analyse(task.problem()).leap,
    "generative": lambda task, _: analyse(task.problem()).generative,
    "generative_leap": lambda task, _: analyse(task.problem()).generative_leap,
    "staircase": lambda task, _: _staircase(task),
    "theta": lambda task, _: _phase(task).theta,
    "steps": lambda task, _: _phase(task).steps,
    "learns": lambda task, _: _phase(task).learns,
    "critical_alpha": lambda task, _: _critical(task),
    "optimal_lr": lambda task, _: optimal_lr(task.problem()).coefficient,
    "escape_gain": lambda task, _: escape_gain(task.problem()),
    "stationary_risk": lambda task, _: stationary_risk(
        task.problem(), task.algorithm()
    ),
    "annealed": lambda task, threshold: _escape(task, threshold).annealed,
    "quenched": lambda task, threshold: _escape(task, threshold).quenched,
    "escape_ratio": lambda task, threshold: (lambda t: t.corrected / t.annealed)(
        _escape(task, threshold)
    ),
    "recovery_steps": lambda task, _: (
        recovery_steps(task.problem(), task.algorithm(), task.table.run.dim or 0).steps
    ),
}
"""Quantities that need no run."""


def from_formula(
    task: TaskFile, quantity: str, threshold: float | None = None
) -> Measured:
    """A quantity of the description alone.

    Examples
    --------
    >>> from twolayer.files.zoo import zoo
    >>> from_formula(zoo("abbe2023-leap").task(), "leap").value.tolist()
    1.0
    """
    found = FORMULAS[choice("quantity", quantity, FORMULAS)](task, threshold)
    value = np.asarray(np.nan if found is None else found, dtype=float)
    return Measured(value, np.zeros_like(value), np.zeros_like(value))


def from_run(run: xr.Dataset, quantity: str, difference: bool = False) -> Measured:
    """A quantity of a result of solve, at its save points but the start, between them,
    or of the whole run.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, start = tl.Problem("z1**2", "square"), tl.Overlaps([[1.0]], [[0.5]])
    >>> run = tl.solve(
    ...     problem,
    ...     tl.SGD("0.1/d", geometry="projected"),
    ...     tl.ODE(),
    ...     start,
    ...     time=1,
    ...     save=1,
    ... )
    >>> from_run(run, "excess_risk").value.round(3).tolist()
    [0.218]
    """
    if quantity in WHOLE:
        return _whole(run, quantity)
    values, known = _curve(run, quantity)
    if difference:
        return _mean(np.diff(values, axis=1))
    later = run.time.values > 0
    values = values[:, later]
    return (
        _mean(values)
        if known is None
        else Measured(values[0], known[0, later], np.zeros_like(values[0]))
    )


def _mean(values: np.ndarray) -> Measured:
    """Mean over seeds and its standard error; 0 for a single, deterministic run."""
    n = len(values)
    spread = np.asarray(
        values.std(axis=0, ddof=1) if n > 1 else np.zeros(values.shape[1:])
    )
    return Measured(np.asarray(values.mean(axis=0)), spread / np.sqrt(n), spread)


def _curve(run: xr.Dataset, quantity: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Values (seed, time), and their errors where the method knows them."""
    if quantity in CURVES:
        if quantity == "max_overlap":
            return run.M.values[..., 0].max(-1), None
        if quantity not in run:
            raise InputError(
                f"The run has no {quantity}: only reused samples have a training risk."
            )
        return run[quantity].values, (
            run[f"{quantity}_error"].values if f"{quantity}_error" in run else None
        )
    found = ENTRY.fullmatch(quantity)
    if found is None:
        raise InputError(
            f"Quantity {quantity!r} is none of"
            f" {', '.join([*CURVES, *WHOLE, *FORMULAS])}, M[1,1], …"
        )
    name, first, second = (
        found[1],
        int(found[2]) - 1,
        None if found[3] is None else int(found[3]) - 1,
    )
    if name == "overlap":
        return np.sqrt((run.M.values[..., first] ** 2).mean(-1)), None
    if name == "a":
        return run.a.values[..., first], None
    if second is None:
        raise InputError(
            f"Quantity {quantity!r} needs two numbers, such as {name}[1,1]."
        )
    if name == "cosine":
        return (
            np.abs(run.M.values[..., first, second])
            / np.sqrt(run.Q.values[..., first, first]),
            None,
        )
    error = (
        run[f"{name}_error"].values[..., first, second]
        if f"{name}_error" in run
        else None
    )
    return run[name].values[..., first, second], error


def _whole(run: xr.Dataset, quantity: str) -> Measured:
    if quantity in ("stop_time", "stop_step"):
        return _mean(run[quantity].values)
    if quantity == "median_stop_step":
        steps = np.where(np.isnan(run.stop_step.values), np.inf, run.stop_step.values)
        middle = median(steps)
        error = np.asarray((middle.high - middle.low) / (2 * NORMAL_95))
        return Measured(np.asarray(middle.value), error, error * np.sqrt(len(steps)))
    clock = (
        np.log(run.step.values[-2:])
        if quantity == "log_slope"
        else run.time.values[-2:]
    )
    curve = np.log(run.excess_risk.values[:, -2:])
    slope = np.diff(curve, axis=1)[:, 0] / np.diff(clock)[0]
    return _mean(slope if quantity == "log_slope" else -slope)
