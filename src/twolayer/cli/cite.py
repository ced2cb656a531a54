"""``twolayer cite result.nc`` or ``twolayer cite ode``."""

from __future__ import annotations

import argparse
from pathlib import Path

from twolayer.cli.common import add_common, settings, tell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to cite."""
    parser.add_argument("what", nargs="+", help="result files or method names")
    add_common(parser, "write the same to this file")


def run(args: argparse.Namespace) -> int:
    """Print the papers."""
    settings(args)
    from twolayer.files.papers import cite
    from twolayer.files.results import load
    from twolayer.running.solve import method_by_name

    papers = cite(*(load(x) if Path(x).suffix == ".nc" else method_by_name(x, 1, {}) for x in args.what))
    tell(args, papers, {"papers": papers.splitlines()})
    return 0
