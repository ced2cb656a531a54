"""Formulas as canonical text and as LaTeX."""

from __future__ import annotations

import math

from twolayer.functions.syntax import (
    Binary,
    Call,
    Negative,
    Node,
    Number,
    Power,
    Variable,
    hermite_order,
)

__all__ = ["number_text", "to_latex", "to_text"]

OPERATORS = ("tanh", "exp", "log", "sin", "cos")
"""Functions that LaTeX has a command for."""


def number_text(value: float) -> str:
    """A number as it is typed: 2, not 2.0."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def to_text(node: Node, level: int = 0) -> str:
    """Canonical text; level is the binding strength required by the surroundings."""
    match node:
        case Number(value):
            return number_text(value)
        case Variable(name):
            return name
        case Call(name, argument):
            return f"{name}({to_text(argument)})"
        case Power(base, exponent):
            text, own = f"{to_text(base, 4)}**{number_text(exponent)}", 3
        case Negative(operand):
            text, own = f"-{to_text(operand, 3)}", 1
        case Binary(op, left, right):
            own, space = (1, " ") if op in "+-" else (2, "")
            text = f"{to_text(left, own)}{space}{op}{space}{to_text(right, own + 1)}"
    return f"({text})" if own < level else text


def to_latex(node: Node, level: int = 0) -> str:
    """LaTeX without dollar signs; level is the binding strength required by the
    surroundings.
    """
    match node:
        case Number(value):
            return r"\pi" if value == math.pi else number_text(value)
        case Variable(name):
            return f"{name[0]}_{{{name[1:]}}}" if name[1:] else name
        case Call(name, argument):
            order = hermite_order(name)
            inner = to_latex(argument)
            if order:
                symbol = r"\mathrm{He}" if order[0] == "He" else "h"
                return rf"{symbol}_{{{order[1]}}}\left({inner}\right)"
            if name == "abs":
                return rf"\left|{inner}\right|"
            if name == "sqrt":
                return rf"\sqrt{{{inner}}}"
            word = name.replace("_", r"\_")
            head = rf"\{word}" if name in OPERATORS else rf"\operatorname{{{word}}}"
            return rf"{head}\left({inner}\right)"
        case Power(base, exponent):
            text, own = f"{to_latex(base, 4)}^{{{number_text(exponent)}}}", 3
        case Negative(operand):
            text, own = f"-{to_latex(operand, 2)}", 1
        case Binary("/", left, right):
            text, own = rf"\frac{{{to_latex(left)}}}{{{to_latex(right)}}}", 3
        case Binary("*", left, right):
            dot = r" \cdot " if isinstance(right, Number) else r" \, "
            text, own = to_latex(left, 2) + dot + to_latex(right, 2), 2
        case Binary(op, left, right):
            text, own = (
                f"{to_latex(left, 1)} {op} {to_latex(right, 2 if op == '-' else 1)}",
                1,
            )
    return rf"\left({text}\right)" if own < level else text
