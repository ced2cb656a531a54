"""``twolayer moments task.toml``."""

from __future__ import annotations

import argparse

from twolayer.cli.common import add_common, add_task, emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task whose start is looked at."""
    add_task(parser)
    parser.add_argument("--engine", default="auto", help="auto, quadrature or sobol")
    add_common(parser, "write a figure of the matrices to this .png, .pdf or .svg")


def run(args: argparse.Namespace) -> int:
    """Print the averages at the start of a task."""
    from twolayer.taskfile import read_task

    task = read_task(args.task, args.set)
    from twolayer.gaussian.moments import moments

    problem, algorithm = task.problem(), task.algorithm()
    result = moments(problem, task.start(problem), algorithm.loss, args.engine)
    if args.out:
        from twolayer import plot

        plot.save_figure(plot.moments(result), args.out)
    values = {name: getattr(result, name) for name in ("psi", "phi", "chi", "second")}
    if args.json:
        scalars = {
            "risk": result.risk,
            "excess_risk": result.excess_risk,
            "error": result.error,
            "engine": result.engine,
        }
        emit({**{k: v.tolist() for k, v in values.items()}, **scalars})
        return 0
    for name, value in values.items():
        print(f"{name:<7}{str(value.round(6)).replace(chr(10), chr(10) + ' ' * 7)}")
    print(f"risk   {result.risk:.8g}   excess {result.excess_risk:.8g}")
    print(f"engine {result.engine}   error {result.error:.1e}")
    return 0
