"""Runs in stages: each seed goes on from where it ended, under the next algorithm, or
on another task.

    stage 1: correlation loss until ‖M‖_F ≥ η (or the risk has fallen);
        stage 2: squared loss, smaller lr;   …

Whatever a run carries goes on: weights, those of the step before and their average, the
set of samples and the place in it. Loss, rates and geometry may change from stage to
stage, and with `Stage(problem=…)` the noise and the target, over the same directions;
on a set of samples its inputs then get new labels.

Every seed leaves a stage at its own step, so the clocks of a staged run belong to
seeds: step, sample, alpha and time have dimensions (seed, point), and ``stage`` says to
which stage a save point belongs. The correlation loss needs this: its flow has no
reason to stop at f = y.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from twolayer.numerics.arguments import ENDS, End, Options, Progress, Save, Variables
from twolayer.numerics.errors import (
    InputError,
    Refused,
    expect,
    positive_integer,
    reject,
)
from twolayer.numerics.precision import float64
from twolayer.numerics.random import check_seed
from twolayer.running.long_names import with_meanings
from twolayer.running.solve import check_parts, given_start, make_task, run, told
from twolayer.running.work_bounds import check_work
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks
from twolayer.task.method import METHODS, Handover, Method, Outcome, Snapshot, Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = [
    "Leg",
    "Stage",
    "check_sets",
    "check_stages",
    "follow_legs",
    "in_common",
    "solve_stages",
]

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
STATES |= {f"{name}_average": dims for name, dims in STATES.items()}
STATES |= {
    "M_block": ("block", "neuron", "direction"),
    "Q_block": ("block", "neuron", "neuron_"),
}
SPREAD = 0x9E3779B97F4A7C15  # seeds of later stages: far from those that people choose


@dataclass(frozen=True)
class Stage:
    """An algorithm, and how long it is followed: until a threshold, and no longer than
    ``steps`` or ``time``.

    Parameters
    ----------
    algorithm : SGD
        What is done in this stage. It may differ from the one before in everything: lr,
        batch, loss, rule, layers.
    steps, time, alpha, passes : int or float
        One of them; as for `solve`. A schedule counts from the beginning of its stage.
    problem : Problem, optional
        The task of this stage, where it is not that of the run: another target over the
        same directions, noise, flips or normalisation. Neurons, directions and inputs
        are those of the run, and the second layer goes on from the stage before: a
        problem with another one is refused.
    until : Until, optional
        Where a seed goes on to the next stage; relative levels refer to the start of
        this stage.
    save : int
        Number of intervals between save points.

    Examples
    --------
    >>> Stage(
    ...     SGD(lr=0.1, loss="correlation", geometry="projected"),
    ...     steps=100,
    ...     until=Until("overlap", 0.5),
    ... ).steps
    100
    """

    algorithm: SGD
    steps: End = None
    time: End = None
    until: Until | None = None
    save: Save = 100
    problem: Problem | None = None
    alpha: End = None
    passes: End = None

    def __post_init__(self) -> None:
        expect(SGD, "algorithm", self.algorithm)
        self.algorithm.check_gradient_steps("a stage")
        if self.problem is not None:
            expect(Problem, "problem", self.problem, ", or None for that of the run")
        if self.until is not None:
            expect(Until, "until", self.until)

    @property
    def ends(self) -> Options:
        """The end, by the name of its clock."""
        given = {name: getattr(self, name) for name in ENDS}
        return {name: end for name, end in given.items() if end is not None}


def solve_stages(
    problem: Problem,
    stages: Sequence[Stage],
    method: Method,
    start: Overlaps | str,
    *,
    seeds: int | None = None,
    seed: int = 0,
    progress: Progress = None,
    throw: bool = True,
    force: bool = False,
) -> xr.Dataset:
    """Follow a problem through stages of different algorithms with one method.

    Parameters
    ----------
    problem, method, start, seeds, seed, progress, throw, force
        As for `solve`. The first stage is what `solve` computes with the same seed.
    stages : sequence of Stage
        In order. A seed leaves a stage at its threshold, or at its last step. A stage
        with diverging runs is the last. Stages on reused samples share one set, and go
        on in its sequence of batches; fresh samples are new in each. Momentum goes on
        from the last step, and the sum of AdaGrad where the stage before adapts its
        rate too; an average begins with the first stage that asks for it.

    Returns
    -------
    xarray.Dataset
        The variables of `twolayer.running.dataset`, along ``point`` instead of
        ``time``; clocks (seed, point) from the start of the first stage; ``stage``
        (point); ``outcome`` and ``stop_step`` (seed, stage_number).

    Examples
    --------
    >>> from twolayer.methods.chain import Chain
    >>> problem = Problem("He2(z1)", "He2")
    >>> first = SGD(lr="0.05/d", loss="correlation", geometry="projected")
    >>> stages = [
    ...     Stage(first, steps=400, until=Until("overlap", 0.5)),
    ...     Stage(first.replace(loss="squared"), steps=100),
    ... ]
    >>> result = solve_stages(
    ...     problem, stages, Chain(50), Overlaps([[1.0]], [[0.3]]), seeds=4
    ... )
    >>> sorted(set(result.stage.values.tolist())), result.step.dims
    ([1, 2], ('seed', 'point'))
    """
    check_stages(problem, stages)
    for stage in stages:
        check_parts(stage.problem or problem, stage.algorithm, method)
    for stage in stages:
        method = method.suited(stage.algorithm)
    seed = check_seed(seed)
    count = positive_integer("seeds", 1 if seeds is None else seeds)
    start = given_start(
        problem,
        start,
        method.dimension,
        seed,
        count,
        why=f"{type(method).__name__} has none",
    )
    if not isinstance(start, Overlaps):
        reject("start", start, "Overlaps, or 'random'")
    dim = method.dimension or start.dim
    clocks = [
        Clocks(stage.problem or problem, stage.algorithm, dim) for stage in stages
    ]
    units = [x.reference(np.zeros(1), method.unit(x.algorithm)) for x in clocks]
    for clock in CLOCKS:
        if len({unit[clock][1] for unit in units}) > 1:
            raise InputError(
                "Argument `stages` must have clocks in the same power of d, but"
                f" {clock} has several: give a start that has a `dim`."
            )
    check_sets([stage.algorithm for stage in stages], method)
    legs = [
        Leg(
            x.problem,
            stage.algorithm,
            stage.until,
            method.points_for(x, stage.ends, stage.save),
        )
        for stage, x in zip(stages, clocks, strict=True)
    ]
    return follow_legs(legs, method, start, seeds, seed, progress, throw, force)


def check_stages(problem: Problem, stages: object) -> None:
    """Reject what is not a sequence of stages over the directions and neurons of one
    problem.
    """
    expect(Problem, "problem", problem)
    if not isinstance(stages, Sequence) or isinstance(stages, str) or not stages:
        reject("stages", stages, "at least one Stage")
    for stage in stages:
        if not isinstance(stage, Stage):
            reject("stages", stage, "a sequence of Stage")
        other = stage.problem
        if other is None:
            continue
        same = all(
            getattr(other, x) == getattr(problem, x)
            for x in ("p", "k", "activation", "inputs")
        )
        if not (same and np.array_equal(other.P, problem.P)):
            reject(
                "problem",
                other,
                f"a task of the same neurons over the same directions as {problem!r}",
            )
        if not _same_layer(problem, other):
            reject(
                "problem",
                f"second_layer = {other.second_layer!r}",
                f"a task with second_layer = {problem.second_layer!r}, that of the run,"
                " which every stage goes on with",
            )


def _same_layer(problem: Problem, other: Problem) -> bool:
    """Whether two problems begin with one second layer, however it is written."""
    if "ones" in (problem.second_layer, other.second_layer):
        drawn = any(x.second_layer in ("signs", "gaussian") for x in (problem, other))
        return not drawn and np.array_equal(problem.a(), other.a())
    return problem.second_layer == other.second_layer


def check_sets(algorithms: Sequence[SGD], method: Method) -> None:
    """All stages on fixed samples have the same ones, and a method that knows what the
    weights owe to them.
    """
    sets = [
        (x.dataset, x.batch, x.sampling, x.repeat)
        for x in algorithms
        if x.dataset is not None
    ]
    for other in sets[1:]:
        if other != sets[0]:
            said = "dataset = {}, batch = {}, sampling = {!r}, repeat = {}"
            what = (
                "the same samples in the same batches wherever they are reused:"
                f" {said.format(*sets[0])}"
            )
            reject("stages", said.format(*other), what)
    uses = [x.dataset is not None for x in algorithms]
    first, last = (
        (uses.index(True), len(uses) - uses[::-1].index(True)) if any(uses) else (0, 0)
    )
    if not all(uses[first:last]) and method.dimension is None:
        raise Refused(
            type(method).__name__,
            "after other samples it does not come back to a set that it has left",
            [
                cls.__name__
                for cls in METHODS.values()
                if cls.hands_over and cls.at(None) is None
            ],
        )
    reasons = {
        "on reused samples a stage goes on with weights that remember them": bool(sets),
        "momentum goes on from the rows of the step before": (
            any(x.momentum for x in algorithms[:-1]) and method.stepwise
        ),
        "an average has overlaps with all rows before it": any(
            x.average is not None for x in algorithms
        ),
    }
    for reason, holds in reasons.items():
        if holds and len(algorithms) > 1 and not method.hands_over:
            others = [cls.__name__ for cls in METHODS.values() if cls.hands_over]
            whole = f"{reason}, and this method begins every stage from overlaps alone"
            raise Refused(type(method).__name__, whole, others)


class Leg(NamedTuple):
    """A stage on the method's own clock: task, algorithm, threshold and save points."""

    problem: Problem
    algorithm: SGD
    until: Until | None
    points: np.ndarray


