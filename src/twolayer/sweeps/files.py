"""Stores as files: reading one without running anything, and merging two of the same sweep."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from twolayer.errors import InputError
from twolayer.methods.base import Outcome
from twolayer.precision import float64
from twolayer.results import versions
from twolayer.sweeps.batch import Result
from twolayer.sweeps.grid import FORMAT, digest
from twolayer.sweeps.reductions import Variable
from twolayer.sweeps.store import Store, read_header
from twolayer.sweeps.table import Index, Table

__all__ = ["load_sweep", "merge_sweeps"]


class _Cell:
    """A cell of a stored grid: its name and its seed."""

    def __init__(self, key: str, seed: int) -> None:
        self.key, self.seed = key, seed


class StoredGrid:
    """The grid that stores describe themselves, as far as reading and merging need one."""

    def __init__(self, *headers: dict[str, Any]) -> None:
        self.hash, self.description = headers[0]["hash"], headers[0]["description"]
        self.axes: dict[str, list[Any]] = {}
        for key in headers[0]["axes"]:
            every = [v for header in headers for v in header["axes"][key]]
            self.axes[key] = [v for i, v in enumerate(every) if v not in every[:i]]
            if all(isinstance(v, int | float) for v in self.axes[key]):
                self.axes[key].sort()
        self.shape = tuple(len(axis) for axis in self.axes.values())
        self.seeds = max(header["seeds"] for header in headers)

    def __iter__(self) -> Any:
        return iter(np.ndindex(*self.shape))

    def __len__(self) -> int:
        return int(np.prod(self.shape))

    def cell(self, index: Index) -> Any:
        """Key and seed of a cell, by the same rule as a `Grid`'s."""
        values = {key: axis[i] for (key, axis), i in zip(self.axes.items(), index, strict=True)}
        run = self.description["run"]
        seed = int(values.get("run.seed", run.get("seed", 0)))
        if run["streams"] == "independent":
            seed = int(digest([seed, values])[:16], 16)
        return _Cell(digest([self.hash, values]), seed)

    def labels(self) -> dict[str, list[Any]]:
        """The axes as coordinates, whole numbers as integers."""

        def label(value: Any, whole: bool) -> Any:
            if isinstance(value, bool | str):
                return value
            if isinstance(value, int | float):
                return int(value) if whole else value
            return json.dumps(value, sort_keys=True)

        numeric = {k: all(isinstance(v, float) and v == int(v) for v in axis) for k, axis in self.axes.items()}
        return {key: [label(v, numeric[key]) for v in axis] for key, axis in self.axes.items()}
