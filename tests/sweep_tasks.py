"""Sweeps that several test files and their child processes run: importable, small, and the same everywhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.running.progress import Events, Silent

OVER = {
    "algorithm.lr": ["0.1/d", "0.2/d", "0.3/d"],
    "method.dim": [80, 160, 240],
    "problem.noise": [0.0, 0.2],
}


def task(**changes: Any) -> dict[str, Any]:
    """Arguments of a sweep of 18 cells; the lanes of its cells have different lengths and tables."""
    return {
        "problem": tl.Problem("He2(z1)", "He2"),
        "algorithm": tl.SGD(lr="0.1/d", geometry="projected"),
        "method": tl.Chain(80),
        "over": OVER,
        "time": 0.5,
        "seeds": 3,
        **changes,
    }


def end(run: xr.Dataset) -> xr.Dataset:
    """The overlaps at the end."""
    return run[["M", "Q"]].isel(time=-1)


def spread(run: xr.Dataset) -> xr.Dataset:
    """A reduction of a user's: the range of the risk, and the second layer."""
    return xr.Dataset(
        {"range": run.risk.max() - run.risk.min(), "layer": run.a.isel(time=-1)}
    )


def fails_at_160(run: xr.Dataset) -> dict[str, float]:
    """A reduction that cannot treat some cells."""
    if (
        run.step[-1] % 5 == 0
        and float(run.risk[-1]) >= 0
        and '"dim": 160' in run.attrs["description"]
    ):
        raise ZeroDivisionError("no number here")
    return {"risk": float(run.risk[-1])}


def kills_its_worker(run: xr.Dataset) -> dict[str, float]:
    """A reduction that takes its process down in one cell."""
    if '"dim": 160' in run.attrs["description"]:
        os.kill(os.getpid(), 9)
    return {"risk": float(run.risk[-1])}


class Counts(Silent):
    """Which units were run in this call."""

    def __init__(self) -> None:
        self.units: list[tuple[str, int]] = []
        self.errors: list[str] = []

    def note(self, text: str, **about: Any) -> None:
        self.units.append((about["cell"], about["first_seed"]))
        if about["error"]:
            self.errors.append(about["error"])


def same(one: xr.Dataset, other: xr.Dataset) -> bool:
    """Bitwise equality of all variables, NaN for NaN."""
    return set(one.data_vars) == set(other.data_vars) and all(
        one[k].dims == other[k].dims
        and (
            np.array_equal(one[k].values, other[k].values)
            if one[k].dtype == object
            else np.asarray(one[k]).tobytes() == np.asarray(other[k]).tobytes()
        )
        for k in one.data_vars
    )


if (
    __name__ == "__main__"
):  # a child process: one unit in each batch, one event on each line
    tl.sweep(**task(), store=Path(sys.argv[1]), memory=1, progress=Events())
