"""All fields at once: the engine for any activation, target and loss.

    E[F(λ, λ*, ξ)] over  λ* = L_P ξ*,  λ = A ξ* + B ξ⊥,  A = M L_P⁺ᵀ,  B Bᵀ = Q⊥

by iterated quadrature in a few dimensions, by scrambled Sobol points beyond.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Averages
from twolayer.equations.kernel import Kernel, Sample
from twolayer.gaussian.quadrature import nested_rule
from twolayer.numerics.special import symmetric_root

__all__ = ["FullRule", "triangular_root"]


def triangular_root(C: Any) -> Any:
    """Lower triangular B with B Bᵀ = C for positive semidefinite C; a vanishing pivot leaves a zero column."""
    p = C.shape[0]
    B, rest = jnp.zeros_like(C), C
    for j in range(p):
        pivot = jnp.maximum(rest[j, j], 0.0)
        fine = pivot > 1e-14 * jnp.maximum(C[j, j], 1e-300)
        column = jnp.where(fine, rest[:, j] / jnp.sqrt(jnp.where(fine, pivot, 1.0)), 0.0)
        column = jnp.where(jnp.arange(p) >= j, column, 0.0)
        B, rest = B.at[:, j].set(column), rest - jnp.outer(column, column)
    return B


class FullRule(eqx.Module):
    """Nodes over all fields: quadrature of the given order, or Sobol normals (N, dimension).

    ``kinks`` are those of the target along its axes, ``orthonormal`` says that P = I.

    Cost O(nodes · (p + k) p); memory the same without the last factor.
    """

    kernel: Kernel = eqx.field(static=True)
    order: int = eqx.field(static=True)
    kinks: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    orthonormal: bool = eqx.field(static=True)
    normals: np.ndarray | None
    L: np.ndarray
    inverse: np.ndarray

    @property
    def label(self) -> str:
        """What is done, for reports."""
        if self.normals is None:
            return f"quadrature over all fields (order {self.order})"
        return f"Sobol (2^{int(np.log2(self.normals.shape[0]))} points)"

    def _fields(self, p: int) -> tuple[np.ndarray, list[tuple[float, ...]]]:
        """Which ξ each field (λ*, λ) depends on, and where it bends."""
        k, r = self.L.shape
        star = np.eye(k, dtype=bool) if self.orthonormal else np.ones((k, r), bool)
        structure = np.block([[star, np.zeros((k, p), bool)], [np.ones((p, r), bool), np.tri(p, dtype=bool)]])
        if self.kernel.loss.student is None:  # the label noise is one more variable, after the fields
            structure = np.block([[structure, np.zeros((p + k, 1), bool)]])
        return structure, [*self.kinks, *[self.kernel.activation.kinks] * p]

    def nodes(self, p: int) -> int:
        """Number of nodes of the quadrature."""
        structure, kinks = self._fields(p)
        total = 1
        for i in range(structure.shape[1]):
            active = np.flatnonzero(structure[:, i])
            breaks = sum(len(kinks[f]) * (3 if structure[f, i + 1 :].any() else 1) for f in active)
            total *= (max(breaks, 1) + 3) * self.order
        return total

    def sample(self, Q: Any, M: Any, noise: Any) -> tuple[Sample, Any]:
        """Fields at the nodes and the weights."""
        A = M @ self.inverse.T
        perp, (p, r) = Q - A @ A.T, A.shape
        noisy = self.kernel.loss.student is None
        if self.normals is not None:
            xi = jnp.asarray(self.normals)
            weights, B = jnp.full(xi.shape[0], 1.0 / xi.shape[0]), symmetric_root(perp)
        else:
            B = triangular_root(perp)
            structure, kinks = self._fields(p)
            to_fields = jnp.block([[self.L, jnp.zeros((len(self.L), p))], [A, B]])
            unused = structure.shape[1] - to_fields.shape[1]
            to_fields = jnp.concatenate([to_fields, jnp.zeros((len(structure), unused))], axis=1)
            xi, weights = nested_rule(to_fields, kinks, self.order, structure)
        student = xi[:, :r] @ A.T + xi[:, r : r + p] @ B.T
        label_noise = jnp.sqrt(noise) * xi[:, -1] if noisy else jnp.zeros(xi.shape[0])
        return Sample(student, xi[:, :r] @ self.L.T, label_noise), weights

    def averages(self, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
        """All five averages."""
        sample, w = self.sample(Q, M, noise)
        push = self.kernel.push(sample, a)
        g, f = push.first, self.kernel.output(sample.student, a)
        weighted = w[:, None] * g
        chi = weighted.T @ g
        if self.kernel.loss.student is not None:  # the noise in e averages to Δ σ'σ'
            slope = a * self.kernel.activation.slope(sample.student)
            chi = chi + noise * (w[:, None] * slope).T @ slope
        excess = w @ (self.kernel.target(sample.target) - f) ** 2 / 2
        return Averages(weighted.T @ sample.target, weighted.T @ sample.student, chi, w @ push.second, excess)
