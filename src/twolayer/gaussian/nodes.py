"""Nodes over the target fields λ* = L_P ξ, ξ ~ N(0, I_r): what is averaged last when
the target is not a ridge sum.

    E[h(λ*) F(λ)] = Σ_ν w_ν h(λ*_ν) E[F(λ) | λ*_ν],    λ | λ* ~ N(M P⁺ λ*, Q⊥)

The rule is exact for polynomials, quadrature that has stopped changing for targets that
bend only along the axes, and scrambled Sobol points otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from twolayer.functions.hermite import hermite_table
from twolayer.functions.target import Target
from twolayer.gaussian.quadrature import nested_rule
from twolayer.numerics.quadrature_rules import hermite_rule, sobol_normals
from twolayer.task.overlaps import factor_of

__all__ = ["NodeRule", "target_frame", "target_nodes", "vanishes"]

MAX_NODES = 2**17
TOLERANCE = 1e-7
NEGLIGIBLE = 1e-20  # share of a node in averages: far ones have large fields
FAR = 8.0


def target_frame(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L (k, r) with P = L Lᵀ and its left inverse (r, k), so that M = A Lᵀ has A = M
    L⁺ᵀ.
    """
    L, _ = factor_of(np.asarray(P))
    return L, np.linalg.pinv(L)


def vanishes(target: Target, P: np.ndarray) -> bool:
    """Whether the target is zero, at points in the bulk and far out: there is nothing
    to learn then.
    """
    L, _ = target_frame(P)
    near = sobol_normals(L.shape[1], 8)
    return not np.asarray(
        target(jnp.asarray(np.concatenate([near, FAR * near]) @ L.T))
    ).any()


@dataclass(frozen=True, eq=False)
class NodeRule:
    """Points ξ (N, r), weights (N,) and the values h (N,)."""

    label: str
    points: np.ndarray
    weights: np.ndarray
    values: np.ndarray
    sampled: bool = False
    coarse: NodeRule | None = None


def _rule(
    target: Target, L: np.ndarray, points: np.ndarray, weights: np.ndarray, label: str
) -> NodeRule:
    return NodeRule(
        label, points, weights, np.asarray(target(jnp.asarray(points @ L.T)))
    )


def _pruned(rule: NodeRule) -> NodeRule | None:
    """Without the nodes that contribute nothing to averages of h and h²; None where a
    value is infinite, beside which all others would seem to be nothing.
    """
    if not np.isfinite(rule.values).all():
        return None
    share = rule.weights * (
        1 + rule.values**2 / max(float(rule.weights @ rule.values**2), 1e-300)
    )
    keep = share > NEGLIGIBLE
    if not keep.any():
        return None
    label = f"quadrature ({int(keep.sum())} nodes)"
    return replace(
        rule,
        label=label,
        points=rule.points[keep],
        weights=rule.weights[keep],
        values=rule.values[keep],
    )


def _exact(target: Target, L: np.ndarray, student_degree: int) -> NodeRule | None:
    """Gauss–Hermite rule exact for every average with a student polynomial of the given
    degree.
    """
    assert target.polynomial is not None
    degree, D = (
        max((sum(alpha) for alpha in target.polynomial), default=0),
        student_degree,
    )
    highest = max(2 * degree + 2 * D - 2, degree + 3 * D - 2, degree + D)
    n, r = highest // 2 + 1, L.shape[1]
    if n**r > MAX_NODES:
        return None
    return _rule(target, L, *hermite_rule([n] * r), f"exact ({n**r} nodes)")


def _fingerprint(rule: NodeRule) -> np.ndarray:
    """Low moments of h and h², relative to E[h²]: what must stop changing."""
    low = np.concatenate([hermite_table(4, x) for x in rule.points.T])
    scale = (
        float(rule.weights @ rule.values**2) or 1.0
    )  # of a zero target all moments are zero
    first = low @ (rule.weights * rule.values) / math.sqrt(scale)
    return np.concatenate([first, low @ (rule.weights * rule.values**2) / scale])


@lru_cache(maxsize=64)
def _converged(target: Target, gram: tuple[tuple[float, ...], ...]) -> NodeRule | None:
    """Quadrature that has stopped changing, with the rule before it; engines of all
    fineness share it.
    """
    if target.kinks is None:
        return None
    L, previous = target_frame(np.asarray(gram))[0], None
    structure = np.abs(L) > 1e-14
    for order in (4, 6, 8, 12, 16, 24, 32, 48, 64):
        if order ** L.shape[1] > MAX_NODES:
            return None
        points, weights, _ = map(
            np.asarray, nested_rule(L, target.kinks, order, structure)
        )
        if len(weights) > MAX_NODES:
            return None
        rule = _pruned(_rule(target, L, points, weights, ""))
        if rule is None:
            return None
        if (
            previous is not None
            and np.abs(_fingerprint(rule) - _fingerprint(previous)).max() < TOLERANCE
        ):
            return replace(rule, coarse=previous)
        previous = rule
    return None


def target_nodes(
    target: Target,
    P: np.ndarray,
    student_degree: int | None,
    log2_points: int,
    scrambling: int = 0,
) -> NodeRule:
    """The best rule for a target: exact, converged quadrature, or 2**log2_points Sobol
    points.

    ``student_degree`` is that of a polynomial activation, None for any other.
    """
    L, _ = target_frame(P)
    rule = None
    if target.polynomial is not None and student_degree is not None:
        rule = _exact(target, L, student_degree)
    rule = rule or _converged(target, tuple(map(tuple, P.tolist())))
    if rule is None:
        points = sobol_normals(L.shape[1], log2_points, scrambling)
        weights = np.full(len(points), 1 / len(points))
        rule = replace(
            _rule(target, L, points, weights, f"Sobol (2^{log2_points} nodes)"),
            sampled=True,
        )
    return rule
