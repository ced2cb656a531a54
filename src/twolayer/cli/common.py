"""Arguments and outputs that commands share."""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twolayer.numerics.columns import fold, folded, wrapped
from twolayer.numerics.errors import InputError, short
from twolayer.numerics.writing import FIGURES, check_writable, named, write_atomically

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from twolayer.files.taskfile import TaskFile
    from twolayer.numerics.arguments import Json
    from twolayer.running.comparison import Comparison

__all__ = [
    "CHANGE",
    "PART",
    "add_common",
    "add_dry_run",
    "add_gram",
    "add_passes",
    "check_figure",
    "check_report",
    "drawn",
    "emit",
    "fold",
    "folded",
    "gram_of",
    "idle",
    "keep",
    "one_line_warnings",
    "output_base",
    "say",
    "task_of",
    "tell",
    "wrapped",
    "wrote",
]

DATA = (".json", ".txt")
PART = ".part.nc"
"""What is finished of a comparison that lasts has this suffix."""


def add_common(
    parser: argparse.ArgumentParser,
    out: str,
    seed: str | None = None,
    change: str | None = None,
) -> None:
    """The flags that commands share, with what they mean here: --out, --json, and
    --seed and --set where they act.
    """
    parser.add_argument("--out", metavar="PATH", help=out)
    if seed is not None:
        parser.add_argument("--seed", type=int, metavar="N", help=seed)
    if change is not None:
        parser.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", help=change
        )
    parser.add_argument(
        "--json", action="store_true", help="print JSON for programs instead of text"
    )


CHANGE = "change a key of the file, such as algorithm.lr=0.1/d"


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """The flag that tells the cost of a command beforehand."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what it will take; run and write nothing",
    )


def add_passes(parser: argparse.ArgumentParser) -> None:
    """The flag that ends a run after passes through its fixed set of samples."""
    parser.add_argument(
        "--passes",
        metavar="N",
        help="end after so many passes through algorithm.dataset, instead of the"
        " file's end",
    )


def add_force(parser: argparse.ArgumentParser) -> None:
    """The flag that lifts the bounds on the work of a command."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="begin even what is estimated to take a day, or the memory",
    )


def add_gram(parser: argparse.ArgumentParser) -> None:
    """--gram, the covariance of the target's fields."""
    parser.add_argument(
        "--gram",
        metavar="P",
        help="Gram matrix of the target's directions, such as [[1, 0.6], [0.6, 1]]",
    )


def gram_of(text: str | None) -> list[list[float]] | None:
    """The matrix that was given; what it is no number or no matrix of is refused where
    the target is known.
    """
    if text is None:
        return None
    from twolayer.files.taskfile import assign

    document: Json = {}
    assign(document, f"gram={text}")
    found: list[list[float]] = document["gram"]
    return found


def idle(args: argparse.Namespace, why: str, *flags: str) -> None:
    """Refuse flags that were given and would do nothing."""
    for flag in flags:
        value = getattr(args, flag.removeprefix("--").replace("-", "_"))
        if not (value is None or value is False or value == []):
            raise InputError(f"{flag} has no effect {why}: leave it out.")


def task_of(args: argparse.Namespace, **flags: str) -> TaskFile:
    """Read the task file; flags such as dim="run.dim" stand for a key and win over the
    file and --set.
    """
    from twolayer.files.taskfile import read_task

    given = [
        f"{key}={getattr(args, flag)}"
        for flag, key in flags.items()
        if getattr(args, flag) is not None
    ]
    passes = getattr(args, "passes", None)
    return read_task(args.task, [*args.set, *given], passes)


def tell(args: argparse.Namespace, text: str, values: Json) -> None:
    """Print the text, or the values as JSON, and write the same to --out if that is
    given; .json is always JSON.
    """
    files = []
    if args.out is not None:
        path, data = Path(args.out), args.json or Path(args.out).suffix == ".json"
        check_writable(path, "--out")
        shown = as_json(values) if data else text
        write_atomically(path, f"{shown}\n")
        files = [str(path)]
    say(args, text, values, files)


def say(args: argparse.Namespace, text: str, values: Json, files: list[str]) -> None:
    """Print the text and which files were written, or the values and their names as
    JSON.
    """
    if args.json:
        emit({**values, **({"files": files} if files else {})})
        return
    print(text)
    wrote(files)


def wrote(files: list[str]) -> None:
    """One line for each file."""
    for file in files:
        print(f"wrote {file}")


def drawn(
    args: argparse.Namespace, text: str, values: Json, draw: Callable[[Any], Figure]
) -> None:
    """As `tell`; a --out that names a figure is drawn instead, with the module
    `plot`.
    """
    if args.out is None or Path(args.out).suffix not in FIGURES:
        tell(args, text, values)
        return
    from twolayer import plot

    say(args, text, values, [str(plot.save_figure(draw(plot), Path(args.out)))])


def check_report(out: str | None) -> None:
    """The same of one that is neither a figure nor data."""
    _check_out(out, (*FIGURES, *DATA))


def _check_out(out: str | None, known: tuple[str, ...]) -> None:
    if out is not None:
        if Path(out).suffix not in known:
            raise InputError(
                f"--out must end in {', '.join(known[:-1])} or {known[-1]}, but got"
                f" {short(out)}."
            )
        check_writable(Path(out), "--out")


def emit(values: Json) -> None:
    """One JSON object on standard output."""
    print(as_json(values))


def as_json(values: Json) -> str:
    """One line that programs can read."""
    return json.dumps(_plain(values), ensure_ascii=False, allow_nan=False)


def _plain(value: object) -> Any:
    """Python values for JSON, which knows no NaN: numbers that are not finite become
    null.
    """
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def output_base(out: str | None, default: str) -> Path:
    """The name of the results; checked before any work is done. The default folder is
    made by `keep`.
    """
    base = Path("results") / default if out is None else Path(out)
    check_writable(named(base, ".nc"), "--out", make_folder=out is None)
    return base


def check_figure(out: str | None) -> None:
    """Refuse a --out that is no figure, or cannot be written, before any work."""
    _check_out(out, FIGURES)


def keep(result: xr.Dataset | Comparison, base: Path, figure: bool = True) -> list[str]:
    """Write a result of `solve` or `compare` and its figure, BASE.nc and BASE.png;
    returns the names of the files.

    The figure has the format of BASE where that ends in one.
    """
    from twolayer import plot
    from twolayer.files.results import save
    from twolayer.running.comparison import Comparison

    base.parent.mkdir(exist_ok=True)
    files = [save(result, named(base, ".nc"))]
    named(base, PART).unlink(
        missing_ok=True
    )  # of a comparison to this name, killed before
    if figure:
        picture = (
            plot.compare(result)
            if isinstance(result, Comparison)
            else plot.trajectory(result)
        )
        files.append(
            plot.save_figure(
                picture, named(base, base.suffix if base.suffix in FIGURES else ".png")
            )
        )
    return [str(file) for file in files]


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Warnings of the package as one line each on standard error; those of others as
    Python is told to.
    """
    from twolayer.loops.windows import CostWarning
    from twolayer.running.solve import AccuracyWarning, DivergenceWarning
    from twolayer.running.witness import WitnessWarning

    ours = (AccuracyWarning, CostWarning, DivergenceWarning, WitnessWarning)

    def show(message: Any, category: type[Warning], *place: Any, **__: object) -> None:
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
