"""How a worker speaks while it answers: events on a pipe, progress of runs, and the ear
for "stop".

    Voice.send(event, data)    one line of JSON
    Voice.update(position)     as a Listener of a run: tells the share that is done,
                               raises Cancelled when told to stop
"""

from __future__ import annotations

import math
import threading
import time as wall
from collections.abc import Callable
from typing import Any

import numpy as np

from twolayer.explorer.limits import check_answer

__all__ = ["Cancelled", "Voice", "plain"]

SOON = 0.1  # seconds between two reports of progress


class Cancelled(BaseException):
    """The page no longer wants the answer; no handler of errors may take it for one."""


class Voice:
    """The way back to the page, and a Listener of the runs made for it.

    Examples
    --------
    >>> heard = []
    >>> voice = Voice(lambda event, data: heard.append((event, data)))
    >>> voice.begin("chain", 10.0)
    >>> voice.update(5.0)
    >>> heard
    [('progress', {'label': 'chain', 'share': 0.5})]
    """

    def __init__(self, send: Callable[[str, object], None]) -> None:
        self._send = send
        self.stop = threading.Event()
        self._label, self._end, self._next = "", 1.0, 0.0

    def send(self, event: str, data: object) -> None:
        """One event, unless nobody listens any more; one that is too long for a line is
        refused.
        """
        self.listen()
        check_answer(data)
        self._send(event, plain(data))

    def listen(self) -> None:
        """Raise `Cancelled` if the page has said so."""
        if self.stop.is_set():
            raise Cancelled

    def begin(self, label: str, end: float) -> None:
        """A run starts."""
        self._label, self._end = label, end
        self.listen()

    def update(self, position: float) -> None:
        """The run is here."""
        self.listen()
        now = wall.monotonic()
        if now >= self._next:
            self._next = now + SOON
            self._send(
                "progress",
                {
                    "label": self._label,
                    "share": plain(position / self._end if self._end else 1.0),
                },
            )

    def note(self, text: str, **about: object) -> None:
        """The page shows what runs by itself."""

    def finish(self) -> None:
        """The run is over."""


def plain(value: object) -> Any:
    """Values for JSON: arrays become lists, and numbers that are not finite null.

    Examples
    --------
    >>> plain({"x": (1.0, float("nan")), "y": np.array([[0.5, np.inf]])})
    {'x': [1.0, None], 'y': [[0.5, None]]}
    """
    if isinstance(value, dict):
        return {str(key): plain(x) for key, x in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        whole = value.dtype.kind == "f" and bool(
            np.isfinite(value).all()
        )  # most are: no number need be looked at
        value = value.tolist()
        if whole:
            return value
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
