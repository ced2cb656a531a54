"""The equation of motion in coordinates of its own, and its linearisation.

    dx/dt = F(x),    J = ∂F/∂x,    x = (M, Q_jl for j ≤ l, and a if it is trained)

Where rows are divided by their norms, Q_jj cannot move and is no coordinate: x = (M,
Q_jl for j < l), so that J acts on the tangent space. Entries of Q off the diagonal
appear once, which makes J that of symmetric matrices.

Inputs with blocks have overlaps M⁽ⁱ⁾, Q⁽ⁱ⁾ for each of them, all of which are
coordinates (free weights: norms over all blocks together are none of them).

With kinks in the activation F has no second derivative where Ω is singular, as at
perfect learning: there it is F + J x + O(x^{3/2}), and J is the limit from inside, J(ε)
= J + b √ε + c ε + …, by Richardson's extrapolation. So it is where averages are
sampled, which have no slopes there at all.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.blocks import blocks_of
from twolayer.equations.state import Overlap
from twolayer.gaussian.engines import adapt
from twolayer.gaussian.moments import check_point
from twolayer.methods.ode import ODE
from twolayer.numerics.errors import Refused
from twolayer.numerics.types import Real
from twolayer.pure import VectorField, vector_field
from twolayer.task.algorithm import SGD
from twolayer.task.inputs import Inputs
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["Flow"]

INSIDE = 1e-4  # ε of the outermost of the points inside
SINGULAR = 1e-7  # eigenvalues of Ω below this share of the largest count as zero


@eqx.filter_jit
def _rate(field: VectorField, frame: Overlap, x: Real) -> jax.Array:
    """F at x (F,), with the entries that do not move from the frame."""
    return _packed(field, field.rate(0.0, _unpacked(field, frame, x)))


@eqx.filter_jit
def _slope(field: VectorField, frame: Overlap, x: Real) -> jax.Array:
    """J at x."""
    return jax.jacfwd(
        lambda x: _packed(field, field.rate(0.0, _unpacked(field, frame, x)))
    )(x)


@eqx.filter_jit
def _bend(
    field: VectorField, frame: Overlap, x: Real, left: Real, right: Real
) -> jax.Array:
    """F''[u, v] for rows u, v of two arrays."""

    def rate(x: Real) -> jax.Array:
        return _packed(field, field.rate(0.0, _unpacked(field, frame, x)))

    def twice(u: Real, v: Real) -> jax.Array:
        def along(x: Real) -> jax.Array:
            return jax.jvp(rate, (x,), (u,))[1]

        return jax.jvp(along, (x,), (v,))[1]

    return jax.vmap(twice)(left, right)


@eqx.filter_jit
def _risk_parts(
    field: VectorField, frame: Overlap, x: Real
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The excess risk at x with its gradient and its second derivatives."""

    def risk(x: Real) -> jax.Array:
        return _risk(field, _unpacked(field, frame, x))

    return risk(x), jax.grad(risk)(x), jax.hessian(risk)(x)


@eqx.filter_jit
def _speeds(field: VectorField, states: Overlap) -> jax.Array:
    """The largest |dx/dt| at many states."""
    return jax.lax.map(
        lambda y: jnp.abs(_packed(field, field.rate(0.0, y))).max(), states
    )


@eqx.filter_jit
def _risk(field: VectorField, y: Overlap) -> jax.Array:
    fields = field.fields(y)
    return field.engine(fields.Q, fields.M, fields.a, field.noise).excess_risk


