"""The floor for JAX users: pure functions against `solve`, `moments` and `rates`, their derivatives against differences."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from chance import sigmas

import twolayer as tl
from conftest import random_overlaps
from twolayer import d, pure
from twolayer.numerics import random

pytestmark = pytest.mark.usefixtures("x64")

P = np.array([[1.0, 0.3], [0.3, 0.8]])
TASKS = {
    "quadratic": tl.Problem("He2(z1) + 0.5*He2(z2)", "He2", width=2, noise=0.1, gram=P),
    "erf": tl.Problem(tl.Teacher("erf", k=2), "erf", width=2, noise=0.1, gram=P),
}
START = random_overlaps(3, 2, 2, P)
# one neuron and one direction, where code has to be compiled forwards and backwards
SMALL = {
    name: tl.Problem(tl.Teacher(name, k=1), name, noise=0.1)
    for name in ("square", "erf", "relu")
}
ALONE = tl.Overlaps([[0.8]], [[0.3]], a=[0.9])


def difference(f: Any, x: float, h: float = 1e-4) -> float:
    """A derivative by central differences of fourth order."""
    return float((8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h))


@pytest.mark.long
@pytest.mark.parametrize("task", ["quadratic", "erf", "relu"])
def test_averages_are_those_of_moments(task: str) -> None:
    problem, start = (TASKS[task], START) if task in TASKS else (SMALL[task], ALONE)
    own, known = pure.averages(problem, at=start)(start), tl.moments(problem, start)
    for name in ("psi", "phi", "chi", "second", "excess_risk"):
        np.testing.assert_allclose(
            getattr(own, name), getattr(known, name), rtol=1e-9, atol=1e-10
        )


@pytest.mark.parametrize("geometry", ["free", "projected"])
def test_the_field_is_the_sum_of_the_rates(geometry: str) -> None:
    algorithm = tl.SGD(
        lr=0.3 / d,
        geometry=geometry,
        weight_decay=0.1,
        momentum=0.3,
        train_second_layer=True,
    )
    own, known = (
        pure.vector_field(TASKS["erf"], algorithm)(START),
        tl.rates(TASKS["erf"], algorithm, START).total,
    )
    for name in ("M", "Q", "a"):
        np.testing.assert_allclose(
            getattr(own, name), getattr(known, name), rtol=1e-12, atol=1e-13
        )


def final_risk(
    problem: tl.Problem,
    lr: Any,
    start: tl.Overlaps,
    time: float = 1.0,
    mode: str = "reverse",
) -> Any:
    field = pure.vector_field(problem, tl.SGD(lr=lr / d))
    return pure.averages(problem)(
        pure.integrate(field, start, jnp.array([time / 2, time]), mode=mode)[-1]
    ).excess_risk


@pytest.mark.long
@pytest.mark.parametrize(("task", "mode"), [("erf", "forward"), ("relu", "reverse")])
def test_the_risk_of_solve_and_its_derivative_with_respect_to_lr(
    task: str, mode: str
) -> None:
    problem, start, lr = SMALL[task], ALONE, 0.4
    theory = tl.solve(problem, tl.SGD(lr=lr / d), tl.ODE(), start, time=1, save=1)

    def risk(lr: Any) -> Any:
        return final_risk(problem, lr, start, mode=mode)

    forward = jax.jit(lambda lr: jax.jvp(risk, (lr,), (jnp.ones(()),)))
    both: Any = forward if mode == "forward" else jax.jit(jax.value_and_grad(risk))
    value, slope = both(lr)
    np.testing.assert_allclose(value, theory.excess_risk.values[0, -1], rtol=1e-6)
    expected = difference(lambda lr: both(lr)[0], lr, lr / 100)
    assert abs(expected) > 1e-3
    np.testing.assert_allclose(slope, expected, rtol=1e-5)


@pytest.mark.long
def test_the_derivative_with_respect_to_the_start() -> None:
    both = jax.jit(
        jax.value_and_grad(lambda start: final_risk(SMALL["square"], 0.03, start))
    )
    slope = both(ALONE)[1]
    assert isinstance(slope, tl.Overlaps)

    def moved(h: float) -> Any:
        return both(tl.Overlaps(ALONE.Q, np.array(ALONE.M) + h, a=ALONE.a))[0]

    np.testing.assert_allclose(slope.M[0, 0], difference(moved, 0.0, 1e-3), rtol=1e-5)


@pytest.mark.slow
def test_a_family_of_problems_side_by_side() -> None:
    """Noise levels and learning rates are data: one compiled function for all of them."""
    problem = SMALL["square"]

    def risk(noise: Any, lr: Any) -> Any:
        return final_risk(
            problem.replace(noise=noise), lr, ALONE, time=0.3, mode="forward"
        )

    noises, rates = jnp.array([0.0, 0.2, 0.4]), jnp.array([0.02, 0.05, 0.03])
    family = jax.jit(jax.vmap(risk))(noises, rates)
    for noise, lr, value in zip(noises, rates, family, strict=True):
        alone = tl.solve(
            problem.replace(noise=float(noise)),
            tl.SGD(lr=float(lr) / d),
            tl.ODE(),
            ALONE,
            time=0.3,
            save=1,
        )
        np.testing.assert_allclose(value, alone.excess_risk.values[0, -1], rtol=1e-6)


@pytest.mark.long
def test_lr_and_noise_fitted_to_data() -> None:
    """The overlaps of a simulated run give back the learning rate and the noise it was made with."""
    problem = tl.Problem("He2(z1)", "He2", noise=0.5)
    times, start = jnp.linspace(0.1, 1.5, 8), tl.Overlaps([[0.5]], [[0.4]])

    def path(numbers: Any) -> Any:
        lr, noise = numbers
        field = pure.vector_field(problem.replace(noise=noise), tl.SGD(lr=lr / d))
        seen = pure.integrate(field, start, times, mode="forward")
        return jnp.concatenate([seen.Q.ravel(), seen.M.ravel()])

    data = path((0.08, 0.5))
    found = optx.least_squares(
        lambda x, _: path(x) - data, optx.LevenbergMarquardt(rtol=1e-10, atol=1e-10), (jnp.asarray(0.05), jnp.asarray(0.2))
    )  # fmt: skip
    np.testing.assert_allclose([float(x) for x in found.value], [0.08, 0.5], rtol=1e-5)


@pytest.mark.parametrize(
    "geometry", ["free", pytest.param("projected", marks=pytest.mark.slow)]
)
def test_mean_steps_are_those_of_map_and_giant_steps(geometry: str) -> None:
    problem, start = (
        tl.Problem("He2(z1)", "He2", width=2, noise=0.1),
        random_overlaps(5, 2, 1),
    )
    if geometry == "projected":
        scale = 1 / np.sqrt(np.diagonal(start.Q))
        start = tl.Overlaps(
            start.Q * scale[:, None] * scale, start.M * scale[:, None], a=start.a
        )
    for method, dim, algorithm in (
        (tl.Map(200), 200, tl.SGD(lr=0.1, batch=400, geometry=geometry)),
        (
            tl.GiantSteps(),
            None,
            tl.SGD(lr=0.1, batch=3 * d, geometry=geometry, momentum=0.4),
        ),
    ):
        step = pure.mean_step(problem, algorithm, dim)
        state, one = step.start(start), eqx.filter_jit(step)
        for _ in range(3):
            state = one(state)
        own, known = (
            step.overlaps(state),
            tl.solve(problem, algorithm, method, start, steps=3, save=1),
        )
        np.testing.assert_allclose(own.M, known.M.values[0, -1], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(own.Q, known.Q.values[0, -1], rtol=1e-10, atol=1e-12)


def test_the_derivative_of_giant_steps_where_neurons_coincide() -> None:
    """Ω is singular there, and its eigenvalues are degenerate: neither may reach the derivative."""
    problem = tl.Problem(tl.Teacher("erf", k=1), "erf", width=2)
    start = tl.Overlaps(np.ones((2, 2)), np.full((2, 1), 0.3))

    def overlap(lr: Any) -> Any:
        step = pure.mean_step(problem, tl.SGD(lr=lr, batch=2 * d))
        return step.overlaps(step(step(step.start(start)))).M[0, 0]

    both = jax.jit(jax.value_and_grad(overlap))
    np.testing.assert_allclose(
        both(0.3)[1], difference(lambda lr: both(lr)[0], 0.3), rtol=1e-6
    )


@pytest.mark.slow
def test_chain_steps_are_those_of_the_chain() -> None:
    """Fed with the normals of a run, the pure step goes the same way."""
    problem, dim = tl.Problem("tanh(z1)", "tanh", noise=0.1), 100
    algorithm = tl.SGD(
        lr=1.5 / d, batch=3, momentum=0.4, geometry="projected", train_second_layer=True
    )
    start = tl.Overlaps.random(problem, dim, seed=4)
    run = tl.solve(problem, algorithm, tl.Chain(dim), start, steps=20, save=1, seed=7)
    step = pure.chain_step(problem, algorithm, dim)
    own = step.at.batch * step.at.width
    keys = [
        random.stream(7, role) for role in (random.Role.FIELDS, random.Role.ORTHOGONAL)
    ]
    state = step.start(start)

    @jax.jit
    def one(n: Any, state: Any) -> Any:
        counts = zip(keys, (own, step.draws - own), strict=True)
        parts = [
            random.normal(key, n, jnp.arange(m, dtype=jnp.uint32)) for key, m in counts
        ]
        return step(state, jnp.concatenate(parts))

    for n in range(20):
        state = one(jnp.uint32(n), state)
    end = step.overlaps(state)
    assert abs(float(end.M[0, 0]) - start.M[0, 0]) > 0.01
    np.testing.assert_allclose(end.M, run.M.values[0, -1], rtol=1e-12)
    np.testing.assert_allclose(end.a, run.a.values[0, -1], rtol=1e-12)


def test_chain_steps_have_the_mean_of_map() -> None:
    problem, dim = tl.Problem("He2(z1)", "He2", noise=0.1), 12
    algorithm, start = tl.SGD(lr=0.05, batch=4), tl.Overlaps([[0.8]], [[0.4]])
    step = pure.chain_step(problem, algorithm, dim)
    normals = jax.random.normal(jax.random.key(1), (400_000, step.draws))
    after = jax.jit(
        jax.vmap(lambda x: step.overlaps(step(step.start(start), x)).Q[0, 0])
    )(normals)
    mean = tl.solve(problem, algorithm, tl.Map(dim), start, steps=1, save=1).Q.values[
        0, -1, 0, 0
    ]
    error = float(after.std() / np.sqrt(len(after)))
    assert abs(float(after.mean()) - mean) < sigmas() * error
    assert error < 0.02 * abs(mean - 0.8)  # a wrong term would be seen


def test_increments_are_those_of_the_network() -> None:
    problem, rng = TASKS["erf"], np.random.default_rng(0)
    student, target, noise = (
        rng.normal(size=(5, 2)),
        rng.normal(size=(5, 2)),
        rng.normal(size=5),
    )
    a = jnp.array([0.7, -1.3])

    def loss(student: Any, a: Any, i: int) -> Any:
        f = (a * problem.activation(student)).sum() / 2
        return (
            problem.target(jnp.asarray(target[i])) + np.sqrt(0.1) * noise[i] - f
        ) ** 2 / 2

    push = pure.increment(problem, tl.SGD(lr="1/d"))(
        jnp.asarray(student), jnp.asarray(target), jnp.asarray(noise), a
    )
    for i in range(5):
        first, second = jax.grad(loss, (0, 1))(jnp.asarray(student[i]), a, i)
        np.testing.assert_allclose(push.first[i], -2 * first, rtol=1e-12)
        np.testing.assert_allclose(push.second[i], -2 * second, rtol=1e-12)


def test_what_is_no_equation_is_refused() -> None:
    problem = TASKS["quadratic"]
    with pytest.raises(tl.errors.Refused, match="giant steps"):
        pure.vector_field(problem, tl.SGD(lr=0.1, batch=2 * d))
    with pytest.raises(tl.errors.Refused, match="reused"):
        pure.chain_step(problem, tl.SGD(lr=0.1, batch=2 * d, dataset=2 * d), 100)
    with pytest.raises(tl.errors.Refused, match="order one"):
        pure.mean_step(problem, tl.SGD(lr=0.1 / d))
    with pytest.raises(tl.InputError, match="at least 6"):
        pure.chain_step(problem, tl.SGD(lr=0.1 / d), 5)
    with pytest.raises(tl.InputError, match="`mode`"):
        pure.integrate(
            pure.vector_field(problem, tl.SGD(lr=0.1 / d)),
            START,
            jnp.array([1.0]),
            mode="sideways",
        )
    with jax.enable_x64(False), pytest.raises(tl.InputError, match="jax_enable_x64"):
        pure.averages(problem)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rule", ["clip(0.25)", "lookahead(1.5/d)"])
def test_rates_are_differentiated_through_rules_that_do_not_look_at_them(
    rule: str,
) -> None:
    """The term of second order is proportional to lr: the slope is a difference of two points."""
    problem = tl.Problem("z1", "erf", noise=0.1)
    start = tl.Overlaps([[1.0]], [[0.3]])

    def norm(lr: Any) -> Any:
        algorithm = tl.SGD(lr=lr / tl.d, rule=rule)
        return pure.vector_field(problem, algorithm)(start).Q[0, 0]

    one, two = norm(0.2), norm(0.4)
    assert float(jax.grad(norm)(0.2)) == pytest.approx(float(two - one) / 0.2, rel=1e-9)
    assert abs(two - one) > 1e-3


@pytest.mark.usefixtures("x64")
def test_a_rule_that_looks_at_the_rate_says_so() -> None:
    problem = tl.Problem("z1", "erf", noise=0.1)

    def norm(lr: Any) -> Any:
        algorithm = tl.SGD(lr=lr / tl.d, rule="polyak()")
        return pure.vector_field(problem, algorithm)(tl.Overlaps([[1.0]], [[0.3]])).Q[
            0, 0
        ]

    with pytest.raises(tl.InputError, match="must be numbers for the rule polyak"):
        jax.grad(norm)(0.2)
