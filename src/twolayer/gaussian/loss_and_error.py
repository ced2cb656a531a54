"""What else a student is judged by along whole trajectories: the loss that it is
trained on, and how often it is wrong.

    loss = E[ℓ(y, f)],    error = P(y f < 0) = q + (1 − 2q) P(h f < 0)
        for targets ±1 without additive noise
    one neuron whose output has the sign of a λ, h = sign(v·λ*):
        P(h f < 0) = arccos(ρ)/π,  ρ = a v·M/√(Q vᵀPv)/|a|

The squared loss is the risk, and E[y f] follows from the risks of f and −f. All else is
averaged over all fields at once, with panels that end where ℓ bends or f changes its
sign.
"""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.increment_kernel import Kernel
from twolayer.gaussian.all_fields import FullRule
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.risk import excess_risks, irreducible
from twolayer.numerics.arguments import ArrayFunction
from twolayer.numerics.precision import float64
from twolayer.numerics.quadrature_rules import sobol_normals
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.heavy_tails import infinite
from twolayer.task.labels import LabelNoise
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem

__all__ = ["binary", "reading_names", "readings"]

BUDGET = 1e9  # terms of one reading of a whole dataset
ORDER = 12
LINES = (12, 11, 10, 9)  # Sobol lines (log2), as many as can be afforded
MAX_DIMENSION = 3


def _wrong(y: Number, f: Number) -> Real:
    """1 where the sign is wrong, ½ where there is none."""
    return jnp.where(y * f < 0, 1.0, jnp.where(y * f == 0, 0.5, 0.0))


WRONG = Loss("error", _wrong, kinks=(0.0,), margin=True, value=_wrong)


@float64
def binary(problem: Problem) -> bool:
    """Whether labels are ±1: the target takes no other value, and nothing is added to
    it.
    """
    if (
        problem.noise > 0
        or problem.target.polynomial is not None
        or problem.target.smooth
    ):
        return False
    L, _ = target_frame(problem.P)
    values = np.asarray(problem.target(jnp.asarray(sobol_normals(L.shape[1], 8) @ L.T)))
    return bool((np.abs(values) == 1).all())


@eqx.filter_jit
def _means(rule: FullRule, scale: Number, noise: Number, points: Tree) -> Real:
    """E[ℓ] at points (n, …), one after the other."""

    def at(point: Tree) -> Real:
        Q, M, a = point
        student, target, w = rule.fields(Q, M, scale * a)
        return w @ rule.residual(student, target, scale * a, noise).mean

    return jax.lax.map(at, points)


def _rule(problem: Problem, loss: Loss, labels: LabelNoise, count: int) -> FullRule:
    """Quadrature in few dimensions where all points can be afforded, Sobol lines
    otherwise.
    """
    L, inverse = target_frame(problem.P)
    value = loss.value
    assert value is not None
    averaged = Loss(loss.name, value, None, loss.kinks, loss.margin)
    kernel, kinks = (
        Kernel(problem.activation, problem.target, averaged, labels=labels),
        problem.target.kinks,
    )
    dimension, plain = L.shape[1] + problem.p, bool(np.array_equal(L, np.eye(len(L))))
    noisy = problem.noise > 0
    if dimension <= MAX_DIMENSION and kinks is not None:
        rule = FullRule(kernel, ORDER, kinks, plain, noisy, None, L, inverse)
        if rule.work(problem.p) * count <= BUDGET:
            return rule
    rule = FullRule(kernel, 0, ((),) * len(L), plain, noisy, None, L, inverse)
    for log2 in LINES:
        rule = replace(rule, normals=sobol_normals(dimension - rule.split, log2))
        if rule.work(problem.p) * count <= BUDGET:
            break
    return rule


