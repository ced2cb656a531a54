"""Progress of whatever takes long: a bar on a terminal, a line that is rewritten in a
notebook, plain lines in scripts, JSON events for programs.

All of them are listeners (numerics/arguments.py): a run, a search and a sweep tell the
same four things, and who listens decides what becomes of them. A clock of its own shows
the first sign of life while code is still being compiled, long before a run reports
anything.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time as wall
from typing import TYPE_CHECKING, TextIO

from twolayer.numerics.arguments import Listener, Progress
from twolayer.numerics.errors import reject

if TYPE_CHECKING:
    import rich.progress

__all__ = [
    "Announcer",
    "Bar",
    "Events",
    "Lines",
    "Silent",
    "in_notebook",
    "listener_for",
]

PATIENCE = 0.7  # seconds before progress is worth showing to somebody who waits
SCRIPT_PATIENCE = 5.0  # the same where nobody may be looking
LONGER = 1.5  # factor between the waiting times of plain lines, the first one a second
SETTING = "TWOLAYER_PROGRESS"
"""The environment variable that leaves progress out where nobody asked for it."""


class Silent:
    """A listener that does nothing."""

    def begin(self, label: str, end: float) -> None:
        """Ignore."""

    def update(self, position: float) -> None:
        """Ignore."""

    def note(self, text: str, **about: object) -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""


class Shown:
    """A run that is shown once it has lasted a moment, also while it reports
    nothing.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._lock = threading.RLock()
        self._clock: threading.Timer | None = None

    def begin(self, label: str, end: float) -> None:
        """Note when the run started, and come back after a moment."""
        with self._lock:
            self._label = label
            self._end = end
            self._at = 0.0
            self._began = wall.monotonic()
            self._wake(self.patience)

    def update(self, position: float) -> None:
        """Note where the run is, and show it."""
        with self._lock:
            self._at = position
            if wall.monotonic() - self._began >= self.patience:
                self.show()

    def note(self, text: str, **about: object) -> None:
        """Write a line at once; what is worth one does not wait."""
        if text:
            with self._lock:
                self.write(text)

    def finish(self) -> None:
        """Stop the clock."""
        with self._lock:
            if self._clock is not None:
                self._clock.cancel()
                self._clock = None

    def show(self) -> None:
        """Show label and position."""

    def write(self, text: str) -> None:
        """Write a line of its own."""
        print(text, file=sys.stderr, flush=True)

    def _wake(self, seconds: float) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self._clock = threading.Timer(seconds, self._ring)
        self._clock.daemon = True
        self._clock.start()

    def _ring(self) -> None:
        with self._lock:
            if self._clock is not None:  # else the run has just ended
                self.show()


class Bar(Shown):
    """A bar on standard error."""

    _progress: rich.progress.Progress | None = None

    def begin(self, label: str, end: float) -> None:
        """Note when the run started; a bar that is still there becomes its own."""
        with self._lock:
            if self._progress is not None:
                self._progress.reset(self._task, description=label, total=end)
        super().begin(label, end)

    def show(self) -> None:
        """Move the bar; it keeps the time by itself."""
        if self._progress is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(self._label, total=self._end)
        self._progress.update(self._task, completed=self._at)

    def write(self, text: str) -> None:
        """A line above the bar."""
        if self._progress is None:
            super().write(text)
        else:
            self._progress.console.print(text, markup=False, highlight=False)

    def finish(self) -> None:
        """Take the bar away."""
        super().finish()
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class Lines(Shown):
    """Lines on standard error, at growing distances; in a notebook one line that is
    written again and again.
    """

    _written = False

    def __init__(self, again: bool = False, patience: float = PATIENCE) -> None:
        super().__init__(patience)
        self.again = again

    def begin(self, label: str, end: float) -> None:
        """Note when the run started."""
        self._next = 0.0
        self._wait = 1.0
        self._written = False
        super().begin(label, end)

    def show(self) -> None:
        """One line, unless the last one was written a moment ago; before a run moves,
        one line is enough.
        """
        now = wall.monotonic()
        share = self._at / self._end if self._end > 0 else 0.0
        waiting = self._written and not self.again and share <= 0
        if now < self._next or waiting:
            return
        self._wait *= 1.0 if self.again else LONGER
        self._next = now + self._wait
        self._written = True
        elapsed = now - self._began
        text = f"{self._label}: preparing, {_clock(elapsed)}"
        if not self.again:
            text += " (a first run compiles its code)"
        if share > 0:
            left = elapsed * (1 / share - 1)
            text = f"{self._label}: {share:.0%} after {_clock(elapsed)}"
            if share < 1:
                text += f", about {_clock(left)} to go"
        sys.stderr.write(f"\r{text:70}" if self.again else f"{text}\n")
        sys.stderr.flush()
        self._wake(self._wait + 0.05)

    def write(self, text: str) -> None:
        """A line of its own, after the one that is rewritten."""
        self._end_line()
        super().write(text)

    def finish(self) -> None:
        """End the line."""
        super().finish()
        self._end_line()

    def _end_line(self) -> None:
        if self.again and self._written:
            sys.stderr.write("\n")
        self._written = False


