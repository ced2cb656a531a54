"""Verdicts of the zoo: does the package give what was published?

    observed, expected   what the package computes, what was published
    error                (error² + spread²/runs + own error²)^½
    allowance            tolerance·|published|
    resolution           half of the value: a factor of two

error is what the paper states; where it only says how many runs it has averaged, their
spread is taken from ours. Where no value is known well enough to tell a factor of two,
nothing agrees (numerics/verdict.py has the words and the arithmetic). What cannot be
computed here is undecided. A value that is known to be off counts as explained where it
differs. A set-up agrees if no row differs without an explanation and at least one
agrees.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from twolayer.files.zoo_quantities import FORMULAS, Measured, from_formula, from_run
from twolayer.numerics.arguments import Progress
from twolayer.numerics.errors import InputError, RunFailed
from twolayer.numerics.significance import limit_of
from twolayer.numerics.verdict import AGREE, DIFFER, UNDECIDED, Trial
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
        word = self.verdict
        if self.explained and word == DIFFER:
            word = "differ, explained"
        if self.verdict == UNDECIDED:
            return f"{self.quantity}: {word}: {self.why} ({self.where})"
        numbers = (
            f"{self.computed:.6g} for {self.published:.6g}, allowed"
            f" {self.allowance:.2g}"
        )
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
        """The verdict on the whole set-up."""
        if any(row.verdict == DIFFER and not row.explained for row in self.rows):
            return DIFFER
        if any(row.verdict == AGREE for row in self.rows):
            return AGREE
        return UNDECIDED

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.name}: {self.verdict}", *(f"  {row}" for row in self.rows)]
        )


def check(setup: Setup, progress: Progress = None) -> ReferenceCheck:
    """Compute every quantity of a set-up once and judge it; runs are shared by
    references with the same description.
    """
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
        UNDECIDED,
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
    error = np.hypot(error, np.atleast_1d(found.error))
    size = np.abs(value)
    if reference.scale is not None:
        size = np.full_like(value, reference.scale)
    trial = Trial(
        computed,
        value,
        error,
        FACTOR * size,
        reference.tolerance * np.abs(value),
        limit_of(value.size, level=FALSE_ALARM),
    )
    ratio = np.where(np.isnan(computed), np.inf, trial.ratio)
    worst = int(np.argmax(ratio))
    row = partial(
        Row,
        quantity=reference.quantity,
        where=reference.where,
        published=float(value[worst]),
        computed=float(computed[worst]),
        deviation=float(trial.deviation[worst]),
        allowance=float(trial.tolerance[worst]),
    )
    if ratio[worst] > 1:
        why = reference.known
        if not why:
            why = f"it is {ratio[worst]:.3g} times what error and tolerance allow"
        return row(verdict=DIFFER, why=why, explained=bool(reference.known))
    exact = trial.tolerance == 0
    if not (exact | (trial.tolerance < FACTOR * size)).any():
        why = "no value is known well enough to tell a factor of two"
        return row(verdict=UNDECIDED, why=why)
    count = f"all {value.size} values are" if value.size > 1 else "it is"
    within = f"within {ratio[worst]:.2g} of what is allowed"
    if exact.all():
        within = "equal"
    return row(verdict=AGREE, why=f"{count} {within}")
