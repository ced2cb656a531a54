"""The operator whose growth decides when directions start to be learned.

    ζ₁(y) = E[λ | y],   G(y) = E[λ λᵀ | y] − I,
        trivial directions: the range of E[ζ₁ ζ₁ᵀ]
    F(M) = E[G M G],    α_c = 1/ρ(F);
        the range of its positive eigenmatrix starts first

F keeps positive matrices positive, so that ρ is its largest eigenvalue. The eigenmatrix
is the limit of Fⁿ(I), the part of the identity in the top eigenspace: where that space
is degenerate, this has the largest range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twolayer.analysis.directions import sparse_basis
from twolayer.numerics.statistics import standard_error

__all__ = ["Growth", "as_operator", "growth_of", "significant_range"]

SIGMAS = 6.0
SMALL = 2e-3  # sampled averages below this are zero
# relative: z1*z2 without noise, whose label density has a pole, is off by 1.2e-4
BINNED = 5e-4
TOGETHER = 0.03  # eigenvalues this close to the largest, relative to it, belong to it
PART = 0.1  # directions with less of the eigenmatrix than this do not start


@dataclass(frozen=True)
class Growth:
    """The largest eigenvalue of F, its standard error, its eigenmatrix, and the matrix
    of F itself.
    """

    rho: float
    error: float
    eigenmatrix: np.ndarray
    operator: np.ndarray

    @property
    def alpha(self) -> float:
        """1/ρ, infinite where ρ cannot be told from zero."""
        return 1 / self.rho if self.rho > max(SIGMAS * self.error, SMALL) else np.inf

    @property
    def alpha_error(self) -> float:
        """Error of α_c: the standard error, and what averages over bins of labels leave
        out.
        """
        return (
            float(np.hypot(self.error / self.rho**2, BINNED * self.alpha))
            if np.isfinite(self.alpha)
            else 0.0
        )

    @property
    def directions(self) -> np.ndarray:
        """Orthonormal rows that start first."""
        values, vectors = np.linalg.eigh(self.eigenmatrix)
        return sparse_basis(vectors.T[values > PART * values[-1]])


def as_operator(products: np.ndarray) -> np.ndarray:
    """The matrix of F on flattened matrices, from E[G_ik G_lj] as (ik, lj)."""
    k = round(len(products) ** 0.5)
    return np.asarray(
        products.reshape(k, k, k, k).transpose(0, 3, 1, 2).reshape(k * k, k * k)
    )


def growth_of(replicates: list[np.ndarray]) -> Growth:
    """Spectral radius and eigenmatrix from repeated estimates of E[G ⊗ G]."""
    operators = [as_operator(x) for x in replicates]
    mean = np.mean(operators, 0)
    mean = (mean + mean.T) / 2
    k = round(len(mean) ** 0.5)
    values, vectors = np.linalg.eigh(mean)
    top = (
        vectors[:, values > values[-1] * (1 - TOGETHER)]
        if values[-1] > 0
        else vectors[:, -1:]
    )
    matrix = (top @ (top.T @ np.eye(k).ravel())).reshape(k, k)
    matrix = (matrix + matrix.T) / 2
    size = np.linalg.norm(matrix)
    matrix = matrix / size if size > 1e-9 else np.eye(k) / np.sqrt(k)
    along = [float(matrix.ravel() @ x @ matrix.ravel()) for x in operators]
    error = float(standard_error(along)) if len(along) > 1 else 0.0
    return Growth(float(matrix.ravel() @ mean @ matrix.ravel()), error, matrix, mean)


def significant_range(replicates: list[np.ndarray]) -> np.ndarray:
    """Orthonormal rows that span the range of a positive matrix, as far as repeated
    estimates show it.
    """
    mean = np.mean(replicates, 0)
    values, vectors = np.linalg.eigh(mean)
    along = np.array([[v @ x @ v for v in vectors.T] for x in replicates])
    # one error for all directions: a single one of few repeats may be small by chance
    error = float(np.sqrt(along.var(0, ddof=1).mean() / len(replicates)))
    seen = values > max(SIGMAS * error, SMALL)
    return sparse_basis(vectors.T[seen])
