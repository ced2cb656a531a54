"""What the figures of giant steps share: theory and experiment from one start, and how
far they are apart.

    |mean of the runs − theory| ≤ c √(se² + error²)
        at all steps, for all neurons and directions

A batch of α d samples makes steps of order one, so runs at finite d scatter by 1/√d
about a theory without a dimension.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.gallery.shared.judging import Check, largest
from twolayer.gallery.shared.parts import part
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.statistics import standard_error
from twolayer.task.method import Method

__all__ = [
    "JUDGED",
    "StepPair",
    "agree",
    "follow",
    "orthogonal",
    "stack_runs",
    "strength",
]

JUDGED = ("M", "Q", "train_risk", "risk")
"""What is compared where samples are reused."""

FLOOR = 1e-9  # below this a number counts as exact
SHARE = 0.1  # of the range: deviations that must be seen


def orthogonal(problem: tl.Problem) -> tl.Overlaps:
    """Orthonormal neurons that know nothing: Q = I, M = 0."""
    return tl.Overlaps(np.eye(problem.p), np.zeros((problem.p, problem.k)), problem.P)


class StepPair(NamedTuple):
    """The same steps by a theory and by runs."""

    theory: xr.Dataset
    runs: xr.Dataset

    def mean(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the runs and its standard error, (time, …)."""
        values = self.runs[name].values
        return values.mean(0), standard_error(values)

    def gaps(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Deviations and their standard errors, from the first step on; numbers below
        rounding count as equal.
        """
        mean, se = self.mean(name)
        error = (
            self.theory[f"{name}_error"].values[0]
            if f"{name}_error" in self.theory
            else 0.0
        )
        gap, total = (
            (mean - self.theory[name].values[0])[1:],
            np.sqrt(se**2 + np.square(error))[1:],
        )
        exact = (total <= FLOOR) & (np.abs(gap) <= FLOOR)
        return np.where(exact, 0.0, gap), np.where(exact, 0.0, np.maximum(total, FLOOR))

    def range(self, name: str) -> float:
        """How far the theory moves, or a natural size where that is lost in the
        fluctuations of a run.
        """
        values = self.theory[name].values[0]
        moves, natural = (
            float(np.ptp(values, axis=0).max()),
            1.0 if name == "M" else float(np.abs(values).max()),
        )
        dim = json.loads(self.runs.attrs["description"])["method"]["dim"]
        return moves if moves > natural * dim**-0.5 else natural


def agree(what: str, pairs: Iterable[StepPair], names: tuple[str, ...]) -> Check:
    """Whether the runs follow the theory in all entries of the given names at all steps
    of all pairs.

    Deviations of a tenth of the range of their name must be seen.
    """
    every = list(pairs)
    found = [pair.gaps(name) for pair in every for name in names]
    sizes = [SHARE * pair.range(name) for pair in every for name in names]
    gaps, errors = (np.concatenate([row[i].ravel() for row in found]) for i in range(2))
    scales = np.concatenate(
        [np.full(row[0].size, size) for row, size in zip(found, sizes, strict=True)]
    )
    freedom = min(pair.runs.sizes["seed"] for pair in every) - 1
    return largest(
        f"{what}, entries of {', '.join(names)}",
        gaps,
        errors,
        resolution=scales,
        freedom=freedom,
    )


def follow(
    key: str,
    problem: tl.Problem,
    algorithm: tl.SGD,
    theory: Method,
    experiment: Method,
    steps: int,
    seeds: int,
    seed: int,
    start: tl.Overlaps | None = None,
) -> StepPair:
    """Both lenses, saved at every step; each is kept as a piece of the figure."""
    start = orthogonal(problem) if start is None else start
    arguments: Options = {"steps": steps, "save": steps, "seed": seed}
    exact = part(
        f"{key}-theory",
        lambda: tl.solve(problem, algorithm, theory, start, **arguments),
    )
    runs = part(
        f"{key}-runs",
        lambda: tl.solve(
            problem, algorithm, experiment, start, seeds=seeds, **arguments
        ),
    )
    return StepPair(exact, runs)


def stack_runs(pairs: Mapping[Any, StepPair], along: str) -> Variables:
    """Means of the runs of all pairs and their standard errors, of every name in
    `JUDGED`.
    """
    found: Variables = {}
    for name in JUDGED:
        dims = (along, *next(iter(pairs.values())).theory[name].dims[1:])
        for suffix, values in zip(
            ("", "_error"),
            zip(*(x.mean(name) for x in pairs.values()), strict=True),
            strict=True,
        ):
            found[f"{name}_runs{suffix}"] = dims, np.stack(values)
    return found


def strength(M: np.ndarray) -> np.ndarray:
    """Overlap with each direction, root-mean-square over the neurons: (…, p, k) → (…,
    k).
    """
    return np.asarray(np.sqrt((M**2).mean(-2)))
