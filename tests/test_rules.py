"""Update rules: explicit SGD path by path, in the mean against NumPy, in the limit, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.special import erf as erf_of
from scipy.stats import norm

import twolayer as tl
from conftest import random_overlaps
from twolayer import d, rules, schedules
from twolayer.equations.increment_kernel import Kernel, Sample, kernel_of
from twolayer.equations.optimiser_step import Memory, coefficients_of, form_of
from twolayer.equations.orthogonal import (
    Frame,
    Reduced,
    batch_sums,
    embed,
    exact_step,
    overlaps,
)
from twolayer.gaussian import all_fields
from twolayer.gaussian.all_fields import FullEngine
from twolayer.gaussian.engines import adapt, select
from twolayer.numerics.wishart import GramFactor
from twolayer.task.labels import Spoilt

ERF = tl.Problem("erf(z1/1.4142135623730951)", "erf", noise=0.2)
START = tl.Overlaps([[0.5]], [[0.1]])

TABLE = {
    "clip": (rules.clip(0.3), 1, 4, (0.55163, 0.50657)),
    "normalised": (rules.normalised(), 0.5, 1.5, (0.64652, 0.77479)),
    "private": (rules.private(0.5, 0.4), 1, 3, (0.53376, 1.05208)),
    "sign": (rules.sign(), 0.5, 2, (0.66573, 0.89350)),
    "adagrad": (rules.adagrad_norm(0.7), 1.5, 12, (1.15592, 1.55957)),
    "polyak": (rules.polyak(), 3, 4, (0.45956, 0.55838)),
    "lookahead": (rules.lookahead(2 / d), 1, 3, (0.16529, 0.32947)),
    "two_step": (rules.two_step(), 1, 2, (0.67681, 0.82559)),
}
"""Independent numbers: rule, γ, time, and M, Q of one erf neuron from M = 0.1, Q = 0.5 with Δ = 0.2."""


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_the_limit_has_the_independent_numbers(name: str) -> None:
    rule, gamma, time, expected = TABLE[name]
    result = tl.solve(
        ERF, tl.SGD(gamma / d, rule=rule), tl.ODE(), START, time=time, save=1
    ).isel(time=-1, seed=0)
    np.testing.assert_allclose(
        [result.M.values.item(), result.Q.values.item()], expected, atol=6e-6
    )
    if name == "adagrad":
        assert float(result.lr) == pytest.approx(1.22528, abs=6e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_finite_dimensions_follow_the_limit(name: str) -> None:
    """Exact in law (Vectors for the sign) at d = 1000: C/d and five standard errors; the plain gradient is far off."""
    rule, gamma, time, expected = TABLE[name]
    method = tl.Vectors(1000) if rule.coordinates else tl.Chain(1000)
    result = tl.solve(
        ERF, tl.SGD(gamma / d, rule=rule), method, START, time=time, save=1, seeds=48
    )
    for values, limit in zip(
        (result.M.values[:, -1, 0, 0], result.Q.values[:, -1, 0, 0]),
        expected,
        strict=True,
    ):
        assert abs(values.mean() - limit) < 5 * values.std() / np.sqrt(48) + 10 / 1000


def numpy_push(
    rule: str,
    g: np.ndarray,
    e: np.ndarray,
    z: np.ndarray,
    again: Any,
    p: int,
    gamma: float,
) -> np.ndarray:
    """ĝ of a batch, written down once more."""
    size = np.sqrt(
        (g**2).sum(1, keepdims=True) * (z**2).sum(1, keepdims=True) / z.shape[1]
    )
    if rule == "clip":
        return g * np.minimum(1, 0.3 / size)
    if rule == "normalised":
        return g / size
    if rule == "polyak":
        return g * np.minimum(1, p**2 * e[:, None] ** 2 / (2 * 9 * gamma * size**2))
    if rule == "formula":
        return (
            g
            * (z**2).mean(1, keepdims=True)
            / (1 + np.linalg.norm(g, axis=1, keepdims=True))
        )
    if rule == "lookahead":
        return again(0.7 / z.shape[1] / (p * len(z)) * g.T @ z)
    assert rule == "two_step"
    return g + again(gamma / z.shape[1] / (p * len(z)) * g.T @ z)


PATHS = {
    "clip": rules.clip(0.3),
    "normalised": rules.normalised(),
    "polyak": rules.polyak(9.0),
    "formula": rules.formula("g*r/(1 + norm)"),
    "lookahead": rules.lookahead(0.7 / d),
    "two_step": rules.two_step(),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("rule", PATHS)
def test_path_by_path(rule: str, blind: bool) -> None:
    """Fed with the inputs of a d-dimensional run, the chain reproduces its overlaps; with |z|² = d it does not."""
    dim, p, k, batch, gamma = 12, 2, 2, 3, 1.5
    P = np.array([[1.0, 0.3], [0.3, 0.8]])
    problem = tl.Problem("z1 + tanh(z1*z2)", "tanh", width=p, noise=0.2, gram=P)
    algorithm = tl.SGD(gamma / d, batch=batch, rule=PATHS[rule])
    rng, start = np.random.default_rng(4), random_overlaps(4, p, k, P, size=1.0)
    L, _, _ = start.factors()
    A, B = embed(start.Q, start.M, np.linalg.pinv(L), p)
    W, a = (
        np.concatenate([A, B, np.zeros((p, dim - k - p))], axis=1),
        np.asarray(start.a),
    )
    form, rates = form_of(algorithm), coefficients_of(algorithm, p, dim)
    at = Reduced(
        kernel_of(problem, algorithm),
        form,
        p,
        k,
        p,
        batch,
        GramFactor(batch, dim - k - p),
    )
    frame = Frame(rates, L, None, problem.noise)
    state = Memory.at_rest(
        form, jnp.asarray(np.concatenate([A, B], axis=1)), jnp.asarray(a)
    )

    @jax.jit
    def step(state: Memory, normals: Any, T: Any, seen: Any) -> Memory:
        return exact_step(
            at, rates, state, batch_sums(at, frame, state.now, normals, T=seen), T
        )[0]

    def gradient(
        W: np.ndarray, z: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        lam = z @ W.T
        e = y - np.tanh(lam) @ a / p
        return a / np.cosh(lam) ** 2 * e[:, None], e

    worst = 0.0
    for _ in range(20):
        z, noise = rng.normal(size=(batch, dim)), rng.normal(size=batch)
        reduced, rows = np.asarray(state.now.W)[:, k:], W[:, k:]
        basis = np.linalg.pinv(reduced) @ rows
        own = z[:, k:] @ basis.T
        rest = z[:, k:] - own @ basis
        star = z[:, :k] @ L.T
        y = star[:, 0] + np.tanh(star[:, 0] * star[:, 1]) + np.sqrt(0.2) * noise
        g, e = gradient(W, z, y)
        pushed = numpy_push(
            rule,
            g,
            e,
            z,
            lambda move, W=W, z=z, y=y: gradient(W + move, z, y)[0],
            p,
            gamma,
        )
        T = np.linalg.qr(
            rest.T, mode="r"
        ).T  # a row for every sample, with the same inner products
        T = np.concatenate([T, np.zeros((batch, max(0, batch - T.shape[1])))], axis=1)
        wrong = T * np.sqrt(dim - k - p) / np.linalg.norm(T, axis=1, keepdims=True)
        normals = np.concatenate([z[:, :k], own, noise[:, None]], axis=1)
        state = step(
            state,
            jnp.asarray(normals),
            jnp.asarray(T),
            jnp.asarray(wrong if blind else T),
        )
        W = W + gamma / dim / (p * batch) * pushed.T @ z
        Q, M = overlaps(np.asarray(state.now.W), L)
        worst = max(worst, np.abs(Q - W @ W.T).max(), np.abs(M - W[:, :k] @ L.T).max())
        if blind:
            break  # one step tells; later ones have another basis
    assert worst > 1e-4 if blind else worst < 1e-10


def numpy_runs(
    rule: str, dim: int, seeds: int, steps: int, gamma: float, batch: int
) -> tuple[np.ndarray, np.ndarray]:
    """M and Q of a linear neuron after explicit SGD with rules that act on the mean."""
    rng = np.random.default_rng(11)
    w = np.zeros((seeds, dim))
    axis = rng.normal(size=dim) / np.sqrt(
        dim
    )  # the target is spread over all coordinates
    axis /= np.linalg.norm(axis)
    other = rng.normal(size=dim)
    other -= (other @ axis) * axis
    w[:] = 0.1 * axis + np.sqrt(0.49) * other / np.linalg.norm(other)
    total = np.zeros(seeds)
    m, v = np.zeros_like(w), np.zeros_like(w)
    for n in range(1, steps + 1):
        z = rng.normal(size=(seeds, batch, dim))
        e = (
            z @ axis
            + np.sqrt(0.2) * rng.normal(size=(seeds, batch))
            - np.einsum("sbd,sd->sb", z, w)
        )
        if rule == "label_noise":
            e = e + np.sqrt(0.6) * rng.normal(size=e.shape)
        move = np.einsum("sb,sbd->sd", e, z) / batch
        if rule == "private":
            move = move + 0.8 * rng.normal(size=w.shape)
        if rule == "adagrad":
            total += (move**2).sum(1) / dim**2
            move = move / np.sqrt(0.25 + total)[:, None]
        if rule == "sign":
            move = np.sign(move)
        if rule == "adam":
            m, v = 0.8 * m + 0.2 * move, 0.9 * v + 0.1 * move**2
            move = m / (1 - 0.8**n) / (np.sqrt(v / (1 - 0.9**n)) + 1e-8)
        w = w + gamma / dim * move
    return w @ axis, (w**2).sum(1)


MEANS = {
    "private": (rules.private(0.8), 0.5),
    "label_noise": (rules.label_noise(0.6), 0.5),
    "adagrad": (rules.adagrad_norm(0.5), 0.5),
    "sign": (rules.sign(), 0.5),
    "adam": (rules.adam(0.8, 0.9), 0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", MEANS)
def test_rules_of_the_mean_are_those_of_explicit_sgd(rule: str) -> None:
    problem, dim, seeds, steps = tl.Problem("z1", "linear", noise=0.2), 40, 400, 60
    ours, gamma = MEANS[rule]
    expected = numpy_runs(rule, dim, seeds, steps, gamma, 2)
    methods = (
        [tl.Vectors(dim)] if ours.coordinates else [tl.Vectors(dim), tl.Chain(dim)]
    )
    for method in methods:
        result = tl.solve(
            problem,
            tl.SGD(gamma / d, batch=2, rule=ours),
            method,
            START,
            steps=steps,
            save=1,
            seeds=seeds,
        )
        for found, theirs in zip(
            (result.M.values[:, -1, 0, 0], result.Q.values[:, -1, 0, 0]),
            expected,
            strict=True,
        ):
            error = np.hypot(found.std(), theirs.std()) / np.sqrt(seeds)
            room = 0.03 if ours.coordinates else 0.0  # two frames are alike up to 1/d
            assert abs(found.mean() - theirs.mean()) < sigmas(14) * error + room, (
                method.name
            )


GAUSS = np.polynomial.hermite_e.hermegauss(30)


def own_averages(
    state: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """psi, phi, chi and second of two erf neurons on erf(z1), by nodes in three normals."""
    M, Q, a = (
        state[:2],
        np.array([[state[2], state[3]], [state[3], state[4]]]),
        state[5:7],
    )
    x, w = GAUSS
    normals = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1).reshape(-1, 3)
    weight = (w[:, None, None] * w[:, None] * w).ravel() / (2 * np.pi) ** 1.5
    star = normals[:, 0]
    fields = (
        star[:, None] * M + normals[:, 1:] @ np.linalg.cholesky(Q - np.outer(M, M)).T
    )
    output = erf_of(fields / np.sqrt(2))
    e = erf_of(star / np.sqrt(2)) - output @ a / 2
    slope = a * np.sqrt(2 / np.pi) * np.exp(-(fields**2) / 2)
    g = slope * e[:, None]
    chi = np.einsum("n,nj,nl->jl", weight * (e**2 + noise), slope, slope)
    return (
        (weight * star) @ g,
        np.einsum("n,nj,nl->jl", weight, g, fields),
        chi,
        (weight * e) @ output,
    )


ADAPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "momentum": ({"momentum": 0.5}, {"quick": 2.0}),
    "decay and a rate of its own": (
        {"weight_decay": 0.2, "second_lr": 0.5 / d},
        {"decay": 0.2, "ratio": 1 / 3},
    ),
    "a rate that falls": (
        {"lr": 1.5 / d * schedules.inverse(2, clock="alpha")},
        {"lr": lambda x: 1 / (1 + x / 2)},
    ),
    "batches that grow": (
        {"batch": schedules.power(-1, scale=2)},
        {"batch": lambda x: 1 + x / 2},
    ),
}


def own_limit(
    alpha: float,
    quick: float = 1.0,
    decay: float = 0.0,
    ratio: float = 1.0,
    **laws: Any,
) -> np.ndarray:
    """M, Q, a, the rate's own factor f and alpha after so many samples, from the equations written down once more."""
    p, gamma, noise, b = 2, 1.5, 0.2, 0.7
    lr, batch = (laws.get(name, lambda x: 1.0) for name in ("lr", "batch"))

    def slope(_: float, y: np.ndarray) -> np.ndarray:
        psi, phi, chi, second = own_averages(y, noise)
        f, s, n = 1 / np.sqrt(b**2 + y[7]), lr(y[8]), batch(y[8])
        Q = np.array([[y[2], y[3]], [y[3], y[4]]])
        dM = quick * f * s * (psi - p * decay * y[:2])
        dQ = (
            quick * f * s * (phi + phi.T - 2 * p * decay * Q)
            + (quick * f * s) ** 2 * gamma / (p * n) * chi
        )
        da = quick * s * ratio * second
        return np.array(
            [
                *dM,
                dQ[0, 0],
                dQ[0, 1],
                dQ[1, 1],
                *da,
                np.trace(chi) / (p * gamma * n),
                n * p / gamma,
            ]
        )

    def end(_: float, y: np.ndarray) -> float:
        return float(y[8] - alpha)

    end.terminal = True  # type: ignore[attr-defined]
    y = np.array([0.3, 0.1, 0.5, 0.1, 0.6, 1.0, -0.5, 0.0, 0.0])
    return np.asarray(
        solve_ivp(slope, (0, 100), y, rtol=1e-8, atol=1e-10, events=end).y[:, -1]
    )


