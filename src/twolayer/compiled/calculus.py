"""Formulas on lanes of numbers: a syntax tree evaluated with its slope.

(u, u') ∘ (v, v') by the rules of calculus, node by node: forward differentiation of the
same tree that JAX evaluates
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from twolayer.compiled.formula import Formula
from twolayer.compiled.shape import Arithmetic, Quantity
from twolayer.functions.expression import constant
from twolayer.functions.syntax import (
    Binary,
    Call,
    Negative,
    Node,
    Power,
    Variable,
    hermite_order,
)

__all__ = ["value_and_slope", "value_of"]

Pair = tuple[Quantity, Quantity]
"""A value and its slope; numbers stand for constants."""


def value_of(
    code: Arithmetic, formula: Formula, arguments: Sequence[Quantity]
) -> Quantity:
    """A formula at one number for each of its names."""
    pairs = {name: (x, 0.0) for name, x in zip(formula.names, arguments, strict=True)}
    return as_vector(code, _evaluate(code, formula.tree, pairs)[0])


def value_and_slope(
    code: Arithmetic, formula: Formula, x: Quantity
) -> tuple[Quantity, Quantity]:
    """A formula of one variable and its slope."""
    value, slope = _evaluate(code, formula.tree, {formula.names[0]: (x, 1.0)})
    return as_vector(code, value), as_vector(code, slope)


def as_vector(code: Arithmetic, x: Quantity) -> Quantity:
    """A number in all lanes, or what is there already."""
    return code.constant(x) if isinstance(x, float) else x


def _evaluate(code: Arithmetic, node: Node, pairs: Mapping[str, Pair]) -> Pair:
    """Value and slope of a tree; a slope that is the number 0.0 vanishes for
    certain.
    """
    number = constant(node)
    if number is not None:
        return number, 0.0
    match node:
        case Variable(name):
            return pairs[name]
        case Negative(operand):
            value, slope = _evaluate(code, operand, pairs)
            return -value, times(-1.0, slope)
        case Power(base, exponent):
            return _power(code, *_evaluate(code, base, pairs), exponent)
        case Call(name, argument):
            value, slope = _evaluate(code, argument, pairs)
            result, own = _call(code, name, value)
            return result, times(own, slope)
        case Binary(op, left, right):
            (u, du), (v, dv) = (
                _evaluate(code, left, pairs),
                _evaluate(code, right, pairs),
            )
            if op == "*":
                return u * v, plus(times(du, v), times(u, dv))
            if op == "/":
                quotient = u / v
                inner = plus(du, times(-1.0, times(quotient, dv)))
                return quotient, inner if is_zero(inner) else inner / v
            if op == "+":
                return u + v, plus(du, dv)
            return u - v, plus(du, times(-1.0, dv))
    raise AssertionError(node)


def is_zero(x: Quantity) -> bool:
    """Whether this is the number 0.0 for certain."""
    return isinstance(x, float) and x == 0.0


def times(x: Quantity, y: Quantity) -> Quantity:
    """x·y, without instructions where a factor is 0 or 1."""
    if is_zero(x) or is_zero(y):
        return 0.0
    if isinstance(x, float) and x == 1.0:
        return y
    return x if isinstance(y, float) and y == 1.0 else x * y


def plus(x: Quantity, y: Quantity) -> Quantity:
    """x + y, without an instruction where one is 0."""
    return y if is_zero(x) else x if is_zero(y) else x + y


def _power(code: Arithmetic, value: Quantity, slope: Quantity, exponent: float) -> Pair:
    """Power and slope; whole exponents by products, halves by roots, others by the
    logarithm.
    """
    if exponent == int(exponent):
        n = abs(int(exponent))
        if n == 0:
            return 1.0, 0.0
        below = _product(value, n - 1)
        result = times(below, value)
        if exponent < 0:
            result, below = 1.0 / result, -1.0 / (result * value)
        return result, times(times(float(n), below), slope)
    if exponent == 0.5:
        result, own = code.function("sqrt", value)
        return result, times(own, slope)
    logarithm, _ = _call(code, "log", value)
    result, _ = _call(code, "exp", logarithm * exponent)
    return result, times(exponent * result / value, slope)


def _product(x: Quantity, n: int) -> Quantity:
    """xⁿ by squaring."""
    if n == 0:
        return 1.0
    half = _product(x, n // 2)
    square = times(half, half)
    return times(square, x) if n % 2 else square


def _call(code: Arithmetic, name: str, x: Quantity) -> Pair:
    """A function of the language and its slope."""
    order = hermite_order(name)
    if order is None:
        return code.function(name, x)
    kind, n = order
    scale = 1.0 / math.sqrt(math.factorial(n)) if kind == "h" else 1.0
    previous, current = 0.0, 1.0
    for m in range(n):
        following = plus(times(x, current), times(-float(m), previous))
        previous, current = current, following
    return times(scale, current), times(scale * n, previous)
