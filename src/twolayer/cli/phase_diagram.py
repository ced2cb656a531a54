"""``twolayer phase-diagram --target "He3(z1)" --loss correlation --mu 2 --delta
-0.5``.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from twolayer.cli.common import (
    add_common,
    add_dry_run,
    add_force,
    add_gram,
    check_figure,
    drawn,
    folded,
    gram_of,
    idle,
    one_line_warnings,
)
from twolayer.cli.solve import told
from twolayer.numerics.errors import InputError, short

if TYPE_CHECKING:
    from twolayer.analysis.phases import Phase, PhaseDiagram
    from twolayer.analysis.weak_recovery import WeakRecovery
    from twolayer.numerics.arguments import Json, Options
    from twolayer.running.cost import Cost
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem

EXAMPLES = (
    (
        "twolayer phase-diagram --target 'He3(z1)'",
        "lines, optimum, and a diagram in text",
    ),
    (
        "twolayer phase-diagram --ell 3 --loss correlation --mu 2 --delta=-0.5",
        "one point of the plane",
    ),
    ("twolayer phase-diagram --ell 2 --out phases.png", "the figure"),
    (
        "twolayer phase-diagram --ell 2 --measure 8 --dim 32,64",
        "measured at two points",
    ),
    (
        "twolayer phase-diagram --ell 3 --measure 32 --dry-run",
        "what the measurement would take",
    ),
)
SPACING = 0.5  # in μ, between the optimum and the other point measured by default
DIMS, GAMMA0, N0, SIGN = "100,200,400,800", 0.05, 4.0, "positive"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The target and the algorithm, points of the plane, and what to measure there."""
    parser.add_argument(
        "--target", metavar="FORMULA", help="what is learned, such as 'He3(z1)'"
    )
    parser.add_argument(
        "--ell",
        type=int,
        metavar="L",
        help="its information exponent, instead of a target",
    )
    parser.add_argument(
        "--activation",
        metavar="NAME",
        help="activation (default: h_L, a Hermite polynomial)",
    )
    add_gram(parser)
    parser.add_argument(
        "--width", type=int, default=1, metavar="P", help="neurons (default 1)"
    )
    parser.add_argument(
        "--loss",
        default="squared",
        metavar="LOSS",
        help="squared (default) or correlation",
    )
    parser.add_argument(
        "--geometry",
        default="projected",
        metavar="G",
        help="projected (default) or spherical",
    )
    parser.add_argument(
        "--mu", metavar="μ", help="batch n0·d^μ: a number, or several with commas"
    )
    parser.add_argument(
        "--delta", metavar="δ", help="learning rate γ0·d^(−δ): as many numbers"
    )
    parser.add_argument(
        "--plane", metavar="P", help="of the figure: delta, theta or both (default)"
    )
    parser.add_argument(
        "--measure",
        type=int,
        metavar="N",
        help="measure N runs of the exact chain at each d and point",
    )
    parser.add_argument(
        "--dim", metavar="D,…", help=f"dimensions to measure at (default {DIMS})"
    )
    parser.add_argument(
        "--gamma0",
        type=float,
        metavar="γ0",
        help=f"measured: prefactor of the rate (default {GAMMA0})",
    )
    parser.add_argument(
        "--n0",
        type=float,
        metavar="n0",
        help=f"measured: prefactor of the batch (default {N0:g})",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="η",
        help="measured: ‖M‖_F to reach (default: half of √width)",
    )
    parser.add_argument(
        "--sign",
        metavar="S",
        help="measured starts: positive (default), negative or random",
    )
    parser.add_argument(
        "--per-direction",
        action="store_true",
        help="measure every direction of the target by itself, too",
    )
    add_dry_run(parser)
    add_force(parser)
    add_common(
        parser,
        "draw it into this .png, .pdf or .svg",
        "measured: of starts and runs (default 0)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the diagram and its points, measure if asked, and draw."""
    check_figure(args.out)
    if args.out is None:
        idle(args, "without a figure (--out)", "--plane")
    if args.measure is None:
        flags = (
            "--dim",
            "--gamma0",
            "--n0",
            "--threshold",
            "--sign",
            "--per-direction",
            "--seed",
            "--dry-run",
            "--force",
        )
        idle(args, "without --measure", *flags)
    for name, value in (
        ("dim", DIMS),
        ("gamma0", GAMMA0),
        ("n0", N0),
        ("sign", SIGN),
    ):
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.plane = args.plane or "both"
    mus, deltas = _numbers("--mu", args.mu), _numbers("--delta", args.delta)
    if len(mus) != len(deltas):
        raise InputError(
            f"--mu and --delta must hold as many numbers, but got {len(mus)} and"
            f" {len(deltas)}."
        )
    dims = _dims(args.dim)
    from twolayer.analysis.phases import phase_diagram
    from twolayer.numerics.errors import choice

    choice("--plane", args.plane, ("delta", "theta", "both"))
    if args.measure is not None:  # the diagram itself is known without JAX
        from twolayer.analysis.weak_recovery import SIGNS

        choice("--sign", args.sign, SIGNS)
    diagram = phase_diagram(
        args.target,
        ell=args.ell,
        loss=args.loss,
        geometry=args.geometry,
        activation=args.activation,
        width=args.width,
        gram=gram_of(args.gram),
    )
    pairs = list(zip(mus, deltas, strict=True))
    measured: list[WeakRecovery] = []
    if args.measure is not None:
        if not pairs:
            first = max(0.0, diagram.optimal_mu - SPACING)
            pairs = [
                (mu, diagram.optimal_delta(mu)) for mu in (first, diagram.optimal_mu)
            ]
        if args.dry_run:
            return told(args, _forecast(args, diagram.ell, pairs, dims))
        with one_line_warnings():
            measured = [
                _measure(args, diagram.ell, mu, delta, dims) for mu, delta in pairs
            ]
    points = [diagram.at(mu, delta) for mu, delta in pairs]
    lines = [folded(str(diagram))]
    if args.out is None:
        from twolayer.analysis.phase_text import sketch

        lines.append(f"\n{sketch(diagram, pairs)}")
    for i, point in enumerate(points):
        lines.append(f"\nμ = {point.mu:g}, δ = {point.delta:g}\n{folded(str(point))}")
        if measured:
            lines.append(f"measured\n{folded(str(measured[i]))}")
    values = _values(diagram, points, measured)
    drawn(
        args,
        "\n".join(lines),
        values,
        lambda plot: plot.phases(diagram, args.plane, measured),
    )
    return 0


def _task(
    args: argparse.Namespace, ell: int, mu: float, delta: float
) -> tuple[Problem, SGD]:
    """The problem and the algorithm at a point of the plane."""
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem
    from twolayer.task.scaling import Scaling

    hermite = f"h{ell}" if ell > 1 else "linear"
    problem = Problem(
        args.target or (f"h{ell}(z1)" if ell > 1 else "z1"),
        args.activation or hermite,
        args.width,
        gram=gram_of(args.gram),
    )
    lr, batch = Scaling(args.gamma0, -delta), Scaling(args.n0, mu)
    return problem, SGD(lr, batch, args.loss, args.geometry)


def _forecast(
    args: argparse.Namespace,
    ell: int,
    pairs: list[tuple[float, float]],
    dims: list[int],
) -> Cost:
    from twolayer.analysis.weak_recovery import foreseen_recovery
    from twolayer.running.cost import Cost

    seed, points = args.seed or 0, [_task(args, ell, mu, delta) for mu, delta in pairs]
    options: Options = {
        "threshold": args.threshold,
        "seeds": args.measure,
        "seed": seed,
        "sign": args.sign,
    }
    return Cost.total([foreseen_recovery(*point, dims, **options) for point in points])


def _measure(
    args: argparse.Namespace, ell: int, mu: float, delta: float, dims: list[int]
) -> WeakRecovery:
    from twolayer.analysis.weak_recovery import weak_recovery

    options: Options = {
        "threshold": args.threshold,
        "seeds": args.measure,
        "seed": args.seed or 0,
        "sign": args.sign,
    }
    options["force"] = args.force
    options["per_direction"] = args.per_direction
    return weak_recovery(*_task(args, ell, mu, delta), dims, **options)


def _values(
    diagram: PhaseDiagram, points: list[Phase], measured: list[WeakRecovery]
) -> Json:
    from twolayer.numerics.statistics import median

    values: Json = {
        **dataclasses.asdict(diagram),
        "lines": {
            name: dataclasses.asdict(line) for name, line in diagram.lines.items()
        },
        "special": diagram.points,
        "points": [dataclasses.asdict(point) for point in points],
    }
    for point, found in zip(values["points"], measured, strict=False):
        point["measured"] = {
            "dims": found.dims,
            "medians": [list(m) for m in found.medians],
            "censored": found.censored,
            "theta": found.theta,
            "theta_error": found.theta_error,
            "bends": found.bends,
            "threshold": found.threshold,
            "learned": found.learned,
        }
        if found.directions is not None:
            point["measured"]["directions"] = [
                [list(median(row)) for row in each.T] for each in found.directions
            ]
    return values


def _dims(text: str) -> list[int]:
    """Dimensions; 1e3 is one."""
    found = _numbers("--dim", text)
    if not all(x.is_integer() and x >= 2 for x in found):
        raise InputError(
            "--dim must be integers of at least 2 with commas between them, but got"
            f" {short(text)}."
        )
    return [int(x) for x in found]


def _numbers(flag: str, text: str | None) -> list[float]:
    """Numbers with commas between them."""
    try:
        return [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{flag} must be a number, or numbers with commas between them, but got"
            f" {short(text)}."
        ) from None
