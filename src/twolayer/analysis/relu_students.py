"""The last mile of rectifiers that learn one rectifier: f = Σ_i relu(w_i·z), y =
relu(v·z), descent on E ½(f − y)².

    n = 1          L ~ (1 − η/2)^{2t}, exponential
    w_i = λ_i v    Σλ − 1 ← (Σλ − 1)(1 − ηn/2), exponential (λ_i ≥ 0:
        the direction is learned)
    w_i = w        u = n w moves as one neuron with steps n η, exponential
    n = 2, w_{1,2} = λ1 v ± λ2 v⊥, ‖v‖ = 1, tan θ = λ2/λ1, ρ² = λ1² + λ2², S(x)
        = sin x − x cos x:
        λ1 − ½ ← (λ1 − ½)[1 − η(1 − θ/π + sin 2θ/2π)],
            λ2 ← λ2 [1 − (η/2π)(2θ + (1 − 1/2λ1) sin 2θ)]
        L = (λ1 − ½)² + ρ² S(2θ)/2π − ρ S(θ)/π,           λ2 → π/(2ηt),
            L → π²/(6 (ηt)³)
    any n, d       L ≥ ‖w_i‖² (θ_i − sin θ_i cos θ_i)/4π ≥ ‖w_i‖² θ_i³/4π³
        for every i

The bound: where v·z < 0 the label is 0 and no student is negative, so there f − y ≥
relu(w_i·z) ≥ 0. In the notation of `Problem` this is σ = relu with second layer a_j =
p, and η = lr.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from twolayer.gaussian.population_gradient import sine_excess
from twolayer.numerics.arguments import Array, End, Save, finite_array
from twolayer.numerics.errors import (
    InputError,
    finite_number,
    positive_integer,
    require,
)
from twolayer.numerics.precision import float64
from twolayer.numerics.types import Number, Real, Tree
from twolayer.running.dataset import check_result
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks, save_steps
from twolayer.task.method import from_start
from twolayer.task.problem import Problem

__all__ = [
    "ReluStudents",
    "SymmetricPair",
    "aligned_excess",
    "cubic_bound",
    "relu_students",
    "symmetric_pair",
]


LARGEST = 1e150  # of a start whose square is finite


class SymmetricPair(NamedTuple):
    """Steps and, at each, λ1 − ½, λ2 and the loss.

    Attributes
    ----------
    step : array (n,)
        Numbers of steps.
    excess, orthogonal : array (n,)
        λ1 − ½ and λ2 there; both vanish when the target is learned.
    loss : array (n,)
        L there.

    Examples
    --------
    >>> pair = symmetric_pair(0.3, 0.4, lr=0.2, steps=100, save=[0, 100])
    >>> pair.step.tolist(), pair.orthogonal.round(2).tolist()
    ([0, 100], [0.4, 0.07])
    """

    step: np.ndarray
    excess: np.ndarray
    orthogonal: np.ndarray
    loss: np.ndarray


def pair_step(x: jax.Array, y: jax.Array, lr: Number) -> tuple[jax.Array, jax.Array]:
    """One step of (λ1 − ½, λ2)."""
    theta = jnp.arctan2(y, 0.5 + x)
    sine = jnp.sin(2 * theta) / (2 * math.pi)
    return x * (1 - lr * (1 - theta / math.pi + sine)), y * (
        1 - lr * (theta / math.pi + x / (0.5 + x) * sine)
    )


def pair_loss(x: jax.Array, y: jax.Array) -> Real:
    """L of (λ1 − ½, λ2), without cancellation."""
    theta, square = jnp.arctan2(y, 0.5 + x), (0.5 + x) ** 2 + y**2
    return (
        x**2
        + (square * sine_excess(2 * theta) / 2 - jnp.sqrt(square) * sine_excess(theta))
        / math.pi
    )


@jax.jit
def _follow(x: jax.Array, y: jax.Array, lr: Number, points: jax.Array) -> Tree:
    def to(carry: Tree, ends: jax.Array) -> Tree:
        out = jax.lax.fori_loop(
            ends[0], ends[1], lambda _, c: pair_step(c[0], c[1], lr), carry
        )
        return out, (*out, pair_loss(*out))

    return jax.lax.scan(to, (x, y), jnp.stack([points[:-1], points[1:]], 1))[1]


@float64
def symmetric_pair(
    lambda1: float, lambda2: float, lr: float, steps: End, save: Save = "log"
) -> SymmetricPair:
    """Two rectifiers on either side of a unit teacher, w = λ1 v ± λ2 v⊥, by the
    recursion in two numbers.

    Parameters
    ----------
    lambda1, lambda2 : float
        The start, λ1 > 0.
    lr : float
        η; the recursion is stable for η < 2.
    steps, save
        As for `solve`.

    Examples
    --------
    >>> pair = symmetric_pair(0.3, 0.4, lr=0.2, steps=10_000)
    >>> round(float(pair.orthogonal[-1] * 0.2 * 10_000 * 2 / np.pi), 2)
    1.0
    """
    x = finite_number("lambda1", lambda1, accepted="a positive number")
    require(x > 0, "lambda1", lambda1, "a positive number")
    y = finite_number("lambda2", lambda2, accepted="a finite number")
    for name, value in (("lambda1", x), ("lambda2", abs(y))):
        accepted = f"at most {LARGEST:g}, whose square the loss is"
        require(value <= LARGEST, name, value, accepted)
    eta = finite_number("lr", lr, accepted="a number in (0, 2)")
    require(0 < eta < 2, "lr", lr, "a number in (0, 2), beyond which λ1 diverges")
    points, hidden = from_start(
        save_steps(
            Clocks(Problem("relu(z1)", "relu", 2), SGD(eta), None), None, steps, save
        )
    )
    start = (
        jnp.asarray(x - 0.5),
        jnp.asarray(abs(y)),
    )  # −λ2 numbers the two students the other way
    later = _follow(*start, jnp.asarray(eta), jnp.asarray(points))
    columns = zip((*start, pair_loss(*start)), later, strict=True)
    excess, orthogonal, loss = (
        np.concatenate([[np.asarray(a)], np.asarray(b)])[hidden:] for a, b in columns
    )
    return SymmetricPair(
        points[hidden:], excess, math.copysign(1.0, y) * orthogonal, loss
    )


def aligned_excess(total: float, lr: float, students: int, steps: Array) -> np.ndarray:
    """Σλ − 1 after given numbers of steps for students w_i = λ_i v, λ_i ≥ 0; the loss
    is its square over 4.

    Parameters
    ----------
    total : float
        Σλ at the start, ≥ 0.
    lr : float
        η, in (0, 4/n).
    students : int
        n.
    steps : int or array of int
        Numbers of steps, ≥ 0.

    Examples
    --------
    >>> aligned_excess(0.5, lr=0.1, students=4, steps=[0, 1, 2]).round(3).tolist()
    [-0.5, -0.4, -0.32]
    """
    n = positive_integer("students", students)
    eta = finite_number("lr", lr, accepted=f"a number in (0, {4 / n:g})")
    require(
        0 < eta < 4 / n,
        "lr",
        lr,
        f"a number in (0, {4 / n:g}), beyond which the sum of the students diverges",
    )
    start = finite_number(
        "total", total, minimum=0.0, accepted="a number ≥ 0, the sum of the λ_i"
    )
    times = finite_array("steps", steps)
    require(
        bool((times >= 0).all() and (times % 1 == 0).all()),
        "steps",
        steps,
        "numbers of steps, integers ≥ 0",
    )
    return np.asarray((start - 1) * (1 - eta * n / 2) ** times)


@float64
def cubic_bound(norm: Array, angle: Array) -> np.ndarray:
    """The part ‖w‖² (θ − sin θ cos θ)/4π of the loss that no other student can undo.

    Parameters
    ----------
    norm, angle : array
        ‖w_i‖ and its angle θ_i to the teacher, in [0, π].

    Examples
    --------
    >>> float(cubic_bound(1.0, np.pi))  # a student on the wrong side
    0.25
    """
    theta, size = finite_array("angle", angle), finite_array("norm", norm)
    require(
        bool(((theta >= 0) & (theta <= math.pi)).all()),
        "angle",
        angle,
        "angles from 0 to π",
    )
    require(bool((size >= 0).all()), "norm", norm, "norms ≥ 0")
    # θ − sin θ cos θ in a form that keeps its digits at small θ, where it is θ³ − θ³/3
    rest = theta * jnp.sin(theta) ** 2 - jnp.cos(theta) * sine_excess(theta)
    return np.asarray(size**2 * rest / (4 * math.pi))


class ReluStudents(NamedTuple):
    """Norms ‖w_j‖, angles θ_j to the teacher and bounds, each (seed, time, neuron).

    Attributes
    ----------
    norm : array (seed, time, neuron)
        ‖w_j‖.
    angle : array (seed, time, neuron)
        θ_j between student and teacher, in [0, π].
    bound : array (seed, time, neuron)
        ‖w_j‖² (θ_j − sin θ_j cos θ_j)/4π, which the excess risk is never below.

    Examples
    --------
    >>> one = ReluStudents(np.ones((1, 1, 2)), np.zeros((1, 1, 2)), np.zeros((1, 1, 2)))
    >>> one.angle.shape
    (1, 1, 2)
    """

    norm: np.ndarray
    angle: np.ndarray
    bound: np.ndarray


def relu_students(result: xr.Dataset) -> ReluStudents:
    """Norms, angles and the cubic lower bounds on the excess risk along a result of
    `Population`.

    Parameters
    ----------
    result : xarray.Dataset
        Rectifiers learning one rectifier, with second layer of one sign.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem = tl.Problem("relu(z1)", "relu", width=2, second_layer=[2, 2])
    >>> start = tl.Overlaps([[0.5, 0.0], [0.0, 0.5]], [[0.5], [0.5]])
    >>> run = tl.solve(problem, tl.SGD(lr=0.2), tl.Population(), start, steps=100)
    >>> bool((relu_students(run).bound <= run.excess_risk.values[..., None]).all())
    True
    """
    told = check_result(result, "result").get("problem", {})
    if "Q_perp" not in result:
        raise InputError(
            "Argument `result` must be a result of Population, which knows Q_perp to"
            " all digits."
        )
    gram = np.eye(1) if told["gram"] is None else np.asarray(told["gram"])
    teacher = told["target"] in (
        "relu(z1)",
        {"teacher": "relu", "k": 1, "weights": [1.0]},
    )
    if not (teacher and told["activation"] == "relu" and (result.a.values > 0).all()):
        raise InputError(
            "Argument `result` must have rectifiers with a > 0 that learn one"
            " rectifier, relu(z1)."
        )
    inside = result.M.values[..., 0] / np.sqrt(gram[0, 0])
    outside = np.sqrt(np.diagonal(result.Q_perp.values, axis1=-2, axis2=-1))
    norm, angle = np.hypot(inside, outside), np.arctan2(outside, inside)
    weight = result.a.values / told["width"]
    return ReluStudents(norm, angle, cubic_bound(weight * norm, angle))
