"""What n = α d reused samples do to the weights, in reduced coordinates: an orthonormal
basis that grows at each visit.

    field of a row w:   h = Σ_i w_i x_i,    x_i = ξ_i + e_i/√α
        ξ_i: noise of direction i, drawn once
    gradient:           ḡ_i = B ⟨v x_i⟩,    v = c g(h),  B = n/n_b
                        ⟨·⟩: weighted mean over all paths
    new directions:     e ∝ v − Σ_i ⟨v e_i⟩ e_i,  each with a fresh ξ

A push e makes the weight direction b = X̃ᵀe/√d. The field along it is fresh noise, plus
the push itself that comes back to the samples that made it: the Onsager term e/√α,
without which samples would be new at every visit. Directions of the target and of the
start have no e. A push that is a combination of earlier ones, up to ``TOLERANCE`` of
its own size, adds no direction.

Everything is written in one basis U, orthonormal over the paths: 1, h̃*, label noise,
ξ⁰, then at each visit the new parts of the pushes and the fresh ξ. Coordinate i of a
row belongs to the direction whose noise is u_i, and row i of E holds the coordinates of
e_i. As noises are orthonormal on the very paths, their second moments are exact, and
with them all of a linear student but the moments of its labels. Vectors over the paths
are stored times √w, w being the weight of a path, so that ⟨x y⟩ is the plain mean of
their products.

Cost of a visit O(N n p) for N paths and n vectors in the basis, n ≤ 2 + k + p + 2 p t
at visit t; memory O(N n).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.equations.increment_kernel import Kernel, Push, Sample
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.labels import Spoilt

__all__ = [
    "Basis",
    "Paths",
    "Visit",
    "VisitNumbers",
    "begin",
    "enlarge",
    "in_basis",
    "look",
    "risk_of",
    "take",
    "visit",
]

TOLERANCE = (
    1e-6  # relative size of the new part of a push below which it adds no direction
)


class Paths(NamedTuple):
    """What a path keeps for ever: h* (N, k) and what is done to its label (N,), and the
    root √w of its weight (N,).
    """

    target: Real
    noise: Spoilt
    root: Real


class Basis(NamedTuple):
    """U (n, N) orthonormal, E (n, n) and whether u_i is the noise of a weight direction
    (n,); zero from ``size`` on.
    """

    U: Any
    E: Real
    noises: Real
    size: Number


class VisitNumbers(NamedTuple):
    """α, the number B of batches in the set, and 1 if the first layer moves, else 0."""

    alpha: Number
    batches: Number
    moves: Number


class Visit(NamedTuple):
    """What one visit found.

    ``gradient`` (p, n) is ḡ in the coordinates of the rows, ``second`` (p,) the batch
    mean of e σ(h), ``pushes`` (p, n) the coordinates ⟨v u_i⟩, and ``new`` the number of
    new directions.
    """

    gradient: Real
    second: Real
    pushes: Real
    new: Number


def begin(vectors: np.ndarray, noises: np.ndarray, root: np.ndarray) -> Basis:
    """The basis before the first visit: the given vectors (m, N), after the constant,
    made orthonormal in their order.

    ``noises`` (m,) says which of them are noises of weight directions; the others
    belong to the labels.
    """
    rows = root * np.concatenate([np.ones((1, len(root))), vectors])
    Q, R = np.linalg.qr(rows.T)
    U = np.sqrt(rows.shape[1]) * (Q * np.sign(np.diagonal(R))).T
    return Basis(U, np.zeros((len(U), len(U))), np.append(False, noises), len(U))


def enlarge(basis: Basis, room: int) -> Basis:
    """The same basis with room for so many vectors."""
    more = (0, room - len(basis.U))
    each = (more, (0, 0)), (more, more), (more,)
    U, E, noises = (
        jnp.asarray(np.pad(x, widths))
        for x, widths in zip(basis[:3], each, strict=True)
    )
    return Basis(U, E, noises, basis.size)


@partial(jax.jit, static_argnames=("kernel",), donate_argnames=("basis",))
def visit(
    kernel: Kernel,
    basis: Basis,
    paths: Paths,
    rows: Real,
    a: Real,
    copies: Real,
    fresh: Real,
    numbers: VisitNumbers,
    key: Array | None = None,
) -> tuple[Basis, Visit]:
    """One visit of the samples to the rows (p, n), each ``copies`` (N,) times in the
    batch.

    ``fresh`` (p, N) is noise that was never used, of which the first ``new`` columns
    are taken. The basis must have room for 2 p more vectors. ``key`` is for rules that
    draw random numbers.
    """
    h = fields(basis, paths, rows, numbers.alpha)
    push = kernel.push(Sample(h, paths.target, paths.noise, key=key), a)
    return absorb(basis, paths, push, copies, fresh, numbers)


def absorb(
    basis: Basis,
    paths: Paths,
    push: Push,
    copies: Real,
    fresh: Real,
    numbers: VisitNumbers,
) -> tuple[Basis, Visit]:
    """What pushes of the samples do to the basis, and to rows. Cost O(N n p)."""
    p, (alpha, batches, moves) = push.first.shape[1], numbers
    parts, added, inner = split(
        basis.U, paths.root * jnp.concatenate([moves * copies * push.first.T, fresh])
    )
    kept = jnp.diagonal(inner)[:p] > 0
    place = basis.size + jnp.cumsum(kept) - 1
    pushes = parts[:p].at[:, place].add(jnp.where(kept, inner[:p, :p], 0.0))
    first = basis.size + kept.sum()
    E, new = directions(basis.E, pushes, first)

    used = jnp.concatenate([kept, jnp.arange(p) < new])
    added = jnp.where(used[:, None], added, 0.0)[jnp.argsort(~used, stable=True)]
    U = jax.lax.dynamic_update_slice_in_dim(basis.U, added, basis.size, 0)
    index = jnp.arange(len(E)) - first
    noises = basis.noises | ((index >= 0) & (index < new))
    gradient = batches * (jnp.where(noises, pushes, 0.0) + pushes @ E.T / alpha**0.5)
    weight = paths.root**2
    second = batches * ((weight * copies)[:, None] * push.second).mean(0)
    return Basis(U, E, noises, first + new), Visit(gradient, second, pushes, new)


def fields(basis: Basis, paths: Paths, rows: Real, alpha: Number) -> Real:
    """Fields (N, p) of rows on all paths."""
    return (in_basis(rows, basis.E, alpha) @ basis.U / paths.root).T


look = jax.jit(fields)
"""The same by itself."""
take = jax.jit(absorb, donate_argnames=("basis",))
"""What pushes do, by itself."""


@partial(jax.jit, static_argnames=("kernel",))
def risk_of(
    kernel: Kernel, basis: Basis, paths: Paths, rows: Real, a: Real, alpha: Number
) -> Real:
    """The training risk ½ ⟨(y − f)²⟩ of any rows (p, n), such as an average of
    iterates.
    """
    error = kernel.label(paths.target, paths.noise) - kernel.output(
        fields(basis, paths, rows, alpha), a
    )
    return (paths.root**2 * error**2).mean() / 2


def in_basis(rows: Real, E: Real, alpha: Number) -> Real:
    """Coordinates in U of the fields Σ_i w_i (ξ_i + e_i/√α) of rows w (…, n)."""
    return rows + rows @ E / alpha**0.5


def split(U: Real, rows: Real) -> tuple[Array, Array, Array]:
    """Gram–Schmidt, twice: rows (m, N) = parts U + inner added, ``added`` (m, N)
    orthonormal and orthogonal to U.

    ``inner`` is lower triangular; where its diagonal is zero nothing was new, and the
    row of ``added`` is zero.
    """
    n, size = rows.shape[1], jnp.sqrt((rows**2).mean(1))
    parts = jnp.zeros((len(rows), len(U)))
    fixed: Any = (
        jax.lax.optimization_barrier
    )  # or XLA takes the product of transposes, several times slower on CPU
    for _ in range(2):
        more = fixed(fixed(U @ rows.T).T / n)
        parts, rows = parts + more, rows - more @ U

    def settle(i: Real, carry: Tree) -> Tree:
        added, inner = carry
        x, before = added[i], jnp.arange(len(added)) < i
        for _ in range(2):
            more = jnp.where(before, added @ x / n, 0.0)
            x, inner = x - more @ added, inner.at[i].add(more)
        unit, length = normalised(x, jnp.sqrt((x**2).mean()), size[i])
        return added.at[i].set(unit), inner.at[i, i].set(length)

    return parts, *jax.lax.fori_loop(
        0, len(rows), settle, (rows, jnp.zeros((len(rows),) * 2))
    )


def directions(E: Real, pushes: Real, first: Real) -> tuple[Array, Array]:
    """E with the new directions among the pushes (p, n) from row ``first`` on, and how
    many they are.
    """

    def extend(j: Real, carry: Tree) -> Tree:
        E, new = carry
        e = pushes[j]
        for _ in range(2):
            e = e - (E @ e) @ E
        unit, length = normalised(
            e, jnp.sqrt((e**2).sum()), jnp.sqrt((pushes[j] ** 2).sum())
        )
        return E.at[first + new].set(unit), new + (length > 0)

    return jax.lax.fori_loop(0, len(pushes), extend, (E, jnp.zeros((), int)))


def normalised(x: Real, length: Real, size: Real) -> tuple[Array, Array]:
    """x over its length, and the length; zero both where it is nothing but rounding of
    something of the given size.
    """
    keep = length > TOLERANCE * size
    return jnp.where(keep, x / jnp.where(keep, length, 1.0), 0.0), jnp.where(
        keep, length, 0.0
    )
