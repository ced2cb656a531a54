"""How a step fluctuates: the covariances behind diffusion, bands, means of ratios and Gaussian sums, by other routes.

Products of Gauss–Hermite nodes in NumPy where all is polynomial, else many runs of the chain, whose law
`test_plain_sgd.py` holds against the definition.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas
from plain_sgd import compared, entries_of, features, rows_of

import twolayer as tl
from twolayer import d
from twolayer.functions.activation import Activation
from twolayer.gaussian.closed_forms import forms_of
from twolayer.gaussian.increment_covariance import spread_of
from twolayer.gaussian.two_point import cross_pair
from twolayer.task.inputs import Inputs

UNIT, M = [[1.0, 0.3], [0.3, 1.0]], [[0.5], [-0.3]]
A = np.array([1.5, -0.8])


def hermite_grid(n: int, fields: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (N, fields) and weights of N(0, I)."""
    x, w = np.polynomial.hermite_e.hermegauss(n)
    grid = np.stack(np.meshgrid(*[x] * fields, indexing="ij"), -1).reshape(-1, fields)
    weights = np.prod(np.meshgrid(*[w / w.sum()] * fields, indexing="ij"), axis=0)
    return grid, weights.ravel()


POLYNOMIALS: dict[str, Any] = {
    "z1**2 - 0.3*z1*z2 + 0.2, He2": (
        lambda x: x**2 - 1,
        lambda x: 2 * x,
        lambda z, t: z**2 - 0.3 * z * t + 0.2,
    ),
    "z1*z2 + z1, z**2 + z": (
        lambda x: x**2 + x,
        lambda x: 2 * x + 1,
        lambda z, t: z * t + z,
    ),
}


@pytest.mark.parametrize("name", POLYNOMIALS)
@pytest.mark.parametrize("loss", ["squared", "correlation"])
def test_the_covariance_of_one_sample(name: str, loss: str) -> None:
    """Cov of (g λ*, g λ + λ g + ρ g g, e σ) by products of Hermite nodes: the closed form, and the nodes."""
    target, activation = name.split(", ")
    value, slope, h = POLYNOMIALS[name]
    P, rho, noise = np.array([[1.0, 0.3], [0.3, 0.8]]), 0.3, 0.4
    Q, cross = np.array([[1.2, 0.3], [0.3, 0.7]]), np.array([[0.5, 0.2], [-0.3, 0.1]])
    problem = tl.Problem(target, activation, width=2, noise=noise, gram=P)
    spread = spread_of(problem, tl.SGD(0.1 / d, loss=loss, train_second_layer=True))
    with jax.enable_x64(True):
        found = np.asarray(
            eqx.filter_jit(
                lambda s: s(jnp.asarray(Q), jnp.asarray(cross), A, noise, rho)
            )(spread)
        )
    xi, w = hermite_grid(8, 5)
    W, star = rows_of(Q, cross, P, 4)
    lam, target_field = xi[:, :4] @ W.T, xi[:, :4] @ star.T
    f = value(lam) @ A / 2
    e = (
        h(*target_field.T)
        + np.sqrt(noise) * xi[:, 4]
        - (f if loss == "squared" else 0.0)
    )
    g = A * slope(lam) * e[:, None]
    mixed = g[:, :, None] * lam[:, None, :]
    square = mixed + mixed.swapaxes(1, 2) + rho * g[:, :, None] * g[:, None, :]
    j, l = np.triu_indices(2)
    X = np.concatenate(
        [
            (g[:, :, None] * target_field[:, None, :]).reshape(-1, 4),
            square[:, j, l],
            value(lam) * e[:, None],
        ],
        axis=1,
    )
    X = X - w @ X
    expected = (w[:, None] * X).T @ X
    np.testing.assert_allclose(
        found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max()
    )


