"""Fixed points, plateaus and the critical learning rate: against closed forms, the ODE itself and the exact chain."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas
from cost import sized

import twolayer as tl
from twolayer import d
from twolayer.analysis.stability import critical, newton, points
from twolayer.analysis.stability.linear import Flow
from twolayer.cli import main

SQUARE = tl.Problem("He2(z1)", "He2", noise=0.2)
BASIN = [tl.Overlaps([[1.0]], [[0.001]]), tl.Overlaps([[1.0]], [[0.9]])]


def committee(p: int) -> tl.Problem:
    return tl.Problem(tl.Teacher("erf", k=p), "erf", width=p)


def alike(p: int, m: float, q: float, c: float, apart: float = 0.0) -> tl.Overlaps:
    """Neurons with the same overlaps, or nearly."""
    return tl.Overlaps(c + (q - c) * np.eye(p), m + apart * np.eye(p))


# ---------------------------------------------------------------------------------------------- fixed points


def test_phase_retrieval_free() -> None:
    """At m = 0 the norm solves 15γq² − (3+6γ)q + 1 + 3γ + γΔ = 0, and κ = 6(1 − q)."""
    gamma, noise = 0.05, 0.2
    saddle, end = tl.fixed_points(SQUARE, tl.SGD(lr=gamma / d), BASIN)
    q = min(np.roots([15 * gamma, -(3 + 6 * gamma), 1 + 3 * gamma + gamma * noise]))
    assert (saddle.unstable, saddle.kind, end.kind) == (1, "saddle", "stable")
    np.testing.assert_allclose(saddle.overlaps.Q, [[q]], rtol=1e-10)
    np.testing.assert_allclose(
        saddle.eigenvalues, [6 * (1 - q), -4.19475736], rtol=1e-8
    )
    assert saddle.residual < 1e-9
    np.testing.assert_allclose(
        saddle.mode(0).M, [[1.0]]
    )  # the way out is the overlap, and nothing else
    np.testing.assert_allclose(saddle.mode(0).Q, [[0.0]], atol=1e-12)
    assert end.rate < 0 and math.isinf(end.lasts(100))


@pytest.mark.slow
def test_phase_retrieval_projected_and_the_law_of_its_plateau() -> None:
    """κ = 4(1 − 6γ) − 2γΔ, on the tangent space of a unit vector; m grows from m₀ = d^(−1/2) as e^{κt}."""
    gamma = 0.05
    algorithm = tl.SGD(lr=gamma / d, geometry="projected")
    saddle = tl.fixed_points(SQUARE, algorithm, BASIN[0])[0]
    np.testing.assert_allclose(
        saddle.eigenvalues, [4 * (1 - 6 * gamma) - 2 * gamma * SQUARE.noise], rtol=1e-10
    )
    lengths = {}
    for dim in (10**4, 10**8):
        start = tl.Overlaps([[1.0]], [[dim**-0.5]], dim=dim)
        run = tl.solve(SQUARE, algorithm, tl.ODE(), start, time=6)
        (plateau,) = found = tl.stability.plateaus(SQUARE, algorithm, run)
        assert found.in_order is True and found.chain == [(2, 1)]
        lengths[dim] = plateau
    # the constant of one run predicts the other: corrections to pure exponential growth are of order m₀²
    np.testing.assert_allclose(
        lengths[10**4].at(10**8), lengths[10**8].length, rtol=2e-3
    )
    assert abs(lengths[10**4].length - lengths[10**8].length) > 1.0


def test_the_noise_floor_of_linear_regression() -> None:
    """ε_∞ = γΔ/(2(2 − γ)) for any γ below 2, where the fixed point goes away."""
    problem, start = (
        tl.Problem("z1", "linear", noise=0.3),
        tl.Overlaps([[1.2]], [[0.8]]),
    )
    for gamma in (0.2, 1.5):
        (end,) = tl.fixed_points(problem, tl.SGD(lr=gamma / d), start)
        np.testing.assert_allclose(
            end.excess_risk, gamma * 0.3 / (2 * (2 - gamma)), rtol=1e-9
        )
        np.testing.assert_allclose(
            sorted(end.eigenvalues), sorted([-1.0, -2 + gamma]), rtol=1e-9
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gamma", "M", "Q", "excess", "kappa"),
    [(0.5, 0.409496, (0.340282, 0.331688), 0.00305304, 0.032602), (2.0, 0.414394, (0.367720, 0.325386), 0.00366121, 0.031618)],
)  # fmt: skip
def test_the_plateau_of_a_committee(
    gamma: float, M: float, Q: tuple[float, float], excess: float, kappa: float
) -> None:
    """The saddle that runs approach, with neurons apart, and not the one with coinciding neurons beside it."""
    (point,) = tl.fixed_points(
        committee(2), tl.SGD(lr=gamma / d), alike(2, 0.41, 0.42, 0.33, 0.001)
    )
    assert point.unstable == 1
    np.testing.assert_allclose(point.overlaps.M, np.full((2, 2), M), atol=1e-6)
    np.testing.assert_allclose(point.overlaps.Q, [Q, Q[::-1]], atol=1e-6)
    np.testing.assert_allclose(
        [point.excess_risk, point.rate], [excess, kappa], rtol=2e-5
    )
    out = point.mode(0).M  # specialisation: each neuron towards its own direction
    np.testing.assert_allclose(out / out[0, 0], [[1, -1], [-1, 1]], atol=1e-6)


@pytest.mark.slow
def test_coinciding_neurons_are_another_saddle() -> None:
    (point,) = tl.fixed_points(
        committee(2), tl.SGD(lr=0.5 / d), alike(2, 0.4, 0.333, 0.333)
    )
    assert point.unstable == 3
    np.testing.assert_allclose(
        point.eigenvalues[:3], [0.033164, 0.000845, 0.000071], atol=1e-6
    )
    np.testing.assert_allclose(point.excess_risk, 0.00305325, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("p", [2, 3])
def test_gradient_flow_of_a_committee_in_closed_form(p: int) -> None:
    """κ = (2/π)(2p−1)^(−1/2)(2p+1)^(−3/2), (p−1)² times, and p(p+1)/2 − 1 directions neither grow nor decay."""
    start = alike(
        p, 0.98 / math.sqrt(p * (2 * p - 1)), 1 / (2 * p - 1), 1 / (2 * p - 1)
    )
    (point,) = tl.fixed_points(committee(p), tl.SGD(lr=0.5 * d**-2), start)
    kappa = 2 / math.pi * (2 * p - 1) ** -0.5 * (2 * p + 1) ** -1.5
    assert (point.unstable, point.neutral) == ((p - 1) ** 2, p * (p + 1) // 2 - 1)
    np.testing.assert_allclose(point.eigenvalues[: point.unstable], kappa, rtol=1e-8)
    np.testing.assert_allclose(
        point.excess_risk,
        (math.pi / 6 - p * math.asin(1 / (2 * p))) / (math.pi * p),
        rtol=1e-9,
    )


@pytest.mark.slow
def test_a_noisy_fixed_point_is_where_the_ode_ends_and_how_fast_it_gets_there() -> None:
    problem, algorithm = (
        tl.Problem(tl.Teacher("erf", k=1), "erf", noise=0.2),
        tl.SGD(lr=0.5 / d),
    )
    run = tl.solve(
        problem,
        algorithm,
        tl.ODE(rtol=1e-11),
        tl.Overlaps([[0.5]], [[0.3]]),
        time=120,
        save=120,
    )
    points = tl.fixed_points(problem, algorithm, near=run)
    end = points[-1]
    np.testing.assert_allclose(
        [end.overlaps.M[0, 0], end.overlaps.Q[0, 0]], [1.089480, 1.246896], atol=1e-6
    )
    gap = run.M.values[0, :, 0, 0] - end.overlaps.M[0, 0]
    measured = math.log(gap[110] / gap[80]) / 30
    np.testing.assert_allclose(measured, end.rate, rtol=1e-3)


@pytest.mark.slow
def test_newton_alone_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong twin: with Newton's steps from the beginning the plateau of a committee is missed."""
    start, algorithm = alike(2, 0.38, 0.75, 0.15, 0.02), tl.SGD(lr=0.5 / d)
    right = tl.fixed_points(committee(2), algorithm, start)
    assert len(right) == 1 and abs(right[0].rate - 0.032602) < 1e-6
    monkeypatch.setattr(newton, "_gains", lambda values, h: -1 / values)
    wrong = tl.fixed_points(committee(2), algorithm, start)
    assert not wrong or abs(wrong[0].rate - 0.032602) > 1e-4


