"""Arguments and outputs that commands share."""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twolayer.numerics.errors import InputError, closest, short
from twolayer.numerics.writing import check_writable, named, write_atomically

if TYPE_CHECKING:
    from twolayer.files.taskfile import Task

__all__ = [
    "add_common",
    "emit",
    "figure_path",
    "keep",
    "one_line_warnings",
    "output_base",
    "settings",
    "task_of",
    "tell",
]

FIGURES = (".png", ".pdf", ".svg")


def add_common(
    parser: argparse.ArgumentParser,
    out: str,
    seed: str = "nothing here is random: no effect",
    change: str = "change a key, such as algorithm.lr=0.1/d in a task file",
) -> None:
    """The flags of every command: --out, --seed, --json, --set."""
    parser.add_argument("--out", metavar="PATH", help=out)
    parser.add_argument("--seed", type=int, metavar="N", help=seed)
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=change,
    )


def task_of(args: argparse.Namespace, **flags: str) -> Task:
    """Read the task file; flags such as dim="run.dim" stand for a key and win over the file and --set."""
    from twolayer.files.taskfile import read_task

    given = [f"{key}={getattr(args, flag)}" for flag, key in flags.items() if getattr(args, flag) is not None]
    return read_task(args.task, [*args.set, *given])


def settings(args: argparse.Namespace, known: tuple[str, ...] = ()) -> dict[str, Any]:
    """The keys of --set for a command that reads no task file."""
    from twolayer.files.taskfile import assign

    values: dict[str, Any] = {}
    for assignment in args.set:
        assign(values, assignment)
    for key in values:
        if key not in known:
            accepted = f"the keys are {', '.join(known)}" if known else "this command has none"
            raise InputError(f"--set: unknown key {short(key)}{closest(key, known)}; {accepted}.")
    return values


def tell(args: argparse.Namespace, text: str, values: dict[str, Any]) -> None:
    """Print the text, or the values as JSON, and write the same to --out if that is given."""
    shown = _json(values) if args.json else text
    if args.out is not None:
        path = Path(args.out)
        check_writable(path, "--out")
        write_atomically(path, lambda file: file.write_text(f"{shown}\n", "utf-8"))
    print(shown)


def emit(values: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    print(_json(values))


def _json(values: dict[str, Any]) -> str:
    return json.dumps(_plain(values), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Python values for JSON, which knows no NaN: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def output_base(out: str | None, default: str) -> Path:
    """The name of the results; checked before any work is done. The default folder is made by `keep`."""
    base = Path("results") / default if out is None else Path(out)
    check_writable(named(base, ".nc"), "--out", make_folder=out is None)
    return base


def figure_path(out: str) -> Path:
    """The figure to write, checked before any work is done."""
    path = Path(out)
    if path.suffix not in FIGURES:
        raise InputError(f"--out must end in {', '.join(FIGURES[:-1])} or {FIGURES[-1]}, but got {short(out)}.")
    check_writable(path, "--out")
    return path


def keep(result: Any, base: Path, figure: bool = True) -> list[str]:
    """Write a result of `solve` or `compare` and its figure, BASE.nc and BASE.png; returns the names of the files."""
    from twolayer import plot
    from twolayer.files.results import save
    from twolayer.running.comparison import Comparison

    base.parent.mkdir(exist_ok=True)
    files = [save(result, named(base, ".nc"))]
    if figure:
        drawn = plot.compare(result) if isinstance(result, Comparison) else plot.trajectory(result)
        files.append(plot.save_figure(drawn, named(base, ".png")))
    return [str(file) for file in files]


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Warnings of the package as one line each on standard error; those of others as Python is told to."""
    from twolayer.loops.windows import CostWarning
    from twolayer.running.solve import AccuracyWarning, DivergenceWarning

    ours = (AccuracyWarning, CostWarning, DivergenceWarning)

    def show(message: Any, category: type[Warning], *place: Any, **__: Any) -> None:
        if issubclass(category, ours):
            print(f"twolayer: {message}", file=sys.stderr)
        else:
            other(message, category, *place)

    with warnings.catch_warnings():
        other = warnings.showwarning
        for kind in ours:
            warnings.simplefilter("always", kind)
        warnings.showwarning = show
        yield
