"""Rows of data from a file: what SGD runs over instead of drawn samples.

.npz    arrays X (n, d) and y (n,), and W_star (k, d) where the target's rows are known
.csv    a line for each sample: x_1, …, x_d, y, with or without a line of names
"""

from __future__ import annotations

import warnings
from pathlib import Path
from zipfile import BadZipFile, is_zipfile

import numpy as np

from twolayer.numerics.errors import InputError, cut, short
from twolayer.numerics.foreign_files import read_arrays

__all__ = ["read_rows"]


def read_rows(path: str | Path) -> tuple[np.ndarray, ...]:
    r"""(X, y), or (X, y, W_star), of a file, ready for ``Vectors(data=…)``.

    Parameters
    ----------
    path : str or path
        An .npz or .csv file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     _ = file.write_text("a,b,label\n1,2,0.5\n3,4,-0.5\n", encoding="utf-8")
    ...     X, y = read_rows(file)
    >>> X.tolist(), y.tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [0.5, -0.5])
    """
    source = Path(path)
    if source.suffix not in (".npz", ".csv"):
        raise InputError(
            f"A file of rows must end in .npz or .csv, but got {short(str(path))}."
        )
    if source.exists() and not source.is_file():
        raise InputError(
            f"A file of rows must be a file, but {short(str(path))} is a folder, a"
            " device or a pipe."
        )
    try:
        return _arrays(source) if source.suffix == ".npz" else _table(source)
    except FileNotFoundError:
        raise InputError(
            f"A file of rows must exist, but there is no {short(str(path))}."
        ) from None
    except InputError:
        raise
    except (
        OSError,
        ValueError,
        EOFError,
        BadZipFile,
    ) as error:  # pickled objects are not read
        why = cut(str(error).split("\n")[0].rstrip("."), 100)
        raise InputError(
            f"A file of rows must hold numbers, but {short(str(path))} does not: {why}."
        ) from None


def _arrays(source: Path) -> tuple[np.ndarray, ...]:
    if source.exists() and not is_zipfile(source):
        raise InputError(
            "A file of rows must be what numpy.savez writes, but"
            f" {short(source.name)} is not."
        )
    file = read_arrays(source, "A file of rows")
    missing = [name for name in ("X", "y") if name not in file]
    if missing:
        found = short(", ".join(file) or "nothing")
        raise InputError(
            "A file of rows must hold arrays `X` and `y`, and `W_star` if known, but"
            f" {source.name} holds {found}."
        )
    return tuple(file[name] for name in ("X", "y", "W_star") if name in file)


def _table(source: Path) -> tuple[np.ndarray, ...]:
    with source.open(encoding="utf-8") as file:
        first = file.readline()
    with warnings.catch_warnings(
        action="ignore"
    ):  # of an empty file, which has no column
        table = np.loadtxt(
            source,
            delimiter=",",
            skiprows=0 if _numbers(first) else 1,
            ndmin=2,
            encoding="utf-8",
        )
    if table.shape[1] < 2:
        raise InputError(
            f"Lines of {source.name} must be x_1, …, x_d, y, but have"
            f" {table.shape[1] if table.size else 0} of them."
        )
    return table[:, :-1], table[:, -1]


def _numbers(line: str) -> bool:
    try:
        return bool([float(word) for word in line.split(",")])
    except ValueError:
        return False
