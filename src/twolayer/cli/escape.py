"""``twolayer escape --width 2 --dim 10000 --threshold 0.1``."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from twolayer.cli.common import (
    DATA,
    add_common,
    add_dry_run,
    check_report,
    drawn,
    idle,
    one_line_warnings,
)
from twolayer.cli.solve import told
from twolayer.numerics.errors import InputError, finite_number, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from twolayer.analysis.escape_result import EscapeTime
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem

EXAMPLES = (
    (
        "twolayer escape --width 4 --noise 0.1",
        "formulas, at the rate with the fewest steps",
    ),
    ("twolayer escape --width inf --dim 100000", "of infinitely many neurons"),
    ("twolayer escape --dim 1000 --lr 0.05/d --measure 32", "and 32 runs beside them"),
    (
        "twolayer escape --dim 1000 --measure 32 --out escape.png",
        "passage times with the formulas, drawn",
    ),
    (
        "twolayer escape --geometry free --train-second-layer --lr 0.05/d",
        "standard SGD on both layers",
    ),
    (
        "twolayer escape --target 'z1**2 + z2**2' --second-layer 2,2,1",
        "another target and second layer",
    ),
    (
        "twolayer escape --dim 100000 --measure 256 --dry-run",
        "what the runs would take",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Phase retrieval in a few numbers or another task, dimension and threshold."""
    parser.add_argument(
        "--target", metavar="FORMULA", help="in z1, z2, … (default z1**2)"
    )
    parser.add_argument(
        "--activation", metavar="NAME", help="of the student (default square)"
    )
    parser.add_argument("--width", metavar="P", help="neurons, or inf (default 1)")
    parser.add_argument(
        "--second-layer",
        metavar="A,A,…",
        help="its values, one for each neuron (default all 1)",
    )
    parser.add_argument(
        "--geometry",
        default="projected",
        metavar="NAME",
        help="projected (default), spherical or free",
    )
    parser.add_argument(
        "--train-second-layer", action="store_true", help="move the second layer, too"
    )
    parser.add_argument(
        "--second-lr", metavar="LAW", help="its learning rate (default: that of both)"
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
        help="learning rate such as 0.05/d (default: the fewest steps)",
    )
    parser.add_argument(
        "--rho",
        type=float,
        metavar="R",
        help="d·lr/(p·batch) instead, which infinite widths have too",
    )
    parser.add_argument(
        "--batch", type=int, default=1, metavar="N", help="batch size (default 1)"
    )
    parser.add_argument(
        "--dim", type=int, default=10_000, metavar="D", help="dimension (default 10000)"
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="T",
        help=(
            "T in R = (1 − T) R(0) (default: from 0.01 to 0.03 of the plateau, the"
            " least for which the noise of samples is known)"
        ),
    )
    parser.add_argument(
        "--ode",
        action="store_true",
        help="integrate the ODE from 32 random starts (p ≤ 10; else always)",
    )
    parser.add_argument(
        "--measure",
        type=int,
        metavar="N",
        help="also measure N runs of the exact chain",
    )
    add_dry_run(parser)
    add_common(
        parser,
        "draw passage times (.png, .pdf, .svg), or write what is printed (.txt, .json)",
        "of starts and runs",
    )


def _width(text: str) -> float:
    """A number of neurons, or infinity."""
    if text == "inf":
        return math.inf
    if not text.strip().isdecimal() or int(text) < 1:
        raise InputError(
            "Argument `--width` must be a whole number from 1 on or inf, but got"
            f" {short(text)}."
        )
    return int(text)


def _layer(args: argparse.Namespace) -> list[float] | None:
    """The second layer, whose length is the width where that is not given."""
    if args.second_layer is None:
        return None
    try:
        values = [float(part) for part in args.second_layer.split(",")]
    except ValueError:
        raise InputError(
            "--second-layer must be numbers with commas between them, but got"
            f" {short(args.second_layer)}."
        ) from None
    if args.width is None:
        args.width = str(len(values))
    return values


