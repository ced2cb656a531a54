"""Phase retrieval by neurons that are all alike: the ODE in two numbers, whatever the width.

    M = m 1,   Q = (1 − q) I + q 1 1ᵀ,   P = 1:     Ω and B = diag(−1/p, …, −1/p, 1) lie in the algebra
    [ α I + β 1 1ᵀ   γ 1 ]
    [ δ 1ᵀ           ε   ]      in which products take O(1)

    E[e u uᵀ] = t1 Ω + 2A,   E[e² u uᵀ] = (t1² + 2 t2 + Δ) Ω + 4 t1 A + 8 ΩBA,   A = ΩBΩ,   t_n = tr (BΩ)^n
    R = ½ t1² + t2,    dM/dt = 2 E[e λ λ*],    dQ/dt = 4 E[e λ λ] + 4ρ E[e² λ λ],    rows kept at norm one

The escape aligns the neurons, up to signs that an even activation does not see, so this is where it leads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Bordered", "drift", "excess_risk", "learning_time"]


@dataclass(frozen=True)
class Bordered:
    """A matrix of the algebra, for p neurons and one direction."""

    p: int
    own: float
    cross: float
    up: float
    down: float
    star: float

    def __matmul__(self, other: Bordered) -> Bordered:
        p = self.p
        return Bordered(
            p,
            self.own * other.own,
            self.own * other.cross
            + self.cross * (other.own + p * other.cross)
            + self.up * other.down,
            (self.own + p * self.cross) * other.up + self.up * other.star,
            self.down * (other.own + p * other.cross) + self.star * other.down,
            p * self.down * other.up + self.star * other.star,
        )

    @property
    def trace(self) -> float:
        """The sum of the diagonal."""
        return self.p * (self.own + self.cross) + self.star

    @property
    def diagonal(self) -> float:
        """The entry (j, j)."""
        return self.own + self.cross


def _covariance(p: int, m: float, q: float) -> tuple[Bordered, Bordered]:
    """Ω and B."""
    return Bordered(p, 1 - q, q, m, m, 1.0), Bordered(p, -1 / p, 0.0, 0.0, 0.0, 1.0)


def excess_risk(p: int, m: float, q: float) -> float:
    """R at overlaps m with the target and q among the neurons.

    Examples
    --------
    >>> excess_risk(3, 1.0, 1.0), round(excess_risk(1, 0.5, 0.0), 12)
    (0.0, 1.5)
    """
    omega, B = _covariance(p, m, q)
    BO = B @ omega
    return max(BO.trace**2 / 2 + (BO @ BO).trace, 0.0)


def drift(p: int, m: float, q: float, rho: float, noise: float) -> tuple[float, float]:
    """dm/dt and dq/dt, ρ = d·lr/(p n_b).

    Examples
    --------
    >>> round(drift(1, 0.5, 0.0, 0.05, 0.2)[0], 12)  # m [4 (1 − 6γ)(1 − m²) − 2γΔ]
    1.04
    """
    omega, B = _covariance(p, m, q)
    BO = B @ omega
    t1, t2, A = BO.trace, (BO @ BO).trace, omega @ BO
    C = omega @ B @ A
    square = t1**2 + 2 * t2 + noise

    def entry(name: str) -> tuple[float, float]:
        o, a, c = (getattr(x, name) for x in (omega, A, C))
        return t1 * o + 2 * a, square * o + 4 * t1 * a + 8 * c

    length, other = (
        4 * first + 4 * rho * second
        for first, second in map(entry, ("diagonal", "cross"))
    )
    return 2 * entry("up")[0] - m * length / 2, other - q * length


def learning_time(
    p: int, dim: float, rho: float, noise: float, threshold: float
) -> float:
    """Time until R = (1 − T) R(0) from m² = 1/d, q = 0; infinite where the risk stays above.

    Several neurons learn as 1/t² in the end, and are given up after several times that.

    Examples
    --------
    >>> round(
    ...     learning_time(1, 10_000, 1 / 12, 0.0, 0.99), 3
    ... )  # log{u_T (1 − u0)/[u0 (1 − u_T)]}/(2c), c = 2
    3.451
    """
    from scipy.integrate import solve_ivp

    if p == 1:
        first, c = 1 / dim, 4 * (1 - 6 * rho) - 2 * rho * noise
        limit, last = (
            1 - rho * noise / (2 * (1 - 6 * rho)),
            threshold + (1 - threshold) * first,
        )
        reached = 6 * rho < 1 and first < last < limit
        return (
            math.log(last * (limit - first) / (first * (limit - last))) / (2 * c)
            if reached
            else math.inf
        )
    start = (1 / math.sqrt(dim), 0.0)
    growth = drift(p, 1e-8, 0.0, rho, noise)[0] / 1e-8
    if growth <= 0:
        return math.inf
    longest = 5 * (math.log(dim) + 4 / math.sqrt(1 - threshold)) / growth
    level = (1 - threshold) * excess_risk(p, *start)

    def below(t: float, x: np.ndarray) -> float:
        return excess_risk(p, float(x[0]), float(x[1])) - level

    below.terminal = True  # type: ignore[attr-defined]
    below.direction = -1.0  # type: ignore[attr-defined]
    found = solve_ivp(
        lambda t, x: drift(p, float(x[0]), float(x[1]), rho, noise),
        (0.0, longest),
        start,
        method="LSODA",
        events=below,
        rtol=1e-8,
        atol=1e-12,
    )
    return float(found.t_events[0][0]) if found.t_events[0].size else math.inf
