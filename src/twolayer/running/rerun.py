"""`rerun`: a result again, from its own description.

description, start, save points and seed of a dataset  →  the same task  →  the same
numbers
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, overload

import numpy as np
import xarray as xr

from twolayer.numerics.arguments import ENDS, Json, Options, Progress, finite_array
from twolayer.numerics.errors import InputError, choice, positive_integer
from twolayer.numerics.foreign_files import reading
from twolayer.numerics.precision import float64
from twolayer.numerics.random import check_seed
from twolayer.running.compare import compare
from twolayer.running.comparison import Comparison
from twolayer.running.dataset import (
    description_of,
    method_of,
    parts_of,
    start_of,
    unpack,
)
from twolayer.running.solve import finish, make_task
from twolayer.running.stages import Leg, Stage, follow_legs
from twolayer.running.work_bounds import check_work
from twolayer.task.method import Method, Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.timeline import MAX_STEPS

if TYPE_CHECKING:
    from twolayer.task.algorithm import SGD

__all__ = ["rerun"]

KEPT = (*ENDS, "save", "seeds", "seed", "resolution")
"""Arguments of a comparison that its file has."""


@overload
def rerun(
    dataset: Comparison,
    *,
    seed: int | None = None,
    progress: Progress = None,
    throw: bool = True,
    force: bool = False,
) -> Comparison: ...


@overload
def rerun(
    dataset: xr.Dataset,
    *,
    seed: int | None = None,
    progress: Progress = None,
    throw: bool = True,
    force: bool = False,
) -> xr.Dataset: ...


@float64
def rerun(
    dataset: xr.Dataset | Comparison,
    *,
    seed: int | None = None,
    progress: Progress = None,
    throw: bool = True,
    force: bool = False,
) -> xr.Dataset | Comparison:
    """Run a result again from its own description; on the same machine and versions the
    numbers are the same.

    Parameters
    ----------
    dataset : xarray.Dataset or Comparison
        From `solve`, `solve_stages` or `compare`, or loaded from a file.
    seed : int, optional
        Other random numbers.
    progress, throw, force
        As for `solve`; a comparison keeps what its methods gave up on, whatever
        ``throw`` says.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, start = tl.Problem("He2(z1)", "He2"), tl.Overlaps([[1.0]], [[0.5]])
    >>> run = tl.solve(problem, tl.SGD("0.1/d"), tl.Chain(50), start, steps=10, seeds=2)
    >>> bool((rerun(run).M == run.M).all())
    True
    """
    if seed is not None:
        seed = check_seed(seed)
    if isinstance(dataset, Comparison):
        return _comparison(dataset, seed, progress, force)
    description = description_of(dataset)
    if "stages" in description:
        return _stages(dataset, description["stages"], seed, progress, throw, force)
    known = unpack(dataset)
    if np.ndim(known["points"]) == 0:
        raise InputError(
            "Argument `dataset` must have its save points along time, but was cut to"
            " one of them: choose it by isel(time=[…])."
        )
    if not len(known["points"]):
        raise InputError(
            "Argument `dataset` must hold a save point, but has none: it was"
            " interrupted before the first."
        )
    with reading("The description of this result"):
        parts = (known[part] for part in ("problem", "algorithm", "method", "start"))
        runs = {
            "seeds": known["seeds"],
            "seed": known["seed"] if seed is None else seed,
        }
        until = Until(*known["until"]) if "until" in known else None
        first = positive_integer("first", known.get("first", 0), 0)
        points = _points(known["points"], known["method"])
        task = make_task(*parts, until=until, first=first, points=points, **runs)
    check_work([(task, known["method"])], force)
    return finish(task, known["method"], progress, throw)


def _points(given: object, method: Method) -> np.ndarray:
    """Save points of a file as a run takes them."""
    points = finite_array("save_point", given)
    if points.ndim != 1 or (points < 0).any() or (np.diff(points) <= 0).any():
        raise ValueError("its save points do not increase")
    if not method.stepwise:
        return points
    if (points % 1 != 0).any() or points[-1] > MAX_STEPS:
        raise ValueError("its save points are no steps")
    return points.astype(np.int64)


def _comparison(
    known: Comparison, seed: int | None, progress: Progress, force: bool
) -> Comparison:
    """All methods that were asked for, those that refused too, from the start of the
    reference.
    """
    if "run" not in known.tree.attrs:
        raise InputError(
            "Argument `dataset` must say how the comparison was run, but this file is"
            " older than that: rerun its results one by one, or compare again."
        )
    with reading("The description of this comparison"):
        arguments = _asked(known, seed)
    return compare(**arguments, progress=progress, force=force)


def _asked(known: Comparison, seed: int | None) -> Options:
    """The arguments of a comparison, as its file has them."""
    arguments = json.loads(known.tree.attrs["run"])
    methods = [method_of(knobs) for knobs in arguments.pop("methods")]
    reference = known.results[known.reference]
    description = description_of(reference)
    if "stages" in arguments:
        parts = description["stages"]
        given = [
            (*parts_of(part)[:2], ends)
            for part, ends in zip(parts, arguments.pop("stages"), strict=True)
        ]
        algorithm: SGD | list[Stage] = [
            Stage(one, problem=own, **ends) for own, one, ends in given
        ]
        problem, dim = given[0][0], parts[0]["run"]["start_dim"]
    else:
        problem, algorithm, _ = parts_of(description)
        dim = description["run"]["start_dim"]
    start = start_of(reference, problem, dim)
    assert isinstance(start, Overlaps)
    for name in arguments:
        choice("run", name, KEPT)
    own = arguments if seed is None else {**arguments, "seed": seed}
    return {
        **own,
        "problem": problem,
        "algorithm": algorithm,
        "methods": methods,
        "start": start,
    }


def _stages(
    dataset: xr.Dataset,
    stages: list[Json],
    seed: int | None,
    progress: Progress,
    throw: bool,
    force: bool,
) -> xr.Dataset:
    with reading("The description of this result"):
        run, legs = stages[0]["run"], []
        for stage in stages:
            until = stage["run"].get("until")
            problem, algorithm, method = parts_of(stage)
            points = _points(stage["run"]["points"], method)
            legs.append(
                Leg(
                    problem, algorithm, None if until is None else Until(*until), points
                )
            )
        start = start_of(dataset, legs[0].problem, run["start_dim"])
        assert isinstance(start, Overlaps)
        own, count = (
            check_seed(run["seed"] if seed is None else seed),
            positive_integer("seeds", run["seeds"]),
        )
    return follow_legs(legs, method, start, count, own, progress, throw, force)
