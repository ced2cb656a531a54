"""Pieces of a figure that are kept on disk while it is made, so that an interrupted
figure goes on where it stopped.

    part("d=1000", compute)  =
        the dataset of compute(), or what an interrupted run with the same settings kept

Pieces lie in a hidden folder beside the files of the figure and go when the figure is
written.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import xarray as xr

__all__ = ["keeping", "part"]

_FOLDER: ContextVar[Path | None] = ContextVar(
    "folder of the figure that is being made", default=None
)


@contextmanager
def keeping(
    folder: Path | None, name: str, settings: Mapping[str, object]
) -> Iterator[Callable[[], None]]:
    """Keep the pieces of a figure under a folder while it is made; gives the call that
    removes them.

    Other settings of the same figure have other pieces. Without a folder nothing is
    kept.
    """
    place = None
    if folder is not None:
        mark = hashlib.sha256(
            json.dumps(settings, sort_keys=True).encode()
        ).hexdigest()[:12]
        place = folder / f".{name}-{mark}"
    token = _FOLDER.set(place)
    try:
        yield (
            lambda: (
                shutil.rmtree(place, ignore_errors=True) if place is not None else None
            )
        )
    finally:
        _FOLDER.reset(token)


def part(
    key: str, compute: Callable[[], xr.Dataset | Mapping[str, object]]
) -> xr.Dataset:
    """One piece of the figure that is being made, told from its others by a key."""
    folder = _FOLDER.get()
    if folder is None:
        return _dataset(compute())
    file = folder / (re.sub(r"[^-\w.=,]+", "_", key) + ".nc")
    if file.exists():
        with xr.open_dataset(file, engine="h5netcdf") as kept:
            return kept.load()
    data = _dataset(compute())
    from twolayer.files.results import save

    folder.mkdir(parents=True, exist_ok=True)
    save(data, file)
    return data


def _dataset(given: xr.Dataset | Mapping[str, object]) -> xr.Dataset:
    if isinstance(given, xr.Dataset):
        return given
    arrays = {name: np.asarray(value) for name, value in given.items()}
    return xr.Dataset(
        {
            name: ([f"{name}_{i}" for i in range(a.ndim)], a)
            for name, a in arrays.items()
        }
    )
