"""Ctrl-C: the first one asks, the second one ends.

    first     KeyboardInterrupt, where Python is: what is finished is written,
              one sentence, exit code 1
    second    at once, wherever the program is: one line, temporary files removed,
              exit code 130

Python hears signals between two steps of its own, and compiled code may be minutes
long. The system writes the number of every signal into a pipe meanwhile, where a thread
reads it. SIGTERM twice within a second is one: `timeout` sends it to the process and
then to its group, which the process belongs to.

An exception that is raised in a callback of the garbage collector, of which JAX has
one, or while an object is being deleted, is dropped by Python. A request that meets
such a place is made again a moment later.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time as wall
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from twolayer.numerics.temporary_files import remove_own

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["listen"]

ASKING = (signal.SIGINT, signal.SIGTERM)
AGAIN = 0  # stands among the numbers of signals for a request that Python has dropped
SOON = 0.05  # seconds until it is made again
TOGETHER = 1.0  # seconds within which SIGTERM counts once
_ending = threading.Lock()


class Requests:
    """Requests to end, in the order in which they came."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None

    def again(self, number: int, now: float) -> bool:
        """Whether this is a second request, and not the first one sent twice."""
        if self.first is None:
            self.first = number, now
            return False
        sent, at = self.first
        twice = number == sent == signal.SIGTERM and now - at < TOGETHER
        return not twice

    def forget(self) -> None:
        """The first request was lost: it will come once more."""
        self.first = None


def listen() -> None:
    """Hear Ctrl-C and SIGTERM in this way from now on; for the main thread of the
    console command.
    """
    listener = _Listener()
    for number in ASKING:
        signal.signal(number, listener.ask)
    sys.unraisablehook = listener.drop
    if os.name == "posix":
        os.set_blocking(listener.writer, False)
        signal.set_wakeup_fd(listener.writer, warn_on_full_buffer=False)
    threading.Thread(target=listener.watch, daemon=True).start()


class _Listener:
    """What has been asked for, and the pipe that carries it to the watching thread."""

    def __init__(self) -> None:
        self.asked = False
        self.requests = Requests()
        self.reader, self.writer = os.pipe()

    def ask(self, number: int, _: FrameType | None) -> None:
        """Python hears a signal: the first one raises."""
        if not self.asked:
            self.asked = True
            raise KeyboardInterrupt
        # elsewhere the watching thread decides, which knows when a signal came
        if os.name != "posix":
            _end(number)

    def drop(self, lost: UnraisableHookArgs) -> None:
        """Python has dropped an exception: if it was the request, let it be made
        again.
        """
        if lost.exc_type is KeyboardInterrupt:
            os.write(self.writer, bytes([AGAIN]))
        else:
            sys.__unraisablehook__(lost)

    def watch(self) -> None:
        """Read the numbers of signals; the second request ends the program."""
        while numbers := os.read(self.reader, 64):
            for number in numbers:
                if number == AGAIN:
                    self.requests.forget()
                    self._repeat()
                if number in ASKING and self.requests.again(number, wall.monotonic()):
                    _end(number)

    def _repeat(self) -> None:
        wall.sleep(SOON)
        self.asked = False
        _thread.interrupt_main(signal.SIGINT)


def _end(number: int) -> NoReturn:
    _ending.acquire()  # never given back: the other thread waits for the end here
    remove_own()
    with contextlib.suppress(OSError):
        bar = (
            b"\r\x1b[K\x1b[?25h" if os.isatty(2) else b""
        )  # the line of a progress bar, which hides the cursor
        os.write(
            2,
            bar
            + b"twolayer: interrupted twice, ended at once; what was written before is"
            b" whole.\n",
        )
    os._exit(128 + number)
