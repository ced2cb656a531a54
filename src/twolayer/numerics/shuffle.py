"""Random permutations of 0 … n − 1 as functions of their number: no order is ever
stored.

    round r:  x' = K_r − x mod n,   x ← x or x', by a coin that both of them share
              (swap or not)

Every round is a permutation made of random exchanges, and a few times log₂ n of them
leave no trace of where a number began. A place costs O(log n), whatever else is asked
for. The method is that of Hoang, Morris and Rogaway (2012).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.numerics.random import Key, threefry
from twolayer.numerics.types import Number, Real

__all__ = ["below", "shuffled"]

ROUNDS, MORE = 6, 20  # rounds per bit of n, and beyond


def shuffled(key: Key, number: Number, index: Number, n: int) -> jax.Array:
    """Where permutation ``number`` puts the given indices below ``n``; uint32."""
    number, size = jnp.asarray(number).astype(jnp.uint32), np.uint32(n)

    def swap(r: jax.Array, x: jax.Array) -> jax.Array:
        high, low = threefry((key[0], key[1]), number, r.astype(jnp.uint32))
        other = below(high, n) + (size - x)
        other = jnp.where(other >= size, other - size, other)
        coin, _ = threefry((high, low), jnp.maximum(x, other), jnp.zeros_like(x))
        return jnp.where(coin >> np.uint32(31) == 0, x, other)

    rounds = MORE + ROUNDS * max(1, n - 1).bit_length()
    return jax.lax.fori_loop(0, rounds, swap, jnp.asarray(index).astype(jnp.uint32))


def below(word: Real, n: int) -> Real:
    """Random words as integers below n, with a bias of at most n/2³².

    >>> from twolayer.numerics.precision import float64
    >>> float64(below)(jnp.asarray([0, 2**31, 2**32 - 1], "uint32"), 10).tolist()
    [0, 5, 9]
    """
    return ((word.astype(jnp.uint64) * np.uint64(n)) >> np.uint64(32)).astype(
        jnp.uint32
    )
