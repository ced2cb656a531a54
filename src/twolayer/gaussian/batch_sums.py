"""Sums over very large batches drawn from their Gaussian limit, with exact moments.

    x = (g ξ*ᵀ, g ξ⊥ᵀ, g gᵀ, e σ(λ)) of one sample;
        mean over the batch ~ N( E[x], Cov[x]/n_b )
    G = mean of g gᵀ = R exp(c Y − c² S/2) R,    R² = E[g gᵀ],
        Y = R⁻¹ (Gaussian − R²) R⁻¹,  S = E[Y²]

E[x] comes from the averages engine at the current overlaps, but for E[g gᵀ], which like
Cov[x] comes from what one sample does (single_samples.py): closed for polynomials and
erf, from nodes otherwise. G is a Gram matrix: a Gaussian one would have
negative directions where g has heavy tails, so the Gaussian is its logarithm, with the
factor c² = log(1 + v)/v, v = tr S/p, that keeps the variance (p = 1: the mean and the
variance are exact, p > 1: to second order in Y). The error against sampling the batch
is the distance of a sum of n_b terms from its central limit, O(skewness/√n_b), and
vanishes as n_b grows; `tail` says which n_b is large.

Cost per step and seed O(parts · F² + F³) with F = p (2p + k + 3) or so features,
whatever n_b.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Engine
from twolayer.equations.orthogonal import Sums
from twolayer.gaussian.sample_parts import FieldRows, Parts, covariance
from twolayer.gaussian.single_samples import Samples
from twolayer.numerics.special import symmetric_root
from twolayer.numerics.types import Layer, Number, Numbers, Real, Scalar, Tree

__all__ = ["gaussian_sums", "size_of_features", "tail"]


def size_of_features(p: int, rank: int, columns: int) -> int:
    """F: entries of g ξ*ᵀ, g ξ⊥ᵀ, the upper triangle of g gᵀ, and e σ(λ)."""
    return p * (rank + columns) + p * (p + 1) // 2 + p


class SumFrame(NamedTuple):
    """R with R Rᵀ = E[g gᵀ], its pseudo-inverse, and which of its columns are not
    zero.
    """

    root: Real
    inverse: Numbers
    kept: Real


def _frame(mean: Numbers) -> SumFrame:
    values, vectors = jnp.linalg.eigh(mean)
    kept = values > 1e-12 * jnp.maximum(values[-1], 1e-300)
    root = jnp.sqrt(jnp.where(kept, values, 1.0))
    return SumFrame(
        vectors * jnp.where(kept, root, 0.0),
        jnp.where(kept, 1 / root, 0.0)[:, None] * vectors.T,
        kept * 1.0,
    )


def _spread(frame: SumFrame, at: Parts) -> Numbers:
    """n_b S = Cov of h hᵀ with itself, Σ_k Cov[h_i h_k, h_k h_j], of the whitened h =
    R⁻¹ g.
    """
    whitened = frame.inverse @ at.pair @ frame.inverse.T
    return jnp.einsum("v,vik,vkj->ij", at.weights, whitened, whitened)


def tail(samples: Samples, rows: FieldRows, a: Layer, noise: Scalar) -> Numbers:
    """n_b v = (E|h|⁴ − rank)/rank, h = R⁻¹ g: the batch from which on the mean of g gᵀ
    fluctuates less than itself.

    2 for linear neurons, 54 for h2, 1900 for h3, 57 000 for h4.
    """
    at = samples(rows, a, noise)
    frame = _frame(at.mean.pair)
    return jnp.trace(_spread(frame, at)) / jnp.maximum(frame.kept.sum(), 1.0)


def gaussian_sums(
    samples: Samples,
    batch: Number,
    A: Numbers,
    B: Numbers,
    a: Layer,
    L: Numbers,
    inverse: Numbers,
    noise: Scalar,
    engine: Engine,
    normals: Numbers,
) -> Sums:
    """Draw the sums of one batch from normals (F,).

    ``A``, ``B`` are the rows of the student neurons, ``L`` and ``inverse`` the frame of
    the target, ``noise`` is Δ.
    """
    p, r, c = A.shape[0], A.shape[1], B.shape[1]
    at = samples(FieldRows.of(A, B, L), a, noise)
    upper = np.triu_indices(p)
    star = at.pull[:, :, :r].reshape(-1, p * r)
    own = at.pull[:, :, r:].reshape(-1, p * c)
    pairs = at.pair[:, upper[0], upper[1]]
    features = jnp.concatenate([star, own, pairs, at.second], axis=1)
    average = engine(A @ A.T + B @ B.T, A @ L.T, a, noise)
    mean_star = average.psi @ inverse.T
    mean_own = (average.phi - mean_star @ A.T) @ jnp.linalg.pinv(B).T
    cut = np.cumsum([p * r, p * c, len(upper[0])])
    deviation = (
        symmetric_root(covariance(at.weights, features)) @ normals / jnp.sqrt(batch)
    )
    frame = _frame(at.mean.pair)
    gram = _positive(
        frame,
        _symmetric(deviation[cut[1] : cut[2]], p),
        _spread(frame, at) / batch,
    )
    return Sums(
        mean_star + deviation[: cut[0]].reshape(p, r),
        mean_own + deviation[cut[0] : cut[1]].reshape(p, c),
        symmetric_root(gram / batch),
        average.second + deviation[cut[2] :],
    )


def _symmetric(upper: Numbers, p: int) -> Numbers:
    """The symmetric matrix with the given upper triangle."""
    half = jnp.zeros((p, p)).at[np.triu_indices(p)].set(upper)
    return half + half.T - jnp.diag(jnp.diagonal(half))


def _positive(frame: SumFrame, deviation: Number, S: Tree) -> Numbers:
    """R exp(c Y − c² S/2) Rᵀ: positive, and R Rᵀ + deviation to first order."""
    v = jnp.maximum(jnp.trace(S) / jnp.maximum(frame.kept.sum(), 1.0), 1e-300)
    c2 = jnp.log1p(v) / v
    Y = frame.inverse @ deviation @ frame.inverse.T
    logs, axes = jnp.linalg.eigh(jnp.sqrt(c2) * Y - c2 * S / 2)
    half = frame.root @ axes * jnp.exp(logs / 2)
    return half @ half.T
