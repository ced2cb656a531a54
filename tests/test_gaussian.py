"""Gaussian averages: closed form against quadrature against sampling, at random overlaps, for every activation."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from chance import sigmas
from scipy.integrate import quad
from scipy.special import erf

import twolayer as tl
from conftest import random_overlaps
from twolayer.functions.activation import NAMED, Activation
from twolayer.gaussian import rectifier
from twolayer.gaussian.closed_forms import forms_of
from twolayer.gaussian.engines import select
from twolayer.gaussian.quadrature import nested_rule, panel_rule
from twolayer.gaussian.risk import excess_risks
from twolayer.gaussian.two_point import NumericForms, cross_pair

NAMES = ("psi", "phi", "chi", "second", "excess_risk")
P2 = np.array([[1.0, 0.3], [0.3, 1.5]])

# target, activation, p, P, expected engine (beginning)
CLOSED: list[tuple[Any, str, int, Any, str]] = [
    ("He2(z1)", "square", 2, None, "closed form (quadratic)"),
    ("z1*z2 - 2", "He2", 2, P2, "closed form (quadratic)"),
    ("He3(z1)", "He3", 2, None, "closed form (polynomial)"),
    (tl.Teacher("He3", 2), "z**2 + z", 2, P2, "closed form (polynomial)"),
    ("z1 + z1*z2", "He3", 2, P2, "closed form (polynomial), target by exact"),
    ("z1*z2*z3", "He2", 1, None, "closed form (polynomial), target by exact"),
    ("tanh(z1*z2)", "He2", 2, None, "closed form (polynomial), target by quadrature"),
    (tl.Teacher("erf", 2, [1, -0.7]), "erf", 3, P2, "closed form (erf)"),
    ("z1*z2", "erf", 2, None, "closed form (erf), target by quadrature"),
    (
        tl.Teacher("relu", 2, [1, -0.5]),
        "relu",
        2,
        P2,
        "closed form (relu); chi: closed form",
    ),
    ("relu(z1)", "relu", 1, None, "closed form (relu); chi: closed form"),
    ("sign(z1*z2)", "relu", 1, None, "closed form (relu), target by quadrature"),
]


@pytest.mark.parametrize(
    ("case", "target", "activation", "p", "P", "engine"),
    [(i, *c) for i, c in enumerate(CLOSED)],
)
def test_closed_forms_against_sampling(
    case: int, target: Any, activation: str, p: int, P: Any, engine: str
) -> None:
    """Against plain Monte Carlo of the definition with NumPy, written down again here."""
    loss = "correlation" if case % 3 == 2 else "squared"
    problem = tl.Problem(target, activation, width=p, noise=0.3, gram=P)
    k = problem.k
    start = random_overlaps(3, p, k, P)
    got = tl.moments(problem, start, loss)
    assert got.engine.startswith(engine)
    n, sums, squares = 0, None, None
    omega = np.block([[start.Q, start.M], [start.M.T, start.P]])
    root = np.linalg.cholesky(omega + 1e-13 * np.eye(p + k))
    rng = np.random.default_rng(0)
    a = start.a
    assert a is not None
    with jax.enable_x64(True):
        for _ in range(4):
            u = rng.normal(size=(250_000, p + k)) @ root.T
            xi = rng.normal(size=len(u))
            lam, star = u[:, :p], u[:, p:]
            sigma = np.asarray(problem.activation(jnp.asarray(lam)))
            slope = np.asarray(problem.activation.slope(jnp.asarray(lam)))
            h = np.asarray(problem.target(jnp.asarray(star)))
            f = sigma @ a / p
            e = h + math.sqrt(0.3) * xi - (f if loss == "squared" else 0.0)
            g = a * slope * e[:, None]
            rows = np.concatenate(
                [
                    (g[:, :, None] * star[:, None, :]).reshape(len(u), -1),
                    (g[:, :, None] * lam[:, None, :]).reshape(len(u), -1),
                    (g[:, :, None] * g[:, None, :]).reshape(len(u), -1),
                    sigma * e[:, None],
                    (h - f)[:, None] ** 2 / 2,
                ],
                axis=1,
            )
            n += len(u)
            sums = rows.sum(0) if sums is None else sums + rows.sum(0)
            squares = (
                (rows**2).sum(0) if squares is None else squares + (rows**2).sum(0)
            )
    mean = sums / n  # type: ignore[operator]
    spread = np.sqrt((squares / n - mean**2) / n)  # type: ignore[operator]
    ours = np.concatenate([np.ravel(getattr(got, name)) for name in NAMES])
    limit = sigmas(ours.size)
    assert np.abs((ours - mean) / spread).max() < limit
    assert (
        np.abs((1.1 * ours - mean) / spread).max() > limit
    )  # a wrong factor would be seen


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "activation", "p", "P", "loss"),
    [
        ("He3(z1)", "He3", 1, None, "squared"),
        ("tanh(z1)", "He5", 1, None, "squared"),
        ("z1*z2", "He3", 1, P2, "correlation"),
        (tl.Teacher("erf", 2), "erf", 1, P2, "squared"),
        ("tanh(z1)", "erf", 2, None, "correlation"),
        ("z1*z2", "erf", 1, None, "squared"),
        (tl.Teacher("relu", 1), "relu", 2, None, "squared"),
        (tl.Teacher("relu", 2, [1, -1]), "relu", 1, None, "correlation"),
        ("sign(z1)", "relu", 1, None, "squared"),
        ("relu(z1)", "gelu", 1, None, "correlation"),
        (tl.Teacher("sigmoid", 1), "softplus", 1, None, "squared"),
    ],
)
def test_engines_agree_with_quadrature_over_all_fields(
    target: Any, activation: str, p: int, P: Any, loss: str
) -> None:
    problem = tl.Problem(target, activation, width=p, noise=0.3, gram=P)
    start = random_overlaps(7, p, problem.k, P, size=0.9)
    one, two = (
        tl.moments(problem, start, loss),
        tl.moments(
            problem,
            start,
            loss,
            averages=tl.Averages(engine="quadrature", accuracy=1e-06),
        ),
    )
    for name in NAMES:
        scale = max(np.abs(two.chi).max(), np.abs(getattr(two, name)).max())
        np.testing.assert_allclose(
            getattr(one, name), getattr(two, name), atol=2e-6 * scale
        )


@pytest.mark.parametrize(
    ("activation", "p"),
    [
        *((name, 1) for name in NAMED),
        ("He3", 3),
        pytest.param("tanh(z + 0.7)", 3, marks=pytest.mark.slow),
        pytest.param("abs(z)", 3, marks=pytest.mark.slow),
        ("erf", 3),
        pytest.param("square", 3, marks=pytest.mark.slow),
        pytest.param("relu", 3, marks=pytest.mark.slow),
    ],
)
def test_every_activation_against_sobol_points(activation: str, p: int) -> None:
    problem = tl.Problem("tanh(z1)", activation, width=p, noise=0.1)
    start = random_overlaps(11, p, 1, size=0.8)
    one, two = (
        tl.moments(problem, start),
        tl.moments(problem, start, averages=tl.Averages(engine="sobol", points=2**17)),
    )
    assert one.error < (1.1e-5 if "Sobol" not in one.engine else 2e-3)
    for name, size in zip(NAMES, (1, 1, 1, 1, 1), strict=True):
        room = 8 * (two.errors[name] + one.errors[name])
        assert (
            np.abs(getattr(one, name) - getattr(two, name)).max() < room + 1e-9 * size
        )
    assert p > 1 or "Sobol" not in one.engine


@pytest.mark.long
def test_reported_errors_are_honest() -> None:
    """The true error, against a far finer rule, is about the reported one or below it."""
    for target, activation, p, k in [
        (tl.Teacher("tanh", 2), "tanh", 2, 2),
        ("sign(z1*z2)", "relu", 2, 2),
        ("abs(z1 + z2)", "tanh", 1, 2),
    ]:
        problem = tl.Problem(target, activation, width=p, noise=0.2)
        start = random_overlaps(5, p, k)
        rough, fine = (
            tl.moments(problem, start, averages=tl.Averages(points=2**13)),
            tl.moments(
                problem, start, averages=tl.Averages(points=2**16, accuracy=1e-07)
            ),
        )
        for name in NAMES:
            error = np.abs(getattr(rough, name) - getattr(fine, name)).max()
            assert error < 6 * rough.errors[name] + 3 * fine.errors[name] + 1e-12
        assert rough.error > 1e-10


def test_errors_of_sampled_averages_are_bounds() -> None:
    """Beside closed forms: no average is further off than stated, at any of forty points."""
    problem = tl.Problem(tl.Teacher("erf", 2, [1, -0.7]), "erf", width=2, noise=0.1)
    for seed in range(40):
        start = random_overlaps(seed, 2, 2)
        exact = tl.moments(problem, start)
        sampled = tl.moments(
            problem, start, averages=tl.Averages(engine="sobol", points=2**8)
        )
        for name in NAMES:
            error = np.abs(getattr(sampled, name) - getattr(exact, name)).max()
            assert error <= sampled.errors[name], (seed, name)
            # and they are no excuse: a bound that is never nearly reached says nothing
            assert sampled.errors[name] < 0.4 * (
                np.abs(getattr(exact, name)).max() + 1
            ), (seed, name)


@pytest.mark.slow
def test_sums_that_have_hardly_begun_are_known_to_be_wrong() -> None:
    """E[sin²(5λ)] = ½ (1 − exp(−50 Q)): its Hermite coefficients are those of n ≈ 25 Q, and 192 are summed."""
    problem = tl.Problem("tanh(z1)", "sin(5*z)")
    slow = tl.moments(problem, tl.Overlaps([[0.5]], [[0.0]]))
    assert slow.engine.startswith("quadrature over pairs")
    assert slow.errors["second"] < 1e-6 and slow.error < 1.1e-5
    assert slow.second[0] == pytest.approx(-0.5, abs=1e-9)
    fast = tl.moments(
        problem, tl.Overlaps([[90.0]], [[0.0]]), averages=tl.Averages(points=2**14)
    )
    assert abs(fast.second[0] + 0.5) <= fast.errors["second"] < 0.05
    # what the quadrature left out is declared, and the points take over
    assert fast.engine == "Sobol (2^14 points)"


def test_values_of_the_theory_sheet() -> None:
    """Closed values for p = k = 1: square (q, m, ρ general) and matched h3."""
    q, m, rho, delta = 0.8, 0.5, 1.3, 0.4
    problem = tl.Problem("z1**2", "square", noise=delta, gram=[[rho]])
    got = tl.moments(problem, tl.Overlaps([[q]], [[m]], P=[[rho]]))
    assert got.psi[0, 0] == pytest.approx(6 * m * (rho - q), rel=1e-12)
    assert 2 * got.phi[0, 0] == pytest.approx(
        4 * (q * rho + 2 * m**2 - 3 * q**2), rel=1e-12
    )
    var = (
        3 * rho**2 * q
        + 12 * rho * m**2
        - 6 * q**2 * rho
        - 24 * q * m**2
        + 15 * q**3
        + delta * q
    )
    assert got.chi[0, 0] == pytest.approx(4 * var, rel=1e-12)
    m = 0.6
    problem = tl.Problem("h3(z1)", "h3", noise=delta)
    got = tl.moments(problem, tl.Overlaps([[1.0]], [[m]]))
    assert got.psi[0, 0] == pytest.approx(3 * m * (m - 1), rel=1e-12)
    assert 2 * got.phi[0, 0] == pytest.approx(6 * (m**3 - 1), rel=1e-12)
    assert got.chi[0, 0] == pytest.approx(
        6 * (1 - m) * (16 + 16 * m + 22 * m**2 - 9 * m**3) + 3 * delta, rel=1e-12
    )
    assert got.excess_risk == pytest.approx(1 - m**3, rel=1e-12)
    assert got.risk == pytest.approx(1 - m**3 + delta / 2, rel=1e-12)


def test_phase_retrieval_risk_for_any_width() -> None:
    """R = 1 − 2|m|²/p + tr Q²/p² for unit rows."""
    problem = tl.Problem("z1**2", "square", width=3)
    start = tl.Overlaps.random(problem, 20, seed=4)
    expected = 1 - 2 * (start.M**2).sum() / 3 + (start.Q**2).sum() / 9
    assert tl.moments(problem, start).excess_risk == pytest.approx(expected, rel=1e-12)


SYMMETRY = [
    (tl.Teacher("erf", 2), "erf"),
    (tl.Teacher("relu", 2), "relu"),
    ("z1*z2", "He2"),
    ("z1 + z1*z2", "He3"),
    ("z1*z2", "relu"),
    (tl.Teacher("tanh", 2), "tanh"),
]


@pytest.mark.long
@pytest.mark.parametrize(("target", "activation"), SYMMETRY)
def test_permutation_of_neurons(target: Any, activation: str) -> None:
    problem = tl.Problem(target, activation, width=3, noise=0.1)
    start = random_overlaps(2, 3, 2)
    order = [2, 0, 1]
    moved = tl.Overlaps(
        start.Q[np.ix_(order, order)], start.M[order], start.P, start.a[order]
    )  # type: ignore[index]
    one, two = tl.moments(problem, start), tl.moments(problem, moved)
    room = 1e-10 if "Sobol" not in one.engine else 8 * one.errors["chi"]
    np.testing.assert_allclose(two.psi, one.psi[order], atol=1e-8)
    np.testing.assert_allclose(two.phi, one.phi[np.ix_(order, order)], atol=1e-8)
    np.testing.assert_allclose(two.chi, one.chi[np.ix_(order, order)], atol=room)
    np.testing.assert_allclose(two.second, one.second[order], atol=1e-8)
    assert two.risk == pytest.approx(one.risk, abs=1e-8)


@pytest.mark.slow
def test_rotation_of_the_target_and_sign_symmetry() -> None:
    """A rotated target with rotated overlaps has the same averages; odd tasks are unchanged by w → −w, a → −a."""
    c, s = np.cos(0.7), np.sin(0.7)
    O = np.array([[c, s], [-s, c]])
    straight = tl.Problem("z1*z2 + z1", "relu", width=2)
    rotated = tl.Problem(
        f"({c}*z1 + {s}*z2)*({-s}*z1 + {c}*z2) + {c}*z1 + {s}*z2", "relu", width=2
    )
    start = random_overlaps(9, 2, 2)
    other = tl.Overlaps(start.Q, start.M @ O, start.P, start.a)
    one, two = tl.moments(straight, start), tl.moments(rotated, other)
    np.testing.assert_allclose(two.psi, one.psi @ O, atol=1e-7)
    np.testing.assert_allclose(two.phi, one.phi, atol=1e-7)
    assert two.risk == pytest.approx(one.risk, abs=1e-8)
    odd = tl.Problem(tl.Teacher("erf", 2), "erf", width=2)
    assert start.a is not None
    flipped = tl.Overlaps(start.Q, -start.M, start.P, -start.a)
    one, two = tl.moments(odd, start), tl.moments(odd, flipped)
    np.testing.assert_allclose(two.psi, -one.psi, atol=1e-12)
    np.testing.assert_allclose(two.phi, one.phi, atol=1e-12)
    np.testing.assert_allclose(two.chi, one.chi, atol=1e-12)


@pytest.mark.parametrize(
    ("target", "activation"),
    [
        (tl.Teacher("erf", 1), "erf"),
        (tl.Teacher("relu", 1), "relu"),
        ("He3(z1)", "He3"),
        pytest.param("tanh(z1)", "tanh", marks=pytest.mark.slow),
    ],
)
def test_singular_overlaps_are_safe_and_continuous(
    target: Any, activation: str
) -> None:
    """Coincident neurons, neurons on the target, opposite neurons: finite, and the limit of nearby points."""
    problem = tl.Problem(target, activation, width=2, noise=0.2)
    for M in ([[1.0], [1.0]], [[0.6], [0.6]], [[1.0], [-1.0]], [[0.0], [0.0]]):
        sign = -1.0 if M[1][0] < 0 else 1.0
        exact = tl.Overlaps([[1.0, sign], [sign, 1.0]], M)
        one = tl.moments(problem, exact)
        near = tl.Overlaps(
            [[1.0, sign * (1 - 1e-7)], [sign * (1 - 1e-7), 1.0]],
            0.9999999 * np.array(M),
        )
        two = tl.moments(problem, near)
        for name in NAMES:
            assert np.isfinite(getattr(one, name)).all()
            np.testing.assert_allclose(
                getattr(one, name), getattr(two, name), atol=3e-3
            )


@pytest.mark.long
def test_a_loss_of_ones_own() -> None:
    """A residual that is not linear goes through nodes over all fields; the squared loss through them gives the same."""

    @tl.extend.register_loss("squared_again_for_test")
    def residual(y: jax.Array, f: jax.Array) -> jax.Array:
        return y - f

    @tl.extend.register_loss("huber_for_test")
    def huber(y: jax.Array, f: jax.Array) -> jax.Array:
        return jnp.clip(y - f, -1.0, 1.0)

    problem = tl.Problem("tanh(z1)", "tanh", noise=0.3)
    start = tl.Overlaps([[0.8]], [[0.4]])
    one, two = (
        tl.moments(problem, start),
        tl.moments(problem, start, "squared_again_for_test"),
    )
    for name in NAMES:
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), atol=1e-6)
    clipped = tl.moments(
        problem, start, "huber_for_test", averages=tl.Averages(points=2**16)
    )
    assert 0 < clipped.chi[0, 0] < one.chi[0, 0]


@pytest.mark.long
@pytest.mark.usefixtures("x64")
def test_pairs_by_quadrature_and_closed_form_near_coincidence() -> None:
    for name in ("erf", "relu"):
        sigma = Activation.of(name)
        closed, numeric = forms_of(sigma, 16), NumericForms(sigma, 16)
        c = 1.3 * jnp.asarray([1.0, 1 - 1e-9, 1 - 1e-5, 0.999, 0.3, -0.4, -1.0])
        for x, y in zip(
            jax.jit(closed.pair)(1.3, c, 1.3),
            jax.jit(numeric.pair)(1.3, c, 1.3),
            strict=True,
        ):
            np.testing.assert_allclose(x, y, atol=1e-9)
        mean, variance = jnp.asarray([0.5, -2.0, 1.0]), jnp.asarray([1.2, 0.1, 0.0])
        for x, y in zip(
            jax.jit(closed.single)(mean, variance),
            jax.jit(numeric.single)(mean, variance),
            strict=True,
        ):
            np.testing.assert_allclose(x, y, atol=1e-9)
    relu_, tanh = Activation.of("relu"), Activation.of("tanh")
    mixed = cross_pair(tanh, relu_, 16, 1.0, 0.4, 1.5)
    swapped = cross_pair(relu_, tanh, 16, 1.5, 0.4, 1.0)
    assert float(mixed.ff) == pytest.approx(float(swapped.ff), abs=1e-12)
    assert float(mixed.dd) == pytest.approx(float(swapped.dd), abs=1e-12)


@pytest.mark.long
@pytest.mark.usefixtures("x64")
def test_relu_four_point_function() -> None:
    """Against nested quadrature with three fields, and with coincident fields against lower formulas."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3, 4))
    C, w = X @ X.T, rng.normal(size=3)
    ours = np.asarray(jax.jit(rectifier.four_point, static_argnums=(2, 3))(C, w, 2, 24))
    L = np.linalg.cholesky(C)
    xi, weights, _ = nested_rule(L, [(0.0,)] * 3, 16, np.tri(3, dtype=bool))
    u = xi @ L.T
    e, on = np.maximum(u, 0) @ w, (u[:, :2] > 0).astype(float)
    np.testing.assert_allclose(
        ours, np.einsum("n,nj,nl,n->jl", weights, on, on, e**2), rtol=2e-7
    )
    same = rectifier.four_point(
        np.ones((4, 4)), np.full(4, 0.25), 2, 24
    )  # four times the same field
    np.testing.assert_allclose(same, 0.5, atol=1e-8)


