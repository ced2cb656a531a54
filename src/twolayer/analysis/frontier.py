"""The compute-optimal frontier of a family of runs, and whether it is a power law.

    C = compute(size, steps),   R(C) = min over sizes of the risk at C
    local exponent −dlogR/dlogC between points where one size gives way to the next

The envelope of finitely many curves goes up and down about a power law, once from one
size to the next: taken from change to change, local exponents do not. Their mean is the
exponent, their scatter its error. A change from one to the next that is larger, per
decade of C, than their scatter allows is no power law, and none is reported; scatter is
read off second differences, which a smooth drift does not enter. No floor is
subtracted: one that is there shows as a drift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from twolayer.numerics.errors import InputError, reject, require

__all__ = ["Frontier", "frontier"]

GRID = 2000  # points of C
RESOLUTION = 0.01  # exponents are not told apart below this, nor drifts per decade
SCATTER = 3.0  # standard deviations of a difference that are no drift
CHANGES = 4  # fewest points at which one size gives way to the next


@dataclass(frozen=True, eq=False)
class Frontier:
    """The lower envelope, and its exponents if it has some. Made by `frontier`.

    Attributes
    ----------
    compute, risk, size : array
        C, the smallest risk at that, and the size that has it.
    exponent, error, drift : float
        Mean of −dlogR/dlogC, its error, and its largest change per decade of C; NaN
        where there is no power law, but for the drift.
    size_exponent, size_error : float
        The same of the optimal size, size ~ C^x.
    local : array
        Local exponents, from one change of the optimal size to the next.
    power_law : bool
        Whether they drift by no more than their scatter.
    """

    compute: np.ndarray
    risk: np.ndarray
    size: np.ndarray
    exponent: float
    error: float
    drift: float
    size_exponent: float
    size_error: float
    local: np.ndarray
    power_law: bool

    def __str__(self) -> str:
        low, high = self.compute[0], self.compute[-1]
        where = f"between C = {low:.3g} and {high:.3g}"
        if not self.power_law:
            return (
                f"no power law here, {where}: the local exponent changes by"
                f" {self.drift:+.2g} per decade"
            )
        told = f"risk ~ C^−{self.exponent:.3f} ± {self.error:.3f} {where}"
        if np.isfinite(self.size_exponent):
            told += (
                f"; optimal size ~ C^{self.size_exponent:.2f} ± {self.size_error:.2f}"
            )
        return told


def frontier(
    curves: Mapping[int, Any] | Mapping[float, Any],
    compute: Callable[[float, np.ndarray], np.ndarray] | None = None,
    *,
    window: tuple[float, float] | None = None,
) -> Frontier:
    """The compute-optimal frontier of runs of several sizes.

    Parameters
    ----------
    curves : dict
        By size (features, neurons, parameters) a pair (steps, risk), or a result of
        `solve`, whose steps and mean risk are taken.
    compute : callable, optional
        ``compute(size, steps)``, increasing in the steps; ``size·steps`` by default.
    window : tuple, optional
        Smallest and largest C that count; all that at least two sizes reach by default.

    Examples
    --------
    >>> steps = np.geomspace(1, 1e7, 200)
    >>> curves = {N: (steps, N**-1.0 + steps**-0.5) for N in 2.0 ** np.arange(2, 12)}
    >>> print(frontier(curves, window=(1e3, 1e7)))
    risk ~ C^−0.333 ± 0.010 between C = 1e+03 and 1e+07; optimal size ~ C^0.33 ± 0.01
    """
    if not isinstance(curves, Mapping) or len(curves) < 2:
        reject("curves", curves, "a table of at least two curves by their size")
    cost = compute or (lambda size, steps: size * steps)
    sizes = np.array(sorted(curves), float)
    require(bool((sizes > 0).all()), "curves", sizes.tolist(), "positive sizes")
    check_clocks(curves)
    ordered = sorted(curves.items())
    each = [_curve(size, curve, cost) for size, curve in ordered]
    low = min(x[0] for x, _ in each)
    high = sorted(x[-1] for x, _ in each)[-2]
    if window is not None:
        low, high = max(low, np.log10(window[0])), min(high, np.log10(window[1]))
    if not high > low:
        raise InputError(
            "Argument `curves` must share an interval of compute, but none is reached"
            " by two of them: give longer runs, or more sizes."
        )
    grid = np.linspace(low, high, GRID)
    values = np.stack(
        [np.interp(grid, x, y, left=np.inf, right=np.inf) for x, y in each]
    )
    best = values.argmin(0)
    risk = values.min(0)
    change = np.flatnonzero(np.diff(best))
    if len(change) < CHANGES:
        raise InputError(
            f"Argument `curves` must have at least {CHANGES + 1} sizes that are optimal"
            f" one after the other, but has {len(change) + 1} between C ="
            f" {10**low:.3g} and {10**high:.3g}: give more sizes, or longer runs."
        )
    at = (grid[change] + grid[change + 1]) / 2
    local = -np.diff(np.interp(at, grid, risk)) / np.diff(at)
    drift, law = _drift(at, local)
    exponent, error = _mean(local)
    between = np.log10(sizes)[np.stack([best[change], best[change + 1]])].mean(0)
    size, size_error = _mean(np.diff(between) / np.diff(at))
    known = np.array([exponent, error, size, size_error])
    exponent, error, size, size_error = known if law else np.full(4, np.nan)
    return Frontier(
        10**grid,
        10**risk,
        sizes[best],
        float(exponent),
        float(error),
        drift,
        float(size),
        float(size_error),
        local,
        law,
    )


def check_clocks(curves: Mapping[int, Any] | Mapping[float, Any]) -> None:
    """Refuse results whose steps are counted in different units."""
    units = {
        x.step.attrs.get("units", "") or "1" if isinstance(x, xr.Dataset) else "1"
        for x in curves.values()
    }
    if len(units) > 1:
        raise InputError(
            "Argument `curves` must count steps on one clock, but they are in units of"
            f" {' and '.join(sorted(units))}: give starts that have a `dim`."
        )


def _curve(
    size: float, given: Any, cost: Callable[[float, np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Log C and log R of one size, from the first step on."""
    if isinstance(given, xr.Dataset):
        given = given.step.values, given.risk.mean("seed").values
    try:
        steps, risk = (np.asarray(x, float).ravel() for x in given)
    except (TypeError, ValueError):
        reject("curves", given, "pairs (steps, risk)")
    fine = len(steps) == len(risk) and bool(
        np.isfinite(risk).all() and (risk > 0).all() and (np.diff(steps) > 0).all()
    )
    if not fine:
        raise InputError(
            f"Argument `curves` must hold positive risks along increasing steps, but at"
            f" size {size:g} it does not."
        )
    later = steps > 0
    C = np.asarray(cost(float(size), steps[later]), float)
    if not (later.sum() > 1 and (C > 0).all() and (np.diff(C) > 0).all()):
        raise InputError(
            "Argument `compute` must be positive and increase with the steps, but at"
            f" size {size:g} it does not."
        )
    return np.log10(C), np.log10(risk[later])


def _mean(local: np.ndarray) -> tuple[float, float]:
    """Mean of local exponents, and its error."""
    error = local.std(ddof=1) / np.sqrt(len(local))
    return float(local.mean()), float(max(error, RESOLUTION))


def _drift(at: np.ndarray, local: np.ndarray) -> tuple[float, bool]:
    """The largest change per decade of local exponents between the points ``at``, and
    whether their scatter allows it.
    """
    centres = (at[1:] + at[:-1]) / 2
    apart = np.diff(centres)
    change = np.diff(local) / apart
    scatter = np.sqrt((np.diff(local, 2) ** 2).mean() / 6)
    allowed = SCATTER * np.sqrt(2) * scatter / apart + RESOLUTION
    worst = int(np.argmax(np.abs(change) / allowed))
    # a drift in one direction adds up, where scatter does not
    whole = (local[-1] - local[0]) / (centres[-1] - centres[0])
    steady = SCATTER * np.sqrt(2) * scatter / (centres[-1] - centres[0]) + RESOLUTION
    if abs(change[worst]) > allowed[worst]:
        return float(change[worst]), False
    return float(whole), bool(abs(whole) <= steady)
