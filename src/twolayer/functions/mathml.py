"""Formulas as MathML, which browsers set without any script: notebooks show them
offline.
"""

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
from twolayer.functions.typeset import number_text

__all__ = ["displayed", "of_text", "to_mathml"]


def to_mathml(node: Node, level: int = 0) -> str:
    """The inside of a <math>; level is the binding strength required by the
    surroundings.
    """
    match node:
        case Number(value):
            return (
                "<mi>π</mi>" if value == math.pi else f"<mn>{number_text(value)}</mn>"
            )
        case Variable(name):
            letter, index = name[0], name[1:]
            return (
                f"<msub><mi>{letter}</mi><mn>{index}</mn></msub>"
                if index
                else f"<mi>{letter}</mi>"
            )
        case Call(name, argument):
            return _call(name, to_mathml(argument))
        case Power(base, exponent):
            raised = f"<mn>{number_text(exponent)}</mn>"
            text = f"<msup>{_row(to_mathml(base, 4))}{raised}</msup>"
            own = 3
        case Negative(operand):
            text, own = f"<mo>−</mo>{to_mathml(operand, 2)}", 1
        case Binary("/", left, right):
            text = f"<mfrac>{_row(to_mathml(left))}{_row(to_mathml(right))}</mfrac>"
            own = 3
        case Binary("*", left, right):
            dot = "<mo>·</mo>" if isinstance(right, Number) else "<mo>&#x2062;</mo>"
            text, own = to_mathml(left, 2) + dot + to_mathml(right, 2), 2
        case Binary(op, left, right):
            sign = {"-": "−"}.get(op, op)
            after = to_mathml(right, 2 if op == "-" else 1)
            text = f"{to_mathml(left, 1)}<mo>{sign}</mo>{after}"
            own = 1
    return _brackets(text) if own < level else text


def _call(name: str, inner: str) -> str:
    order = hermite_order(name)
    if order:
        symbol = "<mi>He</mi>" if order[0] == "He" else "<mi>h</mi>"
        return f"<msub>{symbol}<mn>{order[1]}</mn></msub>{_brackets(inner)}"
    if name == "abs":
        return f"<mrow><mo>|</mo>{inner}<mo>|</mo></mrow>"
    if name == "sqrt":
        return f"<msqrt>{inner}</msqrt>"
    return f"<mi>{name}</mi>{_brackets(inner)}"


def _row(inside: str) -> str:
    return f"<mrow>{inside}</mrow>"


def _brackets(inside: str) -> str:
    return f"<mrow><mo>(</mo>{inside}<mo>)</mo></mrow>"


def displayed(inside: str) -> str:
    """A whole formula."""
    return f"<math>{inside}</math>"


def of_text(formula: str, variable: str = "z1") -> str:
    """The formula of a target or an activation; the text itself where it is none."""
    from twolayer.functions.expression import parse
    from twolayer.numerics.errors import InputError
    from twolayer.numerics.html import escaped

    try:
        return to_mathml(parse(formula, variable).tree)
    except InputError:
        return f"<mtext>{escaped(formula)}</mtext>"
