"""Runs of erf networks against the equations of Saad and Solla as printed (`order_parameters`): the numbers of the zoo
that were integrated anew, both layers, and direct feedback alignment by a registered rule."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from order_parameters import Curves, flow

import twolayer as tl
from twolayer import d
from twolayer.equations.averages import Expectations
from twolayer.gaussian.engines import select
from twolayer.gaussian.linear_rules import weights_of
from twolayer.numerics.precision import float64
from twolayer.task.rules import Rule

FEEDBACK = np.array([-0.8, 1.1])


@tl.extend.register_rule("aligned")
def aligned(seen: tl.rules.Sight) -> Any:
    """Direct feedback alignment of two erf neurons: F in place of the second layer."""
    slope = jnp.sqrt(2 / jnp.pi) * jnp.exp(-(seen.fields**2) / 2)
    return FEEDBACK * slope * seen.e[:, None]


def state(setup: tl.Setup) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of all fields, and the second layer, at the start of a set-up."""
    start = setup.start
    second = setup.problem.a() if start.a is None else start.a
    return np.block(
        [[start.Q, start.M], [start.M.T, np.asarray(setup.problem.gram)]]
    ), np.asarray(second)


@float64
def averages(problem: tl.Problem, algorithm: tl.SGD, at: tl.Overlaps) -> Expectations:
    """E[ĝ λ*ᵀ], E[ĝ λᵀ], E[ĝ ĝᵀ] and E[e σ]."""
    engine = select(problem, algorithm.drive).engine
    return jax.tree.map(
        np.asarray, engine(*map(jnp.asarray, (at.Q, at.M, at.a, problem.noise)))
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["saad1995-fig1", "refinetti2021-gradient-descent"])
def test_numbers_of_the_zoo_are_those_of_the_printed_equations(name: str) -> None:
    """Every value that its entry says was integrated anew."""
    setup = tl.zoo(name)
    (C, second), p, rate = state(setup), setup.problem.p, setup.algorithm.lr.coefficient
    parts, both = (C[:p, :p], C[:p, p:], C[p:, p:]), setup.algorithm.train_second_layer
    found = Curves(
        *parts, [1.0, 1.0], second, rate, [t / rate for t in setup.run["time"]], both
    )
    entries = {f"Q[{i},{i}]": found.Q[:, i - 1, i - 1] for i in range(1, p + 1)}
    entries |= {f"M[{i},{i}]": found.R[:, i - 1, i - 1] for i in (1, 2)}
    entries |= {f"a[{i}]": found.v[:, i - 1] for i in (1, 2)} | {
        "excess_risk": found.error
    }
    anew = [
        reference
        for reference in setup.reference
        if "integrated anew" in reference.where
    ]
    assert len(anew) == {"saad1995-fig1": 6, "refinetti2021-gradient-descent": 3}[name]
    for reference in anew:
        np.testing.assert_allclose(
            reference.value,
            entries[reference.quantity],
            rtol=3e-8,
            err_msg=reference.quantity,
        )


@pytest.mark.slow
def test_feedback_alignment_is_a_rule() -> None:
    """Its equations are those of gradient descent with F in place of v, and closed like those."""
    setup = tl.zoo("refinetti2021-gradient-descent")
    (C, second), rate = state(setup), setup.algorithm.lr.coefficient
    expected, other = (flow(C, second, [1.0, 1.0], rate, F) for F in (FEEDBACK, None))
    for rule, wanted in (("aligned()", expected), (None, other)):
        bound = 1e-12
        found = averages(setup.problem, setup.algorithm.replace(rule=rule), setup.start)
        np.testing.assert_allclose(found.psi, wanted.R / rate, atol=bound)
        np.testing.assert_allclose(
            found.phi + found.phi.T + rate * found.chi, wanted.Q / rate, atol=bound
        )
        np.testing.assert_allclose(found.second, wanted.v / rate, atol=bound)
    assert abs(expected.R - other.R).max() / rate > 0.1


def test_feedback_alignment_keeps_closed_forms() -> None:
    setup = tl.zoo("refinetti2021-gradient-descent")
    aligned = setup.algorithm.replace(rule="aligned()")
    averager = select(setup.problem, aligned.drive)
    assert averager.label == "closed form (erf)" and averager.closed
    # another slope than that of the student has none
    other = select(setup.problem.replace(activation="tanh"), aligned.drive)
    assert other.sampled and not other.closed


def slope_of_erf(fields: Any) -> Any:
    return jnp.sqrt(2 / jnp.pi) * jnp.exp(-(fields**2) / 2)


