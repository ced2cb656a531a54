"""All fields at once: the rule for any activation, target and loss.

    E[F(λ, λ*)] over  λ* = L_P ξ*,  λ = A ξ* + B ξ⊥,  A = M L_P⁺ᵀ,  B Bᵀ = Q⊥
    e(± h + √Δ ξ, f) and its square averaged over the label noise:
        h − s f and (h − s f)² + Δ, or panels in ξ

by iterated quadrature in a few dimensions, by scrambled Sobol points beyond. What jumps
at kinks of σ' or of e does so on surfaces that move with Q, M and a. Panels move along;
of sampled averages the derivative gets what the jumps add,

    d E[σ'_j G] ∋ [σ']_κ E[δ(λ_j − κ) dλ_j G],
        E[δ(λ_j − κ) G] = N(κ; 0, Q_jj) E[G | λ_j = κ],

from the same points moved onto the plane λ_j = κ. A rule makes ĝ of the gradient g of
single samples: averages are then over fields and label noise at once, E[ĝ uᵀ] and E[ĝ
ĝᵀ], with panels of the noise that end where ĝ bends. A rule of the length of g, ĝ =
v/|v| ρ(|v| e) with v = a σ'(λ), needs E[ρ] and E[ρ²] only, which are closed for
Gaussian noise:

    |v| e ~ N(|v| (± h − s f), |v|² Δ)   at given fields

Nodes times noise nodes are many: sums over them are taken in batches, one after the
other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Averages, Engine, Gradient
from twolayer.equations.increment_kernel import Kernel, Sample
from twolayer.gaussian.quadrature import (
    Partial,
    crossing,
    last_axis,
    nested_rule,
    panel_rule,
)
from twolayer.gaussian.two_point import TINY
from twolayer.numerics.special import root, symmetric_root
from twolayer.numerics.types import (
    Cross,
    Gram,
    Layer,
    Number,
    Numbers,
    Real,
    Scalar,
    Tree,
)
from twolayer.task.labels import LabelNoise, Spoilt
from twolayer.task.losses import Loss
from twolayer.task.rules import RuledLoss

__all__ = ["FullEngine", "FullRule", "spoilt_residual", "triangular_root"]

Summed = TypeVar("Summed")

SINGULAR = 1e-10  # eigenvalues of Ω below this, relative to the largest, count as zero
NOISE_ORDER = 8  # nodes per panel of the label noise
BATCH = (
    2**20
)  # numbers of an array over nodes, noise nodes and neurons that is held at once
# nodes per panel of the last variable where it alone is split, after Sobol points of
# the others
LINE_ORDER = 4


def triangular_root(C: Numbers) -> Numbers:
    """Lower triangular B with B Bᵀ = C for positive semidefinite C; a vanishing pivot
    leaves a zero column.
    """
    p = C.shape[0]
    B, rest = jnp.zeros_like(C), C
    for j in range(p):
        pivot = rest[j, j]
        fine = pivot > 1e-14 * jnp.maximum(C[j, j], 1e-300)
        column = jnp.where(
            fine, rest[:, j] / jnp.sqrt(jnp.where(fine, pivot, 1.0)), 0.0
        )
        column = jnp.where(jnp.arange(p) >= j, column, 0.0)
        B, rest = B.at[:, j].set(column), rest - jnp.outer(column, column)
    return B


class Fields(NamedTuple):
    """Student fields (N, p), target fields (N, k) and weights (N,)."""

    student: Real
    target: Real
    weights: Numbers


class Residual(NamedTuple):
    """h and f at the nodes, and e and e² averaged over the label noise."""

    h: Numbers
    f: Numbers
    mean: Numbers
    square: Numbers

    def left(self, fit: Tree) -> Numbers:
        """What α h − β f leaves of e."""
        return self.mean - fit[0] * self.h + fit[1] * self.f


class FullRule(eqx.Module):
    """Nodes over all fields: quadrature of the given order, or Sobol normals (N,
    dimension).

    ``kinks`` are those of the target along its axes, ``orthonormal`` says that P = I,
    ``noisy`` that Δ > 0 where the loss is not linear. With Sobol points and a loss that
    bends at Δ = 0, the points cover all variables but the last.

    Cost O(nodes · (p + k) p); memory the same without the last factor.
    """

    kernel: Kernel = eqx.field(static=True)
    order: int = eqx.field(static=True)
    kinks: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    orthonormal: bool = eqx.field(static=True)
    noisy: bool = eqx.field(static=True)
    normals: np.ndarray | None
    L: np.ndarray
    inverse: np.ndarray
    line: int = eqx.field(static=True, default=LINE_ORDER)

    @property
    def label(self) -> str:
        """What is done, for reports."""
        if self.normals is None:
            return f"quadrature over all fields (order {self.order})"
        count = f"2^{int(np.log2(self.normals.shape[0]))}"
        return f"Sobol ({count} lines)" if self.split else f"Sobol ({count} points)"

    @property
    def split(self) -> bool:
        """Whether the loss bends on surfaces that cut the last variable."""
        bends = self.kernel.loss.kinks or (
            self.kernel.rule is not None and self.kernel.rule.kinks
        )
        return bool(bends) and self.kernel.loss.student is None and not self.noisy

    def _fields(self, p: int) -> tuple[np.ndarray, list[tuple[float, ...]]]:
        """Which ξ each field (λ*, λ) depends on, and where it bends."""
        k, r = self.L.shape
        star = np.eye(k, dtype=bool) if self.orthonormal else np.ones((k, r), bool)
        structure = np.block(
            [
                [star, np.zeros((k, p), bool)],
                [np.ones((p, r), bool), np.tri(p, dtype=bool)],
            ]
        )
        return structure, [*self.kinks, *[self.kernel.activation.kinks] * p]

    def nodes(self, p: int) -> int:
        """Number of nodes."""
        structure, kinks = self._fields(p)
        rule = self.kernel.rule
        levels = len(self.kernel.loss.kinks) + (0 if rule is None else len(rule.kinks))
        levels *= len(self.kernel.labels.signs) * self.split
        last = structure.shape[1] - 1
        total, order = (
            (1, self.order) if self.normals is None else (len(self.normals), self.line)
        )
        for i in (
            range(last + 1) if self.normals is None else [last] if self.split else []
        ):
            active = np.flatnonzero(structure[:, i])
            breaks = sum(
                len(kinks[f]) * (3 if structure[f, i + 1 :].any() else 1)
                for f in active
            )
            total *= (max(breaks, 1) + 3) * order * (1 + levels if i == last else 1)
        return total

    @property
    def smoothed(self) -> Callable[[Any, Any], tuple[Any, Any]] | None:
        """E[ρ] and E[ρ²] over the label noise, where they are closed."""
        loss, rule = self.kernel.loss, self.kernel.rule
        gaussian = self.noisy and self.kernel.labels.law.name == "gaussian"
        linear = isinstance(loss, RuledLoss) and loss.linear is not None
        return rule.smoothed if rule is not None and linear and gaussian else None

    @property
    def noise_nodes(self) -> int:
        """Nodes of the label noise at every node of the fields, of each sign."""
        if not self.noisy or self.smoothed is not None:
            return 1
        loss, rule, law = self.kernel.loss, self.kernel.rule, self.kernel.labels.law
        linear = isinstance(loss, RuledLoss) and loss.linear is not None
        breaks = (
            len(loss.kinks)
            + len(law.kinks)
            + (len(rule.kinks) if rule is not None and linear else 0)
        )
        return max(breaks + 3, 4) * (
            self.noise_order if rule is None else max(self.order, NOISE_ORDER)
        )

    @property
    def noise_order(self) -> int:
        """Nodes per panel of the label noise, where a residual is averaged over it:
        refined with the fields, so that a coarser rule tells what is missing.
        """
        return 4 + self.order // 3 if self.normals is None else NOISE_ORDER

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        each = 4.0 * p + 0.2 * p * (p + len(self.L)) + 8
        if self.noisy:
            each += (
                3.0
                * self.noise_nodes
                * len(self.kernel.labels.signs)
                * (1 if self.kernel.rule is None else p)
            )
        return self.nodes(p) * each

    def summed(
        self, terms: Callable[[Real, Real, Numbers], Summed], at: Fields
    ) -> Summed:
        """Sums over nodes, a function of student and target fields and weights, in
        batches that fit into memory.
        """
        total, p = at.student.shape
        size = max(BATCH // (self.noise_nodes * p), 1)
        if size >= total:
            return terms(*at)
        more = -total % size
        held = [
            jnp.pad(x, ((0, more), *((0, 0),) * (x.ndim - 1)), mode="edge")
            for x in (at.student, at.target)
        ]
        held.append(
            jnp.pad(at.weights, (0, more))
        )  # what fills the last batch weighs nothing
        batches = [x.reshape(-1, size, *x.shape[1:]) for x in held]
        parts = jax.lax.map(jax.checkpoint(lambda batch: terms(*batch)), batches)
        return jax.tree.map(lambda x: x.sum(0), parts)

    def _rows(self, Q: Gram, M: Cross) -> tuple[Numbers, Numbers]:
        A = M @ self.inverse.T
        return A, Q - A @ A.T

    def fields(self, Q: Gram, M: Cross, a: Layer) -> Fields:
        """Fields at the nodes and their weights."""
        A, perp = map(jnp.asarray, self._rows(Q, M))
        (p, r), k = A.shape, len(self.L)
        structure, kinks = self._fields(p)
        if self.normals is not None and not self.split:
            xi = jnp.asarray(self.normals)
            student = xi[:, :r] @ A.T + xi[:, r:] @ symmetric_root(perp)
            return Fields(
                student, xi[:, :r] @ self.L.T, jnp.full(len(xi), 1.0 / len(xi))
            )
        # the derivative with respect to a vanishing variance is that of the limit;
        # nodes are symmetric, points are not
        B = (
            triangular_root(perp + TINY * jnp.eye(p))
            if self.normals is None
            else _turned(symmetric_root(perp), a)
        )
        to_fields = jnp.block(
            [[jnp.asarray(self.L), jnp.zeros((k, p))], [A, jnp.asarray(B)]]
        )
        level = self._level(a) if self.split else None
        if self.normals is None:
            at = nested_rule(to_fields, kinks, self.order, structure, level)
        else:
            xi = jnp.asarray(self.normals)
            outer = Partial(
                xi, jnp.full(len(xi), 1.0 / len(xi)), xi @ to_fields[:, :-1].T
            )
            at = last_axis(outer, to_fields, kinks, self.line, structure, level)
        return Fields(at.fields[:, k:], at.fields[:, :k], at.weights)

    def _level(self, a: Layer) -> Callable[[Numbers], Numbers]:
        """Where e bends, as a function of the fields (…, k + p)."""
        k = len(self.L)

        def level(u: Numbers) -> Numbers:
            y, f = self.kernel.target(u[..., :k]), self.kernel.output(u[..., k:], a)
            found: list[Number] = []
            for _, sign in self.kernel.labels.signs:
                found += self.kernel.loss.levels(sign * y, f)
                if self.kernel.rule is not None:
                    signed = self._strength(u[..., k:], a) * self.kernel.loss.residual(
                        sign * y, f
                    )
                    found += [signed - kink for kink in self.kernel.rule.kinks]
            return jnp.stack(found, -1)

        return level

    def _strength(self, student: Number, a: Layer) -> Real:
        """|g|/|e|: the norm of a σ'(λ), as the rule sees it."""
        square = ((a * self.kernel.activation.slope(student)) ** 2).sum(-1)
        return root(square) / (
            self.kernel.loss.scale if isinstance(self.kernel.loss, RuledLoss) else 1.0
        )

    def noises(
        self, student: Real, target: Real, a: Layer, noise: Scalar
    ) -> list[tuple[float, Spoilt, Any]]:
        """Chances of the signs of a label; with each, what is done to labels at every
        node, and weights, (N, m) each.

        Panels end where a rule or the loss bends.
        """
        loss, rule, labels = self.kernel.loss, self.kernel.rule, self.kernel.labels
        h, f = self.kernel.target(target), self.kernel.output(student, a)
        if not self.noisy:
            still = jnp.zeros((len(student), 1))
            return [
                (chance, Spoilt(sign, still), still + 1.0)
                for chance, sign in labels.signs
            ]
        width, at = root(noise), loss.labels(f)
        if isinstance(loss, RuledLoss) and rule is not None and loss.linear is not None:
            strength = jnp.maximum(self._strength(student, a), TINY)
            at = [*at, *(loss.linear * f + kink / strength for kink in rule.kinks)]
        order = max(
            self.order, NOISE_ORDER
        )  # refined with the fields, over which nothing is smoothed any more
        found = []
        for chance, sign in labels.signs:
            ends = [
                labels.law.to_normal(crossing(y, sign * h, width * jnp.ones_like(h)))
                for y in at
            ]
            ends += [kink * jnp.ones_like(h) for kink in labels.law.kinks]
            x, w = panel_rule(
                jnp.stack(ends, -1) if ends else jnp.zeros((*h.shape, 0)), order
            )
            found.append((chance, Spoilt(sign, width * labels.law.from_normal(x)), w))
        return found

    def residual(
        self, student: Real, target: Real, a: Layer, noise: Scalar
    ) -> Residual:
        """e and e² averaged over the label noise, if there is any."""
        loss, h, f = (
            self.kernel.loss,
            self.kernel.target(target),
            self.kernel.output(student, a),
        )
        if loss.student is not None:
            e = h - loss.student * f
            return Residual(h, f, e, e**2 + noise)
        return Residual(
            h,
            f,
            *spoilt_residual(
                loss,
                self.kernel.labels,
                h,
                f,
                noise if self.noisy else None,
                self.noise_order,
            ),
        )

    def averages(
        self, Q: Gram, M: Cross, a: Layer, noise: Scalar, fit: Tree = (0.0, 0.0)
    ) -> Averages:
        """All five averages; in psi, phi and second with e − α h + β f in the place of
        e, fit = (α, β).
        """
        fit = jnp.asarray(fit)
        if self.kernel.rule is not None:
            return _ruled(self, Q, M, a, noise, fit)
        if self.normals is None or self.split or not self.kernel.activation.kinks:
            return _averages(self, Q, M, a, noise, fit)
        return _with_jumps(self, Q, M, a, noise, fit)

    def rows(self, Q: Gram, M: Cross, average: Averages) -> tuple[Numbers, Numbers]:
        """The gradient as a combination of the rows: that with the averages psi and
        phi, by a pseudo-inverse.
        """
        omega = jnp.block([[Q, M], [M.T, self.L @ self.L.T]])
        inverse = jnp.linalg.pinv(omega, rtol=SINGULAR, hermitian=True)
        both = jnp.concatenate([average.phi, average.psi], axis=1) @ inverse
        return both[:, : len(Q)], both[:, len(Q) :]


