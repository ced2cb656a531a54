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
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from twolayer.cli.stopping import listen
from twolayer.numerics.columns import WIDTH
from twolayer.numerics.compilation import CacheWarning, expect
from twolayer.numerics.errors import InputError, RunFailed, closest, cut, short

__all__ = ["COMMANDS", "WIDTH", "Parser", "command_of", "main", "usage"]

COMMANDS = {
    "analyse": "exponents, leap and staircase of a target",
    "solve": "run a task file through one method",
    "compare": "run a task through several methods, and judge if they agree",
    "sweep": "run a grid of tasks, resumable, here or on a cluster",
    "escape": "how long phase retrieval needs to leave a random start",
    "recovery": "samples until a single-index task is recovered",
    "phase-diagram": "where batch size and learning rate let SGD learn a target",
    "thresholds": "how many samples n = αd show a target, and the best possible",
    "optimise": "the best learning rate, batch or weight decay for a run",
    "fixed-points": "where the limit of a task stands still, and its plateaus",
    "gallery": "figures of the sources, each with its data and a verdict",
    "zoo": "published set-ups, and whether the package gives their numbers",
    "moments": "the averages that drive the dynamics, with engine and error",
    "explore": "a page in the browser: describe, see and compare, at once",
    "plot": "draw a saved result, sweep or comparison again",
    "rerun": "run a saved result or comparison again from its description",
    "cite": "the papers behind a saved result or a method, and the package",
    "about": "versions, device, and a check of this machine",
    "completion": "completion of commands and flags in bash, zsh or fish",
    "help": "pages on task files, methods, clocks, formulas and results",
}


class Parser(argparse.ArgumentParser):
    """argparse that reports in one line, lets `main` choose the exit code, and shows
    examples under its help.
    """

    def __init__(self, name: str, examples: Sequence[tuple[str, str]] = ()) -> None:
        about = COMMANDS[name]
        super().__init__(
            prog=f"twolayer {name}",
            description=f"{about[0].upper()}{about[1:]}.",
            epilog=_examples(examples),
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, max_help_position=22, width=WIDTH
            ),
        )

    def error(self, message: str) -> NoReturn:
        """One sentence, with where to look."""
        # argparse writes values as they were given
        told = re.sub(r"\S{80,}", lambda long: cut(long[0]), message)
        raise InputError(f"{self.prog}: {told}. See '{self.prog} --help'.")

    def read(self, argv: list[str]) -> argparse.Namespace:
        """Parse; unknown flags are named with the nearest known one."""
        # no command has flags of one dash, so that a formula may begin with a minus
        # sign
        args, rest = self.parse_known_args(
            [f" {a}" if re.match("-[^-]", a) and a != "-h" else a for a in argv]
        )
        if rest:
            word = rest[0].strip()
            if not word.startswith("-") and "--target" in self._option_string_actions:
                self.error(
                    f"unknown argument {short(word)}: a target goes behind --target"
                )
            kind = "flag" if word.startswith("-") else "argument"
            self.error(
                f"unknown {kind}"
                f" {short(word)}{closest(word, self._option_string_actions)}"
            )
        return args


def _examples(examples: Sequence[tuple[str, str]]) -> str:
    """Commands with what they do, as they stand under the help."""
    lines = [f"  {command}\n      {text}" for command, text in examples]
    return "\n".join(["examples:", *lines])


def command_of(name: str) -> tuple[Parser, Any]:
    """The parser of a command and its module, which has ``EXAMPLES``, ``add_arguments``
    and ``run``.

    Examples
    --------
    >>> command_of("cite")[0].prog
    'twolayer cite'
    """
    command: Any = importlib.import_module(f"twolayer.cli.{name.replace('-', '_')}")
    parser = Parser(name, command.EXAMPLES)
    command.add_arguments(parser)
    return parser, command


def usage() -> str:
    """What the program can do."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return (
        "usage: twolayer COMMAND [arguments]\n\nExact learning dynamics of two-layer"
        " neural networks: theory and simulation\nside by"
        f" side.\n\ncommands:\n{rows}\n\n'twolayer COMMAND --help' shows the arguments"
        " of a command with examples,\n'twolayer help' the pages. Exit code 0: done,"
        " 1: the run failed, 2: bad input.\n"
    )


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage(), end="")
        return 0 if argv else 2
    if argv[0] == "--version":
        from twolayer import __version__

        print(__version__)
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise InputError(
            f"Unknown command {short(name)}{closest(name, COMMANDS)}; commands are"
            f" {known}."
        )
    expect()
    parser, command = command_of(name)
    return int(command.run(parser.read(rest)))


def script() -> int:
    """The console command; a request to end is heard like Ctrl-C, so that what is
    finished is kept.
    """
    listen()
    code = main()
    if code == 1:
        # compiled code of an interrupted run may still be at work, and crashes when the
        # interpreter is taken down under it; everything that has to be on disk is there
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # Greek letters on a terminal that has none
    try:
        with warnings.catch_warnings():
            _tell_of_the_cache()
            code = _dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except InputError as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail(
            "interrupted before anything was done: give the same command again.", 1
        )
    except SystemExit as stop:  # argparse after --help
        return int(stop.code or 0)
    except RunFailed as error:
        return _fail(str(error), 1)
    except MemoryError as error:
        return _fail(
            f"not enough memory: {error}; use fewer seeds, save points or neurons.", 1
        )
    except (
        BrokenPipeError
    ):  # the reader of our output has left, as in `twolayer … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a full disk
        return _fail(f"{error}: make room, or write elsewhere with --out.", 1)


def _tell_of_the_cache() -> None:
    """Show the warning that compiled code is not kept as one line, and others as Python
    is told to.
    """
    other = warnings.showwarning

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, CacheWarning):
            print(f"twolayer: {message}", file=sys.stderr)
        else:
            other(message, category, *place, **more)

    warnings.showwarning = show


def _fail(message: str, code: int) -> int:
    print(f"twolayer: {message}", file=sys.stderr)
    return code
