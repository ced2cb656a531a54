"""`sweep`: a grid of problems and algorithms, many seeds, a reduction.

dataset = sweep(problem, algorithm, method, over={"algorithm.lr": […], "run.dim": […]},
seeds=…, store=…)
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from twolayer.numerics.arguments import ENDS, End, Progress, Save, named_ends
from twolayer.numerics.errors import (
    InputError,
    Interrupted,
    expect,
    finite_number,
    flag,
    outside,
    positive_integer,
    reject,
)
from twolayer.numerics.foreign_files import check_size
from twolayer.numerics.precision import float64
from twolayer.numerics.random import check_seed
from twolayer.running.progress import listener_for
from twolayer.running.solve import check_parts
from twolayer.sweeps.batch import portable
from twolayer.sweeps.driver import Driver
from twolayer.sweeps.executors import engine_for
from twolayer.sweeps.grid import Grid, Run
from twolayer.sweeps.planning import Outlines, SweepPlan, plan_of
from twolayer.sweeps.reductions import Reduction, reduction_of
from twolayer.sweeps.store import Store
from twolayer.sweeps.table import Index, ResultTable
from twolayer.task.algorithm import SGD
from twolayer.task.method import Method, Outcome, Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["SweepWarning", "plan_sweep", "sweep"]

MEMORY = 2**28
MAX_SEEDS = 4096


class SweepWarning(UserWarning):
    """Some cells failed; the dataset says which and why.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter(
    ...         "error", SweepWarning
    ...     )  # a sweep with failed cells raises inside this block
    """


def _prepared(
    problem: Problem,
    algorithm: SGD,
    method: Method,
    over: Mapping[str, object],
    run: Run,
    seeds: int | None = None,
    reduce: object = "final",
) -> tuple[Grid, Reduction, int]:
    """The grid, the reduction and the number of seeds that the arguments of `sweep`
    describe.
    """
    check_parts(problem, algorithm, method)
    seed, over = check_seed(run.seed), expect(Mapping, "over", over)  # type: ignore[type-abstract]
    reduction = reduction_of(reduce)
    until, dim = run.until, run.dim
    if until is not None and not isinstance(until, Until):
        reject("until", until, "an Until, such as Until('excess_risk', 0.1)")
    if dim is not None:
        dim = positive_integer("dim", dim)
        if method.dimension not in (None, dim):
            raise InputError(
                f"Argument `dim` must agree with the method, but {dim} is not its"
                f" {method.dimension}."
            )
        dim = None if method.dimension is not None else dim
    law = (
        "sphere" if isinstance(run.start, str) and run.start == "random" else run.start
    )
    grid = Grid(
        problem,
        algorithm,
        method,
        replace(run, dim=dim, seed=seed, start=law),
        over,
        reduction.name,
    )
    ends = {f"run.{name}" for name in ENDS} & set(over)
    given = sum(getattr(run, name) is not None for name in ENDS)
    if not ends and given != 1:
        raise InputError(
            f"Give one of {named_ends()}, but got {'none' if given == 0 else given}."
        )
    if (
        reduction.name == "exit_time"
        and until is None
        and "run.until.value" not in over
    ):
        raise InputError("The reduction 'exit_time' needs a threshold: give `until`.")
    if isinstance(law, Overlaps):
        n = law.batch[0] if law.batch else None
        if n is not None and (seeds or n) > n:
            raise InputError(
                f"Argument `seeds` must be at most {n}, one for each start, but got"
                f" {seeds}."
            )
        count = n if seeds is None else seeds
        if n is None and not method.stochastic:
            count = 1
    else:
        count = seeds
        if any(grid.cell(index).dim is None for index in grid):
            raise InputError(
                "A random start needs a dimension: give `dim`, or sweep `run.dim`."
            )
    number = positive_integer("seeds", 1 if count is None else count)
    check_size("Argument `seeds`", 64 * number * len(grid))
    return grid, reduction, number


def _targets(target_se: Any, reduction: Reduction) -> dict[str, float]:
    if target_se is None:
        return {}
    if not isinstance(target_se, Mapping):
        if reduction.main is None:
            reject(
                "target_se",
                target_se,
                "a table {variable: standard error} for this reduction",
            )
        target_se = {reduction.main: target_se}
    for name, value in target_se.items():
        if (
            not finite_number(
                "target_se", value, minimum=0.0, accepted="a positive number"
            )
            > 0
        ):
            reject("target_se", {name: value}, "positive")
    return {str(k): float(v) for k, v in target_se.items()}


def _portability(grid: Grid, reduction: Reduction, why: str) -> None:
    """Reject functions that cannot leave this process."""
    if not reduction.importable:
        raise InputError(
            f"Argument `reduce` must be a function that can be imported {why}, but"
            f" {reduction.name} cannot: put it into a module."
        )
    cells = (grid.cell(index) for index in grid)
    reasons = [
        r for r in (portable(cell.problem, cell.algorithm) for cell in cells) if r
    ]
    if reasons:
        raise InputError(f"The sweep cannot be described {why}: {reasons[0]}.")


@float64
def sweep(
    problem: Problem,
    algorithm: SGD,
    method: Method,
    over: Mapping[str, object],
    *,
    start: Overlaps | str = "random",
    time: End = None,
    steps: End = None,
    alpha: End = None,
    passes: End = None,
    save: Save = 200,
    until: Until | None = None,
    dim: int | None = None,
    seeds: int | None = None,
    seed: int = 0,
    streams: str = "independent",
    reduce: object = "final",
    target_se: object = None,
    max_seeds: int = MAX_SEEDS,
    store: str | os.PathLike[str] | None = None,
    resume: bool = True,
    executor: object = "local",
    memory: int = MEMORY,
    progress: Progress = None,
) -> xr.Dataset:
    """Run a grid of problems, algorithms and methods with many seeds, and keep a
    reduction of each run.

    Parameters
    ----------
    problem, algorithm, method
        What is not swept.
    over : dict
        Swept keys and their values: ``problem.…``, ``algorithm.…``, ``method.…`` for
        any of their fields, and ``run.dim`` (of method and start), ``run.time``,
        ``run.steps``, ``run.alpha``, ``run.passes``, ``run.save``, ``run.seed``,
        ``run.until.value``.
        Each becomes a dimension of the result.
    start : Overlaps or str
        A given start for all cells, or ``"random"`` (``"sphere"``), ``"gaussian"``:
        drawn for each cell and seed at the dimension of the method, or ``dim``.
    time, steps, alpha, passes, save, until, seed
        As for `solve`.
    dim : int, optional
        d of random starts, for a method that has none itself, such as ``ODE()``.
    seeds : int
        Runs of each cell.
    streams : str
        ``"independent"``: every cell draws from its own seed. ``"common"``: all cells
        from the same one.
    reduce : str or callable
        ``"final"``, ``"exit_time"``, ``"trajectory"``, or a function of the dataset of
        one run.
    target_se : float or dict, optional
        Add seeds to each cell until the standard error of the main variable (or of
        those named) is reached, or ``max_seeds``.
    max_seeds : int
        Seeds that a cell may have in the end, where ``target_se`` adds some.
    store : path, optional
        A Zarr store, resumed if it exists (unless ``resume=False``); cells and seeds
        that it holds are not run again.
    resume : bool
        Whether to go on with a store that exists; False refuses it.
    executor : str or object
        ``"local"``, ``"processes"``, ``"processes:N"``, ``"dask://HOST:PORT"``, or an
        object with ``submit``.
    memory : int
        Bytes that the runs of one batch may occupy.
    progress : bool or Listener, optional
        As for `solve`. A listener hears of every block of runs: its ``note`` gets the
        ``cell``, the ``first_seed``, the ``status``, the ``error`` and the ``seconds``.

    Returns
    -------
    xarray.Dataset
        The reduced variables over the swept names and ``seed``; ``runs`` and
        ``cell_seed`` for each cell; failed cells are NaN and listed in the attribute
        ``failures``. ``outcome`` tells how each run ended, and the attribute ``advice``
        what to do about it.

    Notes
    -----
    The numbers are the same, bit by bit on one kind of CPU, whatever the executor, the
    batches and the order.

    Examples
    --------
    >>> from twolayer import Chain
    >>> problem, algorithm = (
    ...     Problem("He2(z1)", "He2"),
    ...     SGD(lr="0.1/d", geometry="projected"),
    ... )
    >>> result = sweep(
    ...     problem,
    ...     algorithm,
    ...     Chain(100),
    ...     {"method.dim": [100, 200]},
    ...     time=0.2,
    ...     seeds=4,
    ... )
    >>> result.risk.dims, result.risk.shape
    (('method.dim', 'seed'), (2, 4))
    """
    run = Run(time, steps, save, until, dim, seed, start, streams, alpha, passes)
    grid, reduction, count = _prepared(
        problem, algorithm, method, over, run, seeds, reduce
    )
    targets, top = (
        _targets(target_se, reduction),
        positive_integer("max_seeds", max_seeds),
    )
    memory, resume = positive_integer("memory", memory), flag("resume", resume)
    listener = listener_for(progress)
    if store is not None:
        _portability(grid, reduction, "for a store")
        Store.check(store, grid, resume)
    engine = engine_for(executor)
    opened = None
    table = ResultTable(grid, count)
    try:
        if engine.remote:
            _portability(grid, reduction, "for other processes")
        outlines = Outlines(grid, reduction)
        template = outlines.template()
        if template is not None:
            table.allocate(template)
        if store is not None:
            opened = Store.open(store, grid, count)
            if template is not None:
                opened.allocate(template)
            opened.load(table)
        driver = Driver(
            grid, reduction, table, opened, engine, listener, outlines, memory
        )
        try:
            needed = dict.fromkeys(grid, count)
            driver.run(needed)
            while targets and (more := _more(table, needed, targets, top)):
                needed |= more
                table.grow(max(needed.values()))
                if opened is not None:
                    opened.extend(table.seeds)
                    opened.reload(table)
                driver.run(needed)
        except KeyboardInterrupt:
            raise Interrupted(table.dataset(table.seeds, method.papers)) from None
        finally:
            listener.finish()
    finally:
        engine.close()
        if opened is not None:
            opened.close()
    result = table.dataset(table.seeds, method.papers)
    failures = json.loads(result.attrs["failures"])
    if failures:
        first = failures[0]
        where = ", ".join(f"{k} = {v}" for k, v in first["cell"].items())
        warnings.warn(
            f"{len(failures)} cells failed, the first at {where}: {first['error']}",
            SweepWarning,
            stacklevel=outside(),
        )
    stray = (
        int((result.outcome == Outcome.NOT_FINITE).sum()) if "outcome" in result else 0
    )
    if stray:
        advice = Outcome.ADVICE[Outcome.NOT_FINITE]
        warnings.warn(
            f"{stray} runs hold numbers that are not finite: {advice}.",
            SweepWarning,
            stacklevel=outside(),
        )
    return result


def _more(
    table: ResultTable,
    needed: Mapping[Index, int],
    targets: Mapping[str, float],
    top: int,
) -> dict[Index, int]:
    """Cells whose standard error is too large, with the number of seeds that should do,
    at most twice as many.
    """
    more = {}
    for index, seeds in needed.items():
        if seeds >= top or not table.done[index][:seeds].all():
            continue
        ratio = max(
            table.standard_error(index, name, seeds) / target
            for name, target in targets.items()
        )
        if ratio > 1:
            guess = 2 * seeds if not np.isfinite(ratio) else math.ceil(seeds * ratio**2)
            more[index] = min(top, max(seeds + 1, min(2 * seeds, guess)))
    return more


@float64
def plan_sweep(
    problem: Problem,
    algorithm: SGD,
    method: Method,
    over: Mapping[str, object],
    *,
    store: str | os.PathLike[str] | None = None,
    workers: int = 1,
    memory: int = MEMORY,
    **arguments: Any,
) -> SweepPlan:
    """What `sweep` with these arguments would take: runs, time and memory; nothing is
    run or written.

    Parameters
    ----------
    problem, algorithm, method, over
        As for `sweep`.
    store : path, optional
        A store that exists: what it holds is not counted.
    workers : int
        How many work side by side.
    memory : int
        Bytes that the runs of one batch may occupy.
    **arguments
        Other arguments of `sweep`: ``time``, ``seeds``, ``start``, ``reduce``, …

    Examples
    --------
    >>> from twolayer import Chain
    >>> problem, algorithm = Problem("He2(z1)", "He2"), SGD(lr="0.1/d")
    >>> plan = plan_sweep(
    ...     problem, algorithm, Chain(100), {"method.dim": [100, 200]}, time=1, seeds=4
    ... )
    >>> plan.cells, plan.runs
    (2, 8)
    """
    own = {
        name: arguments.pop(name) for name in ("seeds", "reduce") if name in arguments
    }
    grid, reduction, count = _prepared(
        problem, algorithm, method, over, Run(**arguments), **own
    )
    table, outlines = ResultTable(grid, count), Outlines(grid, reduction)
    if store is not None:
        Store.check(store, grid, resume=True)
        if Path(store).exists():
            opened = Store(store, grid)
            opened.load(table)
            opened.close()
    size = positive_integer("workers", workers), positive_integer("memory", memory)
    return plan_of(table, outlines, count, *size)
