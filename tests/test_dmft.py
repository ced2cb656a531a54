"""Dynamical mean-field theory of reused samples, against the equations written out, exact integrals and simulations."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.special import erf, ndtri
from scipy.stats import qmc

import twolayer as tl
from twolayer import d
from twolayer.methods.dmft import method as dmft
from twolayer.methods.dmft import weights as dmft_weights

AUTHORS = tl.Problem("tanh(z1 + He3(z2))", "relu", width=2, second_layer=[2**0.5, -(2**0.5)])
ORTHOGONAL = tl.Overlaps(np.eye(2), np.zeros((2, 2)))
FULL = tl.SGD(lr=0.6, batch=3 * d, dataset=3 * d)  # α = 3, η = 0.2 on the sum of the losses over d


def solved(problem: tl.Problem, algorithm: tl.SGD, start: tl.Overlaps, steps: int, **knobs: Any) -> xr.Dataset:
    method = tl.DMFT(**{"log2_points": 13, "replicates": 4, **knobs})
    return tl.solve(problem, algorithm, method, start, steps=steps, save=steps)


# the equations with f = Σ a σ and step η on the summed loss, each written out as in the literature


def exact(alpha: float, eta: float, a: float, m: float, q: float, steps: int, nodes: int) -> tuple[list, list, list]:
    """P = 1, σ = He2, y = He2: weights as (E1)–(E5), fields as (E6)–(E7) on a tensor Gauss–Hermite grid, exact."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack([g.ravel() for g in np.meshgrid(*[x] * (steps + 1), indexing="ij")])
    weight = np.prod([g.ravel() for g in np.meshgrid(*[w / w.sum()] * (steps + 1), indexing="ij")], 0)
    star, epsilon = grid[0], grid[1:]
    mean: Callable[[np.ndarray], float] = lambda values: float(weight @ values)  # noqa: E731
    M, C, R = [m], np.zeros((steps + 1, steps + 1)), np.zeros((steps + 1, steps + 1))
    C[0, 0] = q - m**2
    C_F, R_F, F, D, train = np.zeros((steps, steps)), np.zeros((steps, steps)), [], [], []
    y = star**2 - 1
    for t in range(steps):
        root = np.linalg.cholesky(C[: t + 1, : t + 1] + 1e-15 * np.eye(t + 1))[t]
        h = M[t] * star + root @ epsilon[: t + 1] + sum(R[t, s] * F[s] for s in range(t))
        error = a * (h**2 - 1) - y
        train.append(mean(error**2) / 2)
        F.append(a * 2 * h * error)
        D.append(a**2 * 4 * h**2 + 2 * a * error)
        slope = np.zeros((t + 1, len(star)))
        for s in range(t, -1, -1):
            inner = sum(slope[r] * R[r, s] for r in range(s + 1, t + 1)) if s < t else 1.0
            slope[s] = D[s] * inner if s < t else D[t]
        for s in range(t + 1):
            C_F[t, s] = C_F[s, t] = alpha * mean(F[t] * F[s])
            R_F[t, s] = alpha * mean(slope[s])
        M.append(M[t] - eta * alpha * mean(F[t] * star))
        for s in range(t + 1):
            R[t + 1, s] = R[t, s] - eta * (s == t) - eta * sum(R_F[t, r] * R[r, s] for r in range(s + 1, t + 1))
        for s in range(t + 2):
            source = sum(C_F[t, r] * R[s, r] for r in range(min(s, t + 1)))
            C[t + 1, s] = C[t, s] - eta * (source + sum(R_F[t, r] * C[r, s] for r in range(t + 1)))
            C[s, t + 1] = C[t + 1, s]
    return M, [C[t, t] + M[t] ** 2 for t in range(steps + 1)], train


