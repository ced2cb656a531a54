"""The results of a sweep in memory: one array for each variable, over the grid and the
seeds.

Cells of different width or number of save points share an array of the largest size;
what a cell does not have is NaN.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import xarray as xr

from twolayer.numerics.arguments import Json, Variables
from twolayer.numerics.errors import InputError
from twolayer.running.dataset import versions
from twolayer.running.long_names import with_meanings
from twolayer.sweeps.coordinates import law_values
from twolayer.sweeps.grid import FORMAT
from twolayer.sweeps.reductions import Quantity, Values
from twolayer.task.method import Outcome

__all__ = ["Layout", "ResultTable", "blank", "enlarged", "fits"]

Index = tuple[int, ...]


class Layout(Protocol):
    """What a table and a store need to know of a grid."""

    axes: dict[str, list[Any]]
    names: dict[str, list[Any]]
    shape: tuple[int, ...]
    hash: str
    description: Json

    def __iter__(self) -> Iterator[Index]:
        """Indices of all cells."""

    def cell(self, index: Index) -> Any:
        """A cell, with its ``key`` and ``seed``."""

    def labels(self) -> dict[str, list[Any]]:
        """Coordinates."""


def blank(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array of what is not there: NaN, or −1 for integers."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else -1, dtype)


def fits(values: Values, variables: Mapping[str, Quantity]) -> str | None:
    """Why values do not fit the variables of a sweep, or None; sizes may be larger than
    known.
    """
    if set(values) != set(variables):
        return (
            f"it has the variables {', '.join(sorted(values))} instead of"
            f" {', '.join(sorted(variables))}"
        )
    for name, (dims, _) in values.items():
        if dims != variables[name].dims:
            return (
                f"its `{name}` has the dimensions {dims} instead of"
                f" {variables[name].dims}"
            )
    return None


def enlarged(
    old: Mapping[str, Quantity], new: Mapping[str, Quantity]
) -> dict[str, Quantity]:
    """Variables with room for both."""
    both = dict(old)
    for name, variable in new.items():
        if name in both:
            shape = tuple(
                max(m, n) for m, n in zip(both[name].shape, variable.shape, strict=True)
            )
            variable = variable._replace(shape=shape)
        both[name] = variable
    return both


class ResultTable:
    """Arrays of a sweep, which runs are done, and which cells failed."""

    def __init__(self, grid: Layout, seeds: int) -> None:
        self.grid = grid
        self.variables: dict[str, Quantity] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.done = np.zeros((*grid.shape, seeds), bool)
        self.failures: dict[tuple[Index, int], str] = {}

    @property
    def seeds(self) -> int:
        """Runs for which there is room in each cell."""
        return int(self.done.shape[-1])

    def allocate(self, variables: Mapping[str, Quantity]) -> None:
        """Make the arrays, or let them grow."""
        variables = enlarged(self.variables, variables)
        for name, variable in variables.items():
            if self.variables.get(name) != variable:
                old, new = (
                    self.arrays.get(name),
                    blank((*self.done.shape, *variable.shape), variable.dtype),
                )
                if old is not None:
                    new[tuple(slice(0, n) for n in old.shape)] = old
                self.arrays[name] = new
        self.variables = variables

    def grow(self, seeds: int) -> None:
        """Make room for more seeds."""
        more = seeds - self.seeds
        if more <= 0:
            return
        axis = len(self.grid.shape)

        def longer(x: np.ndarray, fill: np.ndarray) -> np.ndarray:
            return np.concatenate([x, fill], axis=axis)

        for name, array in self.arrays.items():
            extra = (*self.grid.shape, more, *array.shape[axis + 1 :])
            self.arrays[name] = longer(array, blank(extra, array.dtype.str))
        self.done = longer(self.done, np.zeros((*self.grid.shape, more), bool))

    def write(self, index: Index, low: int, values: Values) -> None:
        """Put the values of runs number ``low`` and following into a cell."""
        count = len(next(iter(values.values()))[1])
        for name, (_, array) in values.items():
            inner = tuple(slice(0, n) for n in array.shape[1:])
            self.arrays[name][index][(slice(low, low + count), *inner)] = array
        self.done[index][low : low + count] = True
        self.failures.pop((index, low), None)

    def standard_error(self, index: Index, name: str, seeds: int) -> float:
        """Largest standard error of a variable over the runs done; infinite below
        two.
        """
        if name not in self.arrays:
            raise InputError(
                "Argument `target_se` must name a variable of the reduction"
                f" ({', '.join(self.arrays)}), not {name!r}."
            )
        values = self.arrays[name][index][:seeds]
        counts = np.isfinite(values).sum(0)
        if (counts < 2).any():
            return np.inf
        return float((np.nanstd(values, axis=0, ddof=1) / np.sqrt(counts)).max())

    def dataset(self, seeds: int, papers: tuple[str, ...]) -> xr.Dataset:
        """The result, with the swept names as dimensions."""
        axes = tuple(self.grid.axes)
        cut = (*(slice(None) for _ in axes), slice(0, seeds))
        data: Variables = {}
        for name, variable in self.variables.items():
            array = self.arrays[name][cut]
            if name == "outcome":
                array = np.array([*Outcome.CODES, ""], dtype=object)[array]
            data[name] = ((*axes, "seed", *variable.dims), array)
        data["runs"] = (axes, self.done[cut].sum(-1))
        cells = [self.grid.cell(index) for index in self.grid]
        data["cell_seed"] = (
            axes,
            np.array([cell.seed for cell in cells], np.uint64).reshape(self.grid.shape),
        )
        labels = self.grid.labels()
        coords: Variables = {
            **labels,
            **law_values(labels, self.grid.description),
            "seed": np.arange(seeds),
        }
        failures = [
            {"cell": self._named(index), "first_seed": low, "error": error}
            for (index, low), error in sorted(self.failures.items())
        ]
        ends = (
            set(np.unique(data["outcome"][1])) - {Outcome.OK, Outcome.REACHED, ""}
            if "outcome" in data
            else set()
        )
        advice = {name: Outcome.ADVICE[name] for name in sorted(ends)}
        attrs = {
            "schema": FORMAT,
            "hash": self.grid.hash,
            "description": json.dumps(self.grid.description),
            "failures": json.dumps(failures),
            "advice": json.dumps(advice),
            "versions": json.dumps(versions()),
            "papers": json.dumps(list(papers)),
        }
        return with_meanings(xr.Dataset(data, coords, attrs))

    def _named(self, index: Index) -> Json:
        return {
            key: labels[i]
            for (key, labels), i in zip(self.grid.labels().items(), index, strict=True)
        }
