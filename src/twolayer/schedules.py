"""Schedules of learning rates and batches, multiplied onto laws: ``0.2 / d *
schedules.cosine(horizon=5)``.
"""

from __future__ import annotations

from twolayer.task.schedules import (
    Schedule,
    cosine,
    custom,
    inverse,
    linear,
    piecewise,
    power,
    table,
    warmup,
)

__all__ = [
    "Schedule",
    "cosine",
    "custom",
    "inverse",
    "linear",
    "piecewise",
    "power",
    "table",
    "warmup",
]
