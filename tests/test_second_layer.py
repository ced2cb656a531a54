"""Layer-wise training: the ridge fit of the second layer against fits to finitely many samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chance import sigmas

import twolayer as tl
from twolayer import d

PROBLEM = tl.Problem("z1 + z1*z2", "relu", width=3, noise=0.2)
FIRST = tl.Overlaps(np.eye(3) + 0.1, [[0.3, 0.1], [-0.4, 0.2], [0.1, 0.5]])


@pytest.mark.long
@pytest.mark.parametrize("ridge", [0.0, 0.02])
def test_fits_to_finitely_many_samples_agree_to_first_order(ridge: float) -> None:
    n, seeds = 200, 1500
    fit = tl.layers.fit_second_layer(PROBLEM, FIRST, ridge)
    risks = tl.layers.simulate_second_layer(PROBLEM, FIRST, n, ridge, seeds)
    error = risks.std(ddof=1) / np.sqrt(seeds)
    second_order = 10 * (fit.excess_per_sample / n) ** 2 / fit.risk
    assert (
        abs(risks.mean() - fit.risk_at(n))
        < sigmas(freedom=seeds - 1) * error + second_order
    )
    assert abs(risks.mean() - fit.risk) > 20 * error  # the correction is there
    # relative to the risk of the fit it is about p/n
    if ridge == 0:
        assert 0.5 < fit.excess_per_sample / fit.risk / PROBLEM.p < 2


@pytest.mark.slow
def test_the_fit_is_the_best_second_layer() -> None:
    fit = tl.layers.fit_second_layer(PROBLEM, FIRST)
    best = tl.moments(PROBLEM, tl.Overlaps(FIRST.Q, FIRST.M, a=fit.a))
    assert best.risk == pytest.approx(float(fit.risk), abs=1e-9)
    np.testing.assert_allclose(
        best.second, 0.0, atol=1e-9
    )  # the gradient of the second layer vanishes
    shrunk = tl.layers.fit_second_layer(PROBLEM, FIRST, 0.5)
    assert (np.abs(shrunk.a) < np.abs(fit.a)).all() and shrunk.risk > fit.risk
    nothing = tl.layers.fit_second_layer(PROBLEM, FIRST, 1e9)
    assert nothing.risk == pytest.approx((1 + 1) / 2 + 0.1, abs=1e-6)  # E[h²] = 2


def test_equal_neurons_share_their_weight() -> None:
    one = tl.layers.fit_second_layer(
        tl.Problem("z1", "relu"), tl.Overlaps([[1.0]], [[0.5]])
    )
    two = tl.layers.fit_second_layer(
        tl.Problem("z1", "relu", width=2), tl.Overlaps(np.ones((2, 2)), [[0.5], [0.5]])
    )
    np.testing.assert_allclose(two.a, one.a.repeat(2), rtol=1e-6)
    assert two.risk == pytest.approx(float(one.risk))


def test_the_second_layer_is_fitted_along_a_run() -> None:
    problem = tl.Problem("z1", "relu", width=2, second_layer=[1.0, -1.0])
    algorithm = tl.SGD(lr=2.0, batch=3 * d, geometry="projected")
    start = tl.Overlaps([np.eye(2)] * 2, [np.zeros((2, 1)), np.full((2, 1), 0.1)])
    run = tl.solve(problem, algorithm, tl.Chain(50), start, steps=2, save=2)
    fitted = tl.layers.layerwise(run, ridge=1e-3)
    assert fitted.risk.shape == (2, 3) and fitted.a.dims == ("seed", "time", "neuron")
    np.testing.assert_array_equal(fitted.step, [0.0, 1.0, 2.0])
    alone = tl.layers.fit_second_layer(
        problem, tl.Overlaps(run.Q.values[1, 2], run.M.values[1, 2]), 1e-3
    )
    assert float(fitted.risk[1, 2]) == pytest.approx(float(alone.risk))
    assert (fitted.risk < run.risk).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: tl.layers.fit_second_layer(PROBLEM, FIRST, -1.0),
            "`ridge` must be a number ≥ 0",
        ),
        (
            lambda: tl.layers.fit_second_layer(PROBLEM, tl.Overlaps([[1.0]], [[0.1]])),
            "`start` must have 3 neurons",
        ),
        (
            lambda: tl.layers.simulate_second_layer(PROBLEM, FIRST, 3),
            "`samples` must be more than the width 3",
        ),
        (
            lambda: tl.layers.simulate_second_layer(PROBLEM, FIRST, 0, 0.1),
            "`samples` must be a positive integer",
        ),
        (lambda: tl.layers.layerwise(3), "`result` must be a Dataset from solve"),
    ],
)
def test_bad_input_is_refused(call: Any, words: str) -> None:
    with pytest.raises(tl.InputError) as no:
        call()
    assert words in str(no.value)


def test_what_a_sample_costs_with_a_kink() -> None:
    """One relu learning a relu: V = E[(h − cφ)² φ²] + Δ K over a plane, by the midpoint rule."""
    m, noise = 0.6, 0.2
    problem = tl.Problem("relu(z1)", "relu", noise=noise)
    fit = tl.layers.fit_second_layer(problem, tl.Overlaps([[1.0]], [[m]]))
    x = np.arange(-8, 8, 0.01) + 0.005
    star, other = np.meshgrid(x, x, indexing="ij")
    weight = np.exp(-(star**2 + other**2) / 2) / (2 * np.pi) * 0.01**2
    phi = np.maximum(m * star + np.sqrt(1 - m**2) * other, 0.0)
    h = np.maximum(star, 0.0)
    K = (weight * phi**2).sum()
    c = (weight * h * phi).sum() / K
    V = (weight * ((h - c * phi) * phi) ** 2).sum() + noise * K
    assert float(fit.excess_per_sample) == pytest.approx(V / (2 * K), rel=2e-3)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_what_a_sample_costs_by_parts(ridge: float) -> None:
    """One neuron φ = λ² learning z²: H, V and the ridge's part are moments of two Gaussians, by Hermite nodes."""
    m, noise, n = 0.6, 0.2, 12
    problem = tl.Problem("z1**2", "square", noise=noise)
    fit = tl.layers.fit_second_layer(problem, tl.Overlaps([[1.0]], [[m]]), ridge)
    x, w = np.polynomial.hermite_e.hermegauss(n)
    star, other = np.meshgrid(x, x, indexing="ij")
    weight = np.outer(w, w) / (2 * np.pi)
    phi, h = (m * star + np.sqrt(1 - m**2) * other) ** 2, star**2
    K, b = (weight * phi**2).sum(), (weight * h * phi).sum()
    H = K + ridge
    c = b / H
    assert fit.a[0] == pytest.approx(c, rel=1e-6)
    s = (h - c * phi) * phi - ridge * c
    V = (weight * s**2).sum() + noise * K
    drag = (weight * phi**2 * s).sum() / H
    expected = K * V / (2 * H**2) + ridge * c / H * drag
    assert float(fit.excess_per_sample) == pytest.approx(expected, rel=1e-9)
    wide = tl.layers.fit_second_layer(
        problem.replace(width=2), tl.Overlaps(np.ones((2, 2)), [[m], [m]]), ridge
    )
    # two equal neurons in the mean: a/2 for each, with the weight ρ (a/2)² twice
    assert wide.a.sum() / 2 == pytest.approx(b / (K + 2 * ridge), rel=1e-5)
