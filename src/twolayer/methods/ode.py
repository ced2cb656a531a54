"""The limit d → ∞ of the overlaps: a deterministic differential equation in every continuous regime.

    dM/dt = f1·psi − pλ M,    dQ/dt = f1·(phi + phiᵀ) + f2·(γ0/(p n0)) chi − 2pλ Q,    da/dt = f1·second
    projected, spherical:  dM_jr − ½ M_jr dQ_jj,   dQ_jl − ½ Q_jl (dQ_jj + dQ_ll)

f1 = 1/(1−β) and f2 = 1/(1−β)² with momentum β; the regime (regimes.py) decides which parts survive. In the pure
noise regime the clock is t·d^(1−μ−δ). In every continuous regime spherical and projected weights have the same limit.

Cost: evaluations of the averages, O((p + k)³) for quadratic, O(p²(p + k)²) for erf, O(nodes · p²) when sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from twolayer.algorithm import SGD
from twolayer.errors import choice, finite_number, positive_integer
from twolayer.gaussian.engines import ENGINES, LOG2_POINTS, Averager, Engine, adapt, relative_error
from twolayer.methods.base import Evolution, Method, Outcome, Snapshot, Task, register_method
from twolayer.methods.stepwise import watched_value
from twolayer.problem import Problem
from twolayer.regimes import regime_of

__all__ = ["ODE", "ODEEvolution"]

LIMIT = 1e6  # squared norm beyond which a solution counts as diverged; the equations blow up in finite time
RESOLUTION = 1e-14  # smallest step, relative to the time reached
CHUNKS = 10  # calls of the integrator, between which the host looks at accuracy, progress and Ctrl-C
OK, REACHED, DIVERGED, MAX_STEPS = (
    Outcome.CODES.index(x) for x in (Outcome.OK, Outcome.REACHED, Outcome.DIVERGED, Outcome.MAX_STEPS)
)


class Overlap(NamedTuple):
    """The state of the equation."""

    Q: Any
    M: Any
    a: Any


class Field(eqx.Module):
    """The right-hand side: an engine and the weights of its terms. The state may be anything with overlaps."""

    engine: Engine
    flow: Any
    noise_rate: Any
    decay: Any
    label_noise: Any
    projected: bool = eqx.field(static=True)
    trained: bool = eqx.field(static=True)

    def overlaps(self, y: Overlap) -> Overlap:
        """The overlaps of a state: itself."""
        return y

    def watched(self, quantity: str, watcher: Any, y: Overlap) -> Any:
        """The watched quantity of a state."""
        return watched_value(quantity, watcher, *y, self.label_noise)

    def __call__(self, t: Any, y: Overlap, args: Any = None) -> Overlap:
        """dy/dt."""
        # rounding must not break the symmetry of Q: what is antisymmetric can grow exponentially
        Q = (y.Q + y.Q.T) / 2
        average = self.engine(Q, y.M, y.a, self.label_noise)
        chi = (average.chi + average.chi.T) / 2
        dM = self.flow * average.psi - self.decay * y.M
        dQ = self.flow * (average.phi + average.phi.T) + self.noise_rate * chi - 2 * self.decay * Q
        da = self.flow * average.second if self.trained else jnp.zeros_like(y.a)
        if self.projected:
            # nor must it change the norms: divided by Q_jj = 1 they are conserved whatever they are
            own = jnp.diagonal(dQ) / (2 * jnp.diagonal(Q))
            dM, dQ = dM - y.M * own[:, None], dQ - Q * (own[:, None] + own[None, :])
        return Overlap(dQ, dM, da)


class Control(NamedTuple):
    """Tolerances and the threshold to stop at."""

    rtol: Any
    atol: Any
    level: Any
    sign: Any


@eqx.filter_jit
def integrate(
    field: Any, watcher: Any, quantity: str | None, control: Control, max_steps: int, y: Any, times: Any
) -> Any:
    """One start from times[0] to times[-1], saved at all later times; vmapped over starts."""

    def diverged(t: Any, y: Any, args: Any, **kwargs: Any) -> Any:
        Q, _, a = field.overlaps(y)
        return jnp.maximum(jnp.diagonal(Q).max(), (a**2).max()) > LIMIT

    def one(y: Any, level: Any, sign: Any) -> Any:
        def distance(t: Any, y: Any, args: Any, **kwargs: Any) -> Any:
            value = field.watched(quantity, watcher, y)
            # what grows or decays exponentially is found in its logarithm
            ratio = jnp.maximum(value / jnp.where(level > 0, level, 1.0), 1e-300)
            away = sign * jnp.where(level > 0, jnp.log(ratio), value - level)
            return jnp.where(diverged(t, y, args), -1.0, away)

        watched = quantity is not None
        root_finder: Any = optx.Newton(rtol=1e-10, atol=1e-10)
        event = diffrax.Event(distance, root_finder) if watched else diffrax.Event(diverged)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Dopri8(),
            t0=times[0],
            t1=times[-1],
            dt0=None,
            y0=y,
            saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times[1:]), diffrax.SubSaveAt(t1=True)]),
            # a solution that blows up at a finite time is followed until the clock cannot resolve its steps
            stepsize_controller=diffrax.PIDController(
                rtol=control.rtol, atol=control.atol, dtmin=RESOLUTION * times[-1], force_dtmin=False
            ),
            adjoint=diffrax.ForwardMode(),
            event=event,
            max_steps=max_steps,
            throw=False,
        )
        saved, last = solution.ys
        end = jax.tree.map(lambda x: x[0], last)
        blown = diverged(0.0, end, None) | (solution.result == diffrax.RESULTS.dt_min_reached)
        code = jnp.where(
            blown,
            DIVERGED,
            jnp.where(
                solution.event_mask,
                REACHED if watched else DIVERGED,
                jnp.where(solution.result == diffrax.RESULTS.max_steps_reached, MAX_STEPS, OK),
            ),
        )
        return saved, end, solution.ts[1][0], code

    return jax.vmap(one)(y, control.level, control.sign)


class ODEEvolution(Evolution):
    """Overlaps of all starts; the engine is refined along the way where its error grows."""

    def __init__(self, task: Task, method: Any) -> None:
        self.task, self.method = task, method
        problem, algorithm = task.problem, task.algorithm
        self.regime = regime_of(algorithm)
        quick = 1.0 / (1.0 - algorithm.momentum)
        ratio = algorithm.lr.coefficient / (problem.p * algorithm.batch.coefficient)
        self.flow = self.regime.flow * quick
        self.noise_rate = self.regime.noise * quick**2 * ratio
        Q, M, a = task.starts()
        self.averager, self.order = self._engine(Q[0], M[0], a[0])
        self.worst = 0.0
        until = task.until
        self.quantity = None if until is None else until.quantity
        self.watcher: Any = None
        values = self._watch(Q, M, a)
        level = np.zeros_like(values)
        if until is not None:
            level = until.value * values if until.relative else np.full_like(values, until.value)
        rtol = method.rtol or (1e-6 if self.averager.sampled else 1e-8)
        sign = np.full_like(values, 1.0 if until is None else until.sign)
        self.control = Control(np.asarray(rtol), np.asarray(rtol * 1e-2), level, sign)
        self.window = max(1, -(-(len(task.points) - 1) // CHUNKS))

    def _engine(self, Q: np.ndarray, M: np.ndarray, a: np.ndarray, at_least: int = 12) -> tuple[Averager, int]:
        return adapt(
            self.task.problem,
            self.task.algorithm.loss,
            Q,
            M,
            a,
            engine=self.method.engine,
            tolerance=self.method.tolerance,
            log2_points=self.method.log2_points,
            at_least=at_least,
        )

    def _watch(self, Q: np.ndarray, M: np.ndarray, a: np.ndarray) -> np.ndarray:
        """The watched quantity at the starts, and the engine for it."""
        problem = self.task.problem
        if self.quantity in ("risk", "excess_risk"):
            self.watcher = adapt(problem, "squared", Q[0], M[0], a[0])[0].engine
        each: Any = jax.vmap(lambda Q, M, a: watched_value(self.quantity, self.watcher, Q, M, a, problem.noise))
        return np.asarray(each(Q, M, a))

    def _field(self) -> Any:
        problem, algorithm = self.task.problem, self.task.algorithm
        # arrays, not floats: they are data of the compiled code, which one sweep over rates or noises then shares
        rates = (self.flow, self.noise_rate, self.flow * problem.p * algorithm.weight_decay, problem.noise)
        flow, noise_rate, decay, noise = (jnp.asarray(x, float) for x in rates)
        return Field(
            self.averager.engine,
            flow,
            noise_rate,
            decay,
            noise,
            algorithm.geometry != "free",
            algorithm.train_second_layer,
        )

    def initial(self) -> Any:
        """The starts, nothing stopped; all save points passed so far are kept to restart from."""
        n = self.task.seeds
        y = type(self._start())(*(x[:, None] for x in self._start()))
        return y, np.zeros(n, np.int32), np.full(n, np.nan)

    def snapshot(self, state: Any) -> Snapshot:
        """Overlaps at the last save point."""
        return self._seen(type(state[0])(*(x[:, -1:] for x in state[0])))

    def _start(self) -> Any:
        """States at the starts, with a leading seed axis."""
        return Overlap(*self.task.starts())

    def _seen(self, path: Any) -> Snapshot:
        """States at save points, (seeds, n) each, as overlaps."""
        return Snapshot(*path)

    def stopped(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and times."""
        return state[1], state[2]

    def advance(self, state: Any, first: int, tick: Callable[[float], None]) -> tuple[Any, Snapshot]:
        """A window of save points; the last window begins earlier rather than be shorter, to reuse compiled code."""
        path, code, stop = state
        points = self.task.points
        begin = min(first, len(points) - 1 - self.window)
        times = points[begin : begin + self.window + 1]
        kind = type(path)
        y = kind(*(x[:, begin] for x in path))
        saved, end, at, ended = self._integrate(y, times)
        running = code == 0
        code = np.where(running, ended, code).astype(np.int32)
        stop = np.where(running & (code != 0), at, stop)
        # beyond the end of a start its last state is kept
        late = (times[None, 1:] > stop[:, None]) & (code != 0)[:, None]
        new = []
        for x, last, old in zip(saved, end, path, strict=True):
            frozen = np.where(running.reshape(-1, *[1] * (last.ndim - 1)), last, old[:, -1])
            shape = (*late.shape, *[1] * (x.ndim - 2))
            new.append(np.where(late.reshape(shape), frozen[:, None], x)[:, first - begin :])
        path = kind(*(np.concatenate([old, x], axis=1) for old, x in zip(path, new, strict=True)))
        tick(float(times[-1]))
        return (path, code, stop), self._seen(kind(*new))

    def _window(self, y: Any, times: np.ndarray) -> Any:
        """Integrate over one window with the present engine."""
        options = (self.quantity, self.control, self.method.max_steps)
        out = integrate(self._field(), self.watcher, *options, y, jnp.asarray(times))
        return jax.tree.map(np.asarray, out)

    def _integrate(self, y: Any, times: np.ndarray) -> Any:
        """Integrate, and do it again with a finer engine while the one used is too coarse at the end."""
        while True:
            saved, end, at, code = self._window(y, times)
            Q, M, a = (x[0] for x in end)
            finer, order = self._engine(Q, M, a, self.order) if code[0] == OK else (self.averager, self.order)
            if order == self.order:
                self.worst = max(self.worst, self._truncation(Q, M, a) if code[0] == OK else 0.0)
                return saved, end, at, code
            self.averager, self.order = finer, order

    def _truncation(self, Q: np.ndarray, M: np.ndarray, a: np.ndarray) -> float:
        problem = self.task.problem
        error = self.averager.truncation(Q, M, a, problem.noise)
        return relative_error(self.averager, error, problem, Q, M, a)

    def notes(self) -> dict[str, Any]:
        """Regime, engine, and its error at the start (sampling included) and along the way."""
        Q, M, a = (x[0] for x in self.task.starts())
        problem = self.task.problem
        error = self.averager.error(Q, M, a, problem.noise)
        return {
            "regime": self.regime.name,
            "engine": self.averager.label,
            "engine_error": max(self.worst, relative_error(self.averager, error, problem, Q, M, a)),
        }


