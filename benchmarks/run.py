"""Speed of every method, in one command: side by side with plain NumPy and with the
limit of the machine.

    uv run python benchmarks/run.py                    all tables, about fifteen minutes
                                                       on two quiet cores
    uv run python benchmarks/run.py rates methods      some of them
    uv run python benchmarks/run.py --json speed.json  the numbers, too
    uv run python benchmarks/run.py --record           the same, in benchmarks/history
    uv run python benchmarks/run.py --processor        processor time instead of the
                                                       clock: on cores that are shared

    rates      chain-steps per second: compiled, JAX, limit program (limit.cpp), NumPy
    first      processes one after the other: import, description, first and second ODE;
               the README's command
    witness    each method with the witness of its averages and without
    methods    each method: import, first call, second call, the same in a second
               process, peak of memory, NumPy or SciPy
    growth     seconds against d, p, k, n_b, seeds, steps, particles and cores, with
               fitted exponents
    general    whole runs without closed averages, or with many neurons, steps or
               particles
    precision  error against seconds: engines of averages, runs of the ODE and of DMFT
    device     chain-steps per second of many seeds on the device that JAX finds, what
               setting up takes, inputs of Vectors
    blocks     seconds of a chain step against the number of blocks of the inputs

benchmarks/compare.py sets two records side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import limit
import numpy as np
import plain

import twolayer as tl
from twolayer import d
from twolayer.numerics import random

ROOT = Path(__file__).parent.parent
HISTORY = Path(__file__).parent / "history"
DIM = 10_000
SIZES = ((1, 1), (4, 1), (8, 2))
PROJECTED = tl.SGD(0.01 / d, geometry="projected")


def he2(p: int, k: int = 1, noise: float = 0.0) -> tl.Problem:
    return tl.Problem(
        " + ".join(f"He2(z{r + 1})" for r in range(k)), "He2", width=p, noise=noise
    )


def processor() -> float:
    """Processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak() -> float:
    """The peak of memory of this process, in MB. (On Linux `getrusage` begins with that
    of the process before it.)
    """
    with (
        contextlib.suppress(OSError),
        open("/proc/self/status", encoding="utf-8") as file,
    ):
        return (
            next(float(line.split()[1]) for line in file if line.startswith("VmHWM"))
            / 1024
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024 if sys.platform == "linux" else 2**20
    )


CLOCKS = {"clock": time.perf_counter, "processor": processor}
clock = "clock"


def took(job: Callable[[], object]) -> float:
    """Seconds of one run."""
    began = CLOCKS[clock]()
    job()
    return CLOCKS[clock]() - began


def seconds(job: Callable[[], object], repeats: int = 3) -> float:
    """The best of some runs, after one that compiles."""
    job()
    return min(took(job) for _ in range(repeats))


def chain_rate(
    p: int,
    k: int,
    seeds: int,
    engine: str,
    batch: int = 1,
    dim: int = DIM,
    least: float = 0.2,
) -> float:
    """Chain-steps per second through `solve`: long runs minus short ones would hide
    what is paid once; these do not.
    """
    problem, algorithm = he2(p, k), PROJECTED.replace(batch=batch)
    start = tl.Overlaps.random(problem, dim)

    def job(steps: int) -> None:
        method = tl.Chain(dim, engine=engine)
        tl.solve(
            problem,
            algorithm,
            method,
            start,
            steps=steps,
            save=1,
            seeds=seeds,
            progress=False,
        )

    steps, taken = 256, 0.0
    while taken < least:
        steps *= 4
        taken = seconds(partial(job, steps), 1)
    return seeds * steps / min(taken, seconds(partial(job, steps), 3))


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    shown = [
        [x if isinstance(x, str) else "–" if x is None else f"{x:.3g}" for x in row]
        for row in rows
    ]
    widths = [
        max(len(line[i]) for line in [list(head), *shown]) for i in range(len(head))
    ]
    print(f"\n{title}")
    for line in [list(head), ["-" * w for w in widths], *shown]:
        print(
            "| "
            + " | ".join(x.rjust(w) for x, w in zip(line, widths, strict=True))
            + " |",
            flush=True,
        )


