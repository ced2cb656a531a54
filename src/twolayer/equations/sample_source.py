"""Where the samples of a step come from: drawn anew, or from a fixed set.

    fresh         sample i of batch b has number (b, i)
    sequence      the same with b mod B, B = dataset/batch: the set is cut into batches,
                  visited in turn
    reshuffled    sample i of batch b is sample π(⌊b/B⌋, (b mod B) n_b + i) of the set,
                  π(e, ·) a random permutation
    subset        π(b, i)
    replacement   s(b, i), uniform

Step t has batch b = ⌊t/r⌋: every batch is used in r steps. Inputs are functions of
their number (random.py), so a fixed set is never stored: it is drawn again whenever it
is visited, which costs about as much as one product with the weights. The first pass
through a set in sequence uses the very numbers of fresh samples.

Given rows have numbers too: sample i is row π(i) of them, with a permutation of its own
for every seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twolayer.equations.increment_kernel import Kernel
from twolayer.equations.optimiser_step import Form
from twolayer.numerics import random
from twolayer.numerics.shuffle import below, shuffled
from twolayer.numerics.types import Number, Numbers, Real, Tree

__all__ = ["Batch", "SampleForm", "draw", "draw_again", "inputs", "sample_numbers"]

INPUTS_AT_ONCE = 2**18  # numbers z_i held per seed


@dataclass(frozen=True)
class SampleForm:
    """Shapes and choices that fix the compiled code; ``dataset`` is None for fresh
    samples.

    Where the batch ``varies``, it is the largest one here.
    """

    kernel: Kernel
    form: Form
    dim: int
    batch: int
    quantity: str | None
    dataset: int | None = None
    sampling: str = "sequence"
    repeat: int = 1
    varies: bool = False
    given: int = 0  # rows that are given, if they are

    @property
    def remembers(self) -> bool:
        """Whether samples come back, or are given."""
        return self.dataset is not None or self.repeat > 1 or self.given > 0

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
        """Whether samples of the set are chosen one by one."""
        return self.dataset is not None and self.sampling != "sequence"

    @property
    def size(self) -> int:
        """Samples that the training risk is taken over: the set, or the batch in
        use.
        """
        return (self.given or self.batch) if self.dataset is None else self.dataset

    @property
    def visits(self) -> int:
        """Chunks in one visit to all of them."""
        return (
            -(-self.size // self.chunk)
            if self.at_random
            else self.size // self.batch * self.chunks
        )


class Batch(NamedTuple):
    """Inputs, as two halves, and noise of one chunk of samples; ``again`` is noise that
    labels get at this visit alone.

    The halves are those of the flattened (samples, d) array, or where samples are
    chosen one by one those of each row.
    """

    halves: tuple[Real, Real]
    noise: Real
    again: Real | None = None


def draw(spec: SampleForm, keys: Tree, number: Number, chunk: Number) -> Batch:
    """Inputs z (samples, d), in single precision, and label noise of one chunk of step
    ``number``.

    ``keys`` (2 to 4, 2) are those of inputs, labels and, where there are such, of the
    choice of samples and of what the algorithm itself draws.
    """
    batch = _drawn(spec, keys, jnp.asarray(number) // spec.repeat, chunk)
    if not spec.kernel.labels.more:
        return batch
    step = jnp.asarray(number).astype(jnp.uint32)
    return batch._replace(again=random.normal(keys[-1], step, _positions(spec, chunk)))


def _drawn(spec: SampleForm, keys: Tree, number: Real, chunk: Number) -> Batch:
    """Inputs and label noise of one chunk of batch ``number``."""
    if spec.at_random:
        return _by_number(
            spec, keys, _chosen(spec, keys[2], number, _positions(spec, chunk))
        )
    if spec.dataset is not None:
        number = number % (spec.dataset // spec.batch)
    if spec.given:
        return _by_number(spec, keys, number * spec.batch + _positions(spec, chunk))
    word, part = number.astype(jnp.uint32), jnp.asarray(chunk).astype(jnp.uint32)
    key = jnp.stack(random.threefry((keys[0, 0], keys[0, 1]), jnp.uint32(0x5EED), part))
    index = jnp.arange(-(-spec.chunk * spec.dim // 2), dtype=jnp.uint32)
    return Batch(
        random.normal_32(key, word, index),
        random.normal(keys[1], word, _positions(spec, chunk)),
    )


def sample_numbers(
    spec: SampleForm, keys: Tree, number: Number, chunk: Number
) -> tuple[Real, Real]:
    """Numbers in the set, or in a fresh batch, of the samples of one chunk of step
    ``number``, and which of them are in the batch.
    """
    batch, position = jnp.asarray(number) // spec.repeat, _positions(spec, chunk)
    inside = position < spec.batch
    if spec.at_random:
        return _chosen(spec, keys[2], batch, position), inside
    if spec.dataset is not None:
        return batch % (spec.dataset // spec.batch) * spec.batch + position, inside
    return position, inside


def draw_again(
    spec: SampleForm, keys: Tree, visit: Number, taken: Number
) -> tuple[Batch, Real]:
    """Chunk number ``visit`` of the set, or of the batch of the last step, and which of
    its samples are inside it.

    ``taken`` is how many steps have been taken; before the first one the batch is that
    of the first.
    """
    if spec.at_random:
        number = _positions(spec, visit)
        return _by_number(spec, keys, number), number < spec.size
    batch, chunk = visit // spec.chunks, visit % spec.chunks
    whole = spec.dataset is not None or spec.given
    step = batch * spec.repeat if whole else jnp.maximum(taken, 1) - 1
    return draw(spec, keys, step, chunk), _positions(spec, chunk) < spec.batch


def inputs(spec: SampleForm, batch: Batch) -> Numbers:
    """z (samples, d) in double precision."""
    joined = jnp.concatenate(batch.halves, axis=-1)
    if spec.at_random:
        return joined[:, : spec.dim].astype(jnp.float64)
    return (
        joined[: spec.chunk * spec.dim]
        .reshape(spec.chunk, spec.dim)
        .astype(jnp.float64)
    )


def _positions(spec: SampleForm, chunk: Number) -> Real:
    """Positions of the samples of a chunk in its batch, or in the set."""
    return jnp.asarray(chunk).astype(jnp.uint32) * np.uint32(spec.chunk) + jnp.arange(
        spec.chunk, dtype=jnp.uint32
    )


def _chosen(spec: SampleForm, key: Tree, batch: Real, position: Real) -> Real:
    """Numbers in the set of the samples of a batch."""
    n = spec.size
    if spec.sampling == "replacement":
        return below(
            random.threefry((key[0], key[1]), batch.astype(jnp.uint32), position)[0], n
        )
    if spec.sampling == "reshuffled":
        parts = n // spec.batch
        position, batch = (
            position + (batch % parts).astype(jnp.uint32) * np.uint32(spec.batch),
            batch // parts,
        )
    return shuffled(key, batch, jnp.minimum(position, np.uint32(n - 1)), n)


def _by_number(spec: SampleForm, keys: Tree, number: Real) -> Batch:
    """Samples of the set by their numbers; given ones are known by the numbers of their
    rows.
    """
    number = number.astype(jnp.uint32)
    if spec.given:
        row = shuffled(
            keys[0], 0, jnp.minimum(number, np.uint32(spec.given - 1)), spec.given
        )
        return Batch((row, row), jnp.zeros(row.shape))
    index = jnp.arange(-(-spec.dim // 2), dtype=jnp.uint32)
    halves = random.normal_32(keys[0], number[:, None], index[None, :])
    return Batch(halves, random.normal(keys[1], jnp.uint32(0), number))
