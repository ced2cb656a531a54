"""The state that equations of the overlaps move, (Q, M, a) of one start, and small
changes of it as vectors.

x = (M, upper triangle of Q, and a if it is trained) ∈ R^F,    F = p k + p (p + 1)/2 (+
p)
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twolayer.numerics.types import Cross, Gram, Layer, Numbers

__all__ = ["Overlap", "pack", "size_of", "unpack"]


class Overlap(NamedTuple):
    """Overlaps of the neurons with each other (p, p) and with the target's directions
    (p, k), and the second layer.
    """

    Q: Gram
    M: Cross
    a: Layer


def size_of(p: int, k: int, trained: bool = False) -> int:
    """F, the entries of a packed state."""
    return p * k + p * (p + 1) // 2 + p * trained


def pack(Q: Gram, M: Cross, a: Layer, trained: bool) -> Numbers:
    """(M, upper triangle of Q, and a if it is trained) in one vector (…, F).

    Examples
    --------
    >>> pack(jnp.eye(2), jnp.zeros((2, 1)), jnp.ones(2), trained=False).tolist()
    [0.0, 0.0, 1.0, 0.0, 1.0]
    """
    rows, columns = np.triu_indices(Q.shape[-1])
    parts = [M.reshape(*M.shape[:-2], -1), Q[..., rows, columns]] + (
        [a] if trained else []
    )
    return jnp.concatenate(parts, axis=-1)


def unpack(
    x: Numbers, p: int, k: int, trained: bool
) -> tuple[Numbers, Numbers, Numbers]:
    """Q, M and a (zeros if it is not trained) of a packed vector (F,)."""
    rows, columns = np.triu_indices(p)
    M, rest = x[: p * k].reshape(p, k), x[p * k :]
    upper = jnp.zeros((p, p)).at[rows, columns].set(rest[: len(rows)])
    return (
        upper + jnp.triu(upper, 1).T,
        M,
        rest[len(rows) :] if trained else jnp.zeros(p),
    )
