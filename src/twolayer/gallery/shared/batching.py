"""What the figures of batch size share: problems, laws, measured weak recovery that resumes, and how it is judged.

    ratio = γ0 s²/(2 c n0):    on the noise line, the unstable point over the start to the power ℓ − 2

A ratio well below 1 keeps the noise weak on the line itself; a large one makes sure that nothing is learned below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

import twolayer as tl
from twolayer.gallery.shared.measuring import LIMIT
from twolayer.gallery.shared.parts import part

if TYPE_CHECKING:
    from twolayer.analysis.weak_recovery import WeakRecovery

__all__ = ["ALGORITHMS", "SHARE", "batch_of", "hermite", "law", "median_points", "near", "recovered", "resolution"]

ALGORITHMS: dict[str, dict[str, Any]] = {
    "SGD": {"loss": "squared", "geometry": "projected"},
    "correlation": {"loss": "correlation", "geometry": "projected"},
    "spherical": {"loss": "squared", "geometry": "spherical"},
}
"""The three algorithms by the names of the figures."""

SHARE = 0.06
"""Part of an exponent that finite dimensions and finite steps may take."""


def hermite(ell: int, width: int = 1) -> tl.Problem:
    """Target and activation h_ℓ, one direction."""
    return tl.Problem(f"h{ell}(z1)", f"h{ell}", width) if ell > 1 else tl.Problem("z1", "linear", width)


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
    key: str, problem: tl.Problem, algorithm: tl.SGD, dims: tuple[int, ...], seed: int, **options: Any
) -> WeakRecovery:
    """Measured weak recovery, kept as a piece of the figure."""
    from twolayer.analysis.weak_recovery import WeakRecovery, growth_of

    def compute() -> dict[str, Any]:
        runs = tl.weak_recovery(problem, algorithm, dims, seed=seed, **options)
        return {"steps": runs.steps, "limits": runs.limits, "gaussian": [s == "gaussian" for s in runs.batch_sums]}

    data = part(key, compute)
    sums = tuple("gaussian" if g else "exact" for g in data.gaussian.values)
    growth = growth_of(problem, algorithm)
    limits = tuple(int(x) for x in data.limits.values)
    return WeakRecovery(problem, algorithm, options.get("level", 0.5), dims, data.steps.values, limits, sums, growth)


def near(theta: float | None, error: float | None, expected: float, share: float = SHARE) -> bool:
    """Whether a measured exponent is what is expected, within errors and the share of finite sizes."""
    return theta is not None and abs(theta - expected) <= LIMIT * (error or 0.0) + share


def resolution(run: WeakRecovery) -> float:
    """What half a step at either end of the dimensions does to the exponent: it counts where steps are few."""
    known = [(n, m.value) for n, m in zip(run.dims, run.medians, strict=True) if np.isfinite(m.value)]
    if len(known) < 2:
        return 0.0
    (first, least), (last, most) = known[0], known[-1]
    return float(0.5 * (1 / least + 1 / most) / np.log(last / first))


def median_points(ax: Axes, x: Any, runs: Any, colour: str, label: str, marker: str = "o", factor: Any = 1.0) -> None:
    """Medians with their intervals; open ends stop at the axes."""
    scale = np.broadcast_to(factor, len(runs))
    known = [i for i, m in enumerate(runs) if np.isfinite(m.value)]
    middle, low, high = (np.array([getattr(runs[i], k) for i in known]) for k in ("value", "low", "high"))
    bars = [middle - np.maximum(low, 0), np.where(np.isfinite(high), high, middle) - middle]
    ax.errorbar(
        np.asarray(x, dtype=float)[known],
        middle * scale[known],
        np.maximum(bars, 0) * scale[known],
        fmt=marker,
        color=colour,
        ms=4.5,
        capsize=2.5,
        lw=1.2,
        label=label,
        zorder=5,
    )
