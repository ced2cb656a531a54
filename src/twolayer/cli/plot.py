"""``twolayer plot result.nc --out figure.png``."""

from __future__ import annotations

import argparse
from pathlib import Path

from twolayer.cli.common import add_common, emit, figure_path, settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The saved result and the figure."""
    parser.add_argument("result", metavar="RESULT.nc", help="a file written by solve or compare")
    parser.add_argument(
        "--quantity",
        default="risk",
        metavar="NAME",
        help="what is drawn beside the overlaps: risk, excess_risk, loss, or error",
    )
    add_common(parser, "the figure, .png, .pdf or .svg (default: beside the result)")


def run(args: argparse.Namespace) -> int:
    """Draw the figure of a saved result."""
    settings(args)
    if args.out is not None:
        figure_path(args.out)
    from twolayer import plot
    from twolayer.files.results import load
    from twolayer.running.comparison import Comparison

    result = load(args.result)
    path = figure_path(str(Path(args.result).with_suffix(".png")) if args.out is None else args.out)
    if isinstance(result, Comparison):
        figure = plot.compare(result, quantity=args.quantity)
    else:
        figure = plot.trajectory(result, quantity=args.quantity)
    plot.save_figure(figure, path)
    if args.json:
        emit({"files": [str(path)]})
    else:
        print(f"wrote {path}")
    return 0
