"""Where the samples of a step come from: drawn anew, or from a fixed set.

    fresh         sample i of step t has number (t, i)
    sequence      the same with t mod (dataset/batch): the set is cut into batches, visited in turn
    replacement   sample i of step t is sample s(t, i) of the set, s uniform

Inputs are functions of their number (random.py), so a fixed set is never stored: it is drawn again whenever it is
visited, which costs about as much as one product with the weights. The first pass through a set in sequence uses the
very numbers of fresh samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from twolayer.equations.kernel import Kernel
from twolayer.equations.step import Form
from twolayer.numerics import random

__all__ = ["Batch", "Spec", "draw", "draw_again", "inputs"]

INPUTS_AT_ONCE = 2**18  # numbers z_i held per seed


@dataclass(frozen=True)
class Spec:
    """Shapes and choices that fix the compiled code; ``dataset`` is None for fresh samples.

    Where the batch ``varies``, it is the largest one here.
    """

    kernel: Kernel
    form: Form
    dim: int
    batch: int
    quantity: str | None
    dataset: int | None = None
    sampling: str = "sequence"
    varies: bool = False

    @property
    def chunk(self) -> int:
        """Samples drawn at once."""
        return min(self.batch, max(1, INPUTS_AT_ONCE // self.dim))

    @property
    def chunks(self) -> int:
        """Chunks of samples in a batch."""
        return -(-self.batch // self.chunk)

    @property
    def at_random(self) -> bool:
        """Whether batches are drawn from the set with replacement."""
        return self.dataset is not None and self.sampling == "replacement"

    @property
    def visits(self) -> int:
        """Chunks in one visit to the whole set."""
        assert self.dataset is not None
        return -(-self.dataset // self.chunk) if self.at_random else self.dataset // self.batch * self.chunks


class Batch(NamedTuple):
    """Inputs, as two halves, and noise of one chunk of samples.

    The halves are those of the flattened (samples, d) array, or with replacement those of each row.
    """

    halves: tuple[Any, Any]
    noise: Any


def draw(spec: Spec, keys: Any, number: Any, chunk: Any) -> Batch:
    """Inputs z (samples, d), in single precision, and label noise of one chunk of step ``number``.

    ``keys`` (2 or 3, 2) are those of inputs, labels and, with replacement, of the choice of samples.
    """
    if spec.at_random:
        index = _positions(spec, chunk)
        high, _ = random.threefry((keys[2, 0], keys[2, 1]), jnp.asarray(number).astype(jnp.uint32), index)
        assert spec.dataset is not None
        return _by_number(spec, keys, (high.astype(jnp.uint64) * np.uint64(spec.dataset)) >> np.uint64(32))
    if spec.dataset is not None:
        number = jnp.asarray(number) % (spec.dataset // spec.batch)
    word, part = jnp.asarray(number).astype(jnp.uint32), jnp.asarray(chunk).astype(jnp.uint32)
    key = jnp.stack(random.threefry((keys[0, 0], keys[0, 1]), jnp.uint32(0x5EED), part))
    index = jnp.arange(-(-spec.chunk * spec.dim // 2), dtype=jnp.uint32)
    return Batch(random.normal_32(key, word, index), random.normal(keys[1], word, _positions(spec, chunk)))


def draw_again(spec: Spec, keys: Any, visit: Any) -> tuple[Batch, Any]:
    """Chunk number ``visit`` of the fixed set, and which of its samples are inside the set."""
    if spec.at_random:
        number = _positions(spec, visit)
        return _by_number(spec, keys, number), number < spec.dataset
    batch, chunk = visit // spec.chunks, visit % spec.chunks
    return draw(spec, keys, batch, chunk), _positions(spec, chunk) < spec.batch


def inputs(spec: Spec, batch: Batch) -> Any:
    """Z (samples, d) in double precision."""
    joined = jnp.concatenate(batch.halves, axis=-1)
    if spec.at_random:
        return joined[:, : spec.dim].astype(jnp.float64)
    return joined[: spec.chunk * spec.dim].reshape(spec.chunk, spec.dim).astype(jnp.float64)


def _positions(spec: Spec, chunk: Any) -> Any:
    """Positions of the samples of a chunk in its batch, or in the set."""
    return jnp.asarray(chunk).astype(jnp.uint32) * np.uint32(spec.chunk) + jnp.arange(spec.chunk, dtype=jnp.uint32)


def _by_number(spec: Spec, keys: Any, number: Any) -> Batch:
    """Samples of the set by their numbers."""
    number = number.astype(jnp.uint32)
    index = jnp.arange(-(-spec.dim // 2), dtype=jnp.uint32)
    halves = random.normal_32(keys[0], number[:, None], index[None, :])
    return Batch(halves, random.normal(keys[1], jnp.uint32(0), number))
