"""σ(x) = s x² + c and a quadratic target: all averages are matrix products.

e = uᵀ B u + b0 + √Δ ξ,    u = (λ, λ*),    A = Ω B Ω
t1 = tr BΩ + b0,    t2 = tr BΩBΩ

E[e²] = t1² + 2 t2 + Δ
E[e u uᵀ] = t1 Ω + 2A
E[e² u uᵀ] = (t1² + 2 t2 + Δ) Ω + 4 t1 A + 8 ΩBΩBΩ
E[e λ_j z] = t1 w_j + 2 Σ_q (ΩB)_jq u_q        with the rows u = (w, w*)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Averages, Engine, Gradient
from twolayer.functions.activation import Activation
from twolayer.functions.target import Target
from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers, Real, Scalar

__all__ = [
    "QuadraticEngine",
    "QuadraticTask",
    "quadratic_averages",
    "quadratic_form",
    "quadratic_task",
]


def quadratic_form(
    polynomial: Mapping[tuple[int, ...], float] | None, k: int
) -> tuple[np.ndarray, float] | None:
    """h = λ*ᵀ H λ* + h0 read off a polynomial, or None when it has other terms.

    Examples
    --------
    >>> H, h0 = quadratic_form({(2, 0): 1.0, (1, 1): 3.0, (0, 0): -1.0}, 2)
    >>> H.tolist(), h0
    ([[1.0, 1.5], [1.5, 0.0]], -1.0)
    """
    if polynomial is None or any(sum(alpha) not in (0, 2) for alpha in polynomial):
        return None
    H, h0 = np.zeros((k, k)), 0.0
    for alpha, c in polynomial.items():
        index = [i for i, n in enumerate(alpha) for _ in range(n)]
        if index:
            H[index[0], index[1]] += c / 2
            H[index[1], index[0]] += c / 2
        else:
            h0 += c
    return H, h0


class QuadraticTask(NamedTuple):
    """σ(x) = scale·x² + shift learning λ*ᵀ H λ* + h0."""

    scale: float
    shift: float
    H: np.ndarray
    h0: float


def quadratic_task(activation: Activation, target: Target) -> QuadraticTask | None:
    """The numbers of a quadratic task, or None where σ or the target is another one."""
    sigma, form = (
        activation.polynomial,
        quadratic_form(target.polynomial, target.directions),
    )
    if form is None or sigma is None or len(sigma) != 3 or sigma[1] != 0:
        return None
    return QuadraticTask(sigma[2], sigma[0], *form)


def residual_form(
    scale: float, shift: float, H: Real, h0: float, weight: float, a: Layer
) -> tuple[Numbers, Numbers]:
    """e without noise as (B, b0), the student entering with this weight."""
    p, k = len(a), len(H)
    own = jnp.pad(-weight * scale * a / p, (0, k))
    return own[:, None] * np.eye(p + k) + jnp.pad(
        jnp.asarray(H), (p, 0)
    ), h0 - weight * shift * a.mean()


def quadratic_gradient(
    scale: float,
    shift: float,
    H: Real,
    h0: float,
    student: float,
    Q: Gram,
    M: Cross,
    P: Numbers,
    a: Layer,
) -> Gradient:
    """The mean gradient as a combination of the rows, arguments as for
    `quadratic_averages`.
    """
    p = len(M)
    omega = jnp.block([[Q, M], [M.T, P]])
    B, b0 = residual_form(scale, shift, H, h0, student, a)
    OB = omega @ B
    t1 = jnp.trace(OB) + b0
    rows = (2 * scale * a)[:, None] * (2 * OB[:p] + t1 * jnp.eye(p, len(omega)))
    second = (
        scale * (t1 * jnp.diagonal(Q) + 2 * (OB @ omega).diagonal()[:p]) + shift * t1
    )
    return Gradient(rows[:, :p], rows[:, p:], second)


def quadratic_averages(
    scale: float,
    shift: float,
    H: Real,
    h0: float,
    student: float,
    Q: Gram,
    M: Cross,
    P: Numbers,
    a: Layer,
    noise: Scalar,
) -> Averages:
    """Averages for σ = scale·x² + shift; ``student`` is 1 for the squared loss, 0 for
    the correlation loss.

    Cost O((p + k)³).
    """
    p = len(M)
    omega = jnp.block([[Q, M], [M.T, P]])
    B, b0 = residual_form(scale, shift, H, h0, student, a)
    t1, square, BO = second_moment(omega, B, b0)
    A = omega @ BO
    first = t1 * omega + 2 * A
    variance = (square + noise) * omega + 4 * t1 * A + 8 * omega @ B @ A
    slope = 2 * scale * a
    v = slope[:, None] * first[:p]
    return Averages(
        psi=v[:, p:],
        phi=v[:, :p],
        chi=slope[:, None] * slope[None, :] * variance[:p, :p],
        second=scale * jnp.diagonal(first)[:p] + shift * t1,
        excess_risk=quadratic_risk(scale, shift, H, h0, omega, a),
    )


def second_moment(
    omega: Numbers, B: Numbers, b0: Number
) -> tuple[Numbers, Numbers, Numbers]:
    """E[uᵀBu + b0] and the mean of its square over u ~ N(0, Ω), and BΩ."""
    BO = B @ omega
    t1, t2 = jnp.trace(BO) + b0, (BO * BO.T).sum()
    return t1, t1**2 + 2 * t2, BO


def quadratic_risk(
    scale: float, shift: float, H: Real, h0: float, omega: Numbers, a: Layer
) -> Numbers:
    """The excess risk, arguments as for `quadratic_averages`."""
    return second_moment(omega, *residual_form(scale, shift, H, h0, 1.0, a))[1] / 2


class QuadraticEngine(Engine):
    """σ = s x² + c against a quadratic form: matrix products, cost O((p + k)³)."""

    student: float = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    shift: float = eqx.field(static=True)
    h0: float = eqx.field(static=True)
    H: np.ndarray
    P: np.ndarray
    label: ClassVar[str] = "closed form (quadratic)"

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        return 0.5 * (p + len(self.P)) ** 3

    def __call__(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Averages:
        """The averages at one point."""
        return quadratic_averages(
            self.scale,
            self.shift,
            self.H,
            self.h0,
            self.student,
            Q,
            M,
            self.P,
            a,
            noise,
        )

    def excess_risk(self, Q: Gram, M: Cross, a: Layer) -> Real:
        """The excess risk alone at one point."""
        omega = jnp.block([[Q, M], [M.T, self.P]])
        return quadratic_risk(self.scale, self.shift, self.H, self.h0, omega, a)

    def gradient(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Gradient:
        """The mean gradient as a combination of the rows."""
        return quadratic_gradient(
            self.scale, self.shift, self.H, self.h0, self.student, Q, M, self.P, a
        )