def test_panel_rules_integrate_gaussians() -> None:
    for breaks in ([], [0.0], [-1.5, 0.3, 20.0]):
        x, w = panel_rule(np.array(breaks), 12)
        for power, moment in ((0, 1.0), (2, 1.0), (4, 3.0), (6, 15.0)):
            assert float((w * x**power).sum()) == pytest.approx(moment, abs=1e-7)
    x, w = panel_rule(np.array([0.3]), 12)
    step = 0.5 * math.erfc(0.3 / math.sqrt(2))
    assert float((w * (x > 0.3)).sum()) == pytest.approx(step, abs=1e-10)


@pytest.mark.long
def test_risk_of_a_trajectory_is_the_risk_of_its_points() -> None:
    for target, activation, p, k in [
        ("z1*z2", "relu", 2, 2),
        (tl.Teacher("tanh", 2), "tanh", 2, 2),
        ("He3(z1)", "He3", 1, 1),
    ]:
        problem = tl.Problem(target, activation, width=p, noise=0.3)
        starts = [random_overlaps(s, p, k) for s in range(5)]
        Q, M, a = (
            np.stack([getattr(s, name) for s in starts]) for name in ("Q", "M", "a")
        )
        risks, _ = excess_risks(problem, Q, M, a)
        expected = [tl.moments(problem, s).excess_risk for s in starts]
        np.testing.assert_allclose(risks, expected, atol=2e-6)


