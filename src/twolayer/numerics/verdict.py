"""Verdicts: whether numbers are what is expected of them, with three outcomes.

    deviation = |observed − expected|,    tolerance = allowance + c · error

    differ      deviation > tolerance for some number
    agree       deviation ≤ tolerance and deviation + tolerance ≤ resolution for all
    undecided   otherwise

``error`` is random, and c leaves a chance of a false alarm to all numbers together
(significance.py). ``allowance`` is what the expectation leaves out by its own account.
``resolution`` is what has to be told apart: expectations that are off by more would
have been seen by a trial that agrees. A trial that would have passed whatever was
observed agrees with nothing, so it is undecided.

Comparisons of methods, the zoo, figures and contests of protocols differ in what they
observe and in where the four numbers come from. All of them judge here, in these words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from twolayer.numerics.arguments import Array

__all__ = ["AGREE", "DIFFER", "OUTCOMES", "UNDECIDED", "Trial", "compare_ranges"]
__all__ += ["first_outcome"]

AGREE = "agree"
DIFFER = "differ"
UNDECIDED = "undecided"

OUTCOMES = (DIFFER, UNDECIDED, AGREE)
"""From the one that decides: several trials together have the first that any has."""


@dataclass(frozen=True, eq=False)
class Trial:
    """Observed numbers beside what is expected of them; arrays that broadcast.

    Attributes
    ----------
    observed, expected : array
        What is compared.
    error : array
        Standard errors of the difference.
    resolution : array
        Differences that have to be told apart.
    allowance : array
        Differences that the expectation does not exclude.
    limit : float
        c, the standard errors that chance may account for.

    Examples
    --------
    >>> Trial(1.02, 1.0, error=0.01, resolution=0.1, limit=3.9).verdict
    'agree'
    >>> Trial(1.1, 1.0, error=0.01, resolution=0.1, limit=3.9).verdict
    'differ'
    >>> Trial(4.0, 1.0, error=1.0, resolution=0.1, limit=3.9).verdict
    'undecided'
    """

    observed: Array
    expected: Array
    error: Array
    resolution: Array
    allowance: Array = 0.0
    limit: float = 1.0

    @property
    def difference(self) -> np.ndarray:
        """Observed less expected."""
        return np.asarray(self.observed, float) - np.asarray(self.expected, float)

    @property
    def deviation(self) -> np.ndarray:
        """|observed − expected|."""
        return np.abs(self.difference)

    @property
    def noise(self) -> np.ndarray:
        """What chance may account for."""
        return self.limit * np.asarray(self.error, float)

    @property
    def tolerance(self) -> np.ndarray:
        """Deviations up to this are no evidence."""
        return np.asarray(self.allowance, float) + self.noise

    @property
    def ratio(self) -> np.ndarray:
        """Deviations in units of the tolerance; 0/0 is 0."""
        exact = self.tolerance == 0
        unit = np.where(exact, 1.0, self.tolerance)
        beyond = np.where(self.deviation == 0, 0.0, np.inf)
        return np.where(exact, beyond, self.deviation / unit)

    @property
    def seen(self) -> np.ndarray:
        """An expectation that is off by more than this would have been seen."""
        return self.deviation + self.tolerance

    @property
    def decisive(self) -> np.ndarray:
        """Which of the numbers could have told apart what has to be."""
        return self.seen <= np.asarray(self.resolution, float)

    @property
    def verdict(self) -> str:
        """``"agree"``, ``"differ"`` or ``"undecided"``; of nothing, and of numbers that
        are not finite, the last.
        """
        if not self.ratio.size or not np.isfinite(self.tolerance).all():
            return UNDECIDED
        if not np.isfinite(self.deviation).all():
            return UNDECIDED
        if (self.deviation > self.tolerance).any():
            return DIFFER
        return AGREE if self.decisive.all() else UNDECIDED


def compare_ranges(
    low: float, high: float, least: float = -np.inf, most: float = np.inf
) -> str:
    """The outcome where all that is known is a range: agree if it lies within what is
    expected, differ if it lies outside.

    Examples
    --------
    >>> compare_ranges(0.2, 0.4, most=0.5), compare_ranges(0.6, 0.8, most=0.5)
    ('agree', 'differ')
    >>> compare_ranges(0.4, 0.6, most=0.5)
    'undecided'
    """
    if least <= low and high <= most:
        return AGREE
    return DIFFER if high < least or low > most else UNDECIDED


def first_outcome(outcomes: Iterable[str]) -> str:
    """The outcome of several trials together; of none it is undecided.

    Examples
    --------
    >>> first_outcome(["agree", "undecided", "agree"]), first_outcome([])
    ('undecided', 'undecided')
    """
    found = set(outcomes)
    for outcome in OUTCOMES:
        if outcome in found:
            return outcome
    return UNDECIDED
