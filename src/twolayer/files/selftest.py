"""A long look at this machine: small known answers through every part that numbers go
through.

    each check: a number, its tolerance,
        and the methods that are not to be trusted here where it fails

Tolerances of what is simulated are five standard errors; the seeds are fixed, so that a
right machine passes always.
"""

from __future__ import annotations

import tempfile
import time as wall
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from scipy.special import erf

from twolayer.files.environment import fields_are_right
from twolayer.files.results import load, save
from twolayer.functions.target import Teacher
from twolayer.gaussian.moments import moments
from twolayer.methods.chain import Chain
from twolayer.methods.map import Map
from twolayer.methods.ode import ODE
from twolayer.methods.vectors import Vectors
from twolayer.numerics import random
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import InputError
from twolayer.running.rerun import rerun
from twolayer.running.solve import solve
from twolayer.task.algorithm import SGD
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["SelfCheck", "selftest"]

NORMALS = (
    0.4622983640,
    0.8866694207,
    1.3947824355,
)  # the first of stream 0 for fields, on any machine
ERRORS = 5.0  # standard errors


@dataclass(frozen=True)
class SelfCheck:
    """What a check found: a deviation that should be at most ``tolerance``, and which
    methods stand on it.
    """

    name: str
    what: str
    deviation: float
    tolerance: float
    methods: tuple[str, ...]
    seconds: float

    @property
    def right(self) -> bool:
        """Whether this machine passes; what is not a number does not."""
        return bool(self.deviation <= self.tolerance)


Check = Callable[[], tuple[float, float]]
ALL = (
    "Chain",
    "DMFT",
    "GiantSteps",
    "Map",
    "MeanField",
    "ODE",
    "Population",
    "SDE",
    "Vectors",
)


def _fields() -> tuple[float, float]:
    return (0.0 if fields_are_right() else np.inf), 0.0


def _random() -> tuple[float, float]:
    return float(
        np.abs(random.host_normal(0, random.Role.FIELDS, 3) - NORMALS).max()
    ), 1e-9


def _averages() -> tuple[float, float]:
    """ψ of erf networks by NumPy's own quadrature over two fields."""
    problem, q, m = Problem(Teacher("erf", 1), "erf", noise=0.1), 1.3, 0.4
    x, w = np.polynomial.hermite_e.hermegauss(80)
    w = w / w.sum()
    u, v = np.meshgrid(x, x, indexing="ij")
    own, star, weight = (
        np.sqrt(q) * u,
        m / np.sqrt(q) * u + np.sqrt(1 - m * m / q) * v,
        np.outer(w, w),
    )
    slope = np.sqrt(2 / np.pi) * np.exp(-own * own / 2)
    psi = (
        weight * slope * star * (erf(star / np.sqrt(2)) - erf(own / np.sqrt(2)))
    ).sum()
    return abs(
        float(moments(problem, Overlaps([[q]], [[m]])).psi[0, 0]) - float(psi)
    ), 1e-9


def _ode() -> tuple[float, float]:
    """A linear neuron: M = 1 − (1 − m) e^{−t}, and Q' = 2 (M − Q) + γ (1 − 2M + Q + Δ)
    solved by hand.
    """
    gamma, noise, m, t = 0.5, 0.1, 0.2, np.linspace(0.0, 3.0, 7)
    found = solve(
        Problem("z1", "linear", noise=noise),
        SGD(f"{gamma}/d"),
        ODE(),
        Overlaps([[1.0]], [[m]]),
        time=3.0,
        save=6,
    )
    M = 1 - (1 - m) * np.exp(-t)
    # e = 1 − 2M + Q, the risk twice over, obeys e' = −(2 − γ) e + γ Δ
    rate = 2 - gamma
    e = gamma * noise / rate + (1 - 2 * m + 1 - gamma * noise / rate) * np.exp(
        -rate * t
    )
    off = (
        np.abs(found.M.values[0, :, 0, 0] - M).max(),
        np.abs(2 * found.excess_risk.values[0] - e).max(),
    )
    return float(max(off)), 1e-6


