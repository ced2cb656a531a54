"""``twolayer about``."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from twolayer.cli.common import add_common, fold, tell, wrapped

if TYPE_CHECKING:
    from twolayer.numerics.arguments import Json

EXAMPLES = (
    ("twolayer about", "versions, and whether this machine computes correctly"),
    (
        "twolayer about --check",
        "two minutes of known answers, and what may be trusted here",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The long check, and the format."""
    parser.add_argument(
        "--check",
        action="store_true",
        help="compute known answers on this machine (two minutes)",
    )
    add_common(parser, "write the same to this file")


def run(args: argparse.Namespace) -> int:
    """Print versions and the check; exit code 1 if this JAX is wrong."""
    from twolayer.files.environment import about

    facts: Json = about()
    text = wrapped(facts.items())
    if not args.check:
        tell(args, text, facts)
        return int(facts["fields"] != "right")
    from twolayer.files.selftest import ALL, selftest

    found = list(selftest())
    rows = [
        (
            f"{one.name}: {'right' if one.right else 'WRONG'}",
            f"{one.what}: {one.deviation:.2g} of {one.tolerance:.2g}",
        )
        for one in found
    ]
    wrong = {method for one in found if not one.right for method in one.methods}
    trusted = ", ".join(method for method in ALL if method not in wrong) or "nothing"
    verdict = f"Trust here: {trusted}."
    if not all(one.right for one in found):
        doubtful = ", ".join(sorted(wrong)) or "files"
        verdict += (
            f" Do not trust: {doubtful}; try other versions (pip install -U twolayer),"
            " or another device."
        )
    told = {
        **facts,
        "checks": [{**dataclasses.asdict(one), "right": one.right} for one in found],
    }
    tell(args, "\n".join([text, "", wrapped(rows), "", fold(verdict)]), told)
    return int(not all(one.right for one in found))
