"""Verdicts: does the package give what was published?

    deviation = |computed − published|,    allowance = tolerance·|published| + z (error² + spread²/runs + own error²)^½
    agree: every deviation is within its allowance;    differ: one is not;
    undecided: it cannot be computed here, or no allowance is small enough to tell a factor of two

error is what the paper states; where it only says how many runs it has averaged, their spread is taken from ours.
z is that of a normal deviate that exceeds it with probability 1e-5, divided by the number of values that are looked at.
A value that is known to be off counts as explained where it differs. A set-up agrees if no row differs without an
explanation and at least one agrees.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy import special

from twolayer.files.zoo_quantities import FORMULAS, Measured, from_formula, from_run
from twolayer.numerics.arguments import Progress
from twolayer.numerics.errors import InputError, RunFailed
from twolayer.running.solve import DivergenceWarning, solve

if TYPE_CHECKING:
    from twolayer.files.zoo import Reference, Setup

__all__ = ["ReferenceCheck", "Row", "check", "judge"]

FALSE_ALARM = 1e-5
FACTOR = 0.5  # an allowance above this part of the value cannot tell a factor of two


@dataclass(frozen=True)
class Row:
    """One published number, or several along a run, beside what the package gives.

    Attributes
    ----------
    quantity, where : str
    published, computed : float
        At the entry where they are furthest apart in units of the allowance.
    deviation, allowance : float
    verdict : str
        "agree", "differ" or "undecided".
    why : str
        The reason, in one sentence.
    explained : bool
        Whether the publication is known to be off here.
    """

    quantity: str
    where: str
    published: float
    computed: float
    deviation: float
    allowance: float
    verdict: str
    why: str
    explained: bool = False

    def __str__(self) -> str:
        word = (
            "differ, explained"
            if self.explained and self.verdict == "differ"
            else self.verdict
        )
        if self.verdict == "undecided":
            return f"{self.quantity}: {word}: {self.why} ({self.where})"
        numbers = f"{self.computed:.6g} for {self.published:.6g}, allowed {self.allowance:.2g}"
        return f"{self.quantity}: {word}: {numbers}; {self.why} ({self.where})"


@dataclass(frozen=True)
class ReferenceCheck:
    """Result of `Setup.check`.

    Attributes
    ----------
    name : str
        The set-up.
    rows : tuple of Row
    verdict : str
        "agree", "differ" or "undecided".
    """

    name: str
    rows: tuple[Row, ...]

    @property
    def verdict(self) -> str:
        """Of the whole set-up."""
        if any(row.verdict == "differ" and not row.explained for row in self.rows):
            return "differ"
        return (
            "agree" if any(row.verdict == "agree" for row in self.rows) else "undecided"
        )

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.name}: {self.verdict}", *(f"  {row}" for row in self.rows)]
        )


def check(setup: Setup, progress: Progress = None) -> ReferenceCheck:
    """Compute every quantity of a set-up once and judge it; runs are shared by references with the same description."""
    runs: dict[str, xr.Dataset] = {}
    return ReferenceCheck(
        setup.name,
        tuple(_row(setup, reference, runs, progress) for reference in setup.reference),
    )


def _row(
    setup: Setup, reference: Reference, runs: dict[str, xr.Dataset], progress: Progress
) -> Row:
    if reference.beyond:
        return _undecided(reference, reference.beyond)
    try:
        found = _measure(setup, reference, runs, progress)
    except (InputError, RunFailed) as error:
        return _undecided(reference, str(error))
    return judge(reference, found)


def _measure(
    setup: Setup, reference: Reference, runs: dict[str, xr.Dataset], progress: Progress
) -> Measured:
    task = setup.task(reference.changes)
    if reference.quantity in FORMULAS:
        return from_formula(task, reference.quantity, reference.threshold)
    method = task.methods(None if reference.method is None else [reference.method])[0]
    key = json.dumps(
        [sorted(reference.changes.items(), key=lambda item: item[0]), repr(method)]
    )
    if key not in runs:
        problem = task.problem()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DivergenceWarning
            )  # a run that diverges is far from any published number
            runs[key] = solve(
                problem,
                task.algorithm(),
                method,
                task.start(problem),
                **task.run_arguments(),
                progress=progress,
                throw=False,
            )
    run = runs[key]
    found = from_run(run, reference.quantity, reference.difference)
    if reference.at is None or not found.value.ndim:
        return found
    asked: Any = (
        task.table.run.time if task.table.run.steps is None else task.table.run.steps
    )
    points = [float(x) for x in np.ravel(asked) if x > 0]
    places = [points.index(float(x)) for x in reference.at]
    return Measured(*(part[places] for part in found))


def _undecided(reference: Reference, why: str) -> Row:
    value = float(np.ravel(reference.value)[-1])
    return Row(
        reference.quantity,
        reference.where,
        value,
        np.nan,
        np.nan,
        np.nan,
        "undecided",
        why,
    )


def judge(reference: Reference, found: Measured) -> Row:
    """The verdict on one reference.

    Examples
    --------
    >>> from twolayer.files.zoo import Reference
    >>> published = Reference(quantity="risk", value=1.0, error=0.01, where="figure 1")
    >>> [
    ...     judge(
    ...         published, Measured(np.asarray(x), np.zeros(()), np.zeros(()))
    ...     ).verdict
    ...     for x in (1.02, 1.2)
    ... ]
    ['agree', 'differ']
    """
    value = np.atleast_1d(np.asarray(reference.value, dtype=float))
    computed = np.atleast_1d(found.value)
    if value.shape != computed.shape:
        return _undecided(
            reference,
            f"{value.size} values are published, but {computed.size} were computed",
        )
    error = np.broadcast_to(np.asarray(reference.error, dtype=float), value.shape)
    if reference.runs is not None:
        error = np.hypot(error, np.atleast_1d(found.spread) / np.sqrt(reference.runs))
    z = -special.ndtri(FALSE_ALARM / (2 * value.size))
    allowance = reference.tolerance * np.abs(value) + z * np.hypot(
        error, np.atleast_1d(found.error)
    )
    deviation = np.abs(computed - value)
    exact = allowance == 0
    ratio = np.where(
        exact,
        np.where(deviation == 0, 0.0, np.inf),
        deviation / np.where(exact, 1.0, allowance),
    )
    ratio = np.where(np.isnan(computed), np.inf, ratio)
    worst = int(np.argmax(ratio))
    place = (
        float(value[worst]),
        float(computed[worst]),
        float(deviation[worst]),
        float(allowance[worst]),
    )
    row = (reference.quantity, reference.where, *place)
    size = np.abs(value) if reference.scale is None else reference.scale
    decisive = exact | (allowance < FACTOR * size)
    if ratio[worst] > 1:
        why = (
            reference.known
            or f"it is {ratio[worst]:.3g} times what error and tolerance allow"
        )
        return Row(*row, "differ", why, bool(reference.known))
    if not decisive.any():
        return Row(
            *row, "undecided", "no value is known well enough to tell a factor of two"
        )
    count = f"all {value.size} values are" if value.size > 1 else "it is"
    within = "equal" if exact.all() else f"within {ratio[worst]:.2g} of what is allowed"
    return Row(*row, "agree", f"{count} {within}")
