"""First-passage times measured in the runs of any method.

    t_ext = inf { t : the watched quantity has reached its level }

`solve(…, until=Until(…))` stops each seed at its crossing: by root finding in the ODE,
by linear interpolation between two steps in Chain, Vectors and SDE. A seed that has not
crossed by the end of the run is censored: its time is known to be larger, and it counts
as such in the median and in the distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from twolayer.numerics.errors import InputError
from twolayer.numerics.html import card, curves, field_summary
from twolayer.numerics.statistics import median, standard_error
from twolayer.running.dataset import check_result
from twolayer.task.method import Outcome

__all__ = ["Passage", "crossing_curves", "first_passage"]


@dataclass(frozen=True, eq=False)
class Passage:
    """First-passage times of all seeds.

    Attributes
    ----------
    times, steps : array (seeds,)
        Where each seed crossed, in time and in steps of SGD; infinite if it is
        censored.
    censored, diverged : int
        Seeds that ran to the end without crossing, and seeds that diverged before.
    end : float
        Time at which the runs ended.

    Examples
    --------
    >>> found = Passage(
    ...     np.array([1.0, 3.0, np.inf]),
    ...     np.array([100.0, 300.0, np.inf]),
    ...     censored=1,
    ...     diverged=0,
    ...     end=5.0,
    ... )
    >>> found.reached.tolist(), found.median
    ([1.0, 3.0], 3.0)
    """

    times: np.ndarray
    steps: np.ndarray
    censored: int
    diverged: int
    end: float

    @property
    def reached(self) -> np.ndarray:
        """Times of the seeds that crossed."""
        return self.times[np.isfinite(self.times)]

    @property
    def mean(self) -> float:
        """Mean over the seeds that crossed; NaN if none did. A lower bound where seeds
        are censored.
        """
        return float(self.reached.mean()) if self.reached.size else float("nan")

    @property
    def mean_steps(self) -> float:
        """The same in steps of SGD."""
        finite = self.steps[np.isfinite(self.steps)]
        return float(finite.mean()) if finite.size else float("nan")

    @property
    def standard_error(self) -> float:
        """Standard error of the mean; NaN with fewer than two crossings."""
        n = self.reached.size
        return float(standard_error(self.reached)) if n > 1 else float("nan")

    @property
    def median(self) -> float:
        """Median over all seeds, censored ones counted as later; infinite if half of
        them or more are.
        """
        return median(self.times).value

    def distribution(self) -> tuple[np.ndarray, np.ndarray]:
        """Sorted crossing times and the fraction of all seeds that have crossed by
        then.

        Examples
        --------
        >>> Passage(
        ...     np.array([2.0, 1.0, np.inf]), np.zeros(3), 1, 0, 3.0
        ... ).distribution()[1].round(3).tolist()
        [0.333, 0.667]
        """
        ordered = np.sort(self.reached)
        return ordered, np.arange(1, ordered.size + 1) / len(self.times)

    def __repr__(self) -> str:
        return field_summary(self, ("times", "censored", "diverged", "end"))

    def _repr_html_(self) -> str:
        rows = [
            ("mean", f"{self.mean:.4g} ± {self.standard_error:.2g}"),
            ("median", f"{self.median:.4g}"),
            (
                "runs",
                (
                    f"{len(self.times)}, {self.censored} censored, {self.diverged}"
                    " diverged"
                ),
            ),
        ]
        return card("First passages", "", rows, crossing_curves([self.times], "t"))

    def __str__(self) -> str:
        text = (
            f"{self.mean:.4g} ± {self.standard_error:.2g} (median {self.median:.4g},"
            f" {len(self.times)} runs"
        )
        lost = [
            f"{n} {word}"
            for n, word in ((self.censored, "censored"), (self.diverged, "diverged"))
            if n
        ]
        return text + (", " + ", ".join(lost) if lost else "") + ")"


def first_passage(result: xr.Dataset) -> Passage:
    """Where the runs of a result first reached the level of their `until`.

    Parameters
    ----------
    result : xarray.Dataset
        From `solve` with ``until=``.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("z1**2", "square"),
    ...     tl.SGD(lr="0.05/d", geometry="projected"),
    ... )
    >>> start = tl.Overlaps([[1.0]], [[0.1]])
    >>> run = tl.solve(
    ...     problem, algorithm, tl.ODE(), start, time=3, until=tl.Until("overlap", 0.5)
    ... )
    >>> round(first_passage(run).mean, 3)
    0.624
    """
    if "until" not in check_result(result, "result").get("run", {}):
        raise InputError(
            "Argument `result` must come from solve(…, until=…): without a threshold"
            " nothing is passed."
        )
    outcome = result.outcome.values
    hit = outcome == Outcome.REACHED

    def known(name: str) -> np.ndarray:
        return np.where(hit, result[name].values, np.inf)

    lost = int((outcome == Outcome.DIVERGED).sum())
    end = float(result.time.values[-1])
    return Passage(
        known("stop_time"),
        known("stop_step"),
        int(len(hit) - hit.sum() - lost),
        lost,
        end,
    )


def crossing_curves(
    runs: Sequence[np.ndarray], clock: str, labels: Sequence[str] = ()
) -> str:
    """A small picture for notebooks: the fractions of all runs that have crossed,
    against the clock.
    """
    every = [np.sort(row[np.isfinite(row)]) for row in runs]
    if not any(len(row) for row in every):
        return ""
    grid = np.linspace(0.0, max(float(row[-1]) for row in every if len(row)), 160)
    lines = [
        np.searchsorted(at, grid, side="right") / len(row)
        for at, row in zip(every, runs, strict=True)
    ]
    return curves(grid, lines, (clock, ""), labels, (0.0, 1.0))
