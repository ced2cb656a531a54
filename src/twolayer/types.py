"""Classes that functions take or return, for annotations and ``isinstance``: what
stands neither at the top level nor beside its function in a namespace.
"""

from __future__ import annotations

from twolayer.analysis.drift_parts import Rates
from twolayer.analysis.exponents import Analysis
from twolayer.analysis.learnable import Learnable
from twolayer.analysis.passes_online import OnlinePasses
from twolayer.analysis.phases import Phase, PhaseDiagram
from twolayer.analysis.protocols.contest import Contest
from twolayer.analysis.protocols.optimise import Optimum
from twolayer.analysis.thresholds.alpha_c import Thresholds
from twolayer.analysis.thresholds.amp import MessagePassing
from twolayer.analysis.thresholds.best_possible import BestPossible
from twolayer.explorer.launch import Explorer
from twolayer.files.zoo import Setup
from twolayer.gaussian.moments import Moments
from twolayer.numerics.arguments import Listener
from twolayer.numerics.statistics import Fit, Fraction, Median
from twolayer.running.comparison import Comparison
from twolayer.running.judging import Judgement
from twolayer.running.support import Support
from twolayer.sweeps.planning import SweepPlan
from twolayer.task.first_order import Iterates, SampleHistory

__all__ = [
    "Analysis",
    "BestPossible",
    "Comparison",
    "Contest",
    "Explorer",
    "Fit",
    "Fraction",
    "Iterates",
    "Judgement",
    "Learnable",
    "Listener",
    "Median",
    "MessagePassing",
    "Moments",
    "OnlinePasses",
    "Optimum",
    "Phase",
    "PhaseDiagram",
    "Rates",
    "SampleHistory",
    "Setup",
    "Support",
    "SweepPlan",
    "Thresholds",
]
