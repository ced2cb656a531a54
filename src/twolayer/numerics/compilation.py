"""Compiled code kept from one process to the next.

What XLA compiles is stored in the user's cache directory and loaded again instead of
being compiled. The environment variable TWOLAYER_CACHE is a directory to use in its
place, or ``off``. A cache that the user has given to JAX is left alone, and so is a
session that imported JAX before this package: its settings are somebody else's.

The directory is named after the version of JAX and the processor, for code of one does
not run on another. Least recently used entries go when it holds more than `LIMIT`
bytes. Where it cannot be written, there is no cache.

An entry is machine code that will be run as it is, and nothing in it tells from which
function it came. So the directory is ours alone (0700), and is not used, with a
warning, where somebody else could have put an entry there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import stat
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twolayer.numerics.errors import InputError, short
from twolayer.numerics.temporary_files import clear_stale
from twolayer.numerics.writing import put_file

if TYPE_CHECKING:
    from twolayer.numerics.arguments import Options

__all__ = [
    "LIMIT",
    "SETTING",
    "CacheWarning",
    "directory",
    "expect",
    "keep",
    "prune",
    "refuse_wrong_version",
]

SETTING = "TWOLAYER_CACHE"
LIMIT = 256 * 2**20
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
MISCOMPILES = "0.10.2"
"""The version of JAX with wrong fields: W z within a vmap, followed by a sum."""


class CacheWarning(UserWarning):
    """Compiled code is not kept from one process to the next, because others could
    exchange it.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("ignore", CacheWarning)  # it is compiled every time
    """


_expected = _kept = _quieted = _tested = False


def expect() -> None:
    """Before JAX is imported: this package is the one that imports it.

    On processors for which LLVM has preferences (such as ``prefer-no-gather``), XLA
    reports every piece of code that it loads as an error, because a preference is no
    ability of the processor. The level of its log is read when it is imported, and is
    put back by `keep`.
    """
    global _expected, _quieted
    if _expected or "jax" in sys.modules or os.environ.get(SETTING) == "off":
        return
    _expected = True
    if LOG_LEVEL not in os.environ:
        _quieted, os.environ[LOG_LEVEL] = True, "3"


def keep() -> None:
    """Once, when JAX is first used: keep what is compiled, if that is wanted and
    possible.
    """
    global _kept, _quieted
    refuse_wrong_version()
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
    if not _usable(where):
        return
    prune(where)
    # an entry that another process is just writing or removing cannot be read: it is
    # compiled, as if there were none
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
    _write_entries_whole()


def _write_entries_whole() -> None:
    """Let entries get their names when they are whole.

    JAX writes under the final name. What a kill or a full disk leaves there is read,
    refused and compiled again by every later process, and never replaced.
    """
    try:
        from jax._src.lru_cache import LRUCache
    except ImportError:  # another version of JAX keeps its entries in its own way
        return

    def put(cache: Any, key: str, value: bytes) -> None:
        folder = Path(cache.path)
        entry = folder / f"{key}-cache"
        if not entry.exists():
            clear_stale(folder)
            put_file(entry, value, durable=False)

    setattr(LRUCache, "put", put)  # noqa: B010


def refuse_wrong_version() -> None:
    """Refuse the version of JAX whose fields are wrong, before the first number comes
    out.

    The dependencies exclude it, but whoever installs JAX afterwards, or without a
    resolver, may have it all the same; its results look like others.
    """
    global _tested
    if _tested:
        return
    import jax

    if jax.__version__ == MISCOMPILES:
        raise InputError(
            f"This is jax {MISCOMPILES}, which computes fields wrongly and without a"
            " word on CPUs: install another version (pip install"
            f" 'jax!={MISCOMPILES}')."
        )
    _tested = True


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


def _usable(where: Path) -> bool:
    """Make the directory; whether files can be put there, and only by us. The second is
    said, the first is not.
    """
    try:
        where.parent.parent.mkdir(parents=True, exist_ok=True)
        for own in (where.parent, where):
            own.mkdir(0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=where):
            pass
        stranger = _open_to_others(where)
        if stranger is None:
            where.chmod(0o700)
            return True
    except (OSError, MemoryError):
        return False
    warnings.warn(
        f"Compiled code is not kept in {short(str(where), 100)}: others than you can"
        f" write {short(str(stranger), 100)}; make it yours alone, or set {SETTING} to"
        " another directory or to off.",
        CacheWarning,
        stacklevel=3,
    )
    return False


def _open_to_others(where: Path) -> Path | None:
    """The first folder on the way to a directory in which somebody else could exchange
    something.
    """
    if not hasattr(
        os, "geteuid"
    ):  # on Windows the directory of a user is the user's alone
        return None
    own, real = os.geteuid(), Path(os.path.realpath(where))
    for folder in (real, *real.parents):
        facts = folder.stat()
        writers = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if writers == stat.S_IWGRP and _nobody_else(facts.st_gid):
            writers = 0
        if (
            folder != real and facts.st_mode & stat.S_ISVTX
        ):  # as /tmp: what is ours there cannot be renamed by others
            writers = 0
        if writers or facts.st_uid not in ((own,) if folder == real else (own, 0)):
            return folder
    return None


def _nobody_else(group: int) -> bool:
    """Whether a group is that of this user alone, as many systems make one for each
    user.
    """
    import grp
    import pwd

    try:
        me, known = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (
        known.gr_gid == me.pw_gid
        and known.gr_name == me.pw_name
        and set(known.gr_mem) <= {me.pw_name}
    )


def prune(where: Path, limit: int = LIMIT) -> None:
    """Remove the entries that were not used for longest, down to half the limit, if the
    directory is beyond it.

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
