"""State evolution on the k×k matrix of overlaps.

    ω ~ N(0, q),  λ* ~ N(ω, V),  V = I − q,     g_out = V⁻¹(E[λ* | y, ω] − ω)
    q̂ = α E[g_out g_outᵀ],    q ← q̂ (I + q̂)⁻¹
    f(q₁) − f(q₀) = ½ [tr q + ln det(I − q)] between them + (α/2) ∫ tr(E[g gᵀ] dq)

One `StateEvolution` keeps its random numbers, so that its map is a fixed function of q;
several of them with their own numbers have their own fixed points, and the spread of
these is the error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twolayer.analysis.thresholds.conditional_means import cross_fitted, second_moments
from twolayer.analysis.thresholds.label_law import LabelLaw
from twolayer.numerics.quadrature_rules import sobol_normals
from twolayer.numerics.roots import host_root

__all__ = ["FULL", "StateEvolution"]

GUESSES, SAMPLES, BINS = 8, 10, 32  # log₂ of the numbers of ω, and of samples for each
# what is left of q at the end of an iteration, if its steps go on shrinking as they do
ENOUGH = 5e-4
RESTING = 1e-5  # a step that is none
MOST = 200
FULL = 1 - 1e-4  # an overlap of 1, for labels without noise
FARTHEST = 4.0  # steps that one extrapolation may save
SEED = 0.01  # overlap that stands for nothing
# rise of tr q, for each direction, below which a fixed point that is pushed upwards has
# stayed
STAYS = 4e-3
PUSHES = 12
PATH = 6  # nodes of the integral between two fixed points


class StateEvolution:
    """The map of state evolution, and averages at fixed q, with their own random
    numbers.
    """

    def __init__(self, law: LabelLaw, seed: int = 0) -> None:
        self.law, self.seed = law, seed
        self.guesses = sobol_normals(law.k, GUESSES, 1000 + seed)

    def average(
        self, q: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """E over ω and y of the outer product of E[statistic(u) | y, ω], λ = ω +
        √V u.
        """
        root, rest = host_root(q), host_root(np.eye(self.law.k) - q)
        return cross_fitted(
            self.law, self.guesses @ root, rest, statistic, SAMPLES, BINS, self.seed
        )

    def push(self, q: np.ndarray) -> np.ndarray:
        """E[g_out g_outᵀ] at q."""
        inverse = np.linalg.inv(host_root(np.eye(self.law.k) - q))
        return np.asarray(inverse @ self.average(q, lambda u: u) @ inverse)

    def step(self, q: np.ndarray, alpha: float) -> np.ndarray:
        """One iteration."""
        return inside(alpha * self.push(q))

    def fixed_point(self, q: np.ndarray, alpha: float) -> np.ndarray:
        """Iterate from q until it rests; steps that shrink steadily are extrapolated,
        small ones that grow are not.
        """
        last = None
        for _ in range(MOST):
            new = self.step(q, alpha)
            change = new - q
            size = float(np.abs(change).max())
            if size < RESTING:
                return new
            if last is not None:
                ratio = float((change * last).sum() / (last * last).sum())
                if ratio < 1 and size * abs(ratio) / (1 - ratio) < ENOUGH:
                    return new
                if 0.2 < ratio < 1:
                    new = bounded(new + min(ratio / (1 - ratio), FARTHEST) * change)
                    change = None
            q, last = new, change
        return q

    def climb(self, q: np.ndarray, alpha: float) -> np.ndarray:
        """From below to a fixed point that is stable: one that has rested is pushed
        upwards until it stays.

        Directions that start later than others, or so slowly that sampling errors hide
        it, leave saddles.
        """
        eye, rested = np.eye(self.law.k), q
        for _ in range(PUSHES):
            new = self.fixed_point(rested + SEED * (eye - rested), alpha)
            if np.trace(new - rested) < STAYS * self.law.k:
                return new
            rested = new
        return rested

    def lead(self, low: np.ndarray, high: np.ndarray, alpha: float) -> float:
        """f(high) − f(low)."""
        eye = np.eye(self.law.k)
        x, w = np.polynomial.legendre.leggauss(PATH)
        gain = sum(
            v * np.trace(self.push(low + (1 + t) / 2 * (high - low)) @ (high - low)) / 2
            for t, v in zip(x, w, strict=True)
        )
        volume = np.linalg.slogdet(eye - high)[1] - np.linalg.slogdet(eye - low)[1]
        return float((np.trace(high - low) + volume + alpha * gain) / 2)

    def products(self, q: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """E[G ⊗ G] of rows that nothing is known of yet, given the others at
        overlap q.
        """
        return self.average(q, lambda u: second_moments(u @ directions.T))

    def means(self, q: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """E[m mᵀ] with m = E[λ | y, ω] along rows that nothing is known of yet."""
        return self.average(q, lambda u: u @ directions.T)


def inside(push: np.ndarray) -> np.ndarray:
    """The overlap q = q̂ (I + q̂)⁻¹ that a push q̂ gives; sampling errors must not make
    it negative.
    """
    values, vectors = np.linalg.eigh((push + push.T) / 2)
    values = values.clip(0.0)
    return np.asarray((vectors * np.minimum(values / (1 + values), FULL)) @ vectors.T)


def bounded(q: np.ndarray) -> np.ndarray:
    """The nearest overlap matrix."""
    values, vectors = np.linalg.eigh(q)
    return np.asarray((vectors * values.clip(0.0, FULL)) @ vectors.T)
