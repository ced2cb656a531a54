"""Escape times from a flat start that is not phase retrieval: from the path beside the
plateau.

    annealed   Σ_j u_j² at its mean, the number of overlaps of each kind
    quenched   over random starts: rows uniform on the sphere
    ode        quenched + mean over a few starts of (ODE − formula of the same start)
    corrected  ode + mean over starts of (formula with Σ u² (1 + N) − formula),
               N the variance that single samples add by then
    noisy      nothing relaxes: the passage of the mean risk with the noise in it,
               R̄ + (1/d) Σ r [(1 + s) e^{2ct} − s] + (1/d) Σ w_jl v_jl = (1 − T) R(0),
               v = e^{−2ht} + ρW (1 − e^{−2ht})/(2h),    s = ρV/(2c)

One neuron along one direction has an exact form of the last two (escape_formulas.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from twolayer.analysis.escape_formulas import (
    ALL,
    FOLD,
    LINEAR,
    LINEARISED,
    RESOLVED,
    SMALL,
    bent,
    check_threshold,
    exit_of_one,
    too_noisy,
    unresolved,
)
from twolayer.analysis.escape_result import EscapeTime
from twolayer.analysis.escape_setting import FlatSetting
from twolayer.analysis.mediocre_path import MediocrePath, follow
from twolayer.analysis.optimal_lr import window_of
from twolayer.numerics.errors import InputError
from twolayer.numerics.statistics import standard_error
from twolayer.task.overlaps import Overlaps, pseudo_inverse

__all__ = [
    "WIDE",
    "flat_result",
    "integrate",
    "kinds_of",
    "rounded_up",
    "starts_of",
]

STARTS = 32  # random starts of the ODE of few neurons
FEW = 16
SOME = 8  # of more of them, whose starts differ less
MOST = 64  # neurons up to which the ODE is integrated
WIDE = f"the ODE is integrated for up to {MOST} neurons"
PASSING = (
    "the threshold is passed while norms and second layer relax, before any overlap has"
    " grown"
)
DRAWN = 2e7  # normal numbers drawn at most for the quenched average


def kinds_of(setting: FlatSetting, starts: Overlaps) -> np.ndarray:
    """d Σ_j (M_j v_i)² (starts, F) of each kind of overlap, of given starts."""
    values, index = setting.groups
    from twolayer.analysis.target_coordinates import frame_of

    L = frame_of(setting.problem.P)
    inside = starts.M @ L @ pseudo_inverse(L.T @ L)
    u = (inside @ setting.flat.modes[1]) ** 2 * float(starts.dim or 1)
    sums = [u[:, index == g].sum(1) for g in range(len(values))]
    return np.stack(sums, 1).reshape(len(u), -1)


def _drawn(setting: FlatSetting, dim: int, samples: int, seed: int) -> np.ndarray:
    """The same of random starts, without the overlaps between neurons."""
    rng = np.random.default_rng([seed, 41])
    counts = setting.flat.counts.astype(int)
    k = len(setting.flat.modes[0])
    found = []
    for count in counts:
        inside = rng.normal(size=(samples, count, k)) ** 2
        outside = rng.chisquare(max(dim - k, 1e-9), size=(samples, count))
        norm = inside.sum(-1) + outside
        found.append((dim * inside / norm[..., None]).sum(1))
    return np.stack(found, 1).reshape(samples, -1)


class Passed(NamedTuple):
    """Linearised times."""

    annealed: float
    quenched: float
    error: float
    squares: np.ndarray
    every: np.ndarray


def flat_result(
    setting: FlatSetting, dim: int, threshold: float | None, samples: int, seed: int
) -> EscapeTime:
    """All times that are known where the start is flat."""
    window = window_of(setting)
    path = follow(setting.flat, setting.groups[0], dim) if window.grows else None
    if path is None:
        raise InputError(window.refusal(setting))
    T = _threshold(setting, path, dim, threshold)
    linear = _linear(setting, path, dim, T, samples, seed)
    ode, error, reached, missing = _ode(setting, path, dim, T, linear, seed)
    p = setting.problem.p
    drop = _drop(path, linear.annealed, T)
    annealed: float | None = linear.annealed
    quenched: float | None = linear.quenched
    sampled: float | None = linear.error
    if p > 1 and T * dim < LINEAR:
        annealed = quenched = sampled = None
        missing |= dict.fromkeys(LINEARISED, unresolved(T * dim))
    elif ode is not None and 2 * path.rate * (ode - linear.quenched) > FOLD:
        annealed = quenched = sampled = None
        missing |= dict.fromkeys(LINEARISED, bent(T))
    passing = drop * dim < 1  # the norms alone bring the risk down to the threshold
    corrected: float | None = None
    why: str | None = PASSING
    if not passing:
        corrected, why = _corrected(path, dim, T, drop, linear, ode, reached, p)
    if why:
        missing["corrected"] = why
    noisy, from_zero, unknown = _noisy(setting, path, dim, T, linear, quenched)
    notes = []
    if passing:
        notes.append(
            f"T = {T:g} is passed while norms and second layer relax, before any"
            f" overlap has grown: thresholds above {1 - path.plateau:.3g} are those of"
            " the escape"
        )
    return EscapeTime(
        annealed=annealed,
        quenched=quenched,
        quenched_error=sampled,
        ode=ode,
        ode_error=error,
        corrected=corrected,
        noisy=noisy,
        from_zero=from_zero,
        reached=reached,
        missing=missing | unknown,
        per_time=dim * setting.problem.divisor / (setting.rho * setting.scale),
        width=p,
        dim=dim,
        threshold=T,
        rate=path.rate,
        rho=setting.rho,
        best_rho=window.best,
        largest_rho=window.largest,
        gain=None,
        scale=setting.scale,
        plateau=path.plateau,
        route="averages of single neurons",
        notes=tuple(notes),
    )


def _threshold(
    setting: FlatSetting, path: MediocrePath, dim: int, threshold: float | None
) -> float:
    """T as given; or the least for which the noise is known, from 0.01 to 0.03 of the
    risk of the plateau.
    """
    if threshold is not None:
        return check_threshold(threshold)
    s = float(path.kicks.max())
    several = "one" if setting.problem.p == 1 else "several"
    share = min(max(RESOLVED[several] * (1 + s) / dim, 0.01), 0.03)
    return rounded_up(1 - (1 - share) * path.plateau)


def rounded_up(T: float) -> float:
    """A threshold with three digits, not below the one given.

    Examples
    --------
    >>> rounded_up(1 - 0.97), rounded_up(0.0261)
    (0.03, 0.027)
    """
    return math.ceil(round(1000 * T, 6)) / 1000


def _drop(path: MediocrePath, time: float, T: float) -> float:
    """By how much of the start's risk the overlaps have to lower it."""
    risk = float(np.interp(time, path.times, path.risk))
    return risk / float(path.risk[0]) - (1 - T)


