"""Stores of sweeps against a plain model: a set of finished runs for each store.

A run is (dimension, noise, seed), and what it measured is a formula of these. Stores are made, grow along their axes
and in seeds, are merged, opened twice at once, cut as by a power cut, and killed or stopped by a full disk at any of
their operations. After every step `load_sweep` has to show exactly the runs of the model with exactly their values;
after a kill, those that were finished, and of those in hand any.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import twolayer as tl
from twolayer.numerics.errors import RunFailed
from twolayer.numerics.temporary_files import mark
from twolayer.sweeps.batch import SEED_BLOCK, Result
from twolayer.sweeps.files import StoredGrid
from twolayer.sweeps.reductions import Quantity
from twolayer.sweeps.store import Store

from .operations import Nth, Operation, watched

DIMS, NOISES = (10.0, 20.0, 30.0, 40.0), (0.0, 0.5, 1.0)
NOBODY = 2**22 + 7  # no process has this number
NAMES = ("a.zarr", "b.zarr")
SETTINGS = settings(
    max_examples=3,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

Run = tuple[float, float, int]


class Killed(Exception):
    """Stands for the end of the process: what is on disk at this moment has been copied, and nothing works any more."""


class Unit(NamedTuple):
    """Seeds of a cell within one block."""

    dim: float
    noise: float
    low: int
    high: int

    @property
    def runs(self) -> set[Run]:
        """What it consists of."""
        return {(self.dim, self.noise, seed) for seed in range(self.low, self.high)}


def measured(run: Run) -> tuple[float, np.ndarray, int]:
    """What a run measured: a number, as many numbers as its width, a count."""
    dim, noise, seed = run
    width = 2 + int(dim) // 30
    return (
        dim + noise / 7 + seed / 1000,
        np.arange(width) * 1.1 + dim - seed,
        int(dim) * 100 + seed,
    )


def grid_of(dims: list[float], noises: list[float], seeds: int) -> StoredGrid:
    """A sweep over some dimensions and noises."""
    description = {"run": {"seed": 0, "streams": "common"}, "method": {"name": "chain"}}
    axes = {"method.dim": dims, "problem.noise": noises}
    return StoredGrid(
        {"hash": "one sweep", "description": description, "axes": axes, "seeds": seeds}
    )


def result_of(unit: Unit) -> Result:
    """What a worker brings back."""
    found = [measured(run) for run in sorted(unit.runs)]
    values = {
        "risk": ((), np.array([x[0] for x in found])),
        "M": (("neuron",), np.stack([x[1] for x in found])),
        "count": ((), np.array([x[2] for x in found], np.int64)),
    }
    return Result(values, None, 0.0, {"twolayer": "0"})


def variables(width: int) -> dict[str, Quantity]:
    """Names, sizes and types."""
    return {
        "risk": Quantity((), (), "<f8"),
        "M": Quantity(("neuron",), (width,), "<f8"),
        "count": Quantity((), (), "<i8"),
    }


def shown(path: Path) -> set[Run]:
    """The runs that a store shows as finished; an error if a value is not theirs, or what is unfinished has one."""
    data = tl.sweeps.load_sweep(path)
    done: set[Run] = set()
    for i, dim in enumerate(data["method.dim"].values.tolist()):
        for j, noise in enumerate(data["problem.noise"].values.tolist()):
            runs = 0
            for seed in range(data.sizes["seed"]):
                run = (float(dim), float(noise), seed)
                if "risk" not in data or np.isnan(data.risk.values[i, j, seed]):
                    if "M" in data:
                        assert (
                            np.isnan(data.M.values[i, j, seed]).all()
                            and data["count"].values[i, j, seed] == -1
                        ), run
                    continue
                risk, M, count = measured(run)
                inner = data.M.values[i, j, seed]
                assert (
                    data.risk.values[i, j, seed] == risk
                    and data["count"].values[i, j, seed] == count
                ), run
                assert (
                    np.array_equal(inner[: len(M)], M)
                    and np.isnan(inner[len(M) :]).all()
                ), run
                done.add(run)
                runs += 1
            assert data.runs.values[i, j] == runs
    return done


def missing(
    dims: list[float], noises: list[float], seeds: int, done: set[Run]
) -> list[Unit]:
    """Units of a sweep whose runs are not all done, as a driver sends them."""
    units = []
    for dim in dims:
        for noise in noises:
            low = 0
            while low < seeds:
                high = low
                block = low // SEED_BLOCK
                while (
                    high < seeds
                    and high // SEED_BLOCK == block
                    and (dim, noise, high) not in done
                ):
                    high += 1
                if high > low:
                    units.append(Unit(dim, noise, low, high))
                low = max(high, low + 1)
    return units


class Disturbed:
    """Copies the folder at the n-th operation and ends there, or lets the disk be full from then on."""

    def __init__(self, folder: Path, kind: str, n: int) -> None:
        self.folder, self.kind, self.n, self.count = folder, kind, n, 0
        self.full, self.copy = Nth("ENOSPC", n), Path(f"{folder}.kept")
        self.copying, self.turn = False, threading.RLock()

    def __call__(self, operation: Operation) -> int | None:
        if self.kind == "full":
            return self.full(operation)
        with self.turn:
            if self.copying:
                return None
            self.count += 1
            if self.count == self.n + 1:
                self.copying = True
                shutil.copytree(self.folder, self.copy)
                self.copying = False
            if self.count > self.n:
                raise Killed
        return None


class Stores(RuleBasedStateMachine):
    """Two stores of one sweep, and what they should hold."""

    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp()).resolve()
        self.folder = self.root / "work"
        self.folder.mkdir()
        self.model: dict[str, set[Run]] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    # how a step ends

    @contextlib.contextmanager
    def disturbed(self, kind: str, n: int, hand: dict[str, set[Run]]) -> Iterator[None]:
        """A step that is killed or stopped at its n-th operation; ``hand`` is what it was to add."""
        meet = Disturbed(self.folder, kind, n)
        ended = False
        try:
            with watched(self.folder, meet):
                yield
            ended = True
            self.counts["disturbances that came too late"] += 1
        except Killed:
            self.counts["kills"] += 1
        except RunFailed as error:
            assert (
                kind == "full"
                and "could not be written" in str(error)
                and "-tl" not in str(error)
            ), error
            self.counts["full disks"] += 1
        if meet.copy.exists():
            shutil.rmtree(self.folder)
            meet.copy.rename(self.folder)
            self.orphan()
        for name in NAMES:
            known, more = self.model.get(name, set()), hand.get(name, set())
            path = self.folder / name
            if not path.exists():
                assert name not in self.model, f"{name} is gone"
                continue
            now = shown(path)
            assert known <= now <= known | more, (name, known - now, now - known - more)
            assert not ended or now == known | more, (name, (known | more) - now)
            self.model[name] = now

    def orphan(self) -> None:
        """Let drafts be those of a process that is gone."""
        gone = mark().replace(str(os.getpid()), str(NOBODY))
        for path in sorted(self.folder.rglob("*"), key=lambda path: -len(path.parts)):
            if mark() in path.name:
                path.rename(path.with_name(path.name.replace(mark(), gone)))

    def undisturbed(self, name: str) -> None:
        """After a step that ended well: nothing but the model, and no drafts."""
        assert shown(self.folder / name) == self.model[name]
        left = [
            p.name
            for p in (self.folder / name).rglob("*")
            if "-tl" in p.name or p.suffix == ".partial"
        ]
        assert left == [], left

    # steps

    def work(
        self,
        name: str,
        dims: list[float],
        noises: list[float],
        seeds: int,
        share: float,
    ) -> Callable[[], None]:
        """Open a store and finish a share of what is missing, as a sweep does."""
        units = missing(dims, noises, seeds, self.model.get(name, set()))
        self.hand = units[: round(share * len(units))]

        def step() -> None:
            store = Store.open(self.folder / name, grid_of(dims, noises, seeds), seeds)
            try:
                store.allocate(variables(2 + int(max(dims)) // 30))
                for batch in (self.hand[::2], self.hand[1::2]):
                    places = [(dims.index(u.dim), noises.index(u.noise)) for u in batch]
                    assert all(
                        store.claim(p, u.low)
                        for p, u in zip(places, batch, strict=True)
                    )
                    if batch:
                        store.commit(
                            [
                                (p, u.low, result_of(u))
                                for p, u in zip(places, batch, strict=True)
                            ]
                        )
                    for place, unit in zip(places, batch, strict=True):
                        store.release(place, unit.low)
            finally:
                store.close()

        return step

    names = st.sampled_from(NAMES)
    some_dims = st.lists(
        st.sampled_from(DIMS), min_size=1, max_size=3, unique=True
    ).map(sorted)
    some_noises = st.lists(
        st.sampled_from(NOISES), min_size=1, max_size=2, unique=True
    ).map(sorted)
    some_seeds = st.sampled_from([1, 3, 16, 20])
    shares = st.sampled_from([0.0, 0.5, 1.0])

    @rule(
        name=names, dims=some_dims, noises=some_noises, seeds=some_seeds, share=shares
    )
    def sweeps(
        self,
        name: str,
        dims: list[float],
        noises: list[float],
        seeds: int,
        share: float,
    ) -> None:
        """A sweep is run, for the first time, over other cells, or with more seeds."""
        self.counts["sweeps"] += 1
        self.work(name, dims, noises, seeds, share)()
        self.model[name] = self.model.get(name, set()).union(
            *(u.runs for u in self.hand)
        )
        self.undisturbed(name)

    @rule(
        name=names, dims=some_dims, noises=some_noises, seeds=some_seeds, share=st.sampled_from([0.5, 1.0]),
        kind=st.sampled_from(["kill", "kill", "full"]), n=st.integers(0, 120),
    )  # fmt: skip
    def is_disturbed(
        self,
        name: str,
        dims: list[float],
        noises: list[float],
        seeds: int,
        share: float,
        kind: str,
        n: int,
    ) -> None:
        """The same, killed or with a full disk."""
        step = self.work(name, dims, noises, seeds, share)
        with self.disturbed(kind, n, {name: set().union(*(u.runs for u in self.hand))}):
            step()

    @precondition(lambda self: len(self.model) == 2)
    @rule(
        turn=st.booleans(),
        kind=st.sampled_from(["", "kill", "full"]),
        n=st.integers(0, 120),
    )
    def merge(self, turn: bool, kind: str, n: int) -> None:
        """One store takes what the other has."""
        self.counts["merges"] += 1
        into, other = NAMES[turn], NAMES[not turn]
        with self.disturbed(
            kind or "kill", n if kind else 10**9, {into: self.model[other]}
        ):
            tl.sweeps.merge_sweeps(self.folder / into, self.folder / other)

    @precondition(lambda self: self.model)
    @rule(
        name=names,
        dims=some_dims,
        noises=some_noises,
        seeds=some_seeds,
        other=some_seeds,
    )
    def two_openers(
        self, name: str, dims: list[float], noises: list[float], seeds: int, other: int
    ) -> None:
        """Two sweeps on one store share the work: what one has claimed, the other leaves alone."""
        self.counts["two openers"] += 1
        openers = [
            Store.open(self.folder / name, grid_of(dims, noises, n), n)
            for n in (seeds, other)
        ]
        try:
            for store in openers:
                store.allocate(variables(2 + int(max(dims)) // 30))
            units = missing(
                dims, noises, min(seeds, other), self.model.get(name, set())
            )
            for number, unit in enumerate(units):
                place = dims.index(unit.dim), noises.index(unit.noise)
                one, two = openers if number % 2 else openers[::-1]
                assert one.claim(place, unit.low) and not two.claim(place, unit.low)
                one.commit([(place, unit.low, result_of(unit))])
                one.release(place, unit.low)
            self.model[name] = self.model.get(name, set()).union(
                *(u.runs for u in units)
            )
        finally:
            for store in openers:
                store.close()
        self.undisturbed(name)

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data())
    def a_chunk_is_cut(self, data: Any) -> None:
        """What a power cut may leave: those runs are not done any more."""
        name = data.draw(
            st.sampled_from(sorted(name for name, runs in self.model.items() if runs))
        )
        chunks = sorted(
            p for p in (self.folder / name).glob("risk/c.*") if p.stat().st_size
        )
        file = data.draw(st.sampled_from(chunks))
        self.counts["cuts"] += 1
        file.write_bytes(file.read_bytes()[:-1])
        i, j, block = (int(x) for x in file.name.split(".")[1:])
        axes = Store(self.folder / name, grid_of([], [], 0)).header["axes"]
        cell = axes["method.dim"][i], axes["problem.noise"][j]
        self.model[name] -= {
            run
            for run in self.model[name]
            if run[:2] == cell and run[2] // SEED_BLOCK == block
        }
        self.undisturbed(name)

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data())
    def a_unit_fails(self, data: Any) -> None:
        """A failure that is written down makes nothing undone."""
        name = data.draw(
            st.sampled_from(sorted(name for name, runs in self.model.items() if runs))
        )
        dim, noise, seed = data.draw(st.sampled_from(sorted(self.model[name])))
        self.counts["failures"] += 1
        store = Store.open(
            self.folder / name, grid_of([dim], [noise], seed + 1), seed + 1
        )
        store.commit([((0, 0), seed, Result(None, "no number here", 0.0, {}))])
        store.close()
        self.undisturbed(name)
