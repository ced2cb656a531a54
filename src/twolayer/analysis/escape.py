"""Escaping mediocrity: how long SGD needs to leave a random start that is flat.

    (EXT)      R(t_ext) = (1 − T) R(0),    excess risk,   steps = t N/lr
    annealed   the linearised equations at the mean of the random start
    quenched   the same averaged over it
    ode        the mean over random starts of the whole ODE
    corrected  ode less what the noise of single samples saves: it multiplies the
               variance of each overlap by 1 + s
    noisy      with the noise of single samples at any T d, while growth is linear
    from zero  the mean exit time of a start at M = 0, which the ODE never leaves

Three theories give the linearised equations. Phase retrieval with rows of norm one and
a fixed second layer has closed forms (escape_formulas.py). Even activations and single
neurons have averages in one dimension, along the path on which norms and second layer
relax (mediocrity.py, mediocre_path.py). Everything else has the Jacobian of the
averages (mediocre_jacobian.py).

Where they hold: the linearised times while growth is linear, which is known from the
ODE, and for several neurons where T d ≫ 1, for the overlaps between neurons alone
change the risk of a random start by a fraction 1/d; the correction where T d ≫ 1 + s,
for the noise moves these overlaps too. A formula that does not hold is not evaluated,
and ``missing`` says why.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from twolayer.analysis.alike_neurons import FOLLOWED, Alike
from twolayer.analysis.escape_formulas import (
    LINEAR,
    RESOLVED,
    FollowedStarts,
    check_threshold,
    growth_of,
    least_threshold,
    noise_strength_of,
    retrieval_result,
    retrieval_times,
)
from twolayer.analysis.escape_measured import foreseen_escape, measure_escape
from twolayer.analysis.escape_result import EscapeTime
from twolayer.analysis.escape_setting import FlatSetting, Retrieval
from twolayer.analysis.flat_times import flat_result
from twolayer.analysis.jacobian_times import jacobian_result
from twolayer.analysis.optimal_lr import require_growth
from twolayer.numerics.arguments import Progress
from twolayer.numerics.errors import InputError, positive_integer
from twolayer.numerics.random import check_seed
from twolayer.numerics.statistics import standard_error
from twolayer.running.cost import Cost
from twolayer.running.support import check_description
from twolayer.task.algorithm import SGD
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = [
    "EscapeTime",
    "escape_time",
    "foreseen",
    "passage_law",
    "resolved_threshold",
]

STARTS = 32  # random starts of the ODE
FEW = 10  # neurons up to which starts differ so much that they are followed one by one


def escape_time(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: float | None = 0.1,
    *,
    samples: int = 20_000,
    seed: int = 0,
    measure: int | None = None,
    progress: Progress = None,
) -> EscapeTime:
    """When the excess risk has fallen to (1 − threshold) of its start, from a random
    start on the sphere.

    Parameters
    ----------
    problem : Problem
        One whose start is flat: the target has no component that the student sees at
        first order, such as ``Problem("z1**2", "square", width=p, noise=Δ)``.
    algorithm : SGD
        Free, projected or spherical, with a fixed or a trained second layer, on fresh
        samples and the squared loss.
    dim : int
        d.
    threshold : float, optional
        T in (0, 1). None: the least for which the noise of samples is known, from 0.01
        to 0.03 of the risk of the plateau.
    samples : int
        Random starts for the quenched average, where it is not an integral.
    seed : int
        Of the random starts.
    measure : int, optional
        Runs of the exact chain to measure beside the formulas, with a verdict.
    progress : bool or Monitor, optional
        As for `solve`, of the measurement.

    Returns
    -------
    EscapeTime
        ``.annealed``, ``.quenched``, ``.corrected``, … in time; ``.steps`` has the same
        in steps. What lies outside the range of its formula is None, and ``.missing``
        says why. ``print`` shows a table.

    Notes
    -----
    Cost: milliseconds for phase retrieval of any width, about a second where norms or
    the second layer move, some seconds where the ODE is integrated from 32 starts.

    Examples
    --------
    >>> problem = Problem("z1**2", "square")
    >>> times = escape_time(
    ...     problem, SGD(lr="0.0833/d", geometry="projected"), dim=1000, threshold=0.1
    ... )
    >>> round(times.annealed, 3), round(times.quenched, 3), round(times.corrected, 2)
    (1.153, 1.47, 1.32)
    """
    check_description(problem, algorithm)
    algorithm.check_gradient_steps("tl.escape_time")
    algorithm.check_plain("escape_time")
    dim = positive_integer("dim", dim, 2)
    samples = positive_integer("samples", samples, STARTS)
    seed = check_seed(seed)
    if measure is not None:
        measure = positive_integer("measure", measure, 2)
    setting = FlatSetting.of(problem, algorithm, dim)
    known = setting.retrieval
    if known is not None:
        times = _of_retrieval(setting, known, dim, threshold, seed)
    elif setting.one_by_one:
        times = flat_result(setting, dim, threshold, samples, seed)
    else:
        times = jacobian_result(setting, dim, threshold, samples, seed)
    if measure is None:
        return times
    measured = measure_escape(setting, times, measure, seed, progress)
    return dataclasses.replace(times, measured=measured)


def foreseen(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: float | None,
    measure: int,
    seed: int,
) -> Cost:
    """What the measurement of `escape_time` with these arguments would take."""
    times = escape_time(problem, algorithm, dim, threshold, seed=seed)
    runs = positive_integer("measure", measure, 2)
    return foreseen_escape(FlatSetting.of(problem, algorithm, dim), times, runs, seed)


def _of_retrieval(
    setting: FlatSetting, known: Retrieval, dim: int, threshold: float | None, seed: int
) -> EscapeTime:
    """Phase retrieval with rows of norm one, from its closed forms."""
    p, noise, unit = known
    rho = setting.rho * unit
    require_growth(setting)
    T = (
        least_threshold(p, dim, rho, noise)
        if threshold is None
        else check_threshold(threshold)
    )
    integrated = None
    if 1 < p <= FEW:
        integrated = _integrated(setting, known, dim, T, seed)
    times = retrieval_times(p, dim, T, rho, noise, integrated)
    if times.reached is not None and times.reached < 0.5:
        count = STARTS if integrated is not None else 1
        raise InputError(
            "Argument `threshold` must be reached by the ODE, but from"
            f" {count} random starts at d = {dim} only {round(times.reached * count)}"
            f" reach {T} with {setting.algorithm.lr}: neurons align before they learn,"
            " and their risk then stops falling. Use a smaller threshold, or"
            " d·lr/(p·n_b) < 1/6."
        )
    batch = setting.scale / setting.problem.divisor
    return retrieval_result(
        times, p, dim, T, rho, noise, batch, unit, setting.problem.divisor
    )


def _integrated(
    setting: FlatSetting, known: Retrieval, dim: int, T: float, seed: int
) -> FollowedStarts:
    """The ODE from random starts: start by start it is close to the formula, so that
    only their difference is averaged over the few.
    """
    from twolayer.analysis.escape_formulas import quenched_time

    p, noise, unit = known
    rho = setting.rho * unit
    c = growth_of(p, noise, rho)
    starts = Overlaps.random(setting.problem, dim, seed, size=STARTS)
    m = _normalised(setting, starts)
    alike = Alike(np.ones(p), rho, noise)
    longest = FOLLOWED * (math.log(T * dim + 1) / (2 * c) + 2 / c)
    every = zip(m, starts.Q, strict=True)
    passed = np.array([alike.passage(own, T, longest, Q) for own, Q in every])
    crossed = np.isfinite(passed)
    reached = float(crossed.mean())
    if not crossed.sum() > 1:
        return FollowedStarts(math.inf, 0.0, reached)
    if T * dim < LINEAR:
        own = passed[crossed]
        return FollowedStarts(float(own.mean()), float(standard_error(own)), reached)
    beyond = (passed - _linear(m, starts.Q, dim, T, c))[crossed]
    time = quenched_time(p, dim, T, c) + float(beyond.mean())
    return FollowedStarts(time, float(standard_error(beyond)), reached)


def _normalised(setting: FlatSetting, starts: Overlaps) -> np.ndarray:
    """Overlaps (starts, p) with a target of norm one."""
    return np.asarray(starts.M[..., 0] / math.sqrt(float(setting.problem.P[0, 0])))


def passage_law(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: float = 0.1,
    *,
    samples: int = 20_000,
    seed: int = 0,
) -> np.ndarray:
    """The quenched formula at random starts: the law of escape times that the start
    alone brings about.

    Its mean is ``escape_time(…).quenched``, up to the error of sampling.

    Parameters
    ----------
    problem, algorithm, dim, threshold
        As for `escape_time`, of phase retrieval.
    samples : int
        How many starts are drawn.
    seed : int
        Of these starts.

    Examples
    --------
    >>> problem, algorithm = (
    ...     Problem("z1**2", "square"),
    ...     SGD(lr="0.0833/d", geometry="projected"),
    ... )
    >>> float(passage_law(problem, algorithm, 1000).mean().round(1))
    1.5
    """
    dim = positive_integer("dim", dim, 2)
    setting = FlatSetting.of(problem, algorithm, dim)
    p, noise, unit = _require_retrieval(setting)
    require_growth(setting)
    T = check_threshold(threshold)
    count = positive_integer("samples", samples)
    starts = Overlaps.random(problem, dim, seed, size=count)
    c = growth_of(p, noise, setting.rho * unit)
    return _linear(_normalised(setting, starts), starts.Q, dim, T, c) / unit


def _require_retrieval(setting: FlatSetting) -> Retrieval:
    if setting.retrieval is None:
        raise InputError(
            "This formula holds for phase retrieval with rows of norm one and a fixed"
            " second layer (Problem('z1**2', 'square', width=p, noise=Δ)), but got"
            f" {setting.problem!r} and {setting.algorithm!r}."
        )
    return setting.retrieval


def _linear(m: np.ndarray, Q: np.ndarray, dim: int, T: float, c: float) -> np.ndarray:
    """The quenched formula of phase retrieval at given starts."""
    p = m.shape[1]
    mu = dim * (m**2).sum(1)
    tau = dim * ((Q**2).sum((1, 2)) - p)
    level = T * p * (p + 1) * dim + (2 * p * mu - tau) * (1 - T)
    return np.asarray(np.log(level / (2 * p * mu)) / (2 * c))


def resolved_threshold(problem: Problem, algorithm: SGD, dim: int) -> float:
    """The smallest T at which the correction by the noise of samples is given, of phase
    retrieval.
    """
    setting = FlatSetting.of(problem, algorithm, dim)
    p, noise, unit = _require_retrieval(setting)
    require_growth(setting)
    rho = setting.rho * unit
    s = rho * noise_strength_of(p, noise) / (2 * growth_of(p, noise, rho))
    return RESOLVED["one" if p == 1 else "several"] * (1 + s) / dim
