"""SGD in d dimensions as it is defined, in plain NumPy, for many seeds at once: the witness of every method.

    y = h(W* x) + √Δ ξ,    f = (1/N) Σ_j a_j σ(w_j·x),    e = y − f,    x ~ N(0, diag s)
    heavy ball   W' = κ W + η ḡ + β (W − W₋),            a' = a + η₂ s̄ + β (a − a₋)
    Nesterov     the same from Y = W + β (W − W₋), without the last term
    private      ḡ gains ς times a standard normal matrix;    spherical: ḡ_j loses its part along w_j
    projected, spherical: rows are divided by their norms

Nothing of the package is used but the numbers in the description of a task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from chance import sigmas
from scipy.special import erf

import twolayer as tl

ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "erf": (
        lambda x: erf(x / np.sqrt(2)),
        lambda x: np.sqrt(2 / np.pi) * np.exp(-(x**2) / 2),
    ),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "relu": (lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0)),
    "linear": (lambda x: x, np.ones_like),
    "square": (lambda x: x**2, lambda x: 2 * x),
}


class Setting(NamedTuple):
    """A task and its target in NumPy; ``ς`` is that of a private rule, ``s`` the variance of every coordinate."""

    problem: tl.Problem
    algorithm: tl.SGD
    start: tl.Overlaps
    h: Callable[..., Any]
    jitter: float = 0.0
    s: np.ndarray | None = None


def rows_of(
    Q: np.ndarray, M: np.ndarray, P: np.ndarray, dim: int
) -> tuple[np.ndarray, np.ndarray]:
    """W (p, d) and W* (k, d) with these overlaps."""
    p, k = M.shape
    L = np.linalg.cholesky(P)
    A = np.linalg.solve(L, M.T).T
    values, vectors = np.linalg.eigh(Q - A @ A.T)
    W, star = np.zeros((p, dim)), np.zeros((k, dim))
    B = vectors * np.sqrt(np.maximum(values, 0))
    W[:, :k], W[:, k : k + p] = A, B[:, : dim - k]
    star[:, :k] = L
    return W, star


def placed(setting: Setting, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a start, block after block where inputs have blocks."""
    start = setting.start
    if setting.problem.inputs.plain:
        return rows_of(start.Q, start.M, start.P, dim)
    sizes = setting.problem.inputs.sizes(dim)
    parts = [
        rows_of(Q, M, P, n)
        for Q, M, P, n in zip(start.Q, start.M, start.P, sizes, strict=True)
    ]
    return np.concatenate([W for W, _ in parts], axis=1), np.concatenate(
        [star for _, star in parts], axis=1
    )


def plain_runs(
    setting: Setting, dim: int, steps: int, seeds: int, seed: int = 5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q (seeds, p, p), M (seeds, p, k) and a (seeds, p) of the fields after some steps."""
    problem, algorithm = setting.problem, setting.algorithm
    value, slope = ACTIVATIONS[problem.activation.name]
    rng, p = np.random.default_rng(seed), problem.p
    N = {"mean": p, "sum": 1, "sqrt": np.sqrt(p)}[problem.normalisation]
    lr, count, beta = algorithm.lr(dim), algorithm.batch_at(dim), algorithm.momentum
    second = (algorithm.second_lr or algorithm.lr)(dim) * algorithm.train_second_layer
    shrink = 1 - lr * algorithm.weight_decay
    s = np.ones(dim) if setting.s is None else setting.s
    W0, star = placed(setting, dim)
    W = np.broadcast_to(W0, (seeds, p, dim)).copy()
    a = np.broadcast_to(
        setting.start.a if setting.start.a is not None else problem.a(), (seeds, p)
    ).copy()
    W_before, a_before = W.copy(), a.copy()
    for _ in range(steps):
        at, at_a = W, a
        if algorithm.nesterov:
            at, at_a = W + beta * (W - W_before), a + beta * (a - a_before)
        x = rng.normal(size=(seeds, count, dim)) * np.sqrt(s)
        field = np.einsum("tnd,tpd->tnp", x, at)
        y = setting.h(*np.moveaxis(x @ star.T, -1, 0)) + np.sqrt(
            problem.noise
        ) * rng.normal(size=(seeds, count))
        sigma = value(field)
        f = np.einsum("tnp,tp->tn", sigma, at_a) / N
        e = y if algorithm.loss.name == "correlation" else y - f
        g = at_a[:, None] * slope(field) * e[..., None]
        push = np.einsum("tnp,tnd->tpd", g, x) / count
        push += setting.jitter * rng.normal(size=push.shape) if setting.jitter else 0.0
        if algorithm.geometry == "spherical":
            push -= at * ((push * at).sum(-1) / (at * at).sum(-1))[..., None]
        new = shrink * at + lr / N * push
        new_a = at_a + second / N * np.einsum("tnp,tn->tp", sigma, e) / count
        if beta and not algorithm.nesterov:
            new, new_a = new + beta * (W - W_before), new_a + beta * (a - a_before)
        if not algorithm.train_first_layer:
            new = W
        elif algorithm.geometry != "free":
            new = new / np.linalg.norm(new, axis=-1, keepdims=True)
        if not algorithm.train_second_layer:
            new_a = a
        W_before, a_before, W, a = W, a, new, new_a
    scaled = W * s
    return (
        np.einsum("tpd,tqd->tpq", scaled, W),
        np.einsum("tpd,kd->tpk", scaled, star),
        a,
    )


def features(Q: np.ndarray, M: np.ndarray, a: np.ndarray) -> np.ndarray:
    """All entries (seeds, n) of the overlaps."""
    j, l = np.triu_indices(Q.shape[-1])
    return np.concatenate([M.reshape(len(M), -1), Q[:, j, l], a], axis=1)


def compared(
    ours: np.ndarray, theirs: np.ndarray, what: str, within: float = 0.0
) -> None:
    """Means, and means of all products of deviations, of two sets of runs, in standard errors.

    ``within`` is what may differ, relative to the largest mean (of a product) of its kind.
    """
    centre = theirs.mean(0)
    moves = theirs.std(0) > 1e-9
    assert (np.abs(ours - centre).max(0)[~moves] < 1e-8).all(), (
        f"{what}: something moves"
    )
    one, two = ours[:, moves] - centre[moves], theirs[:, moves] - centre[moves]
    pairs = np.triu_indices(one.shape[1])
    scale = np.sqrt(np.outer(two.var(0), two.var(0)))[pairs]
    size = np.concatenate([np.abs(centre[moves]).max() + 0 * centre[moves], scale])
    one, two = (
        np.concatenate([x, (x[:, :, None] * x[:, None, :])[:, *pairs]], axis=1)
        for x in (one, two)
    )
    error = np.sqrt(one.var(0) / len(one) + two.var(0) / len(two))
    gap = np.abs(one.mean(0) - two.mean(0))
    limit = sigmas(gap.size)
    assert (gap < limit * error + within * size).all(), (
        f"{what}: {np.max((gap - within * size) / error):.1f} s.e."
    )


def entries_of(result: Any) -> np.ndarray:
    """The same of a result at its last save point."""
    return features(
        result.Q.values[:, -1], result.M.values[:, -1], result.a.values[:, -1]
    )
