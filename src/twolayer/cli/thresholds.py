"""``twolayer thresholds "z1**2" --noise 0.1 --alphas 0.2:3:20``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from twolayer.cli.common import (
    add_common,
    add_gram,
    check_figure,
    drawn,
    gram_of,
    idle,
)
from twolayer.numerics.errors import InputError, short

if TYPE_CHECKING:
    from twolayer.numerics.arguments import Options

EXAMPLES = (
    ("twolayer thresholds 'z1**2'", "α_c of weak recovery, direction by direction"),
    ("twolayer thresholds 'z1*z2' --noise 0.1", "with noise on the labels"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The target, its noise, and the α for the best possible."""
    parser.add_argument(
        "target", metavar="TARGET", help="a formula in z1, z2, … such as 'z1**2'"
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.0,
        metavar="Δ",
        help="variance of the labels' noise (default 0)",
    )
    parser.add_argument(
        "--alphas",
        metavar="LIST",
        help="also the best possible at these n/d: 0.5,1,2, or 0.2:3:20 for 20 of them",
    )
    parser.add_argument(
        "--directions",
        type=int,
        metavar="K",
        help="directions, where the formula has fewer",
    )
    add_gram(parser)
    parser.add_argument(
        "--amp",
        type=float,
        metavar="α",
        help="also run message passing on explicit data at this n/d",
    )
    parser.add_argument(
        "--dim", type=int, metavar="d", help="dimension of --amp (default 1000)"
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="runs of --amp (default 4)"
    )
    add_common(parser, "write the figure to this .png, .pdf or .svg", "seed of --amp")


def grid_of(text: str) -> list[float]:
    """Numbers of a list 0.5,1,2 or of a range FROM:TO:COUNT."""
    try:
        if ":" not in text:
            return [float(word) for word in text.split(",")]
        low, high, count = text.split(":")
        n = int(count)
        if n < 2 or not float(low) < float(high):
            raise ValueError
        return [float(low) + (float(high) - float(low)) * i / (n - 1) for i in range(n)]
    except ValueError:
        raise InputError(
            "--alphas must be a list such as 0.5,1,2 or a range FROM:TO:COUNT such as"
            f" 0.2:3:20, but got {short(text)}."
        ) from None


def run(args: argparse.Namespace) -> int:
    """Print thresholds, and the best possible and message passing if asked for."""
    if args.amp is None:
        idle(args, "without --amp", "--dim", "--seeds", "--seed")
    grid = None if args.alphas is None else grid_of(args.alphas)
    check_figure(args.out)
    from twolayer.analysis.thresholds.alpha_c import Thresholds, thresholds
    from twolayer.analysis.thresholds.amp import MessagePassing, simulate
    from twolayer.analysis.thresholds.label_law import law_of
    from twolayer.numerics.errors import Interrupted

    if grid is not None:
        from twolayer.analysis.thresholds.best_possible import best_possible

    gram = gram_of(args.gram)
    known: Options = {"directions": args.directions, "gram": gram}
    law = law_of(args.target, args.noise, **known)  # refused before any work is done
    best = runs = None
    try:
        result = thresholds(args.target, args.noise, **known)
        best = (
            None
            if grid is None
            else best_possible(args.target, grid, args.noise, **known)
        )
        runs = (
            None
            if args.amp is None
            else simulate(
                law, args.amp, args.dim or 1000, args.seeds or 4, args.seed or 0
            )
        )
        code = 0
    except Interrupted as stop:  # what is done is told
        code, done = 1, stop.result
        if isinstance(done, Thresholds):
            result = done
        elif isinstance(done, MessagePassing):
            runs = done
        else:
            best = done
    values = {
        "target": result.target.name,
        "noise": result.noise,
        "alpha": result.alpha,
        "error": result.error,
        "trivial": result.trivial,
        "rho": result.rho,
        "operator": result.operator,
        "eigenvectors": result.eigenvectors,
        "staircase": [
            {
                "directions": s.directions,
                "order": s.order,
                "alpha": s.alpha,
                "error": s.error,
            }
            for s in result.staircase
        ],
    }
    if gram is not None:
        values["frame"] = result.frame
    if best is not None:
        values |= {
            "alphas": best.alphas,
            "spinodal": best.spinodal,
            "information": best.information,
            "algorithm": best.algorithm,
            "threshold_error": best.threshold_error,
            "branches": list(best.data.branch.values),
            "overlap": best.data.overlap.values,
            "mmse": best.data.mmse.values,
        }
    if runs is not None:
        values |= {
            "amp": {"alpha": runs.alpha, "dim": runs.dim, "overlap": runs.overlap}
        }
    text = "\n".join(str(more) for more in (result, best, runs) if more is not None)
    drawn(
        args,
        text,
        values,
        lambda plot: (
            plot.thresholds(result) if best is None else plot.best_possible(best)
        ),
    )
    return code
