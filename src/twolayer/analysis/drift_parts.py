"""The two parts of the equation of motion at a point, each by its name.

    dM/dt = Ψ,    dQ/dt = Ψ^GF + (γ/p) Ψ^Var,    Ψ = psi,  Ψ^GF = phi + phiᵀ,
        Ψ^Var = chi
    gradient flow: what gradient descent on the risk does;
        variance: what the spread of single samples adds
    increments of one step ~ (lr/p) ( E𝒳, Σ/n_b ),
        Σ = Cov 𝒳 of one sample, 𝒳 = (M, Q, a); normalised: J Σ Jᵀ

The regime of lr and batch weighs them: both on the Saad–Solla line, the first alone in
gradient flow, the second alone in pure noise. As p → ∞ the second vanishes as 1/p.
Normalised weights subtract from each part its own radial motion, M_jr dQ_jj/2 and Q_jl
(dQ_jj + dQ_ll)/2, so that the parts still add up.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twolayer.equations.optimiser_step import form_of, limit_in, tangent
from twolayer.equations.state import Overlap
from twolayer.gaussian.engines import LOG2_POINTS, adapt, relative_error
from twolayer.gaussian.increment_covariance import closed_covariance, spread_of
from twolayer.gaussian.moments import check_point
from twolayer.gaussian.single_samples import choose_for
from twolayer.methods.ode import ODE
from twolayer.numerics.errors import Refused, expect
from twolayer.numerics.precision import float64
from twolayer.pure import VectorField, field_with
from twolayer.running.support import check_description
from twolayer.task.algorithm import SGD
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.regimes import regime_of

__all__ = ["Part", "Rates", "rates"]

FINE = 0.003  # relative error asked of a covariance that is taken once


class Part(NamedTuple):
    """dM/dt (p, k), dQ/dt (p, p) and da/dt (p,), of one part of the motion."""

    M: np.ndarray
    Q: np.ndarray
    a: np.ndarray


@dataclass(frozen=True, eq=False)
class Rates:
    """The two parts of the ODE at one point. Made by `rates`.

    Attributes
    ----------
    gradient_flow : Part
        Ψ and Ψ^GF, with weight decay if there is any.
    variance : Part
        (γ/p) Ψ^Var, with its factor γ0/(p n0).
    regime : str
        Which of them the scaling laws keep.
    engine : str
        How the averages were taken.
    error : float
        Their largest estimated error, relative to the size each can have.
    entries : list of str
        What the rows of ``covariance`` are.
    """

    gradient_flow: Part
    variance: Part
    regime: str
    engine: str
    error: float
    _at: tuple[Problem, SGD, tuple[np.ndarray, ...]] = dataclasses.field(repr=False)

    def __repr__(self) -> str:
        return (
            f"Rates(p={len(self.total.a)}, regime={self.regime!r},"
            f" engine={self.engine!r}, error={self.error:.1e})"
        )

    @property
    def total(self) -> Part:
        """The right-hand side of the ODE: the sum of the two parts."""
        return Part(
            *(x + y for x, y in zip(self.gradient_flow, self.variance, strict=True))
        )

    @property
    def covariance(self) -> np.ndarray:
        """Σ (F, F) of the increments of one sample divided by lr/p, in the order of
        ``entries``: that of the SDE.

        Examples
        --------
        >>> near = Overlaps([[1.0]], [[0.0]])
        >>> rates(
        ...     Problem("z1**2", "square"), SGD(lr="0.1/d", geometry="projected"), near
        ... ).covariance[0, 0].round(6)
        np.float64(48.0)
        """
        return self._spread[0]

    @property
    def covariance_error(self) -> float:
        """Largest relative error of a variance in ``covariance``; 0 where it has a
        closed form.
        """
        return self._spread[1]

    @cached_property
    def _spread(self) -> tuple[np.ndarray, float]:
        return _covariance(*self._at)

    @property
    def entries(self) -> list[str]:
        """Names of the rows of ``covariance``: M, the upper triangle of Q, and a where
        it is trained.
        """
        (p, k), algorithm = self.total.M.shape, self._at[1]
        overlaps = [f"M[{j + 1},{r + 1}]" for j in range(p) for r in range(k)]
        gram = [f"Q[{j + 1},{l + 1}]" for j in range(p) for l in range(j, p)]
        return (
            overlaps
            + gram
            + [f"a[{j + 1}]" for j in range(p) if algorithm.train_second_layer]
        )


@float64
def rates(
    problem: Problem, algorithm: SGD, start: Overlaps, method: ODE | None = None
) -> Rates:
    """The right-hand side of the ODE at one point, as the sum of its two parts.

    Parameters
    ----------
    problem : Problem
        The task.
    algorithm : SGD
        Its laws fix the regime, and so which parts there are.
    start : Overlaps
        A single point (Q, M, P, a).
    method : ODE, optional
        With its knobs for averages.

    Examples
    --------
    >>> problem, start = (
    ...     Problem("z1**2", "square", noise=0.1),
    ...     Overlaps([[1.0]], [[0.5]]),
    ... )
    >>> both = rates(problem, SGD(lr="0.2/d"), start)
    >>> (
    ...     both.regime,
    ...     both.gradient_flow.Q.round(6).tolist(),
    ...     both.variance.Q.round(6).tolist(),
    ... )
    ('Saad–Solla', [[-6.0]], [[7.28]])
    >>> float(abs(rates(problem, SGD(lr="0.2*d**-2"), start).variance.Q).max())
    0.0
    """
    check_description(problem, algorithm)
    algorithm.check_gradient_steps("tl.rates")
    algorithm.check_plain("rates")
    problem.require_isotropic("rates")
    method = ODE() if method is None else expect(ODE, "method", method)
    check_point(problem, start)
    reason = method.objection(problem, algorithm)
    if reason is not None:
        raise Refused("ODE", reason)
    a = problem.a() if start.a is None else start.a
    point = (start.Q, start.M, np.asarray(a))
    averager, *_ = adapt(
        problem,
        algorithm.loss,
        *point,
        engine=method.averages.engine,
        tolerance=method.accuracy / 100,
        log2_points=method.averages.log2_points or LOG2_POINTS,
    )
    field = field_with(averager.engine, problem, algorithm)
    zero = jnp.zeros(())
    flow = _part(
        dataclasses.replace(field, limit=field.limit._replace(noise=zero)), point
    )
    variance = _part(
        dataclasses.replace(
            field, limit=field.limit._replace(flow=zero, decay=zero, second=zero)
        ),
        point,
    )
    error = relative_error(
        averager, averager.error(*point, problem.noise), problem, *point
    )
    return Rates(
        flow,
        variance,
        regime_of(algorithm).name,
        averager.label,
        error,
        (problem, algorithm, point),
    )


@float64
def _covariance(
    problem: Problem, algorithm: SGD, point: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, float]:
    """Σ and its error."""
    Q, M, a = map(jnp.asarray, point)
    chosen = None
    if not closed_covariance(problem, algorithm):
        chosen = choose_for(problem, algorithm, FINE, [Overlap(*point)])
    rho = limit_in(regime_of(algorithm), algorithm, problem.divisor).noise
    sigma = spread_of(problem, algorithm, chosen)(
        Q, M, a, problem.noise, jnp.asarray(rho, float)
    )
    if form_of(algorithm).normalises:
        J = tangent(Q, M, algorithm.train_second_layer)
        sigma = J @ sigma @ J.T
    return np.asarray(sigma), chosen.error if chosen is not None else 0.0


def _part(field: VectorField, point: tuple[np.ndarray, ...]) -> Part:
    motion = field.rate(0.0, Overlap(*map(jnp.asarray, point)))
    return Part(*(np.asarray(x) for x in (motion.M, motion.Q, motion.a)))
