"""Published set-ups, each as a description in the words of task files with the numbers
that were published for it.

    setup = zoo("saad1995-plateau")
    solve(setup.problem, setup.algorithm, setup.methods[0], setup.start, **setup.run)
    setup.check()     runs what is recommended and compares with the published numbers

The set-ups are data, one TOML file for each paper in published/: a list of tables
[[setup]] with the tables of a task file and [[setup.reference]], a quantity with its
published value, its error and where it stands in the paper.
"""

from __future__ import annotations

import copy
import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

from pydantic import ConfigDict, Field, ValidationError

from twolayer.files.papers import PAPERS
from twolayer.files.taskfile import (
    AlgorithmTable,
    ProblemTable,
    RunTable,
    StartTable,
    Table,
    TaskFile,
    TaskTable,
)
from twolayer.numerics.arguments import Json, Progress
from twolayer.numerics.errors import InputError, closest, reject, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twolayer.files.zoo_verdict import ReferenceCheck
    from twolayer.task.algorithm import SGD
    from twolayer.task.method import Method
    from twolayer.task.overlaps import Overlaps
    from twolayer.task.problem import Problem

__all__ = ["Reference", "Setup", "zoo"]

FOLDER = Path(__file__).parent / "published"
PARTS = ("problem", "algorithm", "start", "run", "method")


