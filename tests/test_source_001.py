"""From high-dimensional and mean-field dynamics to dimensionless ODEs (source 001), statement by statement."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from statements import Proofs, within

import twolayer as tl
from twolayer import d

proves = Proofs("001")

P = np.array([[1.0, 0.3], [0.3, 0.8]])
POINT = tl.Overlaps([[1.1, 0.2], [0.2, 0.7]], [[0.4, 0.1], [-0.2, 0.3]], P)
PROBLEM = tl.Problem(tl.Teacher("erf", 2), "erf", width=2, noise=0.3, gram=P)
GAMMA = 0.8


def sigma(x: np.ndarray) -> np.ndarray:
    return special.erf(x / np.sqrt(2))


def slope(x: np.ndarray) -> np.ndarray:
    return np.sqrt(2 / np.pi) * np.exp(-(x**2) / 2)


@functools.cache
def drawn() -> dict[str, np.ndarray]:
    """Fields of the point, the displacement 𝓔 = y − f, and σ'."""
    rng = np.random.default_rng(1)
    omega = np.block([[POINT.Q, POINT.M], [POINT.M.T, P]])
    fields = rng.multivariate_normal(np.zeros(4), omega, size=400_000)
    lam, star = fields[:, :2], fields[:, 2:]
    clean = sigma(star).mean(1) - sigma(lam).mean(1)
    return {
        "lam": lam, "star": star, "slope": slope(lam), "clean": clean,
        "error": clean + np.sqrt(0.3) * rng.normal(size=len(lam)),
    }  # fmt: skip


@functools.cache
def here() -> Any:
    return tl.moments(PROBLEM, POINT)


@proves("001-04")
def teacher() -> None:
    a = np.array([1.5, -0.5, 2.0])
    z = np.random.default_rng(0).normal(size=(50, 3))
    target = tl.Problem(tl.Teacher("erf", 3, a), "erf").target
    np.testing.assert_allclose(
        np.asarray(target(jnp.asarray(z))), (a * sigma(z)).sum(1) / 3, atol=1e-6
    )


@proves("001-06")
def risk() -> None:
    x = drawn()
    within(x["clean"] ** 2 / 2, here().excess_risk)
    within(x["error"] ** 2 / 2, here().risk)
    assert here().risk - here().excess_risk == pytest.approx(
        0.15, rel=1e-12
    )  # the noise counts once


@functools.cache
def steps() -> tuple[dict[str, np.ndarray], Any]:
    """Explicit steps in six dimensions with x ~ N(0, 1/d), and the mean step of the package."""
    rng, dim, n, p = np.random.default_rng(2), 6, 300_000, 2
    frame = np.linalg.qr(rng.normal(size=(dim, 4)))[0].T
    star = np.linalg.cholesky(P) @ frame[:2]
    inside, perp = POINT.decompose()
    W = inside @ star + np.linalg.cholesky(perp) @ frame[2:]
    W, star = np.sqrt(dim) * W, np.sqrt(dim) * star
    x = rng.normal(size=(n, dim)) / np.sqrt(dim)
    lam, lam_star = x @ W.T, x @ star.T
    error = (
        sigma(lam_star).mean(1) + np.sqrt(0.3) * rng.normal(size=n) - sigma(lam).mean(1)
    )
    s = slope(lam)
    square = (x**2).sum(1)
    cross = s[:, :, None] * lam[:, None] + lam[:, :, None] * s[:, None]
    found = {
        "M": GAMMA / (p * dim) * (s * error[:, None])[:, :, None] * lam_star[:, None],
        "Q": GAMMA / (p * dim) * cross * error[:, None, None]
        + GAMMA**2
        / (p**2 * dim)
        * (square * error**2)[:, None, None]
        * s[:, :, None]
        * s[:, None],
        "printed": GAMMA / (p * dim) * cross
        + GAMMA**2
        / (p**2 * dim)
        * (square * error)[:, None, None]
        * s[:, :, None]
        * s[:, None],
    }
    few = slice(0, 1000)
    new = W + GAMMA / p * (s * error[:, None])[few, :, None] * x[few, None, :]
    np.testing.assert_allclose(found["M"][few], (new - W) @ star.T / dim, atol=1e-12)
    np.testing.assert_allclose(
        found["Q"][few], new @ new.transpose(0, 2, 1) / dim - W @ W.T / dim, atol=1e-12
    )
    return found, tl.solve(
        PROBLEM, tl.SGD(GAMMA / d), tl.Map(dim), POINT, steps=1, save=1
    )


@proves("001-13")
def step_of_m() -> None:
    found, mean = steps()
    within(found["M"], mean.M.values[0, 1] - mean.M.values[0, 0])


