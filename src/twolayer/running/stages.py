"""Runs in stages: each seed goes on from where it ended, under the next algorithm.

    stage 1: correlation loss until ‖M‖_F ≥ η (or the risk has fallen);   stage 2: squared loss, smaller lr;   …

Every seed leaves a stage at its own step, so the clocks of a staged run belong to seeds: step, sample, alpha and time
have dimensions (seed, point), and ``stage`` says to which stage a save point belongs. The correlation loss needs this:
its flow has no reason to stop at f = y.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from twolayer.numerics.errors import InputError, Refused, positive_integer, reject
from twolayer.numerics.precision import float64
from twolayer.numerics.random import check_seed
from twolayer.running.solve import check_parts, given_start, make_task, run, told
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks
from twolayer.task.method import METHODS, Handover, Method, Outcome, Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["Stage", "solve_stages"]

CLOCKS = ("step", "sample", "alpha", "time")
STATES = {
    "M": ("neuron", "direction"),
    "Q": ("neuron", "neuron_"),
    "a": ("neuron",),
    "risk": (),
    "excess_risk": (),
    "loss": (),
    "error": (),
    "train_risk": (),
}
SPREAD = 0x9E3779B97F4A7C15  # seeds of later stages: far from those that people choose


@dataclass(frozen=True)
class Stage:
    """An algorithm, and how long it is followed: until a threshold, and no longer than ``steps`` or ``time``.

    Parameters
    ----------
    algorithm : SGD
    steps, time : int or float
        One of them; as for `solve`.
    until : Until, optional
        Where a seed goes on to the next stage; relative levels refer to the start of this stage.
    save : int
        Number of intervals between save points.

    Examples
    --------
    >>> Stage(SGD(lr=0.1, loss="correlation", geometry="projected"), steps=100, until=Until("overlap", 0.5)).steps
    100
    """

    algorithm: SGD
    steps: Any = None
    time: Any = None
    until: Until | None = None
    save: Any = 100

    def __post_init__(self) -> None:
        if not isinstance(self.algorithm, SGD):
            reject("algorithm", self.algorithm, "an SGD")
        if self.algorithm.momentum:
            reject("momentum", self.algorithm.momentum, "0 in stages: overlaps alone do not know the last step")


def solve_stages(
    problem: Problem,
    stages: Sequence[Stage],
    method: Method,
    start: Overlaps | str,
    *,
    seeds: int | None = None,
    seed: int = 0,
    progress: Any = None,
    throw: bool = True,
) -> xr.Dataset:
    """Follow a problem through stages of different algorithms with one method.

    Parameters
    ----------
    problem, method, start, seeds, seed, progress, throw
        As for `solve`. The first stage is what `solve` computes with the same seed.
    stages : sequence of Stage
        In order. A seed leaves a stage at its threshold, or at its last step. A stage with diverging runs is the last.
        Stages on reused samples share one set, and go on in its sequence of batches; fresh samples are new in each.

    Returns
    -------
    xarray.Dataset
        The variables of `twolayer.running.dataset`, along ``point`` instead of ``time``; clocks (seed, point) from the
        start of the first stage; ``stage`` (point); ``outcome`` and ``stop_step`` (seed, stage_number).

    Examples
    --------
    >>> from twolayer.methods.chain import Chain
    >>> problem = Problem("He2(z1)", "He2")
    >>> first = SGD(lr="0.05/d", loss="correlation", geometry="projected")
    >>> stages = [Stage(first, steps=400, until=Until("overlap", 0.5)), Stage(first.replace(loss="squared"), steps=100)]
    >>> result = solve_stages(problem, stages, Chain(50), Overlaps([[1.0]], [[0.3]]), seeds=4)
    >>> sorted(set(result.stage.values.tolist())), result.step.dims
    ([1, 2], ('seed', 'point'))
    """
    if not stages:
        reject("stages", stages, "at least one Stage")
    for stage in stages:
        if not isinstance(stage, Stage):
            reject("stages", stage, "a sequence of Stage")
        check_parts(problem, stage.algorithm, method)
    check_seed(seed)
    count = positive_integer("seeds", 1 if seeds is None else seeds)
    start = given_start(problem, start, method.dimension, seed, count, why=f"{type(method).__name__} has none")
    if not isinstance(start, Overlaps):
        reject("start", start, "Overlaps, or 'random'")
    dim = method.dimension or start.dim
    clocks = [Clocks(problem, stage.algorithm, dim) for stage in stages]
    units = [x.coordinates(np.zeros(1), method.unit(x.algorithm)) for x in clocks]
    for clock in CLOCKS:
        if len({unit[clock][1] for unit in units}) > 1:
            raise InputError(
                f"Argument `stages` must have clocks in the same power of d, but {clock} has several: give a start "
                "that has a `dim`."
            )
    _check_sets([stage.algorithm for stage in stages], method)
    legs = [
        Leg(stage.algorithm, stage.until, method.save_points(x, stage.time, stage.steps, stage.save))
        for stage, x in zip(stages, clocks, strict=True)
    ]
    return follow_legs(problem, legs, method, start, seeds, seed, progress, throw)


def _check_sets(algorithms: Sequence[SGD], method: Method) -> None:
    """All stages on fixed samples have the same ones, and a method that knows what the weights owe to them."""
    sets = [(x.dataset, x.batch, x.sampling) for x in algorithms if x.dataset is not None]
    for other in sets[1:]:
        if other != sets[0]:
            words = [f"dataset = {n}, batch = {b}, sampling = {how!r}" for n, b, how in (sets[0], other)]
            reject("stages", words[1], f"the same samples in the same batches wherever they are reused: {words[0]}")
    if sets and len(algorithms) > 1 and not method.hands_over:
        name = type(method).__name__
        reason = (
            "on reused samples a stage goes on with weights that remember them, and this method begins every stage "
            "from overlaps alone"
        )
        raise Refused(name, reason, [cls.__name__ for cls in METHODS.values() if cls.hands_over])


class Leg(NamedTuple):
    """A stage on the method's own clock: algorithm, threshold and save points."""

    algorithm: SGD
    until: Until | None
    points: np.ndarray


