"""Explicit Runge–Kutta steps with error control and dense output, several starts side by side.

    k_i = F(y + h Σ_j A_ij k_j),    y' = y + h Σ_i b_i k_i,    h ← 0.9 h error^(−1/5),    each start with its own h

The pair of order 5 and 4 of Dormand and Prince, with Shampine's interpolant of order 4. A compiled call takes a few
steps and returns them with the polynomials that interpolate them; the host reads save points and thresholds off these.
So the compiled code knows neither, a call lasts as long as the host likes, and numbers do not depend on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.task.method import Outcome

__all__ = ["STAGES", "Control", "Starts", "Steps", "begin", "interpolate", "steps"]

LIMIT = 1e6  # squared norm beyond which a solution counts as diverged; the equations blow up in finite time
RESOLUTION = 1e-14  # smallest step, relative to the end of the run
FAR = 1e3  # beyond so many times the time passed, the end of the run does not matter
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
OK, REACHED, DIVERGED, MAX_STEPS = (
    Outcome.CODES.index(x) for x in (Outcome.OK, Outcome.REACHED, Outcome.DIVERGED, Outcome.MAX_STEPS)
)


STAGES = 6  # of a step; stage number 6 is the slope at its end, and the first of the next step
A = np.zeros((7, 7))
A[1, :1] = [1 / 5]
A[2, :2] = [3 / 40, 9 / 40]
A[3, :3] = [44 / 45, -56 / 15, 32 / 9]
A[4, :4] = [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729]
A[5, :5] = [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656]
A[6, :6] = [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]  # b
ERROR = np.array([-71 / 57600, 0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40])  # b of order 4, less b
DENSE = np.array(
    [
        [1, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432],
        [0, 0, 0, 0],
        [0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799],
        [0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072],
        [0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632],
        [0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844],
        [0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423],
    ]
)  # coefficients of x, x², x³, x⁴ in the weights of the stages at the fraction x of a step


def interpolate(y: np.ndarray, dense: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Y at the fraction x (n,) of steps (n, …) with coefficients (n, 4, …)."""
    x = x.reshape(-1, *[1] * (y.ndim - 1))
    total = np.zeros_like(y)
    for c in np.moveaxis(dense, 1, 0)[::-1]:
        total = (total + c) * x
    return y + total


class Control(NamedTuple):
    """Tolerances, the level at which each start stops, and whether it is met from above (+1) or from below (−1)."""

    rtol: Any
    atol: Any
    level: Any
    sign: Any


class Starts(NamedTuple):
    """Where each start is: time, next step, state, slope, outcome code, steps tried.

    Before the first step the slope is not known and the next step is 0, or −h for a guess h.
    """

    t: Any
    h: Any
    y: Any
    slope: Any
    code: Any
    tried: Any


class Steps(NamedTuple):
    """Steps taken, (capacity, lanes, …): where each began, its length (0 if there was none), and its polynomial."""

    t: Any
    h: Any
    y: Any
    dense: Any


def begin(y: Any, t: float, guess: Any = 0.0) -> Starts:
    """Starts with a leading axis, before their first step, for which there may be a guess."""
    n = len(jax.tree.leaves(y)[0])
    y = jax.tree.map(lambda x: np.asarray(x, float), y)
    zero = np.zeros(n, np.int32)
    slope = jax.tree.map(np.zeros_like, y)
    return Starts(np.full(n, float(t)), np.broadcast_to(-np.asarray(guess, float), (n,)), y, slope, zero, zero)


def _by_lane(h: Any, x: Any, axis: int = 0) -> Any:
    """X times h, which belongs to one of its axes."""
    return x * h.reshape(*[1] * axis, -1, *[1] * (x.ndim - axis - 1))


def _mean_square(x: Any, scale: Any) -> Any:
    """Mean of (x/scale)² over all entries of each start."""
    parts = jax.tree.map(lambda x, s: ((x / s) ** 2).reshape(len(x), -1), x, scale)
    return jnp.concatenate(jax.tree.leaves(parts), axis=1).mean(1)


