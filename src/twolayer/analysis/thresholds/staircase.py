"""Directions learned with the help of others.

    U learned: q = q_U on U, 0 elsewhere;    V: the rest
    order 1:  E[λ_V | y, ω_U] ≠ 0                 V joins at the same α
    order 2:  F_V(M) = E[G_V M G_V],  G_V = E[λ_V λ_Vᵀ | y, ω_U] − I
              V starts at α₂ ρ(F_V[q_U(α₂)]) = 1
    neither:  never with n = αd samples

q_U is that of the same α, so that α₂ and q_U are found together: q_U ← its own state
evolution at α, α ← 1/ρ(F_V[q_U]).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from twolayer.analysis.directions import complement
from twolayer.analysis.thresholds.conditional_means import cross_fitted, second_moments
from twolayer.analysis.thresholds.growth_operator import (
    Growth,
    growth_of,
    significant_range,
)
from twolayer.analysis.thresholds.label_law import LabelLaw
from twolayer.analysis.thresholds.state_evolution import StateEvolution, inside
from twolayer.numerics.statistics import standard_error

__all__ = ["Stair", "climb", "first_look"]

LOG2_POINTS, BINS, REPLICATES = 18, 512, 3
LOOKS = 6  # repeats for a mean that may be zero: its error must be known well
HALFWAY, NEARLY = 0.5, 0.9
ENOUGH, MOST = 1e-3, 25


@dataclass(frozen=True)
class Stair:
    """Directions that start together.

    Attributes
    ----------
    directions : array (n, k)
        Orthonormal rows.
    order : int or None
        1: seen at once; 2: above a threshold; None: never with n = αd samples.
    alpha : float
        Where they start: 0, a threshold, or infinity.
    error : float
        Standard error of alpha.
    """

    directions: np.ndarray
    order: int | None
    alpha: float
    error: float


def first_look(
    law: LabelLaw, tick: Callable[[float], None]
) -> tuple[np.ndarray, Growth]:
    """Trivial directions and the operator F of several directions."""
    origin, eye = np.zeros((1, law.k)), np.eye(law.k)
    means, products = [], []
    for seed in range(LOOKS):
        means.append(
            cross_fitted(
                law, origin, eye, lambda u: u, LOG2_POINTS - 2, BINS // 2, seed
            )
        )
    for seed in range(REPLICATES):
        products.append(
            cross_fitted(
                law, origin, eye, second_moments, LOG2_POINTS - (law.k > 3), BINS, seed
            )
        )
        tick((seed + 1) / REPLICATES)
    return significant_range(means), growth_of(products)


def climb(
    law: LabelLaw, trivial: np.ndarray, growth: Growth, tick: Callable[[float], None]
) -> Iterator[Stair]:
    """All steps, in the directions of the law."""
    if len(trivial):
        last = Stair(trivial, 1, 0.0, 0.0)
    elif np.isfinite(growth.alpha):
        last = Stair(growth.directions, 2, growth.alpha, growth.alpha_error)
    else:
        last = Stair(np.eye(law.k), None, np.inf, 0.0)
    yield last
    known = last.directions
    evolutions = [StateEvolution(law, seed) for seed in range(LOOKS)]
    while len(known) < law.k and last.order is not None:
        tick(len(known) / law.k)
        last = _next(evolutions, known, complement(known, law.k), last)
        yield last
        known = np.concatenate([known, last.directions])


def _next(
    evolutions: list[StateEvolution], known: np.ndarray, hidden: np.ndarray, last: Stair
) -> Stair:
    """The step after those that made the known directions."""
    joined = significant_range(
        [e.means(HALFWAY * known.T @ known, hidden) for e in evolutions]
    )
    if len(joined):
        return Stair(joined @ hidden, 1, last.alpha, last.error)
    evolutions = evolutions[:REPLICATES]
    nearly = growth_of(
        [e.products(NEARLY * known.T @ known, hidden) for e in evolutions]
    )
    if not np.isfinite(nearly.alpha):
        return Stair(hidden, None, np.inf, 0.0)
    found = [_together(e, known, hidden, last.alpha) for e in evolutions]
    alphas = [alpha for alpha, _ in found]
    rows = growth_of([products for _, products in found]).directions @ hidden
    return Stair(rows, 2, float(np.mean(alphas)), float(standard_error(alphas)))


def _together(
    evolution: StateEvolution, known: np.ndarray, hidden: np.ndarray, at_least: float
) -> tuple[float, np.ndarray]:
    """α₂ with the q_U that belongs to it, and E[G_V ⊗ G_V] there."""
    q, alpha = 0.1 * known.T @ known, 0.0
    for _ in range(MOST):
        products = evolution.products(q, hidden)
        new = max(growth_of([products]).alpha, at_least)
        if not np.isfinite(new):  # too little is known of U yet
            new = 2 * max(alpha, at_least, 1.0)
        push = known @ evolution.push(q) @ known.T
        there = known.T @ inside(new * push) @ known
        if abs(new - alpha) < ENOUGH * new and np.abs(there - q).max() < ENOUGH:
            break
        q, alpha = there, new
    return new, products