SMOOTH = tl.Problem("tanh(z1)", "erf", width=2, second_layer=list(A))
STEPS = {
    "free, both layers": (
        tl.SGD(1 / d, 2, train_second_layer=True, second_lr=0.6 / d, weight_decay=0.2),
        {},
    ),
    "projected": (tl.SGD(1 / d, geometry="projected"), {}),
    "sum": (tl.SGD(0.5 / d, train_second_layer=True), {"normalisation": "sum"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_the_noise_of_one_step(name: str) -> None:
    """One step of SGD in one step of the diffusion: mean and covariance of all overlaps are those of the chain."""
    algorithm, change = STEPS[name]
    problem, start = SMOOTH.replace(**change), tl.Overlaps(UNIT, M)
    runs = [
        entries_of(
            tl.solve(problem, algorithm, method, start, steps=1, save=[1], seeds=6000)
        )
        for method in (tl.SDE(4000, dt=1e-9), tl.Chain(4000))
    ]
    compared(*runs, name)


def blocks_of(run: Any) -> np.ndarray:
    """All overlaps in blocks at the end, (seeds, n)."""
    Q, cross = run.Q_block.values[:, -1], run.M_block.values[:, -1]
    parts = [features(Q[:, i], cross[:, i], Q[:, i, 0, :1]) for i in range(2)]
    return np.concatenate([x[:, :-1] for x in parts], axis=1)


@pytest.mark.slow
def test_the_noise_of_one_step_in_blocks() -> None:
    """The same for every block of the inputs, and between blocks."""
    problem = SMOOTH.replace(inputs=Inputs.blocks([1.6, 0.4], [0.4, 0.6]))
    start = tl.Overlaps(
        [[[0.6, 0.1], [0.1, 0.3]], [[0.4, 0.2], [0.2, 0.7]]],
        [[[0.3], [-0.2]], [[0.1], [0.4]]],
        [[[0.5]], [[0.5]]],
    )
    runs = [
        blocks_of(
            tl.solve(
                problem, tl.SGD(1 / d, 2), method, start, steps=1, save=[1], seeds=6000
            )
        )
        for method in (tl.SDE(4000, dt=1e-9), tl.Chain(4000))
    ]
    compared(*runs, "blocks")


@pytest.mark.slow
@pytest.mark.parametrize("geometry", ["projected", "spherical"])
def test_the_mean_of_ratios(geometry: str) -> None:
    """What `Map` adds for the mean of M'/√Q' is the difference of means in NumPy, from one and the same samples."""
    dim, batch, lr, seeds = 12, 100, 0.1, 30_000
    problem = tl.Problem("He2(z1)", "He2", width=2, noise=0.3, second_layer=[1.0, -0.6])
    algorithm, start = tl.SGD(lr, batch, geometry=geometry), tl.Overlaps(UNIT, M)
    with_it, without = (
        tl.solve(problem, algorithm, method, start, steps=1, save=1)
        for method in (tl.Map(dim), tl.Map(dim, without="ratio"))
    )
    W, star = rows_of(np.array(UNIT), np.array(M), np.eye(1), dim)
    rng, rows = np.random.default_rng(3), []
    for _ in range(30):
        x = rng.normal(size=(seeds // 30, batch, dim))
        lam, y = (
            x @ W.T,
            (x @ star.T)[..., 0] ** 2 - 1 + np.sqrt(0.3) * rng.normal(size=x.shape[:2]),
        )
        e = y - (lam**2 - 1) @ np.array([1.0, -0.6]) / 2
        g = np.array([1.0, -0.6]) * 2 * lam * e[..., None]
        push = g.swapaxes(1, 2) @ x / batch
        if geometry == "spherical":
            push = push - W * (push * W).sum(-1, keepdims=True)
        rows.append(W + lr / 2 * push)
    new = np.concatenate(rows)
    cross, gram = new @ star.T, new @ new.swapaxes(1, 2)
    norm = np.sqrt(np.diagonal(gram, axis1=1, axis2=2))
    mean = np.sqrt(np.diagonal(gram.mean(0)))
    for name, single, plain in (
        ("M", cross / norm[:, :, None], cross.mean(0) / mean[:, None]),
        (
            "Q",
            gram / (norm[:, :, None] * norm[:, None, :]),
            gram.mean(0) / np.outer(mean, mean),
        ),
    ):
        j, l = (0, 1), ((0, 0) if name == "M" else (1, 0))
        expected = (single.mean(0) - plain)[j, l]
        found = (with_it[name].values[0, -1] - without[name].values[0, -1])[j, l]
        # the samples' fluctuations of first order average out in the difference of the two means
        first = single if name == "M" else gram
        halves = [
            (single[i::10].mean(0) - (cross if name == "M" else gram)[i::10].mean(0)
             / (np.sqrt(np.diagonal(gram[i::10].mean(0)))[:, None]
                if name == "M" else np.outer(*2 * [np.sqrt(np.diagonal(gram[i::10].mean(0)))])))[j, l]
            for i in range(10)
        ]  # fmt: skip
        error = np.std(halves, axis=0, ddof=1) / np.sqrt(10)
        assert first.shape[0] == len(new)
        room = 0.12 * np.abs(expected).max()  # terms of third order
        assert (np.abs(found - expected) < sigmas(2, 9) * error + room).all(), (
            name,
            found,
            expected,
            error,
        )
        assert np.abs(expected).max() > 5 * error.max()


def test_the_band_of_one_giant_step() -> None:
    """Standard deviations of two steps times √d, of free and of projected rows, against runs at d = 800."""
    problem = tl.Problem(
        "z1**2 + z1", "z**2 + z", width=2, noise=0.2, second_layer=[1.0, -0.6]
    )
    algorithm, start, dim, seeds = (
        tl.SGD(0.1, 2 * d, geometry="projected"),
        tl.Overlaps(UNIT, M),
        800,
        1500,
    )
    theory = tl.solve(
        problem, algorithm, tl.GiantSteps(band=True), start, steps=2, save=[1, 2]
    )
    runs = tl.solve(
        problem, algorithm, tl.Chain(dim), start, steps=2, save=[1, 2], seeds=seeds
    )
    for step in (0, 1):
        found = [
            theory.M_band.values[0, step].ravel(),
            theory.Q_band.values[0, step, 0, 1:],
        ]
        seen = [
            runs.M.values[:, step].std(0, ddof=1).ravel(),
            runs.Q.values[:, step, 0, 1:].std(0, ddof=1),
        ]
        for ours, theirs in zip(found, seen, strict=True):
            ratio = theirs * np.sqrt(dim) / ours
            assert (
                np.abs(np.log(ratio)) < sigmas(6) / np.sqrt(2 * seeds) + 0.04
            ).all(), (step, ratio)


@pytest.mark.slow
def test_gaussian_sums_have_the_moments_of_a_batch() -> None:
    """One step on 300 samples: drawn one by one, or from the Gaussian limit of their sums."""
    algorithm, start = tl.SGD(1.0, 300, train_second_layer=True), tl.Overlaps(UNIT, M)
    runs = [
        entries_of(
            tl.solve(SMOOTH, algorithm, method, start, steps=1, save=[1], seeds=3000)
        )
        for method in (
            tl.Chain(40, batch_sums="gaussian"),
            tl.Chain(40, batch_sums="exact"),
        )
    ]
    compared(*runs, "Gaussian sums", within=0.01)


@pytest.mark.usefixtures("x64")
def test_kinked_pairs_by_panels_have_their_closed_forms() -> None:
    """E[f g], E[f' g'] and E[f'' g] of two rectifiers."""
    f, C = Activation.of("relu"), (1.3, -0.6, 0.8)
    one = forms_of(f, 12).pair_with(forms_of(Activation.of("leaky_relu"), 12))
    assert one is not None
    closed, panels = (
        one(*C),
        cross_pair(f, Activation.of("leaky_relu"), 12, *map(jnp.asarray, C)),
    )
    for ours, theirs in zip(closed, panels, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)


@pytest.mark.slow
def test_the_noise_of_many_steps_in_one() -> None:
    """A time step of the diffusion that stands for 40 steps of SGD with momentum: mean and spread after 40 and 80."""
    problem, start, dim = SMOOTH.replace(noise=0.3), tl.Overlaps(UNIT, M), 2000
    algorithm = tl.SGD(
        2 / d, 2, geometry="free", weight_decay=0.3, train_second_layer=True
    )
    method = tl.SDE(dim, dt=40 * 2 / dim / 2)
    assert method.stride(problem, algorithm) == 40
    for steps in (40, 400):
        diffusion, chain = (
            entries_of(
                tl.solve(
                    problem,
                    algorithm,
                    method,
                    start,
                    steps=steps,
                    save=[steps],
                    seeds=4000,
                )
            )
            for method in (method, tl.Chain(dim))
        )
        moved, origin = (
            chain.mean(0),
            features(np.array([UNIT]), np.array([M]), A[None])[0],
        )
        gap = np.abs(diffusion.mean(0) - moved)
        error = np.hypot(diffusion.std(0), chain.std(0)) / np.sqrt(4000)
        assert (gap < sigmas(7) * error + 0.02 * np.abs(moved - origin).max()).all(), (
            gap,
            moved - origin,
        )
        ratio = np.log(diffusion.std(0) / chain.std(0))
        assert (np.abs(ratio) < sigmas(7) * np.sqrt(1.5 / 4000) + 0.06).all(), ratio


@pytest.mark.slow
def test_the_noise_of_a_schedule() -> None:
    """With lr halved after 60 of 120 steps, and batches of three from then on: the spread is that of the chain."""
    problem, start, dim = SMOOTH, tl.Overlaps(UNIT, M), 1000
    lr = "2/d * piecewise(at=[60], values=[1, 0.5])"
    diffusion, chain = (
        entries_of(
            tl.solve(
                problem, tl.SGD(lr), method, start, steps=160, save=[160], seeds=3000
            )
        )
        for method in (tl.SDE(dim, dt=20 * 2 / dim / 2), tl.Chain(dim))
    )
    moves = chain.std(0) > 1e-9
    ratio = np.log(diffusion.std(0)[moves] / chain.std(0)[moves])
    assert (np.abs(ratio) < sigmas(5) * np.sqrt(1.0 / 3000) + 0.06).all(), ratio


@pytest.mark.slow
def test_streamed_batches_are_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 24 in chunks of five: the law of the same batch at once."""
    from twolayer.methods import chain

    algorithm, start = (
        tl.SGD(2.0, 24, train_second_layer=True, momentum=0.2),
        tl.Overlaps(UNIT, M),
    )

    def ends() -> np.ndarray:
        return entries_of(
            tl.solve(
                SMOOTH, algorithm, tl.Chain(12), start, steps=1, save=[1], seeds=5000
            )
        )

    whole = ends()
    monkeypatch.setattr(chain, "SAMPLES_AT_ONCE", 5 * 4)
    compared(ends(), whole, "streamed")
