"""Chances of false alarms: one level for every statistical judgement of the suite, and a budget for all of them.

    sigmas(entries, freedom) = c   with   P(largest of so many |t| > c) ≤ LEVEL,    Σ over all judgements ≤ BUDGET

A judgement is one call of `sigmas`: what it bounds is a maximum over ``entries`` deviations in units of their standard
errors, which have ``freedom`` degrees of freedom. Seeds are fixed, so a false alarm comes with a change of the random
numbers, not from run to run.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np

from twolayer.numerics.significance import limit_of

LEVEL = 1e-5
BUDGET = 1e-2


def sigmas(entries: int = 1, freedom: float = np.inf) -> float:
    """Standard errors that the largest of ``entries`` deviations may reach."""
    return limit_of(entries, freedom, LEVEL)


def judgements(function: Any) -> int:
    """Calls of `sigmas` in a test and in the functions of the tests that it calls, each as often as it is called."""
    own = vars(inspect.getmodule(function))
    seen: list[str] = []

    def count(source: str) -> int:
        found = len(re.findall(r"\bsigmas\(", source))
        for word in re.findall(r"\b([a-z_]\w*)\(", source):
            other = own.get(word)
            if (
                inspect.isfunction(other)
                and other.__module__ in (own["__name__"], "statements")
                and word not in seen
            ):
                seen.append(word)
                found += source.count(f"{word}(") * count(
                    inspect.getsource(other).partition("\n")[2]
                )
                seen.pop()
        return found

    return count(inspect.getsource(function).partition("\n")[2])
