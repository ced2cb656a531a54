"""``twolayer cite result.nc`` or ``twolayer cite ode``."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to cite."""
    parser.add_argument("what", nargs="+", help="result files or method names")


def run(args: argparse.Namespace) -> int:
    """Print the papers."""
    from twolayer.results import cite, load
    from twolayer.solving import method_by_name

    print(cite(*(load(x) if Path(x).suffix == ".nc" else method_by_name(x, 2, {}) for x in args.what)))
    return 0
