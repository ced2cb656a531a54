"""Files from elsewhere: nothing but data is taken from them, and whatever is wrong with
them is said in one sentence.

    format twolayer/N    N is raised whenever files change so that an older version
                         would misread them
    size                 before memory is taken, what a file declares is compared with
                         what it holds
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from twolayer.numerics.errors import InputError, RunFailed, short

__all__ = [
    "RATIO",
    "check_format",
    "check_size",
    "read_arrays",
    "read_regular",
    "reading",
]

SMALL = 2**25
"""Bytes that any file may declare; what looks at them takes some times as many."""
RATIO = 64
"""How many times its own size a larger one may."""
ENCRYPTED = 0x1  # among the flags of a part of an archive
FAULTS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    OSError,
    zlib.error,
    zipfile.BadZipFile,
)
DISK = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EIO,
    errno.EINTR,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
)
"""What is no fault of the file."""


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what goes wrong inside into one sentence about a file or a result.

    >>> with reading("The store 'x.zarr'"):
    ...     {}["units"]
    Traceback (most recent call last):
    twolayer.InputError: The store 'x.zarr' must hold what twolayer wrote, but is
    damaged or foreign: KeyError 'units'.
    """
    try:
        yield
    except (InputError, RunFailed):
        raise
    except FAULTS as error:
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        why = f"{type(error).__name__} {short(str(error).strip(chr(39)), 100)}"
        raise InputError(
            f"{what} must hold what twolayer wrote, but is damaged or foreign: {why}."
        ) from error


def check_format(what: str, found: object, ours: str) -> None:
    """Refuse a format that is not ours, or newer.

    >>> check_format("The file 'x.nc'", "twolayer/9", "twolayer/1")
    Traceback (most recent call last):
    twolayer.InputError: The file 'x.nc' has the format twolayer/9, but this version
    reads twolayer/1: update twolayer.
    """
    family, _, newest = ours.rpartition("/")
    match = (
        re.fullmatch(rf"{family}/(\d{{1,6}})", found)
        if isinstance(found, str)
        else None
    )
    if match is None or int(match[1]) < 1:
        raise InputError(
            f"{what} must be a result of twolayer, but has no such description."
        )
    if int(match[1]) > int(newest):
        raise InputError(
            f"{what} has the format {found}, but this version reads {ours}: update"
            " twolayer."
        )


def memory() -> int:
    """Bytes of memory of this machine."""
    return (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if hasattr(os, "sysconf")
        else 2**36
    )


def check_size(what: str, declared: int, held: int | None = None) -> None:
    """Refuse what declares far more than it holds, or more than half of the memory of
    this machine.

    >>> check_size("The file 'x.nc'", 2**50, held=2000)
    Traceback (most recent call last):
    twolayer.InputError: The file 'x.nc' declares 1.05e+06 GiB of data in 2 kB, which is
    not how twolayer writes.
    """
    if held is not None and declared > max(SMALL, RATIO * held):
        size = f"{declared / 2**30:.3g} GiB of data in {held / 1000:.3g} kB"
        raise InputError(f"{what} declares {size}, which is not how twolayer writes.")
    whole = memory()
    if declared > max(SMALL, whole // 2):
        size = (
            f"{declared / 2**30:.3g} GiB, more than half of the {whole / 2**30:.3g} GiB"
            " of this machine"
        )
        raise InputError(f"{what} needs {size}.")


def read_regular(path: Path, most: int, exact: bool = False) -> bytes:
    """The bytes of a plain file inside a store: no link, no pipe, no device, and no
    more than there may be.

    Of another size than ``exact`` asks for nothing is read. What is not there is an
    `OSError`, as usual.
    """
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError(f"{short(path.name)} is no plain file")
    if exact and facts.st_size != most:
        return b""
    if facts.st_size > most:
        raise ValueError(f"{short(path.name)} is larger than twolayer writes it")
    # somebody may put a pipe there just now: it does not keep us waiting
    flags = (
        os.O_RDONLY
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_BINARY", 0)
    )
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{short(path.name)} is no plain file")
        return file.read(most)


def read_arrays(path: Path, what: str, held: int | None = None) -> dict[str, Any]:
    """The arrays of an .npz file, of numbers and texts alone, whose sizes are looked at
    before memory is taken.

    ``held`` is what `check_size` compares them with, if there is a bound on how far a
    file may be compressed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            items = archive.infolist()
            check_size(what, sum(item.file_size for item in items), held)
            for item in items:
                _check_packing(item)
                with archive.open(item) as member:
                    _check_array(member, item)
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (EOFError, RuntimeError, zlib.error) as error:
        # what `zipfile` says of damaged archives, and of kinds that it does not know
        raise ValueError(f"the archive is damaged: {short(str(error))}") from error


def _check_packing(item: zipfile.ZipInfo) -> None:
    """Refuse what NumPy does not write: other ways of compression, encryption."""
    if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"the array {short(item.filename)} is packed in another way")
    if item.flag_bits & ENCRYPTED:
        raise ValueError(f"the array {short(item.filename)} is encrypted")


def _check_array(member: IO[bytes], item: zipfile.ZipInfo) -> None:
    """Refuse an array that declares another size than its place in the archive has."""
    known = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    read = known.get(np.lib.format.read_magic(member))
    if read is None:
        raise ValueError(f"the array {short(item.filename)} has a format of its own")
    shape, _, dtype = read(member)
    if dtype.hasobject:
        raise ValueError(f"the array {short(item.filename)} holds objects, not numbers")
    if member.tell() + math.prod(shape) * dtype.itemsize != item.file_size:
        raise ValueError(
            f"the array {short(item.filename)} declares another size than it has"
        )
