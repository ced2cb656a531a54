"""Figures: every result has one."""

from twolayer.numerics.keywords import explained_names
from twolayer.plot.averages import moments
from twolayer.plot.best_possible import (
    best_line,
    best_possible,
    message_passing,
    thresholds,
)
from twolayer.plot.dynamics import compare, trajectory
from twolayer.plot.landscape import landscape
from twolayer.plot.neuron_measure import measure
from twolayer.plot.phases import phases
from twolayer.plot.protocols import contest, optimum
from twolayer.plot.stability import fixed_points, plateaus
from twolayer.plot.style import save_figure, style
from twolayer.plot.sweeps import heatmap, swept
from twolayer.plot.target import analysis
from twolayer.plot.waiting_times import passage, recovery, weak_recovery

__all__ = [
    "analysis",
    "best_line",
    "best_possible",
    "compare",
    "contest",
    "fixed_points",
    "heatmap",
    "landscape",
    "measure",
    "message_passing",
    "moments",
    "optimum",
    "passage",
    "phases",
    "plateaus",
    "recovery",
    "save_figure",
    "style",
    "swept",
    "thresholds",
    "trajectory",
    "weak_recovery",
]

# also where the package is imported by another of its rooms first
explained_names(__name__)
