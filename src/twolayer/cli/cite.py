"""``twolayer cite result.nc`` or ``twolayer cite ode``."""

from __future__ import annotations

import argparse
from pathlib import Path

from twolayer.cli.common import add_common, fold, tell

EXAMPLES = (
    ("twolayer cite ode chain", "the papers behind two methods"),
    ("twolayer cite results/task.nc", "those behind a result"),
    ("twolayer cite results/task.nc --bibtex --out task.bib", "the same for a bibliography"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to cite."""
    parser.add_argument("what", nargs="+", help="result files, stores or method names")
    parser.add_argument("--bibtex", action="store_true", help="as entries of BibTeX")
    add_common(parser, "write the same to this file")


def run(args: argparse.Namespace) -> int:
    """Print the papers and the package."""
    from twolayer.files.papers import cite
    from twolayer.files.results import load
    from twolayer.running.solve import method_by_name

    whole = [load(x) if Path(x).suffix in (".nc", ".zarr") else method_by_name(x, 1, {}) for x in args.what]
    papers = cite(*whole, style="bibtex" if args.bibtex else "text")
    if args.bibtex:
        tell(args, papers, {"papers": papers.split("\n\n")})
    else:
        tell(args, "\n".join(fold(line, then="    ") for line in papers.splitlines()), {"papers": papers.splitlines()})
    return 0