FIXED = np.array([0.9, -0.4])
LINEAR: dict[str, tuple[Any, Any, Any]] = {  # a rule, and its weights at a
    "feedback": (lambda x: FIXED * slope_of_erf(x.fields) * x.e[:, None], FIXED, 0.0),
    "scaled": (lambda x: 2.5 * x.g, 0.0, 2.5),
    "both": (
        lambda x: FIXED * slope_of_erf(x.fields) * x.e[:, None] - 0.5 * x.g,
        FIXED,
        -0.5,
    ),
    "paced": (lambda x: x.rate * x.g / x.p, 0.0, 0.3 / 2),
}
OTHER: dict[str, Any] = {
    "clipped far out": lambda x: jnp.clip(x.g, -1e3, 1e3),
    "blind to small ones": lambda x: jnp.where(jnp.abs(x.e[:, None]) > 1e-5, x.g, 0.0),
    "another slope": lambda x: FIXED * jnp.exp(-(x.fields**2)) * x.e[:, None],
    "the other neuron's": lambda x: x.g[:, ::-1],
    "of second order in a": lambda x: x.g * x.g / (x.e[:, None] + 1e-300),
    "the sign of e": lambda x: x.g * jnp.sign(x.e[:, None]),
    "ahead": lambda x: x.at(x.fields),
    "moved": lambda x: x.g + x.shift(x.g, 0.1),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", [*LINEAR, *OTHER])
def test_rules_that_are_linear_in_e_are_told_from_others(name: str) -> None:
    known = name in LINEAR
    push = LINEAR[name][0] if known else OTHER[name]
    rule = Rule("own_rule_of_this_test", (), push)
    found = weights_of(rule, tl.Problem("z1", "erf").activation, 2, 2.0, 1.0, 0.3)
    assert (found is not None) is known
    if found is not None:
        a = np.array([0.3, -2.0])
        _, fixed, share = LINEAR[name]
        np.testing.assert_allclose(
            np.asarray(found.at(a)), fixed + share * a, rtol=1e-9
        )


@pytest.mark.usefixtures("x64")
def test_rules_of_the_package_that_are_not_linear_are_not_taken_for_it() -> None:
    sigma = tl.Problem("z1", "erf").activation
    for text in ("clip(0.4)", "normalised()", "polyak()", "sign()", "lookahead(1/d)"):
        assert weights_of(tl.rules.Rule.of(text), sigma, 2, 2.0, 1.0, 0.3) is None
    double = weights_of(tl.rules.Rule.of("formula('2*g')"), sigma, 2, 2.0, 1.0, 0.3)
    assert double is not None and double.share == pytest.approx((2.0, 2.0))
    bent = tl.rules.Rule.of("formula('g/(1 + norm)')")
    assert weights_of(bent, sigma, 2, 2.0, 1.0, 0.3) is None


TASKS_OF_RULES = {
    "erf, sum, flips": tl.Problem(
        "sign(z1)", "erf", width=2, noise=0.3, normalisation="sum", flips=0.2
    ),
    "squares": tl.Problem("He2(z1)", "He2", width=2, noise=0.1, flips=0.1),
    "polynomials": tl.Problem("He3(z1) + z1", "He3", width=2, normalisation="sqrt"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS_OF_RULES)
def test_closed_averages_of_a_rule_are_those_of_nodes_over_all_fields(
    name: str,
) -> None:
    """The same rule where it is not known to be linear: quadrature over the fields, of which one neuron says nothing."""
    problem = TASKS_OF_RULES[name]
    at = tl.Overlaps([[0.9, 0.2], [0.2, 0.6]], [[0.4], [-0.3]], a=[0.0, 1.3])
    slope = problem.activation.slope

    @tl.extend.register_rule("linear_rule_of_this_test")
    def push(x: tl.rules.Sight) -> Any:
        return FIXED * slope(x.fields) * x.e[:, None] + 0.7 * x.g

    loss = tl.SGD(0.3 / d, rule="linear_rule_of_this_test()").mean_drive
    found = tl.moments(problem, at, loss=loss)
    nodes = tl.moments(problem, at, loss=loss, averages=tl.Averages("quadrature"))
    assert found.engine.startswith("closed form") and found.error < 1e-6
    for one in ("psi", "phi", "chi", "second"):
        room = 1e-5 * abs(getattr(nodes, one)).max() + nodes.errors[one]
        gap = abs(getattr(found, one) - getattr(nodes, one))
        assert (gap <= room).all(), (one, gap, room)
        assert room.max() < 1e-3 * abs(getattr(nodes, one)).max()
    assert abs(found.psi[0]).max() > 0.05


@pytest.mark.parametrize("noise", [0.0, pytest.param(0.1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("rule", "wider"),
    [
        pytest.param("clip(0.2)", "clip(0.4)", marks=pytest.mark.slow),
        pytest.param("polyak(20.0)", "polyak(20.0)", marks=pytest.mark.slow),
    ],
)
def test_rules_see_the_gradients_of_a_sum_as_they_are(
    rule: str, wider: str, noise: float
) -> None:
    """A sum of p neurons is a mean with p times the second layer: gradients, and where they are clipped, are p times."""
    start = tl.Overlaps(np.eye(2), [[0.3], [-0.1]], a=[0.6, -0.4])
    larger = tl.Overlaps(np.eye(2), [[0.3], [-0.1]], a=[1.2, -0.8])
    total = tl.Problem("z1", "erf", width=2, normalisation="sum", noise=noise)
    mean = tl.Problem("z1", "erf", width=2, noise=noise)
    one = averages(total, tl.SGD(lr="0.3/d", rule=rule), start)
    other = averages(mean, tl.SGD(lr="0.3/d", rule=wider), larger)
    np.testing.assert_allclose(2 * one.psi, other.psi, rtol=1e-10)
    np.testing.assert_allclose(2 * one.phi, other.phi, rtol=1e-10)
    np.testing.assert_allclose(4 * one.chi, other.chi, rtol=1e-10)
    plain = averages(total, tl.SGD(lr="0.3/d"), start)
    assert abs(one.psi - plain.psi).max() > 0.01
