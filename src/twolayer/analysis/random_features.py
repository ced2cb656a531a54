"""Power-law random features: the risk of SGD at any step, of one draw and over draws.

    x ~ N(0, I_v),   D_j = j^(−2α),   b_j = j^(−β),   φ = W D^½ x,   y = b·D^½ x
        W (size × v) of variance 1/size;  f = θ·φ from θ = 0
    2 risk_n = floor + Σ_i q_i^(n),   λ_i, u_i: eigenvalues and vectors of D^½WᵀWD^½
    q_i ← (1 − 2ηλ_i + (1 + 1/B)η²λ_i²) q_i + (η²/B) λ_i² (2 risk),
        q_i^(0) = ⟨u_i, D^½b⟩²

For one draw this is exact at every step: scaled by λ it is a symmetric matrix, diagonal
plus rank one, whose eigenvectors give any step at once.

Over draws, in the limit of large sizes (deterministic equivalent),

    m(z) = 1/(1 + (1/size) Σ_j D_j/(D_j m − z))
    Σ_i q_i F(λ_i) = −(1/2πi) ∮ F(z) Σ_j D_j b_j²/(D_j m − z) dz
    Σ_i F(λ_i) = −(1/2πi) ∮ F(z) Σ_j 1/(D_j m − z) dz,   F(0) = 0

around the eigenvalues, then the equation of Volterra for the risk. The contour is a
sector about the positive axis: A(z)^n stays bounded there, while an inversion on the
real line would drown everything in the tail of the top eigenvalue. Sums over the nodes
are sums of exponentials A^n, so that a step costs as many products as there are nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from twolayer.numerics.errors import (
    InputError,
    finite_number,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.random import check_seed

__all__ = ["FeatureDraw", "RandomFeatures", "SumRules", "random_features"]

ANGLE = np.pi / 5  # half of the sector
INNER, OUTER = 0.02, 1.5  # its ends, in the smallest D and in the edge of the spectrum
RAY, ARC = 500, 60  # nodes
CLOSE = 1e-13  # where Newton's method has found m
TRIES = 60
MOST_STEPS = 10**6
LARGEST = 20_000  # dimensions: a draw holds the square of a size


class SumRules(NamedTuple):
    """By how much the contour misses what is known, relative.

    Attributes
    ----------
    number : float
        Of the number of eigenvalues.
    signal : float
        Of Σ q = Σ D b² − floor.

    Examples
    --------
    >>> random_features(0.8, 0.6, size=100, dim=1000).sum_rules.number < 1e-9
    True
    """

    number: float
    signal: float


class Contour(NamedTuple):
    """Nodes z, with the weights −dz/(2πi) Σ D/(…) of both sums; only the upper half is
    kept, of which twice the real part counts.
    """

    z: np.ndarray
    signal: np.ndarray
    number: np.ndarray


def steps_of(steps: object) -> np.ndarray:
    """Numbers of steps, in increasing order."""
    try:
        given = np.asarray(steps, float)
    except (TypeError, ValueError):
        reject("steps", steps, "integers from 0 on, in increasing order")
    found = given.ravel()
    fine = (
        found.size > 0
        and np.isfinite(found).all()
        and (found % 1 == 0).all()
        and found[0] >= 0
        and (np.diff(found) > 0).all()
    )
    if not fine:
        reject("steps", steps, "integers from 0 on, in increasing order")
    return found.astype(np.int64)


def checked_rate(lr: object, batch: object) -> tuple[float, int]:
    """η and B."""
    rate = finite_number("lr", lr, minimum=0.0, accepted="a positive number")
    require(rate > 0, "lr", lr, "a positive number")
    return rate, positive_integer("batch", batch)


@dataclass(frozen=True)
class FeatureDraw:
    """One draw of W: eigenvalues λ, what a student can learn along each, and what it
    cannot. Made by `RandomFeatures.draw`.

    Attributes
    ----------
    eigenvalues, signal : array (size,)
        λ_i and q_i at the start.
    floor : float
        Twice the risk that no student of these features goes below.
    features : RandomFeatures
        What was drawn from.
    seed : int
        Of the draw.

    Examples
    --------
    >>> random_features(0.8, 0.6, size=20, dim=100).draw(0).eigenvalues.shape
    (20,)
    """

    eigenvalues: np.ndarray
    signal: np.ndarray
    floor: float
    features: RandomFeatures
    seed: int

    def risk(self, steps: object, *, lr: float, batch: int = 1) -> np.ndarray:
        """The mean risk over the samples after each number of ``steps``, at the rate
        ``lr`` on batches of ``batch`` samples: exact.

        Examples
        --------
        >>> draw = random_features(0.8, 0.6, size=20, dim=100).draw(0)
        >>> risk = draw.risk([0, 10, 1000], lr=0.1)
        >>> bool((np.diff(risk) < 0).all())
        True
        """
        at = steps_of(steps)
        eta, B = checked_rate(lr, batch)
        x = eta * self.eigenvalues
        kept = x > 0
        x = x[kept]
        matrix = np.diag(1 - 2 * x + (1 + 1 / B) * x**2) + np.outer(x, x) / B
        values, vectors = np.linalg.eigh(matrix)
        start = vectors.T @ (self.signal[kept] / x)
        force = vectors.T @ x * self.floor / B
        read = vectors.T @ x
        grown = values ** at[:, None]
        # Σ_{k<n} μ^k, where an eigenvalue may be 1
        apart = np.where(values == 1, 1.0, values - 1)
        summed = np.where(values == 1, at[:, None], (grown - 1) / apart)
        return np.asarray((self.floor + (start * grown + force * summed) @ read) / 2)

    def simulate(
        self, steps: object, *, lr: float, batch: int = 1, seeds: int = 16
    ) -> np.ndarray:
        """The risk of SGD on drawn inputs after ``steps``, at the rate ``lr`` on
        batches of ``batch`` samples, of so many ``seeds`` (seeds, steps): the
        experiment.
        """
        at = steps_of(steps)
        eta, B = checked_rate(lr, batch)
        runs = positive_integer("seeds", seeds)
        features = self.features
        rng = np.random.default_rng([self.seed, 1])
        root = np.sqrt(features.variances)
        W = features.weights(self.seed) * root
        goal = root * features.target
        theta = np.zeros((runs, features.size))
        found = []
        for step in range(int(at[-1]) + 1):
            if step in at:
                found.append(((goal - theta @ W) ** 2).sum(1) / 2)
            x = rng.standard_normal((runs, B, features.dim))
            phi = x @ W.T
            error = x @ goal - np.einsum("rbi,ri->rb", phi, theta)
            theta = theta + eta / B * np.einsum("rb,rbi->ri", error, phi)
        return np.stack(found, axis=1)


@dataclass(frozen=True)
class RandomFeatures:
    """Random features of inputs with a power law. Made by `random_features`.

    Attributes
    ----------
    alpha, beta : float
        Exponents of D_j = j^(−2α) and b_j = j^(−β).
    size, dim : int
        Features, and inputs v.
    """

    alpha: float
    beta: float
    size: int
    dim: int

    @cached_property
    def variances(self) -> np.ndarray:
        """D."""
        return np.asarray(np.arange(1, self.dim + 1) ** (-2.0 * self.alpha))

    @cached_property
    def target(self) -> np.ndarray:
        """The weights b_j."""
        return np.asarray(np.arange(1, self.dim + 1) ** (-float(self.beta)))

    @cached_property
    def _signal(self) -> np.ndarray:
        return self.variances * self.target**2

    def weights(self, seed: int) -> np.ndarray:
        """W (size, dim) of the draw number ``seed``."""
        rng = np.random.default_rng([seed, 0])
        return rng.standard_normal((self.size, self.dim)) / np.sqrt(self.size)

    def draw(self, seed: int = 0) -> FeatureDraw:
        """One draw of the features, by its ``seed``."""
        seed = check_seed(seed)
        root = np.sqrt(self.variances)
        _, s, u = np.linalg.svd(self.weights(seed) * root, full_matrices=False)
        signal = (u @ (root * self.target)) ** 2
        floor = max(float(self._signal.sum() - signal.sum()), 0.0)
        return FeatureDraw(s**2, signal, floor, self, seed)

    @cached_property
    def kappa(self) -> float:
        """κ: (1/size) Σ D/(D + κ) = 1, what directions have to exceed to be seen by
        features at all.
        """
        D = self.variances
        return (
            float(
                brentq(
                    lambda k: (D / (D + np.exp(k))).sum() / self.size - 1,
                    np.log(D[-1]) - 40,
                    np.log(D.sum()) + 5,
                    xtol=1e-14,
                    rtol=1e-14,
                )
            )
            if self.size < self.dim
            else -np.inf
        )

    @cached_property
    def floor(self) -> float:
        """Twice the risk that no student goes below, over draws: Σ κ D b²/(D + κ)."""
        kappa = np.exp(self.kappa)
        return float((kappa * self._signal / (self.variances + kappa)).sum())

    @cached_property
    def _contour(self) -> Contour:
        D = self.variances
        inner = INNER * D[-1]
        # no eigenvalue is beyond this edge, of a spike D_1 and of all others
        outer = OUTER * (np.sqrt(D[0]) + np.sqrt(D.sum() / self.size)) ** 2
        nodes, weights = np.polynomial.legendre.leggauss(ARC)
        angles = ANGLE * (nodes + 1) / 2
        bend = ANGLE * weights / 2
        along, pace = np.polynomial.legendre.leggauss(RAY)
        span = np.log(outer / inner)
        radii = outer * np.exp(-span * (along + 1) / 2)
        turn = np.exp(1j * ANGLE)
        arcs = [r * np.exp(1j * angles) for r in (outer, inner)]
        z = np.concatenate([arcs[0], radii * turn, arcs[1][::-1]])
        dz = np.concatenate(
            [
                1j * arcs[0] * bend,
                -radii * turn * pace * span / 2,
                -1j * arcs[1][::-1] * bend[::-1],
            ]
        )
        m = self._equivalents(z)
        # −(1/2πi) of the upper half, of which the lower is the conjugate
        both = -dz / (1j * np.pi)
        poles = D * m[:, None] - z[:, None]
        return Contour(
            z, both * (self._signal / poles).sum(1), both * (1 / poles).sum(1)
        )

    def _equivalents(self, z: np.ndarray) -> np.ndarray:
        """The m of all nodes, each by Newton's method from the one before; the first is
        far out, where m is near 1.
        """
        D, found, m = self.variances, [], 1.0 + 0j
        for number in z:
            for _ in range(TRIES):
                poles = D * m - number
                value = m * (1 + (D / poles).sum() / self.size) - 1
                slope = 1 - number * (D / poles**2).sum() / self.size
                m = m - value / slope
                if abs(value) < CLOSE * max(1.0, abs(m)):
                    break
            else:
                raise InputError(
                    "The equation of the deterministic equivalent was not solved at"
                    f" {self!r}: use `draw` for the risk of one draw."
                )
            found.append(m)
        return np.asarray(found)

    @property
    def sum_rules(self) -> SumRules:
        """What the contour misses of what is known."""
        contour = self._contour
        number = float(contour.number.real.sum())
        signal = float(contour.signal.real.sum())
        known = float(self._signal.sum()) - self.floor
        return SumRules(abs(number / self.size - 1), abs(signal / known - 1))

    def risk(self, steps: object, *, lr: float, batch: int = 1) -> np.ndarray:
        """The risk over draws after each number of ``steps``.

        Parameters
        ----------
        steps : int or increasing sequence
            Numbers of steps.
        lr : float
            η.
        batch : int
            B.

        Examples
        --------
        >>> features = random_features(0.8, 0.6, size=200, dim=2000)
        >>> lr = 0.4 / features.variances.sum()
        >>> features.risk([0, 100, 1000], lr=lr).round(6).tolist()
        [0.623515, 0.010705, 0.00244]
        """
        at = steps_of(steps)
        require(at[-1] <= MOST_STEPS, "steps", int(at[-1]), f"at most {MOST_STEPS:,}")
        eta, B = checked_rate(lr, batch)
        contour = self._contour
        x = eta * contour.z
        A = 1 - 2 * x + (1 + 1 / B) * x**2
        if (np.abs(A) > 1 + CLOSE).any():
            raise InputError(
                "Argument `lr` must leave every step a contraction on the contour"
                " around the eigenvalues, which reaches to"
                f" {np.abs(contour.z).max():.3g}, but {lr:g} does not: use a smaller"
                " one, or `draw`, which is exact at any rate."
            )
        F = contour.signal.copy()
        K = contour.number * x**2 / B
        past = np.zeros_like(F)
        found, last = [], int(at[-1])
        wanted = set(at.tolist())
        for step in range(last + 1):
            twice = self.floor + float(F.real.sum() + (K * past).real.sum())
            if step in wanted:
                found.append(twice / 2)
            F = F * A
            past = past * A + twice
        return np.asarray(found)


def random_features(alpha: float, beta: float, size: int, dim: int) -> RandomFeatures:
    """Power-law random features with a linear student, trained by SGD on new samples.

    Parameters
    ----------
    alpha : float
        Inputs have variances j^(−2α), α > 0.
    beta : float
        The target has weights j^(−β), with α + β > 1/2, so that labels have a variance
        however many inputs there are.
    size : int
        Features d.
    dim : int
        Inputs v, more than features.

    Returns
    -------
    RandomFeatures
        ``.risk(steps, lr=…)`` over draws, ``.sum_rules`` of its contour;
        ``.draw(seed).risk(steps, lr=…)`` of one draw, exact, and ``.simulate`` by SGD.

    Examples
    --------
    >>> features = random_features(0.8, 0.6, size=100, dim=1000)
    >>> max(features.sum_rules) < 1e-9
    True
    """
    a = finite_number("alpha", alpha, accepted="a positive number")
    require(a > 0, "alpha", alpha, "a positive number")
    b = finite_number("beta", beta, accepted="a number with α + β > 1/2")
    require(
        a + b > 0.5,
        "beta",
        beta,
        f"more than {0.5 - a:g} at alpha = {a:g}, where the variance of the labels,"
        " Σ j^(−2α−2β), converges",
    )
    number, inputs = positive_integer("size", size), positive_integer("dim", dim)
    require(inputs <= LARGEST, "dim", dim, f"at most {LARGEST:,}")
    require(number < inputs, "size", size, f"less than dim = {inputs}")
    return RandomFeatures(a, b, number, inputs)
