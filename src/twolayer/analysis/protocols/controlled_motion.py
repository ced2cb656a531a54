"""The dynamics under controls that change, as a differentiable function of their values
on a grid.

    ODE:                   dX/dx = [f F₁(X) + (f²/b) F₂(X)] / (dx/dτ),
        x the clock, f = lr/lr_ref, b = n_b/n_ref
    GiantSteps, Map(dim):  X ← E[X after a step with f_n lr_ref and b_n n_ref]

The ODE is integrated by the classical rule of fourth order with a fixed step, so that
the grid holds the values of the controls at the ends and in the middle of all steps,
and the derivative is the exact one of what is computed. Steps are recomputed on the way
back. Cost of a gradient: about four runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.equations.mean_step import Rows
from twolayer.equations.optimiser_step import Limit
from twolayer.equations.state import Overlap
from twolayer.methods.giant import GiantSteps
from twolayer.methods.map import Map
from twolayer.methods.ode import ODE
from twolayer.numerics.errors import InputError, Refused, reject, require
from twolayer.numerics.types import Number, Real, Tree
from twolayer.pure import (
    Mean,
    MeanAverages,
    VectorField,
    averages,
    mean_step,
    vector_field,
)
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks
from twolayer.task.method import Method
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.regimes import regime_of

__all__ = ["CLOCKS", "ControlledRun", "Controls", "Objective", "course_of", "score_of"]

CLOCKS = ("alpha", "time", "step")
# squared norm that no run may pass, below the one at which methods call it diverged
FAR = 1e5
AHEAD, SHARES = (
    np.array([0.0, 0.5, 0.5, 1.0]),
    np.array([1.0, 2.0, 2.0, 1.0]) / 6,
)  # the classical rule


class Controls(NamedTuple):
    """Values on the grid, relative to those of the algorithm, and the weight decay."""

    lr: Any
    batch: Any
    decay: Any


@dataclass(frozen=True)
class Objective:
    """What is to be small (or large) at the end, or on average."""

    name: str
    function: Callable[[Overlaps], Any] | None = None

    @property
    def large(self) -> bool:
        """Whether more is better."""
        return self.name == "overlap"

    @property
    def positive(self) -> bool:
        """Whether its logarithm exists."""
        return self.function is None

    def better(self, one: float, other: float) -> bool:
        """Whether one value is better than another; what is no number is never
        better.
        """
        return bool(one > other if self.large else one < other)


def score_of(objective: Objective, mean: MeanAverages, end: Overlaps) -> Array:
    """The objective at overlaps; of the integrated risk, what is integrated."""
    if objective.function is not None:
        return jnp.asarray(objective.function(end), float)
    if objective.name == "overlap":
        norms = jnp.diagonal(end.Q)[:, None] * jnp.diagonal(jnp.asarray(end.P))
        return jnp.sqrt((end.M**2 / norms).mean())
    return mean(end).excess_risk


def _paced(
    limit: Limit, divisor: Number, now: Controls, clock: str, one: Number
) -> Limit:
    """The limit per unit of the clock, of which ``one`` passes per unit of τ at the
    reference.
    """
    limit = limit._replace(decay=limit.flow * divisor * now.decay)
    f, b = now.lr, now.batch
    if (
        clock == "time"
    ):  # per unit of τ, divided by f: no singularity where the rate vanishes
        jitter = None if limit.jitter is None else limit.jitter * f
        limit, pace = (
            Limit(limit.flow, limit.noise * f / b, limit.decay, limit.second, jitter),
            one,
        )
    else:
        limit, pace = limit.scaled(f, b), one * b if clock == "alpha" else one
    paced: Any = (None if x is None else x / pace for x in limit)
    return Limit(*paced)


class Flowing(eqx.Module):
    """The ODE: states at the ends of all steps."""

    field: VectorField
    starts: Overlap
    size: Number
    one: Number
    divisor: Number
    clock: str = eqx.field(static=True)

    def path(self, start: Overlap, controls: Controls) -> Overlap:
        """Integrate from one start."""
        h = self.size

        def rate(y: Overlap, lr: Real, batch: Real) -> Overlap:
            limit = _paced(
                self.field.limit,
                self.divisor,
                Controls(lr, batch, controls.decay),
                self.clock,
                self.one,
            )
            return dataclasses.replace(self.field, limit=limit).rate(0.0, y)

        def moved(y: Overlap, by: Real, k: Overlap) -> Overlap:
            return Overlap(*(x + by * h * v for x, v in zip(y, k, strict=True)))

        def step(y: Overlap, now: Tree) -> tuple[Overlap, Overlap]:
            # the four stages in a loop: the averages are traced and compiled once
            def stage(
                so_far: tuple[Overlap, Overlap], here: Tree
            ) -> tuple[tuple[Overlap, Overlap], None]:
                by, weight, f, b = here
                slope, total = so_far
                slope = rate(moved(y, by, slope), f, b)
                return (slope, moved(total, weight, slope)), None

            (_, new), _ = jax.lax.scan(
                stage, (Overlap(*map(jnp.zeros_like, y)), y), (AHEAD, SHARES, *now)
            )
            return new, new

        stages = tuple(
            jnp.stack([x[:-1:2], x[1::2], x[1::2], x[2::2]], axis=1)
            for x in (controls.lr, controls.batch)
        )
        _, after = jax.lax.scan(jax.checkpoint(step), start, stages)
        return Overlap(
            *(jnp.concatenate([x[None], y]) for x, y in zip(start, after, strict=True))
        )


class Stepping(eqx.Module):
    """The mean of a step, iterated: states before and after all steps."""

    mean: Mean
    starts: Overlap
    divisor: Number

    def path(self, start: Overlap, controls: Controls) -> Overlap:
        """Iterate from one start."""
        own = self.mean.step
        lr = own.rates.step * self.divisor
        begin = self.mean.start(Overlaps.unchecked(start.Q, start.M, own.P, start.a))

        def step(y: Rows, now: Tree) -> tuple[Rows, Overlap]:
            f, b = now
            rates = own.rates._replace(
                step=own.rates.step * f, decay=lr * f * controls.decay
            )
            rates = rates._replace(second=own.rates.second * f)
            weights = own.weights._replace(
                norm=own.weights.norm / b, single=own.weights.single / b
            )
            new = dataclasses.replace(own, rates=rates, weights=weights)(y)
            return new, own.overlaps(new)

        _, after = jax.lax.scan(
            jax.checkpoint(step), begin, (controls.lr, controls.batch)
        )
        return Overlap(
            *(jnp.concatenate([x[None], y]) for x, y in zip(start, after, strict=True))
        )


@eqx.filter_jit
def _value(
    way: Flowing | Stepping,
    mean: MeanAverages,
    objective: Objective,
    P: Real,
    controls: Controls,
) -> Array:
    """The mean of the objective over the starts; infinite where a run leaves the range
    in which methods follow it.
    """

    def score(y: Overlap) -> Array:
        return score_of(objective, mean, Overlaps.unchecked(y.Q, y.M, P, y.a))

    def one(start: Overlap) -> Array:
        path = way.path(start, controls)
        stays = (
            jnp.diagonal(path.Q, axis1=-2, axis2=-1) <= FAR
        ).all()  # an objective may be blind to the norms
        if objective.name != "integrated_risk":
            return jnp.where(stays, score(Overlap(*(x[-1] for x in path))), jnp.inf)
        along = jax.lax.map(jax.checkpoint(score), path)
        return jnp.where(stays, ((along[1:] + along[:-1]) / 2).mean(), jnp.inf)

    return jax.vmap(one)(way.starts).mean()


@eqx.filter_jit
def _slope(
    way: Flowing | Stepping,
    mean: MeanAverages,
    objective: Objective,
    P: Real,
    controls: Controls,
) -> Tree:
    return jax.value_and_grad(
        lambda controls: _value(way, mean, objective, P, controls)
    )(controls)


@dataclass(frozen=True, eq=False)
class ControlledRun:
    """A problem, an algorithm, a method and a start as a function of the controls on a
    grid.
    """

    problem: Problem
    objective: Objective
    way: Flowing | Stepping
    mean: MeanAverages
    grid: np.ndarray  # positions on the clock at which controls are asked for

    def __call__(self, controls: Controls) -> tuple[float, Controls]:
        """The objective and its derivatives with respect to all controls on the
        grid.
        """
        value, slope = _slope(
            self.way, self.mean, self.objective, self.problem.P, self._data(controls)
        )
        return float(value), Controls(*map(np.asarray, slope))

    def value(self, controls: Controls) -> float:
        """The objective alone."""
        return float(
            _value(
                self.way,
                self.mean,
                self.objective,
                self.problem.P,
                self._data(controls),
            )
        )

    def _data(self, controls: Controls) -> Controls:
        size = self.grid.shape
        lr, batch = (
            jnp.broadcast_to(jnp.asarray(x, float), size) for x in controls[:2]
        )
        return Controls(lr, batch, jnp.asarray(controls.decay, float))


def course_of(
    problem: Problem,
    algorithm: SGD,
    method: Method,
    start: Overlaps,
    horizon: float,
    clock: str,
    objective: Objective,
    steps: int,
) -> ControlledRun:
    """The dynamics of a task over a horizon, in so many steps of the integrator where
    it is an equation.
    """
    states = (
        start
        if start.batch
        else Overlaps.unchecked(start.Q[None], start.M[None], start.P, start.a)
    )
    a = problem.a() if start.a is None else start.a
    starts = Overlap(
        *map(jnp.asarray, (states.Q, states.M, np.broadcast_to(a, states.Q.shape[:-1])))
    )
    first = Overlaps.unchecked(
        states.Q[0], states.M[0], start.P, np.broadcast_to(a, states.Q.shape[:-1])[0]
    )
    mean = averages(problem, "squared", at=first)
    if isinstance(method, ODE):
        clocks = Clocks(problem, algorithm, start.dim)
        one, power = clocks.reference(np.ones(1), regime_of(algorithm).unit)[clock]
        if power:
            raise InputError(
                f"Argument `clock` = {clock!r} runs in units of {power} here: give"
                " another clock, or a start that has a `dim`."
            )
        field = vector_field(problem, algorithm, at=first)
        way = Flowing(
            field,
            starts,
            jnp.asarray(horizon / steps),
            jnp.asarray(one[0]),
            problem.divisor,
            clock,
        )
        return ControlledRun(
            problem, objective, way, mean, np.linspace(0.0, horizon, 2 * steps + 1)
        )
    if not isinstance(method, GiantSteps | Map):
        reject(
            "method",
            method,
            "ODE(), GiantSteps() or Map(dim), whose runs have derivatives",
        )
    require(clock == "step", "clock", clock, "'step' for a method that takes steps")
    reason = method.objection(problem, algorithm)
    if reason is not None:
        raise Refused(type(method).__name__, reason)
    whole = mean_step(
        problem, algorithm, method.dim if isinstance(method, Map) else None, at=first
    )
    stepping = Stepping(whole, starts, problem.divisor)
    return ControlledRun(
        problem, objective, stepping, mean, np.arange(round(horizon), dtype=float)
    )
