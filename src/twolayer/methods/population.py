"""Gradient descent and gradient flow on the population loss: no samples, no noise, any
dimension.

    W ← (1 − lr·λ) W + (lr/N) ḡ + β (W − W_previous),    ḡ_j = a_j E[σ'(λ_j) e z]
    flow:  dW/dt = ḡ,    t = lr·step/N

ḡ is a combination of the rows of W and W* (gaussian/population_gradient.py), so the
rows never leave the span of where they started and of the target: they are carried in p
+ rank coordinates, exactly, whatever d. The overlaps follow with all their lr² terms,
and Q cannot lose its positivity. With inputs in blocks the overlaps themselves are
moved (equations/mean_step_in_blocks.py), and there is no Q_perp.

Cost per step: O(p (p + k)(p + rank)) for rectifiers and polynomials, else that of the
averages. Memory O(p (p + rank)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.block_refusals import carried_in_blocks
from twolayer.equations.blocks import blocks_of
from twolayer.equations.mean_step import Terms, Weights
from twolayer.equations.optimiser_step import (
    Coefficients,
    Form,
    Layers,
    Limit,
    Memory,
    as_data,
    coefficients_of,
    descend,
    form_of,
    largest_lr,
    limit_of_flow,
    rates_now,
    row_motion,
)
from twolayer.equations.orthogonal import embed
from twolayer.gaussian.engines import LOG2_POINTS
from twolayer.gaussian.nodes import target_frame, vanishes
from twolayer.gaussian.population_gradient import (
    Descent,
    ReluDescent,
    descent_of,
    gradient_error,
)
from twolayer.loops.mean_step_loop import mean_steps
from twolayer.loops.refined_averages import (
    AveragedMotion,
    Averaging,
    Precision,
    averaged,
)
from twolayer.loops.runge_kutta import Equation
from twolayer.loops.scheduled_flow import integrated
from twolayer.loops.stepwise import (
    CPU_LANES,
    Lanes,
    Stepper,
    Stepwise,
    for_each_group,
    lane_axes,
)
from twolayer.loops.stopping import Watch, accept, watched_value
from twolayer.loops.windows import Motion, Pace, Windows
from twolayer.methods.ode import ODEMotion
from twolayer.numerics.arguments import End, Notes, Save
from twolayer.numerics.errors import (
    InputError,
    finite_number,
    flag,
    keep_integers,
)
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.algorithm import SGD
from twolayer.task.averages import ACCURACY, USUAL, Averages, keep_averages
from twolayer.task.clocks import Clocks
from twolayer.task.heavy_tails import infinite
from twolayer.task.method import (
    Claim,
    Evolution,
    Method,
    Outcome,
    Snapshot,
    Stand,
    Task,
    register_method,
)
from twolayer.task.problem import Problem
from twolayer.task.regimes import layers_apart, memory_beyond
from twolayer.task.schedule_factors import Tempo

__all__ = ["Population"]

# errors of rows of a gradient, in those of averages of it that nothing cancels in
APART = 4.0
NS_PER_PAIR = 40.0  # of rows, for estimates of cost: most of it is an arctangent


@dataclass(frozen=True)
class DescentForm:
    """Choices that fix the compiled code."""

    form: Form
    quantity: str | None


class DescentNumbers(NamedTuple):
    """Numbers that the compiled code takes as data; rates, noise and watch have their
    own value in each lane.
    """

    rates: Coefficients
    tempo: Tempo | None
    noise: Number
    descent: Descent
    watch: Watch | None


def step(
    spec: DescentForm, params: DescentNumbers, state: Memory
) -> tuple[Memory, Real]:
    """One step of gradient descent, and the largest squared norm met."""
    rates = rates_now(params.rates, params.tempo, state)
    new, _, size = descend(
        spec.form,
        rates,
        state,
        params.descent(*state.aimed(spec.form, rates), params.noise),
    )
    return new, size


def watched(
    quantity: str | None, descent: Descent, rows: Layers, noise: Number
) -> Real:
    """The watched quantity of one start; risks from the rows, to all digits."""
    if quantity in ("risk", "excess_risk"):
        excess = descent.excess_risk(*rows)
        return excess + descent.irreducible(noise) if quantity == "risk" else excess
    return watched_value(quantity, None, *descent.overlaps(rows.W), rows.a, noise)


@partial(jax.jit, static_argnames="spec")
def advance(
    spec: DescentForm, params: DescentNumbers, carry: Tree, start: Real, stop: Real
) -> Tree:
    """Steps start … stop − 1 of all groups of starts; all but shared parameters have
    leading axes (groups, lanes).
    """

    def single(params: DescentNumbers, stop: Real, carry: Tree, number: Real) -> Tree:
        state, lane = carry
        new, size = step(spec, params, state)
        value = watched(spec.quantity, params.descent, new.now, params.noise)
        return accept(
            state, new, lane, size, value, params.watch, number, number < stop
        )

    def group(params: DescentNumbers, carry: Tree, start: Real, stop: Real) -> Tree:
        each = jax.vmap(single, (lane_axes(params), 0, 0, 0))
        body = lambda i, carry: each(params, stop, carry, start + i)  # noqa: E731
        return jax.lax.fori_loop(0, (stop - start).max(), body, carry)

    return for_each_group(group, params, carry, start, stop)


@eqx.filter_jit
def look(descent: Descent, W: Real, a: Real) -> Tree:
    """Q, M, Q⊥ and the excess risk of rows with two leading axes."""

    def one(W: Real, a: Real) -> Tree:
        return *descent.overlaps(W), descent.orthogonal(W), descent.excess_risk(W, a)

    return jax.vmap(jax.vmap(one))(W, a)


@eqx.filter_jit
def _pushed(descent: Descent, W: Real, a: Real, noise: Number) -> Tree:
    """The mean gradients of both layers at one start."""
    return tuple(descent(W, a, noise))


class Observer:
    """Turns rows into snapshots, and keeps what overlaps would lose to rounding: the
    excess risk and Q⊥.
    """

    def __init__(self, task: Task, method: Population) -> None:
        problem, (Q, M, a) = task.problem, task.starts()
        self.descent, self.averager = descent_of(
            problem,
            task.algorithm.loss,
            Q[0],
            M[0],
            a[0],
            engine=method.averages.engine,
            tolerance=(method.averages.accuracy or ACCURACY) / 100,
            log2_points=method.averages.log2_points or LOG2_POINTS,
        )
        A, B = embed(Q, M, target_frame(problem.P)[1], problem.p)
        # where the start has fewer directions than neurons, rounding must not add one:
        # √1e-17 is not small
        there = (B**2).sum(1, keepdims=True) > 1e-15 * np.trace(Q, axis1=1, axis2=2)[
            :, None, None
        ]
        self.start = Layers(np.concatenate([A, np.where(there, B, 0.0)], axis=2), a)
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []

    def see(self, rows: Layers) -> Snapshot:
        """Rows (seeds, n, p, m) at save points as overlaps."""
        Q, M, orthogonal, risk = map(
            np.asarray, look(self.descent, *map(jnp.asarray, rows))
        )
        self._kept.append((orthogonal, risk))
        return Snapshot(Q, M, np.asarray(rows.a))

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Q⊥ and the excess risk at all save points."""
        orthogonal, risk = (
            np.concatenate(x, axis=1) for x in zip(*self._kept, strict=True)
        )
        return {
            "Q_perp": (("seed", "time", "neuron", "neuron_"), orthogonal),
            "excess_risk": (("seed", "time"), risk),
        }

    def notes(self, task: Task) -> Notes:
        """How the averages were taken, and the error of the gradient at the start."""
        point = (*(x[0] for x in task.starts()), task.problem.noise)
        return {
            "engine": self.descent.label,
            "engine_error": gradient_error(self.descent, self.averager, *point),
        }

    def stand(self, task: Task, rows: Layers) -> Stand:
        """The mean gradient that is relied on at the rows of one start, as what it does
        to the overlaps.
        """
        noise, algorithm = jnp.asarray(task.problem.noise, float), task.algorithm
        W, a = map(np.asarray, rows)
        first, second = map(np.asarray, _pushed(self.descent, W, a, noise))
        Q, M = map(np.asarray, self.descent.overlaps(W))
        k = self.descent.L.shape[1]
        dM, dQ = first[:, :k] @ self.descent.L.T, first @ W.T + W @ first.T
        if algorithm.geometry != "free":
            growth = np.diagonal(dQ) / (2 * np.diagonal(Q))
            dM = dM - M * growth[:, None]
            dQ = dQ - Q * (growth[:, None] + growth)
        values = {"M": dM, "Q": dQ} if algorithm.train_first_layer else {}
        if algorithm.train_second_layer:
            values["a"] = second
        own = gradient_error(self.descent, self.averager, Q, M, a, noise)
        return Stand(Q, M, a, [Claim("flow", values, APART * own, {})])

    def largest_lr(self, task: Task) -> float | None:
        """The lr beyond which steps overshoot: lr (h/N + λ) < 2 (1 + β) with h the
        largest curvature.

        For rectifiers it is that of aligned students, h = Σ a_j²/2N, who are so at the
        minimum and far away from it; else that at the start. None where the loss curves
        downwards there: nothing is known then.
        """
        rows = Layers(*(jnp.asarray(x[0]) for x in self.start))
        if isinstance(self.descent, ReluDescent):
            curvature = float((rows.a**2).sum()) / (2 * task.problem.divisor)
        else:
            size = rows.W.size
            jacobian = jax.jacfwd(
                lambda W: self.descent(W, rows.a, task.problem.noise).first
            )(rows.W)
            curvature = -float(
                np.linalg.eigvalsh(np.asarray(jacobian).reshape(size, size)).min()
            )
        return largest_lr(task.algorithm, task.problem.divisor, curvature)


