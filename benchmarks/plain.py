"""The same jobs in plain NumPy and SciPy, as people write them: no compiler, no closed
chain, one loop.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.integrate import solve_ivp


def online(
    dim: int,
    p: int = 1,
    k: int = 1,
    batch: int = 1,
    steps: int = 100,
    dataset: int | None = None,
) -> float:
    """SGD on He2 neurons and Σ_r He2(z_r), rows normalised; seconds per step of one
    seed.

    With a dataset the same samples come back at every step.
    """
    rng = np.random.default_rng(0)
    W = rng.normal(size=(p, dim)) / np.sqrt(dim)
    kept = rng.normal(size=(dataset, dim)) if dataset else None
    lr = 0.05 / dim
    began = time.perf_counter()
    for _ in range(steps):
        z = rng.normal(size=(batch, dim)) if kept is None else kept
        fields = z @ W.T
        error = (z[:, :k] ** 2 - 1).sum(1) - (fields**2 - 1).mean(1)
        W += (lr / p) * (2 * fields * error[:, None]).T @ z / len(z)
        W /= np.linalg.norm(W, axis=1, keepdims=True)
    return (time.perf_counter() - began) / steps


def ode(
    Q: np.ndarray, M: np.ndarray, rate: float, noise: float, end: float
) -> tuple[float, np.ndarray]:
    """The ODE of He2 neurons by hand (Isserlis) and solve_ivp: seconds, and M at the
    end.
    """
    p, k = M.shape
    A = np.diag([-1 / p] * p + [1.0] * k)

    def field(_: float, y: np.ndarray) -> np.ndarray:
        Q, M = y[: p * p].reshape(p, p), y[p * p :].reshape(p, k)
        omega = np.block([[Q, M], [M.T, np.eye(k)]])
        psi, phi = 4 * (M - Q @ M / p), 4 * (M @ M.T - Q @ Q / p)
        inner = omega @ A @ omega
        chi = 4 * (
            2 * np.trace(A @ inner) * Q + 8 * (inner @ A @ omega)[:p, :p] + noise * Q
        )
        return np.concatenate([(phi + phi.T + rate / p * chi).ravel(), psi.ravel()])

    began = time.perf_counter()
    found = solve_ivp(
        field, (0, end), np.concatenate([Q.ravel(), M.ravel()]), rtol=1e-8, atol=1e-10
    )
    return time.perf_counter() - began, found.y[p * p :, -1].reshape(p, k)


def particles(count: int, k: int, end: float) -> float:
    """Seconds of the mean field of He2 neurons: the gradient flow of many particles."""
    M = np.random.default_rng(0).normal(size=(count, k)) / np.sqrt(10)
    q = np.full(count, 0.9)

    def field(_: float, y: np.ndarray) -> np.ndarray:
        M, q = y[: count * k].reshape(count, k), y[count * k :]
        S = M.T @ M / count
        return np.concatenate([(4 * (M - M @ S)).ravel(), np.zeros_like(q)])

    began = time.perf_counter()
    solve_ivp(field, (0, end), np.concatenate([M.ravel(), q]), rtol=1e-6)
    return time.perf_counter() - began
