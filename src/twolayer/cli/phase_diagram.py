"""``twolayer phase-diagram --target "He3(z1)" --loss correlation --mu 2 --delta -0.5``."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from twolayer.cli.common import add_common, emit, figure_path, one_line_warnings, settings
from twolayer.numerics.errors import InputError, short

SPACING = 0.5  # in μ, between the optimum and the other point measured by default


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The target and the algorithm, points of the plane, and what to measure there."""
    parser.add_argument("--target", metavar="FORMULA", help="what is learned, such as 'He3(z1)'")
    parser.add_argument("--ell", type=int, metavar="L", help="its information exponent, instead of a target")
    parser.add_argument(
        "--activation", metavar="NAME", help="activation (default: h_L, the Hermite polynomial of order L)"
    )
    parser.add_argument("--width", type=int, default=1, metavar="P", help="neurons (default 1)")
    parser.add_argument("--loss", default="squared", metavar="LOSS", help="squared (default) or correlation")
    parser.add_argument("--geometry", default="projected", metavar="G", help="projected (default) or spherical")
    parser.add_argument("--mu", metavar="μ", help="batch n0·d^μ: a number, or several with commas")
    parser.add_argument("--delta", metavar="δ", help="learning rate γ0·d^(−δ): as many numbers")
    parser.add_argument("--plane", default="both", metavar="P", help="of the figure: delta, theta or both (default)")
    parser.add_argument(
        "--measure", type=int, metavar="N", help="measure N runs of the exact chain at each d and point"
    )
    parser.add_argument("--dim", default="100,200,400,800", metavar="D,…", help="dimensions to measure at")
    parser.add_argument("--gamma0", type=float, default=0.05, metavar="γ0", help="prefactor of the rate (default 0.05)")
    parser.add_argument("--n0", type=float, default=4.0, metavar="n0", help="prefactor of the batch (default 4)")
    parser.add_argument("--threshold", type=float, default=0.5, metavar="η", help="overlap to reach (default 0.5)")
    parser.add_argument(
        "--sign", default="positive", metavar="S", help="of the starts: positive (default), negative or random"
    )
    add_common(parser, "write the figure to this .png, .pdf or .svg", "seed of random starts and runs (default 0)")


def run(args: argparse.Namespace) -> int:
    """Print the diagram and its points, measure if asked, and draw."""
    settings(args)
    path = None if args.out is None else figure_path(args.out)
    mus, deltas = _numbers("--mu", args.mu), _numbers("--delta", args.delta)
    if len(mus) != len(deltas):
        raise InputError(f"--mu and --delta must hold as many numbers, but got {len(mus)} and {len(deltas)}.")
    dims = _dims(args.dim)
    from twolayer.analysis.phases import phase_diagram
    from twolayer.analysis.prefactors import check_threshold
    from twolayer.analysis.weak_recovery import SIGNS
    from twolayer.numerics.errors import choice

    choice("--plane", args.plane, ("delta", "theta", "both"))
    choice("--sign", args.sign, SIGNS)
    check_threshold(args.threshold)
    diagram = phase_diagram(
        args.target,
        ell=args.ell,
        loss=args.loss,
        geometry=args.geometry,
        activation=args.activation,
        width=args.width,
    )
    pairs = list(zip(mus, deltas, strict=True))
    measured: list[Any] = []
    if args.measure is not None:
        if not pairs:
            first = max(0.0, diagram.optimal_mu - SPACING)
            pairs = [(mu, diagram.optimal_delta(mu)) for mu in (first, diagram.optimal_mu)]
        with one_line_warnings():
            measured = [_measure(args, diagram.ell, mu, delta, dims) for mu, delta in pairs]
    points = [diagram.at(mu, delta) for mu, delta in pairs]
    if path is not None:
        from twolayer import plot

        plot.save_figure(plot.phases(diagram, args.plane, measured), path)
    if args.json:
        emit(_values(diagram, points, measured))
        return 0
    print(diagram)
    for i, point in enumerate(points):
        print(f"\nμ = {point.mu:g}, δ = {point.delta:g}\n{point}")
        if measured:
            print(f"measured\n{measured[i]}")
    return 0


def _measure(args: argparse.Namespace, ell: int, mu: float, delta: float, dims: list[int]) -> Any:
    from twolayer.analysis.weak_recovery import weak_recovery
    from twolayer.task.algorithm import SGD
    from twolayer.task.problem import Problem
    from twolayer.task.scaling import Scaling

    hermite = f"h{ell}" if ell > 1 else "linear"
    problem = Problem(args.target or (f"h{ell}(z1)" if ell > 1 else "z1"), args.activation or hermite, args.width)
    lr, batch = Scaling(args.gamma0, -delta), Scaling(args.n0, mu)
    algorithm = SGD(lr, batch, args.loss, args.geometry)
    return weak_recovery(
        problem, algorithm, dims, threshold=args.threshold, seeds=args.measure, seed=args.seed or 0, sign=args.sign
    )


def _values(diagram: Any, points: list[Any], measured: list[Any]) -> dict[str, Any]:
    values: dict[str, Any] = {
        **dataclasses.asdict(diagram),
        "lines": {name: dataclasses.asdict(line) for name, line in diagram.lines.items()},
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
            "learned": found.learned,
        }
    return values


def _dims(text: str) -> list[int]:
    """Dimensions; 1e3 is one."""
    found = _numbers("--dim", text)
    if not all(x.is_integer() and x >= 2 for x in found):
        raise InputError(f"--dim must be integers of at least 2 with commas between them, but got {short(text)}.")
    return [int(x) for x in found]


def _numbers(flag: str, text: str | None) -> list[float]:
    """Numbers with commas between them."""
    try:
        return [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{flag} must be a number, or numbers with commas between them, but got {short(text)}."
        ) from None
