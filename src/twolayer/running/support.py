"""`support`: through which lenses a problem and an algorithm can be seen, and why not
through the others.

support(problem, algorithm).methods, .reasons        every registered method is in one
of the two
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from twolayer.numerics.errors import expect
from twolayer.numerics.html import card, escaped
from twolayer.task.algorithm import SGD
from twolayer.task.method import METHODS
from twolayer.task.problem import Problem

__all__ = ["Support", "check_description", "support"]

WIDTH = 120


def check_description(problem: object, algorithm: object, hint: str = "") -> None:
    """Reject what is not a problem and an algorithm; the hint goes on from "an SGD"."""
    expect(Problem, "problem", problem)
    expect(SGD, "algorithm", algorithm, hint)


@dataclass(frozen=True)
class Support:
    """Who can treat a description; prints as a table. Made by `support`.

    Attributes
    ----------
    methods : tuple of str
        Names of the methods that can treat the problem and algorithm.
    reasons : dict
        Why each of the others cannot.
    """

    methods: tuple[str, ...]
    reasons: dict[str, str]

    def __contains__(self, method: object) -> bool:
        return method in self.methods

    def _repr_html_(self) -> str:
        said = {
            **dict.fromkeys(self.methods, "<b>yes</b>"),
            **{n: escaped(why) for n, why in self.reasons.items()},
        }
        return card("Methods", "", sorted(said.items()))

    def __str__(self) -> str:
        lines = {
            **dict.fromkeys(self.methods, "yes"),
            **{name: f"no: {why}" for name, why in self.reasons.items()},
        }
        width = max(map(len, lines)) + 2
        margin = " " * width
        return "\n".join(
            textwrap.fill(
                text,
                WIDTH,
                initial_indent=f"{name:<{width}}",
                subsequent_indent=f"{margin}    ",
            )
            for name, text in sorted(lines.items())
        )


def support(problem: Problem, algorithm: SGD) -> Support:
    """Which methods can treat this problem and algorithm, and the mathematical reason
    why the others cannot.

    Parameters
    ----------
    problem : Problem
        The task.
    algorithm : SGD
        With laws in d; these decide which limits exist.

    Examples
    --------
    >>> found = support(Problem("He2(z1)", "He2"), SGD(lr=0.5, batch="4*d"))
    >>> found.methods
    ('Chain', 'GiantSteps', 'Map', 'Population', 'Vectors')
    >>> (
    ...     "ODE" in found,
    ...     found.reasons["ODE"].endswith(
    ...         "the limit is a discrete map, that of GiantSteps"
    ...     ),
    ... )
    (False, True)
    """
    check_description(problem, algorithm)
    answers = {cls.__name__: cls.answer(problem, algorithm) for cls in METHODS.values()}
    return Support(
        tuple(name for name, reason in answers.items() if reason is None),
        {name: reason for name, reason in answers.items() if reason is not None},
    )