@pytest.mark.slow
def test_kinks_at_perfect_learning() -> None:
    """Where Ω is singular the slope of chi of rectifiers is a limit from inside: −(2J − γK) = −(1 − γ/2)."""
    problem, gamma = tl.Problem(tl.Teacher("relu", k=1), "relu"), 0.4
    (point,) = tl.fixed_points(
        problem, tl.SGD(lr=gamma / d), tl.Overlaps([[1.0]], [[1.0]])
    )
    np.testing.assert_allclose(point.eigenvalues, [-0.5, -(1 - gamma / 2)], atol=1e-5)
    flow = point._flow
    with jax.enable_x64(True):
        plain = np.linalg.eigvals(flow._slope(flow.packed(flow.frame)))
    assert (
        np.abs(np.sort(plain) - np.sort(point.eigenvalues)).max() > 0.1
    )  # the formula itself has no slope there


# ------------------------------------------------------------------------------------------ critical learning rate


def test_the_critical_rate_in_closed_form() -> None:
    known = {
        "square": 1 / 6,
        "relu": 2.0,
        "erf": math.pi * math.sqrt(5 / 3),
        "linear": 2.0,
    }
    for name, gamma in known.items():
        law = tl.critical_lr(tl.Problem(tl.Teacher(name, k=1), name))
        assert law.exponent == -1
        np.testing.assert_allclose(law.coefficient, gamma, rtol=1e-9)
    for p, gamma in {2: 9.2273108, 3: 14.5860706, 5: 25.4112}.items():
        np.testing.assert_allclose(
            tl.critical_lr(committee(p)).coefficient, gamma, rtol=1e-6
        )
    # C ∝ I alone, as it is often quoted, is not the mode that goes first
    quoted = math.sqrt(3) * math.pi / (1 + 3 / math.sqrt(5)) * 4
    assert quoted > 1.005 * tl.critical_lr(committee(2)).coefficient


