"""The measure of neurons: where they are along a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from twolayer.analysis.neuron_measure import (
    measure_histogram,
    orthogonal_norms,
    particle_weights,
)
from twolayer.numerics.errors import positive_integer
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.style import DIRECTIONS

__all__ = ["measure"]

POINTS = 4000  # of many particles, so many are drawn


@in_house_style
def measure(
    dataset: xr.Dataset,
    panels: int = 4,
    figure: Figure | None = None,
    ax: Sequence[Axes] | None = None,
) -> Figure:
    """The neurons at several times: histograms of m and q for one direction, the plane
    of the first two otherwise.

    Parameters
    ----------
    dataset : xarray.Dataset
        From `solve`; its first seed is drawn.
    panels : int
        Number of times.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem = tl.Problem("z1**2", "square", width=2)
    >>> start = tl.Overlaps([[1.0, 0.0], [0.0, 1.0]], [[0.6], [0.0]])
    >>> run = tl.solve(problem, tl.SGD("0.1/d"), tl.Chain(50), start, steps=3, save=3)
    >>> len(measure(run).axes)
    4
    """
    weight = particle_weights(dataset)
    count = min(positive_integer("panels", panels), dataset.sizes["time"])
    times = np.unique(
        np.linspace(0, dataset.sizes["time"] - 1, count).round().astype(int)
    )
    size = (2.7 * len(times), 3.0)
    figure, axes, _ = canvas(len(times), size, figure, ax, sharex=True, sharey=True)
    if dataset.sizes["direction"] == 1:
        for of, colour in (("m1", DIRECTIONS[0]), ("q", DIRECTIONS[1])):
            rows = measure_histogram(dataset, of)
            for panel, i in zip(axes, times, strict=True):
                panel.stairs(
                    rows.values[0, i],
                    _edges(rows.bin.values),
                    fill=True,
                    color=colour,
                    alpha=0.6,
                    label="$m$" if of == "m1" else "$q$",
                )
        axes[0].set(ylabel="density", yscale="log")
        axes[0].legend()
    else:
        q = orthogonal_norms(dataset)
        shown = np.linspace(0, len(weight) - 1, min(POINTS, len(weight))).astype(int)
        for panel, i in zip(axes, times, strict=True):
            M = dataset.M.values[0, i][shown]
            size = 6 + 30 * weight[shown] / weight.max() / max(1.0, len(shown) / 200)
            marks = panel.scatter(
                M[:, 0],
                M[:, 1],
                size,
                q[0, i][shown],
                cmap="viridis_r",
                vmin=0,
                vmax=q[0].max(),
            )
        figure.colorbar(marks, ax=list(axes), label="$q$")
        axes[0].set_ylabel("$m_2$")
    for panel, i in zip(axes, times, strict=True):
        panel.set_title(f"$t = {float(dataset.time[i]):.3g}$")
        panel.set_xlabel("$m_1$" if dataset.sizes["direction"] > 1 else "$m,\\ q$")
    return figure


def _edges(centres: np.ndarray) -> np.ndarray:
    step = centres[1] - centres[0] if len(centres) > 1 else 1.0
    return np.append(centres - step / 2, centres[-1] + step / 2)
