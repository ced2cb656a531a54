"""Poles are found from the formula, wherever they are, and nothing else is taken for one."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from fuzz import texts
from scipy import integrate

import twolayer as tl
from twolayer.functions.enclosures import enclose
from twolayer.functions.expression import Expression, parse
from twolayer.functions.poles import find_pole
from twolayer.numerics.errors import InputError

ON_A_LINE = {
    "1/(z1 - 5)": 5.0,
    "1/(z1 - 3.9)": 3.9,
    "1/(z1 - 50)": 50.0,
    "1/(z1 - 1e6)": 1e6,
    "(z1 - 5)**-2": 5.0,
    "abs(z1 - 5)**-0.5": 5.0,
    "1/tanh(z1 - 5)": 5.0,
    "1/(z1**2 - 10*z1 + 25)": 5.0,
    "1/(z1**3 - 15*z1**2 + 75*z1 - 125)": 5.0,
    "z1 + 1e-3/(z1 - 5)": 5.0,
    "(z1 - 1)/((z1 - 1)*(z1 - 7))": 7.0,
    "(1 - cos(z1))/z1**3": 0.0,
    "1/(exp(z1) - 1000)": math.log(1000),
    "1/(erf(z1) - 0.5)": 0.4769362762044699,
    "1/swish(z1 - 6)": 6.0,
    "1/log(abs(z1 - 8))": 7.0,
    "exp(-1/(z1 - 5))": 5.0,
    "1/(1 + 9/(z1 - 16))": 7.0,
}
ELSEWHERE = [
    "1/(z1 + z2 - 6)",
    "1/(z1*z2 - 30)",
    "z1/z2",
    "relu(z2)/sin(z1)",
    "1/(z1**2 + z2**2)",
    "1/((z1 - 5)**2 + (z2 - 5)**2)",
    "1/((z1 - 5)**2 + (z2 - 5)**2 - 0.01)",
    "1/((z1 - 5)**2 + (z2 - 6)**2 + (z3 - 4)**2)",
    "log(abs(z1)) + 1/(z2 - 5)",
    "1/(z1**2 - 2*z1*z2 + z2**2)",
    "1/(z1 + z2 + z3 + z4 + z5 + z6 - 20)",
    "1/(He4(z1) + He2(z2) - 900)",
    "1/cos(z1)",
    # no numbers, on a window or beyond a surface
    "sqrt((z1 - 5)**2 - 0.01)",
    "log((z1 - 6)**2 - 0.1)",
    "1/relu((z1 - 5)**2 - 0.1)",
]
INTEGRABLE = [
    "1/(1 + z1**2)",
    "log(abs(z1 - 3))",
    "abs(z2 - 7.5)**-0.4 - He2(z2)*z1",  # passes zero close to the singularity
    "log(abs(z1))**4",
    "log(z1**2 + z2**2)",
    "abs(z1 - 3)**-0.4",
    "sign(z1)/abs(z1)**0.45",
    "(z1**2 + z2**2)**-0.4",
    "(z1**2 + z2**2 + z3**2)**-0.7",
    "sin(z1)/z1",
    "(z1**2 - 25)/(z1 - 5)",
    "(1 - cos(z1))/z1**2",
    "(exp(z1) - 1 - z1)/z1**2",
    "z1/(exp(z1) - 1)",
    "exp(-1/z1**2)",
    "tanh(1/(z1 - 5))",
    "z1/(z1 + 1/z1)",
    "1/(1 + 1/z1**2 + z1**4)",
    "1/(exp(z1) + 1)",
    "z1*exp(z1)/(1 + exp(z1))",
    "1/(2 - sin(z1))",
    "1/(3 + cos(z1) + sin(z2))",
    "1/(1.0001 + tanh(z1))",
    "1/(z1**2 - 2*z1 + 2)",
    "1/(z1*z1 + 1e-6)",
    "z1/(abs(z1) + 1e-6)",
    "1/(2 + He2(z1))",
    "1/(swish(z1) + 0.3)",
    "log(2 + sin(z1*z2))",
    "sqrt(z1**2 - 2*z1 + 1)",
    "sqrt(1 - tanh(z1)**2)",
]


def outside(text: str, at: float, gap: float) -> float:
    """∫ h² over 1 ≥ |z − c| ≥ gap, by SciPy, in logarithms of the distance."""
    h = parse(text)
    total = 0.0
    for side in (-1, 1):
        total += integrate.quad(
            lambda s, side=side: float(h(z1=np.float64(at + side * math.exp(s)))) ** 2
            * math.exp(s),
            math.log(gap),
            0.0,
            limit=200,
        )[0]  # fmt: skip
    return total


@pytest.mark.parametrize("text", ON_A_LINE)
def test_a_pole_is_named(text: str) -> None:
    with pytest.raises(
        InputError, match=r"finite variance.* has a pole at z1 = "
    ) as no:
        tl.Target.of(text)
    assert float(str(no.value).split("z1 = ")[-1][:-1]) == pytest.approx(
        ON_A_LINE[text], rel=1e-5, abs=1e-8
    )


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("text", [t for t in ON_A_LINE if "exp(-1" not in t])
def test_the_variance_is_infinite_there(text: str) -> None:
    """By integrals outside of ever smaller gaps: they grow by the same share or more."""
    weak = "1e-3" in text  # next to the rest
    if ON_A_LINE[text] < 1000 and "**3" not in text and not weak:
        wide, narrow = (outside(text, ON_A_LINE[text], gap) for gap in (1e-3, 1e-5))
        assert narrow > 1.2 * wide


@pytest.mark.parametrize("text", ELSEWHERE)
def test_poles_of_several_variables_are_found(text: str) -> None:
    assert find_pole(parse(text)) is not None


@pytest.mark.parametrize("text", INTEGRABLE)
def test_what_is_integrable_stays(text: str) -> None:
    assert find_pole(parse(text)) is None
    assert tl.Target.of(text).directions >= 1


@pytest.mark.parametrize(
    "text",
    ["1/(z - 5)", "1/(z - 50)", "log(abs(z - 7))", "abs(z)**0.2", "1/(z-1e4)**2"],
)
def test_an_activation_may_not_be_too_steep_either(text: str) -> None:
    with pytest.raises(InputError, match=r"finite E\[σ² σ'²\].* has a pole at z = "):
        tl.Problem("z1", text)


@pytest.mark.parametrize(
    "text",
    ["1/(1 + z**2)", "sin(z)/z", "abs(z)**0.3", "z*log(abs(z))", "z/(1 + abs(z))"],
)
def test_an_activation_with_a_denominator_stays(text: str) -> None:
    assert tl.Problem("z1", text).activation.name


def test_enclosures_hold_the_values() -> None:
    """Of random formulas, at random points of random boxes."""
    rnd, rng, tried = Random(5), np.random.default_rng(5), 0
    while tried < 300:
        try:
            formula = parse(texts.well_formed(rnd))
        except InputError:
            continue
        if not (names := formula.variables):
            continue
        low = {name: rng.normal(size=40) * 3 for name in names}
        high = {name: x + rng.exponential(size=40) for name, x in low.items()}
        below, above = enclose(formula.tree, {n: (low[n], high[n]) for n in names})
        for share in (0.0, 0.3, 1.0):
            at = {n: low[n] + share * (high[n] - low[n]) for n in names}
            value = np.broadcast_to(np.asarray(formula(**at), dtype=float), 40)
            known = np.isfinite(value)
            assert (np.broadcast_to(below, 40)[known] <= value[known]).all(), formula
            assert (np.broadcast_to(above, 40)[known] >= value[known]).all(), formula
        tried += 1


def test_looking_for_poles_is_bounded() -> None:
    """A formula of 400 symbols with as many denominators as it can have."""
    many = Expression(
        parse("+".join(f"1/(1 + z{i}*z{i + 1}**2)" for i in range(1, 25))).tree
    )
    assert find_pole(many) is not None
    nested = parse("1/(1 + " * 30 + "z1**2" + ")" * 30)
    assert find_pole(nested) is None


@pytest.mark.parametrize(
    "share", [300, pytest.param(10_000, marks=pytest.mark.long)], ids=str
)
def test_sound_formulas_are_taken(share: int) -> None:
    """None of these has a pole, by its making; those before were of other numbers."""
    for number in range(share):
        text = texts.sound(Random(number))
        assert tl.Target.of(text).directions >= 1, text