def test_the_critical_rate_follows_batch_and_normalisation() -> None:
    one = tl.critical_lr(committee(2)).coefficient
    assert tl.critical_lr(committee(2), batch=3).coefficient == pytest.approx(3 * one)
    assert str(tl.critical_lr(committee(2), batch="2*d**0.5")).endswith("*d**-0.5")
    summed = tl.Problem(
        tl.Teacher("erf", k=2, normalisation="sum"), "erf", width=2, normalisation="sum"
    )
    assert tl.critical_lr(summed).coefficient == pytest.approx(one / 4)


def test_twice_as_many_neurons_as_directions() -> None:
    """Two neurons on one direction are one of twice the weight: only their sum is kicked."""
    wide = tl.Problem(tl.Teacher("erf", k=1), "erf", width=2)
    lone = tl.critical_lr(tl.Problem(tl.Teacher("erf", k=1), "erf")).coefficient
    # their sum w₁ + w₂ moves as one row, twice as fast per unit of lr/p², i.e. γ_c = 2 γ_c(1)
    assert tl.critical_lr(wide).coefficient == pytest.approx(2 * lone)


def test_the_product_formula_is_the_grid() -> None:
    """Orthonormal directions by moments in one dimension, and by a product rule as for any others."""
    with jax.enable_x64(True):
        problem = committee(3)
        slope = jax.vmap(jax.grad(lambda z: problem.activation(z)))
        s, w = critical._grid(problem, slope)
        K = np.einsum("n,ni,nj,nk,nl->ijkl", w, s, s, s, s, optimize=True)
        np.testing.assert_allclose(critical._averages(problem)[1], K, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["erf", "tanh", "relu"])
