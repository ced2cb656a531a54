"""Reductions: what is kept of each run.

    final       risk, excess_risk, loss, error (of labels ±1), overlap ‖M‖_F, M, time,
                step and alpha at the end
    exit_time   time and step where the threshold of `until` was reached (NaN where it
                was not)
    trajectory  risk, excess_risk, loss, error, overlap, M,
                a and the clocks at every save point

A function of your own takes the dataset of one run (as `solve` makes it, without the
seed axis) and returns a dataset, or a table of numbers. It sees one run at a time, so
that adding seeds changes no number; averages over seeds are taken afterwards, on the
result.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from twolayer.numerics.errors import InputError, choice
from twolayer.sweeps.fingerprint import fingerprint
from twolayer.task.method import Outcome

__all__ = ["Block", "Quantity", "Reduction", "reduction_of"]


CLOCKS = ("time", "step", "alpha")
READINGS = ("loss", "error")
"""What a cell may lack where others have it."""


class Block(NamedTuple):
    """The runs of one unit at its save points: arrays with leading axes (seed, save
    point).

    ``stops`` are the clocks at which runs ended before that (seed,), ``read`` the mean
    loss and, for labels ±1, the classification error.
    """

    M: np.ndarray
    a: np.ndarray
    risk: np.ndarray
    excess_risk: np.ndarray
    clocks: dict[str, np.ndarray]
    outcome: np.ndarray
    stops: dict[str, np.ndarray]
    read: dict[str, np.ndarray]


class Quantity(NamedTuple):
    """Inner dimensions (beyond the grid and the seed), their sizes, and the type."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str = "<f8"


Values = dict[str, tuple[tuple[str, ...], np.ndarray]]
"""Per variable its inner dimensions and an array with a leading seed axis."""


def _norm(M: np.ndarray) -> np.ndarray:
    return np.sqrt((M * M).sum((-1, -2)))


def _outcome(block: Block) -> np.ndarray:
    return np.array([Outcome.CODES.index(x) for x in block.outcome], "i1")


def _final(block: Block) -> Values:
    M = block.M[:, -1]
    return {
        "risk": ((), block.risk[:, -1]),
        "excess_risk": ((), block.excess_risk[:, -1]),
        **{name: ((), x[:, -1]) for name, x in block.read.items()},
        "overlap": ((), _norm(M)),
        "M": (("neuron", "direction"), M),
        **{name: ((), _end(block, name)) for name in CLOCKS},
        "outcome": ((), _outcome(block)),
    }


def _end(block: Block, clock: str) -> np.ndarray:
    """Where each run ended: where it stopped, or at the last save point."""
    stop = block.stops[clock]
    return np.where(np.isnan(stop), block.clocks[clock][-1], stop)


def _exit_time(block: Block) -> Values:
    reached = block.outcome == Outcome.REACHED
    return {
        "exit_time": ((), np.where(reached, block.stops["time"], np.nan)),
        "exit_step": ((), np.where(reached, block.stops["step"], np.nan)),
        "outcome": ((), _outcome(block)),
    }


def _trajectory(block: Block) -> Values:
    n = len(block.M)
    clocks = {
        name: (("save_point",), np.repeat(x[None], n, axis=0))
        for name, x in block.clocks.items()
    }
    return {
        "risk": (("save_point",), block.risk),
        "excess_risk": (("save_point",), block.excess_risk),
        **{name: (("save_point",), x) for name, x in block.read.items()},
        "overlap": (("save_point",), _norm(block.M)),
        "M": (("save_point", "neuron", "direction"), block.M),
        "a": (("save_point", "neuron"), block.a),
        **clocks,
        "outcome": ((), _outcome(block)),
    }