@eqx.filter_jit
def steps(
    equation: Any,
    quantity: str | None,
    control: Control,
    capacity: int,
    lanes: Starts,
    end: Any,
    count: Any,
) -> tuple[Starts, Steps]:
    """At most ``count`` ≤ capacity tried steps of every start that runs, towards the time ``end``."""
    right: Any = jax.vmap(lambda y: equation(0.0, y))
    watched: Any = jax.vmap(lambda y: equation.watched(quantity, y))
    weights = jnp.asarray(A)

    def one(i: Any, carry: tuple[Starts, Steps]) -> tuple[Starts, Steps]:
        lanes, log = carry
        runs = (lanes.code == OK) & (lanes.t < end)
        fresh = ~(lanes.h > 0).any()  # the first look of all: the slope at the start, and a first guess of h
        left = end - lanes.t
        h = jnp.where(runs & ~fresh, jnp.minimum(lanes.h, left), 0.0)

        def moved(row: Any, K: Any) -> Any:
            """Y + h Σ_j row_j k_j."""
            return jax.tree.map(lambda y, k: y + _by_lane(h, jnp.tensordot(row, k, axes=1)), lanes.y, K)

        def stage(s: Any, K: Any) -> Any:
            slope = right(moved(jax.lax.dynamic_index_in_dim(weights, s, keepdims=False), K))
            return jax.tree.map(lambda k, new: jax.lax.dynamic_update_index_in_dim(k, new, s, 0), K, slope)

        K = jax.tree.map(lambda f: jnp.zeros((STAGES + 1, *f.shape)).at[0].set(f), lanes.slope)
        K = jax.lax.fori_loop(jnp.where(fresh, 0, 1), jnp.where(fresh, 1, STAGES + 1), stage, K)
        new = moved(A[STAGES], K)
        scale = jax.tree.map(lambda y, z: control.atol + control.rtol * jnp.maximum(abs(y), abs(z)), lanes.y, new)
        error = h * jnp.sqrt(_mean_square(jax.tree.map(lambda k: jnp.tensordot(ERROR, k, axes=1), K), scale))
        fine = error <= 1.0  # not so for NaN
        taken = runs & fine & ~fresh
        power = jnp.maximum(error, 1e-10) ** -0.2
        factor = jnp.where(jnp.isfinite(error), jnp.clip(SAFETY * power, SHRINK, GROW), SHRINK)

        # a step cut short by the end of the run says nothing against the one before
        following = jnp.where(fine & (h < lanes.h), lanes.h, h * factor)
        speed = jnp.sqrt(_mean_square(jax.tree.map(lambda k: k[0], K), scale))
        guess = 0.01 * jnp.sqrt(_mean_square(lanes.y, scale)) / jnp.where(speed > 0, speed, 1.0)
        guess = jnp.where((speed > 0) & (guess > 0), jnp.minimum(guess, left), left)
        pick: Any = lambda a, b: jax.tree.map(lambda x, y: jnp.where(_flag(taken, x), x, y), a, b)  # noqa: E731
        y = pick(new, lanes.y)
        slope = pick(jax.tree.map(lambda k: k[STAGES], K), lanes.slope)
        slope = jax.tree.map(lambda k, s: jnp.where(fresh, k[0], s), K, slope)
        t = jnp.where(taken, jnp.where(h >= left, end, lanes.t + h), lanes.t)

        sizes: Any = jax.vmap(equation.size)
        size = sizes(y)
        # of a run that is to last far longer than this, the clock here counts
        clock = jnp.clip(FAR * (lanes.t + h), 1e-280, end)
        stuck = runs & ~fine & ~fresh & (following < RESOLUTION * clock)
        # steps too small for the clock are a blow-up, unless only rounding is left of the way to the end
        near = stuck & (left <= 100 * RESOLUTION * end)
        t = jnp.where(near, end, t)
        code = jnp.where((taken & ~(size <= LIMIT)) | (stuck & ~near), DIVERGED, lanes.code)
        if quantity is not None:
            passed = (taken | (fresh & runs)) & (control.sign * (watched(y) - control.level) <= 0)
            code = jnp.where(passed & (code == OK), REACHED, code)
        now = Starts(
            t,
            jnp.where(fresh, jnp.where(lanes.h < 0, -lanes.h, guess), jnp.where(runs, following, lanes.h)),
            y,
            slope,
            code.astype(jnp.int32),
            lanes.tried + (runs & ~fresh),
        )
        dense = jax.tree.map(lambda k: _by_lane(h, jnp.tensordot(DENSE.T, k, axes=1), 1), K)
        made = Steps(lanes.t, jnp.where(taken, t - lanes.t, 0.0), lanes.y, dense)
        log = jax.tree.map(lambda all_, x: jax.lax.dynamic_update_index_in_dim(all_, x, i, 0), log, made)
        return now, log

    four = jax.tree.map(lambda x: jnp.stack([x] * DENSE.shape[1]), lanes.y)
    log = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape)), Steps(lanes.t, lanes.t, lanes.y, four))

    def going(carry: Any) -> Any:
        i, (lanes, _) = carry
        return (i < count) & ((lanes.code == OK) & (lanes.t < end)).any()

    _, found = jax.lax.while_loop(going, lambda c: (c[0] + 1, one(c[0], c[1])), (0, (lanes, log)))
    return found


def _flag(flag: Any, x: Any) -> Any:
    return flag.reshape(-1, *[1] * (x.ndim - 1))
