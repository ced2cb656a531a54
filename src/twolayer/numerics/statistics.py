"""What repeated runs say: fractions, medians with late runs censored, and exponents, each with its interval.

    Wilson:  |p̂ − p| ≤ z √(p(1 − p)/n),  solved for p
    median:  the order statistics i, j with P(i ≤ Binomial(n, ½) < j) ≥ level; a censored run counts as later than all
    exponent:  log y = intercept + slope · log x,  weights 1/error²

Intervals of a fit use Student's t when the scatter of the points is what the error is taken from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from twolayer.numerics.arguments import Array
from twolayer.numerics.errors import InputError, positive_integer, reject

__all__ = [
    "Fit",
    "Fraction",
    "Median",
    "median",
    "median_power_law",
    "power_law",
    "resolved",
    "standard_error",
    "told",
    "wilson",
]

LEVEL = 0.95
"""Of intervals."""


def told(value: float, digits: int = 4) -> str:
    """A number as reports show it: unknown where it is not finite.

    >>> told(2.0), told(float("inf"))
    ('2', 'unknown')
    """
    return f"{value:.{digits}g}" if np.isfinite(value) else "unknown"


class Fraction(NamedTuple):
    """A fraction of successes with its Wilson interval."""

    value: float
    low: float
    high: float


class Median(NamedTuple):
    """A median with the interval between two order statistics; infinite where censored runs leave it open."""

    value: float
    low: float
    high: float

    def interval(self, digits: int = 4) -> str:
        """The interval of a quantity that is never negative; what too few or censored runs leave open is unknown.

        Examples
        --------
        >>> (
        ...     median([3.0, 1.0]).interval(),
        ...     median([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).interval(),
        ... )
        ('0 to unknown', '1 to 6')
        """
        low, high = (told(x, digits) for x in (max(self.low, 0.0), self.high))
        return f"{low} to {high}" if low != high or high != "unknown" else high


class Fit(NamedTuple):
    """A power law y = exp(intercept)·x^slope, the standard error of the slope, and the interval of the slope."""

    slope: float
    error: float
    intercept: float
    low: float
    high: float


def standard_error(values: Array, axis: int = 0) -> np.ndarray:
    """Standard error of the mean over an axis, by default that of the runs."""
    x = np.asarray(values)  # scipy.stats.sem is this line, and takes a second to import
    return np.asarray(x.std(axis, ddof=1) / np.sqrt(x.shape[axis]))


def wilson(successes: int, trials: int, level: float = LEVEL) -> Fraction:
    """Fraction of successes with the Wilson interval, which stays inside [0, 1] and is honest at 0 and 1."""
    positive_integer("trials", trials)
    if not 0 <= successes <= trials:
        reject("successes", successes, f"an integer from 0 to {trials}")
    if not 0 < level < 1:
        reject("level", level, "a number between 0 and 1")
    from scipy.stats import binomtest  # takes a second to import

    interval = binomtest(successes, trials).proportion_ci(level, method="wilson")
    return Fraction(successes / trials, float(interval.low), float(interval.high))


def median(values: Array) -> Median:
    """Median of values of which the largest may be infinite (censored), with its order-statistics interval.

    The interval holds for any law without atoms. With fewer than six values none reaches 95 %: its ends are then
    −∞ and ∞.
    """
    ordered = np.sort(np.asarray(values, dtype=float).ravel())
    n = len(ordered)
    if n == 0 or np.isnan(ordered).any():
        reject("values", values, "at least one number, none of them NaN")
    low, high = ordered[(n - 1) // 2], ordered[n // 2]
    middle = float(low if low == high else (low + high) / 2)
    # so many values may lie below the lower end
    cut = int(np.searchsorted(special.bdtr(np.arange(n), n, 0.5), (1 - LEVEL) / 2))
    if cut == 0:
        return Median(middle, -np.inf, np.inf)
    return Median(middle, float(ordered[cut - 1]), float(ordered[n - cut]))


def power_law(x: Array, y: Array, error: Array | None = None) -> Fit:
    """Exponent of y against x, both positive, by least squares in logarithms.

    Without standard errors of y the error of the slope comes from the scatter of the points.
    """
    u, v = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    for name, array in (("x", u), ("y", v)):
        if (
            array.ndim != 1
            or array.shape != u.shape
            or not (np.isfinite(array) & (array > 0)).all()
        ):
            reject(name, array, "positive numbers in one row, as many in x as in y")
    least = 2 if error is not None else 3
    if len(np.unique(u)) < least:
        raise InputError(
            f"An exponent needs at least {least} different values of x, but got {len(np.unique(u))}."
        )
    relative = np.ones_like(v) if error is None else np.asarray(error, dtype=float) / v
    if relative.shape != v.shape or not (np.isfinite(relative) & (relative > 0)).all():
        reject("error", error, "positive numbers, one for each y")
    slope, intercept, spread = _line(np.log(u), np.log(v), relative**-2.0)
    quantile = special.ndtri((1 + LEVEL) / 2)
    deviation = spread**-0.5
    if error is None:
        freedom = len(u) - 2
        residual = np.log(v) - intercept - slope * np.log(u)
        deviation *= np.sqrt((residual**2).sum() / freedom)
        quantile = special.stdtrit(freedom, (1 + LEVEL) / 2)
    return Fit(
        slope,
        float(deviation),
        intercept,
        slope - quantile * deviation,
        slope + quantile * deviation,
    )


def _line(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[float, float, float]:
    """Slope, intercept, and Σ w (x − x̄)², the inverse variance of the slope."""
    middle = np.average(x, weights=weight)
    spread = (weight * (x - middle) ** 2).sum()
    slope = (weight * (x - middle) * y).sum() / spread
    return (
        float(slope),
        float(np.average(y, weights=weight) - slope * middle),
        float(spread),
    )


def resolved(values: Array) -> bool:
    """Whether few enough runs are censored for the median: it is infinite in less than 1/8 of all resamples.

    >>> runs = np.arange(32.0)
    >>> (
    ...     resolved(np.where(runs < 20, runs, np.inf)),
    ...     resolved(np.where(runs < 18, runs, np.inf)),
    ... )
    (True, False)
    """
    row = np.asarray(values, dtype=float).ravel()
    return bool(
        special.bdtrc((len(row) + 1) // 2 - 1, len(row), np.isinf(row).mean()) < 1 / 8
    )


def median_power_law(
    x: Array, samples: Sequence[Array], resamples: int = 1000, seed: int = 0
) -> Fit:
    """Exponent of the median of repeated runs against x; the error is from resampling the runs (bootstrap).

    Runs at each x are positive; infinite ones are censored, few enough for the median (`resolved`). In resamples
    infinite medians count as such: they open the interval, and the error is then half the width of the middle 68 % of
    the slopes.
    """
    rows = [np.asarray(row, dtype=float).ravel() for row in samples]
    for row in rows:
        if len(row) < 2 or np.isnan(row).any() or not resolved(row) or row.min() <= 0:
            reject(
                "samples",
                row,
                "at least two positive values at each x, clearly less than half of them censored",
            )
    rng = np.random.default_rng(seed)
    drawn = np.stack(
        [
            np.median(row[rng.integers(len(row), size=(resamples, len(row)))], axis=1)
            for row in rows
        ],
        1,
    )
    points = np.array([median(row).value for row in rows])
    # a point known to all digits (equal step counts in all runs) must not get infinite weight
    error = np.array([_deviation(column) for column in np.log(drawn).T])
    floor = max(float(error.max()), 1e-12) * 1e-2
    weight = np.maximum(error, floor) ** -2.0
    u = np.log(np.asarray(x, dtype=float))
    slope, intercept, _ = _line(u, np.log(points), weight)
    with np.errstate(invalid="ignore"):
        slopes = np.array([_line(u, np.log(row), weight)[0] for row in drawn])
    # infinite medians at both ends of x leave the slope open to both sides
    slopes = np.where(
        np.isnan(slopes), np.where(np.arange(resamples) % 2, np.inf, -np.inf), slopes
    )
    low, high = _quantiles(slopes, LEVEL)
    return Fit(slope, _deviation(slopes), intercept, low, high)


def _quantiles(values: np.ndarray, level: float) -> tuple[float, float]:
    """Ends of the middle share ``level`` of values that may be infinite: between those no quantile is interpolated."""
    ends, open_ = [(1 - level) / 2, (1 + level) / 2], np.isinf(values).any()
    low, high = (
        np.quantile(values, ends, method="inverted_cdf")
        if open_
        else np.quantile(values, ends)
    )
    return float(low), float(high)


def _deviation(values: np.ndarray) -> float:
    """Standard deviation, or half the width of the middle 68 % where some values are infinite."""
    if np.isfinite(values).all():
        return float(values.std(ddof=1))
    low, high = _quantiles(values, 0.6827)
    return math.inf if math.isinf(low) or math.isinf(high) else (high - low) / 2
