"""One step of SGD on the overlaps alone, exact in law: what a batch adds outside the
known directions.

    rows of W in an orthonormal basis:  A (target span),
        B (span of the students' own orthogonal parts);
    M = A L_Pᵀ,  Q = A Aᵀ + B Bᵀ,  fields  λ* = L_P ξ*,  λ = A ξ* + B ξ⊥
    A ← A + η Gᵀ ξ*,    B ← LQ[ B + η Gᵀ ξ⊥ ,  η C T ],    C Cᵀ = Gᵀ G

The part of a batch outside both spans has a Gram matrix of Wishart law; T is its
Bartlett factor with d − rank − c degrees of freedom (numerics/wishart.py). A rule that
sees |z|² or z·z' has a row of T for every sample, drawn before ĝ, in the place of C T.
Only B Bᵀ matters, so B is brought back to c columns by an LQ decomposition: positivity
cannot be lost, no matrix is inverted, and coincident neurons, singular Ω and d ≤ p + k
need no special case. A step that carries the rows before it, or the average of all, has
p more rows for each.

Inputs with blocks (block_coordinates.py) have a B⁽ⁱ⁾ and a factor √s_i C T⁽ⁱ⁾ in each,
with the same C and independent T⁽ⁱ⁾.

Cost O(n_b p (p + k) + p³) for each block, whatever d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twolayer.equations.increment_kernel import Kernel, Push, Sample
from twolayer.equations.optimiser_step import (
    Coefficients,
    Form,
    Layers,
    Memory,
    descend,
)
from twolayer.numerics.errors import InputError
from twolayer.numerics.types import Number, Numbers, Real, Scalar, Tree
from twolayer.numerics.wishart import GramFactor, GramFactors

__all__ = [
    "Frame",
    "Reduced",
    "Sums",
    "batch_sums",
    "embed",
    "exact_step",
    "gram",
    "lq",
    "overlaps",
]

UNROLLED = (
    8,
    32,
)  # LQ by unrolled reflections up to this many rows and columns, by LAPACK beyond


@dataclass(frozen=True)
class Reduced:
    """Shapes and choices that fix the compiled code of a step in reduced coordinates.

    Attributes
    ----------
    kernel, form
        What a sample and what the optimiser does.
    p, rank, columns : int
        Rows, columns of A and columns of B.
    batch : int
        n_b, or the largest.
    factor : GramFactor or GramFactors
        How to draw what the samples have outside both spans.
    varies : bool
        Whether batches have a schedule: the rates then say how many samples belong to
        one.
    """

    kernel: Kernel
    form: Form
    p: int
    rank: int
    columns: int
    batch: int
    factor: GramFactor | GramFactors
    varies: bool = False
    # columns of B in every block that is not held whole, where inputs have blocks
    each: int = 0

    @property
    def blocks(self) -> bool:
        """Whether inputs have blocks."""
        return isinstance(self.factor, GramFactors)

    @property
    def sized(self) -> bool:
        """Whether a rule sees what samples have outside the known directions."""
        return self.kernel.rule is not None and self.kernel.rule.sizes

    @property
    def paired(self) -> bool:
        """Whether a rule sees inner products of inputs."""
        return self.kernel.rule is not None and self.kernel.rule.products

    @property
    def width(self) -> int:
        """Normals per sample: ξ*, ξ⊥ and the label noise."""
        return self.rank + self.columns + self.kernel.labels.normals


class Frame(NamedTuple):
    """Numbers of a step: its rates, L_P, the table of the Gram factor, and Δ.

    Where inputs have blocks, also √s_i of every coordinate held, and of every block
    that is not held whole.
    """

    rates: Coefficients
    L: Numbers
    table: Tree
    noise: Scalar
    scale: Real | None = None
    spread: Real | None = None


class Sums(NamedTuple):
    """What a batch contributes: means of g ξ*ᵀ, g ξ⊥ᵀ and e σ(λ), and C with C Cᵀ = Gᵀ
    G / n_b².
    """

    star: Float[Array, "p r"]
    own: Float[Array, "p c"]
    C: Float[Array, "p s"]
    second: Float[Array, " p"]


def lq(X: Float[Array, "p n"]) -> Float[Array, "p m"]:
    """Lower triangular L (p, min(p, n)) with L Lᵀ = X Xᵀ; signs of the diagonal are
    free.
    """
    p, n = X.shape
    if p > UNROLLED[0] or n > UNROLLED[1] or n == 0:
        return jnp.linalg.qr(X.T, mode="r").T
    columns = []
    for i in range(min(p, n)):
        row = X[0]
        norm = jnp.sqrt((row * row).sum())
        head = jnp.where(row[0] >= 0, norm, -norm)
        v = row.at[0].add(head)
        square = (v * v).sum()
        scale = jnp.where(square > 0, 2.0 / jnp.where(square > 0, square, 1.0), 0.0)
        X = X - (scale * (X * v).sum(1))[:, None] * v
        columns.append(jnp.concatenate([jnp.zeros(i), X[:, 0]]))
        X = X[1:, 1:]
    return jnp.stack(columns, 1)


def embed(
    Q: np.ndarray, M: np.ndarray, inverse: np.ndarray, columns: int, where: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (A, B) with M = A L_Pᵀ and Q = A Aᵀ + B Bᵀ, B with the given number of
    columns; ``inverse`` is L_P⁺.
    """
    A = M @ inverse.T
    values, vectors = np.linalg.eigh(Q - A @ A.swapaxes(-1, -2))
    values, vectors = values[..., ::-1], vectors[..., ::-1]
    B = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    lost = float(np.abs(values[..., columns:]).max(initial=0.0))
    if lost > 1e-8:
        raise InputError(
            "Argument `dim` must leave room for the start: its overlaps need more than"
            f" {columns} directions outside the target's{where}, but a squared length"
            f" of {lost:.2g} would be cut off."
        )
    missing = max(0, columns - B.shape[-1])
    return A, np.concatenate(
        [B[..., :columns], np.zeros((*B.shape[:-1], missing))], axis=-1
    )


