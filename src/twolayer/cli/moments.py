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
    values = {name: getattr(result, name) for name in ("psi", "phi", "chi", "second")}
    lines = [
        f"{name:<7}{str(value.round(6)).replace(chr(10), chr(10) + ' ' * 7)}"
        for name, value in values.items()
    ]
    lines.append(f"risk   {result.risk:.8g}   excess {result.excess_risk:.8g}")
    lines.append(f"engine {result.engine}   error {result.error:.1e}")
    scalars = {
        name: getattr(result, name)
        for name in ("risk", "excess_risk", "error", "engine")
    }
    drawn(
        args, "\n".join(lines), {**values, **scalars}, lambda plot: plot.moments(result)
    )
    return 0
