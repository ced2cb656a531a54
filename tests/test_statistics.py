"""Intervals and exponents: against exact cases, and by how often they cover what they should."""

from __future__ import annotations

import numpy as np
import pytest
from chance import sigmas
from scipy import stats

from twolayer.numerics.errors import InputError
from twolayer.numerics.statistics import (
    median,
    median_law,
    median_power_law,
    plus_minus,
    power_law,
    wilson,
)


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


@pytest.mark.parametrize(("count", "dims"), [(8, 4), (32, 3)])
def test_the_error_of_an_exponent_is_its_scatter(count: int, dims: int) -> None:
    """300 repetitions of independent runs at each x: neither too small an error nor too large a one, and few bends."""
    rng = np.random.default_rng(5)
    x = 100.0 * 2.0 ** np.arange(dims)
    laws = [
        median_law(x, [v * rng.lognormal(0, 0.7, count) for v in x], resamples=200)
        for _ in range(300)
    ]
    slopes = np.array([law.fit.slope for law in laws])
    errors = np.array([law.fit.error for law in laws])
    assert errors.mean() == pytest.approx(slopes.std(), rel=0.2)
    assert abs(slopes.mean() - 1) < sigmas() * slopes.std() / np.sqrt(300)
    covered = np.mean([law.fit.low <= 1 <= law.fit.high for law in laws])
    assert covered == pytest.approx(0.95, abs=sigmas() * np.sqrt(0.05 * 0.95 / 300))
    assert np.mean([law.bends for law in laws]) < 0.03


def test_the_same_noise_at_every_x_is_no_independent_noise() -> None:
    """Runs that share their random numbers have slopes of no scatter, and errors that do not know it."""
    rng = np.random.default_rng(6)
    x = np.array([100.0, 200.0, 400.0])
    noise = rng.lognormal(0, 0.7, 32)
    law = median_law(x, [v * noise for v in x])
    assert law.fit.slope == pytest.approx(1.0) and law.fit.error > 0.1


@pytest.mark.parametrize("b", [0.0, 1.0])
def test_a_factor_that_may_be_there_is_in_the_error(b: float) -> None:
    """(1 − 2/√x)^b: the plain line is off by 0.09 for b = 1, 20 of its errors; with the factor none is, for either b."""
    rng = np.random.default_rng(7)
    x = np.array([64.0, 128.0, 256.0, 512.0])
    factor = np.log(1 - 2 / np.sqrt(x))
    rows = [
        [
            v * np.exp(b * u) * rng.lognormal(0, 0.02, 24)
            for v, u in zip(x, factor, strict=True)
        ]
        for _ in range(100)
    ]
    laws = [median_law(x, row, factor=factor, resamples=200) for row in rows]
    z = np.array([(law.fit.slope - 1) / law.fit.error for law in laws])
    assert np.abs(z).max() < sigmas(100) and 0.5 < z.std() < 1.3
    assert np.mean([law.factor for law in laws]) == pytest.approx(b, abs=0.25)
    plain = median_power_law(x, rows[0])
    assert (abs(plain.slope - 1) > 10 * plain.error) is (b == 1.0)


def test_laws_that_bend_are_told_from_those_that_do_not() -> None:
    """T = x^(1 + c log x) with c = 0.1 turns by 0.42, one with c = 0.01 by less than is called a bend."""
    rng = np.random.default_rng(8)
    x = np.array([100.0, 200.0, 400.0, 800.0])
    for c, bends in ((0.1, True), (-0.1, True), (0.01, False)):
        runs = [v ** (1 + c * np.log(v)) * rng.lognormal(0, 0.01, 32) for v in x]
        law = median_law(x, runs)
        assert law.bends is bends and law.curved
        assert law.turn == pytest.approx(2 * c * np.log(8), abs=0.02)
        assert law.local[-1] - law.local[0] == pytest.approx(
            2 * c * np.log(4), abs=0.03
        )
        shuffled = median_law(x[[2, 0, 3, 1]], [runs[i] for i in (2, 0, 3, 1)])
        assert shuffled.local == law.local
    assert median_law(x[:2], runs[:2]).bends is None


def test_whole_numbers_are_known_to_half_of_one() -> None:
    """Nine steps in all runs at x = 10 and ten at 1000: without the grain the error would be zero."""
    runs = [np.full(16, 9.0), np.full(16, 10.0)]
    rounded = median_law([10, 1000], runs, grain=1.0).fit
    assert median_law([10, 1000], runs).fit.error < 1e-9
    expected = np.hypot(1 / 9, 1 / 10) / np.sqrt(12) / np.log(100)
    assert rounded.error == pytest.approx(expected, rel=1e-6)


def test_numbers_have_the_digits_of_their_errors() -> None:
    assert plus_minus(0.0359, 0.3) == "0.04 ± 0.30"
    assert plus_minus(1.2996, 0.0996) == "1.30 ± 0.10"
    assert plus_minus(-3.14159, 0.00271) == "-3.1416 ± 0.0027"
    assert plus_minus(1234.5, 67.8) == "1234 ± 68"
    assert plus_minus(2.0, 0.0) == "2 ± 0"


def test_few_zeros_are_early_runs() -> None:
    """Runs that take no step count as earlier than all, if the median is not among them."""
    rng = np.random.default_rng(9)
    rows = [rng.lognormal(0, 0.5, 64), 10 * rng.lognormal(0, 0.5, 64)]
    rows[0][:3] = 0.0
    assert 0.5 < median_power_law([10, 100], rows).slope < 1.5
    rows[0][:30] = 0.0
    with pytest.raises(InputError, match="positive"):
        median_power_law([10, 100], rows)


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
        (lambda: median_power_law([1], [[1, 2]]), "two different"),
        (lambda: median_power_law([3, 3], [[1, 2], [1, 2]]), "two different"),
    ],
)
def test_bad_input_is_named(call: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()  # type: ignore[operator]
