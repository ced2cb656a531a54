"""First order optimization methods in two-layer networks (source 004), statement by statement."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from statements import Proofs, within

import twolayer as tl
from twolayer import d

proves = Proofs("004")

DIM, BATCH, GAMMA = 7, 3, 0.6
A = np.array([1.3, -0.7])
POINT = tl.Overlaps([[1.1, 0.2], [0.2, 0.8]], [[0.4, 0.1], [-0.2, 0.3]], a=A)
PROBLEM = tl.Problem("z1*z2 + z1**2/2", "square", width=2, noise=0.2, second_layer=A)


@functools.cache
def weights() -> tuple[np.ndarray, np.ndarray]:
    frame = np.linalg.qr(np.random.default_rng(1).normal(size=(DIM, 4)))[0].T
    inside, perp = POINT.decompose()
    return inside @ frame[:2] + np.linalg.cholesky(perp) @ frame[2:], frame[:2]


def label(star: np.ndarray) -> np.ndarray:
    return star[..., 0] * star[..., 1] + star[..., 0] ** 2 / 2


def after_two_steps(rng: np.random.Generator, dim: int, fresh: bool) -> float:
    """Overlap of tanh(w·z + 0.7), orthogonal to z1 at first, after two steps of lr = 1.5 on 3d samples of h3(z1)."""
    w = np.eye(dim)[1]
    for step in range(2):
        if step == 0 or fresh:
            z = rng.normal(size=(3 * dim, dim))
            y = (z[:, 0] ** 3 - 3 * z[:, 0]) / np.sqrt(6)
        f = np.tanh(z @ w + 0.7)
        w = w + 1.5 / (3 * dim) * ((1 - f**2) * (y - f)) @ z
    return float(w[0])


@proves("004-03")
def staircases_are_the_class_of_fresh_batches_only() -> None:
    """h3(z1) is no staircase: two steps on fresh batches do not see z1, two on the same batch do."""
    rng = np.random.default_rng(0)
    problem, start = (
        tl.Problem("h3(z1)", "tanh(z + 0.7)"),
        tl.Overlaps([[1.0]], [[0.0]]),
    )
    fresh = tl.SGD(1.5, batch=3 * d)
    blind = tl.solve(problem, fresh, tl.GiantSteps(), start, steps=2, save=2).M.values[
        0, 2, 0, 0
    ]
    assert abs(blind) < 1e-9
    within(np.array([after_two_steps(rng, 200, True) for _ in range(200)]), 0.0)
    seen = tl.solve(
        problem,
        fresh.replace(dataset=3 * d),
        tl.DMFT(averages=tl.Averages(points=2**12)),
        start,
        steps=2,
        save=2,
    )
    slack = (
        4 * float(seen.M_error.values[0, 2, 0, 0]) + 0.1 / 200
    )  # and a little for d = 200
    within(
        np.array([after_two_steps(rng, 200, False) for _ in range(600)]),
        seen.M.values[0, 2, 0, 0],
        slack,
    )
    target = tl.analyse("h3(z1)")
    assert list(target.staircase()) == [None] and list(
        target.staircase(reuse=True)
    ) == [2]


@proves("004-10")
def network() -> None:
    z = np.random.default_rng(2).normal(size=(200_000, 2))
    start = tl.Overlaps(np.eye(2), np.zeros((2, 1)), a=A)
    problem = tl.Problem(
        "0*z1", "square", width=2, second_layer=A
    )  # a label of zero leaves s itself
    assert tl.moments(problem, start).risk == pytest.approx(
        float(np.mean((z**2 @ A / 2) ** 2) / 2), rel=0.02
    )
    for word, values in (("signs", {-1.0, 1.0}), ("ones", {1.0})):
        assert (
            set(tl.Problem("z1", "relu", width=64, second_layer=word).a().tolist())
            == values
        )
    drawn = tl.Problem("z1", "relu", width=20_000, second_layer="gaussian").a()
    within(drawn, 0.0)
    within(drawn**2, 1.0)


@proves("004-11")
def covariance() -> None:
    W, star = weights()
    found = tl.Overlaps.from_weights(W, star)
    z = np.random.default_rng(3).normal(size=(200_000, DIM))
    fields = z @ np.concatenate([W, star]).T
    omega = np.block([[found.Q, found.M], [found.M.T, found.P]])
    within(fields[:, :, None] * fields[:, None], omega)
    np.testing.assert_allclose(found.P, np.eye(2), atol=1e-12)


@functools.cache
def steps() -> tuple[dict[str, np.ndarray], Any]:
    """Explicit steps on batches, the right side of (6), and the mean step of the package."""
    W, star = weights()
    rng, n, p = np.random.default_rng(4), 200_000, 2
    z = rng.normal(size=(n, BATCH, DIM))
    lam, lam_star = z @ W.T, z @ star.T
    error = (
        label(lam_star) + np.sqrt(0.2) * rng.normal(size=(n, BATCH)) - lam**2 @ A / p
    )
    push = A * 2 * lam * error[..., None]  # a_j σ'(λ_j^ν) 𝓔^ν
    once = GAMMA / (p * BATCH)
    pairs = np.einsum(
        "nvj,nwl,nvi,nwi->njl", push, push, z, z, optimize=True
    )  # all ν and ν'
    linear = np.einsum("nvj,nvl->njl", push, lam)
    found = {
        "M": once * np.einsum("nvj,nvr->njr", push, lam_star),
        "Q": once * (linear + linear.transpose(0, 2, 1)) + once**2 * pairs,
        "same": once * (linear + linear.transpose(0, 2, 1))
        + once**2
        * np.einsum("nvj,nvl,nv->njl", push, push, (z**2).sum(-1), optimize=True),
    }
    few = slice(0, 500)
    new = W + once * np.einsum("nvj,nvi->nji", push[few], z[few])
    np.testing.assert_allclose(found["M"][few], (new - W) @ star.T, atol=1e-9)
    np.testing.assert_allclose(
        found["Q"][few], new @ new.transpose(0, 2, 1) - W @ W.T, atol=1e-9
    )
    start = tl.Overlaps(POINT.Q, POINT.M, a=A)
    return found, tl.solve(
        PROBLEM, tl.SGD(GAMMA, batch=BATCH), tl.Map(DIM), start, steps=1, save=1
    )


@proves("004-17")
def step_of_m() -> None:
    found, mean = steps()
    within(found["M"], mean.M.values[0, 1] - mean.M.values[0, 0])


@proves("004-18")
def step_of_q() -> None:
    """The whole double sum; its part with ν ≠ ν' is v Ω⁺ vᵀ on the mean, and cannot be left out."""
    found, mean = steps()
    change = mean.Q.values[0, 1] - mean.Q.values[0, 0]
    within(found["Q"], change)
    here = tl.moments(PROBLEM, POINT)
    v = np.concatenate([here.phi, here.psi], axis=1)
    omega = np.block([[POINT.Q, POINT.M], [POINT.M.T, np.eye(2)]])
    between = (GAMMA / 2) ** 2 * (1 - 1 / BATCH) * v @ np.linalg.inv(omega) @ v.T
    within(found["Q"] - found["same"], between)
    assert np.abs(between).max() > 0.02


