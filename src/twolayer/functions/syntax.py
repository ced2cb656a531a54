"""The syntax tree of formulas, and the functions they may call.

node := Number | Variable | Negative(node) | Binary(op, node, node) | Power(node, number) | Call(name, node)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = [
    "FUNCTIONS",
    "LEAK",
    "MAX_HERMITE",
    "Binary",
    "Call",
    "Negative",
    "Node",
    "Number",
    "Power",
    "Variable",
    "hermite_order",
    "leaky_relu",
    "walk",
]

MAX_HERMITE = 12
LEAK = 0.01  # slope of leaky_relu below zero, as elsewhere


@dataclass(frozen=True)
class Number:
    """A literal."""

    value: float


@dataclass(frozen=True)
class Variable:
    """One of the names the formula may use."""

    name: str


@dataclass(frozen=True)
class Negative:
    """−x."""

    operand: Node


@dataclass(frozen=True)
class Binary:
    """x op y with op one of + - * /."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Power:
    """base ** exponent, with a number for exponent."""

    base: Node
    exponent: float


@dataclass(frozen=True)
class Call:
    """A function of `FUNCTIONS`, or Hermite polynomial, applied to one argument."""

    name: str
    argument: Node


Node = Number | Variable | Negative | Binary | Power | Call


@dataclass(frozen=True)
class Function:
    """An entry of `FUNCTIONS`: on arrays, on a number, in LaTeX, and whether it is analytic."""

    jax: Callable[[Any], Any]
    number: Callable[[float], float]
    latex: str
    smooth: bool = True


def _lazy(path: str) -> Callable[[Any], Any]:
    """A JAX function by dotted name, imported at the first call so that parsing stays light."""

    def call(x: Any) -> Any:
        import jax

        function: Any = jax
        for part in path.split("."):
            function = getattr(function, part)
        return function(x)

    return call


def _gelu(x: Any) -> Any:
    import jax

    return jax.nn.gelu(x, approximate=False)


def _sigmoid(x: float) -> float:
    return 0.5 * (1 + math.tanh(x / 2))


def _swish(x: float) -> float:
    return x * _sigmoid(x)


def leaky_relu(x: Any) -> Any:
    """X above zero, x/100 below."""
    import jax

    return jax.nn.leaky_relu(x, LEAK)


FUNCTIONS: dict[str, Function] = {
    "relu": Function(_lazy("nn.relu"), lambda x: max(x, 0.0), r"\operatorname{relu}", smooth=False),
    "erf": Function(_lazy("lax.erf"), math.erf, r"\operatorname{erf}"),
    "tanh": Function(_lazy("numpy.tanh"), math.tanh, r"\tanh"),
    "sign": Function(_lazy("numpy.sign"), lambda x: float((x > 0) - (x < 0)), r"\operatorname{sign}", smooth=False),
    "abs": Function(_lazy("numpy.abs"), abs, r"\operatorname{abs}", smooth=False),
    "exp": Function(_lazy("numpy.exp"), math.exp, r"\exp"),
    "log": Function(_lazy("numpy.log"), math.log, r"\log", smooth=False),
    "sin": Function(_lazy("numpy.sin"), math.sin, r"\sin"),
    "cos": Function(_lazy("numpy.cos"), math.cos, r"\cos"),
    "sigmoid": Function(_lazy("nn.sigmoid"), _sigmoid, r"\operatorname{sigmoid}"),
    "softplus": Function(
        _lazy("nn.softplus"),
        lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
        r"\operatorname{softplus}",
    ),
    "gelu": Function(_gelu, lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2, r"\operatorname{gelu}"),
    "swish": Function(_lazy("nn.silu"), _swish, r"\operatorname{swish}"),
    "silu": Function(_lazy("nn.silu"), _swish, r"\operatorname{silu}"),
    "leaky_relu": Function(leaky_relu, lambda x: x if x > 0 else LEAK * x, r"\operatorname{leaky\_relu}", smooth=False),
    "sqrt": Function(_lazy("numpy.sqrt"), math.sqrt, r"\operatorname{sqrt}", smooth=False),
}

_HERMITE = re.compile(r"(He|h)(\d{1,2})\Z")


def hermite_order(name: str) -> tuple[str, int] | None:
    """("He", n) or ("h", n) for the name of a Hermite polynomial, else None.

    Examples
    --------
    >>> hermite_order("He3")
    ('He', 3)
    """
    match = _HERMITE.match(name)
    if match and 0 <= int(match[2]) <= MAX_HERMITE:
        return match[1], int(match[2])
    return None


def walk(node: Node) -> Iterator[Node]:
    """All nodes of a tree, the root first."""
    yield node
    match node:
        case Negative(inner) | Power(inner, _) | Call(_, inner):
            yield from walk(inner)
        case Binary(_, left, right):
            yield from walk(left)
            yield from walk(right)