def spoilt_residual(
    loss: Loss,
    labels: LabelNoise,
    h: Real,
    f: Real,
    noise: Scalar | None,
    order: int = NOISE_ORDER,
) -> tuple[Any, Any]:
    """e and e² averaged over what is done to labels h, at outputs f; ``noise`` is None
    where nothing is added.
    """
    mean, square, law = 0.0, 0.0, labels.law
    for chance, sign in labels.signs:
        y = sign * h
        if noise is None:
            e = loss.residual(y, f)
            mean, square = mean + chance * e, square + chance * e**2
            continue
        width = root(noise)
        ends = [
            law.to_normal(crossing(x, y, width * jnp.ones_like(h)))
            for x in loss.labels(f)
        ]
        ends += [kink * jnp.ones_like(h) for kink in law.kinks]
        x, w = panel_rule(
            jnp.stack(ends, -1) if ends else jnp.zeros((*h.shape, 0)), order
        )
        e = loss.residual(y[..., None] + width * law.from_normal(x), f[..., None])
        mean, square = (
            mean + chance * (w * e).sum(-1),
            square + chance * (w * e**2).sum(-1),
        )
    return mean, square


def _turned(B: Numbers, a: Layer) -> Numbers:
    """B in coordinates whose last one is the direction Bᵀa, in which the output moves
    most.
    """
    v = B.T @ a
    size = root((v**2).sum())
    v = jnp.where(size > 0, v / jnp.where(size > 0, size, 1.0), jnp.eye(len(a))[-1])
    u = v - jnp.eye(len(a))[-1]  # the reflection that takes the last axis to v
    square = (u**2).sum()
    return B - jnp.where(
        square > 1e-12, 2 / jnp.where(square > 1e-12, square, 1.0), 0.0
    ) * jnp.outer(B @ u, u)