def gram(rows: Real) -> Numbers:
    """Q of rows in an orthonormal basis, with any leading axes."""
    return rows @ rows.swapaxes(-1, -2)


def overlaps(
    rows: Real, L: Numbers, scale: Real | None = None
) -> tuple[Numbers, Numbers]:
    """Q and M of the fields of rows (A, B), with any leading axes.

    Coordinates of inputs have the standard deviations ``scale``, or 1 where there are
    no blocks.
    """
    if scale is None:
        return gram(rows), rows[..., : L.shape[1]] @ L.T
    scaled = rows * scale
    return gram(scaled), (scaled * scale)[..., : L.shape[1]] @ L.T


def batch_sums(
    at: Reduced,
    frame: Frame,
    layers: Layers,
    normals: jax.Array,
    first: Number | None = None,
    T: Tree = None,
    key: Tree = None,
) -> Sums:
    """Sums over samples given by their normals (samples, width), of a whole batch or of
    a chunk from ``first`` on.

    The first rows of ``T`` (…, t) are what they have outside, where a rule looks at it;
    ``key`` is for rules that draw.
    """
    p, r, c, labels = at.p, at.rank, at.columns, at.kernel.labels
    if frame.scale is not None:
        normals = normals.at[:, : r + c].multiply(frame.scale)
    xi_star, xi_own = normals[:, :r], normals[:, r : r + c]
    student = xi_star @ layers.W[:, :r].T + xi_own @ layers.W[:, r:].T
    spoilt = labels.again(labels.spoil(normals[:, r + c], frame.noise), normals[:, -1])
    sample = Sample(student, xi_star @ frame.L.T, spoilt, key=key)
    if at.sized:
        inputs = jnp.concatenate([normals[:, : r + c], T[: len(normals)]], axis=1)
        products = inputs @ inputs.T / frame.rates.dim
        sample = sample._replace(
            size=jnp.diagonal(products), products=products if at.paired else None
        )
    push = at.kernel.push(sample, layers.a)
    count = frame.rates.batch if at.varies else at.batch
    weight: Number = 1.0 / count
    if at.varies or first is not None:
        inside = (0 if first is None else first) + jnp.arange(normals.shape[0]) < count
        weight = jnp.where(inside, weight, 0.0)[:, None]
    g = jnp.asarray(weight * push.first)
    C = lq(g.T) if normals.shape[0] > p and not at.sized else g.T
    return Sums(g.T @ xi_star, g.T @ xi_own, C, (weight * push.second).sum(0))


