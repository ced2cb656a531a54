"""What a worker does: run a batch of units, side by side where they share compiled
code, and reduce each.

    unit = a cell and some of its seeds, within one block of SEED_BLOCK
        batch = units sent to a worker together

Every number of a unit is a function of the unit alone. Random starts are drawn in whole
blocks, lanes keep their place (loops/stepwise.py), deterministic methods take their
starts one by one, and the rule for the risk is chosen for one run at a time; so engine,
batching and order change no bit.
"""

from __future__ import annotations

import json
import threading
import time as wall
import traceback
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import xarray as xr

from twolayer.functions.activation import NAMED, Activation
from twolayer.gaussian.loss_and_error import readings
from twolayer.gaussian.risk import excess_risks, irreducible
from twolayer.loops.host_loop import Record, follow
from twolayer.numerics.arguments import Options, Save
from twolayer.numerics.errors import InputError, RunFailed
from twolayer.numerics.precision import float64
from twolayer.running.dataset import (
    describe_problem,
    known_risks,
    scanned,
    to_dataset,
    versions,
)
from twolayer.running.progress import Silent
from twolayer.running.solve import make_task
from twolayer.sweeps.grid import Cell, Run
from twolayer.sweeps.reductions import Block, Reduction, Values
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks
from twolayer.task.method import (
    Evolution,
    Method,
    Outcome,
    Snapshot,
    Stackable,
    Task,
    from_start,
)
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["SEED_BLOCK", "Job", "Result", "job_of", "outline", "run_batch"]

SEED_BLOCK = 16
_one_batch_at_a_time = (
    threading.Lock()
)  # a worker may have several threads, compiled CPU code wants one


@dataclass(frozen=True, eq=False)
class Job:
    """A unit as it travels to a worker: plain values, and runs number ``low`` …
    ``high`` − 1.
    """

    problem: Problem | str
    algorithm: SGD | str
    method: Method
    run: Run
    seed: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Result:
    """What came out of a unit: the reduced values, or an error; and how long it took
    and with what.
    """

    values: Values | None
    error: str | None
    seconds: float
    versions: dict[str, str]


def portable(problem: Problem, algorithm: SGD) -> str | None:
    """Why a description cannot be written down for another process or a store, or
    None.
    """
    if algorithm.first_order:
        return (
            "a first-order method has Python functions, which other processes and"
            " stores cannot hold"
        )
    for name in ("lr", "batch"):
        law = getattr(algorithm, name)
        if law.schedule is not None and not law.schedule.portable:
            return (
                f"the schedule of {name} is a Python function, which other processes"
                " and stores cannot hold"
            )
    for part, value in describe_problem(problem).items():
        if isinstance(value, str) and value.startswith("<function"):
            return (
                f"the {part} is a Python function ({value[10:-1]}), which other"
                " processes and stores cannot hold; write it as a formula"
            )
    return None


def job_of(cell: Cell, low: int, high: int) -> Job:
    """The job of a unit; problems made of Python functions can only be run in this
    process.
    """
    if portable(cell.problem, cell.algorithm) is not None:
        return Job(
            cell.problem, cell.algorithm, cell.method, cell.run, cell.seed, low, high
        )
    problem, algorithm = (
        json.dumps(x)
        for x in (describe_problem(cell.problem), cell.algorithm.describe())
    )
    return Job(problem, algorithm, cell.method, cell.run, cell.seed, low, high)


made_with = lru_cache(maxsize=1)(versions)
"""Versions in this process."""


@lru_cache(maxsize=1024)
def _problem(text: str, activations: frozenset[Activation]) -> Problem:
    """A problem by its description and what the names in it stand for now."""
    return Problem(**json.loads(text))


def _parts(job: Job) -> tuple[Problem, SGD]:
    problem, algorithm = job.problem, job.algorithm
    if isinstance(problem, str):
        problem = _problem(problem, frozenset(NAMED.values()))
    return problem, (
        SGD(**json.loads(algorithm)) if isinstance(algorithm, str) else algorithm
    )


@lru_cache(maxsize=256)
def _random_starts(
    problem: Problem, dim: int, seed: int, law: str, block: int
) -> Overlaps:
    return Overlaps.random(problem, dim, seed, SEED_BLOCK, law, SEED_BLOCK * block)


def _part(start: Overlaps, low: int, high: int) -> Overlaps:
    a = None if start.a is None else start.a[low:high]
    return Overlaps(start.Q[low:high], start.M[low:high], start.P, a, start.dim)


