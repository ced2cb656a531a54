"""Text within the width of a terminal: folded lines and two columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

__all__ = ["WIDTH", "fold", "folded", "wrapped"]

WIDTH = 79  # columns of everything that is printed


def fold(text: str, first: str = "", then: str = "") -> str:
    """Text within the width of a terminal, its lines led by ``first`` and ``then``; "k
    = 1" is not taken apart.

    Examples
    --------
    >>> text = "the second Hermite polynomial, with unit leading coefficient, where"
    >>> print(fold(f"{text} k = 1", then="  "))
    the second Hermite polynomial, with unit leading coefficient, where k = 1
    """
    together = text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    lines = textwrap.wrap(
        together,
        WIDTH,
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def folded(text: str, then: str = "    ") -> str:
    """Every line of a text within the width of a terminal."""
    return "\n".join(
        fold(line, then=then) if len(line) > WIDTH else line
        for line in text.splitlines()
    )


def wrapped(rows: Iterable[tuple[str, str]], gap: int = 2) -> str:
    """Two columns within the width of a terminal; what is too long goes on below its
    own column.

    Examples
    --------
    >>> print(
    ...     wrapped(
    ...         [
    ...             (
    ...                 "He2",
    ...                 "the second Hermite polynomial, with unit leading coefficient, "
    ...                 * 2,
    ...             )
    ...         ]
    ...     )
    ... )
    He2  the second Hermite polynomial, with unit leading coefficient, the second
         Hermite polynomial, with unit leading coefficient,
    """
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0) + gap
    return "\n".join(
        fold(text, f"{name:<{width}}", " " * width) for name, text in listed
    )
