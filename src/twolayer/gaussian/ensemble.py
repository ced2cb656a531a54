"""Averages over an ensemble of particles: what each neuron of a very wide network
feels.

    λ = A·ξ + s g,   λ* = L ξ,   s = √q,   ξ ~ N(0, I_r) shared,
        corr(g, g') = c, averaged over directions on a sphere
    dA = a E[σ'(λ) ξ e],    ds = a E[σ'(λ) g e],    da = E[σ(λ) e],
        e = h(λ*) − ∫ a' σ(λ') dμ'

In the shared fields alone the ensemble is a few functions on R^r. With α_n = E[σ(A·ξ +
s g) h_n(g) | ξ] and c_n = E[cⁿ] (zero for odd n; c_n → 0 for n > 0 as d → ∞)

    E[σ(λ) σ(λ') | ξ] = Σ_n c_n α_n(ξ) α'_n(ξ)     ⇒     F_n(ξ) = ∫ a α_n(ξ) dμ
        carries the whole interaction

As d → ∞ the output is F_0(ξ), without fluctuations, and e any residual of label and
output. Cost O(particles · nodes · orders) by nodes over ξ; O(particles) for quadratic
tasks; O(particles²) by pairs.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.gaussian.targets import RidgeTarget
from twolayer.gaussian.two_point import Forms
from twolayer.numerics.types import Layer, Numbers, Tree
from twolayer.task.losses import LossFunction

__all__ = [
    "Cloud",
    "Ensemble",
    "NodeEnsemble",
    "PairEnsemble",
    "QuadraticEnsemble",
    "Velocity",
]

BLOCK = 2**16  # particles × nodes that are looked at together: they stay in cache


class Cloud(NamedTuple):
    """Particles inside compiled code: A (n, r), s (n,), a (n,) and their weights
    (n,).
    """

    A: Numbers
    s: Numbers
    a: Layer
    weights: Numbers


class Velocity(NamedTuple):
    """dA, ds, da and the excess risk of the ensemble."""

    A: Numbers
    s: Numbers
    a: Layer
    excess_risk: Numbers


class Ensemble(eqx.Module):
    """Cloud → Velocity. ``student`` is 1 for the squared loss, 0 for the correlation
    loss.
    """

    @abc.abstractmethod
    def __call__(self, cloud: Cloud) -> Velocity:
        """The rates of all particles, inside compiled code."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Which rule is used, for reports."""


class QuadraticEnsemble(Ensemble):
    """σ = x²·scale + shift against ξᵀHξ + h0: closes on ∫aAAᵀ and ∫as². Cost
    O(particles·r²).
    """

    student: float = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    shift: float = eqx.field(static=True)
    h0: float = eqx.field(static=True)
    own: bool = eqx.field(static=True)
    H: np.ndarray
    second: np.ndarray  # c_2, data of the compiled code: one for all dimensions
    label: ClassVar[str] = "closed form (quadratic)"

    def __call__(self, cloud: Cloud) -> Velocity:
        """The rates of all particles."""
        A, s, a, weights = cloud
        u, c2, scale = weights * a, jnp.asarray(self.second)[0], self.scale
        S, T = (A * u[:, None]).T @ A, u @ s**2

        def mean_and_form(student: float) -> tuple[Numbers, Numbers]:
            """E[e], and e = ξᵀ B ξ + … in the shared fields."""
            B = self.H - student * scale * S
            return (
                jnp.trace(B) + self.h0 - student * (scale * T + self.shift * u.sum()),
                B,
            )

        mean, B = mean_and_form(self.student)
        AB, across = A @ B, self.student * scale * c2 * T
        dA = 2 * scale * a[:, None] * (mean * A + 2 * AB)
        ds = 2 * scale * a * s * (mean - 2 * across)
        norm = (A**2).sum(1) + s**2
        da = (
            scale * (norm * mean + 2 * (AB * A).sum(1) - 2 * s**2 * across)
            + self.shift * mean
        )
        risk_mean, risk_form = mean_and_form(1.0)
        risk = (risk_mean**2 + 2 * (risk_form**2).sum() + 2 * (scale * T) ** 2 * c2) / 2
        if (
            self.own
        ):  # the neuron's own term: corr = 1 instead of the mean over directions
            inside = norm - s**2
            push = self.student * 2 * scale**2 * u
            dA = dA - (push * a * 2 * s**2)[:, None] * A
            ds = ds - push * a * 2 * s * (norm - c2 * s**2)
            extra = scale**2 * 2 * (norm**2 - inside**2 - c2 * s**4)
            da = da - self.student * u * extra
            risk = risk + (u**2 * extra).sum() / 2
        return Velocity(dA, ds, da, risk)


