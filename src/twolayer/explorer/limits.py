"""What the page may ask for: bounds in numbers, checked before any work.

    text → tables → bounds of size (here, in the server) → cost of the run (in a worker)
        → work

The cost is that of `twolayer solve --dry-run`. A refusal is a sentence with the bound,
the value, and what to use instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twolayer.files.taskfile import TaskFile
from twolayer.numerics.durations import lasting
from twolayer.numerics.errors import InputError

__all__ = ["LIMITS", "Limits", "check_size"]


@dataclass(frozen=True)
class Limits:
    """The largest of everything."""

    body: int = 65_536  # bytes of a request
    width: int = 64
    directions: int = 8
    dim: int = 1_000_000_000
    seeds: int = 400  # of a stream
    points: int = 1000  # at which runs are saved
    family: int = 24  # curves
    spectrum: int = 1_000_000  # eigenvalues of a power law
    blocks: int = 256  # of the inputs
    quick: float = 90.0  # seconds of work until an answer
    long: float = 600.0  # and of a stream of runs
    memory: int = 256 * 2**20  # bytes of a result
    numbers: int = (
        2_500_000  # in one event: 64 MiB as text, which is what a line may have
    )
    waiting: int = 24  # requests without a worker; beyond them the answer is "busy"


LIMITS = Limits()


def check_size(task: TaskFile, limits: Limits = LIMITS) -> None:
    """Refuse tables that describe more than the page runs.

    Examples
    --------
    >>> from twolayer.files.taskfile import task_from
    >>> tables = {
    ...     "problem": {"target": "z1", "activation": "relu", "width": 1000},
    ...     "algorithm": {"lr": 0.1},
    ... }
    >>> check_size(task_from(tables, "page"))
    Traceback (most recent call last):
    twolayer.InputError: The page runs at most 64 neurons, but `problem.width` is 1000:
    use twolayer solve.
    """
    problem, run = task.table.problem, task.table.run
    if task.table.stages:
        raise InputError(
            "The page follows one algorithm, but the task has [[stages]]: use twolayer"
            " solve."
        )
    _most("neurons", "problem.width", problem.width, limits.width)
    _most("directions", "problem.directions", problem.directions, limits.directions)
    _most("dimensions", "run.dim", run.dim, limits.dim)
    _most("seeds", "run.seeds", run.seeds, limits.seeds)
    for name, value in (
        ("save", run.save),
        ("time", run.time),
        ("steps", run.steps),
        ("alpha", run.alpha),
        ("passes", run.passes),
    ):
        if isinstance(value, list):
            _most("save points", f"run.{name}", len(value), limits.points)
    _most("save points", "run.save", run.save, limits.points)
    for name, rows in (
        ("problem.gram", problem.gram),
        ("start.Q", task.table.start.Q),
        ("start.M", task.table.start.M),
    ):
        for size in () if rows is None else (len(rows), *map(len, rows)):
            _most("rows and columns", name, size, limits.width)
    inputs = problem.inputs or {}
    _most(
        "eigenvalues of a power law",
        "problem.inputs.dim",
        inputs.get("dim"),
        limits.spectrum,
    )
    _most(
        "blocks per factor of two",
        "problem.inputs.resolution",
        inputs.get("resolution"),
        16,
    )
    given = task.table.start.blocks
    for name, values in (
        *(
            (f"problem.inputs.{name}", inputs.get(name))
            for name in ("variances", "fractions", "dims")
        ),
        *(
            (f"start.blocks.{name}", getattr(given, name, None))
            for name in ("Q", "M", "P")
        ),
    ):
        if isinstance(values, list):
            _most("blocks", name, len(values), limits.blocks)
    if isinstance(problem.target, dict) and isinstance(problem.target.get("k"), int):
        _most("directions", "problem.target.k", problem.target["k"], limits.directions)


def _most(what: str, key: str, value: object, most: int) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and value > most:
        raise InputError(
            f"The page runs at most {most} {what}, but `{key}` is {value}: use twolayer"
            " solve."
        )


def check_cost(seconds: float, memory: int, limits: Limits = LIMITS) -> None:
    """Refuse runs that would take too long or too much memory, by the estimates of
    `cost_of`.

    Examples
    --------
    >>> check_cost(1.0, 10**6)
    >>> check_cost(86400.0, 10**6)
    Traceback (most recent call last):
    twolayer.InputError: The page runs at most 10 min, but this takes about 24 h: use a
    smaller dim, fewer seeds or an
    earlier end, or twolayer solve.
    """
    advice = "use a smaller dim, fewer seeds or an earlier end, or twolayer solve"
    if not seconds <= limits.long:
        raise InputError(
            f"The page runs at most {lasting(limits.long)}, but this takes about"
            f" {lasting(seconds)}: {advice}."
        )
    if memory > limits.memory:
        size = f"{memory / 2**20:.3g} MiB"
        raise InputError(
            f"The page keeps at most {limits.memory // 2**20} MiB, but this takes"
            f" {size}: {advice}."
        )


def check_answer(data: object, limits: Limits = LIMITS) -> None:
    """Refuse to write an answer of more numbers than a line may have.

    Examples
    --------
    >>> import numpy as np
    >>> check_answer(
    ...     {"Q": np.zeros((1000, 50, 50)), "name": "ode"}, Limits(numbers=10**6)
    ... )
    Traceback (most recent call last):
    twolayer.InputError: The page shows at most 1000000 numbers at once, but this answer
    has 2500001: use fewer save
    points or neurons, or twolayer solve.
    """
    count = _count(data)
    if count > limits.numbers:
        raise InputError(
            f"The page shows at most {limits.numbers} numbers at once, but this answer"
            f" has {count}: use fewer save points or neurons, or twolayer solve."
        )


def _count(data: object) -> int:
    """How many numbers there are; a text counts as one for each 25 characters."""
    if isinstance(data, np.ndarray):
        return data.size
    if isinstance(data, dict):
        return sum(map(_count, data.values()))
    if isinstance(data, list | tuple):
        return sum(map(_count, data))
    return 1 + len(data) // 25 if isinstance(data, str) else 1


def check_family(values: Sequence[object], limits: Limits = LIMITS) -> None:
    """Refuse families of too many curves, or of none."""
    if not 1 <= len(values) <= limits.family:
        raise InputError(
            f"A family has 1 to {limits.family} curves, but got {len(values)} values."
        )
