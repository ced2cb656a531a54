"""Where runs stall and what leads on: plateaus, and what fixed points are told by.

The verbs `twolayer.fixed_points` and `twolayer.critical_lr` are at the root.
"""

from __future__ import annotations

from twolayer.analysis.stability.critical import perfect_point
from twolayer.analysis.stability.plateaus import Plateau, Plateaus, plateaus
from twolayer.analysis.stability.points import FixedPoint, FixedPoints

__all__ = [
    "FixedPoint",
    "FixedPoints",
    "Plateau",
    "Plateaus",
    "perfect_point",
    "plateaus",
]
