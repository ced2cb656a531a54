"""``twolayer help TOPIC``: the pages in the folder beside this file."""

from __future__ import annotations

import argparse
from pathlib import Path

from twolayer.cli import COMMANDS, command_of, usage
from twolayer.cli.common import wrapped
from twolayer.numerics.errors import InputError, closest, short

EXAMPLES = (
    ("twolayer help", "commands and topics"),
    ("twolayer help tasks", "how a task file is written"),
    ("twolayer help solve", "the same as twolayer solve --help"),
)
PAGES = Path(__file__).parent / "pages"
TOPICS = {
    "tasks": "how a task file is written",
    "methods": "which method answers which question",
    "formulas": "targets, activations and scaling laws as text",
    "clocks": "time, steps, samples and their units",
    "results": "what is in a result file, and how to go on with it",
    "verdicts": "what agree, differ and undecided mean",
    "terminal": "output, colour, exit codes and the environment",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The topic."""
    parser.add_argument("topic", nargs="?", help=f"{', '.join(TOPICS)}, or a command")


def run(args: argparse.Namespace) -> int:
    """Print a page, or what there is."""
    if args.topic is None:
        rows = wrapped((f"  {name}", text) for name, text in TOPICS.items())
        print(f"{usage()}\npages, shown by 'twolayer help TOPIC':\n{rows}")
    elif args.topic in COMMANDS:
        command_of(args.topic)[0].print_help()
    elif args.topic in TOPICS:
        print((PAGES / f"{args.topic}.txt").read_text(encoding="utf-8"), end="")
    else:
        known = [*TOPICS, *COMMANDS]
        hint = closest(args.topic, known)
        raise InputError(
            f"Unknown topic {short(args.topic)}{hint}; topics are {', '.join(TOPICS)},"
            " or a command."
        )
    return 0
