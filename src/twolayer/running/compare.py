"""`compare`: several lenses on one description, and the verdicts.

    every method from the same start  →  the first deterministic one is the reference  →
        the others are judged by it

What is tested is in judging.py, what a finite dimension adds in finite_size.py and
smaller_dimensions.py.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from twolayer.numerics.arguments import End, Json, Options, Progress, Save
from twolayer.numerics.errors import (
    InputError,
    Interrupted,
    Refused,
    finite_number,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.random import check_seed
from twolayer.running.comparison import Comparison, tree_of
from twolayer.running.judging import SHARE, Judgement, entries, judge, ranges
from twolayer.running.plan import Plan
from twolayer.running.progress import Announcer
from twolayer.running.smaller_dimensions import (
    Finite,
    Pilots,
    Probe,
    clock_ratio,
    planned_pilots,
)
from twolayer.running.solve import given_start, make_task
from twolayer.running.stages import Stage
from twolayer.running.surrogate import over_data, universality
from twolayer.task.algorithm import SGD
from twolayer.task.method import METHODS, Method, Outcome, Task
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["compare", "default_methods", "foreseen", "verdicts_of"]

MAX_VECTOR_WORK = (
    3e10  # numbers moved by Vectors beyond which it is left out unless asked for
)
SHARES = "a part of the range, above 0 and at most 1"
ALONE = 5.0  # starts below so many d^(−1/2) are ruled by the noise of single samples


def default_methods(
    plan: Plan, dim: int | None, ends: Options, seeds: int
) -> list[Method]:
    """All methods that can, at the given dimension; explicit vectors only while they
    are cheap.
    """
    out: list[Method] = []
    for name in plan.support.methods:
        method = METHODS[name.lower()].at(dim)
        if method is not None:
            method = method.suited(plan.algorithm)
        if (
            method is None
            or not method.in_comparisons
            or plan.objection(method) is not None
        ):
            continue
        if method.name == "vectors" and dim is not None:
            numbers = plan.work(dim, ends) * plan.problem.p * dim * seeds
            if numbers > MAX_VECTOR_WORK:
                continue
        out.append(method)
    return sorted(out, key=lambda m: m.stochastic)


def _labels(methods: Sequence[Method]) -> list[str]:
    """One name per method: the plain word, with the dimension, then a number, where two
    would be the same.
    """
    given = [getattr(m, "data", None) is not None for m in methods]
    drawn = {m.name for m, rows in zip(methods, given, strict=True) if not rows}
    words = [
        f"{m.name}_rows" if rows and m.name in drawn else m.name
        for m, rows in zip(methods, given, strict=True)
    ]
    several = [
        m.dimension if words.count(word) > 1 else None
        for m, word in zip(methods, words, strict=True)
    ]
    names = [
        f"{word}_{dim}" if dim else word
        for word, dim in zip(words, several, strict=True)
    ]
    return [
        f"{n}_{names[:i].count(n) + 1}" if names.count(n) > 1 else n
        for i, n in enumerate(names)
    ]


def compare(
    problem: Problem,
    algorithm: SGD | Sequence[Stage],
    methods: Sequence[Method] | None = None,
    start: Overlaps | str | None = None,
    *,
    time: End = None,
    steps: End = None,
    alpha: End = None,
    passes: End = None,
    save: Save = 200,
    seeds: int = 32,
    seed: int = 0,
    resolution: float = SHARE,
    progress: Progress = None,
    force: bool = False,
    each: Callable[[Comparison], object] | None = None,
) -> Comparison:
    """Run several methods from the same start, and judge whether they agree.

    Parameters
    ----------
    problem : Problem
        The task, the same for all methods.
    algorithm : SGD, or list of Stage
        Stages have ends and save points of their own, so that time, steps and save are
        left out, and no thresholds.
    methods : sequence of Method, optional
        By default every one that can, at the dimension of the start. Methods that
        refuse are skipped, and the table says why. With ``Vectors(data=(X, y))`` and a
        problem without inputs the others are those of the Gaussian surrogate of the
        data, and the table says by how much universality fails. Where none is named
        these are `ODE` and `Chain`, or `Vectors` over as many Gaussian rows where rows
        are used more than once.
    start : Overlaps or str
        Or ``"random"``: drawn at the dimension of the methods, one start for all.
    time, steps, alpha, passes : float or int
        End of the run, as for `solve`.
    save : int or sequence
        As for `solve`.
    seeds, seed : int
        For the stochastic methods.
    resolution : float
        Between 0 and 1: the part of its range that a theory may be off without being
        seen where runs agree with it. Smaller ones take more seeds and a larger
        dimension; the table says which where it is undecided.
    progress : bool or Listener, optional
        As for `solve`; where progress is shown, a line tells which run begins.
    force : bool
        As for `solve`.
    each : callable, optional
        Called after every method with the comparison so far, which has no verdicts yet:
        somebody may want to keep it.

    Returns
    -------
    Comparison
        It prints itself: a table of verdicts, such as agree to 4 %, differ or
        undecided, with what they rest on. ``.verdicts`` are its rows, ``.results`` the
        results by name, ``.tree`` the DataTree that `save` writes.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, start = tl.Problem("z1", "linear"), tl.Overlaps([[1.0]], [[0.0]])
    >>> both = tl.compare(
    ...     problem,
    ...     tl.SGD(lr="0.5/d"),
    ...     [tl.Map(64), tl.Chain(64)],
    ...     start,
    ...     steps=64,
    ...     save=2,
    ...     seeds=16,
    ... )
    >>> list(both.results), both.reference
    (['map', 'chain'], 'map')
    """
    announcer = Announcer(progress)
    seed, seeds = check_seed(seed), positive_integer("seeds", seeds)
    resolution = finite_number("resolution", resolution, accepted=SHARES)
    require(0 < resolution <= 1, "resolution", resolution, SHARES)
    plan, ends, asked, skipped, usable, start = _begun(
        problem,
        algorithm,
        methods,
        start,
        {"time": time, "steps": steps, "alpha": alpha, "passes": passes},
        seeds,
        seed,
    )
    kept: Options = {"save": save, "seeds": seeds, "seed": seed}
    kept |= {"resolution": resolution}
    told = _told(plan, asked, **ends, **kept)
    names = dict(zip(_labels(usable), usable, strict=True))
    results: dict[str, xr.Dataset] = {}
    rows: list[Judgement] = []
    grid: Any = None
    name = ""

    def so_far() -> Comparison:
        return Comparison(
            tree_of(
                [n for n in names if n in results],
                results,
                [],
                skipped,
                told,
                complete=False,
            )
        )

    if not plan.stages:
        ends = _shared_points(plan, usable, start, ends, save)

    try:
        for name, method in sorted(names.items(), key=_place):
            # continuous methods are saved where the first stepwise one is
            own = grid if not method.stepwise and grid is not None else ends
            run: Options = {"save": save, "seeds": seeds, "seed": seed, "force": force}
            run["progress"] = announcer.listener_of(_described(method, seeds))
            try:
                results[name] = plan.solve(method, start, own, throw=False, **run)
            except Refused as refused:  # for what only the numbers of the start tell
                skipped[type(method).__name__] = refused.reason
                continue
            if method.stepwise and grid is None:
                # a scheduled rate may vanish, and time stand still; steps go on
                clock = (
                    "step" if plan.algorithm.scheduled and not plan.stages else "time"
                )
                grid = {
                    "steps" if clock == "step" else "time": results[name][clock].values
                }
            if each is not None:
                each(so_far())
        done = {name: method for name, method in names.items() if name in results}
        if not done:
            raise Refused(
                ", ".join(skipped), "; ".join(skipped.values()), plan.support.methods
            )
        pilots = Pilots(plan, start, seeds, seed, announcer)
        rows = verdicts_of(pilots, done, results, resolution)
    except KeyboardInterrupt as stop:
        if (
            isinstance(stop, Interrupted)
            and isinstance(stop.result, xr.Dataset)
            and name not in results
        ):
            results[name] = stop.result  # of pilots nothing is kept
        if not results:
            raise
        raise Interrupted(so_far()) from None
    said = universality(done, results, plan.problem.P)
    return Comparison(
        tree_of(list(done), results, rows, skipped, told, universality=said)
    )


def foreseen(
    problem: Problem,
    algorithm: SGD | Sequence[Stage],
    methods: Sequence[Method] | None,
    start: Overlaps | str | None,
    *,
    save: Save = 200,
    seeds: int = 32,
    seed: int = 0,
    **given: End,
) -> list[tuple[Method, Task]]:
    """The runs of `compare` with these arguments and ends, and its pilots as far as
    they are known beforehand.
    """
    plan, ends, _, _, usable, start = _begun(
        problem, algorithm, methods, start, given, seeds, seed
    )
    more: Options = {"save": save, "seeds": seeds, "seed": seed}
    runs = [(method, _tasks(plan, method, start, ends, more)) for method in usable]
    (first, _), *others = runs
    pilots: dict[Method, list[Task]] = {}
    for method, tasks in others:
        task = tasks[0]
        last = task.clocks.time(task.points) if method.stepwise else task.points
        for pilot in planned_pilots(plan, method, first, start, last):
            if pilot not in pilots:
                pilots[pilot] = _tasks(
                    plan, pilot, start, {} if plan.stages else {"time": last}, more
                )
    return [
        (method, task) for method, tasks in [*runs, *pilots.items()] for task in tasks
    ]


def _shared_points(
    plan: Plan, methods: Sequence[Method], start: Overlaps, ends: Options, save: Save
) -> Options:
    """The end, or the save points of a method that has its own: where pushes return,
    curves bend, and nothing is to be read off between points.
    """
    for method in methods:
        if method.own_points:
            task = make_task(
                plan.problem, plan.algorithm, method, start, **ends, save=save
            )
            clocks = task.clocks.coordinates(task.points, method.stepwise)
            return {"time": clocks["time"][0]}
    return ends


def _tasks(
    plan: Plan, method: Method, start: Overlaps, ends: Options, more: Options
) -> list[Task]:
    """The run of a method as tasks, one for each stage."""
    if not plan.stages:
        return [make_task(plan.problem, plan.algorithm, method, start, **ends, **more)]
    own = [{**more, **x.ends, "save": x.save} for x in plan.stages]
    return [
        make_task(*part, method, start, **stage)
        for part, stage in zip(plan.parts, own, strict=True)
    ]


class Begun(NamedTuple):
    """What is followed, to which end, by the methods asked for, less those that refuse
    for a reason, and from where.
    """

    plan: Plan
    ends: Options
    asked: list[Method]
    skipped: dict[str, str]
    usable: list[Method]  # deterministic ones first
    start: Overlaps


def _begun(
    problem: Problem,
    algorithm: SGD | Sequence[Stage],
    methods: Any,
    start: Any,
    given: Options,
    seeds: int,
    seed: int,
) -> Begun:
    """The arguments of `compare`, checked."""
    problem, methods, start = over_data(problem, algorithm, methods, start, seed)
    plan = Plan.of(problem, algorithm)
    ends = {name: end for name, end in given.items() if end is not None}
    if plan.stages and ends:
        raise InputError(
            f"Argument `{next(iter(ends))}` must be left out where stages are compared:"
            " they have their own."
        )
    if methods is not None and (
        not isinstance(methods, Sequence) or isinstance(methods, str)
    ):
        reject("methods", methods, "a list of methods such as [ODE(), Chain(dim=1000)]")
    if isinstance(start, str):
        dims = {
            method.dimension for method in methods or () if isinstance(method, Method)
        } - {None}
        dim = dims.pop() if len(dims) == 1 else None
        start = given_start(problem, start, dim, seed, why="the methods have not one")
    if not isinstance(start, Overlaps):
        reject("start", start, "Overlaps, or 'random'")
    asked = [
        method.suited(plan.algorithm)
        for method in _asked(plan, methods, start, ends, seeds)
    ]
    reasons = [(method, plan.objection(method)) for method in asked]
    skipped = {
        type(method).__name__: reason
        for method, reason in reasons
        if reason is not None
    }
    usable = sorted(
        (method for method, reason in reasons if reason is None),
        key=lambda method: method.stochastic,
    )
    if not usable:
        raise Refused(
            ", ".join(skipped), "; ".join(skipped.values()), plan.support.methods
        )
    # the start at the dimension of the first run that takes steps: limits then have its
    # clock
    sizes = [
        method.dimension
        for method in usable
        if method.stepwise and method.dimension is not None
    ]
    start = Overlaps(start.Q, start.M, start.P, start.a, sizes[0]) if sizes else start
    return Begun(plan, ends, asked, skipped, usable, start)


def _told(plan: Plan, methods: list[Method], **arguments: object) -> Json:
    """Methods and arguments as plain values, for a comparison to be run again."""
    told: Json = {"methods": [m.describe() for m in methods], **_plain(**arguments)}
    if plan.stages:
        told["stages"] = [_plain(**x.ends, save=x.save) for x in plan.stages]
    return told


def _plain(**values: object) -> Json:
    plain = {
        name: value.tolist() if hasattr(value, "tolist") else value
        for name, value in values.items()
    }
    return {name: value for name, value in plain.items() if value is not None}


def _asked(
    plan: Plan, methods: Any, start: Overlaps, ends: Options, seeds: int
) -> list[Method]:
    """The methods to run, as given or all that apply of themselves."""
    if methods is None:
        found = default_methods(plan, start.dim, ends, seeds)
        if not found:
            lenses = plan.support
            reasons = {
                **dict.fromkeys(lenses.methods, "it needs a start with a dim"),
                **lenses.reasons,
            }
            why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            raise InputError(f"No method applies of itself ({why}).")
        return found
    if not methods:
        raise InputError(
            "Argument `methods` must name at least one method, but is empty."
        )
    for method in methods:
        if not isinstance(method, Method):
            reject("methods", method, "methods such as ODE() and Chain(dim=1000)")
    return list(methods)


def _place(named: tuple[str, Method]) -> tuple[bool, bool]:
    """Runs over given rows come first, which may be too few, and continuous methods
    last.
    """
    method = named[1]
    return not method.stepwise, getattr(method, "data", None) is None


def _described(method: Method, seeds: int) -> str:
    size = "" if method.dimension is None else f", d = {method.dimension}"
    return f"{method.name}{size}" + (f", {seeds} seeds" if method.stochastic else "")


def verdicts_of(
    pilots: Pilots,
    methods: dict[str, Method],
    results: dict[str, xr.Dataset],
    resolution: float = SHARE,
) -> list[Judgement]:
    """Rows of the table: every method but the first against the first."""
    (reference, first), *others = methods.items()
    theory = results[reference]
    rows: list[Judgement] = []
    for name, method in others:
        result, dim = results[name], method.dimension or 0
        unit = clock_ratio(
            first, pilots.plan.algorithm, method.dimension, pilots.start.dim
        )
        reason = (
            _ended(theory, reference)
            or _ended(result, "it")
            or _beyond(result, theory, method, reference, unit)
        )
        doubt = _doubted(theory, reference) or _doubted(result, name)
        if doubt:
            rows += [
                _unjudged(name, dim, result, theory, quantity, doubt, "suspect")
                for quantity in entries(result)
            ]
            continue
        finite = (
            Finite(lost=reason)
            if reason
            else pilots.finite(Probe(method, result, first, theory))
        )
        if finite.lost:
            rows += [
                _unjudged(name, dim, result, theory, quantity, finite.lost)
                for quantity in entries(result)
            ]
            continue
        scales = ranges(theory, pilots.plan.problem.P, method.dimension)
        limit = (
            method.dimension is not None and first.dimension is None
        )  # which has batches of any size
        whole = pilots.plan.rounding(dim) if limit else 0.0
        found = judge(
            name,
            dim,
            result,
            theory,
            scales,
            finite.base,
            finite.corrections,
            unit,
            whole,
            resolution,
        )
        hint = _hint(pilots.plan.problem, pilots.start, method.dimension)
        for row in found:
            known = (
                f"{row.reason} ({hint})"
                if row.verdict == "differ" and hint
                else row.reason
            )
            rows.append(dataclasses.replace(row, reason=known))
    return rows


def _ended(dataset: xr.Dataset, who: str) -> str:
    """Why nothing can be said about runs that did not get to their end."""
    lost = ~np.isin(dataset.outcome.values, [Outcome.OK])
    if not lost.any():
        return ""
    word = str(dataset.outcome.values[lost][0])
    count = f"{int(lost.sum())} of {len(lost)} seeds" if len(lost) > 1 else who
    return f"{count} ended early ({word}), and the mean of the others says nothing"


def _doubted(dataset: xr.Dataset, name: str) -> str:
    """Why the numbers of a method are no measure of another: its averages are not those
    of samples.
    """
    witness = json.loads(dataset.attrs.get("notes", "{}")).get("witness", {})
    refuted = witness.get("refuted", [])
    if not refuted:
        return ""
    return (
        f"samples contradict the averages that {name} uses ({', '.join(refuted)}), so"
        " that nothing follows from what it says"
    )


def _beyond(
    result: xr.Dataset, theory: xr.Dataset, method: Method, reference: str, unit: float
) -> str:
    """Why there is nothing to judge by."""
    if method.stochastic and result.sizes["seed"] < 2:
        return "one seed has no standard error: give more seeds"
    if float(result.time[-1]) / unit > float(theory.time[-1]) * (
        1 + 1 / result.sizes["time"]
    ):
        return (
            f"on the clock of {reference}, which is not t, it goes further: compare one"
            " dimension at a time"
        )
    return ""


def _unjudged(
    name: str,
    dim: int,
    result: xr.Dataset,
    theory: xr.Dataset,
    quantity: str,
    reason: str,
    verdict: str = "undecided",
) -> Judgement:
    """A row without a test: final values of the first entry."""
    known = entries(theory)
    expected = float(known[quantity][:, -1, 0].mean()) if quantity in known else np.nan
    mean = float(entries(result)[quantity][:, -1, 0].mean())
    return Judgement(
        name, dim, quantity, verdict, reason, reference=expected, mean=mean
    )


def _hint(problem: Problem, start: Overlaps, dim: int | None) -> str:
    """Why a run may leave a theory although neither is wrong."""
    if dim is None:
        return ""
    found = []
    overlap = float(np.sqrt((start.fields(problem.inputs).M ** 2).sum(axis=-2)).min())
    if overlap * np.sqrt(dim) < ALONE:
        found.append(
            f"the start has overlap {overlap:.2g} ≈ {overlap * np.sqrt(dim):.1f}/√d"
            " with a direction: there the noise of single samples competes with the"
            " drift, and the time of escape is random even as d → ∞"
        )
    steep = problem.activation.polynomial
    if steep is not None and len(steep) > 2:
        found.append(
            "gradients of polynomial activations are heavy-tailed: powers of 1/d need a"
            " larger d"
        )
    return "; ".join(found)
