"""Every fault at every operation of a scenario, one at a time, and what is asked of the end."""

from __future__ import annotations

import gc
import shutil
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .operations import FAULTS, Nth, Operation, fails, watched
from .scenarios import OLD, Ended, Scenario, drafts, held, left_open, surroundings

LONGEST = 400  # characters of a sentence


class Reference(NamedTuple):
    """A scenario without faults: its operations, what it leaves, and where that was."""

    operations: list[Operation]
    held: dict[str, Any]
    folder: Path

    def put(self, n: int) -> list[str]:
        """The files with final names that it has made before its n-th operation, those within stores left out."""
        made = (x.path for x in self.operations[:n] if x.kind == "rename")
        inner = [str(Path(path).relative_to(self.folder)) for path in made]
        return [name for name in inner if "-tl" not in name and ".zarr" not in name]

    def entries(self, n: int) -> int:
        """How many entries of a journal it has made before its n-th operation."""
        return sum(
            x.kind == "rename" and "/journal/" in x.path and "-tl" not in x.path
            for x in self.operations[:n]
        )


class Case(NamedTuple):
    """A fault that meets the n-th operation."""

    scenario: str
    fault: str
    n: int

    def __str__(self) -> str:
        return f"{self.scenario} {self.fault} {self.n}"


def undisturbed(scenario: Scenario) -> Reference:
    """Run a scenario once and count; a second time, so that everything is loaded and compiled."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            with surroundings(folder):
                scenario.prepare(folder)
                counter = Nth()
                with watched(folder, counter):
                    ended = scenario.call(folder, False)
            assert ended.code == 0, f"{scenario.name} fails by itself: {ended.said}"
            reference = Reference(counter.seen, held(folder), folder)
    return reference


def cases(scenario: Scenario, reference: Reference) -> Iterator[Case]:
    """All of them, operation after operation."""
    for n, operation in enumerate(reference.operations):
        for fault in FAULTS:
            if fails(fault, operation.kind):
                yield Case(scenario.name, fault, n)


def tried(scenario: Scenario, reference: Reference, case: Case) -> list[str]:
    """What is wrong after one fault; nothing if all is well."""
    folder = Path(tempfile.mkdtemp()).resolve()
    try:
        with surroundings(folder):
            scenario.prepare(folder)
            before = held(folder)
            counter = Nth(case.fault, case.n)
            with watched(folder, counter):
                try:
                    ended = scenario.call(folder, False)
                except Exception:
                    ended = Ended(-1, traceback.format_exc())
            if left_open(folder):
                gc.collect()  # what only waits for it is not left
            if case.n >= len(counter.seen):
                return [f"{case}: the operation was not reached: {ended.said}"]
            wrong = list(_after(folder, before, counter, ended, reference))
            if not any("half written" in text for text in wrong):
                wrong += again(
                    scenario, folder, reference, counter.seen[case.n].kind == "remove"
                )
        where = counter.seen[case.n]
        return [f"{case} ({where}): {text}" for text in wrong]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _after(
    folder: Path,
    before: dict[str, Any],
    counter: Nth,
    ended: Ended,
    reference: Reference,
) -> Iterator[str]:
    """What is wrong when the command has met its fault."""
    try:
        now = held(folder)
    except Exception as error:
        yield f"something is half written: {type(error).__name__}: {str(error)[:300]}"
        return
    sentences = [
        line for line in ended.said.splitlines() if line.startswith("twolayer: ")
    ]
    if ended.code == -1 or "Traceback" in ended.said:
        yield f"a traceback: {ended.said[-900:]}"
    elif ended.code == 1 or (
        ended.code == 2 and counter.seen[counter.n].kind == "look"
    ):  # what cannot be read
        if len(sentences) != 1 or len(sentences[0]) > LONGEST or "-tl" in sentences[0]:
            yield f"no sentence: {ended.said[-600:]}"
    elif ended.code != 0:
        yield f"exit code {ended.code}: {ended.said[-300:]}"
    elif sentences:
        yield f"success with complaints: {ended.said[-300:]}"
    elif missing := sorted(
        n
        for n in reference.held
        if now.get(n) != reference.held[n] and not n.endswith("-cache")
    ):
        yield f"success without {missing}"
    for name, value in now.items():
        # what goes when a command ends well is not known here: checkpoints, parts and pieces
        if (
            name in reference.held
            and ".zarr" not in name
            and value not in (before.get(name), reference.held[name])
        ):
            yield f"{name} is neither what it was nor what it becomes"
    for name in before:
        if name not in now:
            yield f"{name} is gone"
    put = {str(Path(path).relative_to(folder)) for path in counter.put}
    yield from lost(folder, put, now)
    if (left := drafts(folder)) and counter.seen[counter.n].kind != "remove":
        yield f"drafts are left: {left}"
    if opened := left_open(folder):
        yield f"files are left open: {opened}"


def lost(folder: Path, put: Iterable[str], now: dict[str, Any]) -> Iterator[str]:
    """What was finished, and is not there any more: a checkpoint may go when the result is there, and so may pieces."""
    for name in sorted(put):
        if "-tl" in name or name in now or (folder / name).exists():
            continue
        results = [
            x
            for x in now
            if x.endswith(".nc")
            and ".part." not in x
            and "/." not in x
            and now[x] != OLD
        ]
        if not results:
            yield f"{name} was finished and is lost"


def again(
    scenario: Scenario, folder: Path, reference: Reference, left_over: bool = False
) -> Iterator[str]:
    """What is wrong when the same command is given again, without a fault: other bits, work done twice, drafts left.

    ``left_over`` says that a draft may be there, because it could not be removed.
    """
    standing, second = _save_point(folder), Nth()
    with watched(folder, second):
        try:
            ended = scenario.call(folder, True)
        except Exception:
            yield f"given again, a traceback: {traceback.format_exc()[-900:]}"
            return
    if ended.code != 0:
        yield f"given again, exit code {ended.code}: {ended.said[-400:]}"
        return
    now = held(folder)
    if names := sorted(
        x
        for x in now.keys() | reference.held.keys()
        if now.get(x) != reference.held.get(x)
    ):
        yield f"given again, other bits in {names}"
    kept = sum(path.endswith("ck.npz") for path in second.put)
    every = sum(
        x.kind == "rename" and x.path.endswith("ck.npz") for x in reference.operations
    )
    if standing is not None and kept > every - standing:
        yield f"the run was at save point {standing}, and wrote {kept} checkpoints more"
    if (left := drafts(folder)) and not left_over:
        yield f"given again, drafts are left: {left}"


def _save_point(folder: Path) -> int | None:
    """At which save point the checkpoint of a run stands."""
    file = folder / "ck.npz"
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as arrays:
        return int(arrays["at"]) + int(arrays["ended"])
