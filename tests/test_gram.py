"""Targets whose directions overlap: exponents, thresholds, phase diagrams and what is learned, for several Gram matrices.

The witness takes another frame, P = S Sᵀ with S from the eigenvectors of P, and averages on Gauss–Hermite nodes over it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

import twolayer as tl
from twolayer import d
from twolayer.analysis.stability.plateaus import _order as order_of_learning

Function = Callable[..., Any]


def he3(x: Any) -> Any:
    return x**3 - 3 * x


PAIR = [[1.0, 0.6], [0.6, 1.0]]
SAME = [[1.0, 1.0], [1.0, 1.0]]
OPPOSITE = [[1.0, -1.0], [-1.0, 1.0]]
LONG = [[2.0, -0.5], [-0.5, 0.3]]
THREE = [[1.0, 0.5, 0.2], [0.5, 1.0, -0.3], [0.2, -0.3, 1.5]]
SUM = [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0]]  # z3 = z1 + z2
BLOCK = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.5, 1.0]]

CASES: dict[str, tuple[str, Function, list[list[float]]]] = {
    "overlap": ("z1 + He3(z2)", lambda z: z[0] + he3(z[1]), PAIR),
    "same": ("z1 + He3(z2)", lambda z: z[0] + he3(z[1]), SAME),
    "cancels": ("z1 + He3(z2) + z2", lambda z: z[0] + he3(z[1]) + z[1], OPPOSITE),
    "long": ("z1*He2(z2)", lambda z: z[0] * (z[1] ** 2 - 1), LONG),
    "product": ("z1*z2", lambda z: z[0] * z[1], PAIR),
    "three": ("z1*z2*z3", lambda z: z[0] * z[1] * z[2], THREE),
    "staircase": ("z1 + z2*z3", lambda z: z[0] + z[1] * z[2], THREE),
    "sum": ("z1 + z2*z3", lambda z: z[0] + z[1] * z[2], SUM),
    "one pair": ("z1 + z1*z2*z3", lambda z: z[0] + z[0] * z[1] * z[2], BLOCK),
}


def frame_of(P: list[list[float]]) -> np.ndarray:
    """S (k, r), P = S Sᵀ."""
    values, vectors = np.linalg.eigh(np.array(P))
    kept = values > 1e-9
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def chain_of(h: Function, P: list[list[float]]) -> list[tuple[int, np.ndarray]]:
    """Order and projector on the new directions of every leap, in the frame S."""
    S = frame_of(P)
    r = S.shape[1]
    x, w = np.polynomial.hermite_e.hermegauss(12)
    u = np.stack(np.meshgrid(*[x] * r, indexing="ij"), -1).reshape(-1, r)
    weights = np.prod(np.meshgrid(*[w / w.sum()] * r, indexing="ij"), axis=0).ravel()
    y = h((u @ S.T).T) * weights
    known, chain = np.zeros((r, r)), []
    while np.linalg.matrix_rank(known, tol=1e-6) < r:
        values, vectors = np.linalg.eigh(np.eye(r) - known)
        hidden = vectors[:, values > 0.5]
        inside = u @ np.linalg.eigh(known)[1][:, np.linalg.eigh(known)[0] > 0.5]
        v = u @ hidden
        # functions of what is known: all monomials up to degree 3
        degrees = itertools.product(range(4), repeat=inside.shape[1])
        psi = [np.prod(inside ** np.array(n), axis=1) for n in degrees if sum(n) <= 3]
        for q in range(1, 6):
            moments = []
            for index in itertools.product(range(v.shape[1]), repeat=q):
                count = [index.count(i) for i in range(v.shape[1])]
                he = [np.polynomial.hermite_e.HermiteE.basis(n) for n in count]
                value = math.prod(f(v[:, i]) for i, f in enumerate(he)) * y
                moments.append([(value * f).sum() for f in psi])
            tensor = np.array(moments).reshape(v.shape[1], -1)
            if np.abs(tensor).max() > 1e-8:
                break
        else:
            return chain
        left, size, _ = np.linalg.svd(tensor, full_matrices=False)
        new = hidden @ left[:, size > 1e-6 * size[0]]
        chain.append((q, new @ new.T))
        known = known + new @ new.T
    return chain


def in_frame(directions: np.ndarray, L: np.ndarray, S: np.ndarray) -> np.ndarray:
    """The projector on directions of the frame L, seen from the frame S: L u = S u'."""
    turn = np.linalg.pinv(S) @ L
    np.testing.assert_allclose(turn @ turn.T, np.eye(len(turn)), atol=1e-8)
    rows = directions @ turn.T
    return np.asarray(rows.T @ rows)


