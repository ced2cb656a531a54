"""The equations of Saad and Solla (1995) as printed, in plain NumPy: an independent route to runs of erf networks.

    f = Σ_i v_i g(x_i),  y = Σ_n A_n g(y_n),  g(x) = erf(x/√2),    (x, y) ~ N(0, C),    C = [[Q, R], [Rᵀ, T]]
    dR_in/dα = η F_i ⟨g'(x_i) y_n e⟩,                     dv_i/dα = η ⟨g(x_i) e⟩,        e = y − f
    dQ_ik/dα = η F_i ⟨g'(x_i) x_k e⟩ + η F_k ⟨g'(x_k) x_i e⟩ + η² F_i F_k ⟨g'(x_i) g'(x_k) e²⟩,    ε = ½⟨e²⟩

    I₂ = ⟨g g⟩ = (2/π) arcsin C₁₂/√((1 + C₁₁)(1 + C₂₂))
    I₃ = ⟨g'(u) v g(w)⟩ = (2/π) (C₂₃(1 + C₁₁) − C₁₂C₁₃)/((1 + C₁₁)√Λ₃),    Λ₃ = (1 + C₁₁)(1 + C₃₃) − C₁₃²
    I₄ = ⟨g' g' g g⟩ = (4/π²) arcsin(Λ₀/√(Λ₁Λ₂))/√Λ₄,    Λ₄ = (1 + C₁₁)(1 + C₂₂) − C₁₂²

F = v is gradient descent (Saad and Solla have v = 1, Goldt et al. 2019 train it too); a fixed F is direct feedback
alignment (Refinetti et al. 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp


def i2(C: np.ndarray) -> np.ndarray:
    """All of ⟨g(h_a) g(h_b)⟩."""
    root = np.sqrt(1 + np.diag(C))
    return 2 / np.pi * np.arcsin(C / np.outer(root, root))


def i3(C: np.ndarray) -> np.ndarray:
    """All of ⟨g'(h_a) h_b g(h_c)⟩."""
    one = 1 + np.diag(C)
    c12, c13, c23 = C[:, :, None], C[:, None, :], C[None]
    c11, c33 = one[:, None, None], one[None, None]
    return 2 / np.pi * (c23 * c11 - c12 * c13) / (c11 * np.sqrt(c11 * c33 - c13**2))


def i4(C: np.ndarray, i: int, k: int) -> np.ndarray:
    """All of ⟨g'(h_i) g'(h_k) g(h_a) g(h_b)⟩."""
    c11, c22, c12, one = 1 + C[i, i], 1 + C[k, k], C[i, k], 1 + np.diag(C)
    lambda4 = c11 * c22 - c12**2
    c1, c2 = C[i], C[k]
    lambda0 = (
        lambda4 * C
        - np.outer(c2, c2) * c11
        - np.outer(c1, c1) * c22
        + c12 * (np.outer(c1, c2) + np.outer(c2, c1))
    )
    lambda1 = lambda4 * one - c2**2 * c11 - c1**2 * c22 + 2 * c12 * c1 * c2
    return (
        4
        / np.pi**2
        / np.sqrt(lambda4)
        * np.arcsin(lambda0 / np.sqrt(np.outer(lambda1, lambda1)))
    )


class Flow(NamedTuple):
    """Derivatives with respect to α."""

    R: np.ndarray
    Q: np.ndarray
    v: np.ndarray


def flow(
    C: np.ndarray,
    v: np.ndarray,
    A: Sequence[float],
    rate: float,
    feedback: np.ndarray | None = None,
) -> Flow:
    """The right-hand side at overlaps C and second layers v and A."""
    K, c = len(v), np.concatenate([-v, A])  # e = Σ_a c_a g(h_a)
    F = v if feedback is None else feedback
    push = rate * F[:, None] * (i3(C)[:K] @ c)
    noise = np.array([[c @ i4(C, i, k) @ c for k in range(K)] for i in range(K)])
    own = push[:, :K]
    return Flow(
        push[:, K:],
        own + own.T + rate**2 * np.outer(F, F) * noise,
        rate * (i2(C) @ c)[:K],
    )


def error(C: np.ndarray, v: np.ndarray, A: Sequence[float]) -> float:
    """The generalisation error ε."""
    c = np.concatenate([-v, A])
    return c @ i2(C) @ c / 2


class Curves:
    """Solution at some α: Q (α, K, K), R (α, K, M), v (α, K) and the generalisation error ε (α,)."""

    def __init__(
        self,
        Q: np.ndarray,
        R: np.ndarray,
        T: np.ndarray,
        A: Sequence[float],
        v: np.ndarray,
        rate: float,
        alpha: Sequence[float],
        both: bool = False,
    ) -> None:
        K, M = np.shape(R)
        upper = np.triu_indices(K)

        def unpack(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            C = np.zeros((K + M, K + M))
            C[:K, K:] = state[K : K + K * M].reshape(K, M)
            C[upper] = state[K + K * M :]
            C = np.triu(C) + np.triu(C, 1).T
            C[K:, K:] = T
            return C, state[:K]

        def derivative(_: float, state: np.ndarray) -> np.ndarray:
            C, second = unpack(state)
            here = flow(C, second, A, rate)
            return np.concatenate([here.v * both, here.R.ravel(), here.Q[upper]])

        start = np.concatenate([v, np.ravel(R), np.asarray(Q)[upper]])
        found = solve_ivp(
            derivative, (0, max(alpha)), start, "DOP853", alpha, rtol=1e-11, atol=1e-13
        )
        assert found.success
        states = [unpack(column) for column in found.y.T]
        self.Q = np.array([C[:K, :K] for C, _ in states])
        self.R = np.array([C[:K, K:] for C, _ in states])
        self.v = np.array([second for _, second in states])
        self.error = np.array([error(C, second, A) for C, second in states])
