"""Escape times: every formula against the ODE from random starts and against the exact chain; limits; refusals."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from chance import sigmas
from scipy import special

import twolayer as tl
from twolayer import d
from twolayer.analysis.alike_neurons import Alike
from twolayer.analysis.escape import resolved_threshold
from twolayer.analysis.escape_formulas import (
    annealed_time,
    contraction_of,
    cross_noise_of,
    noise_strength_of,
    quenched_time,
)
from twolayer.analysis.optimal_lr import growth_rate, noise_gain
from twolayer.cli import main


def phase(p: int = 1, noise: float = 0.0) -> tl.Problem:
    return tl.Problem("z1**2", "square", width=p, noise=noise)


def projected(gamma: float, batch: int = 1) -> tl.SGD:
    return tl.SGD(gamma / d, batch, geometry="projected")


@pytest.mark.parametrize(
    ("p", "noise", "batch"),
    [(1, 0.0, 1), (1, 0.7, 3), (2, 0.3, 1), (5, 0.0, 2), (20, 1.0, 1)],
)
def test_growth_rate_is_that_of_the_ode(p: int, noise: float, batch: int) -> None:
    """d log m/dt at m → 0, Q = I."""
    problem, gamma = phase(p, noise), 0.3 * p * batch / contraction_of(p, noise)
    tiny = 1e-6 * np.ones((p, 1))
    result = tl.solve(
        problem,
        projected(gamma, batch),
        tl.ODE(),
        tl.Overlaps(np.eye(p), tiny),
        time=0.1,
        save=1,
    )
    measured = np.log(result.M.values[0, -1, 0, 0] / 1e-6) / 0.1
    assert measured == pytest.approx(
        growth_rate(problem, gamma / (p * batch)), rel=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 7])
def test_noise_strength_is_the_variance_of_one_step(p: int) -> None:
    """V_p from the covariance rule at m = 0, Q = I."""
    import jax

    from twolayer.gaussian.increment_covariance import spread_of

    problem = phase(p, 0.3)
    with jax.enable_x64(True):
        sigma = spread_of(problem, projected(0.1))(
            np.eye(p), np.zeros((p, 1)), np.ones(p), 0.3, 0.1
        )
    assert float(sigma[0, 0]) == pytest.approx(noise_strength_of(p, 0.3), rel=1e-12)


def test_optimal_rate_minimises_the_steps() -> None:
    for p, noise in ((1, 0.0), (1, 2.0), (4, 0.5), (30, 0.0)):
        problem = phase(p, noise)
        best = tl.optimal_lr(problem).coefficient
        assert best == pytest.approx(p / (2 + 2 / p + 8 / p**2 + noise))
        rates = best * np.array([0.9, 1.0, 1.1])
        steps = [1 / (g * growth_rate(problem, g / p)) for g in rates]
        assert np.argmin(steps) == 1
        assert growth_rate(problem, best / p) == pytest.approx(2.0)
        low, high = tl.escape.admissible_lr(problem)
        assert low == 0 and growth_rate(problem, high.coefficient / p) == pytest.approx(
            0.0, abs=1e-12
        )
    assert tl.optimal_lr(phase(3), batch=5).coefficient == pytest.approx(
        5 * tl.optimal_lr(phase(3)).coefficient
    )


def test_gain_and_its_limit() -> None:
    assert tl.escape.escape_gain(phase(1, 0.4)) == 1.0
    assert tl.escape.escape_gain(phase(10**6, 0.4)) == pytest.approx(
        12.4 / 2.4, rel=1e-5
    )
    values = [tl.escape.escape_gain(phase(p)) for p in (1, 2, 5, 20, 100)]
    assert np.all(np.diff(values) > 0) and values[-1] < 6


def test_single_neuron_against_the_ode() -> None:
    """The exact average over the start against integrations from sampled starts."""
    problem, algorithm, dim, T = phase(1, 0.2), projected(0.05), 400, 0.3
    times = tl.escape_time(problem, algorithm, dim, T)
    starts = tl.Overlaps.random(problem, dim, seed=2, size=2000)
    until = tl.Until("excess_risk", 1 - T, relative=True)
    passage = tl.escape.first_passage(
        tl.solve(problem, algorithm, tl.ODE(), starts, time=30, save=5, until=until)
    )
    assert passage.censored == 0
    assert abs(passage.mean - times.ode) < sigmas() * passage.standard_error
    # the linearised formula is seen to be different, by what the exact one adds
    assert abs(passage.mean - times.quenched) > sigmas() * passage.standard_error
    # the annealed one is the formula at the mean of the start
    c = growth_rate(problem, 0.05)
    assert times.annealed == pytest.approx(np.log(T * dim + 1 - T) / (2 * c))
    assert times.steps.quenched == pytest.approx(times.quenched * dim / 0.05)


@pytest.mark.slow
def test_wide_networks_against_the_ode_at_a_small_threshold() -> None:
    """At a small threshold the linear formula holds for p = 5, and its integral is the sampled average."""
    problem, algorithm, dim, T = (
        phase(5),
        tl.SGD(tl.optimal_lr(phase(5)), geometry="projected"),
        100_000,
        0.01,
    )
    times = tl.escape_time(problem, algorithm, dim, T)
    assert times.ode - times.quenched == pytest.approx(0.021, abs=0.01)
    law = tl.escape.passage_law(problem, algorithm, dim, T, seed=1)
    error = law.std() / np.sqrt(len(law))
    assert times.quenched_error == 0.0
    assert abs(law.mean() - times.quenched) < sigmas() * error
    # the ODE of the package from other starts, by its difference from their formula
    starts = tl.Overlaps.random(problem, dim, seed=2, size=32)
    own = tl.escape.passage_law(problem, algorithm, dim, T, seed=2, samples=32)
    until = tl.Until("excess_risk", 1 - T, relative=True)
    run = tl.solve(problem, algorithm, tl.ODE(), starts, time=6, save=5, until=until)
    beyond = tl.escape.first_passage(run).times - own
    error = np.hypot(beyond.std() / np.sqrt(32), times.ode_error)
    assert abs(beyond.mean() - (times.ode - times.quenched)) < sigmas() * error
    assert times.reached == 1.0


@pytest.mark.long
def test_limits_of_the_quenched_formula() -> None:
    """d → ∞: quenched − annealed → [log(p/2) − ψ(p/2)]/(2c); Δ → 0 and p → ∞ are smooth."""
    for p in (1, 10):
        times = tl.escape_time(
            phase(p), projected(0.1 * p / contraction_of(p, 0.0)), 10**6, 0.02
        )
        c = growth_rate(phase(p), 0.1 / contraction_of(p, 0.0))
        gap = (np.log(p / 2) - special.digamma(p / 2)) / (2 * c)
        assert times.quenched - times.annealed == pytest.approx(
            gap, abs=4.5 * times.quenched_error + 2e-3
        )
    clean = tl.escape_time(phase(1), projected(0.05), 10**4, 0.1)
    nearly = tl.escape_time(phase(1, 1e-9), projected(0.05), 10**4, 0.1)
    assert clean.ode == pytest.approx(nearly.ode, rel=1e-6)
    wide = tl.escape_time(phase(10), projected(0.1 * 10), 10**5, 0.01)
    assert abs(wide.quenched - wide.annealed) < 0.02


@pytest.mark.long
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_noise_of_samples_shifts_the_exit(share: float) -> None:
    """Chain against the corrected formula at γ_opt and half of it (p = 1): the uncorrected ODE is rejected."""
    problem, dim, T, seeds = phase(), 1000, 0.1, 512
    algorithm = tl.SGD(share * tl.optimal_lr(problem), geometry="projected")
    times = tl.escape_time(problem, algorithm, dim, T)
    starts = tl.Overlaps.random(problem, dim, seed=5, size=seeds)
    until = tl.Until("excess_risk", 1 - T, relative=True)
    run = tl.solve(
        problem, algorithm, tl.Chain(dim), starts, time=12, save=1, until=until
    )
    passage = tl.escape.first_passage(run)
    assert passage.censored <= 1 and passage.diverged == 0
    # the formula itself holds up to O(1/(Td))
    assert times.corrected is not None
    assert (
        abs(passage.mean - times.corrected) < sigmas() * passage.standard_error + 0.02
    )
    if share == 1.0:
        assert times.ode - times.corrected == pytest.approx(np.log(2) / 4, rel=1e-6)
        assert abs(passage.mean - times.ode) > sigmas() * passage.standard_error


@pytest.mark.long
def test_no_number_outside_the_range_of_its_formula() -> None:
    """At T d = 3 the correction once gave −0.13 for p = 10; below T d = 1 the linear formula has no logarithm."""
    wide = tl.SGD(tl.optimal_lr(phase(10)), geometry="projected")
    for dim, threshold in ((300, 0.01), (100, 0.001)):
        times = tl.escape_time(phase(10), wide, dim, threshold)
        assert (
            times.corrected
            is times.quenched
            is times.annealed
            is times.quenched_error
            is None
        )
        assert set(times.missing) == {
            "annealed",
            "quenched",
            "quenched_error",
            "corrected",
            "from_zero",
        }
        assert times.noisy is not None and times.noisy > 0
        assert times.steps.corrected is None and times.steps.missing == times.missing
        assert 0 < times.ode < 1 and times.ode_error < 0.2 * times.ode
    beyond = tl.escape_time(phase(), projected(0.05), 1000, 0.6)
    assert beyond.from_zero is None and "linear" in beyond.missing["from_zero"]
    for p, least in ((1, 10), (2, 50)):
        algorithm = tl.SGD(tl.optimal_lr(phase(p)), geometry="projected")
        edge = resolved_threshold(phase(p), algorithm, 10_000)
        assert edge == pytest.approx(
            least * (1 + noise_gain(phase(p), algorithm.lr.coefficient / p)) / 10_000
        )
        below, above = (
            tl.escape_time(phase(p), algorithm, 10_000, x * edge, samples=32)
            for x in (0.99, 1.01)
        )
        assert (
            below.corrected is None
            and "noise of single samples" in below.missing["corrected"]
        )
        assert (
            above.corrected is not None
            and 0 < above.corrected < above.ode
            and "corrected" not in above.missing
        )


@pytest.mark.long
def test_the_correction_holds_where_it_is_given() -> None:
    """p = 5 at γ_opt, at the smallest threshold: what is left is a fifth of the shift, and the ODE is rejected."""
    problem, dim = phase(5), 4000
    algorithm = tl.SGD(tl.optimal_lr(problem), geometry="projected")
    T = 1.01 * resolved_threshold(problem, algorithm, dim)
    times = tl.escape_time(problem, algorithm, dim, T)
    assert times.corrected is not None
    starts = tl.Overlaps.random(problem, dim, seed=3, size=256)
    until = tl.Until("excess_risk", 1 - T, relative=True)
    passage = tl.escape.first_passage(
        tl.solve(
            problem,
            algorithm,
            tl.Chain(dim),
            starts,
            time=4 * times.ode,
            save=16,
            until=until,
        )
    )
    error, shift = (
        float(np.hypot(passage.standard_error, times.ode_error)),
        times.ode - times.corrected,
    )
    assert passage.censored <= 2
    assert abs(passage.mean - times.corrected) < 0.2 * shift + sigmas() * error
    assert times.ode - passage.mean > sigmas() * error


@pytest.mark.long
def test_a_start_at_zero_leaves_by_noise_alone() -> None:
    problem, dim, T = phase(1, 0.3), 1000, 0.05
    algorithm = projected(0.05)
    times = tl.escape_time(problem, algorithm, dim, T)
    until = tl.Until("overlap", float(np.sqrt(T)))
    start = tl.Overlaps([[1.0]], [[0.0]], dim=dim)
    chain = tl.escape.first_passage(
        tl.solve(
            problem,
            algorithm,
            tl.Chain(dim),
            start,
            time=8,
            save=1,
            seeds=256,
            until=until,
        )
    )
    assert chain.censored <= 1
    assert times.from_zero is not None
    assert (
        abs(chain.mean - times.from_zero)
        < sigmas() * chain.standard_error + 0.05 * times.from_zero
    )
    stuck = tl.solve(problem, algorithm, tl.ODE(), start, time=15, save=1, until=until)
    assert tl.escape.first_passage(stuck).censored == 1


@pytest.mark.slow
def test_wide_networks_at_the_optimal_rate_do_not_learn() -> None:
    """p = 10 at γ_opt: the risk falls by 6.5 % at most and ends at 1.82 times its start; so says the refusal."""
    problem = phase(10)
    algorithm = tl.SGD(tl.optimal_lr(problem), geometry="projected")
    starts = tl.Overlaps.random(problem, 100_000, seed=0)
    path = tl.solve(
        problem, algorithm, tl.ODE(), starts, time=20, save=200
    ).excess_risk.values[0]
    assert path.min() / path[0] == pytest.approx(0.935, abs=0.002)
    assert path[-1] / path[0] == pytest.approx(1.818, abs=0.005)
    with pytest.raises(tl.InputError, match=r"0 reach 0\.1"):
        tl.escape_time(problem, algorithm, 100_000, 0.1)


def test_stationary_risk_is_where_the_ode_ends() -> None:
    for p, gamma, noise, batch in (
        (1, 0.1, 0.5, 1),
        (2, 0.2, 0.5, 1),
        (5, 1.0, 0.2, 2),
    ):
        problem, algorithm = phase(p, noise), projected(gamma, batch)
        start = tl.Overlaps(
            0.95 * np.ones((p, p)) + 0.05 * np.eye(p), 0.9 * np.ones((p, 1))
        )
        end = tl.solve(
            problem, algorithm, tl.ODE(), start, time=400, save=1
        ).excess_risk.values[0, -1]
        assert tl.escape.stationary_risk(problem, algorithm) == pytest.approx(
            end, rel=1e-6
        )
    assert tl.escape.stationary_risk(phase(2, 0.5), projected(0.2)) == pytest.approx(
        0.1189, abs=1e-4
    )
    assert tl.escape.stationary_risk(phase(3), projected(0.1)) == 0.0


@pytest.mark.slow
def test_passages_count_what_is_censored() -> None:
    problem, dim = phase(), 300
    starts = tl.Overlaps.random(problem, dim, seed=1, size=200)
    until = tl.Until("excess_risk", 0.5, relative=True)
    full = tl.escape.first_passage(
        tl.solve(
            problem,
            projected(0.05),
            tl.Chain(dim),
            starts,
            time=20,
            save=1,
            until=until,
        )
    )
    cut = tl.escape.first_passage(
        tl.solve(
            problem,
            projected(0.05),
            tl.Chain(dim),
            starts,
            time=1.0,
            save=1,
            until=until,
        )
    )
    assert full.censored == 0 and 0 < cut.censored < 200
    assert np.sum(full.times > 1.0) == cut.censored
    np.testing.assert_array_equal(
        np.sort(full.times)[: 200 - cut.censored], cut.distribution()[0]
    )
    assert cut.distribution()[1][-1] == pytest.approx(1 - cut.censored / 200)
    assert full.median == pytest.approx(np.median(full.times))
    np.testing.assert_allclose(full.steps, full.times * dim / 0.05)
    assert "censored" in str(cut)
    with pytest.raises(tl.InputError, match="until"):
        tl.escape.first_passage(
            tl.solve(problem, projected(0.05), tl.Chain(dim), starts, time=0.1, save=1)
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"threshold": 0.0}, "threshold"),
        ({"threshold": 1.0}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"dim": 1}, "dim"),
        ({"algorithm": projected(0.2)}, r"d·lr/\(p·n_b\) < 0.16"),
        (
            {"algorithm": tl.SGD(0.05 / d, geometry="projected", loss="correlation")},
            "squared",
        ),
        (
            {
                "algorithm": tl.SGD(
                    0.05 / d, train_second_layer=True, train_first_layer=False
                )
            },
            "first layer that moves",
        ),
        ({"problem": tl.Problem("He3(z1)", "He3")}, "information exponent 2"),
        ({"problem": tl.Problem("z1", "relu")}, "information exponent 1"),
        (
            {"problem": tl.Problem("z1**2", "square", width=2, second_layer="signs")},
            "another in every run",
        ),
        ({"algorithm": tl.SGD(5 / d)}, "norms run away"),
        (
            {"problem": phase(1, 1.0), "algorithm": projected(0.14), "threshold": 0.9},
            "threshold",
        ),
    ],
)
def test_bad_input(change: dict[str, object], words: str) -> None:
    arguments = {
        "problem": phase(),
        "algorithm": projected(0.05),
        "dim": 1000,
        "threshold": 0.1,
    } | change
    with pytest.raises(tl.InputError, match=words):
        tl.escape_time(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [0.0, 1.0, 2.0, float("nan")])
def test_the_law_of_passages_is_that_of_a_threshold_in_the_unit_interval(
    threshold: float,
) -> None:
    """At T = 0 the logarithm of a negative number would stand for every fifth start of three neurons."""
    with pytest.raises(tl.InputError, match="threshold"):
        tl.escape.passage_law(phase(3), projected(0.05), 100, threshold)


def test_he2_is_the_same_problem() -> None:
    one = tl.escape_time(phase(1, 0.1), projected(0.05), 1000, 0.1)
    two = tl.escape_time(
        tl.Problem("He2(z1)", "He2", noise=0.1), projected(0.05), 1000, 0.1
    )
    assert one == two


@pytest.mark.long
def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["escape", "--dim", "500", "--noise", "0.3", "--threshold", "0.1"]
    assert main([*argv, "--measure", "8"]) == 0
    shown = capsys.readouterr().out
    assert "quenched" in shown and "8 runs" in shown and "0.0813" in shown
    assert main([*argv, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    problem = phase(1, 0.3)
    times = tl.escape_time(
        problem, tl.SGD(tl.optimal_lr(problem), geometry="projected"), 500, 0.1
    )
    assert values["time"]["corrected"] == pytest.approx(times.corrected)
    assert values["steps"]["annealed"] == pytest.approx(times.steps.annealed)
    assert main(["escape", "--width", "10", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["threshold"] == 0.026 and values["time"]["corrected"] > 0.5
    assert (
        main(["escape", "--dim", "100", "--width", "10", "--threshold", "0.001"]) == 0
    )
    shown = capsys.readouterr()
    assert "corrected  not given: T·d = 0.1 is below" in shown.out and shown.err == ""
    assert (
        main(
            [
                "escape",
                "--dim",
                "300",
                "--width",
                "10",
                "--threshold",
                "0.01",
                "--ode",
                "--json",
            ]
        )
        == 0
    )
    values = json.loads(capsys.readouterr().out)
    assert (
        values["time"]["corrected"] is None
        and values["time"]["noisy"] > 0.3
        and values["time"]["ode"] > 0.2
    )
    assert main(["escape", "--width", "inf"]) == 0
    assert "0.5·p/d" in capsys.readouterr().out
    for argv, words in (
        (["--width", "inf", "--lr", "0.1/d"], "finite --width"),
        (["--width", "1.5"], "or inf"),
    ):
        assert main(["escape", *argv]) == 2
        assert words in capsys.readouterr().err
    assert main(["escape", "--lr", "0.3/d"]) == 2
    assert "d·lr/(p·n_b) <" in capsys.readouterr().err
    assert main(["escape", "--threshold", "2"]) == 2


@pytest.mark.parametrize(
    ("p", "dim", "T"),
    [(1, 1000, 0.1), (2, 300, 0.05), (5, 100_000, 0.01), (3, 40, 0.3)],
)
def test_the_quenched_integral_is_the_sampled_average(
    p: int, dim: int, T: float
) -> None:
    algorithm = tl.SGD(tl.optimal_lr(phase(p)), geometry="projected")
    law = tl.escape.passage_law(phase(p), algorithm, dim, T)
    c = growth_rate(phase(p), algorithm.lr.coefficient / p)
    assert (
        abs(law.mean() - quenched_time(p, dim, T, c))
        < sigmas() * law.std() / np.sqrt(len(law)) + 5e-4
    )
    # at the mean of the start alone it is another number
    assert (
        abs(law.mean() - annealed_time(p, dim, T, c))
        > sigmas() * law.std() / np.sqrt(len(law)) + 5e-4
    )


def test_wide_and_infinite_widths_have_formulas() -> None:
    wide, limit = (
        tl.escape.formulas(p, 10**5, 0.02, noise=0.3) for p in (10_000, np.inf)
    )
    for name in (
        "rate",
        "rho",
        "gain",
        "annealed",
        "quenched",
        "corrected",
        "noisy",
        "per_time",
    ):
        assert getattr(wide, name) == pytest.approx(getattr(limit, name), rel=2e-3), (
            name
        )
    assert limit.gain == pytest.approx(12.3 / 2.3)
    assert limit.per_time == pytest.approx(10**5 * 2 * 1.15)
    assert limit.annealed == limit.quenched


def test_cross_noise_is_the_variance_of_one_step() -> None:
    """W_p from the covariance rule at m = 0, Q = I, where the entry of Q_12 is not moved by normalisation."""
    import jax

    from twolayer.analysis.escape_formulas import cross_noise_of
    from twolayer.gaussian.increment_covariance import spread_of

    problem, rho = phase(3, 0.3), 0.1
    with jax.enable_x64(True):
        sigma = spread_of(problem, projected(0.3))(
            np.eye(3), np.zeros((3, 1)), np.ones(3), 0.3, rho
        )
    assert float(sigma[4, 4]) == pytest.approx(cross_noise_of(3, 0.3, rho), rel=1e-12)


@pytest.mark.parametrize(
    ("p", "dim", "seeds", "room"),
    [
        pytest.param(1, 1000, 800, 0.02, marks=pytest.mark.long),
        pytest.param(2, 1000, 800, 0.04, marks=pytest.mark.slow),
    ],
)
def test_the_noisy_form_holds_where_the_correction_does_not(
    p: int, dim: int, seeds: int, room: float
) -> None:
    """At T d = 10; what the formula leaves out there is stated in the documentation."""
    problem, T = phase(p), 0.01
    algorithm = tl.SGD(tl.optimal_lr(problem), geometry="projected")
    starts = tl.Overlaps.random(problem, dim, seed=3, size=seeds)
    until = tl.Until("excess_risk", 1 - T, relative=True)
    passage = tl.escape.first_passage(
        tl.solve(problem, algorithm, tl.Chain(dim), starts, time=8, save=1, until=until)
    )
    found = tl.escape.formulas(p, dim, T)
    assert found.corrected is None
    assert abs(passage.mean - found.noisy) < sigmas() * passage.standard_error + room
    assert abs(passage.mean - found.quenched) > sigmas() * passage.standard_error + room


def test_the_noisy_form_becomes_the_correction() -> None:
    for p in (1, 4):
        found = tl.escape.formulas(p, 10**9, 0.01, rho=0.05)
        s = noise_gain(phase(p), 0.05)
        assert found.noisy == pytest.approx(
            found.quenched - np.log1p(s) / (2 * found.rate), abs=1e-3
        )


@pytest.mark.slow
def test_the_rate_that_learns_has_the_fewest_steps() -> None:
    """The whole ODE from random starts takes more steps at other rates, and never learns at that of the escape."""
    problem, dim = phase(3), 2000
    best = tl.escape.learning_lr(problem, dim)
    starts = tl.Overlaps.random(problem, dim, seed=1, size=16)
    until = tl.Until("excess_risk", 0.01, relative=True)

    def steps(lr: Any) -> float:
        algorithm = tl.SGD(lr, geometry="projected")
        run = tl.solve(
            problem,
            algorithm,
            tl.ODE(),
            starts,
            time=60,
            save=1,
            until=until,
            throw=False,
        )
        return float(np.mean(tl.escape.first_passage(run).times)) / lr.coefficient

    at_best = steps(best)
    assert at_best < steps(0.7 * best) and at_best < steps(1.3 * best)
    assert not np.isfinite(steps(tl.optimal_lr(problem)))
    with pytest.raises(tl.InputError, match="risk stays above"):
        tl.escape.learning_lr(phase(2, 1e4), 100, 0.9999)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 0}, "width"),
        ({"threshold": 1}, "threshold"),
        ({"rho": 1.0}, "rho"),
        ({"noise": -1}, "noise"),
    ],
)
def test_formulas_refuse_bad_input(change: dict[str, float], words: str) -> None:
    with pytest.raises(tl.InputError, match=words):
        tl.escape.formulas(**change)


@pytest.mark.parametrize(("dim", "T"), [(100, 0.1), (60, 0.3)])
def test_the_average_over_starts_of_two_neurons(dim: int, T: float) -> None:
    """E log{(1−T)(1 + b/S)}/(2c) over two random rows on the sphere: a double integral in NumPy, and pairs of samples.

    The overlap of the rows moves b; the second order of that is what `quenched_time` adds to the integral at its mean.
    """
    c, p = 2.0, 2
    tau = p * (p - 1)
    b = (T * p * (p + 1) * dim - (1 - T) * tau) / (2 * p * dim * (1 - T))
    x, w = np.polynomial.legendre.leggauss(400)
    u = (x + 1) / 2
    omega, weight = (
        (np.pi / 2) * u**6,
        6 * u**5 * w,
    )  # the logarithm is singular at the origin
    weight = weight * np.cos(omega) ** (dim - 2)
    weight /= weight.sum()
    S = np.sin(omega[:, None]) ** 2 + np.sin(omega) ** 2
    integral = weight @ np.log1p(b / S) @ weight
    rng, n = np.random.default_rng(1), 1_000_000
    m = np.sqrt(rng.beta(0.5, (dim - 1) / 2, size=(2, n))) * rng.choice(
        [-1, 1], size=(2, n)
    )
    between = np.sqrt(rng.beta(0.5, (dim - 2) / 2, size=n)) * rng.choice(
        [-1, 1], size=n
    )
    overlap = m[0] * m[1] + np.sqrt((1 - m[0] ** 2) * (1 - m[1] ** 2)) * between
    found, s = 2 * dim * overlap**2, (m**2).sum(0)
    own = (T * p * (p + 1) * dim - (1 - T) * found) / (2 * p * dim * (1 - T))
    gap = np.log1p(own / s) - np.log1p(b / s)
    shift, error = gap.mean(), gap.std() / np.sqrt(n)
    expected = (math.log1p(-T) + integral + shift) / (2 * c)
    room = (
        0.25 * abs(shift) + sigmas() * error
    )  # what is left of third order and of the overlap's own correlation
    assert abs(quenched_time(p, dim, T, c) - expected) < room / (2 * c)
    assert shift < -4 * error


@pytest.mark.parametrize(
    ("p", "noise", "rho"), [(1, 0.4, 0.05), (2, 0.3, 0.07), (3, 0.0, 0.1)]
)
def test_the_noise_of_an_escape_is_that_of_single_samples(
    p: int, noise: float, rho: float
) -> None:
    """V_p and W_p at m = 0, Q = I by products of Hermite nodes: variances of g λ* and of g_j λ_l + g_l λ_j + ρ g_j g_l."""
    x, w = np.polynomial.hermite_e.hermegauss(9)
    fields = p + 2
    xi = np.stack(np.meshgrid(*[x] * fields, indexing="ij"), -1).reshape(-1, fields)
    weight = np.prod(
        np.meshgrid(*[w / w.sum()] * fields, indexing="ij"), axis=0
    ).ravel()
    lam, star = xi[:, :p], xi[:, p]
    e = star**2 - (lam**2).mean(1) + np.sqrt(noise) * xi[:, -1]
    g = 2 * lam * e[:, None]
    assert noise_strength_of(p, noise) == pytest.approx(
        weight @ (g[:, 0] * star) ** 2, rel=1e-10
    )
    if p > 1:
        X = g[:, 0] * lam[:, 1] + g[:, 1] * lam[:, 0] + rho * g[:, 0] * g[:, 1]
        assert cross_noise_of(p, noise, rho) == pytest.approx(
            weight @ X**2 - (weight @ X) ** 2, rel=1e-10
        )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("p", [2, 5])
def test_identical_neurons_move_as_the_ode_says(p: int) -> None:
    """dm/dt and dq/dt of neurons that are all alike, from the whole ODE over a short time."""
    m, q, rho, noise = 0.4, 0.5, 0.05, 0.3
    problem = tl.Problem("z1**2", "square", width=p, noise=noise)
    algorithm = tl.SGD(lr=rho * p / tl.d, geometry="projected")
    start = tl.Overlaps((1 - q) * np.eye(p) + q, np.full((p, 1), m))
    field = tl.pure.vector_field(problem, algorithm)
    rate = field(start)
    alike = Alike(np.array([float(p)]), rho, noise)
    dm, dq = alike.drift(np.array([m]), np.array([[q]]))
    np.testing.assert_allclose(
        [rate.M[0, 0], rate.Q[0, 1]], [dm[0], dq[0, 0]], rtol=1e-5
    )
    assert tl.moments(problem, start).excess_risk == pytest.approx(
        alike.excess_risk(np.array([m]), np.array([[q]])), rel=1e-9
    )


def test_the_default_threshold_stays_within_its_bounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At very large d the correction would allow thresholds below 0.01; they are not taken."""
    assert main(["escape", "--width", "2", "--dim", "100000000"]) == 0
    assert "(1 − 0.01) R(0)" in capsys.readouterr().out


