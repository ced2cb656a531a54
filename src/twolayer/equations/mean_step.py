"""The mean of one step, iterated: a deterministic map of the overlaps.

    M' = s M + η psi,    η = lr/p,  s = 1 − lr·λ
    Q' = s² Q + s η (phi + phiᵀ) + η² [ (d/n_b) chi + (chi₂ − (p+k) chi)/n_b + (1
        − 1/n_b) v Ω⁺ vᵀ ],    v = (phi, psi)

v Ω⁺ vᵀ is what pairs of different samples give: E[g_j z]·E[g_l z]. chi₂ = E[g gᵀ
uᵀΩ⁺u], u = (λ, λ*), is the part of ‖z‖² that is correlated with the fields. Spherical:
s_j → s_j − η phi_jj/Q_jj, and each sample's gradient is tangent in chi₂. Projected and
spherical: rows are then divided by the square root of their mean Q'_jj, with the
second-order terms of the ratio,

    E[M'/√Q'] = M̄ (1 + ⅜ Var Q') − ½ Cov(M', Q')
        in units where the mean norm is one.

With momentum the rows of the step before are carried along: W' = (s + β) W − β
W_previous + η ḡ. Nesterov's gradients are taken at the overlaps of Y = (1 + β) W − β
W_previous, whose rows have the place of W in T.

Everything is written as W' = T (W, W_previous, W*) + noise, with D = v Ω⁺ = E[∂g/∂u] in
T and the Gram matrix of the noise added, so Q' is positive for every Ω, singular or
not. Fluctuations follow the linearised map, S' = J S Jᵀ + noise of one step.

Cost per step: the averages, O((p + k)³), with the terms of a finite dimension parts ·
p² (p + k), and with fluctuations 2F steps on 2¹³ points and parts · F², F = p k + p (p
+ 1)/2.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Engine
from twolayer.equations.optimiser_step import (
    Coefficients,
    Form,
    ahead,
    combine,
    second_layer,
    tangent,
)
from twolayer.equations.state import Overlap, pack, unpack
from twolayer.numerics.types import Cross, Gram, Layer, Number, Numbers, Real, Scalar
from twolayer.task.schedule_factors import Clock, Tempo

if TYPE_CHECKING:
    from twolayer.gaussian.step_fluctuations import StepSamples

__all__ = ["MeanStep", "Rows", "Terms", "Weights"]

DIFFERENCE = 1e-4  # of the central differences of the linearised map


class Terms(NamedTuple):
    """Which terms beyond the averages are wanted: finite dimension, means of ratios,
    fluctuations.
    """

    finite: bool = False
    ratio: bool = False
    band: bool = False


class Rows(NamedTuple):
    """Gram matrix of the rows (W, and W_previous with momentum), their overlaps with
    W*, the second layer(s).

    ``spread`` is d times the covariance of the packed (M, Q, a), if it is followed;
    ``clock`` goes with schedules.
    """

    gram: Numbers
    star: Numbers
    a: Layer
    spread: Any = None
    clock: Clock | None = None


class Step(NamedTuple):
    """A step of the means: new rows, T·(Gram matrix of all rows), T, chi, 1/norms, and
    what the nodes saw.
    """

    rows: Any
    with_all: Any
    T: Numbers
    chi: Numbers
    scale: Numbers
    seen: Any


class Weights(NamedTuple):
    """The weights d/n_b of chi and 1/n_b of single samples, whether pairs count,
    and Δ.
    """

    norm: Number
    single: Number
    pairs: Number
    noise: Scalar


class MeanStep(eqx.Module):
    """y ← the mean of y after one step."""

    engine: Engine
    rates: Coefficients
    weights: Weights
    P: np.ndarray
    form: Form = eqx.field(static=True)
    terms: Terms = eqx.field(static=True)
    samples: StepSamples | None
    light: Engine | None  # averages good enough for the linearised map
    tempo: Tempo | None = None

    def overlaps(self, y: Rows) -> Overlap:
        """Overlaps of the present rows."""
        p = y.a.shape[-1] // self.form.copies
        return Overlap(y.gram[..., :p, :p], y.star[..., :p, :], y.a[..., :p])

    def norms(self, y: Rows) -> Real:
        """Squared norms of the present rows."""
        return jnp.diagonal(self.overlaps(y).Q)

    def __call__(self, y: Rows) -> Rows:
        """One step."""
        if self.tempo is not None:
            return self._scheduled(y)
        step = self.mean(y, self.engine)
        return (
            step.rows
            if y.spread is None
            else step.rows._replace(spread=self._spread(y, step))
        )

    def _scheduled(self, y: Rows) -> Rows:
        """One step with the rates and the batch at the clocks before it."""
        assert y.clock is not None and self.tempo is not None
        f, n = self.tempo(y.clock)
        # what follows is compiled as if these were numbers from outside: a factor of
        # one changes no bit
        numbers = (
            self.rates.step * f,
            self.rates.decay * f,
            self.rates.second * f,
            self.tempo.count / n,
        )
        step, decay, second, fewer = jax.lax.optimization_barrier(numbers)  # type: ignore[no-untyped-call]
        rates = self.rates._replace(step=step, decay=decay, second=second)
        weights = self.weights._replace(
            norm=self.weights.norm * fewer, single=self.weights.single * fewer
        )
        new = dataclasses.replace(self, rates=rates, weights=weights, tempo=None)(y)
        return new._replace(
            clock=Clock(y.clock.step + 1, y.clock.time + rates.step, y.clock.sample + n)
        )

    def aimed(self, y: Rows) -> tuple[Overlap, Real]:
        """Overlaps at which gradients are taken, and their rows as combinations of
        those carried.
        """
        now = self.overlaps(y)
        p = len(now.Q)
        own: Real = jnp.eye(p, len(y.gram))
        if not self.form.nesterov:
            return now, own
        own = ahead(self.rates, own, jnp.eye(p, len(y.gram), p))
        return (
            Overlap(
                own @ y.gram @ own.T, own @ y.star, ahead(self.rates, y.a[:p], y.a[p:])
            ),
            own,
        )

    def mean(self, y: Rows, engine: Engine) -> Step:
        """One step of the means, with the averages of an engine."""
        (now, rows), form, weights, eta = (
            self.aimed(y),
            self.form,
            self.weights,
            self.rates.step,
        )
        Q, M, a = now
        p = len(Q)
        average, gradient = (
            engine(Q, M, a, weights.noise),
            engine.gradient(Q, M, a, weights.noise),
        )
        v, D = (
            jnp.concatenate([average.phi, average.psi], axis=1),
            jnp.concatenate([gradient.own, gradient.star], axis=1),
        )
        normal = jnp.diagonal(average.phi) / jnp.diagonal(Q) if form.tangent else None

        # T over (W, W_previous, W*): the step of the coefficients of the rows
        own = jnp.concatenate([rows, jnp.zeros((p, len(self.P)))], axis=1)
        before = (
            jnp.eye(p, own.shape[1], p) if form.carries and not form.nesterov else None
        )
        push = jnp.concatenate([D[:, :p] @ rows, D[:, p:]], axis=1)
        T = combine(self.rates, own, push, before, normal)
        with_all = T @ jnp.block([[y.gram, y.star], [y.star.T, self.P]])

        # pairs of samples, tangent where gradients are, and from each sample alone the
        # random part
        pairs = v @ D.T
        if normal is not None:
            cross = normal[:, None] * average.phi.T
            pairs = pairs - cross - cross.T + normal[:, None] * normal * Q
        extra = (
            weights.norm * average.chi
            - jnp.where(weights.pairs, weights.single, 1.0) * pairs
        )
        seen = None if self.samples is None else self.samples.parts(now, weights.noise)
        if self.terms.finite:
            assert self.samples is not None and seen is not None
            extra = extra + weights.single * self.samples.finite_dimension(now, seen)
        new_Q = with_all @ T.T + eta**2 * (extra + extra.T) / 2
        new_Q = (new_Q + new_Q.T) / 2

        scale = jnp.diagonal(new_Q) ** -0.5 if form.normalises else jnp.ones(p)
        step = Step(None, with_all, T, average.chi, scale, seen)
        Q_next, M_next = (
            new_Q * scale[:, None] * scale,
            with_all[:, len(y.a) :] * scale[:, None],
        )
        if self.terms.ratio:
            Q_next, M_next = self._ratio(now, step, Q_next, M_next)
        a_next = second_layer(
            form, self.rates, a, average.second, None if before is None else y.a[p:]
        )
        if not form.carries:
            return step._replace(rows=Rows(Q_next, M_next, a_next))
        side, last = with_all[:, :p] * scale[:, None], self.overlaps(y)
        gram = jnp.block([[Q_next, side], [side.T, last.Q]])
        return step._replace(
            rows=Rows(
                gram,
                jnp.concatenate([M_next, last.M]),
                jnp.concatenate([a_next, last.a]),
            )
        )

    def around(self, now: Overlap, step: Step) -> tuple[Any, ...]:
        """Arguments of the covariances: the mean new rows, their overlaps with W, η
        d/n_b, χ and Γ.
        """
        assert self.samples is not None
        p, eta = len(now.Q), self.rates.step
        rho = step.T @ jnp.concatenate(self.samples.rows(now))
        norm = self.weights.norm
        gamma = eta**2 * norm * step.chi / 2
        return now, step.seen, rho, step.with_all[:, :p].T, eta * norm, step.chi, gamma

    def _ratio(
        self, now: Overlap, step: Step, Q: Gram, M: Cross
    ) -> tuple[Numbers, Numbers]:
        """Means of the ratios M'/√Q' and Q'_jl/√(Q'_jj Q'_ll) to second order."""
        assert self.samples is not None
        s, size = step.scale, self.rates.step**2 * self.weights.single
        own = self.samples.own_covariance(*self.around(now, step))
        M_own, Q_own = (
            own.M * size * s[:, None] ** 3,
            own.Q * size * s[:, None] ** 3 * s,
        )
        norms = own.norms * size * s[:, None] ** 2 * s**2
        v = 3 / 8 * jnp.diagonal(norms)
        return (
            Q * (1 + v[:, None] + v + norms / 4) - (Q_own + Q_own.T) / 2,
            M * (1 + v[:, None]) - M_own / 2,
        )

    def _spread(self, y: Rows, step: Step) -> Numbers:
        """Covariance of the packed (M, Q, a) after the step, in units of 1/d."""
        assert self.samples is not None and self.light is not None
        now, engine, trained = self.overlaps(y), self.light, self.form.trained
        p, k = now.M.shape
        x, height = pack(*now, trained), jnp.eye(y.spread.shape[0]) * DIFFERENCE

        def after(x: Numbers) -> Numbers:
            Q, M, a = unpack(x, p, k, trained)
            return pack(
                *self.overlaps(
                    self.mean(Rows(Q, M, a if trained else y.a), engine).rows
                ),
                trained,
            )

        slopes = jax.lax.map(
            lambda h: (after(x + h) - after(x - h)) / (2 * DIFFERENCE), height
        )
        kick = (
            self.samples.covariance(trained, *self.around(now, step))
            * self.rates.step**2
            * self.weights.norm
        )
        if self.form.normalises:
            s = step.scale
            units = pack(
                s[:, None] * s,
                jnp.broadcast_to(s[:, None], (p, k)),
                jnp.ones(p),
                trained,
            )
            normalise = tangent(*self.overlaps(step.rows)[:2], trained) * units
            kick = normalise @ kick @ normalise.T
        return slopes.T @ y.spread @ slopes + kick
