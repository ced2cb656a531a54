"""The task that a figure was asked for: its target, its student, and how many
directions its start knows.

target "teacher":  h = (1/k) Σ_r σ(λ*_r),  k neurons of the student's own kind
"""

from __future__ import annotations

from typing import Any

import twolayer as tl
from twolayer.functions.target import Target
from twolayer.numerics.errors import require

__all__ = ["chosen_problem"]

TEACHER = "teacher"


def chosen_problem(
    target: str, activation: str, k: int, width: int = 1, **options: Any
) -> tl.Problem:
    """A problem with k directions, as the start of the figure has them; other targets
    are refused.

    Examples
    --------
    >>> chosen_problem("teacher", "erf", 2).target.name
    'teacher erf, k=2'
    >>> chosen_problem("z1*z2", "erf", 1)
    Traceback (most recent call last):
    twolayer.InputError: Argument `target` must be 'teacher' or a function of z1 alone,
    but got 'z1*z2'.
    """
    h = tl.Teacher(activation, k) if target == TEACHER else Target.of(target)
    names = " and ".join(f"z{r + 1}" for r in range(k))
    require(
        h.directions == k,
        "target",
        target,
        f"{TEACHER!r} or a function of {names} alone",
    )
    return tl.Problem(h, activation, width, **options)
