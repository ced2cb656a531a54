"""The covariance of the increments of overlaps in blocks.

    𝒳_M⁽ⁱ⁾ = g_j λ*_r⁽ⁱ⁾,    𝒳_Q⁽ⁱ⁾ = g_j λ_l⁽ⁱ⁾ + g_l λ_j⁽ⁱ⁾ + ρ s_i (d_i/d) g_j g_l,
        𝒳_a = e σ(λ_j)
    ρ = lr d/(p n_b)
    fields of a block  u⁽ⁱ⁾ = U⁽ⁱ⁾ x⁽ⁱ⁾,   u = Σ_i u⁽ⁱ⁾:    E[u⁽ⁱ⁾|u] = s_i Ω⁽ⁱ⁾ Ω⁺ u
    Cov(u⁽ⁱ⁾, u⁽ˡ⁾|u) = δ_il s_i Ω⁽ⁱ⁾ − s_i s_l Ω⁽ⁱ⁾ Ω⁺ Ω⁽ˡ⁾

g is a function of u alone, so Cov 𝒳 is that of the conditional means, which are linear
in what one sample does (single_samples.py), and E[g gᵀ] times the conditional
covariances. Different blocks are correlated.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from twolayer.equations.blocks import Blocks
from twolayer.equations.mean_step_in_blocks import whitened
from twolayer.equations.optimiser_step import tangent_part
from twolayer.equations.state import Overlap, pack, size_of, unpack
from twolayer.gaussian.sample_parts import covariance
from twolayer.gaussian.single_samples import Choice, TaskSamples
from twolayer.numerics.types import Number, Numbers, Real, Scalar
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem

__all__ = [
    "BlockSpread",
    "block_spread_of",
    "pack_blocks",
    "tangent_in_blocks",
    "unpack_blocks",
]


def pack_blocks(Q: Real, M: Real, a: Number, trained: bool) -> Numbers:
    """(M⁽ⁱ⁾, upper triangle of Q⁽ⁱ⁾ of each block, and a if it is trained) in one
    vector (…, F).
    """
    lead = M.shape[:-3]
    each = pack(Q, M, jnp.zeros((*M.shape[:-1],)), False).reshape(*lead, -1)
    return jnp.concatenate([each, a], axis=-1) if trained else each


def unpack_blocks(x: Numbers, b: int, p: int, k: int, trained: bool) -> Overlap:
    """Overlaps in blocks of a packed vector (F,); a is zero if it is not trained."""
    size = size_of(p, k)
    Q, M, _ = jax.vmap(lambda one: unpack(one, p, k, False))(
        x[: b * size].reshape(b, size)
    )
    return Overlap(Q, M, x[b * size :] if trained else jnp.zeros(p))


def tangent_in_blocks(y: Overlap, trained: bool) -> Numbers:
    """What normalising the rows does to small increments of packed overlaps in
    blocks.
    """
    b, p, k = y.M.shape

    def project(x: Numbers) -> Numbers:
        change = unpack_blocks(x, b, p, k, trained)
        return pack_blocks(
            *tangent_part(y.Q, y.M, change.Q, change.M), change.a, trained
        )

    return jax.vmap(project, out_axes=1)(jnp.eye(b * size_of(p, k) + p * trained))


class BlockSpread(TaskSamples):
    """Overlaps in blocks → Σ (F, F) of one sample. Cost O(parts · F²)."""

    trained: bool = eqx.field(static=True)

    def __call__(
        self, blocks: Blocks, y: Overlap, noise: Scalar, rho: Numbers
    ) -> Numbers:
        """Σ at one point."""
        b, p, k = y.M.shape
        fields = blocks.fields(y)
        at = self.parts(fields, noise)
        inverse, omega = whitened(blocks, y, jnp.concatenate(self.rows(fields)))
        s = blocks.variance[:, None, None]
        mean = s * (omega @ inverse.T)  # of u⁽ⁱ⁾ given ξ
        pulled = jnp.einsum("njx,iax->nija", at.pull, mean)
        mixed = pulled[..., :p]
        weight = rho * (blocks.variance * blocks.share)[:, None, None]
        X = pack_blocks(
            mixed + mixed.swapaxes(2, 3) + weight * at.pair[:, None],
            pulled[..., p:],
            at.second,
            self.trained,
        )
        rest = -jnp.einsum("iax,lbx->ialb", mean, mean)
        rest = rest + jnp.einsum("il,iab->ialb", jnp.eye(b), s * omega)

        def packed(Y: Real) -> Numbers:
            """Of g_j u_a⁽ⁱ⁾, as an array (i, j, a)."""
            own = Y[:, :, :p]
            return pack_blocks(
                own + own.swapaxes(1, 2), Y[:, :, p:], jnp.zeros(p), self.trained
            )

        n = b * p * (p + k)
        J = jax.vmap(lambda e: packed(e.reshape(b, p, p + k)), out_axes=1)(jnp.eye(n))
        extra = jnp.einsum("jm,ialb->ijalmb", at.mean.pair, rest).reshape(n, n)
        return covariance(at.weights, X) + J @ extra @ J.T


def block_spread_of(
    problem: Problem, algorithm: SGD, choice: Choice | None = None
) -> BlockSpread:
    """The rule for Σ in blocks, on nodes that were chosen before or on its own.

    Examples
    --------
    >>> block_spread_of(Problem("He2(z1)", "He2"), SGD(lr="0.1/d")).label
    'closed form (Wick)'
    """
    trained = algorithm.train_second_layer
    return BlockSpread.build(problem, algorithm, choice, trained=trained)
