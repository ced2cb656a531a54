"""What the sum over neurons is divided by: one student in other words, and the clocks that go with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chance import sigmas
from cost import sized
from scipy.special import erf

import twolayer as tl
from twolayer import d
from twolayer.functions.normalisation import divisor

WORDS = ("mean", "sum", "sqrt")
W = np.array([[0.5, -0.2, 0.1, 0.3], [-0.1, 0.4, 0.6, 0.0], [0.2, 0.1, -0.3, 0.5]])
LAYER = np.array([1.0, -0.5, 0.8])


def student(word: str, target: Any, activation: str) -> tuple[tl.Problem, tl.Overlaps]:
    """The same function in other words: a second layer that makes up for the factor."""
    layer = LAYER * divisor(word, 3)
    problem = tl.Problem(
        target, activation, width=3, noise=0.1, second_layer=layer, normalisation=word
    )
    return problem, tl.Overlaps.from_weights(W, np.eye(2, 4))


CASES = {
    "chain": (
        tl.Chain(40),
        tl.SGD(lr=0.5 / d, weight_decay=0.1),
        tl.Teacher("erf", 2),
        "erf",
        40,
    ),
    "vectors": (
        tl.Vectors(40),
        tl.SGD(lr=0.5 / d, batch=2),
        tl.Teacher("erf", 2),
        "erf",
        20,
    ),
    "ode": (
        tl.ODE(),
        tl.SGD(lr=0.5 / d, weight_decay=0.1),
        tl.Teacher("erf", 2),
        "erf",
        None,
    ),
    "ode quadratic": (tl.ODE(), tl.SGD(lr=0.05 / d), "z1*z2", "square", None),
    "map": (tl.Map(400), tl.SGD(lr=0.5 / d), tl.Teacher("erf", 2), "erf", 10),
    "giantsteps": (
        tl.GiantSteps(),
        tl.SGD(lr=0.5, batch=2 * d),
        tl.Teacher("erf", 2),
        "erf",
        3,
    ),
    "population": (tl.Population(), tl.SGD(lr=0.5), tl.Teacher("relu", 2), "relu", 10),
    "flow": (
        tl.Population(flow=True),
        tl.SGD(lr=0.5 / d),
        tl.Teacher("erf", 2),
        "erf",
        None,
    ),
    "dmft": (
        tl.DMFT(replicates=2, averages=tl.Averages(points=2**10, accuracy=1.0)),
        tl.SGD(lr=0.5, batch=2 * d, dataset=2 * d),
        tl.Teacher("erf", 2),
        "erf",
        2,
    ),
}


QUICKER = ("ode", "ode quadratic")


@pytest.mark.parametrize(
    "case", sized(CASES, slow=QUICKER, long=set(CASES) - {*QUICKER})
)
def test_a_sum_is_a_mean_with_a_larger_second_layer(case: str) -> None:
    """Equal overlaps and risks at equal steps, to rounding; time runs N times as slow."""
    method, algorithm, target, activation, steps = CASES[case]
    found = []
    for word in WORDS:
        problem, start = student(word, target, activation)
        ends = {"steps": steps} if steps else {"time": 0.9 / divisor(word, 3)}
        found.append(tl.solve(problem, algorithm, method, start, save=3, **ends))
    for other, word in zip(found, WORDS, strict=True):
        for name in ("M", "Q", "risk", "excess_risk"):
            np.testing.assert_allclose(
                other[name], found[0][name], rtol=1e-9, atol=1e-10
            )
        np.testing.assert_allclose(
            other.time * divisor(word, 3), found[0].time * 3, rtol=1e-12
        )
        np.testing.assert_allclose(other.step, found[0].step, rtol=1e-12)


def explicit(
    problem: tl.Problem, lr: float, dim: int, steps: int, seeds: int
) -> np.ndarray:
    """M, Q and a at the end of SGD on both layers, in plain NumPy: f = Σ_j a_j erf(w_j·z/√2)/√3, no factor in h."""
    rng = np.random.default_rng(5)
    ends = []
    for _ in range(seeds):
        rows, a = np.zeros((3, dim)), LAYER.copy()
        rows[:, :4] = W
        for _ in range(steps):
            z = rng.normal(size=dim)
            fields = rows @ z
            sigma, slope = (
                erf(fields / np.sqrt(2)),
                np.sqrt(2 / np.pi) * np.exp(-(fields**2) / 2),
            )
            e = (
                erf(z[:2] / np.sqrt(2)).sum()
                + np.sqrt(problem.noise) * rng.normal()
                - a @ sigma / np.sqrt(3)
            )
            rows, a = (
                rows + lr / np.sqrt(3) * e * np.outer(a * slope, z),
                a + lr / np.sqrt(3) * e * sigma,
            )
        ends.append(
            np.concatenate(
                [rows[:, :2].ravel(), (rows @ rows.T)[np.triu_indices(3)], a]
            )
        )
    return np.array(ends)


@pytest.mark.long
def test_both_layers_of_a_sum_against_a_plain_loop() -> None:
    """The second layer takes the step lr/N too: explicit SGD, Chain, and the limit within C/d."""
    target = tl.Teacher("erf", 2, normalisation="sum")
    problem = tl.Problem(
        target, "erf", width=3, noise=0.1, second_layer=LAYER, normalisation="sqrt"
    )
    algorithm, dim, steps = tl.SGD(lr=0.6 / d, train_second_layer=True), 60, 120
    start = tl.Overlaps.from_weights(W, np.eye(2, 4))
    plain = explicit(problem, 0.6 / dim, dim, steps, 100)

    def ends(method: tl.extend.Method, seeds: int) -> np.ndarray:
        run = tl.solve(
            problem,
            algorithm,
            method,
            start,
            time=0.6 * steps / dim / np.sqrt(3),
            save=1,
            seeds=seeds,
        )
        rows, columns = np.triu_indices(3)
        parts = (
            run.M[:, -1].values.reshape(seeds, -1),
            run.Q[:, -1].values[:, rows, columns],
            run.a[:, -1].values,
        )
        return np.concatenate(parts, axis=1)

    chain, limit = ends(tl.Chain(dim), 400), ends(tl.ODE(), 1)[0]
    error = np.sqrt(
        plain.var(0, ddof=1) / len(plain) + chain.var(0, ddof=1) / len(chain)
    )
    z = (plain.mean(0) - chain.mean(0)) / error
    assert np.abs(z).max() < sigmas(z.size, 99)
    assert (
        np.abs(chain.mean(0) - limit)
        < 3 / dim + sigmas(z.size, 399) * chain.std(0) / 20
    ).all()
    mean = problem.replace(normalisation="mean")  # whose steps would be others
    other = tl.solve(
        mean, algorithm, tl.ODE(), start, time=0.6 * steps / dim / 3, save=1
    )
    assert np.abs(other.a[0, -1].values - limit[-3:]).max() > 3 / dim


def test_what_a_mean_alone_has_is_refused() -> None:
    committee = tl.Problem("z1**2", "square", width=2, normalisation="sum")
    # near m = 0 the overlap grows at lr (4 − lr χ/2), χ = 4 (3 − 2·4 + 4·6), Q = I
    assert tl.optimal_lr(committee).coefficient == pytest.approx(4 / 76, rel=1e-12)
    assert (
        "a mean field is the mean over neurons"
        in tl.support(committee, tl.SGD(lr=0.1 / d)).reasons["MeanField"]
    )
    assert (
        "MeanField"
        in tl.support(committee.replace(width=1), tl.SGD(lr=0.1 / d)).methods
    )
    with pytest.raises(
        tl.InputError,
        match=r"`normalisation` must be one of 'mean', 'sum', 'sqrt', but got 'none'",
    ):
        tl.Problem("z1", "relu", normalisation="none")
    with pytest.raises(tl.InputError, match="`normalisation` must be one of"):
        tl.Teacher("relu", 2, normalisation="max")
    assert (
        repr(committee).endswith("normalisation='sum')")
        and committee.replace(width=4).divisor == 1.0
    )


@pytest.mark.slow
def test_a_fitted_second_layer_is_that_of_the_student() -> None:
    """The same function, whatever N: a is N times the coefficients."""
    fits = {}
    for word in WORDS:
        problem, start = student(word, tl.Teacher("erf", 2), "erf")
        fits[word] = tl.layers.fit_second_layer(problem, start)
    for word, fit in fits.items():
        np.testing.assert_allclose(
            fit.a / divisor(word, 3), fits["mean"].a / 3, rtol=1e-9
        )
        np.testing.assert_allclose(fit.risk, fits["mean"].risk, rtol=1e-12)
