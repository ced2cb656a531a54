"""Files that exist for a moment, and what becomes of them when their process does not
live to remove them.

    .NAME-tlPLACE-PID-RANDOM.SUFFIX
        removed by its process, or by the next one that writes there once PID is gone

PLACE tells machines and their numbering of processes apart: only a process that would
be seen if it lived is dead.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

__all__ = ["clear_stale", "draft_of", "mark", "passing", "remove_own"]

_own: set[Path] = set()


@functools.cache
def _place() -> str:
    try:
        numbering = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbering = ""
    node = os.uname().nodename if hasattr(os, "uname") else ""
    return hashlib.sha256(f"{node} {numbering}".encode()).hexdigest()[:8]


def mark() -> str:
    """What the names of this process's temporary files contain."""
    return f"tl{_place()}-{os.getpid()}"


def draft_of(target: Path) -> Path:
    """A name beside a target, that nobody else has."""
    return target.with_name(
        f".{target.stem[:40]}-{mark()}-{secrets.token_hex(4)}{target.suffix[-20:]}"
    )


@contextlib.contextmanager
def passing(path: Path) -> Iterator[Path]:
    """A file or folder that is renamed inside, or else does not outlive this block, nor
    an end at once.
    """
    _own.add(path)
    try:
        yield path
    finally:
        _remove(path)
        _own.discard(path)


def remove_own() -> None:
    """Remove what this process has in hand, because it is about to end at once."""
    for path in list(_own):
        _remove(path)


def clear_stale(folder: Path) -> None:
    """Remove what processes that were killed have left in a folder."""
    pattern = re.compile(rf"-tl{_place()}-(\d+)-")
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            found = pattern.search(entry.name)
            if found is not None and not _alive(int(found[1])):
                _remove(Path(entry.path))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()
