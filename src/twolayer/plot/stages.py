"""Figure of a run in stages: every seed along its own clock, with a mark where it goes on to the next stage.

Seeds leave a stage at steps of their own, so there is no common time at which a mean over them could be taken.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from twolayer.numerics.arguments import Options
from twolayer.plot.style import DIRECTIONS

__all__ = ["draw_stages", "is_staged"]

FAINT = 3.0  # seeds that can be told apart; of more, each is drawn fainter


def is_staged(dataset: xr.Dataset) -> bool:
    """Whether a result was made by `solve_stages`."""
    return "stage" in dataset.coords


def draw_stages(
    left: Axes, right: Axes, dataset: xr.Dataset, colour: str, label: str, style: Options, quantity: str, clock: str
) -> None:
    """Risk (or another quantity) and overlaps of all seeds against their own clocks."""
    times, seeds = dataset[clock].values, dataset.sizes["seed"]
    stage = dataset.stage.values
    ends = np.flatnonzero(stage[1:] > stage[:-1])  # last save points of all stages but the last
    line: Options = {"lw": 1.0, "alpha": max(0.15, min(1.0, FAINT / seeds)), **style}

    def draw(ax: Axes, values: np.ndarray, colour: str, name: str | None) -> None:
        for i in range(seeds):
            ax.plot(times[i], values[i], color=colour, label=name if i == 0 else None, **line)
        if len(ends):
            ax.scatter(times[:, ends], values[:, ends], s=14, color=colour, zorder=4)

    draw(left, dataset[quantity].values, colour, label)
    p, k = dataset.sizes["neuron"], dataset.sizes["direction"]
    for r in range(k):
        for j in range(p):
            draw(right, dataset.M.values[:, :, j, r], DIRECTIONS[r], f"$M_{{j{r + 1}}}$" if j == 0 else None)
