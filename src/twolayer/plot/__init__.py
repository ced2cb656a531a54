"""Figures: every result has one."""

from twolayer.plot.averages import moments
from twolayer.plot.best import best_line, best_possible, thresholds
from twolayer.plot.dynamics import compare, trajectory
from twolayer.plot.measure import measure
from twolayer.plot.phases import phases
from twolayer.plot.style import save_figure
from twolayer.plot.target import analysis

__all__ = [
    "analysis",
    "best_line",
    "best_possible",
    "compare",
    "measure",
    "moments",
    "phases",
    "save_figure",
    "thresholds",
    "trajectory",
]
