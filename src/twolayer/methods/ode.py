"""The limit d → ∞ of the overlaps: a deterministic differential equation in every continuous regime.

    dM/dt = f1·psi − pλ M,    dQ/dt = f1·(phi + phiᵀ) + f2·(γ0/(p n0)) chi − 2pλ Q,    da/dt = f1·second

f1, f2 and the geometry are the limit of the step (equations/step.py); the regime (task/regimes.py) decides which parts
survive. In the pure noise regime the clock is t·d^(1−μ−δ). In every continuous regime spherical and projected weights
have the same limit.

Cost: evaluations of the averages, O((p + k)³) for quadratic, O(p²(p + k)²) for erf, O(nodes · p²) when sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from twolayer.equations.state import Overlap
from twolayer.equations.step import Form, Limit, form_of, limit_in, motion
from twolayer.gaussian.engines import ENGINES, LOG2_POINTS, SECONDS_PER_TERM, Engine, terms
from twolayer.loops.averaged import AveragedEvolution, Precision
from twolayer.loops.flow import Equation
from twolayer.loops.watching import watched_value
from twolayer.numerics.errors import choice, finite_number, positive_integer
from twolayer.task.algorithm import SGD
from twolayer.task.method import Evolution, Method, Task, register_method
from twolayer.task.problem import Problem
from twolayer.task.regimes import regime_of

__all__ = ["ODE"]


class Field(Equation):
    """The right-hand side: an engine, and what the step makes of its averages."""

    engine: Engine
    limit: Limit
    label_noise: Any
    form: Form = eqx.field(static=True)
    watcher: Engine | None = None
    noisy: bool = eqx.field(static=True, default=True)  # False: the second-order part is not even computed

    def size(self, y: Overlap) -> Any:
        """The largest squared norm."""
        return jnp.maximum(jnp.diagonal(y.Q).max(), (y.a**2).max())

    def watched(self, quantity: str | None, y: Overlap) -> Any:
        """What a threshold refers to."""
        return watched_value(quantity, self.watcher, y.Q, y.M, y.a, self.label_noise)

    def __call__(self, t: Any, y: Overlap, args: Any = None) -> Overlap:
        """dy/dt."""
        average = self.engine((y.Q + y.Q.T) / 2, y.M, y.a, self.label_noise)
        return motion(self.form, self.limit, y, average, self.noisy)


def as_data(limit: Limit) -> Limit:
    """Arrays, not floats: numbers that are data of compiled code, which runs at all rates then share."""
    return Limit(*(jnp.asarray(x, float) for x in limit))


def field_of(engine: Engine, problem: Problem, algorithm: SGD, watcher: Engine | None = None) -> Field:
    """The right-hand side in the regime of an algorithm."""
    regime = regime_of(algorithm)
    limit, noise = as_data(limit_in(regime, algorithm, problem.p)), jnp.asarray(problem.noise, float)
    return Field(engine, limit, noise, form_of(algorithm), watcher, regime.noise > 0)


class ODEEvolution(AveragedEvolution):
    """Overlaps of all starts."""

    def equation(self) -> Field:
        """Averages at the present order, with the rates of the regime."""
        return field_of(self.averager.engine, self.task.problem, self.task.algorithm, self.watcher)

    def notes(self) -> dict[str, Any]:
        """The regime too."""
        return {"regime": regime_of(self.task.algorithm).name, **super().notes()}


@register_method
@dataclass(frozen=True)
class ODE(Method):
    """The deterministic limit d → ∞ of the overlaps, in the regime that the scaling laws of lr and batch select.

    Parameters
    ----------
    engine : str
        How Gaussian averages are taken: ``"auto"``, ``"quadrature"`` or ``"sobol"``.
    rtol : float, optional
        Relative tolerance of the integrator; 1e-8, or 1e-6 where averages are sampled.
    tolerance : float
        Relative error up to which quadratures are refined.
    log2_points : int
        Sobol points, as a power of two.
    max_steps : int
        Integrator steps between two looks of the host.

    Examples
    --------
    >>> ODE().name
    'ode'
    """

    engine: str = "auto"
    rtol: float | None = None
    tolerance: float = 1e-6
    log2_points: int = LOG2_POINTS
    max_steps: int = 100_000
    papers: ClassVar[tuple[str, ...]] = ("saad1995", "goldt2019", "veiga2022", "arnaboldi2023dimensionless")

    def __post_init__(self) -> None:
        choice("engine", self.engine, ENGINES)
        for name in ("rtol", "tolerance"):
            value = getattr(self, name)
            if value is not None:
                finite_number(name, value, minimum=1e-14, accepted="a number from 1e-14 on")
        positive_integer("log2_points", self.log2_points, 4)
        positive_integer("max_steps", self.max_steps)

    def refusal(self, problem: Problem, algorithm: SGD) -> str | None:
        """Only fresh samples, and only where the limit is a differential equation."""
        if algorithm.dataset is not None:
            return (
                f"samples are reused (dataset = {algorithm.dataset}), so the fields depend on the whole past and no "
                "equation closes on the overlaps; DMFT is the theory of reused batches of order d with lr of order one"
            )
        regime = regime_of(algorithm)
        laws = f"lr = {algorithm.lr}, batch = {algorithm.batch}"
        if regime.name == "giant steps":
            return f"with {laws} the steps stay of order one as d → ∞: the limit is a discrete map, that of GiantSteps"
        if regime.name == "noise map":
            return (
                f"with {laws} every step changes the norms by order one: the limit is a discrete map, not an "
                "equation; Map iterates the mean step at a finite d where batches average, and Chain is exact"
            )
        if not regime.continuous:
            return (
                f"with {laws} (δ = {algorithm.delta:g}, μ = {algorithm.mu:g}) the norms blow up in one step as d → ∞; "
                "write the numbers of one dimension as laws, such as lr = 0.2/d"
            )
        return None

    def unit(self, algorithm: SGD) -> float:
        """In the pure noise regime the clock runs faster than t."""
        return regime_of(algorithm).unit

    def cost(self, task: Task) -> float:
        """A hundred evaluations of the averages, or so."""
        return 0.3 + SECONDS_PER_TERM * terms(task.problem, self.engine, self.log2_points)

    def prepare(self, task: Task) -> Evolution:
        """Choose the engine at the start."""
        precision = Precision(self.engine, self.tolerance, self.log2_points)
        return ODEEvolution(task, precision, self.rtol, self.max_steps)
