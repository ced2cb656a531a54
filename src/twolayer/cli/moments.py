"""``twolayer moments task.toml``."""

from __future__ import annotations

import argparse

from twolayer.cli.common import CHANGE, add_common, check_figure, drawn, task_of

EXAMPLES = (
    ("twolayer moments task.toml", "the averages at the start of a task"),
    ("twolayer moments task.toml --engine quadrature", "the same by another route"),
    ("twolayer moments task.toml --out moments.png", "a figure of the matrices"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task whose start is looked at."""
    parser.add_argument("task", metavar="TASK.toml", help="the task file")
    parser.add_argument(
        "--engine",
        default="auto",
        metavar="NAME",
        help="auto (default), quadrature or sobol",
    )
    add_common(
        parser,
        "draw the matrices into this .png, .pdf or .svg",
        "seed of a random start, start.seed",
        CHANGE,
    )


def run(args: argparse.Namespace) -> int:
    """Print the averages at the start of a task."""
    task = task_of(args, seed="start.seed")
    check_figure(args.out)
    from twolayer.gaussian.moments import moments
    from twolayer.task.averages import Averages

    problem, algorithm = task.problem(), task.algorithm()
    result = moments(
        problem, task.start(problem), algorithm.loss, Averages(args.engine)
    )
    names = ("psi", "phi", "chi", "second", "risk", "excess_risk", "error", "engine")
    values = {name: getattr(result, name) for name in names}
    drawn(args, str(result), values, lambda plot: plot.moments(result))
    return 0
