"""Verdicts of figures: a claim, and the checks it rests on (numerics/verdict.py).

The allowance of a check is what the prediction leaves out by its own account, and its
resolution, what the claim must be told apart from, is stated by each figure. Every
check says what it compares, its threshold and its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from twolayer.numerics.arguments import Array
from twolayer.numerics.html import card, escaped
from twolayer.numerics.significance import LEVEL, limit_of
from twolayer.numerics.verdict import (
    AGREE,
    DIFFER,
    UNDECIDED,
    Trial,
    compare_ranges,
    first_outcome,
)

__all__ = [
    "Check",
    "Verdict",
    "between",
    "holds",
    "largest",
    "near",
    "same_law",
    "unknown",
    "verdict",
]

ROUNDING = 1e-9  # of the resolution


class Check(NamedTuple):
    """One test: its outcome, and what was compared, with threshold and numbers.

    Attributes
    ----------
    outcome : str
        ``"agree"``, ``"differ"`` or ``"undecided"``.
    text : str
        What was compared, the threshold and the numbers.

    Examples
    --------
    >>> holds(True, "b is there")
    Check(outcome='agree', text='b is there')
    """

    outcome: str
    text: str


class Verdict(NamedTuple):
    """What a figure claims, the checks of it, and further numbers.

    Attributes
    ----------
    claim : str
        One sentence, chosen before looking.
    checks : tuple of Check
        The tests of it.
    note : str
        Further numbers, which nothing depends on.

    Examples
    --------
    >>> found = Verdict(
    ...     "a is 1",
    ...     (near("a", 1.1, 1.0, 0.01, resolution=0.2), holds(True, "b is there")),
    ... )
    >>> found.outcome, found.agrees
    ('differ', False)
    """

    claim: str
    checks: tuple[Check, ...]
    note: str = ""

    @property
    def outcome(self) -> str:
        """``"agree"``, ``"differ"`` or ``"undecided"``."""
        return first_outcome(check.outcome for check in self.checks)

    @property
    def agrees(self) -> bool:
        """Whether measurement and theory agree."""
        return self.outcome == AGREE

    def _repr_html_(self) -> str:
        rows = [(check.outcome, escaped(check.text)) for check in self.checks]
        return card(f"{self.outcome}: {self.claim}", "", rows, note=self.note)

    @property
    def text(self) -> str:
        """Claim and checks in one line."""
        told = "; ".join(f"{c.text} [{c.outcome}]" for c in self.checks)
        return f"{self.claim}: {told}" + (f". {self.note}" if self.note else "")


def verdict(claim: str, checks: Iterable[Check], note: str = "") -> Verdict:
    """A verdict from checks as they come."""
    return Verdict(claim, tuple(checks), note)


def near(
    what: str,
    value: float,
    expected: float | tuple[float, float],
    error: float,
    *,
    resolution: float,
    allowance: float = 0.0,
    freedom: float = np.inf,
    count: int = 1,
    digits: int = 3,
) -> Check:
    """Whether a measured number is the expected one; two of these are the ends of what
    is expected.

    ``freedom`` are the degrees of freedom of the error, ``count`` is how many such
    numbers are looked at.

    Examples
    --------
    >>> near("slope", 1.02, 1.0, 0.01, resolution=0.1).text
    'slope 1.020 ± 0.010, expected 1.000, tolerance 0.039, resolution 0.100'
    >>> near("slope", 4.05, 1.0, 1.01, resolution=0.25).outcome
    'undecided'
    """
    low, high = expected if isinstance(expected, tuple) else (expected, expected)
    if np.isnan([low, high]).any():
        return unknown(
            f"{what} {value:.{digits}f}, none predicted: the formula does not hold"
            " there"
        )
    said = f"expected {low:.{digits}f}" + (
        f" to {high:.{digits}f}" if high > low else ""
    )
    if not np.isfinite([value, error]).all():
        return unknown(f"{what} could not be measured, {said}")
    nearest = min(max(value, low), high)
    limit = limit_of(count, freedom)
    trial = Trial(value, nearest, error, resolution, allowance, limit)
    numbers = f"{value:.{digits}f} ± {error:.{digits}f}, {said}"
    return Check(
        trial.verdict,
        f"{what} {numbers}, tolerance {float(trial.tolerance):.{digits}f}, resolution"
        f" {resolution:.{digits}f}",
    )


def largest(
    what: str,
    gaps: Array,
    errors: Array,
    *,
    resolution: Array,
    allowance: Array = 0.0,
    freedom: float = np.inf,
) -> Check:
    """Whether many deviations are within their errors: the largest in units of its
    tolerance, and what was seen.

    ``resolution`` and ``allowance`` are numbers, or one for each deviation. What would
    have been seen is told as a part of the resolution. Numbers whose error is no more
    than rounding are left out where they deviate by no more than is allowed: a count of
    steps that is the same in all runs.

    Examples
    --------
    >>> largest("M", [0.1, -0.02], [0.05, 0.01], resolution=1.0, freedom=31).text
    'M: largest of 2 deviations 2.0 standard errors, 4.7 allowed, rms 2.0; seen from
    0.34 of the resolution on'
    """
    gap = np.abs(np.asarray(gaps, dtype=float))
    scale = np.broadcast_to(resolution, gap.shape)
    room = np.broadcast_to(allowance, gap.shape)
    error = np.broadcast_to(errors, gap.shape)
    random = error > ROUNDING * scale
    known = random | (gap > room)
    if not known.any():
        return unknown(f"{what}: nothing was measured")
    if not np.isfinite(gap[known]).all():
        return unknown(f"{what}: deviations are not finite")
    limit = limit_of(int(known.sum()), freedom)
    trial = Trial(gap[known], 0.0, error[known], scale[known], room[known], limit)
    seen = float((trial.seen / scale[known]).max())
    # a deviation without an error is not counted in standard errors
    safe = np.where(random, error, np.inf)
    z = (np.maximum(gap - room, 0.0) / safe)[known]
    left_out = float(room[known].max())
    beside = ""
    if left_out > 0:
        beside = f", beyond the {left_out:.2g} of the prediction itself,"
    return Check(
        trial.verdict,
        f"{what}: largest of {z.size} deviations{beside} {z.max():.1f} standard"
        f" errors, {limit:.1f} allowed, rms {np.sqrt((z**2).mean()):.1f}; seen from"
        f" {seen:.2f} of the resolution on",
    )


def between(what: str, low: float, value: float, high: float, digits: int = 3) -> Check:
    """Whether a number without error lies in an interval.

    Examples
    --------
    >>> between("ratio", 0.9, 1.05, 1.1).text
    'ratio 1.050, from 0.900 to 1.100 expected'
    """
    ends = f"from {low:.{digits}f} to {high:.{digits}f} expected"
    outcome = compare_ranges(value, value, low, high)
    return Check(outcome, f"{what} {value:.{digits}f}, {ends}")


def same_law(
    what: str, one: np.ndarray, two: np.ndarray, count: int = 1, resolution: float = 0.5
) -> Check:
    """Whether two samples have one law, by Kolmogorov and Smirnov; infinite values are
    runs that have not arrived.

    ``resolution`` is the distance of distribution functions that must be seen,
    ``count`` the number of such tests.

    Examples
    --------
    >>> same_law("times", np.arange(40.0), np.arange(40.0) + 100).outcome
    'differ'
    >>> same_law("times", np.arange(4.0), np.arange(4.0)).outcome
    'undecided'
    """
    from scipy import stats

    n, m = len(one), len(two)
    found = stats.ks_2samp(one, two)
    level = LEVEL / count
    seen = float(np.sqrt(-np.log(level / 2) / 2 * (1 / n + 1 / m)))
    text = (
        f"{what}: Kolmogorov–Smirnov distance {found.statistic:.2f}, p-value"
        f" {found.pvalue:.2g}, threshold {level:.1g}; distances from {seen:.2f} on are"
        f" seen, resolution {resolution:g}"
    )
    if found.pvalue < level:
        return Check(DIFFER, text)
    return Check(AGREE if seen <= resolution else UNDECIDED, text)


def holds(condition: object, text: str) -> Check:
    """A statement that is true or false as it stands."""
    return Check(AGREE if bool(condition) else DIFFER, text)


def unknown(text: str) -> Check:
    """A check for which there is nothing to judge by."""
    return Check(UNDECIDED, text)
