"""The error of the best prediction for a fresh input, at overlap q.

    mmse = E[h²] − E[E[h | ω]²] = ½ E[(h(λ) − h(λ'))²],
        λ, λ' ~ N(0, I) with E[λ λ'ᵀ] = q

The two fields are two draws of λ given the same ω. The best excess risk is mmse/2.
"""

from __future__ import annotations

import math

import numpy as np

from twolayer.analysis.thresholds.graded_panels import gauss_nodes, graded_edges
from twolayer.analysis.thresholds.label_law import LabelLaw
from twolayer.numerics.quadrature_rules import draw_sobol_normals
from twolayer.numerics.statistics import standard_error

__all__ = ["mmse_of"]

REACH, ORDER = 8.5, 10
LOG2_POINTS, SCRAMBLINGS = 15, 4


def mmse_of(law: LabelLaw, q: np.ndarray) -> tuple[float, float]:
    """The mean-square error of the best prediction and the error of this number."""
    if law.k == 1:
        r = float(q[0, 0])
        fine, coarse = _on_a_line(law, r, ORDER), _on_a_line(law, r, ORDER - 3)
        return fine, abs(fine - coarse) + 1e-13 * law.variance
    parts = [_sampled(law, q, scrambling) for scrambling in range(SCRAMBLINGS)]
    return float(np.mean(parts)), float(standard_error(parts))


def _on_a_line(law: LabelLaw, q: float, order: int) -> float:
    """Panels of both fields end at the kinks; the second field is N(q z, 1 − q²) given
    the first.
    """
    kinks = np.array([x for x in law.kinks if abs(x) < REACH])
    scale = math.sqrt(max(1 - q * q, 0.0))
    if scale == 0:
        return 0.0
    edges = (
        graded_edges(-REACH, REACH, kinks, min(0.5, scale), 0.5, 0.5)
        if len(kinks)
        else np.linspace(-REACH, REACH, 35)
    )
    z, w = (x.ravel() for x in gauss_nodes(edges[:-1], edges[1:], order))
    base = np.broadcast_to(np.linspace(-REACH, REACH, 18), (len(z), 18))
    cuts = ((kinks[None] - q * z[:, None]) / scale).clip(-REACH, REACH)
    ends = np.sort(np.concatenate([base, cuts], 1))
    x, v = gauss_nodes(ends[:, :-1].ravel(), ends[:, 1:].ravel(), order)
    v = (v * np.exp(-(x**2) / 2)).reshape(len(z), -1) / math.sqrt(2 * math.pi)
    other = law.line(q * z[:, None] + scale * x.reshape(len(z), -1))
    apart = (v * (law.line(z)[:, None] - other) ** 2).sum(1)
    return float(w * np.exp(-(z**2) / 2) @ apart) / math.sqrt(2 * math.pi) / 2


def _sampled(law: LabelLaw, q: np.ndarray, scrambling: int) -> float:
    normals = draw_sobol_normals(2 * law.k, LOG2_POINTS, scrambling)
    values, vectors = np.linalg.eigh(q)
    values = values.clip(0.0, 1.0)
    first, second = normals[:, : law.k], normals[:, law.k :]
    other = first * values + second * np.sqrt(1 - values**2)
    return (
        float(
            np.mean(
                (law.labels(first @ vectors.T) - law.labels(other @ vectors.T)) ** 2
            )
        )
        / 2
    )