def rates() -> list[dict[str, Any]]:
    """Chain-steps per second, in millions."""
    out = []
    for p, k in SIZES:
        row: dict[str, Any] = {"p": p, "k": k}
        for seeds in (1, 64):
            for engine in ("compiled", "jax"):
                row[f"{engine}, {seeds}"] = chain_rate(p, k, seeds, engine) / 1e6
        for name, cheap in (("limit, a core", False), ("limit, cheap draws", True)):
            found = limit.rate(p, k, cheap=cheap)
            row[name] = None if found is None else found / 1e6
        row["NumPy"] = 1e-6 / plain.online(DIM, p, k, steps=50)
        out.append(row)
    table(
        f"Million chain-steps per second, d = {DIM}, {os.cpu_count()} cores",
        list(out[0]),
        [[*r.values()] for r in out],
    )
    return out


AUTHORS = (
    tl.Problem("tanh(z1 + He3(z2))", "relu", width=2, second_layer=[2**0.5, -(2**0.5)]),
    tl.SGD(0.6, batch=3 * d, dataset=3 * d),
)
LARGE = tl.SGD(0.05, batch=4 * d)
GIANT = tl.SGD(0.05 / d, batch=4 * d, geometry="projected")
ONLINE = tl.SGD(0.05 / d, geometry="projected")
REUSED = tl.SGD(0.05, batch=2 * d, dataset=2 * d)
JOBS: dict[str, tuple[tl.Problem, tl.SGD, Any, dict[str, Any], Callable[[], float]]] = {
    "Chain": (
        he2(2),
        ONLINE,
        tl.Chain(1000),
        {"steps": 20_000, "seeds": 64},
        lambda: 64 * 20_000 * plain.online(1000, 2, steps=1000),
    ),
    "Vectors": (
        he2(2),
        ONLINE,
        tl.Vectors(1000),
        {"steps": 2_000, "seeds": 16},
        lambda: 16 * 2_000 * plain.online(1000, 2, steps=1000),
    ),
    "ODE": (
        he2(4, 2),
        tl.SGD(0.05 / d),
        tl.ODE(),
        {"time": 5},
        lambda: plain.ode(*start_of(he2(4, 2)), 0.05, 0.0, 5.0)[0],
    ),
    "SDE": (
        he2(2),
        ONLINE,
        tl.SDE(1000),
        {"time": 1, "seeds": 64},
        lambda: 64 * 40_000 * plain.online(1000, 2, steps=1000),
    ),
    "Map": (
        he2(2),
        GIANT,
        tl.Map(1000),
        {"steps": 50},
        lambda: 50 * plain.online(1000, 2, batch=4000, steps=5),
    ),
    "GiantSteps": (
        he2(2),
        LARGE,
        tl.GiantSteps(),
        {"steps": 20},
        lambda: 20 * plain.online(2000, 2, batch=8000, steps=3),
    ),
    "DMFT": (
        tl.Problem("tanh(z1)", "tanh", width=1, noise=0.1),
        REUSED,
        tl.DMFT(),
        {"steps": 6},
        lambda: 6 * plain.online(2000, 1, batch=1, steps=3, dataset=4000),
    ),
    "MeanField": (
        he2(500, 2),
        tl.SGD(0.05 / d),
        tl.MeanField(),
        {"time": 1},
        lambda: plain.particles(500, 2, 1.0),
    ),
}


def start_of(problem: tl.Problem) -> tuple[np.ndarray, np.ndarray]:
    start = tl.Overlaps.random(problem, 1000, seed=1)
    return start.Q, start.M


def child(name: str) -> None:
    """One method in a process of its own: seconds of both calls, peak memory in MB, and
    the plain job.
    """
    warnings.simplefilter("ignore")
    problem, algorithm, method, options, other = JOBS[name]
    start = tl.Overlaps.random(problem, 1000, seed=1)
    calls = [
        took(
            lambda: tl.solve(
                problem, algorithm, method, start, save=10, progress=False, **options
            )
        )
        for _ in range(3)
    ]
    print(json.dumps([calls[0], min(calls[1:]), peak(), other()]))


