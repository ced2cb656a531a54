"""Phase retrieval by groups of neurons that are alike: the ODE whatever the width.

    n_g neurons of group g have M_j = m_g, Q_jj = 1 and Q_jl = q_gh to those of group h:
    Ω and B = diag(−1/p, …, −1/p, 1) lie in the algebra of
        [ diag(own_g) + cross_gh    up_g ]
        [ down_h                    star ]        in which products take O(G³)

    E[e u uᵀ] = t1 Ω + 2A,   E[e² u uᵀ] = (t1² + 2 t2 + Δ) Ω + 4 t1 A + 8 ΩBA,
        A = ΩBΩ,   t_n = tr (BΩ)^n
    R = ½ t1² + t2,    dM/dt = 2 E[e λ λ*],    dQ/dt = 4 E[e λ λ] + 4ρ E[e² λ λ],
        rows kept at norm one

What a random start adds to this, overlaps of size d^(−1/2) between neurons, decays and
changes times by O(1/Td). A group of one neuron is a neuron; one group is where the
escape leads, for it aligns all of them, up to signs that an even activation does not
see; and many neurons with random m_j are as many groups as a quadrature over m² has
nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Alike", "fewest_to_learn", "learning_time", "typical"]

NODES = 10  # of the quadrature over m² of a random start
FOLLOWED = 12.0  # times the linear time of escape after which a start is given up


@dataclass(frozen=True)
class Bordered:
    """A matrix of the algebra, for groups of ``sizes`` neurons and one direction."""

    sizes: np.ndarray
    own: np.ndarray
    cross: np.ndarray
    up: np.ndarray
    down: np.ndarray
    star: float

    def __matmul__(self, other: Bordered) -> Bordered:
        n = self.sizes
        cross = (
            self.own[:, None] * other.cross
            + self.cross * other.own
            + self.cross @ (n[:, None] * other.cross)
            + np.multiply.outer(self.up, other.down)
        )
        up = self.own * other.up + self.cross @ (n * other.up) + self.up * other.star
        down = (
            self.down * other.own
            + (n * self.down) @ other.cross
            + self.star * other.down
        )
        star = float((n * self.down) @ other.up) + self.star * other.star
        return Bordered(n, self.own * other.own, cross, up, down, star)

    @property
    def trace(self) -> float:
        """The sum of the diagonal."""
        return float(self.sizes @ self.diagonal) + self.star

    @property
    def diagonal(self) -> np.ndarray:
        """The entries (j, j) of the neurons."""
        return self.own + np.diagonal(self.cross)


@dataclass(frozen=True, eq=False)
class Alike:
    """The projected ODE of groups of neurons.

    Attributes
    ----------
    sizes : array (G,)
        Neurons in each group, not necessarily whole numbers of them.
    rho : float
        d·lr/(p n_b).
    noise : float
        Δ.

    Examples
    --------
    >>> one = Alike(np.ones(1), rho=0.05, noise=0.2)
    >>> dm, dq = one.drift(np.array([0.5]), np.zeros((1, 1)))
    >>> round(float(dm[0]), 12)  # m [4 (1 − 6γ)(1 − m²) − 2γΔ]
    1.04
    """

    sizes: np.ndarray
    rho: float
    noise: float

    @property
    def p(self) -> float:
        """Neurons of all groups together."""
        return float(self.sizes.sum())

    def _covariance(self, m: np.ndarray, q: np.ndarray) -> tuple[Bordered, Bordered]:
        """Ω and B."""
        none = np.zeros(len(m))
        omega = Bordered(self.sizes, 1 - np.diagonal(q), q, m, m, 1.0)
        flat = np.full(len(m), -1 / self.p)
        return omega, Bordered(self.sizes, flat, 0 * q, none, none, 1.0)

    def excess_risk(self, m: np.ndarray, q: np.ndarray) -> float:
        """R at overlaps m (G,) with the target and q (G, G) among the neurons.

        Examples
        --------
        >>> Alike(np.array([3.0]), 0.1, 0.0).excess_risk(np.ones(1), np.ones((1, 1)))
        0.0
        """
        omega, B = self._covariance(m, q)
        BO = B @ omega
        return max(BO.trace**2 / 2 + (BO @ BO).trace, 0.0)

    def drift(self, m: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """dm/dt and dq/dt."""
        omega, B = self._covariance(m, q)
        BO = B @ omega
        t1, t2, A = BO.trace, (BO @ BO).trace, omega @ BO
        C = omega @ B @ A
        square = t1**2 + 2 * t2 + self.noise
        first = 2 * (t1 * omega.up + 2 * A.up)

        def second(name: str) -> np.ndarray:
            o, a, c = (getattr(x, name) for x in (omega, A, C))
            flow = 4 * (t1 * o + 2 * a)
            return np.asarray(flow + 4 * self.rho * (square * o + 4 * t1 * a + 8 * c))

        norm = second("diagonal")
        dq = second("cross") - q * (norm[:, None] + norm[None, :]) / 2
        return first - m * norm / 2, dq

    def passage(
        self,
        m: np.ndarray,
        threshold: float,
        longest: float,
        q: np.ndarray | None = None,
    ) -> float:
        """Time until R = (1 − T) R(0) from overlaps m (G,), and q (G, G) between
        neurons if they are not zero; infinite where the risk stays above.

        Examples
        --------
        >>> one = Alike(np.ones(1), rho=1 / 12, noise=0.0)
        >>> start = np.array([0.01])
        >>> round(one.passage(start, 0.99, longest=50.0), 3)
        3.451
        """
        from scipy.integrate import solve_ivp

        size = len(m)
        rest = np.zeros((size, size)) if q is None else q
        level = (1 - threshold) * self.excess_risk(m, rest)

        def motion(t: float, x: np.ndarray) -> np.ndarray:
            dm, dq = self.drift(x[:size], x[size:].reshape(size, size))
            return np.concatenate([dm, dq.ravel()])

        def below(t: float, x: np.ndarray) -> float:
            return self.excess_risk(x[:size], x[size:].reshape(size, size)) - level

        below.terminal = True  # type: ignore[attr-defined]
        below.direction = -1.0  # type: ignore[attr-defined]
        found = solve_ivp(
            motion,
            (0.0, longest),
            np.concatenate([m, rest.ravel()]),
            method="LSODA",
            events=below,
            rtol=1e-8,
            atol=1e-12,
        )
        crossed = found.t_events[0]
        return float(crossed[0]) if crossed.size else math.inf


def typical(p: float, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of groups and their m for a random start of many neurons: √d m_j ~ N(0, 1).

    Up to ``NODES`` neurons have the quantiles of that law, one each; more of them the
    nodes of Gauss and Hermite.

    Examples
    --------
    >>> sizes, m = typical(1000, dim=400)
    >>> round(float(sizes @ m**2), 12), round(float(sizes @ m**4) * 400**2 / 1000, 9)
    (2.5, 3.0)
    """
    from scipy.special import ndtri

    if p <= NODES:
        middle = (np.arange(int(p)) + 0.5) / p
        m = ndtri((1 + middle) / 2)
        return np.ones(int(p)), m * math.sqrt(p / float(m @ m) / dim)
    nodes, weights = np.polynomial.hermite_e.hermegauss(2 * NODES)
    right = nodes > 0
    share = 2 * weights[right] / weights.sum()
    return p * share, nodes[right] / math.sqrt(dim)


