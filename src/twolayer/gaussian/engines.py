"""The engines behind every average: closed forms where they exist, quadrature or Sobol points elsewhere.

    e = h(λ*) − s·f + √Δ ξ                      s = 1: squared loss,  s = 0: correlation loss
    E[σ'_j u e]     = E[σ'_j u h] − s E[σ'_j u f]          one and two fields (targets.py, forms.py)
    E[σ'_j σ'_l e²] = V_jl + Δ E[σ'_j σ'_l]                four fields (variance.py)

An `Engine` is a callable pytree (Q, M, a, Δ) → Averages that runs inside compiled code. An `Averager` is the
host's handle: the engine chosen for a problem together with the ones that tell its error.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Averages, Gradient
from twolayer.equations.kernel import Kernel
from twolayer.functions.activation import Activation
from twolayer.gaussian.forms import Forms, NumericForms
from twolayer.gaussian.full import FullRule
from twolayer.gaussian.nodes import target_frame, target_nodes
from twolayer.gaussian.polynomial import graphs
from twolayer.gaussian.quadratic import quadratic_averages, quadratic_gradient, quadratic_task
from twolayer.gaussian.relu import ReluForms
from twolayer.gaussian.targets import NodeTarget, RidgeTarget, forms_of, ridge_target, student_rows, student_terms
from twolayer.gaussian.variance import ErfNodes, ErfRidge, PolynomialNodes, PolynomialRidge, ReluRidge
from twolayer.numerics.errors import choice
from twolayer.numerics.precision import float64
from twolayer.numerics.rules import SCRAMBLINGS, sobol_normals
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem

__all__ = ["ENGINES", "Averager", "Engine", "select"]

ENGINES = ("auto", "quadrature", "sobol")
LOG2_POINTS = 18
ORDER = 12
MAX_DIMENSION = 3  # quadrature over all fields at once up to here
SINGULAR = 1e-10  # eigenvalues of Ω below this, relative to the largest, count as zero
ROUNDING = 1e-14  # relative error of closed forms
SECONDS_PER_TERM = 8e-7  # of an integration: a hundred evaluations at 8 ns for each term; an order of magnitude
MAX_WORK = 2**23  # function values per evaluation beyond which Sobol points are cheaper


class Engine(eqx.Module):
    """(Q, M, a, Δ) → Averages."""

    @abc.abstractmethod
    def __call__(self, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
        """The averages at one point, inside compiled code."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Which rules are used, for reports."""

    @abc.abstractmethod
    def gradient(self, Q: Any, M: Any, a: Any, noise: Any) -> Gradient:
        """The mean gradient as a combination of the rows, inside compiled code."""


