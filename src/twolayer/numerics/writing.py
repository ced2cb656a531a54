"""Files are written whole or not at all, and a place that cannot be written is refused
before any work.

    content in memory → draft beside the target → fsync → rename → fsync of the folder

Readers see the old file or the new one, never half of one, and after a power cut too.
The content is made before the draft is opened: a library that writes a file bit by bit
(HDF5) does not survive a disk that fills up meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path

from twolayer.numerics.errors import InputError, NotWritten, short
from twolayer.numerics.temporary_files import clear_stale, draft_of, mark, passing

__all__ = [
    "FIGURES",
    "PLACE",
    "check_writable",
    "named",
    "put_file",
    "write_atomically",
]

FIGURES = (".png", ".pdf", ".svg")
"""Formats of figures, by the end of the name."""

PLACE = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EINVAL,
)
"""What is wrong with the name that was given; everything else is a fault of the
machine, such as a full disk.
"""

Content = str | bytes | bytearray | memoryview


def named(out: str | os.PathLike[str], suffix: str) -> Path:
    """The file with this suffix for a name that a result and its figure share; other
    dots stay in the name.

    >>> named("run.nc", ".png").name, named("lr_0.1", ".nc").name
    ('run.png', 'lr_0.1.nc')
    """
    path = Path(out)
    base = path.with_suffix("") if path.suffix in (".nc", *FIGURES) else path
    return base.with_name(base.name + suffix) if base.name.strip(".") else base


def check_writable(
    path: Path, label: str = "Argument `path`", make_folder: bool = False
) -> None:
    """Refuse a path that cannot be written, by trying: permissions do not tell
    (read-only disks, superusers).

    The label is how the message calls the path; nothing is left behind. With
    ``make_folder`` its folder may be missing.

    >>> check_writable(Path("no/such/folder/x.nc"))
    Traceback (most recent call last):
    twolayer.InputError: Argument `path` must lie in an existing folder, but
    'no/such/folder' does not exist.
    """
    try:
        target = _target(path, label, make_folder)
        folder = target.parent
        if make_folder and not folder.exists():
            folder = folder.parent
        with tempfile.NamedTemporaryFile(
            prefix=f".{path.stem[:40]}-{mark()}-", dir=folder
        ):
            pass
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise _refusal(path, label, error) from None


def _target(path: Path, label: str, make_folder: bool = False) -> Path:
    """The file that a path means, behind links; refused where it is no file, or has no
    folder.
    """
    folder = path.parent
    if make_folder and not folder.exists():
        folder = folder.parent
    if not path.name.strip(".") or path.is_dir():
        raise InputError(
            f"{label} must name a file, but {short(str(path))} is a folder."
        )
    if not folder.is_dir():
        raise InputError(
            f"{label} must lie in an existing folder, but {short(str(folder))} does"
            " not exist."
        )
    target = Path(os.path.realpath(path))
    if (
        target.exists() and not target.is_file()
    ):  # a rename would put a file where a device was
        raise InputError(
            f"{label} must name a file, but {short(str(path))} is a device or a pipe."
        )
    return target


def _refusal(
    path: Path, label: str, error: OSError | ValueError
) -> InputError | NotWritten:
    """One sentence about a file that cannot be written: bad input, or a fault of the
    machine.
    """
    if isinstance(error, OSError) and error.errno not in PLACE:
        why = (
            f"{short(str(path), 200)} could not be written ({error.strerror or error})"
        )
        return NotWritten(error.errno or 0, why)
    reason = error.strerror if isinstance(error, OSError) else error
    return InputError(
        f"{label} must be writable, but {short(str(path))} is not: {reason}."
    )


def write_atomically(path: str | os.PathLike[str], content: Content) -> Path:
    """Put content under a name that somebody gave; what is wrong is said in a sentence.

    >>> import tempfile
    >>> write_atomically(f"{tempfile.mkdtemp()}/x.txt", "all of it").read_text()
    'all of it'
    """
    given = Path(path)
    try:
        target = _target(given, "Argument `path`")
        clear_stale(target.parent)
        put_file(target, content)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise _refusal(given, "Argument `path`", error) from error
    return given


def put_file(target: Path, content: Content, durable: bool = True) -> None:
    """Put content under a name, or leave what is there as it is; errors of the system
    pass.

    A new file has the rights that the user's umask leaves, one that is replaced keeps
    its own. Without ``durable`` a power cut, but no kill, may leave a shorter file: for
    what is checked when it is read.
    """
    data = content.encode() if isinstance(content, str) else content
    with passing(draft_of(target)) as draft:
        descriptor = os.open(
            draft,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0),
            0o666,
        )
        with os.fdopen(descriptor, "wb") as file:
            _keep_rights(draft, target)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(draft, target)
    if durable:
        _sync_folder(target.parent)


def _keep_rights(draft: Path, target: Path) -> None:
    """Give a draft, still empty, the mode and the owner of the file that it will
    replace.
    """
    try:
        known = target.stat()
    except FileNotFoundError:
        return
    mode, made = stat.S_IMODE(known.st_mode), draft.stat()
    if (made.st_uid, made.st_gid) != (known.st_uid, known.st_gid):
        try:
            os.chown(draft, known.st_uid, known.st_gid)
        except (AttributeError, OSError):
            if made.st_gid != known.st_gid:
                mode &= ~0o070  # what one group may read, another one may not
    os.chmod(draft, mode)


def _sync_folder(folder: Path) -> None:
    """Let the new name outlive a power cut; some systems cannot, or do it by
    themselves.
    """
    with contextlib.suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
                raise
        finally:
            os.close(descriptor)
