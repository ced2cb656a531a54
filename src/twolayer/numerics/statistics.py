"""What repeated runs say: fractions, medians with late runs censored, and exponents,
each with its interval.

    Wilson:  |p̂ − p| ≤ z √(p(1 − p)/n),  solved for p
    median:  the order statistics i, j with P(i ≤ Binomial(n, ½) < j) ≥ level;
             a censored run counts as later than all
    exponent:  log y = intercept + slope · log x,  weights 1/error²
    medians:   log T = intercept + slope · log x + b u(x) + c (log x)²
               b ~ N(0, 1) for a factor e^{b u} that may be there or not;
               c alone says whether the law bends

Intervals of a fit use Student's t when the scatter of the points is what the error is
taken from.
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
    "MedianLaw",
    "median",
    "median_law",
    "median_power_law",
    "plus_minus",
    "power_law",
    "resolved",
    "standard_error",
    "told",
    "wilson",
]

LEVEL = 0.95
"""Of intervals."""

CURVED = 3.0  # standard errors from which on a curvature is seen
TURN = 0.1  # change of a local exponent from which on there is no power law


def told(value: float, digits: int = 4) -> str:
    """A number as reports show it: unknown where it is not finite.

    >>> told(2.0), told(float("inf"))
    ('2', 'unknown')
    """
    return f"{value:.{digits}g}" if np.isfinite(value) else "unknown"


class Fraction(NamedTuple):
    """A fraction of successes with its Wilson interval.

    Attributes
    ----------
    value : float
        Successes over trials.
    low, high : float
        The interval.

    Examples
    --------
    >>> wilson(9, 10).value
    0.9
    """

    value: float
    low: float
    high: float


class Median(NamedTuple):
    """A median with the interval between two order statistics.

    Attributes
    ----------
    value : float
        The median.
    low, high : float
        The interval; infinite where censored runs leave it open.

    Examples
    --------
    >>> median([1.0, 2.0, 3.0]).value
    2.0
    """

    value: float
    low: float
    high: float

    def interval(self, digits: int = 4) -> str:
        """The interval of a quantity that is never negative, with ``digits``; what too
        few or censored runs leave open is unknown.

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
    """A power law y = exp(intercept)·x^slope through points.

    Attributes
    ----------
    slope, error : float
        The exponent and its standard error.
    intercept : float
        log y at x = 1.
    low, high : float
        The interval of the slope.

    Examples
    --------
    >>> fit = power_law([1.0, 2.0, 4.0, 8.0], [2.0, 4.0, 8.0, 16.0])
    >>> round(fit.slope, 6), round(fit.intercept, 6)
    (1.0, 0.693147)
    """

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
    """Fraction of successes with the Wilson interval, which stays inside [0, 1] and is
    honest at 0 and 1.
    """
    positive_integer("trials", trials)
    if not 0 <= successes <= trials:
        reject("successes", successes, f"an integer from 0 to {trials}")
    if not 0 < level < 1:
        reject("level", level, "a number between 0 and 1")
    from scipy.stats import binomtest  # takes a second to import

    interval = binomtest(successes, trials).proportion_ci(level, method="wilson")
    return Fraction(successes / trials, float(interval.low), float(interval.high))


