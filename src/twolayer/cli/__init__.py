"""The command line: one file per command, loaded when it is called.

twolayer COMMAND [arguments]        exit code 0: done, 1: the run failed, 2: bad input
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any, NoReturn

from twolayer.errors import InputError

__all__ = ["main"]

COMMANDS = {
    "analyse": "exponents, leap and staircase of a target",
    "solve": "run a task file through one method",
    "compare": "run a task file through several methods and judge whether they agree",
    "gallery": "figures of the sources, each with its data and a verdict",
    "moments": "the averages that drive the dynamics, with engine and error",
    "plot": "draw a saved result again",
    "rerun": "run a saved result again from its own description",
    "cite": "the papers behind a saved result or a method",
    "about": "versions, device, and a check of this machine",
}


class _Parser(argparse.ArgumentParser):
    """argparse that reports in one line and lets `main` choose the exit code."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message}. See '{self.prog} --help'.")


def _usage() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return (
        "usage: twolayer COMMAND [arguments]\n\n"
        "Exact learning dynamics of two-layer neural networks: theory and simulation side by side.\n\n"
        f"commands:\n{rows}\n\n"
        "'twolayer COMMAND --help' shows the arguments of a command.\n"
        "Exit code 0: done, 1: the run failed, 2: bad input.\n"
    )


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_usage(), end="")
        return 0 if argv else 2
    if argv[0] == "--version":
        from twolayer import __version__

        print(__version__)
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        from twolayer.errors import closest

        raise InputError(f"Unknown command {name!r}{closest(name, COMMANDS)}; commands are {', '.join(COMMANDS)}.")
    parser = _Parser(prog=f"twolayer {name}", description=COMMANDS[name].capitalize() + ".")
    command: Any = importlib.import_module(f"twolayer.cli.{name}")
    command.add_arguments(parser)
    return int(command.run(parser.parse_args(rest)))


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    try:
        return _dispatch(sys.argv[1:] if argv is None else argv)
    except InputError as error:
        print(f"twolayer: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("twolayer: interrupted.", file=sys.stderr)
        return 1
    except Exception as error:
        from twolayer.errors import RunFailed

        if not isinstance(error, RunFailed):
            raise
        print(f"twolayer: {error}", file=sys.stderr)
        return 1
