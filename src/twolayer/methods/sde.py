"""The stochastic correction to the deterministic limit: Itô diffusion of the overlaps at a dimension d.

    dX = b(X) dt + ( (lr/(p n_b)) Σ(X) )^{1/2} dB,    X = (M, Q, a)

b is the drift of the ODE at this lr, batch and d; Σ the covariance of the increments of one sample (fluctuations.py),
one Brownian vector for all of X. Each step of length dt = n·lr/p stands for n steps of SGD:

    X* = X + b(X) dt + S(X) ΔB,    X' = X + ½ (b(X) + b(X*)) dt + S(X) ΔB

The noise is taken at the left point (Itô); the error is O(dt² + dt/d). A state that leaves the set of covariances
is pulled back to it: negative eigenvalues of Q − M P⁺ Mᵀ are cut off, and rows normalised where the algorithm does.

Cost per step and seed: the averages twice, O(F³) for the root of Σ with F = p k + p(p+1)/2 (+ p), and Σ itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.state import Overlap, pack, tangent, unpack
from twolayer.equations.step import form_of, limit_at
from twolayer.gaussian.engines import adapt
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.spread import Spread, spread_of
from twolayer.loops.lanes import Lanes, in_groups, lane_axes
from twolayer.loops.stepwise import Stepper, Stepwise
from twolayer.loops.watching import Lane, Watch, accept, watched_value
from twolayer.methods.ode import ODE, Field, as_data
from twolayer.numerics import random
from twolayer.numerics.errors import finite_number, positive_integer
from twolayer.numerics.special import symmetric_root
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks, save_steps
from twolayer.task.method import Evolution, Method, Snapshot, Task, register_method
from twolayer.task.problem import Problem
from twolayer.task.tails import infinite

__all__ = ["SDE"]

TIME_STEP = 0.01


class Params(NamedTuple):
    """Numbers and rules that the compiled code takes as data."""

    field: Field
    spread: Spread
    rho: Any
    amplitude: Any
    dt: Any
    inverse: Any
    noise: Any
    engine: Any
    watch: Watch | None


def pull_back(y: Overlap, inverse: Any, normalised: bool) -> Overlap:
    """The nearest state whose overlaps are those of vectors, with rows of norm one where they are normalised."""
    A = y.M @ inverse.T
    root = symmetric_root(y.Q - A @ A.T)
    Q, M = A @ A.T + root @ root, y.M
    if normalised:
        norm = jnp.sqrt(jnp.diagonal(Q))
        Q, M = Q / (norm[:, None] * norm), M / norm[:, None]
    return Overlap(Q, M, y.a)


def one_step(params: Params, quantity: str | None, carry: Any, number: Any, on: Any, normals: Any) -> Any:
    """One step of one seed from F normals."""
    y, lane = carry
    field, (p, k) = params.field, y.M.shape
    sigma = params.spread(y.Q, y.M, y.a, params.noise, params.rho)
    if field.form.normalises:
        J = tangent(y.Q, y.M, field.form.trained)
        sigma = J @ sigma @ J.T
    kick = Overlap(*unpack(params.amplitude * symmetric_root(sigma) @ normals, p, k, field.form.trained))
    slope = field(0.0, y)
    guess = jax.tree.map(lambda x, b, n: x + params.dt * b + n, y, slope, kick)
    later = field(0.0, guess)
    new = jax.tree.map(lambda x, b, c, n: x + params.dt * (b + c) / 2 + n, y, slope, later, kick)
    new = pull_back(new, params.inverse, field.form.normalises)
    size = jnp.maximum(jnp.diagonal(new.Q).max(), (new.a**2).max())
    value = watched_value(quantity, params.engine, new.Q, new.M, new.a, params.noise)
    return accept(y, new, lane, size, value, params.watch, number, on)


@eqx.filter_jit
def advance(params: Params, quantity: str | None, keys: Any, carry: Any, start: Any, stop: Any) -> Any:
    """Steps start … stop − 1 of all groups of seeds; keys, carry, noise and thresholds have axes (groups, lanes)."""
    y = carry[0]
    size = pack(y.Q[0, 0], y.M[0, 0], y.a[0, 0], params.field.form.trained).shape[0]
    index = jnp.arange(size, dtype=jnp.uint32)

    def group(own: dict[str, Any], keys: Any, carry: tuple[Overlap, Lane], start: Any, stop: Any) -> Any:
        lanes = params._replace(**own)

        def single(params: Params, key: Any, carry: Any, number: Any, stop: Any) -> Any:
            normals = random.normal(key, number.astype(jnp.uint32), index)
            return one_step(params, quantity, carry, number, number < stop, normals)

        def body(i: Any, carry: Any) -> Any:
            return jax.vmap(single, (lane_axes(lanes), 0, 0, 0, 0))(lanes, keys[:, 0], carry, start + i, stop)

        return jax.lax.fori_loop(0, (stop - start).max(), body, carry)

    own = {"noise": params.noise} | ({} if params.watch is None else {"watch": params.watch})
    return in_groups(group, own, keys, carry, start, stop)


class SDEStepper(Stepper):
    """Overlaps of all seeds; one step of the diffusion is ``stride`` steps of SGD."""

    block = 1

    def __init__(self, method: SDE, lanes: Lanes) -> None:
        self.lanes, task = lanes, lanes.task
        problem, algorithm, dim = task.problem, task.algorithm, method.dim
        stride = method.stride(problem, algorithm)
        averager = adapt(problem, algorithm.loss, *task.starts())[0]
        spread = spread_of(problem, algorithm)
        self._notes = {"engine": averager.label, "covariance": spread.label, "sgd_steps_per_step": stride}
        eta, limit = algorithm.lr(dim) / problem.divisor, limit_at(algorithm, problem.divisor, dim)
        kick = limit.flow * eta * np.sqrt(stride / algorithm.batch_at(dim))
        # arrays, not floats: they are data of the compiled code
        numbers = (problem.noise, limit.noise / limit.flow, kick, stride * eta)
        noise, rho, amplitude, dt = (jnp.asarray(x, float) for x in numbers)
        field = Field(averager.engine, as_data(limit), noise, form_of(algorithm).flow)
        inverse = target_frame(problem.P)[1]
        self.params = Params(field, spread, rho, amplitude, dt, inverse, lanes.noise, lanes.engine, lanes.watch)
        self.streams = lanes.keys(random.Role.DIFFUSION)

    def start(self) -> Overlap:
        """The starts."""
        return Overlap(*map(self.lanes.fold, self.lanes.starts()))

    def run(self, carry: Any, start: Any, stop: Any) -> Any:
        """Compiled steps."""
        return advance(self.params, self.lanes.quantity, self.streams, carry, start, stop)

    def snapshot(self, state: Overlap) -> Snapshot:
        """Overlaps of all seeds."""
        return Snapshot(*(self.lanes.unfold(x)[:, None] for x in state))

    def notes(self, diverged: bool) -> dict[str, Any]:
        """Rules for drift and covariance, and how many steps of SGD one step stands for."""
        return {**self._notes, "engine_error": 0.0}


@register_method
@dataclass(frozen=True)
class SDE(Method):
    """The limit with its first stochastic correction at dimension d: drift and full covariance of the increments.

    Parameters
    ----------
    dim : int
        d.
    dt : float
        Time step; rounded to a whole number of steps of SGD, at least one.

    Notes
    -----
    The noise has amplitude (lr/(p n_b))^{1/2} and one Brownian vector moves M, Q and a together.

    Examples
    --------
    >>> SDE(dim=1000)
    SDE(dim=1000, dt=0.01)
    """

    dim: int
    dt: float = TIME_STEP
    stochastic: ClassVar[bool] = True
    stepwise: ClassVar[bool] = True
    papers: ClassVar[tuple[str, ...]] = ("arnaboldi2023escaping",)

    def __post_init__(self) -> None:
        positive_integer("dim", self.dim)
        finite_number("dt", self.dt, minimum=1e-12, accepted="a positive number")

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Where there is no differential equation there is no correction to it."""
        return ODE.refusal(problem, algorithm) or infinite(problem, algorithm.loss, 4)

    def stride(self, problem: Problem, algorithm: SGD) -> int:
        """Steps of SGD in one time step."""
        return max(1, round(self.dt * problem.divisor / algorithm.lr(self.dim)))

    def save_points(self, clocks: Clocks, time: Any, steps: Any, save: Any) -> np.ndarray:
        """Steps of SGD, rounded to whole time steps."""
        stride = self.stride(clocks.problem, clocks.algorithm)
        points = save_steps(clocks, time, steps, save)
        rounded = np.unique(np.round(points / stride).astype(np.int64)) * stride
        return rounded if rounded[-1] > 0 else np.append(rounded, stride)

    def prepare(self, task: Task) -> Evolution:
        """Set up drift and covariance."""
        lanes = Lanes([task])
        return Stepwise(lanes, SDEStepper(self, lanes), self.stride(task.problem, task.algorithm))
