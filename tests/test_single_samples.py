"""What one sample does, closed and at nodes: against products of rules over all fields in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cost import sized
from scipy.special import erf

import twolayer as tl
from twolayer import d
from twolayer.equations.increment_kernel import kernel_of
from twolayer.gaussian.erf_samples import ErfSamples
from twolayer.gaussian.hermite_samples import HermiteSamples, multiply, orders
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.sample_parts import FieldRows, Parts
from twolayer.gaussian.single_samples import choose, typical_rows

Function = Callable[..., Any]


class Case(NamedTuple):
    """A task with its student, slope and target in NumPy, and a rule along each axis."""

    problem: tl.Problem
    value: Function
    slope: Function
    target: Function
    loss: str = "squared"
    points: int = 14


def hermite(n: int) -> tuple[Function, Function]:
    """h_n and its slope."""
    h = np.polynomial.HermiteE([0] * n + [1 / np.sqrt(float(np.prod(range(1, n + 1))))])
    return h, h.deriv()


def smooth(x: Any) -> Any:
    return erf(x / np.sqrt(2))


def bell(x: Any) -> Any:
    return np.sqrt(2 / np.pi) * np.exp(-(x**2) / 2)


SINGULAR = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]
POLYNOMIALS = {
    "linear": Case(tl.Problem("z1", "linear", noise=0.2), lambda x: x, np.ones_like, lambda z: z[0]),
    "h3, two neurons": Case(
        tl.Problem("h3(z1)", "h3", 2, noise=0.3, second_layer=[1.3, -0.6]), *hermite(3), lambda z: hermite(3)[0](z[0])
    ),
    "two directions that overlap": Case(
        tl.Problem("z1*z2 + He3(z1)", "z + z**2", 2, noise=0.5, gram=[[1, 0.3], [0.3, 0.8]], second_layer=[1.3, -0.6]),
        lambda x: x + x**2, lambda x: 1 + 2 * x, lambda z: z[0] * z[1] + z[0] ** 3 - 3 * z[0], points=12,
    ),
    "three that depend": Case(
        tl.Problem("z1*z2 + z3", "z + z**2", 1, gram=SINGULAR, normalisation="sum"),
        lambda x: x + x**2, lambda x: 1 + 2 * x, lambda z: z[0] * z[1] + z[2],
    ),
    "correlation": Case(
        tl.Problem("h3(z1)", "h3", 1, noise=0.5, second_layer=[1.3]), *hermite(3), lambda z: hermite(3)[0](z[0]), "correlation"
    ),
    "three neurons": Case(
        tl.Problem("h2(z1)", "h3", 3, second_layer=[1.3, -0.6, 0.4], normalisation="sqrt"),
        *hermite(3), lambda z: hermite(2)[0](z[0]),
    ),
    "h5": Case(tl.Problem("h5(z1)", "h5"), *hermite(5), lambda z: hermite(5)[0](z[0]), points=24),
}  # fmt: skip
TEACHER = tl.Teacher("erf", 2)
ERFS = {
    "one neuron": Case(tl.Problem(tl.Teacher("erf", 1), "erf", noise=0.3), smooth, bell, lambda z: smooth(z[0])),
    "two neurons, two directions": Case(
        tl.Problem(TEACHER, "erf", 2, noise=0.3, gram=[[1, 0.3], [0.3, 0.8]], second_layer=[1.3, -0.6]),
        smooth, bell, lambda z: (smooth(z[0]) + smooth(z[1])) / 2,
    ),
    "correlation": Case(
        tl.Problem(TEACHER, "erf", 1, second_layer=[1.3]), smooth, bell, lambda z: (smooth(z[0]) + smooth(z[1])) / 2, "correlation"
    ),
    "large fields": Case(
        tl.Problem(tl.Teacher("erf", 1), "erf", 1, noise=0.1, gram=[[30.0]], second_layer=[2.0]), smooth, bell, lambda z: smooth(z[0])
    ),
}  # fmt: skip


def rows_of(problem: tl.Problem, size: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """A, B and L at random."""
    L = target_frame(problem.P)[0]
    rng, p = np.random.default_rng(1), problem.p
    return (
        size * rng.normal(size=(p, L.shape[1])),
        size * rng.normal(size=(p, p)),
        L,
    )


def by_products(
    case: Case, rule: tuple[np.ndarray, np.ndarray], size: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (g ξ, the pairs j ≤ l of g g, e σ) on a product of one rule, with three noises."""
    problem, (A, B, L) = case.problem, rows_of(case.problem, size)
    p, n = problem.p, L.shape[1] + problem.p
    x, w = rule[0], rule[1] / rule[1].sum()
    xi = np.stack(np.meshgrid(*[x] * n, indexing="ij"), -1).reshape(-1, n)
    weights = np.prod(np.meshgrid(*[w] * n, indexing="ij"), axis=0).ravel()
    own = xi @ np.concatenate([A, B], axis=1).T
    a, N = problem.a(), {"mean": p, "sum": 1, "sqrt": np.sqrt(p)}[problem.normalisation]
    y = case.target((xi[:, : L.shape[1]] @ L.T).T)
    f = case.value(own) @ a / N if case.loss == "squared" else 0.0
    noises, chances = np.polynomial.hermite_e.hermegauss(3)
    j, l = np.triu_indices(p)
    mean, second = 0.0, 0.0
    for noise, chance in zip(noises, chances / chances.sum(), strict=True):
        e = (y - f + np.sqrt(problem.noise) * noise)[:, None]
        g = a * case.slope(own) * e
        pull = (g[:, :, None] * xi[:, None, :]).reshape(len(xi), -1)
        X = np.concatenate([pull, g[:, j] * g[:, l], case.value(own) * e], axis=1)
        mean = mean + chance * weights @ X
        second = second + chance * (X * weights[:, None]).T @ X
    return mean, second - np.outer(mean, mean)


