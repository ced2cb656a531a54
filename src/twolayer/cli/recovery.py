"""``twolayer recovery "h3(z1)" h3 --loss correlation --lr "0.3*d**-1.5" --dim 1000
--measure 64``.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from twolayer.cli.common import (
    add_common,
    add_dry_run,
    add_force,
    check_report,
    drawn,
    fold,
    idle,
    one_line_warnings,
)
from twolayer.cli.solve import told

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from twolayer.numerics.arguments import Json

EXAMPLES = (
    (
        "twolayer recovery 'h3(z1)' h3 --loss correlation",
        "the landscape, and how many samples it takes",
    ),
    ("twolayer recovery z1 relu --dim 500 --measure 32", "and 32 runs beside it"),
    ("twolayer recovery z1 relu --dim 500 --measure 32 --out r.png", "recovery curves"),
    (
        "twolayer recovery 'h2(z1)' h2 --measure 64 --dry-run",
        "what the runs would take",
    ),
)
ETA = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A single-index task, the algorithm, the dimension and the thresholds."""
    parser.add_argument(
        "target", metavar="TARGET", help="formula in z1, such as 'h3(z1)'"
    )
    parser.add_argument(
        "activation",
        metavar="ACTIVATION",
        help="name or formula in z, such as h3 or relu",
    )
    parser.add_argument(
        "--loss",
        default="squared",
        metavar="NAME",
        help="squared (default) or correlation",
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.0,
        metavar="Δ",
        help="variance of the labels' noise (default 0)",
    )
    parser.add_argument(
        "--lr",
        metavar="LAW",
        help="δ/N as a law such as 0.2/d (default: half the largest step)",
    )
    parser.add_argument(
        "--dim", type=int, default=1000, metavar="N", help="dimension (default 1000)"
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="η",
        help=f"weak at η, strong at 1 − η (default {ETA}; measured or drawn)",
    )
    parser.add_argument(
        "--measure",
        type=int,
        metavar="N",
        help="also measure N runs of the exact chain",
    )
    parser.add_argument(
        "--start", metavar="NAME", help="of the runs: positive (default) or random"
    )
    parser.add_argument(
        "--samples", type=float, metavar="N", help="censor runs after so many samples"
    )
    add_dry_run(parser)
    add_force(parser)
    add_common(
        parser,
        "draw recovery curves (.png, .pdf, .svg), or write what is printed (.txt,"
        " .json)",
        "of starts and runs",
    )


def run(args: argparse.Namespace) -> int:
    """Print the landscape, and the measurement if asked for."""
    check_report(args.out)
    if args.measure is None:
        idle(
            args,
            "without --measure",
            "--start",
            "--samples",
            "--seed",
            "--dry-run",
            "--force",
        )
        if args.out is None:
            idle(args, "without --measure or a figure", "--threshold")
    from twolayer.analysis.population_loss import (
        critical_alpha,
        population_loss,
        sufficient_alpha,
    )
    from twolayer.analysis.recovery import foreseen_recovery, recovery, thresholds_of
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem
    from twolayer.task.scaling import Scaling

    problem = Problem(args.target, args.activation, noise=args.noise)
    landscape = population_loss(problem, args.loss)
    thresholds = thresholds_of(ETA if args.threshold is None else args.threshold)
    k, noise = landscape.information, float(landscape.noise())
    alpha, grows = critical_alpha(args.dim, k), landscape.growth > 0
    # without a bound for k = 1 the noise of the steps still has to be small against
    # what is left to learn
    largest, usual = (
        landscape.largest_step(args.dim) if grows else None,
        2 * abs(landscape.growth) / noise,
    )
    default = Scaling(min(usual if largest is None else largest, usual) / 2, -1.0)
    algorithm = SGD(
        default if args.lr is None else args.lr, loss=args.loss, geometry="spherical"
    )
    values: Json = {
        "information": k,
        "critical_alpha": alpha,
        "critical_samples": alpha * args.dim,
        "sufficient_samples": sufficient_alpha(args.dim, k) * args.dim,
        "growth": landscape.growth,
        "noise": noise,
        "largest_step": largest,
        "descends": landscape.descends,
        "step": algorithm.lr(args.dim) * args.dim,
    }
    power = {1: "", 2: "·m"}.get(k, f"·m^{k - 1}")
    bound = "but overlaps do not grow from a random start"
    if largest is not None:
        bound = "no largest" if math.isinf(largest) else f"largest {largest:.4g}"
    lines = [
        f"information exponent  {k}"
        + ("   (an even loss: recovered up to the sign)" if landscape.even else ""),
        f"α_c(N)                {alpha:.5g}   (α_c·N = {alpha * args.dim:.5g} samples)",
        (
            "strong recovery       proved far beyond"
            f" {values['sufficient_samples']:.5g} samples"
        ),
        f"growth                ṁ ≈ {landscape.growth:.5g}{power}"
        + ("" if landscape.descends else "   (φ' is not negative on all of (0, 1))"),
        f"step                  δ = {values['step']:.4g}, {bound}",
    ]
    found = None
    if args.measure is not None:
        seed, start = args.seed or 0, args.start or "positive"
        options = {
            "start": start,
            "samples": args.samples,
            "seeds": args.measure,
            "seed": seed,
        }
        if args.dry_run:
            return told(
                args,
                foreseen_recovery(problem, algorithm, args.dim, thresholds, **options),
            )
        with one_line_warnings():
            found = recovery(
                problem, algorithm, args.dim, thresholds, force=args.force, **options
            )
        values |= {
            "thresholds": found.thresholds,
            "samples": found.samples,
            "search": found.search._asdict(),
            "descent": found.descent._asdict(),
            "descent_share": found.descent_share._asdict(),
            "weak_probability": found.weak_probability._asdict(),
            "strong_probability": found.strong_probability._asdict(),
            "censored": found.censored,
        }
        lines += [fold(line, then="    ") for line in str(found).splitlines()]
        lines.append(
            f"censored after {found.samples:.4g} samples: {found.censored[0]} and"
            f" {found.censored[1]}"
        )

    def draw(plot: Any) -> Figure:
        noise = f", Δ = {args.noise:g}" if args.noise else ""
        title = (
            f"{args.target} by {args.activation}, {args.loss} loss{noise}, lr ="
            f" {algorithm.lr:.3g}, N = {args.dim}"
        )
        return plot.recovery(landscape, algorithm, args.dim, thresholds, found, title)

    drawn(args, "\n".join(lines), values, draw)
    return 0
