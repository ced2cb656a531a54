"""What the figures of escape share: the problem, measured first passages, and what
predictions leave out.

The corrected escape time holds for T d ≫ 1 + s, with relative corrections of that ratio
inside its logarithm: the allowance of a verdict. One neuron has excess risk 2 (1 − m²),
so that it has fallen by T at m² = T + (1 − T) m_0².
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import twolayer as tl
from twolayer.numerics.arguments import Array
from twolayer.numerics.errors import choice
from twolayer.task.method import Method

if TYPE_CHECKING:
    from twolayer.analysis.escape import EscapeTime
    from twolayer.analysis.passage_times import Passage

__all__ = [
    "SPHERES",
    "crossing",
    "growth",
    "measured",
    "on_sphere",
    "phase_retrieval",
    "predicted",
    "slope",
]

SPHERES = ("projected", "spherical")
"""Geometries with weights of norm one: without it the theory of escape does not
hold.
"""

PIECES = 64
"""A run stops at the first of so many save points at which all its seeds have
crossed.
"""

PLAIN = 1000.0
"""T d from which m_0² of a start may be its mean, 1/d: single exits move by 1/(T d) of
1/(4c), their mean does not.
"""


def phase_retrieval(width: int = 1, noise: float = 0.0) -> tl.Problem:
    """σ = x² and y = z1² + noise: the problem of all these figures."""
    return tl.Problem("z1**2", "square", width=width, noise=noise)


def on_sphere(gamma: float, geometry: str, **options: Any) -> tl.SGD:
    """SGD with lr = γ/d and weights of norm one."""
    return tl.SGD(
        lr=gamma * tl.d**-1, geometry=choice("geometry", geometry, SPHERES), **options
    )


def crossing(times: np.ndarray, values: np.ndarray, level: float) -> float:
    """First time at which saved values are at a level, on a straight line between two
    of them; infinite if none is.

    Examples
    --------
    >>> crossing(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.2, 0.6]), 0.4)
    1.5
    """
    above = np.flatnonzero(values >= level)
    if not above.size:
        return float("inf")
    i = max(int(above[0]), 1)
    return float(np.interp(level, values[i - 1 : i + 1], times[i - 1 : i + 1]))


def slope(x: Array, y: Array, error: Array) -> tuple[float, float]:
    """Slope of a straight line through numbers with standard errors, and its own
    standard error.
    """
    x, y, weight = np.asarray(x), np.asarray(y), np.asarray(error) ** -2.0
    centred = x - np.average(x, weights=weight)
    size = (weight * centred**2).sum()
    return float((weight * centred * y).sum() / size), float(size**-0.5)


def growth(problem: tl.Problem, rho: float) -> tuple[float, float]:
    """Rate c of the overlaps at ρ = γ/p, and s, by how much noise multiplies the
    variance of the start less one.
    """
    from twolayer.analysis.optimal_lr import growth_rate, noise_gain

    return growth_rate(problem, rho), noise_gain(problem, rho)


class Prediction(NamedTuple):
    """Escape times of the formulas, how long to run for their measurement, and what
    they leave out.
    """

    theory: EscapeTime
    end: float
    allowance: float


def predicted(
    problem: tl.Problem, algorithm: tl.SGD, dim: int, threshold: float, seed: int = 0
) -> Prediction:
    """The formulas at the rate of an algorithm; a start closer to m = 0 than the end
    allows for is not met.
    """
    c, s = growth(problem, algorithm.lr.coefficient / problem.p)
    theory = tl.escape_time(problem, algorithm, dim, threshold, seed=seed)
    assert theory.ode is not None
    return Prediction(
        theory, 4 * theory.ode + 5 / c, (1 + s) / (threshold * dim) / (2 * c)
    )


def measured(
    problem: tl.Problem,
    algorithm: tl.SGD,
    method: Method,
    starts: tl.Overlaps,
    threshold: float,
    end: float,
    seed: int,
) -> Passage:
    """First passages of the excess risk through (1 − T) of its start, from the given
    starts.

    The overlap of one neuron is watched where it says the same: a chain is ten times
    faster without the risk.
    """
    until = tl.Until("excess_risk", 1 - threshold, relative=True)
    if problem.p == 1 and starts.dim is not None and threshold * starts.dim >= PLAIN:
        until = tl.Until("overlap", (threshold + (1 - threshold) / starts.dim) ** 0.5)
    run = tl.solve(
        problem,
        algorithm,
        method,
        starts,
        time=end,
        save=PIECES,
        seed=seed,
        until=until,
        throw=False,
    )
    return tl.escape.first_passage(run)
