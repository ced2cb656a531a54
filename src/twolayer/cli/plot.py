"""``twolayer plot result.nc --out figure.png``."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The saved result and the figure."""
    parser.add_argument("result", metavar="RESULT.nc", help="a file written by solve or compare")
    parser.add_argument("--out", metavar="PATH", help="the figure, .png, .pdf or .svg (default: beside the result)")


def run(args: argparse.Namespace) -> int:
    """Draw the figure of a saved result."""
    import xarray as xr

    from twolayer import plot
    from twolayer.results import load

    result = load(args.result)
    figure = plot.compare(result) if isinstance(result, xr.DataTree) else plot.trajectory(result)
    print(f"wrote {plot.save_figure(figure, args.out or args.result.removesuffix('.nc') + '.png')}")
    return 0