def learning_time(
    p: int, dim: float, rho: float, noise: float, threshold: float
) -> float:
    """Time until R = (1 − T) R(0) from m² = 1/d, q = 0, with all neurons alike;
    infinite where the risk stays above.

    Several neurons learn as 1/t² in the end, and are given up after several times that.

    Examples
    --------
    >>> round(
    ...     learning_time(1, 10_000, 1 / 12, 0.0, 0.99), 3
    ... )  # log{u_T (1 − u0)/[u0 (1 − u_T)]}/(2c), c = 2
    3.451
    """
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
    alike = Alike(np.array([float(p)]), rho, noise)
    tiny = np.array([1e-8])
    growth = float(alike.drift(tiny, np.zeros((1, 1)))[0][0]) / 1e-8
    if growth <= 0:
        return math.inf
    longest = 5 * (math.log(dim) + 4 / math.sqrt(1 - threshold)) / growth
    return alike.passage(np.array([1 / math.sqrt(dim)]), threshold, longest)


def fewest_to_learn(
    p: int, dim: float, largest: float, noise: float, threshold: float
) -> float | None:
    """The ρ below ``largest`` with the fewest steps until R = (1 − T) R(0); None where
    no rate leads there. Takes about a second.

    Examples
    --------
    >>> round(fewest_to_learn(1, 10_000, 1 / 6, 0.0, 0.99), 4)
    0.0833
    """
    from scipy import optimize

    def steps(x: float) -> float:
        """The logarithm of the steps, up to a constant; of rates that do not learn,
        more than any other.
        """
        time = learning_time(p, dim, math.exp(x), noise, threshold)
        return math.log(min(time / math.exp(x), 1e300))

    grid = [math.log(0.97 * 0.7**i * largest) for i in range(16)]
    values = [steps(x) for x in grid]
    best = min(range(len(grid)), key=values.__getitem__)
    if values[best] > 600:
        return None
    low, high = grid[min(best + 1, len(grid) - 1)], grid[max(best - 1, 0)]
    found = optimize.minimize_scalar(
        steps, bounds=(low, high), method="bounded", options={"xatol": 1e-4}
    )
    return math.exp(found.x)
