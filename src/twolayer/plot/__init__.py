"""Figures: every result has one."""

from twolayer.plot.figures import analysis, compare, moments, save_figure, trajectory

__all__ = ["analysis", "compare", "moments", "save_figure", "trajectory"]