def _averaged(
    problem: Problem,
    loss: Loss,
    labels: LabelNoise,
    Q: np.ndarray,
    M: np.ndarray,
    a: np.ndarray,
    count: int | None,
) -> tuple[np.ndarray, str]:
    """E[ℓ] at every point of arrays with common leading axes, and the rule, affordable
    for ``count`` points.
    """
    lead = Q.shape[:-2]
    points = tuple(x.reshape(-1, *x.shape[len(lead) :]) for x in (Q, M, a))
    rule = _rule(problem, loss, labels, len(points[0]) if count is None else count)
    scale, noise = (
        jnp.asarray(problem.p / problem.divisor, float),
        jnp.asarray(problem.noise, float),
    )
    return np.asarray(_means(rule, scale, noise, points)).reshape(lead), rule.label


def _error(
    problem: Problem, Q: np.ndarray, M: np.ndarray, a: np.ndarray, count: int | None
) -> tuple[np.ndarray, str]:
    """P(y f < 0) at every point."""
    ridge, labels = problem.target.ridge, problem.labels
    alone = (
        ridge is not None
        and len(ridge.weights) == 1
        and ridge.activation.name == "sign(z)"
    )
    if alone and problem.p == 1 and _keeps_sign(problem.activation):
        assert ridge is not None
        v = np.asarray(ridge.directions[0])
        side = np.sign(a[..., 0]) * np.sign(ridge.weights[0])
        length = np.sqrt(Q[..., 0, 0] * (v @ problem.P @ v))
        # a student that is zero says nothing: wrong half of the time
        rho = side * (M[..., 0, :] @ v) / np.where(length == 0, 1.0, length)
        wrong, rule = np.arccos(np.clip(rho, -1.0, 1.0)) / np.pi, "closed form"
    else:
        wrong, rule = _averaged(problem, WRONG, LabelNoise(), Q, M, a, count)
    return labels.flips + labels.keep * wrong, rule


def _keeps_sign(sigma: ArrayFunction) -> bool:
    """Whether σ(x) has the sign of x."""
    x = np.linspace(0.01, 9.0, 900)
    return bool((np.asarray(sigma(x)) > 0).all() and (np.asarray(sigma(-x)) < 0).all())


@float64
def readings(
    problem: Problem,
    loss: Loss,
    Q: np.ndarray,
    M: np.ndarray,
    a: np.ndarray,
    excess: np.ndarray,
    affordable: int | None = None,
) -> dict[str, tuple[np.ndarray, str]]:
    """Mean loss and classification error at points with leading axes, where they are
    defined, and their rules.

    Rules are as fine as can be afforded for all points, or for so many, whatever their
    number.

    Examples
    --------
    >>> problem, one = Problem("sign(z1)", "erf"), np.ones((1, 1, 1))
    >>> found = readings(problem, Loss.of("hinge"), one, 0.5 * one, one[0], np.zeros(1))
    >>> found["error"][0].round(6).tolist(), found["loss"][0].round(4).tolist()
    ([0.333333], [0.7699])
    """
    found: dict[str, tuple[np.ndarray, str]] = {}
    if loss == Loss.of("squared"):
        found["loss"] = excess + irreducible(problem), "as the risk"
    elif loss == Loss.of("correlation"):
        other = excess_risks(problem, Q, M, -a, affordable)[0]
        found["loss"] = 1 - (other - excess) / 2, "as the risk"
    elif averaged_loss(problem, loss):
        found["loss"] = _averaged(problem, loss, problem.labels, Q, M, a, affordable)
    if binary(problem):
        found["error"] = _error(problem, Q, M, a, affordable)
    return found


def averaged_loss(problem: Problem, loss: Loss) -> bool:
    """Whether a loss that is not linear has a mean that is known."""
    return (
        loss.value is not None
        and loss.student is None
        and infinite(problem, loss, 1) is None
    )


def reading_names(problem: Problem, loss: Loss) -> list[str]:
    """Names of the `readings` of a problem.

    Examples
    --------
    >>> (
    ...     reading_names(Problem("sign(z1)", "erf"), Loss.of("hinge")),
    ...     reading_names(Problem("z1", "erf"), Loss.of("mse")),
    ... )
    (['loss', 'error'], ['loss'])
    """
    known = loss in (Loss.of("squared"), Loss.of("correlation")) or averaged_loss(
        problem, loss
    )
    return ["loss"] * known + ["error"] * binary(problem)
