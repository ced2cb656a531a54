"""What can go wrong, by name: every exception and every warning of the package."""

from __future__ import annotations

from twolayer.loops.windows import CostWarning
from twolayer.numerics.compilation import CacheWarning
from twolayer.numerics.errors import (
    InputError,
    Interrupted,
    NotWritten,
    Refused,
    RunFailed,
)
from twolayer.running.solve import AccuracyWarning, DivergenceWarning, HeavyTailWarning
from twolayer.running.witness import WitnessWarning
from twolayer.sweeps.api import SweepWarning

__all__ = [
    "AccuracyWarning",
    "CacheWarning",
    "CostWarning",
    "DivergenceWarning",
    "HeavyTailWarning",
    "InputError",
    "Interrupted",
    "NotWritten",
    "Refused",
    "RunFailed",
    "SweepWarning",
    "WitnessWarning",
]
