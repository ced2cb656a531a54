"""The mean of one step, iterated: a deterministic map of the overlaps.

    M' = s M + η psi,    η = lr/p,  s = 1 − lr·λ
    Q' = s² Q + s η (phi + phiᵀ) + η² [ (d/n_b) chi + (chi₂ − (p+k) chi)/n_b + (1 − 1/n_b) v Ω⁺ vᵀ ],    v = (phi, psi)

v Ω⁺ vᵀ is what pairs of different samples give: E[g_j z]·E[g_l z]. chi₂ = E[g gᵀ uᵀΩ⁺u], u = (λ, λ*), is the part of
‖z‖² that is correlated with the fields. Spherical: s_j → s_j − η phi_jj/Q_jj, and each sample's gradient is tangent in
chi₂. Projected and spherical: rows are then divided by the square root of their mean Q'_jj, with the second-order terms
of the ratio,

    E[M'/√Q'] = M̄ (1 + ⅜ Var Q') − ½ Cov(M', Q')        in units where the mean norm is one.

With momentum the rows of the step before are carried along: W' = (s + β) W − β W_previous + η ḡ.

Everything is written as W' = T (W, W_previous, W*) + noise, with D = v Ω⁺ in T and the Gram matrix of the noise added,
so Q' is positive for every Ω, singular or not. Fluctuations follow the linearised map, S' = J S Jᵀ + noise of one step.

Cost per step: the averages, O((p + k)³), with the terms of a finite dimension nodes · p (p + k), and with fluctuations
2F steps on 2¹³ points and nodes · F², F = p k + p (p + 1)/2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.kernel import kernel_of
from twolayer.equations.state import Overlap
from twolayer.gaussian.engines import Engine, select
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.spread import pack, tangent, unpack
from twolayer.gaussian.step_spread import StepNodes
from twolayer.gaussian.visits import LOG2_POINTS
from twolayer.loops.averaged import AveragedEvolution, Precision
from twolayer.loops.flow import Control, Equation
from twolayer.loops.host import settled
from twolayer.loops.stepwise import Lane, Watch, accept, watched_value
from twolayer.task.method import Snapshot, Task

__all__ = ["MeanStep", "MeanStepEvolution", "Rows", "StepRates", "Terms", "spread_size", "step_seconds"]

SINGULAR = 1e-11  # eigenvalues of Ω below this, relative to the largest, count as zero
LIGHT = 13  # Sobol points of the linearised map, as a power of two
DIFFERENCE = 1e-4  # of the central differences of the linearised map
NS_PER_PRODUCT = 3.0  # for estimates of cost


class Terms(NamedTuple):
    """Which terms beyond the averages are wanted: finite dimension, means of ratios, fluctuations."""

    finite: bool = False
    ratio: bool = False
    band: bool = False


def spread_size(p: int, k: int) -> int:
    """F, entries of M and of the upper triangle of Q."""
    return p * k + p * (p + 1) // 2


def step_seconds(task: Task, precision: Precision, terms: Terms) -> float:
    """Seconds of one step on one core, as an order of magnitude."""
    p, k = task.problem.p, task.problem.k
    averages = select(
        task.problem, task.algorithm.loss, precision.engine, log2_points=precision.begun(task.problem).points
    )
    products = p * (p + k)
    work = averages.engine.work(p)
    if terms.finite or terms.ratio:
        work += 2**LOG2_POINTS * products
    if terms.band:
        size = spread_size(p, k)
        work += 2 * size * 2**LIGHT * products + 2**LOG2_POINTS * size**2
    return NS_PER_PRODUCT * 1e-9 * work


class Rows(NamedTuple):
    """Gram matrix of the rows (W, and W_previous with momentum), their overlaps with W*, the second layer(s).

    ``spread`` is d times the covariance of the packed (M, Q, a), if it is followed.
    """

    gram: Any
    star: Any
    a: Any
    spread: Any = None


class Step(NamedTuple):
    """A step of the means: new rows, T·(Gram matrix of all rows), T, chi, 1/norms, and what the nodes saw."""

    rows: Any
    with_all: Any
    T: Any
    chi: Any
    scale: Any
    seen: Any


class StepRates(NamedTuple):
    """η = lr/p, s, β, the weights d/n_b of chi and 1/n_b of single samples, whether pairs count, and Δ."""

    step: Any
    shrink: Any
    momentum: Any
    norm: Any
    single: Any
    pairs: Any
    noise: Any


class MeanStep(Equation):
    """y ← the mean of y after one step."""

    engine: Engine
    rates: StepRates
    P: np.ndarray
    geometry: str = eqx.field(static=True)
    trained: bool = eqx.field(static=True)
    terms: Terms = eqx.field(static=True)
    nodes: StepNodes | None
    light: Engine | None  # averages good enough for the linearised map
    watcher: Engine | None

    @property
    def carries(self) -> bool:
        """Whether the rows of the step before are part of the state."""
        return self.rates.momentum is not None

    def overlaps(self, y: Rows) -> Overlap:
        """Overlaps of the present rows."""
        p = y.a.shape[-1] // (2 if self.carries else 1)
        return Overlap(y.gram[..., :p, :p], y.star[..., :p, :], y.a[..., :p])

    def size(self, y: Rows) -> Any:
        """The largest squared norm."""
        Q, _, a = self.overlaps(y)
        return jnp.maximum(jnp.diagonal(Q).max(), (a**2).max())

    def watched(self, quantity: str | None, y: Rows) -> Any:
        """What a threshold refers to."""
        return watched_value(quantity, self.watcher, *self.overlaps(y), self.rates.noise)

    def __call__(self, t: Any, y: Rows, args: Any = None) -> Rows:
        """One step."""
        step = self.mean(y, self.engine)
        return step.rows if y.spread is None else step.rows._replace(spread=self._spread(y, step))

    def mean(self, y: Rows, engine: Engine) -> Step:
        """One step of the means, with the averages of an engine."""
        now, rates, eta = self.overlaps(y), self.rates, self.rates.step
        Q, M, a = now
        p = len(Q)
        average = engine(Q, M, a, rates.noise)
        v = jnp.concatenate([average.phi, average.psi], axis=1)
        D = v @ _pseudo_inverse(jnp.block([[Q, M], [M.T, self.P]]))
        normal = jnp.diagonal(average.phi) / jnp.diagonal(Q) if self.geometry == "spherical" else jnp.zeros(p)

        # T over (W, W_previous, W*): what the mean step does to the rows
        own = jnp.diag(rates.shrink - eta * normal) + eta * D[:, :p]
        previous = jnp.zeros((p, len(y.a) - p))
        if self.carries:
            own, previous = own + rates.momentum * jnp.eye(p), previous - rates.momentum * jnp.eye(p)
        T = jnp.concatenate([own, previous, eta * D[:, p:]], axis=1)
        with_all = T @ jnp.block([[y.gram, y.star], [y.star.T, self.P]])

        # pairs of samples, tangent where gradients are, and from each sample alone the random part
        cross = normal[:, None] * average.phi.T
        pairs = v @ D.T - cross - cross.T + normal[:, None] * normal * Q
        extra = rates.norm * average.chi - jnp.where(rates.pairs, rates.single, 1.0) * pairs
        seen = None if self.nodes is None else self.nodes.visit(now, rates.noise)
        if self.terms.finite:
            assert self.nodes is not None and seen is not None
            extra = extra + rates.single * self.nodes.finite_dimension(now, seen)
        new_Q = with_all @ T.T + eta**2 * (extra + extra.T) / 2
        new_Q = (new_Q + new_Q.T) / 2

        scale = jnp.ones(p) if self.geometry == "free" else jnp.diagonal(new_Q) ** -0.5
        step = Step(None, with_all, T, average.chi, scale, seen)
        Q_next, M_next = new_Q * scale[:, None] * scale, with_all[:, len(y.a) :] * scale[:, None]
        if self.terms.ratio:
            Q_next, M_next = self._ratio(now, step, Q_next, M_next)
        a_next = a + eta * average.second if self.trained else a
        if not self.carries:
            return step._replace(rows=Rows(Q_next, M_next, a_next))
        if self.trained:
            a_next = a_next + rates.momentum * (a - y.a[p:])
        side = with_all[:, :p] * scale[:, None]
        gram = jnp.block([[Q_next, side], [side.T, Q]])
        return step._replace(rows=Rows(gram, jnp.concatenate([M_next, M]), jnp.concatenate([a_next, a])))

    def _around(self, now: Overlap, step: Step) -> tuple[Any, ...]:
        """Arguments of the covariances: fields of the mean new rows, their overlaps with W, η d/n_b, χ and Γ."""
        p, eta = len(now.Q), self.rates.step
        rho = step.seen.student @ step.T[:, :p].T + step.seen.target @ step.T[:, p:].T
        gamma = eta**2 * self.rates.norm * step.chi / 2
        return now, step.seen, rho, step.with_all[:, :p].T, eta * self.rates.norm, step.chi, gamma

    def _ratio(self, now: Overlap, step: Step, Q: Any, M: Any) -> tuple[Any, Any]:
        """Means of the ratios M'/√Q' and Q'_jl/√(Q'_jj Q'_ll) to second order."""
        assert self.nodes is not None
        s, size = step.scale, self.rates.step**2 * self.rates.single
        own = self.nodes.own_covariance(*self._around(now, step))
        M_own, Q_own = own.M * size * s[:, None] ** 3, own.Q * size * s[:, None] ** 3 * s
        norms = own.norms * size * s[:, None] ** 2 * s**2
        v = 3 / 8 * jnp.diagonal(norms)
        return Q * (1 + v[:, None] + v + norms / 4) - (Q_own + Q_own.T) / 2, M * (1 + v[:, None]) - M_own / 2

    def _spread(self, y: Rows, step: Step) -> Any:
        """Covariance of the packed (M, Q, a) after the step, in units of 1/d."""
        assert self.nodes is not None and self.light is not None
        now, engine, trained = self.overlaps(y), self.light, self.trained
        p, k = now.M.shape
        x, height = pack(*now, trained), jnp.eye(y.spread.shape[0]) * DIFFERENCE

        def after(x: Any) -> Any:
            Q, M, a = unpack(x, p, k, trained)
            return pack(*self.overlaps(self.mean(Rows(Q, M, a if trained else y.a), engine).rows), trained)

        slopes = jax.lax.map(lambda h: (after(x + h) - after(x - h)) / (2 * DIFFERENCE), height)
        kick = self.nodes.covariance(trained, *self._around(now, step)) * self.rates.step**2 * self.rates.norm
        if self.geometry != "free":
            s = step.scale
            units = pack(s[:, None] * s, jnp.broadcast_to(s[:, None], (p, k)), jnp.ones(p), trained)
            normalise = tangent(*self.overlaps(step.rows)[:2], trained) * units
            kick = normalise @ kick @ normalise.T
        return slopes.T @ y.spread @ slopes + kick


