"""What a program asks of the system, seen one operation at a time, and made to fail.

    with watched(folder, meet): …          meet(Operation(kind, path)) before each of them, inside that folder

`meet` may raise what the system would say. For a write it may also return a number of bytes: no more are written, as
when a signal comes in between. Python's own files are replaced by ones whose raw writes are seen, so that nothing
that Python writes is missed; libraries that open files by themselves (HDF5) are not seen, and the package lets none.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

KINDS = (
    "look",
    "open",
    "write",
    "close",
    "sync",
    "rename",
    "remove",
    "make",
    "rights",
    "allocate",
)
"""To look is to open what is there for reading."""

MEMORY = {
    "twolayer.loops.checkpoint": (np, io),
    "twolayer.files.results": (np,),
    "twolayer.numerics.foreign_files": (np,),
    "twolayer.sweeps.store": (np, json),
    "twolayer.sweeps.table": (np,),
    "twolayer.plot.style": (np,),
}
"""Modules that write, and those of whose functions they ask memory."""

METHODS = ((xr.Dataset, "to_netcdf"), (xr.DataTree, "to_netcdf"), (Figure, "savefig"))
"""Methods that make the content of a file in memory."""


class Operation(NamedTuple):
    """One thing asked of the system."""

    kind: str
    path: str

    def __str__(self) -> str:
        return f"{self.kind} {os.path.basename(self.path)}"


Meet = Callable[[Operation], "int | None"]


class Watch:
    """Whether operations are seen now, which, and who is asked."""

    def __init__(self, folder: Path, meet: Meet) -> None:
        self.root, self.meet, self.on = os.path.realpath(folder), meet, True

    def inside(self, path: Any) -> str | None:
        """The path, if it lies in the folder."""
        if isinstance(path, int):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/self/fd/{path}")
            if isinstance(path, int):
                return None
        full = os.path.join(os.getcwd(), os.fsdecode(os.fspath(path)))
        real = os.path.join(
            os.path.realpath(os.path.dirname(full)), os.path.basename(full)
        )
        return (
            real if real == self.root or real.startswith(self.root + os.sep) else None
        )

    def met(self, kind: str, path: Any) -> int | None:
        """Ask about an operation on a path, if it is one of ours."""
        if not self.on:
            return None
        known = self.inside(path)
        return None if known is None else self.meet(Operation(kind, known))

    def allocates(self, name: str) -> None:
        """Ask about memory."""
        if self.on:
            self.meet(Operation("allocate", name))


class SeenFile(io.FileIO):
    """A file whose writes are seen."""

    watch: Watch
    seen: str | None = None

    def write(self, data: Any) -> int:
        if self.seen is None:
            return super().write(data)
        view = memoryview(data).cast("B")
        try:
            most = (
                self.watch.meet(Operation("write", self.seen))
                if self.watch.on
                else None
            )
        except OSError as error:
            if error.errno == errno.ENOSPC:  # what fits is written before
                super().write(view[: len(view) // 2])
            raise
        if most is None:
            return super().write(view)
        return super().write(view[: max(1, min(most, len(view) // 2))])

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self.seen is not None and self.watch.on:
            self.watch.meet(Operation("close", self.seen))


def _opener(watch: Watch, real: Any) -> Any:
    """`open`, with files that are seen where something is written into the folder."""

    @functools.wraps(real)
    def opened(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        path = watch.inside(file) if watch.on else None
        if path is None:
            return real(
                file, mode, buffering, encoding, errors, newline, closefd, opener
            )
        writes = bool(set(mode) & set("wax+"))
        if not isinstance(file, int) and opener is None:
            watch.met("open" if writes else "look", file)
        if not writes:
            return real(
                file, mode, buffering, encoding, errors, newline, closefd, opener
            )
        raw = SeenFile(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        raw.watch, raw.seen = watch, path
        binary = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)  # type: ignore[arg-type]
        if "b" in mode:
            return raw if buffering == 0 else binary
        return io.TextIOWrapper(binary, encoding, errors, newline)

    return opened


def _seen(watch: Watch, kind: str, real: Any) -> Any:
    """A function of `os` that is seen; a rename is told by the name that it gives."""

    @functools.wraps(real)
    def function(*args: Any, **kwargs: Any) -> Any:
        reads = kind == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        most = watch.met("look" if reads else kind, args[kind == "rename"])
        if kind == "write" and most is not None:
            return real(args[0], args[1][: max(1, len(args[1]) // 2)])
        return real(*args, **kwargs)

    return function


def _allocating(watch: Watch, name: str, real: Any) -> Any:
    """A function that is seen to take memory."""

    @functools.wraps(real)
    def function(*args: Any, **kwargs: Any) -> Any:
        watch.allocates(name)
        return real(*args, **kwargs)

    return function


class Allocating(ModuleType):
    """A module whose functions are seen when a module that writes calls them."""

    def __init__(self, real: ModuleType, watch: Watch) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _watch=watch)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if not callable(found) or (isinstance(found, type) and found is not io.BytesIO):
            return found
        return _allocating(self._watch, f"{self._real.__name__}.{name}", found)


@contextlib.contextmanager
def watched(folder: Path, meet: Meet) -> Iterator[None]:
    """See what is asked of the system inside a folder, and of memory for it."""
    watch = Watch(folder, meet)
    calls = {
        "open": "open", "write": "write", "fsync": "sync", "unlink": "remove", "remove": "remove", "mkdir": "make",
        "chmod": "rights", "replace": "rename", "rename": "rename", "link": "rename",
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        for name, kind in calls.items():
            seen = _seen(watch, kind, getattr(os, name))
            stack.enter_context(mock.patch.object(os, name, seen))
        opened = _opener(watch, io.open)
        stack.enter_context(mock.patch.object(io, "open", opened))
        stack.enter_context(mock.patch.object(builtins, "open", opened))
        for module, takes in MEMORY.items():
            for real in takes:
                if module in sys.modules:
                    name = next(
                        (n for n, x in vars(sys.modules[module]).items() if x is real),
                        None,
                    )
                    if name is not None:
                        stack.enter_context(
                            mock.patch.object(
                                sys.modules[module], name, Allocating(real, watch)
                            )
                        )
        for owner, name in METHODS:
            stack.enter_context(
                mock.patch.object(
                    owner, name, _allocating(watch, name, getattr(owner, name))
                )
            )
        try:
            yield
        finally:
            watch.on = False


# -- faults -----------------------------------------------------------------------------------------------------------

FAULTS = ("ENOSPC", "EIO", "EINTR", "MemoryError")


class Nth:
    """Counts operations; a fault meets the n-th. A disk that is full stays full."""

    def __init__(self, fault: str | None = None, n: int = -1) -> None:
        self.fault, self.n = fault, n
        self.seen: list[Operation] = []
        self.put: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, operation: Operation) -> int | None:
        with self._lock:
            number = len(self.seen)
            self.seen.append(operation)
        hit = number == self.n or (self.fault == "ENOSPC" and 0 <= self.n < number)
        if hit and self.fault is not None:
            return self._strike(operation, number)
        if operation.kind == "rename":
            self.put.append(operation.path)
        return None

    def _strike(self, operation: Operation, number: int) -> int | None:
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "MemoryError":
            raise MemoryError(f"injected at operation {number}")
        if operation.kind == "allocate" or not fails(self.fault, operation.kind):
            return None
        if self.fault == "EINTR" and operation.kind == "write":
            return 2**62  # half of it, and no error
        number = getattr(errno, str(self.fault))
        raise OSError(number, os.strerror(number), operation.path)


def fails(fault: str | None, kind: str) -> bool:
    """Whether a fault can meet an operation: what is full takes nothing more, but gives."""
    if fault == "ENOSPC":
        return kind in ("open", "write", "close", "sync", "rename", "make")
    return kind != "allocate" or fault in ("MemoryError", "kill")