@float64
def follow_legs(
    problem: Problem,
    legs: Sequence[Leg],
    method: Method,
    start: Overlaps,
    seeds: int | None,
    seed: int,
    progress: Any,
    throw: bool,
) -> xr.Dataset:
    """One leg after the other, each from where the one before it ended."""
    parts: list[xr.Dataset] = []
    first, left, steps = start, None, np.zeros(1, int)
    fixed = next((n for n, leg in enumerate(legs) if leg.algorithm.dataset is not None), 0)
    for number, (algorithm, until, points) in enumerate(legs):
        reuses = algorithm.dataset is not None
        own = (seed + (fixed if reuses else number) * SPREAD) % 2**64  # a fixed set is the same in all its stages
        task = make_task(problem, algorithm, method, start, seeds=seeds, seed=own, until=until, points=points)
        if left is not None:
            taken = np.broadcast_to(steps if reuses else 0, task.seeds)
            task = dataclasses.replace(task, after=Handover(left, taken))
        record = run(task, method, progress)
        part = told(task, method, record, throw)
        parts.append(part)
        if (part.outcome == Outcome.DIVERGED).any():
            break
        last, left = part.isel(time=-1), record.left
        if reuses:
            stops = np.where(np.isnan(record.stop), float(points[-1]), np.ceil(record.stop))
            steps = steps + stops.astype(int)
        start = Overlaps(last.Q.values, last.M.values, problem.P, last.a.values, first.dim)
    joined = _joined(parts, method.stepwise)
    described = [json.loads(part.attrs["description"]) for part in parts]
    for one, leg in zip(described, legs, strict=False):
        one["run"]["points"] = leg.points.tolist()
    joined.attrs["description"] = json.dumps({"stages": described})
    return joined.assign({name: parts[0][name] for name in ("start_Q", "start_M", "start_a")})


def _joined(parts: Sequence[xr.Dataset], stepwise: bool) -> xr.Dataset:
    """One dataset of all stages, with the clocks of every seed."""
    seeds = parts[0].sizes["seed"]
    passed = {clock: np.zeros(seeds) for clock in CLOCKS}
    clocks: dict[str, list[np.ndarray]] = {clock: [] for clock in CLOCKS}
    states: dict[str, list[np.ndarray]] = {name: [] for name in STATES if any(name in part for part in parts)}
    numbers: list[int] = []
    for number, part in enumerate(parts):
        first = int(number > 0 and part.save_point.values[0] == 0)  # a stage begins where the one before it ended
        end = _ends(part, stepwise)
        here = np.minimum(part.time.values[None, first:], end[:, None])
        for clock in CLOCKS:
            rate = float(part[clock].values[-1] / part.time.values[-1])
            clocks[clock].append(passed[clock][:, None] + rate * here)
            passed[clock] = passed[clock] + rate * end
        for name in states:
            values = part[name].values if name in part else np.full(part.risk.shape, np.nan)  # fresh samples
            states[name].append(values[:, first:])
        numbers += [number + 1] * here.shape[1]
    variables: dict[str, Any] = {
        name: (("seed", "point", *STATES[name]), np.concatenate(pieces, axis=1)) for name, pieces in states.items()
    }
    variables["outcome"] = (("seed", "stage_number"), np.stack([part.outcome.values for part in parts], axis=1))
    variables["stop_step"] = (("seed", "stage_number"), np.stack([part.stop_step.values for part in parts], axis=1))
    coords: dict[str, Any] = {
        clock: (("seed", "point"), np.concatenate(pieces, axis=1), dict(parts[0][clock].attrs))
        for clock, pieces in clocks.items()
    }
    coords |= {name: parts[0][name].values for name in ("seed", "neuron", "neuron_", "direction")}
    coords |= {"stage": ("point", np.array(numbers)), "stage_number": np.arange(1, len(parts) + 1)}
    return xr.Dataset(variables, coords, dict(parts[0].attrs))


def _ends(part: xr.Dataset, stepwise: bool) -> np.ndarray:
    """Time at which each seed left a stage: at the end of the step that passed the threshold."""
    end = float(part.time.values[-1])
    stop = part.stop_time.values
    if stepwise:
        one = float(part.time.values[-1] / part.step.values[-1])
        stop = np.ceil(part.stop_step.values) * one
    return np.asarray(np.where(part.outcome.values == Outcome.REACHED, stop, end))
