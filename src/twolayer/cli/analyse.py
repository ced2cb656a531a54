"""``twolayer analyse "z1 + z1*z2"``."""

from __future__ import annotations

import argparse

from twolayer.cli.common import add_common, emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The target and what to show of it."""
    parser.add_argument("target", help="a formula in z1, z2, … such as 'z1 + z1*z2'")
    parser.add_argument("--activation", metavar="NAME", help="activation for the staircase, such as relu")
    parser.add_argument("--latex", action="store_true", help="print the target as LaTeX only")
    add_common(parser, "write a figure of the Hermite coefficients to this .png, .pdf or .svg")


def run(args: argparse.Namespace) -> int:
    """Analyse and print."""
    from twolayer.functions.exponents import analyse

    result = analyse(args.target)
    if args.out:
        from twolayer import plot

        plot.save_figure(plot.analysis(result), args.out)
    if args.latex:
        print(result.latex)
        return 0
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
                "staircase": result.staircase(args.activation),
                "staircase_reused": result.staircase(args.activation, reuse=True),
                "directions": result.directions.tolist(),
                "unused": result.unused.tolist(),
                "hermite": {",".join(map(str, alpha)): c for alpha, c in result.hermite.items()},
            }
        )
        return 0
    print(result)
    if args.activation:
        steps = list(result.staircase(args.activation))
        print(f"with {args.activation:<18}fresh {steps}")
    return 0