@pytest.mark.parametrize("name", CASES)
def test_the_leap_chain(name: str) -> None:
    """Orders, numbers of directions and the directions themselves; and ℓ of the phase diagram."""
    text, h, P = CASES[name]
    expected = chain_of(h, P)
    found = tl.analyse(text, gram=P)
    assert [q for q, _ in found.chain] == [q for q, _ in expected]
    assert found.leap == max(q for q, _ in expected)
    begin, S = 0, frame_of(P)
    for (_, count), (_, projector) in zip(found.chain, expected, strict=True):
        rows = found.directions[begin : begin + count]
        np.testing.assert_allclose(in_frame(rows, found.frame, S), projector, atol=1e-6)
        begin += count
    assert begin + len(found.unused) == len(S.T)
    assert tl.phase_diagram(text, gram=P).ell == found.information == expected[0][0]
    problem = tl.Problem(text, "tanh(z + 0.7)", gram=P)
    assert tl.phase_diagram(problem).ell == expected[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_learned_moves_in_the_map(name: str) -> None:
    """Fresh batches climb order one of that chain: `learnable`, the staircase, and the map from rows that know nothing."""
    text, h, P = CASES[name]
    chain = chain_of(h, P)
    S, k = frame_of(P), len(P)
    problem = tl.Problem(text, "tanh(z + 0.7)", 2, second_layer=[1.0, -1.2], gram=P)
    algorithm = tl.SGD(1.0, batch=3 * d)
    found = tl.learnable(problem, algorithm)
    steps = list(itertools.takewhile(lambda x: x[0] == 1, chain))
    L = tl.analyse(problem).frame
    for step, (_, projector) in enumerate(steps, start=1):
        rows = found.directions[[s == step for s in found.steps]]
        np.testing.assert_allclose(in_frame(rows, L, S), projector, atol=5e-3)
    assert sorted(s for s in found.steps if s) == sorted(
        step
        for step, (_, projector) in enumerate(steps, start=1)
        for _ in range(round(np.trace(projector)))
    )
    assert sorted(tl.analyse(problem).staircase("tanh(z + 0.7)"), key=str) == sorted(
        found.steps, key=str
    )
    start = tl.Overlaps(np.eye(2), np.zeros((2, k)), P)
    run = tl.solve(
        problem,
        algorithm,
        tl.GiantSteps(averages=tl.Averages(accuracy=1e-3)),
        start,
        steps=3,
        save=3,
    )
    overlap = run.M.values[0] @ np.linalg.pinv(S).T  # with the axes of S
    # what sampled averages leave in the overlaps, as the run says it
    error = json.loads(run.attrs["notes"]).get("overlap_error", 0.0)
    known = np.zeros((len(S.T), len(S.T)))
    for step in range(1, 4):
        known = known + (steps[step - 1][1] if step <= len(steps) else 0 * known)
        inside = overlap[step] @ known
        scale = np.abs(overlap[step]).max() + 1e-3
        assert np.abs(overlap[step] - inside).max() < 2e-3 * scale + error
        if step <= len(steps):
            moved = np.linalg.norm(overlap[step] @ steps[step - 1][1])
            assert moved > 5e-4


def test_products_of_coinciding_directions_are_squares() -> None:
    """z1 z2 with z1 = z2 is phase retrieval, whose threshold without noise is ½; and He2 plus a constant."""
    found = tl.thresholds("z1*z2", gram=SAME)
    assert found.alpha == pytest.approx(0.5, rel=1e-3)
    assert tl.thresholds("z1**2").alpha == pytest.approx(found.alpha, rel=1e-6)
    assert found.frame.tolist() == [[1.0], [1.0]]


@pytest.mark.slow
def test_the_threshold_of_overlapping_directions_by_samples() -> None:
    """1/α_c is the largest eigenvalue of M ↦ E[G M G], G = E[u uᵀ − 1 | y]: bins of y in another frame."""
    P, noise = [[1.0, 0.8], [0.8, 1.0]], 0.05
    found = tl.thresholds("z1*z2", noise, gram=P)
    S, rng = frame_of(P), np.random.default_rng(4)
    u = rng.normal(size=(2_000_000, 2))
    y = np.prod(u @ S.T, axis=1) + np.sqrt(noise) * rng.normal(size=len(u))
    order = np.argsort(y)
    square = (u[:, :, None] * u[:, None, :] - np.eye(2))[order]
    G = square.reshape(2000, -1, 2, 2).mean(1)
    # of each bin the noise of its mean square, which does not shrink with the bins
    operator = np.einsum("nab,ncd->acbd", G, G).reshape(4, 4) / len(G)
    noise_of_bins = (
        np.einsum("nab,ncd->acbd", square[:20000], square[:20000]).reshape(4, 4)
        / 20000
        / 1000
    )
    largest = np.linalg.eigvalsh((operator + operator.T) / 2)[-1]
    room = np.abs(noise_of_bins).max() * 3
    assert abs(1 / found.alpha - largest) < room + 0.01 * largest
    assert abs(tl.thresholds("z1*z2", noise).alpha / found.alpha - 1) > 0.2


@pytest.mark.slow
def test_starts_are_turned_along_the_first_drift() -> None:
    """Of z1 + He3(z2) at P12 = .6 the drift at m = 0 is along w*_1; turned rows have it positive."""
    from twolayer.analysis.weak_recovery import oriented

    problem = tl.Problem("z1 + He3(z2)", "tanh(z + 0.7)", 2, gram=PAIR)
    starts = tl.Overlaps.random(problem, 500, 0, size=40)
    turned = oriented(problem, starts)
    # c_1 > 0 and a = 1: E[y z] = w*_1 alone
    assert (turned.M[:, :, 0] > 0).all()
    np.testing.assert_allclose(np.abs(turned.M), np.abs(starts.M))
    assert (oriented(problem, starts, away=True).M[:, :, 0] < 0).all()


@pytest.mark.parametrize("turned", [False, True])
def test_the_order_of_learning_is_that_of_the_frame(turned: bool) -> None:
    """A row that turns to the first axis of the frame at t = 1 and one that turns to the second at t = 2."""
    problem = tl.Problem("z1 + He2(z1)*z2", "tanh(z + 0.7)", 2, gram=PAIR)
    seen = tl.analyse(problem)
    assert seen.chain == [(1, 1), (1, 1)]
    first, second = seen.directions[::-1] if turned else seen.directions
    nothing = 0 * first
    rows = [[nothing, nothing], [first, nothing], [first, second]]
    M = np.array(rows) @ seen.frame.T
    run = xr.Dataset(
        {
            "Q": (("time", "neuron", "neuron_"), np.tile(np.eye(2), (3, 1, 1))),
            "M": (("time", "neuron", "direction"), M),
        }
    )
    learned, chain, kept = order_of_learning(problem, run, np.array([0.0, 1.0, 2.0]))
    assert chain == seen.chain
    assert (learned, kept) == (([2.0, 1.0], False) if turned else ([1.0, 2.0], True))
