"""The stochastic correction: its covariance against closed forms and sampling, its spread against the chain."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas
from cost import sized
from scipy.special import erf

import twolayer as tl
from conftest import random_overlaps
from twolayer import d
from twolayer.equations.increment_kernel import kernel_of
from twolayer.equations.optimiser_step import tangent
from twolayer.equations.state import pack, unpack
from twolayer.gaussian.increment_covariance import PartSpread, spread_of
from twolayer.gaussian.single_samples import choose, choose_for, typical_rows
from twolayer.methods import sde

PHASE = tl.Problem("z1**2", "square", noise=0.5)


@pytest.mark.long
def test_numbers_are_data_of_the_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another lr, batch, dimension, decay, noise or step of time is traced by nobody."""
    traced, plain = [], sde.one_step
    monkeypatch.setattr(sde, "one_step", lambda *args: traced.append(1) or plain(*args))
    problem, start = (
        tl.Problem("0.37*z1**2", "square", noise=0.5),
        tl.Overlaps([[1.0]], [[0.3]]),
    )

    def run(
        noise: float = 0.5, dim: int = 100, dt: float = 0.01, **algorithm: Any
    ) -> None:
        tl.solve(
            problem.replace(noise=noise),
            tl.SGD(**({"lr": 0.1 / d} | algorithm)),
            tl.SDE(dim, dt),
            start,
            time=0.1,
        )

    run()
    before = len(traced)
    assert before > 0
    for change in (
        {"lr": 0.2 / d},
        {"batch": 3},
        {"dim": 200},
        {"dt": 0.02},
        {"noise": 0.1},
        {"weight_decay": 0.1},
    ):
        run(**change)  # type: ignore[arg-type]
    run(lr=0.05 / d, momentum=0.3)
    assert len(traced) == before


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("m", [0.0, 0.3, -0.8, 1.0])
@pytest.mark.parametrize("gamma", [0.02, 0.1])
def test_phase_retrieval_has_the_closed_form(m: float, gamma: float) -> None:
    """Var 𝓜, Cov(𝓜, 𝓠), Var 𝓠 and the scalar σ_eff² of the projected algorithm, term by term."""
    D, w, g = PHASE.noise, 1 - m**2, gamma
    S = np.asarray(
        spread_of(PHASE, tl.SGD(g / d, geometry="projected"))(
            np.eye(1), np.full((1, 1), m), np.ones(1), D, g
        )
    )
    mm = 48 * w * (1 + 4 * m**2) + 4 * D * (1 + 2 * m**2)
    mq = 480 * m * w + 24 * D * m - g * (2880 * m * w**2 + 144 * D * m * w)
    qq = 320 * w * (4 - m**2) + 48 * D - g * (22272 * w**2 + 1088 * D * w)
    qq += g**2 * (
        4608 * w**2 * (27 - 10 * m**2) + 768 * D * w * (10 - 3 * m**2) + 128 * D**2
    )
    np.testing.assert_allclose(S, [[mm, mq], [mq, qq]], rtol=1e-10, atol=1e-9)
    J = np.asarray(tangent(jnp.eye(1), jnp.full((1, 1), m), False))
    effective = w**2 * (
        48 + 80 * m**2 - 2688 * g * m**2 + 1152 * g**2 * m**2 * (27 - 10 * m**2)
    )
    effective += (
        D * w * (4 - 128 * g * m**2 + 192 * g**2 * m**2 * (10 - 3 * m**2))
        + 32 * g**2 * D**2 * m**2
    )
    np.testing.assert_allclose(
        J @ S @ J.T, [[effective, 0], [0, 0]], rtol=1e-9, atol=1e-8
    )


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("loss", ["squared", "correlation"])
@pytest.mark.parametrize("trained", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_closed_form_against_nodes(loss: str, trained: bool) -> None:
    """The generating function against exact quadrature, two neurons, two directions, all parts."""
    problem = tl.Problem(
        "z1**2 - 0.3*z1*z2 + 0.2",
        "He2",
        width=2,
        noise=0.4,
        gram=[[1.0, 0.3], [0.3, 0.8]],
    )
    algorithm = tl.SGD(0.1 / d, loss=loss, train_second_layer=trained)
    closed = spread_of(problem, algorithm)
    start = random_overlaps(1, 2, 2, problem.P, size=0.8)
    kernel = kernel_of(problem, algorithm)
    L, _, _ = start.factors()
    places = typical_rows(2, 2, 2, np.ones(2), problem.noise)
    chosen = choose(kernel, np.asarray(L), places, True)
    assert chosen.label == "closed form (Wick)"
    assert closed.label == "closed form (quadratic)"
    other = PartSpread(chosen.samples, L, np.linalg.pinv(L), trained)
    args = (start.Q, start.M, start.a, problem.noise, 0.3)
    np.testing.assert_allclose(closed(*args), other(*args), rtol=1e-9, atol=1e-9)


NUMPY: dict[str, tuple[Any, Any]] = {
    "erf": (
        lambda x: erf(x / np.sqrt(2)),
        lambda x: np.sqrt(2 / np.pi) * np.exp(-(x**2) / 2),
    ),
    "relu": (lambda x: np.maximum(x, 0.0), lambda x: (x > 0) * 1.0),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
}
TARGETS: dict[str, Any] = {
    "z1*z2": lambda u: u[:, 0] * u[:, 1],
    "relu(z1) + relu(z2)": lambda u: np.maximum(u, 0.0).sum(1),
    "sign(z1) + 0.5*z1*z2": lambda u: np.sign(u[:, 0]) + 0.5 * u[:, 0] * u[:, 1],
}
SAMPLED = [
    ("z1*z2", "erf"),
    ("z1*z2", "relu"),
    ("relu(z1) + relu(z2)", "relu"),
    ("sign(z1) + 0.5*z1*z2", "tanh"),
]


@pytest.mark.parametrize(("target", "activation"), sized(SAMPLED, slow=set(SAMPLED)))
def test_the_covariance_is_that_of_samples_within_its_error(
    target: str, activation: str
) -> None:
    """Σ of both layers by two million samples in NumPy: 5 standard errors, and the error that is stated."""
    a, noise, p, n = np.array([1.6, 0.4, -0.8]), 0.1, 3, 200_000
    problem = tl.Problem(target, activation, p, second_layer=list(a), noise=noise)
    algorithm = tl.SGD(0.5 / d, train_second_layer=True)
    rng = np.random.default_rng(3)
    W = 0.5 * rng.normal(size=(p, 6))
    Q, M = W @ W.T, W[:, :2]
    found = tl.rates(problem, algorithm, tl.Overlaps(Q, M))
    sigma, (value, slope) = found.covariance, NUMPY[activation]
    j, l = np.triu_indices(p)
    sums = [np.zeros(len(sigma)), np.zeros_like(sigma), np.zeros_like(sigma)]
    centre = None
    for _ in range(10):
        x = rng.normal(size=(n, 6))
        lam, star = x @ W.T, x[:, :2]
        y = TARGETS[target](star) + np.sqrt(noise) * rng.normal(size=n)
        e = y - value(lam) @ a / p
        g = a * slope(lam) * e[:, None]
        # lr d/(p n_b) is 1/2 divided by p
        square = g[:, j] * lam[:, l] + g[:, l] * lam[:, j] + 0.5 / p * g[:, j] * g[:, l]
        first = (g[:, :, None] * star[:, None, :]).reshape(n, -1)
        X = np.concatenate([first, square, value(lam) * e[:, None]], axis=1)
        centre = X.mean(0) if centre is None else centre
        X = X - centre
        sums = [sums[0] + X.sum(0), sums[1] + X.T @ X, sums[2] + (X**2).T @ X**2]
    mean, products, squares = (x / (10 * n) for x in sums)
    error = np.sqrt((squares - products**2) / (10 * n))
    expected = products - np.outer(mean, mean)
    scale = np.sqrt(np.outer(np.diagonal(expected), np.diagonal(expected)))
    off = np.abs(expected - sigma)
    assert found.covariance_error < 0.012
    assert (off < sigmas(sigma.size) * error + 2 * found.covariance_error * scale).all()
    assert (error / scale).max() < 0.02


PRODUCT = tl.Problem("z1*z2", "erf", 2, noise=0.1)
OBLIQUE = tl.Overlaps([[1.0, 0.2], [0.2, 0.8]], [[0.3, 0.1], [-0.2, 0.4]])


@pytest.mark.usefixtures("x64")
def test_points_grow_until_variances_are_as_fine_as_asked() -> None:
    """And the error of the chosen ones is that of independent points of the same number."""
    algorithm = tl.SGD(0.5 / d)
    rough, fine = (choose_for(PRODUCT, algorithm, x) for x in (0.3, 0.015))
    assert rough.label == "2^12 Sobol points" and rough.error < 0.3
    assert fine.error < 0.015
    assert len(fine.samples.nodes.weights) > len(rough.samples.nodes.weights)
    a = PRODUCT.a()
    sigma, other = (
        PartSpread.build(PRODUCT, algorithm, x, trained=False)(
            OBLIQUE.Q, OBLIQUE.M, a, 0.1, 0.5
        )
        for x in (fine, rough)
    )
    ratio = np.diagonal(np.asarray(other)) / np.diagonal(np.asarray(sigma))
    assert 1e-4 < np.abs(np.log(ratio)).max() < 6 * rough.error
    with pytest.raises(tl.InputError, match="accuracy"):
        tl.SDE(10, averages=tl.Averages(accuracy=0.0))


@pytest.mark.slow
def test_the_notes_say_how_fine_the_noise_is() -> None:
    def error(problem: tl.Problem, start: tl.Overlaps, geometry: str) -> float:
        method, algorithm = tl.SDE(1000), tl.SGD(0.5 / d, geometry=geometry)
        run = tl.solve(problem, algorithm, method, start, time=0.1, save=1)
        return float(json.loads(run.attrs["notes"])["covariance_error"])

    assert error(PHASE, tl.Overlaps([[1.0]], [[0.3]]), "projected") == 0
    assert 1e-4 < error(PRODUCT, OBLIQUE, "free") < 0.06


@pytest.mark.usefixtures("x64")
def test_packing_is_undone() -> None:
    start = random_overlaps(4, 3, 2)
    Q, M, a = unpack(pack(start.Q, start.M, start.a, True), 3, 2, True)
    np.testing.assert_array_equal(Q, start.Q)
    np.testing.assert_array_equal(M, start.M)
    np.testing.assert_array_equal(a, start.a)


def spread_ratio(
    one: Any, two: Any, name: str, index: tuple[int, ...]
) -> tuple[float, float]:
    """Ratio of the variances at the end, and its standard error (from fourth moments)."""
    values, relative = [], []
    for result in (one, two):
        x = result[name].values[(slice(None), -1, *index)]
        centred = (x - x.mean()) ** 2
        values.append(centred.mean())
        relative.append(centred.std() / centred.mean() / np.sqrt(len(x)))
    return values[0] / values[1], values[0] / values[1] * float(np.hypot(*relative))


SETTINGS = {
    "projected": (tl.Problem("z1**2", "square", noise=0.1), tl.SGD(0.1 / d, geometry="projected"), 0.5, 3000, 1.0),
    "plain": (tl.Problem("z1**2", "square", noise=0.1), tl.SGD(0.02 / d), 0.5, 1500, 1.0),
    "two neurons, second layer trained": (
        tl.Problem(tl.Teacher("erf", 1), "erf", width=2, noise=0.1), tl.SGD(1 / d, train_second_layer=True), 0.4, 1000, 1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sized(SETTINGS, long=set(SETTINGS) - {"projected"}))
def test_spread_over_a_trajectory_is_that_of_the_chain(name: str) -> None:
    problem, algorithm, m, dim, end = SETTINGS[name]
    p = problem.p
    start = tl.Overlaps(0.8 * np.eye(p) + 0.2, np.full((p, 1), m))
    seeds = 1024 if p == 1 else 512
    runs = {
        method.name: tl.solve(
            problem, algorithm, method, start, time=end, save=1, seeds=seeds
        )
        for method in (tl.Chain(dim), tl.SDE(dim, 0.02))
    }
    watched = [("M", (0, 0))] + (
        [("Q", (0, 0))] if algorithm.geometry == "free" else []
    )
    watched += [("a", (0,))] if algorithm.train_second_layer else []
    for variable, index in watched:
        ratio, error = spread_ratio(runs["sde"], runs["chain"], variable, index)
        # the C/d correction of the variance itself is a few percent at these d
        room = sigmas() * error / ratio + 0.1
        assert abs(np.log(ratio)) < room < np.log(2), (variable, ratio, error)


@pytest.mark.long
def test_independent_noise_of_m_and_q_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that forgets the covariance of M and Q has several times the variance of the chain."""
    problem, algorithm, m, dim, end = SETTINGS["projected"]
    start = tl.Overlaps([[1.0]], [[m]])
    chain = tl.solve(
        problem, algorithm, tl.Chain(dim), start, time=end, save=1, seeds=512
    )

    def independent(*task: Any) -> Any:
        full = spread_of(*task)

        class Diagonal(type(full)):  # type: ignore[misc]
            def __call__(self, *args: Any) -> Any:
                sigma = super().__call__(*args)
                return jnp.diag(jnp.diagonal(sigma))

        return Diagonal(full.averages, full.trained)

    monkeypatch.setattr(sde, "spread_of", independent)
    with pytest.warns(tl.errors.WitnessWarning, match="Σ is 0 by the method"):
        wrong = tl.solve(
            problem, algorithm, tl.SDE(dim, 0.02), start, time=end, save=1, seeds=512
        )
    ratio, error = spread_ratio(wrong, chain, "M", (0, 0))
    assert ratio - sigmas() * error > 2


@pytest.mark.long
def test_without_noise_it_is_the_ode() -> None:
    """As d grows the diffusion falls onto the ODE, to the order of its time step."""
    problem = tl.Problem(tl.Teacher("erf", 2), "erf", width=2, noise=0.1)
    start = random_overlaps(6, 2, 2, size=0.9)
    algorithm = tl.SGD(0.5 / d)
    theory = tl.solve(problem, algorithm, tl.ODE(), start, time=1, save=1)
    errors = []
    for dt in (0.1, 0.05):
        runs = tl.solve(
            problem, algorithm, tl.SDE(10**9, dt), start, time=1, save=1, seeds=4
        )
        errors.append(
            np.abs(runs.Q.values[:, -1].mean(0) - theory.Q.values[0, -1]).max()
        )
    assert errors[1] < 1e-3
    assert 3 < errors[0] / errors[1] < 5  # second order


@pytest.mark.slow
def test_the_boundary_is_safe() -> None:
    """At m = 1, with label noise pushing outwards, overlaps stay those of vectors and norms stay one."""
    problem, algorithm = (
        tl.Problem("z1**2", "square", width=2, noise=2.0),
        tl.SGD(0.05 / d, geometry="projected"),
    )
    start = tl.Overlaps(np.ones((2, 2)), np.ones((2, 1)))
    result = tl.solve(problem, algorithm, tl.SDE(50), start, time=2, save=40, seeds=32)
    assert set(result.outcome.values) == {"ok"}
    Q, M = result.Q.values, result.M.values
    np.testing.assert_allclose(np.diagonal(Q, axis1=2, axis2=3), 1.0, atol=1e-10)
    assert np.abs(M).max() <= 1 + 1e-10
    assert np.linalg.eigvalsh(Q - M @ M.swapaxes(-1, -2)).min() > -1e-9
    assert M[:, -1].std() > 1e-3


@pytest.mark.long
def test_seeds_and_saving_change_no_number_and_rerun_repeats() -> None:
    algorithm, start = (
        tl.SGD(0.05 / d, geometry="projected"),
        tl.Overlaps([[1.0]], [[0.3]]),
    )
    method = tl.SDE(500)
    few = tl.solve(PHASE, algorithm, method, start, time=1, save=10, seeds=3)
    many = tl.solve(PHASE, algorithm, method, start, time=1, save=2, seeds=20)
    np.testing.assert_array_equal(few.M.values[:, -1], many.M.values[:3, -1])
    again = tl.rerun(few)
    np.testing.assert_array_equal(few.M.values, again.M.values)
    assert few.step.values[-1] == pytest.approx(500 / 0.05)


def test_refusals_and_bad_input() -> None:
    with pytest.raises(tl.errors.Refused, match="GiantSteps"):
        tl.solve(
            PHASE,
            tl.SGD(0.1, batch=d),
            tl.SDE(100),
            tl.Overlaps([[1.0]], [[0.3]]),
            steps=3,
        )
    with pytest.raises(tl.InputError, match="`dt`"):
        tl.SDE(100, dt=0.0)
    with pytest.raises(tl.InputError, match="`dim`"):
        tl.SDE(0)
    assert jax.config.jax_enable_x64 is False
