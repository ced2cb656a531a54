"""Figures: every result has one."""

from twolayer.plot.averages import moments
from twolayer.plot.dynamics import compare, trajectory
from twolayer.plot.measure import measure
from twolayer.plot.phases import phases
from twolayer.plot.style import save_figure, style
from twolayer.plot.target import analysis

__all__ = ["analysis", "compare", "measure", "moments", "phases", "save_figure", "style", "trajectory"]
