"""The limit d → ∞ of the overlaps: a deterministic differential equation in every
continuous regime.

    dM/dt = f1·psi − pλ M,    dQ/dt = f1·(phi + phiᵀ) + f2·(γ0/(p n0)) chi − 2pλ Q,
        da/dt = f1·second

f1, f2 and the geometry are the limit of the step (equations/optimiser_step.py); the
regime (task/regimes.py) decides which parts survive. In the pure noise regime the clock
is t·d^(1−μ−δ). In every continuous regime spherical and projected weights have the same
limit. With inputs of several variances there are overlaps for each of them
(equations/blocks.py).

Cost: evaluations of the averages, O((p + k)³) for quadratic, O(p²(p + k)²) for erf,
O(nodes · p²) when sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.equations.block_refusals import rules_of_rotations
from twolayer.equations.blocks import blocks_of
from twolayer.equations.optimiser_step import Limit
from twolayer.equations.state import Overlap
from twolayer.gaussian.engines import (
    SECONDS_PER_TERM,
    Averager,
    Engine,
    compile_seconds,
    select,
)
from twolayer.loops.adagrad import AdaptiveMotion
from twolayer.loops.refined_averages import (
    AveragedMotion,
    Averaging,
    Precision,
    averaged,
)
from twolayer.loops.runge_kutta import Equation
from twolayer.loops.scheduled_flow import integrated
from twolayer.loops.stopping import watched_value
from twolayer.loops.windows import Known, Look, Motion, Pace
from twolayer.numerics.arguments import Notes
from twolayer.numerics.errors import finite_number, keep_integers
from twolayer.numerics.types import Number, Real
from twolayer.pure import VectorField, field_with
from twolayer.task.algorithm import SGD
from twolayer.task.averages import USUAL, Averages, keep_averages
from twolayer.task.heavy_tails import no_moment, two_laws
from twolayer.task.method import (
    Claim,
    Evolution,
    RefinedMethod,
    Snapshot,
    Stand,
    Task,
    register_method,
)
from twolayer.task.problem import Problem
from twolayer.task.regimes import (
    instead_of_memory,
    layers_apart,
    memory_beyond,
    regime_of,
)
from twolayer.task.rules import unaveraged
from twolayer.task.scaling import Scaling

__all__ = ["ODE"]


class Field(Equation):
    """The right-hand side of the floor (pure.py), with what has to be known to stop."""

    right: VectorField
    watcher: Engine | None
    noise: Number

    def size(self, y: Overlap) -> Real:
        """The largest squared norm."""
        Q = y.Q if self.right.blocks is None else y.Q.sum(0)
        return jnp.maximum(jnp.diagonal(Q).max(), (y.a**2).max())

    def watched(self, quantity: str | None, y: Overlap) -> Array:
        """What a threshold refers to."""
        y = self.right.fields(y)
        return watched_value(quantity, self.watcher, y.Q, y.M, y.a, self.noise)

    def __call__(self, t: Number, y: Overlap, args: object = None) -> Overlap:
        """dy/dt."""
        return self.right.rate(t, y)


class ODEMotion(AveragedMotion):
    """Overlaps of all starts."""

    def __init__(
        self, task: Task, averaging: Averaging, limit: Limit | None = None
    ) -> None:
        self.task, self.averaging, self.limit = task, averaging, limit
        inputs = task.problem.inputs
        self.blocks = None if inputs.plain else blocks_of(inputs, task.start.P)

    def start(self) -> Overlap:
        """The starts."""
        Q, M, a = self.task.starts()
        return (
            Overlap(Q, M, a)
            if self.blocks is None
            else Overlap(*self.task.block_starts(), a)
        )

    def equation(self) -> Field:
        """Averages at the present order, with the rates of the regime."""
        engine, noise = (
            self.averaging.averager.engine,
            jnp.asarray(self.task.problem.noise, float),
        )
        problem = self.task.as_trained.problem
        right = field_with(
            engine, problem, self.task.algorithm, self.limit, self.blocks
        )
        return Field(right, self.averaging.watcher, noise)

    def refine(self, end: Overlap) -> bool:
        """Finer averages, if the present ones are too coarse."""
        return self.averaging.refine(
            end if self.blocks is None else self.blocks.fields(end)
        )

    def seen(self, states: Overlap) -> Snapshot:
        """The overlaps at save points."""
        Q, M, a = map(np.asarray, states)
        return (
            Snapshot(Q, M, a)
            if self.blocks is None
            else Snapshot.in_blocks(self.task.problem.inputs, Q, M, a)
        )

    def stand(self, look: Look, y: Overlap, lane: int, known: Known) -> Stand:
        """The right-hand side, and apart what drives it and what is noise."""
        error = self.averaging.worst
        if self.limit is not None:  # of small steps on the population loss
            known = {**known, "noise": 0.0}

        def claim(kind: str, change: Callable[[Limit], Limit]) -> Claim:
            return Claim(kind, self._moves(look(Limit, change), lane), error, known)

        claims = [
            claim("drift", lambda x: x),
            claim("flow", lambda x: x.only(1.0, 0.0)),
        ]
        if self.equation().right.noisy and self.limit is None:
            claims.append(claim("noise", lambda x: x.only(0.0, 1.0)))
        P = None if self.blocks is None else np.asarray(self.blocks.P)
        Q, M, a = (np.asarray(x)[lane] for x in y)
        return Stand(Q, M, a, claims, P)

    def _moves(self, rate: Overlap, lane: int) -> dict[str, np.ndarray]:
        """What moves, of one start."""
        algorithm = self.task.algorithm
        moving = {"Q": algorithm.train_first_layer, "M": algorithm.train_first_layer}
        moving["a"] = algorithm.train_second_layer
        return {
            name: np.asarray(getattr(rate, name))[lane]
            for name, moves in moving.items()
            if moves
        }

    def notes(self, pace: Pace) -> Notes:
        """The regime, and the averages."""
        return {
            "regime": regime_of(self.task.algorithm).name,
            **self.averaging.notes(pace),
        }


@register_method
@dataclass(frozen=True)
class ODE(RefinedMethod):
    """The deterministic limit d → ∞ of the overlaps, in the regime that the scaling
    laws of lr and batch select.

    Parameters
    ----------
    averages : Averages
        How Gaussian averages are taken, and how accurate they shall be (1e-4).
    rtol : float, optional
        Relative tolerance of the integrator; by default 1e-8 where averages are closed,
        a thousandth of the accuracy where they are quadratures, a fifth of it where
        they are sampled.
    max_steps : int
        Integrator steps, at most.

    Notes
    -----
    Cost: some hundred evaluations of the averages. Of p neurons and k directions, terms
    of about 5 ns each: (p + k)³ quadratic, ¾ p²(p + k)² erf, 6 (p + k)⁴ ReLU with ReLU
    ridges, 2¹² p (p + k)/4 and more where sampled.

    Examples
    --------
    >>> ODE().name
    'ode'
    """

    averages: Averages = USUAL
    rtol: float | None = None
    max_steps: int = 100_000
    papers: ClassVar[tuple[str, ...]] = (
        "saad1995",
        "goldt2019",
        "veiga2022",
        "arnaboldi2023dimensionless",
    )

    def __post_init__(self) -> None:
        keep_averages(self)
        if self.rtol is not None:
            finite_number(
                "rtol", self.rtol, minimum=1e-14, accepted="a number from 1e-14 on"
            )
        keep_integers(self, 1, "max_steps")

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Only fresh samples, and only where the limit is a differential equation."""
        if algorithm.reused:
            return (
                f"samples are reused ({algorithm.reused}), so the fields depend on the"
                " whole past and no equation closes on the overlaps;"
                f" {instead_of_memory(algorithm)}"
            )
        rule = algorithm.rule
        reason = (
            layers_apart(algorithm)
            or memory_beyond(algorithm)
            or no_moment(problem, algorithm, 2)
        )
        reason = reason or unaveraged(rule) or two_laws(problem, algorithm)
        if reason is not None:
            return reason
        if rule is not None and rule.coordinates == "adam":
            return (
                "Adam divides every coordinate by its own scale, and the overlaps do"
                " not tell how these are spread"
            )
        if (
            rule is not None
            and rule.coordinates == "sign"
            and algorithm.batch != Scaling(1.0)
        ):
            return (
                "the sign of the mean of several gradients depends on all of them at"
                " once; with batch = 1 there is an equation, for weights that are"
                " spread over all coordinates"
            )
        if (
            rule is not None
            and rule.adapts is not None
            and (algorithm.delta != 1 or algorithm.mu != 0)
        ):
            return (
                "the sum of AdaGrad grows with d² only where lr is of order 1/d and"
                " batches are of order one"
            )
        regime = regime_of(algorithm)
        laws = f"lr = {algorithm.lr}, batch = {algorithm.batch}"
        if regime.name == "giant steps":
            return (
                f"with {laws} the steps stay of order one as d → ∞: the limit is a"
                " discrete map, that of GiantSteps"
            )
        if regime.name == "noise map":
            return (
                f"with {laws} every step changes the norms by order one: the limit is a"
                " discrete map, not an equation; Map iterates the mean step at a"
                " finite d where batches average, and Chain is exact"
            )
        if not regime.continuous:
            return (
                f"with {laws} (δ = {algorithm.delta:g}, μ = {algorithm.mu:g}) the norms"
                " blow up in one step as d → ∞; write the numbers of one dimension as"
                " laws, such as lr = 0.2/d"
            )
        return None

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Rules that are functions of the fields alone, and noise on the steps."""
        return rules_of_rotations(algorithm)

    def unit(self, algorithm: SGD) -> float:
        """In the pure noise regime the clock runs faster than t."""
        return regime_of(algorithm).unit

    def cost(self, task: Task) -> float:
        """A few hundred evaluations of the averages, or so, and as many more of a
        quarter where they are sampled.
        """
        averager = self._averager(task)
        return 0.1 + SECONDS_PER_TERM * (
            1.25 if averager.sampled else 1.0
        ) * averager.engine.work(task.problem.p)

    def compilation(self, task: Task) -> float:
        """That of the averages, most of it."""
        return compile_seconds(self._averager(task).engine)

    def _averager(self, task: Task) -> Averager:
        """The averages that a run begins with."""
        points = Precision.of(self).begun(task.problem).points
        return select(
            task.as_trained.problem,
            task.algorithm.mean_drive,
            self.averages.engine,
            log2_points=points,
        )

    def prepare(self, task: Task) -> Evolution:
        """Choose the engine at the start."""
        noisy = regime_of(task.algorithm).noise > 0

        def make(precision: Precision) -> tuple[AveragedMotion, Pace]:
            averaging = Averaging(task, precision, noisy)
            motion: Motion = ODEMotion(task, averaging)
            if (
                task.algorithm.rule is not None
                and task.algorithm.rule.adapts is not None
            ):
                motion = AdaptiveMotion(motion)
            control = (self.rtol or averaging.rtol, self.max_steps, precision.checked)
            return integrated(motion, *control, self.unit(task.algorithm))

        return averaged(make, Precision.of(self))
