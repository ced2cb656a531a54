"""``twolayer analyse "z1 + z1*z2"``."""

from __future__ import annotations

import argparse

from twolayer.cli.common import add_common, emit, figure_path, settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The target and what to show of it."""
    parser.add_argument("target", help="a formula in z1, z2, … such as 'z1 + z1*z2'")
    parser.add_argument("--activation", metavar="NAME", help="activation for the staircase, such as relu")
    parser.add_argument("--latex", action="store_true", help="print the target as LaTeX only")
    add_common(parser, "write a figure of the Hermite coefficients to this .png, .pdf or .svg")


def run(args: argparse.Namespace) -> int:
    """Analyse and print."""
    keys = settings(args, ("activation", "directions"))
    sigma = keys.get("activation") if args.activation is None else args.activation
    path = None if args.out is None else figure_path(args.out)
    from twolayer.functions.activation import Activation
    from twolayer.functions.exponents import analyse

    if sigma is not None:
        Activation.of(sigma)
    result = analyse(args.target, keys.get("directions"))
    if path is not None:
        from twolayer import plot

        plot.save_figure(plot.analysis(result), path)
    if args.latex:
        print(result.latex)
        return 0
    fresh, reused = result.staircase(sigma), result.staircase(sigma, reuse=True)
    if args.json:
        emit(
            {
                "target": result.target.name,
                "latex": result.latex,
                "information": result.information,
                "leap": result.leap,
                "chain": result.chain,
                "generative": result.generative,
                "generative_leap": result.generative_leap,
                "generative_chain": result.generative_chain,
                "staircase": fresh,
                "staircase_directions": fresh.directions,
                "staircase_reused": reused,
                "staircase_reused_directions": reused.directions,
                "directions": result.directions,
                "generative_directions": result.generative_directions,
                "unused": result.unused,
                "hermite": {",".join(map(str, alpha)): c for alpha, c in result.hermite.items()},
            }
        )
    else:
        print(result)
        if sigma is not None:
            print(f"fresh, {sigma:<16}{fresh}\nreused, {sigma:<15}{reused}")
    return 0
