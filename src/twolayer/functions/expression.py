"""Formulas typed by users: text → checked syntax tree → JAX function, polynomial,
LaTeX.

    sum     := product (("+" | "-") product)*
    product := signed (("*" | "/") signed)*
    signed  := ("+" | "-") signed | power
    power   := atom ("**" signed)?              the exponent is a number
    atom    := number | name | name "(" sum ")" | "(" sum ")"

The grammar is the whole language: there is no attribute, index, lambda or call of
anything that is not in `FUNCTIONS`, and nothing is ever handed to Python's `eval`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twolayer.functions.expansion import Polynomial, constant, expand
from twolayer.functions.hermite import hermite_he
from twolayer.functions.syntax import (
    FUNCTIONS,
    MAX_HERMITE,
    Binary,
    Call,
    Negative,
    Node,
    Number,
    Power,
    Variable,
    hermite_order,
    walk,
)
from twolayer.functions.typeset import to_latex, to_text
from twolayer.numerics.errors import InputError, closest, cut, short

__all__ = ["Expression", "constant", "parse", "written_number"]

MAX_LENGTH = 2000
MAX_TOKENS = 400
MAX_DEPTH = 40
MAX_EXPONENT = 64
MAX_VARIABLE = 64

# the digits of other scripts, which \d would take, are none here
_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>{_NUMBER})|(?P<name>{_NAME})|(?P<op>\*\*|[-+*/()]))"
)


class _Parser:
    """Recursive descent over the token list, with the depth counted explicitly."""

    def __init__(
        self, text: str, argument: str, allowed: str | tuple[str, ...]
    ) -> None:
        self.text, self.argument, self.allowed = text, argument, allowed
        self.at = 0
        self.depth = 0
        self.places: list[int] = []  # where each symbol begins
        self.tokens = list(self._tokens())
        if len(self.tokens) > MAX_TOKENS:
            raise self.fail(f"it has more than {MAX_TOKENS} symbols")

    def fail(self, why: str, position: int | None = None) -> InputError:
        """The error, with the place in the text: that of the symbol taken last, unless
        it is given.
        """
        shown = cut(self.text, 40)
        error = InputError(
            f"Argument `{self.argument}`: cannot read the expression {shown!r}: {why}."
        )
        error.position = (
            self.places[self.at - 1] if position is None and self.at else position or 0
        )
        return error

    def _tokens(self) -> Iterator[tuple[str, str]]:
        position, text = 0, self.text.rstrip()
        if not text:
            raise self.fail("it is empty")
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None or match.end() == position:
                bad = text[position:].lstrip()[0]
                hint = "; write powers as **" if bad == "^" else ""
                raise self.fail(
                    f"unexpected character {bad!r}{hint}", text.index(bad, position)
                )
            kind = str(match.lastgroup)
            self.places.append(match.start(kind))
            yield kind, match[kind]
            position = match.end()

    def peek(self) -> str:
        kind, value = (
            self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")
        )
        return value if kind == "op" else ""

    def take(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise self.fail("it ends too early", len(self.text.rstrip()))
        token = self.tokens[self.at]
        self.at += 1
        return token

    def whole(self) -> Node:
        node = self.sum()
        if self.at < len(self.tokens):
            raise self.fail(
                f"unexpected {short(self.tokens[self.at][1], 40)}", self.places[self.at]
            )
        for part in walk(node):
            value = constant(part)
            if value is not None and not math.isfinite(value):
                raise self.fail(f"the number {to_text(part)} is not finite")
            if (
                isinstance(part, Binary)
                and part.op == "/"
                and constant(part.right) == 0
            ):
                raise self.fail("it divides by zero")
        return node

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail(f"it is nested deeper than {MAX_DEPTH} levels")
        node = self.product()
        while self.peek() in ("+", "-"):
            node = Binary(self.take()[1], node, self.product())
        self.depth -= 1
        return node

    def product(self) -> Node:
        node = self.signed()
        while self.peek() in ("*", "/"):
            node = Binary(self.take()[1], node, self.signed())
        return node

    def signed(self) -> Node:
        negative, signs = False, 0
        while self.peek() in ("+", "-"):
            negative ^= self.take()[1] == "-"
            signs += 1
            if signs > MAX_DEPTH:
                raise self.fail(f"it has more than {MAX_DEPTH} signs in a row")
        node = self.power()
        return Negative(node) if negative else node

    def power(self) -> Node:
        base = self.atom()
        if self.peek() != "**":
            return base
        self.take()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail(f"it is nested deeper than {MAX_DEPTH} levels")
        exponent = constant(self.signed())
        self.depth -= 1
        if exponent is None:
            raise self.fail("an exponent must be a number")
        if not abs(exponent) <= MAX_EXPONENT:
            raise self.fail(
                f"an exponent must lie between -{MAX_EXPONENT} and {MAX_EXPONENT}"
            )
        return Power(base, exponent)

    def atom(self) -> Node:
        kind, value = self.take()
        if kind == "number":
            if not math.isfinite(float(value)):
                raise self.fail(f"the number {short(value, 40)} is too large")
            return Number(float(value))
        if value == "(":
            return self.closing()
        if kind == "name":
            return self.call(value) if self.peek() == "(" else self.variable(value)
        raise self.fail(f"unexpected {short(value, 40)}")

    def closing(self) -> Node:
        node = self.sum()
        if self.take()[1] != ")":
            raise self.fail("a parenthesis is not closed")
        return node

    def call(self, name: str) -> Node:
        if name not in FUNCTIONS and hermite_order(name) is None:
            known = [*FUNCTIONS, *(f"He{n}" for n in range(1, MAX_HERMITE + 1))]
            raise self.fail(
                f"unknown function {short(name, 24)}{closest(name, known)}; known are "
                f"{', '.join(FUNCTIONS)}, He1…He{MAX_HERMITE} and h1…h{MAX_HERMITE}"
            )
        self.take()
        return Call(name, self.closing())

    def variable(self, name: str) -> Node:
        if name == "pi":
            return Number(math.pi)
        if self.allowed == "z1":
            match = re.fullmatch(r"z([1-9][0-9]?)", name)
            if match and int(match[1]) <= MAX_VARIABLE:
                return Variable(name)
            names = f"z1, z2, … z{MAX_VARIABLE}"
        else:
            known = (self.allowed,) if isinstance(self.allowed, str) else self.allowed
            if name in known:
                return Variable(name)
            names = ", ".join(known)
        raise self.fail(
            f"unknown name {short(name, 40)}; the variables here are {names}"
        )


def _evaluate(node: Node, values: Mapping[str, Any]) -> Any:
    match node:
        case Number(value):
            return value
        case Variable(name):
            return values[name]
        case Negative(operand):
            return -_evaluate(operand, values)
        case Power(base, exponent):
            inner = _evaluate(base, values)
            return inner ** (int(exponent) if exponent == int(exponent) else exponent)
        case Call(name, argument):
            inner = _evaluate(argument, values)
            order = hermite_order(name)
            if order is None:
                return FUNCTIONS[name].array(inner)
            scale = math.sqrt(math.factorial(order[1])) if order[0] == "h" else 1.0
            return hermite_he(order[1], inner) / scale
        case Binary(op, left, right):
            x, y = _evaluate(left, values), _evaluate(right, values)
            return (
                x + y
                if op == "+"
                else x - y
                if op == "-"
                else x * y
                if op == "*"
                else x / y
            )
    raise AssertionError(node)


@dataclass(frozen=True)
class Expression:
    """A parsed formula. Equality and hash follow the syntax tree."""

    tree: Node

    @property
    def variables(self) -> tuple[str, ...]:
        """Names that occur, in natural order."""
        names = {node.name for node in walk(self.tree) if isinstance(node, Variable)}
        return tuple(sorted(names, key=lambda name: (len(name), name)))

    @property
    def finite(self) -> bool:
        """Whether nothing occurs that is infinite anywhere: divisions, negative powers,
        logarithms.
        """
        nodes = list(walk(self.tree))
        poles = any(
            isinstance(n, Binary) and n.op == "/" and constant(n.right) is None
            for n in nodes
        )
        logs = any(
            isinstance(n, Call) and n.name == "log" and constant(n) is None
            for n in nodes
        )
        return (
            not poles
            and not logs
            and not any(isinstance(n, Power) and n.exponent < 0 for n in nodes)
        )

    @property
    def smooth(self) -> bool:
        """Whether only analytic functions occur (a division may still have a pole)."""
        nodes = list(walk(self.tree))
        calls = [
            n.name
            for n in nodes
            if isinstance(n, Call) and n.name in FUNCTIONS and constant(n) is None
        ]
        roots = any(isinstance(n, Power) and n.exponent % 1 for n in nodes)
        return (
            self.finite and all(FUNCTIONS[name].smooth for name in calls) and not roots
        )

    def polynomial(self, names: tuple[str, ...]) -> Polynomial | None:
        """Coefficients by exponent tuple, or None when the formula is not a polynomial
        of these names.
        """
        return expand(self.tree, names)

    def __call__(self, **values: Any) -> Any:
        """Evaluate with arrays of NumPy or JAX (or numbers) for the variables; poles
        give infinity in silence.
        """
        with np.errstate(all="ignore"):
            return _evaluate(self.tree, values)

    def __str__(self) -> str:
        return to_text(self.tree)

    @property
    def latex(self) -> str:
        """The formula as LaTeX, without dollar signs."""
        return to_latex(self.tree)


def written_number(text: str) -> float | None:
    """The number that a text is, as formulas read it, or None.

    >>> (
    ...     written_number("1e-3"),
    ...     written_number("-2"),
    ...     written_number("٣"),
    ...     written_number("1_000"),
    ... )
    (0.001, -2.0, None, None)
    """
    return float(text) if re.fullmatch(rf"\s*[+-]?{_NUMBER}\s*", text) else None


def parse(
    text: str, variable: str | tuple[str, ...] = "z1", argument: str = "target"
) -> Expression:
    """Parse a formula in z1, z2, … (``variable="z1"``), or in variables of other names;
    errors name the argument.

    >>> parse("z1.real")
    Traceback (most recent call last):
    twolayer.InputError: Argument `target`: cannot read the expression 'z1.real':
    unexpected character '.'.
    """
    if not isinstance(text, str):
        raise InputError(f"Argument `{argument}` must be text, but got {short(text)}.")
    if len(text) > MAX_LENGTH:
        raise InputError(
            f"Argument `{argument}` must be at most {MAX_LENGTH} characters long, but"
            f" has {len(text)}."
        )
    return Expression(_Parser(text, argument, variable).whole())
