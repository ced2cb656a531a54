"""Arguments of public functions: a good call, one or two of whose arguments are replaced."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.numerics.errors import short

from . import Case
from .values import unexpected

ONE: dict[str, Any] = {"target": "He2(z1)", "activation": "He2", "noise": 0.1}


@functools.cache
def problem() -> tl.Problem:
    return tl.Problem(**ONE)


@functools.cache
def retrieval() -> tl.Problem:
    return tl.Problem("z1**2", "square", noise=0.1)


@functools.cache
def algorithm() -> tl.SGD:
    return tl.SGD("0.05/d", geometry="projected")


@functools.cache
def start() -> tl.Overlaps:
    return tl.Overlaps([[1.0]], [[0.5]], dim=100)


@functools.cache
def result() -> xr.Dataset:
    return tl.solve(
        problem(), algorithm(), tl.Chain(50), start(), steps=8, save=4, seeds=2
    )


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-"))


def double(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same with double precision, which `tl.pure` asks its callers for."""

    @functools.wraps(function)
    def inside(**arguments: Any) -> Any:
        with jax.enable_x64(True):
            return function(**arguments)

    return inside


def _run() -> dict[str, Any]:
    return {
        "problem": problem(),
        "algorithm": algorithm(),
        "method": tl.Chain(50),
        "start": start(),
        "steps": 10,
    }


def _more() -> dict[str, Any]:
    return {
        "save": 3,
        "seeds": 2,
        "seed": 1,
        "until": tl.Until("overlap", 0.9),
        "progress": False,
        "throw": True,
    }


def _swept() -> dict[str, Any]:
    known = {
        "problem": problem(),
        "algorithm": algorithm(),
        "method": tl.Chain(50),
        "over": {"method.dim": [20, 40]},
    }
    known |= {
        "start": "random",
        "steps": 10,
        "save": 3,
        "until": None,
        "dim": None,
        "seeds": 2,
        "seed": 1,
    }
    return known | {"streams": "independent", "reduce": "final"}


