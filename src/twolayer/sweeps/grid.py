"""The grid: which values are swept, what each cell is, and the description that names a
sweep.

    over = {"algorithm.lr": ["0.05/d", "0.1/d"], "run.dim": [100, 200]}
        → 2 × 2 cells
    identity of the sweep = hash of everything that is not swept;
        of a cell = that, and its swept values

Registered functions enter by their fingerprint, beside their name (fingerprint.py). The
number of seeds and the values on the axes are no part of a sweep's identity: both may
grow later. By default each cell draws from its own seed, a hash of (seed, swept
values), so that cells are independent and their standard errors may be fitted together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from twolayer.numerics import random
from twolayer.numerics.arguments import ENDS, End, Json, Options, Save
from twolayer.numerics.errors import (
    InputError,
    choice,
    closest,
    enumerated,
    positive_integer,
    reject,
    require,
    short,
)
from twolayer.running.dataset import describe_problem
from twolayer.sweeps.fingerprint import fingerprint_of
from twolayer.task.algorithm import SGD
from twolayer.task.averages import Averages
from twolayer.task.method import Method, Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling

__all__ = ["Cell", "Grid", "Run", "digest", "text_of", "unmarked"]

FORMAT = "twolayer-sweep/2"
LAWS = ("sphere", "hemisphere", "gaussian")
STREAMS = ("independent", "common")
FUNCTIONS = ("problem.activation", "problem.target", "algorithm.loss", "algorithm.rule")
RUN_KEYS = (
    "dim",
    *ENDS,
    "save",
    "seed",
    "until.quantity",
    "until.value",
    "until.relative",
)


@dataclass(frozen=True, eq=False)
class Run:
    """How each cell is run: its end, its save points, its start and its random
    streams.
    """

    time: End = None
    steps: End = None
    save: Save = 200
    until: Until | None = None
    dim: int | None = None
    seed: int = 0
    start: Overlaps | str = "sphere"
    streams: str = "independent"
    alpha: End = None
    passes: End = None

    @property
    def ends(self) -> Options:
        """The end that was given, by the name of its clock."""
        given = {name: getattr(self, name) for name in ENDS}
        return {name: end for name, end in given.items() if end is not None}

    def describe(self) -> Json:
        """As plain values; a given start by a hash of its numbers."""
        start = self.start
        if isinstance(start, Overlaps):
            arrays = [start.Q, start.M, start.P] + (
                [] if start.a is None else [np.asarray(start.a)]
            )
            start = digest(
                [[list(x.shape), x.ravel().tolist()] for x in arrays] + [start.dim]
            )
        plain = {
            name: _plain(getattr(self, name), name)
            for name in (*ENDS, "save", "dim", "streams")
        }
        until = (
            {}
            if self.until is None
            else {f"until.{k}": v for k, v in dataclasses.asdict(self.until).items()}
        )
        return {**plain, **until, "seed": int(self.seed), "start": start}


def _plain(value: object, name: str = "over") -> Any:
    """A swept value as JSON knows it: laws as text, numbers as floats, arrays as
    lists.
    """
    if isinstance(value, Scaling):
        return str(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(x, name) for x in value]
    if isinstance(value, dict):
        return {str(k): _plain(v, name) for k, v in value.items()}
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | float | np.integer | np.floating):
        try:
            return float(value)
        except OverflowError:
            reject(name, value, "numbers that fit into a double")
    if value is None or isinstance(value, str):
        return value
    reject(name, value, "numbers, texts, scaling laws, lists or tables")


def text_of(value: object) -> str:
    """The canonical text of a value: equal values have equal texts.

    Examples
    --------
    >>> text_of(100) == text_of(100.0), text_of(Scaling(0.1, -1))
    (True, '"0.1/d"')
    """
    return json.dumps(_plain(value), sort_keys=True)


def _name(key: str, value: object) -> Any:
    """A swept value as a store knows it: plain, and beside a registered function's name
    its fingerprint.
    """
    mark = fingerprint_of(key, value)
    return _plain(value) if mark is None else [_plain(value), mark]


def unmarked(key: str, name: object) -> Any:
    """The value without the fingerprint."""
    return name[0] if key in FUNCTIONS and isinstance(name, list) else name


def digest(value: object) -> str:
    """32 hexadecimal digits that name a plain value."""
    try:
        text = json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        reject(
            "over",
            value,
            "numbers, words and lists, and so are the arguments of the run",
        )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _kind(value: object) -> str:
    kinds = {
        "booleans": bool | np.bool_,
        "numbers": int | float | np.integer | np.floating,
        "texts": str,
        "laws": Scaling,
        "lists": list | tuple | np.ndarray,
        "tables": dict,
    }
    return next(
        (name for name, types in kinds.items() if isinstance(value, types)),
        type(value).__name__,
    )


def _axis(key: str, values: object) -> list[Any]:
    """The values of one axis, checked: some, of one type, no two equal."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        reject(f"over[{key!r}]", values, "a list of values")
    try:
        listed = list(values)
    except TypeError:  # an array without axes
        reject(f"over[{key!r}]", values, "a list of values")
    require(len(listed) > 0, f"over[{key!r}]", listed, "a list of at least one value")
    kinds = {_kind(v) for v in listed}
    known = kinds <= {"booleans", "numbers", "texts", "laws", "lists", "tables"}
    require(
        known,
        f"over[{key!r}]",
        listed,
        "a list of numbers, texts, scaling laws, lists or tables",
    )
    if len(kinds) > 1:
        raise InputError(
            f"The axis `{key}` must hold values of one type, but mixes"
            f" {' and '.join(sorted(kinds))}."
        )
    texts = [text_of(v) for v in listed]
    for i, text in enumerate(texts):
        if text in texts[:i]:
            raise InputError(
                f"The axis `{key}` must hold different values, but {short(text)} occurs"
                " twice."
            )
    return listed


