"""Inputs with blocks: the fields see one sum of Gram matrices, and every block moves by
its own share of the push.

    Ω = Σ_i s_i Ω⁽ⁱ⁾,    E[g x⁽ⁱ⁾ᵀ] = s_i H U⁽ⁱ⁾,    H = E[∂g/∂u] = (H_λ, H_*),
        U = (W; W*)
    dM⁽ⁱ⁾/dt = f s_i (H_λ M⁽ⁱ⁾ + H_* P⁽ⁱ⁾) − Nλf M⁽ⁱ⁾
    dQ⁽ⁱ⁾/dt = f s_i (H_λ Q⁽ⁱ⁾ + H_* M⁽ⁱ⁾ᵀ) + (…)ᵀ − 2Nλf Q⁽ⁱ⁾
        + f² (γ/(N n_b)) s_i (d_i/d) chi
    projected, spherical:
        norms are Euclidean, Σ_i Q⁽ⁱ⁾_jj, so that blocks exchange weight

Labels, errors and averages know Ω alone: whatever gaussian/ computes stays as it is. H
is what an engine calls the mean gradient as a combination of the rows, and no Gram
matrix is inverted.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Expectations, Gradient
from twolayer.equations.optimiser_step import Form, Limit, tangent_part
from twolayer.equations.state import Overlap
from twolayer.numerics.types import Number, Numbers, Real
from twolayer.task.inputs import Inputs

__all__ = ["Blocks", "block_motion", "blocks_of", "field_overlaps", "pulls"]


class Blocks(NamedTuple):
    """Variances s_i (b,), shares d_i/d (b,), and P⁽ⁱ⁾ (b, k, k)."""

    variance: Real
    share: Real
    P: np.ndarray

    def fields(self, y: Overlap) -> Overlap:
        """Overlaps of the fields, from those in blocks with any leading axes."""
        return Overlap(
            field_overlaps(self.variance, y.Q), field_overlaps(self.variance, y.M), y.a
        )


def blocks_of(inputs: Inputs, P: Number, dim: int | None = None) -> Blocks:
    """The blocks of inputs, as d → ∞ or at a dimension.

    Examples
    --------
    >>> blocks_of(
    ...     Inputs.blocks([2.0, 0.5], [0.25, 0.75]), np.ones((2, 1, 1)), dim=10
    ... ).share.tolist()
    [0.3, 0.7]
    """
    share = inputs.fractions if dim is None else np.asarray(inputs.sizes(dim)) / dim
    return Blocks(np.asarray(inputs.variances), np.asarray(share), np.asarray(P))


def field_overlaps(variance: Real, x: Real) -> Real:
    """Σ_i s_i x⁽ⁱ⁾ of arrays (…, b, m, n)."""
    return (variance[:, None, None] * x).sum(-3)


def pulls(blocks: Blocks, y: Overlap, gradient: Gradient) -> tuple[Numbers, Numbers]:
    """s_i (H_λ M⁽ⁱ⁾ + H_* P⁽ⁱ⁾) and s_i (H_λ Q⁽ⁱ⁾ + H_* M⁽ⁱ⁾ᵀ). Cost O(b p² (p +
    k)).
    """
    s = blocks.variance[:, None, None]
    star = s * (gradient.own @ y.M + gradient.star @ blocks.P)
    return star, s * (gradient.own @ y.Q + gradient.star @ y.M.swapaxes(-1, -2))


def block_motion(
    form: Form,
    limit: Limit,
    blocks: Blocks,
    y: Overlap,
    average: Expectations,
    gradient: Gradient,
    noisy: bool = True,
) -> Overlap:
    """dy/dt of overlaps in blocks from the averages at their fields."""
    Q = (y.Q + y.Q.swapaxes(-1, -2)) / 2
    star, own = pulls(blocks, Overlap(Q, y.M, y.a), gradient)
    dM = limit.flow * star - limit.decay * y.M
    dQ = limit.flow * (own + own.swapaxes(-1, -2)) - 2 * limit.decay * Q
    if noisy:
        chi = (average.chi + average.chi.T) / 2
        dQ = dQ + limit.noise * (blocks.variance * blocks.share)[:, None, None] * chi
    if limit.jitter is not None:  # noise on the steps is the same in every direction
        dQ = dQ + limit.jitter * blocks.share[:, None, None] * jnp.eye(Q.shape[-1])
    da = limit.second * average.second if form.trained else jnp.zeros_like(y.a)
    if form.normalises:
        dQ, dM = tangent_part(Q, y.M, dQ, dM)
    return Overlap(dQ, dM, da)
