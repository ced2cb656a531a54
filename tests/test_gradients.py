"""Derivatives of the averages with respect to Q, M and a: forward, reverse and by finite differences, for every engine."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cost import sized
from scipy.special import erf

import twolayer as tl
from conftest import random_overlaps
from twolayer.equations.averages import Engine, Expectations
from twolayer.gaussian.all_fields import FullRule, _averages
from twolayer.gaussian.engines import select
from twolayer.numerics.error_function import error_function
from twolayer.numerics.special import symmetric_root

pytestmark = pytest.mark.usefixtures("x64")

HUBER = tl.extend.Loss(
    "huber_gradient", lambda y, f: jnp.clip(y - f, -0.7, 0.7), kinks=(-0.7, 0.7)
)
HINGE = tl.extend.Loss(
    "hinge_gradient",
    lambda y, f: jnp.where(y * f < 1, y, 0.0),
    kinks=(1.0,),
    margin=True,
)
LOGISTIC = tl.extend.Loss("logistic_gradient", lambda y, f: y * jax.nn.sigmoid(-y * f))

# target, activation, p, loss, engine, what its label contains
SMOOTH: list[tuple[Any, str, int, Any, str, str]] = [
    ("z1*z2 - 2", "He2", 2, "squared", "auto", "quadratic"),
    (
        tl.Teacher("He3", 2),
        "z**2 + z",
        2,
        "squared",
        "auto",
        "closed form (polynomial)",
    ),
    ("tanh(z1*z2)", "He2", 2, "squared", "auto", "Wick sums, target by quadrature"),
    (tl.Teacher("erf", 2, [1, -0.7]), "erf", 3, "squared", "auto", "closed form (erf)"),
    ("z1*z2", "erf", 2, "correlation", "auto", "closed form, target by quadrature"),
    (
        tl.Teacher("relu", 2, [1, -0.5]),
        "relu",
        3,
        "squared",
        "auto",
        "closed form (relu); chi: closed form",
    ),
    ("abs(z1)", "relu", 2, "squared", "auto", "closed form (relu); chi: closed form"),
    ("sign(z1)", "relu", 1, "squared", "auto", "chi: quadrature over all fields"),
    (
        "abs(z1)",
        "leaky",
        1,
        "squared",
        "auto",
        "closed form (rectifier); chi: closed form",
    ),
    (
        "tanh(z1)",
        "tanh",
        2,
        "squared",
        "auto",
        "quadrature over pairs; chi: quadrature over all fields",
    ),
    (
        "relu(z1)",
        "hardtanh",
        1,
        "squared",
        "auto",
        "quadrature over pairs; chi: quadrature",
    ),
    ("tanh(z1*z2)", "tanh", 3, "squared", "auto", "chi: Sobol"),
    ("tanh(z1)", "tanh", 1, HUBER, "auto", "quadrature over all fields"),
    ("sign(z1)", "tanh", 2, HINGE, "auto", "quadrature over all fields"),
    ("sign(z1)", "tanh", 3, LOGISTIC, "auto", "linear fit"),
    (tl.Teacher("tanh", 2), "softplus", 3, LOGISTIC, "sobol", "Sobol"),
]


@pytest.fixture(scope="module", autouse=True)
def _activations() -> None:
    tl.extend.register_activation("leaky")(lambda z: jnp.where(z > 0, z, 0.3 * z))
    tl.extend.register_activation("hardtanh", kinks=(-1.0, 1.0))(
        lambda z: jnp.clip(z, -1.0, 1.0)
    )


def engine_of(
    target: Any,
    activation: str,
    p: int,
    loss: Any,
    kind: str,
    noise: float = 0.2,
    points: int = 10,
) -> Engine:
    problem = tl.Problem(target, activation, width=p, noise=noise)
    return select(problem, loss, kind, order=16, log2_points=points).engine


def direction(seed: int, start: Any) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    dQ = rng.normal(size=start.Q.shape)
    return (
        jnp.asarray((dQ + dQ.T) / 2),
        jnp.asarray(rng.normal(size=start.M.shape)),
        jnp.asarray(rng.normal(size=start.p)),
    )


def point_of(start: Any) -> tuple[Any, Any, Any]:
    return tuple(jnp.asarray(x) for x in (start.Q, start.M, start.a))  # type: ignore[return-value]


@pytest.mark.parametrize(
    "case", sized(range(len(SMOOTH)), slow=(1, 3, 4), long=(2, *range(5, len(SMOOTH))))
)
def test_forward_reverse_and_finite_differences(case: int) -> None:
    target, activation, p, loss, kind, words = SMOOTH[case]
    noise = 0.0 if loss is HINGE else 0.2
    engine = engine_of(target, activation, p, loss, kind, noise)
    assert words in engine.label
    start = random_overlaps(case, p, tl.extend.Target.of(target).directions, size=0.9)
    point, move = point_of(start), direction(case, start)

    def averages(*x: Any) -> Expectations:
        return engine(*x, noise)

    value, forward = jax.jit(lambda x, dx: jax.jvp(averages, x, dx))(point, move)
    h = 1e-4
    shift = jax.jit(
        lambda s: averages(*(x + s * dx for x, dx in zip(point, move, strict=True)))
    )
    central = [
        (8 * (a - b) - (c - d)) / (12 * h)
        for a, b, c, d in zip(
            shift(h), shift(-h), shift(2 * h), shift(-2 * h), strict=True
        )
    ]
    weights = [np.random.default_rng(9).normal(size=np.shape(x)) for x in value]

    def total(*x: Any) -> Any:
        return sum((w * v).sum() for w, v in zip(weights, averages(*x), strict=True))

    reverse = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*point)
    size = max(float(jnp.abs(x).max()) for x in forward)
    assert size > 0.05
    for exact, found in zip(central, forward, strict=True):
        np.testing.assert_allclose(found, exact, atol=2e-6 * size)
    backward = sum(float((g * dx).sum()) for g, dx in zip(reverse, move, strict=True))
    assert backward == pytest.approx(
        sum(float((w * v).sum()) for w, v in zip(weights, forward, strict=True)),
        abs=1e-9 * size,
    )


@pytest.mark.long
@pytest.mark.parametrize("activation", ["relu", "leaky"])
def test_jumps_of_the_slope_have_their_share_in_sampled_derivatives(
    activation: str,
) -> None:
    """Against the derivative of a quadrature; at fixed points alone it would be wrong."""
    start = random_overlaps(5, 2, 1, size=0.9)
    point, move = point_of(start), direction(5, start)
    exact, sampled = (
        engine_of("abs(z1)", activation, 2, "squared", kind, points=15)
        for kind in ("quadrature", "sobol")
    )
    assert isinstance(sampled.rule, FullRule)  # type: ignore[attr-defined]
    slope = jax.jit(lambda engine, x, dx: jax.jvp(lambda *y: engine(*y, 0.2), x, dx)[1])
    truth, found = slope(exact, point, move), slope(sampled, point, move)
    bare = jax.jvp(
        lambda *y: _averages(sampled.rule, *y, 0.2, jnp.zeros(2)), point, move
    )[1]  # type: ignore[attr-defined]
    size = max(float(jnp.abs(x).max()) for x in truth)
    for right, ours, without in zip(
        truth[:3], found[:3], bare[:3], strict=True
    ):  # psi, phi and chi
        error = float(jnp.abs(ours - right).max())
        assert error < 0.01 * size
        assert float(jnp.abs(without - right).max()) > 5 * error


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "activation"),
    [
        (tl.Teacher("relu", 1), "relu"),
        ("tanh(z1)", "tanh"),
        (tl.Teacher("erf", 1), "erf"),
        ("He3(z1)", "He3"),
        ("abs(z1)", "leaky"),
    ],
)
def test_derivatives_where_fields_coincide(target: Any, activation: str) -> None:
    """Finite everywhere, and right for motions in which what coincides goes on coinciding."""
    engine = engine_of(target, activation, 2, "squared", "auto")
    for w, dw in (([1.0, 0.0], [0.3, 0.2]), ([0.6, 0.8], [0.1, -0.4])):
        for sign in (1.0, -1.0):
            rows, moved = (
                np.array([x, sign * np.array(x)]) for x in (w, dw)
            )  # the second row is ± the first

            def overlaps(
                s: Any, rows: Any = rows, moved: Any = moved
            ) -> tuple[Any, Any, Any]:
                W = jnp.asarray(rows) + s * jnp.asarray(moved)
                return W @ W.T, W[:, :1], jnp.asarray([1.0, 0.7]) + 0.2 * s

            def total(Q: Any, M: Any, a: Any) -> Any:
                x = engine(Q, M, a, 0.1)
                return (
                    x.psi.sum()
                    + 0.7 * x.phi.sum()
                    + 0.3 * x.chi.sum()
                    + x.second.sum()
                    + x.excess_risk
                )

            gradient = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*overlaps(0.0))
            assert all(np.isfinite(x).all() for x in gradient)
            tangent = jax.jvp(overlaps, (0.0,), (1.0,))[1]
            along = sum(
                float((g * t).sum()) for g, t in zip(gradient, tangent, strict=True)
            )
            # off the boundary: W moves along a line through the point
            step = jax.jit(lambda s: total(*overlaps(s)))
            h = 1e-3
            central = (8 * (step(h) - step(-h)) - (step(2 * h) - step(-2 * h))) / (
                12 * h
            )
            assert along == pytest.approx(float(central), rel=2e-4, abs=2e-4)


def test_the_root_of_a_matrix_is_differentiable_where_eigenvalues_coincide() -> None:
    rng = np.random.default_rng(0)
    dC = rng.normal(size=(3, 3))
    dC = dC + dC.T
    for C in (np.eye(3), np.diag([2.0, 2.0, 0.5])):
        found = jax.jvp(symmetric_root, (jnp.asarray(C),), (jnp.asarray(dC),))[1]
        central = (symmetric_root(C + 1e-5 * dC) - symmetric_root(C - 1e-5 * dC)) / 2e-5
        np.testing.assert_allclose(found, central, atol=1e-8)
        assert np.isfinite(
            jax.grad(lambda C: symmetric_root(C)[0, 1])(jnp.asarray(C))
        ).all()
    inside = np.zeros((3, 3))
    inside[0, 0] = 1.0
    found = jax.jvp(
        symmetric_root,
        (jnp.diag(jnp.asarray([1.0, 0.0, 0.0])),),
        (jnp.asarray(inside),),
    )[1]
    np.testing.assert_allclose(found, inside / 2, atol=1e-12)


@pytest.mark.slow
def test_the_error_function_and_its_derivatives() -> None:
    """To rounding of its values, small ones too, and to that of derivatives; single precision would not do."""
    x = np.concatenate([np.linspace(-7.0, 7.0, 2001), 10.0 ** -np.arange(1.0, 300.0)])
    value = np.asarray(error_function(jnp.asarray(x)))
    np.testing.assert_allclose(value, erf(x), rtol=4e-15)
    assert (
        np.abs(np.asarray(error_function(jnp.asarray(x, "float32"))) - erf(x)).max()
        > 1e-8
    )
    slope: Any = jax.vmap(jax.grad(error_function))
    bend: Any = jax.vmap(jax.grad(jax.grad(error_function)))
    exact = 2 / np.sqrt(np.pi) * np.exp(-(x**2))
    np.testing.assert_allclose(slope(jnp.asarray(x)), exact, rtol=1e-12, atol=1e-30)
    np.testing.assert_allclose(
        bend(jnp.asarray(x)), -2 * x * exact, rtol=1e-12, atol=1e-30
    )
    assert error_function(jnp.asarray([np.inf, -np.inf])).tolist() == [1.0, -1.0]
    assert np.isnan(error_function(jnp.asarray(np.nan)))
