"""Task files: one TOML description for every lens.

    [problem]     target, activation, width, noise, gram, second_layer, directions,
                  normalisation, noise_law, flips,
                  inputs = {kind = "blocks" | "power_law" | "isotropic", …}
                  with the arguments of `Inputs`
    [algorithm]   lr, batch, loss, rule, geometry, momentum, nesterov, weight_decay,
                  dataset, sampling, repeat, train_first_layer, train_second_layer,
                  second_lr, average
    [start]       random = "sphere" | "hemisphere" | "gaussian" with seed, or Q, M, a;
                  or [start.blocks] with Q, M, P
    [run]         dim, time | steps | alpha | passes, save, seeds, seed, methods, until
    [[stages]]    steps | time | alpha | passes, save, until, algorithm.… and problem.…:
                  what a stage changes; instead of an end of [run]
    [method.ode]  knobs of one method
    [sweep]       "algorithm.lr" = […], "run.dim" = […]: what `twolayer sweep` varies

A key that would have no effect is an error, as is a value of another type: nothing is
guessed.
"""

from __future__ import annotations

import contextlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from twolayer.numerics.arguments import ENDS, Json, Options, named_ends
from twolayer.numerics.errors import InputError, closest, short

if TYPE_CHECKING:
    from twolayer.running.stages import Stage
    from twolayer.task.algorithm import SGD
    from twolayer.task.method import Method, Until
    from twolayer.task.overlaps import Overlaps
    from twolayer.task.problem import Problem

__all__ = ["TaskFile", "assign", "read_task", "task_from"]


Integer = Annotated[
    int,
    BeforeValidator(lambda x: int(x) if isinstance(x, float) and x.is_integer() else x),
]
"""An integer, which may be written as 1e4."""

