"""``twolayer rerun result.nc``."""

from __future__ import annotations

import argparse
import json

from twolayer.cli.common import add_common, keep, one_line_warnings, output_base, settings
from twolayer.cli.solve import report
from twolayer.numerics.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The saved result."""
    parser.add_argument("result", metavar="RESULT.nc", help="a file written by solve")
    add_common(parser, "write PATH.nc and PATH.png (default: nothing is written)", "run with other random numbers")


def run(args: argparse.Namespace) -> int:
    """Run again and say whether the numbers are the same."""
    settings(args)
    base = None if args.out is None else output_base(args.out, "")
    from twolayer.files.results import load
    from twolayer.numerics.errors import Interrupted
    from twolayer.running.comparison import Comparison
    from twolayer.running.solve import rerun

    old = load(args.result)
    if isinstance(old, Comparison):
        raise InputError("rerun takes a result of solve, but this file holds a comparison.")
    if args.seed is not None:
        description = json.loads(old.attrs["description"])
        description["run"]["seed"] = args.seed
        old.attrs["description"] = json.dumps(description)
    try:
        with one_line_warnings():
            new = rerun(old)
    except Interrupted as stop:
        where = f"; the finished part is in {keep(stop.result, base, figure=False)[0]}" if base else ""
        print(f"interrupted{where}")
        return 1
    same = all(new[name].equals(old[name]) for name in ("M", "Q", "a", "risk", "outcome"))
    files = keep(new, base) if base else []
    if not args.json and args.seed is None:
        print("the same numbers" if same else "other numbers (see versions)")
    return report(new, files, args.json, same=same)
