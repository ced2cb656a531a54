"""Escape from mediocrity: how long phase retrieval stays at its start, and which
learning rate shortens it.

What the top level does not hold: the verbs `twolayer.escape_time` and
`twolayer.optimal_lr` do most of it.
"""

from __future__ import annotations

from twolayer.analysis.escape import EscapeTime, passage_law
from twolayer.analysis.escape_formulas import formulas
from twolayer.analysis.escape_measured import MeasuredEscape
from twolayer.analysis.optimal_lr import (
    admissible_lr,
    escape_gain,
    learning_lr,
    stationary_risk,
)
from twolayer.analysis.passage_times import Passage, first_passage

__all__ = [
    "EscapeTime",
    "MeasuredEscape",
    "Passage",
    "admissible_lr",
    "escape_gain",
    "first_passage",
    "formulas",
    "learning_lr",
    "passage_law",
    "stationary_risk",
]
