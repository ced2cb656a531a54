"""``twolayer rerun result.nc``."""

from __future__ import annotations

import argparse

from twolayer.cli.common import output_base, quiet_warnings
from twolayer.cli.solve import report
from twolayer.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The saved result."""
    parser.add_argument("result", metavar="RESULT.nc", help="a file written by solve")
    parser.add_argument("--out", metavar="PATH", help="write PATH.nc (default: nothing is written)")
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text")


def run(args: argparse.Namespace) -> int:
    """Run again and say whether the numbers are the same."""
    import xarray as xr

    from twolayer.results import load, save
    from twolayer.solving import rerun

    old = load(args.result)
    if isinstance(old, xr.DataTree):
        raise InputError("rerun takes a result of solve, but this file holds a comparison.")
    base = output_base(args.out, "") if args.out else None
    with quiet_warnings():
        new = rerun(old)
    files = [str(save(new, base.with_suffix(".nc")))] if base else []
    if not args.json:
        print("the same numbers" if new.M.equals(old.M) and new.Q.equals(old.Q) else "other numbers (see versions)")
    return report(new, files, args.json)
