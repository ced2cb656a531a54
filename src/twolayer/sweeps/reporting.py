"""How a sweep tells its progress: a live table on a terminal, plain lines elsewhere, JSON events for programs."""

from __future__ import annotations

import json
import sys
import time as wall
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from twolayer.numerics.arguments import Json
from twolayer.numerics.errors import reject

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

__all__ = [
    "Events",
    "Progress",
    "Quiet",
    "Reporter",
    "Screen",
    "SweepLines",
    "reporter_for",
]


@dataclass
class Progress:
    """Where a sweep stands, in units of a cell and a block of its seeds."""

    total: int = 0
    kept: int = 0
    done: int = 0
    failed: int = 0
    began: float = 0.0

    @property
    def rate(self) -> float:
        """Units per second since the start of this call."""
        elapsed = wall.monotonic() - self.began
        return (self.done + self.failed) / elapsed if elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds to go, once that can be told."""
        rate = self.rate
        return (
            (self.total - self.kept - self.done - self.failed) / rate
            if rate > 0
            else None
        )

    def summary(self) -> Json:
        """As plain values."""
        left = self.left
        counts = {k: v for k, v in asdict(self).items() if k != "began"}
        return {
            **counts,
            "per_second": round(self.rate, 3),
            "left_s": None if left is None else round(left, 1),
        }


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
        if minutes >= 60
        else f"{minutes}:{rest:02d}"
    )


class Reporter(Protocol):
    """Listens to a sweep."""

    def begin(self, progress: Progress) -> None:
        """The sweep starts, or finds that it has more to do."""

    def unit(self, cell: str, low: int, error: str | None, seconds: float) -> None:
        """A cell's block of seeds is finished, or failed."""

    def update(self, progress: Progress) -> None:
        """Where it stands."""

    def end(self, progress: Progress) -> None:
        """The sweep is over."""


class Quiet:
    """Says nothing."""

    def begin(self, progress: Progress) -> None:
        """Ignore."""

    def unit(self, cell: str, low: int, error: str | None, seconds: float) -> None:
        """Ignore."""

    def update(self, progress: Progress) -> None:
        """Ignore."""

    def end(self, progress: Progress) -> None:
        """Ignore."""


def _line(progress: Progress) -> str:
    finished = progress.kept + progress.done + progress.failed
    return (
        f"{finished}/{progress.total} blocks of runs, {progress.rate:.3g} per second, {_clock(progress.left)} left, "
        f"{progress.failed} failed"
    )


class SweepLines(Quiet):
    """A plain line now and then, and one for each failure."""

    def __init__(self, stream: TextIO | None = None, every: float = 5.0) -> None:
        self.stream, self.every, self._last = stream or sys.stderr, every, -1e9

    def _print(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def begin(self, progress: Progress) -> None:
        """How much there is to do."""
        self._print(f"{progress.total} blocks of runs, {progress.kept} finished before")

    def unit(self, cell: str, low: int, error: str | None, seconds: float) -> None:
        """A failure at once."""
        if error is not None:
            self._print(f"failed: {cell}: {error}")

    def update(self, progress: Progress) -> None:
        """Now and then; the last word is said at the end."""
        finished = progress.kept + progress.done + progress.failed
        if finished < progress.total and wall.monotonic() - self._last >= self.every:
            self._last = wall.monotonic()
            self._print(_line(progress))

    def end(self, progress: Progress) -> None:
        """The last word."""
        self._print(_line(progress))


class Events(Quiet):
    """One JSON object on each line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout

    def emit(self, event: str, **values: object) -> None:
        """One object."""
        self.stream.write(
            json.dumps({"event": event, **values}, ensure_ascii=False) + "\n"
        )
        self.stream.flush()

    def begin(self, progress: Progress) -> None:
        """How much there is to do."""
        self.emit("begin", **progress.summary())

    def unit(self, cell: str, low: int, error: str | None, seconds: float) -> None:
        """Every cell."""
        status = "done" if error is None else "failed"
        self.emit(
            "cell",
            cell=cell,
            first_seed=low,
            status=status,
            error=error,
            seconds=round(seconds, 6),
        )

    def update(self, progress: Progress) -> None:
        """Every batch."""
        self.emit("progress", **progress.summary())

    def end(self, progress: Progress) -> None:
        """The counts."""
        self.emit("end", **progress.summary())


class Screen(Quiet):
    """A live table on the terminal."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._failures: list[str] = []

    def _table(self, progress: Progress) -> Table:
        from rich.table import Table

        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        finished = progress.kept + progress.done + progress.failed
        rows = {
            "blocks of runs": f"{finished} of {progress.total} ({progress.kept} from before)",
            "rate": f"{progress.rate:.3g} per second",
            "time left": _clock(progress.left),
            "failures": str(progress.failed),
        }
        for name, value in rows.items():
            table.add_row(name, value)
        for failure in self._failures[-5:]:
            table.add_row("", failure)
        return table

    def begin(self, progress: Progress) -> None:
        """Open the table."""
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                self._table(progress),
                console=Console(stderr=True),
                refresh_per_second=4,
            )
            self._live.start()

    def unit(self, cell: str, low: int, error: str | None, seconds: float) -> None:
        """Remember failures."""
        if error is not None:
            self._failures.append(f"{cell}: {error}")

    def update(self, progress: Progress) -> None:
        """Renew the table."""
        if self._live is not None:
            self._live.update(self._table(progress))

    def end(self, progress: Progress) -> None:
        """Leave the table as it is."""
        if self._live is not None:
            self._live.update(self._table(progress))
            self._live.stop()
            self._live = None


def reporter_for(progress: bool | Reporter | None) -> Reporter:
    """The reporter that an argument ``progress`` asks for."""
    if progress is None:
        return Screen() if sys.stderr.isatty() else Quiet()
    if progress is True:
        return Screen() if sys.stderr.isatty() else SweepLines()
    if progress is False:
        return Quiet()
    if all(hasattr(progress, name) for name in ("begin", "unit", "update", "end")):
        return progress
    reject(
        "progress",
        progress,
        "True, False, None or an object with begin, unit, update and end",
    )
