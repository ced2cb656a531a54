"""Intervals and exponents: against exact cases, and by how often they cover what they should."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from twolayer.numerics.errors import InputError
from twolayer.numerics.statistics import median, median_power_law, power_law, wilson


@pytest.mark.parametrize(
    ("successes", "trials"), [(0, 10), (3, 10), (10, 10), (250, 1000)]
)
def test_wilson_ends_are_where_the_normal_test_just_rejects(
    successes: int, trials: int
) -> None:
    fraction, low, high = wilson(successes, trials, level=0.9)
    z = stats.norm.ppf(0.95)
    for end in (low, high):
        if 0 < end < 1:
            assert abs(fraction - end) == pytest.approx(
                z * np.sqrt(end * (1 - end) / trials), rel=1e-9
            )
    assert 0 <= low <= fraction <= high <= 1


def test_median_interval_covers_as_often_as_promised() -> None:
    rng = np.random.default_rng(0)
    times = rng.exponential(size=(4000, 31))
    times[times > 1.2] = np.inf  # censored far beyond the median log 2
    covered = np.mean([m.low <= np.log(2) <= m.high for m in map(median, times)])
    exact = 1 - 2 * stats.binom.cdf(stats.binom.ppf(0.025, 31, 0.5) - 1, 31, 0.5)
    assert exact >= 0.95
    assert covered == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4000))


def test_median_of_mostly_censored_runs_is_infinite() -> None:
    assert median([1.0, np.inf, np.inf]).value == np.inf
    assert median([1.0, 2.0]).low == -np.inf
    assert median([1.0, 2.0]).interval() == "0 to unknown"
    assert median([np.inf] * 9).interval() == "unknown"


def test_power_law_with_errors_is_unbiased_with_the_stated_error() -> None:
    rng = np.random.default_rng(1)
    x = np.geomspace(10, 1e4, 7)
    relative = np.linspace(0.02, 0.1, 7)
    draws = (3 * x**1.5 * np.exp(relative * rng.normal(size=7)) for _ in range(2000))
    fits = [power_law(x, y, y * relative) for y in draws]
    slopes, errors = (
        np.array([f.slope for f in fits]),
        np.array([f.error for f in fits]),
    )
    assert slopes.mean() == pytest.approx(1.5, abs=4 * slopes.std() / np.sqrt(2000))
    assert slopes.std() == pytest.approx(
        errors.mean(), rel=0.07
    )  # 4 standard errors of a standard deviation


def test_power_law_from_scatter_covers_as_often_as_promised() -> None:
    rng = np.random.default_rng(2)
    x = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    fits = [power_law(x, x**-2 * np.exp(0.1 * rng.normal(size=5))) for _ in range(3000)]
    covered = np.mean([f.low <= -2 <= f.high for f in fits])
    assert covered == pytest.approx(0.95, abs=4 * np.sqrt(0.05 * 0.95 / 3000))


@pytest.mark.parametrize("share", [0.1, 0.35])
def test_exponent_of_medians_with_censored_runs(share: float) -> None:
    rng = np.random.default_rng(3)
    x = np.array([10.0, 30.0, 100.0, 300.0])
    errors, z = [], []
    for trial in range(60):
        runs = [n**0.5 * rng.lognormal(0, 0.5, size=64) for n in x]
        for row in runs:
            row[row > np.quantile(row, 1 - share)] = np.inf
        fit = median_power_law(x, runs, resamples=300, seed=trial)
        errors.append(fit.error)
        z.append((fit.slope - 0.5) / fit.error)
    assert abs(np.mean(z)) < 4 / np.sqrt(60)
    assert 0.6 < np.std(z) < 1.5


def test_censored_resamples_open_the_interval() -> None:
    """12 of 32 runs censored: the median is infinite in 10 % of the resamples, at either end of x."""
    runs = np.where(np.arange(32) < 20, np.linspace(1.0, 2.0, 32), np.inf)
    late, early = (
        median_power_law([10, 100], [np.linspace(1, 2, 32), runs]),
        median_power_law([10, 100], [runs, runs]),
    )
    assert late.high == np.inf and np.isfinite(late.low) and 0 < late.error < 1
    assert early.low == -np.inf and early.high == np.inf and 0 < early.error < 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wilson(3, 2), "successes"),
        (lambda: wilson(1, 2, level=1.0), "level"),
        (lambda: median([]), "values"),
        (lambda: median([np.nan]), "values"),
        (lambda: power_law([1, 2], [1, 2]), "at least 3"),
        (lambda: power_law([1, 2, 3], [1, 2, -3]), "y"),
        (lambda: power_law([1, 2], [1, 2], [0, 1]), "error"),
        (lambda: median_power_law([1, 2], [[1, np.inf], [1, 2]]), "censored"),
    ],
)
def test_bad_input_is_named(call: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()  # type: ignore[operator]
