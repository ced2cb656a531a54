"""SGD where student and target do not overlap: what moves there, and how overlaps grow.

At M = 0, with rows orthogonal to each other, λ_j ~ N(0, q_j) and h are independent:

    f = (1/N) Σ_j a_j σ(λ_j),    e = h − f + √Δ ξ,    ρ = d·lr/(N n_b),
        t = lr·step/N,  κ = second_lr/lr
    dq_j/dt = 2 a_j E[σ'_j λ_j e] + ρ a_j² E[σ'_j² e²]        0 on the sphere
    da_j/dt = κ E[σ_j e]                                      where it is trained
    dM_j/dt = M_j (α_j + β_j C),    C = E[∇²h],  β_j = a_j E[σ''_j],
        α_j = a_j E[σ''_j e] − (a_j²/N) E[σ'_j²],  on the sphere less dq_j/(2 q_j)
    Cov(dM_j) = ρ V_j dt/d,         V_j = a_j² E[σ'_j² e² λ* λ*ᵀ]
    R = ½ E[(h − f)²],  in which M_j enters by −(a_j/2N) E[σ''_j] M_j C M_jᵀ

For an even activation M = 0 with orthogonal rows is never left, for each neuron may
change its sign; and so it is for one neuron and a target with E[∇h] = 0. All averages
are then integrals in one dimension, and neurons with the same a are counted, not
followed one by one: any width costs the same.

Overlaps Q_jl between neurons start with variance 1/d. They decay, single samples kick
them, and the risk feels their squares:

    dQ_jl/dt = −h_jl Q_jl,    Var(dQ_jl) = ρ W_jl dt/d,
        R ∋ Σ_{j≠l} (a_j a_l/4N²) E[σ''_j] E[σ''_l] Q_jl²
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from twolayer.analysis.target_averages import (
    TargetAverages,
    cumulants,
    from_cumulants,
)
from twolayer.functions.activation import Activation, in_jax
from twolayer.functions.hermite import gauss_panels

__all__ = ["Mediocrity", "OneNeuron", "is_even"]

LEAST = 1e-12  # of a variance
EVEN = 1e-10  # of the largest |σ|: below this σ(z) − σ(−z) is rounding


def is_even(sigma: Activation) -> bool:
    """Whether σ(−z) = σ(z).

    Examples
    --------
    >>> [is_even(Activation.of(name)) for name in ("He2", "abs(z)", "relu")]
    [True, True, False]
    """
    z = np.linspace(0.013, 6.0, 97)
    right = sigma.on_host(z)
    left = sigma.on_host(-z)
    return bool(np.abs(right - left).max() <= EVEN * max(1.0, np.abs(right).max()))


def _slope(sigma: Activation) -> Callable[[np.ndarray], np.ndarray]:
    """σ' on arrays of NumPy; without JAX for polynomials."""
    if sigma.polynomial is None:
        return lambda x: in_jax(sigma.slope, x)
    powers = np.polynomial.polynomial.polyder(np.asarray(sigma.polynomial))
    return lambda x: np.polynomial.polynomial.polyval(x, powers)


class OneNeuron(NamedTuple):
    """OneNeuron of one neuron over λ ~ N(0, q), an entry for each group.

    ``curved`` ones are E[∂² of the same], by parts.
    """

    mean: np.ndarray  # E[σ]
    square: np.ndarray  # E[σ²]
    curvature: np.ndarray  # E[σ'']
    square_curved: np.ndarray  # E[(σ²)'']
    radial: np.ndarray  # E[σ' λ]
    radial_own: np.ndarray  # E[σ' λ σ]
    radial_curved: np.ndarray  # E[(σ' λ)'']
    slope: np.ndarray  # E[σ'²], E[σ'² σ], E[σ'² σ²] in rows
    slope_curved: np.ndarray  # E[(σ'²)''], E[(σ'² σ)'']

    @property
    def variance(self) -> np.ndarray:
        """Var σ."""
        return self.square - self.mean**2