def methods() -> list[dict[str, Any]]:
    """First and later calls of each method, alone in a process; plain NumPy or SciPy
    beside it.
    """
    out = []
    for name in JOBS:
        with tempfile.TemporaryDirectory() as cache:
            limits = {
                "JAX_COMPILATION_CACHE_DIR": cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
            }
            found = []
            for _ in range(2):
                command = [
                    sys.executable,
                    __file__,
                    "--child",
                    name,
                    *(["--processor"] if clock != "clock" else []),
                ]
                done = subprocess.run(
                    command,
                    check=True,
                    capture_output=True,
                    text=True,
                    env={**os.environ, **limits},
                )
                found.append(json.loads(done.stdout.splitlines()[-1]))
        (first, second, most, other), (again, *_) = found
        out.append(
            {
                "method": name,
                "first s": first,
                "second s": second,
                "second process s": again,
                "peak MB": most,
                "plain s": other,
                "plain/second": other / second,
            }
        )
        print(f"  {name}: {first:.2f} s, then {second:.3f} s", flush=True)
    for words in ("import twolayer", "import twolayer as tl; tl.solve", "import jax"):
        # the second process, which finds everything in the cache of the file system
        found = [
            took(partial(subprocess.run, [sys.executable, "-c", words], check=True))
            for _ in range(3)
        ]
        print(f"  a process that does `{words}`: {min(found):.2f} s", flush=True)
        out.append(
            {
                "method": words,
                "first s": found[0],
                "second s": None,
                "second process s": min(found),
            }
        )
    rows = [{**dict.fromkeys(out[0]), **r} for r in out]
    table("Each method, a small job", list(out[0]), [[*r.values()] for r in rows])
    return out


def witness() -> list[dict[str, Any]]:
    """What the witness of averages costs: first and second call of methods in
    processes of their own that keep no compiled code, with it and without.
    """
    out = []
    for name in ("ODE", "SDE", "Map", "GiantSteps", "MeanField"):
        row: dict[str, Any] = {"method": name}
        for word in ("off", "on"):
            found = []
            for _ in range(3):
                done = subprocess.run(
                    [
                        sys.executable,
                        __file__,
                        "--child",
                        name,
                        *(["--processor"] if clock != "clock" else []),
                    ],
                    check=True,
                    capture_output=True,
                    text=True,
                    env={
                        **os.environ,
                        "TWOLAYER_CACHE": "off",
                        "TWOLAYER_WITNESS": word,
                    },
                )
                found.append(json.loads(done.stdout.splitlines()[-1])[:2])
            first, second = map(min, zip(*found, strict=True))
            row |= {f"first s, {word}": first, f"second s, {word}": second}
        row["first on/off"] = row["first s, on"] / row["first s, off"]
        out.append(row)
        print(f"  {name}: {row['first on/off']:.3f}", flush=True)
    table("The witness of averages", list(out[0]), [[*r.values()] for r in out])
    return out


FIRST = """
import json, time
clock = [time.perf_counter()]
import numpy as np
import twolayer as tl
clock.append(time.perf_counter())
problem = tl.Problem(target="He2(z1)", activation="He2", width=4, noise=0.1)
algorithm = tl.SGD(lr="0.2/d", geometry="projected")
start = tl.Overlaps(Q=np.eye(4), M=[[0.1]] * 4)
clock.append(time.perf_counter())
for _ in range(2):
    tl.solve(problem, algorithm, tl.ODE(), start, time=2)
    clock.append(time.perf_counter())
print(json.dumps([after - before for before, after in zip(clock, clock[1:])]))
"""
README = (
    "-m",
    "twolayer",
    "compare",
    str(ROOT / "examples" / "phase_retrieval.toml"),
    "--out",
)