def _averages(
    rule: FullRule, Q: Gram, M: Cross, a: Layer, noise: Scalar, fit: Tree
) -> Averages:
    kernel = rule.kernel

    def terms(student: Real, target: Real, w: Numbers) -> Averages:
        e = rule.residual(student, target, a, noise)
        slope = a * kernel.activation.slope(student)
        pushed = (w * e.left(fit))[:, None]
        first = (pushed * slope).T
        return Averages(
            first @ target,
            first @ student,
            ((w * e.square)[:, None] * slope).T @ slope,
            (pushed * kernel.activation(student)).sum(0),
            w @ (kernel.labels.keep * e.h - e.f) ** 2 / 2,
        )

    return rule.summed(terms, rule.fields(Q, M, a))


def _ruled(
    rule: FullRule, Q: Gram, M: Cross, a: Layer, noise: Scalar, fit: Tree
) -> Averages:
    """The averages of ĝ, over fields and label noise at once."""
    kernel = rule.kernel
    assert kernel.rule is not None
    drift, linear = (
        kernel.rule.drift,
        kernel.loss.linear if isinstance(kernel.loss, RuledLoss) else None,
    )

    def terms(student: Real, target: Real, w: Numbers) -> Averages:
        h, f, keep = (
            kernel.target(target),
            kernel.output(student, a),
            kernel.labels.keep,
        )
        sigma, slope = kernel.activation(student), a * kernel.activation.slope(student)
        first, second, chi = _closed_push(rule, h, f, slope, w, noise) or _push(
            rule, student, target, a, w, noise
        )
        if linear is not None:
            # noise of mean zero, however heavy its tails: quadratures of these would be
            # rough
            second = (w * (keep * h - linear * f))[:, None] * sigma
        fitted = (w * (fit[0] * h - fit[1] * f))[:, None]
        moved = (drift * first - fitted * slope).T
        return Averages(
            moved @ target,
            moved @ student,
            jnp.asarray(chi),
            (second - fitted * sigma).sum(0),
            w @ (keep * h - f) ** 2 / 2,
        )

    return rule.summed(terms, rule.fields(Q, M, a))


