"""What single samples do at given overlaps: fields at nodes, the push of each, and the covariance of what follows.

    λ* = L ξ*,    λ = A ξ* + B ξ⊥,    A = M L⁺ᵀ,    B Bᵀ = Q − A Aᵀ
    E[X] = Σ_ν w_ν X_ν,    Cov[X] = Σ_ν w_ν (X_ν − E X)(X_ν − E X)ᵀ

The nodes lie over (ξ*, ξ⊥, ξ), ξ the label noise: exact for polynomial tasks in few dimensions, quadrature where all is
smooth, Sobol points otherwise. Covariances of increments and sums over large batches are averages over them.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import equinox as eqx
import numpy as np

from twolayer.equations.increment_kernel import Kernel, Sample, kernel_of
from twolayer.equations.state import Overlap
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.quadrature import nested_rule
from twolayer.numerics.quadrature_rules import Nodes, hermite_rule, sobol_normals
from twolayer.numerics.special import symmetric_root
from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers, Real, Scalar
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem

__all__ = [
    "LOG2_POINTS",
    "SampleNodes",
    "Visited",
    "covariance",
    "covariance_nodes",
    "rows_of",
    "visit",
]

MAX_NODES = 30_000
LOG2_POINTS = 13


class Visited(NamedTuple):
    """What the nodes see at one point: weights, coordinates ξ*, ξ⊥ (N, r + columns), fields, g and e σ(λ)."""

    weights: Numbers
    xi: Real
    student: Real
    target: Real
    g: Numbers
    second: Numbers


def rows_of(Q: Gram, M: Cross, inverse: Numbers) -> tuple[Numbers, Numbers]:
    """A (p, r) and B (p, p): the rows of the student in the frame of the target and beyond."""
    A = M @ inverse.T
    return A, symmetric_root(Q - A @ A.T)


def visit(
    kernel: Kernel,
    nodes: Nodes,
    A: Numbers,
    B: Numbers,
    L: Numbers,
    a: Layer,
    noise: Scalar,
) -> Visited:
    """Fields and pushes at the nodes, for rows (A, B) of the student and L of the target. Cost O(N p (p + k))."""
    r = A.shape[1]
    fields = r + B.shape[1]
    star, own = nodes.xi[:, :r], nodes.xi[:, r:fields]
    student, target = star @ A.T + own @ B.T, star @ L.T
    push = kernel.push(
        Sample(student, target, kernel.labels.spoil(nodes.xi[:, -1], noise)), a
    )
    return Visited(
        nodes.weights, nodes.xi[:, :fields], student, target, push.first, push.second
    )


def covariance(weights: Numbers, X: Number) -> Numbers:
    """Cov of features X (N, F). Cost O(N F²)."""
    centred = X - weights @ X
    return (weights[:, None] * centred).T @ centred


def covariance_nodes(
    kernel: Kernel, rank: int, columns: int, noisy: bool
) -> tuple[Nodes, str]:
    """Nodes for covariances of g and e σ(λ) with the fields, and what they are."""
    sigma, h = kernel.activation.polynomial, kernel.target.polynomial
    fields = rank + columns
    noise_points = 3 if noisy else 1
    # three points average what is linear in e over Gaussian noise; nothing splits where labels flip or a loss bends
    simple = kernel.labels.plain and (
        kernel.loss.student is not None or not (noisy or kernel.loss.kinks)
    )
    if (
        sigma is not None
        and h is not None
        and simple
        and kernel.loss.student is not None
    ):
        D, E = len(sigma) - 1, max(len(sigma) - 1, max(map(sum, h), default=0))
        n = 2 * (D - 1 + E) + 1
        if n**fields * noise_points <= MAX_NODES:
            return hermite_rule([n] * fields + [noise_points]), "exact"
    # the columns of B are coordinates, not fields: kinks are not on the axes, so nothing is split
    order = 6
    smooth = (
        simple
        and kernel.rule is None
        and not kernel.activation.kinks
        and kernel.target.smooth
    )
    if (4 * order) ** fields * noise_points <= MAX_NODES and smooth:
        points, weights, _ = nested_rule(
            np.eye(fields), [()] * fields, order, np.eye(fields, dtype=bool)
        )
        noise, w = hermite_rule([noise_points])
        xi = np.concatenate(
            [np.repeat(points, len(noise), axis=0), np.tile(noise, (len(points), 1))],
            axis=1,
        )
        return Nodes(
            xi, np.repeat(weights, len(w)) * np.tile(w, len(weights))
        ), "quadrature"
    xi = sobol_normals(fields + 1, LOG2_POINTS)
    return Nodes(
        np.asarray(xi), np.full(len(xi), 1 / len(xi))
    ), f"2^{LOG2_POINTS} Sobol points"


class SampleNodes(eqx.Module):
    """Nodes over (ξ*, ξ⊥, ξ) for single samples of a task, and the frame of its target."""

    kernel: Kernel = eqx.field(static=True)
    nodes: Nodes
    L: np.ndarray
    inverse: np.ndarray
    label: str = eqx.field(static=True)

    @classmethod
    def build(cls, problem: Problem, algorithm: SGD, **more: bool) -> Self:
        """Nodes that fit the problem, with ``more`` that a subclass has to know."""
        kernel, (L, inverse) = kernel_of(problem, algorithm), target_frame(problem.P)
        nodes, label = covariance_nodes(
            kernel, L.shape[1], problem.p, problem.noise > 0
        )
        return cls(kernel, nodes, L, inverse, label, **more)

    def rows(self, y: Overlap) -> tuple[Numbers, Numbers]:
        """The rows A (p, r) and B (p, p) of the student whose fields these are."""
        return rows_of(y.Q, y.M, self.inverse)

    def visit(self, y: Overlap, noise: Scalar) -> Visited:
        """Fields and gradients at the nodes."""
        return visit(self.kernel, self.nodes, *self.rows(y), self.L, y.a, noise)