def _linear(
    setting: FlatSetting,
    path: MediocrePath,
    dim: int,
    T: float,
    samples: int,
    seed: int,
) -> Passed:
    """Annealed and quenched times."""
    numbers = setting.problem.p * (len(setting.flat.modes[0]) + 1)
    count = max(STARTS, min(samples, int(DRAWN / numbers)))
    squares = _drawn(setting, dim, count, seed)
    annealed = float(path.passages(dim, T, path.counts[None])[0])
    every = path.passages(dim, T, squares)
    if not np.isfinite(every).all() or not math.isfinite(annealed):
        raise InputError(
            f"Argument `threshold` must be reached, but {T} is not: no overlap that"
            " grows lowers the risk."
        )
    error = float(standard_error(every))
    return Passed(annealed, float(every.mean()), error, squares, every)


class BesideFormula(NamedTuple):
    """The ODE from a few random starts: how much later than the formula of the same
    start, its error, and the share of the starts that reach the threshold.
    """

    later: float
    error: float
    reached: float


def integrate(
    setting: FlatSetting,
    starts: Overlaps,
    T: float,
    own: np.ndarray,
    end: float,
) -> BesideFormula:
    """The ODE from random starts, beside their formulas ``own``."""
    from twolayer.analysis.passage_times import first_passage
    from twolayer.methods.ode import ODE
    from twolayer.running.solve import solve
    from twolayer.task.method import Until

    run = solve(
        setting.problem,
        setting.algorithm,
        ODE(),
        starts,
        time=end,
        save=20,
        until=Until("excess_risk", 1 - T, relative=True),
        throw=False,
    )
    passed = first_passage(run).times
    crossed = np.isfinite(passed) & np.isfinite(own)
    reached = float(np.isfinite(passed).mean())
    if reached < 0.5:
        raise InputError(
            "Argument `threshold` must be reached by the ODE, but from"
            f" {len(own)} random starts at d = {starts.dim} only"
            f" {np.isfinite(passed).sum()} reach {T} with {setting.algorithm.lr}: what"
            " follows the linear growth does not lower the risk so far. Use a smaller"
            " threshold, or a smaller lr."
        )
    beyond = (passed - own)[crossed]
    return BesideFormula(float(beyond.mean()), float(standard_error(beyond)), reached)


