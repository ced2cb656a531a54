"""The written-out step on accelerators: all seeds at once, spread over the devices.

    for block of steps:  normals (steps, draws, seeds);   for step in block:
        state ← accept(step(state, normals))

Every operation is elementwise over seeds: devices that share them need not talk, and no
number depends on how many there are. On NVIDIA GPUs the loop over the steps of a block
is one kernel that keeps the state of a seed in registers, as long as it has few
numbers: at p = 8 such a kernel takes minutes to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from twolayer.compiled.arrays import Arrays, Columns
from twolayer.compiled.batch import few_samples
from twolayer.compiled.shape import Quantity, Row, Shape, UnrolledNumbers, UnrolledState
from twolayer.compiled.step import new_state
from twolayer.compiled.stepper import STREAMS, WrittenStepper
from twolayer.equations.orthogonal import overlaps
from twolayer.loops.stopping import DIVERGED, Lane, Watch, accept
from twolayer.numerics import random
from twolayer.numerics.arguments import Notes
from twolayer.numerics.types import Real, Tree
from twolayer.numerics.wishart import DEGREE
from twolayer.task.method import Snapshot

__all__ = ["DeviceStepper"]

TOGETHER = 128  # seeds of one block of the kernel
HELD = 2**27  # normals held at once
# p² (p + min(p, n_b)) up to which the steps are one kernel, every number by itself,
LONGEST = 150
LONGEST_COLUMNS = 600  # and with neurons side by side, if p is a power of two
STEPS = 64  # and steps whose normals are held, at most

OVER_SEEDS: Any = PartitionSpec("seeds")  # type: ignore[no-untyped-call]
LAST_OVER_SEEDS = PartitionSpec(None, "seeds")  # type: ignore[no-untyped-call]
EVERYWHERE = PartitionSpec()  # type: ignore[no-untyped-call]


def watched(shape: Shape, code: Arrays, W: Sequence[Row]) -> jax.Array:
    """‖M‖ or M_11 of rows written out; 0 where nothing is watched."""
    if shape.quantity is None:
        return jnp.zeros_like(W[0][0])
    M = [
        [sum(w * c for w, c in zip(row, l, strict=False)) for l in shape.frame]
        for row in W
    ]
    if shape.quantity == "alignment":
        return code.of(0, M[0][0])
    return jnp.sqrt(code.total(sum(m * m for row in M for m in row)))


def one_step(
    shape: Shape,
    code: Arrays,
    numbers: Sequence[Quantity] | Real,
    normal: Callable[[int], Quantity],
    carry: Tree,
    number: Real,
    stop: Real,
) -> Tree:
    """Step ``number`` of seeds side by side.

    ``normal(i)`` are the normals of the samples and then those of the Gram factor; the
    carry is the states and their bookkeeping.
    """
    old, lane = carry
    table = [
        [numbers[5 + i * (DEGREE + 2) + j] for j in range(DEGREE + 2)]
        for i in range(shape.rows)
    ]
    rates = UnrolledNumbers(numbers[0], numbers[1], numbers[2], table)
    watch = None if shape.quantity is None else Watch(numbers[3], numbers[4])
    totals = few_samples(
        code, shape, old, rates, lambda nu, i: normal(nu * shape.used + i)
    )
    new, fine = new_state(
        code, shape, old, rates, totals, lambda i: normal(shape.batch * shape.used + i)
    )
    new = jax.tree.map(lambda x, y: jnp.broadcast_to(x, y.shape), new, old)
    size = jnp.where(fine, 0.0, jnp.inf)
    return accept(
        old, new, lane, size, watched(shape, code, new.W), watch, number, number < stop
    )


def draw(shape: Shape, keys: Real, first: Real, steps: int) -> jax.Array:
    """Normals (steps, draws, seeds) of a block of steps."""
    width = shape.rank + shape.p + 1
    own = np.concatenate(
        [nu * width + np.arange(shape.used) for nu in range(shape.batch)]
    ).astype(np.uint32)
    number = (first + jnp.arange(steps)[:, None]).astype(jnp.uint32)[:, None]

    def of(role: int, index: np.ndarray) -> jax.Array:
        return random.quantile(
            *random.threefry(
                (keys[2 * role], keys[2 * role + 1]), number, index[:, None]
            )
        )

    return jnp.concatenate(
        [of(0, own), of(1, np.arange(shape.entries, dtype=np.uint32))], axis=1
    )


def opened(shape: Shape, columns: bool, flat: Any) -> UnrolledState:
    """Numbers (p (n + 1), seeds) of states one by one, or as columns of neurons side by
    side, a first axis.
    """
    p, n = shape.p, shape.rank + shape.p
    if columns:
        return UnrolledState(
            [[flat[i * p : (i + 1) * p] for i in range(n)]], [flat[n * p :]]
        )
    return UnrolledState(
        [[flat[i * p + j] for i in range(n)] for j in range(p)],
        [flat[n * p + j] for j in range(p)],
    )


def in_line(state: UnrolledState) -> Row:
    """What was opened, in its order in memory."""
    return [x for column in zip(*state.W, strict=True) for x in column] + state.a


def kernel(
    shape: Shape,
    columns: bool,
    steps: Any,
    numbers: Any,
    normals: Any,
    start: Any,
    stop: Any,
    *rest: Any,
) -> None:
    """The steps of a block for some seeds, whose states stay in registers; of the rest
    half are to be filled.
    """
    given, filled = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    code, size = (Columns(shape.p), shape.p) if columns else (Arrays(), 1)

    def line(x: jax.Array) -> jax.Array:
        return x[None] if columns else x

    own = [line(numbers[i, ...]) for i in range(numbers.shape[0])]
    first, last = line(start[...]), line(stop[...])

    def body(s: jax.Array, carry: Tree) -> Tree:
        return one_step(
            shape, code, own, lambda i: line(normals[s, i, ...]), carry, first + s, last
        )

    state = opened(shape, columns, given[0])
    state, lane = jax.lax.fori_loop(
        0, steps[0], body, (state, Lane(*(line(x[...]) for x in given[1:])))
    )
    for i, x in enumerate(in_line(state)):
        filled[0][slice(i * size, (i + 1) * size) if columns else i] = x
    for place, x in zip(filled[1:], lane, strict=True):
        place[...] = x[0] if columns else x


def as_kernel(
    shape: Shape,
    columns: bool,
    steps: jax.Array,
    numbers: jax.Array,
    normals: jax.Array,
    carry: Tree,
    first: jax.Array,
    stop: jax.Array,
) -> Tree:
    """A block of steps as one kernel."""
    from jax.experimental import (
        pallas as pl,
    )  # takes half a second, and only GPUs need it
    from jax.experimental.pallas import triton

    state, lane = carry
    together = (
        32 if columns else TOGETHER
    )  # one warp, so that the neurons of a seed stay in one thread

    def part(x: Any) -> Any:
        return pl.BlockSpec(
            (*x.shape[:-1], together), lambda i: (*(0,) * (x.ndim - 1), i)
        )

    def whole(x: Any) -> Any:
        return pl.BlockSpec(x.shape, lambda i: (0,) * x.ndim)

    parts = (normals, first, stop, state, *lane)
    count = steps[None].astype(jnp.int32)
    state, *lane = pl.pallas_call(
        partial(kernel, shape, columns),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in parts[3:]],  # type: ignore[no-untyped-call]
        grid=(len(first) // together,),
        in_specs=[
            whole(count),
            whole(numbers) if numbers.shape[1] == 1 else part(numbers),
            *map(part, parts),
        ],
        out_specs=[*map(part, parts[3:])],
        compiler_params=triton.CompilerParams(num_warps=together // 32),
        interpret=jax.default_backend() == "cpu",  # to be tested there
    )(count, numbers, *parts)
    return state, Lane(*lane)


def in_registers(shape: Shape, *rest: Tree) -> Tree:
    """A block of steps as one kernel, every number by itself."""
    return as_kernel(shape, False, *rest)


def in_columns(shape: Shape, *rest: Tree) -> Tree:
    """The same with neurons side by side, which makes shorter code."""
    return as_kernel(shape, True, *rest)


def in_memory(
    shape: Shape,
    steps: jax.Array,
    numbers: jax.Array,
    normals: jax.Array,
    carry: Tree,
    first: jax.Array,
    stop: jax.Array,
) -> Tree:
    """The same in operations of XLA."""

    def body(s: jax.Array, carry: Tree) -> Tree:
        old = opened(shape, False, carry[0]), carry[1]
        state, lane = one_step(
            shape, Arrays(), numbers, lambda i: normals[s, i], old, first + s, stop
        )
        return jnp.stack(in_line(state)), lane

    return jax.lax.fori_loop(0, steps, body, carry)


def kernel_for(shape: Shape) -> Callable[..., Tree]:
    """How a block of steps is taken here."""
    length, even = shape.p**2 * (shape.p + shape.rows), shape.p & (shape.p - 1) == 0
    if jax.default_backend() not in ("gpu", "cuda"):
        return in_memory
    if length <= LONGEST:
        return in_registers
    return in_columns if even and length <= LONGEST_COLUMNS else in_memory


@partial(jax.jit, static_argnames=("shape", "mesh", "block"))
def advance(
    shape: Shape,
    mesh: Mesh,
    block: Callable[..., Tree],
    numbers: jax.Array,
    keys: jax.Array,
    carry: Tree,
    start: jax.Array,
    stop: jax.Array,
) -> Tree:
    """Steps start … stop − 1 of all seeds, a share on each device.

    They are the last axis of states, keys and numbers, with places that no seed takes,
    and the first one of their bookkeeping and of the steps (seeds, 1).
    """
    state, lane = carry

    def along(x: jax.Array, beyond: float = 0) -> jax.Array:
        return jnp.pad(x[:, 0], (0, keys.shape[1] - len(x)), constant_values=beyond)

    def share(
        numbers: jax.Array,
        keys: jax.Array,
        carry: Tree,
        start: jax.Array,
        stop: jax.Array,
        longest: jax.Array,
    ) -> Tree:
        draws = shape.batch * shape.used + shape.entries
        at_once = int(np.clip(HELD // (draws * len(start)), 1, STEPS))

        def one(b: jax.Array, carry: Tree) -> Tree:
            first, left = start + b * at_once, longest - b * at_once
            normals = draw(shape, keys, first, at_once)
            return block(
                shape, jnp.minimum(left, at_once), numbers, normals, carry, first, stop
            )

        return jax.lax.fori_loop(0, (longest + at_once - 1) // at_once, one, carry)

    state_and_lane = (LAST_OVER_SEEDS, Lane(OVER_SEEDS, OVER_SEEDS, OVER_SEEDS))
    shared = EVERYWHERE if numbers.shape[1] == 1 else LAST_OVER_SEEDS
    places = (
        shared,
        LAST_OVER_SEEDS,
        state_and_lane,
        OVER_SEEDS,
        OVER_SEEDS,
        EVERYWHERE,
    )
    spread = jax.shard_map(
        share, mesh=mesh, in_specs=places, out_specs=state_and_lane, check_vma=False
    )
    given = (
        state,
        Lane(along(lane.code, DIVERGED), along(lane.stop), along(lane.watched)),
    )
    state, lane = spread(
        numbers, keys, given, along(start), along(stop), (stop - start).max()
    )
    return state, Lane(*(x[: len(start), None] for x in lane))


@partial(jax.jit, static_argnames=("mesh", "places"))
def spread_out(state: jax.Array, mesh: Mesh, places: int) -> jax.Array:
    """The same state (numbers, 1) for all seeds."""
    wide = jnp.broadcast_to(state, (len(state), places))
    return jax.lax.with_sharding_constraint(wide, NamedSharding(mesh, LAST_OVER_SEEDS))  # type: ignore[no-untyped-call]


@partial(jax.jit, static_argnames="mesh")
def keys_of(words: jax.Array, runs: jax.Array, mesh: Mesh) -> jax.Array:
    """Keys (4, places) of the streams of all runs."""
    keys = jnp.stack(
        [
            word
            for role in STREAMS
            for word in random.threefry(words, np.uint32(role), runs[0])
        ]
    )
    return jax.lax.with_sharding_constraint(keys, NamedSharding(mesh, LAST_OVER_SEEDS))  # type: ignore[no-untyped-call]


@partial(jax.jit, static_argnames="p")
def seen(state: jax.Array, L: Real, p: int) -> tuple[Real, Real, Real]:
    """Q, M and a of states (numbers, seeds)."""
    columns = state.reshape(-1, p, state.shape[1])
    return *overlaps(columns[:-1].transpose(2, 1, 0), L), columns[-1].T


class DeviceStepper(WrittenStepper):
    """All seeds on all devices; places that no seed takes count as stopped."""

    def start(self) -> jax.Array:
        """Numbers (numbers of a state, places) on the devices; one column where all
        seeds start alike.
        """
        self.seeds, devices = self.lanes.shape[0], jax.devices()
        whole = TOGETHER * len(devices)
        self.places = -(-self.seeds // whole) * whole
        self.mesh = Mesh(np.array(devices), ("seeds",))
        self.how = kernel_for(self.shape)
        self.given = self.put(self.numbers)
        self.words = keys_of(*self.identities(), mesh=self.mesh)
        rows, p = self.rows(), self.at.p
        by_columns = (
            rows[:, :-p].reshape(len(rows), p, -1).swapaxes(1, 2).reshape(len(rows), -1)
        )
        return self.put(np.concatenate([by_columns, rows[:, -p:]], axis=1))

    def put(self, x: np.ndarray) -> jax.Array:
        """(seeds, n) as (n, places) on the devices; one row for all seeds as it is."""
        if len(x) == 1 < self.places:
            return jax.device_put(
                np.ascontiguousarray(x.T), NamedSharding(self.mesh, EVERYWHERE)
            )
        filled = np.zeros((x.shape[1], self.places), x.dtype)
        filled[:, : self.seeds] = x.T
        filled[:, self.seeds :] = filled[:, :1]
        return jax.device_put(filled, NamedSharding(self.mesh, LAST_OVER_SEEDS))

    def identities(self) -> tuple[jax.Array, jax.Array]:
        """Two words of the seed, and the number of the run in it, of which keys are
        made where they are used.
        """
        tasks = self.lanes.tasks
        words = [
            np.array([[task.seed >> 32, task.seed & 0xFFFFFFFF]], np.uint32)
            for task in tasks
        ]
        if len(tasks) > 1:
            given = iter(words)
            words = [
                self.lanes.per_lane(
                    lambda task: np.repeat(next(given), task.seeds, axis=0)
                )
            ]
        runs = self.lanes.per_lane(lambda task: task.runs.astype(np.uint32))
        return self.put(words[0]), self.put(runs[:, None])

    def run(self, carry: Tree, start: Real, stop: Real) -> Tree:
        """Compiled steps of all seeds."""
        state, lane = carry
        if state.shape[1] < self.places:
            state = spread_out(state, self.mesh, self.places)
        return advance(
            self.shape,
            self.mesh,
            self.how,
            self.given,
            self.words,
            (state, lane),
            start,
            stop,
        )

    def snapshot(self, state: jax.Array) -> Snapshot:
        """Overlaps of all seeds."""
        found = [np.asarray(x) for x in seen(state, self.L, self.at.p)]
        if state.shape[1] < self.places:
            found = [np.broadcast_to(x, (self.seeds, *x.shape[1:])) for x in found]
        return Snapshot(*(self.lanes.of_seeds(x[: self.seeds])[:, None] for x in found))

    def notes(self, diverged: bool) -> Notes:
        """How the steps were taken."""
        return {"batch_sums": "exact", "steps": "jax, written out"}
