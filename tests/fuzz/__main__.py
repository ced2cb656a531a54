"""``python -m tests.fuzz``: many cases of every kind, each kind in a worker that is started again when it dies.

With ``--log FOLDER --seconds S`` it ends after S seconds, and the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time as wall
from pathlib import Path
from random import Random
from typing import Any

from . import ROOM, SLOW, Maker, tried

PATIENCE = 60  # seconds that a worker may stay with one case
START = 600  # and before its first one, for which it compiles code
KINDS = {"expressions": 84, "tasks": 7, "arguments": 7, "results": 1, "stores": 1}
"""Kinds of cases and their shares in a hundred: a formula is read in a millisecond, and a file takes fifty."""
SHOWN = 40


def maker_of(kind: str) -> Maker:
    """What makes cases of a kind."""
    from . import arguments, files, texts

    makers: dict[str, Maker] = {
        "expressions": texts.expression,
        "arguments": arguments.call,
        "tasks": texts.task,
        "results": files.result,
        "stores": files.store,
    }
    return makers[kind]


def _memory() -> int:
    """The most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def work(kind: str, seed: int, first: int, last: int, out: Path) -> None:
    """Try cases one by one; every one is announced before, so that a death can be laid to it."""
    import matplotlib

    matplotlib.use("Agg")
    maker = maker_of(kind)
    tried(maker(Random("first")))  # what is loaded once counts for no case
    held = _memory()
    with out.open("a", encoding="utf-8") as log, open(os.devnull, "w") as nowhere:
        sys.stdout = nowhere
        for number in range(first, last):
            log.write(json.dumps({"number": number}) + "\n")
            log.flush()
            case = maker(Random(f"{kind} {seed} {number}"))
            report = tried(case)
            grown, held = _memory() - held, max(held, _memory())
            told: dict[str, Any] = {
                "end": report.end,
                "seconds": round(report.seconds, 3),
                "grown": grown,
            }
            if not report.clean or grown > ROOM:
                told |= {"text": case.text, "detail": report.detail}
            log.write(json.dumps(told) + "\n")
            log.flush()


def read(log: Path) -> list[dict[str, Any]]:
    """The lines of a log."""
    return (
        [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        if log.exists()
        else []
    )


def watched(kind: str, seed: int, cases: int, log: Path, until: float) -> None:
    """Workers one after the other until all cases are tried, or time is up; one that hangs is killed."""
    first = sum("end" in line for line in read(log))
    while first < cases and wall.monotonic() < until:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz",
            "--worker",
            kind,
            str(seed),
            str(first),
            str(cases),
            str(log),
        ]
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            environment = {**os.environ, "TMPDIR": scratch}
            process = subprocess.Popen(
                command, env=environment, stderr=subprocess.DEVNULL
            )
            seen, since = -1, wall.monotonic()
            while process.poll() is None:
                wall.sleep(0.2)
                if wall.monotonic() > until:
                    process.kill()
                    process.wait()
                    return
                size = log.stat().st_size if log.exists() else 0
                if size != seen:
                    seen, since = size, wall.monotonic()
                elif wall.monotonic() - since > (PATIENCE if size else START):
                    process.kill()
            code = process.wait()
        begun = [line for line in read(log) if "number" in line]
        if code == 0 or not begun:
            if code:
                sys.exit(f"workers of {kind} do not start: exit code {code}")
            return
        first = begun[-1]["number"] + 1
        why = (
            f"killed after {PATIENCE} s"
            if code == -signal.SIGKILL
            else f"died with code {code}"
        )
        with log.open("a", encoding="utf-8") as file:
            known = {
                "end": "broken",
                "seconds": 0.0,
                "grown": 0,
                "text": f"number {first - 1}",
                "detail": why,
            }
            file.write(json.dumps(known) + "\n")


def told(kind: str, log: Path) -> bool:
    """Print what became of the cases of a kind; whether all were clean."""
    ends = [line for line in read(log) if "end" in line]
    counts = collections.Counter(line["end"] for line in ends)
    faults = [line for line in ends if "detail" in line]
    slowest = max(
        (line["seconds"] for line in ends if line["end"] == "refused"), default=0.0
    )
    grown = max((line["grown"] for line in ends), default=0)
    shown = ", ".join(f"{count} {end}" for end, count in sorted(counts.items()))
    print(f"{kind}: {len(ends)} cases, {len(faults)} faults; {shown}", end="; ")
    print(
        f"slowest refusal {slowest:.2f} s, largest growth {grown / 2**20:.0f} MiB",
        flush=True,
    )
    by_place = collections.defaultdict(list)
    for fault in faults:
        by_place[fault["detail"].split(" at ")[-1]].append(fault)
    for found in sorted(by_place.values(), key=len, reverse=True)[:SHOWN]:
        print(
            f"  {len(found):5} × {found[0]['detail']}  ({found[0]['seconds']} s)\n          {found[0]['text'][:400]}"
        )
    return not faults


def main() -> int:
    """Read the command line."""
    if sys.argv[1:2] == ["--worker"]:
        kind, seed, first, last, out = sys.argv[2:]
        work(kind, int(seed), int(first), int(last), Path(out))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--cases",
        type=int,
        default=10_000,
        help="of all kinds together (default 10000)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, help="one kind instead of all")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end after so many"
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FOLDER",
        help="keep the cases there, and go on with them",
    )
    args = parser.parse_args()
    kinds = {args.only: 1} if args.only else KINDS
    clean, until = True, wall.monotonic() + args.seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        folder = args.log or Path(scratch)
        folder.mkdir(exist_ok=True)
        for kind, share in kinds.items():
            log = folder / f"{kind}-{args.seed}.jsonl"
            watched(
                kind,
                args.seed,
                -(-args.cases * share // sum(kinds.values())),
                log,
                until,
            )
            clean = told(kind, log) and clean
    print(f"a refusal counts as slow after {SLOW:g} s; seed {args.seed}")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