def test_the_linearisation_changes_sign_at_the_critical_rate(name: str) -> None:
    gram = [[1.0, 0.3], [0.3, 0.8]] if name == "erf" else None
    k = 2 if name == "erf" else 1
    problem = tl.Problem(tl.Teacher(name, k=k), name, width=k, gram=gram)
    law, point = tl.critical_lr(problem), tl.stability.perfect_point(problem)
    below, above = (
        tl.fixed_points(problem, tl.SGD(lr=law * f), point)[0] for f in (0.99, 1.01)
    )
    assert (below.unstable, above.unstable) == (0, 1)
    assert above.excess_risk < 1e-12


@pytest.mark.slow
def test_the_excess_risk_of_the_chain_grows_beyond_the_critical_rate() -> None:
    problem, dim = tl.Problem(tl.Teacher("erf", k=1), "erf"), 2000
    start, law = tl.Overlaps([[1.0]], [[1 - 1e-4]]), tl.critical_lr(problem)
    logs = {}
    for f in (0.7, 1.3):
        run = tl.solve(
            problem,
            tl.SGD(lr=law * f),
            tl.Chain(dim),
            start,
            steps=dim // 4,
            save=1,
            seeds=64,
        )
        change = np.log(run.excess_risk.values[:, -1] / run.excess_risk.values[:, 0])
        logs[f] = change.mean(), change.std() / 8
    assert (
        logs[0.7][0] + sigmas() * logs[0.7][1]
        < 0
        < logs[1.3][0] - sigmas() * logs[1.3][1]
    )


# ------------------------------------------------------------------------------------------------------- plateaus


@pytest.mark.slow
def test_a_committee_specialises_at_the_end_of_its_plateau() -> None:
    algorithm, start = (
        tl.SGD(lr=0.5 / d),
        tl.Overlaps.random(committee(2), dim=1000, seed=1),
    )
    run = tl.solve(committee(2), algorithm, tl.ODE(), start, time=400, save=400)
    found = tl.stability.plateaus(committee(2), algorithm, run)
    (plateau,) = found
    assert plateau.begin == 0 and 100 < plateau.end < 250
    assert abs(plateau.point.rate - 0.032602) < 1e-6 and plateau.dim == 1000
    assert (
        found.in_order is True
        and found.learned[0]
        < 20
        < plateau.end - 60
        < found.learned[1]
        < plateau.end + 20
    )
    assert found.points[-1].kind == "stable" and found.points[-1].excess_risk < 1e-9
    # cut before the second direction is learned, nothing can be said
    early = tl.stability.plateaus(committee(2), algorithm, run.isel(time=slice(0, 60)))
    assert early.in_order == "undecided"
    # and a run that goes the other way round contradicts the chain
    reverse = run.copy(deep=True)
    reverse["M"] = run.M.isel(time=slice(None, None, -1)).variable
    reverse["Q"] = run.Q.isel(time=slice(None, None, -1)).variable
    first = tl.analyse(committee(2).target).directions[:1]
    reverse["M"] = reverse.M - np.where(reverse.time < 200, 1, 0)[
        None, :, None, None
    ] * (reverse.M.values @ first.T @ first)
    assert (
        tl.stability.plateaus(committee(2), algorithm, reverse, tolerance=1e-9).in_order
        is False
    )