def test_the_same_engine_is_not_built_twice() -> None:
    problem = tl.Problem("z1*z2", "relu", width=2)
    assert select(problem, "squared") is select(
        tl.Problem("z1*z2", "relu", width=2, noise=0.7), "squared"
    )


def test_moments_refuse_what_does_not_fit() -> None:
    problem = tl.Problem("z1", "relu", width=2)
    with pytest.raises(tl.InputError, match="2 neurons and 1 directions"):
        tl.moments(problem, tl.Overlaps([[1.0]], [[0.0]]))
    with pytest.raises(tl.InputError, match="P = "):
        tl.moments(problem, tl.Overlaps(np.eye(2), [[0.0], [0.0]], P=[[2.0]]))
    with pytest.raises(tl.InputError, match="single point"):
        tl.moments(problem, tl.Overlaps.random(problem, 10, size=3))
    with pytest.raises(tl.InputError, match="`engine`"):
        tl.moments(
            problem,
            tl.Overlaps.random(problem, 10),
            averages=tl.Averages(engine="exact"),
        )


def test_the_error_stays_meaningful_where_everything_is_learned() -> None:
    problem = tl.Problem("tanh(z1)", "tanh")
    assert tl.moments(problem, tl.Overlaps([[1.0]], [[1.0]])).error < 1e-4