class Events:
    """One JSON object on each line, for programs: ``begin``, ``progress`` and ``end``
    with counts and rates, and whatever is noted under its own name.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout

    def emit(self, event: str, **values: object) -> None:
        """Write one object."""
        line = json.dumps({"event": event, **values}, ensure_ascii=False)
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def begin(self, label: str, end: float) -> None:
        """Tell what starts."""
        self._began = wall.monotonic()
        self._first: float | None = None
        self._at = 0.0
        self._end = end
        self.emit("begin", label=label, total=end)

    def update(self, position: float) -> None:
        """Tell where it stands."""
        if self._first is None:  # what had been finished before it began
            self._first = position
        self._at = position
        self.emit("progress", **self._standing())

    def note(self, text: str, **about: object) -> None:
        """Tell what is noted, as an event of the name ``event``."""
        event = str(about.pop("event", "note"))
        if text:
            about = {"text": text, **about}
        self.emit(event, **about)

    def finish(self) -> None:
        """Tell that it is over."""
        self.emit("end", **self._standing())

    def _standing(self) -> dict[str, float | None]:
        elapsed = wall.monotonic() - self._began
        rate = 0.0
        if elapsed > 0:
            rate = (self._at - (self._first or 0.0)) / elapsed
        left = (self._end - self._at) / rate if rate > 0 else None
        return {
            "done": self._at,
            "total": self._end,
            "per_second": round(rate, 3),
            "left_s": None if left is None else round(left, 1),
        }


def _clock(seconds: float) -> str:
    """A time as people read it.

    >>> [_clock(x) for x in (3.2, 75, 4000)]
    ['3 s', '1:15 min', '1:06 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def in_notebook() -> bool:
    """Whether output goes to the cells of a notebook."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def listener_for(progress: Progress) -> Listener:
    """The listener that an argument ``progress`` asks for."""
    if progress is None or progress is True:
        # a dumb terminal cannot go back to the start of a line
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            return Bar(patience=PATIENCE if progress is None else 0.0)
        if in_notebook():
            return Lines(again=True)
        if progress is True:
            return Lines()
        if os.environ.get(SETTING) == "off":
            return Silent()
        return Lines(patience=SCRIPT_PATIENCE)
    if progress is False:
        return Silent()
    if all(hasattr(progress, name) for name in ("begin", "update", "note", "finish")):
        return progress
    reject(
        "progress",
        progress,
        "True, False, None or an object with begin, update, note and finish",
    )


class Announcer:
    """Says which run of a comparison begins, as "[2] chain, d = 100", where progress is
    shown by something that stays; a run that is refused has not begun.
    """

    def __init__(self, progress: Progress) -> None:
        self.listener: Listener = listener_for(progress)
        # in scripts a run that is over within seconds leaves no line
        quiet = isinstance(self.listener, Lines) and not self.listener.again
        self.loud = progress is not None or not quiet
        self.count = 0

    def listener_of(self, text: str) -> Listener:
        """A listener to one run, which says the text when the run begins."""
        return Announced(self, text)

    def say(self, text: str) -> None:
        """One line."""
        self.count += 1
        if self.loud:
            self.listener.note(f"[{self.count}] {text}")


class Announced:
    """The listener to one run, or to all its stages, with a line before them."""

    def __init__(self, announcer: Announcer, text: str) -> None:
        self.announcer = announcer
        self.text = text
        self.said = False

    def begin(self, label: str, end: float) -> None:
        """Say what begins, once."""
        if not self.said:
            self.said = True
            self.announcer.say(self.text)
        self.announcer.listener.begin(label, end)

    def update(self, position: float) -> None:
        """Hand on where the run is."""
        self.announcer.listener.update(position)

    def note(self, text: str, **about: object) -> None:
        """Hand on what is noted."""
        self.announcer.listener.note(text, **about)

    def finish(self) -> None:
        """Hand on that the run is over."""
        self.announcer.listener.finish()
