"""AdaGrad in the limit d → ∞: a flow that carries what its rate is made of.

    f = 1/√(b² + β),    dβ/dτ = tr chi/(p γ n_b),    β = Σ|∇|²/d²

in the time τ = lr·step/p of the rate as it is written, lr = γ/d; flow, noise and decay gain f, f² and f.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.loops.runge_kutta import Equation
from twolayer.loops.scheduled_flow import Carried, PacedEquation, PacedMotion
from twolayer.loops.windows import Motion
from twolayer.numerics.types import Number
from twolayer.task.method import Measure, Snapshot

__all__ = ["AdaptiveMotion"]


class AdaptiveEquation(PacedEquation):
    """A field of overlaps whose rate falls with the gradients it has seen."""

    b: jax.Array
    pace: jax.Array

    def __call__(self, t: Number, y: Carried, args: object = None) -> Carried:
        """dy/dτ."""
        f = 1 / jnp.sqrt(self.b**2 + y.more)
        right, (Q, M, a) = self.inner.right, y.y
        chi = right.engine((Q + Q.T) / 2, M, a, right.noise).chi
        return Carried(self.at(f, 1.0)(t, y.y), self.pace * jnp.trace(chi))


class AdaptiveMotion(PacedMotion):
    """A motion of overlaps with β beside them; the rate in force is a variable of the result."""

    def __init__(self, inner: Motion) -> None:
        super().__init__(inner)
        algorithm, N = self.task.algorithm, self.task.problem.divisor
        assert algorithm.rule is not None and algorithm.rule.adapts is not None
        self.b = algorithm.rule.adapts
        self.pace = 1 / (N * algorithm.lr.coefficient * algorithm.batch.coefficient)
        self.rates: list[np.ndarray] = []

    def start(self) -> Carried:
        """The starts, before any gradient."""
        return Carried(self.inner.start(), np.zeros(self.task.seeds))

    def equation(self) -> Equation:
        """The field at the present accuracy."""
        return AdaptiveEquation(
            self.inner.equation(), jnp.asarray(self.b), jnp.asarray(self.pace)
        )

    def seen(self, states: Carried) -> Snapshot | Measure:
        """The overlaps at save points; rates are put aside."""
        self.rates.append(1 / np.sqrt(self.b**2 + np.asarray(states.more)))
        return super().seen(states)

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """The rate in force, relative to lr as it is written."""
        return {"lr": (("seed", "time"), np.concatenate(self.rates, axis=1))}
