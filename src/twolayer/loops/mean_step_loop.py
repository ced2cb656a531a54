"""The mean step iterated from save point to save point, its averages refined along the
way.

y ← MeanStep(y)        equations/mean_step.py
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.equations.blocks import Blocks
from twolayer.equations.mean_step import MeanStep, Rows, Terms, Weights
from twolayer.equations.mean_step_in_blocks import BlockMeanStep
from twolayer.equations.optimiser_step import Coefficients, as_data, form_of
from twolayer.equations.state import Overlap, size_of, unpack
from twolayer.gaussian.engines import Engine, select
from twolayer.gaussian.single_samples import (
    CHECKED,
    LOG2_POINTS,
    Choice,
    choose_for,
    error_near,
)
from twolayer.gaussian.step_fluctuations import StepSamples
from twolayer.loops.host_loop import settled
from twolayer.loops.refined_averages import (
    AveragedMotion,
    Averaging,
    Precision,
    averaged,
)
from twolayer.loops.runge_kutta import Control, Equation
from twolayer.loops.stopping import Lane, Watch, accept, watched_value
from twolayer.loops.windows import (
    CLOSE,
    Known,
    Look,
    Motion,
    Pace,
    Window,
    Windows,
    control_of,
    quantity_of,
    slopes_of_steps,
)
from twolayer.numerics.arguments import Notes
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.method import Claim, Snapshot, Stand, Task
from twolayer.task.schedule_factors import Clock

__all__ = ["MeanStepMotion", "mean_steps", "step_seconds"]

LIGHT = 13  # Sobol points of the linearised map, as a power of two
NS_PER_PRODUCT = 3.0  # for estimates of cost


def step_seconds(task: Task, precision: Precision, terms: Terms) -> float:
    """Seconds of one step on one core, as an order of magnitude."""
    p, k = task.problem.p, task.problem.k
    points = precision.begun(task.problem).points
    averages = select(
        task.as_trained.problem,
        task.algorithm.mean_drive,
        precision.engine,
        log2_points=points,
    )
    products = p * (p + k)
    work = averages.engine.work(p)
    if terms.finite or terms.ratio:
        work += 2**LOG2_POINTS * products
    if terms.band:
        size = size_of(p, k)
        work += 2 * size * 2**LIGHT * products + 2**LOG2_POINTS * size**2
    return NS_PER_PRODUCT * 1e-9 * work


class Iterated(Equation):
    """A step, with what has to be known to stop."""

    step: MeanStep
    watcher: Engine | None
    noise: Number

    def __call__(self, t: Number, y: Rows, args: object = None) -> Rows:
        """One step."""
        return self.step(y)

    def size(self, y: Rows) -> Real:
        """The largest squared norm."""
        a = self.step.overlaps(y).a
        return jnp.maximum(self.step.norms(y).max(), (a**2).max())

    def watched(self, quantity: str | None, y: Rows) -> Array:
        """What a threshold refers to."""
        return watched_value(quantity, self.watcher, *self.step.overlaps(y), self.noise)


@eqx.filter_jit
def iterate(
    step: Equation, quantity: str | None, control: Control, y: Rows, points: Real
) -> Tree:
    """One start through the steps points[0] … points[-1] − 1, saved at all later
    points; vmapped over starts.
    """

    def one(y: Rows, level: Real, sign: Real) -> Tree:
        watch = None if quantity is None else Watch(level, sign)

        def body(number: Number, carry: Tree) -> Tree:
            y, lane = carry
            new = step(0.0, y)
            return accept(
                y,
                new,
                lane,
                step.size(new),
                step.watched(quantity, new),
                watch,
                number,
                True,
            )

        def save(carry: Tree, ends: Real) -> Tree:
            carry = jax.lax.fori_loop(ends[0], ends[1], body, carry)
            return carry, carry[0]

        lane = Lane(
            jnp.zeros((), jnp.int32), jnp.full((), jnp.nan), step.watched(quantity, y)
        )
        (end, lane), saved = jax.lax.scan(
            save, (y, lane), jnp.stack([points[:-1], points[1:]], axis=1)
        )
        return saved, end, lane.stop, lane.code

    return jax.vmap(one)(y, control.level, control.sign)


class Iteration(Pace):
    """Steps of the map in compiled calls of one window; windows of equal length share
    their code.
    """

    equal_windows = True

    def __init__(self, motion: MeanStepMotion) -> None:
        self.control = control_of(motion, 0.0)
        self._steps = 0
        self._length = 2  # of a window

    @property
    def evaluations(self) -> int:
        """Steps of all starts."""
        return self._steps

    @property
    def error(self) -> float:
        """Steps are exact."""
        return 0.0

    def rates(self, motion: Motion, equation: Equation, y: Tree) -> Tree:
        """The states after one step, by the code of a window in which nothing else
        happens.
        """
        points = jnp.asarray(np.minimum(np.arange(self._length), 1))
        quantity = quantity_of(motion.task)
        return settled(iterate(equation, quantity, self.control, y, points))[1]

    def window(
        self,
        motion: Motion,
        y: Tree,
        times: np.ndarray,
        code: np.ndarray,
        tick: Callable[[float], None],
    ) -> Window:
        """The steps of one window; of starts that have stopped they are not
        looked at.
        """
        quantity = quantity_of(motion.task)
        self._length = len(times)
        self._steps += int(times[-1] - times[0]) * len(code)
        return Window(
            *settled(
                iterate(
                    motion.equation(), quantity, self.control, y, jnp.asarray(times)
                )
            )
        )

    def again(self) -> None:
        """Nothing is known beyond the window."""


class MeanStepMotion(AveragedMotion):
    """Overlaps of all starts under the map, step by step."""

    def __init__(
        self,
        task: Task,
        averaging: Averaging,
        rates: Coefficients,
        weights: Weights,
        terms: Terms,
        blocks: Blocks | None = None,
    ) -> None:
        problem, algorithm = task.as_trained.problem, task.algorithm
        self.task, self.averaging = task, averaging
        self.rates, self.weights, self.form = rates, weights, form_of(algorithm)
        # the second-order terms of the ratio know no rows of the step before
        self.terms = terms._replace(
            ratio=terms.ratio and self.form.normalises and not self.form.carries
        )
        self.choice: Choice | None = None
        self.samples: StepSamples | None = None
        if any(self.terms):
            self.choice = choose_for(problem, algorithm)
            self.samples = StepSamples.of(problem, algorithm, self.choice)
        self.last = Overlap(*(x[:CHECKED] for x in task.starts()))
        self.light = (
            select(problem, algorithm.mean_drive, log2_points=LIGHT).engine
            if terms.band
            else None
        )
        self.deviations: list[Overlap] = []
        self.tempo = task.clocks.tempo
        self.blocks = blocks

    def equation(self) -> Iterated:
        """The map with averages at the present order."""
        # arrays, not floats: they are data of the compiled code
        rates = as_data(self.rates)
        weights = Weights(
            norm=jnp.asarray(self.weights.norm, float),
            single=jnp.asarray(self.weights.single, float),
            pairs=jnp.asarray(self.weights.pairs),
            noise=jnp.asarray(self.weights.noise, float),
        )
        tempo = None if self.tempo is None else jax.tree.map(jnp.asarray, self.tempo)
        P, rules = self.task.problem.P, (self.samples, self.light)
        whole = (
            self.averaging.averager.engine,
            rates,
            weights,
            P,
            self.form,
            self.terms,
            *rules,
            tempo,
        )
        step = (
            MeanStep(*whole)
            if self.blocks is None
            else BlockMeanStep(*whole, self.blocks)
        )
        return Iterated(
            step, self.averaging.watcher, jnp.asarray(self.task.problem.noise, float)
        )

    def start(self) -> Rows:
        """Rows at rest, where W_previous = W, or as an earlier stage left them; without
        fluctuations.
        """
        (Q, M, a), n, after = self.task.starts(), self.form.copies, self.task.after
        if self.blocks is not None:
            return Rows(
                *self.task.block_starts(),
                a,
                None,
                None if self.tempo is None else Clock.zero((len(Q),)),
            )
        size = size_of(Q.shape[1], M.shape[2], self.form.trained)
        spread = np.zeros((len(Q), size, size)) if self.terms.band else None
        clock = None if self.tempo is None else Clock.zero((len(Q),))
        if after is not None and self.form.carries:
            rows: Rows = after.state
            return rows._replace(spread=spread, clock=clock)
        return Rows(
            np.tile(Q, (1, n, n)),
            np.tile(M, (1, n, 1)),
            np.tile(a, (1, n)),
            spread,
            clock,
        )

    def left(self, end: Rows) -> Rows | None:
        """The rows before the last step too, where they are carried."""
        return end if self.form.carries else None

    def refine(self, end: Rows) -> bool:
        """Finer averages, if the present ones are too coarse at the present rows."""
        return self.averaging.refine(self.equation().step.overlaps(end))

    def seen(self, states: Rows) -> Snapshot:
        """The overlaps at save points; standard deviations are put aside."""
        if self.terms.band:
            p, k = self.task.problem.p, self.task.problem.k
            own = np.sqrt(
                np.maximum(np.diagonal(states.spread, axis1=-2, axis2=-1), 0.0)
            )
            apart: Callable[[np.ndarray], tuple[Real, ...]] = jax.vmap(
                jax.vmap(lambda x: unpack(x, p, k, self.form.trained))
            )
            self.deviations.append(Overlap(*map(np.asarray, apart(own))))
        if self.blocks is not None:
            gram, star, a = map(np.asarray, (states.gram, states.star, states.a))
            self._remember(gram.sum(2), star.sum(2), a)
            return Snapshot.in_blocks(self.task.problem.inputs, gram, star, a)
        seen = [np.asarray(x) for x in self.equation().step.overlaps(states)]
        self._remember(*seen)
        return Snapshot(*seen)

    def _remember(self, Q: np.ndarray, M: np.ndarray, a: np.ndarray) -> None:
        """Where some of the runs are now."""
        self.last = Overlap(*(x[:CHECKED, -1] for x in (Q, M, a)))

    def stand(self, look: Look, y: Rows, lane: int, known: Known) -> Stand:
        """What a very short step does, without noise and by noise alone, and where rows
        are free and only these matter, the step.
        """
        numbers = dict(known)
        if self.tempo is not None:
            assert y.clock is not None
            clock = (float(np.asarray(x)[lane]) for x in y.clock)
            f, n = self.tempo(Clock(*clock))
            numbers = {"rate": float(f), "batch": float(n / self.tempo.count)}
        if float(self.weights.single) > 0:
            assert self.task.clocks.dim is not None
            numbers["dim"] = float(self.task.clocks.dim)

        def after(length: float, norm: float) -> list[np.ndarray]:
            zero = jnp.zeros(())
            short = jnp.asarray(length, float)

            def change(x: Tree) -> Tree:
                if isinstance(x, Weights):
                    return x._replace(norm=jnp.asarray(norm, float), single=zero)
                still = {"decay": zero, "momentum": zero}
                return x._replace(step=short, second=short, **still)

            return self._overlaps(look((Coefficients, Weights), change))

        def moved(length: float) -> list[np.ndarray]:
            flow = after(length, 0.0)
            return [x - y for x, y in zip(flow, now, strict=True)]

        def kicked(length: float) -> list[np.ndarray]:
            flow, both = after(length, 0.0), after(length, 1 / length)
            return [x - y for x, y in zip(both, flow, strict=True)]

        now = self._overlaps(y)
        scale = float(np.nanmax(np.abs(now[0])))
        error = self.averaging.worst + 10 * CLOSE
        claims = [
            self._claim(kind, slopes_of_steps(change, scale), lane, error, numbers)
            for kind, change in (("flow", moved), ("noise", kicked))
        ]
        plain = self.blocks is None and not self.form.carries and self.tempo is None
        if plain and not self.form.normalises:
            parts = {
                "norm": float(self.weights.norm > 0),
                "pairs": float(self.weights.pairs),
                "dimension": float(self.terms.finite),
            }
            step = self._overlaps(look(Coefficients, lambda x: x))
            worst = self.averaging.worst
            whole = {**numbers, **parts}
            # a step that would diverge is not taken
            if any((x != y).any() for x, y in zip(step, now, strict=True)):
                claims.append(self._claim("step", step, lane, worst, whole))
        P = None if self.blocks is None else np.asarray(self.blocks.P)
        Q, M, a = (x[lane] for x in now)
        return Stand(Q, M, a, claims, P)

    def _claim(
        self, kind: str, moved: list[np.ndarray], lane: int, error: float, known: Known
    ) -> Claim:
        """A claim on what moves."""
        algorithm = self.task.algorithm
        moving = [algorithm.train_first_layer] * 2 + [algorithm.train_second_layer]
        values = {
            name: x[lane]
            for name, x, moves in zip("QMa", moved, moving, strict=True)
            if moves
        }
        return Claim(kind, values, error, known)

    def _overlaps(self, rows: Rows) -> list[np.ndarray]:
        """Q, M and a of rows, in blocks where there are some."""
        found = (
            self.equation().step.overlaps(rows)
            if self.blocks is None
            else Overlap(rows.gram, rows.star, rows.a)
        )
        return [np.asarray(x) for x in found]

    def notes(self, pace: Pace) -> Notes:
        """The rule for the terms beyond the averages, and the error of its variances
        where it was chosen and where the run ended.
        """
        averages = self.averaging.notes(pace)
        if self.samples is None or self.choice is None:
            return averages
        ends = [Overlap(*x) for x in zip(*self.last, strict=True)]
        reached = error_near(self.choice, self.task.as_trained.problem, ends)
        return {
            "finite_dimension": self.samples.label,
            "covariance_error": max(self.choice.error, reached),
            **averages,
        }

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Standard deviations of M and Q times d^(1/2), if they were followed."""
        if not self.terms.band:
            return {}
        Q, M, _ = (
            np.concatenate(x, axis=1) for x in zip(*self.deviations, strict=True)
        )
        row = ("seed", "time", "neuron")
        return {"M_band": ((*row, "direction"), M), "Q_band": ((*row, "neuron_"), Q)}


def mean_steps(
    task: Task,
    precision: Precision,
    rates: Coefficients,
    weights: Weights,
    terms: Terms,
    blocks: Blocks | None = None,
) -> Windows[MeanStepMotion]:
    """A run of the map from all starts; ``blocks`` where inputs have several."""

    def make(precision: Precision) -> tuple[MeanStepMotion, Pace]:
        motion = MeanStepMotion(
            task, Averaging(task, precision), rates, weights, terms, blocks
        )
        return motion, Iteration(motion)

    return averaged(make, precision)
