"""Enclosures of formulas: z in a box → an interval that holds f(z).

    [a, b] + [c, d] = [a + c, b + d]
    [a, b] · [c, d] = from the smallest to the largest of ac, ad, bc, bd
    f([a, b]) = [f(a), f(b)] where f rises, with the extremes inside where it does not

Ends are arrays, one entry for each box. They are rounded outwards. An end that
overflows stands for all numbers beyond, where 0 · ∞ = 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from twolayer.functions.hermite import monomials_of_he
from twolayer.functions.syntax import (
    FUNCTIONS,
    Binary,
    Call,
    Negative,
    Node,
    Number,
    Power,
    Variable,
    hermite_order,
)

__all__ = ["Interval", "enclose"]

Interval = tuple[np.ndarray, np.ndarray]
"""Lower and upper ends."""

ROUNDING = 1e-15  # of a few operations, as a share of the number
LARGEST = float(np.finfo(float).max)
RESOLVED = 1e8  # beyond it, sines of neighbouring numbers are not told apart
LEAST = {"gelu": (-0.7517916, -0.1699713), "swish": (-1.2784646, -0.2784646)}
LEAST["silu"] = LEAST["swish"]
"""Where those that are not monotone have their minimum, and a bound below it."""


def enclose(node: Node, boxes: Mapping[str, Interval]) -> Interval:
    """An interval that holds the values of a tree on each box.

    >>> import numpy as np
    >>> from twolayer.functions.expression import parse
    >>> low, high = enclose(
    ...     parse("2 - z1**2").tree, {"z1": (np.array([-1.0]), np.array([2.0]))}
    ... )
    >>> low.round(9), high.round(9)
    (array([-2.]), array([2.]))
    """
    with np.errstate(all="ignore"):
        return _of(node, boxes)


def _of(node: Node, boxes: Mapping[str, Interval]) -> Interval:
    match node:
        case Number(value):
            return np.asarray(value), np.asarray(value)
        case Variable(name):
            return boxes[name]
        case Negative(operand):
            low, high = _of(operand, boxes)
            return -high, -low
        case Power(base, exponent):
            return _power(_of(base, boxes), exponent)
        case Call(name, argument):
            return _call(name, _of(argument, boxes))
        case Binary(op, left, right):
            first, second = _of(left, boxes), _of(right, boxes)
            if op == "*":
                return _product(first, second)
            if op == "/":
                return _product(first, _inverse(second))
            if op == "-":
                second = -second[1], -second[0]
            return _outwards(first[0] + second[0], first[1] + second[1])
    raise AssertionError(node)


def _outwards(low: np.ndarray, high: np.ndarray) -> Interval:
    """Rounded outwards; what is not known is unbounded."""
    low = np.where(np.isnan(low), -np.inf, np.minimum(low, LARGEST))
    high = np.where(np.isnan(high), np.inf, np.maximum(high, -LARGEST))
    return low - ROUNDING * np.abs(low), high + ROUNDING * np.abs(high)


def _product(first: Interval, second: Interval) -> Interval:
    corners = np.stack([np.multiply(a, b) for a in first for b in second])
    corners[np.isnan(corners)] = 0.0
    return _outwards(corners.min(0), corners.max(0))


def _inverse(x: Interval) -> Interval:
    low, high = x
    holds_zero = (low <= 0) & (high >= 0)
    return _outwards(
        np.where(holds_zero, -np.inf, np.divide(1.0, high)),
        np.where(holds_zero, np.inf, np.divide(1.0, low)),
    )


def _power(x: Interval, exponent: float) -> Interval:
    if exponent < 0:
        return _inverse(_power(x, -exponent))
    low, high = x
    if exponent % 1:  # of what is not negative
        return _outwards(
            np.maximum(low, 0) ** exponent, np.maximum(high, 0) ** exponent
        )
    if exponent % 2:
        return _outwards(low**exponent, high**exponent)
    low, high = _size(x)
    return _outwards(low**exponent, high**exponent)


def _size(x: Interval) -> Interval:
    """|x|."""
    low, high = x
    crosses = (low <= 0) & (high >= 0)
    smaller = np.minimum(np.abs(low), np.abs(high))
    return np.where(crosses, 0.0, smaller), np.maximum(np.abs(low), np.abs(high))


def _call(name: str, x: Interval) -> Interval:
    order = hermite_order(name)
    if order is not None:
        return _hermite(order, x)
    if name == "abs":
        return _size(x)
    if name in ("sin", "cos"):
        return _wave(x, math.pi / 2 if name == "sin" else 0.0)
    if name in ("log", "sqrt"):
        x = np.maximum(x[0], 0.0), np.maximum(x[1], 0.0)
    array = FUNCTIONS[name].array
    low, high = (np.asarray(array(np.asarray(end, dtype=float))) for end in x)
    if name in LEAST:
        place, least = LEAST[name]
        inside = (x[0] < place) & (x[1] > place)
        low, high = np.where(inside, least, np.minimum(low, high)), np.fmax(low, high)
    return _outwards(low, high)


def _wave(x: Interval, shift: float) -> Interval:
    """cos(x − shift): ±1 where a multiple of π lies inside."""
    low, high = x[0] - shift, x[1] - shift
    ends = np.cos(low), np.cos(high)
    turn = 2 * math.pi
    rises = np.ceil(low / turn) * turn <= high
    falls = (np.ceil(low / turn - 0.5) + 0.5) * turn <= high
    far = np.maximum(np.abs(low), np.abs(high))
    lost = ~(far < RESOLVED)
    rounding = ROUNDING * (1 + far)
    return _outwards(
        np.where(falls | lost, -1.0, np.fmin(*ends) - rounding),
        np.where(rises | lost, 1.0, np.fmax(*ends) + rounding),
    )


def _hermite(order: tuple[str, int], x: Interval) -> Interval:
    """He_n by Horner's rule in x², which keeps the sign of x² in sight."""
    letter, n = order
    scale = math.sqrt(math.factorial(n)) if letter == "h" else 1.0
    square = _power(x, 2)
    out: Interval = (np.zeros(()), np.zeros(()))
    for c in monomials_of_he(n)[n % 2 :: 2][::-1]:
        low, high = _product(out, square)
        out = _outwards(low + c / scale, high + c / scale)
    return _product(out, x) if n % 2 else out
