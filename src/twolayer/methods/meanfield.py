"""Infinitely wide networks: neurons as particles that move in the field of their own
distribution.

    w = (m, w⊥),  q = |w⊥|²,  μ_t on (m, q) ∈ R^{k+1},    W = M P⁺ W* + W⊥
    dm/dt = E_Ξ[Ψ(Ω̃)],    dq/dt = E_Ξ[Ψ⊥(Ω̃)],    Q̃ = M P⁺ Mᵀ + D_√q Ξ D_√q,
        Ξ_ij = ⟨g_i, g_j⟩

with directions g uniform on the sphere of the orthogonal complement, dimension d − rank
P; Ξ = 1 for d → ∞. The part (γ/p) Ψ^Var of the dynamics is gone with p → ∞. In the
coordinates (P^{−1/2} m, √q) this is the gradient flow of the risk in the Wasserstein
metric, ∂_t μ = ∇·(μ ∇ δR/δμ); these are the coordinates integrated here. As d → ∞ the
output is a function of the target's fields alone, and the loss may be any.

Inputs with blocks, d → ∞: a particle is (m⁽ⁱ⁾, q⁽ⁱ⁾), i = 1, …, b, and ξ are fields of
the target's parts in blocks.

    λ = Σ_i √s_i A⁽ⁱ⁾·ξ⁽ⁱ⁾ + s g,    λ* = Σ_i √s_i L⁽ⁱ⁾ ξ⁽ⁱ⁾,    s² = Σ_i s_i q⁽ⁱ⁾
    dA⁽ⁱ⁾/dt = √s_i a E[σ'(λ) ξ⁽ⁱ⁾ e],    d√q⁽ⁱ⁾/dt = (s_i √q⁽ⁱ⁾/s) a E[σ'(λ) g e]

for what w⊥⁽ⁱ⁾ feels is along itself: orthogonal parts of two particles have no overlap
in any block.

Cost per evaluation of the right-hand side: O(particles) for quadratic tasks,
O(particles · nodes · orders) otherwise (gaussian/ensemble_rules.py); O(particles²) for
up to 2048 particles with closed pair averages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.equations.block_refusals import rules_of_rotations
from twolayer.equations.increment_kernel import Push
from twolayer.equations.optimiser_step import (
    Form,
    Layers,
    Limit,
    as_data,
    form_of,
    limit_in,
    row_motion,
)
from twolayer.gaussian.engines import SECONDS_PER_TERM
from twolayer.gaussian.ensemble import Cloud, Ensemble, Velocity
from twolayer.gaussian.ensemble_rules import INTERACTIONS, Fineness, Wide
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.risk import irreducible
from twolayer.loops.runge_kutta import Equation
from twolayer.loops.scheduled_flow import integrated
from twolayer.loops.windows import Motion, Pace, Windows
from twolayer.methods.ode import ODE
from twolayer.numerics.arguments import Json, Notes
from twolayer.numerics.errors import (
    InputError,
    choice,
    finite_number,
    keep_integers,
    positive_integer,
    require,
)
from twolayer.numerics.types import Number, Real
from twolayer.task.algorithm import SGD
from twolayer.task.averages import ACCURACY, USUAL, Averages, keep_averages
from twolayer.task.losses import Loss
from twolayer.task.method import Evolution, Measure, Method, Task, register_method
from twolayer.task.overlaps import factor_of, pseudo_inverse, rank_of
from twolayer.task.particles import Particles
from twolayer.task.problem import Problem
from twolayer.task.regimes import regime_of

__all__ = ["MeanField"]

# of a state that the integrator holds: its stages, and what the compiler keeps beside
# them
COPIES = 100
LOG2_POINTS = 14  # of the target fields


class BlockParts(NamedTuple):
    """Rows of particles in the blocks of the inputs: A (n, r) along the target's parts,
    s (n, b) beside them.

    ``scale`` (r,) is the standard deviation of each coordinate of A, ``variance`` (b,)
    that of each block squared.
    """

    scale: Real
    variance: Real

    def fields(self, y: Cloud) -> Cloud:
        """What the fields see of the rows, which no longer tells the blocks of the
        orthogonal parts.
        """
        return Cloud(
            y.A * self.scale, jnp.sqrt((self.variance * y.s**2).sum(-1)), y.a, y.weights
        )

    def push(self, y: Cloud, seen: Cloud, rates: Velocity) -> Array:
        """What the rows feel, (n, r + b): every coordinate by its own standard
        deviation.
        """
        share = self.variance * y.s / jnp.where(seen.s > 0, seen.s, 1.0)[:, None]
        return jnp.column_stack([rates.A * self.scale, share * rates.s[:, None]])


class Drift(Equation):
    """The velocity of every particle. A state is a Cloud; its weights do not move."""

    ensemble: Ensemble
    limit: Limit
    irreducible: Real
    L: Real
    neurons: Real
    parts: BlockParts | None
    form: Form = eqx.field(static=True)

    def size(self, y: Cloud) -> Real:
        """The largest squared norm."""
        beside = y.s**2 if self.parts is None else (y.s**2).sum(1)
        return jnp.maximum(((y.A**2).sum(1) + beside).max(), (y.a**2).max())

    def _fields(self, y: Cloud) -> Cloud:
        return y if self.parts is None else self.parts.fields(y)

    def watched(self, quantity: str | None, y: Cloud) -> Real:
        """What a threshold refers to; ‖M‖_F of p neurons distributed as the particles
        are.
        """
        if quantity is None:
            return jnp.zeros(())
        M = self._fields(y).A @ self.L.T
        if quantity == "overlap":
            return jnp.sqrt(self.neurons * (y.weights @ M**2).sum())
        if quantity == "alignment":
            return M[0, 0]
        return self.ensemble(self._fields(y)).excess_risk + (
            self.irreducible if quantity == "risk" else 0.0
        )

    def __call__(self, t: Number, y: Cloud, args: object = None) -> Cloud:
        """dy/dt."""
        seen = self._fields(y)
        rates = self.ensemble(seen)
        push = (
            jnp.column_stack([rates.A, rates.s])
            if self.parts is None
            else self.parts.push(y, seen, rates)
        )
        rows = Layers(
            jnp.column_stack([y.A, y.s]), y.a
        )  # a particle is a row of few coordinates
        moved = row_motion(self.form, self.limit, rows, Push(push, rates.a))
        r = y.A.shape[1]
        beside = moved.W[:, r] if self.parts is None else moved.W[:, r:]
        return Cloud(moved.W[:, :r], beside, moved.a, jnp.zeros_like(y.weights))


def _count(task: Task) -> int:
    """Particles of a task."""
    return task.start.n if isinstance(task.start, Particles) else task.start.p


@eqx.filter_jit
def _risks(drift: Drift, states: Cloud) -> Array:
    """Excess risks of states with leading axes (seeds, save points)."""
    return jax.lax.map(
        lambda row: jax.lax.map(lambda y: drift.watched("excess_risk", y), row), states
    )


class SharedFields(NamedTuple):
    """λ* = L ξ, L (k, r); of every block, L⁽ⁱ⁾ with P⁽ⁱ⁾ = L⁽ⁱ⁾L⁽ⁱ⁾ᵀ and its inverse;
    and the parts of particles.
    """

    L: np.ndarray
    inverses: list[np.ndarray]
    own: list[np.ndarray]
    parts: BlockParts | None


def frame_of(task: Task) -> SharedFields:
    """The fields that particles share with the target."""
    start, inputs = task.start, task.problem.inputs
    if inputs.plain or isinstance(start, Particles):
        L, inverse = target_frame(task.problem.P)
        return SharedFields(L, [inverse], [L], None)
    every = [factor_of(P) for P in start.P]
    root = np.sqrt(inputs.variances)
    own = [L for L, _ in every]
    scale = np.repeat(root, [L.shape[1] for L in own])
    L = np.concatenate([s * x for s, x in zip(root, own, strict=True)], axis=1)
    return SharedFields(
        L,
        [inverse for _, inverse in every],
        own,
        BlockParts(scale, np.asarray(inputs.variances)),
    )


class CloudMotion(Motion):
    """Particles of all starts; nodes and orders are refined along the way where their
    error grows.
    """

    def __init__(self, task: Task, method: MeanField) -> None:
        self.task, self.method = task, method
        self.frame = frame_of(task)
        self.cloud = self._starts()
        self.wide = method.wide(task, self.cloud.s.shape[1])
        if self.wide.dimension == 0 and self.cloud.s.max() > 1e-6:
            raise InputError(
                f"Argument `start` must have q = 0 at dim = {method.dim:g}, for the"
                " target directions fill the whole space, but has q ="
                f" {self.cloud.s.max() ** 2:.3g}."
            )
        self.fineness, self.worst = self._adapted(self.cloud, Fineness())

    def _adapted(self, clouds: Cloud, fineness: Fineness) -> tuple[Fineness, float]:
        """What the worst of several clouds needs, and its error."""
        errors = []
        for cloud in zip(*clouds, strict=True):
            seen = (
                Cloud(*cloud)
                if self.frame.parts is None
                else self.frame.parts.fields(Cloud(*cloud))
            )
            fineness, error = self.wide.adapt(seen, self.method.tolerance, fineness)
            errors.append(error)
        return fineness, max(errors)

    def _starts(self) -> Cloud:
        """A, √q, a and weights of all starts; the neurons of overlaps are particles of
        equal weight.
        """
        task, start = self.task, self.task.start
        if isinstance(start, Particles):
            a = (
                task.problem.replace(width=start.n).a(task.seed)
                if start.a is None
                else start.a
            )
            one = (
                start.m @ self.frame.inverses[0].T,
                np.sqrt(start.q),
                a,
                start.weights,
            )
            return Cloud(
                *(np.broadcast_to(x, (task.seeds, *x.shape)).copy() for x in one)
            )
        _, M, a = task.starts()
        if self.frame.parts is not None:
            Q, M = task.block_starts()
            A = [M[:, i] @ inverse.T for i, inverse in enumerate(self.frame.inverses)]
            apart = [
                np.diagonal(Q[:, i], axis1=-2, axis2=-1) - (x**2).sum(-1)
                for i, x in enumerate(A)
            ]
            beside = np.sqrt(np.maximum(np.stack(apart, -1), 0.0))
            return Cloud(
                np.concatenate(A, -1), beside, a, np.full_like(a, 1 / a.shape[1])
            )
        q = np.broadcast_to(np.diagonal(start.Q_perp, axis1=-2, axis2=-1), a.shape)
        return Cloud(
            M @ self.frame.inverses[0].T,
            np.sqrt(np.maximum(q, 0.0)),
            a,
            np.full_like(a, 1 / a.shape[1]),
        )

    def start(self) -> Cloud:
        """The particles of all starts."""
        return self.cloud

    def equation(self) -> Drift:
        """The ensemble at the present fineness."""
        problem, algorithm = self.task.problem, self.task.algorithm
        limit = as_data(limit_in(regime_of(algorithm), algorithm, problem.divisor))
        # arrays, not floats: they are data of the compiled code
        noise, L, neurons = (
            jnp.asarray(x, float)
            for x in (irreducible(problem), self.frame.L, problem.p)
        )
        parts = (
            None
            if self.frame.parts is None
            else BlockParts(*map(jnp.asarray, self.frame.parts))
        )
        return Drift(
            self.wide.build(self.fineness)[0],
            limit,
            noise,
            L,
            neurons,
            parts,
            form_of(algorithm).flow,
        )

    def refine(self, end: Cloud) -> bool:
        """Finer nodes or more orders, if the present ones are too coarse here."""
        fineness, error = self._adapted(end, self.fineness)
        changed, self.fineness = fineness != self.fineness, fineness
        self.worst = self.worst if changed else max(self.worst, error)
        return changed

    def seen(self, states: Cloud) -> Measure:
        """The measure: m, q, a, and the risk of the ensemble."""
        risk = np.asarray(_risks(self.equation(), Cloud(*map(jnp.asarray, states))))
        A, q, a = np.asarray(states.A), np.asarray(states.s) ** 2, np.asarray(states.a)
        if self.frame.parts is None:
            return Measure(A @ self.frame.L.T, q, a, risk)
        scale, variance = map(np.asarray, self.frame.parts)
        M = (scale * A) @ self.frame.L.T
        ends = np.cumsum([L.shape[1] for L in self.frame.own])[:-1]
        blocks = [
            x @ L.T for x, L in zip(np.split(A, ends, -1), self.frame.own, strict=True)
        ]
        norm = ((scale * A) ** 2).sum(-1) + q @ variance
        apart = norm - ((M @ pseudo_inverse(self.task.problem.P)) * M).sum(-1)
        return Measure(
            M,
            np.maximum(apart, 0.0),
            a,
            risk,
            np.stack(blocks, 2),
            np.moveaxis(q, -1, 2),
        )

    def notes(self, pace: Pace) -> Notes:
        """The rule and its error."""
        ensemble, _ = self.wide.build(self.fineness)
        return {
            "regime": "mean field",
            "engine": ensemble.label,
            "engine_error": self.worst,
        }


@register_method
@dataclass(frozen=True)
class MeanField(Method):
    """The limit p → ∞ of the gradient-flow part: neurons as particles (m, q), at
    dimension d or d → ∞.

    It starts from `Particles`, of any number and weight, or from the neurons of
    `Overlaps`. The dataset then has ``q`` (seed, time, neuron) and ``weight`` (neuron)
    beside M, a and the risks; a neuron is a particle.

    Parameters
    ----------
    dim : int or infinity
        d: overlaps of the orthogonal parts are averaged over directions uniform on
        their sphere. At infinity they vanish, and the equation is the high-dimensional
        mean field.
    self_interaction : bool
        Whether a particle's term with itself has correlation one, Ξ_ii = 1: the
        source's MF-ODE at finite p. It is exact at a random start, but no 1/p
        correction: later it is further from a network of p neurons than the default
        (docs/mean_field.md has numbers).
    interaction : str
        ``"auto"``, ``"nodes"`` over the target fields, O(particles), or ``"pairs"``,
        O(particles²).
    averages : Averages
        How accurate averages shall be: nodes and orders are refined until each is a
        hundred times as accurate as this (1e-4); and how many points stand for the
        target fields where these are too many for quadrature (2¹⁴). It has no engine
        and no effort.
    rtol : float
        Relative tolerance of the integrator.
    max_steps : int
        Integrator steps between two looks of the host.

    Examples
    --------
    >>> MeanField().dimension, MeanField(dim=100).dimension
    (None, 100)
    """

    dim: float = math.inf
    self_interaction: bool = False
    interaction: str = "auto"
    averages: Averages = USUAL
    rtol: float = 1e-7
    max_steps: int = 100_000
    papers: ClassVar[tuple[str, ...]] = (
        "arnaboldi2023dimensionless",
        "mei2018",
        "chizat2018",
    )
    takes_particles: ClassVar[bool] = True
    in_comparisons: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.dim, str | float) and self.dim in ("inf", math.inf):
            object.__setattr__(self, "dim", math.inf)
        else:
            object.__setattr__(self, "dim", positive_integer("dim", self.dim))
        require(
            isinstance(self.self_interaction, bool),
            "self_interaction",
            self.self_interaction,
            "True or False",
        )
        choice("interaction", self.interaction, INTERACTIONS)
        keep_averages(self, ("accuracy", "points"))
        finite_number(
            "rtol", self.rtol, minimum=1e-14, accepted="a number from 1e-14 on"
        )
        keep_integers(self, 1, "max_steps")

    @property
    def tolerance(self) -> float:
        """Relative error up to which nodes and orders are refined."""
        return (self.averages.accuracy or ACCURACY) / 100

    @property
    def dimension(self) -> int | None:
        """D, or None in the limit."""
        return None if math.isinf(self.dim) else int(self.dim)

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Where the ODE in blocks is refused."""
        return rules_of_rotations(algorithm)

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Where the ODE is refused, and where nothing of its gradient-flow part
        survives.
        """
        reason = ODE.refusal(problem, algorithm)
        if reason is not None:
            return reason
        if problem.divisor != problem.p:
            return (
                f"with normalisation = {problem.normalisation!r} the output of"
                " infinitely many neurons is infinite: a mean field is the mean over"
                " neurons"
            )
        if algorithm.rule is not None and not algorithm.rule.relabels:
            return (
                f"the rule {algorithm.rule} makes gradients that are not linear in the"
                " output of the network, so the average over the directions of all"
                " other neurons does not reduce to pairs"
            )
        if regime_of(algorithm).flow == 0:
            return (
                f"with lr = {algorithm.lr}, batch = {algorithm.batch} only the variance"
                " of single samples moves the weights, and that vanishes as 1/p: an"
                " infinitely wide network stands still"
            )
        return None

    def objection(self, problem: Problem, algorithm: SGD) -> str | None:
        """Pairs of fields have closed averages where the target is a sum of ridges and
        the loss quadratic.
        """
        if not problem.inputs.plain and self.dimension is not None:
            return (
                f"the inputs are {problem.inputs}, so orthogonal parts of neurons are"
                " not uniform on one sphere: use dim = inf, where they have no"
                " overlaps"
            )
        if algorithm.loss.student is None and (
            self.dimension is not None or self.self_interaction
        ):
            return (
                f"the loss {algorithm.loss.name!r} is not quadratic in the output, so"
                " the average over the directions of all other neurons does not reduce"
                " to pairs: use dim = inf, where outputs do not fluctuate"
            )
        if self.interaction == "pairs" and algorithm.loss.student is None:
            return (
                "interaction = 'pairs' sums averages of pairs, which the loss"
                f" {algorithm.loss.name!r} has not"
            )
        if self.interaction == "pairs" and problem.target.ridge is None:
            return (
                "interaction = 'pairs' sums closed averages of pairs of fields, but the"
                " target is no sum of ridges"
            )
        return super().objection(problem, algorithm)

    def wide(self, task: Task, particles: int) -> Wide:
        """What builds the average of a ``task`` over so many ``particles``."""
        frame = frame_of(task)
        return self.average(
            task.as_trained.problem,
            task.algorithm.loss,
            particles,
            None if frame.parts is None else frame.L,
        )

    def average(
        self,
        problem: Problem,
        loss: Loss,
        particles: int,
        frame: np.ndarray | None = None,
    ) -> Wide:
        """The same for a ``problem`` and a ``loss``, over so many ``particles`` and the
        fields of a ``frame``.
        """
        rest, own = self.dim - rank_of(problem.P), self.self_interaction
        if problem.labels.flips and loss.student is not None:
            # single samples play no role: only the mean label counts
            problem = problem.replace(
                target=problem.target.scaled(problem.labels.keep),
                gram=problem.P,
                flips=0.0,
            )
        return Wide(
            problem,
            loss,
            rest,
            particles,
            own,
            self.interaction,
            self.averages.log2_points or LOG2_POINTS,
            frame,
        )

    def cost(self, task: Task) -> float:
        """A hundred evaluations of the averages, or so."""
        return 0.5 + SECONDS_PER_TERM * self.wide(task, _count(task)).terms

    def footprint(self, task: Task) -> int:
        """Bytes: m, q and a at every save point, three times over, copies of the
        integrator, and one evaluation.
        """
        n, k = _count(task), task.problem.k * task.problem.inputs.count
        return int(
            24 * len(task.points) * n * (k + 2)
            + 8 * (COPIES * n * (k + 3) + self.wide(task, n).held)
        )

    def describe(self) -> Json:
        """The knobs as plain values; an infinite dimension as a word."""
        return {
            **super().describe(),
            "dim": "inf" if math.isinf(self.dim) else self.dim,
        }

    def prepare(self, task: Task) -> Evolution:
        """Choose nodes and orders at the start."""
        motion = CloudMotion(task, self)
        return Windows(*integrated(motion, self.rtol, self.max_steps))
