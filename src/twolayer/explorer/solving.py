"""Runs for the page: curves of a theory, seeds of a simulation as they arrive,
families, files.

    theory     one deterministic method                       →  time, risk, M, Q, a
    run        seeds in blocks of a few, from one start        →
               mean and central 80 % so far, verdict so far
    family     a theory for every value of one key
    netcdf     the dataset itself

Run r of a seed has its own random numbers, so that blocks together are the runs of one
`solve`. The verdict is that of `compare`, with its pilots run once and the seeds that
are there.
"""

from __future__ import annotations

import copy
import functools
import json
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from twolayer.explorer.limits import LIMITS, check_cost
from twolayer.explorer.speaking import Voice
from twolayer.files.taskfile import TaskFile, task_from
from twolayer.numerics.arguments import ENDS, Json, Options
from twolayer.numerics.errors import InputError
from twolayer.numerics.precision import float64
from twolayer.task.problem import Problem

if TYPE_CHECKING:
    import xarray as xr

    from twolayer.task.method import Method, Task

__all__ = ["family", "netcdf", "run", "theory"]

BLOCK = 4  # seeds that run side by side, and arrive together
LOW, HIGH = 0.1, 0.9
FAMILY_KEYS = ("problem", "algorithm", "run", "start")

Found = TypeVar("Found")


