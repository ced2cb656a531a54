"""Which rule averages over an ensemble of particles, and how fine it has to be.

    correlation c of two directions uniform on the sphere of R^D, D = d − rank P:
    density ∝ (1 − c²)^{(D−3)/2},    E[c^{2i}] = Π_{l<i} (2l + 1)/(D + 2l)

Quadratic tasks close on low moments. Ridge targets of closed pair averages are summed
over pairs of particles while these are few. Everything else goes over nodes of the
target fields: Gauss–Hermite where all is smooth, panels where the target bends, Sobol
points in many dimensions. Nodes and orders of c are raised until the rates stop
changing.

Of an odd or even activation only that part of the target is learned, and half of the
nodes are enough:

    σ(−x) = ±σ(x):    F(−ξ) = ±F(ξ),    h = h₊ + h₋,
        E[(h − F)²] = E[(h± − F)²] + E[h∓²]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy import special

from twolayer.functions.activation import Activation
from twolayer.gaussian.all_fields import spoilt_residual
from twolayer.gaussian.closed_forms import forms_of
from twolayer.gaussian.engines import FLOOR
from twolayer.gaussian.ensemble import (
    BLOCK,
    Cloud,
    Ensemble,
    NodeEnsemble,
    PairEnsemble,
    QuadraticEnsemble,
    Velocity,
)
from twolayer.gaussian.nodes import NodeRule, target_frame, target_nodes
from twolayer.gaussian.quadratic import QuadraticTask, quadratic_task
from twolayer.gaussian.quadrature import nested_rule
from twolayer.gaussian.targets import ridge_target
from twolayer.numerics.precision import float64
from twolayer.numerics.quadrature_rules import hermite_rule, sobol_normals
from twolayer.task.losses import Loss, LossFunction
from twolayer.task.problem import Problem

__all__ = [
    "INTERACTIONS",
    "Fineness",
    "Wide",
    "correlation_moments",
    "correlation_rule",
]

OTHERS = 4  # scramblings to which sampled nodes are compared
INTERACTIONS = ("auto", "nodes", "pairs")
ORDERS = (12, 16, 24, 32, 48, 64)
TERMS = (3, 6, 12, 24, 48)
NEGLIGIBLE = 1e-14  # nodes of less weight are left out
MAX_NODES = 2**14
FARTHEST = 12.0  # field up to which the parity of an activation is looked at
ARRAYS = 16  # of the size of a block, or of all pairs, that one evaluation holds
MAX_PAIRED = 2048  # particles up to which pairs are an option


def correlation_moments(dimension: float, count: int) -> np.ndarray:
    """E[c^{2i}], i < count, of the correlation of two directions uniform on the sphere
    of R^dimension.

    Examples
    --------
    >>> (
    ...     correlation_moments(3, 3).round(6).tolist(),
    ...     correlation_moments(math.inf, 3).tolist(),
    ... )
    ([1.0, 0.333333, 0.2], [1.0, 0.0, 0.0])
    """
    steps = [
        (2 * i + 1) / (dimension + 2 * i) if dimension > 0 else 0.0
        for i in range(count - 1)
    ]
    return np.concatenate([[1.0], np.cumprod(steps)])


def correlation_rule(dimension: float, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for averages over that correlation; a single node at 0 for
    infinite dimension.

    Examples
    --------
    >>> x, w = correlation_rule(3, 8)
    >>> round(float(w @ x**4), 9)
    0.2
    """
    if dimension == 0 or math.isinf(dimension):
        return np.zeros(1), np.ones(1)
    if dimension == 1:
        return np.array([-1.0, 1.0]), np.full(2, 0.5)
    x, w = special.roots_gegenbauer(order, (dimension - 2) / 2)
    return np.asarray(x), np.asarray(w / w.sum())


class Fineness(NamedTuple):
    """Nodes per dimension, and how many even orders of the correlation are kept."""

    order: int = ORDERS[0]
    terms: int = TERMS[0]