@proves("001-14")
def step_of_q() -> None:
    found, mean = steps()
    change = mean.Q.values[0, 1] - mean.Q.values[0, 0]
    within(found["Q"], change)
    assert (
        np.abs(found["printed"].mean(0) - change).max() > 0.005
    )  # without 𝓔 and 𝓔² it is something else


@proves("001-17")
def drift_of_m() -> None:
    x = drawn()
    within(
        (x["slope"] * x["error"][:, None])[:, :, None] * x["star"][:, None], here().psi
    )


@proves("001-18")
def gradient_flow_of_q() -> None:
    x = drawn()
    one = (x["slope"] * x["error"][:, None])[:, :, None] * x["lam"][:, None]
    within(one + one.transpose(0, 2, 1), here().phi + here().phi.T)


@proves("001-19")
def variance_of_q() -> None:
    x = drawn()
    within(
        (x["error"] ** 2)[:, None, None] * x["slope"][:, :, None] * x["slope"][:, None],
        here().chi,
    )


@proves("001-20")
def deviation_from_the_ode() -> None:
    """The spread of runs is √(γ/(pd)) times a constant: a sixteenth of d or of γ makes it four times smaller."""
    problem, start = (
        tl.Problem(tl.Teacher("erf", 1), "erf", noise=0.3),
        tl.Overlaps([[1.0]], [[0.3]]),
    )

    def spread(gamma: float, dim: int) -> float:
        run = tl.solve(
            problem,
            tl.SGD(gamma / d),
            tl.Chain(dim),
            start,
            time=0.5,
            save=1,
            seeds=512,
        )
        return float(run.M.values[:, -1, 0, 0].std())

    base = spread(0.8, 50)
    assert base / spread(0.8, 800) == pytest.approx(4, rel=0.2)
    assert base / spread(0.05, 50) == pytest.approx(4, rel=0.2)
    assert 0.1 < base / np.sqrt(0.8 / 50) < 2


@proves("001-22")
def variance_falls_as_one_over_p() -> None:
    """Copies of neurons leave the network as it is; the gradient flow stays, and the variance falls as 1/p."""
    Q, M, found = np.array([[1.0, 0.2], [0.2, 0.9]]), np.array([[0.3], [0.5]]), []
    for copies in (1, 4):
        problem = tl.Problem("z1**2", "square", width=2 * copies)
        start = tl.Overlaps(
            np.kron(np.ones((copies, copies)), Q), np.kron(np.ones((copies, 1)), M)
        )
        found.append(tl.rates(problem, tl.SGD(0.5 / d), start))
    two, eight = found
    np.testing.assert_allclose(
        eight.gradient_flow.Q[:2, :2], two.gradient_flow.Q, rtol=1e-12
    )
    np.testing.assert_allclose(eight.variance.Q[:2, :2], two.variance.Q / 4, rtol=1e-12)


@proves("001-25")
def orthogonal_fields() -> None:
    """λ⊥ = λ − M P⁻¹ λ* is independent of λ* and has covariance Q⊥."""
    x = drawn()
    rest = x["lam"] - x["star"] @ np.linalg.inv(P) @ POINT.M.T
    within(rest[:, :, None] * x["star"][:, None], 0.0)
    within(rest[:, :, None] * rest[:, None], POINT.Q_perp)


@proves("001-26")
def motion_of_the_orthogonal_overlaps() -> None:
    x, p = drawn(), 2
    rest = x["lam"] - x["star"] @ np.linalg.inv(P) @ POINT.M.T
    one = (x["slope"] * x["error"][:, None])[:, :, None] * rest[:, None]
    noise = (
        GAMMA
        / p
        * (x["error"] ** 2)[:, None, None]
        * x["slope"][:, :, None]
        * x["slope"][:, None]
    )
    total = tl.rates(PROBLEM, tl.SGD(GAMMA / d), POINT).total
    turning = total.M @ np.linalg.inv(P) @ POINT.M.T
    within(one + one.transpose(0, 2, 1) + noise, total.Q - turning - turning.T)


@proves("001-34")
def map_to_sufficient_statistics() -> None:
    """H(w) = (W*w/d, ‖w⊥‖²/d): with the division the particle of a Gaussian row has E q = (d − k)/d, not d − k."""
    problem, dim = tl.Problem(tl.Teacher("erf", 2), "erf"), 10
    cloud = tl.mean_field.Particles.sample(
        problem, 40_000, law="gaussian", dim=dim, seed=0
    )
    within(cloud.q, (dim - 2) / dim)
    within(cloud.m, 0.0)
    within(cloud.m[:, :, None] * cloud.m[:, None], np.eye(2) / dim)


@pytest.mark.parametrize("proof", proves.cases(slow=["001-13", "001-14", "001-20"]))
def test_statement(proof: Callable[[], None]) -> None:
    proof()
