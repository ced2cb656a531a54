"""`solve`: one description through one lens.

dataset = solve(problem, algorithm, method, start, time=…)
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import warnings
from typing import Any

import numpy as np
import xarray as xr

from twolayer.gaussian.moments import check_start
from twolayer.loops.host_loop import Keeper, Record, follow
from twolayer.numerics import random
from twolayer.numerics.arguments import End, Options, Progress, Save
from twolayer.numerics.errors import (
    InputError,
    Interrupted,
    Refused,
    RunFailed,
    choice,
    expect,
    outside,
    positive_integer,
    reject,
)
from twolayer.numerics.precision import float64
from twolayer.running.dataset import advice_on, to_dataset
from twolayer.running.progress import listener_for
from twolayer.running.support import check_description, support
from twolayer.running.witness import WitnessWarning, testimony_on, wanted
from twolayer.running.work_bounds import check_work, checkpoint_of
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks
from twolayer.task.method import METHODS, Method, Outcome, Task, Until, from_start
from twolayer.task.overlaps import LAWS, Overlaps, rank_of
from twolayer.task.particles import Particles
from twolayer.task.problem import Problem

__all__ = ["AccuracyWarning", "DivergenceWarning", "HeavyTailWarning", "solve"]


class DivergenceWarning(UserWarning):
    """Some seeds diverged; the dataset says which, where, and what to change.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter(
    ...         "error", DivergenceWarning
    ...     )  # runs that diverge raise inside this block
    """


class AccuracyWarning(UserWarning):
    """The error of a result is larger than was asked for; its notes and error bars tell
    how large.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter(
    ...         "error", AccuracyWarning
    ...     )  # averages that are too coarse raise inside this block
    """


class HeavyTailWarning(UserWarning):
    """Reused samples come back to the fields through a polynomial of high degree:
    averages have heavy tails.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter(
    ...         "ignore", HeavyTailWarning
    ...     )  # medians are looked at, not means
    """


def method_by_name(word: str, dim: int | None, knobs: Options) -> Method:
    """The method that files and flags call by this word, with its knobs."""
    cls = METHODS[
        choice("method", word.lower() if isinstance(word, str) else word, METHODS)
    ]
    fields = {f.name for f in dataclasses.fields(cls)}
    for knob in knobs:
        choice(f"method.{word}", knob, sorted(fields))
    arguments = (
        {"dim": dim, **knobs} if "dim" in fields and dim is not None else dict(knobs)
    )
    needs = {
        f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING
    }
    if needs - set(arguments):
        raise InputError(f"Method `{word}` needs a dimension: give dim.")
    return cls(**arguments)


def check_parts(problem: object, algorithm: object, method: object) -> None:
    """Reject what is not a problem, an algorithm and a method."""
    check_description(problem, algorithm, " (stages are run with solve_stages)")
    if not isinstance(method, Method):
        known = ", ".join(
            c.__name__ for c in METHODS.values()
        )  # which loads all of them
        reject("method", method, f"a Method: one of {known}, such as ODE()")


def _seeds(start: Overlaps | Particles, seeds: int | None, method: Method) -> int:
    """How many runs: as many as there are starts, else as asked; a deterministic method
    from one start runs once.
    """
    if isinstance(start, Overlaps) and start.batch:
        n = start.batch[0]
        if len(start.batch) > 1 or seeds not in (None, 1, n):
            raise InputError(
                f"Argument `seeds` must be {n}, one for each start, but got {seeds}."
            )
        return n
    asked = positive_integer("seeds", 1 if seeds is None else seeds)
    return asked if method.stochastic else 1


def given_start(
    problem: Problem,
    start: object,
    dim: int | None,
    seed: int,
    size: int | None = None,
    *,
    why: str,
) -> Any:
    """The start that was given; for a word, a random one at dimension d, or ``size`` of
    them.
    """
    if not isinstance(start, str):
        return start
    law = choice("start", start, ("random", *LAWS))
    random.check_seed(seed)
    if dim is None:
        raise InputError(
            f"Argument `start` = {start!r} is drawn at the dimension of the method, but"
            f" {why}: give Overlaps.random(problem, dim=…)."
        )
    return Overlaps.random(
        problem, dim, seed, size, "sphere" if law == "random" else law
    )


@float64
def solve(
    problem: Problem,
    algorithm: SGD,
    method: Method,
    start: Overlaps | Particles | str,
    *,
    time: End = None,
    steps: End = None,
    alpha: End = None,
    passes: End = None,
    save: Save = 200,
    seeds: int | None = None,
    seed: int = 0,
    until: Until | None = None,
    progress: Progress = None,
    throw: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> xr.Dataset:
    """Follow the overlaps of a problem under an algorithm, as one method sees it.

    Parameters
    ----------
    problem : Problem
        What is learned and by whom: target, noise, inputs, activation, width and second
        layer.
    algorithm : SGD
        How: learning rate and batch as laws in d, loss, geometry, fresh or reused
        samples.
    method : Method
        Such as ``Chain(dim=10_000)`` or ``ODE()``; the knobs of a method are in its
        constructor.
    start : Overlaps, Particles or str
        One start for all seeds, or one for each (leading axis). Particles are for
        methods of infinite width. Or ``"random"`` (the same as ``"sphere"``),
        ``"hemisphere"``, ``"gaussian"``: a start for each seed, from `Overlaps.random`
        at the dimension of the method; over given rows the inputs are then theirs.
    time, steps, alpha, passes : float or int, or increasing sequence
        End of the run in time t = lr·step/p (Σ lr/p with a schedule), in steps, in
        samples/d, or in passes through the fixed set of samples; a sequence gives the
        save points themselves.
    save : int, "log" or increasing sequence
        N for N intervals from the start on (N + 1 save points), points in geometric
        progression, or the save points. The result holds the save points asked for: the
        start is among them if 0 is.
    seeds : int
        Number of independent runs of a stochastic method.
    seed : int
        Run r draws its numbers from (seed, r): the same ones in any company.
    until : Until, optional
        Stop each seed at a threshold.
    progress : bool or Listener, optional
        By default a bar appears on a terminal, and a line in a notebook, when the run
        lasts. True shows lines elsewhere too.
    throw : bool
        Raise `RunFailed` when the numerical method gives up (outcome ``max_steps``).
        Divergence of the dynamics is not an error but an outcome, with a
        `DivergenceWarning`. Averages that are less accurate than the method was asked
        for come with an `AccuracyWarning`.
    checkpoint : str or path, optional
        A name that ends in ``.npz``: there a long run of `Chain`, `Vectors` or `SDE` is
        kept along its save points, and the same call takes it up again after a kill,
        with the same numbers to the last bit. The end of the run is kept there too, and
        the same call takes it as finished. The file goes away when `save` has written
        the result; until then another run of that name begins anew and takes its place.
    force : bool
        Whether to begin a run that is estimated to take more than a day of one core or
        half of the memory.

    Returns
    -------
    xarray.Dataset
        Overlaps, risks and outcomes over seed and time, with all clocks; the guide to
        results lists its variables.

    Examples
    --------
    >>> from twolayer import Chain
    >>> problem = Problem("He2(z1)", "He2", noise=0.1)
    >>> algorithm = SGD(lr="0.05/d", geometry="projected")
    >>> result = solve(
    ...     problem,
    ...     algorithm,
    ...     Chain(dim=1000),
    ...     Overlaps([[1.0]], [[0.5]]),
    ...     time=1,
    ...     seeds=4,
    ... )
    >>> result.M.shape, set(result.outcome.values)
    ((4, 201, 1, 1), {'ok'})
    """
    ends: Options = {"time": time, "steps": steps, "alpha": alpha, "passes": passes}
    if isinstance(start, str):
        from twolayer.running.surrogate import (
            fitted,
        )  # loads the chain and what judges it

        problem, start = fitted(
            problem, method, start, seed, 1 if seeds is None else seeds
        )
    check_parts(problem, algorithm, method)
    method = method.suited(algorithm)
    task = make_task(
        problem,
        algorithm,
        method,
        start,
        **ends,
        save=save,
        seeds=seeds,
        seed=seed,
        until=until,
    )
    check_work([(task, method)], force)
    keeper = checkpoint_of(checkpoint, task, method)
    result = finish(task, method, progress, throw, keeper)
    if keeper is not None:
        keeper.hand_over(result)
    return result


def make_task(
    problem: Problem,
    algorithm: SGD,
    method: Method,
    start: Overlaps | Particles | str,
    *,
    time: End = None,
    steps: End = None,
    alpha: End = None,
    passes: End = None,
    save: Save = 200,
    seeds: int | None = None,
    seed: int = 0,
    until: Until | None = None,
    first: int = 0,
    points: np.ndarray | None = None,
) -> Task:
    """The checked task of a run: the arguments of `solve`, for runs from number
    ``first`` on.

    ``points`` are save points on the method's own clock, instead of an end and save.
    """
    ends = {"time": time, "steps": steps, "alpha": alpha, "passes": passes}
    check_parts(problem, algorithm, method)
    count = positive_integer("seeds", 1 if seeds is None else seeds)
    start = given_start(
        problem,
        start,
        method.dimension,
        seed,
        count,
        why=f"{type(method).__name__} has none",
    )
    if isinstance(start, Particles) and not method.takes_particles:
        raise InputError(
            f"Argument `start` must be Overlaps for {type(method).__name__}, which"
            " follows overlaps between neurons, but got Particles, which have none;"
            " MeanField starts from them."
        )
    if not isinstance(start, Overlaps | Particles):
        reject(
            "start",
            start,
            "Overlaps" + (" or Particles" if method.takes_particles else ""),
        )
    check_start(problem, start)
    seed = random.check_seed(seed)
    if until is not None:
        expect(Until, "until", until)
    reason = method.objection(problem, algorithm)
    if reason is not None:
        others = [
            name
            for name in support(problem, algorithm).methods
            if name != type(method).__name__
        ]
        raise Refused(type(method).__name__, reason, others)
    if method.dimension is not None:
        problem.inputs.sizes(method.dimension)  # which says why there are none
        rank = rank_of(problem.P)
        if method.dimension < rank:
            reject(
                "dim",
                method.dimension,
                f"at least the {rank} independent directions of the target",
            )
    steep = problem.activation.polynomial
    if algorithm.reused and steep is not None and len(steep) > 3:
        warnings.warn(
            f"Activation {problem.activation.name} is a polynomial of degree"
            f" {len(steep) - 1}: on reused samples each step raises the fields to a"
            " higher power, their tails grow out of hand, and averages over samples or"
            " points mean little; use an activation that grows no faster than"
            " linearly.",
            HeavyTailWarning,
            stacklevel=outside(),
        )
    dim = method.dimension or start.dim
    if (
        dim is not None
        and math.isfinite(dim)
        and not sys.float_info.min <= algorithm.lr(int(dim)) < math.inf
    ):
        raise InputError(
            "Argument `lr` must be a positive number in double precision, but"
            f" {algorithm.lr} is {algorithm.lr(int(dim)):g} at dim = {dim}."
        )
    clocks = Clocks(problem, algorithm, dim)
    asked = method.points_for(clocks, ends, save) if points is None else points
    every, hidden = from_start(asked)
    return Task(
        problem,
        algorithm,
        start,
        every,
        clocks,
        _seeds(start, seeds, method),
        seed,
        until,
        first,
        hidden,
    )


def finish(
    task: Task,
    method: Method,
    progress: Progress,
    throw: bool,
    keeper: Keeper | None = None,
) -> xr.Dataset:
    """Run a task to its end: the dataset, or what is raised and warned about
    instead.
    """
    return told(task, method, run(task, method, progress, keeper), throw)


def run(
    task: Task, method: Method, progress: Progress, keeper: Keeper | None = None
) -> Record:
    """Run a task to its end."""
    return follow(
        lambda: method.prepare(task),
        task.points,
        method.name,
        listener_for(progress),
        keeper,
    )


def told(task: Task, method: Method, record: Record, throw: bool) -> xr.Dataset:
    """The dataset of what came out, or what is raised and warned about instead."""
    dataset = to_dataset(task, method, record)
    if record.interrupted:
        raise Interrupted(dataset)
    testimony = testimony_on(task, record, dataset) if wanted() else None
    if testimony is not None:
        notes = {**json.loads(dataset.attrs["notes"]), "witness": testimony.notes}
        dataset.attrs["notes"] = json.dumps(notes)
        if testimony.refuted:
            warnings.warn(
                f"{type(method).__name__}: {testimony.sentence}. The mean of"
                f" {testimony.samples} samples contradicts this average, and the result"
                " should not be trusted: please report it.",
                WitnessWarning,
                stacklevel=outside(),
            )
    met = set(dataset.outcome.values.tolist())  # comparing word by word takes long
    if Outcome.MAX_STEPS in met and throw:
        raise RunFailed(
            f"{type(method).__name__} stopped early:"
            f" {Outcome.ADVICE[Outcome.MAX_STEPS]}."
        )
    if Outcome.DIVERGED in met:
        lost = record.outcome == Outcome.DIVERGED
        first = float(np.nanmin(np.where(lost, dataset.stop_time, np.nan)))
        step = f"step {int(np.nanmin(record.stop[lost]))}, " if method.stepwise else ""
        warnings.warn(
            f"{int(lost.sum())} of {task.seeds} runs diverged, the first at {step}time"
            f" {first:.4g}: {advice_on(record, Outcome.DIVERGED, task.algorithm)}.",
            DivergenceWarning,
            stacklevel=outside(),
        )
    if Outcome.NOT_FINITE in met:
        stray = dataset.outcome.values == Outcome.NOT_FINITE
        warnings.warn(
            f"{int(stray.sum())} of {task.seeds} runs hold numbers that are not finite:"
            f" {Outcome.ADVICE[Outcome.NOT_FINITE]}.",
            DivergenceWarning,
            stacklevel=outside(),
        )
    error = float(record.notes.get("engine_error", 0.0))
    if error > method.largest_error:
        warnings.warn(
            f"{type(method).__name__}: averages by {record.notes['engine']} leave an"
            f" error of {error:.1g}, more than the {method.largest_error:.1g} asked"
            f" for{method.mending}.",
            AccuracyWarning,
            stacklevel=outside(),
        )
    return dataset
