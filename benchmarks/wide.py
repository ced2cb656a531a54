"""Costs of wide networks: the ODE of 64 erf neurons, mean fields of up to 10⁵
particles, descents of 10⁷ steps.

python benchmarks/wide.py ode            p = 64, k = 4, with the peak of memory python
benchmarks/wide.py particles      seconds of a whole run against the number of particles
python benchmarks/wide.py descent        10⁷ steps of n rectifiers on the population
loss
"""

from __future__ import annotations

import argparse
import resource
import time

import twolayer as tl
from twolayer import d


def peak() -> float:
    """The peak of memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def ode_table() -> None:
    problem = tl.Problem(tl.Teacher("erf", 4), "erf", width=64, noise=0.01)
    start = tl.Overlaps.random(problem, 1000, seed=1)
    began, cpu = time.perf_counter(), time.process_time()
    tl.solve(problem, tl.SGD(0.5 / d), tl.ODE(), start, time=100)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"erf, p = 64, k = 4, to t = 100: {seconds:.0f} s, {cpu:.0f} s of CPU, peak"
        f" {peak():.2f} GB"
    )


def particle_table() -> None:
    cases = {
        "square, k = 2, d = 5": (tl.Problem(tl.Teacher("square", 2), "square"), 5, 2.0),
        "erf, k = 1, d = ∞": (
            tl.Problem(tl.Teacher("erf", 1), "erf"),
            float("inf"),
            10.0,
        ),
        "erf, k = 2, d = ∞": (
            tl.Problem(tl.Teacher("erf", 2), "erf"),
            float("inf"),
            10.0,
        ),
    }
    for name, (problem, dim, end) in cases.items():
        for count in (1_000, 10_000, 100_000):
            cloud = tl.mean_field.Particles.sample(problem, count, dim=50, seed=1)
            method = tl.MeanField(
                dim, interaction="auto" if "square" in name else "nodes"
            )
            seconds = []
            for _ in range(2):
                began, cpu = time.perf_counter(), time.process_time()
                tl.solve(problem, tl.SGD(1 / d), method, cloud, time=end, save=10)
                seconds.append((time.perf_counter() - began, time.process_time() - cpu))
            (first, _), (again, cpu) = seconds
            print(
                f"{name}: {count:>6} particles, first {first:6.1f} s, again"
                f" {again:7.2f} s ({cpu:.2f} s of CPU), peak {peak():.2f} GB",
                flush=True,
            )


def descent_table() -> None:
    for n in (1, 2, 4, 10):
        problem = tl.Problem("relu(z1)", "relu", width=n, second_layer=[float(n)] * n)
        start = tl.Overlaps.random(problem, 20, seed=1)
        began, cpu = time.perf_counter(), time.process_time()
        tl.solve(
            problem, tl.SGD(0.2), tl.Population(), start, steps=10_000_000, save=60
        )
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(
            f"10⁷ steps, n = {n:>2}: {seconds:.0f} s, {cpu:.0f} s of CPU, with"
            " compilation",
            flush=True,
        )


TABLES = {"ode": ode_table, "particles": particle_table, "descent": descent_table}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Costs of wide networks.")
    parser.add_argument(
        "table",
        nargs="*",
        default=list(TABLES),
        metavar="TABLE",
        help=", ".join(TABLES),
    )
    for table in parser.parse_args().table:
        TABLES[table]()
