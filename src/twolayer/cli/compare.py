"""``twolayer compare task.toml``."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twolayer.cli.common import (
    CHANGE,
    PART,
    add_common,
    add_dry_run,
    add_force,
    add_passes,
    emit,
    idle,
    keep,
    one_line_warnings,
    output_base,
    task_of,
    wrote,
)
from twolayer.cli.solve import failed, told
from twolayer.numerics.errors import InputError
from twolayer.numerics.writing import named

if TYPE_CHECKING:
    from twolayer.files.taskfile import TaskFile
    from twolayer.numerics.arguments import Json
    from twolayer.running.comparison import Comparison
    from twolayer.task.method import Method
    from twolayer.task.overlaps import Overlaps
    from twolayer.task.problem import Problem

EXAMPLES = (
    (
        "twolayer compare task.toml",
        "the methods of the file, judged by the first theory",
    ),
    (
        "twolayer compare task.toml --methods ode,chain --dim 400",
        "these methods, at this dimension",
    ),
    (
        "twolayer compare task.toml --set run.seeds=64 --out both",
        "more seeds, in both.nc and both.png",
    ),
    (
        "twolayer compare task.toml --resolution 0.03 --set run.dim=4000",
        "agreement to 3 %, at a dimension that allows it",
    ),
    (
        "twolayer compare task.toml --data rows.npz --out rows",
        "SGD over given rows, against their Gaussian surrogate",
    ),
    (
        "twolayer compare task.toml --strict",
        "for scripts: exit code 0 only if all methods agree",
    ),
    ("twolayer compare task.toml --dry-run", "what it would take"),
)
DIFFER = 1  # exit codes of --strict
UNDECIDED = 3  # 2 is bad input
PATIENCE = 1.0  # seconds before what is finished is worth a file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task and the methods."""
    parser.add_argument(
        "task", metavar="TASK.toml", help="the task file (see 'twolayer help tasks')"
    )
    parser.add_argument(
        "--methods", metavar="A,B", help="methods to compare, instead of the file's"
    )
    parser.add_argument(
        "--dim", type=int, metavar="D", help="dimension, instead of the file's run.dim"
    )
    parser.add_argument(
        "--data",
        metavar="ROWS",
        help=(
            "run SGD over these rows: .npz with X, y and if known W_star, or .csv with"
            " columns x_1, …, x_d, y"
        ),
    )
    parser.add_argument(
        "--resolution",
        type=float,
        metavar="SHARE",
        help=(
            "the part of its range that a theory may be off without being seen where"
            " runs agree with it (default: 0.1)"
        ),
    )
    add_passes(parser)
    parser.add_argument(
        "--strict",
        action="store_true",
        help=(
            "let the exit code say what the table says: 1 if a method differs, 3 if it"
            " is undecided whether one does"
        ),
    )
    add_dry_run(parser)
    add_force(parser)
    add_common(
        parser,
        "write PATH.nc and PATH.png (default: results/TASK)",
        "instead of the file's run.seed",
        CHANGE,
    )


def run(args: argparse.Namespace) -> int:
    """Compare, write data and figure, print the table; exit code 1 if a method has no
    seed left, and with ``--strict`` that of the verdicts.
    """
    task = task_of(args, dim="run.dim", seed="run.seed")
    if task.table.run.until is not None:
        raise InputError(
            f"{task.name}: compare follows all methods to the same end: leave out"
            " `run.until`, or use solve."
        )
    from twolayer.numerics.errors import Interrupted
    from twolayer.running.compare import compare

    algorithm = task.stages() or task.algorithm()
    words = (
        None
        if args.methods is None
        else [word.strip() for word in args.methods.split(",")]
    )
    if args.data is not None:
        problem, methods, start = _over_rows(task, algorithm, words, args.data)
    else:
        problem, methods = task.problem(), task.methods(words)
        start = task.start(problem)
    arguments = task.run_arguments()
    if args.dry_run:
        from twolayer.running.cost import cost_of_comparison

        idle(args, "with --dry-run, which writes nothing", "--out")
        return told(
            args,
            cost_of_comparison(problem, algorithm, methods or None, start, **arguments),
        )
    base = output_base(args.out, Path(args.task).stem)
    options = {"progress": not args.json, "force": args.force, "each": keeper(base)}
    if args.resolution is not None:
        options["resolution"] = args.resolution
    try:
        with one_line_warnings():
            done = compare(
                problem, algorithm, methods or None, start, **options, **arguments
            )
    except Interrupted as stop:
        (path,) = keep(stop.result, base, figure=False)
        done_so_far = ", ".join(stop.result.results)
        print(
            f"interrupted; {done_so_far} so far are in {path}: draw them with 'twolayer"
            f" plot {path}'"
        )
        return 1
    code = report(done, keep(done, base), args.json)
    return code or (strict_code(done) if args.strict else 0)


