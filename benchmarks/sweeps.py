"""What a sweep costs beyond its runs: overhead per cell, scaling from one to two
workers, a grid of 10⁴ cells.

uv run python benchmarks/sweeps.py [overhead] [scaling] [grid]
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import twolayer as tl

PROBLEM = tl.Problem("He2(z1)", "He2", noise=0.1)
ALGORITHM = tl.SGD(lr="0.1/d", geometry="projected")


def timed(folder: Path, name: str, **arguments: Any) -> float:
    began = time.perf_counter()
    tl.sweep(
        PROBLEM, ALGORITHM, tl.Chain(100), store=folder / f"{name}.zarr", **arguments
    )
    return time.perf_counter() - began


def overhead(folder: Path) -> None:
    """Cells of one step: what is left is the sweep itself."""
    rates = [f"{0.001 * i}/d" for i in range(1, 501)]
    timed(folder, "warm", over={"algorithm.lr": rates}, steps=1, seeds=1)
    for memory, label in ((2**28, "batched"), (1, "one by one")):
        over = {"algorithm.lr": [f"{0.001 * i}/d" for i in range(501, 1001)]}
        seconds = timed(folder, label, over=over, steps=1, seeds=1, memory=memory)
        print(f"overhead per cell, {label}: {1000 * seconds / 500:.2f} ms", flush=True)


def scaling(folder: Path) -> None:
    """The same work for one and two workers, with their start and compilation."""
    over = {
        "algorithm.lr": [f"{0.01 * i}/d" for i in range(1, 9)],
        "method.dim": [400, 800, 1600],
    }
    found = {}
    for workers in (1, 2):
        found[workers] = timed(
            folder,
            f"w{workers}",
            over=over,
            time=10.0,
            seeds=16,
            executor=f"processes:{workers}",
        )
        print(f"{workers} worker(s): {found[workers]:.1f} s", flush=True)
    print(f"speed-up from 1 to 2 workers: {found[1] / found[2]:.2f}", flush=True)


def grid(folder: Path) -> None:
    """100 × 100 cells of rate and dimension, four seeds each, in two processes."""
    over = {
        "algorithm.lr": [f"{0.005 * i}/d" for i in range(1, 101)],
        "method.dim": [100 + 10 * i for i in range(100)],
    }
    began = time.perf_counter()
    plan = tl.sweeps.plan_sweep(
        PROBLEM, ALGORITHM, tl.Chain(100), over, steps=200, seeds=4
    )
    print(f"{plan}; planned in {time.perf_counter() - began:.1f} s", flush=True)
    seconds = timed(
        folder,
        "grid",
        over=over,
        steps=200,
        seeds=4,
        executor="processes:2",
        progress=True,
    )
    peak = [
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    print(
        f"10000 cells, 40000 runs: {seconds:.0f} s; peak {peak[0]:.0f} MiB here,"
        f" {peak[1]:.0f} MiB in a worker"
    )
    began = time.perf_counter()
    tl.load_sweep(folder / "grid.zarr")
    print(f"reading the store back: {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["overhead", "scaling", "grid"]
    place = Path(tempfile.mkdtemp())
    try:
        for word in chosen:
            {"overhead": overhead, "scaling": scaling, "grid": grid}[word](place)
    finally:
        shutil.rmtree(place)
