"""Task files: one TOML description for every lens.

[problem]    target, activation, width, noise, gram, second_layer
[algorithm]  lr, batch, loss, geometry, momentum, weight_decay, dataset, train_second_layer
[start]      random = "sphere" | "gaussian" with seed, or Q, M, a
[run]        dim, time | steps, save, seeds, seed, methods, until
[method.ode] knobs of one method
[sweep]      "algorithm.lr" = […], "run.dim" = […]: what `twolayer sweep` varies
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twolayer.errors import InputError, closest

__all__ = ["Task", "read_task"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class ProblemTable(_Table):
    """[problem]."""

    target: str | dict[str, Any]
    activation: str
    width: int = 1
    noise: float = 0.0
    gram: list[list[float]] | None = None
    second_layer: str | list[float] = "ones"
    directions: int | None = None


class AlgorithmTable(_Table):
    """[algorithm]."""

    lr: str | float
    batch: str | int | float = 1
    loss: str = "squared"
    geometry: str = "free"
    momentum: float = 0.0
    weight_decay: float = 0.0
    dataset: str | int | float | None = None
    train_second_layer: bool = False


class StartTable(_Table):
    """[start]."""

    random: str = "sphere"
    seed: int = 0
    Q: list[list[float]] | None = None
    M: list[list[float]] | None = None
    a: list[float] | None = None


class UntilTable(_Table):
    """until = {…} of [run]."""

    quantity: str
    value: float
    relative: bool = False


class RunTable(_Table):
    """[run]."""

    dim: int | None = None
    time: float | list[float] | None = None
    steps: int | list[int] | None = None
    save: int | list[float] = 200
    seeds: int = 16
    seed: int = 0
    methods: list[str] | None = None
    until: UntilTable | None = None


class TaskTable(_Table):
    """A whole file."""

    problem: ProblemTable
    algorithm: AlgorithmTable
    start: StartTable = Field(default_factory=StartTable)
    run: RunTable = Field(default_factory=RunTable)
    method: dict[str, dict[str, Any]] = Field(default_factory=dict)
    sweep: dict[str, Any] = Field(default_factory=dict)


def _one_sentence(error: ValidationError, source: str, model: type[BaseModel]) -> InputError:
    """The first problem that pydantic found, as one sentence."""
    first = error.errors()[0]
    # unions add the name of the branch to the path: keep the keys only
    place = [
        str(p)
        for p in first["loc"]
        if isinstance(p, str) and not p.startswith(("list[", "dict[", "str", "int", "float"))
    ]
    key = ".".join(place) or "the file"
    if first["type"] == "extra_forbidden":
        table: Any = model
        for part in place[:-1]:
            annotation = table.model_fields[part].annotation
            table = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else UntilTable
        known = list(table.model_fields)
        where = f"[{'.'.join(place[:-1])}]" if place[:-1] else "the file"
        return InputError(
            f"{source}: unknown key `{key}`{closest(place[-1], known)}; {where} accepts {', '.join(known)}."
        )
    if first["type"] == "missing":
        return InputError(f"{source}: the key `{key}` is missing.")
    return InputError(f"{source}: `{key}` is not acceptable: {first['msg'].lower()}, but got {first['input']!r}.")


def _assign(document: dict[str, Any], assignment: str) -> None:
    """Apply one ``key=value`` of --set; the value is TOML, or else text."""
    key, equals, text = assignment.partition("=")
    parts = [p.strip() for p in key.strip().split(".")]
    if not equals or not all(parts):
        raise InputError(f"--set takes key=value such as algorithm.lr=0.1/d, but got {assignment!r}.")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table = document
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {assignment!r}: `{part}` is a value, not a table.")
    table[parts[-1]] = value


@dataclass(frozen=True)
class Task:
    """A checked task file, with the objects it describes made on demand."""

    table: TaskTable
    name: str

    def problem(self) -> Any:
        """The Problem."""
        from twolayer.problem import Problem

        return Problem(**self.table.problem.model_dump())

    def algorithm(self) -> Any:
        """The SGD."""
        from twolayer.algorithm import SGD

        return SGD(**self.table.algorithm.model_dump())

    def start(self, problem: Any) -> Any:
        """The Overlaps: given ones, or a random initialisation at run.dim."""
        from twolayer.overlaps import Overlaps

        start, dim = self.table.start, self.table.run.dim
        if start.Q is not None or start.M is not None:
            if start.Q is None or start.M is None:
                raise InputError(f"{self.name}: [start] needs both Q and M, or neither.")
            return Overlaps(start.Q, start.M, problem.P, start.a, dim)
        if dim is None:
            raise InputError(f"{self.name}: `run.dim` is missing; a random start needs a dimension.")
        return Overlaps.random(problem, dim, start.seed, law=start.random)

    def methods(self, names: list[str] | None, dim: int | None) -> list[Any] | None:
        """The methods named (or those of the file), at a dimension; None for all applicable ones."""
        from twolayer.solving import method_by_name

        words = names or self.table.run.methods
        dim = dim or self.table.run.dim
        for word in self.table.method:
            method_by_name(word, dim, {})
        return None if words is None else [method_by_name(w, dim, self.table.method.get(w.lower(), {})) for w in words]

    def until(self) -> Any:
        """The Until, or None."""
        from twolayer.methods.base import Until

        until = self.table.run.until
        return None if until is None else Until(**until.model_dump())

    def swept(self) -> dict[str, Any]:
        """The axes of [sweep]; keys with dots may be written with or without quotation marks."""

        def flat(table: dict[str, Any], name: str = "") -> dict[str, Any]:
            found: dict[str, Any] = {}
            for key, value in table.items():
                whole = f"{name}.{key}" if name else key
                found |= flat(value, whole) if isinstance(value, dict) else {whole: value}
            return found

        if not self.table.sweep:
            raise InputError(f'{self.name}: a table [sweep] is missing, such as "algorithm.lr" = ["0.05/d", "0.1/d"].')
        return flat(self.table.sweep)

    def sweep_arguments(self, names: list[str] | None, dim: int | None, seed: int | None) -> dict[str, Any]:
        """Arguments of sweep."""
        from twolayer.overlaps import Overlaps
        from twolayer.solving import applicable

        over, run, problem, algorithm = self.swept(), self.table.run, self.problem(), self.algorithm()
        dims = [v for key in ("run.dim", "method.dim") for v in over.get(key, ()) if isinstance(v, int)]
        dim = dim or run.dim or (dims[0] if dims else None)
        methods = self.methods(names or run.methods or applicable(problem, algorithm)[:1], dim)
        assert methods is not None
        start: Any = self.table.start.random
        if self.table.start.Q is not None or self.table.start.M is not None:
            start = self.start(problem)
            start = Overlaps(start.Q, start.M, start.P, start.a)
        return {
            "problem": problem,
            "algorithm": algorithm,
            "method": methods[0],
            "over": over,
            "start": start,
            "dim": None if methods[0].dimension is not None else dim,
            "time": None if "run.time" in over or "run.steps" in over else run.time,
            "steps": None if "run.time" in over or "run.steps" in over else run.steps,
            "save": run.save,
            "until": self.until(),
            "seeds": run.seeds,
            "seed": run.seed if seed is None else seed,
        }

    def run_arguments(self, seed: int | None) -> dict[str, Any]:
        """Arguments of solve and compare."""
        run = self.table.run
        ends = {"time": run.time, "steps": run.steps}
        if run.time is None and run.steps is None:
            raise InputError(f"{self.name}: [run] needs `time` or `steps`.")
        return {
            **{k: v for k, v in ends.items() if v is not None},
            "save": run.save,
            "seeds": run.seeds,
            "seed": run.seed if seed is None else seed,
        }


def read_task(path: str | Path, assignments: list[str] | None = None) -> Task:
    """Read and check a task file, with ``--set`` assignments applied.

    Parameters
    ----------
    path : str or path
        A TOML file.
    assignments : list of str, optional
        ``key=value`` each, such as ``algorithm.lr=0.1/d``.
    """
    source = Path(path)
    try:
        document = tomllib.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"The task file must exist, but there is no {str(path)!r}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The task file must be readable text, but {str(path)!r} is not: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The task file must be valid TOML, but {str(path)!r} is not: {error}.") from None
    for assignment in assignments or []:
        _assign(document, assignment)
    try:
        return Task(TaskTable.model_validate(document), source.name)
    except ValidationError as error:
        raise _one_sentence(error, source.name, TaskTable) from None
