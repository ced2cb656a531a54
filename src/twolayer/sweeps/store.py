"""The results of a sweep on disk: a Zarr group, allocated first, filled by cell.

    results.zarr/zarr.json
        the description of the sweep, its hash, and its axes in the order they grew
    results.zarr/VARIABLE/c.i.j.b…
        one chunk for each cell (i, j) and block b of 16 seeds, plain little-endian
    results.zarr/journal/*.json
        which runs are done, each with its seed, its versions and a checksum
    results.zarr/journal/lock          byte-range locks: who works on what

A run counts as done when the journal says so *and* its bytes have the checksum written
there. Chunks are renamed into place and the journal is synced to disk after them, so a
kill or a power cut at any moment loses at most the batch in hand, and a chunk that did
not reach the disk is noticed and computed again. Units are claimed by locks that the
system releases when a process dies: two processes on one store share the work and never
write the same chunk. Axes and seeds only ever grow at their ends, so no chunk moves
when a sweep is extended; results are put in the order asked for when they are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import time as wall
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from twolayer.numerics.arguments import Json
from twolayer.numerics.errors import InputError, RunFailed, path_of, short
from twolayer.numerics.foreign_files import (
    check_format,
    check_size,
    read_regular,
    reading,
)
from twolayer.numerics.temporary_files import clear_stale, draft_of, passing
from twolayer.numerics.writing import put_file
from twolayer.sweeps.batch import SEED_BLOCK, Result
from twolayer.sweeps.grid import FORMAT, text_of
from twolayer.sweeps.locks import Locks, locks_module
from twolayer.sweeps.reductions import Quantity, Values
from twolayer.sweeps.table import Index, Layout, ResultTable, blank, fits

__all__ = ["Store", "read_header"]

TEXT = (
    2**26
)  # bytes that a header or a journal file may have: those of large sweeps have 10⁶


def zarr_module() -> ModuleType:
    """Zarr, or what to install."""
    try:
        import zarr
    except ImportError:
        raise InputError(
            "A store needs the package zarr: pip install 'twolayer[sweep]'."
        ) from None
    return zarr


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says to a write inside a store into one sentence."""
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"The store {short(str(path), 200)} could not be written"
            f" ({error.strerror or error}); all cells finished before are safe: make"
            " room and resume."
        ) from error


