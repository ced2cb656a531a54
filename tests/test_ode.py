"""The deterministic limit: against exact solutions, equations written down once more, and the exact chain."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from chance import sigmas
from scipy.integrate import solve_ivp

import twolayer as tl
from conftest import random_overlaps
from twolayer import d


def final(dataset: Any, name: str) -> np.ndarray:
    return np.asarray(dataset[name].values[0, -1])


def test_phase_retrieval_has_the_exact_solution() -> None:
    """u = m² follows a logistic law; the last risk is γΔ/(1−6γ)."""
    gamma, noise, m0 = 0.05, 0.5, 0.02
    problem = tl.Problem("z1**2", "square", noise=noise)
    result = tl.solve(
        problem,
        tl.SGD(gamma / d, geometry="projected"),
        tl.ODE(),
        tl.Overlaps([[1.0]], [[m0]]),
        time=30,
    )
    A, B = 4 * (1 - 6 * gamma), 2 * gamma * noise
    last = 1 - B / A
    u = last / (1 + (last / m0**2 - 1) * np.exp(-2 * (A - B) * result.time.values))
    np.testing.assert_allclose(result.M.values[0, :, 0, 0] ** 2, u, rtol=1e-6)
    np.testing.assert_allclose(
        result.excess_risk.values[0], 2 * (1 - u), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(
        final(result, "excess_risk"), gamma * noise / (1 - 6 * gamma), rtol=1e-6
    )


def test_plain_norm_relaxes_to_its_fixed_point() -> None:
    """At m = 0 the squared norm goes to the smaller root of 15γq² − (3+6γ)q + 1 + 3γ + γΔ."""
    gamma, noise = 0.05, 0.5
    problem = tl.Problem("z1**2", "square", noise=noise)
    result = tl.solve(
        problem, tl.SGD(gamma / d), tl.ODE(), tl.Overlaps([[1.0]], [[0.0]]), time=40
    )
    root = np.roots([15 * gamma, -(3 + 6 * gamma), 1 + 3 * gamma + gamma * noise]).min()
    np.testing.assert_allclose(final(result, "Q")[0, 0], root, rtol=1e-7)


def square_field(
    t: float, y: np.ndarray, p: int, k: int, a: np.ndarray, a_star: np.ndarray, P: np.ndarray, noise: float,
    flow: float, rate: float,
) -> np.ndarray:  # fmt: skip
    """dM and dQ for the square activation, from the traces of B Ω."""
    Q, M = y[: p * p].reshape(p, p), y[p * p :].reshape(p, k)
    omega = np.block([[Q, M], [M.T, P]])
    B = np.diag(np.concatenate([-a / p, a_star / k]))
    one, two = np.trace(B @ omega), np.trace(B @ omega @ B @ omega)
    inner = omega @ B @ omega
    first = one * omega + 2 * inner
    second = (
        (one**2 + 2 * two + noise) * omega
        + 4 * one * inner
        + 8 * omega @ B @ omega @ B @ omega
    )
    dM = 2 * a[:, None] * first[:p, p:]
    dQ = (
        flow * 2 * (a[:, None] + a) * first[:p, :p]
        + rate * 4 * np.outer(a, a) * second[:p, :p]
    )
    return np.concatenate([dQ.ravel(), flow * dM.ravel()])


REGIMES = {
    "gradient flow": ("0.3*d**-0.8", "2*d**0.4", 1.0, 0.0, 0.0),
    "Saad–Solla": ("0.3*d**-0.6", "2*d**0.4", 1.0, 0.3 / (3 * 2), 0.0),
    "pure noise": ("0.3*d**-0.5", "2*d**0.4", 0.0, 0.3 / (3 * 2), -0.1),
}


@pytest.mark.parametrize("name", REGIMES)
def test_every_regime_against_equations_written_once_more(name: str) -> None:
    lr, batch, flow, rate, unit = REGIMES[name]
    p, k, noise = 3, 2, 0.3
    P = np.array([[1.0, 0.2], [0.2, 0.7]])
    a, a_star = np.array([1.0, -0.5, 0.8]), np.array([1.5, 0.6])
    teacher = tl.Teacher("square", k, a_star)
    problem = tl.Problem(
        teacher, "square", width=p, noise=noise, gram=P, second_layer=a
    )
    start = random_overlaps(3, p, k, P, size=0.6)
    start = tl.Overlaps(start.Q, start.M, P, a)
    algorithm = tl.SGD(lr, batch)
    result = tl.solve(problem, algorithm, tl.ODE(), start, time=0.7, save=7)
    y0 = np.concatenate([start.Q.ravel(), start.M.ravel()])
    args = (p, k, a, a_star, P, noise, flow, rate)
    expected = solve_ivp(
        square_field, (0, 0.7), y0, args=args, rtol=1e-10, atol=1e-12
    ).y[:, -1]
    np.testing.assert_allclose(
        final(result, "Q").ravel(), expected[: p * p], rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(
        final(result, "M").ravel(), expected[p * p :], rtol=1e-6, atol=1e-8
    )
    assert json.loads(result.attrs["notes"])["regime"] == name
    assert result.time.attrs["units"] == ("" if unit == 0 else f"d**{unit:g}")
    # at a dimension, the same save points are numbers of steps: t = lr step / p
    placed = tl.Overlaps(start.Q, start.M, P, a, dim=1000)
    at = tl.solve(problem, algorithm, tl.ODE(), placed, time=0.7 * 1000**unit, save=7)
    np.testing.assert_allclose(at.step.values * algorithm.lr(1000) / p, at.time.values)
    np.testing.assert_allclose(at.Q.values, result.Q.values, rtol=1e-6)


def test_pure_noise_is_what_the_chain_does() -> None:
    """Above the Saad–Solla line only the norms move, on a faster clock."""
    dim = 200_000
    problem = tl.Problem(tl.Teacher("erf", 1), "erf", noise=0.2)
    algorithm = tl.SGD("0.5*d**-0.75")
    start = tl.Overlaps([[1.0]], [[0.4]], dim=dim)
    steps = int(4 * dim**0.5)
    theory = tl.solve(problem, algorithm, tl.ODE(), start, steps=steps, save=1)
    runs = tl.solve(
        problem, algorithm, tl.Chain(dim), start, steps=steps, save=1, seeds=128
    )
    Q = runs.Q.values[:, -1, 0, 0]
    error = Q.std(ddof=1) / np.sqrt(len(Q))
    growth = final(theory, "Q")[0, 0] - 1
    # the drift left out is smaller by d^(−1/4)
    assert abs(Q.mean() - 1 - growth) < sigmas() * error + 3 * growth * dim**-0.25
    assert growth > 0.2
    assert final(theory, "M")[0, 0] == 0.4


@pytest.mark.parametrize(
    ("lr", "batch", "words"),
    [
        (0.5, "2*d", "GiantSteps"),
        (0.5, "d**1.5", "GiantSteps"),
        ("d**-0.5", 1, "discrete map"),
        (0.5, 1, "blow up"),
        ("d**-0.2", "d**0.1", "blow up"),
    ],
)
def test_what_is_not_a_differential_equation_is_refused(
    lr: Any, batch: Any, words: str
) -> None:
    problem, start = tl.Problem("He2(z1)", "He2"), tl.Overlaps([[1.0]], [[0.5]])
    with pytest.raises(tl.errors.Refused, match=words) as caught:
        tl.solve(problem, tl.SGD(lr, batch), tl.ODE(), start, time=1)
    assert "Chain" in str(caught.value)
    assert "ODE" not in tl.support(problem, tl.SGD(lr, batch))
    assert words in tl.support(problem, tl.SGD(lr, batch)).reasons["ODE"]


def test_reused_samples_are_refused() -> None:
    with pytest.raises(tl.errors.Refused, match="reused"):
        tl.solve(
            tl.Problem("z1", "tanh"),
            tl.SGD(0.1 / d, dataset=2 * d),
            tl.ODE(),
            tl.Overlaps([[1.0]], [[0.5]]),
            time=1,
        )


@pytest.mark.long
def test_projected_and_spherical_have_one_limit_and_momentum_rescales_the_rate() -> (
    None
):
    problem = tl.Problem(tl.Teacher("erf", 2), "erf", width=2, noise=0.1)
    base = random_overlaps(5, 2, 2)
    scale = 1 / np.sqrt(np.diagonal(base.Q))
    start = tl.Overlaps(
        base.Q * scale[:, None] * scale, base.M * scale[:, None], a=base.a
    )
    run = {"time": 2.0, "save": 4}
    projected = tl.solve(
        problem, tl.SGD(0.5 / d, geometry="projected"), tl.ODE(), start, **run
    )
    spherical = tl.solve(
        problem, tl.SGD(0.5 / d, geometry="spherical"), tl.ODE(), start, **run
    )
    np.testing.assert_array_equal(projected.M.values, spherical.M.values)
    np.testing.assert_allclose(
        np.diagonal(projected.Q.values, axis1=2, axis2=3), 1.0, atol=1e-7
    )
    # momentum β acts as the rate lr/(1−β), on the clock of that rate
    heavy = tl.solve(problem, tl.SGD(0.5 / d, momentum=0.6), tl.ODE(), start, **run)
    quick = tl.solve(
        problem, tl.SGD(0.5 / 0.4 / d), tl.ODE(), start, time=2.0 / 0.4, save=4
    )
    np.testing.assert_allclose(heavy.Q.values, quick.Q.values, rtol=1e-5)


CASES = {
    "erf teacher": ({"target": tl.Teacher("erf", 2), "activation": "erf", "width": 2}, {"lr": "1/d"}),
    "relu teacher": ({"target": tl.Teacher("relu", 1), "activation": "relu", "width": 2}, {"lr": "0.4/d", "batch": 2}),
    "tanh, multi-index": ({"target": "z1 + z1*z2", "activation": "tanh", "width": 2}, {"lr": "0.8/d"}),
    "correlation": (
        {"target": "tanh(z1)", "activation": "erf"}, {"lr": "0.5/d", "loss": "correlation", "geometry": "spherical"},
    ),
    "trained second layer, weight decay and momentum": (
        {"target": "tanh(z1)", "activation": "erf", "width": 2},
        {"lr": "0.4/d", "train_second_layer": True, "weight_decay": 0.3, "momentum": 0.5},
    ),
    "softplus, growing batch": ({"target": "relu(z1)", "activation": "softplus"}, {"lr": "2*d**-0.75", "batch": "d**0.25"}),
    "He3 on the sphere": ({"target": "He3(z1)", "activation": "He3"}, {"lr": "0.01/d", "geometry": "projected"}),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_the_chain_approaches_the_limit(name: str) -> None:
    """|mean − limit| ≤ C/d + 5 standard errors, C from the chain at about d/4 (twice, to leave room for the next order)."""
    describe, train = CASES[name]
    problem, algorithm = tl.Problem(noise=0.1, **describe), tl.SGD(**train)
    p, k = problem.p, problem.k
    M = np.where(np.arange(p)[:, None] % k == np.arange(k), 0.5, 0.1)
    start = tl.Overlaps(0.6 * np.eye(p) + 0.4, M)
    end = 0.2 if "He3" in name else 1.0
    theory = tl.solve(problem, algorithm, tl.ODE(), start, time=end, save=1)
    deviation, error = {}, {}
    for dim, seeds in ((400, 1024), (1600, 384)):
        runs = tl.solve(
            problem, algorithm, tl.Chain(dim), start, time=end, save=1, seeds=seeds
        )
        stacked = np.concatenate(
            [runs[v].values[:, -1].reshape(seeds, -1) for v in ("M", "Q", "a", "risk")],
            axis=1,
        )
        exact = np.concatenate(
            [final(theory, v).ravel() for v in ("M", "Q", "a", "risk")]
        )
        deviation[dim] = np.abs(stacked.mean(0) - exact)
        error[dim] = stacked.std(0, ddof=1) / np.sqrt(seeds)
    room = (
        (2 * deviation[400] + 2 * error[400]) * 400 / 1600
        + sigmas(error[1600].size, seeds - 1) * error[1600]
        + 1e-9
    )
    assert (deviation[1600] < room).all(), (name, deviation[1600] / room)
    # the test has teeth: what the run does is far larger than the room it is given
    begun = np.concatenate(
        [np.asarray(theory[v].values[0, 0]).ravel() for v in ("M", "Q", "a", "risk")]
    )
    assert np.max(np.abs(exact - begun) / room) > 8


@pytest.mark.long
def test_bias_of_a_finite_dimension_falls_as_one_over_d() -> None:
    """(mean at d − limit)·d is one constant from d = 125 to 1000."""
    problem = tl.Problem(tl.Teacher("erf", 1), "erf", noise=0.1)
    algorithm = tl.SGD(32 / d, batch=128)
    start = tl.Overlaps([[1.0]], [[0.3]])
    limit = final(
        tl.solve(problem, algorithm, tl.ODE(), start, time=2.56, save=1), "M"
    )[0, 0]
    dims, scaled, errors = np.array([125, 250, 500, 1000]), [], []
    for dim in dims:
        runs = tl.solve(
            problem,
            algorithm,
            tl.Chain(int(dim)),
            start,
            time=2.56,
            save=1,
            seeds=8192,
            seed=int(dim),
        )
        assert float(runs.time[-1]) == pytest.approx(2.56, abs=1e-12)
        M = runs.M.values[:, -1, 0, 0]
        scaled.append((M.mean() - limit) * dim)
        errors.append(M.std(ddof=1) / np.sqrt(len(M)) * dim)
    constant = np.average(scaled, weights=np.array(errors) ** -2.0)
    assert constant > 20 * max(errors)
    assert np.all(
        np.abs(np.array(scaled) - constant)
        < sigmas(len(errors)) * np.array(errors) + 0.05 * constant
    )
    # another power of d would not pass
    for power in (0.5, 1.5):
        other = np.array(scaled) * (dims / 125.0) ** (power - 1)
        spread = np.array(errors) * (dims / 125.0) ** (power - 1)
        middle = np.average(other, weights=spread**-2.0)
        assert np.any(np.abs(other - middle) > sigmas() * spread + 0.05 * middle)


def test_a_solution_that_blows_up_says_so() -> None:
    problem = tl.Problem("He3(z1)", "He3")
    with pytest.warns(tl.errors.DivergenceWarning, match="smaller lr"):
        result = tl.solve(
            problem, tl.SGD(2 / d), tl.ODE(), tl.Overlaps([[1.0]], [[0.5]]), time=5
        )
    assert result.outcome.values.tolist() == ["diverged"]
    assert 0 < float(result.stop_time[0]) < 5
    assert np.isfinite(result.M.values).all() and np.isfinite(result.risk.values).all()


def test_until_finds_the_crossing() -> None:
    """First passage of the overlap, by root finding, against the exact solution of phase retrieval."""
    gamma, noise, m0, level = 0.05, 0.5, 0.02, 0.6
    problem = tl.Problem("z1**2", "square", noise=noise)
    run = {"time": 30.0, "save": 10}
    algorithm, start = (
        tl.SGD(gamma / d, geometry="projected"),
        tl.Overlaps([[1.0]], [[m0]]),
    )
    result = tl.solve(
        problem, algorithm, tl.ODE(), start, until=tl.Until("overlap", level), **run
    )
    A, B = 4 * (1 - 6 * gamma), 2 * gamma * noise
    last = 1 - B / A
    exact = np.log((last / m0**2 - 1) / (last / level**2 - 1)) / (2 * (A - B))
    assert result.outcome.values.tolist() == ["reached"]
    assert float(result.stop_time[0]) == pytest.approx(exact, rel=1e-6)
    relative = tl.solve(
        problem,
        algorithm,
        tl.ODE(),
        start,
        until=tl.Until("excess_risk", 0.5, relative=True),
        **run,
    )
    u = 1 - 0.5 * (1 - m0**2)
    exact = np.log((last / m0**2 - 1) / (last / u - 1)) / (2 * (A - B))
    assert float(relative.stop_time[0]) == pytest.approx(exact, rel=1e-6)


def test_the_integrator_gives_up_with_an_error_or_an_outcome() -> None:
    problem, start = tl.Problem("tanh(z1)", "tanh"), tl.Overlaps([[1.0]], [[0.5]])
    with pytest.raises(tl.errors.RunFailed, match="max_steps"):
        tl.solve(problem, tl.SGD(0.1 / d), tl.ODE(max_steps=2), start, time=100)
    kept = tl.solve(
        problem, tl.SGD(0.1 / d), tl.ODE(max_steps=2), start, time=100, throw=False
    )
    assert kept.outcome.values.tolist() == ["max_steps"]


def test_a_window_of_a_single_step_is_no_blow_up() -> None:
    """0.06 + (0.07 − 0.06) is not 0.07: what rounding leaves of the way is no step too small for the clock."""
    problem, algorithm = (
        tl.Problem("h2(z1)", "h2"),
        tl.SGD(lr=0.05 / d, geometry="projected"),
    )
    run = tl.solve(
        problem, algorithm, tl.ODE(), tl.Overlaps([[1.0]], [[0.3]]), time=0.1, save=10
    )
    assert run.outcome.values.tolist() == ["ok"]
    assert np.isfinite(run.M.values).all()
    assert float(run.time[-1]) == pytest.approx(0.1)


def test_overlaps_that_grow_by_many_powers_of_ten_keep_their_digits() -> None:
    """From M = 1e-5 the escape multiplies every error by 1e5."""
    problem, algorithm = (
        tl.Problem(tl.Teacher("square"), "square", noise=0.1),
        tl.SGD(0.08 / d, geometry="projected"),
    )
    start = tl.Overlaps([[1.0]], [[1e-5]])
    default, fine = (
        tl.solve(problem, algorithm, tl.ODE(rtol=rtol), start, time=6, save=1)
        for rtol in (None, 1e-12)
    )
    assert 0.1 < float(fine.M[0, -1, 0, 0]) < 0.999
    assert abs(float(default.risk[0, -1]) - float(fine.risk[0, -1])) < 1e-7
