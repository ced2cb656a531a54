"""``twolayer about``."""

from __future__ import annotations

import argparse

from twolayer.cli.common import add_common, tell, wrapped

EXAMPLES = (("twolayer about", "versions, and whether this machine computes correctly"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Only the format."""
    add_common(parser, "write the same to this file")


def run(args: argparse.Namespace) -> int:
    """Print versions and the check; exit code 1 if this JAX is wrong."""
    from twolayer.files.environment import about

    facts = about()
    tell(args, wrapped(facts.items()), facts)
    return int(facts["fields"] != "right")