def _start(job: Job, problem: Problem) -> Overlaps:
    """The starts of a unit: given ones, or a random one for each run."""
    given = job.run.start
    if isinstance(given, Overlaps):
        return _part(given, job.low, job.high) if given.batch else given
    dim = job.run.dim or job.method.dimension
    if dim is None:
        raise InputError(
            "A random start needs a dimension: give `dim`, or sweep `run.dim`."
        )
    block = job.low // SEED_BLOCK
    whole = _random_starts(problem.replace(noise=0.0), dim, job.seed, given, block)
    return _part(whole, job.low - SEED_BLOCK * block, job.high - SEED_BLOCK * block)


def outline(cell: Cell, save: Save) -> Task:
    """The task of a cell as far as its compiled form, cost and size go: with a start of
    the kind, not its own.
    """
    clocks = Clocks(cell.problem, cell.algorithm, cell.method.dimension or cell.run.dim)
    points, hidden = from_start(cell.method.points_for(clocks, cell.run.ends, save))
    start, p, k = cell.run.start, cell.problem.p, cell.problem.k
    if not isinstance(start, Overlaps):
        start = Overlaps(
            np.eye(p), np.zeros((p, k)), cell.problem.P
        )  # where random starts tend to
        if not cell.problem.inputs.plain and cell.dim is not None:
            start = _part(
                _random_starts(
                    cell.problem.replace(noise=0.0), cell.dim, 0, cell.run.start, 0
                ),
                0,
                1,
            )
    elif start.batch:
        start = _part(start, 0, 1)
    return Task(
        cell.problem,
        cell.algorithm,
        start,
        points,
        clocks,
        1,
        cell.seed,
        cell.run.until,
        hidden=hidden,
    )


def tasks_of(job: Job, ends_only: bool) -> list[Task]:
    """The runs of a unit as one task, or one for each start where the method is
    deterministic.
    """
    problem, algorithm = _parts(job)
    run, start = job.run, _start(job, problem)
    arguments: Options = {
        **run.ends,
        "save": 1 if ends_only else run.save,
        "seed": job.seed,
        "until": run.until,
    }
    if not job.method.stochastic and start.batch:
        each = [(_part(start, i, i + 1), job.low + i) for i in range(start.batch[0])]
    else:
        each = [(start, job.low)]
    seeds = None if start.batch else job.high - job.low
    return [
        make_task(
            problem, algorithm, job.method, s, seeds=seeds, first=low, **arguments
        )
        for s, low in each
    ]


def _records(pairs: Sequence[tuple[Method, Task]]) -> list[Record]:
    """Run tasks, those with the same compiled form side by side; a record for each, in
    the same order.
    """
    stacks: dict[Hashable, list[int]] = {}
    for i, (method, task) in enumerate(pairs):
        key = method.stack_key(task)
        stacks.setdefault(i if key is None else (type(method), key), []).append(i)
    found: dict[int, Record] = {}
    for members in stacks.values():
        method, task = pairs[members[0]]
        prepare = partial(_prepared, [pairs[i] for i in members])
        record = follow(prepare, task.points, method.name, Silent())
        if record.interrupted:
            raise KeyboardInterrupt
        at = 0
        for i in members:
            task = pairs[i][1]
            found[i] = _cut(record, at, at + task.seeds, len(task.points))
            at += task.seeds
    return [found[i] for i in range(len(pairs))]


def _prepared(stack: Sequence[tuple[Method, Task]]) -> Evolution:
    """Tasks of one compiled form side by side, or the only one."""
    method, task = stack[0]
    return (
        method.prepare_stack(stack)
        if isinstance(method, Stackable)
        else method.prepare(task)
    )


def _cut(record: Record, low: int, high: int, points: int) -> Record:
    """The runs low … high − 1, with their last state repeated where all had stopped
    before the last save point.
    """

    def full(x: np.ndarray | None) -> Any:
        if x is None:
            return None
        own = x[low:high]
        return np.concatenate(
            [own, np.repeat(own[:, -1:], points - own.shape[1], axis=1)], axis=1
        )

    snapshot = type(record.snapshot)(*map(full, record.snapshot))
    extras = {
        k: (dims, full(x)) if dims[:2] == ("seed", "time") else (dims, x)
        for k, (dims, x) in record.extras.items()
    }
    return Record(
        snapshot,
        record.outcome[low:high],
        record.stop[low:high],
        False,
        record.notes,
        extras,
    )


