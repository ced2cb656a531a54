"""The exact-in-law simulation: path by path against d-dimensional SGD, in law, and in its one-step mean."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas
from scipy import stats

import twolayer as tl
from conftest import random_overlaps
from twolayer.equations.increment_kernel import Sample, kernel_of
from twolayer.equations.optimiser_step import Memory, coefficients_of, form_of
from twolayer.equations.orthogonal import (
    Frame,
    Reduced,
    batch_sums,
    embed,
    exact_step,
    overlaps,
)
from twolayer.gaussian.all_fields import FullRule
from twolayer.gaussian.batch_sums import (
    gaussian_sums,
    size_of_features,
)
from twolayer.gaussian.engines import select
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.single_samples import Place, choose
from twolayer.methods import chain
from twolayer.numerics.wishart import GramFactor
from twolayer.task.clocks import Clocks
from twolayer.task.labels import Spoilt
from twolayer.task.method import Task


def numpy_step(
    problem: tl.Problem, algorithm: tl.SGD, dim: int, W: np.ndarray, old: np.ndarray, a: np.ndarray, old_a: np.ndarray,
    W_star: np.ndarray, z: np.ndarray, noise: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """One step of SGD in d dimensions, written down once more in NumPy."""
    lr, p = algorithm.lr(dim), problem.p
    lam, star = z @ W.T, z @ W_star.T
    sigma = np.asarray(problem.activation(jnp.asarray(lam)))
    slope = np.asarray(problem.activation.slope(jnp.asarray(lam)))
    y = np.asarray(problem.target(jnp.asarray(star))) + np.sqrt(problem.noise) * noise
    e = y - sigma @ a / p if algorithm.loss.name == "squared" else y
    gradient = np.zeros_like(W)
    for j in range(p):
        for nu in range(len(z)):
            gradient[j] += a[j] * slope[nu, j] * e[nu] * z[nu] / (p * len(z))
        if algorithm.geometry == "spherical":
            gradient[j] -= (gradient[j] @ W[j]) / (W[j] @ W[j]) * W[j]
    new = (
        W
        + lr * gradient
        - lr * algorithm.weight_decay * W
        + algorithm.momentum * (W - old)
    )
    if algorithm.geometry != "free":
        new /= np.linalg.norm(new, axis=1, keepdims=True)
    new_a = a.copy()
    if algorithm.train_second_layer:
        new_a = (
            a + lr / p * (e[:, None] * sigma).mean(0) + algorithm.momentum * (a - old_a)
        )
    return new, new_a


CHOICES = (
    [1, 7],
    ["free", "projected", "spherical"],
    ["squared", "correlation"],
    ["", "momentum"],
)
HALF = [
    x
    for x in itertools.product(*CHOICES)
    if sum(c.index(v) for c, v in zip(CHOICES, x, strict=True)) % 2 == 0
]
"""Half of all combinations: every pair of choices occurs."""


@pytest.mark.long
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("batch", "geometry", "loss", "extra"), HALF)
def test_path_by_path(batch: int, geometry: str, loss: str, extra: str) -> None:
    """Fed with the fields and the Gram matrix of a d-dimensional run, the reduced update reproduces its overlaps."""
    dim, p, k = 30, 3, 2
    P = np.array([[1.0, 0.3], [0.3, 0.8]])
    problem = tl.Problem("z1 + tanh(z1*z2)", "tanh", width=p, noise=0.2, gram=P)
    algorithm = tl.SGD(
        lr="1.5/d", batch=batch, geometry=geometry, loss=loss, train_second_layer=True, weight_decay=0.1,
        momentum=0.4 if extra else 0.0,
    )  # fmt: skip
    rng = np.random.default_rng(4)
    start = random_overlaps(4, p, k, P, size=1.0)
    if geometry != "free":
        scale = 1 / np.sqrt(np.diagonal(start.Q))
        start = tl.Overlaps(
            start.Q * scale[:, None] * scale, start.M * scale[:, None], P, start.a
        )
    L, _, _ = start.factors()
    columns = p * (2 if extra else 1)
    A, B = embed(start.Q, start.M, np.linalg.pinv(L), columns)
    W_star = np.concatenate([L, np.zeros((k, dim - k))], axis=1)
    W = np.concatenate([A, B, np.zeros((p, dim - k - columns))], axis=1)
    old, a = W.copy(), np.asarray(start.a)
    old_a = a.copy()
    factor = GramFactor(min(p, batch), dim - k - columns)
    form, rates = form_of(algorithm), coefficients_of(algorithm, p, dim)
    at = Reduced(kernel_of(problem, algorithm), form, p, k, columns, batch, factor)
    frame = Frame(rates, L, None, problem.noise)
    state = Memory.at_rest(
        form, jnp.asarray(np.concatenate([A, B], axis=1)), jnp.asarray(a)
    )
    sums_of = jax.jit(lambda state, normals: batch_sums(at, frame, state.now, normals))
    step = jax.jit(lambda state, sums, T: exact_step(at, rates, state, sums, T)[0])
    worst = 0.0
    for number in range(1000):
        z, noise = rng.normal(size=(batch, dim)), rng.normal(size=batch)
        # coordinates of z along the target directions, along the rows' own orthogonal parts, and the rest
        reduced = np.concatenate([layers.W for layers in state if layers is not None])[
            :, k:
        ]
        rows = np.concatenate([W, old])[: len(reduced), k:]
        basis = np.linalg.pinv(reduced) @ rows
        spare = list(np.linalg.svd(rows)[2][np.linalg.matrix_rank(rows, tol=1e-9) :])
        for i in range(columns):  # unused columns of B stand for arbitrary directions
            if np.linalg.norm(basis[i]) < 0.5:
                basis[i] = spare.pop()
        own = z[:, k:] @ basis.T
        rest = z[:, k:] - own @ basis
        sums = sums_of(
            state, jnp.asarray(np.concatenate([z[:, :k], own, noise[:, None]], axis=1))
        )
        C = np.asarray(sums.C)
        W_new, a_new = numpy_step(
            problem, algorithm, dim, W, old, a, old_a, W_star, z, noise
        )
        # what the batch adds outside, as a matrix of s columns with the same Gram matrix
        g = _coefficients(problem, algorithm, W, a, W_star, z, noise) / batch
        outside = np.linalg.qr((g.T @ rest).T, mode="r").T
        T = np.linalg.pinv(C) @ outside
        state = step(state, sums, jnp.asarray(T))
        old, old_a, W, a = W, a, W_new, a_new
        Q, M = overlaps(np.asarray(state.now.W), L)
        errors = (M - W @ W_star.T, Q - W @ W.T, np.asarray(state.now.a) - a)
        worst = max(
            worst,
            max(np.abs(x).max() for x in errors) / max(1.0, np.abs(W @ W.T).max()),
        )
        if number == 0:
            assert np.abs(Q - start.Q).max() > 1e-4  # something happened
    # with momentum the rows W and W_previous nearly coincide, so this test knows their basis less well
    assert worst < (1e-12 if not extra else 1e-9)


def _coefficients(
    problem: tl.Problem, algorithm: tl.SGD, W: np.ndarray, a: np.ndarray, W_star: np.ndarray, z: np.ndarray, noise: np.ndarray
) -> np.ndarray:  # fmt: skip
    lam = jnp.asarray(z @ W.T)
    y = (
        np.asarray(problem.target(jnp.asarray(z @ W_star.T)))
        + np.sqrt(problem.noise) * noise
    )
    e = (
        y - np.asarray(problem.activation(lam)) @ a / problem.p
        if algorithm.loss.name == "squared"
        else y
    )
    return np.asarray(a * np.asarray(problem.activation.slope(lam)) * e[:, None])


def statistics(result: Any) -> dict[str, np.ndarray]:
    """Scalars of the final overlaps, among them products that only the joint law gets right."""
    M, Q, a = (result[name].values[:, -1] for name in ("M", "Q", "a"))
    out = {f"M{j}{r}": M[:, j, r] for j in range(M.shape[1]) for r in range(M.shape[2])}
    out |= {f"Q{j}{l}": Q[:, j, l] for j in range(Q.shape[1]) for l in range(j + 1)}
    out |= {
        "M00*Q00": M[:, 0, 0] * Q[:, 0, 0],
        "a0": a[:, 0],
        "trace": np.trace(Q, axis1=1, axis2=2),
    }
    return {name: x for name, x in out.items() if x.std() > 1e-9}


ONES = np.ones((3, 3))
LAWS: list[tuple[str, int, int, Any, dict[str, Any], Any]] = [
    # name, dim, steps, problem, algorithm, start (None: random)
    ("online", 12, 8, ("z1*z2", "relu", 2), {"lr": "2/d"}, None),
    ("batch", 12, 5, ("z1*z2", "relu", 2), {"lr": "6/d", "batch": 8, "geometry": "projected"}, None),
    ("small batch of many neurons", 12, 5, ("z1", "tanh", 4), {"lr": "6/d", "batch": 3}, None),
    ("spherical correlation", 12, 6, ("He2(z1)", "He2", 2), {"lr": "1/d", "geometry": "spherical", "loss": "correlation"}, None),
    ("momentum and second layer", 14, 6, ("z1", "erf", 2), {"lr": "4/d", "momentum": 0.6, "train_second_layer": True}, None),
    ("d = p + k", 4, 5, ("z1*z2", "relu", 2), {"lr": "2/d"}, None),
    ("d < p + k", 3, 5, ("z1*z2", "relu", 3), {"lr": "2/d", "batch": 4, "geometry": "projected"}, None),
    ("d = 2p + k - 1", 6, 5, ("z1*z2", "tanh", 3), {"lr": "3/d", "batch": 2, "momentum": 0.5}, None),
    ("coincident neurons", 9, 5, ("z1", "relu", 3), {"lr": "3/d"}, tl.Overlaps(ONES, np.full((3, 1), 0.5), a=[1.0, -1.0, 0.5])),
    ("inside the target span", 9, 5, ("z1", "tanh", 2), {"lr": "3/d", "batch": 2}, tl.Overlaps(np.ones((2, 2)), [[1.0], [1.0]], a=[1.0, -1.0])),
    ("many degrees of freedom", 90, 6, ("z1", "relu", 2), {"lr": "8/d", "batch": 3}, None),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "dim", "steps", "problem", "algorithm", "start"),
    LAWS,
    ids=[x[0] for x in LAWS],
)
def test_same_law_as_vectors(
    name: str,
    dim: int,
    steps: int,
    problem: Any,
    algorithm: dict[str, Any],
    start: tl.Overlaps | None,
) -> None:
    """Two-sample tests at small d; the smallest of about 130 p-values must not be below 1e-6."""
    target, activation, p = problem
    task = tl.Problem(
        target, activation, width=p, noise=0.3, second_layer=[1.0, -1.2, 0.8, -0.9][:p]
    )
    sgd = tl.SGD(**algorithm)
    start = start or tl.Overlaps.random(task, dim, seed=1)
    n = 4000
    one = statistics(
        tl.solve(task, sgd, tl.Chain(dim), start, steps=steps, save=1, seeds=n, seed=2)
    )
    two = statistics(
        tl.solve(
            task, sgd, tl.Vectors(dim), start, steps=steps, save=1, seeds=n, seed=3
        )
    )
    assert one.keys() == two.keys()
    assert len(one) >= 4
    for key in one:
        assert stats.ks_2samp(one[key], two[key]).pvalue > 1e-6, key


@pytest.mark.long
def test_a_fixed_input_norm_is_detected() -> None:
    """The twin that sets |z|² = d, a common shortcut, fails the same test."""
    dim, steps, n = 10, 10, 20_000
    problem, algorithm = (
        tl.Problem("He2(z1)", "He2", noise=0.3),
        tl.SGD(lr="0.6/d", geometry="projected"),
    )
    start = tl.Overlaps([[1.0]], [[0.4]])
    right = tl.solve(
        problem, algorithm, tl.Vectors(dim), start, steps=steps, save=1, seeds=n
    ).M.values[:, -1, 0, 0]
    ours = tl.solve(
        problem, algorithm, tl.Chain(dim), start, steps=steps, save=1, seeds=n, seed=9
    ).M.values[:, -1, 0, 0]
    rng = np.random.default_rng(0)
    m = np.full(n, 0.4)
    for _ in range(steps):
        star = rng.normal(size=n)
        lam = m * star + np.sqrt(np.maximum(1 - m**2, 0.0)) * rng.normal(size=n)
        g = 0.6 / dim * 2 * lam * (star**2 - lam**2 + np.sqrt(0.3) * rng.normal(size=n))
        m = np.clip(
            (m + g * star) / np.sqrt(np.maximum(1 + 2 * g * lam + g**2 * dim, 1e-3)),
            -1,
            1,
        )
    assert stats.ks_2samp(ours, right).pvalue > 1e-5
    assert stats.ks_2samp(m, right).pvalue < 1e-6


def exact_mean_step(
    problem: tl.Problem,
    algorithm: tl.SGD,
    dim: int,
    start: tl.Overlaps,
    orthogonal: float = 1.0,
    inter: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """E[M'] and E[Q'] of one step with every 1/d and 1/n_b term, the averages by quadrature over all fields.

    E[Q'] = Q + γ(φ + φᵀ) + γ² [ ((d − r) χ + χ2)/n_b + (1 − 1/n_b) v Ω⁺ vᵀ ],  χ2 = E[g gᵀ uᵀΩ⁺u];  γ = lr/p. The last
    two arguments scale terms, to see that the test would notice.
    """
    averager = select(problem, algorithm.loss, "quadrature", 24)
    rule = averager.engine.rule
    assert isinstance(rule, FullRule)
    Q, M, a = (jnp.asarray(x) for x in (start.Q, start.M, start.a))
    student, target, weights = rule.fields(Q, M, a)
    sample = Sample(student, target, Spoilt(1.0, 0.0))
    g = np.asarray(kernel_of(problem, algorithm).push(sample, a).first)
    slope = np.asarray(a * problem.activation.slope(sample.student))
    w, u = np.asarray(weights), np.concatenate([sample.student, sample.target], axis=1)
    omega = np.block([[start.Q, start.M], [start.M.T, start.P]])
    inverse = np.linalg.pinv(omega, hermitian=True)
    rank = np.linalg.matrix_rank(omega)
    p, n, step = problem.p, algorithm.batch_at(dim), algorithm.lr(dim) / problem.p
    v = (w[:, None] * g).T @ u
    length = np.einsum("ni,ij,nj->n", u, inverse, u)
    second = (w * ((dim - rank) * orthogonal + length))[:, None]
    chi = (second * g).T @ g + problem.noise * (second * slope).T @ slope
    if algorithm.geometry == "spherical":
        v = v - (np.diagonal(v[:, :p]) / np.diagonal(start.Q))[:, None] * omega[:p]
    phi, psi = v[:, :p], v[:, p:]
    mean_M = start.M + step * psi
    mean_Q = (
        start.Q
        + step * (phi + phi.T)
        + step**2 * (chi / n + inter * (1 - 1 / n) * v @ inverse @ v.T)
    )
    if algorithm.geometry != "free":
        norm = np.sqrt(np.diagonal(mean_Q))
        mean_M, mean_Q = mean_M / norm[:, None], mean_Q / norm[:, None] / norm
    return mean_M, mean_Q


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("loss", "geometry", "batch", "lr"),
    [
        pytest.param("squared", "free", 7, 3.0, marks=pytest.mark.long),
        pytest.param("correlation", "free", 60, 3.0, marks=pytest.mark.long),
        pytest.param("squared", "free", 1, 1.5, marks=pytest.mark.slow),
        pytest.param("squared", "projected", 4000, 3.0, marks=pytest.mark.long),
        pytest.param("squared", "spherical", 4000, 3.0, marks=pytest.mark.slow),
        pytest.param("correlation", "spherical", 4000, 3.0, marks=pytest.mark.slow),
    ],
)
def test_one_step_mean_with_all_finite_size_terms(
    loss: str, geometry: str, batch: int, lr: float
) -> None:
    dim = 12
    problem = tl.Problem("tanh(2*z1)", "erf", width=2, noise=0.3)
    algorithm = tl.SGD(lr=lr, batch=batch, loss=loss, geometry=geometry)
    start = tl.Overlaps([[1.0, 0.3], [0.3, 1.0]], [[0.5], [-0.2]], a=[2.0, -1.5])
    n = 60_000 if batch < 100 else 3000
    result = tl.solve(
        problem, algorithm, tl.Chain(dim), start, steps=1, save=1, seeds=n
    )
    M, Q = result.M.values[:, -1].reshape(n, -1), result.Q.values[:, -1].reshape(n, -1)

    def distance(**scaled: float) -> float:
        mean_M, mean_Q = exact_mean_step(problem, algorithm, dim, start, **scaled)
        z = []
        for values, mean in ((M, mean_M), (Q, mean_Q)):
            spread = values.std(0) / np.sqrt(n)
            moving = spread > 1e-10
            z.append(np.abs(values.mean(0) - mean.ravel())[moving] / spread[moving])
        return float(np.concatenate(z).max())

    limit = sigmas(6)
    assert distance() < limit
    if batch < 10:  # a 5 % error in the (d − r) χ term is seen for small batches …
        assert distance(orthogonal=1.05) > limit
    else:  # … and one in the ν ≠ ν' term for large ones
        assert distance(inter=0.95) > limit


@pytest.mark.long
def test_gaussian_batch_sums_agree_with_sampled_ones() -> None:
    """At n_b = 2000 the two ways of summing a batch give the same mean and spread of the overlaps."""
    problem = tl.Problem(
        "tanh(z1)", "tanh", width=2, noise=0.2, second_layer=[1.0, -1.0]
    )
    algorithm = tl.SGD(lr=1.0, batch=2000, train_second_layer=True)
    start = tl.Overlaps.random(problem, 60, seed=3)
    n = 400
    results = {
        mode: tl.solve(
            problem,
            algorithm,
            tl.Chain(60, batch_sums=mode),
            start,
            steps=2,
            save=1,
            seeds=n,
            seed=i,
        )
        for i, mode in enumerate(("exact", "gaussian"))
    }
    assert '"batch_sums": "exact"' in results["exact"].attrs["notes"]
    assert '"batch_sums": "gaussian' in results["gaussian"].attrs["notes"]
    for name in ("M", "Q", "a"):
        one, two = (
            results[mode][name].values[:, -1].reshape(n, -1)
            for mode in ("exact", "gaussian")
        )
        z = (one.mean(0) - two.mean(0)) / np.sqrt((one.var(0) + two.var(0)) / n)
        assert np.abs(z).max() < sigmas(3 * z.size)
        ratio = one.std(0) / two.std(0)
        assert np.abs(ratio - 1).max() < 8 / np.sqrt(n)
    auto = tl.solve(
        problem, algorithm.replace(batch=200_000), tl.Chain(60), start, steps=1, save=1
    )
    assert '"batch_sums": "gaussian' in auto.attrs["notes"]


@pytest.mark.long
@pytest.mark.parametrize("width", [1, 2])
def test_the_gram_matrix_of_a_heavy_tailed_batch_is_positive_and_keeps_its_moments(
    width: int, x64: None
) -> None:
    """h3 at n_b of the size of its tail, where a Gaussian would be negative in one draw of six."""
    problem, algorithm = tl.Problem("h3(z1)", "h3", width=width), tl.SGD(lr=0.1)
    Q, M, a = np.eye(width), np.array([[0.3], [-0.2]])[:width], np.ones(width)
    tail, n = chain.tail_of(problem, algorithm, Q, M, a), 20_000
    batch = tail * width
    kernel = kernel_of(problem, algorithm)
    A, B = embed(Q, M, target_frame(problem.P)[1], width)
    chosen = choose(kernel, np.eye(1), [Place(A, B, a, 0.0)], False)
    assert chosen.label == "closed form (Wick)"
    engine = select(problem, algorithm.loss)
    normals = np.random.default_rng(0).normal(
        size=(n, size_of_features(width, 1, width))
    )
    one = np.eye(1)
    C = jax.vmap(
        lambda x: (
            gaussian_sums(chosen.samples, batch, A, B, a, one, one, 0.0, engine, x).C
        )
    )(normals)
    gram = np.asarray(batch * C @ C.swapaxes(1, 2))
    x, w = np.polynomial.hermite_e.hermegauss(12)  # exact up to degree 23
    fields = np.stack(np.meshgrid(*[x] * (1 + width)), -1).reshape(-1, 1 + width)
    weights = np.prod(np.meshgrid(*[w / w.sum()] * (1 + width)), axis=0).ravel()
    own, star = fields @ np.concatenate([A, B], axis=1).T, fields[:, 0]
    h3 = np.polynomial.HermiteE([0, 0, 0, 6**-0.5])
    e = h3(star) - h3(own).mean(1)
    g = h3.deriv()(own) * e[:, None]
    outer = g[:, :, None] * g[:, None, :]
    mean = np.einsum("n,nij->ij", weights, outer)
    variance = np.einsum("n,nij->ij", weights, (outer - mean) ** 2) / batch
    assert np.linalg.eigvalsh(gram).min() > 0
    fluctuations = gram.std(0) / np.sqrt(n)
    exact = width == 1  # for several neurons to second order in the fluctuations
    assert (
        np.abs(gram.mean(0) - mean)
        < sigmas(width**2) * fluctuations + (0 if exact else 0.05 * mean.max())
    ).all()
    assert (
        np.abs(np.diagonal(gram.var(0) / variance) - 1) < (0.25 if exact else 0.5)
    ).all()


@pytest.mark.parametrize(
    ("ell", "expected"), [(1, 2), (2, 54), (3, 1889.84375), (4, 56679.50878)]
)
def test_the_tail_decides_between_exact_and_gaussian_sums(
    ell: int, expected: float
) -> None:
    """E[g⁴]/E[g²]² − 1 at m = 0 by quadrature over both fields in NumPy."""
    problem = (
        tl.Problem(f"h{ell}(z1)", f"h{ell}") if ell > 1 else tl.Problem("z1", "linear")
    )
    start = tl.Overlaps([[1.0]], [[0.0]])
    algorithm = tl.SGD(lr=0.1, batch=200_000)
    found = chain.tail_of(problem, algorithm, start.Q, start.M, np.ones(1))
    assert abs(found / expected - 1) < 1e-8
    task = Task(
        problem, algorithm, start, np.arange(2), Clocks(problem, algorithm, 1000), 1, 0
    )
    assert chain.compiled_form(tl.Chain(1000), task)[0].gaussian == (
        100 * found < 200_000
    )


@pytest.mark.slow
def test_a_streamed_batch_is_the_same_law() -> None:
    """A batch too large to be held at once is summed in chunks; its mean gradient is that of the theory."""
    problem = tl.Problem("tanh(z1)", "tanh", noise=0.1)
    start = tl.Overlaps([[1.0]], [[0.3]])
    batch, dim, n = 20_000, 50, 64
    assert batch * 3 > chain.SAMPLES_AT_ONCE
    result = tl.solve(
        problem,
        tl.SGD(lr=1.0, batch=batch),
        tl.Chain(dim),
        start,
        steps=1,
        save=1,
        seeds=n,
    )
    expected = 0.3 + tl.moments(problem, start).psi[0, 0]
    values = result.M.values[:, -1, 0, 0]
    assert abs(values.mean() - expected) < sigmas(
        freedom=n - 1
    ) * values.std() / np.sqrt(n)
    assert values.std() < 3 / np.sqrt(batch)


def test_a_step_of_any_length_is_no_divergence_on_the_sphere() -> None:
    """Correlation loss with lr = d: before projection the norm is 10⁵, after it 1."""
    problem = tl.Problem("h3(z1)", "h3")
    algorithm = tl.SGD(
        lr=tl.d, batch="4*d**3", loss="correlation", geometry="projected"
    )
    run = tl.solve(
        problem,
        algorithm,
        tl.Chain(100_000),
        tl.Overlaps([[1.0]], [[0.01]]),
        steps=64,
        save=1,
        seeds=4,
    )
    assert run.outcome.values.tolist() == ["ok"] * 4
    np.testing.assert_allclose(run.Q.values, 1.0)