class Reference(Table):
    """A published number, or several along a run.

    Attributes
    ----------
    quantity : str
        What was measured or derived, one of those of `zoo_quantities`.
    value : number, bool or list
        The published value; one for each of ``at`` where it is a list.
    error : number or list
        Its standard error as published, 0 where it is exact.
    runs : int, optional
        How many runs were averaged, where no error is published: the spread of ours
        then stands for it.
    tolerance : float
        What else may differ, relative to the value: rounding, digitised figures,
        discretisation, finite size.
    where : str
        The place in the paper, or the derivation.
    method : str, optional
        By which method it is computed; the first of the set-up by default.
    at : list, optional
        Save points of the run to which the values belong; all but the start by default.
    changes : table
        Keys of the description that differ here, such as ``"algorithm.loss" =
        "squared"``.
    difference : bool
        Whether the values are increments from one save point to the next.
    threshold : float, optional
        The threshold T of escape times.
    scale : float, optional
        How large the quantity could be; its own value by default, which is no scale
        where that is zero.
    known : str
        Why the published value is off, where that has been found out.
    beyond : str
        Why this version of the package cannot compute it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    quantity: str
    value: float | int | bool | list[float] | list[int]
    where: str
    error: float | list[float] = 0.0
    runs: int | None = None
    tolerance: float = 0.0
    method: str | None = None
    at: list[float] | None = None
    changes: Json = Field(default_factory=dict)
    difference: bool = False
    threshold: float | None = None
    scale: float | None = None
    known: str = ""
    beyond: str = ""


class SetupTable(Table):
    """One [[setup]]: a task file with a name, a title and references."""

    name: str
    title: str
    place: str
    seconds: float
    note: str = ""
    problem: ProblemTable
    algorithm: AlgorithmTable
    start: StartTable = Field(default_factory=StartTable)
    run: RunTable = Field(default_factory=RunTable)
    method: dict[str, Json] = Field(default_factory=dict)
    reference: list[Reference]


class PaperTable(Table):
    """A whole file."""

    paper: str
    also: list[str] = Field(default_factory=list)
    setup: list[SetupTable]


@dataclass(frozen=True, eq=False)
class Setup:
    """A published set-up.

    Attributes
    ----------
    name, title : str
        How it is called, and what it shows.
    place : str
        Where it stands in the paper.
    papers : tuple of str
        Keys of the papers, the one it is from first.
    seconds : float
        About how long `check` takes on one core, compilation included.
    note : str
        What a reader of the paper should know.
    reference : tuple of Reference
        The published numbers.
    tables : mapping
        The description in the words of task files.

    Examples
    --------
    >>> setup = zoo("saad1995-plateau")
    >>> setup.problem.p, setup.papers
    (2, ('saad1995',))
    """

    name: str
    title: str
    place: str
    papers: tuple[str, ...]
    seconds: float
    note: str
    reference: tuple[Reference, ...]
    tables: Mapping[str, Any]

    def task(self, changes: Mapping[str, object] | None = None) -> TaskFile:
        """The description as a checked task file, some keys changed by ``changes``.

        Examples
        --------
        >>> zoo("saad1995-plateau").task({"problem.noise": 0.1}).problem().noise
        0.1
        """
        tables = copy.deepcopy(dict(self.tables))
        for key, value in (changes or {}).items():
            *path, last = key.split(".")
            table = tables
            for part in path:
                table = table.setdefault(part, {})
            table[last] = value
        return TaskFile(TaskTable.model_validate(tables), self.name)

    @property
    def problem(self) -> Problem:
        """The target and the student."""
        return self.task().problem()

    @property
    def algorithm(self) -> SGD:
        """How it is trained."""
        return self.task().algorithm()

    @functools.cached_property
    def start(self) -> Overlaps:
        """Where it starts."""
        task = self.task()
        return task.start(task.problem())

    @property
    def methods(self) -> list[Method]:
        """The methods recommended for it, the first one first; none where the numbers
        are those of formulas.
        """
        task = self.task()
        return task.methods() if task.table.run.methods else []

    @property
    def run(self) -> Mapping[str, Any]:
        """Arguments of solve beside problem, algorithm, method and start; empty where
        there is nothing to run.
        """
        task = self.task()
        ends = task.table.run.time is None and task.table.run.steps is None
        return MappingProxyType({} if ends else task.run_arguments())

    def cite(self) -> str:
        """The papers, one per line.

        Examples
        --------
        >>> zoo("saad1995-plateau").cite()[:21]
        'D. Saad and S. A. Sol'
        """
        return "\n".join(PAPERS[key] for key in self.papers)

    def check(self, *, progress: Progress = None) -> ReferenceCheck:
        """Run the recommended methods and compare with the published numbers.

        Parameters
        ----------
        progress : bool or Listener, optional
            As for `solve`.

        Returns
        -------
        ReferenceCheck
            ``.verdict`` is "agree", "differ" or "undecided"; ``.rows`` say why for each
            number.

        Examples
        --------
        >>> zoo("abbe2023-leap").check().verdict
        'agree'
        """
        from twolayer.files.zoo_verdict import check

        return check(self, progress)

    def __repr__(self) -> str:
        return f"Setup({self.name!r}: {self.title})"

    def __str__(self) -> str:
        rows = [
            self.title,
            f"{self.place}",
            "",
            f"problem    {self.problem!r}",
            f"algorithm  {self.algorithm!r}",
        ]
        rows += [
            f"start      {self.start!r}",
            f"methods    {', '.join(map(repr, self.methods)) or 'formulas'}",
        ]
        rows += [f"published  {told(r)}" for r in self.reference]
        rows += [f"note       {self.note}"] if self.note else []
        return "\n".join([*rows, "", self.cite()])


def told(reference: Reference) -> str:
    """A reference in one line."""
    value = reference.value
    if isinstance(value, list):
        shown = f"{len(value)} values from {value[0]:.4g} to {value[-1]:.4g}"
    else:
        shown = str(value) if isinstance(value, bool) else f"{value:.7g}"
    changed = "".join(
        f", {key} = {word}"
        for key, word in reference.changes.items()
        if not isinstance(word, list)
    )
    return f"{reference.quantity} = {shown}{changed} ({reference.where})"


@functools.cache
def _all() -> dict[str, Setup]:
    found: dict[str, Setup] = {}
    for file in sorted(FOLDER.glob("*.toml")):
        try:
            page = PaperTable.model_validate(
                tomllib.loads(file.read_text(encoding="utf-8"))
            )
        except (ValidationError, ValueError) as error:
            raise InputError(
                f"The set-ups of {file.name} cannot be read: {error}"
            ) from error
        for table in page.setup:
            tables = {
                key: value
                for key, value in table.model_dump(exclude_unset=True).items()
                if key in PARTS
            }
            found[table.name] = Setup(
                table.name,
                table.title,
                table.place,
                (page.paper, *page.also),
                table.seconds,
                table.note,
                tuple(table.reference),
                MappingProxyType(tables),
            )
    return found


@overload
def zoo(name: str) -> Setup: ...


@overload
def zoo(name: None = None) -> dict[str, Setup]: ...


def zoo(name: str | None = None) -> Setup | dict[str, Setup]:
    """Published set-ups by name.

    Parameters
    ----------
    name : str, optional
        Without it, all of them.

    Returns
    -------
    Setup or dict of Setup
        ``.problem``, ``.algorithm``, ``.start``, ``.methods`` and ``.run`` describe it,
        ``.reference`` has the published numbers, ``.cite()`` the papers, and
        ``.check()`` compares.

    Examples
    --------
    >>> zoo("saad1995-plateau").algorithm
    SGD(lr='0.5*d**-2', batch='1')
    >>> len(zoo()) >= 25
    True
    """
    known = _all()
    if name is None:
        return dict(known)
    if not isinstance(name, str):
        reject("name", name, "the name of a set-up, as listed by zoo()")
    if name not in known:
        raise InputError(
            f"Argument `name` must be one of the {len(known)} set-ups that zoo() lists,"
            f" but got {short(name)}{closest(name, known)}."
        )
    return known[name]
