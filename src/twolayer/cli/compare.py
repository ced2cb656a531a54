"""``twolayer compare task.toml``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from twolayer.cli.common import add_common, emit, keep, one_line_warnings, output_base, task_of
from twolayer.cli.solve import failed
from twolayer.numerics.errors import InputError

if TYPE_CHECKING:
    from twolayer.running.comparison import Comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task and the methods."""
    parser.add_argument("task", metavar="TASK.toml", help="the task file")
    parser.add_argument("--methods", metavar="A,B", help="methods to compare, instead of the file's")
    parser.add_argument("--dim", type=int, metavar="D", help="dimension, instead of the file's run.dim")
    add_common(parser, "write PATH.nc and PATH.png (default: results/TASK)", "instead of the file's run.seed")


def run(args: argparse.Namespace) -> int:
    """Compare, write data and figure, print the table; exit code 1 if a method has no seed left."""
    task = task_of(args, dim="run.dim", seed="run.seed")
    if task.table.run.until is not None:
        raise InputError(
            f"{task.name}: compare follows all methods to the same end: leave out `run.until`, or use solve."
        )
    import dataclasses

    from twolayer.numerics.errors import Interrupted
    from twolayer.running.compare import compare

    problem, algorithm = task.problem(), task.stages() or task.algorithm()
    methods = task.methods(None if args.methods is None else [word.strip() for word in args.methods.split(",")])
    base = output_base(args.out, Path(args.task).stem)
    start, arguments = task.start(problem), task.run_arguments()
    try:
        with one_line_warnings():
            done = compare(problem, algorithm, methods or None, start, progress=not args.json, **arguments)
    except Interrupted as stop:
        (path,) = keep(stop.result, base, figure=False)
        print(f"interrupted; {', '.join(stop.result.results)} so far are in {path}")
        return 1
    files = keep(done, base)
    if args.json:
        rows = [dataclasses.asdict(row) for row in done.verdicts]
        emit({"reference": done.reference, "skipped": done.skipped, "rows": rows, "files": files})
    else:
        show(done)
        for file in files:
            print(f"wrote {file}")
    return int(any(failed(result) for result in done.results.values()))


def show(done: Comparison) -> None:
    """The table, with verdicts in colour on a terminal."""
    from rich.console import Console
    from rich.text import Text

    text = Text(str(done))
    for word, style in (("agree", "green"), ("differ", "red"), ("undecided", "yellow")):
        text.highlight_regex(rf"(?m)\b{word}$", style)
    Console(file=sys.stdout, soft_wrap=True).print(text)
