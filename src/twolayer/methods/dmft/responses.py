"""Response functions at all pairs of visits, from what a replicate has kept. The
dynamics does not need them.

    R_F(t, s) = α E[∂F^t/∂ω^s],    R_θ(t, s) = ∂θ^t/∂u^s,
        θ^{t+1} = … + u^t + Σ_{s≤t} R_F(t, s) θ^s,    F = η c g

For smooth activations R_F is a mean of derivatives along each path,

    ∂F^t/∂ω^s = V^s:    V^t = D^t,    V^s = (Σ_{s<r≤t} V^r R_θ(r, s)) D^s,    D = ∂F/∂h

and for those with kinks, where σ'' is a delta function, it follows from integration by
parts: α E[F^t ξ_i] = Σ_r R_F(t, r) l_i^r. That divides by the noise which is new at a
visit: where there is little, entries are uncertain. R_θ is moved by the algorithm's own
step: derivatives ride along as further coordinates of the rows, so short that they take
no part in any norm.

Cost with derivatives O(N T³ p³) and memory O(N T p²) for N paths and T visits; by parts
O(T⁴ p³).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.increment_kernel import Kernel, Push, Sample
from twolayer.equations.optimiser_step import (
    Coefficients,
    Form,
    Layers,
    Memory,
    descend,
)
from twolayer.methods.dmft.replicate import Replicate
from twolayer.methods.dmft.samples import Paths, in_basis
from twolayer.numerics.types import Real

__all__ = ["responses"]

SHORT = 2.0**-600  # its square is zero in double precision
# singular values of the rows below this, relative to the largest, count as no noise
SINGULAR = 1e-6

RowsAt = Callable[[int, np.ndarray], np.ndarray]
"""(t, R_θ up to t) → R_F(t, s) for s = 0 … t."""


def responses(one: Replicate, smooth: bool) -> dict[str, np.ndarray]:
    """R_F and R_θ (T+1, T+1, p, p) of a replicate; zero where there was no visit."""
    setting, rows, gradients = (
        one.setting,
        one.history("rows"),
        one.history("gradients"),
    )
    steps, p, n = rows.shape
    row = derivatives(one, rows) if smooth else by_parts(one, rows)
    R_F = np.zeros((steps, steps, p, p))
    X = np.zeros((steps, p, steps * p))  # R_θ(t, s) for s = 0, 1, … side by side

    def blocks() -> np.ndarray:
        return X.reshape(steps, p, steps, p).transpose(0, 2, 1, 3)

    for t in range(len(one.rows)):
        R_F[t, : t + 1] = row(t, blocks())
        if t + 1 < len(one.rows):
            pushed = np.einsum("sij,sjn->in", R_F[t, : t + 1], X[: t + 1])
            pushed[:, t * p : (t + 1) * p] += np.eye(p)
            past = max(t - 1, 0)
            pairs = (
                (rows[t], X[t]),
                (rows[past], X[past]),
                (gradients[t], pushed / setting.rates.step),
            )
            carried = (np.concatenate([x, SHORT * y], axis=1) for x, y in pairs)
            X[t + 1] = (
                np.asarray(moved(setting.form, setting.rates, *carried))[:, n:] / SHORT
            )
    return {"R_F": R_F, "R_theta": blocks()}


@partial(jax.jit, static_argnames=("form",))
def moved(
    form: Form, rates: Coefficients, rows: Real, previous: Real, gradient: Real
) -> Real:
    """Rows after one step of the algorithm, whatever its second layer does."""
    still = jnp.zeros(len(rows))
    before = Layers(previous, still) if form.carries else None
    form = dataclasses.replace(form, average="")
    return descend(
        form, rates, Memory(Layers(rows, still), before), Push(gradient, still)
    )[0].now.W


def by_parts(one: Replicate, rows: np.ndarray) -> RowsAt:
    """Gaussian integration by parts over all noises but those of the target."""
    noises = np.asarray(one.basis.noises).copy()
    noises[1 : one.setting.L.shape[1] + 1] = False
    pushes = one.setting.alpha * one.setting.gain * one.history("pushes")[:, :, noises]
    carried = rows[:, :, noises]

    def row(t: int, R_theta: np.ndarray) -> np.ndarray:
        p = pushes.shape[1]
        flat = pushes[t] @ np.linalg.pinv(
            carried[: t + 1].reshape((t + 1) * p, -1), rcond=SINGULAR
        )
        return flat.reshape(p, t + 1, p).transpose(1, 0, 2)

    return row


def derivatives(one: Replicate, rows: np.ndarray) -> RowsAt:
    """Means of derivatives along the paths."""
    setting, visits = one.setting, len(one.rows)
    fields = in_basis(rows[:visits], np.asarray(one.basis.E), setting.alpha)
    each = zip(fields, one.a, one.copies, strict=True)
    U = one.basis.U / one.paths.root
    D = [
        slope(setting.kernel, one.paths, w @ U, a, setting.gain * c) for w, a, c in each
    ]
    slopes, weight = (
        jnp.stack([*D, *[jnp.zeros_like(D[0])] * (len(rows) - visits)]),
        one.paths.root**2,
    )
    return lambda t, R_theta: (
        setting.alpha * np.asarray(mean_responses(slopes, R_theta, t, weight))[: t + 1]
    )


@partial(jax.jit, static_argnames=("kernel",))
def slope(kernel: Kernel, paths: Paths, h: Real, a: Real, weight: Real) -> Real:
    """∂F/∂h (N, p, p) at fields h (p, N)."""

    def push(h: Real) -> Real:
        return (
            weight[:, None] * kernel.push(Sample(h, paths.target, paths.noise), a).first
        )

    units = jnp.eye(len(h))
    return jnp.stack(
        [jax.jvp(push, (h.T,), (jnp.broadcast_to(e, h.T.shape),))[1] for e in units], -1
    )


@jax.jit
def mean_responses(
    slopes: Real, R_theta: Real, t: int | jax.Array, weight: Real
) -> Real:
    """Means of V^s (T+1, p, p) at visit t, by one sweep back in time; zero for s
    > t.
    """

    def body(back: Real, V: Real) -> Real:
        s = t - 1 - back
        through = jnp.einsum("rnij,rjk->nik", V, R_theta[:, s])
        return jax.lax.dynamic_update_index_in_dim(V, through @ slopes[s], s, 0)

    last = jnp.zeros_like(slopes).at[t].set(slopes[t])
    return jnp.einsum("snij,n->sij", jax.lax.fori_loop(0, t, body, last), weight) / len(
        weight
    )
