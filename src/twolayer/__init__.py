"""Exact learning dynamics of two-layer neural networks: theory and simulation from one
description.

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
    from twolayer import (
        errors,
        escape,
        extend,
        gallery,
        layers,
        mean_field,
        plot,
        pure,
        relu,
        rules,
        scaling,
        schedules,
        single_index,
        stability,
        sweeps,
        types,
    )
    from twolayer.analysis.drift_parts import rates
    from twolayer.analysis.escape import escape_time
    from twolayer.analysis.exponents import analyse
    from twolayer.analysis.learnable import learnable
    from twolayer.analysis.optimal_lr import optimal_lr
    from twolayer.analysis.passes_online import passes_online
    from twolayer.analysis.phases import phase_diagram
    from twolayer.analysis.protocols.optimise import optimise
    from twolayer.analysis.recovery import recovery
    from twolayer.analysis.stability.critical import critical_lr
    from twolayer.analysis.stability.points import fixed_points
    from twolayer.analysis.thresholds.alpha_c import thresholds
    from twolayer.analysis.thresholds.best_possible import best_possible
    from twolayer.analysis.weak_recovery import weak_recovery
    from twolayer.explorer.launch import explore
    from twolayer.files.environment import about
    from twolayer.files.papers import cite
    from twolayer.files.results import load, save
    from twolayer.files.zoo import zoo
    from twolayer.functions.activation import register_activation
    from twolayer.functions.target import Target, Teacher
    from twolayer.gaussian.moments import moments
    from twolayer.methods.chain import Chain
    from twolayer.methods.dmft.method import DMFT
    from twolayer.methods.giant import GiantSteps
    from twolayer.methods.map import Map
    from twolayer.methods.meanfield import MeanField
    from twolayer.methods.ode import ODE
    from twolayer.methods.population import Population
    from twolayer.methods.sde import SDE
    from twolayer.methods.vectors import Vectors
    from twolayer.numerics.errors import InputError
    from twolayer.running.compare import compare
    from twolayer.running.rerun import rerun
    from twolayer.running.solve import solve
    from twolayer.running.stages import Stage, solve_stages
    from twolayer.running.support import support
    from twolayer.sweeps.api import sweep
    from twolayer.task.algorithm import SGD
    from twolayer.task.averages import Averages
    from twolayer.task.first_order import FirstOrder
    from twolayer.task.inputs import Inputs
    from twolayer.task.losses import register_loss
    from twolayer.task.method import Until, register_method
    from twolayer.task.overlaps import Overlaps
    from twolayer.task.particles import Particles
    from twolayer.task.problem import Problem
    from twolayer.task.rules import register_rule
    from twolayer.task.scaling import d

__version__ = "0.1.0"

_HOME = {
    "escape_time": "analysis.escape",
    "optimal_lr": "analysis.optimal_lr",
    "passes_online": "analysis.passes_online",
    "phase_diagram": "analysis.phases",
    "optimise": "analysis.protocols.optimise",
    "rates": "analysis.drift_parts",
    "recovery": "analysis.recovery",
    "critical_lr": "analysis.stability.critical",
    "fixed_points": "analysis.stability.points",
    "best_possible": "analysis.thresholds.best_possible",
    "thresholds": "analysis.thresholds.alpha_c",
    "weak_recovery": "analysis.weak_recovery",
    "explore": "explorer.launch",
    "about": "files.environment",
    "cite": "files.papers",
    **dict.fromkeys(("load", "save"), "files.results"),
    "zoo": "files.zoo",
    "analyse": "analysis.exponents",
    "learnable": "analysis.learnable",
    **dict.fromkeys(("Target", "Teacher"), "functions.target"),
    "moments": "gaussian.moments",
    "Chain": "methods.chain",
    "DMFT": "methods.dmft.method",
    "GiantSteps": "methods.giant",
    "Map": "methods.map",
    "MeanField": "methods.meanfield",
    "ODE": "methods.ode",
    "Population": "methods.population",
    "SDE": "methods.sde",
    "Vectors": "methods.vectors",
    "InputError": "numerics.errors",
    "register_activation": "functions.activation",
    "register_loss": "task.losses",
    "register_method": "task.method",
    "register_rule": "task.rules",
    "compare": "running.compare",
    "rerun": "running.rerun",
    "solve": "running.solve",
    **dict.fromkeys(("Stage", "solve_stages"), "running.stages"),
    "support": "running.support",
    "sweep": "sweeps.api",
    "SGD": "task.algorithm",
    "Averages": "task.averages",
    "FirstOrder": "task.first_order",
    "Inputs": "task.inputs",
    "Until": "task.method",
    "Overlaps": "task.overlaps",
    "Particles": "task.particles",
    "Problem": "task.problem",
    "d": "task.scaling",
}

NAMESPACES = (
    "errors",
    "escape",
    "extend",
    "gallery",
    "layers",
    "mean_field",
    "plot",
    "pure",
    "relu",
    "rules",
    "scaling",
    "schedules",
    "single_index",
    "stability",
    "sweeps",
    "types",
)

__all__ = [
    "DMFT",
    "ODE",
    "SDE",
    "SGD",
    "Averages",
    "Chain",
    "FirstOrder",
    "GiantSteps",
    "InputError",
    "Inputs",
    "Map",
    "MeanField",
    "Overlaps",
    "Particles",
    "Population",
    "Problem",
    "Stage",
    "Target",
    "Teacher",
    "Until",
    "Vectors",
    "about",
    "analyse",
    "best_possible",
    "cite",
    "compare",
    "critical_lr",
    "d",
    "errors",
    "escape",
    "escape_time",
    "explore",
    "extend",
    "fixed_points",
    "gallery",
    "layers",
    "learnable",
    "load",
    "mean_field",
    "moments",
    "optimal_lr",
    "optimise",
    "passes_online",
    "phase_diagram",
    "plot",
    "pure",
    "rates",
    "recovery",
    "register_activation",
    "register_loss",
    "register_method",
    "register_rule",
    "relu",
    "rerun",
    "rules",
    "save",
    "scaling",
    "schedules",
    "single_index",
    "solve",
    "solve_stages",
    "stability",
    "support",
    "sweep",
    "sweeps",
    "thresholds",
    "types",
    "weak_recovery",
    "zoo",
]


def _load(name: str) -> Any:
    keywords = importlib.import_module("twolayer.numerics.keywords")
    if name in NAMESPACES:
        importlib.import_module("twolayer.numerics.compilation").expect()
        namespace = importlib.import_module(f"twolayer.{name}")
        keywords.explained_names(namespace.__name__)
        return namespace
    if name not in _HOME:
        raise AttributeError(f"module 'twolayer' has no attribute {name!r}")
    importlib.import_module("twolayer.numerics.compilation").expect()
    home = importlib.import_module(f"twolayer.{_HOME[name]}")
    value = globals()[name] = keywords.explained(getattr(home, name))
    return value


if not TYPE_CHECKING:
    # A type checker that sees it takes every misspelled name for one of these.
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted(__all__)