def test_it_agrees_with_exact_integrals() -> None:
    alpha, eta, steps = 2.0, 0.02, 3
    M, Q, train = exact(alpha, eta, 0.7, 0.3, 1.0, steps, 16)
    coarse = exact(alpha, eta, 0.7, 0.3, 1.0, steps, 14)
    assert np.abs(np.array(M) - coarse[0]).max() < 1e-6 and np.abs(np.array(Q) - coarse[1]).max() < 1e-5
    problem = tl.Problem("He2(z1)", "He2", second_layer=[0.7])
    algorithm = tl.SGD(lr=alpha * eta, batch=alpha * d, dataset=alpha * d)
    result = solved(problem, algorithm, tl.Overlaps([[1.0]], [[0.3]]), steps, log2_points=14)
    np.testing.assert_allclose(result.M[0, :, 0, 0], M, atol=1e-4)
    np.testing.assert_allclose(result.Q[0, :, 0, 0], Q, atol=1e-3)
    np.testing.assert_allclose(result.train_risk[0, :-1], train, rtol=3e-3)
    forgetful = M[2] - M[1], M[1] - M[0]
    assert abs(forgetful[0] - forgetful[1]) > 1e-3  # what is compared moves


def h_form(alpha: float, eta: float, a: np.ndarray, steps: int, log2_points: int) -> tuple[np.ndarray, np.ndarray]:
    """(E9): the noise u drives the fields themselves, T = dh/dP. erf students of tanh(z1 + He3(z2)), M = 0 at first."""
    p, n = len(a), 2**log2_points
    points = ndtri(qmc.Sobol(2 + p * (steps + 1), rng=np.random.default_rng(3)).random(n))
    star, epsilon = points[:, :2], points[:, 2:].reshape(n, steps + 1, p)
    y = np.tanh(star[:, 0] + star[:, 1] ** 3 - 3 * star[:, 1])
    M, perp, F, C_F = np.zeros((p, 2)), [epsilon[:, 0]], [], np.zeros((0, 0))
    R_F = np.zeros((steps, steps, p, p))
    T: dict[tuple[int, int], np.ndarray] = {}
    means, train = [M], []
    eye = np.eye(p)[None]
    for t in range(steps):
        h = perp[t] + star @ M.T
        slope, curve = np.sqrt(2 / np.pi) * np.exp(-(h**2) / 2), -h * np.sqrt(2 / np.pi) * np.exp(-(h**2) / 2)
        error = erf(h / np.sqrt(2)) @ a - y
        train.append(np.mean(error**2) / 2)
        F.append(a * slope * error[:, None])
        D = (a * slope)[:, :, None] * (a * slope)[:, None, :]
        D = D + (a * curve * error[:, None])[:, :, None] * eye
        for s in range(t):
            R_F[t, s] = -alpha * np.mean(D @ T[t, s], axis=0)
        R_F[t, t] = alpha * np.mean(D, axis=0)
        flat = np.concatenate(F, axis=1)
        C_F = alpha * flat.T @ flat / n
        u = (epsilon[:, 1 : t + 2].reshape(n, -1) @ np.linalg.cholesky(C_F + 1e-14 * np.eye(len(C_F))).T)[:, t * p :]
        memory = sum(perp[s] @ R_F[t, s].T for s in range(t + 1))
        perp.append(perp[t] - eta * (F[t] + u + memory))
        for s in range(t + 1):
            past = T[t, s] if s < t else np.zeros((n, p, p))
            inner = D @ (past - (s == t) * eye)
            inner = inner + sum((R_F[t, r] @ T[r, s] for r in range(s + 1, t + 1)), np.zeros((n, p, p)))
            T[t + 1, s] = past - eta * inner
        M = M - eta * alpha * F[t].T @ star / n
        means.append(M)
    return np.array(means), np.array(train)


