"""Results on disk: netCDF, written whole or not at all."""

from __future__ import annotations

import math
import os
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from twolayer.loops.checkpoint import release
from twolayer.numerics.errors import InputError, path_of, reject, short
from twolayer.numerics.foreign_files import RATIO, check_format, check_size, reading
from twolayer.numerics.writing import write_atomically
from twolayer.running.comparison import Comparison
from twolayer.running.dataset import SCHEMA, check_result
from twolayer.sweeps.files import load_sweep

__all__ = ["load", "save"]

DEPTH, OBJECTS = 2, 10_000  # groups within groups, and parts of a file in all
RANK = 12  # axes of an array
ROOM = 2**24  # bytes for names and attributes
SHUFFLE, DEFLATE, FLETCHER = 2, 1, 3
FILTERS = (
    SHUFFLE,
    DEFLATE,
    FLETCHER,
)  # those that HDF5 itself brings, in the order in which they make sense
TEXT = 64  # bytes that a text takes in memory, beside its characters
PACKED = ("scale_factor", "add_offset", "missing_value", "_Unsigned")
"""Attributes with which readers make larger numbers of small ones."""
AXES = "DIMENSION_LIST"
SCALES = "REFERENCE_LIST"
"""Attributes in which HDF5 keeps which axis belongs to which coordinate."""
SLAB = 2**26  # bytes of texts that are read at a time


def save(
    result: xr.Dataset | xr.DataTree | Comparison, path: str | os.PathLike[str]
) -> Path:
    """Write a result as netCDF, all or nothing.

    What is there stays until the new file is whole and on the disk; it keeps its mode,
    a new file has that of the umask, and a link is followed. The checkpoint of the run,
    if it had one, is removed then.

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
    file = write_atomically(path, _in_memory(data))
    release(data)
    return file


def _in_memory(data: xr.Dataset | xr.DataTree) -> memoryview:
    """The bytes of a netCDF file.

    HDF5 brings the process down when it cannot write, be it to a disk or to memory: it
    tries again when it closes the file, and once more at the end of the process. So it
    gets memory that is there.
    """
    reserve = bytearray(data.nbytes + data.nbytes // 4 + ROOM)
    del reserve
    return data.to_netcdf(engine="h5netcdf")


def load(path: str | os.PathLike[str]) -> Any:
    """Read a result back: a Dataset from `solve`, a Comparison from `compare`, what a
    store of `sweep` holds so far.

    Parameters
    ----------
    path : str or path
        A ``.nc`` file or a ``.zarr`` store.

    Returns
    -------
    xarray.Dataset or Comparison
        What the file holds. Only the file knows which of the two, so that type checkers
        are told nothing: a union would ask every caller to rule out the other one.

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
            f"Argument `path` must be an existing file, but {short(str(path), 200)} is"
            " none."
        )
    what = f"The file {short(str(path), 200)}"
    with reading(what):
        _check_contents(source, what)
        with xr.open_datatree(source, engine="h5netcdf", decode_times=False) as tree:
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


class _Budget:
    """Bytes that a file may take in memory, counted before they are taken."""

    def __init__(self, path: Path, what: str) -> None:
        self.what, self.held, self.total = what, path.stat().st_size, 0

    def add(self, size: int) -> None:
        """So many more, or a sentence that they are too many."""
        self.total += size
        check_size(self.what, self.total, self.held)


def _check_contents(path: Path, what: str) -> None:
    """Refuse, before arrays are read, what twolayer does not write and what does not
    fit into memory.

    Links that lead out of a file, filters that are not HDF5's own, kinds other than
    numbers and texts, numbers that are to be unpacked; and texts that stand in the file
    once and are referred to a million times, or chunks that inflate beyond their size.
    """
    count, budget = 0, _Budget(path, what)
    with h5py.File(path, "r") as file:
        groups: list[tuple[h5py.Group, int]] = [(file, 0)]
        _check_attributes(file, budget)
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
                _check_attributes(item, budget)
                if isinstance(item, h5py.Group):
                    groups.append((item, depth + 1))
                elif isinstance(item, h5py.Dataset):
                    _check_array(item, name, budget)