@dataclass(frozen=True)
class Reduction:
    """A reduction by name, or a function of the dataset of one run."""

    name: str  # what the description of a sweep records
    of_block: Callable[[Block], Values] | None = None
    of_run: Callable[[xr.Dataset], object] | None = None
    main: str | None = (
        None  # the variable whose standard error `target_se` means when it is a number
    )
    ends_only: bool = False  # the save points between start and end are not looked at
    importable: bool = True  # other processes can find it by its name
    reads: bool = True  # mean loss and classification error are looked at

    def template(
        self, p: int, k: int, points: int, read: Sequence[str] = ()
    ) -> dict[str, Quantity] | None:
        """What the reduction yields, if that is known beforehand; ``read`` are the
        names of further readings.
        """
        if self.of_block is None:
            return None
        n = 2 if self.ends_only else points
        zero, one = np.zeros((1, n)), np.zeros(1)
        clocks = {name: np.zeros(n) for name in CLOCKS}
        outcome = np.array([Outcome.OK])
        stops, others = dict.fromkeys(CLOCKS, one), dict.fromkeys(read, zero)
        blank = Block(
            np.zeros((1, n, p, k)),
            np.zeros((1, n, p)),
            zero,
            zero,
            clocks,
            outcome,
            stops,
            others,
        )
        values = self.of_block(blank)
        return {
            name: Quantity(dims, x.shape[1:], x.dtype.newbyteorder("<").str)
            for name, (dims, x) in values.items()
        }

    def of_datasets(self, dataset: xr.Dataset) -> Values:
        """A function of the user's, applied to one run after the other."""
        assert self.of_run is not None
        runs = [
            _checked(self.of_run(dataset.isel(seed=r)), self.name)
            for r in range(dataset.sizes["seed"])
        ]
        first = runs[0]
        for run in runs[1:]:
            if {k: v[0] for k, v in run.items()} != {k: v[0] for k, v in first.items()}:
                raise InputError(
                    f"The reduction {self.name} must return the same variables for"
                    " every run."
                )
        return {
            name: (first[name][0], np.stack([run[name][1] for run in runs]))
            for name in first
        }


def _checked(result: object, name: str) -> Values:
    """What a user's reduction returned, as arrays."""
    if isinstance(result, xr.DataArray):
        result = result.to_dataset(name=result.name or "value")
    items: object = result.data_vars if isinstance(result, xr.Dataset) else result
    if not isinstance(items, Mapping) or not items:
        raise InputError(
            f"The reduction {name} must return a Dataset or a table of numbers, but"
            f" gave {result!r:.60}."
        )
    values: Values = {}
    for key, value in items.items():
        dims = (
            tuple(str(d) for d in value.dims) if isinstance(value, xr.DataArray) else ()
        )
        array = np.asarray(value)
        if array.dtype.kind not in "bif" or array.ndim != len(dims):
            raise InputError(
                f"The reduction {name} must return numbers, but `{key}` is"
                f" {value!r:.60}."
            )
        values[str(key)] = (dims, array.astype("<f8"))
    return values


NAMED = {
    "final": Reduction("final", _final, main="excess_risk", ends_only=True),
    "exit_time": Reduction(
        "exit_time", _exit_time, main="exit_time", ends_only=True, reads=False
    ),
    "trajectory": Reduction("trajectory", _trajectory),
}


def _importable(function: object) -> bool:
    module, name = (
        getattr(function, "__module__", None),
        getattr(function, "__qualname__", ""),
    )
    if module in (None, "__main__") or "<" in name:
        return False
    try:
        return getattr(importlib.import_module(str(module)), name, None) is function
    except ImportError:
        return False


def reduction_of(reduce: object) -> Reduction:
    """The reduction that an argument ``reduce`` asks for.

    Examples
    --------
    >>> reduction_of("final").main
    'excess_risk'
    """
    if isinstance(reduce, Reduction):
        return reduce
    if not callable(reduce):
        return NAMED[choice("reduce", reduce, NAMED)]
    module = getattr(reduce, "__module__", "?")
    name = f"{module}.{getattr(reduce, '__qualname__', 'function')}"
    found = _importable(reduce)
    # the text of the function is part of its name: a changed reduction is another sweep
    if found:
        name += f"#{fingerprint(reduce)}"
    return Reduction(name, of_run=reduce, importable=found)