def test_the_two_forms_of_the_theory_agree() -> None:
    alpha, eta, steps = 3.0, 0.4, 4
    a = np.array([0.9, -0.6])
    M, train = h_form(alpha, eta, a, steps, 14)
    problem = tl.Problem("tanh(z1 + He3(z2))", "erf", width=2, second_layer=2 * a)
    algorithm = tl.SGD(lr=alpha * eta, batch=alpha * d, dataset=alpha * d)
    result = solved(problem, algorithm, ORTHOGONAL, steps)
    np.testing.assert_allclose(result.M[0], M, atol=2e-3)
    np.testing.assert_allclose(result.train_risk[0, :-1], train, atol=1e-3)
    fresh = np.linalg.norm(2 * M[1] - M[2])  # steps shrink by much more than the tolerance
    assert fresh > 0.02
    stein = solved(problem, algorithm, ORTHOGONAL, steps, response="stein")
    assert json.loads(result.attrs["notes"])["response"] == "derivative"
    np.testing.assert_allclose(stein.M, result.M, atol=1e-3)
    # erf on the same samples hardly renews its noise, and integration by parts divides by it: later responses are
    # noisy, and Q feels a little of that
    np.testing.assert_allclose(stein.Q[0, :3], result.Q[0, :3], atol=2e-3)
    np.testing.assert_allclose(stein.R_F[0, :2], result.R_F[0, :2], atol=4e-3)
    assert float(abs(result.R_F[0, 1, 0]).max()) > 0.03


def test_the_published_setting_to_five_in_ten_thousand() -> None:
    """M at step 6 from 8 · 2¹⁸ points, symmetrised over the two neurons: .21491(4), −.17425(5)."""
    result = solved(AUTHORS, FULL, ORTHOGONAL, 6, log2_points=16, replicates=2)
    M = result.M.values[0]
    np.testing.assert_allclose((M[6, 0] - M[6, 1]) / 2, [0.21491, -0.17425], atol=5e-4)
    # the delta function in σ'' counts: without it −η R_F(0, 0)_11 would be 0.75 η
    assert result.R_F.values[0, 0, 0, 0, 0] == pytest.approx(-0.2 * 0.511, abs=2e-4)
    assert (result.M_error.values[0, -1] < 1.5e-3).all() and (result.M_error.values[0, 1:] > 0).all()
    assert json.loads(result.attrs["notes"])["response"] == "stein"
    # kernels: causal, and consistent with the overlaps
    later = np.triu_indices(7, 0)
    assert not result.R_theta.values[0][later].any() and not result.R_F.values[0][np.triu_indices(7, 1)].any()
    Q = result.C_theta.values[0][np.arange(7), np.arange(7)] + np.einsum("tir,tjr->tij", M, M)
    np.testing.assert_allclose(Q, result.Q.values[0], atol=1e-4)  # means of products against products of means
    rows = result.C_theta.values[0].transpose(0, 2, 1, 3).reshape(14, 14)
    assert np.linalg.eigvalsh(rows)[0] > -1e-12


