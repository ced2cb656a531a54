"""What a comparison is doing: a line for each run that begins, and the bar of the run itself.

[2/6] chain, d = 10000, 16 seeds
"""

from __future__ import annotations

import sys

from twolayer.numerics.arguments import Monitor, Progress
from twolayer.running.progress import Silent, monitor_for

__all__ = ["Announcer"]


class Announcer:
    """Says on standard error which run begins, wherever progress is shown: on terminals, or where it is asked for."""

    def __init__(self, progress: Progress) -> None:
        self.monitor: Monitor = monitor_for(progress)
        self.loud = progress is True or (progress is None and not isinstance(self.monitor, Silent))
        self.count = 0

    def say(self, text: str) -> None:
        """One line."""
        self.count += 1
        if self.loud:
            print(f"[{self.count}] {text}", file=sys.stderr, flush=True)
