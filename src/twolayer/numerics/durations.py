"""Durations in words: what a run takes, before it begins."""

from __future__ import annotations

__all__ = ["lasting"]


def lasting(seconds: float) -> str:
    """A duration in words."""
    minutes = seconds / 60
    if minutes < 2:
        return f"{max(seconds, 1):.2g} s" if seconds < 99.5 else f"{seconds:.0f} s"
    return f"{minutes:.3g} min" if minutes < 120 else f"{minutes / 60:.2g} h"
