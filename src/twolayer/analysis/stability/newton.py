"""From a stalled point to the fixed point nearby: the flow along what decays, backwards
along what grows.

    x ← x + V φ(Λ) V⁻¹ F(x),    J = V Λ V⁻¹
    φ(λ) = (e^{λh} − 1)/λ  for Re λ ≤ 0,      (e^{−λh} − 1)/λ  for Re λ > 0

For small h this is the motion itself, with growing directions reversed, so that a
saddle attracts; for h → ∞ it is Newton's step −J⁻¹F. Growing h while |F| falls leads to
the saddle that the run was heading for, where Newton's method alone may jump to another
one: a committee's plateau has one with coinciding neurons beside it.
"""

from __future__ import annotations

import numpy as np

from twolayer.analysis.stability.linear import Flow

__all__ = ["settle"]

ITERATIONS = 80
FASTER = 3.0  # growth of h after a step that was accepted
WORSE = 1.5  # |F| may grow by this much in one step


def _gains(values: np.ndarray, h: float) -> np.ndarray:
    """φ(λ)."""
    small, grows = np.abs(values) * h < 1e-8, values.real > 0
    fall = np.where(grows, -values, values) * h
    whole = np.expm1(np.maximum(fall.real, -700.0) + 1j * fall.imag) / np.where(
        small, 1.0, values
    )
    return np.where(small, np.where(grows, -h, h), whole)


def _step(slope: np.ndarray, rate: np.ndarray, h: float) -> np.ndarray:
    values, vectors = np.linalg.eig(slope)
    parts = np.linalg.lstsq(vectors, rate.astype(complex), rcond=1e-13)[0]
    return np.asarray((vectors @ (_gains(values, h) * parts)).real)


def settle(flow: Flow, x: np.ndarray, tolerance: float) -> tuple[np.ndarray, float]:
    """Where F vanishes near x, and the largest |F| that is left."""
    rate = flow.rate(x)
    left = best = float(np.abs(rate).max())
    found, slope = x, flow.slope(x)
    if not np.isfinite(slope).all():
        return x, left
    h = 1.0 / max(float(np.abs(slope).max()), 1e-12)
    for _ in range(ITERATIONS):
        new = x + _step(slope, rate, h)
        value = flow.rate(new)
        size = float(np.abs(value).max())
        if not size <= WORSE * left:  # nor where it is no number
            h /= FASTER**2
            continue
        x, rate, left, h = new, value, size, FASTER * h
        if left < best:
            found, best = x, left
        if best < 1e-3 * tolerance:
            break
        slope = flow.slope(x)
        if not np.isfinite(slope).all():
            break
    return found, best
