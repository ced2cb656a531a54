"""``twolayer escape --width 2 --dim 10000 --threshold 0.1``."""

from __future__ import annotations

import argparse
import math

from twolayer.cli.common import add_common, settings, tell

LEAST, MOST = 0.01, 0.03  # thresholds taken by default: at the best rate wide networks lose 4 % of their risk at most
ROWS = ("annealed", "quenched", "quenched_error", "ode", "ode_error", "corrected", "from_zero")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Phase retrieval in a few numbers, the dimension and the threshold."""
    parser.add_argument("--width", type=int, default=1, metavar="P", help="neurons (default 1)")
    parser.add_argument(
        "--noise", type=float, default=0.0, metavar="Δ", help="variance of the labels' noise (default 0)"
    )
    parser.add_argument("--lr", metavar="LAW", help="learning rate such as 0.05/d (default: the fewest steps)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="batch size (default 1)")
    parser.add_argument("--dim", type=int, default=10_000, metavar="D", help="dimension (default 10000)")
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="T",
        help="T in R = (1 − T) R(0) (default: from 0.01 to 0.03, the least for which the noise of samples is known)",
    )
    parser.add_argument("--measure", type=int, metavar="N", help="also measure N runs of the exact chain")
    add_common(parser, "write what is printed to PATH as well", "seed of random starts and runs")


def run(args: argparse.Namespace) -> int:
    """Print the formulas, and the measurement if asked for."""
    settings(args)
    from twolayer.analysis.escape import escape_time, resolved_threshold
    from twolayer.analysis.mediocrity import admissible_lr, escape_gain, optimal_lr
    from twolayer.analysis.passage import first_passage
    from twolayer.methods.chain import Chain
    from twolayer.numerics.errors import positive_integer
    from twolayer.running.solve import solve
    from twolayer.task.algorithm import SGD
    from twolayer.task.method import Until
    from twolayer.task.overlaps import Overlaps
    from twolayer.task.problem import Problem

    problem = Problem("z1**2", "square", args.width, args.noise)
    best = optimal_lr(problem, args.batch)
    algorithm = SGD(best if args.lr is None else args.lr, args.batch, geometry="projected")
    seed = args.seed or 0
    positive_integer("--dim", args.dim, 2)
    if args.threshold is None:
        least = math.ceil(1000 * resolved_threshold(problem, algorithm, args.dim)) / 1000
        args.threshold = min(max(least, LEAST), MOST)
    times = escape_time(problem, algorithm, args.dim, args.threshold, seed=seed)
    _, high = admissible_lr(problem, args.batch)
    measured = None
    if args.measure is not None:
        starts = Overlaps.random(problem, args.dim, seed, size=positive_integer("--measure", args.measure))
        until = Until("excess_risk", 1 - args.threshold, relative=True)
        end = 4 * times.ode
        runs = solve(problem, algorithm, Chain(args.dim), starts, time=end, save=1, seed=seed, until=until)
        measured = first_passage(runs)
    values = {
        "lr": str(algorithm.lr),
        "optimal_lr": str(best),
        "largest_lr": str(high),
        "gain": escape_gain(problem),
        "threshold": args.threshold,
        "missing": times.missing,
        "reached": times.reached,
        "time": {name: getattr(times, name) for name in ROWS},
        "steps": {name: getattr(times.steps, name) for name in ROWS},
    }
    lines = [f"lr        {algorithm.lr}   (fewest steps {best}, escape below {high}, gain {escape_gain(problem):.4g})"]
    lines.append(f"threshold R = (1 − {args.threshold:g}) R(0), d = {args.dim}")
    for name in (row for row in ROWS if not row.endswith("_error")):
        value, steps, word = getattr(times, name), getattr(times.steps, name), name.replace("_", " ")
        shown = times.missing[name] if value is None else f"t = {value:<9.5g} steps {steps:.5g}"
        lines.append(f"{word:<9} {'not given: ' if value is None else ''}{shown}")
    if times.reached < 0.995:
        lines.append(f"the ODE reaches the threshold from {times.reached:.0%} of the starts")
    if measured is not None:
        numbers = ("mean", "standard_error", "median", "mean_steps", "censored", "diverged")
        values["chain"] = {name: getattr(measured, name) for name in numbers}
        lines.append(f"chain     t = {measured}   steps {measured.mean_steps:.5g}")
    tell(args, "\n".join(lines), values)
    return 0
