"""Infinitely wide networks: neurons as particles that move in the field of their own distribution.

    w = (m, w⊥),  q = |w⊥|²,  μ_t on (m, q) ∈ R^{k+1},    W = M P⁺ W* + W⊥
    dm/dt = E_Ξ[Ψ(Ω̃)],    dq/dt = E_Ξ[Ψ⊥(Ω̃)],    Q̃ = M P⁺ Mᵀ + D_√q Ξ D_√q,    Ξ_ij = ⟨g_i, g_j⟩

with directions g uniform on the sphere of the orthogonal complement, dimension d − rank P; Ξ = 1 for d → ∞. The part
(γ/p) Ψ^Var of the dynamics is gone with p → ∞. In the coordinates (P^{−1/2} m, √q) this is the gradient flow of the
risk in the Wasserstein metric, ∂_t μ = ∇·(μ ∇ δR/δμ); these are the coordinates integrated here. As d → ∞ the output
is a function of the target's fields alone, and the loss may be any.

Cost per evaluation of the right-hand side: O(particles) for quadratic tasks, O(particles · nodes · orders) otherwise
(gaussian/ensemble_rules.py); O(particles²) for up to 2048 particles with closed pair averages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.equations.increment_kernel import Push
from twolayer.equations.optimiser_step import Form, Layers, Limit, as_data, form_of, limit_in, row_motion
from twolayer.gaussian.engines import SECONDS_PER_TERM
from twolayer.gaussian.ensemble import Cloud, Ensemble
from twolayer.gaussian.ensemble_rules import INTERACTIONS, Fineness, Wide
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.risk import irreducible
from twolayer.loops.runge_kutta import Equation
from twolayer.loops.scheduled_flow import integrated
from twolayer.loops.windows import Motion, Pace, Windows
from twolayer.methods.ode import ODE
from twolayer.numerics.arguments import Json, Notes
from twolayer.numerics.errors import InputError, choice, finite_number, keep_integers, positive_integer, require
from twolayer.numerics.types import Number, Real
from twolayer.task.algorithm import SGD
from twolayer.task.losses import Loss
from twolayer.task.method import Evolution, Measure, Method, Task, register_method
from twolayer.task.overlaps import rank_of
from twolayer.task.particles import Particles
from twolayer.task.problem import Problem
from twolayer.task.regimes import regime_of

__all__ = ["MeanField"]

COPIES = 100  # of a state that the integrator holds: its stages, and what the compiler keeps beside them


class Drift(Equation):
    """The velocity of every particle. A state is a Cloud; its weights do not move."""

    ensemble: Ensemble
    limit: Limit
    irreducible: Real
    L: Real
    neurons: Real
    form: Form = eqx.field(static=True)

    def size(self, y: Cloud) -> Real:
        """The largest squared norm."""
        return jnp.maximum(((y.A**2).sum(1) + y.s**2).max(), (y.a**2).max())

    def watched(self, quantity: str | None, y: Cloud) -> Real:
        """What a threshold refers to; ‖M‖_F of p neurons distributed as the particles are."""
        if quantity is None:
            return jnp.zeros(())
        M = y.A @ self.L.T
        if quantity == "overlap":
            return jnp.sqrt(self.neurons * (y.weights @ M**2).sum())
        if quantity == "alignment":
            return M[0, 0]
        return self.ensemble(y).excess_risk + (self.irreducible if quantity == "risk" else 0.0)

    def __call__(self, t: Number, y: Cloud, args: object = None) -> Cloud:
        """dy/dt."""
        rates = self.ensemble(y)
        rows = Layers(jnp.column_stack([y.A, y.s]), y.a)  # a particle is a row of k + 1 coordinates
        moved = row_motion(self.form, self.limit, rows, Push(jnp.column_stack([rates.A, rates.s]), rates.a))
        return Cloud(moved.W[:, :-1], moved.W[:, -1], moved.a, jnp.zeros_like(y.weights))


def _count(task: Task) -> int:
    """Particles of a task."""
    return task.start.n if isinstance(task.start, Particles) else task.start.p


@eqx.filter_jit
def _risks(ensemble: Ensemble, states: Cloud) -> Array:
    """Excess risks of states with leading axes (seeds, save points)."""
    return jax.lax.map(lambda row: jax.lax.map(lambda y: ensemble(y).excess_risk, row), states)


class CloudMotion(Motion):
    """Particles of all starts; nodes and orders are refined along the way where their error grows."""

    def __init__(self, task: Task, method: MeanField) -> None:
        self.task, self.method = task, method
        self.L, self.inverse = target_frame(task.problem.P)
        self.cloud = self._starts()
        self.wide = method.wide(task, self.cloud.s.shape[1])
        if self.wide.dimension == 0 and self.cloud.s.max() > 1e-6:
            raise InputError(
                f"Argument `start` must have q = 0 at dim = {method.dim:g}, for the target directions fill the whole "
                f"space, but has q = {self.cloud.s.max() ** 2:.3g}."
            )
        self.fineness, self.worst = self._adapted(self.cloud, Fineness())

    def _adapted(self, clouds: Cloud, fineness: Fineness) -> tuple[Fineness, float]:
        """What the worst of several clouds needs, and its error."""
        errors = []
        for cloud in zip(*clouds, strict=True):
            fineness, error = self.wide.adapt(Cloud(*cloud), self.method.tolerance, fineness)
            errors.append(error)
        return fineness, max(errors)

    def _starts(self) -> Cloud:
        """A, √q, a and weights of all starts; the neurons of overlaps are particles of equal weight."""
        task, start = self.task, self.task.start
        if isinstance(start, Particles):
            a = task.problem.replace(width=start.n).a(task.seed) if start.a is None else start.a
            one = (start.m @ self.inverse.T, np.sqrt(start.q), a, start.weights)
            return Cloud(*(np.broadcast_to(x, (task.seeds, *x.shape)).copy() for x in one))
        _, M, a = task.starts()
        q = np.broadcast_to(np.diagonal(start.Q_perp, axis1=-2, axis2=-1), a.shape)
        return Cloud(M @ self.inverse.T, np.sqrt(np.maximum(q, 0.0)), a, np.full_like(a, 1 / a.shape[1]))

    def start(self) -> Cloud:
        """The particles of all starts."""
        return self.cloud

    def equation(self) -> Drift:
        """The ensemble at the present fineness."""
        problem, algorithm = self.task.problem, self.task.algorithm
        limit = as_data(limit_in(regime_of(algorithm), algorithm, problem.divisor))
        # arrays, not floats: they are data of the compiled code
        noise, L, neurons = (jnp.asarray(x, float) for x in (irreducible(problem), self.L, problem.p))
        return Drift(self.wide.build(self.fineness)[0], limit, noise, L, neurons, form_of(algorithm).flow)

    def refine(self, end: Cloud) -> bool:
        """Finer nodes or more orders, if the present ones are too coarse here."""
        fineness, error = self._adapted(end, self.fineness)
        changed, self.fineness = fineness != self.fineness, fineness
        self.worst = self.worst if changed else max(self.worst, error)
        return changed

    def seen(self, states: Cloud) -> Measure:
        """The measure: m, q, a, and the risk of the ensemble."""
        risk = np.asarray(_risks(self.equation().ensemble, Cloud(*map(jnp.asarray, states))))
        return Measure(np.asarray(states.A) @ self.L.T, np.asarray(states.s) ** 2, np.asarray(states.a), risk)

    def notes(self, pace: Pace) -> Notes:
        """The rule and its error."""
        ensemble, _ = self.wide.build(self.fineness)
        return {"regime": "mean field", "engine": ensemble.label, "engine_error": self.worst}


@register_method
@dataclass(frozen=True)
class MeanField(Method):
    """The limit p → ∞ of the gradient-flow part: neurons as particles (m, q), at dimension d or d → ∞.

    It starts from `Particles`, of any number and weight, or from the neurons of `Overlaps`. The dataset then has
    ``q`` (seed, time, neuron) and ``weight`` (neuron) beside M, a and the risks; a neuron is a particle.

    Parameters
    ----------
    dim : int or infinity
        d: overlaps of the orthogonal parts are averaged over directions uniform on their sphere. At infinity they
        vanish, and the equation is the high-dimensional mean field.
    self_interaction : bool
        Whether a particle's term with itself has correlation one, Ξ_ii = 1: the source's MF-ODE at finite p. It is
        exact at a random start, but no 1/p correction: later it is further from a network of p neurons than the
        default (docs/mean_field.md has numbers).
    interaction : str
        ``"auto"``, ``"nodes"`` over the target fields, O(particles), or ``"pairs"``, O(particles²).
    rtol : float
        Relative tolerance of the integrator.
    tolerance : float
        Relative error up to which nodes and orders are refined.
    log2_points : int
        Sobol points of the target fields, as a power of two, where these are too many for quadrature.
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
    rtol: float = 1e-7
    tolerance: float = 1e-6
    log2_points: int = 14
    max_steps: int = 100_000
    papers: ClassVar[tuple[str, ...]] = ("arnaboldi2023dimensionless", "mei2018", "chizat2018")
    takes_particles: ClassVar[bool] = True
    in_comparisons: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.dim, str | float) and self.dim in ("inf", math.inf):
            object.__setattr__(self, "dim", math.inf)
        else:
            object.__setattr__(self, "dim", positive_integer("dim", self.dim))
        require(isinstance(self.self_interaction, bool), "self_interaction", self.self_interaction, "True or False")
        choice("interaction", self.interaction, INTERACTIONS)
        for name in ("rtol", "tolerance"):
            finite_number(name, getattr(self, name), minimum=1e-14, accepted="a number from 1e-14 on")
        keep_integers(self, 4, "log2_points")
        keep_integers(self, 1, "max_steps")

    @property
    def dimension(self) -> int | None:
        """D, or None in the limit."""
        return None if math.isinf(self.dim) else int(self.dim)

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Particles have overlaps of whole rows."""
        return (
            f"the inputs are {problem.inputs}, and a neuron is followed here by the overlaps and the norm of its whole "
            "row, not by those of its parts in the blocks"
        )

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Where the ODE is refused, and where nothing of its gradient-flow part survives."""
        reason = ODE.refusal(problem, algorithm)
        if reason is not None:
            return reason
        if problem.divisor != problem.p:
            return (
                f"with normalisation = {problem.normalisation!r} the output of infinitely many neurons is infinite: a "
                "mean field is the mean over neurons"
            )
        if algorithm.rule is not None and not algorithm.rule.relabels:
            return (
                f"the rule {algorithm.rule} makes gradients that are not linear in the output of the network, so the "
                "average over the directions of all other neurons does not reduce to pairs"
            )
        if regime_of(algorithm).flow == 0:
            return (
                f"with lr = {algorithm.lr}, batch = {algorithm.batch} only the variance of single samples moves the "
                "weights, and that vanishes as 1/p: an infinitely wide network stands still"
            )
        return None

    def objection(self, problem: Problem, algorithm: SGD) -> str | None:
        """Pairs of fields have closed averages where the target is a sum of ridges and the loss quadratic."""
        if algorithm.loss.student is None and (self.dimension is not None or self.self_interaction):
            return (
                f"the loss {algorithm.loss.name!r} is not quadratic in the output, so the average over the directions "
                "of all other neurons does not reduce to pairs: use dim = inf, where outputs do not fluctuate"
            )
        if self.interaction == "pairs" and algorithm.loss.student is None:
            return f"interaction = 'pairs' sums averages of pairs, which the loss {algorithm.loss.name!r} has not"
        if self.interaction == "pairs" and problem.target.ridge is None:
            return "interaction = 'pairs' sums closed averages of pairs of fields, but the target is no sum of ridges"
        return super().objection(problem, algorithm)

    def wide(self, task: Task, particles: int) -> Wide:
        """What builds the average of a ``task`` over so many ``particles``."""
        return self.average(task.as_trained.problem, task.algorithm.loss, particles)

    def average(self, problem: Problem, loss: Loss, particles: int) -> Wide:
        """The same for a ``problem`` and a ``loss``, over so many ``particles``."""
        rest, own = self.dim - rank_of(problem.P), self.self_interaction
        if problem.labels.flips and loss.student is not None:
            # single samples play no role: only the mean label counts
            problem = problem.replace(target=problem.target.scaled(problem.labels.keep), gram=problem.P, flips=0.0)
        return Wide(problem, loss, rest, particles, own, self.interaction, self.log2_points)

    def cost(self, task: Task) -> float:
        """A hundred evaluations of the averages, or so."""
        return 0.5 + SECONDS_PER_TERM * self.wide(task, _count(task)).terms

    def footprint(self, task: Task) -> int:
        """Bytes: m, q and a at every save point, three times over, copies of the integrator, and one evaluation."""
        n, k = _count(task), task.problem.k
        return int(24 * len(task.points) * n * (k + 2) + 8 * (COPIES * n * (k + 3) + self.wide(task, n).held))

    def describe(self) -> Json:
        """The knobs as plain values; an infinite dimension as a word."""
        return {**super().describe(), "dim": "inf" if math.isinf(self.dim) else self.dim}

    def prepare(self, task: Task) -> Evolution:
        """Choose nodes and orders at the start."""
        motion = CloudMotion(task, self)
        return Windows(*integrated(motion, self.rtol, self.max_steps))
