"""Who works on what: byte-range locks of a file, kept by one process against all
others.

POSIX locks belong to the process, not to a descriptor: closing *any* descriptor of the
file drops all of them, and a process never stands in its own way. So a process has one
descriptor of a lock file, however many stores it has open on it, and remembers itself
which bytes are taken.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from twolayer.numerics.errors import InputError, short

__all__ = ["Locks", "locks_module"]

WHOLE = 0  # the byte that stands for the store itself


def locks_module() -> ModuleType:
    """File locks of the system, or where there are none."""
    try:
        import fcntl
    except ImportError:
        raise InputError(
            "A store needs POSIX file locks, which this system does not have."
        ) from None
    return fcntl


class Locks:
    """The locks of one file in this process; made by `Locks.of`, given back by
    `close`.
    """

    _known: ClassVar[dict[tuple[int, int], Locks]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._users = 0
        self._taken: set[int] = set()
        self._turn = threading.Lock()

    @classmethod
    def of(cls, path: Path) -> Locks:
        """The locks of a file, shared by all who ask for them in this process."""
        with cls._guard:
            # a known file must not be opened a second time, not even to look at it
            there = os.path.lexists(path)
            if there and not stat.S_ISREG(
                path.lstat().st_mode
            ):  # a pipe would keep us waiting
                raise InputError(
                    "The lock of a store must be a plain file, but"
                    f" {short(str(path), 200)} is not one."
                )
            found = cls._known.get(_identity(path)) if there else None
            if found is None:
                found = cls(path)
                cls._known[_identity(path)] = found
            found._users += 1
            return found

    def close(self) -> None:
        """Give the file back; the last one to do so closes it."""
        with self._guard:
            self._users -= 1
            if self._users == 0:
                for key in [key for key, locks in self._known.items() if locks is self]:
                    del self._known[key]
                os.close(self._descriptor)

    def claim(self, byte: int) -> bool:
        """Take a byte, unless another process or another part of this one has it."""
        fcntl = locks_module()
        with self._guard:
            if byte in self._taken:
                return False
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            except OSError:
                return False
            self._taken.add(byte)
            return True

    def release(self, byte: int) -> None:
        """Give a byte back."""
        fcntl = locks_module()
        with self._guard:
            self._taken.discard(byte)
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Wait for the store itself, and have it for a while."""
        fcntl = locks_module()
        with self._turn:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, WHOLE)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, WHOLE)


def _identity(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_dev, facts.st_ino