class QuadraticEngine(Engine):
    """σ = s x² + c against a quadratic form: matrix products, cost O((p + k)³)."""

    student: float = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    shift: float = eqx.field(static=True)
    h0: float = eqx.field(static=True)
    H: np.ndarray
    P: np.ndarray

    @property
    def label(self) -> str:
        """Which rules are used."""
        return "closed form (quadratic)"

    def __call__(self, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
        """The averages at one point."""
        return quadratic_averages(self.scale, self.shift, self.H, self.h0, self.student, Q, M, self.P, a, noise)

    def gradient(self, Q: Any, M: Any, a: Any, noise: Any) -> Gradient:
        """The mean gradient as a combination of the rows."""
        return quadratic_gradient(self.scale, self.shift, self.H, self.h0, self.student, Q, M, self.P, a)


class FullEngine(Engine):
    """Everything from nodes over all fields."""

    rule: FullRule

    @property
    def label(self) -> str:
        """Which rules are used."""
        return self.rule.label

    def __call__(self, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
        """The averages at one point."""
        return self.rule.averages(Q, M, a, noise)

    def gradient(self, Q: Any, M: Any, a: Any, noise: Any) -> Gradient:
        """The mean gradient as a combination of the rows: that with the averages psi and phi, by a pseudo-inverse."""
        average = self(Q, M, a, noise)
        omega = jnp.block([[Q, M], [M.T, self.rule.L @ self.rule.L.T]])
        inverse = jnp.linalg.pinv(omega, rtol=SINGULAR, hermitian=True)
        rows = jnp.concatenate([average.phi, average.psi], axis=1) @ inverse
        return Gradient(rows[:, : len(Q)], rows[:, len(Q) :], average.second)


class PartsEngine(Engine):
    """First-order part from one and two fields, second-order part from a variance rule or all fields."""

    student: float = eqx.field(static=True)
    forms: Forms = eqx.field(static=True)
    target: RidgeTarget | NodeTarget
    variance: Any

    @property
    def closed(self) -> bool:
        """Whether no part is truncated or sampled."""
        return not isinstance(self.forms, NumericForms) and self.variance.label == "closed form" == self.target.label

    @property
    def label(self) -> str:
        """Which rules are used."""
        closed = not isinstance(self.forms, NumericForms)
        first = f"closed form ({self.forms.name})" if closed else "quadrature over pairs"
        if self.target.label not in ("closed form", first):
            first += f", target by {self.target.label}"
        return first if self.closed else f"{first}; chi: {self.variance.label}"

    def __call__(self, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
        """The averages at one point."""
        f, pair = student_terms(self.forms, Q, M, a)
        h = self.target.terms(Q, M)
        s, weight = self.student, a / a.shape[0]
        if isinstance(self.variance, FullRule):
            chi = self.variance.averages(Q, M, a, noise).chi
        else:
            chi = a[:, None] * a[None, :] * (self.variance(Q, M, a, s) + noise * pair.dd)
        return Averages(
            psi=a[:, None] * (h.star - s * f.star),
            phi=a[:, None] * (h.own - s * f.own),
            chi=chi,
            second=h.value - s * f.value,
            excess_risk=jnp.maximum(h.square - 2 * weight @ h.value + f.square, 0.0) / 2,
        )

    def gradient(self, Q: Any, M: Any, a: Any, noise: Any) -> Gradient:
        """The mean gradient as a combination of the rows."""
        f, h, s = student_rows(self.forms, Q, M, a), self.target.rows(Q, M), self.student
        return Gradient(a[:, None] * (h.own - s * f.own), a[:, None] * (h.star - s * f.star), h.value - s * f.value)


@eqx.filter_jit
def _evaluate(engine: Engine, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
    return engine(Q, M, a, noise)


def _on_host(engine: Engine, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
    values = _evaluate(engine, *(jnp.asarray(x, float) for x in (Q, M, a, noise)))
    return Averages(*(np.asarray(x) for x in values))


@dataclass(frozen=True, eq=False)
class Averager:
    """The engine for a problem, with what is needed to estimate its error.

    Attributes
    ----------
    engine : Engine
    coarse : Engine or None
        The same with less quadrature; None when nothing is truncated.
    scrambled : callable
        Engines with other scramblings of what is sampled; an empty list when nothing is.
    sampled : bool
        Whether anything is.
    """

    engine: Engine
    coarse: Engine | None
    scrambled: Callable[[], list[Engine]]

    sampled: bool

    @property
    def label(self) -> str:
        """Which rules are used, for reports."""
        return self.engine.label

    def __call__(self, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
        """The averages at one point, as NumPy arrays."""
        return _on_host(self.engine, Q, M, a, noise)

    def truncation(self, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
        """Change against the coarse engine: what a higher order would mend."""
        fine = self(Q, M, a, noise)
        if self.coarse is None:
            return Averages(*(np.zeros_like(x) for x in fine))
        other = _on_host(self.coarse, Q, M, a, noise)
        return Averages(*(np.abs(x - y) for x, y in zip(fine, other, strict=True)))

    def error(self, Q: Any, M: Any, a: Any, noise: Any) -> Averages:
        """Estimated absolute errors: rounding, truncation, and the spread over scramblings of what is sampled."""
        fine = self(Q, M, a, noise)
        total = self.truncation(Q, M, a, noise)
        total = Averages(*(t + ROUNDING * (1 + np.abs(x)) for t, x in zip(total, fine, strict=True)))
        samples = [fine, *(_on_host(engine, Q, M, a, noise) for engine in self.scrambled())]
        if len(samples) > 1:
            spread = [np.std(np.stack(x), axis=0, ddof=1) for x in zip(*samples, strict=True)]
            total = Averages(*(t + s for t, s in zip(total, spread, strict=True)))
        return total


@dataclass(frozen=True)
class _Builder:
    """Builds the engine for a kernel at a given resolution."""

    kernel: Kernel
    p: int
    gram: tuple[tuple[float, ...], ...]
    engine: str
    log2_points: int

    @property
    def P(self) -> np.ndarray:
        return np.asarray(self.gram)

    def build(self, order: int, coarse: bool = False, scrambling: int = 0) -> tuple[Engine, bool]:
        """An engine, and whether anything in it is sampled."""
        kernel, student = self.kernel, self.kernel.loss.student
        if self.engine != "auto" or student is None:
            return self._full(order, scrambling)
        simple = quadratic_task(kernel.activation, kernel.target)
        if simple is not None:
            return QuadraticEngine(student, simple.scale, simple.shift, simple.h0, simple.H, self.P), False
        return self._parts(student, order, coarse, scrambling) or self._full(order, scrambling)

    def _rule(self, order: int, scrambling: int) -> FullRule:
        L, inverse = target_frame(self.P)
        dimension = L.shape[1] + self.p + (self.kernel.loss.student is None)
        quadrature = self.engine == "quadrature" or (
            self.engine == "auto" and dimension <= MAX_DIMENSION and self.kernel.target.kinks is not None
        )
        normals = None if quadrature else sobol_normals(dimension, self.log2_points, scrambling)
        kinks = (self.kernel.target.kinks if quadrature else None) or ((),) * len(L)
        return FullRule(self.kernel, order, kinks, bool(np.array_equal(L, np.eye(len(L)))), normals, L, inverse)

    def _full(self, order: int, scrambling: int) -> tuple[Engine, bool]:
        rule = self._rule(order, scrambling)
        return FullEngine(rule), rule.normals is not None

    def _parts(self, student: float, order: int, coarse: bool, scrambling: int) -> tuple[Engine, bool] | None:
        """The engine by parts, unless its quadratures cost more than Sobol points over all fields."""
        sigma, p = self.kernel.activation, self.p
        forms, sampled = forms_of(sigma, order), False
        numeric = isinstance(forms, NumericForms)
        panels = (4 + 5 * len(sigma.kinks)) * ORDER
        ridge = ridge_target(self.kernel.target, sigma, self.P, order)
        rule = None
        if ridge is None or (not ridge.closed and not numeric):
            degree = None if sigma.polynomial is None else len(sigma.polynomial) - 1
            rule = target_nodes(self.kernel.target, self.P, degree, self.log2_points, scrambling)
            if ridge is not None and (rule.sampled or isinstance(forms, ReluForms)):
                rule = None  # pairs with the ridges are exact, and nodes would not close the variance part
        if rule is None:
            assert ridge is not None
            target: RidgeTarget | NodeTarget = ridge
            if p * (numeric * p + (not ridge.closed) * len(ridge.c)) * panels**2 > MAX_WORK:
                return None
        else:
            work = len(rule.weights) * p * panels + p**2 * panels**2
            if numeric and (rule.sampled or work > MAX_WORK):
                return None
            sampled = rule.sampled
            target = NodeTarget.build(forms, rule.coarse if coarse and rule.coarse else rule, self.P)
        variance = self._variance(target, order)
        if variance is None:
            variance = self._rule(order, scrambling)
            sampled = sampled or variance.normals is not None
        return PartsEngine(student, forms, target, variance), sampled

    def _variance(self, target: RidgeTarget | NodeTarget, order: int) -> Any:
        """A closed second-order part for this student and target, or None."""
        sigma, p = self.kernel.activation, self.p
        is_erf, is_relu = sigma == Activation.of("erf"), sigma == Activation.of("relu")
        D = len(sigma.polynomial) - 1 if sigma.polynomial is not None else 0
        if isinstance(target, RidgeTarget):
            if not target.closed:
                return None
            if is_erf:
                return ErfRidge(target)
            if is_relu:
                return ReluRidge(target, order)
            top = max(D, len(target.ridge.polynomial or ()) - 1)
            work = len(graphs((D - 1, D - 1, top, top))[1]) * (p * (p + len(target.c))) ** 2
            return PolynomialRidge(target) if work <= 2**7 * MAX_WORK else None
        nodes = len(target.weights)
        if sigma.polynomial is not None:
            work = len(graphs((D - 1, D - 1, D))[1]) * nodes * p**3 + len(graphs((D - 1, D - 1, D, D))[1]) * p**4
            return PolynomialNodes(target, sigma.polynomial) if work <= 2**7 * MAX_WORK else None
        return ErfNodes(target) if is_erf and nodes * p**3 <= MAX_WORK else None


@float64
def select(
    problem: Problem,
    loss: Loss | str,
    engine: str = "auto",
    order: int = ORDER,
    log2_points: int = LOG2_POINTS,
) -> Averager:
    """The engine for a problem and a loss.

    Parameters
    ----------
    engine : str
        ``"auto"``: closed forms where they exist, else quadrature, else Sobol points; ``"quadrature"`` and
        ``"sobol"`` average over all fields at once.
    order : int
        Nodes per panel of quadrature rules.
    log2_points : int
        Sobol points, as a power of two.

    Examples
    --------
    >>> from twolayer.functions.target import Teacher
    >>> select(Problem(Teacher("erf", k=2), "erf", width=3), "squared").label
    'closed form (erf)'
    """
    choice("engine", engine, ENGINES)
    kernel = Kernel(problem.activation, problem.target, Loss.of(loss))
    return _select(_Builder(kernel, problem.p, problem.gram, engine, log2_points), order)


@lru_cache(maxsize=64)
def _select(builder: _Builder, order: int) -> Averager:
    engine, sampled = builder.build(order)
    exact = isinstance(engine, QuadraticEngine) or (isinstance(engine, PartsEngine) and engine.closed)
    coarse = None if exact else builder.build(max(3 * order // 4, 2), coarse=True)[0]
    others = range(1, SCRAMBLINGS) if sampled else range(0)
    return Averager(engine, coarse, lambda: [builder.build(order, scrambling=i)[0] for i in others], sampled)


def terms(problem: Problem, engine: str, log2_points: int) -> float:
    """Terms of one evaluation of the averages: (p + k)³ quadratic, p²(p + k)² for closed pairs, else nodes · p².

    Examples
    --------
    >>> terms(Problem("z1**2", "square", width=2), "auto", 18), terms(Problem("z1", "tanh", width=2), "sobol", 18)
    (27.0, 1048576.0)
    """
    p, k = problem.p, problem.k
    if engine == "auto" and quadratic_task(problem.activation, problem.target):
        return float((p + k) ** 3)
    closed = problem.target.ridge is not None and not isinstance(forms_of(problem.activation, ORDER), NumericForms)
    return float(p**2 * (p + k) ** 2 if engine == "auto" and closed else 2**log2_points * p**2)


ORDERS = (12, 16, 24, 32, 48)
MAX_FULL_NODES = 3_000_000


FLOOR = 1e-4  # risks below this fraction of that of a student that says nothing count as vanishing


def natural_scale(values: Averages, silent: float, Q: np.ndarray, P: np.ndarray, noise: float) -> Averages:
    """The size that each average can have by Cauchy–Schwarz: a relative error that makes sense where one vanishes.

    ``silent`` is the excess risk of a student with a = 0, the scale that remains where everything is learned.
    """
    risk = max(float(values.excess_risk), FLOOR * silent) + noise / 2 + 1e-300
    gradient = max(float(np.sqrt(np.max(np.abs(values.chi)))), float(np.sqrt(2 * FLOOR * silent)), 1e-150)
    own, star = (float(np.sqrt(np.max(np.diagonal(C)))) for C in (Q, P))
    return Averages(gradient * star + 1e-300, gradient * own + 1e-300, gradient**2, np.sqrt(2 * risk), risk)


def relative_error(
    averager: Averager, error: Averages, problem: Problem, Q: np.ndarray, M: np.ndarray, a: np.ndarray
) -> float:
    """The largest of the absolute errors, each relative to the natural scale of its average at (Q, M, a)."""
    silent = max(float(averager(Q, M, np.zeros_like(a), problem.noise).excess_risk), 0.0)
    scale = natural_scale(averager(Q, M, a, problem.noise), silent, Q, problem.P, problem.noise)
    return max(float(np.max(e)) / s for e, s in zip(error, scale, strict=True))


@float64
def adapt(
    problem: Problem,
    loss: Loss | str,
    Q: np.ndarray,
    M: np.ndarray,
    a: np.ndarray,
    *,
    engine: str = "auto",
    tolerance: float = 1e-6,
    log2_points: int = LOG2_POINTS,
    at_least: int = ORDERS[0],
) -> tuple[Averager, int]:
    """The cheapest engine whose truncation error at (Q, M, a) is below the tolerance, and its order.

    If no order reaches it (a target that bends along oblique surfaces), the highest one is returned: `error` tells.
    """
    averager, order = select(problem, loss, engine, at_least, log2_points), at_least
    for order in [n for n in ORDERS if n >= at_least]:
        averager = select(problem, loss, engine, order, log2_points)
        if averager.coarse is None:
            break
        error = averager.truncation(Q, M, a, problem.noise)
        if relative_error(averager, error, problem, Q, M, a) <= tolerance:
            break
        if _full_nodes(averager.engine, problem.p) * 2 > MAX_FULL_NODES:
            break
    return averager, order


def _full_nodes(engine: Engine, p: int) -> int:
    """Nodes of a quadrature over all fields, 0 if there is none."""
    rule = engine.rule if isinstance(engine, FullEngine) else getattr(engine, "variance", None)
    return rule.nodes(p) if isinstance(rule, FullRule) and rule.normals is None else 0
