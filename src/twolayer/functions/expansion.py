"""Formulas as polynomials: Σ_α c_α z^α, expanded product by product.

    (Σ_α c_α z^α) (Σ_β c'_β z^β) = Σ_{α, β} c_α c'_β z^{α + β}

A formula of sixteen characters, ((1+z)**62)**62, takes millions of products of
coefficients. What one multiplication of polynomials takes is known before it is begun,
the product of the numbers of terms, and a formula has `MAX_WORK` for all of them. One
that needs more is no polynomial for this package, but a function like others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

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

__all__ = ["Polynomial", "constant", "expand"]

MAX_TERMS = 4000
MAX_WORK = 300_000  # products and sums of coefficients: less than a tenth of a second
DIGIT = 12  # bits of an exponent within a key
MAX_DEGREE = 2**DIGIT - 1

Polynomial = dict[tuple[int, ...], float]
"""Coefficients by exponents."""

Terms = dict[int, float]
"""Coefficients by a key that holds all exponents, Σ_i α_i 2^(12 i): keys are added
where monomials are multiplied.
"""


@dataclass
class _Expansion:
    """An expansion under way: the place of each variable in a key, and the work left to
    it.
    """

    index: Mapping[str, int]
    work: int = MAX_WORK

    def afford(self, work: int) -> bool:
        """Whether so much work is left; it counts as done."""
        self.work -= work
        return self.work >= 0

    def of(self, node: Node) -> tuple[Terms, int] | None:
        """Terms and degree of a tree; None where it is no polynomial, or too large a
        one.
        """
        match node:
            case Number(value):
                return {0: value}, 0
            case Variable(name):
                return (
                    ({1 << DIGIT * self.index[name]: 1.0}, 1)
                    if name in self.index
                    else None
                )
            case Negative(operand):
                inner = self.of(operand)
                return (
                    None
                    if inner is None
                    else ({k: -c for k, c in inner[0].items()}, inner[1])
                )
            case Power(base, exponent):
                return self._power(base, exponent)
            case Call(name, argument):
                return self._call(name, argument)
            case Binary(op, left, right):
                return self._binary(op, left, right)
        raise AssertionError(node)

    def _power(self, base: Node, exponent: float) -> tuple[Terms, int] | None:
        inner = self.of(base)
        if inner is None:
            return None
        if inner[1] == 0:
            value = float(inner[0].get(0, 0.0)) ** exponent
            return {0: value if isinstance(value, float) else math.nan}, 0
        if exponent % 1 or exponent < 0:
            return None
        out: tuple[Terms, int] | None = ({0: 1.0}, 0)
        for _ in range(int(exponent)):
            out = None if out is None else self._product(out, inner)
        return out

    def _call(self, name: str, argument: Node) -> tuple[Terms, int] | None:
        order, inner = hermite_order(name), self.of(argument)
        if inner is None:
            return None
        if order is None:
            number = (
                FUNCTIONS[name].number(inner[0].get(0, 0.0)) if inner[1] == 0 else None
            )
            return None if number is None else ({0: number}, 0)
        scale = math.sqrt(math.factorial(order[1])) if order[0] == "h" else 1.0
        out: Terms = {}
        power: tuple[Terms, int] | None = ({0: 1.0}, 0)
        for n, c in enumerate(monomials_of_he(order[1])):
            if n:
                power = None if power is None else self._product(power, inner)
            if power is None or not self.afford(len(power[0])):
                return None
            for k, x in power[0].items():
                out[k] = out.get(k, 0.0) + c / scale * x
        return out, order[1] * inner[1]

    def _binary(self, op: str, left: Node, right: Node) -> tuple[Terms, int] | None:
        first = self.of(left)
        second = None if first is None else self.of(right)
        if first is None or second is None:
            return None
        if op == "*":
            return self._product(first, second)
        if op == "/":
            by = second[0].get(0, 0.0)
            return (
                None
                if second[1]
                else ({k: c / by for k, c in first[0].items()}, first[1])
            )
        if not self.afford(len(first[0]) + len(second[0])):
            return None
        sign = 1.0 if op == "+" else -1.0
        terms = {
            k: first[0].get(k, 0.0) + sign * second[0].get(k, 0.0)
            for k in {**first[0], **second[0]}
        }
        return terms, max(first[1], second[1])

    def _product(
        self, first: tuple[Terms, int], second: tuple[Terms, int]
    ) -> tuple[Terms, int] | None:
        """The product, if its terms and its degree are within bounds and there are
        enough products left.
        """
        degree = first[1] + second[1]
        # beyond the largest degree, exponents would run into each other's bits
        if degree > MAX_DEGREE or not self.afford(len(first[0]) * len(second[0])):
            return None
        out: Terms = {}
        for a, x in first[0].items():
            for b, y in second[0].items():
                out[a + b] = out.get(a + b, 0.0) + x * y
        return (out, degree) if len(out) <= MAX_TERMS else None


def expand(node: Node, names: tuple[str, ...]) -> Polynomial | None:
    """Coefficients by exponents of the names, or None where the tree is no polynomial
    of them, or too large a one.

    >>> from twolayer.functions.expression import parse
    >>> expand(parse("(1 + z1)**2").tree, ("z1",))
    {(0,): 1.0, (1,): 2.0, (2,): 1.0}
    """
    index = {name: i for i, name in enumerate(names)}
    try:
        expanded = _Expansion(index).of(node)
    except (ArithmeticError, ValueError):
        return None
    if expanded is None:
        return None
    places = range(0, DIGIT * len(names), DIGIT)
    return {
        tuple(k >> at & MAX_DEGREE for at in places): c
        for k, c in expanded[0].items()
        if c != 0.0
    }


def constant(node: Node) -> float | None:
    """The value of a subtree without variables, or None."""
    try:
        expanded = _Expansion({}).of(node)
    except (ArithmeticError, ValueError):
        return math.nan
    return None if expanded is None else expanded[0].get(0, 0.0)
