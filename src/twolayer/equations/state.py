"""The state that equations of the overlaps move: (Q, M, a) of one start."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Overlap"]


class Overlap(NamedTuple):
    """The state of the equation of the overlaps."""

    Q: Any
    M: Any
    a: Any