def median(values: Array) -> Median:
    """Median of values of which the largest may be infinite (censored), with its
    order-statistics interval.

    The interval holds for any law without atoms. With fewer than six values none
    reaches 95 %: its ends are then −∞ and ∞.
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

    Without standard errors of y the error of the slope comes from the scatter of the
    points.
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
            f"An exponent needs at least {least} different values of x, but got"
            f" {len(np.unique(u))}."
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


def plus_minus(value: float, error: float) -> str:
    """A number with its error, both to the decimal of the second digit of the error.

    >>> plus_minus(0.0359, 0.3187), plus_minus(1.30124, 0.0551), plus_minus(57.3, 120.0)
    ('0.04 ± 0.32', '1.301 ± 0.055', '57 ± 120')
    """
    if not 0 < error < np.inf:
        return f"{value:.4g} ± {error:g}"
    # the exponent as the error is printed: 0.0996 has two digits as 0.10
    power = int(f"{error:.1e}".partition("e")[2])
    decimals = max(0, 1 - power)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def resolved(values: Array) -> bool:
    """Whether few enough runs are censored for the median, or are 0: it is positive and
    finite in more than 7/8 of all resamples.

    >>> runs = np.arange(1.0, 33.0)
    >>> (
    ...     resolved(np.where(runs <= 20, runs, np.inf)),
    ...     resolved(np.where(runs <= 18, runs, np.inf)),
    ... )
    (True, False)
    """
    row = np.asarray(values, dtype=float).ravel()
    half = (len(row) + 1) // 2 - 1
    lost = max(np.isinf(row).mean(), (row <= 0).mean())
    return bool(special.bdtrc(half, len(row), lost) < 1 / 8)


class MedianLaw(NamedTuple):
    """A power law through medians of repeated runs, and whether they bend away from it.

    Attributes
    ----------
    fit : Fit
        The exponent.
    factor : float
        b, by how much of the factor u the medians are explained; 0 without one.
    local : tuple of float
        Exponents between neighbouring x.
    curvature, curvature_error : float
        c and its standard error; NaN for fewer than three x.
    span : float
        log of the largest x over the smallest.

    Examples
    --------
    >>> runs = np.linspace(0.9, 1.1, 16)
    >>> law = median_law([10, 100, 1000], [runs, 10 * runs, 1000 * runs])
    >>> law.bends, [round(x, 6) for x in law.local]
    (True, [1.0, 2.0])
    """

    fit: Fit
    factor: float
    local: tuple[float, ...]
    curvature: float
    curvature_error: float
    span: float

    @property
    def turn(self) -> float:
        """By how much the exponent changes from one end of x to the other."""
        return 2 * self.curvature * self.span

    @property
    def curved(self) -> bool:
        """Whether a curvature is seen, large or small."""
        return bool(abs(self.curvature) > CURVED * self.curvature_error)

    @property
    def bends(self) -> bool | None:
        """Whether no power law holds: the exponent is seen to change by more than 0.1.
        None where fewer than three x cannot tell.
        """
        if math.isnan(self.curvature):
            return None
        return self.curved and abs(self.turn) > TURN


def median_power_law(
    x: Array, samples: Sequence[Array], resamples: int = 1000, seed: int = 0
) -> Fit:
    """Exponent of the median of repeated runs against x; the error is from resampling
    the runs (bootstrap).

    Runs at different x are independent. Those at one x are positive but for a few;
    infinite ones are censored, few enough for the median (`resolved`). In resamples
    infinite medians count as such: they open the interval, and the error is then half
    the width of the middle 68 % of the slopes.
    """
    return median_law(x, samples, resamples=resamples, seed=seed).fit


def median_law(
    x: Array,
    samples: Sequence[Array],
    *,
    factor: Array | None = None,
    grain: Array = 0.0,
    resamples: int = 1000,
    seed: int = 0,
) -> MedianLaw:
    """The same with what else is known of the medians.

    Parameters
    ----------
    x : array (n,)
        Positive, n ≥ 2.
    samples : sequence of array
        Runs at each x, as for `median_power_law`.
    factor : array (n,), optional
        u: the medians may have a factor e^{b u} with b of order one, b ~ N(0, 1). As
        much of b as the points show is fitted, the rest goes into the error.
    grain : float or array (n,)
        What values are rounded to.
    resamples, seed : int
        Of the bootstrap.
    """
    order = np.argsort(np.asarray(x, dtype=float))
    rows = [np.asarray(samples[i], dtype=float).ravel() for i in order]
    for row in rows:
        if len(row) < 2 or np.isnan(row).any() or not resolved(row) or row.min() < 0:
            reject(
                "samples",
                row,
                "at least two positive values at each x, clearly less than half of them"
                " censored",
            )
    u = np.log(np.asarray(x, dtype=float)[order])
    if len(rows) < 2 or len(np.unique(u)) < len(rows):
        raise InputError("An exponent needs at least two different values of x.")
    rng = np.random.default_rng(seed)
    medians = [
        np.median(row[rng.integers(len(row), size=(resamples, len(row)))], axis=1)
        for row in rows
    ]
    with np.errstate(divide="ignore"):
        drawn = np.log(np.stack(medians, 1))
    points = np.array([median(row).value for row in rows])
    grains = np.broadcast_to(np.asarray(grain, dtype=float), u.shape)[order]
    rounding = grains / (math.sqrt(12) * points)
    error = np.hypot([_deviation(column) for column in drawn.T], rounding)
    # A point whose runs happen to lie close together must not pull the line at itself:
    # its error is only an estimate, so half of each weight is that of the average.
    common = max(float((error**2).mean()), 1e-24)
    weight = 1 / (error**2 + common)
    expected = np.zeros_like(u)
    if factor is not None:
        expected = np.asarray(factor, dtype=float)[order]
    line = np.stack([np.ones_like(u), u - u.mean(), expected], 1)
    rule = _linear_rule(line, weight, np.diag([0.0, 0.0, 1.0]))
    intercept, slope, b = rule @ np.log(points)
    slopes = _combine(drawn, rule[1])
    # b is as likely of one sign as of the other: what the line leaves of e^{b u} is an
    # error of the slope, too
    left = math.hypot(
        float(rule[1] @ expected), float(np.linalg.norm(rule[1] * rounding))
    )
    deviation = math.hypot(_deviation(slopes), left)
    low, high = _quantiles(slopes, LEVEL)
    z = float(special.ndtri((1 + LEVEL) / 2))
    fit = Fit(
        float(slope),
        deviation,
        float(intercept - slope * u.mean()),
        float(slope - math.hypot(slope - low, z * left)),
        float(slope + math.hypot(high - slope, z * left)),
    )
    local = np.diff(np.log(points)) / np.diff(u)
    curvature, spread = math.nan, math.nan
    if len(u) > 2:
        square = np.stack([np.ones_like(u), u - u.mean(), (u - u.mean()) ** 2], 1)
        bend = _linear_rule(square, weight, np.zeros((3, 3)))[2]
        curvature = float(bend @ np.log(points))
        spread = math.hypot(
            _deviation(_combine(drawn, bend)), float(np.linalg.norm(bend * rounding))
        )
    return MedianLaw(
        fit, float(b), tuple(local.tolist()), curvature, spread, float(np.ptp(u))
    )


def _linear_rule(
    columns: np.ndarray, weight: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    """The matrix that makes coefficients of columns out of values, by weighted least
    squares with a normal prior on the coefficients.
    """
    scaled = columns.T * weight
    return np.asarray(np.linalg.solve(scaled @ columns + prior, scaled))


def _combine(drawn: np.ndarray, rule: np.ndarray) -> np.ndarray:
    """Σ_i rule_i · value_i of every resample; infinite values stay so."""
    with np.errstate(invalid="ignore"):
        found = (drawn * rule).sum(1)
    # infinite medians at both ends of x leave the slope open to both sides
    sides = np.where(np.arange(len(found)) % 2, np.inf, -np.inf)
    return np.where(np.isnan(found), sides, found)


def _quantiles(values: np.ndarray, level: float) -> tuple[float, float]:
    """Ends of the middle share ``level`` of values that may be infinite: between those
    no quantile is interpolated.
    """
    ends, open_ = [(1 - level) / 2, (1 + level) / 2], np.isinf(values).any()
    low, high = (
        np.quantile(values, ends, method="inverted_cdf")
        if open_
        else np.quantile(values, ends)
    )
    return float(low), float(high)


def _deviation(values: np.ndarray) -> float:
    """Standard deviation, or half the width of the middle 68 % where some values are
    infinite.
    """
    if np.isfinite(values).all():
        return float(values.std(ddof=1))
    low, high = _quantiles(values, 0.6827)
    return math.inf if math.isinf(low) or math.isinf(high) else (high - low) / 2