def starts_of(setting: FlatSetting, dim: int, seed: int) -> Overlaps | None:
    """Random starts for the ODE; None of networks that are too wide for it."""
    p = setting.problem.p
    if p > MOST:
        return None
    count = STARTS if p <= FEW else SOME
    return Overlaps.random(setting.problem, dim, seed, size=count)


def _ode(
    setting: FlatSetting,
    path: MediocrePath,
    dim: int,
    T: float,
    linear: Passed,
    seed: int,
) -> tuple[float | None, float | None, float | None, dict[str, str]]:
    """The mean of the ODE over random starts, and the share of them that reach the
    threshold.
    """
    starts = starts_of(setting, dim, seed)
    if starts is None:
        return None, None, None, dict.fromkeys(("ode", "ode_error"), WIDE)
    own = path.passages(dim, T, kinds_of(setting, starts))
    end = 3 * float(np.where(np.isfinite(own), own, 0.0).max()) + 10 / path.rate
    later, error, reached = integrate(setting, starts, T, own, end)
    return linear.quenched + later, math.hypot(linear.error, error), reached, {}


def _corrected(
    path: MediocrePath,
    dim: int,
    T: float,
    drop: float,
    linear: Passed,
    ode: float | None,
    reached: float | None,
    p: int,
) -> tuple[float | None, str | None]:
    """The time of SGD, or None and why the formula does not hold."""
    if ode is None or reached is None:
        return None, "it corrects the ODE, which is not integrated here"
    kicks = path.kicks_at(linear.annealed)
    why = too_noisy(drop * dim, float(kicks.max()), p)
    if why is not None:
        return None, why
    if reached < ALL:
        return None, f"only {reached:.0%} of the random starts reach the threshold"
    pushed = path.passages(dim, T, linear.squares * (1 + kicks))
    return ode + float((pushed - linear.every).mean()), None


def _noisy(
    setting: FlatSetting,
    path: MediocrePath,
    dim: int,
    T: float,
    linear: Passed,
    quenched: float | None,
) -> tuple[float | None, float | None, dict[str, str]]:
    """The forms with the noise of samples at any T d."""
    single = setting.problem.p == 1 and len(path.counts) == 1
    missing = {} if single else {"from_zero": "it is known for one neuron only"}
    if not setting.stationary:
        why = "it is known where norms and second layer stay as they are"
        return None, None, dict.fromkeys(("noisy", "from_zero"), why) | missing
    if T > SMALL:
        why = f"T = {T:g} is above {SMALL:g}, where growth is no longer linear in m"
        return None, None, dict.fromkeys(("noisy", "from_zero"), why) | missing
    if single:
        one = np.ones(1)
        kick = float(setting.flat.kicks(one, setting.groups[0])[0, 0])
        reach = float(path.risk[0] / -path.response[0, 0])
        noisy, zero = exit_of_one(dim, T, path.rate, kick, reach)
        return noisy, zero, missing
    time = _mean_path(setting, path, dim, T)
    spread = 0.0 if quenched is None else quenched - linear.annealed
    return time + spread, None, missing


def _mean_path(setting: FlatSetting, path: MediocrePath, dim: int, T: float) -> float:
    """When the mean of the risk passes the level, with the noise of samples."""
    flat, a = setting.flat, setting.groups[0]
    scale = np.exp(path.growth) + path.kicks * np.exp(path.growth)
    risk = path.risk + (path.response * scale) @ path.counts / dim
    if setting.problem.p > 1:
        between = flat.between(a)
        pairs = np.multiply.outer(flat.counts, flat.counts) - np.diag(flat.counts)
        t = path.times[:, None, None]
        fade = 2 * between.decay
        lasting = np.exp(-fade * t)
        still = np.abs(fade) < 1e-12
        made = np.where(still, t, (1 - lasting) / np.where(still, 1.0, fade))
        squares = lasting + between.kick * made
        risk = risk + (pairs * between.weight * squares).sum((1, 2)) / dim
    # the risk may first rise: the last passage of its mean, not an earlier touch
    level = (1 - T) * risk[0]
    above = np.flatnonzero(risk > level)
    i = int(above[-1]) if above.size else 0
    if i + 1 >= len(risk):
        return math.inf
    share = (risk[i] - level) / (risk[i] - risk[i + 1])
    return float(path.times[i] + share * (path.times[i + 1] - path.times[i]))
