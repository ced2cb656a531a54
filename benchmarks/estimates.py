"""Are estimates of cost right? Twenty tasks: seconds that the plan tells against
seconds of the processor.

ratio = (compilation + cost) / measured,    the first run in a process whose compiled
code was thrown away

uv run python benchmarks/estimates.py            all of them, about five minutes
uv run python benchmarks/estimates.py ode chain  some of them, by a part of their name
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import jax

import twolayer as tl
from twolayer import d
from twolayer.running.solve import make_task

ONLINE = tl.SGD(lr=0.2 / d)
GIANT = tl.SGD(lr=0.5, batch=4 * d)
REUSED = tl.SGD(lr=0.2, batch=2 * d, dataset=2 * d)
FACTOR = 3.0


def task(target: Any, activation: str, width: int, **more: Any) -> tl.Problem:
    return tl.Problem(target, activation, width=width, noise=0.1, **more)


TASKS: dict[str, tuple[tl.Problem, tl.SGD, Any, dict[str, Any]]] = {
    "ode, He2": (task("He2(z1)", "He2", 1), ONLINE, tl.ODE(), {"time": 5}),
    "ode, square p=20": (
        task(tl.Teacher("square", 3), "square", 20),
        ONLINE,
        tl.ODE(),
        {"time": 5},
    ),
    "ode, erf p=3": (
        task(tl.Teacher("erf", 2), "erf", 3),
        ONLINE,
        tl.ODE(),
        {"time": 10},
    ),
    "ode, erf p=32": (
        task(tl.Teacher("erf", 4), "erf", 32),
        ONLINE,
        tl.ODE(),
        {"time": 1},
    ),
    "ode, relu p=4": (
        task(tl.Teacher("relu", 2), "relu", 4),
        ONLINE,
        tl.ODE(),
        {"time": 5},
    ),
    "ode, relu of abs p=20": (
        task("abs(z1)", "relu", 20),
        ONLINE,
        tl.ODE(),
        {"time": 5},
    ),
    "ode, relu of z1 + z1*z2": (
        task("z1 + z1*z2", "relu", 3),
        ONLINE,
        tl.ODE(),
        {"time": 5},
    ),
    "ode, tanh p=1": (task("tanh(z1)", "tanh", 1), ONLINE, tl.ODE(), {"time": 5}),
    "ode, tanh p=4": (task("tanh(z1)", "tanh", 4), ONLINE, tl.ODE(), {"time": 5}),
    "ode, sign": (task("sign(z1)", "erf", 2), ONLINE, tl.ODE(), {"time": 5}),
    "chain, He2": (
        task("He2(z1)", "He2", 1),
        ONLINE,
        tl.Chain(1000),
        {"time": 5, "seeds": 16},
    ),
    "chain, erf p=8": (
        task(tl.Teacher("erf", 2), "erf", 8),
        ONLINE,
        tl.Chain(1000),
        {"time": 5, "seeds": 16},
    ),
    "chain, batches": (
        task("tanh(z1)", "tanh", 2),
        GIANT,
        tl.Chain(1000),
        {"steps": 50, "seeds": 16},
    ),
    "vectors, online": (
        task("He2(z1)", "He2", 2),
        ONLINE,
        tl.Vectors(300),
        {"time": 5, "seeds": 16},
    ),
    "vectors, reused": (
        task("tanh(z1)", "tanh", 2),
        REUSED,
        tl.Vectors(500),
        {"steps": 20, "save": 4, "seeds": 8},
    ),
    "sde, erf p=2": (
        task(tl.Teacher("erf", 2), "erf", 2),
        ONLINE,
        tl.SDE(1000),
        {"time": 2, "seeds": 16},
    ),
    "giantsteps, relu": (
        task("z1 + z1*z2", "relu", 2),
        GIANT,
        tl.GiantSteps(),
        {"steps": 20},
    ),
    "map, erf": (task("tanh(z1)", "erf", 2), GIANT, tl.Map(1000), {"steps": 20}),
    "dmft, tanh": (task("tanh(z1)", "tanh", 2), REUSED, tl.DMFT(), {"steps": 10}),
    "meanfield, erf": (
        task("tanh(z1)", "erf", 32),
        ONLINE,
        tl.MeanField(),
        {"time": 2},
    ),
}


def main() -> None:
    warnings.simplefilter("ignore")
    chosen = [
        name
        for name in TASKS
        if not sys.argv[1:] or any(word in name for word in sys.argv[1:])
    ]
    outside = 0
    print(f"{'task':28}{'told':>8}{'taken':>8}{'ratio':>8}")
    for name in chosen:
        problem, algorithm, method, run = TASKS[name]
        start = tl.Overlaps.random(problem, 1000, seed=1)
        asked = make_task(problem, algorithm, method, start, **run)
        told = method.compilation(asked) + method.cost(asked)
        jax.clear_caches()
        began = time.process_time()
        tl.solve(problem, algorithm, method, start, **run)
        taken = time.process_time() - began
        far = not 1 / FACTOR <= told / taken <= FACTOR
        outside += far
        remark = f"  beyond a factor {FACTOR:g}" if far else ""
        times = f"{told:8.2f}{taken:8.2f}{told / taken:8.2f}"
        print(f"{name:28}{times}{remark}", flush=True)
    print(f"{outside} of {len(chosen)} beyond a factor {FACTOR:g}")


if __name__ == "__main__":
    main()
