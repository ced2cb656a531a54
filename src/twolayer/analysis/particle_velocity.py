"""The mean field at any point: the velocity of a particle (m, q) in the field of a
measure μ, and what it descends.

    f = ∫ a σ dμ,   e = h − f:     V(m, q; μ) = δR/δμ = −a E[e σ(λ)],
        λ a field with overlaps m and orthogonal part q
    dm/dt = −P ∂_m V,   dq/dt = −4q ∂_q V
        (a = 1; in general ∂V/∂(P^{−1/2} m, √q) up to the sign)
    continuity  ∂_t μ = ∇·(μ φ),   φ = −(dm/dt, dq/dt)

The points are particles of weight zero: they feel the others and move nothing. With
free weights and gradient flow, as in the source; normalised weights project the same
velocities on the sphere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from twolayer.gaussian.ensemble import Cloud
from twolayer.gaussian.ensemble_rules import Fineness
from twolayer.gaussian.nodes import target_frame
from twolayer.methods.meanfield import MeanField
from twolayer.numerics.arguments import Array, finite_array
from twolayer.numerics.errors import InputError, expect, require
from twolayer.numerics.precision import float64
from twolayer.task.losses import Loss
from twolayer.task.overlaps import rank_of
from twolayer.task.particles import Particles
from twolayer.task.problem import Problem

__all__ = ["MeanFieldAt", "mean_field_at"]


@dataclass(frozen=True, eq=False)
class MeanFieldAt:
    """Result of `mean_field_at`.

    Attributes
    ----------
    m, q : array (n, k), (n,)
        dm/dt and dq/dt at the points: −φ(m, q; μ).
    a : array (n,)
        E[e σ(λ)], the velocity of a second layer that is trained.
    variation : array (n,)
        δR/δμ = −a E[e σ(λ)].
    excess_risk : float
        R of the measure.
    engine : str
        How the averages were taken.
    error : float
        Their relative error.

    Examples
    --------
    >>> from twolayer.task.particles import Particles
    >>> at = mean_field_at(Problem("z1**2", "square"), Particles([[0.5]], [0.75]))
    >>> round(at.excess_risk, 6), at.m.round(6).tolist()
    (0.5625, [[1.5]])
    """

    m: np.ndarray
    q: np.ndarray
    a: np.ndarray
    variation: np.ndarray
    excess_risk: float
    engine: str
    error: float

    def __repr__(self) -> str:
        return (
            f"MeanFieldAt(points={len(self.q)}, engine={self.engine!r},"
            f" error={self.error:.1e})"
        )


@float64
def mean_field_at(
    problem: Problem,
    measure: Particles,
    m: Array | None = None,
    q: Array | None = None,
    *,
    a: Array = 1.0,
    loss: str = "squared",
    dim: float = math.inf,
) -> MeanFieldAt:
    """The velocity of particles at given points, and δR/δμ there.

    Parameters
    ----------
    problem : Problem
        Target, activation and noise.
    measure : Particles
        μ.
    m, q : array (n, k), array (n,), optional
        The points; by default those of the measure.
    a : float or array (n,)
        Second layer of the points.
    loss : str
        ``"squared"`` or ``"correlation"``.
    dim : int or infinity
        d, over whose directions the orthogonal parts are averaged.

    Examples
    --------
    >>> from twolayer.task.particles import Particles
    >>> at = mean_field_at(
    ...     Problem("z1**2", "square"),
    ...     Particles([[0.5]], [0.75]),
    ...     [[0.5], [1.0]],
    ...     [0.75, 0.0],
    ... )
    >>> at.m.round(6).tolist(), at.q.round(6).tolist(), at.variation.round(6).tolist()
    ([[1.5], [3.0]], [0.0, 0.0], [-0.375, -1.5])
    """
    expect(Problem, "problem", problem)
    expect(Particles, "measure", measure)
    problem.require_isotropic("The field of a measure on (m, q)")
    if (measure.k, problem.P.tolist()) != (problem.k, measure.P.tolist()):
        raise InputError(
            "Argument `measure` must have the directions of the problem: the same k and"
            " the same P."
        )
    if (m is None) != (q is None):
        raise InputError(
            "Arguments `m` and `q` are the coordinates of the points: give both or"
            " none."
        )
    heavy = problem.replace(width=measure.n).a() if measure.a is None else measure.a
    if m is None:
        points, rest, layer = measure.m, measure.q, heavy
    else:
        points, rest = finite_array("m", m), finite_array("q", q)
        require(
            points.ndim == 2 and points.shape[1] == problem.k,
            "m",
            points.tolist(),
            f"a matrix (n, {problem.k})",
        )
        require(
            rest.shape == points.shape[:1],
            "q",
            rest.tolist(),
            f"{len(points)} numbers, one for each point",
        )
        require(
            bool((rest >= 0).all()), "q", rest.tolist(), "non-negative, for it is |w⊥|²"
        )
        layer = finite_array("a", a)
        accepted = "a number, or one for each point"
        require(layer.shape in ((), (1,), rest.shape), "a", a, accepted)
        layer = np.broadcast_to(layer, rest.shape)
    L, inverse = target_frame(problem.P)
    every = (
        np.concatenate([measure.m, points]) @ inverse.T,
        np.sqrt(np.concatenate([measure.q, rest])),
        np.concatenate([heavy, layer]),
        np.concatenate([measure.weights, np.zeros(len(rest))]),
    )
    method = MeanField(dim)
    wide = method.average(problem, Loss.of(loss), len(every[1]))
    require(
        wide.dimension > 0,
        "dim",
        dim,
        f"above the {rank_of(problem.P)} directions of the target",
    )
    fineness, error = wide.adapt(Cloud(*every), method.tolerance, Fineness())
    ensemble, _ = wide.build(fineness)
    rates = ensemble(Cloud(*map(jnp.asarray, every)))
    n = measure.n
    dA, ds, da = (np.asarray(x)[n:] for x in (rates.A, rates.s, rates.a))
    return MeanFieldAt(
        m=dA @ L.T,
        q=2 * every[1][n:] * ds,
        a=da,
        variation=-layer * da,
        excess_risk=float(rates.excess_risk),
        engine=ensemble.label,
        error=error,
    )
