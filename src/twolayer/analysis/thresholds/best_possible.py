"""The best that n = αd samples allow: overlaps, prediction error, and the phase that is
possible but hard.

    uninformed     what state evolution reaches from nothing: Bayes-optimal message
                   passing
    informed       what it reaches from full knowledge
    equilibrium    the one with the larger free entropy: the best possible whatever the
                   computation costs
    hard phase     α_IT < α < α_alg: the equilibrium is better than what is reached from
                   nothing

One direction has a curve α(q) on which all of this is read off. For several, both fixed
points are followed over the α that are asked for; where they part and where they meet
again is bisected, and α_IT is where the difference of their free entropies passes zero,
on a straight line between two of the α.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from twolayer.analysis.thresholds.amp import MessagePassing, simulate
from twolayer.analysis.thresholds.label_law import LabelLaw, law_of
from twolayer.analysis.thresholds.one_direction import Curve, curve_of
from twolayer.analysis.thresholds.prediction_error import mmse_of
from twolayer.analysis.thresholds.state_evolution import FULL, StateEvolution
from twolayer.functions.target import Target, TargetLike
from twolayer.numerics.arguments import Array, Progress
from twolayer.numerics.errors import Interrupted, reject, require
from twolayer.numerics.statistics import standard_error
from twolayer.running.progress import listener_for
from twolayer.task.problem import Problem

__all__ = ["BRANCHES", "BestPossible", "best_possible"]

BRANCHES = ("uninformed", "informed", "equilibrium")
REPLICATES = 3
APART = (
    0.05  # difference of traces from which on two sampled fixed points are different
)
HALVINGS = 4  # of the interval in which sampled fixed points part or meet


@dataclass(frozen=True, eq=False)
class BestPossible:
    """State evolution over a range of α. Made by `best_possible`.

    Attributes
    ----------
    target : Target
    noise : float
    data : xarray.Dataset
        ``overlap (branch, alpha, direction, direction_)`` and ``mmse (branch, alpha)``,
        with their errors; the branches are uninformed, informed and equilibrium; the
        first alone where the search was interrupted.
    spinodal, information, algorithm : float or None
        Where an informed fixed point appears, where it becomes the equilibrium, and
        where it is reached from nothing; None where the two branches never differ at
        the α that were asked for. Infinite where there is no such α; for several
        directions, where it lies beyond those asked for.
    threshold_error : float
        Largest error of those that are finite.
    """

    target: Target
    noise: float
    data: xr.Dataset
    spinodal: float | None
    information: float | None
    algorithm: float | None
    threshold_error: float
    law: LabelLaw = field(repr=False)
    curve: Curve | None = field(default=None, repr=False)

    @property
    def alphas(self) -> np.ndarray:
        """n/d."""
        return np.asarray(self.data.alpha.values)

    @property
    def overlap(self) -> np.ndarray:
        """Overlap matrices that message passing reaches from nothing, (alpha, k, k)."""
        return np.asarray(self.data.overlap.sel(branch="uninformed").values)

    @property
    def mmse(self) -> np.ndarray:
        """Mean-square error of its prediction for a fresh input, without the noise,
        (alpha,).
        """
        return np.asarray(self.data.mmse.sel(branch="uninformed").values)

    @property
    def excess_risk(self) -> np.ndarray:
        """mmse/2, to compare with ``excess_risk`` of runs."""
        return self.mmse / 2

    @property
    def error(self) -> float:
        """Largest error of an overlap."""
        return float(self.data.overlap_error.max())

    @property
    def complete(self) -> bool:
        """Whether all branches are there; False in what an interrupted search
        leaves.
        """
        return len(self.data.branch) == len(BRANCHES)

    @property
    def hard(self) -> tuple[float, float] | None:
        """The hard phase (α_IT, α_alg), or None."""
        if self.information is None or self.algorithm is None:
            return None
        return self.information, self.algorithm

    def simulate(
        self,
        alpha: float,
        dim: int = 1000,
        seeds: int = 4,
        seed: int = 0,
        **options: Any,
    ) -> MessagePassing:
        """Message passing on explicit data with this target and noise: ``seeds`` runs
        at dimension ``dim`` with ``alpha`` ·d samples, numbered from ``seed`` on.

        ``options`` are those of `twolayer.analysis.thresholds.amp.simulate`.
        """
        return simulate(self.law, alpha, dim, seeds, seed, **options)

    def __str__(self) -> str:
        lines = [
            f"target   {self.target.name}"
            + (f", noise {self.noise:g}" if self.noise else "")
        ]
        if not self.complete:
            lines.append(
                "interrupted: the best possible, and whether there is a hard phase, are"
                " not known"
            )
        elif self.hard is None:
            lines.append(
                "no hard phase: from nothing message passing reaches the best possible"
            )
        else:
            ends = [
                f"{x:.{6 if self.curve else 3}g}" if math.isfinite(x) else "∞"
                for x in self.hard
            ]
            if self.curve is None:
                ends = [
                    x if x != "∞" else f"beyond {self.alphas[-1]:.3g}" for x in ends
                ]
            lines.append(
                f"possible from α_IT = {ends[0]}, found from α_alg = {ends[1]}: hard"
                " between"
            )
            lines += (
                [f"thresholds are known to {self.threshold_error:.1g}"]
                if self.threshold_error > 1e-4
                else []
            )
        names = ("uninformed", "equilibrium") if self.complete else BRANCHES[:1]
        lines.append(
            "       α  overlap from nothing      mmse"
            + ("  best possible      mmse" if self.complete else "")
        )
        for i, alpha in enumerate(self.alphas):
            cells = []
            for name in names:
                row = self.data.sel(branch=name).isel(alpha=i)
                values = np.sort(np.linalg.eigvalsh(row.overlap.values))[::-1]
                cells.append(
                    f"{' '.join(f'{x:.4f}' for x in values):>20} "
                    f" {float(row.mmse):8.5f}"
                )
            lines.append(f"{alpha:8.4g}  {'  '.join(cells)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def best_possible(
    target: TargetLike | Problem,
    alphas: Array,
    noise: float | None = None,
    *,
    directions: int | None = None,
    gram: Array | None = None,
    progress: Progress = None,
) -> BestPossible:
    """State evolution of Bayes-optimal learning from n = αd samples, from nothing and
    from full knowledge.

    One direction: the whole curve α(q) is tabulated, and every α is read off it.
    Several directions: the map is iterated for each α in turn, with sampled averages,
    and a hard phase is seen where some of the α lie in it. Interrupted,
    `Interrupted.result` holds the α that are done.

    Parameters
    ----------
    target, noise, directions, gram, progress
        As for `thresholds`. With a Gram matrix overlaps are those of the coordinates u:
        L q Lᵀ, L = ``.law.frame``, are those of the fields.
    alphas : float or sequence of float
        n/d, positive.

    Examples
    --------
    >>> import twolayer as tl
    >>> best = tl.best_possible("tanh(z1)", [0.5, 2.0], noise=0.1)
    >>> best.overlap[:, 0, 0].round(4).tolist(), best.mmse.round(4).tolist(), best.hard
    ([0.3331, 0.8047], [0.2712, 0.086], None)
    """
    law = law_of(target, noise, directions, gram)
    grid = _checked(alphas)
    monitor = listener_for(progress)
    monitor.begin("best possible", 1.0)
    try:
        return (
            _on_a_curve(law, grid, monitor.update)
            if law.k == 1
            else _iterated(law, grid, monitor.update)
        )
    finally:
        monitor.finish()


def _checked(alphas: Array) -> np.ndarray:
    accepted = "positive finite numbers, such as [0.5, 1.0, 2.0]"
    try:
        grid = np.unique(np.asarray(alphas, dtype=float).ravel())
    except (TypeError, ValueError, OverflowError):
        reject("alphas", alphas, accepted)
    require(
        len(grid) > 0 and bool((np.isfinite(grid) & (grid > 0)).all()),
        "alphas",
        alphas,
        accepted,
    )
    return grid


def _on_a_curve(
    law: LabelLaw, grid: np.ndarray, tick: Callable[[float], None]
) -> BestPossible:
    curve = curve_of(law, tick)
    overlaps = np.array(
        [[f(float(a)) for a in grid] for f in (curve.climb, curve.fall, curve.best)]
    )[..., None, None]
    folds = curve.folded or (None, None, None)
    # relative errors of α(q) become errors of q through the slope of the curve
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # flat parts of α(q), as those of linear equations
        slope = np.gradient(
            curve.q, np.where(np.isfinite(curve.alpha), curve.alpha, np.nan)
        )
    steep = np.nan_to_num(
        np.abs(
            np.interp(
                overlaps[..., 0, 0],
                curve.q,
                np.nan_to_num(slope, posinf=0.0, neginf=0.0),
            )
        )
    )
    errors = curve.error * grid * np.minimum(steep, 1e3)
    known = [x for x in folds if x is not None and math.isfinite(x)]
    error = curve.error * max(known, default=0.0)
    return _result(
        law,
        grid,
        overlaps,
        np.minimum(errors, 1.0)[..., None, None],
        folds,
        error,
        curve,
    )


def _iterated(
    law: LabelLaw, grid: np.ndarray, tick: Callable[[float], None]
) -> BestPossible:
    eye, n = np.eye(law.k), len(grid)
    maps = [StateEvolution(law, seed) for seed in range(REPLICATES)]
    up: list[list[np.ndarray]] = []
    down: list[list[np.ndarray]] = []
    try:
        now = [np.zeros_like(eye)] * REPLICATES
        for alpha in grid:
            now = [m.climb(q, float(alpha)) for m, q in zip(maps, now, strict=True)]
            up.append(now)
            tick(0.5 * len(up) / n)
        now = [FULL * eye] * REPLICATES
        for alpha in grid[::-1]:
            now = [
                m.fixed_point(q, float(alpha)) for m, q in zip(maps, now, strict=True)
            ]
            down.append(now)
            tick(0.5 + 0.5 * len(down) / n)
        climbed, fallen = np.array(up), np.array(down[::-1])
        ends = _parted(maps, grid, climbed, fallen)
    except KeyboardInterrupt:
        if not up:
            raise
        means, errors = np.mean(up, 1)[None], standard_error(up, 1)[None]
        raise Interrupted(
            _result(law, grid[: len(up)], means, errors, (None, None, None), 0.0, None)
        ) from None
    return _sampled(law, grid, climbed, fallen, maps, ends)


def _parted(
    maps: list[StateEvolution], grid: np.ndarray, up: np.ndarray, down: np.ndarray
) -> tuple[float, float, float] | None:
    """Where the two branches part and where they meet again, and half of the intervals
    that are left; None if never.
    """
    apart = np.flatnonzero(np.trace(down - up, axis1=2, axis2=3).mean(1) > APART)
    if not len(apart):
        return None
    first, last = apart[0], apart[-1]

    def differ(alpha: float, low: np.ndarray, high: np.ndarray) -> bool:
        """By one of the replicates: they differ by less than the intervals that are
        left.
        """
        climbed = maps[0].climb(low[0], alpha)
        return float(np.trace(maps[0].fixed_point(high[0], alpha) - climbed)) > APART

    begin = [float(grid[first - 1]) if first else 0.0, float(grid[first])]
    nothing = up[first - 1] if first else np.zeros_like(up[0])
    end = [
        float(grid[last]),
        float(grid[last + 1]) if last + 1 < len(grid) else math.inf,
    ]
    for _ in range(HALVINGS):
        middle = sum(begin) / 2
        begin[differ(middle, nothing, down[first])] = middle
        if math.isfinite(end[1]):
            middle = sum(end) / 2
            end[not differ(middle, up[last], down[last + 1])] = middle
    left = (
        max(begin[1] - begin[0], end[1] - end[0] if math.isfinite(end[1]) else 0.0) / 2
    )
    return sum(begin) / 2, sum(end) / 2, left


def _sampled(
    law: LabelLaw,
    grid: np.ndarray,
    climbed: np.ndarray,
    fallen: np.ndarray,
    maps: list[StateEvolution],
    ends: tuple[float, float, float] | None,
) -> BestPossible:
    """Means over the replicates, and the equilibrium where the branches differ."""
    best = fallen.copy()
    apart = np.flatnonzero(np.trace(fallen - climbed, axis1=2, axis2=3).mean(1) > APART)
    leads = np.array(
        [
            [
                m.lead(q, r, float(grid[i]))
                for m, q, r in zip(maps, climbed[i], fallen[i], strict=True)
            ]
            for i in apart
        ]
    ).reshape(len(apart), REPLICATES)
    behind = apart[leads.mean(1) < 0]
    best[behind] = climbed[behind]
    overlaps = np.stack([x.mean(1) for x in (climbed, fallen, best)])
    errors = np.stack([standard_error(x, 1) for x in (climbed, fallen, best)])
    folds: tuple[float | None, float | None, float | None] = (None, None, None)
    error = 0.0
    if ends is not None:
        possible, spread = _crossed(grid[apart], leads, ends)
        folds, error = (ends[0], possible, ends[1]), max(ends[2], spread)
    return _result(law, grid, overlaps, errors, folds, error, None)


def _crossed(
    where: np.ndarray, leads: np.ndarray, ends: tuple[float, float, float]
) -> tuple[float, float]:
    """α_IT and its error: where the mean lead passes zero, or the ends of the interval
    in which branches differ.
    """
    mean = leads.mean(1)
    behind = np.flatnonzero(mean < 0)
    if not len(behind):
        return ends[0], (where[0] - ends[0]) / 2 + ends[2]
    i = int(behind[-1])
    if i + 1 == len(where):
        return ends[1], ends[2]
    share = mean[i] / (mean[i] - mean[i + 1])
    width = float(where[i + 1] - where[i])
    noise = float(standard_error(leads[i : i + 2], 1).max()) / (mean[i + 1] - mean[i])
    return float(where[i] + share * width), width * float(noise)


def _result(
    law: LabelLaw,
    grid: np.ndarray,
    overlaps: np.ndarray,
    errors: np.ndarray,
    folds: tuple[Any, Any, Any],
    error: float,
    curve: Curve | None,
) -> BestPossible:
    known: dict[bytes, tuple[float, float]] = {}
    for q in overlaps.reshape(-1, law.k, law.k):
        if q.tobytes() not in known:
            known[q.tobytes()] = mmse_of(law, q)
    found = np.array([[known[q.tobytes()] for q in row] for row in overlaps])
    lead, square = ("branch", "alpha"), ("direction", "direction_")
    full = law.basis.T @ overlaps @ law.basis
    data = xr.Dataset(
        {
            "overlap": ((*lead, *square), full),
            "overlap_error": (
                (*lead, *square),
                np.abs(law.basis.T) @ errors @ np.abs(law.basis),
            ),
            "mmse": (lead, found[..., 0]),
            "mmse_error": (lead, found[..., 1]),
        },
        {"branch": list(BRANCHES[: len(overlaps)]), "alpha": grid},
    )
    return BestPossible(law.target, law.noise, data, *folds, error, law, curve)
