"""Arguments and outputs that commands share."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twolayer.errors import InputError

__all__ = ["add_common", "add_task", "emit", "output_base", "quiet_warnings"]


def add_common(parser: argparse.ArgumentParser, out: str) -> None:
    """--out, --seed, --json."""
    parser.add_argument("--out", metavar="PATH", help=out)
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the random streams")
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text")


def add_task(parser: argparse.ArgumentParser) -> None:
    """The task file and --set."""
    parser.add_argument("task", metavar="TASK.toml", help="the task file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a key, such as algorithm.lr=0.1/d",
    )


def emit(values: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    json.dump(values, sys.stdout, ensure_ascii=False, default=float)
    sys.stdout.write("\n")


def output_base(out: str | None, default: str) -> Path:
    """Where results go, without suffix; checked to be writable before any work is done."""
    if out is None:
        folder = Path("results")
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"Cannot make the folder 'results' here ({error.strerror}); give --out PATH.") from None
        base = folder / default
    else:
        base = Path(out)
        if base.suffix in (".nc", ".png"):
            base = base.with_suffix("")
    parent = base.parent
    if not parent.is_dir():
        raise InputError(f"--out must lie in an existing folder, but {str(parent)!r} is none.")
    if not os.access(parent, os.W_OK) or base.with_suffix(".nc").is_dir():
        raise InputError(f"--out must be writable, but {str(base.with_suffix('.nc'))!r} is not.")
    return base


@contextmanager
def quiet_warnings() -> Iterator[None]:
    """Warnings of the package as one line each on standard error."""

    def show(message: Any, *_: Any, **__: Any) -> None:
        print(f"twolayer: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield
