"""``twolayer escape --width 2 --dim 10000 --threshold 0.1``."""

from __future__ import annotations

import argparse
import math
from typing import Any

from twolayer.cli.common import add_common, add_dry_run, check_report, drawn, fold, idle, one_line_warnings, wrapped
from twolayer.cli.solve import told

EXAMPLES = (
    ("twolayer escape --width 4 --noise 0.1", "formulas, at the rate with the fewest steps"),
    ("twolayer escape --dim 1000 --lr 0.05/d --measure 32", "and 32 runs beside them"),
    ("twolayer escape --dim 1000 --measure 32 --out escape.png", "passage times with the formulas, drawn"),
    ("twolayer escape --dim 100000 --measure 256 --dry-run", "what the runs would take"),
)
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
    add_dry_run(parser)
    add_common(
        parser, "draw passage times (.png, .pdf, .svg), or write what is printed (.txt, .json)", "of starts and runs"
    )


def run(args: argparse.Namespace) -> int:
    """Print the formulas, and the measurement if asked for."""
    check_report(args.out)
    if args.measure is None:
        idle(args, "without --measure: formulas are not run", "--dry-run")
        if args.width == 1 and args.out is None:
            idle(args, "without --measure: for one neuron the formulas are integrals", "--seed")
    from twolayer.analysis.escape import escape_time, passage_law, resolved_threshold
    from twolayer.analysis.mediocrity import admissible_lr, escape_gain, optimal_lr
    from twolayer.analysis.passage import first_passage
    from twolayer.methods.chain import Chain
    from twolayer.numerics.errors import positive_integer
    from twolayer.running.cost import cost_of
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
        method = Chain(args.dim)
        if args.dry_run:  # the last runs cross at about twice the mean
            return told(args, cost_of(problem, algorithm, method, starts, time=2 * times.ode, save=1, seed=seed))
        until = Until("excess_risk", 1 - args.threshold, relative=True)
        with one_line_warnings():
            runs = solve(problem, algorithm, method, starts, time=4 * times.ode, save=1, seed=seed, until=until)
        measured = first_passage(runs)
    values: dict[str, Any] = {
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
    lines = [
        f"lr         {algorithm.lr:.4g}   (fewest steps {best:.4g}, escape below {high:.4g})",
        f"gain       {escape_gain(problem):.4g} times fewer steps than one neuron, each at its best rate",
        f"threshold  R = (1 − {args.threshold:g}) R(0) at d = {args.dim}",
    ]
    rows = []
    for name in (row for row in ROWS if not row.endswith("_error")):
        value, steps = getattr(times, name), getattr(times.steps, name)
        shown = f"not given: {times.missing[name]}" if value is None else f"t = {value:<9.5g} steps {steps:.5g}"
        rows.append((name.replace("_", " "), shown))
    if measured is not None:
        numbers = ("mean", "standard_error", "median", "mean_steps", "censored", "diverged")
        values["chain"] = {name: getattr(measured, name) for name in numbers}
        rows.append(("chain", f"t = {measured}   steps {measured.mean_steps:.5g}"))
    lines.append(wrapped([(f"{name:<9}", text) for name, text in rows]))
    if times.reached < 0.995:
        lines.append(fold(f"the ODE reaches the threshold from {times.reached:.0%} of the starts"))

    def draw() -> Any:
        from twolayer import plot

        law = passage_law(problem, algorithm, args.dim, args.threshold, seed=seed)
        return plot.passage(times, law, measured, _title(args, algorithm))

    drawn(args, "\n".join(lines), values, draw)
    return 0


def _title(args: argparse.Namespace, algorithm: Any) -> str:
    noise = f", Δ = {args.noise:g}" if args.noise else ""
    batch = f", batch {args.batch}" if args.batch > 1 else ""
    return (
        f"Phase retrieval, p = {args.width}{noise}, lr = {algorithm.lr:.3g}{batch}, d = {args.dim}: "
        f"time until R = (1 − {args.threshold:g}) R(0)"
    )