def test_the_population_loss_of_one_neuron() -> None:
    """Flow, growth and largest step of phase retrieval by hand: φ = const − 2 m², V(0) = E[(2λ(λ*² − λ²))²] = 48."""
    loss = tl.single_index.population_loss(tl.Problem("z1**2", "square"))
    m = np.array([0.2, 0.5])
    np.testing.assert_allclose(loss.derivative(m), -4 * m, rtol=1e-6)
    np.testing.assert_allclose(loss.flow(m), 4 * m * (1 - m**2), rtol=1e-6)
    assert loss.growth == pytest.approx(4.0)
    assert float(loss.noise()) == pytest.approx(48.0, rel=1e-6)
    np.testing.assert_allclose(loss.flow(0.0, 0.1), 0.0, atol=1e-9)
    own = 0.1 / 2 * loss.noise(m) * m
    np.testing.assert_allclose(loss.flow(m, 0.1), loss.flow(m) - own, rtol=1e-9)
    assert loss.largest_step(10_000) == pytest.approx(2 * 4.0 / 48.0, rel=1e-6)
    cubic = tl.single_index.population_loss(tl.Problem("He3(z1)", "He3"))
    assert cubic.largest_step(10_000) == pytest.approx(
        2 * cubic.growth / 100 / float(cubic.noise()), rel=1e-6
    )