class DescentStepper(Stepper):
    """Gradient descent from all starts, side by side."""

    def __init__(self, method: Population, lanes: Lanes) -> None:
        self.lanes, task = lanes, lanes.task
        self.observer = Observer(task, method)
        self.spec = DescentForm(form_of(task.algorithm), lanes.quantity)
        rates = lanes.rates([task.clocks.dim or 1])
        self.params = DescentNumbers(
            rates, lanes.tempo, lanes.noise, self.observer.descent, lanes.watch
        )

    def start(self) -> Memory:
        """The rows of the starts, or what an earlier stage left."""
        memory = self.lanes.resumed(self.spec.form)
        if memory is not None:
            return memory
        W, a = (self.lanes.fold_seeds(np.asarray(x)) for x in self.observer.start)
        return Memory.at_rest(self.spec.form, W, a, self.params.tempo)

    def run(self, carry: Tree, start: Real, stop: Real) -> Tree:
        """Compiled steps."""
        return advance(self.spec, self.params, carry, start, stop)

    def snapshot(self, state: Memory) -> Snapshot:
        """Overlaps of all starts, and what they would lose."""
        return self.observer.see(
            Layers(*(self.lanes.unfold(x)[:, None] for x in state.now))
        )

    def claims(self, state: Memory) -> list[Stand]:
        """The mean gradient at the first start, and at the end of that run."""
        ends = Layers(*(self.lanes.unfold(x) for x in state.now))
        points = (self.observer.start, ends)
        return [
            self.observer.stand(self.lanes.task, Layers(x.W[0], x.a[0])) for x in points
        ]

    def left(self, state: Memory) -> Memory | None:
        """The rows before the last step too, where they are carried."""
        return jax.tree.map(self.lanes.unfold, state) if len(state.every) > 1 else None

    def notes(self, diverged: bool) -> Notes:
        """How the averages were taken, and the largest lr if a start diverged."""
        task = self.lanes.task
        found = self.observer.notes(task)
        bound = self.observer.largest_lr(task) if diverged else None
        if bound is not None:
            text = (
                "the step is too large: on this loss steps overshoot for lr >"
                f" {bound:.4g}"
            )
            found |= {"largest_lr": bound, "advice": {Outcome.DIVERGED: text}}
        return found

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Q⊥ and the excess risk."""
        return self.observer.extras()


class RowField(Equation):
    """The right-hand side of gradient flow in the coordinates of the rows."""

    descent: Descent
    limit: Limit
    label_noise: Real
    form: Form = eqx.field(static=True)

    def size(self, y: Layers) -> Real:
        """The largest squared norm."""
        return jnp.maximum((y.W**2).sum(1).max(), (y.a**2).max())

    def watched(self, quantity: str | None, y: Layers) -> Real:
        """What a threshold refers to."""
        return watched(quantity, self.descent, y, self.label_noise)

    def __call__(self, t: Number, y: Layers, args: object = None) -> Layers:
        """dy/dt."""
        return row_motion(self.form, self.limit, y, self.descent(*y, self.label_noise))


class RowMotion(Motion):
    """Gradient flow from all starts, on rows."""

    def __init__(self, task: Task, method: Population) -> None:
        self.task, self.observer = task, Observer(task, method)

    def start(self) -> Layers:
        """The rows of all starts."""
        return self.observer.start

    def equation(self) -> RowField:
        """The mean gradient, with the rates of the algorithm."""
        problem, algorithm = self.task.problem, self.task.algorithm
        limit, noise = (
            as_data(limit_of_flow(algorithm, problem.divisor)),
            jnp.asarray(problem.noise, float),
        )
        return RowField(self.observer.descent, limit, noise, form_of(algorithm).flow)

    def seen(self, states: Layers) -> Snapshot:
        """Overlaps of all starts, and what they would lose."""
        return self.observer.see(states)

    def notes(self, pace: Pace) -> Notes:
        """How the averages were taken."""
        return self.observer.notes(self.task)

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Q⊥ and the excess risk."""
        return self.observer.extras()


