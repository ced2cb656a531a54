"""AdaGrad in the limit d → ∞: a flow that carries what its rate is made of.

    f = 1/√(b² + β),    dβ/dτ = tr chi/(p γ n_b),    β = Σ|∇|²/d²

in the time τ = lr·step/p of the rate as it is written, lr = γ/d; flow, noise and decay gain f, f² and f.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.optimiser_step import Limit
from twolayer.loops.refined_averages import AveragedMotion
from twolayer.loops.runge_kutta import Equation
from twolayer.loops.windows import Pace
from twolayer.numerics.arguments import Notes
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.method import Snapshot, Task

__all__ = ["AdaptiveMotion"]


class Summed(NamedTuple):
    """Overlaps, and β."""

    y: Tree
    total: Real


class AdaptiveEquation(Equation):
    """A field of overlaps whose rate falls with the gradients it has seen."""

    inner: Any
    b: jax.Array
    pace: jax.Array

    def size(self, y: Summed) -> Real:
        """The largest squared norm."""
        return self.inner.size(y.y)

    def watched(self, quantity: str | None, y: Summed) -> Real:
        """What a threshold refers to."""
        return self.inner.watched(quantity, y.y)

    def __call__(self, t: Number, y: Summed, args: object = None) -> Summed:
        """dy/dτ."""
        f = 1 / jnp.sqrt(self.b**2 + y.total)
        now = jax.tree.map(
            lambda x: x.scaled(f, 1.0) if isinstance(x, Limit) else x,
            self.inner,
            is_leaf=lambda x: isinstance(x, Limit),
        )
        right, (Q, M, a) = self.inner.right, y.y
        chi = right.engine((Q + Q.T) / 2, M, a, right.noise).chi
        return Summed(now(t, y.y), self.pace * jnp.trace(chi))


class AdaptiveMotion(AveragedMotion):
    """A motion of overlaps with β beside them; the rate in force is a variable of the result."""

    def __init__(self, inner: AveragedMotion, task: Task) -> None:
        self.inner, self.task, self.averaging = inner, task, inner.averaging
        algorithm, N = task.algorithm, task.problem.divisor
        assert algorithm.rule is not None and algorithm.rule.adapts is not None
        self.b = algorithm.rule.adapts
        self.pace = 1 / (N * algorithm.lr.coefficient * algorithm.batch.coefficient)
        self.rates: list[np.ndarray] = []

    def start(self) -> Summed:
        """The starts, before any gradient."""
        return Summed(self.inner.start(), np.zeros(self.task.seeds))

    def equation(self) -> AdaptiveEquation:
        """The field at the present accuracy."""
        return AdaptiveEquation(self.inner.equation(), jnp.asarray(self.b), jnp.asarray(self.pace))

    def seen(self, states: Summed) -> Snapshot:
        """The overlaps at save points; rates are put aside."""
        self.rates.append(1 / np.sqrt(self.b**2 + np.asarray(states.total)))
        snapshot = self.inner.seen(states.y)
        assert isinstance(snapshot, Snapshot)
        return snapshot

    def refine(self, end: Summed) -> bool:
        """Finer averages, if the present ones are too coarse."""
        return self.inner.refine(end.y)

    def notes(self, pace: Pace) -> Notes:
        """What the motion has to say."""
        return self.inner.notes(pace)

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """The rate in force, relative to lr as it is written."""
        return {"lr": (("seed", "time"), np.concatenate(self.rates, axis=1))}
