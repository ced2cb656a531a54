"""``twolayer about``."""

from __future__ import annotations

import argparse

from twolayer.cli.common import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Only the format."""
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text")


def run(args: argparse.Namespace) -> int:
    """Print versions and the check; exit code 1 if this JAX is wrong."""
    from twolayer.environment import about

    facts = about()
    if args.json:
        emit(facts)
    else:
        for name, value in facts.items():
            print(f"{name:<10} {value}")
    return int(facts["fields"] != "right")
