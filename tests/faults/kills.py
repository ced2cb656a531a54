"""Kills without warning (SIGKILL) at chosen and at random moments, then the same command again.

A process compiles everything once and is copied (fork) for each kill, so that a kill takes a moment instead of the
start of Python and JAX. A third of the kills is aimed at the operations of the end of a run, from its last checkpoint
on, a third at any operation, among them the moments between two files, and a third comes at a time. A kill counts if
something was there to lose: a file with a final name that the killed command itself had put there.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import select
import shutil
import signal
import tempfile
import time as wall
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from twolayer.compiled import advance

from .operations import Nth, watched
from .scenarios import SCENARIOS, Scenario, held, surroundings
from .writes import Reference, again, lost, undisturbed

PATIENCE = 60.0  # seconds that a copy may take
HUNG = -1000  # the exit code of one that took longer: threads of libraries are not copied, and it may wait for one
# those of which copies can run: what waits for threads of XLA, such as the integrated
# ODE, the judging of comparisons, and all that is compiled anew, cannot
NAMES = (
    "solve",
    "sweep",
    "sweep-grown",
    "gallery",
)


class Kill(NamedTuple):
    """When a process is killed: before its n-th operation, or after a number of seconds."""

    scenario: str
    aim: str
    n: int = -1
    seconds: float = 0.0


def copied(work: Callable[[], Any], until: float | None = None) -> tuple[int, Any]:
    """Do something in a copy of this process; its exit code (−9: killed, `HUNG`: it took too long) and its answer.

    With ``until`` it is killed after so many seconds.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            os.close(reader)
            signal.alarm(2 * round(PATIENCE))  # the parent may be gone
            gc.disable()  # what the parent has in hand is the parent's
            advance._pool.cache_clear()  # its threads are not copied
            try:
                answer = work()
                code = 0
            except BaseException:
                answer = traceback.format_exc()
            with os.fdopen(writer, "wb") as file:
                pickle.dump(answer, file)
        os._exit(code)
    os.close(writer)
    if until is not None:
        wall.sleep(until)
        os.kill(pid, signal.SIGKILL)
    answer, late = b"", wall.monotonic() + PATIENCE
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, late - wall.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(reader)
            return HUNG, None
        piece = os.read(reader, 2**16)
        if not piece:
            break
        answer += piece
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        return os.waitstatus_to_exitcode(status), pickle.loads(answer)
    return os.waitstatus_to_exitcode(status), None


