"""The risk along whole trajectories.

    excess_risk = ½ E[(h − f)²] = ½ ( E[h²] − (2/N) Σ_j a_j E[h σ_j]
        + (1/N²) Σ_jl a_j a_l E[σ_j σ_l] )
    risk = excess_risk + ½ E Var(y|z);
        where labels flip, h stands for the mean label (1 − 2q) h

Only one- and two-field averages occur, so this stays cheap and accurate even where chi
has to be sampled.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import numpy as np

from twolayer.gaussian.engines import Engine, select
from twolayer.numerics.precision import float64
from twolayer.numerics.types import Numbers, Tree
from twolayer.task.problem import Problem

__all__ = ["excess_risks", "irreducible"]

BUDGET = 2e9  # terms for one trajectory dataset
CHEAP = 2**19  # terms that take a few milliseconds
COARSE_POINTS = 13  # Sobol points (log2) when a trajectory has very many save points


@eqx.filter_jit
def _batch(engine: Engine, points: Tree) -> Numbers:
    return jax.vmap(engine.excess_risk)(*points)


def _filled(x: np.ndarray, size: int) -> np.ndarray:
    """Whole batches only, the last point repeated: one compiled shape for all
    counts.
    """
    return (
        x
        if len(x) == size
        else np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)])
    )


@float64
def irreducible(problem: Problem) -> float:
    """½ E Var(y|z): Δ/2, and what flips add; infinite where the noise has no variance.

    Examples
    --------
    >>> round(irreducible(Problem("sign(z1)", "erf", noise=0.1, flips=0.2)), 6)
    0.37
    """
    if problem.noise > 0 and problem.labels.law.moments <= 2:
        return math.inf
    if not problem.labels.flips:
        return problem.noise / 2
    return float(select(problem, "squared").engine.irreducible(problem.noise))


@float64
def excess_risks(
    problem: Problem,
    Q: np.ndarray,
    M: np.ndarray,
    a: np.ndarray,
    affordable: int | None = None,
) -> tuple[np.ndarray, str]:
    """Excess risk at every point of arrays with common leading axes, and the rule used.

    The rule must be cheap enough for all points, or for ``affordable`` points where the
    choice is not to depend on how many happen to be evaluated together.

    Cost: closed forms O(p² + p k) per point; otherwise at most 2·10⁹ terms in all.

    Examples
    --------
    >>> problem = Problem("He2(z1)", "He2")
    >>> M = np.array([0.0, 0.5, 1.0]).reshape(3, 1, 1)
    >>> risk, rule = excess_risks(problem, np.ones((3, 1, 1)), M, np.ones((3, 1)))
    >>> risk.round(6).tolist(), rule
    ([2.0, 1.5, 0.0], 'closed form (quadratic)')
    """
    lead, p = Q.shape[:-2], problem.p
    count = int(np.prod(lead))
    engine = select(problem, "squared").engine
    if engine.risk_work(p) * (affordable or count) > BUDGET:
        engine = select(
            problem, "squared", engine="sobol", log2_points=COARSE_POINTS
        ).engine
    flat = [x.reshape(count, *x.shape[len(lead) :]) for x in (Q, M, a)]
    most, terms = (
        (4096, 2**21) if jax.default_backend() == "cpu" else (2**20, 2**25)
    )  # every call costs a transfer
    work = max(min(engine.risk_work(p), terms), p * p)
    least = (
        256 if work * 256 < CHEAP else 1
    )  # so that a few points and a trajectory are one compiled shape
    size = int(
        np.clip(terms // work, 1, min(most, max(least, 2 ** count.bit_length())))
    )
    parts = [
        _batch(engine, tuple(_filled(x[i : i + size], size) for x in flat))
        for i in range(0, count, size)
    ]
    return (
        np.concatenate([np.asarray(x) for x in parts])[:count].reshape(lead),
        engine.label.split(";")[0],
    )
