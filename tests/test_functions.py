"""Activations, targets and Hermite expansions."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import twolayer as tl
from twolayer.functions.activation import NAMED, Activation
from twolayer.functions.hermite import (
    hermite_coefficients,
    hermite_he,
    hermite_table,
    monomials_of_he,
)
from twolayer.functions.kinks import find_kinks
from twolayer.functions.target import Target, Teacher


def test_hermite_polynomials_are_orthonormal() -> None:
    x, w = np.polynomial.hermite_e.hermegauss(30)
    table = hermite_table(10, x)
    np.testing.assert_allclose((table * w / w.sum()) @ table.T, np.eye(11), atol=1e-10)
    for n in range(9):
        poly = sum(c * x**i for i, c in enumerate(monomials_of_he(n)))
        np.testing.assert_allclose(hermite_he(n, x), poly, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(
    "name", [*NAMED, "He2", "He8", "h5", "tanh(z + 0.7)", "abs(z - 0.3)"]
)
def test_hermite_coefficients_and_slope(name: str) -> None:
    sigma = Activation.of(name)
    got = sigma.hermite(5)
    with jax.enable_x64(True):
        for n in (0, 1, 2, 5):

            def f(x: float, n: int = n) -> float:
                value = (
                    float(sigma(jnp.asarray(x)))
                    * float(hermite_he(n, x))
                    / math.sqrt(math.factorial(n))
                )
                return value * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

            expected, _ = quad(
                f, -10, 10, points=sigma.kinks or None, limit=200, epsabs=1e-11
            )
            assert got[n] == pytest.approx(expected, abs=1e-9)
        x = jnp.asarray([-1.3, 0.2, 2.1])
        step = 1e-5
        slope = (sigma(x + step) - sigma(x - step)) / (2 * step)
        np.testing.assert_allclose(sigma.slope(x), slope, rtol=1e-6, atol=1e-6)


def test_known_hermite_coefficients() -> None:
    assert Activation.of("erf").hermite(1)[1] == pytest.approx(
        1 / math.sqrt(math.pi), abs=1e-12
    )
    assert Activation.of("relu").hermite(1)[1] == pytest.approx(0.5, abs=1e-12)
    assert Activation.of("square").hermite(2)[2] == pytest.approx(
        math.sqrt(2), abs=1e-12
    )
    np.testing.assert_allclose(
        hermite_coefficients(np.abs, 2, (0.0,))[0], math.sqrt(2 / math.pi), rtol=1e-13
    )


def test_kinks_are_found() -> None:
    assert find_kinks(lambda x: jax.nn.relu(x - 0.25) + jnp.sign(x + 1)) == [
        (-1.0, 0.25)
    ]
    assert find_kinks(lambda x: jax.nn.relu(x) ** 2) == [(0.0,)]
    assert find_kinks(lambda x: jnp.sin(7 * x) * jnp.exp(-x * x)) == [()]
    assert Activation.of(lambda z: jnp.where(z > 1.5, z, 0.0)).kinks == (1.5,)
    assert Activation.of("relu(z)", kinks=(0.0,)).kinks == (0.0,)
    assert Target.of("sign(z1*z2) + abs(z1 - 1)").kinks == ((0.0, 1.0), (0.0,))
    assert Target.of("abs(z1 + z2)").kinks is None
    assert Target.of("tanh(z1*z2)").kinks == ((), ())


def test_targets_from_text_callable_and_teacher_agree() -> None:
    z = np.random.default_rng(0).normal(size=(50, 2))
    text = Target.of("tanh(z1)/2 - tanh(z2)/2")
    function = Target.of(lambda z: (jnp.tanh(z[0]) - jnp.tanh(z[1])) / 2, directions=2)
    teacher = Teacher("tanh", k=2, weights=[1, -1])
    with jax.enable_x64(True):
        expected = (np.tanh(z[:, 0]) - np.tanh(z[:, 1])) / 2
        for target in (text, function, teacher):
            np.testing.assert_allclose(target(jnp.asarray(z)), expected, rtol=1e-12)
    assert text.ridge is not None
    assert teacher.ridge is not None
    assert text.ridge.weights == pytest.approx(teacher.ridge.weights)
    assert Target.of("erf(z1)").ridge.directions[0][0] == pytest.approx(math.sqrt(2))  # type: ignore[union-attr]
    assert Target.of("z1 + tanh(z2)").ridge is None
    assert Teacher("He2", k=2).polynomial == {(0, 0): -1.0, (2, 0): 0.5, (0, 2): 0.5}


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("abs", "relu(z) + relu(-z)"),
        ("swish", "z*sigmoid(z)"),
        ("silu", "z/(1 + exp(-z))"),
        ("sin", "sin(z)"),
        ("cos", "cos(z)"),
        ("leaky_relu", "relu(z) - 0.01*relu(-z)"),
    ],
)
def test_names_that_people_try(name: str, formula: str) -> None:
    """As an activation, in a teacher and in a formula, where a number may be its argument."""
    z = jnp.linspace(-4.0, 4.0, 41)
    expected = np.asarray(Activation.of(formula)(z))
    for known in (Activation.of(name), Activation.of(f"{name}(z)")):
        np.testing.assert_allclose(known(z), expected, rtol=1e-6, atol=1e-7)
    targets = (
        Target.of(f"{name}(z1)"),
        Teacher(name),
        Target.of(f"{name}(1.5)*z1 + 0*{name}(z1)"),
    )
    at = [Activation.of(formula)(jnp.asarray(x)) for x in (1.5, 1.5, 1.5)]
    for target, value in zip(targets, (at[0], at[1], 1.5 * at[2]), strict=True):
        assert float(target(jnp.asarray([1.5]))) == pytest.approx(
            float(value), rel=1e-6
        )


@pytest.mark.long
@pytest.mark.parametrize(("name", "width"), [("abs", 1), ("abs", 2), ("leaky_relu", 2)])
def test_two_rectifiers_have_closed_averages(name: str, width: int) -> None:
    """All five averages of |x| and of leaky ReLU: against quadrature over all fields."""
    W = np.array([[0.7, 0.3, -0.2], [0.1, -0.5, 0.9]])[:width]
    problem = tl.Problem(
        "abs(z1)", name, width=width, noise=0.1, second_layer=[1.0, -0.6][:width]
    )
    start = tl.Overlaps.from_weights(W, np.eye(1, 3))
    closed, other = (
        tl.moments(problem, start),
        tl.moments(problem, start, averages=tl.Averages(engine="quadrature")),
    )
    assert (
        closed.engine
        == "closed form (rectifier); chi: closed form with a 1-d quadrature"
    )
    for part in ("psi", "phi", "chi", "second", "excess_risk"):
        np.testing.assert_allclose(
            getattr(closed, part), getattr(other, part), atol=1e-7
        )


def test_registering_an_activation_makes_it_available_everywhere() -> None:
    @tl.extend.register_activation("bump_for_test")
    def bump(z: jax.Array) -> jax.Array:
        return z * jnp.exp(-z * z)

    problem = tl.Problem("z1", "bump_for_test")
    assert problem.activation.name == "bump_for_test"
    assert problem == tl.Problem("z1", "bump_for_test")
    assert hash(problem) == hash(tl.Problem("z1", "bump_for_test"))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Activation.of("rellu"), "did you mean 'relu'"),
        (lambda: Activation.of("log(z)"), "finite on the real line"),
        (lambda: Activation.of("3"), "must depend on z"),
        (lambda: Activation.of(7), "a name, a formula in z, or a JAX function"),  # type: ignore[arg-type]
        (lambda: Activation.of(lambda z: z.sum()), "elementwise"),
        (lambda: Target.of("7"), "is a constant"),
        (lambda: Target.of("log(z1)"), "finite everywhere"),
        (lambda: Target.of("1/z1"), "finite variance"),
        (lambda: Target.of("exp(z1**2)"), "finite variance"),
        (lambda: Target.of(lambda z: z[0]), "directions"),
        (
            lambda: Target.of(lambda z: z, directions=2),
            "one real number per sample|failed",
        ),
        (lambda: Target.of("z3", directions=2), "at least 3"),
        (
            lambda: Target.of({"teacher": "erf", "kk": 2}),
            "teacher, k, weights, normalisation",
        ),
        (lambda: Teacher("erf", k=2, weights=[1.0]), "2 numbers"),
        (lambda: Teacher("erf", k=0), "positive integer"),
        (lambda: tl.extend.register_activation("not a name"), "an identifier"),
        (
            lambda: Activation.of(np.tanh),
            r"tanh calls NumPy, .*: use jax\.numpy instead of numpy\.$",
        ),
        (lambda: Target.of(lambda z: np.tanh(z[0]), directions=1), r"use jax\.numpy"),
    ],
)
def test_bad_functions(make: object, why: str) -> None:
    with pytest.raises(tl.InputError, match=why):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("formula", ["1/z", "exp(z*z)", "exp(z**2/4)"])
def test_an_activation_without_moments_is_refused(formula: str) -> None:
    with pytest.raises(tl.InputError, match="finite"):
        tl.extend.Activation.of(formula)
    assert tl.extend.Activation.of("exp(z)")(0.0) == 1.0
