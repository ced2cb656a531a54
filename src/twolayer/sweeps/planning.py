"""Cutting a sweep into units and batches, and telling beforehand what it will take.

Units with the same compiled form (`Method.stack_key`) go into batches together, those
of similar length side by side; a batch is bounded by its memory, by its time, and by
the number of workers that want a share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from twolayer.gaussian.loss_and_error import reading_names
from twolayer.numerics.durations import lasting
from twolayer.numerics.errors import InputError
from twolayer.sweeps.batch import SEED_BLOCK, outline
from twolayer.sweeps.grid import Grid
from twolayer.sweeps.reductions import Quantity, Reduction
from twolayer.sweeps.table import Index, ResultTable

__all__ = ["Outlines", "SweepPlan", "Unit", "batches", "missing"]

BATCH_SECONDS = 4.0  # what a kill can cost
BATCH_UNITS = 1024
UNIT_SECONDS = 5e-3  # for the start, the risk and the store, whatever a run costs
SHARES = 4  # batches for each worker


@dataclass(frozen=True, order=True)
class Unit:
    """Runs low … high − 1 of a cell, within one block of seeds."""

    index: Index
    low: int
    high: int


class CompiledForm(NamedTuple):
    """What is known of a cell beforehand: which compiled code it shares, seconds and
    bytes of a run, save points.

    ``code`` names the compiled code also where runs do not go side by side, and
    ``compilation`` is what it takes.
    """

    key: Hashable
    seconds: float
    bytes: int
    points: int
    code: Hashable = None
    compilation: float = 0.0


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep will take. Made by `plan_sweep`.

    Attributes
    ----------
    cells, runs : int
        Size of the grid, and runs in all.
    finished : int
        Runs that the store already holds.
    batches : int
        Compiled calls with their results written together.
    seconds : float
        On one core of this machine, each compiled code counted once; an order of
        magnitude.
    memory : int
        Bytes of the results and of the largest batch.
    """

    cells: int
    runs: int
    finished: int
    batches: int
    seconds: float
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.cells} cells, {self.runs} runs ({self.finished} finished) in"
            f" {self.batches} batches: about {lasting(self.seconds)} on one core,"
            f" {self.memory / 2**20:.2g} MiB"
        )


class Outlines:
    """The forms of the cells of a grid, each found once."""

    def __init__(self, grid: Grid, reduction: Reduction) -> None:
        self.grid, self.reduction = grid, reduction
        self._known: dict[Index, CompiledForm] = {}

    def __getitem__(self, index: Index) -> CompiledForm:
        if index not in self._known:
            cell = self.grid.cell(index)
            try:
                task = outline(cell, 1 if self.reduction.ends_only else cell.run.save)
                key, method = cell.method.stack_key(task), cell.method
                costs = (method.cost(task), method.footprint(task), len(task.saved))
                problem, algorithm = task.problem, task.algorithm
                parts = (
                    problem.activation,
                    problem.target,
                    problem.p,
                    problem.normalisation,
                    problem.labels,
                    algorithm.loss,
                    algorithm.geometry,
                )
                code = (type(method), *parts) if key is None else (type(method), key)
                self._known[index] = CompiledForm(
                    key, *costs, code, method.compilation(task)
                )
            except InputError:  # the cell will fail when it is run, and say why
                self._known[index] = CompiledForm(None, 0.0, 0, 2)
        return self._known[index]

    def template(self) -> dict[str, Quantity] | None:
        """What the reduction yields at most."""
        cells = [self.grid.cell(index) for index in self.grid]
        p, k = max(c.problem.p for c in cells), max(c.problem.k for c in cells)
        points = max(self[index].points for index in self.grid)
        read = {
            name for c in cells for name in reading_names(c.problem, c.algorithm.loss)
        }
        return self.reduction.template(p, k, points, sorted(read, reverse=True))


def missing(table: ResultTable, needed: Mapping[Index, int]) -> list[Unit]:
    """Units of the runs that are needed and not done."""
    units = []
    for index, seeds in needed.items():
        absent = np.flatnonzero(~table.done[index][:seeds])
        breaks = (
            np.flatnonzero((np.diff(absent) > 1) | (np.diff(absent // SEED_BLOCK) > 0))
            + 1
        )
        for part in np.split(absent, breaks):
            if len(part):
                units.append(Unit(index, int(part[0]), int(part[-1]) + 1))
    return units


def batches(
    units: Iterable[Unit], outlines: Outlines, workers: int, memory: int
) -> list[list[Unit]]:
    """Units in batches that can run side by side, the longest first."""
    alike: dict[Hashable, list[Unit]] = defaultdict(list)
    for unit in units:
        form = outlines[unit.index]
        alike[form.key if form.key is not None else "alone"].append(unit)
    found: list[tuple[float, list[Unit]]] = []
    total = sum(
        (u.high - u.low) * outlines[u.index].seconds
        for group in alike.values()
        for u in group
    )
    share = (
        min(BATCH_SECONDS, max(total / (SHARES * workers), 0.05))
        if workers > 1
        else BATCH_SECONDS
    )
    for group in alike.values():
        group.sort(key=lambda u: (-outlines[u.index].seconds, u))
        batch: list[Unit] = []
        seconds, size = 0.0, 0
        for unit in group:
            form, runs = outlines[unit.index], unit.high - unit.low
            more_seconds, more_size = runs * form.seconds, runs * form.bytes
            full = (
                seconds + more_seconds > share
                or size + more_size > memory
                or len(batch) >= BATCH_UNITS
            )
            if batch and full:
                found.append((seconds, batch))
                batch, seconds, size = [], 0.0, 0
            batch.append(unit)
            seconds, size = seconds + more_seconds, size + more_size
        found.append((seconds, batch))
    found.sort(key=lambda x: -x[0])
    return [batch for _, batch in found]


def plan_of(
    table: ResultTable, outlines: Outlines, seeds: int, workers: int, memory: int
) -> SweepPlan:
    """What the missing runs will take."""
    grid = outlines.grid
    units = missing(table, dict.fromkeys(grid, seeds))
    cut = batches(units, outlines, workers, memory)
    weight = {
        name: np.dtype(v.dtype).itemsize * int(np.prod(v.shape))
        for name, v in (outlines.template() or {}).items()
    }
    results = len(grid) * seeds * sum(weight.values())
    largest = max(
        (
            sum((u.high - u.low) * outlines[u.index].bytes for u in batch)
            for batch in cut
        ),
        default=0,
    )
    codes = {form.code: form.compilation for form in (outlines[u.index] for u in units)}
    return SweepPlan(
        len(grid),
        len(grid) * seeds,
        int(table.done[..., :seeds].sum()),
        len(cut),
        sum((u.high - u.low) * outlines[u.index].seconds + UNIT_SECONDS for u in units)
        + sum(codes.values()),
        results + largest,
    )
