"""Verdicts on curves whose deviations, errors and allowances are known numbers, and other single numbers of the kind."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr
from chance import sigmas
from scipy import stats

import twolayer as tl
from twolayer import d
from twolayer.gallery.shared import registry
from twolayer.numerics.significance import limit_of_curves
from twolayer.numerics.verdict import AGREE, DIFFER, Trial
from twolayer.numerics.wishart import GramFactor, chi_square_quantile, factor_from
from twolayer.running.finite_size import allowance, extrapolate, slowest
from twolayer.running.judging import Correction, Deviation, Judgement, judge, ranges

TIMES = np.linspace(0.0, 1.0, 9)
PATTERN = np.array([-1.5, -0.5, 0.5, 1.5])  # of four seeds: mean 0


def runs(
    shift: float = 0.0,
    spread: float = 0.0,
    seeds: int = 4,
    notes: Any = None,
    error: float = 0.0,
) -> Any:
    """A risk that falls from 1 to 0 and two overlaps; runs are off by ``shift`` and by a constant for each seed."""
    overlaps = np.stack([0.8 * TIMES, 0.4 - 0.2 * TIMES], -1)[
        :, None, :
    ]  # (time, neuron, direction)
    theory = xr.Dataset(
        {
            "risk": (("seed", "time"), (1 - TIMES)[None]),
            "excess_risk": (("seed", "time"), (1 - TIMES)[None]),
            "M": (("seed", "time", "neuron", "direction"), overlaps[None]),
            "a": (("seed", "time", "neuron"), np.ones((1, len(TIMES), 1))),
        },
        {"time": TIMES, "neuron": [1]},
        {"notes": json.dumps(notes or {})},
    )
    found = theory.isel(seed=[0] * seeds).copy(deep=True)
    offset = shift + spread * PATTERN[:seeds, None] * np.ones_like(TIMES)
    found["risk"] = ("seed", "time"), (1 - TIMES) + offset
    if error:
        theory["risk_error"] = ("seed", "time"), np.full((1, len(TIMES)), error)
    return found, theory


def judged(
    allowed: float = 0.0,
    known: float = 0.0,
    dim: int = 10_000,
    resolution: float | None = None,
    **numbers: Any,
) -> Judgement:
    """The verdict on the risk."""
    found, theory = runs(**numbers)
    correction = {"risk": Correction(known, allowed)}
    asked = {} if resolution is None else {"resolution": resolution}
    return judge(
        "runs",
        dim,
        found,
        theory,
        ranges(theory, np.eye(2), dim),
        corrections=correction,
        **asked,
    )[0]


def test_standard_errors_are_those_of_the_seeds() -> None:
    """Four seeds at −1.5, −0.5, 0.5, 1.5 times s: variance 5/3 s², standard error s √(5/12)."""
    row = judged(spread=0.02)
    assert row.standard_error == pytest.approx(0.02 * np.sqrt(5 / 12))
    assert row.tolerance == pytest.approx(row.limit * row.standard_error, rel=1e-6)
    still = limit_of_curves(
        [0.0] * 3, [len(TIMES), 1, 1], 3
    )  # constants for each seed draw no path
    assert row.limit == pytest.approx(still, rel=1e-6)


def test_a_theory_may_be_off_by_a_tenth_and_no_more() -> None:
    """Without noise: deviation d and allowance A agree while d + A, which would be seen, is a tenth of the range."""
    assert judged(0.05, shift=0.049).verdict == "agree"
    assert judged(0.052, shift=0.051).verdict == "undecided"
    assert judged(0.2, shift=0.0).verdict == "undecided"
    for sign in (-1, 1):
        assert judged(0.04, shift=sign * 0.05).verdict == "differ"
    row = judged(0.05, shift=-0.03)
    assert row.seen == pytest.approx(
        0.08, rel=1e-6
    ) and row.worst_ratio == pytest.approx(0.6, rel=1e-6)
    assert row.deviation == pytest.approx(-0.03)


def test_the_word_carries_its_figure_and_a_finer_one_can_be_asked_for() -> None:
    """Deviation and allowance are 0.049 of the range of 1 together."""
    plain = judged(0.025, shift=0.024)
    assert (plain.verdict, plain.words) == ("agree", "agree to 4.9%")
    assert judged(0.025, shift=0.024, resolution=0.05).words == "agree to 4.9%"
    finer = judged(0.025, shift=0.024, resolution=0.04)
    assert (finer.verdict, finer.words) == ("undecided", "undecided (4.9%)")
    assert finer.resolution == 0.04 and "finite size may take 3%" in finer.reason
    assert "a larger dim" in finer.reason
    wide = judged(0.12, shift=0.1, resolution=0.3)
    assert wide.words == "agree to 22%"
    assert judged(0.02, shift=0.03, resolution=0.5).words == "differ"


def test_seeds_are_counted_for_the_resolution_that_is_asked_for() -> None:
    """Noise of 3 % of the range: no seeds are wanting for a tenth, four times as many and more for a finer one."""
    coarse = judged(spread=0.0021)
    assert coarse.verdict == "agree"
    finer = judged(spread=0.0021, resolution=coarse.seen / coarse.range / 2)
    assert finer.verdict == "undecided" and "seeds" in finer.reason


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, np.nan, "fine", True])
def test_a_resolution_is_a_part_of_the_range(share: Any) -> None:
    problem, start = tl.Problem("z1", "linear"), tl.Overlaps([[1.0]], [[0.0]])
    with pytest.raises(tl.InputError, match=r"resolution.*a part of the range"):
        tl.compare(problem, tl.SGD(1 / d), None, start, time=1, resolution=share)


def test_a_known_shift_is_added() -> None:
    assert judged(0.001, known=0.3, shift=-0.3).verdict == "agree"
    assert judged(0.001, known=-0.3, shift=-0.3).verdict == "differ"


def test_errors_of_the_theory_count() -> None:
    """As standard errors where it tells them, else as an allowance of that share of the range."""
    assert judged(shift=0.02, spread=1e-5, error=0.01).verdict != "differ"
    assert judged(shift=0.02, spread=1e-5).verdict == "differ"
    assert judged(shift=0.02, notes={"engine_error": 0.03}).allowance == pytest.approx(
        0.03
    )


def test_times_are_those_of_the_theory() -> None:
    """Runs whose clock counts twice as fast as that of the theory."""
    found, theory = runs()
    slow = found.assign_coords(time=2 * TIMES)
    rows = judge(
        "runs", 10_000, slow, theory, ranges(theory, np.eye(2), 10_000), unit=2.0
    )
    assert rows[0].verdict == "agree" and rows[0].worst_deviation == pytest.approx(
        0.0, abs=1e-9
    )


def test_every_direction_is_judged_by_its_own_overlaps() -> None:
    found, theory = runs()
    wrong = found.copy(deep=True)
    wrong["M"] = found.M + np.array([0.0, 0.5])
    rows = judge("runs", 10_000, wrong, theory, ranges(theory, np.eye(2), 10_000))
    assert [(row.quantity, row.verdict) for row in rows if row.quantity != "risk"] == [
        ("M1", "agree"),
        ("M2", "differ"),
    ]


def test_a_motion_that_is_lost_in_fluctuations_has_its_natural_size() -> None:
    """What moves by 0.04 counts by its motion at d = 10⁴, where single runs spread by 0.01, and not at d = 400."""
    _, theory = runs()
    theory["risk"] = ("seed", "time"), (1 - 0.04 * TIMES)[None]
    theory["excess_risk"] = theory["risk"]
    assert ranges(theory, np.eye(2), 10_000)["risk"][0] == pytest.approx(0.04)
    assert ranges(theory, np.eye(2), 400)["risk"] == pytest.approx((1.0, 1.0))


def level(mean: float, error: float = 0.0) -> Deviation:
    one = np.array([[mean]])
    return Deviation(one, np.full((1, 1), error), np.zeros(1), np.ones(1))


def test_the_allowance_of_a_power_law_is_what_is_left_of_it() -> None:
    """Deviations e + 5/d at d, d/4, d/16: 5/d is allowed, whatever e; with errors, what these may make of it."""
    for off in (0.0, 0.3):
        laws = [level(off + 5 / n) for n in (1600, 400, 100)]
        assert allowance(*laws, (0.25, 0.25)) == pytest.approx(5 / 1600)
    small = [level(5 / n) for n in (1600, 400, 100)]
    rough = [level(5 / n, 1e-3) for n in (1600, 400, 100)]
    r, down = 0.25 / 0.75, 0.0625 / 0.75
    one = np.hypot(1e-3, 1e-3)
    between = 5 / 1600 + 2 * (r * one + np.hypot(r * one, down * one))
    below = 5 / 1600 + 2 * 0.25 * (1e-3 + np.hypot(1e-3, 0.25e-3))
    assert allowance(*rough, (0.25, 0.25)) == pytest.approx(
        min(between, below), rel=1e-9
    )
    assert allowance(*small, (0.25, 0.25)) < allowance(*rough, (0.25, 0.25))


def test_a_limit_is_extrapolated_to_all_digits() -> None:
    values = [np.array([[2 + 3 * n**-0.5]]) for n in (1600, 400, 100)]
    found = extrapolate(values, (1600, 400, 100), 0.5)
    np.testing.assert_allclose(found.value, 2.0, rtol=1e-12)
    np.testing.assert_allclose(found.error, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("lr", "batch", "epsilon"),
    [
        (1 / d, 1, 1.0),
        (d**-0.75, d**0.5, 0.25),
        (d**-0.9, d**0.3, 0.2),
        (d**-0.7, 1, 0.3),
        (d**-0.55, 1, 0.1),
    ],
)
def test_the_slowest_correction(lr: Any, batch: Any, epsilon: float) -> None:
    """By hand: gradient flow min(μ+δ−1, δ), pure noise min(1−μ−δ, 2δ+μ−1), Saad–Solla δ."""
    assert slowest(tl.SGD(lr, batch)) == pytest.approx(epsilon)


def test_quantiles_of_chi_square_are_those_of_scipy() -> None:
    x = np.linspace(-5, 5, 11)
    for n in (12_000, 10**6):
        expected = stats.chi2.ppf(stats.norm.cdf(x[x < 0]), n)
        np.testing.assert_allclose(
            chi_square_quantile(n, x)[x < 0], expected, rtol=1e-8
        )


def test_bartlett_factors_lose_a_degree_of_freedom_in_each_row() -> None:
    """E[T Tᵀ] = n I and E tr((T Tᵀ)²) = s n (n + s + 1), as for n columns of normals; each T_ii² has mean n − i."""
    s, n, draws = 3, 80, 40_000
    factor = GramFactor(s, n)
    assert factor.bartlett
    T = np.asarray(
        factor_from(factor, np.random.default_rng(0).normal(size=(draws, factor.draws)))
    )
    diagonal = np.diagonal(T, axis1=1, axis2=2) ** 2
    error = np.sqrt(2 * n / draws)
    assert (np.abs(diagonal.mean(0) - (n - np.arange(s))) < sigmas(s) * error).all()
    assert (
        np.abs(diagonal.var(0) / (2 * (n - np.arange(s))) - 1)
        < sigmas(s) * np.sqrt(2.2 / draws)
    ).all()


@pytest.mark.parametrize("delta", [0.5, 2.0])
def test_the_huber_loss_is_the_integral_of_its_residual(delta: float) -> None:
    loss = tl.SGD(lr=0.1, loss=f"huber({delta})").loss
    assert loss.value is not None
    f = np.linspace(-4, 4, 4001)
    value = np.asarray(loss.value(0.3, f))
    slope = np.gradient(value, f)
    np.testing.assert_allclose(
        -slope[1:-1], np.clip(0.3 - f, -delta, delta)[1:-1], atol=2e-3
    )


def test_the_integrator_has_the_orders_of_dormand_and_prince() -> None:
    """Quadrature conditions of order 5 and the error weights: Σ b c^n = 1/(n + 1), Σ (b − b̂) c^n = 0 for n < 4."""
    from twolayer.loops.runge_kutta import DENSE, ERROR, A

    c = A.sum(axis=1)
    np.testing.assert_allclose(c, [0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1], atol=1e-12)
    b = np.append(A[6, :6], 0.0)
    for n in range(5):
        np.testing.assert_allclose(b @ c**n, 1 / (n + 1), atol=1e-12)
    for n in range(4):
        np.testing.assert_allclose(ERROR @ c**n, 0.0, atol=1e-12)
    assert abs(ERROR @ c**4) > 1e-4
    for n in range(4):  # ∫_0^x t^n dt, for all x
        np.testing.assert_allclose(c**n @ DENSE, np.eye(4)[n] / (n + 1), atol=1e-10)
    np.testing.assert_allclose(DENSE.sum(axis=1), b, atol=1e-12)


@pytest.mark.parametrize(
    ("observed", "error", "allowance", "resolution", "expected"),
    [
        # tolerance = allowance + 4 error; nothing is expected to be but 1
        ([1.0, 1.1], [0.02, 0.02], 0.05, 1.0, "agree"),
        ([1.0, 0.9], [0.02, 0.02], 0.05, 1.0, "agree"),
        ([1.0, 1.2], [0.02, 0.02], 0.05, 1.0, "differ"),
        ([1.0, 0.8], [0.02, 0.02], 0.05, 1.0, "differ"),
        # one standard error would be too little, without the allowance it would differ
        ([1.06], [0.02], 0.0, 1.0, "agree"),
        ([1.1], [0.02], 0.05, 1.0, "agree"),
        # 0.1 + 0.13 and 0.02 + 0.13 beside a resolution of 0.2
        ([1.1], [0.02], 0.05, 0.2, "undecided"),
        ([1.02], [0.02], 0.05, 0.2, "agree"),
        ([1.02, 1.1], [0.02, 0.02], 0.05, 0.2, "undecided"),
        # without errors
        ([1.0], [0.0], 0.0, 0.1, "agree"),
        ([1.0 + 1e-12], [0.0], 0.0, 0.1, "differ"),
        # nothing to judge by
        ([], [], 0.0, 1.0, "undecided"),
        ([np.nan], [0.1], 0.0, 1.0, "undecided"),
        ([1.0], [np.inf], 0.0, 1.0, "undecided"),
    ],
)
def test_a_trial_has_three_outcomes(
    observed: list[float],
    error: list[float],
    allowance: float,
    resolution: float,
    expected: str,
) -> None:
    trial = Trial(observed, 1.0, error, resolution, allowance, limit=4.0)
    assert trial.verdict == expected


def test_data_with_the_words_of_before_are_read() -> None:
    assert registry.WORDS == {"agrees": AGREE, "differs": DIFFER}