VARIANTS = {
    "everything at once": dict(
        activation="relu", geometry="projected", momentum=0.4, weight_decay=0.1, train_second_layer=True
    ),
    "in sequence": dict(activation="relu", geometry="spherical", batch=d),
    "with replacement": dict(activation="tanh(z + 0.7)", batch=d, sampling="replacement"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_simulations_agree_and_a_theory_without_memory_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number at every step within 5 standard errors."""
    settings: dict[str, Any] = {"lr": 1.5, "batch": 2 * d, "dataset": 2 * d, **VARIANTS[name]}
    gram = [[1.0, 0.3], [0.3, 1.0]]
    problem = tl.Problem(
        "z1*z2 + z1", settings.pop("activation"), width=2, second_layer=[1.5, -1.2], noise=0.1, gram=gram
    )
    algorithm = tl.SGD(**settings)
    start = tl.Overlaps([[1.0, 0.2], [0.2, 1.0]], [[0.3, 0.0], [0.0, -0.2]], gram)
    n, dim, steps = 24, 300, 4
    runs = tl.solve(problem, algorithm, tl.Vectors(dim), start, steps=steps, save=steps, seeds=n)

    def worst(theory: xr.Dataset) -> float:
        found = 0.0
        for quantity in ("M", "Q", "train_risk", "risk"):
            values, error = runs[quantity].values[:, 1:], theory[f"{quantity}_error"].values[0, 1:]
            spread = np.sqrt(values.var(0, ddof=1) / n + error**2) + 1e-9
            found = max(found, float(np.abs((values.mean(0) - theory[quantity].values[0, 1:]) / spread).max()))
        return found

    assert worst(solved(problem, algorithm, start, steps)) < 5
    # the fields without their own past
    monkeypatch.setattr(dmft_weights.Weights, "R_theta", property(lambda self: np.zeros_like(self.X)))
    assert worst(solved(problem, algorithm, start, steps, log2_points=10)) > 8


def test_starts_thresholds_divergence_and_files(tmp_path: Path) -> None:
    problem = tl.Problem("z1", "relu", second_layer=[1.0])
    both = tl.Overlaps([[[1.0]], [[1.0]]], [[[0.1]], [[0.5]]])
    algorithm = tl.SGD(lr=0.5, batch=4 * d, dataset=4 * d)
    quick = tl.DMFT(log2_points=9, replicates=1)
    run = tl.solve(problem, algorithm, quick, both, time=3.0, save=[1.0, 3.0])
    assert run.step.values.tolist() == [2.0, 6.0] and run.time.values.tolist() == [1.0, 3.0]
    assert run.sample.attrs["units"] == "d**1" and run.alpha.values[-1] == 24.0
    assert "M_error" not in run
    again = tl.rerun(tl.load(tl.save(run, tmp_path / "run.nc")))
    for name in ("M", "train_risk", "C_theta", "R_F"):
        np.testing.assert_array_equal(again[name], run[name])
    alone = tl.solve(problem, algorithm, quick, tl.Overlaps([[1.0]], [[0.5]]), time=3.0, save=[1.0, 3.0])
    np.testing.assert_allclose(alone.M[0], run.M[1], rtol=1e-12)
    reached = tl.solve(problem, algorithm, quick, both, steps=6, save=6, until=tl.Until("overlap", 0.4))
    assert set(reached.outcome.values) == {"reached"}
    step = float(reached.stop_step[0])
    m = run_overlaps = tl.solve(problem, algorithm, quick, both, steps=6, save=6).M.values[0, :, 0, 0]
    i = int(np.argmax(run_overlaps >= 0.4))
    assert step == pytest.approx(i - 1 + (0.4 - m[i - 1]) / (m[i] - m[i - 1]))
    wild = tl.SGD(lr=200.0, batch=d, dataset=d)
    with pytest.warns(tl.DivergenceWarning):
        lost = tl.solve(tl.Problem("z1", "square"), wild, quick, tl.Overlaps([[1.0]], [[0.1]]), steps=3, save=3)
    assert lost.outcome.values.tolist() == ["diverged"] and np.isfinite(lost.M).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(lr=0.5, batch=2 * d), "GiantSteps"),
        (dict(lr=0.5 / d, batch=2 * d, dataset=2 * d), "order one"),
        (dict(lr=0.5, batch=10, dataset=2 * d), "proportional to d"),
        (dict(lr=0.5, batch=2 * d**1.5, dataset=2 * d**1.5), "proportional to d"),
    ],
)
def test_what_it_cannot_do_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(tl.Refused, match="DMFT cannot do this") as no:
        tl.solve(AUTHORS, tl.SGD(**settings), tl.DMFT(), ORTHOGONAL, steps=2)
    assert words in str(no.value)


@pytest.mark.parametrize("knobs", [{"log2_points": 3}, {"replicates": 0}, {"response": "sten"}, {"points": "sobl"}])
def test_bad_knobs_are_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(tl.InputError, match=next(iter(knobs))):
        tl.DMFT(**knobs)


def test_kernels_that_are_no_covariance_are_named() -> None:
    C = np.array([[1.0, 2.0], [2.0, 1.0]]).reshape(2, 2, 1, 1)
    L = np.zeros_like(C)
    L[0, :1] = dmft_weights.next_row(C, L, 0)
    with pytest.raises(tl.RunFailed, match=r"stopped being positive at step 1 \(smallest eigenvalue -3"):
        dmft_weights.next_row(C, L, 1)
    with pytest.raises(tl.RunFailed, match="stopped being positive"):
        dmft_weights.next_row(np.full((1, 1, 2, 2), np.nan), np.zeros((1, 1, 2, 2)), 0)


def test_coincident_neurons_are_no_obstacle() -> None:
    """Singular kernels: two equal neurons move as one of twice the weight."""
    one = solved(tl.Problem("z1", "relu"), FULL, tl.Overlaps([[1.0]], [[0.2]]), 3)
    two = tl.Overlaps(np.ones((2, 2)), np.full((2, 1), 0.2))
    pair = solved(tl.Problem("z1", "relu", width=2), FULL.replace(lr=1.2), two, 3)
    np.testing.assert_allclose(pair.M[0, :, 0], one.M[0, :, 0], atol=2e-3)
    np.testing.assert_allclose(pair.M[0, :, 0], pair.M[0, :, 1], atol=1e-9)


def test_random_points_are_worse_but_unbiased() -> None:
    results = {kind: solved(AUTHORS, FULL, ORTHOGONAL, 2, points=kind) for kind in ("sobol", "random")}
    error = {kind: float(result.M_error[0, -1].max()) for kind, result in results.items()}
    assert error["sobol"] < error["random"] / 3
    gap = np.abs(results["sobol"].M - results["random"].M)[0, -1].values
    assert (gap < 8 * results["random"].M_error[0, -1].values.max()).all()
    risk = {kind: (float(result.risk[0, -1]), float(result.risk_error[0, -1])) for kind, result in results.items()}
    assert 0 < risk["sobol"][1] < risk["random"][1] < 0.01
    assert abs(risk["sobol"][0] - risk["random"][0]) < 8 * risk["random"][1]


def test_blocks_are_solved_against_the_dense_matrix() -> None:
    rng = np.random.default_rng(0)
    t, p = 3, 2
    x = rng.normal(size=(t * p, 20))
    C = (x @ x.T).reshape(t, p, t, p).transpose(0, 2, 1, 3)
    L = np.zeros((t, t, p, p))
    for s in range(t):
        L[s, : s + 1] = dmft_weights.next_row(C, L, s)
    dense = lambda blocks: blocks.transpose(0, 2, 1, 3).reshape(t * p, t * p)  # noqa: E731
    np.testing.assert_allclose(dense(L) @ dense(L).T, x @ x.T, rtol=1e-10)
    R = rng.normal(size=(t, p, p))
    B = np.array([sum(R[r] @ L[r, s] for r in range(s, t)) for s in range(t)])
    np.testing.assert_allclose(dmft_weights.right_solve(B, L), R, rtol=1e-9)
    assert all(not L[s, r].any() for s, r in itertools.combinations(range(t), 2))


def test_cost_and_size_grow_as_they_say() -> None:
    task = tl.solving.make_task(AUTHORS, FULL, tl.DMFT(), ORTHOGONAL, steps=10)
    longer = tl.solving.make_task(AUTHORS, FULL, tl.DMFT(), ORTHOGONAL, steps=20)
    assert 3 < tl.DMFT().cost(longer) / tl.DMFT().cost(task) < 5
    assert 1.7 < tl.DMFT().footprint(longer) / tl.DMFT().footprint(task) < 2.1
    assert dmft.DMFT(response="derivative").cost(task) > dmft.DMFT().cost(task)
    held = [dmft.DMFT(response=kind).footprint(task) for kind in ("derivative", "stein")]
    assert held[0] / held[1] == pytest.approx(1 + 3 * task.problem.p / 4, rel=0.01)  # slopes are p times the pushes