def first() -> list[dict[str, Any]]:
    """What processes take until their first answer, by the clock, with a cache that is
    empty before the first.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    out = []
    with tempfile.TemporaryDirectory() as folder:

        def process(words: Sequence[str], cache: str) -> tuple[float, str]:
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, *words],
                env={**env, "TWOLAYER_CACHE": cache},
                capture_output=True,
                text=True,
                check=True,
            )
            return time.perf_counter() - began, done.stdout

        readme = (*README, f"{folder}/first.nc")
        for words in (
            ("-c", FIRST),
            readme,
        ):  # Python's bytecode is there once something has run
            process(words, "off")
        for number in ("first", "second", "third"):
            whole, told = process(("-c", FIRST), f"{folder}/cache")
            parts = dict(
                zip(
                    ("import", "description", "first ODE", "second ODE"),
                    json.loads(told),
                    strict=True,
                )
            )
            command = process(readme, f"{folder}/readme")[0]
            out.append(
                {
                    "process": number,
                    **parts,
                    "whole process": whole,
                    "README's command": command,
                }
            )
    table("Seconds until the first answer", list(out[0]), [[*r.values()] for r in out])
    return out


def particles(count: int, end: float = 2.0) -> float:
    """Seconds of a mean field of erf neurons, k = 2."""
    problem = tl.Problem(tl.Teacher("erf", 2), "erf")
    cloud = tl.mean_field.Particles.sample(problem, count, dim=50, seed=1)
    return seconds(
        lambda: tl.solve(
            problem,
            tl.SGD(1 / d),
            tl.MeanField(),
            cloud,
            time=end,
            save=10,
            progress=False,
        ),
        1,
    )


def general() -> list[dict[str, Any]]:
    """Whole runs of what costs most, the first and the second in one process."""
    tanh = tl.Problem("tanh(z1*z2)", "tanh", width=3)
    wide = tl.Problem(tl.Teacher("erf", 4), "erf", width=64, noise=0.01)
    cloud = tl.mean_field.Particles.sample(
        tl.Problem(tl.Teacher("erf", 2), "erf"), 100_000, dim=50, seed=1
    )
    runs: dict[str, tuple[Any, ...]] = {
        "ODE, tanh, p = 3, tanh(z1*z2), t = 5": (
            tanh,
            tl.SGD(0.5 / d),
            tl.ODE(),
            None,
            {"time": 5},
        ),
        "ODE, erf, p = 64, k = 4, t = 100": (
            wide,
            tl.SGD(0.5 / d),
            tl.ODE(),
            None,
            {"time": 100},
        ),
        "DMFT, relu, p = 2, 6 steps": (*AUTHORS, tl.DMFT(), None, {"steps": 6}),
        "DMFT, relu, p = 2, 100 steps": (*AUTHORS, tl.DMFT(), None, {"steps": 100}),
        "MeanField, erf, k = 2, 10⁵ particles, t = 10": (
            tl.Problem(tl.Teacher("erf", 2), "erf"),
            tl.SGD(1 / d),
            tl.MeanField(),
            cloud,
            {"time": 10.0},
        ),
    }
    out = []
    for name, (problem, algorithm, method, start, options) in runs.items():
        begin = start or tl.Overlaps.random(problem, 1000, seed=1)
        job = partial(
            tl.solve,
            problem,
            algorithm,
            method,
            begin,
            save=10,
            progress=False,
            **options,
        )
        out.append({"run": name, "first s": took(job), "second s": took(job)})
        print(
            f"  {name}: {out[-1]['first s']:.2f} s, then {out[-1]['second s']:.2f} s",
            flush=True,
        )
    table("Whole runs", list(out[0]), [[*r.values()] for r in out])
    return out


def exponent(sizes: Sequence[float], taken: Sequence[float]) -> float:
    """Slope of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])


