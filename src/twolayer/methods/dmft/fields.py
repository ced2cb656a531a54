"""The fields side of dynamical mean-field theory: what the samples see, one visit after the other.

    h^t = A^t ξ* + ω^t + Σ_{s<t} R_θ(t, s) F^s,    ω^t = Σ_{s≤t} Y(t, s) ε^s,    F^t = (lr/(p α_b)) c^t g(h^t, h*, ξ)
    ∂F^t/∂ω^s = V^s:   V^t = D^t,   V^s = (Σ_{s<r≤t} V^r R_θ(r, s)) D^s,    D = ∂F/∂h

A path keeps its (ξ*, ξ, ε) for ever, so old noise is never drawn again. Points are scrambled Sobol points by default:
ξ* and the label noise ξ in the first coordinates, then the innovations ε^0, ε^1, … in the order of time. Batches in
sequence cut the samples into classes, and every class takes the same points; with replacement the number c^t of copies
of a sample is a Poisson variable.

Cost of visit t for N points: O(N T p²), with the derivative response O(N T² p³); memory O(N T p), with it O(N T p²).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri, pdtr

from twolayer.equations.kernel import Kernel, Sample
from twolayer.methods.dmft.weights import Averages, Weights
from twolayer.numerics.rules import draw_sobol_normals

__all__ = ["Fields", "Plan", "Points", "draw_points"]

POINTS = ("sobol", "random")


class Plan(NamedTuple):
    """How the samples are visited: α, the batches in the set, whether with replacement, √Δ and lr/(p α_b)."""

    alpha: float
    batches: float
    replacement: bool
    noise: float
    gain: float


class Points(NamedTuple):
    """ξ* (N, r), √Δ ξ (N,), ε (T+1, N, p), and copies c (T+1, N or 1) of each sample in each batch."""

    star: Any
    noise: Any
    innovations: Any
    copies: Any


class Memory(NamedTuple):
    """Pushes F (T+1, N, p) of all visits so far and, for the derivative response, slopes D (T+1, N, p, p)."""

    push: Any
    slope: Any


def draw_points(plan: Plan, rank: int, p: int, steps: int, log2_points: int, rule: str, replicate: int) -> Points:
    """Points of one replicate; about 2**log2_points of them, the same number for every class of samples."""
    classes = 1 if plan.replacement else round(plan.batches)
    each = max(log2_points - round(np.log2(classes)), 4)
    choosing = int(plan.replacement)
    dimension = rank + int(plan.noise > 0) + (steps + 1) * (p + choosing)
    if rule == "sobol":
        normals = draw_sobol_normals(dimension, each, replicate)
    else:
        normals = np.random.default_rng([dimension, replicate]).normal(size=(2**each, dimension))
    star, rest = normals[:, :rank], normals[:, rank:]
    noise = plan.noise * rest[:, 0] if plan.noise > 0 else np.zeros(len(star))
    visits = rest[:, int(plan.noise > 0) :].reshape(len(star), steps + 1, p + choosing).transpose(1, 0, 2)
    if plan.replacement:
        mean = 1 / plan.batches
        levels = pdtr(np.arange(np.ceil(mean + 10 * np.sqrt(mean) + 20)), mean)
        copies = (visits[..., p, None] > ndtri(levels)).sum(-1).astype(float)
    else:
        copies = (np.arange(steps + 1)[:, None] % classes == np.repeat(np.arange(classes), len(star))).astype(float)
        copies = copies if classes > 1 else np.ones((steps + 1, 1))
    tiled = (np.tile(star, (classes, 1)), np.tile(noise, classes), np.tile(visits[..., :p], (1, classes, 1)))
    return Points(*map(jnp.asarray, (*tiled, copies)))


@partial(jax.jit, static_argnames=("kernel", "derivative"), donate_argnames=("memory",))
def visit(
    kernel: Kernel, derivative: bool, points: Points, L_star: Any, memory: Memory, t: Any, rows: Any, gain: Any, a: Any
) -> Any:
    """Visit number t: the new memory, and averages over the points.

    ``rows`` are A^t (p, r), Y(t, ·) (T+1, p, p) and R_θ (T+1, T+1, p, p), zero where there is nothing yet.
    """
    A, noise_row, R_theta = rows
    n = len(points.star)
    response_row = jnp.take(R_theta, t, axis=0)
    h = points.star @ A.T
    h = h + jnp.einsum("snp,sqp->nq", points.innovations, noise_row)
    h = h + jnp.einsum("snp,sqp->nq", memory.push, response_row)
    copies = jnp.take(points.copies, t, axis=0)[:, None]
    target = points.star @ L_star.T

    def push(h: Any) -> Any:
        return gain * copies * kernel.push(Sample(h, target, points.noise), a).first

    F, pushes = push(h), memory.push
    pushes = jax.lax.dynamic_update_index_in_dim(pushes, F, t, 0)
    error = kernel.target(target) + points.noise - kernel.output(h, a)
    second = (copies * kernel.push(Sample(h, target, points.noise), a).second).mean(0)
    means = {
        "features": jnp.concatenate(
            [F.T @ points.star / n, jnp.einsum("nq,snp->qsp", F, points.innovations).reshape(F.shape[1], -1) / n],
            axis=1,
        ),
        "radial": (F * h).mean(0),
        "correlation": jnp.einsum("nq,snp->sqp", F, pushes) / n,
        "second": second,
        "train_risk": (error**2).mean() / 2,
    }
    slopes = memory.slope
    if derivative:
        units = jnp.eye(h.shape[1])
        columns = [jax.jvp(push, (h,), (jnp.broadcast_to(e, h.shape),))[1] for e in units]
        slopes = jax.lax.dynamic_update_index_in_dim(slopes, jnp.stack(columns, -1), t, 0)
        means["response"] = jax.vmap(lambda x: x.mean(0))(_responses(slopes, R_theta, t))
    return Memory(pushes, slopes), means


def _responses(slopes: Any, R_theta: Any, t: Any) -> Any:
    """V^s (T+1, N, p, p) of visit t, by one sweep back in time; zero for s > t."""

    def body(back: Any, V: Any) -> Any:
        s = t - 1 - back
        through = jnp.einsum("rnij,rjk->nik", V, jnp.take(R_theta, s, axis=1))
        return jax.lax.dynamic_update_index_in_dim(V, through @ jnp.take(slopes, s, axis=0), s, 0)

    last = jnp.zeros_like(slopes).at[t].set(jnp.take(slopes, t, axis=0))
    return jax.lax.fori_loop(0, t, body, last)


class Fields:
    """The samples of one path: points, and the pushes of all visits so far."""

    def __init__(self, kernel: Kernel, plan: Plan, points: Points, L_star: np.ndarray, derivative: bool) -> None:
        self.kernel, self.plan, self.points, self.derivative = kernel, plan, points, derivative
        self.L_star = jnp.asarray(L_star)
        slots, n, p = points.innovations.shape
        slope = (slots, n, p, p) if derivative else (0,)
        self.memory = Memory(jnp.zeros((slots, n, p)), jnp.zeros(slope))
        x = np.concatenate(
            [np.asarray(points.star).T, np.asarray(points.innovations).transpose(0, 2, 1).reshape(-1, n)]
        )
        self._gram = x @ x.T / n

    def visit(self, weights: Weights) -> tuple[Averages, float]:
        """What step t of the weights needs, and the training risk before it.

        First moments with the Gaussian coordinates are regression coefficients, which removes the error of the points
        on everything linear.
        """
        t, alpha = weights.at, self.plan.alpha
        p = weights.a.shape[1]
        rows = (weights.A[t], weights.Y[t], weights.R_theta)
        self.memory, means = visit(
            self.kernel, self.derivative, self.points, self.L_star, self.memory, t, rows, self.plan.gain, weights.a[t]
        )
        found = {name: np.asarray(value) for name, value in means.items()}
        rank = weights.A.shape[2]
        known = rank + p * (t + 1)
        coefficients = np.linalg.solve(self._gram[:known, :known], found["features"][:, :known].T).T
        noises = coefficients[:, rank:].reshape(p, t + 1, p).transpose(1, 0, 2)
        response = alpha * found["response"][: t + 1] if self.derivative else None
        averages = Averages(
            alpha * coefficients[:, :rank],
            alpha * found["radial"],
            alpha * found["correlation"][: t + 1],
            alpha * noises,
            response,
            found["second"] * self.plan.batches,
        )
        return averages, float(found["train_risk"])