def _risks(
    pairs: Sequence[tuple[Method, Task]], records: Sequence[Record]
) -> list[tuple[np.ndarray, str]]:
    """Excess risks of all records, evaluated together where the problem is the same up
    to its noise.
    """
    same: dict[tuple[Problem, int], list[int]] = {}
    found: dict[int, tuple[np.ndarray, str]] = {}
    for i, (_, task) in enumerate(pairs):
        known = known_risks(records[i])
        if known is not None:
            found[i] = known
        else:
            same.setdefault(
                (task.problem.replace(noise=0.0), len(task.points)), []
            ).append(i)
    for (problem, points), members in same.items():
        Q, M, a = (
            np.concatenate(x)
            for x in zip(*(records[i].snapshot[:3] for i in members), strict=True)
        )
        values, rule = excess_risks(problem, Q, M, a, affordable=points)
        parts = np.split(
            values, np.cumsum([len(records[i].snapshot.a) for i in members])[:-1]
        )
        found |= {i: (part, rule) for i, part in zip(members, parts, strict=True)}
    return [found[i] for i in range(len(pairs))]


def _block(
    method: Method, task: Task, record: Record, risk: np.ndarray, reads: bool
) -> Block:
    unit = method.unit(task.algorithm)
    position = np.asarray(task.saved)
    along = task.clocks.coordinates(position, method.stepwise, unit)
    clocks = {name: along[name][0] for name in ("time", "step", "alpha")}
    stops = task.clocks.coordinates(record.stop, method.stepwise, unit)
    read: dict[str, np.ndarray] = {}
    if reads and isinstance(record.snapshot, Snapshot):
        at, count = record.snapshot[:3], len(task.points)
        found = readings(task.problem, task.algorithm.loss, *at, risk, affordable=count)
        read = {name: x for name, (x, _) in found.items()}
    kept = {
        name: x[:, task.hidden :]
        for name, x in {"risk": risk + irreducible(task.problem), **read}.items()
    }
    M, a, excess = (
        x[:, task.hidden :] for x in (record.snapshot.M, record.snapshot.a, risk)
    )
    ends = {name: stops[name][0] for name in ("time", "step", "alpha")}
    each = {**record.snapshot._asdict(), **kept, "excess_risk": risk}
    variables: dict[Hashable, xr.Variable] = {
        name: xr.Variable(("seed", *(f"axis{i}" for i in range(1, x.ndim))), x)
        for name, x in each.items()
        if x is not None
    }
    variables |= {name: xr.Variable("time", x) for name, x in clocks.items()}
    outcome = scanned(record.outcome, variables, task.problem)
    return Block(M, a, kept.pop("risk"), excess, clocks, outcome, ends, kept)


def _joined(parts: list[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    return {
        k: (dims, np.concatenate([part[k][1] for part in parts]))
        for k, (dims, _) in parts[0].items()
    }


def _run(jobs: Sequence[Job], reduction: Reduction) -> list[Values]:
    """Reduced values of units; any failure is that of all."""
    each = [tasks_of(job, reduction.ends_only) for job in jobs]
    pairs = [
        (job.method, task)
        for job, tasks in zip(jobs, each, strict=True)
        for task in tasks
    ]
    records = _records(pairs)
    for (method, _), record in zip(pairs, records, strict=True):
        if (record.outcome == Outcome.MAX_STEPS).any():
            advice = Outcome.ADVICE[Outcome.MAX_STEPS]
            raise RunFailed(f"{type(method).__name__} stopped early: {advice}.")
    reduced: list[Values] = []
    for (method, task), record, risk in zip(
        pairs, records, _risks(pairs, records), strict=True
    ):
        if reduction.of_block is not None:
            reduced.append(
                reduction.of_block(
                    _block(method, task, record, risk[0], reduction.reads)
                )
            )
        else:
            reduced.append(
                reduction.of_datasets(to_dataset(task, method, record, risk))
            )
    at, values = 0, []
    for tasks in each:
        values.append(_joined(reduced[at : at + len(tasks)]))
        at += len(tasks)
    return values


@float64
def run_batch(jobs: Sequence[Job], reduction: Reduction) -> list[Result]:
    """Results of a batch of units."""
    with _one_batch_at_a_time:
        return _results(jobs, reduction)


def _results(jobs: Sequence[Job], reduction: Reduction) -> list[Result]:
    """The same; where the batch fails as a whole, its units are run one by one to find
    out which.
    """
    began = wall.perf_counter()
    try:
        values = _run(jobs, reduction)
    except Exception as error:
        if len(jobs) > 1:
            return [_results([job], reduction)[0] for job in jobs]
        return [Result(None, sentence(error), wall.perf_counter() - began, made_with())]
    seconds = (wall.perf_counter() - began) / len(jobs)
    return [Result(x, None, seconds, made_with()) for x in values]


def sentence(error: BaseException) -> str:
    """An error as one line: ours as it is, others with their type and place."""
    if isinstance(error, InputError | RunFailed):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = (
        f" ({last[0].filename.rsplit('/', 1)[-1]}, line {last[0].lineno})"
        if last
        else ""
    )
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