def growth() -> list[dict[str, Any]]:
    """How seconds per step (and seed) grow."""

    def per_step(**at: Any) -> float:
        given = {"p": 2, "k": 1, "seeds": 64, "engine": "compiled", "least": 0.1, **at}
        return 1 / chain_rate(**given)

    def vectors(dim: int) -> float:
        problem, start = he2(2), tl.Overlaps.random(he2(2), dim)
        steps = max(20, 2_000_000 // dim)

        def job() -> None:
            tl.solve(
                problem,
                PROJECTED,
                tl.Vectors(dim),
                start,
                steps=steps,
                save=1,
                seeds=4,
                progress=False,
            )

        return seconds(job, 2) / steps / 4

    def run(
        problem: tl.Problem, algorithm: tl.SGD, method: Any, **options: Any
    ) -> float:
        start = tl.Overlaps.random(problem, 1000, seed=1)
        return seconds(
            lambda: tl.solve(
                problem, algorithm, method, start, save=10, progress=False, **options
            ),
            2,
        )

    def ode(p: int, name: str = "erf") -> float:
        return run(
            tl.Problem(tl.Teacher(name, 2), name, width=p, noise=0.01),
            tl.SGD(0.5 / d),
            tl.ODE(),
            time=10,
        )

    def mixed(p: int = 3, k: int = 2) -> float:
        target = "*".join(f"z{r + 1}" for r in range(k))
        return run(
            tl.Problem(f"tanh({target})", "tanh", width=p),
            tl.SGD(0.5 / d),
            tl.ODE(),
            time=5,
        )

    def dmft(steps: int) -> float:
        return run(
            AUTHORS[0],
            AUTHORS[1],
            tl.DMFT(tl.Averages(accuracy=1.0)),
            steps=steps,
        )

    def on_cores(cores: int) -> float:
        every = os.sched_getaffinity(0)
        program = "import run; print(run.chain_rate(4, 1, 1024, 'compiled'))"
        command = [
            "taskset",
            "-c",
            ",".join(map(str, sorted(every)[:cores])),
            sys.executable,
            "-c",
            program,
        ]
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            cwd=os.path.dirname(__file__) or ".",
        )
        return 1 / float(done.stdout.split()[-1])

    cores = [2**i for i in range(len(os.sched_getaffinity(0)).bit_length())]
    laws: list[tuple[str, str, Sequence[int], Callable[[int], float]]] = [
        ("Chain", "d", (1_000, 10_000, 100_000), lambda dim: per_step(dim=dim)),
        ("Chain", "p", (2, 4, 8, 16), lambda p: per_step(p=p)),
        ("Chain", "k", (1, 2, 4, 8), lambda k: per_step(k=k)),
        ("Chain", "n_b", (8, 32, 128), lambda n: per_step(batch=n)),
        (
            "Chain",
            "seeds (whole run)",
            (64, 256, 1024),
            lambda n: n * per_step(seeds=n),
        ),
        ("Chain", "cores, 1024 seeds", cores, on_cores),
        ("Vectors", "d", (1_000, 10_000, 100_000), vectors),
        ("ODE, He2", "p", (16, 32, 64), partial(ode, name="He2")),
        ("ODE, erf", "p", (16, 24, 32), ode),
        ("ODE, tanh(z1*z2)", "p", (2, 3, 4, 6, 8), mixed),
        ("ODE, tanh(z1*…*zk), p = 3", "k", (1, 2, 3), lambda k: mixed(k=k)),
        (
            "SDE, He2",
            "p",
            (4, 8, 16),
            lambda p: run(he2(p), ONLINE, tl.SDE(1000), time=0.2, seeds=16),
        ),
        (
            "Map, He2",
            "p",
            (2, 4, 8),
            lambda p: run(he2(p), GIANT, tl.Map(1000), steps=50),
        ),
        (
            "GiantSteps, He2",
            "p",
            (8, 16, 32),
            lambda p: run(he2(p), LARGE, tl.GiantSteps(), steps=50),
        ),
        ("DMFT, relu, 2¹⁴ points", "steps", (12, 24, 48), dmft),
        ("MeanField, erf, k = 2", "particles", (4_000, 8_000, 16_000), particles),
    ]
    out = []
    for method, of, sizes, law in laws:
        taken = [law(n) for n in sizes]
        slope = exponent(sizes, taken) if len(sizes) > 1 else None
        out.append(
            {
                "method": method,
                "of": of,
                "sizes": list(sizes),
                "seconds": taken,
                "exponent": slope,
            }
        )
        print(f"  {method} in {of}: {', '.join(f'{x:.3g}' for x in taken)}", flush=True)
    rows = [
        [
            r["method"],
            r["of"],
            ", ".join(map(str, r["sizes"])),
            ", ".join(f"{x:.2g}" for x in r["seconds"]),
            r["exponent"],
        ]
        for r in out
    ]
    table("Growth", ["method", "of", "sizes", "seconds", "exponent"], rows)
    return out


def precision() -> list[dict[str, Any]]:
    """Error against cost: averages of an erf task, whose exact values are known."""
    problem = tl.Problem(tl.Teacher("erf", 2), "erf", width=2, noise=0.1)
    start = tl.Overlaps.random(problem, 20, seed=3)
    exact = tl.moments(problem, start)
    knobs: list[dict[str, Any]] = [
        {"engine": "quadrature", "tolerance": 10.0**-n} for n in (2, 4, 6, 8)
    ]
    knobs += [{"engine": "sobol", "log2_points": n} for n in (8, 11, 14, 17)]
    out = []
    for knob in knobs:
        found = tl.moments(problem, start, **knob)
        error = max(
            float(np.abs(getattr(found, x) - getattr(exact, x)).max())
            for x in ("psi", "phi", "chi")
        )
        taken = seconds(lambda knob=knob: tl.moments(problem, start, **knob), 3)
        out.append(
            {
                "engine": knob["engine"],
                "knob": [*knob.values()][1],
                "s": taken,
                "error": error,
                "told": float(found.error),
            }
        )
    table(
        "Error against seconds of one call of moments",
        list(out[0]),
        [[*r.values()] for r in out],
    )
    return [*out, *run_precision()]


