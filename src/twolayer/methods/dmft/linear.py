"""Many passes of a linear student over samples drawn with replacement: a closed form.

    u = (a/N) w,   y = c λ* + √Δ ξ,   γ = (lr d/n_b)(a/N)²,
        μ the law of Marchenko and Pastur of XᵀX/n with ratio 1/α
    ψ_x' = −2γx ψ_x + γ²x² Ψ,   Ψ = ½Δ(1 − 1/α)₊ + ∫ψ_x dμ,   x > 0,
        ψ_x(0) = ½C₀x + Δ/(2α),   C₀ = |u − c w*|² at the start
    excess = ½C₀∫e^(−2γxs)dμ + (Δ/2α)∫(1 − e^(−γxs))²/x dμ
        + ∫(ψ_x(s) − ψ_x(0) e^(−2γxs))/x dμ
    cP − M_u = (cP − M_u(0)) ∫e^(−γxs)dμ,
        s = samples seen/d

Ψ is the training risk. Integrating ψ_x out leaves the equation of Volterra
Ψ = Ψ₀ + γ²∫K(s − r)Ψ(r)dr with K(s) = ∫x²e^(−2γxs)dμ; as it stands it is linear with
constant coefficients, and scaled by √μ/x its matrix is symmetric: diag(−2γx) plus one
of rank one. Its eigenvectors give every time at once, without steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem

__all__ = ["LinearPasses", "Spectrum", "closed_reason", "marchenko_pastur"]

NODES = 600  # of the law of Marchenko and Pastur


class Spectrum(NamedTuple):
    """Nodes x > 0 of the law of eigenvalues with their weights, and the weight of 0."""

    x: np.ndarray
    weight: np.ndarray
    atom: float


def marchenko_pastur(alpha: float, nodes: int = NODES) -> Spectrum:
    """The limit of the eigenvalues of XᵀX/n for n = α d rows of N(0, I_d).

    The rule is that of Gauss for the weight √((x₊ − x)(x − x₋)).

    >>> law = marchenko_pastur(2.0)
    >>> round(float(law.weight.sum()), 12), round(float(law.weight @ law.x), 12)
    (1.0, 1.0)
    """
    c = 1 / alpha
    angle = np.pi * np.arange(1, nodes + 1) / (nodes + 1)
    x = 1 + c + 2 * np.sqrt(c) * np.cos(angle)
    weight = 2 * np.sin(angle) ** 2 / ((nodes + 1) * x)
    return Spectrum(x, weight, max(0.0, 1 - alpha))


def closed_reason(problem: Problem, algorithm: SGD) -> str | None:
    """Why the closed form does not hold, or None where it does."""
    sigma = problem.activation.polynomial
    target = problem.target.polynomial
    if sigma is None or len(sigma) != 2 or sigma[0] != 0:
        return f"the activation {problem.activation.name} is not linear"
    if target is None or set(target) != {(1,)}:
        return f"the target {problem.target.name} is not a multiple of one direction"
    if problem.p != 1:
        return f"there are {problem.p} neurons"
    if algorithm.sampling not in ("replacement", "subset"):
        return f"samples are not drawn at random (sampling = {algorithm.sampling!r})"
    plain = (
        algorithm.loss.name == "squared"
        and algorithm.geometry == "free"
        and algorithm.weight_decay == 0
        and algorithm.rule is None
        and algorithm.train_first_layer
        and not algorithm.train_second_layer
    )
    if not plain:
        return "the step is not that of the squared loss alone"
    if problem.labels.flips or problem.labels.law.moments <= 2:
        return "labels are not the target with noise of finite variance"
    return None


@dataclass(frozen=True)
class LinearPasses:
    """One neuron f = (a c_σ/N) w·x on n = α d samples, at the rate γ = lr d/n_b.

    ``scale`` is a c_σ/N, ``slope`` the c of the target, ``noise`` Δ.
    """

    alpha: float
    gamma: float
    scale: float
    slope: float
    noise: float
    P: float
    Q: float
    M: float

    @classmethod
    def of(
        cls, problem: Problem, algorithm: SGD, Q: float, M: float, a: float
    ) -> LinearPasses:
        """That of a problem and an algorithm for which `closed_reason` is None."""
        sigma, target = problem.activation.polynomial, problem.target.polynomial
        assert sigma is not None
        assert target is not None
        assert algorithm.dataset is not None
        return cls(
            algorithm.dataset.coefficient,
            algorithm.lr.coefficient / algorithm.batch.coefficient,
            a * sigma[1] / problem.divisor,
            target[(1,)],
            problem.noise,
            float(problem.P[0, 0]),
            Q,
            M,
        )

    def at(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q, M and the training risk after s·d samples, (len(s),) each."""
        law, rate = marchenko_pastur(self.alpha), self.gamma * self.scale**2
        x, weight = law.x, law.weight
        goal = self.slope * self.P
        begin = self.scale * self.M
        apart = self.scale**2 * self.Q - 2 * self.slope * begin + self.slope * goal
        fading = np.exp(-rate * np.outer(s, x))

        first = apart * x / 2 + self.noise / (2 * self.alpha)
        floor = self.noise / 2 * max(0.0, 1 - 1 / self.alpha)
        psi = self._modes(s, x, weight, rate, first, floor)
        train = floor + psi @ weight

        excess = apart / 2 * (fading**2 @ weight + law.atom)
        excess += self.noise / (2 * self.alpha) * ((1 - fading) ** 2 @ (weight / x))
        excess += (psi - first * fading**2) @ (weight / x)
        overlap = goal - (goal - begin) * (fading @ weight + law.atom)
        norm = 2 * excess + 2 * self.slope * overlap - self.slope * goal
        return norm / self.scale**2, overlap / self.scale, train

    @staticmethod
    def _modes(
        s: np.ndarray,
        x: np.ndarray,
        weight: np.ndarray,
        rate: float,
        first: np.ndarray,
        floor: float,
    ) -> np.ndarray:
        """ψ_x at the times s, (len(s), nodes)."""
        v = np.sqrt(weight) * x
        scaled = np.sqrt(weight) / x
        values, vectors = np.linalg.eigh(
            np.diag(-2 * rate * x) + rate**2 * np.outer(v, v)
        )
        start = vectors.T @ (scaled * first)
        force = rate**2 * floor * (vectors.T @ v)
        grown = np.exp(np.outer(s, values))
        # ∫_0^s e^(λr) dr, where an eigenvalue may be 0
        safe = np.where(values == 0, 1.0, values)
        held = np.where(values == 0, s[:, None], np.expm1(np.outer(s, values)) / safe)
        return (start * grown + force * held) @ vectors.T / scaled
