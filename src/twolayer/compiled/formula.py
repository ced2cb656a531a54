"""The formulas behind named and typed functions: syntax trees that compiled code can be
written from.

σ(z) and h(z1, z2, …) as trees of functions/syntax.py;    teacher: h = Σ_r (a*_r/k)
σ*(z_r)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twolayer.functions.activation import Activation
from twolayer.functions.expression import parse
from twolayer.functions.syntax import (
    Binary,
    Call,
    Negative,
    Node,
    Number,
    Power,
    Variable,
)
from twolayer.functions.target import Target

__all__ = ["Formula", "formula_of_activation", "formula_of_target"]

WORDS = {
    "linear": "z",
    "square": "z**2",
    "erf": "erf(z/sqrt(2))",
    **{word: f"{word}(z)" for word in ("relu", "tanh", "sigmoid", "softplus", "gelu")},
}
"""The package's own activations as formulas."""


@dataclass(frozen=True)
class Formula:
    """A syntax tree with the names of its variables, in order."""

    tree: Node
    names: tuple[str, ...]


def formula_of_activation(activation: Activation) -> Formula | None:
    """The formula of a named or typed activation; None for a function that only JAX
    knows.
    """
    kind, *rest = activation.key
    if kind == "builtin":
        return Formula(parse(WORDS[str(rest[0])], "z", "activation").tree, ("z",))
    if kind != "text":
        return None
    text = str(rest[0])
    return Formula(
        parse(text if "z" in text else f"{text}(z)", "z", "activation").tree, ("z",)
    )


def formula_of_target(target: Target) -> Formula | None:
    """The formula of a typed target, or of a teacher whose activation has one; None for
    other functions.
    """
    names = tuple(f"z{r + 1}" for r in range(target.directions))
    key: Any = target.key
    if key[0] == "text":
        return Formula(key[1].tree, names)
    if key[0] != "teacher":
        return None
    neuron = formula_of_activation(key[1])
    if neuron is None:
        return None
    terms = [
        Binary("*", Number(weight / target.directions), _renamed(neuron.tree, name))
        for weight, name in zip(key[2], names, strict=True)
    ]
    tree: Node = terms[0]
    for term in terms[1:]:
        tree = Binary("+", tree, term)
    return Formula(tree, names)


def _renamed(node: Node, name: str) -> Node:
    """The tree with its variable called otherwise."""
    match node:
        case Variable(_):
            return Variable(name)
        case Negative(inner):
            return Negative(_renamed(inner, name))
        case Power(base, exponent):
            return Power(_renamed(base, name), exponent)
        case Call(function, argument):
            return Call(function, _renamed(argument, name))
        case Binary(op, left, right):
            return Binary(op, _renamed(left, name), _renamed(right, name))
    return node
