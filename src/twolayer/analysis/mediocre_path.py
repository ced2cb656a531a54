"""From a random start along the plateau: what relaxes there, and when the risk has
left it.

    M = 0:    dq/dt, da/dt of mediocrity.py, from q = 1:     R̄(t)
    u_ji = √d M_j v_i,    u_ji(t) = e^{g_ji(t)} [u_ji(0) + B(N_ji(t))],
        g = ∫ c_ji dt,   N = ∫ ρV_ji e^{−2g} dt
    R(t) = R̄(t) + (1/d) Σ_ji (r_ji + δ_ji) u_ji²
    (EXT)     R(t) = (1 − T) R(0)

B is a Brownian motion, the noise of single samples: it adds N to the variance of the
start. r is what the risk itself says of an overlap, δ what the norms and the second
layer make of it in the meantime, to the same order:

    dy/dt = (F'(z̄) − 2c) y + ∂F/∂x,    δ = ∇R·y,      z = (q, a),  x = e^{2g} u²/d

Nothing of this moves on the sphere with a fixed second layer, where g = ct and R̄ is
constant. Directions of the same rate are told apart no further.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twolayer.analysis.mediocrity import Mediocrity
from twolayer.numerics.errors import InputError

__all__ = ["MediocrePath", "Rest", "follow", "plateau_of"]

POINTS = 4000  # times at which a path on which nothing relaxes is known
FINER = 8  # times between two at which the equations of any other were evaluated
BEYOND = 25.0  # e-folds of u² that a path goes on after √d
SMALL = 1e-4  # of the finite differences along y
ROWS = 500  # starts that are looked at together
RELAXED = 1e-9  # a norm or a layer that moves more slowly stands still
RUNAWAY = 1e4  # norms that are larger than this diverge
PATIENCE = 1e5  # units of time after which a path is given up
MOST_GROUPS = 16


@dataclass(frozen=True, eq=False)
class MediocrePath:
    """A start without overlap, and how small overlaps move beside it.

    Attributes
    ----------
    times, risk : array (T,)
        t and R̄.
    growth, kicks, response : array (T, F)
        2g, N and r + δ of each kind of overlap: a group of neurons, one eigenvector.
    counts : array (F,)
        How many overlaps there are of each kind.
    rough : float
        d times what overlaps between neurons add to the risk of a random start.
    rate : float
        The largest rate of growth at the end.

    Examples
    --------
    >>> times, flat = np.linspace(0, 5, 2001), np.ones(2001)
    >>> path = MediocrePath(
    ...     times,
    ...     2 * flat,
    ...     8 * times[:, None],
    ...     0 * flat[:, None],
    ...     -2 * flat[:, None],
    ...     counts=np.ones(1),
    ...     rough=0.0,
    ...     rate=4.0,
    ... )
    >>> found = path.passages(1000, 0.1, np.ones((1, 1)))
    >>> round(float(found[0]), 3)  # log(Td + 1 − T)/(2c)
    0.577
    """

    times: np.ndarray
    risk: np.ndarray
    growth: np.ndarray
    kicks: np.ndarray
    response: np.ndarray
    counts: np.ndarray
    rough: float
    rate: float

    @property
    def plateau(self) -> float:
        """The risk at the end of the relaxation, relative to that at the start."""
        return float(self.risk[-1] / self.risk[0])

    @property
    def relaxes(self) -> bool:
        """Whether norms or the second layer move before any overlap does."""
        return abs(self.plateau - 1) > 1e-12

    def passages(self, dim: float, T: float, squares: np.ndarray) -> np.ndarray:
        """When the risk is (1 − T) of its start; infinite beyond the last time.

        ``squares`` (starts, F) are Σ_j u_j² of each kind of overlap.
        """
        # u²/d: where d is beyond all bounds only the difference of logarithms is small
        scale = np.exp(self.growth - math.log(dim))
        profile = self.response * scale
        first = self.response[0] / dim
        found = [
            self._passed(T, part, profile, first, dim)
            for part in np.array_split(squares, max(1, len(squares) // ROWS))
        ]
        return np.concatenate(found)

    def _passed(
        self,
        T: float,
        squares: np.ndarray,
        profile: np.ndarray,
        first: np.ndarray,
        dim: float,
    ) -> np.ndarray:
        start = self.risk[0] + squares @ first + self.rough / dim
        gap = self.risk + squares @ profile.T - (1 - T) * start[:, None]
        below = gap <= 0
        at = below.argmax(1)
        row = np.arange(len(squares))
        before = np.maximum(at - 1, 0)
        left, right = gap[row, before], gap[row, at]
        drop = np.where(left > right, left - right, 1.0)
        share = np.clip(left / drop, 0.0, 1.0)
        times = self.times[before] + share * (self.times[at] - self.times[before])
        return np.where(below.any(1), np.where(at > 0, times, 0.0), np.inf)

    def kicks_at(self, time: float) -> np.ndarray:
        """N (F,) at a time."""
        columns = [np.interp(time, self.times, column) for column in self.kicks.T]
        return np.array(columns)


class Rest(NamedTuple):
    """Norms and second layer where nothing is learned and nothing moves."""

    q: np.ndarray
    a: np.ndarray


def plateau_of(flat: Mediocrity, a: np.ndarray) -> Rest | None:
    """Where norms and second layer come to rest at M = 0; None where they do not.

    Free rows with a trained second layer have no such place: single samples lengthen
    the rows for ever, and the layer shrinks with them.
    """
    return _relax(flat, a)[0]


def _relax(flat: Mediocrity, a: np.ndarray) -> tuple[Rest | None, bool]:
    """Where norms and second layer come to rest, and whether they run away."""
    from scipy.integrate import solve_ivp

    size = len(a)
    none = np.zeros(size)
    start = np.concatenate([np.ones(size), a])
    if flat.stationary:
        return Rest(start[:size], start[size:]), False

    def motion(t: float, z: np.ndarray) -> np.ndarray:
        dq, da = flat.drift(z[:size], z[size:], none, none)
        return np.concatenate([dq if flat.free else none, da])

    def moves(t: float, z: np.ndarray) -> float:
        return float(np.abs(motion(t, z)).max()) - RELAXED

    def explodes(t: float, z: np.ndarray) -> float:
        return float(np.abs(z).max()) - RUNAWAY

    moves.terminal = True  # type: ignore[attr-defined]
    explodes.terminal = True  # type: ignore[attr-defined]
    if moves(0.0, start) <= 0:
        return Rest(start[:size], start[size:]), False
    with np.errstate(over="ignore", invalid="ignore"):  # of norms that run away
        found = solve_ivp(
            motion,
            (0.0, PATIENCE),
            start,
            method="LSODA",
            events=(moves, explodes),
            rtol=1e-9,
            atol=1e-12,
        )
    if found.t_events[0].size:
        return Rest(found.y[:size, -1], found.y[size:, -1]), False
    return None, bool(found.t_events[1].size) or found.status < 0


def follow(flat: Mediocrity, a: np.ndarray, dim: float) -> MediocrePath | None:
    """The path from rows of norm one and a second layer ``a`` (G,), until overlaps of
    a random start in d = ``dim`` have grown far beyond one; None where they do not
    grow, or norms run away first.

    Cost: milliseconds where nothing relaxes, otherwise about a second.
    """
    one = np.ones(len(a))
    rates = flat.rates(one, a)
    counts = np.repeat(flat.counts, rates.shape[1])
    rough = _roughness(flat, a)
    folds = math.log(dim) + BEYOND
    if not flat.stationary:
        if len(a) > MOST_GROUPS:
            raise InputError(
                f"Argument `second_layer` must have at most {MOST_GROUPS} different"
                " values where norms or the layer itself move, but has"
                f" {len(a)}."
            )
        if _relax(flat, a)[1]:
            return None
        return _followed(flat, a, folds, counts, rough)
    rate = float(rates.max())
    if rate <= 0:
        return None
    times = np.linspace(0.0, folds / (2 * rate), POINTS)
    c = rates.ravel()
    growth = 2 * times[:, None] * c
    faded = -np.expm1(-growth) / (2 * np.where(c == 0, 1.0, c))
    lasting = np.where(c == 0, times[:, None], faded)
    return MediocrePath(
        times,
        np.full(POINTS, flat.risk(one, a, 0 * one)),
        growth,
        flat.kicks(one, a).ravel() * lasting,
        np.broadcast_to(flat.responses(one, a).ravel(), growth.shape),
        counts,
        rough,
        rate,
    )


def _roughness(flat: Mediocrity, a: np.ndarray) -> float:
    """d times the mean of Σ_{j≠l} w_jl Q_jl² of a random start."""
    own = flat.averages(np.ones(len(a)))
    bend = a / flat.divisor * own.curvature
    total = float(flat.counts @ bend)
    return (total**2 - float(flat.counts @ bend**2)) / 4


class _State(NamedTuple):
    """What moves along the path; y holds a row for each kind of overlap, the response
    of all groups and of the neuron itself.
    """

    q: np.ndarray  # (G,)
    a: np.ndarray  # (G,)
    growth: np.ndarray  # (G, k), 2g
    kicks: np.ndarray  # (G, k), N
    y: np.ndarray  # (G k, 2, G + 1), of q and of a


class _Way:
    """The equations of a path on which norms or the second layer relax."""

    def __init__(self, flat: Mediocrity, a: np.ndarray) -> None:
        size, modes = len(a), len(flat.modes[0])
        self.flat = flat
        self.shapes = [(size,), (size,), (size, modes), (size, modes)]
        self.shapes.append((size * modes, 2, size + 1))
        self.start = self.packed(
            _State(np.ones(size), a, *(np.zeros(shape) for shape in self.shapes[2:]))
        )
        # one neuron of a group beside the others: what its overlap does to all
        self.apart = [
            dataclasses.replace(flat, counts=np.append(flat.counts - lone, 1.0))
            for lone in np.eye(size)
        ]
        vectors = flat.modes[1]
        self.twice = np.diagonal(vectors.T @ flat.target.of_square @ vectors)

    def packed(self, state: _State) -> np.ndarray:
        """All numbers in one row."""
        return np.concatenate([np.ravel(part) for part in state])

    def parts(self, row: np.ndarray) -> _State:
        """The inverse of `packed`."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        pieces = np.split(row, ends[:-1])
        shaped = zip(pieces, self.shapes, strict=True)
        return _State(*(piece.reshape(shape) for piece, shape in shaped))

    def base(self, state: _State) -> np.ndarray:
        """dq/dt and da/dt (2, G) at M = 0."""
        none = np.zeros(len(state.a))
        dq, da = self.flat.drift(state.q, state.a, none, none)
        return np.stack([dq if self.flat.free else none, da])

    def motion(self, t: float, row: np.ndarray) -> np.ndarray:
        """d/dt of all of it."""
        state, flat = self.parts(row), self.flat
        dq, da = self.base(state)
        rates = flat.rates(state.q, state.a)
        kicks = flat.kicks(state.q, state.a) * np.exp(-state.growth)
        dy = np.stack([self._response(state, f, rates) for f in range(rates.size)])
        return self.packed(_State(dq, da, 2 * rates, kicks, dy))

    def _beside(
        self, state: _State, f: int, step: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Norms and layers with one neuron apart, moved along y, and M_j C M_jᵀ."""
        group, mode = divmod(f, len(self.twice))
        q = np.append(state.q, state.q[group]) + step * state.y[f, 0]
        a = np.append(state.a, state.a[group]) + step * state.y[f, 1]
        bent = np.zeros(len(q))
        bent[-1] = step * self.flat.modes[0][mode]
        return q, a, bent

    def _response(self, state: _State, f: int, rates: np.ndarray) -> np.ndarray:
        """dy/dt of one kind of overlap."""
        group, mode = divmod(f, len(self.twice))
        apart = self.apart[group]
        slopes = []
        for step in (SMALL, -SMALL):
            q, a, bent = self._beside(state, f, step)
            twice = np.zeros(len(q))
            twice[-1] = step * self.twice[mode]
            dq, da = apart.drift(q, a, bent, twice)
            slopes.append(np.stack([dq if apart.free else 0 * dq, da]))
        slope = (slopes[0] - slopes[1]) / (2 * SMALL)
        return np.asarray(slope - 2 * rates[group, mode] * state.y[f])

    def response(self, state: _State, f: int) -> float:
        """R + δ of one kind of overlap."""
        apart = self.apart[f // len(self.twice)]
        ends = [apart.risk(*self._beside(state, f, step)) for step in (SMALL, -SMALL)]
        return (ends[0] - ends[1]) / (2 * SMALL)


def _followed(
    flat: Mediocrity, a: np.ndarray, folds: float, counts: np.ndarray, rough: float
) -> MediocrePath | None:
    """The path where norms or the second layer relax."""
    from scipy.integrate import solve_ivp
    from scipy.interpolate import CubicSpline

    way = _Way(flat, a)

    def grown(t: float, row: np.ndarray) -> float:
        return float(way.parts(row).growth.max()) - folds

    def stuck(t: float, row: np.ndarray) -> float:
        state = way.parts(row)
        if t == 0.0:
            return 1.0
        still = float(np.abs(way.base(state)).max()) - RELAXED
        return max(still, float(flat.rates(state.q, state.a).max()))

    for event in (grown, stuck):
        event.terminal = True  # type: ignore[attr-defined]
    found = solve_ivp(
        way.motion,
        (0.0, PATIENCE),
        way.start,
        method="LSODA",
        events=(grown, stuck),
        dense_output=True,
        rtol=1e-7,
        atol=1e-10,
    )
    if not found.t_events[0].size:
        return None
    # the steps of the integration are where something happens
    coarse = np.unique(np.concatenate([found.t, (found.t[1:] + found.t[:-1]) / 2]))
    states = [way.parts(column) for column in found.sol(coarse).T]
    none = np.zeros(len(a))
    every = range(len(counts))
    inside = np.linspace(0.0, 1.0, FINER, endpoint=False)
    times = (coarse[:-1, None] + np.diff(coarse)[:, None] * inside).ravel()

    def between(values: list[Any]) -> np.ndarray:
        return np.asarray(CubicSpline(coarse, np.array(values))(times))

    last = states[-1]
    return MediocrePath(
        times,
        between([flat.risk(s.q, s.a, none) for s in states]),
        between([s.growth.ravel() for s in states]),
        between([s.kicks.ravel() for s in states]),
        between([[way.response(s, f) for f in every] for s in states]),
        counts,
        rough,
        float(flat.rates(last.q, last.a).max()),
    )
