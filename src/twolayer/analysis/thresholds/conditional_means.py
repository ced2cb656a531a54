"""Averages of products of conditional means, without bias: cross-fitted bins of y.

    E_y[ E[A|y] E[B|y] ] ≈ Σ_b P_b Ā_b B̄_b,
        Ā_b, B̄_b = means of A and B in bin b, over two independent halves

The bins hold equally many samples. Two halves, because the square of a noisy mean is
too large; bins only lose information, an error ∝ 1/bins that the value at twice as many
bins cancels: 2 v(2 bins) − v(bins). Given ω the fields are λ = ω + √V u, and u is
turned at random for every ω: the samples of all ω are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from twolayer.analysis.thresholds.label_law import LabelLaw
from twolayer.numerics.quadrature_rules import sobol_normals

__all__ = ["cross_fitted", "second_moments"]

BLOCK = 2_000_000  # samples in memory at once


def second_moments(u: np.ndarray) -> np.ndarray:
    """The entries of u uᵀ − I."""
    k = u.shape[-1]
    return np.asarray(
        (u[..., :, None] * u[..., None, :] - np.eye(k)).reshape(*u.shape[:-1], k * k)
    )


def cross_fitted(
    law: LabelLaw,
    omega: np.ndarray,
    root: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    log2_points: int,
    bins: int,
    seed: int,
) -> np.ndarray:
    """E over ω and y of the outer product of E[statistic(u) | y, ω] with itself, for
    fields ω + u √V.

    The guesses ω (n, k) are averaged over. The statistic leads from u (..., k) to (...,
    m), the result is a symmetric (m, m). Each half has 2^log2_points samples for each
    ω; ``bins`` is the smaller number of bins.
    """
    k, n = law.k, 2**log2_points
    halves = np.concatenate(
        [
            sobol_normals(k + 1, log2_points, 2 * seed),
            sobol_normals(k + 1, log2_points, 2 * seed + 1),
        ]
    )
    own = np.repeat([1.0, 0.0], n)
    rng = np.random.default_rng([31, seed])
    shuffle = rng.permutation(2 * n)  # labels that are equal are cut at random
    halves, own = halves[shuffle], own[shuffle]
    total: np.ndarray | float = 0.0
    step = max(1, BLOCK // (2 * n))
    for at in range(0, len(omega), step):
        some = omega[at : at + step]
        turned = np.empty((len(some), 2 * n, k + 1))
        for i in range(len(some)):
            for mine, turn in zip(
                (own == 1, own == 0), _rotations(rng, k + 1), strict=True
            ):
                turned[i, mine] = halves[mine] @ turn
        u = turned[..., :k]
        y = (
            law.labels(some[:, None, :] + u @ root)
            + math.sqrt(law.noise) * turned[..., k]
        )
        order = np.argsort(y, axis=1)
        values = np.take_along_axis(statistic(u), order[..., None], 1)
        first = own[order][..., None]
        fine = (len(some), 2 * bins, n // bins)
        sums = [
            (values * part).reshape(*fine, -1).sum(2) for part in (first, 1 - first)
        ]
        counts = [part.reshape(*fine, 1).sum(2) for part in (first, 1 - first)]
        total = total + 2 * _matched(sums, counts)
        pairs = [x.reshape(len(some), bins, 2, -1).sum(2) for x in (*sums, *counts)]
        total = total - _matched(pairs[:2], pairs[2:])
    mean = np.asarray(total) / len(omega)
    return (mean + mean.T) / 2


def _matched(sums: list[np.ndarray], counts: list[np.ndarray]) -> np.ndarray:
    """Σ over ω of the mean over bins of the product of the two halves' means; their
    counts are not independent.
    """
    a, b = (x / np.maximum(c, 1.0) for x, c in zip(sums, counts, strict=True))
    return np.einsum("nbi,nbj->ij", a, b) / a.shape[1]


def _rotations(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Two random orthogonal matrices."""
    out = []
    for _ in range(2):
        q, r = np.linalg.qr(rng.normal(size=(n, n)))
        out.append(q * np.sign(np.diag(r)))
    return out
