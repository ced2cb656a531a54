"""The gradient of the population loss in coordinates of the rows themselves.

    ḡ_j = a_j E[σ'(λ_j) e z] = Σ_l own_jl w_l + Σ_r star_jr w*_r
        (Stein; gaussian/engines.py)

Rectifiers, with u the rows of student and target, their weights c = (−s a/N, c*), r =
Σ_q c_q u_q, and S(x) = sin x − x cos x:

    ḡ_j = a_j { r/2 + (1/2π) Σ_q c_q [ ‖u_q‖ sin θ_jq ŵ_j − θ_jq u_q ] }
    E[e σ(λ_j)] = ½ w_j·r + (‖w_j‖/2π) Σ_q c_q ‖u_q‖ S(θ_jq)
    excess risk = ¼ ‖r‖² + (1/4π) Σ_qs c_q c_s ‖u_q‖ ‖u_s‖ S(θ_qs)

Angles between rows are θ = 2 atan2(‖û − û'‖, ‖û + û'‖), taken from coordinates whose
first ones span the target. So small angles keep all their digits, and a risk of 1e-20
is known as well as one of order one; in the overlaps Q and M it would drown in
rounding.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Gradient
from twolayer.equations.increment_kernel import Push
from twolayer.functions.activation import Activation
from twolayer.gaussian.engines import (
    LOG2_POINTS,
    ORDERS,
    ROUNDING,
    Averager,
    Engine,
    select,
)
from twolayer.gaussian.nodes import target_frame
from twolayer.numerics.types import (
    Cross,
    Gram,
    Layer,
    Number,
    Numbers,
    Real,
    Scalar,
    Tree,
)
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem

__all__ = ["Descent", "descent_of", "gradient_error", "sine_excess"]

TWO_PI = 2 * math.pi
SERIES_BELOW, TERMS = 0.5, 8


def sine_excess(x: Numbers) -> Numbers:
    """S(x) = sin x − x cos x, by its series x³/3 − x⁵/30 + … where the difference would
    cancel.

    Examples
    --------
    >>> round(float(sine_excess(np.pi)), 6)
    3.141593
    """
    x = jnp.asarray(x)
    series = jnp.zeros_like(x)
    for n in range(TERMS, 0, -1):
        series = (-1.0) ** (n + 1) * 2 * n / math.factorial(2 * n + 1) + x**2 * series
    return jnp.where(x < SERIES_BELOW, x**3 * series, jnp.sin(x) - x * jnp.cos(x))


class Descent(eqx.Module):
    """(rows, a) → ḡ and E[e σ]; rows (p, n) in an orthonormal basis whose first vectors
    span the target's rows L.
    """

    L: np.ndarray

    @abc.abstractmethod
    def __call__(self, rows: Real, a: Layer, noise: Scalar) -> Push:
        """The mean gradient of the first layer, in the coordinates of the rows, and
        that of the second.
        """

    @abc.abstractmethod
    def excess_risk(self, rows: Real, a: Layer) -> Numbers:
        """½ E[(h − f)²]."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Which rules are used, for reports."""

    def irreducible(self, noise: Scalar) -> Number:
        """What the risk contains beyond that."""
        return noise / 2

    def overlaps(self, rows: Real) -> tuple[Numbers, Numbers]:
        """Q and M of the rows."""
        return rows @ rows.T, rows[:, : self.L.shape[1]] @ self.L.T

    def orthogonal(self, rows: Real) -> Numbers:
        """Q⊥, the overlaps of what is orthogonal to the target."""
        outside = rows[:, self.L.shape[1] :]
        return outside @ outside.T


class SteinDescent(Descent):
    """Any task: the combination of rows that its engine gives. Cost that of the
    engine's averages without chi.
    """

    engine: Engine
    risk_engine: Engine

    @property
    def label(self) -> str:
        """Which rules are used."""
        return self.engine.label.split(";")[0]

    def __call__(self, rows: Real, a: Layer, noise: Scalar) -> Push:
        """The mean gradients."""
        gradient = self.engine.gradient(*self.overlaps(rows), a, noise)
        star = jnp.pad(
            jnp.asarray(self.L), ((0, 0), (0, rows.shape[1] - self.L.shape[1]))
        )
        return Push(gradient.own @ rows + gradient.star @ star, gradient.second)

    def excess_risk(self, rows: Real, a: Layer) -> Numbers:
        """½ E[(h − f)²]."""
        return self.risk_engine(*self.overlaps(rows), a, 0.0).excess_risk

    def irreducible(self, noise: Scalar) -> Number:
        """What the risk contains beyond that."""
        return self.risk_engine.irreducible(noise)