def flat(parts: Parts) -> tuple[np.ndarray, np.ndarray]:
    """The same of parts."""
    j, l = np.triu_indices(parts.pair.shape[1])
    count = len(parts.weights)
    X = [np.asarray(parts.pull).reshape(count, -1), np.asarray(parts.pair)[:, j, l]]
    Y = np.concatenate([*X, np.asarray(parts.second)], axis=1)
    mean = [np.ravel(parts.mean.pull), np.asarray(parts.mean.pair)[j, l]]
    weighted = Y * np.asarray(parts.weights)[:, None]
    return np.concatenate([*mean, parts.mean.second]), weighted.T @ Y


def evaluated(samples: Any, case: Case, size: float) -> Parts:
    A, B, L = rows_of(case.problem, size)
    a, noise = case.problem.a(), case.problem.noise
    rows = FieldRows.of(*(jnp.asarray(x) for x in (A, B, L)))
    found: Parts = jax.jit(lambda rows, a: samples(rows, a, noise))(rows, a)
    return found


def agree(found: Parts, expected: tuple[np.ndarray, np.ndarray], rtol: float) -> None:
    mean, covariance = flat(found)
    spread = np.sqrt(np.diagonal(expected[1]))
    np.testing.assert_allclose(mean, expected[0], atol=rtol * spread.max())
    off = np.abs(covariance - expected[1]) / (spread[:, None] * spread + 1e-300)
    seen = spread > 1e-6 * spread.max()
    assert off[np.ix_(seen, seen)].max() < rtol


