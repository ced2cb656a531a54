"""``twolayer zoo``, ``twolayer zoo NAME`` and ``twolayer zoo [NAME] --check``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from twolayer.cli.common import add_common, fold, idle, tell, wrapped
from twolayer.files.catalogue import zoo_titles
from twolayer.numerics.durations import lasting

if TYPE_CHECKING:
    from twolayer.files.zoo import Setup
    from twolayer.numerics.arguments import Json

EXAMPLES = (
    ("twolayer zoo", "the list"),
    ("twolayer zoo saad1995-plateau", "one set-up with its published numbers"),
    ("twolayer zoo abbe2023-leap --check", "run it and compare"),
    ("twolayer zoo --check --dry-run", "how long it takes to compare all of them"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The set-up, and whether to compare."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a published set-up; all of them by default",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run it and compare with the published numbers",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say how long the comparison takes, and stop",
    )
    add_common(parser, "write the same to this file")


def run(args: argparse.Namespace) -> int:
    """List the set-ups, describe one, or compare; exit code 1 if a number differs
    without a known reason.
    """
    if not args.check:
        idle(args, "without --check", "--dry-run")
    if args.name is None and not args.check and not args.json:
        tell(args, wrapped(zoo_titles().items()), {})
        return 0
    from twolayer.files.zoo import zoo

    known = zoo() if args.name is None else {args.name: zoo(args.name)}
    if args.check:
        return _compare(args, known)
    if args.name is None:
        tell(args, "", {name: _plain(setup) for name, setup in known.items()})
    else:
        tell(args, _folded(str(known[args.name])), _plain(known[args.name]))
    return 0


def _folded(text: str) -> str:
    """Lines within the width of a terminal; what goes on stands below the column of its
    words.
    """
    return "\n".join(
        fold(line, then=" " * 11 if line[10:11] == " " else "  ")
        for line in text.splitlines()
    )


def _plain(setup: Setup) -> Json:
    """A set-up as plain values."""
    return {
        "title": setup.title,
        "place": setup.place,
        "papers": setup.cite().splitlines(),
        "seconds": setup.seconds,
        "note": setup.note,
        **setup.tables,
        "reference": [
            reference.model_dump(exclude_unset=True) for reference in setup.reference
        ],
    }


def _compare(args: argparse.Namespace, known: Json) -> int:
    if args.dry_run:
        seconds = sum(setup.seconds for setup in known.values())
        count = f"{len(known)} set-up{'s' if len(known) > 1 else ''}"
        tell(
            args,
            f"{count}, about {lasting(seconds)} on one core",
            {"setups": len(known), "seconds": seconds},
        )
        return 0
    checks = []
    for number, (name, setup) in enumerate(known.items(), 1):
        # a set-up may take a minute: what is at work is said before it begins
        print(
            f"[{number}/{len(known)}] {name}, about {setup.seconds:g} s",
            file=sys.stderr,
            flush=True,
        )
        checks.append(setup.check())
    words = [check.verdict for check in checks]
    counts = ", ".join(
        f"{words.count(word)} {word}" for word in ("agree", "differ", "undecided")
    )
    text = "\n".join(
        [
            *(_folded(str(check)) for check in checks),
            *([counts] if len(checks) > 1 else []),
        ]
    )
    tell(
        args,
        text,
        {
            c.name: {"verdict": c.verdict, "rows": [vars(row) for row in c.rows]}
            for c in checks
        },
    )
    return 1 if "differ" in words else 0
