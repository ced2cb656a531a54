"""Exact learning dynamics of two-layer neural networks: theory and simulation from one description.

>>> import twolayer as tl
>>> from twolayer import d
>>> problem = tl.Problem(target="He2(z1)", activation="He2", noise=0.1)
>>> algorithm = tl.SGD(lr=0.05 / d, geometry="projected")
>>> start = tl.Overlaps(Q=[[1.0]], M=[[0.5]])
>>> theory = tl.solve(problem, algorithm, tl.ODE(), start, time=2)
>>> round(float(theory.risk[0, -1]), 4)
0.0572

Heavy modules load when a name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twolayer import gallery, plot, pure
    from twolayer.analysis.escape import EscapeTime, escape_time
    from twolayer.analysis.measure import measure_histogram, measure_moments
    from twolayer.analysis.mediocrity import admissible_lr, escape_gain, optimal_lr, stationary_risk
    from twolayer.analysis.passage import Passage, first_passage
    from twolayer.analysis.phases import Phase, PhaseDiagram, phase_diagram
    from twolayer.analysis.population_loss import PopulationLoss, critical_alpha, population_loss
    from twolayer.analysis.prefactors import RecoverySteps, recovery_steps
    from twolayer.analysis.rates import rates
    from twolayer.analysis.recovery import Recovery, recovery
    from twolayer.analysis.relu_students import (
        ReluStudents,
        SymmetricPair,
        aligned_excess,
        cubic_bound,
        relu_students,
        symmetric_pair,
    )
    from twolayer.analysis.second_layer import SecondLayer, fit_second_layer, layerwise, simulate_second_layer
    from twolayer.analysis.weak_recovery import WeakRecovery, weak_recovery
    from twolayer.files.environment import about
    from twolayer.files.papers import cite
    from twolayer.files.results import load, save
    from twolayer.files.zoo import zoo
    from twolayer.functions.activation import Activation, register_activation
    from twolayer.functions.exponents import analyse
    from twolayer.functions.target import Target, Teacher
    from twolayer.gaussian.moments import moments
    from twolayer.loops.flow import CostWarning
    from twolayer.methods.chain import Chain
    from twolayer.methods.dmft.method import DMFT
    from twolayer.methods.giant import GiantSteps
    from twolayer.methods.map import Map
    from twolayer.methods.meanfield import MeanField
    from twolayer.methods.ode import ODE
    from twolayer.methods.population import Population
    from twolayer.methods.sde import SDE
    from twolayer.methods.vectors import Vectors
    from twolayer.numerics.errors import InputError, Interrupted, Refused, RunFailed
    from twolayer.running.compare import compare
    from twolayer.running.rerun import rerun
    from twolayer.running.solve import (
        AccuracyWarning,
        DivergenceWarning,
        HeavyTailWarning,
        solve,
    )
    from twolayer.running.stages import Stage, solve_stages
    from twolayer.running.support import Support, support
    from twolayer.sweeps.api import SweepWarning, plan_sweep, sweep
    from twolayer.sweeps.files import load_sweep, merge_sweeps
    from twolayer.task.algorithm import SGD
    from twolayer.task.losses import Loss, register_loss
    from twolayer.task.method import Method, Until, register_method
    from twolayer.task.overlaps import Overlaps
    from twolayer.task.particles import Particles
    from twolayer.task.problem import Problem
    from twolayer.task.scaling import Scaling, d

__version__ = "0.1.0"

_HOME = {
    "about": "files.environment",
    "zoo": "files.zoo",
    "SGD": "task.algorithm",
    **dict.fromkeys(("EscapeTime", "escape_time"), "analysis.escape"),
    **dict.fromkeys(("measure_histogram", "measure_moments"), "analysis.measure"),
    **dict.fromkeys(("admissible_lr", "escape_gain", "optimal_lr", "stationary_risk"), "analysis.mediocrity"),
    **dict.fromkeys(("Passage", "first_passage"), "analysis.passage"),
    **dict.fromkeys(("PopulationLoss", "critical_alpha", "population_loss"), "analysis.population_loss"),
    **dict.fromkeys(("Recovery", "recovery"), "analysis.recovery"),
    **dict.fromkeys(
        ("ReluStudents", "SymmetricPair", "aligned_excess", "cubic_bound", "relu_students", "symmetric_pair"),
        "analysis.relu_students",
    ),
    **dict.fromkeys(("Phase", "PhaseDiagram", "phase_diagram"), "analysis.phases"),
    **dict.fromkeys(("RecoverySteps", "recovery_steps"), "analysis.prefactors"),
    **dict.fromkeys(("WeakRecovery", "weak_recovery"), "analysis.weak_recovery"),
    **dict.fromkeys(("SecondLayer", "fit_second_layer", "layerwise", "simulate_second_layer"), "analysis.second_layer"),
    "compare": "running.compare",
    **dict.fromkeys(("InputError", "Interrupted", "Refused", "RunFailed"), "numerics.errors"),
    **dict.fromkeys(("Activation", "register_activation"), "functions.activation"),
    "analyse": "functions.exponents",
    **dict.fromkeys(("Target", "Teacher"), "functions.target"),
    "moments": "gaussian.moments",
    "CostWarning": "loops.flow",
    **dict.fromkeys(("Loss", "register_loss"), "task.losses"),
    **dict.fromkeys(("Method", "Until", "register_method"), "task.method"),
    "Chain": "methods.chain",
    "GiantSteps": "methods.giant",
    "Map": "methods.map",
    "DMFT": "methods.dmft.method",
    "MeanField": "methods.meanfield",
    "ODE": "methods.ode",
    "Population": "methods.population",
    "rates": "analysis.rates",
    "SDE": "methods.sde",
    "Vectors": "methods.vectors",
    "Overlaps": "task.overlaps",
    "Particles": "task.particles",
    "Problem": "task.problem",
    "cite": "files.papers",
    **dict.fromkeys(("load", "save"), "files.results"),
    **dict.fromkeys(("Scaling", "d"), "task.scaling"),
    "rerun": "running.rerun",
    **dict.fromkeys(
        ("AccuracyWarning", "DivergenceWarning", "HeavyTailWarning", "solve"),
        "running.solve",
    ),
    **dict.fromkeys(("Support", "support"), "running.support"),
    **dict.fromkeys(("Stage", "solve_stages"), "running.stages"),
    **dict.fromkeys(("SweepWarning", "plan_sweep", "sweep"), "sweeps.api"),
    **dict.fromkeys(("load_sweep", "merge_sweeps"), "sweeps.files"),
}

__all__ = [
    "DMFT",
    "ODE",
    "SDE",
    "SGD",
    "AccuracyWarning",
    "Activation",
    "Chain",
    "CostWarning",
    "DivergenceWarning",
    "EscapeTime",
    "GiantSteps",
    "HeavyTailWarning",
    "InputError",
    "Interrupted",
    "Loss",
    "Map",
    "MeanField",
    "Method",
    "Overlaps",
    "Particles",
    "Passage",
    "Phase",
    "PhaseDiagram",
    "Population",
    "PopulationLoss",
    "Problem",
    "Recovery",
    "RecoverySteps",
    "Refused",
    "ReluStudents",
    "RunFailed",
    "Scaling",
    "SecondLayer",
    "Stage",
    "Support",
    "SweepWarning",
    "SymmetricPair",
    "Target",
    "Teacher",
    "Until",
    "Vectors",
    "WeakRecovery",
    "about",
    "admissible_lr",
    "aligned_excess",
    "analyse",
    "cite",
    "compare",
    "critical_alpha",
    "cubic_bound",
    "d",
    "escape_gain",
    "escape_time",
    "first_passage",
    "fit_second_layer",
    "gallery",
    "layerwise",
    "load",
    "load_sweep",
    "measure_histogram",
    "measure_moments",
    "merge_sweeps",
    "moments",
    "optimal_lr",
    "phase_diagram",
    "plan_sweep",
    "plot",
    "population_loss",
    "pure",
    "rates",
    "recovery",
    "recovery_steps",
    "register_activation",
    "register_loss",
    "register_method",
    "relu_students",
    "rerun",
    "save",
    "simulate_second_layer",
    "solve",
    "solve_stages",
    "stationary_risk",
    "support",
    "sweep",
    "symmetric_pair",
    "weak_recovery",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name in ("gallery", "plot", "pure"):
        return importlib.import_module(f"twolayer.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'twolayer' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"twolayer.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