def strict_code(done: Comparison) -> int:
    """The exit code of the worst verdict.

    A script that wants agreement is told of everything else, also of a method that is
    suspect, and of a comparison in which nothing was judged.
    """
    verdicts = {row.verdict for row in done.verdicts}
    if "differ" in verdicts:
        return DIFFER
    return 0 if verdicts == {"agree"} else UNDECIDED


def _over_rows(
    task: TaskFile, algorithm: object, words: list[str] | None, path: str
) -> tuple[Problem, list[Method], Overlaps]:
    """The Gaussian surrogate of rows, the methods at their dimension with SGD over the
    rows, and a random start.
    """
    from twolayer.files.data_rows import read_rows
    from twolayer.methods.vectors import Vectors
    from twolayer.running.surrogate import beside, surrogate

    table = task.table
    for where, names in (
        ("problem", ("inputs", "gram")),
        ("start", ("Q", "M", "a", "blocks")),
    ):
        for name in names:
            if name in getattr(table, where).model_fields_set:
                raise InputError(
                    f"{task.name}: --data has its own `{where}.{name}`: leave it out."
                )
    rows = read_rows(path)
    given = surrogate(
        task.problem(), *rows, seed=table.start.seed, law=table.start.random
    )
    data, dim = given.method.data, given.method.dim
    if table.run.dim not in (None, dim):
        raise InputError(
            f"{task.name}: `run.dim` must be {dim}, that of the rows, or left out, but"
            f" is {table.run.dim}."
        )
    asked = [
        dataclasses.replace(x, data=data) if isinstance(x, Vectors) else x
        for x in task.methods(words, dim)
    ]
    methods = asked or [*beside(algorithm, dim), given.method]
    return (
        given.problem,
        methods if given.method in methods else [*methods, given.method],
        given.start,
    )


def keeper(base: Path) -> Callable[[Comparison], None]:
    """Writes what is finished of a comparison that lasts, into BASE.part.nc, for the
    case that it is killed.
    """
    began = time.monotonic()

    def write(done: Comparison) -> None:
        if time.monotonic() - began >= PATIENCE:
            from twolayer.files.results import save

            # what is finished lives on in memory, and the disk may have room again at
            # the end
            with contextlib.suppress(OSError, MemoryError):
                base.parent.mkdir(exist_ok=True)
                save(done, named(base, PART))

    return write


def report(done: Comparison, files: list[str], as_json: bool, **more: object) -> int:
    """Print the table; exit code 1 if a method has no seed left."""
    if as_json:
        emit({**_rows(done), **more, "files": files})
    else:
        show(done)
        wrote(files)
    return int(any(failed(result) for result in done.results.values()))


def _rows(done: Comparison) -> Json:
    """A comparison as plain values."""
    rows = [dataclasses.asdict(row) for row in done.verdicts]
    found = {"reference": done.reference, "skipped": done.skipped, "rows": rows}
    return {**found, "universality": done.universality} if done.universality else found


def show(done: Comparison) -> None:
    """The table, with verdicts in colour on a terminal."""
    from rich.console import Console
    from rich.text import Text

    text = Text(str(done))
    styles = {
        "agree": "green",
        "differ": "red",
        "undecided": "yellow",
        "suspect": "magenta",
    }
    for word, style in styles.items():
        text.highlight_regex(rf"(?m)\b{word}( to \S+| \(\S+\))?$", style)
    Console(file=sys.stdout, soft_wrap=True).print(text)
