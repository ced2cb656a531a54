"""How many passes through a set of samples are still online?

    gap_q = | risk after q passes through n = α d samples − risk of the ODE at q n new
        samples |
    the first q with gap_q > tolerance ends them

In the first pass every sample is new, unless samples are drawn with replacement. What a
visit leaves in the weights fades at the rate of learning, so that with many samples a
later visit finds hardly anything of an earlier one, and with few it meets itself.
Passes are counted while the gap is known to be below the tolerance, its error taken
twice; where it is not known on which side it lies, the count ends too, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from twolayer.methods.dmft.method import DMFT
from twolayer.methods.ode import ODE
from twolayer.numerics.arguments import Progress
from twolayer.numerics.errors import (
    InputError,
    expect,
    finite_number,
    positive_integer,
    require,
)
from twolayer.numerics.html import card, escaped
from twolayer.running.solve import solve
from twolayer.running.support import check_description
from twolayer.task.algorithm import SGD
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["OnlinePasses", "passes_online"]

ERRORS = 2.0  # of the gap, on either side of the tolerance


@dataclass(frozen=True, eq=False)
class OnlinePasses:
    """How long passes are online; prints as a sentence. Made by `passes_online`.

    Attributes
    ----------
    passes : int
        So many passes are within the tolerance, one after the other.
    reason : str
        Why the count ends there: ``"off"``, the next pass is known to be off;
        ``"undecided"``, its error leaves it open; ``"end"``, it was the last that was
        followed.
    best : int
        After how many passes the risk is smallest.
    tolerance : float
        What a risk may be off by.
    alpha : float
        Samples in the set, over d.
    risk, online, train_risk, error : array
        After each pass from 0 on: the excess risk, that of as many new samples, the
        training risk, and the standard error of the excess risk.
    """

    passes: int
    reason: str
    best: int
    tolerance: float
    alpha: float
    risk: np.ndarray
    online: np.ndarray
    train_risk: np.ndarray
    error: np.ndarray

    def __str__(self) -> str:
        followed = len(self.risk) - 1
        more = {
            "off": "",
            "undecided": " (the next one is within the errors of the tolerance)",
            "end": f", all {followed} that were followed",
        }[self.reason]
        noun = "pass" if self.passes == 1 else "passes"
        is_are = "is" if self.passes == 1 else "are"
        return (
            f"{self.passes} {noun} through {self.alpha:g} d samples {is_are} online to"
            f" {self.tolerance:g} in the risk{more}; the risk is smallest after"
            f" {self.best}: {self.risk[self.best]:.4g}"
        )

    def _repr_html_(self) -> str:
        return card("Passes that are online", escaped(str(self)), [])


def passes_online(
    problem: Problem,
    algorithm: SGD,
    tolerance: float = 0.01,
    start: Overlaps | None = None,
    *,
    most: int = 8,
    method: DMFT | None = None,
    progress: Progress = None,
) -> OnlinePasses:
    """How many passes of small batches through a fixed set are as good as new samples.

    Parameters
    ----------
    problem, algorithm
        The task, and SGD with small batches from a set of order d, such as
        ``SGD(1/d, dataset=4*d, sampling="reshuffled")``.
    tolerance : float
        A pass is online while its risk is off by less than this from that of the ODE
        after as many new samples.
    start : Overlaps, optional
        The limit of random rows if it is left out: of length one, at right angles to
        each other and to the target.
    most : int
        Passes that are followed at most.
    method : DMFT, optional
        Such as ``DMFT(slices=48)``.
    progress : bool or Listener, optional
        As for `solve`.

    Examples
    --------
    >>> from twolayer import SGD, Problem
    >>> linear = Problem("z1", "linear", noise=0.3)
    >>> few = SGD("0.5/d", dataset="2*d", sampling="replacement")
    >>> print(passes_online(linear, few, 0.02))
    0 passes through 2 d samples are online to 0.02 in the risk; the risk is smallest
    after 7: 0.1514
    >>> passes_online(linear, few.replace(dataset="64*d"), 0.02, most=3).passes
    3
    """
    check_description(problem, algorithm)
    accepted = "a positive number"
    tolerance = finite_number("tolerance", tolerance, accepted=accepted)
    require(tolerance > 0, "tolerance", tolerance, accepted)
    most = positive_integer("most", most)
    lens = expect(DMFT, "method", DMFT() if method is None else method)
    if algorithm.dataset is None:
        raise InputError(
            "Argument `algorithm` must have a `dataset` that is passed through again,"
            " but every sample is new."
        )
    if start is None:
        start = Overlaps(np.eye(problem.p), np.zeros((problem.p, problem.k)), problem.P)
    fresh = algorithm.replace(dataset=None, sampling="sequence")
    passed = np.arange(most + 1)
    shown: dict[str, Any] = {"progress": progress}
    runs = solve(problem, algorithm, lens, start, passes=passed, **shown)
    online = solve(problem, fresh, ODE(), start, time=runs.time.values, **shown)
    return counted(runs, online, algorithm, tolerance)


def counted(
    runs: xr.Dataset, online: xr.Dataset, algorithm: SGD, tolerance: float
) -> OnlinePasses:
    """The passes that are online, from both curves at every pass."""
    assert algorithm.dataset is not None
    risk, expected = runs.excess_risk.values[0], online.excess_risk.values[0]
    error = runs.risk_error.values[0] if "risk_error" in runs else np.zeros_like(risk)
    gap = np.abs(risk - expected)
    within = gap + ERRORS * error <= tolerance
    passes = int(np.argmin(within[1:])) if not within[1:].all() else len(risk) - 1
    reason = "end"
    if passes < len(risk) - 1:
        known = gap[passes + 1] - ERRORS * error[passes + 1] > tolerance
        reason = "off" if known else "undecided"
    return OnlinePasses(
        passes,
        reason,
        int(np.argmin(risk)),
        tolerance,
        algorithm.dataset.coefficient,
        risk,
        expected,
        runs.train_risk.values[0],
        error,
    )
