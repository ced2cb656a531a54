"""The loop of a sweep: claim units, send batches, write what comes back, go on where
something fails.

A batch whose worker dies is sent again; after the second time its units are set apart
and run one at a time at the end, so that a unit that brings its worker down is found
and becomes a recorded failure.
"""

from __future__ import annotations

import queue
import time as wall
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from twolayer.numerics.arguments import Listener
from twolayer.sweeps.batch import Result, job_of, made_with, run_batch, sentence
from twolayer.sweeps.executors import Done, Executor
from twolayer.sweeps.grid import Grid
from twolayer.sweeps.planning import Outlines, Unit, batches, missing
from twolayer.sweeps.reductions import READINGS, Quantity, Reduction
from twolayer.sweeps.store import Store
from twolayer.sweeps.table import Index, ResultTable, blank, fits

__all__ = ["Driver"]

LOSSES = 2  # times that a batch may lose its worker before its units are set apart
POLL = 0.3  # seconds between looks at what another process is doing


@dataclass(eq=False)
class CellBatch:
    """Units sent together, and how often they were lost."""

    units: list[Unit]
    lost: int = 0
    apart: bool = False


class Driver:
    """Brings the missing runs of a table in."""

    def __init__(
        self,
        grid: Grid,
        reduction: Reduction,
        table: ResultTable,
        store: Store | None,
        engine: Executor,
        listener: Listener,
        outlines: Outlines,
        memory: int,
    ) -> None:
        self.grid = grid
        self.reduction = reduction
        self.table = table
        self.store = store
        self.engine = engine
        self.listener = listener
        self.outlines = outlines
        self.memory = memory
        # blocks of runs: finished before this call or by others, and tried by this call
        self.kept = 0
        self.tried = 0
        self._tried: set[tuple[Index, int]] = set()

    def run(self, needed: Mapping[Index, int]) -> None:
        """Compute the runs that are needed and not done; a unit that failed in this
        call is not tried again.
        """
        units = [
            u
            for u in missing(self.table, needed)
            if (u.index, u.low) not in self._tried
        ]
        blocks = len(missing(ResultTable(self.grid, max(needed.values())), needed))
        self.kept = blocks - len(units) - self.tried
        before = f", {self.kept} of them finished before" if self.kept else ""
        self.listener.begin(f"{blocks} blocks of runs{before}", blocks)
        if self.kept:
            self._report()
        pending = deque(
            CellBatch(b)
            for b in batches(units, self.outlines, self.engine.workers, self.memory)
        )
        waiting: list[Unit] = []
        apart: deque[CellBatch] = deque()
        flying = 0
        done: Done[CellBatch, list[Result]] = queue.Queue()
        while pending or apart or waiting or flying:
            room = 2 * self.engine.workers if self.engine.remote else 1
            while pending and flying < room:
                batch = self._claimed(pending.popleft(), waiting)
                if batch.units:
                    self._send(done, batch)
                    flying += 1
            if not flying and apart:
                self._send(done, apart.popleft())
                flying += 1
            if flying:
                batch, future = done.get()
                flying -= 1
                again = self._received(batch, future)
                (apart if again and again[0].apart else pending).extend(again)
            elif waiting and not pending:
                waiting = self._others(waiting, pending)

    def _report(self) -> None:
        """Tell how many blocks of runs are finished."""
        self.listener.update(self.kept + self.tried)

    def _send(self, done: Done[CellBatch, list[Result]], batch: CellBatch) -> None:
        jobs = [job_of(self.grid.cell(u.index), u.low, u.high) for u in batch.units]
        self.engine.submit(done, batch, run_batch, jobs, self.reduction)

    def _claimed(self, batch: CellBatch, waiting: list[Unit]) -> CellBatch:
        """The units of a batch that are ours to do; those that another process has in
        hand are waited for.
        """
        if self.store is None or batch.lost:
            return batch
        mine: list[Unit] = []
        for unit in batch.units:
            (mine if self.store.claim(unit.index, unit.low) else waiting).append(unit)
        self.store.load(
            self.table
        )  # another process may have finished some before it let go of them
        undone = []
        for unit in mine:
            if self.table.done[unit.index][unit.low : unit.high].all():
                self.store.release(unit.index, unit.low)
                self.kept += 1
            else:
                undone.append(unit)
        batch.units = undone
        return batch

    def _others(self, waiting: list[Unit], pending: deque[CellBatch]) -> list[Unit]:
        """Look again at what another process had in hand: finished, still running, or
        given up.
        """
        assert self.store is not None
        wall.sleep(POLL)
        self.store.load(self.table)
        left = [
            u for u in waiting if not self.table.done[u.index][u.low : u.high].all()
        ]
        self.kept += len(waiting) - len(left)
        self._report()
        free = []
        for unit in left:
            if self.store.claim(unit.index, unit.low):
                self.store.release(unit.index, unit.low)
                free.append(unit)
        if free:
            pending.extend(
                CellBatch(b)
                for b in batches(free, self.outlines, self.engine.workers, self.memory)
            )
        return [u for u in left if u not in free]

    def _received(
        self, batch: CellBatch, future: Future[list[Result]]
    ) -> list[CellBatch]:
        """Write what came back; what is to be sent again."""
        try:
            results = future.result()
        except Exception as error:
            if not self.engine.lost(error):
                results = [
                    Result(None, sentence(error), 0.0, made_with()) for _ in batch.units
                ]
            elif batch.apart:
                results = [
                    Result(
                        None,
                        "The worker died while it ran this cell.",
                        0.0,
                        made_with(),
                    )
                ]
            elif batch.lost + 1 >= LOSSES:
                return [
                    CellBatch([unit], batch.lost + 1, apart=True)
                    for unit in batch.units
                ]
            else:
                return [CellBatch(batch.units, batch.lost + 1)]
        self._accept(batch.units, results)
        return []

    def _accept(self, units: list[Unit], results: list[Result]) -> None:
        checked = [self._fitting(result) for result in results]
        if self.store is not None:
            self.store.commit(
                [(u.index, u.low, r) for u, r in zip(units, checked, strict=True)]
            )
        for unit, result in zip(units, checked, strict=True):
            if result.values is None:
                self.table.failures[unit.index, unit.low] = result.error or ""
                self._tried.add((unit.index, unit.low))
            else:
                self.table.write(unit.index, unit.low, result.values)
            self.tried += 1
            if self.store is not None:
                self.store.release(unit.index, unit.low)
            cell = str(self.grid.cell(unit.index))
            self.listener.note(
                "" if result.error is None else f"failed: {cell}: {result.error}",
                event="cell",
                cell=cell,
                first_seed=unit.low,
                status="done" if result.error is None else "failed",
                error=result.error,
                seconds=round(result.seconds, 6),
            )
        self._report()

    def _fitting(self, result: Result) -> Result:
        """The result, with room made for it; or a failure where its variables are not
        those of the sweep.
        """
        if result.values is None:
            return result
        known = self.table.variables
        count = len(next(iter(result.values.values()))[1])
        for name in (
            x for x in READINGS if x in known and x not in result.values
        ):  # not defined in this cell
            result.values[name] = (
                known[name].dims,
                blank((count, *known[name].shape), known[name].dtype),
            )
        why = fits(result.values, known) if known else None
        if why is not None:
            return Result(
                None,
                "The reduction must return the same variables for every cell, but"
                f" {why}.",
                0.0,
                {},
            )
        own = {
            k: Quantity(dims, x.shape[1:], x.dtype.str)
            for k, (dims, x) in result.values.items()
        }
        larger = not known or any(
            n > size
            for k, v in own.items()
            for n, size in zip(v.shape, known[k].shape, strict=True)
        )
        if larger:
            self.table.allocate(own)
            if self.store is not None:
                self.store.allocate(self.table.variables)
        return result
