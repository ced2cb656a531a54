"""Scaling laws in the dimension: quantities c·d^x, written as 0.1/d, 2*d**1.5 or 64.

    lr = γ0 d^(−δ),    batch = n0 d^μ

Finite-d methods evaluate them; limits read the exponents and pick the regime. The
coefficient may be an array of JAX that is being traced: exponents pick the equations,
coefficients are data in them. A law may have a schedule (schedules.py), a factor that
changes along a run; its value is then that without the factor.
"""

from __future__ import annotations

import math
import numbers
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twolayer.functions.expression import constant, parse
from twolayer.functions.syntax import Binary, Negative, Node, Power, Variable
from twolayer.numerics.errors import InputError, finite_number, reject
from twolayer.numerics.tracing import traced

if TYPE_CHECKING:
    from twolayer.task.schedules import Schedule

__all__ = ["Scaling", "d"]


class NotFiniteError(InputError):
    """What should be a number of a scaling law is infinite, or no number."""


@dataclass(frozen=True)
class Scaling:
    """coefficient · d**exponent, closed under products, quotients and powers.

    Parameters
    ----------
    coefficient : float
        The number in front. Inside functions of JAX it may be traced.
    exponent : float
        Power of d; 0 by default, a number that is the same at every d.
    schedule : Schedule, optional
        A factor that changes along a run, such as `tl.schedules.cosine`; none by
        default.

    Examples
    --------
    >>> 0.2 / d
    Scaling(0.2/d)
    >>> (2 * d**1.5)(dim=100)
    2000.0
    >>> f"{1 / (12 * d):.3g}"
    '0.0833/d'
    """

    coefficient: Any
    exponent: float = 0.0
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        try:
            for name in ("coefficient", "exponent"):
                finite_number(name, getattr(self, name), accepted="a finite number")
        except InputError as error:
            raise NotFiniteError(str(error)) from None

    def __call__(self, dim: int) -> float:
        """Value at dimension ``dim``, that of a schedule left out."""
        accepted = "a positive number"
        base = finite_number("dim", dim, minimum=0.0, accepted=accepted)
        return self.coefficient * _power(base, self.exponent)

    @classmethod
    def of(cls, value: object, argument: str = "value") -> Scaling:
        """Read a ``value``: a number, a scaling law, or text such as ``"0.2/d"``;
        ``argument`` is its name in errors.

        Examples
        --------
        >>> Scaling.of("3*d**-0.5").exponent
        -0.5
        """
        if isinstance(value, Scaling):
            return value
        if isinstance(value, bool):
            reject(argument, value, "a number or a scaling law in d")
        try:
            number = _number(value)
        except OverflowError:
            reject(argument, value, "a number that fits into a double")
        finite = "a number or a scaling law in d, with finite numbers"
        if number is not None:
            if not traced(number) and not math.isfinite(number):
                reject(argument, value, finite)
            return cls(number)
        if isinstance(value, str):
            tree = parse(value, "d", argument).tree
            try:
                law = _monomial(tree)
            except NotFiniteError:
                reject(argument, value, finite)
            if law is None:
                reject(
                    argument,
                    value,
                    "a single power law such as '0.2/d', '2*d**1.5' or '64'",
                )
            return law
        reject(argument, value, "a number or a scaling law such as 0.2/d")

    __array_ufunc__ = None  # products with NumPy's numbers are ours

    @property
    def plain(self) -> Scaling:
        """The law without its schedule."""
        return (
            self if self.schedule is None else Scaling(self.coefficient, self.exponent)
        )

    def __mul__(self, other: object) -> Scaling:
        if isinstance(other, Scaling):
            law = Scaling(
                self.coefficient * other.coefficient, self.exponent + other.exponent
            )
            for part in (self.schedule, other.schedule):
                law = law if part is None else law * part
            return law
        number = _number(other)
        return (
            NotImplemented
            if number is None
            else Scaling(self.coefficient * number, self.exponent, self.schedule)
        )

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Scaling:
        if isinstance(other, Scaling):
            return self * other**-1
        number = _number(other)
        return NotImplemented if number is None else self * Scaling(number) ** -1

    def __rtruediv__(self, other: object) -> Scaling:
        number = _number(other)
        return NotImplemented if number is None else self**-1 * number

    def __pow__(self, power: float) -> Scaling:
        if self.schedule is not None:
            raise InputError(
                "A law with a schedule has no powers and is no divisor, but got"
                f" {self}."
            )
        if traced(self.coefficient):
            return Scaling(self.coefficient**power, self.exponent * power)
        if self.coefficient == 0 and power < 0:
            raise InputError("A scaling law with coefficient 0 cannot be inverted.")
        if self.coefficient < 0 and power != int(power):
            raise InputError(
                f"A scaling law with a negative coefficient has no power {power:g}."
            )
        return Scaling(_power(self.coefficient, power), self.exponent * power)

    def __neg__(self) -> Scaling:
        return Scaling(-self.coefficient, self.exponent, self.schedule)

    def __str__(self) -> str:
        if self.schedule is not None:
            return f"{self.plain} * {self.schedule}"
        return self._written(
            "…" if traced(self.coefficient) else _shortest(self.coefficient)
        )

    def __format__(self, spec: str) -> str:
        """The law with its numbers in the given format, such as ``.3g``; as text
        without one.
        """
        if self.schedule is not None and spec:
            return f"{self.plain:{spec}} * {self.schedule:{spec}}"
        return self._written(format(self.coefficient, spec)) if spec else str(self)

    def _written(self, number: str) -> str:
        x = self.exponent
        if x == 0:
            return number
        if x == -1:
            return f"{number}/d"
        power = "d" if x == 1 else f"d**{int(x) if x == int(x) else repr(float(x))}"
        return power if number == "1" else f"{number}*{power}"

    def __repr__(self) -> str:
        return f"Scaling({self})"


