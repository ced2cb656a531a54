"""Times with their errors, and steps, as tables of escape show them."""

from __future__ import annotations

import math

__all__ = ["counted", "told"]


def told(value: float, error: float | None) -> str:
    """A number with the digits that its standard error leaves, and the error of the
    last ones in brackets.

    Examples
    --------
    >>> told(1.23456, 0.012), told(1.23456, None), told(1.23456, 0.0)
    ('1.235(12)', '1.2346', '1.2346')
    """
    if not error or not math.isfinite(error):
        return f"{value:.5g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    if digits > 12:
        return f"{value:.5g}"
    return f"{value:.{digits}f}({round(error * 10**digits)})"


def counted(steps: float, digits: int = 5) -> str:
    """A number of steps with so many digits, in groups of three.

    Examples
    --------
    >>> counted(254822.4), counted(254822.4, 3), counted(3.14159e12)
    ('254 820', '255 000', '3.1416e+12')
    """
    if not 1 <= steps < 1e9:
        return f"{steps:.{digits}g}"
    places = digits - 1 - math.floor(math.log10(steps))
    return f"{round(steps, places):,.{max(places, 0)}f}".replace(",", " ")