def exact_step(
    at: Reduced,
    rates: Coefficients,
    state: Memory,
    sums: Sums,
    T: Tree,
    jitter: Real | None = None,
    spread: Real | None = None,
) -> tuple[Memory, Real]:
    """The step from the sums of a batch and the orthogonal factor T; and the largest
    squared norm met.

    ``jitter`` (p, r + c) are the normals of the noise on a step along the known
    directions, where there is any. ``spread`` are √s_i where inputs have blocks.
    """
    if at.blocks:
        return _step_in_blocks(at, rates, state, sums, T, jitter, spread)
    p, r, c, t = at.p, at.rank, at.columns, T.shape[1]
    if jitter is not None:
        star, own = (
            sums.star + at.form.jitter * jitter[:, :r],
            sums.own + at.form.jitter * jitter[:, r:],
        )
        C = jnp.concatenate([sums.C, at.form.jitter * jnp.eye(p)], axis=1)
        sums = sums._replace(star=star, own=own, C=C if at.sized else lq(C))

    wide = _widened(state, t)
    push = Push(jnp.concatenate([sums.star, sums.own, sums.C @ T], axis=1), sums.second)
    new, _, size = descend(at.form, rates, wide, push)
    every = new.every
    rows = jnp.concatenate([layers.W for layers in every])
    B = rows[:, r:] if t == 0 else lq(rows[:, r:])
    rows = jnp.concatenate([rows[:, :r], B[:, :c]], axis=1)
    held = [
        Layers(rows[i * p : (i + 1) * p], layers.a) for i, layers in enumerate(every)
    ]
    return new.moved(held), size


def _widened(state: Memory, t: int) -> Memory:
    """The same rows with t more coordinates, in which they are zero."""

    def padded(layers: Layers) -> Layers:
        return Layers(
            jnp.concatenate([layers.W, jnp.zeros((len(layers.W), t))], axis=1), layers.a
        )

    return state.moved([padded(layers) for layers in state.every])


def _step_in_blocks(
    at: Reduced,
    rates: Coefficients,
    state: Memory,
    sums: Sums,
    T: Tree,
    jitter: Real | None,
    spread: Any,
) -> tuple[Memory, Real]:
    """The step where inputs have blocks: T (members, rows, width) for each group of
    blocks of one form.
    """
    p, r, factor = at.p, at.rank, at.factor
    assert isinstance(factor, GramFactors)
    if jitter is not None:
        star, own = (
            sums.star + at.form.jitter * jitter[:, :r],
            sums.own + at.form.jitter * jitter[:, r:],
        )
        sums = sums._replace(star=star, own=own)
    known, extra, first = r + at.columns, [], 0
    for group, factors in zip(factor.groups, T, strict=True):
        own = spread[first : first + group.members, None, None] * sums.C
        if jitter is not None:  # the same in all blocks, whatever their variance
            noise = jnp.broadcast_to(at.form.jitter * jnp.eye(p), (group.members, p, p))
            own = jnp.concatenate([own, noise], axis=2)
        extra.append((own @ factors).swapaxes(0, 1).reshape(p, -1))
        first += group.members
    push = Push(jnp.concatenate([sums.star, sums.own, *extra], axis=1), sums.second)
    new, _, size = descend(
        at.form, rates, _widened(state, push.first.shape[1] - known), push
    )
    every = new.every
    rows = jnp.concatenate([layers.W for layers in every])
    count, begin, end = len(rows), known - at.each * factor.count, known
    kept = [rows[:, :begin]]
    for group in factor.groups:
        B = rows[:, begin : begin + group.members * at.each].reshape(
            count, group.members, at.each
        )
        E = rows[:, end : end + group.members * group.width].reshape(
            count, group.members, group.width
        )
        both = jnp.concatenate([B, E], axis=2).swapaxes(0, 1)
        kept.append(
            jax.vmap(lq)(both)[:, :, : at.each].swapaxes(0, 1).reshape(count, -1)
        )
        begin, end = begin + group.members * at.each, end + group.members * group.width
    rows = jnp.concatenate(kept, axis=1)
    held = [
        Layers(rows[i * p : (i + 1) * p], layers.a) for i, layers in enumerate(every)
    ]
    return new.moved(held), size
