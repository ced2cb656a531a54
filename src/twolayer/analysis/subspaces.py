"""The subspace that a target depends on, and how much of it a student spans.

    V = span of the directions that enter the target,    U its orthonormal rows
    W = A U + W⊥,    M = A T⁺,    σ² = eigenvalues of Aᵀ Q⁺ A
    σ_1 ≥ … ≥ σ_r:  cosines of the principal angles between span(W) and V

Directions that a formula names but that do not enter it (z2 in z1 + 0·z2, or the
difference of z1 and z2 in their sum) are no part of V.
"""

from __future__ import annotations

import numpy as np

from twolayer.analysis.exponents import analyse
from twolayer.analysis.target_coordinates import framed
from twolayer.numerics.errors import InputError
from twolayer.task.overlaps import principal_overlaps
from twolayer.task.problem import Problem

__all__ = ["coordinates_of", "spanned"]


def coordinates_of(problem: Problem) -> np.ndarray:
    """T (k, r) with A = M T, the coordinates of the student rows in an orthonormal
    frame of the directions that the target depends on.
    """
    target, frame, _ = framed(problem)
    found = analyse(target)
    rows = np.concatenate([found.directions, found.unresolved])
    if not len(rows):
        raise InputError(
            "Argument `problem` must have a target that depends on some direction, but"
            f" {problem.target.name} is constant."
        )
    return np.asarray(np.linalg.pinv(frame).T @ rows.T)


def spanned(Q: np.ndarray, M: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    """σ_1 ≥ … ≥ σ_r of overlaps with any leading axes."""
    return principal_overlaps(Q, M @ coordinates)