@dataclass(frozen=True, eq=False)
class Cell:
    """One point of the grid with everything needed to run it."""

    index: tuple[int, ...]
    values: Options
    problem: Problem
    algorithm: SGD
    method: Method
    run: Run
    key: str
    seed: int

    @property
    def dim(self) -> int | None:
        """The dimension at which a random start is drawn."""
        return self.run.dim or self.method.dimension

    def __str__(self) -> str:
        return ", ".join(f"{k} = {v}" for k, v in self.values.items())


class Grid:
    """A base description and the axes along which it changes.

    Examples
    --------
    >>> from twolayer.methods.chain import Chain
    >>> grid = Grid(
    ...     Problem("He2(z1)", "He2"),
    ...     SGD(lr="0.1/d"),
    ...     Chain(100),
    ...     Run(time=1.0),
    ...     {"algorithm.lr": ["0.05/d", "0.1/d"], "method.dim": [100, 200, 400]},
    ...     "final",
    ... )
    >>> grid.shape, str(grid.cell((1, 2)))
    ((2, 3), 'algorithm.lr = 0.1/d, method.dim = 400')
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: SGD,
        method: Method,
        run: Run,
        over: Mapping[str, object],
        reduction: str,
    ) -> None:
        if not isinstance(over, Mapping) or not over:
            reject(
                "over",
                over,
                "a table of swept keys and their values, such as {'algorithm.lr':"
                " ['0.1/d']}",
            )
        self.problem, self.algorithm, self.method, self.run = (
            problem,
            algorithm,
            method,
            run,
        )
        known = self.keys()
        for key in over:
            if key not in known:
                hint = closest(short(key), known) or f"; keys are {enumerated(known)}"
                raise InputError(f"Unknown swept key {short(key)}{hint}.")
        if "method.dim" in over and "run.dim" in over:
            raise InputError(
                "Sweep either `method.dim` or `run.dim`, which also sets the dimension"
                " of random starts."
            )
        if len({f"run.{name}" for name in ENDS} & set(over)) > 1:
            raise InputError(
                "Sweep one of `run.time`, `run.steps`, `run.alpha` and `run.passes`."
            )
        choice("streams", run.streams, STREAMS)
        if not isinstance(run.start, Overlaps):
            choice("start", run.start, LAWS)
        self.axes = {key: _axis(key, values) for key, values in over.items()}
        self.shape = tuple(len(values) for values in self.axes.values())
        self.description = self._describe(reduction)
        self.hash = digest(self.description)
        self._parts: dict[str, Problem | SGD | Method | Run] = {}
        for (
            index
        ) in self:  # every cell is made once now: bad values are told before any work
            self.cell(index)
        self.names = {
            key: [_name(key, value) for value in axis]
            for key, axis in self.axes.items()
        }

    def keys(self) -> list[str]:
        """All keys that can be swept."""
        parts: Options = {
            "problem": self.problem,
            "algorithm": self.algorithm,
            "method": self.method,
        }
        keys = [
            f"{name}.{f.name}"
            for name, part in parts.items()
            for f in dataclasses.fields(part)
        ]
        if "method.averages" in keys:
            keys.remove("method.averages")
            keys += [f"method.averages.{f.name}" for f in dataclasses.fields(Averages)]
        keys += [
            f"problem.inputs.{name}"
            for name in self.problem.inputs.describe()
            if name != "kind"
        ]
        return keys + [f"run.{name}" for name in RUN_KEYS]

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.shape))

    def __len__(self) -> int:
        return int(np.prod(self.shape))

    def _describe(self, reduction: str) -> Json:
        swept = set(self.axes)
        if "problem.target" in swept:
            swept |= {"problem.gram", "problem.directions"}
        if swept & {"run.dim", "method.dim"}:
            swept |= {"run.dim", "method.dim"}
        ends = {f"run.{name}" for name in ENDS}
        if swept & ends:
            swept |= ends
        described = describe_problem(self.problem)
        if "inputs" in described:
            own = {
                k: v
                for k, v in described["inputs"].items()
                if f"problem.inputs.{k}" not in swept
            }
            described["inputs"] = own
        whole = {
            "problem": described,
            "algorithm": self.algorithm.describe(),
            "method": self.method.describe(),
            "run": self.run.describe(),
        }
        fixed = {
            part: {k: v for k, v in table.items() if f"{part}.{k}" not in swept}
            for part, table in whole.items()
        }
        fixed_functions = [key for key in FUNCTIONS if key not in swept]
        marks = {
            key: fingerprint_of(key, attrgetter(key)(self)) for key in fixed_functions
        }
        functions = {key: mark for key, mark in marks.items() if mark is not None}
        if functions:
            fixed["functions"] = functions
        return {
            "format": FORMAT,
            **fixed,
            "swept": sorted(self.axes),
            "reduce": reduction,
            "random": random.NAME,
        }

    def cell(self, index: tuple[int, ...]) -> Cell:
        """The cell at an index; parts that cells share are made once."""
        values = {
            key: axis[i]
            for (key, axis), i in zip(self.axes.items(), index, strict=True)
        }
        made: Options = {}
        for part in ("problem", "algorithm", "method", "run"):
            own = {
                k.removeprefix(f"{part}."): v
                for k, v in values.items()
                if k.startswith(f"{part}.")
            }
            if part == "method" and "run.dim" in values and hasattr(self.method, "dim"):
                own["dim"] = values["run.dim"]
            name = part + text_of(own)
            if name not in self._parts:
                try:
                    self._parts[name] = self._part(part, dict(own))
                except InputError as error:
                    where = ", ".join(f"{part}.{k} = {v!r}" for k, v in own.items())
                    raise InputError(f"Swept value {where}: {error}") from None
            made[part] = self._parts[name]
        canonical = {k: _plain(v) for k, v in values.items()}
        seed = made["run"].seed
        if self.run.streams == "independent":
            seed = int(digest([seed, canonical])[:16], 16)
        named = {k: _name(k, v) for k, v in values.items()}
        return Cell(index, values, **made, key=digest([self.hash, named]), seed=seed)

    def _part(self, part: str, own: Options) -> Any:
        if part == "run":
            if not own:
                return self.run
            until = {
                k.removeprefix("until."): own.pop(k)
                for k in list(own)
                if k.startswith("until.")
            }
            if until:
                if self.run.until is None and set(until) < {"quantity", "value"}:
                    raise InputError("the sweep needs `until` to change it.")
                base = (
                    {} if self.run.until is None else dataclasses.asdict(self.run.until)
                )
                own["until"] = Until(**{**base, **until})
            if "dim" in own:
                own["dim"] = positive_integer("dim", own["dim"])
            if set(ENDS) & set(own):
                own = {**dict.fromkeys(ENDS), **own}
            return dataclasses.replace(self.run, **own)
        base = getattr(self, part)
        if part == "method":
            wanted = {
                k.removeprefix("averages."): own.pop(k)
                for k in list(own)
                if k.startswith("averages.")
            }
            if wanted:
                own["averages"] = dataclasses.replace(base.averages, **wanted)
            return dataclasses.replace(base, **own) if own else base
        inner = {
            k.removeprefix("inputs."): own.pop(k)
            for k in list(own)
            if k.startswith("inputs.")
        }
        if inner:
            own["inputs"] = base.inputs.replace(**inner)
        return base.replace(**own) if own else base

    def labels(self) -> dict[str, list[Any]]:
        """The axes as coordinates: numbers and booleans as they are, everything else as
        text.
        """

        def label(value: object) -> object:
            if isinstance(value, str | Scaling):
                return str(value)
            return value if _kind(value) in ("numbers", "booleans") else text_of(value)

        return {key: [label(v) for v in axis] for key, axis in self.axes.items()}
