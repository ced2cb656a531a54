"""The covariance of the increments of the overlaps, from the same kernel as their mean.

    𝒳_M = g_j λ*_r,    𝒳_Q = g_j λ_l + g_l λ_j + ρ g_j g_l,    𝒳_a = e σ(λ_j),
        ρ = lr d/(p n_b)
    Σ = Cov 𝒳,    increments of one step ~ (lr/p) ( E𝒳 , Σ/n_b );
        projected: Σ → J Σ Jᵀ

𝒳 is the increment of one sample divided by lr/p, with ‖z‖² = d. M, Q and a move
together: one sample drives all of them, so Σ is far from diagonal. For a quadratic
activation and target e = uᵀBu + b0 + √Δ ξ, and all moments follow from one generating
function:

    E[e^{se} u_a u_b u_c u_d] = G(s) (V_ab V_cd + V_ac V_bd + V_ad V_bc)(s)
    V(s) = Σ_n (2s)^n Ω (BΩ)^n,    log G(s) = Σ_n (2s)^n tr(BΩ)^n/(2n) + s b0 + s² Δ/2

Any other task: 𝒳 is linear in what one sample does (single_samples.py), whose parts are
closed for other polynomials and for erf, and come from nodes otherwise.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.equations.state import Overlap, pack
from twolayer.gaussian.engines import select
from twolayer.gaussian.quadratic import QuadraticEngine, residual_form
from twolayer.gaussian.sample_parts import covariance
from twolayer.gaussian.single_samples import Choice, TaskSamples
from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers, Real, Scalar
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem

__all__ = ["Spread", "closed_covariance", "spread_of"]


class QuadraticSpread(eqx.Module):
    """Closed form for σ = s x² + c and a quadratic target. Cost O(F²) with F ≈ p²/2."""

    averages: QuadraticEngine
    trained: bool = eqx.field(static=True)
    label: ClassVar[str] = "closed form (quadratic)"

    def __call__(
        self, Q: Gram, M: Cross, a: Layer, noise: Scalar, rho: Numbers
    ) -> Numbers:
        """Σ at one point."""
        engine, (p, k) = self.averages, M.shape
        omega = jnp.block([[Q, M], [M.T, engine.P]])
        B, b0 = residual_form(
            engine.scale, engine.shift, engine.H, engine.h0, engine.student, a
        )
        G, V = _series(omega, B, b0, noise)
        # every entry of 𝒳 is (c1 e + c2 e²) u_x u_y + c0 e
        rows, columns = np.triu_indices(p)
        x = np.concatenate(
            [np.repeat(np.arange(p), k), rows, np.arange(p * self.trained)]
        )
        y = np.concatenate(
            [np.tile(p + np.arange(k), p), columns, np.arange(p * self.trained)]
        )
        slope = 2 * engine.scale * a
        blank, second = jnp.zeros(p * k), jnp.ones(p * self.trained)
        c1 = jnp.concatenate(
            [jnp.repeat(slope, k), slope[rows] + slope[columns], engine.scale * second]
        )
        c2 = jnp.concatenate([blank, rho * slope[rows] * slope[columns], 0 * second])
        c0 = jnp.concatenate([blank, jnp.zeros(len(rows)), engine.shift * second])
        two = [
            math.factorial(n) * sum(G[n - i] * V[i] for i in range(n + 1))[x, y]
            for n in range(4)
        ]
        T = {n: math.factorial(n) * _fourth(n, G, V, x, y) for n in (2, 3, 4)}
        mean = c1 * two[1] + c2 * two[2] + c0 * G[1]
        square = (
            jnp.outer(c1, c1) * T[2]
            + (jnp.outer(c1, c2) + jnp.outer(c2, c1)) * T[3]
            + jnp.outer(c2, c2) * T[4]
        )
        cross = jnp.outer(c0, c1 * two[2] + c2 * two[3])
        return (
            square
            + cross
            + cross.T
            + jnp.outer(c0, c0) * 2 * G[2]
            - jnp.outer(mean, mean)
        )


def _series(
    omega: Real, B: Numbers, b0: Number, noise: Scalar
) -> tuple[list[Number], list[Any]]:
    """Coefficients of s⁰ … s⁴ of G(s) and V(s)."""
    V, power = [omega], omega
    logarithm: list[Number] = [0.0]
    for n in range(1, 5):
        power = power @ B @ omega  # Ω (BΩ)ⁿ
        V.append(2.0**n * power)
        logarithm.append(2.0**n * jnp.trace(B @ V[n - 1] / 2.0 ** (n - 1)) / (2 * n))
    logarithm[1] = logarithm[1] + b0
    logarithm[2] = logarithm[2] + noise / 2
    G: list[Number] = [1.0]
    for n in range(1, 5):
        G.append(sum(m * logarithm[m] * G[n - m] for m in range(1, n + 1)) / n)
    return G, V


def _fourth(
    n: int, G: list[Number], V: list[Real], x: np.ndarray, y: np.ndarray
) -> Real:
    """Coefficient of sⁿ in E[e^{se} u_x u_y u_x' u_y'] for all pairs of entries."""
    total: Any = 0.0
    for i in range(n + 1):
        for j in range(n + 1 - i):
            pairings = (
                jnp.outer(V[i][x, y], V[j][x, y])
                + V[i][np.ix_(x, x)] * V[j][np.ix_(y, y)]
                + V[i][np.ix_(x, y)] * V[j][np.ix_(y, x)]
            )
            total = total + G[n - i - j] * pairings
    return total


class PartSpread(TaskSamples):
    """Σ from the parts of one sample. Cost O(parts · F²)."""

    trained: bool = eqx.field(static=True)

    def __call__(
        self, Q: Gram, M: Cross, a: Layer, noise: Scalar, rho: Numbers
    ) -> Numbers:
        """Σ at one point."""
        y = Overlap(Q, M, a)
        rows, at = self.rows(y), self.parts(y, noise)
        mixed = at.pull @ rows.own.T
        quadratic = mixed + mixed.swapaxes(1, 2) + rho * at.pair
        X = pack(quadratic, at.pull @ rows.star.T, at.second, self.trained)
        return covariance(at.weights, X)


Spread = QuadraticSpread | PartSpread
"""(Q, M, a, Δ, ρ) → Σ (F, F) of one sample of the plain algorithm."""


def closed_covariance(problem: Problem, algorithm: SGD) -> bool:
    """Whether Σ has a closed form of its own and needs no choice of a rule."""
    return isinstance(select(problem, algorithm.drive).engine, QuadraticEngine)


def spread_of(problem: Problem, algorithm: SGD, choice: Choice | None = None) -> Spread:
    """The rule for Σ of a problem and an algorithm; what a sample does as it was chosen
    before, where that is asked for.

    Examples
    --------
    >>> spread_of(Problem("He2(z1)", "He2"), SGD(lr="0.1/d")).label
    'closed form (quadratic)'
    """
    trained = algorithm.train_second_layer
    engine = select(problem, algorithm.drive).engine
    if isinstance(engine, QuadraticEngine):
        return QuadraticSpread(engine, trained)
    return PartSpread.build(problem, algorithm, choice, trained=trained)
