"""One neuron near m = 0: what its drift and its self-interaction are, in closed form.

    E[y σ'(λ) z] = g(m) w* + r(m) w,   g = Σ q c_q b_q m^{q−1} ≈ c m^{ℓ−1},
        c = ℓ c_ℓ b_ℓ,   r(0) = √2 c_2 b_0
    E[σ σ'(λ) z] = κ w,                κ = E[λ σ σ']

σ = Σ c_q h_q, y = Σ b_q h_q in orthonormal Hermite polynomials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from twolayer.analysis.exponents import analyse
from twolayer.functions.activation import Activation, ActivationLike
from twolayer.functions.hermite import gauss_panels
from twolayer.functions.target import TargetLike
from twolayer.numerics.errors import InputError

__all__ = ["Expansion", "expansion"]

ZERO = 1e-8  # a Hermite coefficient of σ below this share of the largest counts as zero


@dataclass(frozen=True)
class Expansion:
    """Drift and self-interaction of one neuron with a = 1 near m = 0."""

    ell: int  # smallest order that target and activation share
    # c for a target of one direction; of several, ℓ c_ℓ times the norm of its tensor of
    # order ℓ
    drift: float
    lower: tuple[int, ...]  # orders 1 ≤ q < ℓ that the activation contains
    kappa: float  # E[λ σ σ']
    tilt: float  # r(0), which a target with E[y] ≠ 0 adds

    def self_interaction(self, loss: str, a: float = 1.0) -> float:
        """κ of a step projected back to the sphere: 1 − γκ multiplies the neuron's own
        direction.
        """
        return (self.kappa * a**2 if loss == "squared" else 0.0) - self.tilt * a


def expansion(
    target: TargetLike, activation: ActivationLike, directions: int | None = None
) -> Expansion:
    """Expand what one neuron sees of a target near m = 0."""
    seen, sigma = analyse(target, directions), Activation.of(activation)
    orders = sorted({sum(alpha) for alpha in seen.hermite if any(alpha)})
    if not orders:
        raise InputError(
            "Argument `target` must have a Hermite component of order 1 or more, but"
            f" {seen.target.name!r} has none."
        )
    c = sigma.hermite(max(*orders, 2))
    present = np.abs(c) > ZERO * np.abs(c).max()
    shared = [q for q in orders if present[q]]
    if not shared:
        words = ", ".join(map(str, orders))
        raise InputError(
            "Argument `activation` must have a Hermite component of an order that the"
            f" target has ({words}), but {sigma.name} has none: without one the"
            " gradient does not point to the target."
        )
    ell = shared[0]
    b = {alpha: value for alpha, value in seen.hermite.items() if sum(alpha) == ell}
    size = (
        next(iter(b.values()))
        if seen.target.directions == 1
        else math.hypot(*b.values())
    )
    x, w = gauss_panels(sigma.kinks)
    kappa = (
        float((w * (x**2 - 1) * sigma.on_host(x) ** 2).sum()) / 2
    )  # E[λσσ'] by parts
    mean = seen.hermite.get((0,) * seen.target.directions, 0.0)
    tilt = math.sqrt(2) * float(c[2] if present[2] else 0.0) * mean
    return Expansion(
        ell,
        ell * float(c[ell]) * size,
        tuple(q for q in range(1, ell) if present[q]),
        kappa,
        tilt,
    )
