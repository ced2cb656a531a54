"""``twolayer analyse "z1 + z1*z2"``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from twolayer.cli.common import (
    add_common,
    add_gram,
    check_figure,
    drawn,
    fold,
    gram_of,
    idle,
)

if TYPE_CHECKING:
    from twolayer.numerics.arguments import Json, Options
    from twolayer.task.inputs import Inputs

EXAMPLES = (
    ("twolayer analyse 'z1 + z1*z2'", "exponents, and what is learned at which step"),
    ("twolayer analyse 'He3(z1)' --activation relu", "the staircase of an activation"),
    (
        "twolayer analyse 'He3(z1)' --rule 'clip(0.5)'",
        "what clipped gradients see of it",
    ),
    (
        "twolayer analyse 'z1 + He3(z2)' --gram '[[1, 0.6], [0.6, 1]]'",
        "directions that overlap",
    ),
    (
        "twolayer analyse 'He2(z1)' --inputs '{variances = [4, 1], dims = [9, 90]}'",
        "with the effective dimension",
    ),
    (
        "twolayer analyse 'z1*z2*z3' --out target.png",
        "a figure of the Hermite coefficients",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The target and what to show of it."""
    parser.add_argument("target", help="a formula in z1, z2, … such as 'z1 + z1*z2'")
    parser.add_argument(
        "--activation", metavar="NAME", help="show its staircase too, such as relu"
    )
    parser.add_argument(
        "--loss", metavar="NAME", help="of these staircases, such as 'huber(0.5)'"
    )
    parser.add_argument(
        "--rule", metavar="RULE", help="what is made of gradients, such as 'clip(0.5)'"
    )
    parser.add_argument(
        "--directions",
        type=int,
        metavar="K",
        help="directions, where the formula has fewer",
    )
    add_gram(parser)
    parser.add_argument(
        "--inputs",
        metavar="TABLE",
        help="their law, as in task files: effective dimensions are told",
    )
    parser.add_argument(
        "--latex", action="store_true", help="print the target as LaTeX only"
    )
    add_common(parser, "draw the Hermite coefficients into this .png, .pdf or .svg")


def run(args: argparse.Namespace) -> int:
    """Analyse and print."""
    if args.latex:
        idle(
            args,
            "with --latex, which prints the formula alone",
            "--activation",
            "--loss",
            "--rule",
            "--gram",
            "--inputs",
            "--json",
        )
    check_figure(args.out)
    from twolayer.analysis.exponents import analyse
    from twolayer.functions.activation import Activation

    sigma = args.activation
    if sigma is not None:
        Activation.of(sigma)
    gram = gram_of(args.gram)
    result = analyse(args.target, args.directions, _inputs(args.inputs), gram)
    push: Options = {"loss": args.loss or "squared", "rule": args.rule}
    fresh = result.staircase(sigma, **push)
    reused = result.staircase(sigma, reuse=True, **push)
    words = ", ".join(
        word for word in (sigma, args.loss, args.rule) if word is not None
    )
    more = f"\nfresh, {words:<16}{fresh}\nreused, {words:<15}{reused}" if words else ""
    values: Json = {
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
        "staircase_reasons": fresh.reasons,
        "staircase_reused": reused,
        "staircase_reused_directions": reused.directions,
        "staircase_reused_reasons": reused.reasons,
        "directions": result.directions,
        "generative_directions": result.generative_directions,
        "unused": result.unused,
        "hermite": {
            ",".join(map(str, alpha)): c for alpha, c in result.hermite.items()
        },
    }
    if args.gram is not None:
        values["frame"] = result.frame
    if args.inputs is not None:
        values |= {
            "effective_fraction": result.effective_fraction,
            "even_fraction": result.even_fraction,
        }
    lines = (fold(line, then=" " * 23) for line in f"{result}{more}".splitlines())
    text = result.latex if args.latex else "\n".join(lines)
    drawn(args, text, values, lambda plot: plot.analysis(result))
    return 0


def _inputs(text: str | None) -> Inputs | None:
    """The law of inputs, written as the table of a task file."""
    if text is None:
        return None
    from twolayer.files.taskfile import assign
    from twolayer.task.inputs import Inputs

    document: Json = {}
    assign(document, f"inputs={text}")
    return Inputs.of(document["inputs"])
