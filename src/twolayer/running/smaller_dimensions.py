"""Runs at smaller dimensions that tell what a finite dimension does to a comparison
(finite_size.py).

    a method at d against a limit           the same method at d/4 and d/16 against it
    exact runs against a limit far away     the mean step at d, d/4, d/16 has the slow
                                            part, and no noise; runs at d/4 and d/16
                                            against it tell the rest
    two methods at one d                    both at d/4 and d/16; nothing where both are
                                            exact in law
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import xarray as xr

from twolayer.methods.chain import Chain
from twolayer.methods.map import Map
from twolayer.methods.vectors import Vectors
from twolayer.numerics.errors import InputError
from twolayer.running.finite_size import (
    LEVELS,
    allowance,
    dimensions,
    extrapolate,
    usable,
)
from twolayer.running.judging import Correction, Deviation, deviations, linear
from twolayer.running.plan import Plan
from twolayer.running.progress import Announcer
from twolayer.running.solve import DivergenceWarning, make_task
from twolayer.task.algorithm import SGD
from twolayer.task.method import Method, Outcome
from twolayer.task.overlaps import Overlaps

__all__ = ["Finite", "Pilots", "Probe", "clock_ratio", "planned_pilots"]

EXACT = (Chain, Vectors)  # in law, at any dimension
AFFORDABLE = 20.0  # estimated seconds that the mean step at d may take
FOREVER = (
    "what a finite d adds does not go away as a power of d with these laws of lr and"
    " batch"
)


Dims = tuple[int, int, int]
"""D, and those of the two pilots."""


class Probe(NamedTuple):
    """A method and the reference, each with its result."""

    method: Method
    result: xr.Dataset
    first: Method
    theory: xr.Dataset


def clock_ratio(
    first: Method, algorithm: SGD, dim: int | None, known: int | None
) -> float:
    """Units of t at d in one of a limit that was solved for another dimension: 1 but
    where its clock is not t.
    """
    return (
        1.0
        if dim is None or known is None
        else float((dim / known) ** first.unit(algorithm))
    )


class Finite(NamedTuple):
    """What finite size does to every quantity. Deviations are taken from ``base``, if
    given, instead of the theory.
    """

    corrections: dict[str, Correction] | None = None
    base: xr.Dataset | None = None
    lost: str = ""


class Lost(Exception):
    """A pilot that says nothing, with the reason."""


class Pilots:
    """The pilots of one comparison; each is run once, whoever asks for it."""

    def __init__(
        self, plan: Plan, start: Overlaps, seeds: int, seed: int, announcer: Announcer
    ) -> None:
        self.plan, self.start = plan, start
        self.seeds, self.seed, self.announcer = seeds, seed, announcer
        self._kept: dict[Hashable, xr.Dataset] = {}

    def finite(self, pair: Probe) -> Finite:
        """What finite size does to the deviations of a method from the reference."""
        dim, other = pair.method.dimension, pair.first.dimension
        if dim is None and other is None:
            return Finite()
        if dim is None or (other is not None and other != dim):
            words = " and ".join(
                f"{m.name} {_place(m.dimension)}" for m in (pair.first, pair.method)
            )
            return Finite(lost=f"{words}: nothing says that these are equal")
        if isinstance(pair.method, EXACT) and isinstance(pair.first, EXACT):
            return Finite()
        if _sized(self.plan):
            return Finite(
                lost=(
                    "the blocks of the inputs have given sizes, and what finite size"
                    " adds is measured at smaller d: Inputs.blocks(variances,"
                    " fractions) has blocks at every d"
                )
            )
        dims = dimensions([algorithm for _, algorithm in self.plan.parts], dim)
        least = self.plan.problem.p + self.plan.problem.k + 1
        if dims[-1] < least:
            return Finite(
                lost=(
                    f"a pilot at d/{LEVELS[-1]} = {dims[-1]} has no room for p + k ="
                    f" {least - 1} directions"
                )
            )
        try:
            return self._measured(pair, dims)
        except Lost as reason:
            return Finite(lost=str(reason))

    def _measured(self, pair: Probe, dims: Dims) -> Finite:
        slow, quick = self.plan.slowest, self.plan.left_by_the_mean_step
        exact = isinstance(pair.method, EXACT)
        if exact and isinstance(pair.first, Map):
            return Finite(self._allowed(pair, dims, quick))
        if not usable(slow):
            raise Lost(FOREVER)
        if not pair.method.stochastic:
            return Finite(self._extrapolated(pair, dims))
        if exact and pair.first.dimension is None and quick > slow + 1e-9:
            step = self._mean_step(pair, dims[0])
            if step is not None:
                return self._in_two_parts(pair, step, dims, quick)
        return Finite(self._allowed(pair, dims, slow))

    def _in_two_parts(
        self, pair: Probe, step: Probe, dims: Dims, quick: float
    ) -> Finite:
        """The mean step against the limit, without noise, and the runs against the mean
        step.
        """
        rest = self._allowed(
            Probe(pair.method, pair.result, step.method, step.result), dims, quick
        )
        unit = clock_ratio(pair.first, self.plan.algorithm, dims[0], self.start.dim)
        slow, gap = (
            self._extrapolated(step, dims),
            deviations(step.result, pair.theory, unit),
        )
        both = {
            name: Correction(
                gap[name].mean + slow[name].shift,
                slow[name].allowance + rest[name].allowance,
            )
            for name in rest
        }
        return Finite(both, step.result)

    def _mean_step(self, pair: Probe, dim: int) -> Probe | None:
        """The mean step at d against the limit, where it holds and does not take
        long.
        """
        step = Map(
            dim, without=("dimension", "ratio")
        )  # these are no larger than what fluctuations do
        times = pair.result.time.values
        if self.plan.objection(step) is not None:
            return None
        cost = max(
            step.cost(make_task(*part, step, self.start, time=times))
            for part in self.plan.parts
        )
        if cost > AFFORDABLE:
            return None
        try:
            return Probe(step, self._run(step, dim, times), pair.first, pair.theory)
        except Lost:
            return None

    def _extrapolated(self, pair: Probe, dims: Dims) -> dict[str, Correction]:
        """What leads from a method without noise to its limit."""
        gaps = [self._gap(pair, dim) for dim in dims]
        power = self.plan.slowest
        whole = self.plan.rounding(dims[0]) / (1 - (dims[1] / dims[0]) ** power)
        found = {}
        for name, here in gaps[0].items():
            limit = extrapolate([gap[name].mean for gap in gaps], dims, power)
            found[name] = Correction(
                limit.value - here.mean, limit.error + whole * np.abs(here.mean)
            )
        return found

    def _allowed(self, pair: Probe, dims: Dims, power: float) -> dict[str, Correction]:
        """The allowance that pilots at two dimensions give."""
        if not usable(power):
            raise Lost(FOREVER)
        here, near, far = (self._gap(pair, dim) for dim in dims)
        ratios = (dims[1] / dims[0]) ** power, (dims[2] / dims[1]) ** power
        return {
            name: Correction(0.0, allowance(here[name], near[name], far[name], ratios))
            for name in near
        }

    def _gap(self, pair: Probe, dim: int) -> dict[str, Deviation]:
        """Deviations from the reference at another dimension, at the times of the
        result.
        """
        method, result, first, theory = pair
        here, unit = (
            clock_ratio(first, self.plan.algorithm, d, self.start.dim)
            for d in (method.dimension, dim)
        )
        times = result.time.values / here
        if dim == method.dimension:
            return deviations(result, theory, here)
        run = self._run(method, dim, times * unit)
        if first.dimension is None:
            found = deviations(run, theory, unit)
        else:
            found = deviations(run, self._run(first, dim, times * unit))
        own = run.time.values / unit
        return {
            name: y._replace(
                mean=linear(own, y.mean, times), error=linear(own, y.error, times)
            )
            for name, y in found.items()
        }

    def _run(self, method: Method, dim: int, times: np.ndarray) -> xr.Dataset:
        """A method at a dimension, to the given times."""
        pilot = _at(method, dim, self.plan)
        key = pilot, tuple(np.round(times, 14))
        if key in self._kept:
            return self._kept[key]
        told = f"{pilot.name}, d = {dim}, for the finite size"
        count = (
            len(self._kept) + 1
        )  # seeds of their own: pilots are independent of the runs and of each other
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DivergenceWarning
                )  # a lost pilot is told in the table
                run = self.plan.solve(
                    pilot,
                    self.start,
                    {"time": times},
                    seeds=self.seeds,
                    seed=self.seed + count,
                    progress=self.announcer.listener_of(told),
                    throw=False,
                )
        except InputError as error:
            raise Lost(f"no pilot at d = {dim}: {error}") from None
        lost = run.outcome.values != Outcome.OK
        if lost.any():
            raise Lost(
                f"{lost.mean():.0%} of the pilot at d = {dim} ended as"
                f" {run.outcome.values[lost][0]!r}"
            )
        self._kept[key] = run
        return run


def planned_pilots(
    plan: Plan, method: Method, first: Method, start: Overlaps, times: np.ndarray
) -> list[Method]:
    """The pilots that a comparison of a method with the reference is going to run, as
    far as can be told before it.
    """
    dim, problem, algorithm = method.dimension, plan.problem, plan.algorithm
    exact = isinstance(method, EXACT)
    if (
        dim is None
        or first.dimension not in (None, dim)
        or (exact and isinstance(first, EXACT))
    ):
        return []
    dims = dimensions([part[1] for part in plan.parts], dim)
    if dims[-1] < problem.p + problem.k + 1 or not usable(plan.slowest) or _sized(plan):
        return []
    found = [
        _at(one, n, plan)
        for one in (method, first)
        if one.dimension is not None
        for n in dims[1:]
    ]
    step = Map(dim, without=("dimension", "ratio"))
    helps = (
        exact
        and first.dimension is None
        and plan.left_by_the_mean_step > plan.slowest + 1e-9
    )
    if not helps or plan.objection(step) is not None:
        return found
    cheap = (
        step.cost(make_task(problem, algorithm, step, start, time=times)) <= AFFORDABLE
    )
    return found + [_at(step, n, plan) for n in dims] if cheap else found


def _at(method: Method, dim: int, plan: Plan) -> Method:
    """The method at another dimension; of explicit vectors the chain, which has the
    same law, for less.
    """
    if isinstance(method, Vectors) and not plan.reuses:
        return Chain(dim)
    other: Method = dataclasses.replace(method, dim=dim)  # type: ignore[call-arg]
    return other


def _sized(plan: Plan) -> bool:
    """Whether inputs have blocks of given sizes, and so one dimension only."""
    return any(problem.inputs.dims is not None for problem, _ in plan.parts)


def _place(dim: int | None) -> str:
    return "is a limit" if dim is None else f"is at d = {dim}"
