"""The syntax tree of formulas, and the functions they may call.

node := Number | Variable | Negative(node) | Binary(op, node, node) | Power(node,
number) | Call(name, node)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from twolayer.numerics.arguments import ArrayFunction

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
    """An entry of `FUNCTIONS`: on arrays of NumPy or JAX, on a number, and whether it
    is analytic.
    """

    array: ArrayFunction
    number: Callable[[float], float]
    smooth: bool = True


def _either(path: str, host: ArrayFunction, **options: object) -> ArrayFunction:
    """A function of JAX by dotted name, and its like for arrays of NumPy, for which JAX
    is not imported.
    """

    def call(x: object) -> Any:
        if isinstance(x, np.ndarray | np.generic):
            return host(x)
        if isinstance(
            x, int | float
        ):  # a constant such as sqrt(2), which JAX may take in single precision
            return float(host(x))
        import jax

        function: Any = jax
        for part in path.split("."):
            function = getattr(function, part)
        return function(x, **options)

    return call


def _special(name: str) -> ArrayFunction:
    """A function of SciPy, imported at the first call."""

    def call(x: object) -> Any:
        from scipy import special

        return getattr(special, name)(x)

    return call


def _sigmoid(x: float) -> float:
    return 0.5 * (1 + math.tanh(x / 2))


def _swish(x: float) -> float:
    return x * _sigmoid(x)


_expit = _special("expit")
_silu = _either("nn.silu", lambda x: x * _expit(x))
_erf = _special("erf")

FUNCTIONS: dict[str, Function] = {
    "relu": Function(
        _either("nn.relu", lambda x: np.maximum(x, 0)),
        lambda x: max(x, 0.0),
        smooth=False,
    ),
    "erf": Function(_either("lax.erf", _erf), math.erf),
    "tanh": Function(_either("numpy.tanh", np.tanh), math.tanh),
    "sign": Function(
        _either("numpy.sign", np.sign), lambda x: float((x > 0) - (x < 0)), smooth=False
    ),
    "abs": Function(_either("numpy.abs", np.abs), abs, smooth=False),
    "exp": Function(_either("numpy.exp", np.exp), math.exp),
    "log": Function(_either("numpy.log", np.log), math.log, smooth=False),
    "sin": Function(_either("numpy.sin", np.sin), math.sin),
    "cos": Function(_either("numpy.cos", np.cos), math.cos),
    "sigmoid": Function(_either("nn.sigmoid", _expit), _sigmoid),
    "softplus": Function(
        _either("nn.softplus", lambda x: np.logaddexp(x, 0)),
        lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    ),
    "gelu": Function(
        _either(
            "nn.gelu", lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2, approximate=False
        ),
        lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    ),
    "swish": Function(_silu, _swish),
    "silu": Function(_silu, _swish),
    "leaky_relu": Function(
        _either(
            "nn.leaky_relu", lambda x: np.where(x < 0, LEAK * x, x), negative_slope=LEAK
        ),
        lambda x: x if x > 0 else LEAK * x,
        smooth=False,
    ),
    "sqrt": Function(_either("numpy.sqrt", np.sqrt), math.sqrt, smooth=False),
}

_HERMITE = re.compile(r"(He|h)([0-9]{1,2})\Z")


def hermite_order(name: str) -> tuple[str, int] | None:
    """("He", n) or ("h", n) for the name of a Hermite polynomial, else None."""
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
