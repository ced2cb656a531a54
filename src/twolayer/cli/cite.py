"""``twolayer cite result.nc`` or ``twolayer cite ode``."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from twolayer.cli.common import add_common, fold, tell
from twolayer.files.catalogue import papers_of
from twolayer.numerics.errors import InputError

EXAMPLES = (
    ("twolayer cite ode chain", "the papers behind two methods"),
    ("twolayer cite results/task.nc", "those behind a result"),
    (
        "twolayer cite results/task.nc --bibtex --out task.bib",
        "the same for a bibliography",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to cite."""
    parser.add_argument("what", nargs="+", help="result files, stores or method names")
    parser.add_argument("--bibtex", action="store_true", help="as entries of BibTeX")
    add_common(parser, "write the same to this file")


def run(args: argparse.Namespace) -> int:
    """Print the papers and the package."""
    from twolayer.files.papers import written

    style = "bibtex" if args.bibtex else "text"
    known = [papers_of(word) for word in args.what]
    papers = (
        _of_results(args.what, style)
        if None in known
        else written(itertools.chain(*filter(None, known)), style)
    )
    if args.bibtex:
        tell(args, papers, {"papers": papers.split("\n\n")})
    else:
        tell(
            args,
            "\n".join(fold(line, then="    ") for line in papers.splitlines()),
            {"papers": papers.splitlines()},
        )
    return 0


def _of_results(what: list[str], style: str) -> str:
    """The papers behind result files, and methods among them."""
    from twolayer.files.papers import cite
    from twolayer.files.results import load
    from twolayer.running.solve import method_by_name

    other = next((x for x in what if Path(x).suffix not in ("", ".nc", ".zarr")), None)
    if other is not None:
        raise InputError(
            "Argument `what` must be a result (.nc), a store (.zarr) or a method, but"
            f" got {other!r}."
        )
    whole = [load(x) if Path(x).suffix else method_by_name(x, 1, {}) for x in what]
    return cite(*whole, style=style)
