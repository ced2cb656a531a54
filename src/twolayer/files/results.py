"""Results on disk: netCDF, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import xarray as xr

from twolayer.numerics.errors import InputError, path_of, reject, short
from twolayer.numerics.foreign_files import check_format, check_size, reading
from twolayer.numerics.writing import write_atomically
from twolayer.running.comparison import Comparison
from twolayer.running.dataset import SCHEMA, check_result
from twolayer.sweeps.files import load_sweep

__all__ = ["load", "save"]

DEPTH, OBJECTS = 2, 10_000  # groups within groups, and parts of a file in all
FILTERS = {1, 2, 3}  # deflate, shuffle, checksums: those that HDF5 itself brings


def save(
    result: xr.Dataset | xr.DataTree | Comparison, path: str | os.PathLike[str]
) -> Path:
    """Write a result as netCDF, all or nothing.

    Parameters
    ----------
    result : xarray.Dataset, Comparison or xarray.DataTree
        From `solve` or `compare`; the tree of a comparison will do.
    path : str or path
        A name that ends in ``.nc``.

    Examples
    --------
    >>> import tempfile
    >>> import twolayer as tl
    >>> problem, start = tl.Problem("z1", "linear"), tl.Overlaps([[1.0]], [[0.0]])
    >>> result = tl.solve(
    ...     problem, tl.SGD(lr="0.5/d"), tl.Chain(20), start, steps=4, save=4
    ... )
    >>> save(result, f"{tempfile.mkdtemp()}/run.nc").name
    'run.nc'
    """
    if path_of("path", path).suffix != ".nc":
        raise InputError(
            f"Argument `path` must end in .nc, but got {short(str(path), 200)}."
        )
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

    Examples
    --------
    >>> import tempfile
    >>> import twolayer as tl
    >>> problem, start = tl.Problem("z1", "linear"), tl.Overlaps([[1.0]], [[0.0]])
    >>> result = tl.solve(
    ...     problem, tl.SGD(lr="0.5/d"), tl.Chain(20), start, steps=4, save=4
    ... )
    >>> load(save(result, f"{tempfile.mkdtemp()}/run.nc")).identical(result)
    True
    """
    source = path_of("path", path)
    if source.suffix == ".zarr":
        return load_sweep(source)
    if not source.is_file():
        raise InputError(
            f"Argument `path` must be an existing file, but {short(str(path), 200)} is none."
        )
    what = f"The file {short(str(path), 200)}"
    with reading(what):
        _check_contents(source, what)
        with xr.open_datatree(
            source, engine="h5netcdf", decode_timedelta=False
        ) as tree:
            tree.load()
        check_format(what, tree.attrs.get("schema"), SCHEMA)
        for node in tree.children.values() if tree.children else [tree]:
            if "gallery" not in node.attrs:
                check_result(node.to_dataset(), short(source.name))
        if not tree.children:
            return tree.to_dataset()
        found = Comparison(tree)
        str(found)  # reads all of it
        return found


def _check_contents(path: Path, what: str) -> None:
    """Refuse links that lead out of a file, filters that are not HDF5's own, and sizes that the file does not hold."""
    total, count = 0, 0
    with h5py.File(path, "r") as file:
        groups: list[tuple[h5py.Group, int]] = [(file, 0)]
        while groups:
            group, depth = groups.pop()
            for name in group:
                count += 1
                link = group.get(name, getlink=True)
                if (
                    depth > DEPTH
                    or count > OBJECTS
                    or not isinstance(link, h5py.HardLink)
                ):
                    raise ValueError(f"its part {name!r} leads elsewhere")
                item = group[name]
                if isinstance(item, h5py.Group):
                    groups.append((item, depth + 1))
                    continue
                plist = item.id.get_create_plist()
                filters = {plist.get_filter(i)[0] for i in range(plist.get_nfilters())}
                if item.is_virtual or item.external or not filters <= FILTERS:
                    raise ValueError(f"its part {name!r} is stored elsewhere")
                total += (
                    item.size * item.dtype.itemsize if item.shape is not None else 0
                )
    check_size(what, total, path.stat().st_size)
