"""A share of the battery of averages; `python -m tests.battery` tries as many cases as one likes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from battery import witness as brute
from battery.__main__ import POINTS_PER_TASK, case, summary
from battery.functions import ACTIVATIONS
from battery.grammar import LAWS, LOSSES, RULES, Point, Target, Task, point, task
from battery.judge import compared, judged
from battery.witness import NAMES, witness
from cost import sized

from twolayer.functions.normalisation import NORMALISATIONS
from twolayer.gaussian.engines import ENGINES
from twolayer.task.labels import LAWS as KNOWN_LAWS
from twolayer.task.losses import BUILT_IN
from twolayer.task.rules import MAKERS


def tasks_of(rule: str, count: int) -> list[tuple[Task, Point]]:
    """The first tasks that a rule of the witness serves, with a point each."""
    found: list[tuple[Task, Point]] = []
    for seed in range(1000):
        description = task(np.random.default_rng([7, seed]))
        if description.linear is None or description.target.singular is not None:
            continue
        polynomial = (
            description.sigma.degree is not None
            and description.target.degree is not None
        )
        small = description.p == description.target.k == 1
        if rule != ("exact" if polynomial else "panels" if small else "lattice"):
            continue
        steep = max(description.sigma.growth, description.target.growth) > 3
        if not steep and description.sigma.text != "relu(z - 20)":
            where = point(np.random.default_rng([7, seed, 1]), description)
            found.append((description, where))
        if len(found) == count:
            return found
    raise AssertionError(f"the grammar has fewer than {count} tasks for {rule}")


@pytest.mark.parametrize("rule", ["exact", "panels"])
def test_rules_of_the_witness_agree(rule: str) -> None:
    """Product rules and panels beside the lattice, which knows nothing of polynomials and kinks."""
    for description, where in tasks_of(rule, 6):
        one = witness(description, where)
        other = brute._lattice(description, where, more=0)
        assert one.rule == rule
        for name, x, y, error in zip(
            NAMES, one.value, other.value, other.error, strict=True
        ):
            room = 8 * error + 1e-9 * (1 + abs(x))
            assert (abs(x - y) <= room).all(), (description.text, name)
            # and the lattice is fine enough for the comparison to mean something
            assert error.max() < 0.05 * (abs(x).max() + 0.1), (description.text, name)


def test_slopes_of_the_table_are_those_of_its_values() -> None:
    x = np.linspace(-2.93, 2.87, 41)
    for sigma in ACTIVATIONS:
        assert sigma.slope is not None
        difference = (sigma.value(x + 1e-6) - sigma.value(x - 1e-6)) / 2e-6
        assert np.allclose(sigma.slope(x), difference, rtol=1e-7, atol=1e-7), sigma.text


@pytest.mark.parametrize("rule", ["exact", "panels", "lattice"])
def test_a_factor_of_1_05_is_found_in_every_average(rule: str) -> None:
    description, where = tasks_of(rule, 1)[0]
    # nothing that vanishes by chance, where a factor changes nothing
    where = Point(
        0.4 + 0.1 * np.arange(where.A.size).reshape(where.A.shape),
        0.6 * np.eye(len(where.B)),
        where.L,
        1.0 + 0.1 * np.arange(len(where.a)),
        where.noise,
    )
    right = (
        brute._lattice(description, where, more=2).value
        if rule == "lattice"
        else witness(description, where).value
    )
    errors = dict.fromkeys(NAMES, 1e-9)
    values = dict(zip(NAMES, right, strict=True))
    for name in NAMES:
        planted = SimpleNamespace(
            **{**values, name: 1.05 * values[name]}, errors=errors
        )
        found = compared(planted, description, where)
        assert found["margins"][name] > 1, (description.text, name)
    wide = {name: 0.05 * float(np.max(abs(values[name]))) + 1e-9 for name in NAMES}
    assert (
        compared(SimpleNamespace(**values, errors=wide), description, where)["outside"]
        == 0
    )


def worded(text: str, value: Any, k: int = 1, **known: Any) -> Target:
    """A target that the grammar could have drawn."""
    facts = {"kinds": (), "growth": 3, "degree": None, **known}
    given = facts.pop("given", text)
    return Target(text, given, value, k, **facts)


def cornered(
    target: Target,
    sigma: str,
    A: Any,
    B: Any,
    a: Any,
    noise: float = 0.0,
    **told: Any,
) -> tuple[Task, Point]:
    """A task and a point that are written down."""
    (activation,) = (f for f in ACTIVATIONS if f.text == sigma)
    plain = {"loss": "squared", "rule": None, "law": "gaussian", "flips": 0.0}
    task = Task(
        target,
        activation,
        len(a),
        **{**plain, **told},
        noisy=noise > 0,
        normalisation="mean",
        gram=np.eye(target.k),
        engine="auto",
        log2_points=12,
    )
    return task, Point(*map(np.array, (A, B)), np.eye(target.k), np.array(a), noise)


CORNERS: dict[str, tuple[Task, Point]] = {
    "a loss in the name of a rule": cornered(
        worded("tanh(z1)", lambda u: np.tanh(u[..., 0])),
        "tanh",
        [[0.6]],
        [[0.8]],
        [1.2],
        loss="huber(0.5)",
        rule="normalised()",
    ),
    "a logarithm": cornered(
        worded(
            "log(abs(z1 - 3))",
            lambda u: np.log(np.abs(u[..., 0])),
            growth=1,
            kinks=(3.0,),
            singular=3.0,
        ),
        "tanh",
        [[0.6]],
        [[0.8]],
        [1.2],
        noise=0.1,
    ),
    "a logarithm under a loss that bends": cornered(
        worded(
            "log(abs(z1 - 3))",
            lambda u: np.log(np.abs(u[..., 0])),
            growth=1,
            kinks=(3.0,),
            singular=3.0,
        ),
        "tanh",
        [[0.6], [0.2]],
        [[0.8, 0.1], [0.3, 0.9]],
        [1.2, -0.7],
        noise=0.1,
        loss="huber(0.5)",
        law="cauchy",
    ),
    "a step of the student between two nodes": cornered(
        worded(
            "He2(z1)*sign(z1 - 0.7)",
            lambda u: ((u**2 - 1) * np.sign(u - 0.7))[..., 0],
            growth=2,
            kinks=(0.7,),
        ),
        "relu(z - 0.5)",
        [[-1.3958], [-1.0409]],
        [[-2.7596e-06, -9.44e-06], [0.21237, 0.6985]],
        [-1.0, 1.0],
        4.0,
        law="uniform",
    ),
    "orders that agree by chance": cornered(
        worded("-0.3*z1", lambda u: -0.3 * u[..., 0], growth=1, degree=1),
        "relu",
        [[-0.0403], [0.5649]],
        [[-0.0022, 0.0129], [0.0302, -0.1809]],
        [0.77, 1.291],
        0.1,
    ),
    "lines of few nodes": cornered(
        worded(
            "sin(5*z1)/2",
            lambda u: np.sin(5 * u[..., 0]) / 2,
            growth=0,
        ),
        "swish",
        [[0.0832], [0.3144], [0.2925]],
        [
            [1.0203, -7.0173, -3.1803],
            [-0.12, 0.3576, -0.4729],
            [-0.3454, -0.4414, -1.0033],
        ],
        [0.707, -0.436, 0.286],
        loss="huber(0.5)",
    ),
    "a sum that has hardly begun, under a loss that is fitted": cornered(
        worded("He3(z1)", lambda u: (u**3 - 3 * u)[..., 0], degree=3),
        "sin(5*z)",
        [[0.0], [-3.9972], [-0.4028]],
        [
            [0.1568, -1.1709, 0.0897],
            [-0.5755, 0.2773, 0.2295],
            [-0.0725, -0.4746, -0.4734],
        ],
        [-1.183, -0.978, 0.858],
        4.0,
        loss="hinge",
        flips=0.4,
    ),
    "panels of the label noise": cornered(
        worded(
            "exp(z1/2)*sign(z1 - 0.7)",
            lambda u: (np.exp(u / 2) * np.sign(u - 0.7))[..., 0],
            growth=np.inf,
            kinks=(0.7,),
        ),
        "abs(z - 1) - abs(z + 1)",
        [[-0.4798]],
        [[0.0015]],
        [-0.283],
        0.01,
        loss="huber(0.5)",
        flips=0.1,
    ),
}


@pytest.mark.parametrize(
    "name",
    sized(
        CORNERS,
        slow=set(CORNERS) - {"a logarithm"},
    ),
)
def test_corners_in_which_stated_errors_were_too_small(name: str) -> None:
    """Each was outside once, or refused, or not a number."""
    found = judged(*CORNERS[name])
    assert found["outcome"] == "judged", found
    assert found["outside"] == 0, (found["margins"], found["engine"])
    # and the stated error means something
    assert max(found["stated"].values()) < 0.5, found["stated"]


def test_what_is_not_finite_is_outside() -> None:
    description, where = CORNERS["a logarithm"]
    right = dict(zip(NAMES, witness(description, where).value, strict=True))
    for value, error in ((np.nan, 1.0), (np.nan, np.nan), (0.0, np.inf)):
        spoilt = {**right, "second": np.full(1, value)}
        errors = {**dict.fromkeys(NAMES, 1e-3), "second": error}
        found = compared(SimpleNamespace(**spoilt, errors=errors), description, where)
        assert found["outside"] == 1


@pytest.mark.slow
def test_the_grammar_has_everything() -> None:
    """Of every kind of function, loss, rule, law and number some are drawn."""
    tasks = [task(np.random.default_rng([8, i])) for i in range(500)]
    kinds = {kind for one in tasks for kind in one.target.kinds}
    assert kinds >= {"smooth", "kinked", "jumping", "singular", "oscillating"}
    assert kinds >= {"growing", "even", "odd", "oblique", "sum", "product", "teacher"}
    assert {one.target.growth for one in tasks} >= {0, 1, 2, 3, 4, 8, np.inf}
    assert {one.sigma.text for one in tasks} == {f.text for f in ACTIVATIONS}
    assert {one.p for one in tasks} == {1, 2, 3, 4, 5, 6}
    assert {one.target.k for one in tasks} == {1, 2, 3}
    assert {one.loss for one in tasks} == {"squared", *LOSSES}
    # the losses of the package, one that bends at a margin or a difference, and an own
    assert {loss.partition("(")[0] for loss in LOSSES} >= {*BUILT_IN, "huber"} - {
        "squared"
    }
    assert {one.rule for one in tasks} == {None, *RULES}
    assert {rule.partition("(")[0] for rule in RULES} >= {*MAKERS}
    assert {one.law for one in tasks} == {"gaussian", *LAWS}
    assert {law.partition("(")[0] for law in LAWS} >= {
        law.partition("(")[0] for law in KNOWN_LAWS
    } - {"gaussian"}
    assert {one.normalisation for one in tasks} == {*NORMALISATIONS}
    assert {one.flips for one in tasks} == {0.0, 0.1, 0.4}
    assert {one.engine for one in tasks} == {*ENGINES}
    least = [np.linalg.eigvalsh(one.gram)[0] for one in tasks]
    assert min(least) < 1e-12 and any(1e-12 < x < 1e-6 for x in least)
    wide, narrow = [], []
    for i, one in enumerate(tasks):
        overlaps = point(np.random.default_rng([8, i, 1]), one).overlaps
        wide.append(overlaps.Q.diagonal())
        omega = np.block([[overlaps.Q, overlaps.M], [overlaps.M.T, overlaps.P]])
        narrow.append(np.linalg.eigvalsh(omega)[0] / np.linalg.eigvalsh(omega)[-1])
    sizes = np.concatenate(wide)
    assert 1e-6 <= sizes.min() < 1e-5 and 20 < sizes.max() <= 100.0
    assert np.mean(np.array(narrow) < 1e-6) > 0.1


SHARE = [POINTS_PER_TASK * i for i in range(24)]
"""The first case of each of the first tasks of seed 0."""


@pytest.mark.parametrize("number", sized(SHARE, slow=SHARE[2:8], long=SHARE[8:]))
def test_share(number: int) -> None:
    found = judged(*case(0, number))
    assert found["outcome"] == "judged"
    assert found["outside"] == 0, (found["margins"], found["engine"])


def test_what_is_counted() -> None:
    line = {
        "outcome": "judged",
        "witness": "exact",
        "kinds": ["odd"],
        "sigma": "odd",
        "entries": 5,
        "outside": 1,
        "resolution": dict.fromkeys(NAMES, 1e-6),
        "seconds": 1.0,
        "brute": 1.0,
    }
    refused = {"outcome": "refused", "why": "no", "seconds": 0.1}
    figures = summary([line, {**line, "outside": 0}, refused])
    assert (figures["cases"], figures["refused"], figures["averages"]) == (2, 1, 10)
    assert (figures["outside"], figures["cases outside"]) == (1, 1)


def test_a_case_is_made_again_from_its_number() -> None:
    one, two = case(0, 61, 30), case(0, 61, 30)
    assert one[0].text == two[0].text
    assert np.array_equal(one[1].A, two[1].A)
    assert case(0, 62, 30)[0].text == one[0].text
    assert not np.array_equal(case(0, 62, 30)[1].A, one[1].A)
    assert replace(one[0], p=one[0].p + 1).text != one[0].text
