"""What one sample does where student and target are sums of erf(x/√2): closed, up to
one integral over a line.

    x = (g_j ξ_a, g_j g_l, e σ(λ_j)),    fields u = F ξ with covariance C,
    e = Σ_f c_f σ(u_f) + √Δ ζ,    c = (−s a/N, c*)

Every σ' is a Gaussian, √(2/π) exp(−u²/2), so that it tilts the normal law of ξ and u:

    E[σ'(u_f) …] = √(2/π) (1 + C_ff)^(−1/2) E[…]  at  C − C_{·f} C_{f·}/(1 + C_ff)

What remains of the covariance of x are averages over tilted laws of

    e², ξ_a ξ_b e², ξ_a e³    elementary: Stein's lemma takes every ξ away, and
                              E[σσ] = (2/π) arcsin(…)
    e⁴                        not elementary: four erfs are the orthant of four normals

and with c_f ∂/∂c_f in place of e, those with e σ(λ_j). The last one is taken along the
scale of the covariance, as an integral of elementary averages,

    E[e⁴] = 6 ∫₀¹ dτ Σ_fv c_f c_v C_fv/(1 + τ C_ff) E[σ'(u_f) σ'(u_v) e²]  at  τ C
        + 6 Δ E[e²] + 3 Δ²,    without the noise in e² of the right-hand sides

by Gauss–Legendre in log(1 + κτ), κ the largest variance: its nearest singularity, τ =
−1/κ, then stays at a distance.

Cost: (p⁴/24 nodes + p³/6 m) m⁴/2 arcsines for m fields, or (p³/6) m³ without e⁴.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.increment_kernel import Kernel
from twolayer.functions.normalisation import divisor
from twolayer.gaussian.erf import ErfForms, four_point
from twolayer.gaussian.sample_parts import FieldRows, Parts, SampleMean
from twolayer.gaussian.targets import ridge_target
from twolayer.numerics.special import arcsine, symmetric_root
from twolayer.numerics.types import Layer, Numbers, Real, Scalar

__all__ = ["ErfSamples"]

TWO_OVER_PI = 2 / math.pi
NODES = 20  # of the integral: 1e-12 of E[e⁴] for variances up to a hundred
MOST_TERMS = 2**21  # arcsines beyond which points are cheaper

Law = Real
"""Covariance (n + m, n + m) of ξ and the fields."""


class ErfSamples(eqx.Module):
    """Parts of one sample of a task of erf(x/√2) whose loss is linear in the output."""

    kernel: Kernel = eqx.field(static=True)
    V: np.ndarray
    c: np.ndarray
    both: bool = eqx.field(static=True)
    label: str = eqx.field(static=True, default="closed form (erf)")

    @classmethod
    def of(
        cls, kernel: Kernel, L: np.ndarray, p: int, both: bool = True
    ) -> ErfSamples | None:
        """For a task of p neurons, if student and target are erf and p is small.

        e σ(λ) counts as zero unless ``both`` layers are asked for.
        """
        linear = kernel.loss.student is not None and kernel.rule is None
        own = kernel.activation.family or ("",)
        if own[0] != "erf" or not (linear and kernel.labels.plain):
            return None
        found = ridge_target(kernel.target, kernel.activation, L @ L.T, 1)
        if found is None or not isinstance(found.ridge_forms, ErfForms):
            return None
        fields = p + len(found.c)
        fourth = math.comb(p + 3, 4) * NODES * fields**4 / 2
        if fourth > MOST_TERMS:
            return None
        return cls(kernel, found.V, found.c, both)

    def __call__(self, rows: FieldRows, a: Layer, noise: Scalar) -> Parts:
        """The parts at some rows: columns of the root of the covariance."""
        p, n = rows.own.shape
        s = self.kernel.loss.student
        assert s is not None
        law = jnp.concatenate([jnp.eye(n), rows.own, self.V @ rows.star])
        N = divisor(self.kernel.normalisation, p)
        c = jnp.concatenate([-s * a / N, jnp.asarray(self.c)])
        averages = Tilted(law @ law.T, n, jnp.asarray(a), c, noise)
        mean, second = averages.mean(), averages.second_moments(self.both)
        if not self.both:
            mean = mean._replace(second=jnp.zeros(p))
        j, l = np.triu_indices(p)
        flat = jnp.concatenate([mean.pull.ravel(), mean.pair[j, l], mean.second])
        root = symmetric_root(second - jnp.outer(flat, flat))
        pull, upper, own = jnp.split(root, [p * n, p * n + len(j)], axis=1)
        pair = jnp.zeros((len(root), p, p)).at[:, j, l].set(upper)
        pair = pair.at[:, l, j].set(upper)
        return Parts(jnp.ones(len(root)), pull.reshape(-1, p, n), pair, own, mean)


class Tilted:
    """Averages of products of g, ξ and e σ(λ) under one law of ξ and the fields."""

    def __init__(self, law: Law, n: int, a: Layer, c: Numbers, noise: Scalar) -> None:
        self.law, self.n, self.p = law, n, len(a)
        self.a, self.c, self.noise = a, c, noise

    def by(self, neurons: Numbers) -> tuple[Law, Numbers]:
        """The law tilted by σ' of some neurons, and the average of Π a_j σ'_j."""
        law, weight = self.law, jnp.ones(())
        for j in neurons:
            law, slope = tilt(law, self.n + j)
            weight = weight * slope * self.a[j]
        return law, weight

    def square(self, law: Law, c: Numbers) -> Numbers:
        """E[e²]."""
        return _square(law[self.n :, self.n :], c) + self.noise

    def pulled(self, law: Law, c: Numbers) -> Numbers:
        """E[ξ_a e], (n,)."""
        wide = 1 + jnp.diagonal(law)[self.n :]
        return law[: self.n, self.n :] @ (c * jnp.sqrt(TWO_OVER_PI / wide))

    def pulled_twice(self, law: Law, c: Numbers) -> Numbers:
        """E[ξ_a ξ_b e²], (n, n)."""
        X, C = law[: self.n, self.n :], law[self.n :, self.n :]
        wide = 1 + jnp.diagonal(C)
        slopes = TWO_OVER_PI / jnp.sqrt(wide[:, None] * wide - C**2)
        bend = -(slopes * C / wide[:, None]) @ c
        both = (X * c) @ slopes @ (X * c).T + (X * (c * bend)) @ X.T
        return law[: self.n, : self.n] * self.square(law, c) + 2 * both

    def pulled_cube(self, law: Law, c: Numbers) -> Numbers:
        """E[ξ_a e³], (n,)."""

        def slope(f: Numbers) -> Numbers:
            """E[σ'(u_f) e²]."""
            other, weight = tilt(law, self.n + f)
            return weight * self.square(other, c)

        slopes = jax.vmap(slope)(jnp.arange(len(c)))
        return 3 * law[: self.n, self.n :] @ (c * slopes)

    def fourth(self, law: Law, c: Numbers) -> Numbers:
        """E[e⁴]."""
        C = law[self.n :, self.n :]
        noise = self.noise
        return _fourth(C, c) + 6 * noise * _square(C, c) + 3 * noise**2

    def mean(self) -> SampleMean:
        """E[x]."""

        def pull(j: Numbers) -> Numbers:
            law, weight = self.by(j)
            return weight * self.pulled(law, self.c)

        def pair(jl: Numbers) -> Numbers:
            law, weight = self.by(jl)
            return weight * self.square(law, self.c)

        p = self.p
        second = _products(self.law[self.n :, self.n :]) @ self.c
        return SampleMean(_each(pull, p, 1), _each(pair, p, 2), second[:p])

    def second_moments(self, both: bool) -> Numbers:
        """E[x xᵀ], with the pairs j ≤ l of g_j g_l; without e σ(λ) unless ``both``
        layers are asked for.
        """
        n, p, c = self.n, self.p, self.c
        j, l = np.triu_indices(p)

        def pulls(jl: Numbers) -> Numbers:
            law, weight = self.by(jl)
            return weight * self.pulled_twice(law, c)

        def pull_and_pair(jlm: Numbers) -> Numbers:
            law, weight = self.by(jlm)
            return weight * self.pulled_cube(law, c)

        def pairs(jlmn: Numbers) -> Numbers:
            law, weight = self.by(jlmn)
            return weight * self.fourth(law, c)

        first = _each(pulls, p, 2).transpose(0, 2, 1, 3).reshape(p * n, p * n)
        cross = _each(pull_and_pair, p, 3)[:, j, l].transpose(0, 2, 1)
        cross = cross.reshape(p * n, len(j))
        last = _each(pairs, p, 4)[j[:, None], l[:, None], j, l]
        moments = jnp.block([[first, cross], [cross.T, last]])
        if not both:
            return jnp.pad(moments, (0, p))
        side, corner = self._with_second(j, l)
        return jnp.block([[moments, side], [side.T, corner]])

    def _with_second(self, j: np.ndarray, l: np.ndarray) -> tuple[Numbers, Numbers]:
        """E[(g_j ξ_a, g_j g_l) e σ_m] and E[e² σ_l σ_m]: derivatives by c_m of averages
        of powers of e, over their exponents.
        """
        n, p, c = self.n, self.p, self.c

        def with_pull(j: Numbers) -> Numbers:
            law, weight = self.by(j)
            slopes = jax.jacfwd(lambda c: self.pulled_cube(law, c))(c)
            return weight * slopes[:, :p] / 3

        def with_pair(jl: Numbers) -> Numbers:
            law, weight = self.by(jl)
            return weight * jax.grad(lambda c: self.fourth(law, c))(c)[:p] / 4

        pull = _each(with_pull, p, 1).reshape(p * n, p)
        pair = _each(with_pair, p, 2)[j, l]
        own = jax.hessian(lambda c: self.fourth(self.law, c))(c)[:p, :p] / 12
        return jnp.concatenate([pull, pair]), own


def _each(function: Callable[[Numbers], Numbers], p: int, count: int) -> Numbers:
    """A symmetric function of so many neurons, for all of them: (p, …, p, …)."""
    chosen = list(itertools.combinations_with_replacement(range(p), count))
    place = {key: i for i, key in enumerate(chosen)}
    every = itertools.product(range(p), repeat=count)
    where = np.array([place[tuple(sorted(key))] for key in every])
    found = jax.lax.map(function, jnp.asarray(chosen))
    return found[where].reshape(*[p] * count, *found.shape[1:])


def tilt(law: Law, f: Numbers) -> tuple[Law, Numbers]:
    """The law weighted by σ'(u_f), and E[σ'(u_f)]."""
    row = jnp.asarray(law)[f]
    wide = 1 + row[f]
    return law - jnp.outer(row, row) / wide, jnp.sqrt(TWO_OVER_PI / wide)


def _products(C: Numbers) -> Numbers:
    """E[σ σ] of all fields."""
    narrow = jax.lax.rsqrt(1 + jnp.diagonal(C))
    return TWO_OVER_PI * arcsine(C * narrow[:, None] * narrow)


def _square(C: Numbers, c: Numbers) -> Numbers:
    """E[(Σ_f c_f σ(u_f))²]."""
    return c @ _products(C) @ c


def _fourth(C: Numbers, c: Numbers) -> Numbers:
    """E[(Σ_f c_f σ(u_f))⁴]."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    variance = jnp.diagonal(C)
    largest = jnp.maximum(variance.max(), 1e-6)
    reach = jnp.log1p(largest)

    def term(node: tuple[Numbers, Numbers]) -> Numbers:
        """The integrand over log(1 + κτ)/log(1 + κ)."""
        place, weight = node
        tau = jnp.expm1(reach * place) / largest
        slopes = four_point(tau * C, c, len(c))
        wide = 1 + tau * variance
        total = ((c / wide) @ (C * slopes)) @ c
        return weight * total * (1 + largest * tau)

    nodes = jnp.asarray((x + 1) / 2), jnp.asarray(w / 2)
    return 6 * reach / largest * jax.vmap(term)(nodes).sum()