def planned(
    number: int, seed: int, known: dict[str, Reference], lasts: dict[str, float]
) -> Kill:
    """The kill of a number: the same for the same seed."""
    rng = Random(f"{seed} {number}")
    name = NAMES[number % len(NAMES)]
    operations = known[name].operations
    aim = ("end", "operation", "time")[number // len(NAMES) % 3]
    if aim == "time":
        return Kill(name, aim, seconds=lasts[name] * rng.uniform(0.1, 1.0))
    puts = [
        i
        for i, x in enumerate(operations)
        if x.kind == "rename" and "-tl" not in x.path
    ]
    first = puts[0] + 1
    if (
        aim == "end"
    ):  # the last two files, and what lies before, between and behind them
        first = puts[-3] + 1 if len(puts) > 2 else first
    return Kill(name, aim, n=rng.randrange(first, len(operations)))


def put_there(folder: Path, before: dict[str, Any]) -> list[str]:
    """Files with final names that were not there, and entries of journals; what a kill could lose."""
    found = []
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if (
            path.is_file()
            and "-tl" not in name
            and not path.name.endswith((".partial", "zarr.json", "lock"))
        ) and (name not in before or path.stat().st_mtime_ns != before[name]):
            found.append(name)
    return found


def _stamps(folder: Path) -> dict[str, int]:
    return {
        str(p.relative_to(folder)): p.stat().st_mtime_ns
        for p in folder.rglob("*")
        if p.is_file()
    }


def killed(
    scenario: Scenario, reference: Reference, ready: Path, kill: Kill
) -> tuple[str, list[str]]:
    """Kill a command and give it again; what became of it, and what is wrong.

    It counts, had nothing to lose, or a copy of the process hung.

    ``ready`` is a folder with what lies there before.
    """
    folder = Path(tempfile.mkdtemp()).resolve()
    try:
        shutil.copytree(ready, folder, dirs_exist_ok=True)
        before = _stamps(folder)
        until = kill.seconds if kill.aim == "time" else None
        code, told = copied(lambda: _once(scenario, folder, kill), until)
        if code == HUNG:
            return "hung", []
        if code != -signal.SIGKILL:
            return "nothing", [] if code == 0 else [f"{kill}: exit code {code}: {told}"]
        # of a kill before an operation it is known what had been made, whether it is there or not
        put = [] if until is not None else reference.put(kill.n)
        there = put_there(folder, before)
        if not put and not there:
            return "nothing", []
        kept = sum("/journal/" in name for name in there)
        if until is None and kept < reference.entries(kill.n):
            return "counts", [f"{kill}: entries of the journal are lost"]
        code, wrong = copied(lambda: _again(scenario, folder, reference, put))
        if code == HUNG:
            return "hung", []
        if code != 0:
            return "counts", [f"{kill}: afterwards {wrong}"]
        return "counts", [f"{kill}: {text}" for text in wrong]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _once(scenario: Scenario, folder: Path, kill: Kill) -> str:
    with surroundings(folder), watched(folder, Nth("kill", kill.n)):
        return str(scenario.call(folder, False))


def _again(
    scenario: Scenario, folder: Path, reference: Reference, put: list[str]
) -> list[str]:
    """What is wrong: something half written, lost, computed twice, of other bits, or left behind."""
    with surroundings(folder):
        now = held(folder)  # every file with a final name is whole
        return [*lost(folder, put, now), *again(scenario, folder, reference)]


def campaign(number: int, seed: int, log: Path, seconds: float) -> bool:
    """Kill until so many kills count, or time is up; goes on where the log ends. Whether nothing was lost."""
    with tempfile.TemporaryDirectory() as room:
        return _campaign(
            number, seed, log, wall.monotonic() + seconds, Path(room).resolve()
        )


def _campaign(number: int, seed: int, log: Path, until: float, room: Path) -> bool:
    known, lasts = {}, {}
    for name in NAMES:
        known[name] = undisturbed(SCENARIOS[name])
        (room / name).mkdir()
        with surroundings(room / name):
            SCENARIOS[name].prepare(room / name)
        began = wall.monotonic()
        end, wrong = killed(
            SCENARIOS[name], known[name], room / name, Kill(name, "operation", n=10**9)
        )
        lasts[name] = wall.monotonic() - began
        print(
            f"{name}: {len(known[name].operations)} operations, {lasts[name]:.2f} s",
            *wrong,
            flush=True,
        )
        assert end == "nothing" and not wrong, (name, end)
    gc.collect()
    gc.freeze()
    done = (
        [json.loads(line) for line in log.read_text().splitlines()]
        if log.exists()
        else []
    )
    counted = sum(line["counted"] for line in done)
    with log.open("a") as file:
        while counted < number and wall.monotonic() < until:
            kill = planned(len(done), seed, known, lasts)
            name = kill.scenario
            end, wrong = killed(SCENARIOS[name], known[name], room / name, kill)
            line = {
                **kill._asdict(),
                "counted": end == "counts",
                "end": end,
                "wrong": wrong,
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            for text in wrong:
                print(f"  {text}", flush=True)
            done.append(line)
            counted += end == "counts"
    for aim in ("end", "operation", "time"):
        some = [line for line in done if line["aim"] == aim]
        print(f"{aim}: {len(some)} kills, {sum(x['counted'] for x in some)} with something to lose,"
              f" {sum(bool(x['wrong']) for x in some)} wrong")  # fmt: skip
    bad = sum(bool(line["wrong"]) for line in done)
    hung = sum(line["end"] == "hung" for line in done)
    print(
        f"{len(done)} kills, {counted} with something to lose, {bad} wrong, {hung} copies hung"
    )
    return bad == 0
