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
    from twolayer import gallery, plot
    from twolayer.algorithm import SGD
    from twolayer.analysis.escape import EscapeTime, escape_time
    from twolayer.analysis.mediocrity import admissible_lr, escape_gain, optimal_lr, stationary_risk
    from twolayer.analysis.passage import Passage, first_passage
    from twolayer.analysis.population_loss import PopulationLoss, critical_alpha, population_loss
    from twolayer.analysis.recovery import Recovery, recovery
    from twolayer.analysis.relu_students import (
        ReluStudents,
        SymmetricPair,
        aligned_excess,
        cubic_bound,
        relu_students,
        symmetric_pair,
    )
    from twolayer.comparison import compare
    from twolayer.environment import about
    from twolayer.errors import InputError, Interrupted, Refused, RunFailed
    from twolayer.functions.activation import Activation, register_activation
    from twolayer.functions.exponents import analyse
    from twolayer.functions.target import Target, Teacher
    from twolayer.gaussian.moments import moments
    from twolayer.losses import Loss, register_loss
    from twolayer.methods.base import Method, Until, register_method
    from twolayer.methods.chain import Chain
    from twolayer.methods.ode import ODE
    from twolayer.methods.population import Population
    from twolayer.methods.sde import SDE
    from twolayer.methods.vectors import Vectors
    from twolayer.overlaps import Overlaps
    from twolayer.problem import Problem
    from twolayer.results import cite, load, save
    from twolayer.scaling import Scaling, d
    from twolayer.solving import DivergenceWarning, applicable, refusals, rerun, solve
    from twolayer.sweeps.api import SweepWarning, plan_sweep, sweep
    from twolayer.sweeps.files import load_sweep, merge_sweeps

__version__ = "0.1.0"

_HOME = {
    "about": "environment",
    "SGD": "algorithm",
    **dict.fromkeys(("EscapeTime", "escape_time"), "analysis.escape"),
    **dict.fromkeys(("admissible_lr", "escape_gain", "optimal_lr", "stationary_risk"), "analysis.mediocrity"),
    **dict.fromkeys(("Passage", "first_passage"), "analysis.passage"),
    **dict.fromkeys(("PopulationLoss", "critical_alpha", "population_loss"), "analysis.population_loss"),
    **dict.fromkeys(("Recovery", "recovery"), "analysis.recovery"),
    **dict.fromkeys(
        ("ReluStudents", "SymmetricPair", "aligned_excess", "cubic_bound", "relu_students", "symmetric_pair"),
        "analysis.relu_students",
    ),
    "compare": "comparison",
    **dict.fromkeys(("InputError", "Interrupted", "Refused", "RunFailed"), "errors"),
    **dict.fromkeys(("Activation", "register_activation"), "functions.activation"),
    "analyse": "functions.exponents",
    **dict.fromkeys(("Target", "Teacher"), "functions.target"),
    "moments": "gaussian.moments",
    **dict.fromkeys(("Loss", "register_loss"), "losses"),
    **dict.fromkeys(("Method", "Until", "register_method"), "methods.base"),
    "Chain": "methods.chain",
    "ODE": "methods.ode",
    "Population": "methods.population",
    "SDE": "methods.sde",
    "Vectors": "methods.vectors",
    "Overlaps": "overlaps",
    "Problem": "problem",
    **dict.fromkeys(("cite", "load", "save"), "results"),
    **dict.fromkeys(("Scaling", "d"), "scaling"),
    **dict.fromkeys(("DivergenceWarning", "applicable", "refusals", "rerun", "solve"), "solving"),
    **dict.fromkeys(("SweepWarning", "plan_sweep", "sweep"), "sweeps.api"),
    **dict.fromkeys(("load_sweep", "merge_sweeps"), "sweeps.files"),
}

__all__ = [
    "ODE",
    "SDE",
    "SGD",
    "Activation",
    "Chain",
    "DivergenceWarning",
    "EscapeTime",
    "InputError",
    "Interrupted",
    "Loss",
    "Method",
    "Overlaps",
    "Passage",
    "Population",
    "PopulationLoss",
    "Problem",
    "Recovery",
    "Refused",
    "ReluStudents",
    "RunFailed",
    "Scaling",
    "SweepWarning",
    "SymmetricPair",
    "Target",
    "Teacher",
    "Until",
    "Vectors",
    "about",
    "admissible_lr",
    "aligned_excess",
    "analyse",
    "applicable",
    "cite",
    "compare",
    "critical_alpha",
    "cubic_bound",
    "d",
    "escape_gain",
    "escape_time",
    "first_passage",
    "gallery",
    "load",
    "load_sweep",
    "merge_sweeps",
    "moments",
    "optimal_lr",
    "plan_sweep",
    "plot",
    "population_loss",
    "recovery",
    "refusals",
    "register_activation",
    "register_loss",
    "register_method",
    "relu_students",
    "rerun",
    "save",
    "solve",
    "stationary_risk",
    "sweep",
    "symmetric_pair",
]


def __getattr__(name: str) -> Any:
    if name in ("gallery", "plot"):
        return importlib.import_module(f"twolayer.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'twolayer' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"twolayer.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
