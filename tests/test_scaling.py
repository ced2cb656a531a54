"""Scaling laws: random features, a quadratic teacher with a power law, and the compute-optimal frontier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import twolayer as tl
from tests.chance import sigmas

STEPS = [0, 10, 100, 178, 562, 1000]


def test_the_deterministic_equivalent_of_the_published_table() -> None:
    features = tl.scaling.random_features(0.8, 0.6, size=200, dim=2000)
    lr = 0.4 / features.variances.sum()
    expected = [0.623515, 0.105289, 0.010705, 0.006722, 0.003211, 0.002440]
    assert np.abs(features.risk(STEPS, lr=lr) - expected).max() < 6e-7
    assert max(features.sum_rules) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "beta", "size", "dim"), [(0.8, 0.6, 100, 1000), (0.7, 0.8, 80, 700)]
)
def test_draws_have_their_equivalent_as_mean(
    alpha: float, beta: float, size: int, dim: int
) -> None:
    """From ten steps on, where the top eigenvalue, which is not self-averaging, is learned."""
    features = tl.scaling.random_features(alpha, beta, size=size, dim=dim)
    lr = 0.4 / features.variances.sum()
    each = np.stack([features.draw(s).risk(STEPS[2:], lr=lr) for s in range(24)])
    error = each.std(0, ddof=1) / np.sqrt(24)
    off = np.abs(each.mean(0) - features.risk(STEPS[2:], lr=lr))
    assert (off / error).max() < sigmas(8, 23)
    assert (error < each.mean(0) / 5).all()


@pytest.mark.parametrize("batch", [1, 3])
def test_one_draw_and_its_recursion(batch: int) -> None:
    """The recursion, written as it stands."""
    draw = tl.scaling.random_features(0.7, 0.9, size=20, dim=60).draw(1)
    eta, values, q, seen = 0.15, draw.eigenvalues, draw.signal.copy(), []
    for step in range(301):
        twice = draw.floor + q.sum()
        if step in (0, 1, 7, 300):
            seen.append(twice / 2)
        q = (
            1 - 2 * eta * values + (1 + 1 / batch) * eta**2 * values**2
        ) * q + eta**2 / batch * values**2 * twice
    assert (
        np.abs(draw.risk([0, 1, 7, 300], lr=eta, batch=batch) / seen - 1).max() < 1e-11
    )


def test_one_draw_and_sgd() -> None:
    draw = tl.scaling.random_features(0.6, 0.5, size=10, dim=30).draw(2)
    lr = 0.3 / draw.eigenvalues.sum()
    runs = draw.simulate([5, 20, 60], lr=lr, batch=2, seeds=400)
    error = runs.std(0, ddof=1) / 20
    exact = draw.risk([5, 20, 60], lr=lr, batch=2)
    assert (np.abs(runs.mean(0) - exact) / error).max() < sigmas(6, 399)
    assert (error < exact / 30).all()
    # the noise of the batches counts: without it the risk is another one
    assert abs(draw.risk([60], lr=lr, batch=10**6)[0] - exact[2]) > 8 * error[2]


def moved(W: np.ndarray, c: np.ndarray, t: float, centred: bool) -> np.ndarray:
    """The gradient flow of the weights themselves, by fourth order steps."""
    p, steps = len(W), 800

    def rate(W: np.ndarray) -> np.ndarray:
        gap = np.diag(c) - W.T @ W / p
        return 4 * W @ gap + (0 if centred else 2 * np.trace(gap)) * W

    h = t / steps
    for _ in range(steps):
        one = rate(W)
        two = rate(W + h / 2 * one)
        three = rate(W + h / 2 * two)
        W = W + h / 6 * (one + 2 * two + 2 * three + rate(W + h * three))
    return W


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("p", "k"), [(6, 4), (3, 5)])
def test_the_flow_of_the_weights(p: int, k: int, centred: bool) -> None:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((p, k + 3)) / 2
    student = tl.scaling.power_teacher(1.0, k, p, rows, centred=centred)
    c = np.concatenate([1 / np.arange(1.0, k + 1), np.zeros(3)])
    for t in (0.3, 1.2):
        W = moved(rows, c, t, centred)
        S = W.T @ W / p
        gap = S - np.diag(c)
        tau = 0.0 if centred else np.trace(gap)
        (found,) = student.weights([t])
        assert np.abs(found.T @ found / p - S).max() < 1e-8
        assert abs(student.risk([t])[0] - (gap**2).sum() - tau**2 / 2) < 1e-8


def test_a_long_flow_learns_as_many_directions_as_there_are_neurons() -> None:
    student = tl.scaling.power_teacher(1.0, directions=6, width=4)
    c = student.coefficients
    assert abs(student.risk([300.0])[0] - (c[4:] ** 2).sum()) < 1e-6
    learned = student.learned([0.0, 0.8, 300.0])
    assert np.abs(learned[-1] - [1, 1, 1, 1, 0, 0]).max() < 1e-5
    assert learned[1, 0] > 0.7 > 3 * learned[1, 3]  # one after the other


@pytest.mark.slow
def test_a_thousand_neurons_and_directions() -> None:
    student = tl.scaling.power_teacher(1.0, directions=1000, width=1000)
    risk = student.risk([0.0, 1.0, 10.0])
    assert (np.diff(risk) < 0).all()
    assert (risk > 0).all()


@pytest.mark.slow
def test_the_package_follows_the_same_task() -> None:
    student = tl.scaling.power_teacher(1.0, directions=2, width=3, centred=False)
    flow = tl.solve(
        student.problem,
        tl.SGD(1e-3),
        tl.Population(flow=True),
        student.start,
        time=[0, 0.5, 2],
    )
    assert np.abs(flow.risk.values[0] - student.risk([0, 0.5, 2])).max() < 1e-6


def test_a_student_whose_mean_is_taken_out_is_no_problem_without_an_offset() -> None:
    """He2 has mean zero for rows of norm one, and those of this student grow."""
    student = tl.scaling.power_teacher(1.0, directions=2, width=3)
    with pytest.raises(tl.InputError, match="`centred` must be False"):
        print(student.problem)


def test_a_family_with_a_known_frontier() -> None:
    """R = N^−a + n^−b at C = N n: exponents ab/(a + b) and b/(a + b)."""
    a, b = 1.0, 0.5
    steps = np.geomspace(1, 1e9, 400)
    curves = {N: (steps, N**-a + steps**-b) for N in 2.0 ** np.arange(1, 16)}
    found = tl.scaling.frontier(curves, window=(1e3, 1e9))
    assert found.power_law
    assert abs(found.exponent - a * b / (a + b)) < 2 * found.error
    assert abs(found.size_exponent - b / (a + b)) < 3 * found.size_error
    assert found.error < 0.03
    later = tl.scaling.frontier(curves, lambda size, n: 6 * size * n, window=(6e3, 6e9))
    assert abs(later.exponent - found.exponent) < 1e-9


@pytest.mark.parametrize("shape", ["stretched", "floor"])
def test_what_is_no_power_law_is_said(shape: str) -> None:
    steps = np.geomspace(1, 1e7, 300)

    def risk(N: float) -> np.ndarray:
        if shape == "floor":
            return 0.02 + 1 / N + steps**-0.5
        return np.exp(-((np.log(1 + steps)) ** 2) / 20) + np.exp(-(np.log(N) ** 2) / 8)

    found = tl.scaling.frontier({N: (steps, risk(N)) for N in 2.0 ** np.arange(2, 12)})
    assert not found.power_law
    assert np.isnan(found.exponent)
    assert str(found).startswith("no power law here")


def test_random_features_have_a_frontier() -> None:
    curves = {}
    steps = np.unique(np.geomspace(1, 3000, 60).astype(int))
    for size in (4, 8, 16, 32, 64, 128):
        features = tl.scaling.random_features(0.8, 0.6, size=size, dim=800)
        curves[size] = steps, features.risk(steps, lr=0.15)
    found = tl.scaling.frontier(curves)
    assert len(found.local) >= 3
    assert (np.diff(found.risk) <= 1e-12).all()


def clocked(units: str) -> Any:
    steps = np.array([1.0, 10.0, 1000.0])
    return xr.Dataset(
        {"risk": (("seed", "time"), [[1.0, 0.5, 0.1]])},
        {"step": ("time", steps, {"units": units})},
    )


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("`alpha` must be a positive number", lambda: tl.scaling.random_features(-1, 1, 10, 100)),
        ("`beta` must be more than 0.3", lambda: tl.scaling.random_features(0.2, 0.1, 10, 100)),
        ("`size` must be less than dim = 100", lambda: tl.scaling.random_features(1, 1, 100, 100)),
        ("a contraction on the contour", lambda: tl.scaling.random_features(1, 1, 10, 100).risk(10, lr=2.0)),
        ("integers from 0 on", lambda: tl.scaling.random_features(1, 1, 10, 100).risk([10, 5], lr=0.1)),
        ("`exponent` must be more than 1/2", lambda: tl.scaling.power_teacher(0.5, 4, 4)),
        ("rows \\(4, at least 4\\)", lambda: tl.scaling.power_teacher(1, 4, 4, np.ones((3, 4)))),
        ("at least two curves", lambda: tl.scaling.frontier({1: ([1], [1])})),
        ("at least 5 sizes that are optimal", lambda: tl.scaling.frontier({1: ([1, 4], [1, 0.9]), 2: ([1, 4], [1, 0.8])})),
        ("share an interval of compute", lambda: tl.scaling.frontier({1: ([1, 2], [1, 0.9]), 9: ([1, 2], [1, 0.8])}, window=(1e6, 1e7))),
        ("on one clock", lambda: tl.scaling.frontier({1: clocked(""), 2: clocked("d**1")})),
        ("positive risks along increasing steps", lambda: tl.scaling.frontier({1: ([1, 2], [1, -1]), 2: ([1, 2], [1, 1])})),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_in_a_sentence(words: str, call: Any) -> None:
    with pytest.raises(tl.InputError, match=words):
        call()
