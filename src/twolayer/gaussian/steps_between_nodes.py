"""What a rule over target fields misses of a student that bends: its slope jumps on a
plane between two nodes.

    E[σ'_j u h] ∋ J Σ_ν w_ν h_ν u_ν Φ((A_j·ξ_ν − κ)/s_j),
        s_j² = (Q⊥)_jj, J the jump of σ' at κ

A student that the target determines, s_j → 0, has a step there, and where it lies
between the nodes is nothing that a sum over nodes can tell. Two rules can agree by
chance at one place of the step. So both are compared with the step at places around its
own, as far as nodes are from each other, and the largest difference counts.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from twolayer.equations.averages import Engine, Expectations
from twolayer.gaussian.rescaled_students import AdaptedEngine
from twolayer.gaussian.targets import NodeTarget

__all__ = ["missed_by_nodes"]

SHIFTS = np.linspace(-0.12, 0.12, 9)  # of the step, in units of ξ
MANY = 2**14  # nodes so dense that the difference itself tells enough
NARROW = 1e-9


def missed_by_nodes(
    fine: Engine, coarse: Engine, Q: np.ndarray, M: np.ndarray, a: np.ndarray
) -> Expectations:
    """Bounds of the errors of psi and phi of an engine, of which a coarser one has
    fewer nodes.
    """
    psi, phi = np.zeros(M.shape), np.zeros(Q.shape)
    rules = [
        rule
        for rule in (
            getattr(_plain(engine), "target", None) for engine in (fine, coarse)
        )
        if isinstance(rule, NodeTarget)
    ]
    if len(rules) == 2 and len(rules[0].weights) <= MANY:
        for kink, jump in rules[0].forms.jumps:
            for j in range(len(Q)):
                steps = [_step(rule, Q, M, j, kink) for rule in rules]
                for total, (one, two) in zip(
                    (psi, phi), zip(*steps, strict=True), strict=True
                ):
                    change = np.abs(one - two).max(axis=0)
                    total[j] += abs(a[j] * jump) * change
    return Expectations(psi, phi, np.zeros(Q.shape), np.zeros(a.shape), np.zeros(()))


def _plain(engine: Engine) -> Engine:
    return engine.inner if isinstance(engine, AdaptedEngine) else engine


def _step(
    rule: NodeTarget, Q: np.ndarray, M: np.ndarray, j: int, kink: float
) -> tuple[np.ndarray, np.ndarray]:
    """Averages with a step of λ_j at every place, (places, k) and (places, p)."""
    A = M @ rule.inverse.T
    perp, means = Q - A @ A.T, rule.xi @ A.T
    width = math.sqrt(max(perp[j, j], 0.0)) + NARROW
    places = kink + SHIFTS * np.linalg.norm(A[j])
    z = (means[:, j] - places[:, None]) / width
    weighted = rule.weights * rule.h
    stepped = weighted * ndtr(z)
    bump = (weighted * np.exp(-(z**2) / 2)).sum(1) / (math.sqrt(2 * math.pi) * width)
    return (
        stepped @ (rule.xi @ rule.L.T),
        stepped @ means + bump[:, None] * perp[j],
    )
