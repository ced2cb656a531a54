"""Losses, flipped labels, label noise of other laws, and what results say about them."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest
from chance import sigmas
from cost import sized
from scipy import stats
from scipy.special import erf

import twolayer as tl
from twolayer import d
from twolayer.task.labels import LabelNoise, Law

# what NumPy makes of the losses: e(y, f) and ℓ(y, f)
RESIDUALS: dict[str, Any] = {
    "squared": (lambda y, f: y - f, lambda y, f: (y - f) ** 2 / 2),
    "correlation": (lambda y, f: y + 0 * f, lambda y, f: 1 - y * f),
    "logistic": (
        lambda y, f: y / (1 + np.exp(y * f)),
        lambda y, f: np.log1p(np.exp(-y * f)),
    ),
    "hinge": (
        lambda y, f: np.where(y * f < 1, y, 0.0),
        lambda y, f: np.maximum(0, 1 - y * f),
    ),
    "exponential": (lambda y, f: y * np.exp(-y * f), lambda y, f: np.exp(-y * f)),
    "huber(0.5)": (
        lambda y, f: np.sign(y - f) * np.minimum(np.abs(y - f), 0.5),
        lambda y, f: np.where(
            np.abs(y - f) < 0.5, (y - f) ** 2 / 2, 0.5 * np.abs(y - f) - 0.125
        ),
    ),
}


def noise_of(law: str, rng: np.random.Generator, size: Any) -> np.ndarray:
    """ξ by the generators of NumPy."""
    if law == "gaussian":
        return rng.normal(size=size)
    if law == "laplace":
        return rng.laplace(size=size) / np.sqrt(2)
    if law == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), size=size)
    nu = 1.0 if law == "cauchy" else float(law[8:-1])
    return rng.standard_t(nu, size=size) * (np.sqrt((nu - 2) / nu) if nu > 2 else 1.0)


def slope(x: np.ndarray) -> np.ndarray:
    return np.sqrt(2 / np.pi) * np.exp(-(x**2) / 2)


CASES = [
    ("squared", "laplace", 0.2, 0.3),
    ("correlation", "gaussian", 0.2, 0.0),
    ("logistic", "gaussian", 0.1, 0.0),
    ("hinge", "gaussian", 0.15, 0.0),
    ("exponential", "gaussian", 0.1, 0.0),
    ("huber(0.5)", "student(1.5)", 0.0, 0.3),
    ("huber(0.5)", "cauchy", 0.2, 0.2),
    ("logistic", "student(5)", 0.1, 0.2),
    ("hinge", "uniform", 0.0, 0.3),
]


QUICKER = [
    case
    for case in CASES
    if case[:2]
    in (("squared", "laplace"), ("hinge", "gaussian"), ("huber(0.5)", "cauchy"))
]


@pytest.mark.parametrize(
    ("loss", "law", "flips", "noise"),
    sized(CASES, slow=QUICKER, long=set(CASES) - {*QUICKER}),
)
def test_averages_are_those_of_samples(
    loss: str, law: str, flips: float, noise: float
) -> None:
    """Every average over fields and labels, against labels and losses written in NumPy."""
    problem = tl.Problem(
        "sign(z1)", "erf", noise=noise, noise_law=law, flips=flips, second_layer=[1.4]
    )
    start = tl.Overlaps(Q=[[0.9]], M=[[0.6]])
    found = tl.moments(problem, start, loss=loss)
    rng, n = np.random.default_rng(7), 400_000
    star = rng.normal(size=n)
    field = 0.6 * star + np.sqrt(0.9 - 0.36) * rng.normal(size=n)
    f, h = 1.4 * erf(field / np.sqrt(2)), np.sign(star)
    y = np.where(rng.uniform(size=n) < flips, -h, h) + np.sqrt(noise) * noise_of(
        law, rng, n
    )
    e = RESIDUALS[loss][0](y, f)
    g = 1.4 * slope(field) * e
    sampled = [
        g * star,
        g * field,
        g * g,
        e * f / 1.4,
        (h * (1 - 2 * flips) - f) ** 2 / 2,
    ]
    values = [
        found.psi[0, 0],
        found.phi[0, 0],
        found.chi[0, 0],
        found.second[0],
        found.excess_risk,
    ]
    if law not in ("student(1.5)", "cauchy"):
        sampled.append((y - f) ** 2 / 2)
        values.append(found.risk)
    z = [
        (x.mean() - v) / (x.std() / np.sqrt(n))
        for x, v in zip(sampled, values, strict=True)
    ]
    assert np.abs(z).max() < sigmas(len(z) * len(CASES))


def explicit(
    loss: str, law: str, flips: float, noise: float, dim: int, steps: int, seeds: int
) -> tuple[np.ndarray, np.ndarray]:
    """M and Q at the end of plain SGD on y = ± sign(z1) + noise, f = 1.4 erf(w·z/√2), one sample a step."""
    rng = np.random.default_rng(11)
    w = np.zeros((seeds, dim))
    w[:, 0], w[:, 1] = 0.2, 0.6
    for _ in range(steps):
        z = rng.normal(size=(seeds, dim))
        field, h = (w * z).sum(1), np.sign(z[:, 0])
        y = np.where(rng.uniform(size=seeds) < flips, -h, h) + np.sqrt(
            noise
        ) * noise_of(law, rng, seeds)
        e = RESIDUALS[loss][0](y, 1.4 * erf(field / np.sqrt(2)))
        w = w + 0.5 / dim * (1.4 * slope(field) * e)[:, None] * z
    return w[:, 0], (w * w).sum(1)


@pytest.mark.long
@pytest.mark.parametrize(("loss", "law", "flips", "noise"), CASES)
def test_plain_loops_chain_vectors_and_limit_agree(
    loss: str, law: str, flips: float, noise: float
) -> None:
    """SGD in NumPy, the chain and the vectors within errors, and the ODE within C/d; labels as they are would differ."""
    problem = tl.Problem(
        "sign(z1)", "erf", noise=noise, noise_law=law, flips=flips, second_layer=[1.4]
    )
    start = tl.Overlaps(Q=[[0.4]], M=[[0.2]])
    algorithm, dim, steps, seeds = tl.SGD(lr=0.5 / d, loss=loss), 100, 300, 600

    def ends(method: tl.extend.Method, seeds: int) -> np.ndarray:
        run = tl.solve(
            problem,
            algorithm,
            method,
            start,
            time=0.5 * steps / dim,
            save=1,
            seeds=seeds,
        )
        return np.stack([run.M[:, -1, 0, 0], run.Q[:, -1, 0, 0]])

    plain = np.stack(explicit(loss, law, flips, noise, dim, steps, seeds))
    others = {
        "chain": ends(tl.Chain(dim), seeds),
        "vectors": ends(tl.Vectors(dim), 200),
    }
    for runs in others.values():
        error = np.sqrt(
            plain.var(1, ddof=1) / seeds + runs.var(1, ddof=1) / runs.shape[1]
        )
        z = (plain.mean(1) - runs.mean(1)) / error
        assert np.abs(z).max() < sigmas(4 * len(CASES), 199)
    limit, error = ends(tl.ODE(), 1)[:, 0], plain.std(1) / np.sqrt(seeds)
    assert (np.abs(plain.mean(1) - limit) < 1.5 / dim + 5 * error).all()
    assert (
        np.abs(limit - np.array([0.2, 0.4])).max() > 0.1
    )  # it has moved by much more than is allowed


@pytest.mark.long
@pytest.mark.parametrize("loss", ["squared", "huber(0.5)"])
def test_reused_samples_keep_their_flipped_labels(loss: str) -> None:
    """The theory of reused samples against vectors: overlaps and training risk after three steps on one set."""
    problem = tl.Problem("sign(z1)", "erf", noise=0.2, noise_law="laplace", flips=0.2)
    algorithm = tl.SGD(lr=1.5, loss=loss, batch=2 * d, dataset=2 * d)
    start = tl.Overlaps(Q=[[1.0]], M=[[0.3]])
    theory = tl.solve(
        problem,
        algorithm,
        tl.DMFT(replicates=4, averages=tl.Averages(points=2**13)),
        start,
        steps=3,
        save=1,
    )
    runs = tl.solve(
        problem, algorithm, tl.Vectors(400), start, steps=3, save=1, seeds=40
    )
    for name in ("M", "Q", "train_risk"):
        found, expected = (
            runs[name][:, -1].values.reshape(40),
            theory[name][0, -1].values.item(),
        )
        error = np.hypot(
            found.std(ddof=1) / np.sqrt(40),
            theory[f"{name}_error"][0, -1].values.item(),
        )
        assert abs(found.mean() - expected) < 2 / 400 + sigmas(6, 39) * error
    clean = tl.solve(
        problem.replace(flips=0.0),
        algorithm,
        tl.Vectors(400),
        start,
        steps=3,
        save=1,
        seeds=4,
    )
    assert (
        float(clean.M[:, -1].mean()) > float(runs.M[:, -1].mean()) + 0.05
    )  # which labels as they are would not give


@pytest.mark.long
def test_the_mean_field_sees_the_mean_label() -> None:
    """Flips shrink the target by 1 − 2q, and the risk contains what they add."""
    start = tl.mean_field.Particles([[0.3], [0.1]], [0.6, 0.9])
    flipped, shrunk = (
        tl.solve(
            tl.Problem(*x, "erf", flips=q),
            tl.SGD(lr=0.5 / d),
            tl.MeanField(),
            start,
            time=1,
            save=2,
        )
        for x, q in ((("sign(z1)",), 0.1), (("0.8*sign(z1)",), 0.0))
    )
    np.testing.assert_allclose(flipped.M, shrunk.M, rtol=1e-7)
    np.testing.assert_allclose(flipped.excess_risk, shrunk.excess_risk, rtol=1e-6)
    np.testing.assert_allclose(
        flipped.risk - flipped.excess_risk, 2 * 0.1 * 0.9, rtol=1e-7
    )


@pytest.mark.parametrize(
    "law",
    ["gaussian", "laplace", "uniform", "student(0.7)", "student(3)", "student(40)"],
)
def test_laws_are_those_of_their_names(law: str) -> None:
    """The quantile function against SciPy, its inverse, and unit variance where there is one."""
    known = Law.of(law)
    x = np.linspace(-6, 6, 241)
    exact = {
        "gaussian": stats.norm(),
        "laplace": stats.laplace(scale=1 / np.sqrt(2)),
        "uniform": stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)),
    }.get(law) or stats.t(
        known.nu, scale=np.sqrt((known.nu - 2) / known.nu) if known.nu > 2 else 1.0
    )
    with jax.enable_x64(True):
        xi = np.asarray(known.from_normal(x))
        back = np.asarray(known.to_normal(xi))
    low, high = x < 0, x > 0
    np.testing.assert_allclose(xi[low], exact.ppf(stats.norm.cdf(x[low])), rtol=1e-6)
    np.testing.assert_allclose(xi[high], exact.isf(stats.norm.sf(x[high])), rtol=1e-6)
    np.testing.assert_allclose(back, x, atol=1e-6)
    if known.moments > 2:
        assert exact.var() == pytest.approx(1.0)


def test_flips_and_noise_come_from_one_normal_and_are_independent() -> None:
    x = np.random.default_rng(0).normal(size=100_000)
    with jax.enable_x64(True):
        sign, shift = map(np.asarray, LabelNoise.of("laplace", 0.3).spoil(x, 0.25))
    assert abs((sign < 0).mean() - 0.3) < 4.5 * np.sqrt(0.21 / len(x))
    for part in (shift[sign < 0], shift[sign > 0]):
        assert (
            stats.kstest(part, stats.laplace(scale=0.5 / np.sqrt(2)).cdf).pvalue > 1e-5
        )
    with jax.enable_x64(True):
        plain = LabelNoise().spoil(x, 0.25)
    assert plain.sign == 1.0 and np.array_equal(plain.shift, np.sqrt(0.25) * x)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: tl.Problem("z1", "erf", flips=0.6),
            r"`flips` must be a probability in \[0, 1/2\], but got 0.6",
        ),
        (lambda: tl.Problem("z1", "erf", flips=-0.1), "`flips` must be a probability"),
        (
            lambda: tl.Problem("z1", "erf", noise_law="normal"),
            "`noise_law` must be one of gaussian, laplace",
        ),
        (
            lambda: tl.Problem("z1", "erf", noise_law="student(0)"),
            "ν of at least 0.5, but got 'student",
        ),
        (
            lambda: tl.Problem("z1", "erf", noise_law="student(x)"),
            r"must be student\(ν\) with a number",
        ),
        (
            lambda: tl.SGD(lr=0.1, loss="huber(-1)"),
            r"must be huber\(δ\) with a number δ > 0",
        ),
        (
            lambda: tl.SGD(lr=0.1, loss="huber(a)"),
            r"must be huber\(δ\) with a number δ > 0",
        ),
        (lambda: tl.SGD(lr=0.1, loss="logistics"), "did you mean 'logistic'"),
        (lambda: tl.register_loss("hinge"), "another name"),
        (lambda: tl.register_loss("mse"), "another name"),
        (
            lambda: tl.register_loss("numpy_loss")(lambda y, f: np.tanh(y - f)),
            "use jax.numpy",
        ),
        (
            lambda: tl.moments(
                tl.Problem("z1", "erf", noise=1, noise_law="cauchy"),
                tl.Overlaps([[1.0]], [[0.0]]),
            ),
            "no moment of order 2",
        ),
    ],
)
def test_bad_input(make: Any, why: str) -> None:
    with pytest.raises(tl.InputError, match=why):
        make()


def test_what_has_no_moments_is_refused_with_the_reason() -> None:
    """Where a formula needs moments that are infinite; where it does not, and where samples are drawn, it is allowed."""
    heavy, online = (
        tl.Problem("z1", "erf", noise=0.1, noise_law="student(2)"),
        tl.SGD(lr=0.1 / d),
    )
    assert set(tl.support(heavy, online).methods) == {"Chain", "Vectors", "Population"}
    assert "no moment of order 2" in tl.support(heavy, online).reasons["ODE"]
    flat = tl.support(heavy, online.replace(loss="huber"))
    assert {"Chain", "Vectors", "ODE", "SDE", "Map", "Population"} <= set(flat.methods)
    fourth = heavy.replace(noise_law="student(3)")
    assert (
        "ODE" in tl.support(fourth, online).methods
        and "SDE" not in tl.support(fourth, online).methods
    )
    steep = online.replace(loss="exponential")
    assert (
        "E[e²] may be infinite"
        in tl.support(tl.Problem("sign(z1)", "square"), steep).reasons["ODE"]
    )
    assert "ODE" in tl.support(tl.Problem("sign(z1)", "erf"), steep).methods


def test_names_of_losses() -> None:
    assert tl.SGD(lr=0.1, loss="mse").loss == tl.SGD(lr=0.1).loss
    assert tl.SGD(lr=0.1, loss="huber").describe()["loss"] == "huber(1)"
    assert tl.SGD(lr=0.1, loss="huber(1.0)").loss == tl.SGD(lr=0.1, loss="huber").loss
    assert tl.SGD(lr=0.1, loss="huber(0.25)").loss.kinks == (-0.25, 0.25)
    rng = np.random.default_rng(0)
    y, f = rng.normal(size=(2, 50))
    with jax.enable_x64(True):
        for name, (residual, value) in RESIDUALS.items():
            known = tl.SGD(lr=0.1, loss=name).loss
            assert known.value is not None
            np.testing.assert_allclose(known.residual(y, f), residual(y, f), rtol=1e-12)
            np.testing.assert_allclose(known.value(y, f), value(y, f), rtol=1e-12)
            slopes = (
                np.asarray(known.value(y, f + 1e-6))
                - np.asarray(known.value(y, f - 1e-6))
            ) / 2e-6
            np.testing.assert_allclose(
                known.residual(y, f), -slopes, atol=1e-6
            )  # e = −∂ℓ/∂f


@pytest.mark.long
@pytest.mark.parametrize("loss", ["hinge", "correlation"])
def test_results_hold_the_loss_and_the_error(loss: str) -> None:
    """In runs of several neurons with flipped labels: against samples at the last overlaps, and arccos for one."""
    problem = tl.Problem(
        "sign(z1*z2)",
        "relu",
        width=2,
        flips=0.1,
        normalisation="sum",
        second_layer=[1.0, -0.8],
    )
    W = np.array([[0.7, 0.5, 0.2, 0.0], [0.6, -0.7, 0.0, 0.3]])
    start = tl.Overlaps.from_weights(W, np.eye(2, 4))
    run = tl.solve(
        problem,
        tl.SGD(lr=0.4 / d, loss=loss),
        tl.Chain(50),
        start,
        steps=20,
        save=2,
        seeds=2,
    )
    at = tl.Overlaps(run.Q[1, -1].values, run.M[1, -1].values)
    _, A, B = at.factors()
    rng, n = np.random.default_rng(3), 400_000
    star, own = rng.normal(size=(n, 2)), rng.normal(size=(n, B.shape[1]))
    f = np.maximum(star @ A.T + own @ B.T, 0) @ [1.0, -0.8]
    h = np.sign(star[:, 0] * star[:, 1])
    y = np.where(rng.uniform(size=n) < 0.1, -h, h)
    value = RESIDUALS[loss][1](y, f)
    for name, sampled in (("loss", value), ("error", (y * f < 0) + 0.5 * (f == 0))):
        assert abs(
            sampled.mean() - float(run[name][1, -1])
        ) < 2e-4 + 5 * sampled.std() / np.sqrt(n)
        assert run[name].attrs["long_name"] and run[name].attrs["units"] == "1"
    assert json.loads(run.attrs["notes"])["error"].startswith("Sobol")
    one = tl.Problem("sign(z1)", "erf", flips=0.1)
    alone = tl.solve(
        one,
        tl.SGD(lr=0.4 / d),
        tl.Chain(50),
        tl.Overlaps([[1.0]], [[0.3]]),
        steps=20,
        save=2,
    )
    rho = (alone.M[..., 0, 0] / np.sqrt(alone.Q[..., 0, 0])).values
    np.testing.assert_allclose(
        alone.error, 0.1 + 0.8 * np.arccos(rho) / np.pi, rtol=1e-12
    )
    np.testing.assert_allclose(alone.loss, alone.risk)
    noisy = tl.solve(
        one.replace(noise=0.1),
        tl.SGD(lr=0.1 / d),
        tl.Chain(50),
        tl.Overlaps([[1.0]], [[0.3]]),
        steps=2,
    )
    assert tl.plot.trajectory(alone, quantity="error").axes[0].get_ylabel() == "error"
    with pytest.raises(
        tl.InputError, match=r"Argument `quantity`: Chain, .* has no 'error', but risk"
    ):
        tl.plot.trajectory(noisy, quantity="error")
    with pytest.raises(tl.InputError, match="`quantity` must be one of"):
        tl.plot.trajectory(alone, quantity="accuracy")


@pytest.mark.long
def test_files_and_flags_know_laws_flips_and_losses(tmp_path: Any) -> None:
    text = """
[problem]
target = "sign(z1)"
activation = "erf"
noise = 0.2
noise_law = "student(5)"
flips = 0.1
normalisation = "sum"
[algorithm]
lr = "0.5/d"
loss = "huber(0.5)"
[start]
Q = [[1.0]]
M = [[0.3]]
[run]
dim = 50
steps = 4
"""
    from twolayer.files.taskfile import read_task

    (tmp_path / "task.toml").write_text(text)
    task = read_task(tmp_path / "task.toml", [])
    problem = task.problem()
    assert (problem.labels.law.name, problem.labels.flips, problem.normalisation) == (
        "student(5)",
        0.1,
        "sum",
    )
    run = tl.solve(
        problem, task.algorithm(), tl.Chain(50), task.start(problem), steps=4, save=1
    )
    tl.save(run, tmp_path / "run.nc")
    again = tl.rerun(tl.load(tmp_path / "run.nc"))
    np.testing.assert_array_equal(again.M, run.M)
    assert problem.replace(width=2).labels == problem.labels
    assert "noise_law='student(5)', flips=0.1" in repr(problem)
