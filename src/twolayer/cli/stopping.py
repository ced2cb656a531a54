"""Ctrl-C: the first one asks, the second one ends.

    first     KeyboardInterrupt, where Python is: what is finished is written, one sentence, exit code 1
    second    at once, wherever the program is: one line, temporary files removed, exit code 130

Python hears signals between two steps of its own, and compiled code may be minutes long. The system writes the number
of every signal into a pipe meanwhile, where a thread reads it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import NoReturn

from twolayer.numerics.temporary_files import remove_own

__all__ = ["listen"]

ASKING = (signal.SIGINT, signal.SIGTERM)
_ending = threading.Lock()


def listen() -> None:
    """Hear Ctrl-C and SIGTERM in this way from now on; for the main thread of the console command."""
    asked = False

    def ask(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if asked:
            _end(number)
        asked = True
        raise KeyboardInterrupt

    for number in ASKING:
        signal.signal(number, ask)
    if os.name == "posix":
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def _watch(reader: int) -> None:
    heard = 0
    while numbers := os.read(reader, 64):
        for number in (x for x in numbers if x in ASKING):
            heard += 1
            if heard > 1:
                _end(number)


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
            + b"twolayer: interrupted twice, ended at once; what was written before is whole.\n",
        )
    os._exit(128 + number)
