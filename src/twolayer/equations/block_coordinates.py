"""Where rows lie when inputs have blocks: coordinates along the target's parts first,
then what each block has beside.

    W = ( A⁽¹⁾ … A⁽ᵇ⁾ | B⁽¹⁾ | … | B⁽ᵇ⁾ ),    M⁽ⁱ⁾ = A⁽ⁱ⁾ L⁽ⁱ⁾ᵀ,
        Q⁽ⁱ⁾ = A⁽ⁱ⁾ A⁽ⁱ⁾ᵀ + B⁽ⁱ⁾ B⁽ⁱ⁾ᵀ,    P⁽ⁱ⁾ = L⁽ⁱ⁾ L⁽ⁱ⁾ᵀ
    a coordinate of block i of an input is √s_i ξ,    λ* = x_A Lᵀ with L = (L⁽¹⁾ … L⁽ᵇ⁾)

Explicit vectors hold all d_i coordinates of a block. The chain holds k_i + c_i of them,
k_i = rank P⁽ⁱ⁾, and what a batch adds in the other n_i = d_i − k_i − c_i has a Gram
matrix of Wishart law: C T⁽ⁱ⁾ with one C for all blocks and factors T⁽ⁱ⁾ that are
independent. Blocks of at most k_i + c_i dimensions are held whole and need no factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from twolayer.equations.orthogonal import embed
from twolayer.task.inputs import Inputs
from twolayer.task.overlaps import check_room, factor_of

__all__ = ["BlockLayout"]


@lru_cache(maxsize=4096)
def frame_of(P: bytes, k: int) -> np.ndarray:
    """L with P = L Lᵀ, from the numbers of P; many blocks have the same."""
    return factor_of(np.frombuffer(P).reshape(k, k))[0]


@dataclass(frozen=True, eq=False)
class BlockLayout:
    """Coordinates of rows in blocks, in the order in which they are held."""

    variances: tuple[float, ...]  # s_i
    sizes: tuple[int, ...]  # d_i
    frames: list[np.ndarray]  # L⁽ⁱ⁾ (k, k_i)
    own: tuple[int, ...]  # coordinates of each block beside the target's
    order: tuple[int, ...]  # blocks in the order in which these are held

    @classmethod
    def of(
        cls, inputs: Inputs, P: np.ndarray, dim: int, most: int | None = None
    ) -> BlockLayout:
        """All coordinates at dimension d, or ``most`` of a block beside the target's;
        those held whole come first.
        """
        sizes = inputs.sizes(dim)
        frames = [frame_of(np.asarray(one, float).tobytes(), len(one)) for one in P]
        check_room("start", sizes, [L.shape[1] for L in frames])
        left = [n - L.shape[1] for n, L in zip(sizes, frames, strict=True)]
        own = tuple(n if most is None else min(n, most) for n in left)
        order = sorted(range(len(sizes)), key=lambda i: (left[i] > own[i], left[i], i))
        return cls(inputs.variances, sizes, frames, own, tuple(order))

    @property
    def L(self) -> np.ndarray:
        """Rows of the target in the coordinates along it, (k, Σ k_i)."""
        return np.concatenate(self.frames, axis=1)

    @property
    def block(self) -> np.ndarray:
        """The block of every coordinate."""
        star = np.repeat(np.arange(len(self.sizes)), [L.shape[1] for L in self.frames])
        return np.concatenate(
            [star, np.repeat(self.order, [self.own[i] for i in self.order])]
        ).astype(int)

    @property
    def scale(self) -> np.ndarray:
        """√s_i of every coordinate."""
        return np.sqrt(np.asarray(self.variances))[self.block]

    @property
    def outside(self) -> tuple[int, ...]:
        """n_i of the blocks that are not held whole, in their order, which is that of
        n_i.
        """
        left = (
            self.sizes[i] - self.frames[i].shape[1] - self.own[i] for i in self.order
        )
        return tuple(n for n in left if n > 0)

    @property
    def spread(self) -> np.ndarray:
        """√s_i of these blocks."""
        count = len(self.outside)
        return np.sqrt(
            [self.variances[i] for i in self.order[len(self.order) - count :]]
        )

    def place(self, Q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """Rows (…, p, coordinates) with overlaps Q (…, b, p, p) and M (…, b, p, k)."""
        along, beside = [], {}
        for i, L in enumerate(self.frames):
            A, beside[i] = embed(
                Q[..., i, :, :],
                M[..., i, :, :],
                np.linalg.pinv(L),
                self.own[i],
                f" in block {i + 1}",
            )
            along.append(A)
        return np.concatenate([*along, *(beside[i] for i in self.order)], axis=-1)

    def seen(self, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Q (…, b, p, p) and M (…, b, p, k) of rows."""
        block, r = self.block, self.L.shape[1]
        Q, M = [], []
        for i, L in enumerate(self.frames):
            rows = W[..., block == i]
            Q.append(rows @ rows.swapaxes(-1, -2))
            M.append(W[..., :r][..., block[:r] == i] @ L.T)
        return np.stack(Q, axis=-3), np.stack(M, axis=-3)
