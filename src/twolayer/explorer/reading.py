"""What is known about a task without following it.

escape       times at which phase retrieval leaves a random start: annealed, quenched,
corrected phases       the (μ, δ) plane of batch and rate, with the point of the task
landscape    φ(m), the population loss of one neuron against its overlap best
the excess risk that no algorithm beats, against α
"""

from __future__ import annotations

import numpy as np

from twolayer.explorer.speaking import Voice
from twolayer.files.taskfile import TaskFile
from twolayer.numerics.arguments import Json
from twolayer.numerics.errors import InputError
from twolayer.numerics.precision import float64

__all__ = ["best", "escape", "landscape", "phases"]

GRID = 49  # points of the plane along each axis
MARGIN = 0.5
POINTS = 201


@float64
def escape(task: TaskFile, options: Json, voice: Voice) -> Json:
    """Escape times in t and in steps, where their formulas hold."""
    from twolayer.analysis.escape import escape_time

    dim = task.table.run.dim
    if dim is None:
        raise InputError(
            "Escape times are those of a dimension, but `run.dim` is not given."
        )
    threshold = float(options.get("threshold") or 0.1)
    found = escape_time(task.problem(), task.algorithm(), dim, threshold, samples=4000)
    names = ("annealed", "quenched", "ode", "corrected")
    return {
        "threshold": threshold,
        "times": {name: getattr(found, name) for name in names},
        "steps": {name: getattr(found.steps, name) for name in names},
        "missing": found.missing,
        "reached": found.reached,
    }


@float64
def phases(task: TaskFile, options: Json, voice: Voice) -> Json:
    """The plane: names of regions at the points of a grid, its lines, and the point
    where the task is.
    """
    from twolayer.analysis.phases import phase_diagram

    problem, algorithm = task.problem(), task.algorithm()
    geometry = algorithm.geometry if algorithm.geometry != "free" else "projected"
    diagram = phase_diagram(
        problem.target,
        loss=algorithm.loss.name,
        geometry=geometry,
        activation=problem.activation,
        width=problem.width,
        gram=problem.P,
    )
    mu, delta = float(algorithm.batch.exponent), -float(algorithm.lr.exponent)
    lines = diagram.lines
    top = (
        max(diagram.ell - 1.0, 1.0, mu, *(line.start for line in lines.values()))
        + MARGIN
    )
    heights = [line.delta(line.start) for line in lines.values()]
    low, high = (
        min(-MARGIN, delta, *heights) - MARGIN,
        max(1.0, delta, *heights) + MARGIN,
    )
    mus, deltas = np.linspace(0.0, top, GRID), np.linspace(low, high, GRID)
    regimes: list[str] = []
    cells, thetas = [], []
    for y in deltas:
        row = [diagram.at(float(x), float(y)) for x in mus]
        for point in row:
            if point.regime not in regimes:
                regimes.append(point.regime)
        cells.append([regimes.index(point.regime) for point in row])
        thetas.append([point.theta for point in row])
        voice.listen()
    here = diagram.at(mu, delta) if mu >= 0 else None
    return {
        "ell": diagram.ell,
        "mu": mus,
        "delta": deltas,
        "regimes": regimes,
        "cells": cells,
        "theta": thetas,
        "lines": [
            {
                "name": name,
                "equation": x.equation,
                "mu": [x.start, min(x.end, top)],
                "delta": [x.delta(x.start), x.delta(min(x.end, top))],
            }
            for name, x in lines.items()
        ],
        "optimal": [diagram.optimal_mu, diagram.optimal_delta(diagram.optimal_mu)],
        "here": {"mu": mu, "delta": delta, **({} if here is None else _told(here))},
        "caveat": (
            ""
            if algorithm.geometry == geometry
            else "The plane is that of projected weights; those of the task are free."
        ),
    }


def _told(point: object) -> Json:
    names = ("regime", "learns", "theta", "growth", "steps", "dynamics", "note")
    return {name: getattr(point, name) for name in names}


@float64
def landscape(task: TaskFile, options: Json, voice: Voice) -> Json:
    """φ(m) and the drift of m, for one neuron and one direction."""
    from twolayer.analysis.population_loss import population_loss

    algorithm = task.algorithm()
    found = population_loss(task.problem(), algorithm.loss)
    m = np.linspace(-1.0, 1.0, POINTS)
    return {
        "m": m,
        "phi": found.phi(m),
        "flow": found.flow(m),
        "information": found.information,
    }


@float64
def best(task: TaskFile, options: Json, voice: Voice) -> Json:
    """The best possible excess risk against α, for targets of one direction."""
    from twolayer.analysis.thresholds.alpha_c import thresholds
    from twolayer.analysis.thresholds.best_possible import best_possible

    problem = task.problem()
    if problem.k > 1:
        raise InputError(
            f"The best possible risk of a target with {problem.k} directions takes"
            " minutes: use tl.best_possible."
        )
    end = float(options.get("alpha") or 10.0)
    alphas = end * (np.arange(1, 61) / 60) ** 2  # dense where the threshold is
    found = best_possible(problem.target, alphas, problem.noise, progress=voice)
    weak = thresholds(problem.target, problem.noise, progress=voice)
    return {
        "alpha": found.alphas,
        "excess_risk": found.excess_risk,
        "threshold": weak.alpha,
        "hard": found.hard,
    }
