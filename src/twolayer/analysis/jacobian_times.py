"""Escape times where neurons see each other from the start: from the Jacobian of the
averages.

    annealed   R̄ + tr G/(2d) has fallen to (1 − T) of its start, G the second
               derivatives of the risk by the start (mediocre_jacobian.py)
    quenched   the same start by start, averaged
    ode        the ODE from random starts; where quenched is known, as its difference
               from the formula of the same starts

The noise of single samples is not followed.
"""

from __future__ import annotations

import math

import numpy as np

from twolayer.analysis.escape_formulas import FOLD, LINEARISED, bent, check_threshold
from twolayer.analysis.escape_result import EscapeTime
from twolayer.analysis.escape_setting import FlatSetting
from twolayer.analysis.flat_times import WIDE, integrate, rounded_up, starts_of
from twolayer.analysis.mediocre_jacobian import (
    JacobianPath,
    Stopped,
    follow_jacobian,
    rest_rate,
    start_numbers,
)
from twolayer.numerics.errors import InputError
from twolayer.numerics.statistics import standard_error
from twolayer.task.overlaps import Overlaps

__all__ = ["jacobian_result"]

SAMPLES = 2000  # starts of the quenched average: each takes a row of matrices
SHARE = 0.97  # of the risk of the plateau is left where no threshold is asked for
SILENT = "the noise of single samples is followed where neurons do not see each other"
SHRINKING = (
    "Argument `lr` must be such that overlaps grow from a flat start, but with {lr}"
    " they shrink, or norms run away, for {problem!r}. Use a smaller lr; a target that"
    " the student sees at third order or later (information exponent 3) does not grow"
    " exponentially at any: tl.recovery, tl.weak_recovery."
)


def jacobian_result(
    setting: FlatSetting, dim: int, threshold: float | None, samples: int, seed: int
) -> EscapeTime:
    """All times that the Jacobian gives."""
    path: JacobianPath | None = None
    missing = dict.fromkeys(("corrected", "noisy", "from_zero"), SILENT)
    rate: float | None = None
    why = ""
    try:
        path = follow_jacobian(setting, dim)
        rate = None if path is None else path.rate
    except Stopped as stopped:
        why = str(stopped)
        rate = rest_rate(setting)
    if rate is None or rate <= 0:
        raise InputError(
            SHRINKING.format(lr=setting.algorithm.lr, problem=setting.problem)
        )
    plateau = 1.0 if path is None else path.plateau
    T = (
        rounded_up(1 - SHARE * plateau)
        if threshold is None
        else check_threshold(threshold)
    )
    annealed: float | None = None
    quenched: float | None = None
    error: float | None = None
    if path is None:
        missing |= dict.fromkeys(LINEARISED, why)
    else:
        count = min(samples, SAMPLES)
        many = Overlaps.random(setting.problem, dim, seed + 1, size=count)
        every = path.passages(dim, T, start_numbers(setting, many))
        annealed = path.annealed(dim, T)
        quenched = float(every.mean())
        error = float(standard_error(every))
    ode: float | None = None
    ode_error: float | None = None
    reached: float | None = None
    starts = starts_of(setting, dim, seed)
    if starts is None:
        missing |= dict.fromkeys(("ode", "ode_error"), WIDE)
    else:
        own = np.zeros(starts.batch)
        end = 6 * (math.log(dim) + 5) / rate
        if path is not None:
            own = path.passages(dim, T, start_numbers(setting, starts))
            end = 3 * float(own[np.isfinite(own)].max(initial=0.0)) + 10 / rate
        later, spread, reached = integrate(setting, starts, T, own, end)
        ode = later + (quenched or 0.0)
        ode_error = math.hypot(spread, error or 0.0)
    notes = []
    if path is not None and 1 - path.plateau >= T:
        notes.append(
            f"T = {T:g} is passed while norms, second layer and overlaps between"
            f" neurons relax: thresholds above {1 - path.plateau:.3g} are those of the"
            " escape"
        )
    bends = (
        quenched is not None
        and ode is not None
        and not 2 * rate * (ode - quenched) <= FOLD
    )
    unreached = annealed is not None and not math.isfinite(annealed)
    if bends or unreached:
        annealed = quenched = error = None
        missing |= dict.fromkeys(LINEARISED, bent(T))
    return EscapeTime(
        annealed=annealed,
        quenched=quenched,
        quenched_error=error,
        ode=ode,
        ode_error=ode_error,
        corrected=None,
        noisy=None,
        from_zero=None,
        reached=reached,
        missing=missing,
        per_time=dim * setting.problem.divisor / (setting.rho * setting.scale),
        width=setting.problem.p,
        dim=dim,
        threshold=T,
        rate=rate,
        rho=setting.rho,
        best_rho=None,
        largest_rho=None,
        gain=None,
        scale=setting.scale,
        plateau=plateau,
        route="Jacobian of the averages",
        notes=tuple(notes),
    )
