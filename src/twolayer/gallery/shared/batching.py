"""What the figures of batch size share: problems, laws, and measured weak recovery that
resumes.

    ratio = γ0 s²/(2 c n0):
        on the noise line, the unstable point over the start to the power ℓ − 2

A ratio well below 1 keeps the noise weak on the line itself; a large one makes sure
that nothing is learned below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import twolayer as tl
from twolayer.gallery.shared.parts import part
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.statistics import Fit

if TYPE_CHECKING:
    from twolayer.analysis.weak_recovery import WeakRecovery

__all__ = [
    "ALGORITHMS",
    "SHARE",
    "batch_of",
    "fit_of",
    "hermite",
    "law",
    "recovered",
    "rounding",
]

ALGORITHMS: dict[str, Options] = {
    "SGD": {"loss": "squared", "geometry": "projected"},
    "correlation": {"loss": "correlation", "geometry": "projected"},
    "spherical": {"loss": "squared", "geometry": "spherical"},
}
"""The three algorithms by the names of the figures."""

SHARE = 0.06
"""Part of an exponent that finite dimensions and finite steps may take."""


def hermite(ell: int, width: int = 1) -> tl.Problem:
    """Target and activation h_ℓ, one direction."""
    return (
        tl.Problem(f"h{ell}(z1)", f"h{ell}", width)
        if ell > 1
        else tl.Problem("z1", "linear", width)
    )


def law(algorithm: str, mu: float, delta: float, gamma: float, n0: float) -> tl.SGD:
    """One of the three algorithms with lr = γ0 d^(−δ) and batches of n0 d^μ."""
    batch = n0 * tl.d**mu if mu else round(n0)
    return tl.SGD(lr=gamma * tl.d**-delta, batch=batch, **ALGORITHMS[algorithm])


def batch_of(algorithm: str, ell: int, gamma: float, ratio: float) -> float:
    """n0 that gives the ratio of noise to drift at prefactor γ0."""
    loss = ALGORITHMS[algorithm]["loss"]
    noise = tl.moments(hermite(ell), tl.Overlaps([[1.0]], [[0.0]]), loss=loss).chi[0, 0]
    return float(gamma * noise / (2 * ell * ratio))


def recovered(
    key: str,
    problem: tl.Problem,
    algorithm: tl.SGD,
    dims: tuple[int, ...],
    seed: int,
    **options: Any,
) -> WeakRecovery:
    """Measured weak recovery, kept as a piece of the figure."""
    from twolayer.analysis.weak_recovery import (
        WeakRecovery,
        growth_of,
        threshold_of,
    )

    def compute() -> Variables:
        runs = tl.weak_recovery(problem, algorithm, dims, seed=seed, **options)
        return {
            "steps": runs.steps,
            "limits": runs.limits,
            "gaussian": [s == "gaussian" for s in runs.batch_sums],
        }

    data = part(key, compute)
    sums = tuple("gaussian" if g else "exact" for g in data.gaussian.values)
    growth = growth_of(problem, algorithm)
    limits = tuple(int(x) for x in data.limits.values)
    return WeakRecovery(
        problem,
        algorithm,
        threshold_of(problem, options.get("threshold")),
        dims,
        data.steps.values,
        limits,
        sums,
        growth,
    )


def fit_of(run: WeakRecovery) -> Fit | None:
    """The exponent that runs show, with the error of the runs: `SHARE` allows for the
    rest.
    """
    law = run.law(start=False)
    return None if law is None else law.fit


def rounding(run: WeakRecovery) -> float:
    """What half a step at either end of the dimensions does to the exponent: it counts
    where steps are few.
    """
    known = [
        (n, m.value)
        for n, m in zip(run.dims, run.medians, strict=True)
        if np.isfinite(m.value)
    ]
    if len(known) < 2:
        return 0.0
    (first, least), (last, most) = known[0], known[-1]
    return float(0.5 * (1 / least + 1 / most) / np.log(last / first))