def run_precision() -> list[dict[str, Any]]:
    """Error against cost of whole runs: the risk of an ODE with sampled averages, the
    overlaps of DMFT.
    """
    tanh, out = tl.Problem("tanh(z1*z2)", "tanh", width=3), []
    knobs = [
        (
            "ODE",
            "risk",
            tanh,
            tl.SGD(0.5 / d),
            [tl.ODE(tl.Averages(accuracy=10.0**-n)) for n in (2, 3, 4, 5)],
            {"time": 5},
        )
    ]
    points = [
        tl.DMFT(max_log2_points=n, averages=tl.Averages(points=2**n, accuracy=1.0))
        for n in (10, 12, 14, 16)
    ]
    knobs += [("DMFT", "M", *AUTHORS, points, {"steps": 6})]
    for name, quantity, problem, algorithm, each, options in knobs:
        start = tl.Overlaps.random(problem, 1000, seed=1)
        found = []
        for method in each:
            job = partial(
                tl.solve,
                problem,
                algorithm,
                method,
                start,
                save=10,
                progress=False,
                **options,
            )
            found.append((method, job(), seconds(job, 1)))
        last = found[-1][1][quantity].values
        for method, result, taken in found[:-1]:
            error = float(np.abs(result[quantity].values - last).max())
            told = json.loads(result.attrs["notes"])["engine_error"]
            knob = method.accuracy if name == "ODE" else method.log2_points
            out.append(
                {"engine": name, "knob": knob, "s": taken, "error": error, "told": told}
            )
    table(
        "Error against seconds of whole runs (error: change against the finest)",
        list(out[0]),
        [[*r.values()] for r in out],
    )
    return out


def device() -> list[dict[str, Any]]:
    """Many seeds at once on the device that JAX finds."""
    kind = jax.devices()[0].device_kind
    large = jax.default_backend() != "cpu"
    seeds, steps = (2**18, 10_000) if large else (2**12, 500)
    out = []
    for p, k in SIZES:
        problem = he2(p, k)
        start = tl.Overlaps.random(problem, DIM)

        def job(
            seeds: int, steps: int, problem: Any = problem, start: Any = start
        ) -> float:
            began = time.perf_counter()
            tl.solve(
                problem,
                PROJECTED,
                tl.Chain(DIM),
                start,
                steps=steps,
                save=1,
                seeds=seeds,
                progress=False,
            )
            return time.perf_counter() - began

        first = job(seeds, steps)
        again = min(job(seeds, steps) for _ in range(2))
        job(4 * seeds, 1)
        row = {
            "p": p,
            "k": k,
            "seeds": seeds,
            "steps": steps,
            "first s": first,
            "again s": again,
        }
        setting = job(4 * seeds, 1)
        out.append(
            {
                **row,
                "G steps/s": seeds * steps / again / 1e9,
                f"set-up of {4 * seeds} seeds s": setting,
            }
        )
    table(f"Many seeds on {kind}", list(out[0]), [[*r.values()] for r in out])
    return [*out, *vectors_on_device(large)]


