"""The expression language: what it accepts, what it means, and that nothing else gets through."""

from __future__ import annotations

import contextlib
import math
import tracemalloc
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import twolayer as tl
from twolayer.functions.activation import Activation
from twolayer.functions.expansion import MAX_WORK, _Expansion
from twolayer.functions.expression import constant, parse
from twolayer.functions.syntax import FUNCTIONS
from twolayer.functions.target import Target
from twolayer.numerics.errors import InputError

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("z1 + z1*z2", {"z1": 2.0, "z2": 3.0}, 8.0),
        (
            "sign(z1*z2*z3) + He4(z1)",
            {"z1": 2.0, "z2": -1.0, "z3": 1.0},
            -1 + 16 - 24 + 3,
        ),
        ("tanh(z1 + He3(z2))", {"z1": 0.5, "z2": 2.0}, math.tanh(0.5 + 8 - 6)),
        ("-z1**2", {"z1": 3.0}, -9.0),
        ("2**3**2", {}, 512.0),
        ("z1 - z2 - z3", {"z1": 1.0, "z2": 2.0, "z3": 3.0}, -4.0),
        ("z1/2/4", {"z1": 8.0}, 1.0),
        ("2*-z1", {"z1": 1.5}, -3.0),
        ("h3(z1)*sqrt(6)", {"z1": 2.0}, 2.0),
        (".5e1 + pi", {}, 5 + math.pi),
        ("relu(-z1) + abs(z1)", {"z1": -2.0}, 4.0),
        ("gelu(z1)", {"z1": 1.0}, 0.5 * (1 + math.erf(1 / math.sqrt(2)))),
        ("softplus(0) - log(2)", {}, 0.0),
        ("sigmoid(0)", {}, 0.5),
    ],
)
def test_meaning(text: str, values: dict[str, float], expected: float) -> None:
    got = parse(text)(**{k: jnp.asarray(v) for k, v in values.items()})
    assert float(got) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__import__('os').system('true')", "unexpected character"),
        ("__import__(z1)", "unknown function '__import__'"),
        ("z1.real", "unexpected character '.'"),
        ("(lambda: z1)()", "unexpected"),
        ("[z1 for z1 in z2]", "unexpected character '['"),
        ("z1 if z2 else z3", "unexpected 'if'"),
        ("10**10**10", "exponent must lie between"),
        ("1e999", "too large"),
        ("1/0", "not finite"),
        ("z1 + sqrt(-1)", "not finite"),
        ("(0-2)**0.5", "not finite"),
        ("z1**z2", "exponent must be a number"),
        ("z1^2", "write powers as **"),
        ("tann(z1)", "did you mean 'tan"),
        ("He99(z1)", "unknown function"),
        ("x1 + z1", "unknown name 'x1'"),
        ("z0", "unknown name 'z0'"),
        ("z1 z2", "unexpected 'z2'"),
        ("z1 +", "ends too early"),
        ("(z1", "ends too early"),
        ("z1)", "unexpected ')'"),
        ("", "empty"),
        ("   ", "empty"),
        ("(" * 100 + "z1" + ")" * 100, "nested deeper"),
        ("-" * 100 + "z1", "signs in a row"),
        ("+".join(["z1"] * 300), "more than 400 symbols"),
        ("z1" + " " * 10**6, "at most 2000 characters"),
        ("z1\x00", "unexpected character"),
        ("relu(z1, z2)", "unexpected character ','"),
        ("He" + "9" * 1500 + "(z1)", "unknown function"),
        ("soft" * 400 + "(z1)", "unknown function"),
    ],
)
def test_bad_input_is_one_clear_sentence(text: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text)
    message = str(error.value)
    assert why in message
    assert message.startswith("Argument `target`")
    assert "\n" not in message
    assert len(message) <= 300


@given(st.text(max_size=80))
@settings(max_examples=400, deadline=None)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        parse(text)


leaves = st.one_of(
    st.sampled_from(["z1", "z2", "z3"]),
    st.integers(0, 9).map(str),
    st.sampled_from(["0.5", "1e-3", "2.25"]),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(
            lambda t: f"({t[0]}){t[1]}({t[2]})"
        ),
        st.tuples(st.sampled_from([*FUNCTIONS, "He2", "He3", "h4"]), inner).map(
            lambda t: f"{t[0]}({t[1]})"
        ),
        st.tuples(inner, st.integers(0, 3)).map(lambda t: f"({t[0]})**{t[1]}"),
        inner.map(lambda t: f"-({t})"),
    ),
    max_leaves=8,
)

ORACLE = {
    "relu": lambda x: np.maximum(x, 0.0),
    "erf": np.vectorize(math.erf),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "He2": lambda x: x**2 - 1,
    "He3": lambda x: x**3 - 3 * x,
    "h4": lambda x: (x**4 - 6 * x**2 + 3) / math.sqrt(24),
    **{
        name: getattr(np, name)
        for name in ("tanh", "sign", "abs", "exp", "log", "sin", "cos", "sqrt")
    },
}


