"""``twolayer moments task.toml``."""

from __future__ import annotations

import argparse

from twolayer.cli.common import add_common, emit, figure_path, task_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task whose start is looked at."""
    parser.add_argument("task", metavar="TASK.toml", help="the task file")
    parser.add_argument("--engine", default="auto", help="auto, quadrature or sobol")
    add_common(
        parser, "write a figure of the matrices to this .png, .pdf or .svg", "seed of a random start, start.seed"
    )


def run(args: argparse.Namespace) -> int:
    """Print the averages at the start of a task."""
    task = task_of(args, seed="start.seed")
    path = None if args.out is None else figure_path(args.out)
    from twolayer.gaussian.moments import moments

    problem, algorithm = task.problem(), task.algorithm()
    result = moments(problem, task.start(problem), algorithm.loss, args.engine)
    if path is not None:
        from twolayer import plot

        plot.save_figure(plot.moments(result), path)
    values = {name: getattr(result, name) for name in ("psi", "phi", "chi", "second")}
    if args.json:
        scalars = ("risk", "excess_risk", "error", "engine")
        emit({**values, **{name: getattr(result, name) for name in scalars}})
        return 0
    for name, value in values.items():
        print(f"{name:<7}{str(value.round(6)).replace(chr(10), chr(10) + ' ' * 7)}")
    print(f"risk   {result.risk:.8g}   excess {result.excess_risk:.8g}")
    print(f"engine {result.engine}   error {result.error:.1e}")
    return 0
