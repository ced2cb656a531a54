"""Information, leap and generative exponents: the published table, and targets that are not in it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import twolayer as tl

# target, information exponents of y, y² and y³ (None: constant), leap chain, generative chain
TABLE = [
    ("z1", 1, 2, 1, [(1, 1)], [(1, 1)]),
    ("He2(z1)", 2, 2, 2, [(2, 1)], [(2, 1)]),
    ("abs(z1)", 2, 2, 2, [(2, 1)], [(2, 1)]),
    ("cos(z1)", 2, 2, 2, [(2, 1)], [(2, 1)]),
    ("He3(z1)", 3, 2, 1, [(3, 1)], [(1, 1)]),
    ("He4(z1)", 4, 2, 2, [(4, 1)], [(2, 1)]),
    ("relu(z1)", 1, 1, 1, [(1, 1)], [(1, 1)]),
    ("sign(z1)", 1, None, 1, [(1, 1)], [(1, 1)]),
    ("z1**2*exp(-z1**2)", 4, 4, 4, [(4, 1)], [(4, 1)]),
    ("z1 + z1*z2", 1, 1, 1, [(1, 1), (1, 1)], [(1, 2)]),
    ("(0.6*z1 + 0.8*z2)*(1 + 0.8*z1 - 0.6*z2)", 1, 1, 1, [(1, 1), (1, 1)], [(1, 2)]),
    ("z1 + He2(z1)*z2", 1, 2, 1, [(1, 1), (1, 1)], [(1, 2)]),
    ("z1 + sign(z1*z2)", 1, 1, 1, [(1, 1), (1, 1)], [(1, 2)]),
    ("tanh(z1 + He3(z2))", 1, 2, 1, [(1, 1), (1, 1)], [(1, 2)]),
    ("z1 + He2(z2)", 1, 2, 1, [(1, 1), (2, 1)], [(1, 1), (2, 1)]),
    ("z1 + He3(z2)", 1, 2, 1, [(1, 1), (3, 1)], [(1, 2)]),
    ("z1*z2", 2, 2, 2, [(2, 2)], [(2, 2)]),
    ("He2(z1) + He2(z2)", 2, 2, 2, [(2, 2)], [(2, 2)]),
    ("sign(z1*z2)", 2, None, 2, [(2, 2)], [(2, 2)]),
    ("He2(z1)*z2", 3, 2, 1, [(3, 2)], [(1, 1), (2, 1)]),
    ("He3(z1) + He3(z2)", 3, 2, 1, [(3, 2)], [(1, 1), (2, 1)]),
    ("z1 + z1*z2 + z1*z2*z3", 1, 1, 1, [(1, 1)] * 3, [(1, 3)]),
    ("z1*z2*z3", 3, 2, 3, [(3, 3)], [(2, 3)]),
    ("sign(z1*z2*z3)", 3, None, 3, [(3, 3)], [(3, 3)]),
    ("sign(z1*z2*z3) + He4(z1)", 3, 2, 2, [(3, 3)], [(2, 1), (2, 2)]),
    ("He2(z1) + z1*z2*z3", 2, 2, 2, [(2, 1), (2, 2)], [(2, 3)]),
    ("z1*z2 + z1*z2*z3", 2, 1, 2, [(2, 2), (1, 1)], [(1, 1), (2, 2)]),
]


def test_the_table_has_27_rows() -> None:
    assert len(TABLE) == 27


# three variables in sign take seconds
@pytest.mark.parametrize(
    ("text", "first", "square", "cube", "chain", "generative"),
    [
        pytest.param(
            *row,
            marks=[pytest.mark.slow] if "z3" in row[0] and "sign" in row[0] else [],
        )
        for row in TABLE
    ],
)
def test_table(
    text: str,
    first: int,
    square: int | None,
    cube: int,
    chain: list[object],
    generative: list[object],
) -> None:
    result = tl.analyse(text)
    assert result.information == first
    assert result.chain == chain
    assert result.leap == max(q for q, _ in chain)  # type: ignore[misc]
    assert result.generative_chain == generative
    assert result.generative_leap == max(q for q, _ in generative)  # type: ignore[misc]
    assert tl.analyse(f"({text})**2").information == square
    assert tl.analyse(f"({text})**3").information == cube


@pytest.mark.parametrize(
    ("text", "chain", "generative"),
    [
        ("sign((z1 + z2)*(z1 - z2))", [(2, 2)], [(2, 2)]),
        ("z1*z2*z3*z4", [(4, 4)], [(2, 4)]),
        ("sign(z1*z2*z3*z4)", [(4, 4)], [(4, 4)]),
        ("He5(z1)", [(5, 1)], [(1, 1)]),
        ("He8(z1)", [(8, 1)], [(2, 1)]),
        ("He3(z1) + 0.001*z1", [(1, 1)], [(1, 1)]),
        ("h6(z1) + h3(z2)", [(3, 1), (6, 1)], [(1, 1), (2, 1)]),
        ("exp(z1)", [(1, 1)], [(1, 1)]),
        ("relu(z1)*relu(z2)", [(1, 1), (2, 1)], [(1, 1), (2, 1)]),
        ("sign(z1 + z2)*z3", [(2, 2)], [(2, 2)]),
        ("tanh(z1*z2*z3)", [(3, 3)], [(2, 3)]),
        ("z1 + z1*z2*z3", [(1, 1), (2, 2)], [(1, 1), (2, 2)]),
    ],
)
def test_targets_outside_the_table(
    text: str, chain: list[object], generative: list[object]
) -> None:
    result = tl.analyse(text)
    assert (result.chain, result.generative_chain) == (chain, generative)


@pytest.mark.parametrize("seed", range(3))
def test_no_coordinate_plays_a_role(seed: int) -> None:
    O = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]

    def rotated(z):  # type: ignore[no-untyped-def]
        x = jnp.asarray(O) @ z
        return x[0] + jnp.sign(x[0] * x[1]) + x[0] * x[1] * x[2]

    result = tl.analyse(rotated, directions=3)
    assert result.chain == [(1, 1)] * 3
    assert result.generative_chain == [(1, 3)]
    np.testing.assert_allclose(np.abs(result.directions @ O.T), np.eye(3), atol=0.02)
    assert result.staircase() == [1, 2, 3]


def test_directions_come_out_as_vectors() -> None:
    result = tl.analyse("tanh(z1 + He3(z2))")
    np.testing.assert_allclose(result.directions[0], [0.7678, -0.6407], atol=1e-4)
    np.testing.assert_allclose(
        result.directions @ result.directions.T, np.eye(2), atol=1e-12
    )


def test_a_direction_that_does_not_enter_is_named() -> None:
    result = tl.analyse("z1 + 0*z2")
    assert result.unused.tolist() == [[0.0, 1.0]]
    assert result.leap == 1
    assert result.generative_leap == 1
    assert "does not enter" in str(result)
    combined = tl.analyse("cos(2*z1 + z2)")
    np.testing.assert_allclose(
        np.abs(combined.unused), [[0.4472136, 0.8944272]], atol=1e-6
    )
    assert len(tl.analyse("relu(z1 + z2)").unused) == 1
    assert tl.analyse("sign(z1)**2").information is None


# Fresh giant steps (projected, generic second layer): steps at which z1, z2, … are learned, per activation
STAIRCASES = [
    ("z1 + z1*z2", [1, 2], [1, 2], [1, None]),
    ("z1 + z1*z2 + z1*z2*z3", [1, 2, 3], [1, 2, None], [1, None, None]),
    ("z1 + He2(z1)*z2", [1, 2], [1, None], [1, 2]),
    ("z1 + sign(z1*z2)", [1, 2], [1, 2], [1, None]),
    ("tanh(z1 + He3(z2))", [1, 2], [1, None], [1, 2]),
    ("z1 + He3(z2)", [1, None], [1, None], [1, None]),
    ("z1*z2", [None, None], [None, None], [None, None]),
    ("z1*z2*z3", [None] * 3, [None] * 3, [None] * 3),
    ("sign(z1*z2*z3) + He4(z1)", [None] * 3, [None] * 3, [None] * 3),
]


@pytest.mark.parametrize(("text", "shifted", "relu", "erf"), STAIRCASES)
def test_staircases(
    text: str, shifted: list[int], relu: list[int], erf: list[int]
) -> None:
    result = tl.analyse(text)
    assert result.staircase("tanh(z + 0.7)") == shifted
    assert result.staircase("relu") == relu
    assert result.staircase("erf") == erf
    assert result.staircase() == shifted


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("He3(z1)", [2]),
        ("He2(z1)*z2", [2, None]),
        ("He2(z1)", [None]),
        ("z1*z2*z3", [None] * 3),
        ("z1 + He3(z2)", [1, 2]),
    ],
)
def test_reused_batches_see_more(text: str, steps: list[int | None]) -> None:
    assert tl.analyse(text).staircase(reuse=True) == steps
    assert tl.analyse("He3(z1)").staircase("He2", reuse=True) == [
        None
    ]  # w → −w is a symmetry of an even student


def test_hermite_and_latex() -> None:
    result = tl.analyse("He2(z1)*z2")
    assert result.hermite == pytest.approx({(2, 1): np.sqrt(2)})
    assert result.latex == r"\mathrm{He}_{2}\left(z_{1}\right) \, z_{2}"


def test_a_direction_that_does_not_enter_is_in_no_chain() -> None:
    result = tl.analyse("z1*z3")
    np.testing.assert_allclose(np.abs(result.unused), [[0.0, 1.0, 0.0]], atol=1e-9)
    assert result.generative_chain == [(2, 2)] and result.generative_leap == 2
    assert result.chain == [(2, 2)] and result.leap == 2


def test_a_direction_at_an_angle_hides_nothing() -> None:
    """In turned coordinates products of three polynomials have three times the degree along every axis."""
    found = tl.analyse("(z1 + z2)**2")
    assert found.chain == [(2, 1)] and np.allclose(np.abs(found.directions), 0.5**0.5)
    assert np.allclose(np.abs(found.unused), 0.5**0.5) and not len(found.unresolved)


@pytest.mark.slow
def test_steps_of_linear_students_are_linear_in_labels_that_come_back() -> None:
    """W_2 = W_1 + η Xᵀ(y − X W_1)/n is linear in y, so reuse shows no function of y but y itself."""
    assert tl.analyse("He3(z1)").staircase("linear", reuse=True) == [None]
    assert tl.analyse("z1 + He3(z2)").staircase("linear", reuse=True) == [1, None]
    assert tl.analyse("z1 + He3(z2)").staircase("relu", reuse=True) == [1, 2]