@pytest.mark.parametrize("case", ADAPTED)
def test_adagrad_leaves_the_second_layer_its_plain_step(case: str) -> None:
    given, laws = ADAPTED[case]
    problem = tl.Problem("erf(z1/1.4142135623730951)", "erf", width=2, noise=0.2)
    start = tl.Overlaps(
        [[0.5, 0.1], [0.1, 0.6]], [[0.3], [0.1]], a=[1.0, -0.5], dim=1000
    )
    common = {
        "lr": 1.5 / d,
        "rule": rules.adagrad_norm(0.7),
        "train_second_layer": True,
    }
    algorithm = tl.SGD(**{**common, **given})
    limit = tl.solve(problem, algorithm, tl.ODE(), start, alpha=3, save=1).isel(
        seed=0, time=-1
    )
    expected = own_limit(3.0, **laws)
    found = [
        *limit.M.values[:, 0],
        *limit.Q.values[np.triu_indices(2)],
        *limit.a.values,
    ]
    np.testing.assert_allclose(found, expected[:7], atol=4e-6)
    rate = laws.get("lr", lambda x: 1.0)(3.0) / np.sqrt(0.49 + expected[7])
    assert float(limit.lr) * 1000 / 1.5 == pytest.approx(rate, rel=1e-6)


@pytest.mark.slow
def test_adagrad_with_two_layers_is_explicit_sgd() -> None:
    """A run of our own in d dimensions, with momentum, decay and a rate of its own for a; and the chain."""
    dim, seeds, steps, gamma, beta = 400, 64, 500, 1.5, 0.4
    problem = tl.Problem("z1", "linear", noise=0.2, second_layer=[0.2])
    algorithm = tl.SGD(
        gamma / d,
        rule=rules.adagrad_norm(2.0),
        train_second_layer=True,
        second_lr=0.8 / d,
        momentum=beta,
        weight_decay=0.1,
    )
    rng = np.random.default_rng(5)
    w, a, total = np.zeros((seeds, dim)), np.full(seeds, 0.2), np.zeros(seeds)
    w[:, 0], w[:, 1] = 0.5, 0.6
    last_w, last_a = w, a
    for _ in range(steps):
        z = rng.normal(size=(seeds, dim))
        field = (w * z).sum(1)
        e = z[:, 0] + np.sqrt(0.2) * rng.normal(size=seeds) - a * field
        gradient = (a * e)[:, None] * z
        total = total + (gradient**2).sum(1) / dim**2
        f = gamma / dim / np.sqrt(4 + total)[:, None]
        new_w = w + f * gradient - 0.1 * f * w + beta * (w - last_w)
        new_a = a + 0.8 / dim * e * field + beta * (a - last_a)
        last_w, last_a, w, a = w, a, new_w, new_a
    own = np.stack([w[:, 0], (w**2).sum(1), a], axis=1)
    start = tl.Overlaps([[0.61]], [[0.5]])
    limit = tl.solve(
        problem, algorithm, tl.ODE(), start, alpha=steps / dim, save=1
    ).isel(seed=0, time=-1)
    runs = tl.solve(
        problem, algorithm, tl.Chain(dim), start, steps=steps, save=1, seeds=seeds
    ).isel(time=-1)
    chain = np.stack(
        [runs.M.values[:, 0, 0], runs.Q.values[:, 0, 0], runs.a.values[:, 0]], axis=1
    )
    error = own.std(0) / np.sqrt(seeds)
    both = np.hypot(error, chain.std(0) / np.sqrt(seeds))
    assert (abs(own.mean(0) - chain.mean(0)) < sigmas(3) * both).all()
    # at the rate of the first layer a would be 0.50 where it is 0.66
    theory = np.array([limit.M.item(), limit.Q.item(), limit.a.item()])
    assert (abs(own.mean(0) - theory) < sigmas(3) * error + 8 / dim).all()


