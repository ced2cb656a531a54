"""The weights side of dynamical mean-field theory: linear in the noise, so no sampling is ever needed.

    w = A L⁺ W* + θ,    A' = D [ k A + β (A − A₋) + α E[F ξ*ᵀ] ]
    θ' = D [ k θ + β (θ − θ₋) + u + Σ_{s≤t} R_F(t, s) θ^s ],    u ~ GP(0, C_F),   C_F(t, s) = α E[F^t F^sᵀ]

Here F = (lr/(p α_b)) c g is what a sample adds to the weights (c: how often it is in the batch of α_b d samples), k the
shrinking factor less the radial part of a tangent gradient, and D divides by the norms where the geometry does. Every
θ^t is a combination of the start and of the noises, θ^t = X^t_0 (ε^0) + Σ_s X^t_{s+1} u^s, and X obeys the same
recursion. X holds the response R_θ(t, s) = X^t_{s+1}, and with u^s = Σ_r L(s, r) ε^{r+1}, L Lᵀ = C_F, also

    C_θ(t, s) = Y^t Y^sᵀ,    Y^t = (X^t_0, Σ_s X^t_{s+1} L(s, ·)),    Q^t = C_θ(t, t) + A^t A^tᵀ

so that C_θ is positive whatever the kernels are. Cost of step t: O(t² p³).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from twolayer.numerics.errors import RunFailed
from twolayer.numerics.special import symmetric_root

__all__ = ["Averages", "Rule", "Weights"]

TOLERANCE = 1e-8  # of the size of a kernel: beyond this a negative variance is not rounding
SINGULAR = 1e-9  # relative size of a factor below which its direction carries no noise


class Averages(NamedTuple):
    """Averages over the samples at one step, all with the factor α (but for ``second``).

    ``star`` (p, r) = α E[F ξ*ᵀ], ``radial`` (p,) = α E[F_j h_j], ``correlation`` (t+1, p, p) = α E[F^t F^sᵀ],
    ``noises`` (t+1, p, p) = α E[F^t ε^sᵀ], ``response`` (t+1, p, p) = α E[∂F^t/∂ω^s] if it is known, and
    ``second`` (p,) = the batch mean of e σ(h).
    """

    star: np.ndarray
    radial: np.ndarray
    correlation: np.ndarray
    noises: np.ndarray
    response: np.ndarray | None
    second: np.ndarray


@dataclass(frozen=True)
class Rule:
    """The numbers of one step: lr/p, 1 − lr·λ, β, and the geometry; whether the second layer moves."""

    step: float
    shrink: float
    momentum: float
    geometry: str
    trained: bool


class Weights:
    """Kernels of one path, up to a number of steps that is known beforehand.

    Attributes
    ----------
    A : array (T+1, p, r)
    X, Y : arrays (T+1, T+1, p, p)
        Blocks of the combinations above: first axis t, second axis the noise.
    R_F, C_F, L : arrays (T+1, T+1, p, p)
        Response and correlation of the samples, and the factor of the latter.
    a : array (T+1, p)
    at : int
        t, the number of steps taken.
    """

    def __init__(self, rule: Rule, A: np.ndarray, Q: np.ndarray, a: np.ndarray, steps: int) -> None:
        p, r = A.shape
        self.rule, self.at = rule, 0
        self.A, self.a = np.zeros((steps + 1, p, r)), np.zeros((steps + 1, p))
        self.X, self.Y = np.zeros((steps + 1, steps + 1, p, p)), np.zeros((steps + 1, steps + 1, p, p))
        self.R_F, self.C_F, self.L = (np.zeros((steps + 1, steps + 1, p, p)) for _ in range(3))
        self.A[0], self.a[0] = A, a
        self.X[0, 0] = self.Y[0, 0] = symmetric_root(Q - A @ A.T)

    @property
    def R_theta(self) -> np.ndarray:
        """R_θ(t, s) = ∂θ^t/∂u^s, (T+1, T+1, p, p); zero for s ≥ t."""
        return np.concatenate([self.X[:, 1:], np.zeros_like(self.X[:, :1])], axis=1)

    @property
    def C_theta(self) -> np.ndarray:
        """C_θ(t, s), (T+1, T+1, p, p)."""
        return np.einsum("tnij,snkj->tsik", self.Y, self.Y)

    @property
    def Q(self) -> np.ndarray:
        """Q at all steps so far, (T+1, p, p)."""
        return np.einsum("tnij,tnkj->tik", self.Y, self.Y) + self.A @ self.A.transpose(0, 2, 1)

    def record(self, averages: Averages) -> None:
        """Keep the correlation and the response of the samples at visit t."""
        t, given = self.at, averages.response
        self.C_F[t, : t + 1] = averages.correlation
        self.C_F[: t + 1, t] = averages.correlation.transpose(0, 2, 1)
        self.R_F[t, : t + 1] = right_solve(averages.noises, self.Y) if given is None else given

    def advance(self, averages: Averages) -> None:
        """Take step t with the averages over the samples, which are recorded."""
        t, rule = self.at, self.rule
        self.L[t, : t + 1] = next_row(self.C_F, self.L, t)
        keep = np.full(len(averages.radial), rule.shrink)
        if rule.geometry == "spherical":
            keep = keep - averages.radial / np.diagonal(self._norms(self.A[t], self.Y[t]))
        past = max(t - 1, 0)  # the first step has no momentum: the weights have not moved before
        A = keep[:, None] * self.A[t] + rule.momentum * (self.A[t] - self.A[past]) + averages.star
        X = keep[:, None] * self.X[t] + rule.momentum * (self.X[t] - self.X[past])
        X = X + np.einsum("sij,snjk->nik", self.R_F[t, : t + 1], self.X[: t + 1])
        X[t + 1] += np.eye(len(keep))
        Y = np.concatenate([X[:1], np.einsum("sij,srjk->rik", X[1:], self.L[:-1, :-1])])
        if rule.geometry != "free":
            norm = np.sqrt(np.diagonal(self._norms(A, Y)))[:, None]
            A, X, Y = A / norm, X / norm, Y / norm
        self.A[t + 1], self.X[t + 1], self.Y[t + 1] = A, X, Y
        self.a[t + 1] = self.a[t]
        if rule.trained:
            self.a[t + 1] += rule.step * averages.second + rule.momentum * (self.a[t] - self.a[past])
        self.at = t + 1

    @staticmethod
    def _norms(A: np.ndarray, Y: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("nij,nkj->ik", Y, Y) + A @ A.T)


def next_row(C: np.ndarray, L: np.ndarray, t: int) -> np.ndarray:
    """Row t of the factor L of a covariance C of blocks, C = L Lᵀ, from the rows before it.

    Diagonal blocks are symmetric roots, so a singular covariance is no obstacle. Raises `RunFailed` when C is not a
    covariance.

    Examples
    --------
    >>> C = np.array([[[[4.0]], [[2.0]]], [[[2.0]], [[5.0]]]])
    >>> L = np.zeros_like(C)
    >>> for t in range(2):
    ...     L[t, : t + 1] = next_row(C, L, t)
    >>> L[:, :, 0, 0].tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    p = C.shape[-1]
    row = np.zeros((t + 1, p, p))
    for s in range(t):
        rest = C[t, s] - np.einsum("nij,nkj->ik", row[:s], L[s, :s])
        row[s] = rest @ _inverse(L[s, s]).T
    left = C[t, t] - np.einsum("nij,nkj->ik", row[:t], row[:t])
    size = float(np.abs(C[t, t]).max(initial=0.0))
    lowest = float(np.linalg.eigvalsh(left)[0]) if np.isfinite(left).all() else -np.inf
    if not lowest >= -TOLERANCE * size:
        raise RunFailed(
            f"The correlation kernel of the samples stopped being positive at step {t} (smallest eigenvalue "
            f"{lowest:.2g}, size {size:.2g}): the samples have heavy tails or the run diverges; take a smaller lr, an "
            "activation that grows no faster than linearly, or more points"
        )
    row[t] = symmetric_root(left)
    return row


def right_solve(B: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """R with Σ_r R(r) Y(r, s) = B(s) for the blocks s = 0 … t, Y block lower triangular.

    This is Gaussian integration by parts, E[F ε^sᵀ] = Σ_r E[∂F/∂ω^r] Y(r, s). Directions in which a block of Y
    carries no noise have no response.
    """
    R = np.zeros_like(B)
    for s in range(len(B) - 1, -1, -1):
        R[s] = (B[s] - np.einsum("rij,rjk->ik", R[s + 1 :], Y[s + 1 : len(B), s])) @ _inverse(Y[s, s])
    return R


def _inverse(block: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(block, rcond=SINGULAR)
