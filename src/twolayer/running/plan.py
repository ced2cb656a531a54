"""What `compare` follows: one algorithm to an end, or several in stages, each to its
own.

    plan.solve(method, start, {"time": t} or {} …)  →
        a dataset along time, whatever the plan

Stages that all seeds leave together have common clocks, so that their results are runs
like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import InputError, Refused
from twolayer.running.finite_size import left_by_the_mean_step, rounding, slowest
from twolayer.running.solve import solve
from twolayer.running.stages import (
    Stage,
    check_sets,
    check_stages,
    in_common,
    solve_stages,
)
from twolayer.running.support import Support, check_description, support
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks, save_steps, without_passes
from twolayer.task.method import Method
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["Plan"]

ROUND = 1e-9  # times closer than this, relative, are the same


@dataclass(frozen=True)
class Plan:
    """Tasks and algorithms in their order, and the stages they come from; none where
    there is one algorithm.
    """

    problem: Problem
    parts: tuple[tuple[Problem, SGD], ...]
    stages: tuple[Stage, ...] = ()

    @classmethod
    def of(cls, problem: Problem, given: SGD | Sequence[Stage]) -> Plan:
        """The plan of an algorithm or of stages, checked."""
        if isinstance(given, list | tuple):
            for stage in given:
                if isinstance(stage, Stage):
                    check_description(stage.problem or problem, stage.algorithm)
            check_stages(problem, given)
            for number, stage in enumerate(given):
                if stage.until is not None:
                    raise InputError(
                        "Argument `stages` must have no thresholds in a comparison,"
                        f" where all methods go to the same end, but stage {number + 1}"
                        f" has {stage.until!r}."
                    )
            return cls(
                problem,
                tuple((x.problem or problem, x.algorithm) for x in given),
                tuple(given),
            )
        check_description(problem, given)
        assert isinstance(given, SGD)
        return cls(problem, ((problem, given),))

    @property
    def algorithm(self) -> SGD:
        """The first algorithm: the clocks of all stages are in the same powers of d."""
        return self.parts[0][1]

    @property
    def reuses(self) -> bool:
        """Whether samples come back."""
        return any(algorithm.reused for _, algorithm in self.parts)

    def objection(self, method: Method) -> str | None:
        """Why a method cannot follow all of it, or None."""
        found = (method.objection(*part) for part in self.parts)
        reason = next((reason for reason in found if reason is not None), None)
        if reason is None and self.stages:
            try:
                check_sets([algorithm for _, algorithm in self.parts], method)
            except Refused as refused:
                reason = refused.reason
        return reason

    @property
    def support(self) -> Support:
        """The methods that can follow all of it, and the reasons of the others."""
        every = [support(*part) for part in self.parts]
        reasons = {
            name: reason
            for found in every[::-1]
            for name, reason in found.reasons.items()
        }
        return Support(
            tuple(name for name in every[0].methods if name not in reasons), reasons
        )

    @property
    def slowest(self) -> float:
        """The smallest power of the corrections to the limit, of all parts."""
        return min(slowest(algorithm) for _, algorithm in self.parts)

    @property
    def left_by_the_mean_step(self) -> float:
        """The same for what the mean step leaves out."""
        return min(left_by_the_mean_step(algorithm) for _, algorithm in self.parts)

    def rounding(self, dim: int) -> float:
        """By how much samples are off their laws because they are whole, of all
        parts.
        """
        return max(rounding(algorithm, dim) for _, algorithm in self.parts)

    def work(self, dim: int, ends: Options) -> float:
        """Samples that a run draws, at the batches without their schedules."""
        total = 0.0
        for i, (problem, algorithm) in enumerate(self.parts):
            end = self.stages[i].ends if self.stages else ends
            last = {
                name: x if np.ndim(x) == 0 else np.asarray(x)[-1:]
                for name, x in end.items()
            }
            clocks = Clocks(problem, algorithm, dim)
            given = without_passes(clocks, last, 1, stepwise=True)
            at = save_steps(
                clocks, given.get("time"), given.get("steps"), 1, given.get("alpha")
            )
            total += float(at[-1]) * algorithm.batch_at(dim)
        return total

    def solve(
        self, method: Method, start: Overlaps, ends: Options, **run: Any
    ) -> xr.Dataset:
        """A run, to the given end; of stages, with save points at given times if there
        are any.
        """
        if not self.stages:
            return solve(self.problem, self.algorithm, method, start, **ends, **run)
        run.pop("save", None)
        stages = (
            self.stages
            if ends.get("time") is None
            else self._saved_at(np.asarray(ends["time"], float), start)
        )
        return in_common(solve_stages(self.problem, stages, method, start, **run))

    def _saved_at(self, times: np.ndarray, start: Overlaps) -> list[Stage]:
        """The stages with these save points, counted from the first; the last of them
        is the end.
        """
        lengths = []
        for stage, (problem, algorithm) in zip(self.stages, self.parts, strict=True):
            clocks, (name, end) = (
                Clocks(problem, algorithm, start.dim),
                next(iter(stage.ends.items())),
            )
            last = float(np.max(end))
            if name == "passes":
                name, last = "alpha", last * clocks.alpha_in_pass
            if name != "time":
                at = (
                    last
                    if name == "steps"
                    else last / float(clocks.reference(np.ones(1))["alpha"][0][0])
                )
                last = float(clocks.time(at)) if name == "steps" else at
            lengths.append(last)
        ends = np.cumsum(lengths) * times[-1] / np.sum(lengths)
        found, began = [], 0.0
        for i, (stage, end) in enumerate(zip(self.stages, ends, strict=True)):
            inside = (
                times[(times > began * (1 + ROUND)) & (times <= end * (1 + ROUND))]
                - began
            )
            points = np.append(
                inside[inside < (end - began) * (1 - ROUND)], end - began
            )
            points = np.append(0.0, points) if i == 0 and times[0] == 0 else points
            found.append(
                dataclasses.replace(
                    stage, time=points, steps=None, alpha=None, passes=None
                )
            )
            began = end
        return found
