"""One neuron and one direction: the population loss by its Hermite coefficients, and
what recovery takes.

The verbs `twolayer.recovery` and `twolayer.weak_recovery` measure it.
"""

from __future__ import annotations

from twolayer.analysis.population_loss import (
    PopulationLoss,
    critical_alpha,
    population_loss,
    sufficient_alpha,
)
from twolayer.analysis.recovery import Recovery, largest_overlaps
from twolayer.analysis.recovery_steps import RecoverySteps, recovery_steps
from twolayer.analysis.weak_recovery import WeakRecovery

__all__ = [
    "PopulationLoss",
    "Recovery",
    "RecoverySteps",
    "WeakRecovery",
    "critical_alpha",
    "largest_overlaps",
    "population_loss",
    "recovery_steps",
    "sufficient_alpha",
]