def _push(
    rule: FullRule, student: Real, target: Real, a: Layer, w: Numbers, noise: Scalar
) -> tuple[Any, Any, Any]:
    """Weighted ĝ and e σ at every node, and the sum of ĝ ĝᵀ, by nodes of the label
    noise.
    """
    first, second, chi = 0.0, 0.0, 0.0
    for chance, spoilt, v in rule.noises(student, target, a, noise):
        count = v.shape[1]
        every, stars = (jnp.repeat(y, count, axis=0) for y in (student, target))
        push = rule.kernel.push(
            Sample(every, stars, Spoilt(spoilt.sign, spoilt.shift.reshape(-1))), a
        )
        both = chance * (w[:, None] * v).reshape(-1)
        here = [(both[:, None] * y).reshape(len(w), count, -1).sum(1) for y in push]
        first, second, chi = (
            first + here[0],
            second + here[1],
            chi + (both[:, None] * push.first).T @ push.first,
        )
    return first, second, chi


def _closed_push(
    rule: FullRule, h: Number, f: Number, v: Real, w: Numbers, noise: Scalar
) -> tuple[Any, Any, Any] | None:
    """The same where the average over the label noise is closed, less e σ, which is
    linear; None where it is not.
    """
    if rule.smoothed is None:
        return None
    loss = rule.kernel.loss
    assert isinstance(loss, RuledLoss) and loss.linear is not None
    size = root((v**2).sum(-1))
    along = loss.scale * v / jnp.maximum(size, TINY)[:, None]
    seen = size / loss.scale
    first, chi = 0.0, 0.0
    for chance, sign in rule.kernel.labels.signs:
        mean, square = rule.smoothed(
            seen * (sign * h - loss.linear * f), seen * root(noise)
        )
        first = first + (chance * w * mean)[:, None] * along
        chi = chi + ((chance * w * square)[:, None] * along).T @ along
    return first, 0.0, chi