@eqx.filter_jit
def _evaluate(ensemble: Ensemble, cloud: Cloud) -> Velocity:
    return ensemble(cloud)


@dataclass(frozen=True)
class Wide:
    """Builds the ensemble average of a problem.

    Parameters
    ----------
    dimension : float
        D = d − rank P, or infinity.
    particles : int
        How many there are; decides between pairs and nodes.
    own : bool
        Whether a neuron's term with itself has correlation 1.
    frame : array (k, r), optional
        L of λ* = L ξ, where particles see more of ξ than λ*: the target's parts in the
        blocks of the inputs.
    """

    problem: Problem
    loss: Loss
    dimension: float
    particles: int
    own: bool = False
    interaction: str = "auto"
    log2_points: int = 14
    frame: np.ndarray | None = None

    @property
    def L(self) -> np.ndarray:
        """λ* = L ξ."""
        return target_frame(self.problem.P)[0] if self.frame is None else self.frame

    @property
    def _student(self) -> float:
        return 1.0 if self.loss.student is None else self.loss.student

    @cached_property
    def _residual(self) -> LossFunction | None:
        """E of label and output, averaged over the noise of labels, where it is not
        linear.
        """
        loss, problem = self.loss, self.problem
        if loss.student is not None:
            return None
        noise = problem.noise if problem.noise > 0 else None
        return lambda h, f: spoilt_residual(loss, problem.labels, h, f, noise)[0]

    @cached_property
    def _silent(self) -> float:
        """½ E[h²], the risk of a student that says nothing."""
        rule = _field_nodes(self.problem, self.L, ORDERS[0], self.log2_points, 0)
        return float(rule.weights @ rule.values**2) / 2

    @property
    def paired(self) -> bool:
        """Whether pairs of particles are summed: closed averages only, and few enough
        particles.
        """
        target = self.problem.target
        linear = self.loss.student is not None
        possible = (
            linear
            and target.ridge is not None
            and forms_of(self.problem.activation, 1).closed
        )
        if self.interaction != "auto" or not possible:
            return possible and self.interaction == "pairs"
        return self.particles <= min(MAX_PAIRED, 16 ** self.L.shape[1])

    @property
    def quadratic(self) -> QuadraticTask | None:
        """The task, where all closes on low moments of the particles."""
        if self.interaction != "auto" or self.loss.student is None:
            return None
        return quadratic_task(self.problem.activation, self.problem.target)

    @property
    def terms(self) -> float:
        """Terms of one evaluation, as an order of magnitude: those of rules somewhat
        finer than the coarsest.
        """
        n = float(self.particles)
        if self.quadratic:
            return n * self.L.shape[1] ** 2
        if self.paired:
            return n**2 * (ORDERS[0] if 0 < self.dimension < math.inf else 1)
        nodes = min(_size(self.problem, self.L, ORDERS[2]), 2**self.log2_points)
        return n * nodes * (TERMS[1] if self.truncated else 1)

    @property
    def held(self) -> float:
        """Numbers that one evaluation holds at once, at most: whole matrices of pairs,
        or blocks of particles.
        """
        return ARRAYS * (
            float(self.particles) ** 2
            if self.paired and not self.quadratic
            else min(self.terms, BLOCK)
        )

    @property
    def truncated(self) -> bool:
        """Whether the orders of the correlation are cut off somewhere."""
        finite = 0 < self.dimension < math.inf
        return finite and self.problem.activation.polynomial is None and not self.paired

    def build(
        self, fineness: Fineness, scrambling: int = 0
    ) -> tuple[Ensemble, NodeRule | None]:
        """The ensemble average, and the rule of its nodes if it has any."""
        problem, student = self.problem, self._student
        sigma = problem.activation
        L = self.L
        simple, coefficients = self.quadratic, sigma.polynomial
        if simple is not None:
            shape = (student, simple.scale, simple.shift, simple.h0, self.own)
            return QuadraticEnsemble(
                *shape, L.T @ simple.H @ L, correlation_moments(self.dimension, 2)[1:]
            ), None
        forms = forms_of(sigma, 16)
        if self.paired:
            ridge = ridge_target(problem.target, sigma, problem.P, 16)
            assert ridge is not None
            nodes = correlation_rule(self.dimension, fineness.order)
            return PairEnsemble(forms, student, self.own, ridge, L, *nodes), None
        rule = _field_nodes(
            problem,
            L,
            fineness.order,
            self.log2_points,
            scrambling,
            self.loss.student is not None,
        )
        terms = 1 if self.dimension in (0, math.inf) else fineness.terms
        if terms > 1 and coefficients:
            terms = (len(coefficients) - 1) // 2 + 1
        moments = correlation_moments(self.dimension, terms)
        loss = (self._residual, problem.labels.keep)
        node = (rule.points, rule.weights, rule.values, np.zeros(()))
        if (
            self._residual is None
        ):  # other residuals mix the parts of an odd or even student with the rest
            node = _folded(rule, sigma)
        return NodeEnsemble(
            forms, student, self.own, rule.label, *loss, *node, moments
        ), rule

    def finer(self, fineness: Fineness) -> Fineness | None:
        """The next step up in nodes, where it changes anything and is affordable."""
        _, rule = self.build(fineness)
        by_pairs = rule is None and self.paired and 1 < self.dimension < math.inf
        order = next((n for n in ORDERS if n > fineness.order), None)
        if order is None or not (
            by_pairs or (rule is not None and rule.label.startswith("quadrature"))
        ):
            return None
        return (
            fineness._replace(order=order)
            if by_pairs or _size(self.problem, self.L, order) <= MAX_NODES
            else None
        )

    @float64
    def adapt(
        self, cloud: Cloud, tolerance: float, fineness: Fineness
    ) -> tuple[Fineness, float]:
        """The coarsest rule, from the given one on, whose rates change by less than the
        tolerance; and its error.

        Orders of the correlation are raised until the last one contributes less, nodes
        until the next rule does.
        """
        while True:
            now = self._rates(self.build(fineness)[0], cloud)
            last, other = self._last_order(now, fineness, cloud), self.finer(fineness)
            more = next((n for n in TERMS if n > fineness.terms), None)
            if last > tolerance and more is not None:
                fineness = fineness._replace(terms=more)
                continue
            change = (
                0.0
                if other is None
                else self._distance(
                    now, self._rates(self.build(other)[0], cloud), cloud
                )
            )
            if other is None or change <= tolerance:
                return fineness, max(last, change, self._spread(now, fineness, cloud))
            fineness = other

    def _last_order(self, now: Velocity, fineness: Fineness, cloud: Cloud) -> float:
        """What the highest order of the correlation contributes: a bound on what is cut
        off, for they decrease.
        """
        ensemble, _ = self.build(fineness)
        if not self.truncated or not isinstance(ensemble, NodeEnsemble):
            return 0.0
        moments = np.append(ensemble.moments[:-1], 0.0)
        return self._distance(
            now,
            self._rates(eqx.tree_at(lambda e: e.moments, ensemble, moments), cloud),
            cloud,
        )

    def _rates(self, ensemble: Ensemble, cloud: Cloud) -> Velocity:
        return Velocity(
            *map(np.asarray, _evaluate(ensemble, Cloud(*map(jnp.asarray, cloud))))
        )

    def _spread(self, now: Velocity, fineness: Fineness, cloud: Cloud) -> float:
        """Largest change under other scramblings of sampled nodes; 0 when nothing is
        sampled.
        """
        rule = self.build(fineness)[1]
        if rule is None or not rule.sampled:
            return 0.0
        others = (
            self._rates(self.build(fineness, i)[0], cloud) for i in range(1, 1 + OTHERS)
        )
        return max(self._distance(now, other, cloud) for other in others)

    def _distance(self, one: Velocity, two: Velocity, cloud: Cloud) -> float:
        """Difference of rates relative to the size they can have, as that of
        `natural_scale`.
        """
        risk = max(float(two.excess_risk), FLOOR * self._silent, 1e-300)
        pairs = zip(one[:3], two[:3], strict=True)
        size = math.sqrt(2 * risk) * max(1.0, float(np.abs(cloud.a).max()))
        change = max(float(np.abs(x - y).max()) for x, y in pairs) / size
        return max(change, abs(float(one.excess_risk - two.excess_risk)) / risk)


