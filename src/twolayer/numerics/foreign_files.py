"""Files from elsewhere: nothing but data is taken from them, and whatever is wrong with them is said in one sentence.

format twolayer/N    N is raised whenever files change so that an older version would misread them
size   before memory is taken, what a file declares is compared with what it holds
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import zipfile
import zlib
from collections.abc import Iterator

from twolayer.numerics.errors import InputError, RunFailed, short

__all__ = ["check_format", "check_size", "reading"]

SMALL, RATIO = (
    2**28,
    64,
)  # bytes that any file may declare, and how many times its own size a larger one may
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
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # no fault of the file


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what goes wrong inside into one sentence about a file or a result.

    >>> with reading("The store 'x.zarr'"):
    ...     {}["units"]
    Traceback (most recent call last):
    twolayer.InputError: The store 'x.zarr' must hold what twolayer wrote, but is damaged or foreign: KeyError 'units'.
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
    twolayer.InputError: The file 'x.nc' has the format twolayer/9, but this version reads twolayer/1: update twolayer.
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
            f"{what} has the format {found}, but this version reads {ours}: update twolayer."
        )


def memory() -> int:
    """Bytes of memory of this machine."""
    return (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if hasattr(os, "sysconf")
        else 2**36
    )


def check_size(what: str, declared: int, held: int | None = None) -> None:
    """Refuse what declares far more than it holds, or more than half of the memory of this machine.

    >>> check_size("The file 'x.nc'", 2**50, held=2000)
    Traceback (most recent call last):
    twolayer.InputError: The file 'x.nc' declares 1.05e+06 GiB of data in 2 kB, which is not how twolayer writes.
    """
    if held is not None and declared > max(SMALL, RATIO * held):
        size = f"{declared / 2**30:.3g} GiB of data in {held / 1000:.3g} kB"
        raise InputError(f"{what} declares {size}, which is not how twolayer writes.")
    whole = memory()
    if declared > max(SMALL, whole // 2):
        size = f"{declared / 2**30:.3g} GiB, more than half of the {whole / 2**30:.3g} GiB of this machine"
        raise InputError(f"{what} needs {size}.")