@jax.custom_jvp
def _with_jumps(
    rule: FullRule, Q: Gram, M: Cross, a: Layer, noise: Scalar, fit: Tree
) -> Averages:
    return _averages(rule, Q, M, a, noise, fit)


@_with_jumps.defjvp
def _with_jumps_jvp(primals: Tree, tangents: Tree) -> tuple[Averages, Averages]:
    """The derivative at fixed points, and what the jumps of σ' add to psi, phi
    and chi.
    """
    rule, Q, M, a, noise, fit = primals
    dQ, dM = tangents[1:3]
    value, change = jax.jvp(lambda *x: _averages(rule, *x), primals[1:], tangents[1:])
    (student, target, w), moved = jax.jvp(
        lambda Q, M: rule.fields(Q, M, a), (Q, M), (dQ, dM)
    )
    sigma, norm = rule.kernel.activation, jnp.diagonal(Q)

    def at(plane: Tree) -> Tree:
        j, kink, below, above = plane
        # the same points on λ_j = κ; the tangent of λ_j there
        excess = (student[:, j] - kink) / norm[j]
        here, star = student - excess[:, None] * Q[j], target - excess[:, None] * M[j]
        speed = moved.student[:, j] - excess * dQ[j, j] / 2
        e = rule.residual(here, star, a, noise)
        push = (
            w
            * speed
            * jnp.exp(-(kink**2) / (2 * norm[j]))
            / jnp.sqrt(2 * jnp.pi * norm[j])
        )
        slope = (
            (a * sigma.slope(here)).at[:, j].set(a[j] * (above + below) / 2)
        )  # [σ'²] = 2·mean·[σ']
        jump = a[j] * (above - below) * push
        return (
            jump * e.left(fit) @ star,
            jump * e.left(fit) @ here,
            jump * e.square @ slope,
        )

    kinks = np.asarray(sigma.kinks)
    sides = [sigma.slope(jnp.asarray(kinks + side)) for side in (-1e-9, 1e-9)]
    p, count = len(norm), len(kinks)
    planes = (
        np.repeat(np.arange(p), count),
        *(jnp.tile(jnp.asarray(x), p) for x in (kinks, *sides)),
    )
    psi, phi, chi = (x.reshape(p, count, -1).sum(1) for x in jax.lax.map(at, planes))
    added = Averages(
        psi,
        phi,
        chi + chi.T,
        jnp.zeros_like(change.second),
        jnp.zeros_like(change.excess_risk),
    )
    return value, Averages(*(x + y for x, y in zip(change, added, strict=True)))


class FullEngine(Engine):
    """Everything from nodes over all fields."""

    rule: FullRule

    @property
    def label(self) -> str:
        """Which rules are used."""
        return self.rule.label

    def work(self, p: int) -> float:
        """Terms of one evaluation."""
        return self.rule.work(p)

    def __call__(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Averages:
        """The averages at one point."""
        return self.rule.averages(Q, M, a, noise)

    def gradient(self, Q: Gram, M: Cross, a: Layer, noise: Scalar) -> Gradient:
        """The mean gradient as a combination of the rows."""
        average = self(Q, M, a, noise)
        return Gradient(*self.rule.rows(Q, M, average), average.second)