@dataclass(frozen=True, eq=False)
class Mediocrity:
    """The dynamics at M = 0 and next to it, of groups of neurons that are alike.

    Attributes
    ----------
    sigma : Activation
    target : TargetAverages
        Of a target with orthonormal directions.
    counts : array (G,)
        Neurons in each group.
    divisor : float
        N.
    rho : float
        d·lr/(N n_b).
    noise : float
        Δ.
    free : bool
        Whether norms move.
    second : float
        κ; 0 where the second layer is fixed.

    Examples
    --------
    >>> from twolayer.analysis.target_averages import target_averages
    >>> from twolayer.functions.target import Target
    >>> target = target_averages(Target.of("z1**2"))
    >>> flat = Mediocrity(
    ...     Activation.of("square"), target, np.array([2.0]), 2.0, 0.05, 0.0, False, 0.0
    ... )
    >>> one = np.ones(1)
    >>> flat.rates(one, one).round(6).tolist()  # 4 [1 − ρ (1 + 1/p + 4/p²)]
    [[3.5]]
    """

    sigma: Activation
    target: TargetAverages
    counts: np.ndarray
    divisor: float
    rho: float
    noise: float
    free: bool
    second: float

    @cached_property
    def modes(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of C, the largest first, and its eigenvectors in columns."""
        values, vectors = np.linalg.eigh(self.target.curvature)
        return values[::-1], vectors[:, ::-1]

    @cached_property
    def _derivative(self) -> Callable[[np.ndarray], np.ndarray]:
        return _slope(self.sigma)

    @property
    def stationary(self) -> bool:
        """Whether nothing moves at M = 0."""
        return not self.free and self.second == 0.0

    def averages(self, q: np.ndarray) -> OneNeuron:
        """The averages of one neuron at variances ``q`` of its field."""
        found = [self._of_one(float(x)) for x in q]
        return OneNeuron(*(np.stack(part, -1) for part in zip(*found, strict=True)))

    def _of_one(self, q: float) -> list[np.ndarray]:
        # trial steps of an integration may overshoot
        q = max(q, LEAST)
        root = math.sqrt(q)
        z, w = gauss_panels(tuple(kink / root for kink in self.sigma.kinks))
        value = self.sigma.on_host(root * z)
        second = w * (z**2 - 1) / q
        quartic = w * (z**4 - 4 * z**2 + 1) / q
        slope = [np.zeros(3), np.zeros(2)]
        if self.rho:
            steep = self._derivative(root * z) ** 2
            powers = np.stack([steep, steep * value, steep * value**2])
            slope = [powers @ w, powers[:2] @ second]
        return [
            np.asarray(w @ value),
            np.asarray(w @ value**2),
            np.asarray(second @ value),
            np.asarray(second @ value**2),
            np.asarray(q * (second @ value)),
            np.asarray(q * (second @ value**2) / 2),
            np.asarray(quartic @ value),
            *slope,
        ]

    def risk(self, q: np.ndarray, a: np.ndarray, bent: np.ndarray) -> float:
        """R to second order in M, with ``bent`` = M_j C M_jᵀ of one neuron of each
        group.
        """
        own = self.averages(q)
        weight = self.counts * a / self.divisor
        mean = float(weight @ own.mean)
        spread = float((weight * a / self.divisor) @ own.variance)
        shared = float((weight * own.curvature) @ bent) / 2
        h = self.target
        return (h.square - 2 * (h.mean * mean + shared) + mean**2 + spread) / 2

    def drift(
        self, q: np.ndarray, a: np.ndarray, bent: np.ndarray, twice: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """dq/dt of free weights and da/dt to second order in M.

        ``bent`` is M_j C M_jᵀ, and ``twice`` the same with E[∇²h²] in the place of C.
        """
        own, h = self.averages(q), self.target
        share = a / self.divisor
        others = float((self.counts * share) @ own.mean) - share * own.mean
        radial = (
            own.radial * (h.mean - others)
            - share * own.radial_own
            + own.radial_curved * bent / 2
        )
        push = (
            own.mean * (h.mean - others) - share * own.square + own.curvature * bent / 2
        )
        dq = 2 * a * radial + self.rho * a**2 * self._variance(own, a, bent, twice)
        return dq, self.second * push

    def _variance(
        self, own: OneNeuron, a: np.ndarray, bent: np.ndarray, twice: np.ndarray
    ) -> np.ndarray:
        """E[σ'_j² e²]."""
        h = self.target
        share = a / self.divisor
        others, spread = self._of_others(own, a)
        bends = share * own.curvature * bent / 2
        shared = float(self.counts @ bends) - bends
        b0, b1, b2 = own.slope
        c0, c1 = own.slope_curved
        label = b0 * h.square + c0 * twice / 2
        product = (
            (b0 * h.mean + c0 * bent / 2) * others
            + b0 * shared
            + share * (b1 * h.mean + c1 * bent / 2)
        )
        student = b0 * (others**2 + spread) + 2 * others * share * b1 + share**2 * b2
        return np.asarray(label - 2 * product + student + self.noise * b0)

    def _of_others(
        self, own: OneNeuron, a: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of what all neurons but one of a group make of f."""
        share = a / self.divisor
        mean = share * own.mean
        spread = share**2 * own.variance
        return float(self.counts @ mean) - mean, float(self.counts @ spread) - spread

    def rates(self, q: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Rates of growth (G, k) of M_j along the eigenvectors of C."""
        own, h = self.averages(q), self.target
        share = a / self.divisor
        others, _ = self._of_others(own, a)
        alpha = a * (own.curvature * (h.mean - others) - share * own.square_curved / 2)
        if not self.free:
            none = np.zeros_like(q)
            alpha = alpha - self.drift(q, a, none, none)[0] / (2 * q)
        return np.asarray(alpha[:, None] + (a * own.curvature)[:, None] * self.modes[0])

    def kicks(self, q: np.ndarray, a: np.ndarray) -> np.ndarray:
        """ρ V_j (G, k): variance that single samples give M_j along the eigenvectors of
        C, per unit of time and times d.
        """
        own, h = self.averages(q), self.target
        share = a / self.divisor
        others, spread = self._of_others(own, a)
        b0, b1, b2 = own.slope
        vectors = self.modes[1]
        curved = np.diagonal(vectors.T @ h.of_square @ vectors)
        label = np.multiply.outer(b0, h.square + curved)
        product = np.multiply.outer(b0 * others + share * b1, h.mean + self.modes[0])
        student = b0 * (others**2 + spread + self.noise)
        student = student + 2 * others * share * b1 + share**2 * b2
        variance = label - 2 * product + student[:, None]
        return np.asarray(self.rho * (a**2)[:, None] * variance)

    def responses(self, q: np.ndarray, a: np.ndarray) -> np.ndarray:
        """How the risk feels M: R = R(0) + Σ_j Σ_i r_ji (M_j v_i)², (G, k)."""
        own = self.averages(q)
        weight = -a * own.curvature / (2 * self.divisor)
        return np.asarray(weight[:, None] * self.modes[0])

    # -- overlaps between neurons ----------------------------------------------------

    def between(self, a: np.ndarray) -> Between:
        """Decay, kicks and weight of Q_jl (G, G) on the sphere, of an even activation.

        Diagonal entries belong to two different neurons of one group.
        """
        size = len(a)
        one = np.ones(size)
        own = self.averages(one)
        z, w = gauss_panels(self.sigma.kinks)
        powers = self.sigma.on_host(z)[None] ** np.arange(5)[:, None]
        moments = powers @ w
        cubic = (w * (z**2 - 1)) @ powers[3] / 3  # E[(σ' σ²)']
        none = np.zeros(size)
        norm = self.drift(one, a, none, none)[0]
        share = a / self.divisor
        every = np.stack([cumulants(_scaled(moments, -x)) for x in share])
        rest = self.target.cumulants + (self.counts[:, None] * every).sum(0)
        rest[2] += self.noise
        shape = (size, size)
        decay = np.zeros(shape)
        kick = np.zeros(shape)
        table = self._products(z, w)
        for j, l in itertools.product(range(size), repeat=2):
            left = from_cumulants(rest - every[j] - every[l])
            decay[j, l] = (norm[j] + norm[l]) / 2 - self._pull(
                own, moments, cubic, left, a, j, l
            )
            kick[j, l] = self.rho * self._pair_kick(table, left, a, j, l)
        bend = share * own.curvature
        return Between(decay, kick, np.multiply.outer(bend, bend) / 4)

    def _pull(
        self,
        own: OneNeuron,
        moments: np.ndarray,
        cubic: float,
        left: np.ndarray,
        a: np.ndarray,
        j: int,
        l: int,
    ) -> float:
        """The linear part of dQ_jl/dt, without what keeps the norms; ``left`` are the
        moments of what the two neurons leave of e.
        """
        curved = float(own.curvature[0])
        doubled = float(own.square_curved[0]) / 2  # E[(σ σ')']
        mean = float(moments[1])
        radial = float(own.radial[0])
        share = a / self.divisor

        def gradient(j: int, l: int) -> float:
            """E[∂_j ∂_l (σ'_j λ_l e)]."""
            other = float(left[1]) - share[l] * (mean + radial)
            return float(curved * other - share[j] * doubled)

        square = (
            left[2] * curved**2
            - 2 * left[1] * doubled * curved * (share[j] + share[l])
            + cubic * curved * (share[j] ** 2 + share[l] ** 2)
            + 2 * share[j] * share[l] * doubled**2
        )
        flow = a[j] * gradient(j, l) + a[l] * gradient(l, j)
        return float(flow + self.rho * a[j] * a[l] * square)

    def _products(self, z: np.ndarray, w: np.ndarray) -> np.ndarray:
        """E[σ'^u z^v σ^n] for u, v ≤ 2 and n ≤ 4."""
        value, steep = self.sigma.on_host(z), self._derivative(z)
        table = np.zeros((3, 3, 5))
        for u, v, n in itertools.product(range(3), range(3), range(5)):
            table[u, v, n] = w @ (steep**u * z**v * value**n)
        return table

    def _pair_kick(
        self, table: np.ndarray, left: np.ndarray, a: np.ndarray, j: int, l: int
    ) -> float:
        """W_jl = E[(a_j σ'_j λ_l e + a_l σ'_l λ_j e + ρ a_j a_l σ'_j σ'_l e²)²]."""
        share = a / self.divisor

        def average(u: tuple[int, int], v: tuple[int, int], order: int) -> float:
            """E[σ'_j^u σ'_l^u λ_j^v λ_l^v e^order]."""
            total = 0.0
            for s in range(order + 1):
                for r in range(order + 1 - s):
                    ways = math.comb(order, s) * math.comb(order - s, r)
                    sign = (-share[j]) ** s * (-share[l]) ** r
                    first = table[u[0], v[0], s]
                    second = table[u[1], v[1], r]
                    total += ways * sign * left[order - s - r] * first * second
            return float(total)

        aj, al, rho = float(a[j]), float(a[l]), self.rho
        return (
            aj**2 * average((2, 0), (0, 2), 2)
            + al**2 * average((0, 2), (2, 0), 2)
            + 2 * aj * al * average((1, 1), (1, 1), 2)
            + 2 * rho * aj**2 * al * average((2, 1), (0, 1), 3)
            + 2 * rho * aj * al**2 * average((1, 2), (1, 0), 3)
            + rho**2 * aj**2 * al**2 * average((2, 2), (0, 0), 4)
        )


class Between(NamedTuple):
    """Overlaps between neurons of two groups: rate of decay, variance of the kicks per
    unit of time and times d, and the weight of Q_jl² in the risk.
    """

    decay: np.ndarray
    kick: np.ndarray
    weight: np.ndarray


def _scaled(moments: np.ndarray, factor: float) -> np.ndarray:
    """Moments of a multiple."""
    return moments * factor ** np.arange(5)