def _pseudo_inverse(omega: Any) -> Any:
    values, vectors = jnp.linalg.eigh(omega)
    fine = values > SINGULAR * values[-1]
    return (vectors * jnp.where(fine, 1 / jnp.where(fine, values, 1.0), 0.0)) @ vectors.T


@eqx.filter_jit
def iterate(step: MeanStep, quantity: str | None, control: Control, y: Rows, points: Any) -> Any:
    """One start through the steps points[0] … points[-1] − 1, saved at all later points; vmapped over starts."""

    def one(y: Rows, level: Any, sign: Any) -> Any:
        watch = None if quantity is None else Watch(level, sign)

        def body(number: Any, carry: Any) -> Any:
            y, lane = carry
            new = step(0.0, y)
            return accept(y, new, lane, step.size(new), step.watched(quantity, new), watch, number, True)

        def save(carry: Any, ends: Any) -> Any:
            carry = jax.lax.fori_loop(ends[0], ends[1], body, carry)
            return carry, carry[0]

        lane = Lane(jnp.zeros((), jnp.int32), jnp.full((), jnp.nan), step.watched(quantity, y))
        (end, lane), saved = jax.lax.scan(save, (y, lane), jnp.stack([points[:-1], points[1:]], axis=1))
        return saved, end, lane.stop, lane.code

    return jax.vmap(one)(y, control.level, control.sign)