def _table() -> dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]]:
    """Every public function with arguments that it takes."""
    plain, own = (
        (lambda: {"problem": problem()}),
        (lambda: {"problem": problem(), "algorithm": algorithm()}),
    )
    escape = lambda: {"problem": retrieval(), "algorithm": algorithm()}  # noqa: E731
    laws = {"horizon": 2.0, "floor": 0.1, "after": 0.5, "clock": "alpha"}
    return {
        "Problem": (tl.Problem, lambda: {**ONE, "width": 2, "gram": [[1.0]], "second_layer": [1.0, 2.0],
                    "directions": 1, "normalisation": "mean", "noise_law": "gaussian", "flips": 0.0}),
        "SGD": (tl.SGD, lambda: {"lr": "0.1/d", "batch": 2, "loss": "squared", "geometry": "free", "momentum": 0.1,
                "weight_decay": 0.1, "dataset": 4, "sampling": "sequence", "repeat": 1, "train_first_layer": True,
                "train_second_layer": True, "second_lr": 0.1, "average": 0.1, "nesterov": True, "rule": None}),
        "FirstOrder": (tl.FirstOrder, lambda: {"f": None, "g": None, "memory": 2, "batch": "2*d", "dataset": "2*d",
                       "lr": 1.0, "loss": "squared", "sampling": "sequence", "repeat": 1, "coordinatewise": False}),
        "Overlaps": (tl.Overlaps, lambda: {"Q": [[1.0]], "M": [[0.5]], "P": [[1.0]], "a": [1.0], "dim": 10}),
        "Overlaps.random": (tl.Overlaps.random, lambda: {**plain(), "dim": 100, "seed": 1, "size": 3, "law": "sphere",
                            "first": 0}),
        "Overlaps.from_weights": (tl.Overlaps.from_weights, lambda: {"W": np.ones((1, 3)), "W_star": np.ones((1, 3)),
                                  "a": [1.0]}),
        "Particles": (tl.mean_field.Particles, lambda: {"m": [[0.1]], "q": [0.5], "weights": [1.0], "P": [[1.0]],
                      "a": [1.0], "dim": 10}),
        "Particles.sample": (tl.mean_field.Particles.sample, lambda: {**plain(), "size": 4, "law": "sphere", "dim": 9,
                             "seed": 1}),
        "Particles.from_overlaps": (tl.mean_field.Particles.from_overlaps, lambda: {"start": start()}),
        "Teacher": (tl.Teacher, lambda: {"activation": "erf", "k": 2, "weights": [1.0, 2.0], "normalisation": "mean"}),
        "Until": (tl.Until, lambda: {"quantity": "risk", "value": 0.1, "relative": True}),
        "Stage": (tl.Stage, lambda: {"algorithm": algorithm(), "steps": 3, "until": None, "save": 2, "problem": None}),
        "Averages": (tl.Averages, lambda: {"engine": "auto", "accuracy": 1e-4, "effort": 1.0, "points": 256}),
        "passes_online": (tl.passes_online, lambda: {"problem": tl.Problem("z1", "linear"),
                          "algorithm": tl.SGD("0.5/d", dataset="2*d", sampling="replacement"), "tolerance": 0.1,
                          "start": tl.Overlaps([[1.0]], [[0.0]]), "most": 1, "method": tl.DMFT(), "progress": False}),
        "random_features": (tl.scaling.random_features, lambda: {"alpha": 1.0, "beta": 0.7, "size": 4, "dim": 8}),
        "power_teacher": (tl.scaling.power_teacher, lambda: {"exponent": 1.0, "directions": 2, "width": 2,
                          "start": None, "dim": 10, "centred": True, "seed": 0}),
        "frontier": (tl.scaling.frontier, lambda: {"curves": {N: (np.geomspace(1, 1e7, 200), N**-1.0 + np.geomspace(1, 1e7, 200)**-0.5)
                     for N in 2.0 ** np.arange(2, 12)}, "compute": None, "window": (1e3, 1e7)}),
        "Chain": (tl.Chain, lambda: {"dim": 10, "batch_sums": "auto", "engine": "auto"}),
        "Vectors": (tl.Vectors, lambda: {"dim": 10}),
        "ODE": (tl.ODE, lambda: {"averages": {"engine": "auto", "accuracy": 1e-4, "effort": 1.0, "points": 256}, "rtol": 1e-6,
                "max_steps": 100}),
        "Map": (tl.Map, lambda: {"dim": 10, "without": (),
                "averages": {"engine": "auto", "accuracy": 1e-4, "effort": 1.0, "points": 256}}),
        "GiantSteps": (tl.GiantSteps, lambda: {"band": False, "averages": {"accuracy": 1e-4, "effort": 1.0}}),
        "SDE": (tl.SDE, lambda: {"dim": 10, "dt": 0.01}),
        "DMFT": (tl.DMFT, lambda: {"averages": {"points": 256, "accuracy": 0.1}, "replicates": 2, "max_log2_points": 9,
                 "points": "sobol", "responses": False}),
        "MeanField": (tl.MeanField, lambda: {"dim": 10, "self_interaction": False, "interaction": "auto", "rtol": 1e-7,
                      "averages": {"accuracy": 1e-4, "points": 256}, "max_steps": 100}),
        "Population": (tl.Population, lambda: {"flow": True, "averages": {"engine": "auto", "accuracy": 1e-4, "points": 256}, "rtol": 1e-6,
                       "max_steps": 100}),
        "solve": (tl.solve, lambda: {**_run(), **_more()}),
        "solve_stages": (tl.solve_stages, lambda: {"problem": problem(), "stages": [tl.Stage(algorithm(), steps=3)],
                         "method": tl.Chain(50), "start": start(), "seeds": 2, "seed": 1, "throw": True, "force": False}),
        "compare": (tl.compare, lambda: {"problem": problem(), "algorithm": algorithm(), "methods": [tl.Chain(50)],
                    "start": start(), "steps": 10, "save": 3, "seeds": 2, "seed": 1, "progress": False}),
        "support": (tl.support, own),
        "rates": (tl.rates, lambda: {**own(), "start": start(), "method": None}),
        "moments": (tl.moments, lambda: {**plain(), "start": start(), "loss": "squared",
                    "averages": {"engine": "auto", "accuracy": 1e-4, "points": 256}}),
        "analyse": (tl.analyse, lambda: {"target": "z1 + z1*z2", "directions": 2}),
        "learnable": (tl.learnable, lambda: {"problem": tl.Problem("z1", "erf"), "algorithm": tl.SGD(1.5, batch="3*d")}),
        "phase_diagram": (tl.phase_diagram, lambda: {"target": "He3(z1)", "ell": None, "loss": "squared", "width": 1,
                          "geometry": "projected", "activation": None, "directions": 1}),
        "thresholds": (tl.thresholds, lambda: {"target": "z1", "noise": 0.1, "directions": 1}),
        "weak_recovery": (tl.weak_recovery, lambda: {"problem": tl.Problem("h2(z1)", "h2"), "algorithm": tl.SGD(
                          "0.2", batch="2*d", loss="correlation", geometry="projected"), "dim": (20, 40),
                          "threshold": 0.5, "seeds": 2, "seed": 1, "sign": "positive", "start": "random", "steps": 20,
                          "batch_sums": "auto", "progress": False, "force": False}),
        "recovery": (tl.recovery, lambda: {**own(), "dim": 50, "threshold": 0.25, "start": "positive", "samples": 200,
                     "seeds": 2, "seed": 1, "progress": False, "force": False}),
        "recovery_steps": (tl.single_index.recovery_steps, lambda: {**own(), "dim": 50, "threshold": 0.5,
                           "start": 0.2}),
        "population_loss": (tl.single_index.population_loss, lambda: {**plain(), "loss": "squared"}),
        "critical_alpha": (tl.single_index.critical_alpha, lambda: {"dim": 10, "ell": 3}),
        "optimal_lr": (tl.optimal_lr, lambda: {"problem": retrieval(), "batch": 2, "geometry": "projected",
                       "train_second_layer": False, "second_ratio": 1.0, "dim": None, "threshold": 0.1}),
        "admissible_lr": (tl.escape.admissible_lr, lambda: {"problem": retrieval(), "batch": 2, "geometry": "projected",
                          "train_second_layer": False}),
        "escape_gain": (tl.escape.escape_gain, lambda: {"problem": retrieval()}),
        "stationary_risk": (tl.escape.stationary_risk, escape),
        "escape_time": (tl.escape_time, lambda: {**escape(), "dim": 100, "threshold": 0.1, "samples": 200, "seed": 1, "measure": None,
                        "progress": False}),
        "passage_law": (tl.escape.passage_law, lambda: {**escape(), "dim": 100, "threshold": 0.1, "samples": 20,
                        "seed": 1}),
        "first_passage": (tl.escape.first_passage, lambda: {"result": result()}),
        "fit_second_layer": (tl.layers.fit_second_layer, lambda: {**plain(), "start": start(), "ridge": 0.1}),
        "simulate_second_layer": (tl.layers.simulate_second_layer, lambda: {**plain(), "start": start(), "samples": 20,
                                  "ridge": 0.1, "seeds": 2, "seed": 1}),
        "layerwise": (tl.layers.layerwise, lambda: {"result": result(), "ridge": 0.1}),
        "measure_moments": (tl.mean_field.measure_moments, lambda: {"dataset": result()}),
        "measure_histogram": (tl.mean_field.measure_histogram, lambda: {"dataset": result(), "of": "m1", "bins": 5,
                              "range": (0, 1)}),
        "aligned_excess": (tl.relu.aligned_excess, lambda: {"total": 0.5, "lr": 0.1, "students": 2, "steps": 3}),
        "cubic_bound": (tl.relu.cubic_bound, lambda: {"norm": 0.5, "angle": 0.1}),
        "symmetric_pair": (tl.relu.symmetric_pair, lambda: {"lambda1": 0.5, "lambda2": 0.1, "lr": 0.1, "steps": 10,
                           "save": "log"}),
        "relu_students": (tl.relu.relu_students, lambda: {"result": result()}),
        "save": (tl.save, lambda: {"result": result(), "path": folder() / "x.nc"}),
        "load": (tl.load, lambda: {"path": folder() / "x.nc"}),
        "rerun": (tl.rerun, lambda: {"dataset": result(), "seed": 1, "progress": False, "throw": True}),
        "cite": (lambda results, style: tl.cite(results, style=style), lambda: {"results": result(), "style": "text"}),
        "zoo": (tl.zoo, lambda: {"name": "saad1995-fig1"}),
        "sweep": (tl.sweep, lambda: {**_swept(), "target_se": None, "max_seeds": 8, "store": None, "resume": True,
                  "executor": "local", "memory": 2**28, "progress": False}),
        "plan_sweep": (tl.sweeps.plan_sweep, lambda: {**_swept(), "store": None, "workers": 2, "memory": 2**28}),
        "load_sweep": (tl.sweeps.load_sweep, lambda: {"path": folder() / "x.zarr"}),
        "merge_sweeps": (tl.sweeps.merge_sweeps, lambda: {"into": folder() / "y.zarr"}),
        "fixed_points": (tl.fixed_points, lambda: {**own(), "near": start(), "seed": 0, "tolerance": 1e-6,
                         "progress": False}),
        "optimise": (tl.optimise, lambda: {**own(), "start": start(), "over": "lr", "horizon": 0.5, "form": "constant",
                     "bounds": None, "pieces": 2, "restarts": 1, "budget": 2, "seed": 0, "progress": False}),
        "critical_lr": (tl.critical_lr, lambda: {"problem": retrieval(), "batch": 2}),
        "Inputs": (tl.Inputs, lambda: {"variances": (0.5, 1.5), "fractions": (0.5, 0.5), "dims": None, "made": ()}),
        "register_activation": (tl.register_activation, lambda: {"name": "mine", "kinks": (), "family": None}),
        "register_loss": (tl.register_loss, lambda: {"name": "mine", "kinks": (), "margin": False, "value": None}),
        "register_rule": (tl.register_rule, lambda: {"name": "mine", "kinks": (), "sizes": False, "products": False}),
        "register_method": (tl.register_method, lambda: {"cls": tl.Chain}),
        "Loss": (tl.extend.Loss, lambda: {"name": "mine", "residual": lambda y, f: y - f, "student": None, "kinks": (),
                 "margin": False, "value": None}),
        "Scaling": (tl.extend.Scaling.of, lambda: {"value": "0.1/d"}),
        "Target": (tl.extend.Target.of, lambda: {"source": "z1", "directions": 1}),
        "Activation": (tl.extend.Activation.of, lambda: {"source": "relu"}),
        "rules.clip": (tl.rules.clip, lambda: {"threshold": 0.5}),
        "rules.adam": (tl.rules.adam, lambda: {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}),
        "rules.adagrad_norm": (tl.rules.adagrad_norm, lambda: {"b0": 1.0}),
        "rules.polyak": (tl.rules.polyak, lambda: {"c": 1.0}),
        "rules.private": (tl.rules.private, lambda: {"std": 0.1, "threshold": 0.5}),
        "rules.lookahead": (tl.rules.lookahead, lambda: {"lr": 0.1}),
        "rules.formula": (tl.rules.formula, lambda: {"text": "g"}),
        "schedules.cosine": (tl.schedules.cosine, lambda: dict(laws)),
        "schedules.linear": (tl.schedules.linear, lambda: dict(laws)),
        "schedules.warmup": (tl.schedules.warmup, lambda: {"horizon": 2.0, "floor": 0.1, "clock": "alpha"}),
        "schedules.inverse": (tl.schedules.inverse, lambda: {"scale": 1.0, "after": 0.5, "clock": "time"}),
        "schedules.power": (tl.schedules.power, lambda: {"exponent": 0.5, "scale": 1.0, "after": 0.5, "clock": "step"}),
        "schedules.piecewise": (tl.schedules.piecewise, lambda: {"at": [1.0], "values": [1.0, 0.5], "clock": "alpha"}),
        "schedules.table": (tl.schedules.table, lambda: {"at": [0.0, 1.0], "values": [1.0, 0.5], "clock": "alpha"}),
        "schedules.custom": (tl.schedules.custom, lambda: {"function": lambda x: 1 / (1 + x), "clock": "alpha",
                             "breaks": ()}),
        "pure.averages": (double(tl.pure.averages), lambda: {**plain(), "loss": "squared", "at": None}),
        "pure.vector_field": (double(tl.pure.vector_field), lambda: {**own(), "at": None}),
        "pure.increment": (double(tl.pure.increment), own),
        "pure.mean_step": (double(tl.pure.mean_step), lambda: {**own(), "dim": 10, "at": None}),
        "pure.chain_step": (double(tl.pure.chain_step), lambda: {**own(), "dim": 10}),
        "pure.integrate": (double(tl.pure.integrate), lambda: {"field": double(tl.pure.vector_field)(problem=problem(), algorithm=algorithm()), "start":
                           start(), "times": np.array([0.0, 0.1]), "rtol": 1e-4, "max_steps": 64, "mode": "reverse"}),
        "plot.trajectory": (tl.plot.trajectory, lambda: {"dataset": result(), "figure": None, "ax": None,
                            "entries": "M", "clock": "time", "quantity": "risk"}),
        "plot.compare": (tl.plot.compare, lambda: {"comparison": result()}),
        "plot.measure": (tl.plot.measure, lambda: {"dataset": result(), "panels": 1}),
        "plot.swept": (tl.plot.swept, lambda: {"dataset": result(), "of": None}),
        "plot.heatmap": (tl.plot.heatmap, lambda: {"dataset": result(), "of": None, "x": None, "y": None}),
        "plot.analysis": (tl.plot.analysis, lambda: {"result": tl.analyse("z1")}),
        "plot.moments": (tl.plot.moments, lambda: {"result": 1}),
        "plot.phases": (tl.plot.phases, lambda: {"diagram": tl.phase_diagram("He3(z1)"), "plane": "both",
                        "measured": ()}),
        "plot.thresholds": (tl.plot.thresholds, lambda: {"result": 1}),
        "plot.best_possible": (tl.plot.best_possible, lambda: {"result": 1}),
        "plot.passage": (tl.plot.passage, lambda: {"times": 1}),
        "plot.style": (tl.plot.style, lambda: {"name": "paper"}),
        "plot.save_figure": (tl.plot.save_figure, lambda: {"figure": 1, "path": folder() / "x.png"}),
        "gallery.run": (tl.gallery.run, lambda: {"name": "nothing", "quick": True, "seed": 1, "out": None}),
        "gallery.draw": (tl.gallery.draw, lambda: {"data": result()}),
        "gallery.figure": (tl.gallery.figure, lambda: {"name": "mine", "title": "t", "quick": {}, "group": "escape"}),
        "gallery.record": (tl.gallery.record, lambda: {"plate": 1, "path": folder() / "x.json", "version": "quick",
                           "cost": "a second"}),
        "gallery.write": (tl.gallery.write, lambda: {"plate": 1, "folder": folder()}),
        "d": (tl.d, lambda: {"dim": 10}),
        "about": (tl.about, dict),
        "explore": (tl.explore, lambda: {**own(), "start": "random", "port": 0, "browser": False, "steps": 3}),
        "best_possible": (tl.best_possible, lambda: {"target": "z1", "alphas": [0.5], "noise": 0.1, "directions": 1}),
        "learning_lr": (tl.escape.learning_lr, lambda: {"problem": retrieval(), "dim": 100, "threshold": 0.9,
                        "batch": 2}),
        "formulas": (tl.escape.formulas, lambda: {"width": 1, "dim": 100, "threshold": 0.1, "noise": 0.1, "rho": None,
                     "batch": 1}),
        "mean_field_at": (tl.mean_field.mean_field_at, lambda: {**plain(), "measure": tl.mean_field.Particles([[0.1]], [0.5]),
                          "m": [[0.1]], "q": [0.5], "a": 1.0, "loss": "squared", "dim": 10.0}),
        "largest_overlaps": (tl.single_index.largest_overlaps, lambda: {**own(), "dim": 20, "samples": 40, "start": "random",
                             "seeds": 2, "seed": 1, "progress": False, "force": False}),
        "sufficient_alpha": (tl.single_index.sufficient_alpha, lambda: {"dim": 10, "ell": 3}),
        "perfect_point": (tl.stability.perfect_point, plain),
        "plateaus": (tl.stability.plateaus, lambda: {**own(), "run": result(), "seed": 0, "tolerance": 1e-6,
                     "progress": False}),
        "rules.label_noise": (tl.rules.label_noise, lambda: {"variance": 0.1}),
        "rules.normalised": (tl.rules.normalised, dict),
        "rules.sign": (tl.rules.sign, dict),
        "rules.two_step": (tl.rules.two_step, dict),
        "gallery.figures": (tl.gallery.figures, dict),
        "plot.best_line": (tl.plot.best_line, lambda: {"ax": 1, "alphas": [1.0], "values": [1.0], "label": "x"}),
        "plot.contest": (tl.plot.contest, lambda: {"result": 1}),
        "plot.landscape": (tl.plot.landscape, lambda: {"result": tl.single_index.population_loss(tl.Problem("h3(z1)", "h3")), "step": 0.1}),
        "plot.message_passing": (tl.plot.message_passing, lambda: {"result": 1}),
        "plot.optimum": (tl.plot.optimum, lambda: {"result": 1}),
        "plot.plateaus": (tl.plot.plateaus, lambda: {"result": 1, "run": result()}),
        "plot.recovery": (tl.plot.recovery, lambda: {"landscape": 1, "algorithm": algorithm(), "dim": 20, "levels": (0.1, 0.5)}),
        "plot.weak_recovery": (tl.plot.weak_recovery, lambda: {"result": 1}),
        "plot.fixed_points": (tl.plot.fixed_points, lambda: {"result": 1}),
        "Scaling(…)": (tl.extend.Scaling, lambda: {"coefficient": 0.1, "exponent": -1.0}),
        "Activation.of(kinks)": (tl.extend.Activation.of, lambda: {"source": "erf", "kinks": (0.0,)}),
        "batch_at": (algorithm().batch_at, lambda: {"dim": 10}),
        "dataset_at": (tl.SGD(0.1, dataset=4).dataset_at, lambda: {"dim": 10}),
    }  # fmt: skip


TABLE = _table()


def one_bad(name: str, key: str, value: Any) -> Case:
    """One public function with one argument that it may not take."""
    function, known = TABLE[name]
    arguments = {**known(), key: value}
    return Case(f"{name}({key}={short(value, 60)})", lambda: function(**arguments))


def call(rnd: Random) -> Case:
    """One public function with one or two arguments that it may not take."""
    name = rnd.choice(sorted(TABLE))
    function, known = TABLE[name]
    arguments = known()
    for key in rnd.sample(
        sorted(arguments), min(len(arguments), rnd.choice((1, 1, 1, 2)))
    ):
        arguments[key] = unexpected(rnd)
    told = ", ".join(f"{key}={short(value, 60)}" for key, value in arguments.items())
    return Case(f"{name}({told})", lambda: function(**arguments))
