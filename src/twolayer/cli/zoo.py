"""``twolayer zoo``, ``twolayer zoo NAME`` and ``twolayer zoo [NAME] --check``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from twolayer.cli.common import add_common, settings, tell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The set-up, and whether to compare."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a published set-up; all of them by default")
    parser.add_argument("--check", action="store_true", help="run it and compare with the published numbers")
    add_common(parser, "write the same to this file", "published set-ups have their own seeds: no effect")


def run(args: argparse.Namespace) -> int:
    """List the set-ups, describe one, or compare; exit code 1 if a number differs without a known reason."""
    settings(args)
    from twolayer.files.zoo import zoo

    known = zoo() if args.name is None else {args.name: zoo(args.name)}
    if args.check:
        return _compare(args, known)
    if args.name is None:
        width = max(map(len, known))
        lines = [f"{name:<{width}}  {setup.title}" for name, setup in known.items()]
        tell(args, "\n".join(lines), {name: _plain(setup) for name, setup in known.items()})
    else:
        tell(args, str(known[args.name]), _plain(known[args.name]))
    return 0


def _plain(setup: Any) -> dict[str, Any]:
    """A set-up as plain values."""
    return {
        "title": setup.title,
        "place": setup.place,
        "papers": setup.cite().splitlines(),
        "seconds": setup.seconds,
        "note": setup.note,
        **setup.tables,
        "reference": [reference.model_dump(exclude_unset=True) for reference in setup.reference],
    }


def _compare(args: argparse.Namespace, known: dict[str, Any]) -> int:
    checks = []
    for number, (name, setup) in enumerate(known.items(), 1):
        # a set-up may take a minute: what is at work is said before it begins
        print(f"[{number}/{len(known)}] {name}, about {setup.seconds:g} s", file=sys.stderr, flush=True)
        checks.append(setup.check())
    words = [check.verdict for check in checks]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("agree", "differ", "undecided"))
    text = "\n".join([*map(str, checks), *([counts] if len(checks) > 1 else [])])
    tell(args, text, {c.name: {"verdict": c.verdict, "rows": [vars(row) for row in c.rows]} for c in checks})
    return 1 if "differ" in words else 0
