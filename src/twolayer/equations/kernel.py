"""The increment kernel: what one batch does to the weights.

    g_j = a_j σ'(λ_j) e,    e = y − f (squared loss)  or  e = y (correlation loss)
    W ← (1 − lr·λ) W + (lr/p) ḡ + β (W − W_previous),    ḡ = mean_ν g^ν (z^ν)ᵀ
    a ← a + (lr/p) mean_ν e^ν σ(λ^ν) + β (a − a_previous)        if the second layer is trained

Every method follows from g and the fields: the step itself in d dimensions (Vectors) or in an orthonormal basis
of the few directions that matter (Chain), its mean (ODE) and its covariance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from twolayer.functions.activation import Activation
from twolayer.functions.target import Target
from twolayer.task.algorithm import SGD
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem

__all__ = ["Kernel", "Products", "Push", "Rates", "Sample", "kernel_of", "move", "move_second"]


class Sample(NamedTuple):
    """Fields and label noise of a batch: λ (n, p), λ* (n, k), √Δ ξ (n,)."""

    student: Float[Array, "n p"]
    target: Float[Array, "n k"]
    noise: Float[Array, " n"]


class Rates(NamedTuple):
    """The numbers of one step: lr/p, the shrinking factor 1 − lr·λ, the momentum β and √Δ."""

    step: Any
    shrink: Any
    momentum: Any
    noise: Any


class Push(NamedTuple):
    """What a batch does to the two layers, sample by sample: g (n, p) and e σ(λ) (n, p)."""

    first: Float[Array, "n p"]
    second: Float[Array, "n p"]


@dataclass(frozen=True)
class Kernel:
    """g as a function of the fields; hashable, so that compiled code can be shared between runs."""

    activation: Activation
    target: Target
    loss: Loss
    geometry: str = "free"
    trained: bool = False

    def output(self, fields: Float[Array, "*n p"], a: Float[Array, "*n p"]) -> Float[Array, "*n"]:
        """F = (1/p) Σ_j a_j σ(λ_j). Cost O(p)."""
        return (a * self.activation(fields)).sum(-1) / fields.shape[-1]

    def push(self, sample: Sample, a: Float[Array, " p"]) -> Push:
        """G and e σ(λ) of every sample in the batch. Cost O(n p)."""
        sigma = self.activation(sample.student)
        f = (a * sigma).sum(-1) / a.shape[-1]
        e = self.loss.residual(self.target(sample.target) + sample.noise, f)[..., None]
        return Push(a * self.activation.slope(sample.student) * e, sigma * e)


class Products(NamedTuple):
    """Inner products of each row w with itself, w with ḡ and ḡ with itself, where they are known beforehand."""

    ww: Float[Array, " p"]
    wg: Float[Array, " p"]
    gg: Float[Array, " p"]


def kernel_of(problem: Problem, algorithm: SGD) -> Kernel:
    """The increment kernel of a problem and an algorithm."""
    return Kernel(problem.activation, problem.target, algorithm.loss, algorithm.geometry, algorithm.train_second_layer)


def move(
    W: Float[Array, "p n"],
    gradient: Float[Array, "p n"],
    previous: Float[Array, "p n"] | None,
    rates: Rates,
    geometry: str,
    products: Products | None = None,
) -> tuple[Float[Array, "p n"], Float[Array, " p"]]:
    """One step of the first layer, rows in any orthonormal coordinates. Cost O(p n).

    ``gradient`` is ḡ; ``previous`` holds the rows one step earlier, or None without momentum. Returns the new rows
    and their squared norms: 1 on the sphere, however long the step was, and infinite where there is no direction to
    normalise. With ``products`` (and no momentum) the norms follow from them, which saves reading the rows twice.
    """
    keep = rates.shrink
    if geometry == "spherical":
        ww, wg = (products.ww, products.wg) if products else ((W * W).sum(-1), (W * gradient).sum(-1))
        keep = (keep - rates.step * wg / ww)[:, None]
    new = keep * W + rates.step * gradient
    if previous is not None:
        new = new + rates.momentum * (W - previous)
    if products is not None and previous is None:
        row = keep[:, 0] if geometry == "spherical" else keep
        square = row**2 * products.ww + 2 * row * rates.step * products.wg + rates.step**2 * products.gg
    else:
        square = (new * new).sum(-1)
    if geometry == "free":
        return new, square
    return new / jnp.sqrt(square)[..., None], jnp.where((square > 0) & jnp.isfinite(square), 1.0, jnp.inf)


def move_second(a: Any, push: Any, previous: Any, rates: Rates) -> Any:
    """One step of the second layer; ``push`` is the batch mean of e σ(λ)."""
    return a + rates.step * push + rates.momentum * (a - previous)
