"""Stores as files: reading one without running anything, and merging two of the same
sweep.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from twolayer.numerics.arguments import Json
from twolayer.numerics.errors import InputError, path_of, short
from twolayer.numerics.foreign_files import reading
from twolayer.numerics.precision import float64
from twolayer.sweeps.batch import Result
from twolayer.sweeps.grid import digest, unmarked
from twolayer.sweeps.store import Store, read_header
from twolayer.sweeps.table import Index, ResultTable
from twolayer.task.method import METHODS

__all__ = ["load_sweep", "merge_sweeps"]


class _Cell(NamedTuple):
    """A cell of a stored grid: its name and its seed."""

    key: str
    seed: int


class StoredGrid:
    """The grid that stores describe themselves, as far as reading and merging
    need one.
    """

    def __init__(self, *headers: Json) -> None:
        self.hash, self.description = headers[0]["hash"], headers[0]["description"]
        self.axes: dict[str, list[Any]] = {}
        for key in headers[0]["axes"]:
            every = [v for header in headers for v in header["axes"][key]]
            self.axes[key] = [v for i, v in enumerate(every) if v not in every[:i]]
            if all(isinstance(v, int | float) for v in self.axes[key]):
                self.axes[key].sort()
        self.names = self.axes
        self.shape = tuple(len(axis) for axis in self.axes.values())
        self.seeds = max(header["seeds"] for header in headers)

    def __iter__(self) -> Iterator[Index]:
        return iter(np.ndindex(*self.shape))

    def __len__(self) -> int:
        return int(np.prod(self.shape))

    def cell(self, index: Index) -> _Cell:
        """Key and seed of a cell, by the same rule as a `Grid`'s."""
        values = {
            key: axis[i]
            for (key, axis), i in zip(self.axes.items(), index, strict=True)
        }
        run = self.description["run"]
        seed = int(values.get("run.seed", run.get("seed", 0)))
        if run["streams"] == "independent":
            seed = int(
                digest(
                    [seed, {key: unmarked(key, value) for key, value in values.items()}]
                )[:16],
                16,
            )
        return _Cell(digest([self.hash, values]), seed)

    def labels(self) -> dict[str, list[Any]]:
        """The axes as coordinates, whole numbers as integers."""

        def label(value: object, whole: bool) -> object:
            if isinstance(value, bool | str):
                return value
            if isinstance(value, int | float):
                return int(value) if whole else value
            return json.dumps(value, sort_keys=True)

        found = {}
        for key, axis in self.axes.items():
            plain = [unmarked(key, v) for v in axis]
            # a function that was another one before stands there twice, each with its
            # fingerprint
            shown = [
                p if plain.count(p) == 1 else v
                for p, v in zip(plain, axis, strict=True)
            ]
            whole = all(isinstance(v, float) and v == int(v) for v in axis)
            found[key] = [label(v, whole) for v in shown]
        return found


@float64
def load_sweep(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read what a store holds so far, without running anything; numeric axes are
    sorted.

    Parameters
    ----------
    path : str or path
        A store written by `sweep`.

    Examples
    --------
    >>> import tempfile
    >>> import twolayer as tl
    >>> file, task = (
    ...     f"{tempfile.mkdtemp()}/s.zarr",
    ...     (tl.Problem("z1", "linear"), tl.SGD(lr="0.5/d"), tl.Chain(20)),
    ... )
    >>> done = tl.sweep(*task, {"method.dim": [20, 40]}, steps=4, seeds=2, store=file)
    >>> load_sweep(file).risk.equals(done.risk)
    True
    """
    header = read_header(path)
    with reading(f"The store {short(str(path), 200)}"):
        grid = StoredGrid(header)
        table, store = ResultTable(grid, grid.seeds), Store(path, grid)
        store.load(table)
        store.close()
        return table.dataset(grid.seeds, _papers(grid))


def _papers(grid: StoredGrid) -> tuple[str, ...]:
    """Those of the method, if it is known here."""
    name = grid.description["method"].get("name")
    return METHODS[name].papers if name in METHODS else ()


@float64
def merge_sweeps(
    into: str | os.PathLike[str], *stores: str | os.PathLike[str]
) -> xr.Dataset:
    """Copy the finished runs of stores of the same sweep into one, which is made if it
    does not exist.

    The stores may cover different cells and seeds. What ``into`` holds already is kept
    as it is.

    Parameters
    ----------
    into : str or path
        The store that grows.
    stores : str or path
        Stores with the same description.

    Examples
    --------
    >>> import tempfile
    >>> import twolayer as tl
    >>> folder, task = (
    ...     tempfile.mkdtemp(),
    ...     (tl.Problem("z1", "linear"), tl.SGD(lr="0.5/d"), tl.Chain(20)),
    ... )
    >>> for name in ("a", "b"):  # as on two machines
    ...     done = tl.sweep(
    ...         *task,
    ...         {"method.dim": [20, 40]},
    ...         steps=4,
    ...         seeds=2,
    ...         store=f"{folder}/{name}.zarr",
    ...     )
    >>> merge_sweeps(
    ...     f"{folder}/all.zarr", f"{folder}/a.zarr", f"{folder}/b.zarr"
    ... ).sizes["method.dim"]
    2
    """
    if not stores:
        raise InputError("Argument `stores` must name at least one store to merge.")
    headers = {str(path): read_header(path) for path in stores}
    if path_of("into", into).exists():
        headers = {str(into): read_header(into), **headers}
    with reading("The stores"):
        return _merged(into, stores, headers)


def _merged(
    into: str | os.PathLike[str],
    stores: tuple[str | os.PathLike[str], ...],
    headers: dict[str, Json],
) -> xr.Dataset:
    names, known = list(headers), list(headers.values())
    for name, header in headers.items():
        if header["hash"] != known[0]["hash"]:
            raise InputError(
                f"The stores must hold the same sweep, but {names[0]!r} and {name!r}"
                " differ."
            )
    grid = StoredGrid(*known)
    Store.check(into, grid, resume=True)
    target, table = Store.open(into, grid, grid.seeds), ResultTable(grid, grid.seeds)
    try:
        for path in (x for x in stores if Path(x).resolve() != Path(into).resolve()):
            source = Store(path, grid)
            target.allocate(
                {name: variable for name, (variable, _) in source.variables.items()}
            )
            target.load(table)
            _copy(source, target, table)
            source.close()
        target.load(table)
    finally:
        target.close()
    return table.dataset(grid.seeds, _papers(grid))


def _copy(source: Store, target: Store, table: ResultTable) -> None:
    """Bring the runs of a store that a table lacks into another store."""
    table.allocate({name: variable for name, (variable, _) in source.variables.items()})
    for index, unit, made_with in source.units(source.journal()):
        values = (
            None if "error" in unit else source.values_of(tuple(unit["place"]), unit)
        )
        if values is None:
            continue
        low = unit["low"]
        absent = np.flatnonzero(~table.done[index][low : unit["high"]])
        for part in np.split(absent, np.flatnonzero(np.diff(absent) > 1) + 1):
            if len(part) and target.claim(index, low):
                cut = slice(int(part[0]), int(part[-1]) + 1)
                own = {
                    name: (dims, array[cut]) for name, (dims, array) in values.items()
                }
                target.commit(
                    [
                        (
                            index,
                            low + cut.start,
                            Result(own, None, unit["seconds"], made_with),
                        )
                    ]
                )
                table.write(index, low + cut.start, own)
                target.release(index, low)
