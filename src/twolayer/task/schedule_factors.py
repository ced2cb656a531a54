"""Schedules at work: the factors of lr and batch as functions of the clocks, for
compiled code.

    at the clocks (step, time, sample):   lr = lr_ref · f,   n_b = n_ref · b
    a step:   step + 1,  time + lr/p,  sample + n_b;        a flow in τ = lr_ref·step/p:
              dt/dτ = f,   ds/dτ = b

Which functions and clocks there are is fixed when code is compiled; their parameters
are data. Clocks are carried only where there is a schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.numerics.arguments import Options
from twolayer.numerics.types import Number

__all__ = ["Clock", "Course", "Tempo"]


class Clock(NamedTuple):
    """How far a run has come: steps, time and samples; of a flow, τ, t and the integral
    of b over τ.
    """

    step: Number
    time: Number
    sample: Number

    @classmethod
    def zero(cls, shape: tuple[int, ...] = ()) -> Clock:
        """At the start, of one run or of several."""
        return cls(*(np.zeros(shape) for _ in cls._fields))


class Course(eqx.Module):
    """One factor f(x), x = clock·unit, between ``low`` and ``high`` if only one of its
    pieces is wanted.
    """

    form: Callable[..., Number] = eqx.field(static=True)
    clock: str = eqx.field(static=True)  # of Clock
    unit: Number
    numbers: Options
    ends: tuple[Number, Number] | None = None

    def __call__(self, clock: Clock) -> Number:
        """The factor at some clocks."""
        x = getattr(clock, self.clock) * self.unit
        if self.ends is not None:
            xp = np if isinstance(x, float | np.ndarray) else jnp
            x = xp.clip(x, *self.ends)
        return self.form(x, **self.numbers)


class Tempo(eqx.Module):
    """The factors of lr and batch, and the batch they refer to; ``whole``: batches are
    whole numbers.
    """

    lr: tuple[Course, ...]
    batch: tuple[Course, ...]
    count: Number
    whole: bool = eqx.field(static=True)

    def __call__(self, clock: Clock) -> tuple[Number, Number]:
        """f and n_b at some clocks. Cost O(factors)."""
        f: Number = 1.0
        n = self.count
        for course in self.lr:
            f = f * course(clock)
        for course in self.batch:
            n = n * course(clock)
        if self.batch and self.whole:
            n = (np if isinstance(n, float) else jnp).round(n)
        return f, n

    @property
    def courses(self) -> tuple[Course, ...]:
        """All factors."""
        return self.lr + self.batch

    def between(self, ends: list[tuple[float, float]]) -> Tempo:
        """The same on one piece of every factor, each with the ends of its own x."""
        courses = [
            eqx.tree_at(lambda c: c.ends, c, e, is_leaf=lambda x: x is None)
            for c, e in zip(self.courses, ends, strict=True)
        ]
        return Tempo(
            tuple(courses[: len(self.lr)]),
            tuple(courses[len(self.lr) :]),
            self.count,
            self.whole,
        )
