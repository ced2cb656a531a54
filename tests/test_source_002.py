"""Recitation on search and descent, and on over-parametrised rectifiers (source 002), statement by statement."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from statements import Proofs, within

import twolayer as tl
from twolayer import d

proves = Proofs("002")


def matched(k: int) -> tl.Problem:
    return tl.Problem("z1", "linear") if k == 1 else tl.Problem(f"h{k}(z1)", f"h{k}")


@functools.cache
def landscape(k: int) -> Any:
    return tl.single_index.population_loss(matched(k))


def times(k: int, N: float, eta: float = 0.5) -> tuple[float, float]:
    """Search and descent of the flow in τ = (δ/N)·steps, from m = N^(−1/2)."""
    return landscape(k).time(N**-0.5, eta), landscape(k).time(eta, 1 - 0.1)


# ------------------------------------------------------------------------------------------- search and descent


@proves("002-01")
def the_search_takes_most_of_the_data() -> None:
    share = {
        k: [a / (a + b) for a, b in (times(k, N) for N in (1e2, 1e6, 1e10))]
        for k in (1, 2, 3)
    }
    assert share[1][-1] < 0.5  # the simplest task
    for k in (2, 3):
        assert np.all(np.diff(share[k]) > 0)
    assert share[2][-1] > 0.85 and share[3][-1] > 0.999


@proves("002-06")
def overlap_of_random_starts() -> None:
    N = 900
    m = tl.Overlaps.random(matched(2), N, seed=0, size=20_000).M[:, 0, 0]
    within(m**2 * N, 1.0)
    within(np.abs(m) * np.sqrt(N), np.sqrt(2 / np.pi), slack=2e-3)


@functools.cache
def below() -> Any:
    """Two samples for each dimension, k = 3, where α_c = N."""
    algorithm = tl.SGD(0.3 * d**-1.5, loss="correlation", geometry="spherical")
    start = tl.Overlaps([[1.0]], [[400**-0.5]])
    return tl.solve(
        matched(3), algorithm, tl.Chain(400), start, steps=800, save=8, seeds=64
    )


@proves("002-09")
def samples_are_steps() -> None:
    np.testing.assert_array_equal(below()["sample"].values, below().step.values)
    np.testing.assert_allclose(below().alpha.values * 400, below().step.values)


@proves("002-11")
def information_exponent() -> None:
    z = np.linspace(-12, 12, 240_001)
    weight = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    for target, activation, function, k in (
        ("relu(z1)", "relu", lambda z: np.maximum(z, 0), 1),
        ("z1**2", "square", np.square, 2),
        ("h3(z1)", "h3", lambda z: (z**3 - 3 * z) / np.sqrt(6), 3),
    ):
        phi = tl.single_index.population_loss(tl.Problem(target, activation))
        assert phi.information == k
        orders = [abs(float(phi.derivative(0.0, n))) for n in range(1, k + 1)]
        assert max([0.0, *orders[:-1]]) < 1e-9 and float(phi.derivative(0.0, k)) < -0.1
        # φ by its definition, from pairs of correlated normals: first derivative at m = 0.4
        size = [
            float((function(z) * he * weight).sum())
            for he in (z, z**2 - 1, z**3 - 3 * z)
        ]
        if k == 3:
            assert float(phi.derivative(0.4, 1)) == pytest.approx(
                -(size[2] ** 2) / 6 * 3 * 0.4**2, rel=1e-6
            )
    assert (
        float(landscape(2).phi(0.0)) > 0.5
    )  # φ(0) itself does not vanish, l ≥ 1 is meant


@functools.cache
def above() -> Any:
    """K = 1 with thirty times α_c N samples."""
    return tl.recovery(
        matched(1),
        tl.SGD(0.1 / d, geometry="spherical"),
        64,
        0.3,
        samples=64 * 60,
        seeds=64,
    )


@proves("002-13")
def strong_recovery_above() -> None:
    assert above().strong_probability.value == 1.0
    assert above().samples == 64 * 60 >= 30 * above().critical_samples


@proves("002-14")
def polynomial_sample_complexity() -> None:
    for k in (1, 2, 3, 5):
        N = np.array([1e3, 1e6])
        samples = np.array([n * tl.single_index.critical_alpha(int(n), k) for n in N])
        power = np.log(samples[1] / samples[0]) / np.log(N[1] / N[0])
        assert power == pytest.approx(max(1, k - 1), abs=0.11)  # a logarithm for k = 2


@proves("002-15")
def no_weak_recovery_below() -> None:
    """Overlaps stay of the size of the start, along the whole run and in all runs."""
    assert 0.01 * tl.single_index.critical_alpha(400, 3) > 2
    assert np.abs(below().M.values).max() < 0.3
    assert np.sqrt((below().M.values[:, -1] ** 2).mean()) < 3 * 400**-0.5


@proves("002-16")
def optimal_up_to_logarithms() -> None:
    for N in (100, 10_000):
        enough = {1: 1.0, 2: np.log(N) ** 2, 3: N * np.log(N) ** 2}
        for k, alpha in enough.items():
            assert alpha / tl.single_index.critical_alpha(N, k) <= np.log(N) ** 2 * (
                1 + 1e-12
            )


@proves("002-19")
def descent_over_search() -> None:
    """With one step size the ratio falls as N^(−(k−2)/2): for k = 3 as N^(−1/2), not as 1/α_c = 1/N."""
    for k, power in ((3, -0.5), (4, -1.0)):
        ratio = [b / a for a, b in (times(k, N) for N in (1e6, 1e10))]
        assert np.log(ratio[1] / ratio[0]) / np.log(1e4) == pytest.approx(
            power, abs=0.01
        )
    two = [b / a * np.log(N) for N in (1e8, 1e16) for a, b in (times(2, N),)]
    assert two[1] == pytest.approx(two[0], rel=0.1)  # 1/log N for k = 2, as printed


@proves("002-22")
def time_of_k_one() -> None:
    search = [times(1, N)[0] for N in (1e6, 1e12)]
    assert (
        search[1] == pytest.approx(np.arctanh(0.5), rel=1e-5)
        and search[1] - search[0] < 1.1e-3
    )


@proves("002-23")
def time_of_k_two() -> None:
    """ṁ = 2m (1 − m²): a quarter of log N."""
    search = [times(2, N)[0] for N in (1e6, 1e12)]
    assert search[1] - search[0] == pytest.approx(np.log(1e6) / 4, rel=1e-6)
    assert landscape(2).growth == pytest.approx(2)


@proves("002-24")
def time_of_k_three() -> None:
    """The flow takes N^((k−2)/2)/(C (k−2)); steps must be of size N^(−(k−2)/2), so that samples are N^(k−1)."""
    for k in (3, 4):
        search = [times(k, N)[0] for N in (1e8, 1e10)]
        assert search[1] == pytest.approx(
            1e10 ** ((k - 2) / 2) / (k * (k - 2)), rel=1e-3
        )
        phi = tl.single_index.population_loss(matched(k), "correlation")
        steps = [N / phi.largest_step(int(N)) * times(k, N)[0] for N in (1e8, 1e10)]
        assert np.log(steps[1] / steps[0]) / np.log(100) == pytest.approx(
            k - 1, abs=0.01
        )


# ------------------------------------------------------------------------------------------- rectifiers


def gradient(W: np.ndarray, v: np.ndarray) -> np.ndarray:
    """∇L of f = Σ relu(w_i·x) against relu(v·x), from E[relu'(w·x) relu(u·x) x] in closed form."""
    out = np.zeros_like(W)
    for i, w in enumerate(W):
        for u, sign in [*((x, 1.0) for x in W), (v, -1.0)]:
            cosine = w @ u / (np.linalg.norm(w) * np.linalg.norm(u))
            angle = np.arccos(np.clip(cosine, -1, 1))
            push = (
                np.linalg.norm(u) * np.sin(angle) * w / np.linalg.norm(w)
                + (np.pi - angle) * u
            )
            out[i] += sign * push / (2 * np.pi)
    return out


def one_step(l1: float, l2: float, lr: float) -> tuple[float, float]:
    W = np.array([[l1, l2], [l1, -l2]])
    new = W - lr * gradient(W, np.array([1.0, 0.0]))
    np.testing.assert_allclose(
        new[0] * [1, -1], new[1], atol=1e-15
    )  # the symmetry holds
    return new[0, 0] - 0.5, new[0, 1]


@proves("002-33")
def at_least_cubic() -> None:
    theta = np.geomspace(1e-6, np.pi, 200)
    ratio = tl.relu.cubic_bound(1.0, theta) / theta**3
    assert ratio.min() == pytest.approx(
        1 / (4 * np.pi**3), rel=1e-9
    )  # attained at π, where 1/30π fails
    assert ratio[0] == pytest.approx(1 / (6 * np.pi), rel=1e-6)
    assert 1 / (4 * np.pi**3) < 1 / (30 * np.pi) < 1 / (6 * np.pi)
    # along the pair near the minimum the loss is cubic in the angle, with a larger constant
    pair = tl.relu.symmetric_pair(0.5, 1e-4, lr=0.1, steps=1)
    assert pair.loss[0] / 1e-4**3 == pytest.approx(4 / (3 * np.pi), rel=1e-3)


@proves("002-34")
def close_to_a_minimum() -> None:
    """Σ w_i = v to 1e-9 while the angles are still 0.03: both at once, at a loss far from zero."""
    pair = tl.relu.symmetric_pair(0.3, 0.4, lr=0.2, steps=500)
    assert abs(pair.excess[-1]) < 1e-9
    angle = np.arctan2(pair.orthogonal[-1], 0.5 + pair.excess[-1])
    assert angle > 0.02 and pair.loss[-1] > 1e-7


@functools.cache
def late() -> Any:
    return tl.relu.symmetric_pair(0.3, 0.4, lr=0.2, steps=[0, 50_000, 100_000])


@proves("002-35")
def optimising_a_cube() -> None:
    """θ' = −θ²: θ falls as 1/t and θ³ as t^−3; so do the pair's angle and loss."""
    run = late()
    assert np.log(run.loss[2] / run.loss[1]) / np.log(2) == pytest.approx(-3, abs=2e-3)
    assert np.log(run.orthogonal[2] / run.orthogonal[1]) / np.log(2) == pytest.approx(
        -1, abs=2e-3
    )


@proves("002-36")
def convex_but_not_strongly() -> None:
    h = 1e-3
    curvature = [
        float(np.diff(tl.relu.cubic_bound(1.0, np.array([x - h, x, x + h])), 2)[0])
        / h**2
        for x in (0.01, 0.1, 0.5, 1.0)
    ]
    assert np.all(np.array(curvature) > 0) and curvature[0] < 0.03 * curvature[-1]


@proves("002-37")
def no_quadratic_bound() -> None:
    run = late()
    assert (
        run.loss[2] / run.orthogonal[2] ** 2
        < 0.51 * run.loss[1] / run.orthogonal[1] ** 2
        < 1e-4
    )


@proves("002-42")
def recursion_of_lambda1() -> None:
    l1, l2, lr = 0.31, 0.42, 0.2
    theta = np.arctan2(l2, l1)
    excess, _ = one_step(l1, l2, lr)
    pair = tl.relu.symmetric_pair(l1, l2, lr, steps=1)
    assert pair.excess[1] == pytest.approx(excess, rel=1e-12)
    right = (l1 - 0.5) * (
        1 - lr * (1 - theta / np.pi + np.sin(2 * theta) / (2 * np.pi))
    )
    printed = (l1 - 0.5) * (1 - lr * (1 - theta / np.pi + np.sin(2 * theta) / l1))
    assert right == pytest.approx(excess, rel=1e-12) and abs(printed - excess) > 0.05


@proves("002-43")
def recursion_of_lambda2() -> None:
    l1, l2, lr = 0.31, 0.42, 0.2
    theta = np.arctan2(l2, l1)
    _, orthogonal = one_step(l1, l2, lr)
    printed = l2 * (
        1 - lr / (2 * np.pi) * (2 * theta + (l1 - 0.5) / l1 * np.sin(2 * theta))
    )
    assert printed == pytest.approx(orthogonal, rel=1e-12)
    assert tl.relu.symmetric_pair(l1, l2, lr, steps=1).orthogonal[1] == pytest.approx(
        orthogonal, rel=1e-12
    )


@proves("002-44")
def lambda1_converges_exponentially() -> None:
    pair = tl.relu.symmetric_pair(0.3, 1e-6, lr=0.2, steps=[0, 1, 2, 3])
    np.testing.assert_allclose(pair.excess[1:] / pair.excess[:-1], 1 - 0.2, rtol=1e-6)


@proves("002-45")
def lambda2_near_the_end() -> None:
    for size in (1e-2, 1e-4):
        pair = tl.relu.symmetric_pair(0.5, size, lr=0.2, steps=1)
        loss = 1 - pair.orthogonal[1] / size
        assert loss == pytest.approx(2 * 0.2 / np.pi * size, rel=2 * size)


@proves("002-48")
def slow_motion_is_across_the_teacher() -> None:
    run = tl.relu.symmetric_pair(0.3, 0.4, lr=0.2, steps=[0, 200, 400])
    assert abs(run.excess[2]) < 1e-12 * run.orthogonal[2]
    assert run.orthogonal[2] / run.orthogonal[1] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("proof", proves.cases())
def test_statement(proof: Callable[[], None]) -> None:
    proof()