def generator_rate(seeds: int, dim: int) -> float:
    """Inputs of `Vectors` per second, drawn and written to memory and nothing else."""
    keys = random.stream(0, random.Role.INPUTS, np.arange(seeds))
    index = jnp.arange(dim // 2, dtype=jnp.uint32)

    def draw(step: Any, _: Any) -> Any:
        return random.normal_32(keys[:, None, :], jnp.uint32(step), index)

    blank = (jnp.zeros((seeds, dim // 2), jnp.float32),) * 2
    job = jax.jit(lambda blank: jax.lax.fori_loop(0, 200, draw, blank))
    return 200 * seeds * dim / seconds(lambda: jax.block_until_ready(job(blank)))


def vectors_on_device(large: bool) -> list[dict[str, Any]]:
    """Inputs per second of `Vectors`: of steps alone, from runs of two lengths, and of
    a whole run.
    """
    generator = generator_rate(1024, DIM) if large else generator_rate(16, DIM)
    out = []
    for p, dim, batch, seeds in (
        (1, DIM, 1, 1024),
        (1, DIM, 64, 64),
        (4, DIM, 16, 256),
        (1, 1000, 64, 1024),
    ):
        count = seeds if large else seeds // 64
        steps = max(4, (4000 if large else 64) * 1024 * DIM // (batch * dim * seeds))
        problem = he2(p)
        options: dict[str, Any] = {"save": 1, "seeds": count, "progress": False}
        start, algorithm = (
            tl.Overlaps.random(problem, dim),
            PROJECTED.replace(batch=batch),
        )
        job = partial(tl.solve, problem, algorithm, tl.Vectors(dim), start, **options)
        long, short = (seconds(partial(job, steps=n), 2) for n in (steps, steps // 4))
        inputs = batch * dim * count
        row = {"p": p, "d": dim, "n_b": batch, "seeds": count, "steps": steps}
        row["G inputs/s, steps alone"] = (
            (steps - steps // 4) * inputs / (long - short) / 1e9
        )
        out.append(
            {
                **row,
                "whole run": steps * inputs / long / 1e9,
                "generator alone": generator / 1e9,
            }
        )
    table(
        "Vectors, thousand million inputs per second",
        list(out[0]),
        [[*r.values()] for r in out],
    )
    return out


def blocks() -> list[dict[str, Any]]:
    """A step of 64 seeds with p = 4, against isotropic inputs, with both engines."""
    dim, seeds = 64_000, 64

    def step(count: int, engine: str) -> float:
        inputs = (
            None
            if count == 0
            else tl.Inputs.blocks(
                np.linspace(1.9, 0.1, count), np.full(count, 1 / count)
            )
        )
        problem = he2(4).replace(inputs=inputs)
        start, steps, taken = tl.Overlaps.random(problem, dim), 64, 0.0
        run: dict[str, Any] = {"save": 1, "seeds": seeds, "progress": False}
        job = partial(
            tl.solve, problem, PROJECTED, tl.Chain(dim, engine=engine), start, **run
        )
        while taken < 0.3:  # of the steps alone: starts and tables are made before
            steps *= 2
            taken = seconds(partial(job, steps=3 * steps), 3) - seconds(
                partial(job, steps=steps), 3
            )
        return taken / (2 * steps)

    engines = ("compiled", "jax")
    alone = {engine: step(0, engine) for engine in engines}
    out: list[dict[str, Any]] = [
        {"blocks": "isotropic", **{f"{e} µs": 1e6 * x for e, x in alone.items()}}
    ]
    for count in (4, 16, 64, 256):
        taken = {
            engine: step(count, engine)
            for engine in engines
            if count <= 64 or engine == "compiled"
        }
        out.append({"blocks": count, **{f"{e} µs": 1e6 * x for e, x in taken.items()}})
        out[-1] |= {f"{e} over isotropic": x / alone[e] for e, x in taken.items()}
    head = list(out[1])
    title = f"Chain with inputs in blocks, p = 4, d = {dim}: a step of {seeds} seeds"
    table(title, head, [[r.get(key, "") for key in head] for r in out])
    return out


TABLES = {
    "rates": rates,
    "first": first,
    "witness": witness,
    "methods": methods,
    "growth": growth,
    "general": general,
    "precision": precision,
    "device": device,
    "blocks": blocks,
}


def commit() -> str:
    """The commit that is measured; with a plus where files were changed since."""
    asked = ["git", "describe", "--always", "--dirty=+", "--abbrev=10"]
    try:
        done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    except OSError:  # no git: an archive of the sources
        return "unknown"
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of every method.")
    parser.add_argument(
        "table",
        nargs="*",
        default=list(TABLES),
        metavar="TABLE",
        help=", ".join(TABLES),
    )
    parser.add_argument("--json", help="file for the numbers")
    parser.add_argument(
        "--record", action="store_true", help="keep the numbers in benchmarks/history"
    )
    parser.add_argument(
        "--processor", action="store_true", help="processor time instead of the clock"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    global clock
    clock = "processor" if given.processor else "clock"
    if given.child:
        child(given.child)
        return
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "seconds": clock,
        "load": round(os.getloadavg()[0], 1),  # before anything is measured
    }
    targets = [Path(given.json)] if given.json else []
    if given.record:
        HISTORY.mkdir(exist_ok=True)
        targets.append(HISTORY / f"{found['date']}-{found['commit']}.json")
    for name in given.table:
        found[name] = TABLES[name]()
        for path in targets:
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(
        f"\n{time.perf_counter() - began:.0f} s in all, load average"
        f" {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