@given(trees)
@settings(max_examples=150, deadline=None)
def test_values_agree_with_python_and_text_is_canonical(text: str) -> None:
    try:
        expression = parse(text)
    except InputError:
        reject()  # if no example were left, this would fail
    z = {
        "z1": np.array([0.3, -1.1]),
        "z2": np.array([1.7, 0.2]),
        "z3": np.array([-0.4, 2.0]),
    }
    with np.errstate(all="ignore"):
        # Python itself is the oracle here, on text that the strategy above generated
        expected = np.broadcast_to(
            eval(text, {"__builtins__": {}}, {**ORACLE, **z}), (2,)
        )
    got = np.broadcast_to(
        np.asarray(expression(**{k: jnp.asarray(v) for k, v in z.items()})), (2,)
    )
    fine = np.isfinite(expected) & (np.abs(expected) < 1e12)
    np.testing.assert_allclose(got[fine], expected[fine], rtol=1e-9, atol=1e-9)
    again = parse(str(expression))
    assert again == expression
    assert str(again) == str(expression)


@given(trees)
@settings(max_examples=150, deadline=None)
def test_polynomial_expansion_agrees_with_evaluation(text: str) -> None:
    try:
        expression = parse(text)
    except InputError:
        reject()  # if no example were left, this would fail
    names = ("z1", "z2", "z3")
    polynomial = expression.polynomial(names)
    if polynomial is None:
        reject()
    z = np.array([0.7, -0.4, 1.3])
    value = sum(c * np.prod(z ** np.array(k)) for k, c in polynomial.items())
    got = float(expression(**dict(zip(names, map(jnp.asarray, z), strict=True))))
    assert got == pytest.approx(value, rel=1e-9, abs=1e-9)


def test_latex_and_constants() -> None:
    assert (
        parse("z1**2/3 + abs(z2)").latex == r"\frac{z_{1}^{2}}{3} + \left|z_{2}\right|"
    )
    assert constant(parse("2*sin(pi/2) - 1").tree) == pytest.approx(1.0)
    assert constant(parse("z1").tree) is None
    assert parse("0.5*z**2", "z", "activation").variables == ("z",)
    assert parse("tanh(z1)").smooth
    assert not parse("1/(1 + z1)").smooth
    assert parse("z1*sqrt(2)").smooth


@pytest.mark.parametrize(
    "text",
    [
        "(z1**2)**3",
        "-(z1*z2)",
        "(-z1)**2",
        "2**-1*z1",
        "z1 - (z2 - z3)",
        "z1/(z2/z3)",
        "-(-z1)",
    ],
)
def test_text_reads_back(text: str) -> None:
    expression = parse(text)
    assert parse(str(expression)) == expression


def test_constants_are_double_whatever_the_precision_of_jax() -> None:
    """sqrt(2) in single precision would be off by 2e-8, and a direction that does not enter would seem to."""
    for target in ("sqrt(2)*z1", "exp(log(2)/2)*z1"):
        value = Target.of(target).on_host(np.array([[1.0]]))[0]
        assert abs(value - math.sqrt(2)) < 1e-15


LARGE = {
    "a product of two large sums": "({})**3*({})**3".format(
        "+".join(f"z{i}" for i in range(1, 28)),
        "+".join(f"z{i}" for i in range(28, 55)),
    ),
    "a power of a power": "((1+z1)**62)**62",
    "a polynomial of a polynomial": "He12(He12(He12(z1)))",
    "many sums": "+".join(["(1+z1+z2+z3)**20"] * 30),
    "a high tower": "((((z1**64)**64)**64)**64)",
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_what_an_expansion_takes_is_bounded_before_it_is_done(text: str) -> None:
    """The first of these asked for 7.5 GB and the second for five seconds."""
    expression = parse(text)
    tracemalloc.start()
    poly = expression.polynomial(expression.variables)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert poly is None and peak < 50e6


def test_an_expansion_counts_what_it_does() -> None:
    expansion = _Expansion({"z1": 0})
    assert expansion.of(parse("(1+z1)**2*(1+z1)").tree) == (
        {0: 1.0, 1: 3.0, 2: 3.0, 3: 1.0},
        3,
    )
    # two sums of two numbers; 1·2 and 2·2 products for the square, 3·2 for the cube
    assert MAX_WORK - expansion.work == 2 * 2 + 2 + 4 + 6


def test_a_high_power_is_a_function_like_others() -> None:
    """Its coefficients alone, one for each degree up to 64⁴, would fill the memory."""
    with pytest.raises(InputError, match="must be finite"):
        Activation.of("((((z**64)**64)**64)**64)")


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse("z1٣"),
        lambda: parse("٣*z1"),
        lambda: parse("He1٣(z1)"),
        lambda: Activation.of("He1٣"),
        lambda: tl.SGD("0.1/d", loss="huber(٣)"),
        lambda: tl.SGD("0.1/d", rule="clip(٣)"),
        lambda: tl.SGD("0.1/d", rule="formula('g*٣')"),
        lambda: tl.SGD("0.1/d * cosine(٣)"),
        lambda: tl.SGD("٣/d"),
        lambda: tl.Problem("z1", "erf", noise_law="student(٣)"),
    ],
)
def test_digits_of_other_scripts_are_none(read: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="٣"):
        read()


@pytest.mark.parametrize(
    "read",
    [
        lambda: tl.SGD("0.1/d", rule="formula('" + "+".join(["g*e"] * 400) + "')"),
        lambda: tl.SGD("1*" * 990 + "cosine(5)"),
        lambda: tl.SGD("0.1/d", rule="x" * 100_000),
        lambda: tl.SGD("0.1/d", rule="clip(" + "a+" * 100_000 + "1)"),
        lambda: tl.SGD("0.1/d" + "*cosine(5)" * 100_000),
    ],
)
def test_long_texts_are_read_or_refused(read: Callable[[], object]) -> None:
    try:
        read()
    except InputError as error:
        assert len(str(error)) < 300
