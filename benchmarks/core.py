"""Costs of the core methods, as ratios measured side by side in one run.

python benchmarks/core.py steps     Chain and Vectors against a NumPy loop, per step and seed
python benchmarks/core.py ode       the ODE against the width p
python benchmarks/core.py start     cold start of the command line
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import jax
import numpy as np

import twolayer as tl
from twolayer import d

SEEDS = 64


def numpy_sgd(dim: int, p: int, steps: int, seed: int = 0) -> float:
    """Online SGD with the square activation as people write it today; seconds per step of one seed."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(p, dim)) / np.sqrt(dim)
    w_star = np.zeros(dim)
    w_star[0] = 1.0
    lr = 0.01 / dim
    began = time.perf_counter()
    for _ in range(steps):
        z = rng.normal(size=dim)
        lam = W @ z
        error = (w_star @ z) ** 2 + 0.1 * rng.normal() - (lam**2).mean()
        W += (lr / p) * 2 * lam[:, None] * error * z
        W /= np.linalg.norm(W, axis=1, keepdims=True)
    return (time.perf_counter() - began) / steps


def timed(run: Callable[[int], object], seeds: int) -> float:
    """Seconds per step and seed after compilation: best of three, in runs long enough to hide what is paid once."""
    steps, seconds = 64, 0.0
    while seconds < 0.5:
        steps *= 4
        run(steps)
        began = time.perf_counter()
        run(steps)
        seconds = time.perf_counter() - began
    for _ in range(2):
        began = time.perf_counter()
        run(steps)
        seconds = min(seconds, time.perf_counter() - began)
    return seconds / (steps * seeds)


def steps_table() -> None:
    print(f"seconds per step and seed, batch 1, projected; device {jax.devices()[0].device_kind}")
    print(f"{'d':>7} {'p':>2} {'NumPy loop':>11} {'Vectors':>9} {'Chain':>9}   NumPy/Vectors  NumPy/Chain")
    algorithm = tl.SGD(0.01 / d, geometry="projected")
    for p in (1, 4, 8):
        problem = tl.Problem("z1**2", "square", width=p, noise=0.01)
        for dim in (1_000, 10_000, 100_000):
            start = tl.Overlaps.random(problem, dim)
            loop = min(numpy_sgd(dim, p, max(30, 2_000_000 // dim)) for _ in range(3))

            def solve(method: tl.Method, seeds: int, steps: int, start=start, problem=problem) -> None:
                tl.solve(problem, algorithm, method, start, steps=steps, save=1, seeds=seeds, progress=False)

            vectors = timed(lambda n, dim=dim, solve=solve: solve(tl.Vectors(dim), 16, n), 16)
            chain = timed(lambda n, dim=dim, solve=solve: solve(tl.Chain(dim), SEEDS, n), SEEDS)
            print(
                f"{dim:>7} {p:>2} {loop * 1e6:>8.1f} µs {vectors * 1e6:>6.1f} µs {chain * 1e6:>6.2f} µs"
                f" {loop / vectors:>14.1f} {loop / chain:>12.0f}",
                flush=True,
            )


def ode_table() -> None:
    print("erf network, k = 4, to t = 100 (seconds: first run with compilation, then again)")
    last = None
    for p in (1, 2, 4, 8, 16, 32):
        problem = tl.Problem(tl.Teacher("erf", 4), "erf", width=p, noise=0.01)
        start = tl.Overlaps.random(problem, 1000, seed=1)

        def solve(problem=problem, start=start) -> float:
            began = time.perf_counter()
            tl.solve(problem, tl.SGD(0.5 / d), tl.ODE(), start, time=100)
            return time.perf_counter() - began

        first, again = solve(), min(solve(), solve())
        growth = "" if last is None else f"   ×{again / last:.1f}"
        print(f"p = {p:>2}   {first:6.2f}   {again:7.3f}{growth}", flush=True)
        last = again


def start_table() -> None:
    runs = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "twolayer", "--help"], check=True, capture_output=True)
        runs.append(time.perf_counter() - began)
    bare = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append(time.perf_counter() - began)
    print(f"twolayer --help {min(runs):.3f} s, python -c pass {min(bare):.3f} s")


TABLES = {"steps": steps_table, "ode": ode_table, "start": start_table}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Costs of the core methods.")
    parser.add_argument(
        "table", nargs="*", default=list(TABLES), metavar="TABLE", help=f"{', '.join(TABLES)} (default: all)"
    )
    for name in parser.parse_args().table:
        TABLES[name]()
