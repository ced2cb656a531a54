"""A flat start whose neurons see each other: the Jacobian of the averages along the
path on which they relax.

    x = (M, Q, a),   dx/dt = F(x),    x̄ the motion from M = 0, Q = I
    ξ = √d (A, Q_jl), M = A Lᵀ: of a random start independent, of variance one

    u_i' = F'(x̄) u_i,                            u_i(0) the direction of ξ_i
    y_ij' = F'(x̄) y_ij + F''(x̄)[u_i, u_j],       y_ij(0) = 0
    R(t) = R̄ + (1/√d) Σ_i ξ_i ∇R·u_i + (1/2d) Σ_ij ξ_i ξ_j (u_iᵀ R'' u_j + ∇R·y_ij)

to second order in d^(−1/2), which is the order of what escapes. The rate is that of the
overlaps with the target, which at M = 0 grow by themselves: F'_MM at the end of the
path. Single samples are averaged over; what their noise adds is not followed here.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from twolayer.analysis.escape_setting import FlatSetting
from twolayer.analysis.rate_search import highest
from twolayer.analysis.stability.linear import Flow
from twolayer.analysis.target_coordinates import frame_of
from twolayer.numerics.errors import InputError
from twolayer.numerics.precision import float64
from twolayer.task.overlaps import Overlaps
from twolayer.task.scaling import Scaling

__all__ = [
    "JacobianPath",
    "Stopped",
    "best_ratio",
    "follow_jacobian",
    "rest_rate",
    "start_numbers",
]

BEYOND = 20.0  # e-folds of u² that a path goes on after √d
RELAXED = 1e-8
RUNAWAY = 1e6
PATIENCE = 1e4
FLAT = 1e-6  # of the size of the gradients: a drift of M at M = 0 below this is none
FINER = 8
SINGULAR = 1e-3  # smallest eigenvalue of Ω, relative to the largest, beside a kink
MOST = 15  # numbers of a random start up to which all pairs of them are followed


@dataclass(frozen=True, eq=False)
class JacobianPath:
    """The risk along the path to second order in the start.

    Attributes
    ----------
    times, risk : array (T,)
        t and R̄.
    linear, quadratic : array (T, n), (T, n, n)
        ∇R·u_i and u_iᵀ R'' u_j + ∇R·y_ij.
    rate : float
        The rate of growth at the end.
    """

    times: np.ndarray
    risk: np.ndarray
    linear: np.ndarray
    quadratic: np.ndarray
    rate: float

    @property
    def plateau(self) -> float:
        """The risk at the end of the relaxation, relative to that at the start."""
        return float(self.risk[-1] / self.risk[0])

    def annealed(self, dim: float, T: float) -> float:
        """When the mean of the risk is (1 − T) of that at the start."""
        mean = self.risk + np.trace(self.quadratic, axis1=1, axis2=2) / (2 * dim)
        return float(self._passed(mean[None], (1 - T) * mean[:1])[0])

    def passages(self, dim: float, T: float, xi: np.ndarray) -> np.ndarray:
        """When the risk is (1 − T) of its start, from starts ξ (starts, n)."""
        root = math.sqrt(dim)
        found = []
        for part in np.array_split(xi, max(1, len(xi) // 200)):
            square = np.einsum("si,tij,sj->st", part, self.quadratic, part)
            risk = self.risk + part @ self.linear.T / root + square / (2 * dim)
            found.append(self._passed(risk, (1 - T) * risk[:, 0]))
        return np.concatenate(found)

    def _passed(self, risk: np.ndarray, level: np.ndarray) -> np.ndarray:
        gap = risk - level[:, None]
        below = gap <= 0
        at = np.maximum(below.argmax(1), 1)
        row = np.arange(len(gap))
        left, right = gap[row, at - 1], gap[row, at]
        share = np.clip(left / np.where(left > right, left - right, 1.0), 0.0, 1.0)
        times = self.times[at - 1] + share * (self.times[at] - self.times[at - 1])
        return np.where(below.any(1), times, np.inf)


class _Ground(NamedTuple):
    """The flow at M = 0, Q = I, with its state there and the directions of a start."""

    flow: Flow
    x: np.ndarray
    starts: np.ndarray  # (n, F)
    overlaps: int  # how many coordinates are those of M


def _ground(setting: FlatSetting) -> _Ground:
    problem, p = setting.problem, setting.problem.p
    L = frame_of(problem.P)
    rank = L.shape[1]
    start = Overlaps(np.eye(p), np.zeros((p, problem.k)), problem.P, problem.a())
    lr = Scaling(setting.rho * setting.scale, -1.0)
    batch = round(setting.scale / problem.divisor)
    algorithm = setting.algorithm.replace(
        lr=lr,
        batch=batch,
        second_lr=lr * setting.second if setting.second else None,
    )
    flow = Flow.at(problem, algorithm, start)
    rows = []
    zero = np.zeros((p, p))
    for j, i in itertools.product(range(p), range(rank)):
        M = np.zeros((p, problem.k))
        M[j] = L[:, i]
        rows.append(flow.packed(_change(zero, M, p)))
    for j, l in itertools.combinations(range(p), 2):
        Q = zero.copy()
        Q[j, l] = Q[l, j] = 1.0
        rows.append(flow.packed(_change(Q, np.zeros((p, problem.k)), p)))
    return _Ground(flow, flow.x, np.array(rows), p * problem.k)


def _change(Q: np.ndarray, M: np.ndarray, p: int) -> Any:
    from twolayer.equations.state import Overlap

    return Overlap(jnp.asarray(Q), jnp.asarray(M), jnp.zeros(p))


def _at(ground: _Ground, rho: float) -> Flow:
    """The flow at another ρ; its averages and its code stay."""
    field = ground.flow.field
    limit = field.limit._replace(noise=jnp.asarray(rho, float))
    return dataclasses.replace(
        ground.flow, field=dataclasses.replace(field, limit=limit)
    )


def _top(flow: Flow, x: np.ndarray, overlaps: int) -> float:
    """The largest rate of growth of the overlaps with the target."""
    slope = flow.slope(x)[:overlaps, :overlaps]
    return float(np.linalg.eigvals(slope).real.max())


def _require_flat(ground: _Ground, flow: Flow, x: np.ndarray) -> None:
    drift = np.abs(flow.rate(x)[: ground.overlaps]).max()
    if drift > FLAT:
        raise InputError(
            "Argument `problem` must have a flat start for an escape, but at M = 0 its"
            f" overlaps grow at once, at a rate of {drift:.3g}: the target has a"
            " component that the student sees at first order (information exponent 1)."
        )


@float64
def rest_rate(setting: FlatSetting) -> float | None:
    """The rate of growth where norms, second layer and overlaps between neurons have
    come to rest at M = 0; None where they do not.
    """
    ground = _ground(setting)
    return _rest_rate(ground, _at(ground, setting.rho))


def _rest_rate(ground: _Ground, flow: Flow) -> float | None:
    from scipy.integrate import solve_ivp

    _require_flat(ground, flow, ground.x)

    def moves(t: float, x: np.ndarray) -> float:
        return float(np.abs(flow.rate(x)).max()) - RELAXED

    def explodes(t: float, x: np.ndarray) -> float:
        return float(np.abs(x).max()) - RUNAWAY

    moves.terminal = True  # type: ignore[attr-defined]
    explodes.terminal = True  # type: ignore[attr-defined]
    if moves(0.0, ground.x) <= 0:
        return _top(flow, ground.x, ground.overlaps)
    found = solve_ivp(
        lambda t, x: flow.rate(x),
        (0.0, PATIENCE),
        ground.x,
        method="LSODA",
        events=(moves, explodes),
        rtol=1e-8,
        atol=1e-10,
    )
    if not found.t_events[0].size:
        return None
    return _top(flow, found.y[:, -1], ground.overlaps)


@float64
def best_ratio(setting: FlatSetting) -> float:
    """The ρ with the largest ρ c(ρ), c on the plateau."""
    ground = _ground(setting)

    def speed(rho: float) -> float:
        rate = _rest_rate(ground, _at(ground, rho))
        return 0.0 if rate is None else rho * rate

    if speed(1e-6) <= 0:
        raise InputError(
            "Argument `problem` must have overlaps that grow exponentially from a flat"
            " start that comes to rest, but at no learning rate they do:"
            f" {setting.problem!r}."
        )
    return highest(speed, None)


class Stopped(Exception):
    """A path that cannot be followed, with the reason."""


@float64
def follow_jacobian(setting: FlatSetting, dim: float) -> JacobianPath | None:
    """The path from M = 0, Q = I, until overlaps of a random start in d = ``dim`` have
    grown far beyond one; None where they do not grow, or norms run away first.

    Raises `Stopped` where neurons align so far that the averages have no second
    derivatives, and where there are too many pairs of numbers of a start.

    Cost: seconds; O(n²) second derivatives of the averages at each of some hundred
    times, for n numbers of a random start.
    """
    from scipy.integrate import solve_ivp
    from scipy.interpolate import CubicSpline

    ground = _ground(setting)
    flow, size, n = ground.flow, len(ground.x), len(ground.starts)
    _require_flat(ground, flow, ground.x)
    if n > MOST:
        raise Stopped(
            f"a random start has {n} numbers, and all pairs of them are followed up to"
            f" {MOST}"
        )
    pairs = np.array(list(itertools.combinations_with_replacement(range(n), 2)))
    ends = (size, size * (1 + n))
    start = np.concatenate(
        [ground.x, ground.starts.ravel(), np.zeros(size * len(pairs))]
    )

    def parts(row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, u, y = np.split(row, ends)
        return x, u.reshape(n, size), y.reshape(len(pairs), size)

    def motion(t: float, row: np.ndarray) -> np.ndarray:
        x, u, y = parts(row)
        slope = flow.slope(x)
        bend = flow.bend(x, u[pairs[:, 0]], u[pairs[:, 1]])
        dy = y @ slope.T + bend
        return np.concatenate([flow.rate(x), (u @ slope.T).ravel(), dy.ravel()])

    folds = math.log(dim) + BEYOND

    def grown(t: float, row: np.ndarray) -> float:
        _, u, _ = parts(row)
        largest = float((u[:, : ground.overlaps] ** 2).sum(1).max())
        return math.log(max(largest, 1e-300)) - folds

    def stuck(t: float, row: np.ndarray) -> float:
        x, _, _ = parts(row)
        if t == 0.0:
            return 1.0
        still = float(np.abs(flow.rate(x)).max()) - RELAXED
        return still if still > 0 else _top(flow, x, ground.overlaps)

    def explodes(t: float, row: np.ndarray) -> float:
        x, _, _ = parts(row)
        return float(np.abs(x).max()) - RUNAWAY

    def aligned(t: float, row: np.ndarray) -> float:
        x, _, _ = parts(row)
        return flow.lowest(x) - SINGULAR if flow.rough else 1.0

    events = (grown, stuck, explodes, aligned)
    for event in events:
        event.terminal = True  # type: ignore[attr-defined]
    found = solve_ivp(
        motion,
        (0.0, PATIENCE),
        start,
        method="LSODA",
        events=events,
        dense_output=True,
        rtol=1e-7,
        atol=1e-10,
    )
    if found.t_events[3].size:
        raise Stopped(
            "neurons align before they learn, where the averages of an activation with"
            " kinks have no second derivatives"
        )
    if not found.t_events[0].size:
        return None
    coarse = found.t
    risks, lines, squares = [], [], []
    for row in found.sol(coarse).T:
        x, u, y = parts(row)
        _require_flat(ground, flow, x)
        value, slope, curve = flow.risk_parts(x)
        square = u @ curve @ u.T
        bent = y @ slope
        square[pairs[:, 0], pairs[:, 1]] += bent
        off = pairs[:, 0] != pairs[:, 1]
        square[pairs[off, 1], pairs[off, 0]] += bent[off]
        risks.append(value)
        lines.append(u @ slope)
        squares.append(square)
    inside = np.linspace(0.0, 1.0, FINER, endpoint=False)
    times = (coarse[:-1, None] + np.diff(coarse)[:, None] * inside).ravel()

    def between(values: list[Any]) -> np.ndarray:
        return np.asarray(CubicSpline(coarse, np.array(values))(times))

    last, _, _ = parts(found.y[:, -1])
    return JacobianPath(
        times,
        between(risks),
        between(lines),
        between(squares),
        _top(flow, last, ground.overlaps),
    )


def start_numbers(setting: FlatSetting, starts: Overlaps) -> np.ndarray:
    """ξ (starts, n) of given starts."""
    L = frame_of(setting.problem.P)
    inside = starts.M @ L @ np.linalg.inv(L.T @ L)
    rows, columns = np.triu_indices(setting.problem.p, 1)
    parts = [inside.reshape(len(inside), -1), starts.Q[:, rows, columns]]
    return np.concatenate(parts, 1) * math.sqrt(float(starts.dim or 1))
