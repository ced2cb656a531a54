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
from twolayer.equations.averages import Averages
from twolayer.gaussian.engines import select
from twolayer.numerics.precision import float64

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
def averages(problem: tl.Problem, algorithm: tl.SGD, at: tl.Overlaps) -> Averages:
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
    """Its equations are those of gradient descent with F in place of v."""
    setup = tl.zoo("refinetti2021-gradient-descent")
    (C, second), rate = state(setup), setup.algorithm.lr.coefficient
    expected, other = (flow(C, second, [1.0, 1.0], rate, F) for F in (FEEDBACK, None))
    for rule, wanted, bound in (
        ("aligned()", expected, 3e-4),
        (None, other, 1e-12),
    ):  # Sobol points over four fields
        found = averages(setup.problem, setup.algorithm.replace(rule=rule), setup.start)
        np.testing.assert_allclose(found.psi, wanted.R / rate, atol=bound)
        np.testing.assert_allclose(
            found.phi + found.phi.T + rate * found.chi, wanted.Q / rate, atol=bound
        )
        np.testing.assert_allclose(found.second, wanted.v / rate, atol=bound)
    assert abs(expected.R - other.R).max() / rate > 0.1


@pytest.mark.parametrize("noise", [0.0, pytest.param(0.1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("rule", "wider"),
    [
        pytest.param("clip(0.2)", "clip(0.4)", marks=pytest.mark.slow),
        ("polyak(20.0)", "polyak(20.0)"),
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
