"""Results on disk: netCDF, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import xarray as xr

from twolayer.numerics.errors import InputError, path_of, reject, short
from twolayer.numerics.writing import write_atomically
from twolayer.running.comparison import Comparison
from twolayer.running.dataset import SCHEMA
from twolayer.sweeps.files import load_sweep

__all__ = ["load", "save"]


def save(result: xr.Dataset | xr.DataTree | Comparison, path: str | os.PathLike[str]) -> Path:
    """Write a result as netCDF, all or nothing.

    Parameters
    ----------
    result : xarray.Dataset, Comparison or xarray.DataTree
        From `solve` or `compare`; the tree of a comparison will do.
    path : str or path
        A name that ends in ``.nc``.
    """
    if path_of("path", path).suffix != ".nc":
        raise InputError(f"Argument `path` must end in .nc, but got {short(str(path))}.")
    data = result.tree if isinstance(result, Comparison) else result
    if not isinstance(data, xr.Dataset | xr.DataTree):
        reject("result", result, "a Dataset from solve or a Comparison")
    return write_atomically(path, lambda file: data.to_netcdf(file, engine="h5netcdf"))


def load(path: str | os.PathLike[str]) -> xr.Dataset | Comparison:
    """Read a result back: a Dataset from `solve`, a Comparison from `compare`, what a store of `sweep` holds so far.

    Parameters
    ----------
    path : str or path
        A ``.nc`` file or a ``.zarr`` store.
    """
    source = path_of("path", path)
    if source.suffix == ".zarr":
        return load_sweep(source)
    if not source.is_file():
        raise InputError(f"Argument `path` must be an existing file, but {str(path)!r} is none.")
    try:
        with xr.open_datatree(source, engine="h5netcdf") as tree:
            tree.load()
    except (OSError, ValueError) as error:
        raise InputError(f"Argument `path` must be a netCDF file of twolayer, but {str(path)!r} is not.") from error
    if tree.attrs.get("schema") != SCHEMA:
        raise InputError(f"Argument `path` must be a result of twolayer, but {str(path)!r} has no such description.")
    return Comparison(tree) if tree.children else tree.to_dataset()
