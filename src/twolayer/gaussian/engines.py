"""Which engine averages for a problem, how fine it has to be, and what its error is.

    quadratic tasks     matrix products (quadratic.py)
    linear losses       by parts: pairs of fields; chi closed,
                        by quadrature or sampled (by_parts.py)
    other losses        all fields at once by quadrature in few dimensions;
                        else a linear fit by parts, the rest sampled
    error = rounding + 3 |fine − coarse|
        + 9 standard errors of the mean over scramblings of what is sampled

3 |fine − coarse| is the error of a rule that has ¾ of the nodes where it is coarse and
converges like 1/n, as at a jump that no panel knows of; others converge faster. Both
rules may agree by chance. So what is found of psi, relative to its size, is taken for
phi too; a quadrature of several fields at once is never said to be finer than 1e-5 of
the size of an average; and the slope of a student that bends between the nodes of a
target counts with what it does near there (steps_between_nodes.py). Where a loss or a
rule bends the outer fields know nothing of the place, orders err as if at random, and
one in forty agrees with one of ¾ by chance: a rule of half of the nodes is asked too,
and what is found of psi, phi or chi, relative to its size, is taken for all three.

An `Averager` is the host's handle: the engine chosen for a problem together with the
ones that tell its error.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Engine, Expectations
from twolayer.equations.increment_kernel import Kernel
from twolayer.gaussian.all_fields import FullEngine, FullRule
from twolayer.gaussian.by_parts import FittedEngine, Nothing, PartsEngine
from twolayer.gaussian.closed_forms import forms_of
from twolayer.gaussian.linear_rules import PushWeights, weights_of
from twolayer.gaussian.nodes import target_frame, target_nodes
from twolayer.gaussian.quadratic import QuadraticEngine, quadratic_task
from twolayer.gaussian.rectifier import ReluRidge
from twolayer.gaussian.rescaled_students import AdaptedEngine
from twolayer.gaussian.series_tail import left_out
from twolayer.gaussian.steps_between_nodes import missed_by_nodes
from twolayer.gaussian.targets import NodeTarget, RidgeTarget, ridge_target
from twolayer.gaussian.two_point import Forms, NumericForms, SecondOrder
from twolayer.numerics.errors import choice
from twolayer.numerics.precision import float64
from twolayer.numerics.quadrature_rules import SCRAMBLINGS, sobol_normals
from twolayer.numerics.tracing import traced
from twolayer.numerics.types import Cross, Gram, Layer, Numbers, Scalar
from twolayer.task.averages import ENGINES
from twolayer.task.labels import LabelNoise
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem
from twolayer.task.rules import RuledLoss

__all__ = [
    "LOG2_POINTS",
    "ROUNDING",
    "Averager",
    "Engine",
    "adapt",
    "adapt_steps",
    "compile_seconds",
    "relative_error",
    "select",
    "truncation_error",
]

LOG2_POINTS = 18  # where averages are taken once
PER_STEP = 14  # where they are taken at every step
ORDER = 12
ORDERS = (12, 16, 24, 32, 48)
MAX_DIMENSION = 3  # quadrature over all fields at once up to here
MAX_FULL_NODES = 3_000_000
MAX_PER_STEP = 2**16  # where averages are taken at every step: Sobol points beyond
MAX_NOISE_NODES = (
    2**25
)  # the same with those of the label noise at each, which come in batches
ROUNDING = 1e-14  # relative error of closed forms
# standard errors in the bound of what is sampled: few scramblings tell little about
# their spread
SURE = 9.0
# |fine − coarse| of a rule that converges like 1/n, as a share of the error of the fine
SLOWEST = 3.0
# weights shorter than this part of the target's count as that long: errors of averages
# that vanish with the weights are rounding, and not to be divided by nothing
SHORTEST = 1e-3
# relative error that is stated at least for a quadrature of several fields at once
SEVERAL = 1e-5
SECONDS_PER_TERM = 1.5e-6  # of a run: about 240 evaluations
MAX_FIRST = (
    2**24
)  # terms of the first-order part beyond which Sobol points over all fields are cheaper
MAX_CHI = 2**25  # terms of a closed second-order part beyond which it is sampled
# risks below this fraction of that of a student that says nothing count as vanishing
FLOOR = 1e-4


@eqx.filter_jit
def _evaluate(
    engine: Engine, Q: Gram, M: Cross, a: Layer, noise: Scalar
) -> Expectations:
    return engine(Q, M, a, noise)


def _on_host(
    engine: Engine, Q: Gram, M: Cross, a: Layer, noise: Scalar
) -> Expectations:
    values = _evaluate(engine, *(jnp.asarray(x, float) for x in (Q, M, a, noise)))
    return Expectations(*(np.asarray(x) for x in values))


@dataclass(frozen=True, eq=False)
class Averager:
    """The engine for a problem, with what is needed to estimate its error."""

    engine: Engine
    probe: (
        tuple[Engine, Engine] | None
    )  # what can be truncated in it, fine and coarse, without a sampled chi
    scrambled: Callable[
        [], list[Engine]
    ]  # other scramblings of what is sampled; empty when nothing is
    sampled: bool  # whether anything is
    first_sampled: bool  # whether more than chi is
    rough: Engine | None  # as the probe with half of the nodes, where the push bends
    lines: Engine | None  # with fewer nodes on every line, where there are lines
    several: Expectations  # whether each is by a quadrature of several fields at once
    P: np.ndarray

    @property
    def label(self) -> str:
        """Which rules are used, for reports."""
        return self.engine.label

    @property
    def closed(self) -> bool:
        """Whether nothing is truncated and nothing sampled."""
        return self.probe is None and not self.sampled

    def __call__(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Expectations:
        """The averages at one point, as NumPy arrays."""
        return _on_host(self.engine, Q, M, a, noise)

    def truncation(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Expectations:
        """Change against the coarse engine, and what sums of both leave out: what a
        higher order would mend.
        """
        Q, M, a, noise = np.asarray(Q), np.asarray(M), np.asarray(a), float(noise)
        total = Expectations(*(np.zeros_like(x) for x in (M, Q, Q, a, np.zeros(()))))
        if self.probe is not None:
            found = _change(*self.probe, Q, M, a, noise)
            if self.rough is not None:
                other = _change(self.probe[0], self.rough, Q, M, a, noise)
                found = Expectations(*map(np.maximum, found, other))
                found = self._as_coarse_as_each_other(found, Q, M, a, noise)
            if any(self.several):
                found = self._no_finer(found, Q, M, a, noise)
            found = _added(found, left_out(self.probe[0], Q, M, a, noise))
            found = _added(found, missed_by_nodes(*self.probe, Q, M, a))
            total = _shared(found, Q, self.P)
        if self.lines is None:
            return total
        return _added(total, _change(self.engine, self.lines, Q, M, a, noise))

    def _no_finer(
        self, found: Expectations, Q: Gram, M: Cross, a: Layer, noise: float
    ) -> Expectations:
        """At least `SEVERAL` of the size of an average, where it counts and where
        anything is truncated.
        """
        silent = _silent_risk(self, *M.shape)
        width = np.asarray(Q)
        scale = natural_scale(self(Q, M, a, noise), silent, width, self.P, noise)
        return Expectations(
            *(
                np.where(counts & x.any(), np.maximum(x, SEVERAL * size), x)
                for x, size, counts in zip(found, scale, self.several, strict=True)
            )
        )

    def _as_coarse_as_each_other(
        self, found: Expectations, Q: Gram, M: Cross, a: Layer, noise: float
    ) -> Expectations:
        """Errors of the averages of one push, each at least that of the others relative
        to its size.
        """
        silent = _silent_risk(self, *M.shape)
        values = self(Q, M, a, noise)
        scale = natural_scale(values, silent, np.asarray(Q), self.P, noise)
        names = ("psi", "phi", "chi")
        largest = max(
            float(np.max(getattr(found, name)) / getattr(scale, name)) for name in names
        )
        least = {name: largest * getattr(scale, name) for name in names}
        return found._replace(
            **{name: np.maximum(getattr(found, name), x) for name, x in least.items()}
        )

    def error(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Expectations:
        """Bounds of the errors of the engine's own averages: rounding, truncation and
        sampling.
        """
        value = self(Q, M, a, noise)
        mean, bound = self.measure(Q, M, a, noise)
        # that the one scrambling is off the mean of all is known, not only likely
        return Expectations(
            *(b + np.abs(x - m) for b, x, m in zip(bound, value, mean, strict=True))
        )

    def measure(
        self, Q: Gram, M: Cross, a: Layer, noise: Scalar
    ) -> tuple[Expectations, Expectations]:
        """The averages, over all scramblings of what is sampled, and bounds of their
        errors.
        """
        engines = [self.engine, *self.scrambled()]
        samples = [_on_host(engine, Q, M, a, noise) for engine in engines]
        columns = [np.stack(x) for x in zip(*samples, strict=True)]
        value = Expectations(*(np.mean(x, axis=0) for x in columns))
        bounds = []
        for x, truncated in zip(columns, self.truncation(Q, M, a, noise), strict=True):
            bound = truncated + ROUNDING * (1 + np.abs(x[0]))
            if len(x) > 1:
                spread = np.std(x, axis=0, ddof=1)
                bound = bound + SURE * spread / math.sqrt(len(x))
            bounds.append(bound)
        return value, Expectations(*bounds)


def _change(
    fine: Engine, coarse: Engine, Q: Gram, M: Cross, a: Layer, noise: Scalar
) -> Expectations:
    """A bound of the error of the fine engine, from what the coarse one says."""
    pair = (_on_host(engine, Q, M, a, noise) for engine in (fine, coarse))
    return Expectations(*(SLOWEST * np.abs(x - y) for x, y in zip(*pair, strict=True)))


def _added(one: Expectations, other: Expectations) -> Expectations:
    return Expectations(*(x + y for x, y in zip(one, other, strict=True)))


def _shared(error: Expectations, Q: np.ndarray, P: np.ndarray) -> Expectations:
    """Errors of psi and phi, both of which are averages of σ' e with fields: relative
    to the lengths of these, that of one is taken for the other too.
    """
    star = np.sqrt(np.diagonal(P))
    own = np.maximum(np.sqrt(np.diagonal(Q)), SHORTEST * star.max())
    largest = np.maximum(
        (error.psi / star).max(axis=1),
        (error.phi / own).max(axis=1),
    )
    return error._replace(
        psi=np.maximum(error.psi, largest[:, None] * star),
        phi=np.maximum(error.phi, largest[:, None] * own),
    )


@dataclass(frozen=True)
class _Builder:
    """Builds the engine for a kernel at a given resolution. ``noisy``: the label noise
    matters beyond its variance.

    ``scale`` is p/N, by which the second layer of a student that is no mean over
    neurons is multiplied; ``flips`` is q where the loss is linear in the label. Other
    losses find it in their kernel.
    """

    kernel: Kernel
    p: int
    gram: tuple[tuple[float, ...], ...]
    engine: str
    log2_points: int
    noisy: bool
    scale: float
    flips: float
    weights: PushWeights | None = None

    @property
    def P(self) -> np.ndarray:
        return np.asarray(self.gram)

    @property
    def closes(self) -> bool:
        """Whether the averages of plain gradients are closed but for sums over nodes
        of a smooth student.
        """
        plain, _ = self._plain(ORDER, coarse=False, scrambling=0)
        if isinstance(plain, QuadraticEngine):
            return True
        if not isinstance(plain, PartsEngine) or isinstance(plain.variance, FullRule):
            return False
        ridges = isinstance(plain.target, RidgeTarget)
        return plain.forms.closed and (ridges or not self.kernel.activation.kinks)

    def build(
        self, order: int, coarse: bool = False, scrambling: int = 0
    ) -> tuple[Engine, bool]:
        """An engine, and whether anything in it is sampled."""
        engine, sampled = self._plain(order, coarse, scrambling)
        if self.scale == 1 and not self.flips and self.weights is None:
            return engine, sampled
        silent = (
            jnp.eye(self.p),
            jnp.zeros((self.p, len(self.gram))),
            jnp.zeros(self.p),
        )
        square = (
            2 * _on_host(engine, *silent, 0.0).excess_risk
            if self.flips
            else np.zeros(())
        )
        adapted = AdaptedEngine(engine, self.scale, self.flips, square, self.weights)
        return adapted, sampled

    def _plain(self, order: int, coarse: bool, scrambling: int) -> tuple[Engine, bool]:
        """The same for a mean over neurons, and for true labels where the loss is
        linear.
        """
        kernel, student = self.kernel, self.kernel.loss.student
        if self.engine != "auto":
            return self._full(order, scrambling)
        if student is None:
            rule = self._rule(order, scrambling)
            first = (
                None if rule.normals is None else self._first(order, coarse, scrambling)
            )
            if first is None:
                return self._full(order, scrambling)
            return FittedEngine(*first[:2], rule), True
        simple = quadratic_task(kernel.activation, kernel.target)
        if simple is not None:
            return QuadraticEngine(
                student, simple.scale, simple.shift, simple.h0, simple.H, self.P
            ), False
        first = self._first(order, coarse, scrambling)
        if first is None:
            return self._full(order, scrambling)
        forms, target, sampled = first
        variance: SecondOrder | FullRule | None = self._variance(forms, target, order)
        if variance is None:
            variance = self._rule(order, scrambling)
            sampled = sampled or variance.normals is not None
        return PartsEngine(student, forms, target, variance), sampled

    def _rule(self, order: int, scrambling: int) -> FullRule:
        L, inverse = target_frame(self.P)
        dimension, target = L.shape[1] + self.p, self.kernel.target
        quadrature = self.engine == "quadrature" or (
            self.engine == "auto"
            and dimension <= MAX_DIMENSION
            and target.kinks is not None
        )
        kinks = (target.kinks if quadrature else None) or ((),) * len(L)
        plain = bool(np.array_equal(L, np.eye(len(L))))
        rule = FullRule(
            self.kernel,
            order if quadrature else 0,
            kinks,
            plain,
            self.noisy,
            None,
            L,
            inverse,
        )
        if quadrature:
            return rule
        return replace(
            rule,
            normals=sobol_normals(dimension - rule.split, self.log2_points, scrambling),
        )

    def _full(self, order: int, scrambling: int) -> tuple[Engine, bool]:
        rule = self._rule(order, scrambling)
        return FullEngine(rule), rule.normals is not None

    def _first(
        self, order: int, coarse: bool, scrambling: int
    ) -> tuple[Forms, RidgeTarget | NodeTarget, bool] | None:
        """Averages of the student and how the target enters, unless they cost more than
        Sobol points.
        """
        sigma, p = self.kernel.activation, self.p
        forms = forms_of(sigma, order)
        ridge = ridge_target(self.kernel.target, sigma, self.P, order)
        rule = None
        if ridge is None or (forms.closed and not ridge.closed):
            degree = None if sigma.polynomial is None else len(sigma.polynomial) - 1
            rule = target_nodes(
                self.kernel.target, self.P, degree, self.log2_points, scrambling
            )
            closes = (
                forms.node_variance(NodeTarget.build(forms, rule, self.P), p)
                is not None
            )
            if ridge is not None and (rule.sampled or not closes):
                # pairs with the ridges are exact, and nodes would not close the
                # variance part
                rule = None
        target: RidgeTarget | NodeTarget
        if rule is None:
            assert ridge is not None
            target = ridge
        else:
            if not forms.closed and rule.sampled:
                return None
            target = NodeTarget.build(
                forms, rule.coarse if coarse and rule.coarse else rule, self.P
            )
        if forms.pair_work(p, p * p) + target.work(p) > MAX_FIRST:
            return None
        return forms, target, rule is not None and rule.sampled

    def _variance(
        self, forms: Forms, target: RidgeTarget | NodeTarget, order: int
    ) -> SecondOrder | None:
        """A closed second-order part for this student and target that can be afforded,
        or None.
        """
        if isinstance(target, NodeTarget):
            found = forms.node_variance(target, self.p)
        else:
            found = (
                forms.ridge_variance(target, self.p, order) if target.closed else None
            )
        return found if found is not None and found.work(self.p) <= MAX_CHI else None


@float64
def select(
    problem: Problem,
    loss: Loss | str,
    engine: str = "auto",
    order: int = ORDER,
    log2_points: int = LOG2_POINTS,
) -> Averager:
    """The engine for a problem and a loss, with ``order`` nodes per panel of quadrature
    rules.

    ``engine`` is ``"auto"``: closed forms where they exist, else quadrature, else Sobol
    points; ``"quadrature"`` and ``"sobol"`` average over all fields at once.

    Examples
    --------
    >>> from twolayer.functions.target import Teacher
    >>> select(Problem(Teacher("erf", k=2), "erf", width=3), "squared").label
    'closed form (erf)'
    """
    choice("engine", engine, ENGINES)
    loss = Loss.of(loss)
    linear = loss.student is not None
    labels = LabelNoise() if linear else problem.labels
    noisy = not linear and (traced(problem.noise) or problem.noise > 0)
    adapted = (problem.p / problem.divisor, problem.labels.flips if linear else 0.0)
    if isinstance(loss, RuledLoss):
        closed = _closed_rule(problem, loss, engine, log2_points)
        if closed is not None:
            return _select(closed, order)
        loss = dataclasses.replace(loss, scale=adapted[0])
    kernel = Kernel(problem.activation, problem.target, loss, labels=labels)
    return _select(
        _Builder(kernel, problem.p, problem.gram, engine, log2_points, noisy, *adapted),
        order,
    )


def _closed_rule(
    problem: Problem, loss: RuledLoss, engine: str, log2_points: int
) -> _Builder | None:
    """How averages under a rule are built from those of plain gradients, where it has
    weights of its own and second-order parts are closed; None elsewhere.
    """
    if loss.linear is None or loss.rule is None or engine != "auto":
        return None
    numbers = (problem.divisor, loss.batch, loss.rate)
    weights = weights_of(loss.rule, problem.activation, problem.p, *numbers)
    if weights is None:
        return None
    kernel = Kernel(problem.activation, problem.target, loss.plain)
    builder = _Builder(
        kernel,
        problem.p,
        problem.gram,
        engine,
        log2_points,
        False,
        problem.p / problem.divisor,
        problem.labels.flips,
        weights,
    )
    return builder if builder.closes else None


@lru_cache(maxsize=64)
def _select(builder: _Builder, order: int) -> Averager:
    engine, sampled = builder.build(order)
    pair = (
        _truncated(engine),
        _truncated(builder.build(max(3 * order // 4, 2), coarse=True)[0]),
    )
    others = range(1, SCRAMBLINGS) if sampled else range(0)
    scrambled = lambda: [builder.build(order, scrambling=i)[0] for i in others]  # noqa: E731
    plain = engine.inner if isinstance(engine, AdaptedEngine) else engine
    exact = isinstance(plain, PartsEngine) and not (
        isinstance(plain.target, NodeTarget) and plain.target.sampled
    )
    several = _of_several_fields(plain)
    rough = None
    if _bends(builder.kernel) and any(several):
        rough = _truncated(builder.build(max(order // 2, 2), coarse=True)[0])
    return Averager(
        engine,
        None if eqx.tree_equal(*pair) is True else pair,
        scrambled,
        sampled,
        sampled and not exact,
        rough,
        _with_shorter_lines(engine),
        several,
        builder.P,
    )


def _bends(kernel: Kernel) -> bool:
    """Whether the push bends or jumps at places of which outer fields know nothing."""
    return bool(kernel.loss.kinks) or kernel.rule is not None


def _with_shorter_lines(engine: Engine) -> Engine | None:
    """The engine with fewer nodes on every line; None where it has none."""
    every = jax.tree.leaves(engine, is_leaf=_is_rule)
    rules = [x for x in every if _is_rule(x)]
    if not any(rule.split and rule.normals is not None for rule in rules):
        return None
    return jax.tree.map(
        lambda x: replace(x, line=x.line - 1) if _is_rule(x) else x,
        engine,
        is_leaf=_is_rule,
    )


def _truncated(engine: Engine) -> Engine:
    """The engine without a sampled second-order part, which is not truncated: one
    compiled code for all points.
    """
    if isinstance(engine, AdaptedEngine):
        return eqx.tree_at(lambda e: e.inner, engine, _truncated(engine.inner))
    chi = (
        isinstance(engine, PartsEngine)
        and isinstance(engine.variance, FullRule)
        and engine.variance.normals is not None
    )
    return eqx.tree_at(lambda e: e.variance, engine, Nothing()) if chi else engine


def natural_scale(
    values: Expectations, silent: float, Q: np.ndarray, P: np.ndarray, noise: float
) -> Expectations:
    """The size that each average can have by Cauchy–Schwarz: a relative error that
    makes sense where one vanishes.

    ``silent`` is the excess risk of a student with a = 0, the scale that remains where
    everything is learned.
    """
    risk = max(float(values.excess_risk), FLOOR * silent) + noise / 2 + 1e-300
    gradient = max(
        float(np.sqrt(np.max(np.abs(values.chi)))),
        float(np.sqrt(2 * FLOOR * silent)),
        1e-150,
    )
    star = float(np.sqrt(np.max(np.diagonal(P))))
    own = max(float(np.sqrt(np.max(np.diagonal(Q)))), SHORTEST * star)
    sizes = (
        gradient * star + 1e-300,
        gradient * own + 1e-300,
        gradient**2,
        np.sqrt(2 * risk),
        risk,
    )
    return Expectations(*map(np.asarray, sizes))


def relative_error(
    averager: Averager,
    error: Expectations,
    problem: Problem,
    Q: np.ndarray,
    M: np.ndarray,
    a: np.ndarray,
) -> float:
    """The largest of the absolute errors, each relative to the natural scale of its
    average at (Q, M, a).
    """
    silent = max(
        float(averager(Q, M, np.zeros_like(a), problem.noise).excess_risk), 0.0
    )
    scale = natural_scale(
        averager(Q, M, a, problem.noise), silent, Q, problem.P, problem.noise
    )
    return max(float(np.max(e)) / s for e, s in zip(error, scale, strict=True))


@lru_cache(maxsize=64)
def _silent_risk(averager: Averager, p: int, k: int) -> float:
    """The excess risk of a student that says nothing, whatever its overlaps."""
    assert averager.probe is not None
    nothing = (np.eye(p), np.zeros((p, k)), np.zeros(p), 0.0)
    return max(float(_on_host(averager.probe[1], *nothing).excess_risk), 0.0)


def truncation_error(
    averager: Averager, problem: Problem, Q: np.ndarray, M: np.ndarray, a: np.ndarray
) -> float:
    """The relative truncation error at the worst of points with a leading axis."""
    if averager.probe is None:
        return 0.0
    fine, coarse = averager.probe
    silent, worst = _silent_risk(averager, *M.shape[-2:]), 0.0
    for point in zip(Q, M, a, strict=True):
        one, two = (
            _on_host(engine, *point, problem.noise) for engine in (fine, coarse)
        )
        # chi is at least the label noise and the risk times the slopes; where it is not
        # known, take that
        seen = one._replace(
            chi=np.maximum(np.abs(one.chi), 2 * one.excess_risk + problem.noise)
        )
        scale = natural_scale(seen, silent, point[0], problem.P, problem.noise)
        rest = left_out(fine, *point, problem.noise)
        changes = (np.abs(x - y) + z for x, y, z in zip(one, two, rest, strict=True))
        worst = max(
            worst, *(float(np.max(x)) / s for x, s in zip(changes, scale, strict=True))
        )
    return worst


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
    log2_points: int = PER_STEP,
    at_least: int = ORDERS[0],
) -> tuple[Averager, int, float]:
    """The cheapest engine whose truncation error is below the tolerance at (Q, M, a),
    its order, and that error.

    Leading axes hold several points: the worst of them counts. If no order reaches the
    tolerance (a target that bends along oblique surfaces), the highest one is returned:
    the error tells.
    """
    points = [
        np.reshape(x, (-1, *x.shape[x.ndim - n :])) for x, n in ((Q, 2), (M, 2), (a, 1))
    ]
    for order in [n for n in ORDERS if n >= at_least]:
        averager = select(problem, loss, engine, order, log2_points)
        error = truncation_error(averager, problem, *points)
        nodes, with_noise = _full_nodes(averager.engine, problem.p)
        if (
            error <= tolerance
            or 2 * nodes > MAX_FULL_NODES
            or 2 * with_noise > MAX_NOISE_NODES
        ):
            break
    return averager, order, error


@float64
def adapt_steps(
    problem: Problem, loss: Loss | str, Q: np.ndarray, M: np.ndarray, a: np.ndarray
) -> Averager:
    """As `adapt`, where averages are taken at every step of every run and not to more
    digits than these tell.

    Sobol points in the place of a quadrature over all fields of more than 2^16 nodes.
    """

    def nodes(averager: Averager) -> int:
        plain = (
            averager.engine.inner
            if isinstance(averager.engine, AdaptedEngine)
            else averager.engine
        )
        return (
            plain.rule.nodes(problem.p) * plain.rule.noise_nodes
            if isinstance(plain, FullEngine)
            else 0
        )

    averager = select(problem, loss)
    if averager.sampled or nodes(averager) <= MAX_PER_STEP:
        return adapt(problem, loss, Q, M, a)[0]
    for points in range(PER_STEP, PER_STEP - 5, -1):
        averager = select(problem, loss, "sobol", log2_points=points)
        if nodes(averager) <= 4 * MAX_PER_STEP:
            break
    return averager


def compile_seconds(engine: Engine) -> float:
    """Seconds that the code of a run takes to compile on one core, as measured."""
    rules = jax.tree.leaves(
        engine, is_leaf=lambda x: _is_rule(x) or isinstance(x, ReluRidge)
    )
    sampled, sets = (
        any(map(_is_rule, rules)),
        any(isinstance(x, ReluRidge) for x in rules),
    )
    return 2.5 + 4.0 * (sampled or "by quadrature" in engine.label) + 7.5 * sets


def _full_nodes(engine: Engine, p: int) -> tuple[int, int]:
    """Nodes of a quadrature over all fields, and of these with the label noise; 0 if
    there is none.
    """
    rules = [
        x
        for x in jax.tree.leaves(engine, is_leaf=_is_rule)
        if _is_rule(x) and x.normals is None
    ]
    return max((x.nodes(p) for x in rules), default=0), max(
        (x.nodes(p) * x.noise_nodes for x in rules), default=0
    )


def _is_rule(x: Numbers) -> bool:
    return isinstance(x, FullRule)


def _of_several_fields(engine: Engine) -> Expectations:
    """Which averages are by a quadrature of several fields: over all at once, or of
    pairs of which one bends.
    """
    forms, rule = getattr(engine, "forms", None), getattr(engine, "variance", None)
    first = isinstance(forms, NumericForms) and bool(forms.activation.kinks)
    if isinstance(engine, FullEngine):
        first, rule = engine.rule.normals is None, engine.rule
    chi = first or (isinstance(rule, FullRule) and rule.normals is None)
    return Expectations(*(np.asarray(x) for x in (first, first, chi, first, first)))
