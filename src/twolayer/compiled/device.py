"""The written-out step on accelerators: all seeds at once, spread over the devices.

    state: (numbers, seeds);    normals of a step where it uses them;    blocks of steps in one compiled call

Every operation is elementwise over seeds: devices that share them need not talk, and no number depends on how many
there are.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from twolayer.compiled.arrays import Arrays
from twolayer.compiled.batch import few_samples
from twolayer.compiled.shape import Numbers, Shape, State
from twolayer.compiled.step import new_state
from twolayer.compiled.stepper import WrittenStepper
from twolayer.loops.watching import Lane, Watch, accept
from twolayer.numerics import random
from twolayer.numerics.wishart import DEGREE
from twolayer.task.method import Snapshot

__all__ = ["DeviceStepper"]

BLOCK = 64  # steps in a loop of known length, which needs no word from the host


def watched(shape: Shape, W: Any) -> Any:
    """‖M‖ or M_11 of rows written out; 0 where nothing is watched."""
    if shape.quantity is None:
        return jnp.zeros_like(W[0][0])
    M = [[sum(w * c for w, c in zip(row, l, strict=False)) for l in shape.frame] for row in W]
    return M[0][0] if shape.quantity == "alignment" else jnp.sqrt(sum(m * m for row in M for m in row))


@partial(jax.jit, static_argnames="shape")
def advance(shape: Shape, numbers: Any, keys: Any, carry: Any, start: Any, stop: Any) -> Any:
    """Steps start … stop − 1 of all seeds; arrays have the seeds last."""
    code, p, n = Arrays(), shape.p, shape.rank + shape.p
    table = [[numbers[5 + i * (DEGREE + 2) + j] for j in range(DEGREE + 2)] for i in range(shape.rows)]
    rates = Numbers(numbers[0], numbers[1], numbers[2], table)
    watch = None if shape.quantity is None else Watch(numbers[3], numbers[4])
    width = n + 1
    own = np.concatenate([nu * width + np.arange(shape.used) for nu in range(shape.batch)]).astype(np.uint32)

    def normals(role: int, step: Any, index: np.ndarray) -> Any:
        key = (keys[2 * role], keys[2 * role + 1])
        high, low = random.threefry(key, step.astype(jnp.uint32)[None], jnp.asarray(index)[:, None])
        return random.quantile(high, low)

    def step(carry: Any, number: Any) -> Any:
        state, lane = carry
        old = State([[state[j * n + i] for i in range(n)] for j in range(p)], [state[p * n + j] for j in range(p)])
        xi, outside = normals(0, number, own), normals(1, number, np.arange(shape.entries, dtype=np.uint32))
        totals = few_samples(code, shape, old, rates, lambda nu, i: xi[nu * shape.used + i])
        new, fine = new_state(code, shape, old, rates, totals, lambda i: outside[i])
        flat = jnp.stack([jnp.broadcast_to(x, number.shape) for x in (*(x for row in new.W for x in row), *new.a)])
        size = jnp.where(fine, 0.0, jnp.inf)
        return accept(state, flat, lane, size, watched(shape, new.W), watch, number, number < stop)

    def block(b: Any, carry: Any) -> Any:
        return jax.lax.fori_loop(0, BLOCK, lambda i, carry: step(carry, start + b * BLOCK + i), carry)

    return jax.lax.fori_loop(0, ((stop - start).max() + BLOCK - 1) // BLOCK, block, carry)


class DeviceStepper(WrittenStepper):
    """All seeds on all devices."""

    def start(self) -> Any:
        """Numbers (numbers of a state, seeds) on the devices."""
        seeds, devices = len(self.keys), jax.devices()
        mesh = Mesh(np.array(devices[: math.gcd(seeds, len(devices))]), ("seeds",))
        self.over_seeds, everywhere, over_both = (
            NamedSharding(mesh, PartitionSpec(*axes))  # type: ignore[no-untyped-call]
            for axes in (("seeds",), (), (None, "seeds"))
        )
        self.on_devices = jax.device_put(self.numbers.T, everywhere if len(self.numbers) == 1 else over_both)
        self.words = jax.device_put(np.ascontiguousarray(self.keys.T), over_both)
        rows = self.rows().T
        if rows.shape[1] == seeds:
            return jax.device_put(np.ascontiguousarray(rows), over_both)
        return jax.jit(lambda x: jnp.broadcast_to(x, (len(x), seeds)), out_shardings=over_both)(rows)

    def run(self, carry: Any, start: Any, stop: Any) -> Any:
        """Compiled steps of all seeds."""
        state, lane = carry
        flat = (jax.device_put(x[:, 0], self.over_seeds) for x in (*lane, start, stop))
        code, stopped, seen, first, last = flat
        state, lane = advance(self.shape, self.on_devices, self.words, (state, Lane(code, stopped, seen)), first, last)
        return state, Lane(*(x[:, None] for x in lane))

    def snapshot(self, state: Any) -> Snapshot:
        """Overlaps of all seeds."""
        found = (np.asarray(x)[self.lanes.index, None] for x in jax.jit(lambda state: self.overlaps(state.T))(state))
        return Snapshot(*found)

    def notes(self, diverged: bool) -> dict[str, Any]:
        """How the steps were taken."""
        return {"batch_sums": "exact", "steps": "jax, written out"}