@proves("004-19")
def two_algorithms() -> None:
    online, giant = tl.SGD(lr=0.3 / d), tl.SGD(lr=0.3, batch=d)
    assert "ODE" in tl.support(PROBLEM, online) and "GiantSteps" not in tl.support(
        PROBLEM, online
    )
    assert "GiantSteps" in tl.support(PROBLEM, giant) and "ODE" not in tl.support(
        PROBLEM, giant
    )
    # the first has no term of pairs in the limit, the second has, and χ with 1/α
    here = tl.moments(PROBLEM, POINT)
    omega = np.block([[POINT.Q, POINT.M], [POINT.M.T, np.eye(2)]])
    v = np.concatenate([here.phi, here.psi], axis=1)
    start = tl.Overlaps(POINT.Q, POINT.M, a=A)
    step = tl.solve(
        PROBLEM, giant.replace(batch=2 * d), tl.GiantSteps(), start, steps=1, save=1
    )
    expected = 0.15 * (here.phi + here.phi.T) + 0.15**2 * (
        here.chi / 2 + v @ np.linalg.inv(omega) @ v.T
    )
    np.testing.assert_allclose(
        step.Q.values[0, 1] - step.Q.values[0, 0], expected, rtol=1e-9
    )
    small = tl.rates(PROBLEM, online, POINT)
    np.testing.assert_allclose(
        small.total.Q, here.phi + here.phi.T + 0.3 / 2 * here.chi, rtol=1e-12
    )


@proves("004-20")
def called_spherical_but_projected() -> None:
    """(7) divides the plain step by its norm: `projected` here. The tangent step is another one."""
    unit = 1 / np.sqrt(np.diagonal(POINT.Q))
    start = tl.Overlaps(POINT.Q * unit[:, None] * unit, POINT.M * unit[:, None], a=A)
    giant = tl.SGD(lr=0.6, batch=2 * d)

    def after(geometry: str) -> Any:
        return tl.solve(
            PROBLEM,
            giant.replace(geometry=geometry),
            tl.GiantSteps(),
            start,
            steps=1,
            save=1,
        )

    free, divided, tangent = (
        after(word) for word in ("free", "projected", "spherical")
    )
    norm = np.sqrt(np.diagonal(free.Q.values[0, 1]))
    np.testing.assert_allclose(
        divided.M.values[0, 1], free.M.values[0, 1] / norm[:, None], rtol=1e-12
    )
    np.testing.assert_allclose(
        divided.Q.values[0, 1], free.Q.values[0, 1] / norm[:, None] / norm, rtol=1e-12
    )
    assert np.abs(tangent.M.values[0, 1] - divided.M.values[0, 1]).max() > 0.01


@functools.cache
def averages() -> tuple[dict[str, np.ndarray], Any]:
    rng = np.random.default_rng(5)
    omega = np.block([[POINT.Q, POINT.M], [POINT.M.T, np.eye(2)]])
    fields = rng.multivariate_normal(np.zeros(4), omega, size=400_000)
    lam, star = fields[:, :2], fields[:, 2:]
    error = label(star) + np.sqrt(0.2) * rng.normal(size=len(star)) - lam**2 @ A / 2
    push = 2 * lam * error[:, None]  # as in (8), without a_j/p
    return {
        "psi": push[:, :, None] * star[:, None],
        "phi": push[:, :, None] * lam[:, None],
        "chi": push[:, :, None] * push[:, None],
        "risk": error**2 / 2,
    }, tl.moments(PROBLEM, POINT)


@proves("004-22")
def psi() -> None:
    found, here = averages()
    within(found["psi"], here.psi / A[:, None])


@proves("004-23")
def phi() -> None:
    found, here = averages()
    within(found["phi"], here.phi / A[:, None])


@proves("004-24")
def chi() -> None:
    found, here = averages()
    within(found["chi"], here.chi / (A[:, None] * A))


@proves("004-25")
def population_loss() -> None:
    found, here = averages()
    within(found["risk"], here.risk)
    assert here.risk - here.excess_risk == pytest.approx(0.1, rel=1e-12)


@pytest.mark.parametrize(
    "proof",
    proves.cases(slow=["004-17", "004-18", "004-19", "004-20"], long=["004-03"]),
)
def test_statement(proof: Callable[[], None]) -> None:
    proof()
