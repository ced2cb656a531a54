"""Escape times: every formula against the ODE from random starts and against the exact chain; limits; refusals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from chance import sigmas
from scipy import special

import twolayer as tl
from twolayer import d
from twolayer.analysis.escape import resolved_threshold
from twolayer.analysis.escape_formulas import contraction_of, noise_strength_of
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


def test_wide_networks_against_the_ode_at_a_small_threshold() -> None:
    """At a small threshold the linear formula holds for p = 5, and its sampled average has a correct error bar."""
    problem, algorithm, dim, T = (
        phase(5),
        tl.SGD(tl.optimal_lr(phase(5)), geometry="projected"),
        100_000,
        0.01,
    )
    times = tl.escape_time(problem, algorithm, dim, T)
    assert times.ode - times.quenched == pytest.approx(0.021, abs=0.01)
    other = tl.escape_time(problem, algorithm, dim, T, seed=1)
    assert abs(other.quenched - times.quenched) < 4.5 * np.hypot(
        other.quenched_error, times.quenched_error
    )
    assert times.reached == 1.0


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
        ({"algorithm": tl.SGD(0.05 / d)}, "projected"),
        (
            {"algorithm": tl.SGD(0.05 / d, geometry="projected", loss="correlation")},
            "squared",
        ),
        (
            {
                "algorithm": tl.SGD(
                    0.05 / d, geometry="projected", train_second_layer=True
                )
            },
            "fixed second layer",
        ),
        ({"problem": tl.Problem("He3(z1)", "He3")}, "square"),
        (
            {"problem": tl.Problem("z1**2", "square", width=2, second_layer=[1, -1])},
            "second layer of ones",
        ),
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
    found = tl.escape.formulas(p, dim, T)
    assert (
        abs(law.mean() - found.quenched)
        < sigmas() * law.std() / np.sqrt(len(law)) + 5e-4
    )
    # at the mean of the start alone it is another number
    assert (
        abs(law.mean() - found.annealed)
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
        "steps_per_time",
    ):
        assert getattr(wide, name) == pytest.approx(getattr(limit, name), rel=2e-3), (
            name
        )
    assert limit.gain == pytest.approx(12.3 / 2.3)
    assert limit.steps_per_time == pytest.approx(10**5 * 2 * 1.15)
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
    ("p", "dim", "seeds", "room"), [(1, 1000, 800, 0.02), (2, 1000, 800, 0.04)]
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
