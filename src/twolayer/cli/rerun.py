"""``twolayer rerun result.nc``."""

from __future__ import annotations

import argparse
from typing import Any

from twolayer.cli import compare, solve
from twolayer.cli.common import add_common, keep, one_line_warnings, output_base

EXAMPLES = (
    (
        "twolayer rerun results/task-chain.nc",
        "whether this machine gives the same numbers",
    ),
    (
        "twolayer rerun results/task.nc --seed 1 --out other",
        "a comparison, with other random numbers",
    ),
)
NUMBERS = ("M", "Q", "q", "a", "risk", "outcome")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The saved result."""
    parser.add_argument(
        "result", metavar="RESULT.nc", help="a file written by solve or compare"
    )
    add_common(
        parser,
        "write PATH.nc and PATH.png (default: nothing is written)",
        "run with other random numbers",
    )


def run(args: argparse.Namespace) -> int:
    """Run again and say whether the numbers are the same."""
    base = None if args.out is None else output_base(args.out, "")
    from twolayer.files.results import load
    from twolayer.numerics.errors import Interrupted
    from twolayer.running.comparison import Comparison
    from twolayer.running.rerun import rerun

    old = load(args.result)
    try:
        with one_line_warnings():
            new: Any = rerun(old, seed=args.seed)
    except Interrupted as stop:
        where = (
            f"; the finished part is in {keep(stop.result, base, figure=False)[0]}"
            if base
            else ""
        )
        print(f"interrupted{where}: give the same command again")
        return 1
    both = isinstance(old, Comparison)
    same = (
        all(_same(old.results[name], new.results[name]) for name in old.results)
        if both
        else _same(old, new)
    )
    files = keep(new, base) if base else []
    if not args.json and args.seed is None:
        print(
            "the same numbers"
            if same
            else "other numbers ('twolayer about' tells the versions)"
        )
    report = compare.report if both else solve.report
    return report(new, files, args.json, same=same)


def _same(old: Any, new: Any) -> bool:
    return all(new[name].equals(old[name]) for name in NUMBERS if name in old)
