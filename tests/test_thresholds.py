"""The best possible with n = αd samples: known thresholds, state evolution by independent routes, message passing."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math

import numpy as np
import pytest
from chance import sigmas
from scipy.special import kv

import twolayer as tl
from twolayer import plot
from twolayer.analysis.thresholds.amp import simulate
from twolayer.analysis.thresholds.best_possible import _iterated
from twolayer.analysis.thresholds.conditional_means import cross_fitted, second_moments
from twolayer.analysis.thresholds.growth_operator import (
    as_operator,
    growth_of,
    significant_range,
)
from twolayer.analysis.thresholds.label_law import LabelLaw, law_of
from twolayer.analysis.thresholds.level_sets import pieces_of
from twolayer.analysis.thresholds.one_direction import channel_of, curve_of
from twolayer.analysis.thresholds.posterior import Posterior
from twolayer.analysis.thresholds.prediction_error import mmse_of
from twolayer.analysis.thresholds.staircase import Stair
from twolayer.analysis.thresholds.state_evolution import StateEvolution
from twolayer.cli import main
from twolayer.functions.target import Target
from twolayer.gallery import reuse_minibatch, reuse_or_fresh
from twolayer.task.inputs import Inputs

ONE_DIRECTION = [
    ("z1**2", 0.0, 0.5),
    ("abs(z1)", 0.0, 0.5),
    ("z1**4", 0.0, 0.5),
    ("He4(z1)", 0.0, 0.644850),
    ("cos(z1)", 0.0, 0.509096),
    ("cos(2*z1)", 0.0, 1.616746),
    ("z1**2", 0.1, 0.518066),
    ("z1**2", 1.0, 0.646591),
    ("abs(z1)", 0.01, 0.510048),
    ("abs(z1)", 0.1, 0.604288),
    ("abs(z1)", 1.0, 1.762060),
    ("h4(z1)", 0.1, 0.809680),
    ("cos(z1)", 0.01, 0.529204),
    ("cos(z1)", 0.1, 0.684510),
    ("cos(2*z1)", 0.05, 1.755845),
]


@pytest.mark.parametrize(("target", "noise", "alpha"), ONE_DIRECTION)
def test_weak_recovery_of_one_direction(
    target: str, noise: float, alpha: float
) -> None:
    found = tl.thresholds(target, noise)
    assert abs(found.alpha - alpha) < 1.1e-6
    assert found.error < 1e-6 and not len(found.trivial)
    assert [s.order for s in found.staircase] == [2]


@pytest.mark.parametrize(
    ("target", "noise", "visible"), [("He3(z1)", 0.0, 0.667832), ("h3(z1)", 0.1, 0.450338), ("tanh(z1)", 0.0, 1.0),
                                     ("tanh(z1)", 0.1, 0.746860), ("sign(z1)", 0.0, 2 / math.pi)]
)  # fmt: skip
def test_trivial_directions_are_seen_at_every_alpha(
    target: str, noise: float, visible: float
) -> None:
    assert abs(channel_of(law_of(target, noise)).visible()[0] - visible) < 1.1e-6
    found = tl.thresholds(target, noise)
    assert found.alpha == 0.0 and found.trivial.tolist() == [[1.0]]


def test_what_symmetry_forbids_is_not_trivial() -> None:
    """(z1, z2) → (−z1, −z2) and (z1, z3) → (−z1, −z3) leave the labels as they are: no mean shows."""
    law = law_of("He2(z1) + z1*z2*z3", 0)
    means = [
        cross_fitted(law, np.zeros((1, 3)), np.eye(3), lambda u: u, 14, 64, seed)
        for seed in range(6)
    ]
    assert len(significant_range(means)) == 0
    seen = [
        cross_fitted(
            law_of("z1 + He2(z2)", 0.3),
            np.zeros((1, 2)),
            np.eye(2),
            lambda u: u,
            12,
            32,
            s,
        )
        for s in range(6)
    ]
    assert np.allclose(significant_range(seen), [[1.0, 0.0]], atol=0.02)


def test_what_neither_shows_is_never_learned() -> None:
    for noise in (0.0, 0.05):
        assert tl.thresholds("z1**2 * exp(-z1**2)", noise).alpha == math.inf


def test_thresholds_turn_with_the_directions_and_ignore_what_does_not_enter() -> None:
    turned = tl.thresholds("((z1 + z3)/sqrt(2))**2", 0.1)
    assert abs(turned.alpha - 0.5180658) < 1e-6
    assert np.allclose(turned.staircase[0].directions, [[0.5**0.5, 0, 0.5**0.5]])


def test_large_noise_follows_the_first_power_that_shows() -> None:
    """α_c → β! Δ^β / E[h^β (z² − 1)]²: β = 1 for |z|, 2 for a pair of cosines whose second coefficients cancel."""
    noise = 1e3
    z = np.linspace(-9, 9, 200_001)
    w = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    for text, h, power in (("abs(z1)", np.abs(z), 1),
                           (f"cos(z1) - {math.exp(1.5) / 4}*cos(2*z1)", np.cos(z) - math.exp(1.5) / 4 * np.cos(2 * z), 2)):  # fmt: skip
        h = h - w @ h
        law = math.factorial(power) * noise**power / (w @ (h**power * (z**2 - 1))) ** 2
        assert abs(tl.thresholds(text, noise).alpha / law - 1) < 2e-3


@pytest.mark.slow
def test_the_table_of_the_curve() -> None:
    """Points of T.2, and α(q) at a point of the curve by the average itself."""
    curve = curve_of(law_of("abs(z1)", 0.1))
    assert curve.folded is None
    for alpha, q in ((0.8, 0.09873), (1.0, 0.24370), (1.5, 0.65984), (2.5, 0.90934)):
        found = curve.climb(alpha)
        assert abs(found - q) < 3e-5 and found == curve.fall(alpha)
        direct = found / (
            (1 - found) * channel_of(law_of("abs(z1)", 0.1), order=10).fisher(found)
        )
        assert abs(direct / alpha - 1) < 2e-6
    law = law_of("abs(z1)", 0.1)
    for q, mmse in ((0.0987337, 0.36027), (0.9093411, 0.07420)):
        assert abs(mmse_of(law, np.array([[q]]))[0] - mmse) < 1e-5


@pytest.mark.slow
def test_the_hard_phase_of_a_cosine() -> None:
    best = tl.best_possible("cos(2*z1)", [1.5, 1.69, 1.9, 2.1], noise=0.05)
    assert best.spinodal is not None and best.hard is not None
    assert np.allclose(
        [best.spinodal, *best.hard], [1.634433, 1.706427, 2.013337], atol=1e-5
    )
    q = best.data.overlap.values[:, :, 0, 0]  # uninformed, informed, equilibrium
    assert np.allclose(q[0, :2], 0) and np.allclose(
        q[0, 2:], [0.07559, 0.96395], atol=1e-5
    )
    assert np.allclose(q[1], [0, 0.90487, 0.94997, 0.96395], atol=2e-2)
    assert (
        q[2, 1] == q[0, 1] and q[2, 2] == q[1, 2]
    )  # possible between α_IT and α_alg only
    assert best.curve is not None
    assert abs(best.curve.entropy(1.9, q[1, 2]) - 0.1029) < 1e-4
    assert (
        len(plot.best_possible(best).axes) == 2
        and "hard between" in str(best)
        and "<pre>" in best._repr_html_()
    )


def test_linear_labels_without_noise_are_linear_equations() -> None:
    """q = min(α, 1): the share of the directions that n equations fix; the dashed line of the figure giant-step."""
    best = tl.best_possible("z1", [0.25, 0.6, 1.0, 2.0])
    assert (
        np.allclose(best.overlap[[0, 1, 3], 0, 0], [0.25, 0.6, 1.0], atol=1e-5)
        and best.overlap[2, 0, 0] > 0.99
    )


@pytest.mark.slow
def test_sharp_labels_allow_perfect_recovery() -> None:
    curve = curve_of(law_of("abs(z1)", 0))
    assert curve.folded is not None
    assert np.allclose(curve.folded, [1.0, 1.0, 1.128471], atol=2e-6)
    assert (
        curve.climb(1.2) == 1.0 and curve.fall(1.05) == 1.0 and curve.best(1.05) == 1.0
    )
    assert abs(curve.climb(1.0) - 0.476264) < 2e-6 and curve.fall(0.9) == curve.climb(
        0.9
    )
    linear = curve_of(
        law_of("tanh(z1)", 0)
    )  # as good as labels λ* themselves: q = α until everything is known
    assert np.allclose(
        [linear.climb(a) for a in (0.1, 0.5, 0.9, 1.5)], [0.1, 0.5, 0.9, 1.0], atol=1e-8
    )


@pytest.mark.slow
def test_possible_but_never_found_from_nothing() -> None:
    folds = curve_of(law_of("exp(1)*z1**2*exp(-z1**2)", 0.05)).folded
    assert folds is not None
    assert (
        np.allclose(folds[:2], [2.584284, 3.269830], atol=5e-6) and folds[2] == math.inf
    )


@pytest.mark.slow
def test_free_entropy_is_the_information_that_labels_carry() -> None:
    """Dψ/dq = ½ E[g²], with ψ = E ln P(y | ω) computed on a grid of its own."""
    noise, q = 0.2, 0.6

    def psi(q: float) -> float:
        x, w = np.polynomial.hermite_e.hermegauss(60)
        w = w / w.sum()
        z = np.linspace(-8, 8, 1601)
        y = np.linspace(-3, 3, 1201) * 1.4
        total = 0.0
        for omega, weight in zip(math.sqrt(q) * x, w, strict=True):
            p = (
                np.exp(-((z - omega) ** 2) / (2 * (1 - q)))
                / math.sqrt(2 * math.pi * (1 - q))
                * (z[1] - z[0])
            )
            density = (
                np.exp(-((y[:, None] - np.tanh(z)) ** 2) / (2 * noise))
                @ p
                / math.sqrt(2 * math.pi * noise)
            )
            total += weight * float(
                (density * np.log(density + 1e-300)).sum() * (y[1] - y[0])
            )
        return total

    slope = (psi(q + 1e-3) - psi(q - 1e-3)) / 2e-3
    assert abs(slope - channel_of(law_of("tanh(z1)", noise)).fisher(q) / 2) < 1e-5


@pytest.mark.slow
def test_labels_of_one_direction_by_two_routes() -> None:
    """Quadrature against cross-fitted bins, with and without noise and for classes; six standard errors of five seeds."""
    guesses = np.random.default_rng(0).normal(size=(400, 1))
    for text, noise in (
        ("abs(z1)", 0.0),
        ("cos(2*z1)", 0.05),
        ("sign(z1)", 0.0),
        ("relu(z1**2 - 1)", 0.0),
    ):
        law, q = law_of(text, noise), 0.5
        exact = channel_of(law).fisher(q)
        found = [
            float(
                cross_fitted(
                    law, guesses * q**0.5, np.eye(1) * 0.5**0.5, lambda u: u, 10, 32, s
                )[0, 0]
            )
            / 0.5
            for s in range(5)
        ]
        error = np.std(found, ddof=1) / 5**0.5
        assert abs(np.mean(found) - exact) < sigmas(1, 4) * error + 0.1 * np.abs(
            exact
        )  # 400 random ω: a few per cent
        at_zero = channel_of(law).visible()[1]
        binned = [
            cross_fitted(law, np.zeros((1, 1)), np.eye(1), second_moments, 16, 256, s)[
                0, 0
            ]
            for s in range(5)
        ]
        assert (
            abs(np.mean(binned) - at_zero) < 8 * np.std(binned, ddof=1) / 5**0.5 + 3e-3
        )


def test_the_operator_of_a_product() -> None:
    """1/α_c = 1 + E[(|y|K₁/K₀ − 1)²] for z1·z2, y ~ K₀(|y|)/π; F has the identity as eigenmatrix: both start."""
    y = np.geomspace(1e-12, 60, 400_001)
    density = 2 * kv(0, y) / math.pi
    ratio = y * kv(1, y) / kv(0, y) - 1
    rho = 1 + float(np.trapezoid(density * ratio**2, y))
    assert abs(1 / rho - 0.5937511) < 1e-5
    law = law_of("z1*z2", 0)
    growth = growth_of(
        [
            cross_fitted(law, np.zeros((1, 2)), np.eye(2), second_moments, 16, 256, s)
            for s in range(3)
        ]
    )
    assert abs(growth.rho - rho) < 6 * growth.error + 0.01 * rho
    assert len(growth.directions) == 2
    M = np.array([[1.0, 0.3], [0.3, 2.0]])
    G = np.random.default_rng(1).normal(size=(2, 2))
    G = G + G.T
    assert np.allclose(
        (as_operator(np.outer(G.ravel(), G.ravel())) @ M.ravel()).reshape(2, 2),
        G @ M @ G,
    )


@pytest.mark.slow
def test_the_posterior_of_several_directions() -> None:
    """Lines against a plain grid, for a smooth target with noise."""
    law = law_of("z1*z2 + 0.3*z2", 0.3)
    omega, V = np.array([[0.4, -0.7], [1.0, 0.2]]), np.array([[0.7, 0.1], [0.1, 0.5]])
    y = np.array([0.8, -0.4])
    grid = np.linspace(-6, 6, 601)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    found = Posterior(law)(y, omega, V)
    for i in range(2):
        x = np.stack([a - omega[i, 0], b - omega[i, 1]], -1)
        log = (
            -np.einsum("...i,ij,...j->...", x, np.linalg.inv(V), x) / 2
            - (y[i] - a * b - 0.3 * b) ** 2 / 0.6
        )
        p = np.exp(log)
        mean = np.array([(p * a).sum(), (p * b).sum()]) / p.sum()
        assert np.allclose(found.mean[i], mean, atol=8e-3)
        second = (
            np.array(
                [
                    [(p * a * a).sum(), (p * a * b).sum()],
                    [(p * a * b).sum(), (p * b * b).sum()],
                ]
            )
            / p.sum()
        )
        assert np.allclose(
            found.covariance[i], second - np.outer(mean, mean), atol=8e-3
        )


def test_state_evolution_of_a_product() -> None:
    """E[g gᵀ] of z1·z2 with noise 0.5 at q = 0.4 I is 0.30492 (sheet of the theory, by quadrature)."""
    law = law_of("z1*z2", 0.5)
    found = [
        np.diag(StateEvolution(law, seed).push(0.4 * np.eye(2))).mean()
        for seed in range(3)
    ]
    assert abs(np.mean(found) - 0.30492) < 6e-3


@pytest.mark.long
def test_two_directions_by_iteration() -> None:
    best = tl.best_possible("z1*z2", [0.7, 2.2, 4.0], noise=0.5)
    q = best.overlap
    assert np.abs(q[0]).max() < 0.03
    assert np.allclose(q[1], 0.40387 * np.eye(2), atol=0.015)
    assert np.allclose(q[2], 0.72496 * np.eye(2), atol=0.01)
    assert best.hard is None and best.error < 0.01
    expected = 1 - np.diag(q[1]).prod()  # E[z1 z2 | ω] = ω1 ω2
    assert abs(best.mmse[1] - expected) < 0.01


@pytest.mark.long
def test_the_hard_phase_of_several_directions_is_that_of_the_curve() -> None:
    """cos(2 z1) as a target of two directions, by sampled averages on 2×2 matrices, against the curve of one."""
    law = LabelLaw(Target.of("cos(2*z1)", 2), 0.05, np.eye(2))
    best = _iterated(law, np.array([1.5, 1.68, 1.9, 2.2]), lambda share: None)
    assert (
        best.spinodal is not None
        and best.hard is not None
        and best.threshold_error < 0.05
    )
    exact = np.array([1.634433, 1.706427, 2.013337])
    assert (
        np.abs(np.array([best.spinodal, *best.hard]) - exact).max()
        < 3 * best.threshold_error + 0.03
    )
    q = best.data.overlap.values[:, 2]  # at α = 1.9: uninformed, informed, equilibrium
    assert (
        np.allclose(q[:, 0, 0], [0.07559, 0.94997, 0.94997], atol=0.04)
        and np.abs(q[:, 1, 1]).max() < 0.03
    )
    assert "hard between" in str(best) and "known to" in str(best)
    assert "α_alg = beyond 2.2" in str(dataclasses.replace(best, algorithm=math.inf))


@pytest.mark.long
@pytest.mark.parametrize(
    "module", ["reuse_patterns", "reuse_variants", "reused_samples"]
)
def test_the_best_possible_of_the_figures(module: str) -> None:
    """The dashed lines are numbers in the files of the figures; here they are computed."""
    figure = importlib.import_module(f"twolayer.gallery.{module}")
    (target, alpha, noise), risk = figure.BEST
    best = tl.best_possible(target, alpha, noise=noise)
    assert abs(float(best.data.mmse.sel(branch="equilibrium")[0]) / 2 - risk) < 2e-3


@pytest.mark.long
@pytest.mark.parametrize("target", [*reuse_or_fresh.TARGETS, reuse_minibatch.TARGET])
def test_sharp_labels_of_the_figures_show_all_directions(target: str) -> None:
    """From nothing to exact recovery at the α of the figures of reused samples, and not at a fifth of it.

    Sampled averages are off by their bins, which counts most where α is the number of directions.
    """
    alpha = (
        reuse_minibatch.EXACT
        if target == reuse_minibatch.TARGET
        else reuse_or_fresh.EXACT
    )
    q = np.linalg.eigvalsh(tl.best_possible(target, [alpha / 5, alpha]).overlap)
    assert q[0].min() < 0.9 and q[1].min() > 0.98


STAIRCASES = [
    ("z1*z2", 0.0, [(2, 2, 0.5937511)]),
    ("z1*z2", 0.1, [(2, 2, 0.660997)]),
    ("z1**2 + z2**2", 0.0, [(2, 2, 1.0)]),
    ("sign(z1*z2)", 0.0, [(2, 2, math.pi**2 / 4)]),
    ("sign(z1*z2*z3)", 0.0, [(None, 3, math.inf)]),
    ("z1*z2*z3", 0.0, [(2, 3, 2.565180)]),
    ("z1 + He2(z2)", 0.3, [(1, 1, 0.0), (2, 1, 0.652420)]),
    ("z1 + z1*z2", 0.0, [(1, 1, 0.0), (1, 1, 0.0)]),
    ("z1*z2 + z1*z2*z3", 0.0, [(1, 1, 0.0), (2, 2, 1.0462)]),
]


@pytest.mark.long
@pytest.mark.parametrize(("target", "noise", "steps"), STAIRCASES)
def test_staircases(
    target: str, noise: float, steps: list[tuple[int | None, int, float]]
) -> None:
    found = tl.thresholds(target, noise)
    assert sum(len(s.directions) for s in found.staircase) == found.target.directions
    assert [(s.order, len(s.directions)) for s in found.staircase if s.order != 1] == [
        (order, n) for order, n, _ in steps if order != 1
    ]
    for alpha in {a for _, _, a in steps}:
        near = min(
            found.staircase,
            key=lambda s: abs(s.alpha - alpha) if math.isfinite(alpha) else -s.alpha,
        )
        assert near.alpha == alpha or abs(near.alpha / alpha - 1) < 0.01
    # finite iff the generative exponent is at most 2, and everything is learned iff the generative leap is
    analysis = tl.analyse(target)
    assert math.isfinite(found.alpha) == (
        analysis.generative is not None and analysis.generative <= 2
    )
    everything = math.isfinite(found.staircase[-1].alpha)
    assert everything == (
        analysis.generative_leap is not None and analysis.generative_leap <= 2
    )
    assert len(plot.thresholds(found).axes) == 1 and "<table>" in found._repr_html_()


EXPONENTS = [
    "z1",
    "He2(z1)",
    "He3(z1)",
    "He4(z1)",
    "tanh(z1)",
    "relu(z1)",
    "sign(z1)",
    "z1**2*exp(-z1**2)",
    "cos(z1)",
]


@pytest.mark.parametrize("target", EXPONENTS)
def test_thresholds_agree_with_the_generative_exponent(target: str) -> None:
    found, analysis = tl.thresholds(target), tl.analyse(target)
    exponent = analysis.generative
    assert (found.alpha == 0) == (exponent == 1)
    assert math.isfinite(found.alpha) == (exponent is not None and exponent <= 2)


def test_an_interrupted_search_claims_nothing_of_the_informed_branch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        StateEvolution, "climb", lambda self, q, alpha: 0.1 * alpha * np.eye(2)
    )
    monkeypatch.setattr(StateEvolution, "fixed_point", stop)
    with pytest.raises(tl.errors.Interrupted) as caught:
        tl.best_possible("z1*z2", [1.0, 2.0], noise=0.5)
    left = caught.value.result
    assert (
        not left.complete
        and left.hard is None
        and "are not known" in str(left)
        and "no hard phase" not in str(left)
    )
    assert (
        left.data.branch.values.tolist() == ["uninformed"]
        and np.isfinite(left.mmse).all()
    )
    assert len(plot.best_possible(left).axes[1].lines) == 1


def test_a_staircase_is_printed_with_its_errors() -> None:
    found = tl.thresholds("z1**2")
    steps = [
        Stair(np.eye(2)[:1], 1, 0.0, 0.0),
        Stair(np.eye(2)[1:], 2, 0.65242, 1.6e-3),
    ]
    rows = str(
        dataclasses.replace(found, trivial=np.eye(2)[:1], staircase=steps)
    ).splitlines()[2:]
    assert rows == ["at every α > 0    (1, 0)", "from α = 0.6524 ± 0.002  (0, 1)"]


@pytest.mark.slow
def test_message_passing_follows_state_evolution() -> None:
    """|z| with noise 0.1 at α = 2.5: 0.90934; at α = 0.4, below the threshold: nothing."""
    task = tl.thresholds("abs(z1)", 0.1)
    runs = task.simulate(2.5, dim=400, seeds=3, iterations=30, start=0.3)
    assert abs(runs.mean[0] - 0.90934) < 0.03
    assert runs.path.shape == (3, 31, 1) and (runs.path[:, 0] < 0.45).all()
    again = task.simulate(2.5, dim=400, seeds=1, iterations=30, start=0.3)
    assert np.array_equal(again.path[0], runs.path[0])  # seeds do not see each other
    assert np.isnan(again.error).all() and "1 runs" in str(again)
    below = task.simulate(0.4, dim=400, seeds=2, iterations=15)
    assert below.mean[0] < 0.2


@pytest.mark.long
def test_the_hard_phase_is_real() -> None:
    """cos 2z, noise 0.05, α = 1.9: from 0.85 to 0.95, from a random start hardly anywhere."""
    task = tl.thresholds("cos(2*z1)", 0.05)
    assert (
        abs(
            task.simulate(1.9, dim=600, seeds=2, iterations=25, start=0.85).mean[0]
            - 0.95
        )
        < 0.03
    )
    assert task.simulate(1.9, dim=600, seeds=2, iterations=25).mean[0] < 0.6


@pytest.mark.long
def test_message_passing_in_two_directions() -> None:
    runs = simulate(law_of("z1*z2", 0.5), 4.0, dim=250, seeds=2, iterations=30)
    assert np.allclose(runs.mean, 0.725, atol=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tl.thresholds("z1 - z1"), "must vary with the inputs"),
        (lambda: tl.thresholds("z1**2", noise=-1), "must be a variance"),
        (lambda: tl.thresholds("z1**2", noise=math.nan), "must be a variance"),
        (
            lambda: tl.thresholds("z1**2", noise=1e20),
            "must leave something of the target",
        ),
        (lambda: tl.thresholds("cos(200*z1)"), "monotone pieces"),
        (lambda: tl.best_possible("z1**2", []), "`alphas` must be positive finite"),
        (lambda: tl.best_possible("z1**2", [0.0]), "`alphas` must be positive finite"),
        (
            lambda: tl.best_possible("z1**2", [math.nan]),
            "`alphas` must be positive finite",
        ),
        (lambda: tl.best_possible("z1**2", "many"), "`alphas` must be positive finite"),
        (lambda: tl.thresholds("z1**2").simulate(0.0), "`alpha` must be positive"),
        (
            lambda: tl.thresholds("z1**2").simulate(1.0, start=1.5),
            "`start` must be an overlap",
        ),
        (lambda: plot.thresholds(3), "a result of thresholds"),
        (lambda: plot.best_possible(3), "a result of best_possible"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call: object, message: str) -> None:
    with pytest.raises(tl.InputError, match=message) as caught:
        call()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert (
        main(
            [
                "thresholds",
                "tanh(z1)",
                "--noise",
                "0.1",
                "--alphas",
                "0.5:2:2",
                "--json",
            ]
        )
        == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert shown["alpha"] == 0 and shown["alphas"] == [0.5, 2.0]
    assert np.allclose(np.ravel(shown["overlap"][0]), [0.3331, 0.8047], atol=1e-4)
    assert main(["thresholds", "z1**2", "--out", f"{tmp_path}/figure.png"]) == 0
    assert "α_c = 0.5" in capsys.readouterr().out
    assert main(["thresholds", "z1**2", "--alphas", "1:0:3"]) == 2
    assert "must be a list such as" in capsys.readouterr().err


def test_where_a_target_turns() -> None:
    assert np.allclose(
        pieces_of(law_of("abs(z1 - 1) + relu(z1)**2", 0)).ends,
        [0.0, 0.5, 1.0],
        atol=1e-7,
    )


def test_one_direction_of_linear_labels_in_closed_form() -> None:
    """y = λ + √Δ ξ: E[g_out²] = 1/(1 − q + Δ), so that α(q) = q (1 − q + Δ)/(1 − q) and f is an elementary integral."""
    noise = 0.5
    curve = curve_of(law_of("z1", noise))
    q = np.array([0.1, 0.4, 0.7])
    alpha = q * (1 - q + noise) / (1 - q)
    found = np.array([curve.climb(x) for x in alpha])
    np.testing.assert_allclose(found, q, rtol=1e-5)
    entropy = (q + np.log1p(-q) + alpha * np.log((1 + noise) / (1 + noise - q))) / 2
    np.testing.assert_allclose(
        [curve.entropy(a, x) for a, x in zip(alpha, q, strict=True)], entropy, rtol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "same"),
    [
        ("z1*z2", "0.6*z1**2 + 0.8*z1*z2"),
        ("sign(z1)*z2", "sign(z1)*(0.6*z1 + 0.8*z2)"),
    ],
)
def test_directions_that_overlap_are_those_of_an_orthonormal_frame(
    target: str, same: str
) -> None:
    """A target of correlated fields, and the same function written out in independent ones."""
    P = [[1.0, 0.6], [0.6, 1.0]]
    found = tl.thresholds(tl.Problem(target, "tanh", gram=P, noise=0.1))
    other = tl.thresholds(same, 0.1)
    assert found.alpha == pytest.approx(other.alpha, rel=1e-6)
    assert [s.order for s in found.staircase] == [s.order for s in other.staircase]
    np.testing.assert_allclose(found.frame @ found.frame.T, P, atol=1e-12)
    assert "coordinates" in str(found) and "coordinates" not in str(other)
    apart = tl.thresholds(target, 0.1)
    # a Gram matrix that is not looked at would be seen: the numbers above agree to 1e-6
    assert abs(apart.alpha - found.alpha) > 0.02 or len(apart.trivial) != len(
        found.trivial
    )


@pytest.mark.slow
def test_what_thresholds_take_of_a_problem() -> None:
    problem = tl.Problem("He2(z1)", "erf", noise=0.3)
    assert tl.thresholds(problem).alpha == tl.thresholds("He2(z1)", 0.3).alpha
    best = tl.best_possible(problem, [1.0])
    assert best.overlap == pytest.approx(
        tl.best_possible("He2(z1)", [1.0], 0.3).overlap
    )
    for name, value in (("noise", 0.1), ("directions", 1), ("gram", [[1.0]])):
        with pytest.raises(tl.InputError, match=f"`{name}`.*problem is given"):
            tl.thresholds(problem, **{name: value})
    law = law_of("sign(z1)*z2", gram=[[1.0, 0.6], [0.6, 1.0]])
    x = np.random.default_rng(0).normal(size=(5, 2))
    u = x @ law.basis  # the directions that enter, in the frame
    expected = np.sign(u[:, 0]) * (0.6 * u[:, 0] + 0.8 * u[:, 1])
    np.testing.assert_allclose(law.labels(x), expected, rtol=1e-12)
    with pytest.raises(tl.InputError, match="Gaussian noise"):
        tl.thresholds(problem.replace(flips=0.1))
    blocks = problem.replace(inputs=Inputs.blocks([2.0, 0.5], [0.5, 0.5]))
    with pytest.raises(tl.InputError, match="holds for inputs N"):
        tl.best_possible(blocks, [1.0])
