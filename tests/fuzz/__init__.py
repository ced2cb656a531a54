"""Hostile input by the thousand: formulas, arguments, task files, result files and stores.

    python -m tests.fuzz --cases 100000            everything, in workers that may die
    tests/test_fuzz.py                             some of it, shrunk by hypothesis

A case is clean if the package does what it was asked to, says no in a sentence of its own (`InputError` and its like),
or gets as far as the work itself, which is left out here. Any other exception is a fault, and so is a refusal that
takes longer than `SLOW` seconds, a death of the process, and memory beyond `ROOM`.
"""

from __future__ import annotations

import contextlib
import time as wall
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from twolayer.numerics.errors import InputError, RunFailed, short

SLOW = 2.0
LONGEST = 300  # characters of a sentence with its reason; values are cut far before
ROOM = 2**30


class Begun(Exception):
    """All arguments were accepted, and the work would begin."""


class Case(NamedTuple):
    """What is tried, in words that tell how to try it again, and the call itself."""

    text: str
    call: Callable[[], Any]


Maker = Callable[[Random], Case]


class Report(NamedTuple):
    """What became of a case: done, begun, refused, failed (by a `RunFailed`) or broken, and in how many seconds."""

    end: str
    seconds: float
    detail: str = ""

    @property
    def clean(self) -> bool:
        """Whether the package behaved."""
        return self.end != "broken" and not (
            self.end == "refused" and self.seconds > SLOW
        )


@contextlib.contextmanager
def without_work() -> Iterator[None]:
    """Runs end where they would begin."""

    def begin(*_: Any, **__: Any) -> Any:
        raise Begun

    with (
        mock.patch("twolayer.running.solve.follow", begin),
        mock.patch("twolayer.sweeps.driver.Driver.run", begin),
        mock.patch("twolayer.explorer.launch._server", begin),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def tried(case: Case) -> Report:
    """Try a case."""
    began = wall.perf_counter()
    try:
        with without_work():
            case.call()
        end, detail = "done", ""
    except Begun:
        end, detail = "begun", ""
    except InputError as error:
        end, detail = "refused", str(error)
        if "\n" in detail or len(detail) > LONGEST:
            end, detail = (
                "broken",
                f"a message of {len(detail)} characters: {detail[:200]!r}",
            )
    except RunFailed as error:
        end, detail = "failed", str(error)
    except Exception as error:
        end, detail = (
            "broken",
            f"{type(error).__name__}: {short(str(error), 300)} at {_where(error)}",
        )
    return Report(end, wall.perf_counter() - began, detail)


def _where(error: BaseException) -> str:
    """The last line of the package that an exception went through."""
    found, trace = "?", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "twolayer" in name:
            found = f"{name.split('twolayer/')[-1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
