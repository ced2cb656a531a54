"""The mean of one step where inputs have blocks, iterated.

    M⁽ⁱ⁾' = κ M⁽ⁱ⁾ + η R_*⁽ⁱ⁾,    R⁽ⁱ⁾ = s_i H Ω⁽ⁱ⁾ = (R_λ⁽ⁱ⁾, R_*⁽ⁱ⁾),    κ = 1 − lr·λ
    Q⁽ⁱ⁾' = κ² Q⁽ⁱ⁾ + κ η (R_λ⁽ⁱ⁾ + R_λ⁽ⁱ⁾ᵀ) + η² [ E[g gᵀ |x⁽ⁱ⁾|²]/n_b + (1
        − 1/n_b) s_i² H Ω⁽ⁱ⁾ Hᵀ ]
    E[g gᵀ |x⁽ⁱ⁾|²] = s_i d_i chi + s_i² E[g gᵀ (uᵀ Ω⁺ Ω⁽ⁱ⁾ Ω⁺ u − tr Ω⁺ Ω⁽ⁱ⁾)]

The last term is of order one: it is what |x⁽ⁱ⁾|² has to do with the fields. In
coordinates u = Λ ξ it is the quadratic form ξᵀ Λ⁺ Ω⁽ⁱ⁾ Λ⁺ᵀ ξ, never larger than ξ²/s_i.
Spherical: s_i H U⁽ⁱ⁾ loses c_j w_j⁽ⁱ⁾, c_j = phi_jj/|w_j|². Projected and spherical:
rows are divided by the root of their mean squared norm over all blocks. Free steps are
exact, the others up to terms of order 1/d of that of chi.

Cost per step: the averages, O(b p² (p + k)), and parts · b p² (p + k) for the terms of
a finite dimension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

from twolayer.equations.averages import Engine
from twolayer.equations.blocks import Blocks, pulls
from twolayer.equations.mean_step import MeanStep, Rows, Step
from twolayer.equations.optimiser_step import second_layer
from twolayer.equations.state import Overlap
from twolayer.numerics.types import Number, Numbers, Real

if TYPE_CHECKING:
    from twolayer.gaussian.sample_parts import Parts

__all__ = ["BlockMeanStep", "whitened"]

CUT = 1e-7  # directions of Ω below this fraction of the largest are rounding


def whitened(blocks: Blocks, y: Overlap, fields: Numbers) -> tuple[Numbers, Numbers]:
    """Λ⁺ (n, p + k), where ``fields`` are Λ ξ, and Ω⁽ⁱ⁾ (b, p + k, p + k)."""
    inverse = jnp.linalg.pinv(fields, rtol=CUT)
    top = jnp.concatenate([y.Q, y.M], axis=2)
    return inverse, jnp.concatenate(
        [top, jnp.concatenate([y.M.swapaxes(1, 2), blocks.P], axis=2)], axis=1
    )


class BlockMeanStep(MeanStep):
    """y ← the mean of y after one step; the rows of y have an axis of blocks before the
    last two.
    """

    blocks: Blocks | None = None

    @property
    def several(self) -> Blocks:
        """The blocks."""
        assert self.blocks is not None
        return self.blocks

    def overlaps(self, y: Rows) -> Overlap:
        """Overlaps of the fields."""
        return self.several.fields(Overlap(y.gram, y.star, y.a))

    def norms(self, y: Rows) -> Real:
        """Squared norms of the rows."""
        return jnp.diagonal(y.gram.sum(0))

    def mean(self, y: Rows, engine: Engine) -> Step:
        """One step of the means, with the averages of an engine."""
        blocks, form, weights, eta = (
            self.several,
            self.form,
            self.weights,
            self.rates.step,
        )
        now, here = self.overlaps(y), Overlap(y.gram, y.star, y.a)
        at = ((now.Q + now.Q.T) / 2, now.M, now.a, weights.noise)
        average, gradient = engine(*at), engine.gradient(*at)
        star, own = pulls(blocks, here, gradient)
        s = blocks.variance[:, None, None]
        pairs = s * (own @ gradient.own.T + star @ gradient.star.T)  # s_i² H Ω⁽ⁱ⁾ Hᵀ
        if form.tangent:
            c = (jnp.diagonal(average.phi) / self.norms(y))[:, None]
            cross = own * c.T  # c_l (G⁽ⁱ⁾ w_l⁽ⁱ⁾)_j
            pairs = pairs - cross - cross.swapaxes(1, 2) + c * c.T * here.Q
            star, own = star - c * here.M, own - c * here.Q
        keep = self.rates.shrink
        extra = weights.norm * (s * blocks.share[:, None, None]) * average.chi
        extra = extra + jnp.where(weights.pairs, 1.0 - weights.single, 0.0) * pairs
        seen = None if self.samples is None else self.samples.parts(now, weights.noise)
        if self.terms.finite:
            extra = extra + weights.single * self._lengths(here, now, seen)
        cross = keep * eta * own
        new_Q = keep**2 * here.Q + cross + cross.swapaxes(1, 2) + eta**2 * extra
        new_Q = (new_Q + new_Q.swapaxes(1, 2)) / 2
        new_M = keep * here.M + eta * star
        scale = (
            jnp.diagonal(new_Q.sum(0)) ** -0.5
            if form.normalises
            else jnp.ones(len(y.a))
        )
        a = second_layer(form, self.rates, now.a, average.second)
        rows = Rows(new_Q * scale[:, None] * scale, new_M * scale[:, None], a)
        return Step(rows, None, jnp.zeros(()), average.chi, scale, seen)

    def _lengths(self, y: Overlap, fields: Overlap, at: Parts | None) -> Numbers:
        """s_i² E[g gᵀ (uᵀ Ω⁺ Ω⁽ⁱ⁾ Ω⁺ u − tr Ω⁺ Ω⁽ⁱ⁾)], (b, p, p)."""
        assert self.samples is not None and at is not None
        rows = jnp.concatenate(self.samples.rows(fields))
        inverse, omega = whitened(self.several, y, rows)
        form = inverse @ omega @ inverse.T
        trace = jnp.trace(form, axis1=1, axis2=2)[:, None, None]
        weights, pull = at.pulls()
        weighted = jnp.einsum("v,vja,iab->vijb", weights, pull, form)
        length = jnp.einsum("vijb,vlb->ijl", weighted, pull) - trace * at.mean.pair
        return self.several.variance[:, None, None] ** 2 * length

    def fluctuation(self, y: Rows, loudest: Number) -> Numbers:
        """Standard deviation of the squared norms after a step, relative to them: 2η g
        λ + η² |x|² g²/n_b of a sample.

        ``loudest`` is the largest f²/b of a schedule.
        """
        assert self.samples is not None
        now = self.overlaps(y)
        rows, at = self.samples.rows(now), self.samples.parts(now, self.weights.noise)
        trace = (self.several.variance * self.several.share).sum()
        eta = self.rates.step * jnp.sqrt(loudest)
        square = jnp.diagonal(at.pair, axis1=1, axis2=2)
        X = 2 * eta * jnp.einsum("vja,ja->vj", at.pull, rows.own)
        X = X + eta**2 * self.weights.norm * trace * square
        variance = self.weights.single * (at.weights @ X**2)
        step = self.mean(y, self.engine)
        return (
            jnp.sqrt(variance) * step.scale**2
            if self.form.normalises
            else jnp.sqrt(variance) / self.norms(step.rows)
        )
