"""Scaling laws: how the risk falls with samples, width and compute.

>>> import twolayer as tl
>>> features = tl.scaling.random_features(0.8, 0.6, size=100, dim=1000)
>>> bool(features.risk(1000, lr=0.05)[0] < features.risk(10, lr=0.05)[0])
True
"""

from __future__ import annotations

from twolayer.analysis.frontier import Frontier, frontier
from twolayer.analysis.power_teacher import PowerTeacher, power_teacher
from twolayer.analysis.random_features import (
    FeatureDraw,
    RandomFeatures,
    SumRules,
    random_features,
)

__all__ = [
    "FeatureDraw",
    "Frontier",
    "PowerTeacher",
    "RandomFeatures",
    "SumRules",
    "frontier",
    "power_teacher",
    "random_features",
]
