"""AdaGrad in the limit d → ∞: a flow that carries what its rate is made of.

    f = 1/√(b² + β),    dβ/dτ = tr chi/(p γ n_b),    β = Σ|∇|²/d²

in the time τ = lr·step/p of the rate as it is written, lr = γ/d; flow, noise and decay
of the first layer gain f, f² and f. The second layer takes its plain step. With
schedules γ and n_b are those of the moment, and f comes on top of them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.optimiser_step import Limit
from twolayer.loops.runge_kutta import Equation
from twolayer.loops.scheduled_flow import Carried, PacedEquation, PacedMotion
from twolayer.loops.windows import Known, Look, Motion
from twolayer.numerics.types import Number
from twolayer.task.method import Measure, Snapshot, Stand

__all__ = ["AdaptiveMotion"]


class AdaptiveEquation(PacedEquation):
    """A field of overlaps whose rate falls with the gradients it has seen."""

    b: jax.Array

    def __call__(self, t: Number, y: Carried, args: object = None) -> Carried:
        """dy/dτ."""
        f = 1 / jnp.sqrt(self.b**2 + y.more)
        right, (Q, M, a) = self.inner.right, y.y
        chi = right.engine((Q + Q.T) / 2, M, a, right.noise).chi
        adapted = self.with_limit(lambda limit: limit.adapted(f))
        return Carried(adapted(t, y.y), right.limit.growth * jnp.trace(chi))


class AdaptiveMotion(PacedMotion):
    """A motion of overlaps with β beside them; the rate in force is a variable of the
    result.
    """

    def __init__(self, inner: Motion) -> None:
        super().__init__(inner)
        rule = self.task.algorithm.rule
        assert rule is not None and rule.adapts is not None
        self.b = rule.adapts
        self.rates: list[np.ndarray] = []

    def start(self) -> Carried:
        """The starts, before any gradient or with the sum of the stage before."""
        after = self.task.after
        seen = np.zeros(self.task.seeds) if after is None else np.asarray(after.state)
        return Carried(self.inner.start(), seen)

    def equation(self) -> Equation:
        """The field at the present accuracy."""
        return AdaptiveEquation(self.inner.equation(), jnp.asarray(self.b))

    def seen(self, states: Carried) -> Snapshot | Measure:
        """The overlaps at save points; rates are put aside."""
        self.rates.append(1 / np.sqrt(self.b**2 + np.asarray(states.more)))
        return super().seen(states)

    def left(self, end: Carried) -> np.ndarray:
        """The sum so far: a stage that adapts its rate too goes on with it, as in
        `Chain`.
        """
        return np.asarray(end.more)

    def stand(self, look: Look, y: Carried, lane: int, known: Known) -> Stand:
        """That of the motion inside, and how the sum grows."""
        stand = super().stand(look, y, lane, known)
        growth = look(Limit, lambda x: x).more
        stand.claims[0].values["seen"] = np.asarray(growth)[lane]
        return stand

    def carried(self, more: np.ndarray) -> Known:
        """The sum so far."""
        return {"seen": float(more)}

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """The rate in force, relative to lr as it is written."""
        return {"lr": (("seed", "time"), np.concatenate(self.rates, axis=1))}
