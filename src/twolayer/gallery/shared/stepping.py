"""What the figures of giant steps share: theory and experiment from one start, and how far they are apart.

    z = (mean of the runs − theory)/√(se² + error²)    over all steps, neurons and directions

A batch of α d samples makes steps of order one, so runs at finite d scatter by 1/√d about a theory without a dimension.
"""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.parts import part

__all__ = ["Pair", "follow", "headline", "mark_steps", "orthogonal", "strength"]

FLOOR = 1e-9  # below this a number counts as exact


def orthogonal(problem: tl.Problem) -> tl.Overlaps:
    """Orthonormal neurons that know nothing: Q = I, M = 0."""
    return tl.Overlaps(np.eye(problem.p), np.zeros((problem.p, problem.k)), problem.P)


class Pair(NamedTuple):
    """The same steps by a theory and by runs."""

    theory: xr.Dataset
    runs: xr.Dataset

    def mean(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the runs and its standard error, (time, …)."""
        values = self.runs[name].values
        return values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))

    def scores(self, name: str) -> np.ndarray:
        """Deviations in units of their standard errors, from the first step on; exact numbers count as zero."""
        mean, se = self.mean(name)
        theory = self.theory[name].values[0]
        error = self.theory[f"{name}_error"].values[0] if f"{name}_error" in self.theory else 0.0
        total = np.sqrt(se**2 + np.square(error))
        gap = mean - theory
        return np.asarray(np.where(total > FLOOR, gap / np.maximum(total, FLOOR), 0.0)[1:])

    def worst(self, names: tuple[str, ...]) -> tuple[float, float]:
        """Largest and root-mean-square deviation over all numbers of the given names."""
        every = np.concatenate([self.scores(name).ravel() for name in names])
        every = every[every != 0]
        return float(np.abs(every).max()), float(np.sqrt((every**2).mean()))


def follow(
    key: str,
    problem: tl.Problem,
    algorithm: tl.SGD,
    theory: Any,
    experiment: Any,
    steps: int,
    seeds: int,
    seed: int,
    start: tl.Overlaps | None = None,
) -> Pair:
    """Both lenses, saved at every step; each is kept as a piece of the figure."""
    start = orthogonal(problem) if start is None else start
    arguments: dict[str, Any] = {"steps": steps, "save": steps, "seed": seed}
    exact = part(f"{key}-theory", lambda: tl.solve(problem, algorithm, theory, start, **arguments))
    runs = part(f"{key}-runs", lambda: tl.solve(problem, algorithm, experiment, start, seeds=seeds, **arguments))
    return Pair(exact, runs)


def strength(M: np.ndarray) -> np.ndarray:
    """Overlap with each direction, root-mean-square over the neurons: (…, p, k) → (…, k)."""
    return np.asarray(np.sqrt((M**2).mean(-2)))


def mark_steps(ax: Axes, steps: int) -> None:
    """Whole steps on the axis of x."""
    ax.set_xticks(range(0, steps + 1, max(1, steps // 6)))
    ax.set_xlabel("step")


def headline(figure: Figure, text: str) -> None:
    """A title over all panels, broken into lines that fit."""
    figure.suptitle(textwrap.fill(text, max(30, int(13 * figure.get_figwidth()))), fontsize=10)
