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
from twolayer.gaussian.engines import SECONDS_PER_TERM, Averager, Engine, compile_seconds, select
from twolayer.loops.averaged import AveragedEvolution, Precision, check_precision
from twolayer.loops.flow import Equation
from twolayer.loops.watching import watched_value
from twolayer.numerics.errors import finite_number, positive_integer
from twolayer.task.algorithm import SGD
from twolayer.task.method import Evolution, Method, Task, register_method
from twolayer.task.problem import Problem
from twolayer.task.regimes import instead_of_memory, regime_of

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
    return Field(engine, limit, noise, form_of(algorithm).flow, watcher, regime.noise > 0)


class ODEEvolution(AveragedEvolution):
    """Overlaps of all starts."""

    def remade(self, precision: Precision) -> ODEEvolution:
        """The same with another precision."""
        return ODEEvolution(self.task, precision, self.rtol, self.max_steps)

    @property
    def noisy(self) -> bool:
        """Whether chi survives in this regime."""
        return regime_of(self.task.algorithm).noise > 0

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
    accuracy : float
        Error of the risk that is aimed at where averages are sampled, relative to the risk of a student that says
        nothing. Quadratures are refined until every average is a hundred times as accurate. Closed forms are exact.
    effort : float
        How much work sampled averages may cost; 1 is about twenty seconds of one core. Where it does not suffice for
        the accuracy, an `AccuracyWarning` tells the error that was reached.
    rtol : float, optional
        Relative tolerance of the integrator; by default 1e-8 where averages are closed, a thousandth of the accuracy
        where they are quadratures, a fifth of it where they are sampled.
    log2_points : int, optional
        Sobol points, as a power of two, instead of as many as the accuracy asks for.
    max_steps : int
        Integrator steps, at most.

    Notes
    -----
    Cost: some hundred evaluations of the averages. Of p neurons and k directions, terms of about 5 ns each:
    (p + k)³ quadratic, ¾ p²(p + k)² erf, 6 (p + k)⁴ ReLU with ReLU ridges, 2¹² p (p + k)/4 and more where sampled.

    Examples
    --------
    >>> ODE().name
    'ode'
    """

    engine: str = "auto"
    accuracy: float = 1e-4
    effort: float = 1.0
    rtol: float | None = None
    log2_points: int | None = None
    max_steps: int = 100_000
    papers: ClassVar[tuple[str, ...]] = ("saad1995", "goldt2019", "veiga2022", "arnaboldi2023dimensionless")

    def __post_init__(self) -> None:
        check_precision(self)
        if self.rtol is not None:
            finite_number("rtol", self.rtol, minimum=1e-14, accepted="a number from 1e-14 on")
        positive_integer("max_steps", self.max_steps)

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Only fresh samples, and only where the limit is a differential equation."""
        if algorithm.dataset is not None:
            return (
                f"samples are reused (dataset = {algorithm.dataset}), so the fields depend on the whole past and no "
                f"equation closes on the overlaps; {instead_of_memory(algorithm)}"
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
        """A few hundred evaluations of the averages, or so, and as many more of a quarter where they are sampled."""
        averager = self._averager(task)
        return 0.1 + SECONDS_PER_TERM * (1.25 if averager.sampled else 1.0) * averager.engine.work(task.problem.p)

    def compilation(self, task: Task) -> float:
        """That of the averages, most of it."""
        return compile_seconds(self._averager(task).engine)

    def _averager(self, task: Task) -> Averager:
        """The averages that a run begins with."""
        points = self._precision.begun(task.problem).points
        return select(task.problem, task.algorithm.loss, self.engine, log2_points=points)

    @property
    def _precision(self) -> Precision:
        return Precision(self.engine, self.accuracy, self.effort, self.log2_points)

    def prepare(self, task: Task) -> Evolution:
        """Choose the engine at the start."""
        return ODEEvolution(task, self._precision, self.rtol, self.max_steps)