def _folded(
    rule: NodeRule, sigma: Activation
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points on one side of 0, their weights, the part of h that σ can learn there, and
    E[(…)²] of the other part.
    """
    points, weights, values = rule.points, rule.weights, rule.values
    sign, back = _parity(sigma), slice(None, None, -1)
    symmetric = np.allclose(points, -points[back], atol=1e-12) and np.allclose(
        weights, weights[back], rtol=1e-9
    )
    if not sign or not symmetric:
        return points, weights, values, np.zeros(())
    count = -(-len(weights) // 2)
    twice = 2.0 * weights[:count]
    if len(weights) % 2:
        twice[-1] /= 2  # the origin has no partner
    other = (values - sign * values[back]) / 2
    return (
        points[:count],
        twice,
        (values + sign * values[back])[:count] / 2,
        np.asarray(weights @ other**2),
    )


@lru_cache(maxsize=64)
def _parity(sigma: Activation) -> int:
    """1 for an even activation, −1 for an odd one, 0 for any other, by its values on
    both sides of 0.
    """
    x = np.linspace(0.0, FARTHEST, 97)
    right, left = (np.asarray(sigma(jnp.asarray(y))) for y in (x, -x))
    for sign in (1, -1):
        if np.abs(left - sign * right).max() <= 1e-14 * np.abs(right).max():
            return sign
    return 0


def _smooth(problem: Problem) -> bool:
    bends = problem.target.kinks
    return not problem.activation.kinks and bends is not None and not any(bends)


def _size(problem: Problem, L: np.ndarray, order: int) -> int:
    """Nodes of the product rule of this order, before any are left out; panels need as
    many fields as there are ξ.
    """
    kinks, smooth = problem.target.kinks, _smooth(problem)
    if kinks is None or not (smooth or L.shape[1] <= len(L)):
        return 2**63
    per = order if smooth else order * max(4, 3 + max(map(len, kinks)))
    return int(per) ** L.shape[1]


def _field_nodes(
    problem: Problem,
    L: np.ndarray,
    order: int,
    log2_points: int,
    scrambling: int,
    linear: bool = True,
) -> NodeRule:
    """Nodes of ξ: exact for polynomials and linear losses, product rules in few
    dimensions, Sobol points otherwise.
    """
    target, sigma, rank = problem.target, problem.activation, L.shape[1]
    polynomial = (
        linear and target.polynomial is not None and sigma.polynomial is not None
    )
    if polynomial and np.array_equal(L, target_frame(problem.P)[0]):
        assert sigma.polynomial is not None
        exact = target_nodes(
            target, problem.P, len(sigma.polynomial) - 1, log2_points, scrambling
        )
        if exact.label.startswith("exact"):
            return exact
    if _size(problem, L, order) > MAX_NODES:
        points = sobol_normals(rank, log2_points, scrambling)
        weights, label = (
            np.full(len(points), 1 / len(points)),
            f"Sobol (2^{log2_points} nodes)",
        )
    else:
        if _smooth(problem):
            points, weights = hermite_rule([order] * rank)
        else:
            kinks = [*(target.kinks or ())]
            if rank == 1:  # fields that cross a kink of σ at zero do so together
                kinks = [(*row, 0.0) for row in kinks]
            points, weights, _ = map(
                np.asarray, nested_rule(L, kinks, order, np.abs(L) > 1e-14)
            )
        keep = weights > NEGLIGIBLE * weights.max()
        points, weights = points[keep], weights[keep]
        label = f"quadrature ({len(weights)} nodes)"
    values = np.asarray(target(jnp.asarray(points @ L.T)))
    return NodeRule(
        label, points, weights, values, _size(problem, L, order) > MAX_NODES
    )
