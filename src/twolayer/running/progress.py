"""Progress of long runs: a bar on a terminal, nothing elsewhere unless asked for."""

from __future__ import annotations

import sys
import time as wall
from typing import Any

from twolayer.loops.host import Monitor, Silent
from twolayer.numerics.errors import reject

__all__ = ["Bar", "monitor_for"]

PATIENCE = 0.7  # seconds before a bar is worth showing


class Bar:
    """A bar on standard error that appears when the run has lasted a moment."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._progress: Any = None

    def begin(self, label: str, end: float) -> None:
        """Note when the run started."""
        self._label, self._end, self._began = label, end, wall.monotonic()

    def update(self, position: float) -> None:
        """Move the bar."""
        if self._progress is None:
            if wall.monotonic() - self._began < self.patience:
                return
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(self._label, total=self._end)
        self._progress.update(self._task, completed=position)

    def finish(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def monitor_for(progress: Any) -> Monitor:
    """The monitor that an argument ``progress`` asks for."""
    if progress is None:
        return Bar() if sys.stderr.isatty() else Silent()
    if progress is True:
        return Bar(patience=0.0)
    if progress is False:
        return Silent()
    if all(hasattr(progress, name) for name in ("begin", "update", "finish")):
        return progress
    reject("progress", progress, "True, False, None or an object with begin, update and finish")