class ReluDescent(Descent):
    """Rectifiers learning a sum of rectifiers. Cost O(p (p + ridges) n)."""

    student: float = eqx.field(static=True)
    divisor: float = eqx.field(static=True)
    ridges: np.ndarray
    c: np.ndarray
    label: ClassVar[str] = "closed form (relu)"

    def _fields(
        self, rows: Real, a: Layer, student: float
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Rows of all fields, their weights, norms and directions."""
        star = jnp.pad(
            jnp.asarray(self.ridges),
            ((0, 0), (0, rows.shape[1] - self.ridges.shape[1])),
        )
        u = jnp.concatenate([rows, star])
        norm = jnp.sqrt((u * u).sum(-1))
        return (
            u,
            jnp.concatenate([-student * a / self.divisor, self.c]),
            norm,
            u / norm[:, None],
        )

    def __call__(self, rows: Real, a: Layer, noise: Scalar) -> Push:
        """The mean gradients."""
        p = len(rows)
        u, c, norm, unit = self._fields(rows, a, self.student)
        theta, sine = angles(unit[:p, None], unit[None])
        residual = (c[:, None] * u).sum(0)
        bend = (sine * (c * norm)).sum(1)
        turn = ((c * theta)[:, :, None] * u[None]).sum(1)
        first = a[:, None] * (residual / 2 + (bend[:, None] * unit[:p] - turn) / TWO_PI)
        excess = sine_excess(theta) @ (c * norm)
        return Push(first, rows @ residual / 2 + norm[:p] * excess / TWO_PI)

    def excess_risk(self, rows: Real, a: Layer) -> Numbers:
        """½ E[(h − f)²]."""
        u, c, norm, unit = self._fields(rows, a, 1.0)
        i, j = np.triu_indices(
            len(u), 1
        )  # a row has no angle to itself, nor a derivative of it
        theta, _ = angles(unit[i], unit[j])
        weight = c * norm
        return ((c[:, None] * u).sum(0) ** 2).sum() / 4 + (
            weight[i] * weight[j]
        ) @ sine_excess(theta) / TWO_PI


def angles(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Angles between unit vectors, and their sines, precise near 0 and near π."""
    apart, together = jnp.sqrt(((x - y) ** 2).sum(-1)), jnp.sqrt(((x + y) ** 2).sum(-1))
    return 2 * jnp.arctan2(apart, together), apart * together / 2


@eqx.filter_jit
def _gradient(engine: Engine, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Gradient:
    return engine.gradient(Q, M, a, noise)


def _change(engine: Engine, other: Engine, *point: Tree) -> float:
    """The largest difference of two gradients at (Q, M, a, Δ), relative to their
    largest coefficient.
    """
    one, two = (
        _gradient(x, *(jnp.asarray(y, float) for y in point)) for x in (engine, other)
    )
    size = max(float(jnp.abs(x).max()) for x in one)
    return max(
        float(jnp.abs(x - y).max()) for x, y in zip(one, two, strict=True)
    ) / max(size, 1e-300)


def _truncation(averager: Averager, *point: Tree) -> float:
    """The same for what is truncated in the engine."""
    return 0.0 if averager.probe is None else _change(*averager.probe, *point)


def gradient_error(descent: Descent, averager: Averager, *point: Tree) -> float:
    """The relative error of the mean gradient at (Q, M, a, Δ): by a coarser rule, and
    by other sampled points.
    """
    if isinstance(descent, ReluDescent):
        return ROUNDING
    sampled = [
        _change(averager.engine, other, *point) for other in averager.scrambled()
    ]
    return max([*sampled, _truncation(averager, *point)]) + ROUNDING


def descent_of(
    problem: Problem,
    loss: Loss | str,
    Q: np.ndarray,
    M: np.ndarray,
    a: np.ndarray,
    *,
    engine: str = "auto",
    tolerance: float = 1e-6,
    log2_points: int = LOG2_POINTS,
) -> tuple[Descent, Averager]:
    """The mean gradient of a problem, and the averages behind it: rectifiers in closed
    form, others by their engine.

    Quadratures are refined until the gradient at (Q, M, a) has stopped changing,
    relative to its largest coefficient.
    """
    loss, (L, _) = Loss.of(loss), target_frame(problem.P)
    averager = select(problem, loss, engine, log2_points=log2_points)
    ridge, relu = problem.target.ridge, Activation.of("relu")
    both = ridge is not None and problem.activation == relu == ridge.activation
    if (
        both
        and engine == "auto"
        and loss.student is not None
        and not problem.labels.flips
    ):
        assert ridge is not None
        rows, weights = np.array(ridge.directions) @ L, np.array(ridge.weights)
        return ReluDescent(L, loss.student, problem.divisor, rows, weights), averager
    for order in ORDERS:
        averager = select(problem, loss, engine, order, log2_points)
        if _truncation(averager, Q, M, a, problem.noise) <= tolerance:
            break
    return SteinDescent(
        L,
        averager.engine,
        select(problem, "squared", order=order, log2_points=log2_points).engine,
    ), averager