WORDS = {
    "string_type": "text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
"""Errors of pydantic in the words of the file."""


class Table(BaseModel):
    """A table of a file: every key is known and of its own type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ProblemTable(Table):
    """[problem]."""

    target: str | Json
    activation: str
    width: Integer = 1
    noise: float = 0.0
    gram: list[list[float]] | None = None
    second_layer: str | list[float] = "ones"
    directions: Integer | None = None
    normalisation: str = "mean"
    noise_law: str = "gaussian"
    flips: float = 0.0
    inputs: Json | None = None


class AlgorithmTable(Table):
    """[algorithm]."""

    lr: str | float
    batch: str | int | float = 1
    loss: str = "squared"
    geometry: str = "free"
    momentum: float = 0.0
    weight_decay: float = 0.0
    dataset: str | int | float | None = None
    sampling: str = "sequence"
    repeat: Integer = 1
    train_first_layer: bool = True
    train_second_layer: bool = False
    second_lr: str | float | None = None
    average: str | float | None = None
    nesterov: bool = False
    rule: str | None = None


class BlocksTable(Table):
    """[start.blocks]: overlaps in the blocks of the inputs."""

    Q: list[list[list[float]]]
    M: list[list[list[float]]]
    P: list[list[list[float]]]


class StartTable(Table):
    """[start]."""

    random: str = "sphere"
    seed: Integer = 0
    Q: list[list[float]] | None = None
    M: list[list[float]] | None = None
    a: list[float] | None = None
    blocks: BlocksTable | None = None


class UntilTable(Table):
    """until = {…} of [run]."""

    quantity: str
    value: float
    relative: bool = False


class RunTable(Table):
    """[run]."""

    dim: Integer | None = None
    time: float | list[float] | None = None
    steps: Integer | list[Integer] | None = None
    alpha: float | list[float] | None = None
    passes: float | list[float] | None = None
    save: Integer | list[float] | Literal["log"] = 200
    seeds: Integer = 32
    seed: Integer = 0
    methods: list[str] | None = None
    until: UntilTable | None = None


class StageTable(Table):
    """[[stages]]: how long a stage lasts, and what it changes of [algorithm] and
    [problem].
    """

    time: float | list[float] | None = None
    steps: Integer | list[Integer] | None = None
    alpha: float | list[float] | None = None
    passes: float | list[float] | None = None
    save: Integer | list[float] | Literal["log"] = 100
    until: UntilTable | None = None
    algorithm: Json = Field(default_factory=dict)
    problem: Json = Field(default_factory=dict)


class TaskTable(Table):
    """A whole file."""

    problem: ProblemTable
    algorithm: AlgorithmTable
    start: StartTable = Field(default_factory=StartTable)
    run: RunTable = Field(default_factory=RunTable)
    stages: list[StageTable] = Field(default_factory=list)
    method: dict[str, Json] = Field(default_factory=dict)
    sweep: Json = Field(default_factory=dict)


TABLES: dict[str, type[Table]] = {
    "until": UntilTable,
    "stages": StageTable,
    "blocks": BlocksTable,
}
"""Tables that are optional or stand in lists."""


def _one_sentence(
    error: ValidationError, source: str, model: type[Table], inside: str = ""
) -> InputError:
    """The first problem that pydantic found, as one sentence; ``inside`` is where the
    model stands in the file.
    """
    errors = error.errors()
    first = errors[0]
    if first["type"] == "extra_forbidden":
        *tables, name = first["loc"]
        for part in (part for part in tables if isinstance(part, str)):
            annotation = model.model_fields[part].annotation
            plain = isinstance(annotation, type) and issubclass(annotation, Table)
            model = annotation if plain else TABLES[part]  # type: ignore[assignment]
        known, place = list(model.model_fields), inside + _key(tuple(tables))
        where = f"[{place}]" if place else "the file"
        key = short(f"{place}.{name}" if place else str(name))
        return InputError(
            f"{source}: unknown key {key}{closest(str(name), known)}; {where} accepts"
            f" {', '.join(known)}."
        )
    key, before = _key(first["loc"]), f"{inside}." if inside else ""
    if first["type"] == "missing":
        return InputError(
            f"{source}: the key `{before}{key}` is missing; 'twolayer help tasks' shows"
            " a task file."
        )
    # a key of several types fails once for each of them; if one fails inside a list,
    # that is the one that was meant
    within = [e for e in errors if _key(e["loc"]).startswith(f"{key}[")]
    same = within[:1] or [e for e in errors if _key(e["loc"]) == key]
    accepted = " or ".join(
        dict.fromkeys(WORDS.get(e["type"], e["msg"].lower()) for e in same)
    )
    where = before + _key(same[0]["loc"])
    return InputError(
        f"{source}: `{where}` must be {accepted}, but got {short(same[0]['input'])}."
    )


def _key(location: tuple[int | str, ...]) -> str:
    """The key at a place in the file, such as problem.gram[0]; unions add the name of a
    type, left out here.
    """
    names = [
        p
        for p in location
        if isinstance(p, int) or not (p in ("str", "int", "float") or "[" in p)
    ]
    return "".join(
        f"[{p}]" if isinstance(p, int) else f".{p}" for p in names
    ).removeprefix(".")


def _parse(text: str) -> Json:
    """TOML as a dictionary; too long numbers and too deep lists are errors of the text
    as well.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def assign(document: Json, assignment: str) -> None:
    """Apply one ``key=value`` of --set; the value is TOML, or else text."""
    key, equals, text = assignment.partition("=")
    parts = [p.strip() for p in key.strip().split(".")]
    if not equals or not all(parts):
        raise InputError(
            "--set takes key=value such as algorithm.lr=0.1/d, but got"
            f" {short(assignment)}."
        )
    value: Any = text.strip()
    with contextlib.suppress(ValueError):
        parsed = _parse(f"value = {value}")
        if len(parsed) == 1:  # a line break in the text does not smuggle in another key
            value = parsed["value"]
    table = document
    for part in parts[:-1]:
        found = table.setdefault(part, {})
        if isinstance(found, list):
            raise InputError(
                f"--set {short(assignment)}: `{part}` is a list; give it whole, or"
                " change the file."
            )
        if not isinstance(found, dict):
            raise InputError(
                f"--set {short(assignment)}: `{part}` is a value, not a table."
            )
        table = found
    table[parts[-1]] = value


@dataclass(frozen=True)
class TaskFile:
    """A checked task file, with the objects it describes made on demand."""

    table: TaskTable
    name: str

    def problem(self) -> Problem:
        """The Problem."""
        from twolayer.task.problem import Problem

        return Problem(**self.table.problem.model_dump())

    def algorithm(self) -> SGD:
        """The SGD."""
        from twolayer.task.algorithm import SGD

        return SGD(**self.table.algorithm.model_dump())

    def stages(self) -> list[Stage]:
        """The stages, in order; none where the file has one algorithm for all of the
        run.
        """
        from twolayer.running.stages import Stage
        from twolayer.task.algorithm import SGD
        from twolayer.task.method import Until
        from twolayer.task.problem import Problem

        found = []
        for number, stage in enumerate(self.table.stages):
            if sum(getattr(stage, name) is not None for name in ENDS) != 1:
                raise InputError(
                    f"{self.name}: stages[{number}] needs one of {named_ends()}."
                )
            algorithm = self._changed(
                AlgorithmTable,
                self.table.algorithm,
                stage.algorithm,
                f"stages[{number}].algorithm",
            )
            problem = None
            if stage.problem:
                whole = self._changed(
                    ProblemTable,
                    self.table.problem,
                    stage.problem,
                    f"stages[{number}].problem",
                )
                problem = Problem(**whole.model_dump())
            until = None if stage.until is None else Until(**stage.until.model_dump())
            found.append(
                Stage(
                    SGD(**algorithm.model_dump()),
                    stage.steps,
                    stage.time,
                    until,
                    stage.save,
                    problem,
                    stage.alpha,
                    stage.passes,
                )
            )
        return found

    def _changed(
        self, model: type[Table], table: Table, changes: Json, place: str
    ) -> Table:
        """A table with the changes of a stage."""
        try:
            return model.model_validate(
                {**table.model_dump(exclude_unset=True), **changes}
            )
        except ValidationError as error:
            raise _one_sentence(error, self.name, model, place) from None

    def start(self, problem: Problem) -> Overlaps:
        """The Overlaps: given ones, or a random initialisation at run.dim."""
        from twolayer.task.overlaps import Overlaps

        start, dim = self.table.start, self.table.run.dim
        if start.blocks is not None:
            for name in ("Q", "M", "random", "seed"):
                if name in start.model_fields_set:
                    raise InputError(
                        f"{self.name}: [start] takes either `blocks` or `{name}`, but"
                        " has both."
                    )
            return Overlaps.in_blocks(**start.blocks.model_dump(), a=start.a, dim=dim)
        if start.Q is None and start.M is None:
            if start.a is not None:
                raise InputError(
                    f"{self.name}: [start] takes `a` with Q and M only; a random start"
                    " has `problem.second_layer`."
                )
            if dim is None:
                raise InputError(
                    f"{self.name}: `run.dim` is missing; a random start needs a"
                    " dimension."
                )
            return Overlaps.random(problem, dim, start.seed, law=start.random)
        if start.Q is None or start.M is None:
            raise InputError(f"{self.name}: [start] needs both Q and M, or neither.")
        for name in ("random", "seed"):
            if name in start.model_fields_set:
                raise InputError(
                    f"{self.name}: [start] takes either Q and M or a random start, but"
                    f" has `{name}` too."
                )
        if len(start.M) != problem.p or {len(row) for row in start.M} != {problem.k}:
            raise InputError(
                f"{self.name}: `start.M` must have a row for each of the {problem.p}"
                f" neurons and a column for each of the {problem.k} directions, but got"
                f" {short(start.M)}."
            )
        return Overlaps(start.Q, start.M, problem.P, start.a, dim)

    def methods(
        self, names: list[str] | tuple[str, ...] | None = None, dim: int | None = None
    ) -> list[Method]:
        """The methods named (or else those of the file, which may be none), with the
        knobs of the file.
        """
        from twolayer.running.solve import method_by_name

        run = self.table.run
        if run.methods == []:
            raise InputError(
                f"{self.name}: `run.methods` must name at least one method, but is"
                " empty."
            )
        knobs = {word.lower(): table for word, table in self.table.method.items()}
        for word in [
            *knobs,
            *(run.methods or []),
        ]:  # what is not used now is checked all the same
            method_by_name(
                word, 1 if run.dim is None else run.dim, knobs.get(word.lower(), {})
            )
        words = names if names is not None else run.methods or []
        dim = run.dim if dim is None else dim
        return [method_by_name(w, dim, knobs.get(w.lower(), {})) for w in words]

    def until(self) -> Until | None:
        """The Until, or None."""
        from twolayer.task.method import Until

        until = self.table.run.until
        return None if until is None else Until(**until.model_dump())

    def swept(self) -> Json:
        """The axes of [sweep]; keys with dots may be written with or without quotation
        marks.
        """

        def flat(table: Json, name: str = "") -> Json:
            found: Json = {}
            for key, value in table.items():
                whole = f"{name}.{key}" if name else key
                found |= (
                    flat(value, whole) if isinstance(value, dict) else {whole: value}
                )
            return found

        if not self.table.sweep:
            raise InputError(
                f'{self.name}: a table [sweep] is missing, such as "algorithm.lr" ='
                ' ["0.05/d", "0.1/d"].'
            )
        return flat(self.table.sweep)

    def sweep_arguments(self, names: list[str] | None = None) -> Options:
        """Arguments of sweep."""
        from twolayer.running.support import support
        from twolayer.task.overlaps import Overlaps

        if self.table.stages:
            raise InputError(
                f"{self.name}: a sweep follows one algorithm, but the file has"
                " [[stages]]."
            )
        over, run, problem, algorithm = (
            self.swept(),
            self.table.run,
            self.problem(),
            self.algorithm(),
        )
        swept = any(f"run.{name}" in over for name in ENDS)
        ends = {} if swept else {name: getattr(run, name) for name in ENDS}
        dims = [
            v
            for key in ("run.dim", "method.dim")
            for v in over.get(key, ())
            if isinstance(v, int)
        ]
        dim = run.dim or (dims[0] if dims else None)
        methods = self.methods(names, dim) or self.methods(
            support(problem, algorithm).methods[:1], dim
        )
        start: str | Overlaps = self.table.start.random
        given = self.table.start
        if given.Q is not None or given.M is not None or given.blocks is not None:
            start = self.start(problem)
            start = Overlaps(start.Q, start.M, start.P, start.a)
        return {
            "problem": problem,
            "algorithm": algorithm,
            "method": methods[0],
            "over": over,
            "start": start,
            "dim": None if methods[0].dimension is not None else dim,
            **ends,
            "save": run.save,
            "until": self.until(),
            "seeds": run.seeds,
            "seed": run.seed,
        }

    def run_arguments(self) -> Options:
        """Arguments of solve, or of solve_stages, and of compare when there is no
        `until`.
        """
        run = self.table.run
        if self.table.stages:
            for name in (*ENDS, "until", "save"):
                if name in run.model_fields_set:
                    raise InputError(
                        f"{self.name}: [run] takes no `{name}` with [[stages]], which"
                        " have their own."
                    )
            return {"seeds": run.seeds, "seed": run.seed}
        if all(getattr(run, name) is None for name in ENDS):
            raise InputError(f"{self.name}: [run] needs one of {named_ends()}.")
        optional = {
            **{name: getattr(run, name) for name in ENDS},
            "until": self.until(),
        }
        given = {name: value for name, value in optional.items() if value is not None}
        return {**given, "save": run.save, "seeds": run.seeds, "seed": run.seed}


def read_task(
    path: str | Path, assignments: list[str] | None = None, passes: str | None = None
) -> TaskFile:
    """Read and check a task file, with ``--set`` assignments such as algorithm.lr=0.1/d
    applied; ``passes`` take the place of the end that the file has.
    """
    source = Path(path)
    try:
        document = _parse(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"The task file must exist, but there is no {short(str(path))}."
        ) from None
    except UnicodeDecodeError:
        raise InputError(
            f"The task file must be UTF-8 text, but {short(str(path))} is not."
        ) from None
    except OSError as error:
        raise InputError(
            f"The task file must be readable, but {short(str(path))} is not:"
            f" {error.strerror}."
        ) from None
    except ValueError as error:
        raise InputError(
            f"The task file must be valid TOML, but {short(str(path))} is not: {error}."
        ) from None
    for assignment in assignments or []:
        assign(document, assignment)
    if passes is not None:
        for name in ENDS:
            document.get("run", {}).pop(name, None)
        assign(document, f"run.passes={passes}")
    return task_from(document, source.name)


def task_from(document: Json, name: str) -> TaskFile:
    """Check the tables of a task, read from a file of that name or made elsewhere.

    Examples
    --------
    >>> task_from(
    ...     {
    ...         "problem": {"target": "z1", "activation": "relu"},
    ...         "algorithm": {"lr": 0.1},
    ...     },
    ...     "page",
    ... ).problem().k
    1
    """
    try:
        return TaskFile(TaskTable.model_validate(document), name)
    except ValidationError as error:
        raise _one_sentence(error, name, TaskTable) from None
