"""Files are written whole or not at all, and a place that cannot be written is refused before any work.

write beside the target → rename:    readers see the old file or the new one, never half of one
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from twolayer.numerics.errors import InputError, short
from twolayer.numerics.temporary_files import clear_stale, draft_of, mark, passing

__all__ = ["FIGURES", "check_writable", "named", "write_atomically"]

FIGURES = (".png", ".pdf", ".svg")
"""Formats of figures, by the end of the name."""


def named(out: str | os.PathLike[str], suffix: str) -> Path:
    """The file with this suffix for a name that a result and its figure share; other dots stay in the name.

    >>> named("run.nc", ".png").name, named("lr_0.1", ".nc").name
    ('run.png', 'lr_0.1.nc')
    """
    path = Path(out)
    base = path.with_suffix("") if path.suffix in (".nc", *FIGURES) else path
    return base.with_name(base.name + suffix) if base.name.strip(".") else base


def check_writable(
    path: Path, label: str = "Argument `path`", make_folder: bool = False
) -> None:
    """Refuse a path that cannot be written, by trying: permissions do not tell (read-only disks, superusers).

    The label is how the message calls the path; nothing is left behind. With ``make_folder`` its folder may be missing.

    >>> check_writable(Path("no/such/folder/x.nc"))
    Traceback (most recent call last):
    twolayer.InputError: Argument `path` must lie in an existing folder, but 'no/such/folder' is none.
    """
    try:
        folder = path.parent
        if make_folder and not folder.exists():
            folder = folder.parent
        if not path.name.strip(".") or path.is_dir():
            raise InputError(
                f"{label} must name a file, but {short(str(path))} is a folder."
            )
        if not folder.is_dir():
            raise InputError(
                f"{label} must lie in an existing folder, but {short(str(folder))} is none."
            )
        with tempfile.NamedTemporaryFile(
            prefix=f".{path.stem[:40]}-{mark()}-", dir=folder
        ):
            pass
    except InputError:
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{label} must be writable, but {short(str(path))} is not: {why}."
        ) from None


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[Path], object]
) -> Path:
    """Let ``write`` make a temporary file beside the target, then rename it."""
    target = Path(path)
    check_writable(target)
    clear_stale(target.parent)
    with passing(draft_of(target)) as draft:
        draft.touch(0o600, exist_ok=False)
        write(draft)
        draft.chmod(0o644)
        os.replace(draft, target)
    return target
