"""Compiled code kept from one process to the next.

What XLA compiles is stored in the user's cache directory and loaded again instead of being compiled. The environment
variable TWOLAYER_CACHE is a directory to use in its place, or ``off``. A cache that the user has given to JAX is left
alone, and so is a session that imported JAX before this package: its settings are somebody else's.

The directory is named after the version of JAX and the processor, for code of one does not run on another. Least
recently used entries go when it holds more than `LIMIT` bytes. Where it cannot be written, there is no cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twolayer.numerics.arguments import Options

__all__ = ["LIMIT", "SETTING", "directory", "expect", "keep", "prune"]

SETTING = "TWOLAYER_CACHE"
LIMIT = 256 * 2**20
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"

_expected = _kept = _quieted = False


def expect() -> None:
    """Before JAX is imported: this package is the one that imports it.

    On processors for which LLVM has preferences (such as ``prefer-no-gather``), XLA reports every piece of code that it
    loads as an error, because a preference is no ability of the processor. The level of its log is read when it is
    imported, and is put back by `keep`.
    """
    global _expected, _quieted
    if _expected or "jax" in sys.modules or os.environ.get(SETTING) == "off":
        return
    _expected = True
    if LOG_LEVEL not in os.environ:
        _quieted, os.environ[LOG_LEVEL] = True, "3"


def keep() -> None:
    """Once, when JAX is first used: keep what is compiled, if that is wanted and possible."""
    global _kept, _quieted
    if _kept or not _expected:
        return
    _kept = True
    import jax

    if _quieted:
        _quieted = False
        os.environ.pop(LOG_LEVEL, None)
    config: Any = (
        jax.config
    )  # whose flags are attributes that type checkers do not know
    if config.jax_compilation_cache_dir:
        return
    where = directory(jax.__version__)
    if not _writable(where):
        return
    prune(where)
    # an entry that another process is just writing or removing cannot be read: it is compiled, as if there were none
    warnings.filterwarnings(
        "ignore", "Error (reading|writing) persistent compilation cache entry"
    )
    settings: Options = {
        "jax_compilation_cache_dir": str(where),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


def directory(version: str) -> Path:
    """Where compiled code of this version of JAX is kept for this processor."""
    given = os.environ.get(SETTING)
    if given:
        root = Path(given).expanduser()
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches" / "twolayer"
    elif sys.platform == "win32":
        root = (
            Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "twolayer" / "cache"
        )
    else:
        root = (
            Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            / "twolayer"
        )
    return (
        root / f"jax-{version}-{hashlib.sha256(_processor().encode()).hexdigest()[:12]}"
    )


def _processor() -> str:
    """What tells processors apart whose code differs."""
    with contextlib.suppress(OSError):
        lines = (
            Path("/proc/cpuinfo")
            .read_text(encoding="utf-8", errors="replace")
            .split("\n\n")[0]
            .splitlines()
        )
        return "\n".join(
            line
            for line in lines
            if line.startswith(("model name", "flags", "Features", "CPU part"))
        )
    return f"{platform.machine()} {platform.processor()}"


def _writable(where: Path) -> bool:
    """Make the directory; whether a file can be put there."""
    try:
        where.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=where):
            return True
    except OSError:
        return False


def prune(where: Path, limit: int = LIMIT) -> None:
    """Remove the entries that were not used for longest, down to half the limit, if the directory is beyond it.

    Several processes may do so at once: what another one has removed is gone.
    """
    entries = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(where):
            with contextlib.suppress(OSError):
                found = entry.stat()
                entries.append(
                    (max(found.st_atime, found.st_mtime), found.st_size, entry.path)
                )
    total = sum(size for _, size, _ in entries)
    if total <= limit:
        return
    for _, size, path in sorted(entries):
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= limit / 2:
            return