def test_a_neuron_of_norm_zero_at_a_kink_is_refused() -> None:
    start = tl.Overlaps([[0.0]], [[0.0]])
    with pytest.raises(tl.InputError, match="positive norm"):
        tl.moments(tl.Problem("z1", "relu"), start)
    assert np.isfinite(tl.moments(tl.Problem("z1", "erf"), start).psi).all()


def test_averages_are_taken_at_overlaps() -> None:
    problem = tl.Problem("z1**2", "square")
    cloud = tl.mean_field.Particles.sample(problem, 10, dim=50)
    for ask in (
        lambda x: tl.moments(problem, x),
        lambda x: tl.rates(problem, tl.SGD("0.1/d"), x),
    ):
        for wrong in (cloud, None, "random", [[1.0]]):
            with pytest.raises(tl.InputError, match="`start` must be Overlaps"):
                ask(wrong)
        with pytest.raises(tl.InputError, match="single point"):
            ask(tl.Overlaps.random(problem, 50, size=3))


@pytest.mark.parametrize(
    "target", ["log((z1-3)**2)", "log(abs(z1-3))", "abs(z1-3)**-0.4"]
)
def test_a_singular_target_keeps_its_averages(target: str) -> None:
    """Beside adaptive integrals up to the singularity; the error is that of points, and is told.

    The mean output at z1 is erf(m z1/√(2 (2 − m²))), and E[f²] = 1/3.
    """
    problem, one, m = tl.Problem(target, "erf"), np.ones((1, 1)), 0.3
    value, label = excess_risks(problem, one, m * one, one[0])
    assert "Sobol" in label and select(problem, "squared", log2_points=12).sampled

    def gap(z: float) -> float:
        h = float(problem.target(np.array([[z]]))[0])
        f = erf(m * z / math.sqrt(2 * (2 - m**2)))
        return h * (h - 2 * f) * math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

    whole = sum(quad(gap, *ends, limit=500)[0] for ends in ((-12, 3), (3, 12)))
    assert float(value) == pytest.approx((whole + 1 / 3) / 2, rel=5e-3)