SLOW = {"two directions that overlap", "three neurons", "h5"}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", sized(POLYNOMIALS, slow=SLOW))
def test_polynomials_are_expanded_exactly(name: str) -> None:
    """Wick's theorem against Gauss and Hermite, who are exact here."""
    case = POLYNOMIALS[name]
    problem = case.problem
    algorithm = tl.SGD(0.1 / d, loss=case.loss)
    L = target_frame(problem.P)[0]
    noisy = problem.noise > 0
    samples = HermiteSamples.of(kernel_of(problem, algorithm), L, problem.p, noisy)
    assert samples is not None
    rule = np.polynomial.hermite_e.hermegauss(case.points)
    agree(evaluated(samples, case, 0.6), by_products(case, rule, 0.6), 1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", sized(ERFS, slow=set(ERFS) - {"one neuron"}))
def test_erfs_are_averaged_in_closed_form(name: str) -> None:
    """Tilted Gaussians, Stein and one integral against a grid whose step is short against everything."""
    case = ERFS[name]
    problem, size = case.problem, 0.6
    algorithm = tl.SGD(0.1 / d, loss=case.loss)
    L = target_frame(problem.P)[0]
    samples = ErfSamples.of(kernel_of(problem, algorithm), L, problem.p)
    assert samples is not None
    fields = L.shape[1] + problem.p
    x = np.linspace(-9, 9, 36 if fields == 4 else 121 if fields == 3 else 900)
    rule = x, np.exp(-(x**2) / 2)
    # the grid itself is that good
    rtol = 2e-8 if fields == 4 else 1e-9
    agree(evaluated(samples, case, size), by_products(case, rule, size), rtol)


@pytest.mark.usefixtures("x64")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["h3", "erf"])
def test_many_neurons_in_few_dimensions(name: str) -> None:
    """Four neurons of h3, three of erf, whose rows lie in two dimensions, where rules along the axes are exact."""
    p = 4 if name == "h3" else 3
    weights = [1.3, -0.6, 0.4, 0.8][:p]
    target: Any = "h3(z1)" if name == "h3" else tl.Teacher("erf", 1)
    problem = tl.Problem(target, name, p, noise=0.2, second_layer=weights)
    kernel, a = kernel_of(problem, tl.SGD(0.1 / d)), problem.a()
    chosen = choose(kernel, np.eye(1), typical_rows(p, 1, p, a, 0.2), True)
    assert chosen.label.startswith("closed") and chosen.error == 0
    value, slope = hermite(3) if name == "h3" else (smooth, bell)
    rng = np.random.default_rng(2)
    A, B = 0.5 * rng.normal(size=(p, 1)), np.zeros((p, p))
    B[:, 0] = 0.5 * rng.normal(size=p)
    rows = FieldRows.of(*(jnp.asarray(x) for x in (A, B, np.eye(1))))
    at = jax.jit(lambda rows: chosen.samples(rows, a, 0.2))(rows)
    # of ξ only the first two matter
    found = flat(
        at._replace(
            pull=at.pull[:, :, :2], mean=at.mean._replace(pull=at.mean.pull[:, :2])
        )
    )
    x = np.linspace(-9, 9, 300)
    rule = (
        np.polynomial.hermite_e.hermegauss(14)
        if name == "h3"
        else (x, np.exp(-(x**2) / 2))
    )
    xi = np.stack(np.meshgrid(rule[0], rule[0], indexing="ij"), -1).reshape(-1, 2)
    w = np.outer(rule[1], rule[1]).ravel() / rule[1].sum() ** 2
    own = xi[:, :1] @ A.T + xi[:, 1:] @ B[:, :1].T
    j, l = np.triu_indices(p)
    noises, chances = np.polynomial.hermite_e.hermegauss(3)
    mean, second = 0.0, 0.0
    for noise, chance in zip(noises, chances / chances.sum(), strict=True):
        e = value(xi[:, 0]) - value(own) @ a / p + np.sqrt(0.2) * noise
        g = a * slope(own) * e[:, None]
        pull = (g[:, :, None] * xi[:, None, :]).reshape(len(xi), -1)
        X = np.concatenate([pull, g[:, j] * g[:, l], value(own) * e[:, None]], axis=1)
        mean = mean + chance * w @ X
        second = second + chance * (X * w[:, None]).T @ X
    covariance = second - np.outer(mean, mean)
    scale = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(found[0], mean, atol=1e-9 * scale.max())
    off = np.abs(found[1] - covariance) / (scale[:, None] * scale)
    assert off.max() < 1e-9


@pytest.mark.slow
def test_one_layer_alone_has_no_part_of_the_other() -> None:
    case = ERFS["one neuron"]
    kernel = kernel_of(case.problem, tl.SGD(0.1 / d))
    with jax.enable_x64(True):
        both, first = (
            evaluated(ErfSamples.of(kernel, np.eye(1), 1, x), case, 0.6)
            for x in (True, False)
        )
    assert not first.second.any() and not first.mean.second.any()
    (_, whole), (_, some) = flat(both), flat(first)
    np.testing.assert_allclose(some[:-1, :-1], whole[:-1, :-1], rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_products_of_hermite_polynomials() -> None:
    """h_2 h_1 of the first variable times h_1 of the second, from their values at points."""
    n = 2
    one, two = np.zeros(6), np.zeros(6)
    one[[0, 3]], two[[1, 4]] = (0.5, 1.0), (2.0, -1.0)
    assert orders(n, 2).tolist() == [[0, 0], [1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    product = np.asarray(multiply(jnp.asarray(one), jnp.asarray(two), n, 2, 2))
    x, y = np.random.default_rng(0).normal(size=(2, 5))
    h = [np.ones(5), x, (x**2 - 1) / np.sqrt(2), (x**3 - 3 * x) / np.sqrt(6)]
    expected = (0.5 + h[2]) * (2 * x - x * y)
    k = [np.ones(5), y]
    values = [
        h[i] * k[j] if i < 4 and j < 2 else 0 * x for i, j in orders(n, 4).tolist()
    ]
    np.testing.assert_allclose(product @ np.array(values), expected, rtol=1e-10)
