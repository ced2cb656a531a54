"""Progress of long runs: a bar on a terminal, a line that is rewritten in a notebook, plain lines where asked for.

A clock of its own shows the first sign of life while code is still being compiled, long before a run reports anything.
"""

from __future__ import annotations

import os
import sys
import threading
import time as wall
from typing import TYPE_CHECKING

from twolayer.numerics.arguments import Monitor, Progress
from twolayer.numerics.errors import reject

if TYPE_CHECKING:
    import rich.progress

__all__ = ["Announcer", "Bar", "Lines", "Silent", "in_notebook", "monitor_for"]

PATIENCE = 0.7  # seconds before progress is worth showing
LONGER = 1.5  # factor between the waiting times of plain lines, the first one a second


class Silent:
    """A monitor that does nothing."""

    def begin(self, label: str, end: float) -> None:
        """Ignore."""

    def update(self, position: float) -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""


class Shown:
    """A run that is shown once it has lasted a moment, also while it reports nothing."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._lock = threading.RLock()
        self._clock: threading.Timer | None = None

    def begin(self, label: str, end: float) -> None:
        """Note when the run started, and come back after a moment."""
        self._label, self._end, self._began, self._at = (
            label,
            end,
            wall.monotonic(),
            0.0,
        )
        self._wake(self.patience)

    def update(self, position: float) -> None:
        """Note where the run is, and show it."""
        with self._lock:
            self._at = position
            if wall.monotonic() - self._began >= self.patience:
                self.show()

    def finish(self) -> None:
        """Stop the clock."""
        with self._lock:
            if self._clock is not None:
                self._clock.cancel()
                self._clock = None

    def show(self) -> None:
        """Show label and position."""

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

    def finish(self) -> None:
        """Take the bar away."""
        super().finish()
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class Lines(Shown):
    """Lines on standard error, at growing distances; in a notebook one line that is written again and again."""

    _written = False

    def __init__(self, again: bool = False) -> None:
        super().__init__()
        self.again = again

    def begin(self, label: str, end: float) -> None:
        """Note when the run started."""
        self._next, self._wait, self._written = 0.0, 1.0, False
        super().begin(label, end)

    def show(self) -> None:
        """One line, unless the last one was written a moment ago."""
        now = wall.monotonic()
        if now < self._next:
            return
        self._wait *= 1.0 if self.again else LONGER
        self._next, self._written = now + self._wait, True
        share = (
            f"{100 * self._at / self._end:.0f}%"
            if self._at > 0 and self._end > 0
            else "preparing"
        )
        text = f"{self._label}: {share} after {now - self._began:.0f} s"
        sys.stderr.write(f"\r{text:60}" if self.again else f"{text}\n")
        sys.stderr.flush()
        self._wake(self._wait + 0.05)

    def finish(self) -> None:
        """End the line."""
        super().finish()
        if self.again and self._written:
            sys.stderr.write("\n")
            self._written = False


def in_notebook() -> bool:
    """Whether output goes to the cells of a notebook."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def monitor_for(progress: Progress) -> Monitor:
    """The monitor that an argument ``progress`` asks for."""
    if progress is None or progress is True:
        if (
            sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        ):  # which cannot go back to the start of a line
            return Bar(patience=PATIENCE if progress is None else 0.0)
        if in_notebook():
            return Lines(again=True)
        return Silent() if progress is None else Lines()
    if progress is False:
        return Silent()
    if all(hasattr(progress, name) for name in ("begin", "update", "finish")):
        return progress
    reject(
        "progress",
        progress,
        "True, False, None or an object with begin, update and finish",
    )


class Announcer:
    """Says on standard error which run of a comparison begins, wherever progress is shown, as "[2] chain, d = 100"."""

    def __init__(self, progress: Progress) -> None:
        self.monitor: Monitor = monitor_for(progress)
        self.loud = progress is True or (
            progress is None and not isinstance(self.monitor, Silent)
        )
        self.count = 0

    def say(self, text: str) -> None:
        """One line."""
        self.count += 1
        if self.loud:
            print(f"[{self.count}] {text}", file=sys.stderr, flush=True)