def _warned(work: Callable[[], Found]) -> tuple[Found, list[str]]:
    """What comes out, and what the package had to say about it."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = work()
    return result, list(
        dict.fromkeys(
            str(w.message)
            for w in heard
            if w.category.__module__.startswith("twolayer")
        )
    )


@functools.lru_cache(maxsize=64)
def _problem(text: str) -> Problem:
    """The problem of a table; a slider asks for the same one again and again, and its
    functions are checked once.
    """
    return Problem(**json.loads(text))


def _made(task: TaskFile, word: str, **changes: object) -> tuple[Method, Task]:
    """The method and its checked run, within the bounds of the page."""
    from twolayer.running.solve import make_task

    problem, algorithm = (
        _problem(json.dumps(task.table.problem.model_dump())),
        task.algorithm(),
    )
    if problem.k > LIMITS.directions:
        raise InputError(
            f"The page runs at most {LIMITS.directions} directions, but the target has"
            f" {problem.k}."
        )
    (method,) = task.methods([word])
    arguments = {**task.run_arguments(), **changes}
    made = make_task(problem, algorithm, method, task.start(problem), **arguments)
    seconds = method.compilation(made) + made.seeds * method.cost(made)
    check_cost(seconds, made.seeds * method.footprint(made))
    return method, made


def _curves(dataset: xr.Dataset) -> Json:
    """A result of one seed as lists."""
    notes = json.loads(dataset.attrs["notes"])
    outcome = str(dataset.outcome.values[0])
    values: Json = {
        name: dataset[name].values for name in ("time", "step", "sample", "alpha")
    }
    values |= {
        name: dataset[name].values[0]
        for name in ("risk", "excess_risk", "M", "a", "Q", "q")
        if name in dataset
    }
    return {
        **values,
        "units": {
            name: str(dataset[name].attrs.get("units", ""))
            for name in ("time", "step", "sample", "alpha")
        },
        "outcome": outcome,
        "advice": notes["advice"].get(outcome, "") if outcome != "ok" else "",
        "engine": notes.get("engine", notes.get("risk", "")),
        "engine_error": notes.get("engine_error"),
    }


@float64
def theory(task: TaskFile, options: Json, voice: Voice) -> Json:
    """The curves of a deterministic method."""
    from twolayer.running.solve import finish

    word = options.get("method") or "ode"
    method, made = _made(task, word)
    if method.stochastic:
        raise InputError(
            f"Option `method` must be a theory, but {word} is simulated: it streams as"
            " runs."
        )
    result, said = _warned(lambda: finish(made, method, voice, throw=False))
    return {**_curves(result), "method": word, "warnings": said}


def _statistics(values: np.ndarray) -> Json:
    """Mean and central 80 % over seeds."""
    low, high = np.quantile(values, (LOW, HIGH), axis=0)
    return {"mean": values.mean(axis=0), "low": low, "high": high}


def _passages(
    times: np.ndarray, excess: np.ndarray, threshold: float
) -> list[float | None]:
    """When each run first has its excess risk at (1 − threshold) of the start; None
    where it never has.

    Examples
    --------
    >>> _passages(
    ...     np.array([0.0, 1.0, 2.0]), np.array([[1.0, 0.8, 0.4], [1.0, 1.0, 1.0]]), 0.4
    ... )
    [1.5, None]
    """
    found: list[float | None] = []
    for row in excess:
        level = (1 - threshold) * row[0]
        below = np.flatnonzero(row <= level)
        if (
            not below.size
            or below[0] == 0
            or not np.isfinite(row[below[0] - 1 : below[0] + 1]).all()
        ):
            found.append(None)
            continue
        i = below[0]
        share = (row[i - 1] - level) / (row[i - 1] - row[i])
        found.append(float(times[i - 1] + share * (times[i] - times[i - 1])))
    return found


@float64
def run(task: TaskFile, options: Json, voice: Voice) -> Json:
    """Stream the seeds of a simulated method, with statistics and verdict so far."""
    import xarray as xr

    from twolayer.running.solve import finish

    word = options.get("method") or "chain"
    method, whole = _made(task, word)
    if not method.stochastic:
        raise InputError(
            f"Option `method` must be simulated, but {word} is a theory: its curves"
            " come at once."
        )
    seeds, threshold = whole.seeds, float(options.get("threshold") or 0.1)
    voice.send(
        "start",
        {"seeds": seeds, "steps": int(whole.points[-1]), "dim": method.dimension},
    )
    parts: list[xr.Dataset] = []
    judged = _judge(task, method, seeds, voice)
    for first in range(0, seeds, BLOCK):
        _, made = _made(task, word, seeds=min(BLOCK, seeds - first), first=first)
        part, said = _warned(lambda made=made: finish(made, method, voice, throw=False))  # type: ignore[misc]
        parts.append(part)
        so_far = xr.concat(
            parts,
            "seed",
            join="outer",
            data_vars="minimal",
            coords="minimal",
            compat="override",
        )
        ok = np.isfinite(so_far.risk.values).all(axis=1) & (
            so_far.outcome.values != "diverged"
        )
        kept = so_far.isel(seed=ok)
        band: Json = {
            "count": int(ok.sum()),
            "lost": int((~ok).sum()),
            "warnings": said,
        }
        band |= {
            name: part[name].values for name in ("time", "step", "sample", "alpha")
        }
        if ok.any():
            band |= {
                name: _statistics(kept[name].values)
                for name in ("risk", "excess_risk", "M", "Q")
                if name in kept
            }
        band["passages"] = _passages(
            kept.time.values, kept.excess_risk.values, threshold
        )
        voice.send("band", {**band, "first": first, "risks": part.risk.values})
        if len(parts) in (2, 4, 8, 16, 32, 64) or first + BLOCK >= seeds:
            voice.send("verdict", judged(so_far))
    return {"seeds": seeds}


def _judge(
    task: TaskFile, method: Method, seeds: int, voice: Voice
) -> Callable[[xr.Dataset], Json]:
    """What `compare` says of the seeds so far, against the ODE or the first theory that
    there is.
    """
    from twolayer.running.compare import default_methods, verdicts_of
    from twolayer.running.plan import Plan
    from twolayer.running.progress import Announcer
    from twolayer.running.smaller_dimensions import Pilots
    from twolayer.running.solve import solve
    from twolayer.task.overlaps import Overlaps

    problem, run_table = task.problem(), task.table.run
    plan = Plan.of(problem, task.algorithm())
    given = task.start(problem)
    start = Overlaps(given.Q, given.M, given.P, given.a, method.dimension)
    arguments = task.run_arguments()
    ends: Options = {name: arguments[name] for name in ENDS if name in arguments}
    theories = [
        x
        for x in default_methods(plan, method.dimension, ends, seeds)
        if not x.stochastic
    ]
    pilots = Pilots(plan, start, seeds, run_table.seed, Announcer(voice))
    known: Json = {}

    def judge(runs: xr.Dataset) -> Json:
        if not theories:
            return {
                "rows": [],
                "reason": (
                    "no theory of the package follows this task, so there is nothing to"
                    " judge by"
                ),
            }
        if run_table.until is not None:
            return {
                "rows": [],
                "reason": "runs that stop at a threshold are not compared",
            }
        first = next((x for x in theories if x.name == "ode"), theories[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not known:
                points = (
                    {"time": runs.time.values}
                    if not plan.algorithm.scheduled
                    else {"steps": runs.step.values}
                )
                known["theory"] = solve(
                    problem,
                    plan.algorithm,
                    first,
                    start,
                    **(ends if first.stepwise else points),
                    progress=voice,
                    throw=False,
                )
            rows = verdicts_of(
                pilots,
                {first.name: first, method.name: method},
                {first.name: known["theory"], method.name: runs},
            )
        return {"reference": first.name, "rows": [vars(row) for row in rows]}

    return judge


def _family_tasks(
    task: TaskFile, key: str, values: Sequence[object]
) -> Iterator[TaskFile]:
    table, _, name = key.partition(".")
    if table not in FAMILY_KEYS or not name or "." in name:
        raise InputError(
            "Option `key` must name a key of the task such as algorithm.lr, but got"
            f" {key!r}."
        )
    for value in values:
        document = copy.deepcopy(task.table.model_dump(exclude_unset=True))
        document.setdefault(table, {})[name] = value
        yield task_from(document, task.name)


@float64
def family(task: TaskFile, options: Json, voice: Voice) -> Json:
    """Stream a curve for each value of a key."""
    key, values = str(options.get("key") or ""), list(options.get("values") or [])
    tasks = list(
        _family_tasks(task, key, values)
    )  # all are checked before the first is run
    for number, (value, one) in enumerate(zip(values, tasks, strict=True)):
        try:
            curves = theory(one, options, voice)
        except InputError as error:
            voice.send("curve", {"number": number, "value": value, "error": str(error)})
            continue
        shown = (
            "time",
            "step",
            "sample",
            "alpha",
            "risk",
            "excess_risk",
            "outcome",
            "warnings",
        )
        voice.send(
            "curve",
            {
                "number": number,
                "value": value,
                **{name: curves[name] for name in shown},
            },
        )
    return {"curves": len(tasks)}


@float64
def netcdf(task: TaskFile, options: Json, voice: Voice) -> Json:
    """The dataset of a method as a file: run again, which gives the same numbers. Says
    where the file is.
    """
    from twolayer.files.results import save
    from twolayer.running.solve import finish

    method, made = _made(task, options.get("method") or "ode")
    result, _ = _warned(lambda: finish(made, method, voice, throw=False))
    # the server sends the file and removes it; were it a line on the pipe, it could be
    # longer than lines are
    path = save(
        result, Path(tempfile.gettempdir()) / f"download-{secrets.token_hex(8)}.nc"
    )
    return {"name": f"twolayer-{method.name}.nc", "file": str(path)}