def _corner(field: VectorField, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries of Q that are coordinates."""
    return np.triu_indices(p, 1 if field.form.normalises else 0)


def _packed(field: VectorField, y: Overlap) -> jax.Array:
    rows, columns = _corner(field, y.Q.shape[-1])
    return jnp.concatenate(
        [
            y.M.ravel(),
            y.Q[..., rows, columns].ravel(),
            *([y.a] if field.form.trained else []),
        ]
    )


def _unpacked(field: VectorField, frame: Overlap, x: Real) -> Overlap:
    rows, columns = _corner(field, frame.Q.shape[-1])
    M, corner, a = _parts(frame, x, len(rows))
    Q = (
        jnp.asarray(frame.Q)
        .at[..., rows, columns]
        .set(corner)
        .at[..., columns, rows]
        .set(corner)
    )
    return Overlap(Q, M, a if field.form.trained else frame.a)


def _parts(frame: Overlap, x: Real, corner: int) -> tuple[Real, Real, Real]:
    """M, the entries of Q that are coordinates, and what is left."""
    first, blocks = frame.M.size, frame.Q.shape[:-2]
    last = first + corner * math.prod(blocks)
    return (
        x[:first].reshape(frame.M.shape),
        x[first:last].reshape(*blocks, corner),
        x[last:],
    )


@dataclass(frozen=True, eq=False)
class Flow:
    """The right-hand side around one state: averages refined there, norms and second
    layer from it.
    """

    problem: Problem
    field: VectorField
    frame: Overlap
    engine: str
    rough: bool  # without slopes where Ω is singular
    P: np.ndarray  # of the target's directions, in blocks where the inputs have them

    @classmethod
    def at(cls, problem: Problem, algorithm: SGD, start: Overlaps) -> Flow:
        """The flow of an algorithm in the limit, with the averages that are accurate at
        a point.
        """
        check_point(problem, start)
        reason = ODE().objection(problem, algorithm)
        if reason is not None:
            raise Refused("fixed_points", reason)
        blocks, fields = None, start
        if not problem.inputs.plain:
            if algorithm.geometry != "free":
                raise Refused(
                    "fixed_points",
                    f"the inputs are {problem.inputs} and {algorithm.geometry} weights"
                    " keep norms over all blocks together, which are no coordinates of"
                    " single blocks: use free weights",
                )
            blocks, fields = (
                blocks_of(problem.inputs, start.P),
                start.fields(problem.inputs),
            )
        a = problem.a() if start.a is None else start.a
        averager, *_ = adapt(
            problem, algorithm.mean_drive, fields.Q, fields.M, a, tolerance=1e-8
        )
        # what the step makes of averages is the same for all inputs, and so is what it
        # refuses
        field = vector_field(problem.replace(inputs=Inputs.isotropic()), algorithm)
        field = dataclasses.replace(field, engine=averager.engine, blocks=blocks)
        rough = bool(problem.activation.kinks) or averager.sampled
        frame = Overlap(*map(jnp.asarray, (start.Q, start.M, a)))
        return cls(problem, field, frame, averager.label, rough, np.asarray(start.P))

    @property
    def x(self) -> np.ndarray:
        """Coordinates of the state."""
        return self.packed(self.frame)

    def packed(self, y: Overlap) -> np.ndarray:
        """Coordinates of any state."""
        return np.asarray(_packed(self.field, y))

    def overlaps(self, x: np.ndarray) -> Overlaps:
        """The overlaps with these coordinates, feasible or not."""
        Q, M, a = map(np.asarray, _unpacked(self.field, self.frame, jnp.asarray(x)))
        return Overlaps.unchecked(Q, M, self.P, a)

    def direction(self, v: np.ndarray) -> Overlap:
        """A change of coordinates, real or complex, as changes of Q, M and a."""
        rows, columns = _corner(self.field, self.frame.Q.shape[-1])
        M, corner, a = _parts(self.frame, v, len(rows))
        Q = np.zeros(self.frame.Q.shape, v.dtype)
        Q[..., rows, columns] = Q[..., columns, rows] = corner
        return Overlap(
            Q, M, a if self.field.form.trained else np.zeros(len(self.frame.a))
        )

    def rate(self, x: np.ndarray) -> np.ndarray:
        """F."""
        return np.asarray(_rate(self.field, self.frame, jnp.asarray(x)))

    def slope(self, x: np.ndarray) -> np.ndarray:
        """J. Cost: one evaluation of the averages for each coordinate."""
        if self.rough and self.lowest(x) < SINGULAR:
            outer, middle, inner = (
                self._slope(self._inside(x, INSIDE / n)) for n in (1, 4, 16)
            )
            return (4 * (2 * inner - middle) - (2 * middle - outer)) / 3
        return self._slope(x)

    def _slope(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(_slope(self.field, self.frame, jnp.asarray(x)))

    def _inside(self, x: np.ndarray, epsilon: float) -> np.ndarray:
        """A point near x whose Ω has full rank: all rows a little apart, with the same
        norms.
        """
        y, keep = _unpacked(self.field, self.frame, jnp.asarray(x)), 1.0 - epsilon
        Q = y.Q * (keep + epsilon * jnp.eye(y.Q.shape[-1]))
        return self.packed(Overlap(Q, keep * y.M, y.a))

    def lowest(self, x: np.ndarray) -> float:
        """The smallest eigenvalue of Ω, relative to the largest; negative where no
        vectors have these overlaps.
        """
        Q, M, _ = map(np.asarray, _unpacked(self.field, self.frame, jnp.asarray(x)))
        values = np.linalg.eigvalsh(
            np.block([[Q, M], [M.swapaxes(-1, -2), self.P]])
        )  # of each block
        return float(values.min() / values.max())

    def speeds(self, states: Overlap) -> np.ndarray:
        """How fast many states (n, …) move."""
        return np.asarray(_speeds(self.field, Overlap(*map(jnp.asarray, states))))

    def bend(self, x: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Second derivatives F''[u, v] for rows u and v of two arrays."""
        rows = (jnp.asarray(part) for part in (x, left, right))
        return np.asarray(_bend(self.field, self.frame, *rows))

    def risk_parts(self, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Excess risk at x, its gradient and its second derivatives."""
        value, slope, curve = _risk_parts(self.field, self.frame, jnp.asarray(x))
        return float(value), np.asarray(slope), np.asarray(curve)

    def excess_risk(self, x: np.ndarray) -> float:
        """Excess risk at x."""
        return float(
            _risk(self.field, _unpacked(self.field, self.frame, jnp.asarray(x)))
        )