TASK: tuple[Problem, SGD, Overlaps] = (
    Problem("He2(z1)", "He2", width=2, noise=0.1),
    SGD("0.4/d", geometry="projected"),
    Overlaps([[1.0, 0.1], [0.1, 1.0]], [[0.5], [0.3]]),
)
RUN: Options = {"steps": 40, "save": 1, "seeds": 2000}


def _compared(first: xr.Dataset, second: xr.Dataset) -> float:
    """The largest difference of mean overlaps in standard errors."""
    one, two = (x.M.values[:, -1, :, 0] for x in (first, second))
    error = np.sqrt(
        one.var(0, ddof=1) / len(one)
        + (two.var(0, ddof=1) / len(two) if len(two) > 1 else 0.0)
    )
    return float((np.abs(one.mean(0) - two.mean(0)) / error).max())


def _vectors() -> tuple[float, float]:
    problem, algorithm, start = TASK
    chain = solve(problem, algorithm, Chain(30), start, **RUN, seed=1)
    return _compared(
        chain, solve(problem, algorithm, Vectors(30), start, **RUN, seed=2)
    ), ERRORS


def _engines() -> tuple[float, float]:
    """The chain in machine code and in JAX, path by path."""
    problem, algorithm, start = TASK
    few = {**RUN, "seeds": 4}
    try:
        paths = [
            solve(problem, algorithm, Chain(200, engine=x), start, **few)
            for x in ("compiled", "jax")
        ]
    except InputError:  # there is none on this machine, and JAX is what runs
        return 0.0, 1e-9
    return float(np.abs(paths[0].M.values - paths[1].M.values).max()), 1e-9


def _map() -> tuple[float, float]:
    """One step on average, against many samples of it."""
    problem, algorithm, start = TASK
    one: Options = {"steps": 1, "save": 1}
    chain = solve(
        problem, algorithm.replace(batch=200), Chain(30), start, **one, seeds=4000
    )
    return _compared(
        chain, solve(problem, algorithm.replace(batch=200), Map(30), start, **one)
    ), ERRORS


def _device() -> tuple[float, float]:
    """The same paths on the processor and on whatever JAX takes first."""
    problem, algorithm, start = TASK
    few = {**RUN, "seeds": 4}
    first = solve(problem, algorithm, Chain(30, engine="jax"), start, **few)
    with jax.default_device(jax.devices("cpu")[0]):
        second = solve(problem, algorithm, Chain(30, engine="jax"), start, **few)
    return float(np.abs(first.M.values - second.M.values).max()), 1e-9


def _files() -> tuple[float, float]:
    problem, algorithm, start = TASK
    run = solve(problem, algorithm, Chain(30), start, steps=10, save=2, seeds=2)
    with tempfile.TemporaryDirectory() as folder:
        again: Any = rerun(load(save(run, Path(folder) / "x.nc")))
    return float(np.abs(again.M.values - run.M.values).max()), 0.0


CHECKS: tuple[tuple[str, str, Check, tuple[str, ...]], ...] = (
    ("fields", "products of matrices and vectors in JAX, against NumPy", _fields, ALL),
    (
        "random",
        "the first random numbers, against those of other machines",
        _random,
        ("Chain", "SDE", "Vectors"),
    ),
    (
        "averages",
        "averages of erf networks, against quadrature",
        _averages,
        ("GiantSteps", "Map", "ODE", "SDE"),
    ),
    (
        "ode",
        "the ODE of a linear neuron, against its solution",
        _ode,
        ("MeanField", "ODE", "Population"),
    ),
    (
        "vectors",
        "the chain against SGD on vectors, in standard errors",
        _vectors,
        ("Chain", "Vectors"),
    ),
    ("engines", "the chain in machine code, against JAX", _engines, ("Chain",)),
    (
        "map",
        "one step on average against samples, in standard errors",
        _map,
        ("Chain", "Map"),
    ),
    ("device", "the device against the processor", _device, ALL),
    ("files", "a result saved, loaded and run again", _files, ()),
)


def selftest() -> Iterator[SelfCheck]:
    """Check this machine, one part after the other; two minutes at most.

    Examples
    --------
    >>> next(selftest()).right
    True
    """
    for name, what, check, methods in CHECKS:
        began = wall.perf_counter()
        deviation, tolerance = check()
        yield SelfCheck(
            name, what, deviation, tolerance, methods, wall.perf_counter() - began
        )