def _check_array(item: h5py.Dataset, name: str, budget: _Budget) -> None:
    """The same of one array."""
    plist = item.id.get_create_plist()
    filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    if (
        item.is_virtual
        or item.external
        or filters != [x for x in FILTERS if x in filters]
    ):
        raise ValueError(f"its part {name!r} is stored elsewhere")
    if item.shape is None:
        return
    text = h5py.check_string_dtype(item.dtype)
    varies = text is not None and text.length is None
    packed = [word for word in PACKED if word in item.attrs]
    if packed or ("_FillValue" in item.attrs and item.dtype.kind in "iub"):
        raise ValueError(f"its part {name!r} is to be unpacked")
    width = item.dtype.itemsize + (0 if text is None else TEXT)
    chunk = width * math.prod(item.chunks or ())
    budget.add(
        max(width * item.size, chunk)
    )  # a chunk is read whole, however little of it is meant
    if DEFLATE in filters:
        _check_chunks(item, chunk, filters)
    if varies:
        _count_texts(item, budget)
    elif (text is None and item.dtype.kind not in "iufbc") or item.dtype.hasobject:
        raise TypeError(f"the kind of {name!r}")


def _check_chunks(item: h5py.Dataset, size: int, filters: list[int]) -> None:
    """Refuse chunks that inflate to more than they declare: HDF5 takes the memory
    first.
    """
    for i in range(item.id.get_num_chunks()):
        skipped, packed = item.id.read_direct_chunk(
            item.id.get_chunk_info(i).chunk_offset
        )
        if not skipped >> filters.index(DEFLATE) & 1:
            inflated = zlib.decompressobj().decompress(packed, size + 1)
            if len(inflated) > size:
                raise ValueError(f"a chunk of {item.name!r} inflates beyond its size")


def _count_texts(item: h5py.Dataset, budget: _Budget) -> None:
    """Add the lengths of texts, few at a time: each may be as long as the file."""
    step = max(1, SLAB // max(1, budget.held))
    texts = h5py.special_dtype(vlen=bytes)
    for low in range(0, item.size, step):
        count = min(step, item.size - low)
        places = np.stack(
            np.unravel_index(np.arange(low, low + count), item.shape or (1,)), axis=1
        )
        space = item.id.get_space()
        if item.shape:
            space.select_elements(places)
        found = np.empty(count, texts)
        item.id.read(h5py.h5s.create_simple((count,)), space, found)
        budget.add(sum(len(text or b"") for text in found))


def _check_attributes(item: h5py.Group | h5py.Dataset, budget: _Budget) -> None:
    """Add the lengths of attributes; lists of texts are read whole, so that they are
    bounded before.
    """
    for name in item.attrs:
        known = item.attrs.get_id(name)
        budget.add(known.get_storage_size())
        if name == AXES and h5py.check_ref_dtype(
            h5py.check_vlen_dtype(known.dtype) or known.dtype
        ):
            _check_axes(item, known.shape)
        elif h5py.check_string_dtype(known.dtype) is not None:
            _count_words(item, name, known.shape, budget)
        elif known.dtype.kind not in "iufbc" and name != SCALES:
            raise TypeError(f"the kind of the attribute {name!r}")


def _check_axes(item: h5py.Group | h5py.Dataset, shape: tuple[int, ...]) -> None:
    """Refuse axes that have more than their one coordinate: lists of references are
    read whole.
    """
    axes = getattr(item, "shape", None) or ()
    if shape != (len(axes),) or len(axes) > RANK:
        raise ValueError(f"the axes of {short(item.name)}")
    if sum(len(references) for references in item.attrs[AXES]) > len(axes):
        raise ValueError(f"the axes of {short(item.name)}")


def _count_words(
    item: h5py.Group | h5py.Dataset,
    name: str,
    shape: tuple[int, ...] | None,
    budget: _Budget,
) -> None:
    if math.prod(shape or ()) > RATIO:
        raise ValueError(f"the list of texts {name!r}")
    value = item.attrs[name]
    budget.add(sum(len(str(text)) for text in np.ravel(np.asarray(value, object))))