class NodeEnsemble(Ensemble):
    """Any activation and target, at nodes of ξ; ``moments`` are c_0, c_2, c_4, …

    ``beyond`` is E[·²] of a part of the target that is orthogonal to everything that
    the student can say. ``residual`` (h, f) → e is that of a loss that is not linear,
    whose labels are ``keep``·h in the mean.
    """

    forms: Forms = eqx.field(static=True)
    student: float = eqx.field(static=True)
    own: bool = eqx.field(static=True)
    rule: str = eqx.field(static=True)
    residual: LossFunction | None = eqx.field(static=True)
    keep: float = eqx.field(static=True)
    xi: np.ndarray
    weights: np.ndarray
    h: np.ndarray
    beyond: np.ndarray
    moments: np.ndarray

    @property
    def label(self) -> str:
        """Which rule is used."""
        inner = (
            f"closed form ({self.forms.name})" if self.forms.closed else "quadrature"
        )
        orders = (
            f", {len(self.moments)} orders of the correlation"
            if len(self.moments) > 1
            else ""
        )
        return f"{inner} at nodes of the target fields: {self.rule}{orders}"

    def _rungs(self, A: Numbers, s: Numbers) -> tuple[Numbers, Numbers]:
        """α_n for even n (orders, particles, nodes), and E[σ' h_n | ξ] for all n up to
        one more.
        """
        top = 2 * (len(self.moments) - 1)
        width = jnp.abs(s)[:, None]
        ladder = self.forms.ladder(A @ self.xi.T, width, top + 2)
        return ladder.values(width)[: top + 1 : 2], ladder.slopes

    def __call__(self, cloud: Cloud) -> Velocity:
        """Two passes over the particles: the functions F_n, then what they do to
        each.
        """
        K = len(self.moments)
        n = 2 * np.arange(K)[:, None, None]
        c = jnp.asarray(self.moments)[:, None]

        size = max(1, BLOCK // (K * len(self.weights)))
        # one block keeps its Hermite coefficients for the second pass; many blocks
        # compute them again
        kept = self._rungs(cloud.A, cloud.s) if len(cloud.s) <= size else None

        def outputs(block: Cloud) -> Numbers:
            alpha, _ = kept or self._rungs(block.A, block.s)
            return jnp.einsum("j,njx->nx", block.weights * block.a, alpha)

        F = _by_blocks(outputs, cloud, size, total=True)
        head = jnp.zeros_like(F).at[0].set(self.h)
        pull = self.weights * (head - self.student * c * F)
        if self.residual is not None:
            pull = (self.weights * self.residual(jnp.asarray(self.h), F[0]))[None]

        def rates(block: Cloud) -> Tree:
            alpha, slopes = kept or self._rungs(block.A, block.s)
            e = pull[:, None, :]
            # without the neuron's own share of F_n; its true own term is added below
            if self.own:
                share = (block.weights * block.a)[:, None] * self.weights
                e = e + self.student * c[:, None] * share * alpha
            even, odd = slopes[: 2 * K - 1 : 2], slopes[1 : 2 * K : 2]
            ds = (e * np.sqrt(n + 1) * odd).sum((0, 2)) + (
                e[1:] * np.sqrt(n[1:]) * odd[:-1]
            ).sum((0, 2))
            square = (
                jnp.einsum("n,njx,x->j", c[:, 0], alpha**2, self.weights)
                if self.own
                else jnp.zeros_like(ds)
            )
            return (
                (e * even).sum(0) @ self.xi,
                ds * jnp.sign(block.s),
                (e * alpha).sum((0, 2)),
                square,
            )

        dA, ds, da, square = _by_blocks(rates, cloud, size)
        u = cloud.weights * cloud.a
        risk = (
            self.weights
            * ((self.keep * self.h - F[0]) ** 2 + (c[1:] * F[1:] ** 2).sum(0))
        ).sum() / 2
        risk = risk + self.beyond / 2
        if self.own:
            norm = (cloud.A**2).sum(1) + cloud.s**2
            pair = self.forms.pair(norm, norm, norm)
            push = self.student * u * (pair.dd + pair.hd)
            dA, ds, da = (
                dA - push[:, None] * cloud.A,
                ds - push * cloud.s,
                da - self.student * u * pair.ff,
            )
            risk = risk + (u**2 * (pair.ff - square)).sum() / 2
        return Velocity(cloud.a[:, None] * dA, cloud.a * ds, da, risk)


class PairEnsemble(Ensemble):
    """Closed pair averages and a ridge target, at nodes of the correlation. Cost
    O(particles²).
    """

    forms: Forms = eqx.field(static=True)
    student: float = eqx.field(static=True)
    own: bool = eqx.field(static=True)
    target: RidgeTarget
    L: np.ndarray
    correlations: np.ndarray
    chances: np.ndarray

    @property
    def label(self) -> str:
        """Which rule is used."""
        return f"closed form ({self.forms.name}) over pairs"

    def __call__(self, cloud: Cloud) -> Velocity:
        """The rates of all particles."""
        A, s, a, weights = cloud
        u = weights * a
        norm = (A**2).sum(1) + s**2

        def at(one: Tree) -> Numbers:
            correlation, chance = one
            pair = self.forms.pair(
                norm[:, None], A @ A.T + correlation * s[:, None] * s, norm[None, :]
            )
            return jnp.stack(
                [chance * x for x in (pair.ff, pair.dd, pair.hd, correlation * pair.dd)]
            )

        ff, dd, hd, tilted = jax.lax.map(
            at, (jnp.asarray(self.correlations), jnp.asarray(self.chances))
        ).sum(0)
        if self.own:
            alone = self.forms.pair(norm, norm, norm)
            i = jnp.arange(len(s))
            ff, dd, hd = (
                x.at[i, i].set(y)
                for x, y in ((ff, alone.ff), (dd, alone.dd), (hd, alone.hd))
            )
            tilted = tilted.at[i, i].set(alone.dd)
        V, target = self.target.V, self.target
        gram = V @ target.P @ V.T
        cross = A @ (V @ self.L).T
        other = target.pair(norm[:, None], cross, jnp.diagonal(gram)[None, :])
        bend = other.hd @ target.c - self.student * hd @ u
        dA = (
            (other.dd * target.c) @ (V @ self.L)
            - self.student * (dd * u) @ A
            + bend[:, None] * A
        )
        ds = bend * s - self.student * (tilted * u) @ s
        value = other.ff @ target.c
        risk = (target.square() - 2 * u @ value + u @ ff @ u) / 2
        return Velocity(
            a[:, None] * dA,
            a * ds,
            value - self.student * ff @ u,
            jnp.maximum(risk, 0.0),
        )


def _by_blocks(
    function: Callable[[Cloud], Numbers], cloud: Cloud, size: int, total: bool = False
) -> Numbers:
    """A function of particles, block by block so that memory stays bounded: rows side
    by side, or their sum.
    """
    n = len(cloud.s)
    if n <= size:
        return function(cloud)
    count = -(-n // size)

    def split(x: Numbers) -> Numbers:
        padded = jnp.concatenate([x, jnp.zeros((count * size - n, *x.shape[1:]))])
        return padded.reshape(count, size, *x.shape[1:])

    blocks = Cloud(*map(split, cloud))
    if total:
        first = jax.eval_shape(function, jax.tree.map(lambda x: x[0], blocks))
        start = jnp.zeros(first.shape, first.dtype)
        return jax.lax.scan(
            lambda sum_, block: (sum_ + function(block), None), start, blocks
        )[0]
    return jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:])[:n], jax.lax.map(function, blocks)
    )