@register_method
@dataclass(frozen=True)
class ODE(Method):
    """The deterministic limit d → ∞ of the overlaps, in the regime that the scaling laws of lr and batch select.

    Parameters
    ----------
    engine : str
        How Gaussian averages are taken: ``"auto"``, ``"quadrature"`` or ``"sobol"``.
    rtol : float, optional
        Relative tolerance of the integrator; 1e-8, or 1e-6 where averages are sampled.
    tolerance : float
        Relative error up to which quadratures are refined.
    log2_points : int
        Sobol points, as a power of two.
    max_steps : int
        Integrator steps between two looks of the host.

    Examples
    --------
    >>> ODE().name
    'ode'
    """

    engine: str = "auto"
    rtol: float | None = None
    tolerance: float = 1e-6
    log2_points: int = LOG2_POINTS
    max_steps: int = 100_000
    papers: ClassVar[tuple[str, ...]] = ("saad1995", "goldt2019", "veiga2022", "arnaboldi2023dimensionless")

    def __post_init__(self) -> None:
        choice("engine", self.engine, ENGINES)
        for name in ("rtol", "tolerance"):
            value = getattr(self, name)
            if value is not None:
                finite_number(name, value, minimum=1e-14, accepted="a number from 1e-14 on")
        positive_integer("log2_points", self.log2_points, 4)
        positive_integer("max_steps", self.max_steps)

    def refusal(self, problem: Problem, algorithm: SGD) -> str | None:
        """Only fresh samples, and only where the limit is a differential equation."""
        if algorithm.dataset is not None:
            return (
                f"samples are reused (dataset = {algorithm.dataset}), so the fields depend on the whole past and no "
                "equation closes on the overlaps; DMFT is the theory of reused batches"
            )
        regime = regime_of(algorithm)
        laws = f"lr = {algorithm.lr}, batch = {algorithm.batch}"
        if regime.name == "giant steps":
            return f"with {laws} the steps stay of order one as d → ∞: the limit is a discrete map, that of GiantSteps"
        if regime.name == "noise map":
            return (
                f"with {laws} every step changes the norms by order one: the limit is a discrete map, not an equation"
            )
        if not regime.continuous:
            return (
                f"with {laws} (δ = {algorithm.delta:g}, μ = {algorithm.mu:g}) the norms blow up in one step as d → ∞; "
                "write the numbers of one dimension as laws, such as lr = 0.2/d"
            )
        return None

    def unit(self, algorithm: SGD) -> float:
        """In the pure noise regime the clock runs faster than t."""
        return regime_of(algorithm).unit

    def prepare(self, task: Task) -> Evolution:
        """Choose the engine at the start."""
        return ODEEvolution(task, self)
