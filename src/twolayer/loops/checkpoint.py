"""A run on disk while it is under way: its state at a save point, and all that was seen until then.

    state after n steps + random numbers as functions of (seed, run, step, index)  →  the same end, bit by bit

The file holds arrays and nothing else. It belongs to one description: another one is refused. It is replaced whole, so
that a kill leaves the one before, and goes away when the run has come to its end.
"""

from __future__ import annotations

import time as wall
from pathlib import Path

import jax
import numpy as np

from twolayer.loops.host_loop import Standing
from twolayer.numerics.errors import InputError, short
from twolayer.numerics.foreign_files import check_format, check_size, reading
from twolayer.numerics.types import Real
from twolayer.numerics.writing import check_writable, write_atomically
from twolayer.task.method import Evolution

__all__ = ["Checkpoint"]

FORMAT = "twolayer-checkpoint/1"
EVERY = 10.0  # seconds between two of them


class Checkpoint:
    """The file of one run, ``path``, written at save points at least ``every`` so many seconds apart.

    ``key`` is what the numbers depend on: a file with another one is refused.
    """

    def __init__(self, path: Path, key: str, every: float = EVERY) -> None:
        if path.suffix != ".npz":
            raise InputError(
                f"Argument `checkpoint` must end in .npz, but got {short(str(path), 200)}."
            )
        check_writable(path, "Argument `checkpoint`")
        self.path, self.key, self.every = path, key, every
        self._written = wall.monotonic()

    def read(self, evolution: Evolution) -> Standing | None:
        """Where the run stood, or None where there is no file."""
        if not self.path.exists():
            return None
        what = f"The checkpoint {short(str(self.path), 200)}"
        first = evolution.initial()
        leaves, structure = jax.tree.flatten(first)
        with (
            reading(what),
            self.path.open("rb") as raw,
            np.load(raw, allow_pickle=False) as file,
        ):
            check_size(
                what,
                sum(item.file_size for item in file.zip.infolist()),
                self.path.stat().st_size,
            )
            check_format(what, str(file["format"]), FORMAT)
            if str(file["key"]) != self.key:
                raise InputError(
                    f"{what} belongs to another run, or other versions: remove it, or give another name."
                )
            own = [_like(leaf, file[f"state{i}"]) for i, leaf in enumerate(leaves)]
            shown = evolution.snapshot(first)
            seen = type(shown)(*(file.get(name) for name in shown._fields))
            return Standing(jax.tree.unflatten(structure, own), int(file["at"]), seen)

    def write(self, point: Standing) -> None:
        """Keep where the run stands, unless that was done a moment ago."""
        if wall.monotonic() - self._written < self.every:
            return
        arrays = {
            f"state{i}": np.asarray(x)
            for i, x in enumerate(jax.tree.leaves(point.state))
        }
        arrays |= {name: x for name, x in point.seen._asdict().items() if x is not None}
        arrays |= {
            name: np.asarray(x)
            for name, x in (("format", FORMAT), ("key", self.key), ("at", point.at))
        }

        def put(path: Path) -> None:
            with path.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)

        write_atomically(self.path, put)
        self._written = wall.monotonic()

    def close(self) -> None:
        """The run has come to its end."""
        self.path.unlink(missing_ok=True)


def _like(leaf: Real, stored: np.ndarray) -> Real:
    """A stored part of the state as the run has it."""
    if np.shape(leaf) != stored.shape or np.asarray(leaf).dtype != stored.dtype:
        raise ValueError("the shape of its state")
    if isinstance(leaf, jax.Array):
        return jax.device_put(stored, leaf.sharding)
    return stored if isinstance(leaf, np.ndarray) else type(leaf)(stored)
