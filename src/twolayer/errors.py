"""What can go wrong, by name: exceptions and warnings beside `twolayer.InputError`."""

from __future__ import annotations

from twolayer.loops.windows import CostWarning
from twolayer.numerics.errors import Interrupted, Refused, RunFailed
from twolayer.running.solve import AccuracyWarning, DivergenceWarning, HeavyTailWarning
from twolayer.sweeps.api import SweepWarning

__all__ = [
    "AccuracyWarning",
    "CostWarning",
    "DivergenceWarning",
    "HeavyTailWarning",
    "Interrupted",
    "Refused",
    "RunFailed",
    "SweepWarning",
]
