"""A run on disk while it is under way: its state at a save point, and all that was seen
until then.

    state after n steps + random numbers as functions of (seed, run, step, index)  →
        the same end, bit by bit

The file holds arrays and nothing else. It belongs to one description: another one is
refused. It is replaced whole, so that a kill leaves the one before.

When the run ends, its end is kept there, for nobody has saved the result yet: the same
call takes it as finished. It goes when the result is saved whole (`release`), and gives
way to the checkpoint of another run of that name.
"""

from __future__ import annotations

import contextlib
import io
import time as wall
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from twolayer.loops.host_loop import Standing
from twolayer.numerics.errors import InputError, short
from twolayer.numerics.foreign_files import check_format, read_arrays, reading
from twolayer.numerics.types import Real
from twolayer.numerics.writing import check_writable, write_atomically
from twolayer.task.method import Evolution

__all__ = ["Checkpoint", "release"]

FORMAT = "twolayer-checkpoint/1"
ENCODED = (  # its place among the encodings of a dataset, which are not written
    "checkpoint"
)
EVERY = 10.0  # seconds between two of them


class Checkpoint:
    """The file of one run, ``path``, written at save points at least ``every`` so many
    seconds apart.

    ``key`` is what the numbers depend on: a file with another one is refused.
    """

    def __init__(self, path: Path, key: str, every: float = EVERY) -> None:
        if path.suffix != ".npz":
            raise InputError(
                "Argument `checkpoint` must end in .npz, but got"
                f" {short(str(path), 200)}."
            )
        check_writable(path, "Argument `checkpoint`")
        self.path, self.key, self.every = path, key, every
        self._written, self._ended = wall.monotonic(), False

    def read(self, evolution: Evolution) -> Standing | None:
        """Where the run stood, or None where there is no file, or only the end of
        another run.
        """
        if not self.path.exists():
            return None
        what = f"The checkpoint {short(str(self.path), 200)}"
        first = evolution.initial()
        leaves, structure = jax.tree.flatten(first)
        with reading(what):
            file = read_arrays(self.path, what, self.path.stat().st_size)
            check_format(what, str(file["format"]), FORMAT)
            ended = bool(file.get("ended", False))
            if str(file["key"]) != self.key:
                if ended:
                    return None
                raise InputError(
                    f"{what} belongs to another run, or other versions: remove it, or"
                    " give another name."
                )
            own = [_like(leaf, file[f"state{i}"]) for i, leaf in enumerate(leaves)]
            shown: Any = evolution.snapshot(first)
            seen = type(shown)(*(file.get(name) for name in shown._fields))
            self._ended = ended
            return Standing(jax.tree.unflatten(structure, own), int(file["at"]), seen)

    def write(self, point: Standing) -> None:
        """Keep where the run stands, unless that was done a moment ago."""
        if wall.monotonic() - self._written >= self.every:
            self._put(point, ended=False)
            self._written = wall.monotonic()

    def finish(self, point: Standing) -> None:
        """Keep the end of the run; where that cannot be done the result is there all
        the same.
        """
        if not self._ended:
            with contextlib.suppress(OSError, MemoryError):
                self._put(point, ended=True)

    def _put(self, point: Standing, ended: bool) -> None:
        arrays = {
            f"state{i}": np.asarray(x)
            for i, x in enumerate(jax.tree.leaves(point.state))
        }
        arrays |= {name: x for name, x in point.seen._asdict().items() if x is not None}
        facts = {"format": FORMAT, "key": self.key, "at": point.at, "ended": ended}
        arrays |= {name: np.asarray(x) for name, x in facts.items()}
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        write_atomically(self.path, file.getbuffer())

    def hand_over(self, result: xr.Dataset) -> None:
        """Let a result know its checkpoint, which `release` removes when the result has
        been saved.
        """
        result.encoding[ENCODED] = Kept(
            str(self.path.absolute()), self.key, dict(result.sizes)
        )


class Kept(NamedTuple):
    """The checkpoint of a result: the file, the run that it belongs to, and the sizes
    of the result.
    """

    path: str
    key: str
    sizes: dict[Hashable, int]


def release(result: object) -> None:
    """Remove the checkpoint of a run whose result is saved, unless it is a part of the
    result, or another run's.
    """
    kept = getattr(result, "encoding", {}).get(ENCODED)
    if not isinstance(kept, Kept) or kept.sizes != dict(getattr(result, "sizes", {})):
        return
    path = Path(kept.path)
    with contextlib.suppress(InputError, OSError):
        with reading("The checkpoint"):
            known = str(read_arrays(path, "The checkpoint", path.stat().st_size)["key"])
        if known == kept.key:
            path.unlink()


def _like(leaf: Real, stored: np.ndarray) -> Real:
    """A stored part of the state as the run has it."""
    if np.shape(leaf) != stored.shape or np.asarray(leaf).dtype != stored.dtype:
        raise ValueError("the shape of its state")
    if isinstance(leaf, jax.Array):
        return jax.device_put(stored, leaf.sharding)
    return stored if isinstance(leaf, np.ndarray) else type(leaf)(stored)
