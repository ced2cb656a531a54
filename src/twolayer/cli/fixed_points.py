"""``twolayer fixed-points task.toml``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from twolayer.cli.common import (
    CHANGE,
    add_common,
    check_figure,
    drawn,
    folded,
    idle,
    one_line_warnings,
    task_of,
)
from twolayer.numerics.errors import InputError

if TYPE_CHECKING:
    from twolayer.analysis.stability.points import FixedPoint
    from twolayer.numerics.arguments import Json

EXAMPLES = (
    (
        "twolayer fixed-points task.toml",
        "the saddles that the limit of a task passes, and its plateaus",
    ),
    (
        "twolayer fixed-points task.toml --out plateaus.png",
        "the run with its plateaus, drawn",
    ),
    (
        "twolayer fixed-points task.toml --near-start",
        "the one that the start leads to, without a run",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The task whose limit is looked at."""
    parser.add_argument(
        "task", metavar="TASK.toml", help="the task file (see 'twolayer help tasks')"
    )
    parser.add_argument(
        "--near-start",
        action="store_true",
        help="search from the start, not along a run of the ODE",
    )
    parser.add_argument(
        "--save",
        type=int,
        metavar="N",
        help="points of the run that are looked at (default 400)",
    )
    add_common(
        parser,
        "draw the run with its plateaus, or growth rates with --near-start (.png, .pdf,"
        " .svg)",
        "seed of a random start, start.seed",
        CHANGE,
    )


def run(args: argparse.Namespace) -> int:
    """Print fixed points and plateaus."""
    if args.near_start:
        idle(args, "with --near-start, which runs nothing", "--save")
    task = task_of(args, seed="start.seed")
    check_figure(args.out)
    if task.table.stages:
        raise InputError(
            f"{task.name}: fixed points are those of one algorithm, but the file has"
            " [[stages]]."
        )
    from twolayer.analysis.stability.plateaus import plateaus
    from twolayer.analysis.stability.points import FixedPoints, fixed_points
    from twolayer.methods.ode import ODE
    from twolayer.numerics.errors import Interrupted
    from twolayer.running.solve import solve

    problem, algorithm = task.problem(), task.algorithm()
    algorithm.check_constant("fixed_points")  # before the run
    start, found = task.start(problem), None
    limit: Any = None
    try:
        if args.near_start:
            points = fixed_points(problem, algorithm, start)
        else:
            arguments = {
                k: v
                for k, v in task.run_arguments().items()
                if k in ("time", "steps", "alpha")
            }
            with one_line_warnings():
                limit = solve(
                    problem, algorithm, ODE(), start, **arguments, save=args.save or 400
                )
            found = plateaus(problem, algorithm, limit)
            points = found.points
    except Interrupted as stop:
        if not isinstance(stop.result, FixedPoints):  # the run itself
            raise
        points = stop.result
    values: Json = {"points": [_point(x) for x in points], "missed": points.missed}
    text = str(points) if points else "no fixed point\n" + "\n".join(points.missed)
    if found is not None:
        text = f"{text}\n\nplateaus\n{found}"
        values["plateaus"] = [
            {
                "begin": x.begin,
                "end": x.end,
                "excess_risk": x.excess_risk,
                "rate": x.point.rate,
                "constant": x.constant,
            }
            for x in found
        ]
        values |= {
            "chain": found.chain,
            "learned": found.learned,
            "in_order": found.in_order,
        }
    if args.out is not None and found is None and not points:
        raise InputError(
            "--out has nothing to draw: no fixed point was found near the start."
        )
    drawn(
        args,
        folded(text),
        values,
        lambda plot: (
            plot.fixed_points(points) if found is None else plot.plateaus(found, limit)
        ),
    )
    return 0


def _point(point: FixedPoint) -> Json:
    numbers = (
        "kind",
        "excess_risk",
        "residual",
        "unstable",
        "neutral",
        "rate",
        "distance",
        "time",
    )
    known = {name: getattr(point, name) for name in numbers}
    values = {
        "eigenvalues": point.eigenvalues.real,
        "frequencies": point.eigenvalues.imag,
    }
    return {
        **known,
        **values,
        "Q": point.overlaps.Q,
        "M": point.overlaps.M,
        "a": point.overlaps.a,
    }
