"""The stochastic correction to the deterministic limit: Itô diffusion of the overlaps
at a dimension d.

    dX = b(X) dt + ( (lr/(p n_b)) Σ(X) )^{1/2} dB,    X = (M, Q, a)

b is the drift of the ODE at this lr, batch and d; Σ the covariance of the increments of
one sample (fluctuations.py), one Brownian vector for all of X. Each step of length dt =
n·lr/p stands for n steps of SGD:

    X* = X + b(X) dt + S(X) ΔB,    X' = X + ½ (b(X) + b(X*)) dt + S(X) ΔB

The noise is taken at the left point (Itô); the error is O(dt² + dt/d). A state that
leaves the set of covariances is pulled back to it: negative eigenvalues of Q − M P⁺ Mᵀ
are cut off, and rows normalised where the algorithm does.

Cost per step and seed: the averages twice, O(F³) for the root of Σ with F = p k +
p(p+1)/2 (+ p), and Σ itself.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Engine
from twolayer.equations.block_refusals import rules_of_rotations
from twolayer.equations.blocks import blocks_of
from twolayer.equations.optimiser_step import Limit, limit_at, quickening, tangent
from twolayer.equations.state import Overlap, pack, unpack
from twolayer.gaussian.engines import adapt_steps
from twolayer.gaussian.increment_covariance import (
    Spread,
    closed_covariance,
    spread_of,
)
from twolayer.gaussian.increment_covariance_in_blocks import (
    BlockSpread,
    block_spread_of,
    pack_blocks,
    tangent_in_blocks,
    unpack_blocks,
)
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.single_samples import (
    CHECKED,
    TOLERANCE,
    Choice,
    choose_for,
    error_near,
)
from twolayer.loops.stepwise import Lanes, Stepper, Stepwise, for_each_group, lane_axes
from twolayer.loops.stopping import Lane, Watch, accept, watched_value
from twolayer.loops.windows import CLOSE, slopes_of_steps
from twolayer.methods.ode import ODE
from twolayer.numerics import random
from twolayer.numerics.arguments import End, Notes, Save
from twolayer.numerics.errors import finite_number, keep_integers
from twolayer.numerics.special import symmetric_root
from twolayer.numerics.types import Number, Real, Scalar, Tree
from twolayer.pure import VectorField, field_with
from twolayer.task.algorithm import SGD
from twolayer.task.averages import USUAL, Averages, keep_averages
from twolayer.task.clocks import Clocks, save_steps
from twolayer.task.heavy_tails import no_moment, two_laws
from twolayer.task.method import (
    Claim,
    Evolution,
    Method,
    Snapshot,
    Stand,
    Task,
    register_method,
)
from twolayer.task.overlaps import pseudo_inverse
from twolayer.task.problem import Problem
from twolayer.task.schedule_factors import Clock, Tempo

__all__ = ["SDE"]

TIME_STEP = 0.01
QUICK: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": True,
}
"""Of the compiler, for code that runs once."""


class DiffusionNumbers(NamedTuple):
    """Numbers and rules that the compiled code takes as data."""

    field: VectorField
    spread: Spread | BlockSpread
    rho: Real
    amplitude: jax.Array
    dt: Number
    stride: Number
    tempo: Tempo | None
    inverse: Real  # of the target's frame, or P⁺ of each block
    noise: Number
    engine: Engine | None
    watch: Watch | None


class DiffusionState(NamedTuple):
    """Overlaps, and the clocks where there are schedules."""

    y: Overlap
    clock: Clock | None


def scheduled(
    params: DiffusionNumbers, clock: Clock | None
) -> tuple[DiffusionNumbers, Clock | None]:
    """Drift and noise of a time step whose steps of SGD have the rates of their clocks;
    and the clocks after it.
    """
    if params.tempo is None or clock is None:
        return params, clock
    tempo, eta = params.tempo, params.dt / params.stride

    def tick(_: Real, carry: Tree) -> Tree:
        clock, first, second = carry
        f, n = tempo(clock)
        later = Clock(clock.step + 1, clock.time + eta * f, clock.sample + n)
        return (
            later,
            first + f / params.stride,
            second + f**2 * tempo.count / (n * params.stride),
        )

    zero = jnp.zeros(())
    clock, first, second = jax.lax.fori_loop(
        0, params.stride, tick, (clock, zero, zero)
    )
    ratio = second / jnp.where(first > 0, first, 1.0)
    limit = params.field.limit
    paced = Limit(
        limit.flow * first,
        limit.noise * second,
        limit.decay * first,
        limit.second * first,
    )
    field = dataclasses.replace(params.field, limit=paced)
    return (
        params._replace(
            field=field,
            rho=params.rho * ratio,
            amplitude=params.amplitude * jnp.sqrt(second),
        ),
        clock,
    )


def pull_back(y: Overlap, inverse: Real, normalised: bool) -> Overlap:
    """The nearest state whose overlaps are those of vectors, with rows of norm one
    where they are normalised.
    """
    A = y.M @ inverse.T
    root = symmetric_root(y.Q - A @ A.T)
    Q, M = A @ A.T + root @ root, y.M
    if normalised:
        norm = jnp.sqrt(jnp.diagonal(Q))
        Q, M = Q / (norm[:, None] * norm), M / norm[:, None]
    return Overlap(Q, M, y.a)


def pull_back_blocks(y: Overlap, inverse: Real, normalised: bool) -> Overlap:
    """The same of overlaps in blocks, with P⁺ of each."""
    inside = y.M @ inverse @ y.M.swapaxes(1, 2)
    root = jax.vmap(symmetric_root)(y.Q - inside)
    Q, M = inside + root @ root, y.M
    if normalised:
        norm = jnp.sqrt(jnp.diagonal(Q.sum(0)))
        Q, M = Q / (norm[:, None] * norm), M / norm[:, None]
    return Overlap(Q, M, y.a)


def kicked(params: DiffusionNumbers, y: Overlap, normals: Real) -> Overlap:
    """The noise of one step, from F normals."""
    field, trained = params.field, params.field.form.trained
    if field.blocks is not None:
        assert isinstance(params.spread, BlockSpread)
        sigma = params.spread(field.blocks, y, field.noise, params.rho)
        if field.form.normalises:
            J = tangent_in_blocks(y, trained)
            sigma = J @ sigma @ J.T
        b, p, k = y.M.shape
        return unpack_blocks(symmetric_root(sigma) @ normals, b, p, k, trained)
    assert isinstance(params.spread, Spread)
    sigma = params.spread(y.Q, y.M, y.a, field.noise, params.rho)
    if field.form.normalises:
        J = tangent(y.Q, y.M, trained)
        sigma = J @ sigma @ J.T
    p, k = y.M.shape
    return Overlap(*unpack(symmetric_root(sigma) @ normals, p, k, trained))


def one_step(
    params: DiffusionNumbers,
    quantity: str | None,
    carry: Tree,
    number: Number,
    on: bool | Real,
    normals: Real,
) -> Tree:
    """One step of one seed from F normals."""
    (y, clock), lane = carry
    params, after = scheduled(params, clock)
    field, kick = params.field, kicked(params, y, normals)
    first, second = params.amplitude
    kick = Overlap(first * kick.Q, first * kick.M, second * kick.a)
    slope = field.rate(0.0, y)
    guess = jax.tree.map(lambda x, b, n: x + params.dt * b + n, y, slope, kick)
    later = field.rate(0.0, guess)
    new = jax.tree.map(
        lambda x, b, c, n: x + params.dt * (b + c) / 2 + n, y, slope, later, kick
    )
    pulled = pull_back if field.blocks is None else pull_back_blocks
    new = pulled(new, params.inverse, field.form.normalises)
    rows, seen = new.Q if field.blocks is None else new.Q.sum(0), field.fields(new)
    size = jnp.maximum(jnp.diagonal(rows).max(), (new.a**2).max())
    value = watched_value(quantity, params.engine, seen.Q, seen.M, new.a, params.noise)
    return accept(
        DiffusionState(y, clock),
        DiffusionState(new, after),
        lane,
        size,
        value,
        params.watch,
        number,
        on,
    )


@eqx.filter_jit
def advance(
    params: DiffusionNumbers,
    quantity: str | None,
    keys: Real,
    carry: Tree,
    start: Real,
    stop: Real,
) -> Tree:
    """Steps start … stop − 1 of all groups of seeds; keys, carry, noise and thresholds
    have axes (groups, lanes).
    """
    y = carry[0].y
    packed = pack if params.field.blocks is None else pack_blocks
    size = packed(y.Q[0, 0], y.M[0, 0], y.a[0, 0], params.field.form.trained).shape[0]
    index = jnp.arange(size, dtype=jnp.uint32)

    def group(
        lanes: DiffusionNumbers,
        keys: Real,
        carry: tuple[DiffusionState, Lane],
        start: Real,
        stop: Real,
    ) -> Tree:
        def single(
            params: DiffusionNumbers, key: Real, carry: Tree, number: Real, stop: Real
        ) -> Tree:
            normals = random.normal(key, number.astype(jnp.uint32), index)
            return one_step(params, quantity, carry, number, number < stop, normals)

        def body(i: Number, carry: Tree) -> Tree:
            return jax.vmap(single, (lane_axes(lanes), 0, 0, 0, 0))(
                lanes, keys[:, 0], carry, start + i, stop
            )

        return jax.lax.fori_loop(0, (stop - start).max(), body, carry)

    return for_each_group(group, params, keys, carry, start, stop)


class SDEStepper(Stepper):
    """Overlaps of all seeds; one step of the diffusion is ``stride`` steps of SGD."""

    def __init__(self, method: SDE, lanes: Lanes) -> None:
        self.lanes, task, self.dim = lanes, lanes.task, method.dim
        problem, algorithm, dim = task.as_trained.problem, task.algorithm, method.dim
        stride = method.stride(problem, algorithm)
        averager = adapt_steps(problem, algorithm.drive, *task.starts())
        self.sampled = averager.sampled
        plain = problem.inputs.plain
        blocks = None if plain else blocks_of(problem.inputs, task.start.P, dim)
        self.choice: Choice | None = None
        if not (plain and closed_covariance(problem, algorithm)):
            same = lanes.only_start()
            starts = [] if same is None else [Overlap(*(x[0] for x in same))]
            self.choice = choose_for(
                problem, algorithm, method.averages.accuracy or TOLERANCE, starts
            )
        spread = (
            spread_of(problem, algorithm, self.choice)
            if plain
            else block_spread_of(problem, algorithm, self.choice)
        )
        self._notes = {
            "engine": averager.label,
            "covariance": spread.label,
            "sgd_steps_per_step": stride,
        }
        self.last = Overlap(*(x[:CHECKED] for x in task.starts()))
        eta, limit = (
            algorithm.lr(dim) / problem.divisor,
            limit_at(algorithm, problem.divisor, dim),
        )
        kick = eta * np.sqrt(stride / algorithm.batch_at(dim))
        # arrays, not floats: they are data of the compiled code
        rho, dt = (
            jnp.asarray(x, float)
            for x in (limit.noise / quickening(algorithm), stride * eta)
        )
        amplitude = jnp.array([limit.flow, limit.second]) * kick
        pace = (rho, amplitude, dt, jnp.asarray(stride), lanes.tempo)
        field = field_with(averager.engine, problem, algorithm, limit, blocks)
        inverse = (
            target_frame(problem.P)[1] if blocks is None else pseudo_inverse(blocks.P)
        )
        self.params = DiffusionNumbers(
            field, spread, *pace, inverse, lanes.noise, lanes.engine, lanes.watch
        )
        self.streams = lanes.keys(random.Role.DIFFUSION)

    def start(self) -> DiffusionState:
        """The starts."""
        clock = None if self.params.tempo is None else Clock.zero(self.lanes.shape)
        Q, M, a = self.lanes.starts()
        if self.params.field.blocks is not None:
            Q, M = self.lanes.block_starts()
        return DiffusionState(Overlap(*map(self.lanes.fold, (Q, M, a))), clock)

    def run(self, carry: Tree, start: Real, stop: Real) -> Tree:
        """Compiled steps."""
        return advance(
            self.params, self.lanes.quantity, self.streams, carry, start, stop
        )

    def snapshot(self, state: DiffusionState) -> Snapshot:
        """Overlaps of all seeds."""
        Q, M, a = (self.lanes.unfold(x)[:, None] for x in state.y)
        seen = Q[:, 0], M[:, 0], a[:, 0]
        if self.params.field.blocks is not None:
            seen = Q[:, 0].sum(1), M[:, 0].sum(1), a[:, 0]
        self.last = Overlap(*(x[:CHECKED] for x in seen))
        if self.params.field.blocks is None:
            return Snapshot(Q, M, a)
        return Snapshot.in_blocks(self.lanes.task.problem.inputs, Q, M, a)

    def claims(self, state: DiffusionState) -> list[Stand]:
        """Drift and covariance at the start of the first seed and at the end of it."""
        place = np.unravel_index(int(self.lanes.index[0]), self.lanes.shape)
        return [self._stand(x, place) for x in (self.start(), state)]

    def _stand(self, state: DiffusionState, place: tuple[Any, ...]) -> Stand:
        """What is relied on at the state of one seed."""
        dim, algorithm = self.dim, self.lanes.task.algorithm
        known = {"dim": float(dim), **self._factors(state, place)}
        rule = str(self._notes["engine"]) if self.sampled else ""
        moving = {"Q": algorithm.train_first_layer, "M": algorithm.train_first_layer}
        moving["a"] = algorithm.train_second_layer

        def claim(kind: str, limit: Limit) -> Claim:
            rate = self._rate(state, limit)
            values = {
                name: np.asarray(getattr(rate, name))[place]
                for name, moves in moving.items()
                if moves
            }
            return Claim(kind, values, 10 * CLOSE, known, rule=rule)

        limit = self.params.field.limit
        claims = [
            claim("drift", limit),
            claim("flow", limit.only(1.0, 0.0)),
            claim("noise", limit.only(0.0, 1.0)),
        ]
        Q, M, a = (np.asarray(x)[place] for x in state.y)
        y = Overlap(Q, M, a)
        blocks = self.params.field.blocks
        if blocks is None:
            rho = {"rho": float(self.params.rho)}
            covariance = {"Σ": _covariance(self.params, y)}
            error = 3 * error_near(self.choice, self.lanes.task.problem, [y])
            claims.append(Claim("covariance", covariance, error, rho))
        P = None if blocks is None else np.asarray(blocks.P)
        return Stand(Q, M, a, claims, P)

    def _rate(self, state: DiffusionState, limit: Limit) -> Overlap:
        """Rates of change of all lanes, by the code that takes steps: one that is very
        short, and has no noise.
        """
        field = dataclasses.replace(self.params.field, limit=limit)
        silent = jnp.zeros_like(self.params.amplitude)
        lanes, number = self.lanes, np.zeros(np.prod(self.lanes.shape), int)
        # all of them move, also those that stopped where they began
        moving = jax.tree.map(jnp.zeros_like, lanes.bookkeeping.code)
        carry = (state, lanes.bookkeeping._replace(code=moving))
        span = [lanes.fold(number + i) for i in (0, 1)]

        def moved(length: float) -> list[np.ndarray]:
            short = jnp.asarray(length, float)
            # without a threshold, at which they would stop again
            params = self.params._replace(
                field=field, dt=short, amplitude=silent, watch=None
            )
            (after, _), _ = advance(params, None, self.streams, carry, *span)
            return [np.asarray(x - y) for x, y in zip(after, state.y, strict=True)]

        scale = float(np.nanmax(np.abs(np.asarray(state.y.Q))))
        return Overlap(*slopes_of_steps(moved, scale))

    def _factors(
        self, state: DiffusionState, place: tuple[Any, ...]
    ) -> dict[str, float]:
        """By which schedules change flow and noise of one seed in a time step."""
        tempo = self.lanes.task.clocks.tempo
        if tempo is None or state.clock is None:
            return {}
        step, time, sample = (float(np.asarray(x)[place]) for x in state.clock)
        stride = int(self.params.stride)
        flow = noise = 0.0
        for i in range(stride):
            f, n = map(float, tempo(Clock(step + i, time, sample)))
            sample += n
            flow += f / stride
            noise += f**2 * float(tempo.count) / (n * stride)
        return {"rate": flow, "batch": flow**2 / noise if noise else 1.0}

    def notes(self, diverged: bool) -> Notes:
        """Rules for drift and covariance, how many steps of SGD one step stands for,
        and the error of the variances where they were chosen and where the run ended.
        """
        ends = [Overlap(*x) for x in zip(*self.last, strict=True)]
        chosen = 0.0 if self.choice is None else self.choice.error
        reached = error_near(self.choice, self.lanes.task.problem, ends)
        return {
            **self._notes,
            "engine_error": 0.0,
            "covariance_error": max(chosen, reached),
        }


def _covariance(params: DiffusionNumbers, y: Overlap) -> np.ndarray:
    """Σ at one point."""
    noise = jnp.asarray(params.noise).reshape(-1)[0]
    Q, M, a = (jnp.asarray(x, float) for x in y)
    return np.asarray(_spread_at(params.spread, Overlap(Q, M, a), noise, params.rho))


# looked at twice in a run: its code is not worth being made fast
@partial(jax.jit, compiler_options=QUICK)
def _spread_at(rule: Any, y: Overlap, noise: Scalar, rho: Real) -> Real:
    """Σ by a rule of inputs without blocks."""
    return rule(*y, noise, rho)


@register_method
@dataclass(frozen=True)
class SDE(Method):
    """The limit with its first stochastic correction at dimension d: drift and full
    covariance of the increments.

    Parameters
    ----------
    dim : int
        d.
    dt : float
        Time step; rounded to a whole number of steps of SGD, at least one.
    averages : Averages
        Their accuracy is that of the variances of the noise, relative, where Σ is taken
        over nodes (0.02). What was reached stands in the notes of the result
        (``covariance_error``).

    Notes
    -----
    The noise has amplitude (lr/(p n_b))^{1/2} and one Brownian vector moves M, Q and a
    together.

    Examples
    --------
    >>> SDE(dim=1000)
    SDE(dim=1000, dt=0.01, averages=Averages())
    """

    dim: int
    dt: float = TIME_STEP
    averages: Averages = USUAL
    stochastic: ClassVar[bool] = True
    resumes: ClassVar[bool] = True
    stepwise: ClassVar[bool] = True
    hands_over: ClassVar[bool] = True
    papers: ClassVar[tuple[str, ...]] = ("arnaboldi2023escaping",)

    def __post_init__(self) -> None:
        keep_integers(self, 1, "dim")
        finite_number("dt", self.dt, minimum=1e-12, accepted="a positive number")
        keep_averages(self, ("accuracy",))

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Where there is no differential equation there is no correction to it."""
        rule = algorithm.rule
        if rule is not None and not rule.single:
            return (
                f"the rule {rule} is not one of single samples, from whose covariance"
                " the noise is made"
            )
        reason = ODE.refusal(problem, algorithm) or no_moment(problem, algorithm, 4)
        return reason or two_laws(problem, algorithm, fluctuating=True)

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Rules of single samples."""
        return rules_of_rotations(algorithm)

    def stride(self, problem: Problem, algorithm: SGD) -> int:
        """Steps of SGD in one time step, for a ``problem`` and an ``algorithm``."""
        return max(1, round(self.dt * problem.divisor / algorithm.lr(self.dim)))

    def save_points(
        self, clocks: Clocks, time: End, steps: End, save: Save, alpha: End = None
    ) -> np.ndarray:
        """Steps of SGD, rounded to whole time steps."""
        stride = self.stride(clocks.problem, clocks.algorithm)
        points = save_steps(clocks, time, steps, save, alpha)
        rounded = np.unique(np.round(points / stride).astype(np.int64)) * stride
        return rounded if rounded[-1] > 0 else np.append(rounded, stride)

    def prepare(self, task: Task) -> Evolution:
        """Set up drift and covariance."""
        lanes = Lanes([task])
        return Stepwise(
            lanes, SDEStepper(self, lanes), self.stride(task.problem, task.algorithm)
        )