@pytest.mark.slow
def test_the_sum_of_adagrad_goes_on_from_stage_to_stage() -> None:
    """Two stages of one rate are one run; where a schedule begins anew, they are what runs are."""
    problem, start = (
        tl.Problem("z1", "linear", noise=0.2),
        tl.Overlaps([[0.5]], [[0.1]], dim=1000),
    )
    algorithm = tl.SGD(1.5 / d, rule=rules.adagrad_norm(0.7))
    staged = tl.solve_stages(
        problem, [tl.Stage(algorithm, alpha=2, save=1)] * 2, tl.ODE(), start
    )
    whole = tl.solve(problem, algorithm, tl.ODE(), start, alpha=4, save=1)
    assert float(staged.Q[0, -1, 0, 0]) == pytest.approx(
        float(whole.Q[0, -1, 0, 0]), rel=1e-6
    )
    assert float(staged.lr[0, -1]) == pytest.approx(float(whole.lr[0, -1]), rel=1e-6)
    falling = algorithm.replace(lr=1.5 / d * schedules.inverse(2, clock="alpha"))
    stages = [tl.Stage(falling, alpha=2, save=1)] * 2
    limit = tl.solve_stages(problem, stages, tl.ODE(), start)
    runs = tl.solve_stages(problem, stages, tl.Chain(1000), start, seeds=32)
    error = runs.Q.values[:, -1].std() / np.sqrt(32)
    assert (
        abs(runs.Q.values[:, -1].mean() - limit.Q.values[0, -1]).item()
        < sigmas() * error + 5 / 1000
    )


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_clipped_averages_of_a_linear_neuron_in_closed_form() -> None:
    """The drift gains erf(c/√(4 risk)), chi is the second moment of a clipped Gaussian; with and without label noise."""
    c, Q, M = 0.4, 0.5, 0.1
    for noise in (0.2, 0.0):
        problem = tl.Problem("z1", "linear", noise=noise)
        point = np.array([[Q]]), np.array([[M]]), np.ones(1)
        averager, _, error = adapt(
            problem, tl.SGD("1/d", rule=rules.clip(c)).drive, *point, tolerance=1e-9
        )
        found = averager(*point, noise)
        assert error < 1e-8
        variance = Q - 2 * M + 1 + noise
        drift, cut = erf_of(c / np.sqrt(2 * variance)), c / np.sqrt(variance)
        assert found.psi[0, 0] == pytest.approx((1 - M) * drift, rel=1e-7)
        assert found.phi[0, 0] == pytest.approx((M - Q) * drift, rel=1e-7)
        square = variance * (
            2 * norm.cdf(cut) - 1 - 2 * cut * norm.pdf(cut)
        ) + 2 * c**2 * (1 - norm.cdf(cut))
        assert found.chi[0, 0] == pytest.approx(square, rel=1e-7)
        assert found.excess_risk == pytest.approx((variance - noise) / 2, rel=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("law", ["gaussian", "cauchy"])
def test_averages_are_those_of_samples(law: str) -> None:
    """Two neurons, by quadrature over all fields: every rule against a million samples of its own ĝ."""
    problem = tl.Problem("z1", "erf", width=2, noise=0.1, noise_law=law)
    Q, M, a = (
        np.array([[0.8, 0.2], [0.2, 0.5]]),
        np.array([[0.3], [-0.2]]),
        np.array([1.0, -0.7]),
    )
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(np.block([[Q, M], [M.T, np.eye(1)]]))
    u = rng.normal(size=(10**6, 3)) @ root.T
    lam, star = u[:, :2], u[:, 2:]
    xi = (
        rng.normal(size=10**6) if law == "gaussian" else rng.standard_cauchy(size=10**6)
    )
    for rule in (
        rules.clip(0.35),
        rules.normalised(),
        rules.formula("g*exp(-norm) + 0.1*tanh(e)"),
    ):
        drive = tl.SGD("1/d", rule=rule).drive
        found = select(problem, drive)(Q, M, a, 0.1)
        g = np.asarray(
            Kernel(problem.activation, problem.target, drive)
            .push(Sample(lam, star, Spoilt(1.0, np.sqrt(0.1) * xi)), a)
            .first
        )
        for name, samples in (
            ("psi", g[:, :, None] * star[:, None]),
            ("phi", g[:, :, None] * lam[:, None]),
            ("chi", g[:, :, None] * g[:, None]),
        ):
            error = samples.std(0) / 1000
            assert (
                np.abs(samples.mean(0) - getattr(found, name)) < sigmas(30) * error
            ).all(), (rule, name)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "rule", [rules.clip(0.3), rules.normalised()], ids=lambda rule: rule.name
)
def test_noise_in_closed_form_is_that_of_its_nodes(
    rule: rules.Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With flipped labels too, and in batches; twice the noise is something else."""
    point, problem = (
        (np.array([[0.6]]), np.array([[0.3]]), np.array([1.2])),
        ERF.replace(flips=0.1),
    )
    engine = select(problem, tl.SGD(1 / d, rule=rule).mean_drive).engine
    assert isinstance(engine, FullEngine)
    closed = engine.rule
    loss = dataclasses.replace(
        closed.kernel.loss, rule=dataclasses.replace(rule, smoothed=None)
    )  # type: ignore[call-arg]
    nodes = dataclasses.replace(
        closed, kernel=dataclasses.replace(closed.kernel, loss=loss)
    )
    assert closed.noise_nodes == 1 and nodes.noise_nodes >= 48
    one, other = (
        jax.jit(lambda *x: tuple(closed.averages(*x)))(*point, noise)
        for noise in (0.2, 0.4)
    )
    monkeypatch.setattr(all_fields, "BATCH", 2**14)
    two = jax.jit(lambda *x: tuple(nodes.averages(*x)))(*point, 0.2)
    for x, y in zip(one, two, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    assert abs(one[0] - other[0]) > 1e-3


@pytest.mark.usefixtures("x64")
def test_nodes_of_the_noise_are_not_held_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, drive = (
        tl.Problem("He2(z1)", "He2", width=2, noise=0.1, noise_law="laplace"),
        tl.SGD(1 / d, rule="clip(0.25)"),
    )
    engine = select(problem, drive.mean_drive).engine
    point = np.eye(2), np.array([[0.3], [0.1]]), np.ones(2), 0.1

    def bytes_of(batch: int) -> float:
        monkeypatch.setattr(all_fields, "BATCH", batch)
        return (
            jax.jit(lambda *x: tuple(engine(*x)))
            .lower(*point)
            .compile()
            .memory_analysis()
            .temp_size_in_bytes
        )

    assert bytes_of(all_fields.BATCH) < 3e8 < 1e9 < bytes_of(2**40)


CAUCHY = tl.Problem("erf(z1/1.4142135623730951)", "erf", noise=0.1, noise_law="cauchy")


@pytest.mark.long
def test_cut_gradients_have_a_limit_where_labels_have_no_mean() -> None:
    """Under Cauchy noise runs with clipped gradients follow their equation, which is not that of Gaussian noise."""
    algorithm = tl.SGD(0.5 / d, rule=rules.clip(0.3))
    runs = tl.solve(
        CAUCHY, algorithm, tl.Chain(1000), START, time=2, save=1, seeds=48
    ).M.values[:, -1, 0, 0]
    gaussian = tl.Problem(CAUCHY.target, "erf", noise=0.1)
    gaps = []
    for problem in (CAUCHY, gaussian):
        limit = tl.solve(problem, algorithm, tl.ODE(), START, time=2, save=1)
        gaps.append(
            abs(runs.mean() - limit.M.values[0, -1, 0, 0])
            / (runs.std() / np.sqrt(48) + 2 / 1000)
        )
    assert gaps[0] < sigmas(1) < gaps[1]


def test_what_bounds_gradients_is_asked_for_where_labels_have_heavy_tails() -> None:
    bounded = {
        "clip(1)",
        "normalised()",
        "sign()",
        "formula('g/(1 + norm)')",
        "private(0.1, 1)",
    }
    for rule in (
        *sorted(bounded),
        "polyak()",
        "lookahead(1/d)",
        "adagrad_norm(1)",
        "private(0.1)",
        None,
    ):
        assert ("ODE" in tl.support(CAUCHY, tl.SGD("1/d", rule=rule))) == (
            rule in bounded
        ), rule
    both = tl.SGD("1/d", rule="clip(1)", train_second_layer=True)
    assert "no moment of order 1" in tl.support(CAUCHY, both).reasons["ODE"]
    assert "ODE" in tl.support(
        tl.Problem("z1", "erf", noise=0.1, noise_law="student(1.5)"), both
    )


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_second_layer_feels_no_tails_of_mean_zero() -> None:
    """E[e σ] of a clipped run is that of the plain gradient without noise, exactly."""
    problem = tl.Problem(
        "sign(z1)", "erf", noise=0.1, noise_law="student(1.5)", flips=0.1
    )
    point = np.array([[0.8]]), np.array([[0.3]]), np.ones(1)
    found = select(problem, tl.SGD("1/d", rule="clip(0.3)").drive)(*point, 0.1)
    plain = select(tl.Problem("sign(z1)", "erf", flips=0.1), "squared")(*point, 0.0)
    np.testing.assert_allclose(found.second, plain.second, rtol=1e-7)
    np.testing.assert_allclose(found.excess_risk, plain.excess_risk, rtol=1e-7)


@pytest.mark.long
def test_reused_samples_follow_the_limit_of_their_rule() -> None:
    """Full batches under noise without a variance: theory and explicit weights, and the plain gradient far off."""
    problem = tl.Problem("tanh(z1)", "erf", noise=0.1, noise_law="student(1.5)")
    algorithm = tl.SGD(0.3, batch=2 * d, dataset=2 * d, rule="clip(0.3)")
    theory = tl.solve(problem, algorithm, tl.DMFT(), START, steps=6, save=2)
    runs = tl.solve(
        problem, algorithm, tl.Vectors(300), START, steps=6, save=2, seeds=24
    )
    for name in ("M", "Q"):
        values = runs[name].values[:, 1:, 0, 0]
        error = np.hypot(
            values.std(0) / np.sqrt(24), theory[f"{name}_error"].values[0, 1:, 0, 0]
        )
        assert (
            np.abs(values.mean(0) - theory[name].values[0, 1:, 0, 0])
            < sigmas(8) * error + 2 / 300
        ).all()
    other = tl.solve(
        problem, algorithm.replace(rule="clip(0.6)"), tl.DMFT(), START, steps=6, save=2
    )
    assert abs(float(other.M[0, -1, 0, 0] - theory.M[0, -1, 0, 0])) > 0.05
    assert np.isinf(theory.train_risk).all() and "train_risk_error" not in theory


@pytest.mark.long
def test_rules_that_leave_gradients_alone_change_nothing() -> None:
    """A threshold that is never met, and a formula that says g, are plain SGD up to rounding."""
    plain = tl.SGD(0.5 / d, batch=2)
    for method in (tl.Chain(30), tl.Vectors(30)):
        expected = tl.solve(ERF, plain, method, START, steps=40, save=4, seeds=3)
        found = tl.solve(
            ERF,
            plain.replace(rule=rules.formula("g")),
            method,
            START,
            steps=40,
            save=4,
            seeds=3,
        )
        np.testing.assert_allclose(found.M, expected.M, rtol=1e-10)
    assert tl.SGD("1/d", rule=None) == tl.SGD("1/d")


@pytest.mark.slow
def test_own_rules_are_known_by_name() -> None:
    @tl.extend.register_rule("halved")
    def halved(x: rules.Sight) -> Any:
        return x.g / 2

    plain, half = tl.SGD("1/d"), tl.SGD("2/d", rule="halved()")
    problem = tl.Problem("z1", "linear", noise=0.1)
    one, two = (
        tl.solve(problem, x, tl.Chain(30), START, steps=30, save=3, seeds=2)
        for x in (plain, half)
    )
    np.testing.assert_allclose(two.M, one.M, rtol=1e-10)
    assert (tl.rerun(two).M.values == two.M.values).all()


@pytest.mark.slow
def test_label_noise_of_the_algorithm_is_noise_that_no_risk_knows() -> None:
    """Limits are those of a problem with so much more noise, to the last bit; runs have their mean, and their risks not."""
    plain, noisy = tl.SGD(1 / d), tl.SGD(1 / d, rule=rules.label_noise(0.3))
    more = ERF.replace(noise=0.5)
    one, two = (
        tl.solve(*x, tl.ODE(), START, time=2, save=2)
        for x in ((ERF, noisy), (more, plain))
    )
    np.testing.assert_array_equal(one.Q, two.Q)
    np.testing.assert_allclose(two.risk - one.risk, 0.15, rtol=1e-12)
    runs = tl.solve(
        ERF, noisy, tl.Chain(400), START, time=2, save=1, seeds=64
    ).Q.values[:, -1, 0, 0]
    other = tl.solve(ERF, plain, tl.ODE(), START, time=2, save=1)
    room = sigmas(1) * runs.std() / 8 + 3 / 400
    assert (
        abs(runs.mean() - two.Q.values[0, -1, 0, 0])
        < room
        < abs(runs.mean() - other.Q.values[0, -1, 0, 0])
    )


@pytest.mark.long
def test_label_noise_is_new_at_every_visit() -> None:
    """On reused samples it is not fitted: theory and explicit weights, and both are off for noise that samples keep."""
    reused = tl.SGD(0.5, batch=2 * d, dataset=2 * d, rule=rules.label_noise(0.5))
    theory = tl.solve(ERF, reused, tl.DMFT(), START, steps=6, save=1)
    runs = tl.solve(ERF, reused, tl.Vectors(300), START, steps=6, save=1, seeds=24)
    kept = tl.solve(
        ERF.replace(noise=0.7),
        reused.replace(rule=None),
        tl.DMFT(),
        START,
        steps=6,
        save=1,
    )
    for name in ("Q", "train_risk"):
        values = runs[name].values[:, -1].reshape(24)
        gaps = [
            abs(values.mean() - float(x[name].values[0, -1].squeeze()))
            for x in (theory, kept)
        ]
        assert gaps[0] < sigmas(2) * values.std() / np.sqrt(24) + 3 / 300 < gaps[1], (
            name
        )


@pytest.mark.long
def test_rules_that_draw_get_a_key() -> None:
    """Half of all gradients are dropped and the others doubled: the same drift, twice the spread of single samples."""

    @tl.extend.register_rule("dropped", random=True)
    def dropped(x: rules.Sight) -> Any:
        return 2 * x.g * jax.random.bernoulli(x.key, 0.5, (len(x.g), 1))

    problem, gamma, dim, seeds = tl.Problem("z1", "linear", noise=0.2), 0.8, 400, 64
    algorithm = tl.SGD(gamma / d, rule="dropped()")
    # dM/dt = 1 − M, dQ/dt = 2 (M − Q) + 2 γ (1 − 2M + Q + Δ)
    rate = np.array([[-1.0, 0.0], [2 - 4 * gamma, 2 * gamma - 2]])
    end = -np.linalg.solve(rate, np.array([1.0, 2 * gamma * 1.2]))
    M, Q = end + expm(rate) @ (np.array([0.1, 0.5]) - end)
    for method in (tl.Chain(dim), tl.Vectors(dim)):
        runs = tl.solve(problem, algorithm, method, START, time=1, save=1, seeds=seeds)
        for values, limit in ((runs.M.values, M), (runs.Q.values, Q)):
            last = values[:, -1, 0, 0]
            assert (
                abs(last.mean() - limit)
                < sigmas(4) * last.std() / np.sqrt(seeds) + 4 / dim
            ), method.name
        again = tl.solve(problem, algorithm, method, START, time=1, save=3, seeds=2)
        np.testing.assert_allclose(again.M[:, -1], runs.M[:2, -1], rtol=1e-10)
    assert "draws random numbers" in tl.support(problem, algorithm).reasons["ODE"]


def test_two_laws_of_label_noise_are_refused_where_they_matter() -> None:
    laplace, noisy = (
        tl.Problem("z1", "linear", noise=0.1, noise_law="laplace"),
        tl.SGD("1/d", rule="label_noise(0.2)"),
    )
    assert "ODE" in tl.support(laplace, noisy)
    assert (
        "over one law"
        in tl.support(laplace, noisy.replace(loss="huber")).reasons["ODE"]
    )
    assert "over one law" in tl.support(laplace, noisy).reasons["SDE"]


def test_texts_say_everything() -> None:
    for rule in (
        *PATHS.values(),
        *(x for x, _ in MEANS.values()),
        rules.formula("g/(1 + norm)"),
        rules.private(1, 2),
    ):
        assert rules.Rule.of(str(rule)) == rule
        assert tl.SGD("1/d", rule=rule) == tl.SGD("1/d", rule=str(rule))


REASONS = {
    "clip(0.3)": {
        "Map": "more than the fields",
        "MeanField": "not linear",
        "Population": "has none",
        "DMFT": "every sample is new",
    },
    "sign()": {"Chain": "lie to the axes", "SDE": "single samples"},
    "adam()": {
        "Chain": "lie to the axes",
        "ODE": "every coordinate by its own scale",
        "Map": "more than the fields",
    },
    "adagrad_norm()": {
        "SDE": "single samples",
        "GiantSteps": "single samples",
        "DMFT": "single samples",
    },
    "private(0.5)": {"DMFT": "of length √d"},
}


@pytest.mark.parametrize("rule", REASONS)
def test_what_cannot_be_done_is_refused_with_the_reason(rule: str) -> None:
    reasons = tl.support(ERF, tl.SGD("1/d", rule=rule)).reasons
    for method, words in REASONS[rule].items():
        assert words in reasons[method], (method, reasons[method])
    assert "Vectors" in tl.support(ERF, tl.SGD("1/d", rule=rule))


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (
            "unknown rule 'clp' .did you mean 'clip'",
            lambda: tl.SGD("1/d", rule="clp(1)"),
        ),
        ("`threshold` must be a positive number, but got -1", lambda: rules.clip(-1)),
        (
            "`variance` must be a positive number, but got 0",
            lambda: rules.label_noise(0),
        ),
        ("`lr` must be a law such as 1.5/d", lambda: rules.lookahead(0.1)),
        ("`beta2` must be a number in", lambda: rules.adam(beta2=1.0)),
        ("unknown name 'w' in 'g.w'", lambda: rules.formula("g*w")),
        (
            "`rule` must be a rule such as",
            lambda: tl.SGD("1/d", rule="__import__('os').x"),
        ),
        ("`rule` must be a rule such as", lambda: tl.SGD("1/d", rule=3)),
        (
            "`batch` must be a number for the rule two_step",
            lambda: tl.SGD("1/d", batch=d, rule="two_step()"),
        ),
        (
            "`lr` must be a constant law such as 1/d for the rule polyak",
            lambda: tl.SGD(0.1, rule="polyak()"),
        ),
        (
            "missing 1 required positional argument: 'threshold'",
            lambda: tl.SGD("1/d", rule="clip()"),
        ),
        (
            "`name` must be an identifier that is no rule",
            lambda: tl.extend.register_rule("clip"),
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(words: str, call: Any) -> None:
    with pytest.raises(tl.InputError, match=words):
        call()


ZERO = tl.Overlaps([[0.0]], [[0.0]])


def test_errors_of_averages_that_vanish_with_the_weights_are_divided_by_something() -> (
    None
):
    """At zero weights phi is rounding, which counts by the size that it has for short ones."""
    from twolayer.equations.averages import Expectations
    from twolayer.gaussian.engines import _shared, natural_scale

    one = np.ones((1, 1))
    values = Expectations(0.2 * one, 0 * one, 0.04 * one, np.zeros(1), 0.5)
    scale = natural_scale(values, 1.0, 0 * one, 4 * one, 0.0)
    assert float(scale.psi) == pytest.approx(0.4)
    assert float(scale.phi) == pytest.approx(1e-3 * 0.4)
    errors = Expectations(0 * one, 3e-13 * one, 0 * one, np.zeros(1), np.zeros(()))
    shared = _shared(errors, 0 * one, 4 * one)
    assert 1e-13 < shared.psi[0, 0] < 1e-9


@pytest.mark.slow
def test_clipped_gradients_under_heavy_noise_start_from_zero_weights() -> None:
    """The error was 4e276, and the run was going to take hours; beside it a start that is nearly the same."""
    problem = tl.Problem("z1", "erf", noise=0.3, noise_law="student(3)")
    clipped = tl.SGD(0.3 / d, rule="clip(0.25)")
    zero, near = (
        tl.solve(problem, clipped, tl.ODE(), start, time=0.5, save=1)
        for start in (ZERO, tl.Overlaps([[1e-6]], [[0.0]]))
    )
    notes = json.loads(zero.attrs["notes"])
    assert notes["engine_error"] < 1e-6 and "refuted" not in notes["witness"]
    np.testing.assert_allclose(zero.M.values, near.M.values, atol=1e-6)
    np.testing.assert_allclose(zero.Q.values, near.Q.values, atol=3e-6)
