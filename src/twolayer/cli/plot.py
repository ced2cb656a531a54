"""``twolayer plot result.nc --out figure.png``."""

from __future__ import annotations

import argparse
from pathlib import Path

from twolayer.cli.common import add_common, check_figure, idle, say
from twolayer.numerics.errors import InputError, short

EXAMPLES = (
    ("twolayer plot results/task-chain.nc", "beside the result, as .png"),
    ("twolayer plot results/task.nc --out task.pdf", "a comparison, for print"),
    ("twolayer plot s.zarr --of overlap", "a sweep: curves, or a heat map of two axes"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The saved result and the figure."""
    parser.add_argument(
        "result",
        metavar="RESULT",
        help="a .nc file of solve, compare or gallery, or a .zarr store of sweep",
    )
    parser.add_argument(
        "--of",
        metavar="NAME",
        help="of a sweep: the variable to draw (default: its main one)",
    )
    parser.add_argument(
        "--quantity",
        metavar="NAME",
        help="beside the overlaps: risk, excess_risk, loss or error",
    )
    add_common(parser, "the figure, .png, .pdf or .svg (default: beside the result)")


def run(args: argparse.Namespace) -> int:
    """Draw the figure of a saved result."""
    check_figure(args.out)
    suffix = Path(args.result).suffix
    if suffix not in (".nc", ".zarr"):
        raise InputError(
            f"RESULT must be a .nc file or a .zarr store, but got {short(args.result)}."
        )
    if suffix == ".nc":
        idle(args, "on a .nc file, of which risk and overlaps are drawn", "--of")
    else:
        idle(args, "on a sweep, whose variable is named by --of", "--quantity")
    from twolayer import plot
    from twolayer.files.results import load
    from twolayer.running.comparison import Comparison

    result = load(args.result)
    path = args.out or str(Path(args.result).with_suffix(".png"))
    check_figure(path)
    if isinstance(result, Comparison):
        figure = plot.compare(result, quantity=args.quantity or "risk")
    elif "gallery" in result.attrs:
        from twolayer import gallery

        idle(args, "on a figure of the gallery, which is drawn as it is", "--quantity")
        figure = gallery.draw(result).figure
    else:
        figure = (
            plot.trajectory(result, quantity=args.quantity or "risk")
            if suffix == ".nc"
            else plot.swept(result, args.of)
        )
    files = [str(plot.save_figure(figure, Path(path)))]
    say(args, "\n".join(f"wrote {file}" for file in files), {"files": files}, [])
    return 0
