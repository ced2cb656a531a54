"""``python -m tests.battery``: thousands of cases, one line of a log each, and a summary.

    uv run python -m tests.battery --cases 3000 --seed 0 --out FOLDER [--share 1/4] [--seconds S]

Cases that the log has are not tried again, so the same command goes on where it ended. A share takes every n-th task.
``--case N`` shows one of them.
"""

from __future__ import annotations

import argparse
import collections
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from .grammar import Point, Task, point, task
from .judge import judged
from .witness import NAMES

POINTS_PER_TASK = 10  # what is compiled for a task serves all of its points


def case(seed: int, number: int, points: int = POINTS_PER_TASK) -> tuple[Task, Point]:
    """The case of a number, with so many points of every task."""
    which = number // points
    found = task(np.random.default_rng([seed, which]))
    return found, point(
        np.random.default_rng([seed, which, 1 + number % points]), found
    )


def read(log: Path) -> list[dict[str, Any]]:
    """The lines of a log; a last one that was cut off does not count."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines]


def work(
    seed: int, cases: int, points: int, share: tuple[int, int], log: Path, until: float
) -> None:
    """Try what is missing."""
    import jax

    done = {line["case"] for line in read(log)}
    with log.open("a", encoding="utf-8") as out:
        held = -1
        for number in range(cases):
            which = number // points
            if which % share[1] != share[0] or number in done:
                continue
            if time.monotonic() > until:
                return
            if which != held:
                if held >= 0:
                    jax.clear_caches()  # each task has compiled code of its own
                print(
                    f"task {which}: {task(np.random.default_rng([seed, which])).text}",
                    flush=True,
                )
            held = which
            description, where = case(seed, number, points)
            told = {"case": number, "task": description.text}
            told |= {
                "kinds": [*description.target.kinds],
                "sigma": description.sigma.kind,
            }
            told |= judged(description, where)
            out.write(json.dumps(told) + "\n")
            out.flush()
            if told.get("outside"):
                worst = max(told["margins"], key=told["margins"].get)
                print(
                    f"  case {number}: {worst} {told['margins'][worst]:.2g} times its error, "
                    f"{told['beyond'][worst]:.1e} of its size, {told['engine']}",
                    flush=True,
                )


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of a battery."""
    seen = [x for x in lines if x["outcome"] == "judged"]
    total = sum(x["entries"] for x in seen)
    by: dict[str, dict[str, list[int]]] = {"witness": {}, "kinds": {}, "sigma": {}}
    for x in seen:
        for group, words in (
            ("witness", [x["witness"]]),
            ("kinds", x["kinds"]),
            ("sigma", [x["sigma"]]),
        ):
            for word in words:
                count = by[group].setdefault(word, [0, 0, 0])
                count[0] += 1
                count[1] += x["entries"]
                count[2] += x["outside"]
    finest = {
        rule: {
            name: float(
                np.median([x["resolution"][name] for x in seen if x["witness"] == rule])
            )
            for name in NAMES
        }
        for rule in by["witness"]
    }
    return {
        "cases": len(seen),
        "refused": len(lines) - len(seen),
        "averages": total,
        "outside": sum(x["outside"] for x in seen),
        "cases outside": sum(bool(x["outside"]) for x in seen),
        "by group: cases, averages, outside": by,
        "resolution of the witnesses, median, relative": finest,
        "reasons": dict(
            collections.Counter(
                x.get("why", "")[:120] for x in lines if x["outcome"] == "refused"
            )
        ),
        "cpu seconds": round(sum(x["seconds"] + x.get("brute", 0.0) for x in lines)),
    }


def main() -> None:
    """Read the command line."""
    ask = argparse.ArgumentParser(prog="python -m tests.battery", description=__doc__)
    ask.add_argument("--cases", type=int, default=3000)
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument(
        "--points", type=int, default=POINTS_PER_TASK, help="cases of every task"
    )
    ask.add_argument(
        "--share", default="0/1", help="i/n: every n-th task, from the i-th"
    )
    ask.add_argument("--seconds", type=float, default=float("inf"))
    ask.add_argument("--out", type=Path, default=Path("battery"))
    ask.add_argument("--case", type=int, help="one case, shown")
    told = ask.parse_args()
    if told.case is not None:
        description, where = case(told.seed, told.case, told.points)
        print(description.text, where.overlaps, f"noise {where.noise:g}", sep="\n")
        print(json.dumps(judged(description, where), indent=1))
        return
    share, of = map(int, told.share.split("/"))
    told.out.mkdir(parents=True, exist_ok=True)
    log = told.out / f"seed-{told.seed}-share-{share}-of-{of}.jsonl"
    work(
        told.seed,
        told.cases,
        told.points,
        (share, of),
        log,
        time.monotonic() + told.seconds,
    )
    lines = [
        line
        for one in sorted(told.out.glob(f"seed-{told.seed}-share-*-of-*.jsonl"))
        for line in read(one)
    ]
    figures = summary(lines)
    (told.out / "report.json").write_text(
        json.dumps(figures, indent=1), encoding="utf-8"
    )
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