def test_a_run_that_has_come_to_rest_keeps_its_plateau(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At rest rounding makes slow points without end, and all of them are one; with all of them the plateau is lost."""
    problem, algorithm = (
        tl.Problem("He2(z1)", "He2"),
        tl.SGD(lr="0.05/d", geometry="projected"),
    )
    run = tl.solve(
        problem,
        algorithm,
        tl.ODE(),
        tl.Overlaps([[1.0]], [[0.01]], dim=10_000),
        time=100,
        save=500,
    )
    found = tl.stability.plateaus(problem, algorithm, run)
    assert [round(x.point.rate, 6) for x in found] == [2.8] and [
        x.unstable for x in found.points
    ] == [1, 0]
    monkeypatch.setattr(points, "APART", -1.0)
    assert not tl.stability.plateaus(problem, algorithm, run)


@pytest.mark.slow
def test_the_plateau_lengthens_with_the_dimension_as_predicted() -> None:
    """The exact chain of phase retrieval: slope dt/dlog d = 1/(2κ) between two dimensions, within its error."""
    algorithm = tl.SGD(lr=0.02 / d, geometry="projected")
    problem = tl.Problem("He2(z1)", "He2")
    saddle = tl.fixed_points(problem, algorithm, BASIN[0])[0]
    means, errors, dims = [], [], (200, 3200)
    for dim in dims:
        start = tl.Overlaps.random(problem, dim, seed=3, size=256)
        run = tl.solve(problem, algorithm, tl.Chain(dim), start, time=4, save=400)
        exits = run.time.values[(run.excess_risk.values < 1.0).argmax(1)]
        means.append(exits.mean())
        errors.append(exits.std() / 16)
    slope, error = (
        (means[1] - means[0]) / math.log(16),
        math.hypot(*errors) / math.log(16),
    )
    assert abs(slope - 1 / (2 * saddle.rate)) < sigmas() * error + 0.02 / (
        2 * saddle.rate
    )
    assert sigmas() * error < 0.5 / (2 * saddle.rate)  # a factor 2 would be seen


# ---------------------------------------------------------------------------------------------------- coordinates


@pytest.mark.parametrize("geometry", sized(["free", "projected"], slow=["free"]))
def test_the_slope_is_that_of_the_ode(geometry: str) -> None:
    """J against differences of integrated trajectories: e^{Jt} carries small changes of the start."""
    problem = tl.Problem("He2(z1)", "He2", width=2)
    algorithm = tl.SGD(lr=0.05 / d, geometry=geometry)
    start = tl.Overlaps([[1.0, 0.2], [0.2, 1.0]], [[0.3], [-0.4]])
    with jax.enable_x64(True):
        flow = Flow.at(problem, algorithm, start)
        assert len(flow.x) == (5 if geometry == "free" else 3)
        slope = flow.slope(flow.x)

        def after(x: np.ndarray) -> np.ndarray:
            at = flow.overlaps(x)
            seen = tl.pure.integrate(
                flow.field, at, jnp.array([1e-3]), rtol=1e-13, mode="forward"
            )[-1]
            return flow.packed(jax.tree.map(jnp.asarray, flow.field.state(seen)))

        h, x = 1e-4, flow.x
        moved = np.stack(
            [(after(x + h * e) - after(x - h * e)) / (2 * h) for e in np.eye(len(x))],
            axis=1,
        )
    np.testing.assert_allclose(
        (moved - np.eye(len(x))) / 1e-3, slope, atol=0.02 * np.abs(slope).max()
    )


def test_results_show_themselves() -> None:
    points = tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), BASIN)
    assert str(points).splitlines()[1].split()[:4] == ["–", "1.33738", "1", "3.6885"]
    assert "κ" in points._repr_html_() and "saddle" in points[0]._repr_html_()
    assert repr(points[1]).startswith(
        "FixedPoint(stable, excess risk 0.0142857, slowest decay 5.5"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), near=3), "`near` must be a run"),
        (lambda: tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), near=[]), "`near` must be a run"),
        (lambda: tl.fixed_points(SQUARE, tl.SGD(lr="0.05/d * cosine(5)"), near=BASIN), "`lr` must be constant"),
        (lambda: tl.fixed_points(SQUARE, tl.SGD(lr=0.1, batch=2 * d), near=BASIN), "discrete map"),
        (lambda: tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), near=BASIN, tolerance=0), "`tolerance` must be"),
        (lambda: tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), near=tl.Overlaps(np.eye(2), np.zeros((2, 1)))),
         "`near` must be overlaps of 1 × 1"),
        (lambda: tl.fixed_points(SQUARE, 0.1, near=BASIN), "`algorithm` must be"),
        (lambda: tl.stability.plateaus(SQUARE, tl.SGD(lr=0.05 / d), 3), "`run` must be"),
        (lambda: tl.critical_lr(tl.Problem("z1", "He2")), "a student that equals its target"),
        (lambda: tl.critical_lr(SQUARE, batch="d"), "`batch` must be"),
        (lambda: tl.critical_lr(SQUARE, batch=0), "`batch` must be"),
        (lambda: tl.critical_lr(committee(41)), "at most 40 neurons"),
        (lambda: tl.critical_lr(tl.Problem(tl.Teacher("relu", k=2), "relu", width=2, gram=[[1, 0.5], [0.5, 1]])), "kinks"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(tl.InputError, match=message):
        call()


def test_modes_and_lengths_refuse_what_they_do_not_know() -> None:
    point = tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), BASIN[0])[0]
    with pytest.raises(tl.InputError, match="less than 2"):
        point.mode(2)
    with pytest.raises(tl.InputError, match="a dimension"):
        point.lasts(0.5)
    run = tl.solve(SQUARE, tl.SGD(lr=0.05 / d), tl.ODE(), BASIN[0], time=0.1, save=2)
    with pytest.raises(tl.InputError, match="less than 1, the number of runs"):
        tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), run, seed=1)
    with pytest.raises(tl.InputError, match="a run of this problem"):
        tl.fixed_points(SQUARE.replace(width=2), tl.SGD(lr=0.05 / d), run)
    with pytest.raises(tl.InputError, match="no excess_risk"):
        tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), run.drop_vars("excess_risk"))


def test_an_interrupted_search_keeps_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from twolayer.analysis.stability import points

    calls = []

    def stop(*args: Any) -> Any:
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return newton.settle(*args)

    monkeypatch.setattr(points, "settle", stop)
    with pytest.raises(tl.errors.Interrupted) as caught:
        tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), BASIN)
    assert len(caught.value.result) == 1 and dataclasses.is_dataclass(
        caught.value.result[0]
    )


def test_the_figure_of_fixed_points_has_room_for_its_numbers() -> None:
    """Growth above zero, decay below, all inside the panel; labels of the axis lie no closer than the text is high."""
    points = tl.fixed_points(SQUARE, tl.SGD(lr=0.05 / d), BASIN)
    drawn = tl.plot.fixed_points(points)
    (panel,) = drawn.axes
    drawn.draw_without_rendering()
    low, high = panel.get_ylim()
    for i, point in enumerate(points):
        assert low < min(point.eigenvalues) and max(point.eigenvalues) < high
        assert point.kind in panel.get_xticklabels()[i].get_text()
    shown = [t for t in panel.get_yticks() if low <= t <= high]
    heights = np.sort(panel.transData.transform([(0.0, t) for t in shown])[:, 1])
    assert np.diff(heights).min() > 8 * drawn.dpi / 72
    with pytest.raises(tl.InputError, match="at least one point"):
        tl.plot.fixed_points(type(points)())


def test_the_figure_of_plateaus_marks_them() -> None:
    easy, law = tl.Problem("He2(z1)", "He2"), tl.SGD(lr=0.05 / d, geometry="projected")
    run = tl.solve(
        easy, law, tl.ODE(), tl.Overlaps([[1.0]], [[0.01]], dim=10_000), time=4
    )
    found = tl.stability.plateaus(easy, law, run)
    (panel,) = tl.plot.plateaus(found, run).axes
    span = panel.patches[0].get_window_extent().transformed(panel.transData.inverted())
    np.testing.assert_allclose(
        [span.x0, span.x1], [found[0].begin, found[0].end], atol=1e-6
    )
    assert panel.texts[0].get_text() == "κ = 2.8" and panel.get_yscale() == "log"
    assert "in this order" in found._repr_html_()
    with pytest.raises(tl.InputError, match="`run` must be the run"):
        tl.plot.plateaus(found, run.drop_vars("excess_risk"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, picture = tmp_path / "task.toml", tmp_path / "plateaus.png"
    task.write_text(
        '[problem]\ntarget = "He2(z1)"\nactivation = "He2"\n[algorithm]\nlr = "0.05/d"\ngeometry = "projected"\n'
        "[start]\nQ = [[1.0]]\nM = [[0.01]]\n[run]\ndim = 10000\ntime = 4\n"
    )
    assert main(["fixed-points", str(task), "--json", "--out", str(picture)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["points"][0]["rate"] == pytest.approx(2.8) and said["in_order"] is True
    assert said["plateaus"][0]["end"] == pytest.approx(1.645, abs=2e-3)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert main(["fixed-points", str(task), "--near-start"]) == 0
    assert all(len(line) <= 79 for line in capsys.readouterr().out.splitlines())
    for argv, message in (
        (["--near-start", "--save", "5"], "--save has no effect"),
        (["--set", "algorithm.lr=0.05/d * cosine(5)"], "`lr` must be constant"),
        (["--out", "a.doc"], "--out must end in"),
    ):
        assert main(["fixed-points", str(task), *argv]) == 2
        assert message in capsys.readouterr().err


# ------------------------------------------------------------------------------------------ inputs with blocks


def in_blocks(P: list[float], Q: list[float], M: list[float]) -> tl.Overlaps:
    return tl.Overlaps.in_blocks(*(np.reshape(x, (-1, 1, 1)) for x in (Q, M, P)))


def test_the_escape_of_phase_retrieval_with_blocks() -> None:
    """At M = 0 of gradient flow κ = 4 Σ s_i² P⁽ⁱ⁾: targets in blocks of large variance escape faster."""
    s, w, P = np.array([2.0, 0.5, 0.2]), [0.2, 0.5, 0.3], np.array([0.3, 0.6, 0.5])
    problem = tl.Problem(
        "z1**2", "square", inputs=tl.Inputs.blocks(s, w), gram=[[float(s @ P)]]
    )
    q = float(s @ P) / 3  # of the fields
    start = in_blocks(
        list(P), list(q * np.array([0.2, 0.5, 0.3]) / (s @ [0.2, 0.5, 0.3])), [0.0] * 3
    )
    point = tl.fixed_points(problem, tl.SGD(lr=0.1 * d**-1.5), start)[0]
    assert (
        point.rate == pytest.approx(4 * float(s**2 @ P), rel=1e-6)
        and point.unstable == 1
    )
    assert point.mode(0).M.shape == (3, 1, 1) and "κ" in point._repr_html_()
    np.testing.assert_allclose(
        point.overlaps.fields(problem.inputs).Q, [[q]], rtol=1e-6
    )


def test_the_critical_rate_with_blocks() -> None:
    """γ_c = 2J/(K Σ s_i w_i), 5.96438 here, where the linearised motion in blocks loses its stability."""
    inputs, P = tl.Inputs.blocks([2.0, 0.5, 0.1], [0.2, 0.5, 0.3]), [0.3, 0.4, 2.0]
    problem = tl.Problem(tl.Teacher("erf", k=1), "erf", inputs=inputs)
    law = tl.critical_lr(problem)
    assert law.coefficient == pytest.approx(5.96438041, rel=1e-7)
    at = in_blocks(P, P, P)
    below, above = (
        tl.fixed_points(problem, tl.SGD(lr=law * x), at)[0] for x in (0.999, 1.001)
    )
    assert below.unstable == 0 and above.unstable == 1
    with pytest.raises(tl.InputError, match="use free weights"):
        tl.fixed_points(problem, tl.SGD(lr=law, geometry="projected"), at)
    with pytest.raises(tl.InputError, match="Q = M = P"):
        tl.stability.perfect_point(problem)


def test_the_linearisation_extrapolates_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """J(ε) = J + b √ε + c ε at ε, ε/4 and ε/16 gives J to all digits."""
    problem, algorithm = tl.Problem("relu(z1)", "relu"), tl.SGD(lr=0.1 / d)
    with jax.enable_x64(True):
        flow = Flow.at(problem, algorithm, tl.Overlaps([[1.0]], [[1.0]]))
    J, b, c = (np.random.default_rng(i).normal(size=(2, 2)) for i in range(3))
    inside: list[float] = []

    def at(self: Flow, x: np.ndarray, epsilon: float) -> np.ndarray:
        inside.append(epsilon)
        return np.array([epsilon])

    monkeypatch.setattr(Flow, "_inside", at)
    monkeypatch.setattr(
        Flow, "_slope", lambda self, x: J + b * np.sqrt(x[0]) + c * x[0]
    )
    np.testing.assert_allclose(flow.slope(flow.x), J, atol=1e-12)
    assert len(inside) == 3