@register_method
@dataclass(frozen=True)
class Population(Method):
    """Gradient descent on the population loss, or gradient flow: what SGD does with
    batches of infinite size.

    The size of the batch has no effect. The result has the overlaps ``Q_perp`` of what
    is orthogonal to the target as a variable of its own: near the end Q and M do not
    resolve it.

    Parameters
    ----------
    flow : bool
        The limit of small steps, in time t = lr·step/N, instead of steps of size lr.
    averages : Averages
        How Gaussian averages are taken, and how accurate quadratures shall be at the
        start (1e-4); it has no effort.
    rtol : float, optional
        Relative tolerance of the integrator of the flow; 1e-8, or 1e-6 where averages
        are sampled.
    max_steps : int
        Integrator steps of the flow between two looks of the host.

    Notes
    -----
    Cost per step O(p (p + k)(p + rank)) for rectifiers and polynomials: 10⁷ steps of
    ten rectifiers in less than a minute. Long runs are best saved with ``save="log"``.

    Examples
    --------
    >>> Population().name, Population(flow=True).stepwise
    ('population', False)
    """

    flow: bool = False
    averages: Averages = USUAL
    rtol: float | None = None
    max_steps: int = 100_000
    in_comparisons: ClassVar[bool] = False
    hands_over: ClassVar[bool] = True
    papers: ClassVar[tuple[str, ...]] = ("xu2023",)

    def __post_init__(self) -> None:
        flag("flow", self.flow)
        keep_averages(self, ("engine", "accuracy", "points"))
        if self.rtol is not None:
            finite_number(
                "rtol", self.rtol, minimum=1e-14, accepted="a number from 1e-14 on"
            )
        keep_integers(self, 1, "max_steps")

    @property
    def stepwise(self) -> bool:  # type: ignore[override]
        """Descent takes steps; flow has a time."""
        return not self.flow

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """There are no samples to reuse, and no direction to learn in a zero target."""
        if algorithm.rule is not None and not (
            algorithm.rule.relabels and algorithm.loss.student is not None
        ):
            return (
                f"the rule {algorithm.rule} acts on gradients of samples, and the"
                " population loss has none"
            )
        if algorithm.reused:
            return (
                f"samples are reused ({algorithm.reused}), but the population loss is"
                " an average over all inputs"
            )
        if np.diagonal(problem.P).min() <= 0:
            return (
                "a direction of the target is zero (P_rr = 0), so there is no angle to"
                " it and nothing to learn along it"
            )
        if vanishes(problem.target, problem.P):
            return "the target is zero, so there is no direction to learn"
        tails = (
            infinite(problem, algorithm.loss, 2)
            if algorithm.loss.student is None
            else None
        )
        return tails or memory_beyond(algorithm)

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """The mean step of batches of infinite size, on overlaps."""
        return carried_in_blocks(algorithm)

    def objection(self, problem: Problem, algorithm: SGD) -> str | None:
        """The flow has one time scale."""
        return super().objection(problem, algorithm) or (
            layers_apart(algorithm) if self.flow else None
        )

    def save_points(
        self, clocks: Clocks, time: End, steps: End, save: Save, alpha: End = None
    ) -> np.ndarray:
        """Steps, or times of the flow; a law for lr needs a dimension to be a
        number.
        """
        if self.stepwise and clocks.dim is None and clocks.algorithm.lr.exponent != 0:
            raise InputError(
                "Argument `lr` must be a number for gradient descent, or the start"
                f" must have a `dim`, but got {clocks.algorithm.lr}."
            )
        return super().save_points(clocks, time, steps, save, alpha)

    def cost(self, task: Task) -> float:
        """Steps, each over all pairs of rows."""
        p, k = task.problem.p, task.problem.k
        steps = float(task.points[-1]) if self.stepwise else 1e4
        return 0.5 + steps * NS_PER_PAIR * p * (p + k) * task.seeds * 1e-9

    def prepare(self, task: Task) -> Evolution:
        """Choose the rule for the gradient at the start."""
        if not task.problem.inputs.plain:
            return self._in_blocks(task)
        if self.flow:
            motion = RowMotion(task, self)
            usual = 1e-6 if motion.observer.averager.sampled else 1e-8
            return Windows(*integrated(motion, self.rtol or usual, self.max_steps))
        lanes = Lanes([task], min(CPU_LANES, task.seeds))
        return Stepwise(lanes, DescentStepper(self, lanes))

    def _in_blocks(self, task: Task) -> Evolution:
        """Overlaps in blocks by their mean gradient, as steps or as a flow; nothing is
        resolved beyond them.
        """
        problem, algorithm = task.problem, task.algorithm
        blocks = blocks_of(problem.inputs, task.start.P)
        precision = Precision(
            self.averages.engine,
            self.averages.accuracy or ACCURACY,
            log2_points=self.averages.log2_points,
        )
        if not self.flow:
            rates = coefficients_of(algorithm, problem.divisor, task.clocks.dim or 1)
            return mean_steps(
                task,
                precision,
                rates,
                Weights(0.0, 0.0, True, problem.noise),
                Terms(),
                blocks,
            )

        def make(precision: Precision) -> tuple[AveragedMotion, Pace]:
            averaging = Averaging(task, precision, noisy=False)
            motion = ODEMotion(
                task, averaging, limit_of_flow(algorithm, problem.divisor)
            )
            return integrated(
                motion, self.rtol or averaging.rtol, self.max_steps, precision.checked
            )

        return averaged(make, precision)
