"""The limit program (limit.cpp), compiled by the system's compiler."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from twolayer.numerics import random
from twolayer.numerics.wishart import GramFactor

COMPILER = shutil.which("g++") or shutil.which("clang++")


@cache
def program(p: int, k: int, dim: int = 10_000) -> Path | None:
    """The program for p neurons and k directions; None without a compiler."""
    if COMPILER is None:
        return None
    target = Path(tempfile.mkdtemp()) / f"limit-{p}-{k}"
    chi = GramFactor(1, dim - k - p).table()[0]
    tables = {"CENTRAL_TABLE": random.CENTRAL, "CHI_TABLE": chi}
    defined = [
        f"-D{name}={','.join(f'{x:.17g}' for x in values)}"
        for name, values in tables.items()
    ]
    source = Path(__file__).with_name("limit.cpp")
    flags = [
        "-O3",
        "-march=native",
        "-mprefer-vector-width=512",
        "-ffast-math",
        "-fno-finite-math-only",
        "-Wno-psabi",
    ]
    subprocess.run(
        [
            COMPILER,
            *flags,
            f"-DP={p}",
            f"-DK={k}",
            *defined,
            str(source),
            "-o",
            str(target),
        ],
        check=True,
    )
    return target


def rate(
    p: int, k: int, seeds: int = 64, steps: int = 4000, cheap: bool = False
) -> float | None:
    """Chain-steps per second on one core: the best of five."""
    found = program(p, k)
    if found is None:
        return None
    command = [str(found), str(seeds), str(steps), *(["cheap"] if cheap else [])]
    seconds = float(
        subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.split()[0]
    )
    return seeds * steps / seconds


if __name__ == "__main__":
    for p, k in ((1, 1), (4, 1), (8, 2)):
        rates = [rate(p, k, cheap=cheap) for cheap in (False, True)]
        print(
            f"p = {p}, k = {k}: "
            + ", ".join(
                "no compiler" if r is None else f"{r / 1e6:.1f} M/s" for r in rates
            )
        )
