"""What runs will take, told beforehand: seconds of one core and bytes, each compiled
code counted once.

    seconds = Σ_codes compilation + Σ_runs cost,
        as the methods estimate them (`Method.cost`, `Method.compilation`)

An order of magnitude: benchmarks/estimates.py measures how good it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from twolayer.numerics.durations import lasting
from twolayer.running.compare import foreseen
from twolayer.running.solve import make_task
from twolayer.task.algorithm import SGD
from twolayer.task.method import Method, Task
from twolayer.task.problem import Problem

__all__ = ["Cost", "cost_of", "cost_of_comparison"]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What runs of all seeds and methods will take, steps being those of the longest
    run that takes them one by one.

    Seconds are on one core of this machine, compilation included, an order of
    magnitude; memory is in bytes, of the largest result.
    """

    runs: int
    steps: int
    seconds: float
    memory: int

    @classmethod
    def total(cls, parts: Iterable[Cost]) -> Cost:
        """Of one after the other."""
        listed = list(parts)
        sums = (sum(part.runs for part in listed), sum(part.seconds for part in listed))
        return cls(
            sums[0],
            max(p.steps for p in listed),
            sums[1],
            max(p.memory for p in listed),
        )

    def __str__(self) -> str:
        runs = f"{self.runs} run{'s' if self.runs > 1 else ''}"
        steps = f" of up to {self.steps:.4g} steps" if self.steps else ""
        return (
            f"{runs}{steps}: about {lasting(self.seconds)} on one core,"
            f" {self.memory / 2**20:.2g} MiB"
        )


def cost_of(
    problem: Problem, algorithm: SGD, method: Method, start: Any, **arguments: Any
) -> Cost:
    """What `solve` with these arguments would take; nothing is run."""
    return _sum([(method, make_task(problem, algorithm, method, start, **arguments))])


def cost_of_comparison(
    problem: Problem, algorithm: Any, methods: Any, start: Any, **arguments: Any
) -> Cost:
    """What `compare` with these arguments would take, with the runs at smaller
    dimensions.
    """
    return _sum(foreseen(problem, algorithm, methods, start, **arguments))


def _sum(runs: Iterable[tuple[Method, Task]]) -> Cost:
    listed = list(runs)
    codes = {type(method): method.compilation(task) for method, task in listed}
    return Cost(
        runs=sum(task.seeds for _, task in listed),
        steps=max(
            (int(task.points[-1]) for method, task in listed if method.stepwise),
            default=0,
        ),
        seconds=sum(codes.values())
        + sum(task.seeds * method.cost(task) for method, task in listed),
        memory=max(task.seeds * method.footprint(task) for method, task in listed),
    )