def _number(value: object) -> Any:
    """A number as a float, or as what JAX traces in its place; None for anything
    else.
    """
    if traced(value):
        return value
    single = isinstance(value, numbers.Real) or (
        hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0
    )
    try:
        return float(value) if single else None  # type: ignore[arg-type]
    except (TypeError, ValueError):  # dates and words of NumPy
        return None


def _shortest(value: float) -> str:
    """The fewest digits that read back as the same number."""
    return min(
        (f"{value:.{n}g}" for n in range(1, 18)),
        key=lambda t: (float(t) != value, len(t)),
    )


def _power(base: float, exponent: float) -> float:
    """base**exponent, infinite where it is too large for a double."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf


def _monomial(node: Node) -> Scaling | None:
    """Read a tree as c·d^x; None when it is a sum or a function of d."""
    number = constant(node)
    if number is not None:
        return Scaling(number)
    match node:
        case Variable():
            return Scaling(1.0, 1.0)
        case Negative(inner):
            law = _monomial(inner)
            return None if law is None else -law
        case Power(base, exponent):
            law = _monomial(base)
            return None if law is None else law**exponent
        case Binary("*" | "/" as op, left, right):
            first, second = _monomial(left), _monomial(right)
            if (
                first is None
                or second is None
                or (op == "/" and second.coefficient == 0)
            ):
                return None
            return first * second if op == "*" else first / second
    return None


def positive_law(value: object, argument: str) -> Scaling:
    """A scaling law with a finite positive coefficient, or the error that says so.

    >>> positive_law("-1/d", "lr")
    Traceback (most recent call last):
    twolayer.InputError: Argument `lr` must be a positive number or scaling law such as
    0.2/d, but got '-1/d'.
    """
    law = Scaling.of(value, argument)
    if traced(law.coefficient):
        return law
    if not (
        # smaller ones have fewer digits, and no inverse
        sys.float_info.min <= law.coefficient < math.inf and math.isfinite(law.exponent)
    ):
        reject(argument, value, "a positive number or scaling law such as 0.2/d")
    return law


d = Scaling(1.0, 1.0)
"""The dimension, for writing scaling laws: ``lr=0.2 / d``."""