def checksum(values: Values) -> int:
    """Of names, sizes and bytes."""
    total = 0
    for name in sorted(values):
        dims, array = values[name]
        total = zlib.crc32(f"{name}{dims}{array.shape}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).tobytes(), total)
    return total


def read_header(path: str | os.PathLike[str]) -> Json:
    """What the group says about the sweep it holds, or an error that it is none of
    ours.
    """
    where = path_of("store", path)
    try:
        document = json.loads(read_regular(where / "zarr.json", TEXT))
        header = document["attributes"]["twolayer"]
        found = header["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"The store must be a sweep of twolayer, but {short(str(path), 200)} is"
            " none."
        ) from None
    what = f"The store {short(str(path), 200)}"
    check_format(what, found, FORMAT)
    with reading(what):
        return _checked_header(header, what)


def _checked_header(header: Json, what: str) -> Json:
    """A header whose names stay inside the store, and whose arrays fit into memory."""
    axes, variables = header["axes"], header["variables"]
    if header["seed_block"] != SEED_BLOCK or not isinstance(header["hash"], str):
        raise ValueError("its blocks of seeds")
    if not isinstance(header["description"]["run"], dict) or not isinstance(
        header["description"]["method"], dict
    ):
        raise TypeError("its description")
    for name in [*axes, *variables]:
        if (
            not re.fullmatch(r"[A-Za-z_][\w.]*", name)
            or ".." in name
            or name == "journal"
        ):
            raise ValueError(f"the name {short(name)}")
    if not all(isinstance(axis, list) for axis in axes.values()):
        raise TypeError("its axes")
    total, cells = (
        0,
        math.prod(len(axis) for axis in axes.values())
        * (int(header["seeds"]) + SEED_BLOCK),
    )
    for variable in variables.values():
        sizes = [*variable["shape"], *variable["chunk"]]
        if not all(isinstance(n, int) and n >= 0 for n in sizes) or len(
            sizes
        ) != 2 * len(variable["dims"]):
            raise ValueError("the sizes of an array")
        if np.dtype(variable["dtype"]).kind not in "fiub" or not all(variable["chunk"]):
            raise TypeError("the kind of an array")
        total += (
            cells * math.prod(variable["shape"]) * np.dtype(variable["dtype"]).itemsize
        )
    if header["seeds"] < 0:
        raise ValueError("its number of seeds")
    check_size(what, total + cells)
    return dict(header)


class Store:
    """A sweep on disk, opened for the cells and seeds of a grid."""

    def __init__(self, path: str | os.PathLike[str], grid: Layout) -> None:
        self.path, self.grid = Path(path), grid
        self._read: set[str] = set()
        self._refresh_header()
        self._opened: Locks | None = None
        self._claimed: set[int] = set()

    @staticmethod
    def check(path: str | os.PathLike[str], grid: Layout, resume: bool) -> None:
        """Reject a path that cannot hold this sweep; nothing is written."""
        zarr_module()
        locks_module()
        where = path_of("store", path)
        if where.suffix != ".zarr":
            raise InputError(
                f"Argument `store` must end in .zarr, but got {short(str(path), 200)}."
            )
        if not where.exists():
            folder = where.parent
            if not folder.is_dir() or not os.access(folder, os.W_OK):
                raise InputError(
                    "Argument `store` must lie in a writable folder, but"
                    f" {short(str(folder), 200)} is not one."
                )
            return
        header = read_header(where)
        if header["hash"] != grid.hash:
            raise InputError(
                f"The store {short(str(path), 200)} holds another sweep:"
                f" {difference(header, grid)}."
            )
        if not resume:
            raise InputError(
                f"The store {short(str(path), 200)} exists already: go on with it"
                " (--resume, resume=True) or give another name."
            )
        if not os.access(where / "journal", os.W_OK):
            raise InputError(
                f"Argument `store` must be writable, but {short(str(path), 200)} is"
                " not."
            )

    @classmethod
    def open(cls, path: str | os.PathLike[str], grid: Layout, seeds: int) -> Store:
        """Open the store of a sweep, made first if there is none, with room for the
        cells and seeds of the grid.
        """
        where = Path(
            os.path.realpath(path)
        )  # a link to a place where there is nothing yet is followed
        with writing(Path(path)):
            if not where.exists():
                cls._create(where, grid)
            store = cls(path, grid)
            try:
                store.tidy()
                store.extend(seeds)
            except BaseException:
                store.close()
                raise
            return store

    @classmethod
    def _create(cls, path: Path, grid: Layout) -> None:
        zarr = zarr_module()
        clear_stale(path.parent)
        with passing(draft_of(path)) as draft:
            draft.mkdir()
            header = {
                "format": FORMAT,
                "hash": grid.hash,
                "description": grid.description,
                "axes": {key: [] for key in grid.axes},
                "seeds": 0,
                "seed_block": SEED_BLOCK,
                "variables": {},
            }
            zarr.create_group(draft, attributes={"twolayer": header}, overwrite=True)
            zarr.create_group(draft / "journal", overwrite=True)
            (draft / "journal" / "lock").touch()
            try:
                os.rename(draft, path)
            except OSError:
                if not path.exists():  # else another process was first: use its store
                    raise

    def _refresh_header(self) -> None:
        header = read_header(self.path)
        if header["hash"] != self.grid.hash:
            raise InputError(
                f"The store {short(str(self.path), 200)} holds another sweep:"
                f" {difference(header, self.grid)}."
            )
        self.header = header
        with reading(f"The store {short(str(self.path), 200)}"):
            for name in ("journal", *header["axes"], *header["variables"]):
                if (self.path / name).is_symlink():
                    raise ValueError(f"{name} leads elsewhere")
            self._find_places(header)

    def _find_places(self, header: Json) -> None:
        known = {
            key: {text_of(v): i for i, v in enumerate(axis)}
            for key, axis in header["axes"].items()
        }
        self._places = [
            [known[key].get(text_of(v)) for v in axis]
            for key, axis in self.grid.names.items()
        ]
        # the store keeps its own order of axes
        order = list(self.grid.axes)
        self._order = [order.index(key) for key in header["axes"]]
        self.variables = {
            name: (
                Quantity(tuple(v["dims"]), tuple(v["shape"]), v["dtype"]),
                tuple(v["chunk"]),
            )
            for name, v in header["variables"].items()
        }

    def _place(self, index: Index) -> Index | None:
        """Where a cell of the grid lies in the store."""
        found = [self._places[i][index[i]] for i in self._order]
        return None if None in found else tuple(int(i) for i in found if i is not None)

    # growing

    def tidy(self) -> None:
        """Remove what killed processes were writing."""
        with (
            self._locks.whole()
        ):  # under which alone Zarr writes, with drafts of its own
            inner = [x for x in self.path.iterdir() if x.is_dir()]
            arrays = [x for x in inner if not x.is_symlink()]
            # coordinates have their chunks one folder further down
            chunks = [x / "c" for x in arrays if not (x / "c").is_symlink()]
            for folder in (self.path, *arrays, *chunks):
                clear_stale(folder)
                for draft in folder.glob("*.partial"):
                    draft.unlink(missing_ok=True)

    def extend(self, seeds: int) -> None:
        """Make room for the grid's cells and for seeds; nothing that is there moves."""
        with writing(self.path), self._locks.whole():
            self._refresh_header()
            axes: dict[str, list[Any]] = self.header["axes"]
            for key, axis in self.grid.names.items():
                known = {text_of(v) for v in axes[key]}
                axes[key] += [
                    json.loads(text_of(v)) for v in axis if text_of(v) not in known
                ]
            self.header["seeds"] = max(self.header["seeds"], seeds)
            self._write_header()
        self._refresh_header()

    def allocate(self, variables: Mapping[str, Quantity]) -> None:
        """Make the arrays, or let them grow to the sizes asked for."""
        with writing(self.path), self._locks.whole():
            self._refresh_header()
            old = self.header["variables"]
            for name, variable in variables.items():
                shape = list(variable.shape)
                chunk = [max(1, n) for n in shape]
                if name in old:
                    if tuple(old[name]["dims"]) != variable.dims:
                        raise InputError(
                            f"The store holds `{name}` over {old[name]['dims']}, not"
                            f" {variable.dims}."
                        )
                    shape = [
                        max(m, n)
                        for m, n in zip(old[name]["shape"], shape, strict=True)
                    ]
                    chunk = old[name]["chunk"]
                old[name] = {
                    "dims": list(variable.dims),
                    "shape": shape,
                    "dtype": variable.dtype,
                    "chunk": chunk,
                }
            self._write_header()
        self._refresh_header()

    def _write_header(self) -> None:
        """Array sizes and coordinates first, the group that speaks of them last."""
        with reading(f"The store {short(str(self.path), 200)}"):
            self._write_arrays()

    def _write_arrays(self) -> None:
        outer = [len(axis) for axis in self.header["axes"].values()] + [
            self.header["seeds"]
        ]
        names = [*self.header["axes"], "seed"]
        for name, v in self.header["variables"].items():
            shape = (*outer, *v["shape"])
            if (self.path / name / "zarr.json").exists():
                document = json.loads(
                    read_regular(self.path / name / "zarr.json", TEXT)
                )
                if [codec["name"] for codec in document["codecs"]] != [
                    "bytes"
                ]:  # chunks are written as they are
                    raise ValueError(f"the codecs of {name}")
                if document["shape"] != list(shape):
                    document["shape"] = list(shape)
                    put_file(
                        self.path / name / "zarr.json", json.dumps(document, indent=2)
                    )
                continue
            self._put_array(
                name,
                shape=shape,
                chunks=(*(1 for _ in self.header["axes"]), SEED_BLOCK, *v["chunk"]),
                dtype=v["dtype"],
                compressors=None,
                fill_value=float("nan") if np.dtype(v["dtype"]).kind == "f" else -1,
                dimension_names=[*names, *v["dims"]],
                chunk_key_encoding={"name": "default", "separator": "."},
            )
        for key, axis in self.header["axes"].items():
            self._write_coordinate(key, axis)
        document = json.loads(read_regular(self.path / "zarr.json", TEXT))
        document["attributes"]["twolayer"] = self.header
        put_file(self.path / "zarr.json", json.dumps(document, indent=2))

    def _write_coordinate(self, key: str, axis: list[Any]) -> None:
        """The values of an axis, for readers of the Zarr group; texts that are no
        numbers as JSON of their own.
        """
        if all(isinstance(v, bool | float | int) for v in axis):
            data = np.array(axis)
        else:
            texts = [v if isinstance(v, str) else json.dumps(v) for v in axis]
            data = np.array(texts).astype(np.dtypes.StringDType())
        self._put_array(key, data=data, dimension_names=[key])

    def _put_array(self, name: str, **settings: Any) -> None:
        """Write what Zarr writes for an array, where it is not there already.

        Zarr itself writes to memory: on the disk it reads and writes through links, and
        waits for pipes.
        """
        made: dict[str, Any] = {}
        zarr_module().open_group(made, mode="w").create_array(name, **settings)
        files = {
            self.path / place: buffer.to_bytes()
            for place, buffer in made.items()
            if place.startswith(f"{name}/")
        }
        if all(_holds(file, content) for file, content in files.items()):
            return
        # without a description there is no array: it goes first and comes last, so that
        # no kill leaves an array without its values
        described = self.path / name / "zarr.json"
        description = files.pop(described)
        described.unlink(missing_ok=True)
        for file, content in {**files, described: description}.items():
            for folder in (self.path / name, file.parent):
                folder.mkdir(exist_ok=True)
                if folder.is_symlink():
                    raise ValueError(f"{name} leads elsewhere")
            put_file(file, content)

    # claims

    @property
    def _locks(self) -> Locks:
        """The lock file, opened when it is first needed: readers leave it alone."""
        if self._opened is None:
            self._opened = Locks.of(self.path / "journal" / "lock")
        return self._opened

    def _byte(self, index: Index, low: int) -> int:
        name = f"{self.grid.cell(index).key}:{low // SEED_BLOCK}"
        return 1 + int(hashlib.sha256(name.encode()).hexdigest()[:12], 16)

    def claim(self, index: Index, low: int) -> bool:
        """Take a cell's block of seeds, unless another process or another store of this
        one has it.
        """
        byte = self._byte(index, low)
        if not self._locks.claim(byte):
            return False
        self._claimed.add(byte)
        return True

    def release(self, index: Index, low: int) -> None:
        """Give it back."""
        byte = self._byte(index, low)
        self._locks.release(byte)
        self._claimed.discard(byte)

    def close(self) -> None:
        """Give everything back."""
        if self._opened is not None:
            for byte in self._claimed:
                self._opened.release(byte)
            self._opened.close()
            self._opened = None
            self._claimed.clear()

    # reading and writing

    def _files(
        self, place: Index, name: str, block: int
    ) -> Iterator[tuple[Path, tuple[slice, ...]]]:
        """Chunk files of a variable in a cell's block of seeds, each with the part of
        the inner array it holds.
        """
        variable, chunk = self.variables[name]
        counts = [-(-n // c) for n, c in zip(variable.shape, chunk, strict=True)]
        for inner in itertools.product(*map(range, counts)):
            numbers = ".".join(map(str, (*place, block, *inner)))
            yield (
                self.path / name / f"c.{numbers}",
                tuple(
                    slice(i * c, (i + 1) * c) for i, c in zip(inner, chunk, strict=True)
                ),
            )

    def _load_block(self, place: Index, name: str, block: int) -> np.ndarray:
        """A cell's block of seeds of one variable; what is missing or cut short is
        blank.
        """
        variable, chunk = self.variables[name]
        rounded = tuple(
            -(-n // c) * c for n, c in zip(variable.shape, chunk, strict=True)
        )
        whole = blank((SEED_BLOCK, *rounded), variable.dtype)
        for file, part in self._files(place, name, block):
            with (
                reading(f"The store {short(str(self.path), 200)}"),
                contextlib.suppress(FileNotFoundError),
            ):
                size = SEED_BLOCK * math.prod(chunk) * np.dtype(variable.dtype).itemsize
                data = np.frombuffer(
                    read_regular(file, size, exact=True), variable.dtype
                )
                if data.size:
                    whole[(slice(None), *part)] = data.reshape(SEED_BLOCK, *chunk)
        return whole

    def _write_block(
        self, place: Index, name: str, block: int, whole: np.ndarray
    ) -> None:
        for file, part in self._files(place, name, block):
            # the journal, which is written durably, has the checksum of what a power
            # cut may take here
            put_file(
                file,
                np.ascontiguousarray(whole[(slice(None), *part)]).tobytes(),
                durable=False,
            )

    def commit(self, results: list[tuple[Index, int, Result]]) -> None:
        """Write the results of units, then say in the journal that they are there."""
        entries = []
        with writing(self.path):
            for index, low, result in results:
                cell, place = self.grid.cell(index), self._place(index)
                assert place is not None
                entry: Json = {
                    "place": place,
                    "key": cell.key,
                    "seed": cell.seed,
                    "low": low,
                }
                if result.values is None:
                    entry["error"] = result.error
                else:
                    entry |= self._write_values(place, low, result.values)
                entries.append({**entry, "seconds": round(result.seconds, 6)})
            record = {
                "versions": results[0][2].versions,
                "written": wall.time(),
                "units": entries,
            }
            name = f"{wall.time_ns()}-{os.getpid()}.json"
            put_file(self.path / "journal" / name, json.dumps(record))
        self._read.add(name)

    def _write_values(self, place: Index, low: int, values: Values) -> Json:
        """Put values into their chunks; what the journal is to say about them."""
        block, at = divmod(low, SEED_BLOCK)
        count = len(next(iter(values.values()))[1])
        for name, (_, array) in values.items():
            whole = self._load_block(place, name, block)
            inner = tuple(slice(0, n) for n in array.shape[1:])
            whole[at : at + count] = blank(
                whole[at : at + count].shape, whole.dtype.str
            )
            whole[(slice(at, at + count), *inner)] = array
            self._write_block(place, name, block, whole)
        shapes = {name: list(array.shape[1:]) for name, (_, array) in values.items()}
        return {"high": low + count, "shapes": shapes, "checksum": checksum(values)}

    def journal(self) -> list[str]:
        """Journal files, oldest first."""
        names = (f.name for f in os.scandir(self.path / "journal"))
        return sorted(
            n
            for n in names
            if n.endswith(".json") and not n.startswith(".") and n != "zarr.json"
        )

    def load(self, table: ResultTable) -> None:
        """Bring what is done, and was not read before, into a table of the grid."""
        fresh = [name for name in self.journal() if name not in self._read]
        if not fresh:
            return
        self._refresh_header()
        for name in fresh:
            self._read.add(name)
        with reading(f"The store {short(str(self.path), 200)}"):
            for index, unit, _ in self.units(fresh):
                self._load_unit(table, index, unit)

    def units(self, names: list[str]) -> Iterator[tuple[Index, Json, dict[str, str]]]:
        """Units of journal files that belong to the grid: index, entry, and the
        versions they were run with.
        """
        wanted = {self._place(index): index for index in self.grid}
        for name in names:
            record = json.loads(read_regular(self.path / "journal" / name, TEXT))
            for unit in record["units"]:
                index = wanted.get(tuple(unit["place"]))
                if not 0 <= unit["low"] < unit.get("high", math.inf):
                    raise ValueError(f"the runs in {name}")
                if index is not None and unit["key"] == self.grid.cell(index).key:
                    yield index, unit, record["versions"]

    def reload(self, table: ResultTable) -> None:
        """The same from the beginning, for a table that has grown."""
        self._read.clear()
        self.load(table)

    def _load_unit(self, table: ResultTable, index: Index, unit: Json) -> None:
        low = unit["low"]
        if "error" in unit:
            if low < table.seeds and not table.done[index][low]:
                table.failures[index, low] = unit["error"]
            return
        values = self.values_of(tuple(unit["place"]), unit)
        if values is None:
            return
        high = min(unit["high"], table.seeds)
        if high > low and (
            not table.variables or fits(values, table.variables) is None
        ):
            table.allocate(
                {
                    k: Quantity(dims, x.shape[1:], x.dtype.str)
                    for k, (dims, x) in values.items()
                }
            )
            table.write(
                index,
                low,
                {k: (dims, x[: high - low]) for k, (dims, x) in values.items()},
            )

    def values_of(self, place: Index, unit: Json) -> Values | None:
        """The values that the journal speaks of, or None where the bytes are not those
        that were written.
        """
        block, at = divmod(unit["low"], SEED_BLOCK)
        values: Values = {}
        for name, inner in unit["shapes"].items():
            whole = self._load_block(place, name, block)
            cut = (
                slice(at, at + unit["high"] - unit["low"]),
                *(slice(0, n) for n in inner),
            )
            values[name] = (self.variables[name][0].dims, whole[cut])
        return values if checksum(values) == unit["checksum"] else None


def _holds(file: Path, content: bytes) -> bool:
    """Whether a plain file is there with this content; what is there in its place is
    refused.
    """
    try:
        return read_regular(file, len(content), exact=True) == content
    except FileNotFoundError:
        return False


def difference(header: Json, grid: Layout) -> str:
    """The first key in which a store's description and a grid's differ, as a clause."""

    def flat(value: object, name: str = "") -> Json:
        if not isinstance(value, dict):
            return {name: value}
        return {
            k: v
            for key, part in value.items()
            for k, v in flat(part, f"{name}.{key}" if name else key).items()
        }

    theirs, ours = (
        flat(header["description"]),
        flat(json.loads(json.dumps(grid.description))),
    )
    for key in sorted(theirs.keys() | ours.keys()):
        if theirs.get(key) != ours.get(key):
            return (
                f"its `{key}` is {theirs.get(key, 'not fixed')!r}, not"
                f" {ours.get(key, 'fixed')!r}"
            )
    return "its description has another form"
