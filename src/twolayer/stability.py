"""Where runs stall and what leads on: fixed points, plateaus, the critical learning rate."""

from __future__ import annotations

from twolayer.analysis.stability.critical import critical_lr, perfect_point
from twolayer.analysis.stability.plateaus import Plateau, Plateaus, plateaus
from twolayer.analysis.stability.points import FixedPoint, FixedPoints, fixed_points

__all__ = [
    "FixedPoint",
    "FixedPoints",
    "Plateau",
    "Plateaus",
    "critical_lr",
    "fixed_points",
    "perfect_point",
    "plateaus",
]
