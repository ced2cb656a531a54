"""The command line: one file per command, loaded when it is called.

twolayer COMMAND [arguments]        exit code 0: done, 1: the run failed, 2: bad input
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import sys
from typing import Any, NoReturn

from twolayer.numerics.errors import InputError, RunFailed, closest, short

__all__ = ["main"]

COMMANDS = {
    "analyse": "exponents, leap and staircase of a target",
    "solve": "run a task file through one method",
    "compare": "run a task file through several methods and judge whether they agree",
    "sweep": "run a grid of task files, resumable, here or on a cluster",
    "escape": "how long phase retrieval needs to leave a random start, in formulas and measured",
    "recovery": "information exponent of a single-index task, and samples until it is recovered",
    "phase-diagram": "where batch size and learning rate let SGD learn a target, in formulas and measured",
    "thresholds": "how many samples n = αd show a target at all, and the best possible with them",
    "gallery": "figures of the sources, each with its data and a verdict",
    "zoo": "published set-ups with their numbers, and whether the package gives the same",
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

    def read(self, argv: list[str]) -> argparse.Namespace:
        """Parse; unknown flags are named with the nearest known one."""
        # no command has flags of one dash, so that a formula may begin with a minus sign
        args, rest = self.parse_known_args([f" {a}" if re.match("-[^-]", a) and a != "-h" else a for a in argv])
        if rest:
            word = rest[0].strip()
            kind = "flag" if word.startswith("-") else "argument"
            self.error(f"unknown {kind} {short(word)}{closest(word, self._option_string_actions)}")
        return args


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
        known = ", ".join(COMMANDS)
        raise InputError(f"Unknown command {short(name)}{closest(name, COMMANDS)}; commands are {known}.")
    parser = _Parser(prog=f"twolayer {name}", description=COMMANDS[name].capitalize() + ".", allow_abbrev=False)
    command: Any = importlib.import_module(f"twolayer.cli.{name.replace('-', '_')}")
    command.add_arguments(parser)
    return int(command.run(parser.read(rest)))


def script() -> int:
    """The console command."""
    code = main()
    if code == 1:
        # compiled code of an interrupted run may still be at work, and crashes when the interpreter is taken down
        # under it; everything that has to be on disk is there
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # Greek letters on a terminal that has none
    try:
        code = _dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except InputError as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted.", 1)
    except SystemExit as stop:  # argparse after --help
        return int(stop.code or 0)
    except RunFailed as error:
        return _fail(str(error), 1)
    except MemoryError as error:
        return _fail(f"not enough memory: {error}; use fewer seeds, save points or neurons.", 1)
    except BrokenPipeError:  # the reader of our output has left, as in `twolayer … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a full disk
        return _fail(f"{error}.", 1)


def _fail(message: str, code: int) -> int:
    print(f"twolayer: {message}", file=sys.stderr)
    return code
