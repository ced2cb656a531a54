"""What a label says about several directions: moments of λ given y and ω.

    P(λ | y, ω) ∝ N(λ; ω, V) P(y | λ),    λ = ω + √V u
    ∫ du f N(u) P(y | λ) = Σ_j ∫ du_rest ∫ du_j f w_j N(u) P(y | λ),
        w_j = (∂_j h)² / |∇h|²

Each term runs along lines parallel to one axis. Within a cell of a line h is taken as
linear, so that the noise is integrated exactly, however small it is: the mean
likelihood of a cell from h₀ to h₁ is |Φ(b) − Φ(a)| / |h₁ − h₀| with a, b = (h₀ − y, h₁
− y)/√Δ, and 1/|h₁ − h₀| without noise if y lies between. The weights w_j keep the terms
finite where a line touches a level set.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from twolayer.analysis.thresholds.label_law import ALIKE, LabelLaw
from twolayer.loops.host_loop import settled
from twolayer.numerics.precision import float64
from twolayer.numerics.quadrature_rules import product_rule, sobol_normals
from twolayer.numerics.types import Real

__all__ = ["Posterior", "PosteriorMoments"]

REACH = 6.2  # standard deviations that lines and their cells cover
CELLS = {1: 128, 2: 40}
SPACING = {2: 0.5, 3: 0.7}  # of the lines, where they form a grid
FEW_CELLS, SCATTERED = (
    32,
    8,
)  # cells for more directions, and log₂ of the number of lines that do not form a grid
CHUNK = 600_000  # values of h at once
TOGETHER = 256  # labels at once, however many there are: one shape to compile
NARROW = 0.3  # cells across which h moves by less than this many √Δ


class PosteriorMoments(NamedTuple):
    """Of λ given y and ω: mean (n, k) and covariance (n, k, k)."""

    mean: np.ndarray
    covariance: np.ndarray


class Posterior:
    """Moments of the directions given a label and a Gaussian guess."""

    def __init__(self, law: LabelLaw) -> None:
        self.law = law
        k = law.k
        self.cells = CELLS.get(k, FEW_CELLS)
        self.rest, self.weights = self._lines(k - 1)
        self.chunk = max(8, CHUNK // (k * len(self.rest) * self.cells))

    @staticmethod
    def _lines(others: int) -> tuple[np.ndarray, np.ndarray]:
        """Where lines cross the plane of the other coordinates, and the mass of the
        Gaussian that each stands for.
        """
        if others == 0:
            return np.zeros((1, 0)), np.ones(1)
        spacing = SPACING.get(others + 1)
        if spacing is None:
            points = sobol_normals(others, SCATTERED)
            return points, np.full(len(points), 1 / len(points))
        axis = np.arange(-REACH, REACH, spacing)
        bell = spacing * np.exp(-(axis**2) / 2) / math.sqrt(2 * math.pi)
        grid, weights = product_rule([(axis, bell)] * others)
        near = (grid**2).sum(1) < (REACH - 0.5) ** 2
        return grid[near], weights[near]

    @cached_property
    def _compiled(self) -> Callable[[Real, Real, Real], tuple[jax.Array, jax.Array]]:
        law, k, cells = self.law, self.law.k, self.cells
        noise = law.noise
        atoms = jnp.asarray(law.atoms) if law.atoms and noise == 0 else None
        close = ALIKE * float(np.sqrt(law.variance))
        h = law.function
        slopes = jax.grad(lambda x: h(x).sum())
        rest, weights = jnp.asarray(self.rest), jnp.asarray(self.weights)
        width = 2 * REACH / cells

        def along(
            j: int, y: Real, omega: Real, root: Real
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            edges = -REACH + width * jnp.arange(cells + 1)
            u = jnp.insert(
                jnp.broadcast_to(rest[:, None, :], (len(rest), cells + 1, k - 1)),
                j,
                jnp.broadcast_to(edges, (len(rest), cells + 1)),
                axis=-1,
            )
            x = omega[:, None, None, :] + u @ root
            value = h(x)
            low, high, label = value[..., :-1], value[..., 1:], y[:, None, None]
            move = high - low
            safe = jnp.where(move == 0, 1.0, move)
            if noise > 0:
                s = jnp.sqrt(noise)
                a, b = (low - label) / s, (high - label) / s
                first, last = jnp.minimum(a, b), jnp.maximum(a, b)
                first, last = (
                    jnp.where(first > 0, -last, first),
                    jnp.where(first > 0, -first, last),
                )
                mass = ndtr(last) - ndtr(first)
                narrow = jnp.abs(b - a) < NARROW

                def bell(t: jax.Array) -> jax.Array:
                    return jnp.exp(-(t**2) / 2) / jnp.sqrt(2 * jnp.pi)

                straight = (bell(a) + 4 * bell((a + b) / 2) + bell(b)) / 6
                likelihood = jnp.where(narrow, straight / s, mass / jnp.abs(safe))
                inside = jnp.where(narrow | (mass < 1e-280), 1.0, mass)
                pull = (bell(a) - bell(b)) / inside * jnp.sign(move)
                wide = jnp.clip((-a + pull) * s / safe, 0.0, 1.0)
                place = jnp.where(narrow, 0.5 - (a + b) / 2 * (b - a) / 12, wide)
            else:
                between = (low - label) * (high - label) <= 0
                likelihood = jnp.where(between & (move != 0), 1 / jnp.abs(safe), 0.0)
                place = jnp.clip((label - low) / safe, 0.0, 1.0)
                if atoms is not None:
                    heap = (jnp.abs(label - atoms) < close).any(-1, keepdims=True)
                    there = (jnp.abs(value - label) < close).astype(float)
                    likelihood = jnp.where(
                        heap, (there[..., 1:] + there[..., :-1]) / 2, likelihood
                    )
                    place = jnp.where(heap, 0.5, place)
            if k > 1:
                steep = jnp.nan_to_num(slopes(x) @ root.T) ** 2 + 1e-12 * law.variance
                share = steep[..., j] / steep.sum(-1)
                likelihood = likelihood * (share[..., 1:] + share[..., :-1]) / 2
            at = edges[:-1] + width * place
            mass = (
                likelihood
                * weights[:, None]
                * jnp.exp(-(at**2) / 2)
                * width
                / jnp.sqrt(2 * jnp.pi)
            )
            here = jnp.insert(
                jnp.broadcast_to(rest[:, None, :], (*mass.shape, k - 1)), j, at, axis=-1
            )
            return (
                mass.sum((1, 2)),
                jnp.einsum("nlc,nlci->ni", mass, here),
                jnp.einsum("nlc,nlci,nlcj->nij", mass, here, here),
            )

        def moments(y: Real, omega: Real, V: Real) -> tuple[jax.Array, jax.Array]:
            values, vectors = jnp.linalg.eigh(V)
            root = (vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T
            parts = [along(j, y, omega, root) for j in range(k)]
            mass, first, second = (sum(p) for p in zip(*parts, strict=True))
            blind = (mass <= 1e-290)[
                :, None
            ]  # a label that cannot come from here says nothing
            inverse = 1 / jnp.where(blind, 1.0, mass[:, None])
            mean = jnp.where(blind, 0.0, first * inverse)
            outer = mean[:, :, None] * mean[:, None, :]
            spread = jnp.where(
                blind[..., None], jnp.eye(k), second * inverse[..., None] - outer
            )
            return omega + mean @ root, root @ spread @ root

        return jax.jit(moments)

    @float64
    def __call__(
        self, y: np.ndarray, omega: np.ndarray, V: np.ndarray
    ) -> PosteriorMoments:
        """Moments for labels (n,), guesses (n, k) and one covariance (k, k)."""
        n, k = omega.shape
        step = min(self.chunk, TOGETHER)
        parts = []
        for at in range(0, n, step):
            some = min(step, n - at)
            labels, guesses = np.zeros(step), np.zeros((step, k))
            labels[:some], guesses[:some] = y[at : at + some], omega[at : at + some]
            out = settled(
                self._compiled(
                    jnp.asarray(labels), jnp.asarray(guesses), jnp.asarray(V)
                )
            )
            parts.append([np.asarray(x)[:some] for x in out])
        return PosteriorMoments(*(np.concatenate(x) for x in zip(*parts, strict=True)))