def run(args: argparse.Namespace) -> int:
    """Print the formulas, and the measurement if asked for."""
    check_report(args.out)
    layer = _layer(args)
    args.width = _width("1" if args.width is None else args.width)
    finite_number(
        "--noise",
        args.noise,
        minimum=0.0,
        accepted="a variance: a finite number, zero or more",
    )
    if not args.train_second_layer:
        idle(args, "without --train-second-layer", "--second-lr")
    draws = args.out is not None and not args.out.endswith(DATA)
    other = (
        args.target is not None
        or args.activation is not None
        or layer is not None
        or args.geometry != "projected"
        or args.train_second_layer
    )
    runs = args.ode or args.measure is not None or draws
    if args.measure is None:
        idle(args, "without --measure: formulas are not run", "--dry-run")
    if not runs and not other:
        idle(args, "without --ode and --measure: the formulas are integrals", "--seed")
    if args.rho is not None:
        finite_number("--rho", args.rho, accepted="a positive number")
    if args.lr is not None and args.rho is not None:
        raise InputError(
            "--lr and --rho are two ways to say one thing: leave one of them out."
        )
    if math.isinf(args.width):
        _refuse_infinite(args, other)
    if not (runs or other) and args.lr is None:
        from twolayer.analysis.escape_formulas import formulas

        found = formulas(
            args.width,
            args.dim,
            args.threshold,
            noise=args.noise,
            rho=args.rho,
            batch=args.batch,
        )
        drawn(args, str(found), found.values(), lambda plot: plot.passage(found))
        return 0
    problem, algorithm = _task(args, layer)
    from twolayer.analysis.escape import escape_time, foreseen

    if args.dry_run:
        cost = foreseen(
            problem, algorithm, args.dim, args.threshold, args.measure, args.seed or 0
        )
        return told(args, cost)
    with one_line_warnings():
        found = escape_time(
            problem,
            algorithm,
            args.dim,
            args.threshold,
            seed=args.seed or 0,
            measure=args.measure,
        )
    drawn(
        args,
        str(found),
        found.values(),
        lambda plot: _figure(plot, args, problem, algorithm, found),
    )
    return 0


def _refuse_infinite(args: argparse.Namespace, other: bool) -> None:
    """Infinitely many neurons have the formulas of phase retrieval alone."""
    given = {
        "--ode": args.ode,
        "--measure": args.measure is not None,
        "--lr": args.lr is not None,
        "--out": args.out is not None and not args.out.endswith(DATA),
        "Another task": other,
    }
    for flag, there in given.items():
        if there:
            raise InputError(
                f"{flag} needs a finite --width: infinitely many neurons have formulas"
                " and --rho alone."
            )


def _task(args: argparse.Namespace, layer: list[float] | None) -> tuple[Problem, SGD]:
    """The problem and the algorithm, at the rate with the fewest steps where none is
    given.
    """
    from twolayer.analysis.optimal_lr import optimal_lr
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem
    from twolayer.task.scaling import Scaling

    problem = Problem(
        args.target or "z1**2",
        args.activation or "square",
        int(args.width),
        args.noise,
        second_layer="ones" if layer is None else layer,
    )
    trained = args.train_second_layer
    lr = args.lr
    if args.rho is not None:
        lr = Scaling(args.rho * problem.divisor * args.batch, -1.0)
    elif lr is None:
        lr = optimal_lr(
            problem, args.batch, geometry=args.geometry, train_second_layer=trained
        )
    algorithm = SGD(
        lr,
        args.batch,
        geometry=args.geometry,
        train_second_layer=trained,
        second_lr=args.second_lr,
    )
    return problem, algorithm


def _figure(
    plot: object,
    args: argparse.Namespace,
    problem: Problem,
    algorithm: SGD,
    found: EscapeTime,
) -> Figure:
    """Passage times over the law of the quenched formula, where that is known."""
    from twolayer.analysis.escape import passage_law
    from twolayer.plot.waiting_times import passage

    law = None
    if found.retrieval is not None:
        law = passage_law(
            problem, algorithm, args.dim, found.threshold, seed=args.seed or 0
        )
    measured = None if found.measured is None else found.measured.passage
    return passage(found, law, measured, found.title(str(problem.target.name)))