@float64
def follow_legs(
    legs: Sequence[Leg],
    method: Method,
    start: Overlaps,
    seeds: int | None,
    seed: int,
    progress: Progress,
    throw: bool,
    force: bool,
) -> xr.Dataset:
    """One leg after the other, each from where the one before it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each stage tells its own when it begins
        planned = [
            make_task(
                x.problem,
                x.algorithm,
                method,
                start,
                seeds=seeds,
                seed=seed,
                points=x.points,
            )
            for x in legs
        ]
    check_work([(task, method) for task in planned], force)
    parts: list[StagePart] = []
    first, left, steps = start, None, np.zeros(1, int)
    fixed = next(
        (n for n, leg in enumerate(legs) if leg.algorithm.dataset is not None), 0
    )
    for number, (problem, algorithm, until, points) in enumerate(legs):
        reuses = algorithm.dataset is not None
        own = (
            seed + (fixed if reuses else number) * SPREAD
        ) % 2**64  # a fixed set is the same in all its stages
        count = None if number else seeds  # later stages have a start for each seed
        task = make_task(
            problem,
            algorithm,
            method,
            start,
            seeds=count,
            seed=own,
            until=until,
            points=points,
        )
        if left is not None:
            taken = np.broadcast_to(steps if reuses else 0, task.seeds)
            task = dataclasses.replace(task, after=Handover(left, taken))
        record = run(task, method, progress)
        part = told(task, method, record, throw)
        ends = np.where(np.isnan(record.stop), float(points[-1]), record.stop)
        ends = (
            np.ceil(ends) if method.stepwise else ends
        )  # a seed leaves with the step that passes the threshold
        positions = np.minimum(
            np.append(part.save_point.values, points[-1])[None], ends[:, None]
        )
        parts.append(
            StagePart(
                part,
                task.clocks.coordinates(
                    positions, method.stepwise, method.unit(algorithm)
                ),
            )
        )
        if (part.outcome == Outcome.DIVERGED).any():
            break
        last, left = part.isel(time=-1), record.left
        if reuses:
            steps = steps + ends.astype(int)
        Q, M = last.Q.values, last.M.values
        if first.blocks is not None:
            assert isinstance(record.snapshot, Snapshot)
            assert (
                record.snapshot.Q_block is not None
                and record.snapshot.M_block is not None
            )
            Q, M = record.snapshot.Q_block[:, -1], record.snapshot.M_block[:, -1]
        start = Overlaps(Q, M, first.P, last.a.values, first.dim)
    joined = _joined(parts)
    described = [json.loads(part.data.attrs["description"]) for part in parts]
    for one, leg in zip(described, legs, strict=False):
        one["run"]["points"] = leg.points.tolist()
    joined.attrs["description"] = json.dumps({"stages": described})
    kept = [
        name
        for name in ("start_Q", "start_M", "start_a", "start_P", "variance")
        if name in parts[0].data
    ]
    return joined.assign({name: parts[0].data[name] for name in kept})


class StagePart(NamedTuple):
    """What came out of a stage, and its clocks and rate for every seed, at the save
    points and at its end.
    """

    data: xr.Dataset
    clocks: dict[str, tuple[np.ndarray, str]]


def _joined(parts: Sequence[StagePart]) -> xr.Dataset:
    """One dataset of all stages, with the clocks of every seed."""
    every = [part.data for part in parts]
    passed: dict[str, float | np.ndarray] = dict.fromkeys(CLOCKS, 0.0)
    clocks: dict[str, list[np.ndarray]] = {clock: [] for clock in CLOCKS}
    states: dict[str, list[np.ndarray]] = {
        name: [] for name in STATES if any(name in part for part in every)
    }
    rates, numbers = [], []
    for number, (part, along) in enumerate(parts):
        first = int(
            number > 0 and part.save_point.values[0] == 0
        )  # a stage begins where the one before it ended
        for clock in CLOCKS:
            values = along[clock][0] + passed[clock]
            clocks[clock].append(values[:, first:-1])
            passed[clock] = values[:, -1:]
        rates.append(
            (part.lr.values if part.lr.ndim == 2 else along["lr"][0][:, :-1])[:, first:]
        )
        for name in states:
            values = part[name].values if name in part else _absent(every, part, name)
            states[name].append(values[:, first:])
        numbers += [number + 1] * rates[-1].shape[1]
    variables: Variables = {
        name: (("seed", "point", *STATES[name]), np.concatenate(pieces, axis=1))
        for name, pieces in states.items()
    }
    variables["lr"] = (
        ("seed", "point"),
        np.concatenate(rates, axis=1),
        dict(every[0].lr.attrs),
    )
    variables["outcome"] = (
        ("seed", "stage_number"),
        np.stack([part.outcome.values for part in every], axis=1),
    )
    variables["stop_step"] = (
        ("seed", "stage_number"),
        np.stack([part.stop_step.values for part in every], axis=1),
    )
    coords: Variables = {
        clock: (
            ("seed", "point"),
            np.concatenate(pieces, axis=1),
            dict(every[0][clock].attrs),
        )
        for clock, pieces in clocks.items()
    }
    coords |= {
        name: every[0][name].values
        for name in ("seed", "neuron", "neuron_", "direction")
    }
    coords |= {
        "stage": ("point", np.array(numbers)),
        "stage_number": np.arange(1, len(parts) + 1),
    }
    attributes = dict(every[0].attrs)
    heard = [json.loads(part.attrs["notes"]).get("witness") for part in every]
    told = [witness for witness in heard if witness is not None]
    if told:
        worst = max(told, key=lambda witness: float(witness["deviation"]))
        notes = {**json.loads(attributes["notes"]), "witness": worst}
        attributes["notes"] = json.dumps(notes)
    return with_meanings(xr.Dataset(variables, coords, attributes))


def _absent(parts: Sequence[xr.Dataset], part: xr.Dataset, name: str) -> np.ndarray:
    """What a stage does not have: a risk on samples that come back, or an average."""
    like = next(other[name].values for other in parts if name in other)
    return np.full((*part.risk.shape, *like.shape[2:]), np.nan)


def in_common(staged: xr.Dataset) -> xr.Dataset:
    """A run in stages whose seeds left them together, as one along ``time``."""
    clocks = {
        clock: ("time", staged[clock].values[0], staged[clock].attrs)
        for clock in CLOCKS
    }
    left = staged.drop_vars(
        [*CLOCKS, "stage", "stage_number", "stop_step"]
    ).rename_dims(point="time")
    last = staged.outcome.values[:, -1]
    return (
        left.drop_vars("outcome").assign_coords(clocks).assign(outcome=("seed", last))
    )