class MeanStepEvolution(AveragedEvolution):
    """Overlaps of all starts under the map, step by step."""

    equal_windows = True

    def __init__(self, task: Task, precision: Precision, rates: StepRates, terms: Terms) -> None:
        problem, algorithm = task.problem, task.algorithm
        self.rates = rates
        self.terms = terms._replace(ratio=terms.ratio and algorithm.geometry != "free")
        self.nodes: StepNodes | None = None
        if any(self.terms):
            self.nodes = StepNodes.build(problem, kernel_of(problem, algorithm), *target_frame(problem.P))
        self.light = select(problem, algorithm.loss, log2_points=LIGHT).engine if terms.band else None
        self.deviations: list[Overlap] = []
        super().__init__(task, precision)

    def remade(self, precision: Precision) -> MeanStepEvolution:
        """The same with another precision."""
        return MeanStepEvolution(self.task, precision, self.rates, self.terms)

    @property
    def evaluations(self) -> int:
        """Steps of all starts."""
        return int(self.task.points[-1]) * self.task.seeds

    def equation(self) -> MeanStep:
        """The map with averages at the present order."""
        algorithm = self.task.algorithm
        rates = StepRates(*(None if x is None else jnp.asarray(x) for x in self.rates))
        kind = (algorithm.geometry, algorithm.train_second_layer, self.terms)
        rules = (self.nodes, self.light, self.watcher)
        return MeanStep(self.averager.engine, rates, self.task.problem.P, *kind, *rules)

    def start(self) -> Rows:
        """Rows at rest, where W_previous = W, without fluctuations."""
        Q, M, a = self.task.starts()
        n = 1 if self.rates.momentum is None else 2
        size = pack(Q[0], M[0], a[0], self.task.algorithm.train_second_layer).shape[0]
        spread = np.zeros((len(Q), size, size)) if self.terms.band else None
        return Rows(np.tile(Q, (1, n, n)), np.tile(M, (1, n, 1)), np.tile(a, (1, n)), spread)

    def overlaps(self, state: Rows) -> Overlap:
        """Overlaps of the present rows."""
        return self.equation().overlaps(state)

    def seen(self, states: Rows) -> Snapshot:
        """The overlaps at save points; standard deviations are put aside."""
        if self.terms.band:
            p, k = self.task.problem.p, self.task.problem.k
            own = np.sqrt(np.maximum(np.diagonal(states.spread, axis1=-2, axis2=-1), 0.0))
            trained = self.task.algorithm.train_second_layer
            apart: Any = jax.vmap(jax.vmap(lambda x: unpack(x, p, k, trained)))
            self.deviations.append(Overlap(*map(np.asarray, apart(own))))
        return super().seen(states)

    def window_of(self, y: Rows, times: np.ndarray) -> Any:
        """The steps of one window."""
        return settled(iterate(self.equation(), self.quantity, self.control, y, jnp.asarray(times)))

    def notes(self) -> dict[str, Any]:
        """The rule for the terms beyond the averages too."""
        known = super().notes()
        return known if self.nodes is None else {**known, "finite_dimension": self.nodes.label}

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Standard deviations of M and Q times d^(1/2), if they were followed."""
        if not self.terms.band:
            return {}
        Q, M, _ = (np.concatenate(x, axis=1) for x in zip(*self.deviations, strict=True))
        row = ("seed", "time", "neuron")
        return {"M_band": ((*row, "direction"), M), "Q_band": ((*row, "neuron_"), Q)}
