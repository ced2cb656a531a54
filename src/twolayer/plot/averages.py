"""Figure of the averages that drive the dynamics: psi, phi and chi as matrices, with
their numbers while they fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from twolayer.gaussian.moments import Moments
from twolayer.numerics.errors import require
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.style import house_title

__all__ = ["moments"]

MEANING = {
    "psi": r"$a_j\,\mathrm{E}[\sigma'(\lambda_j)\,\lambda^*_r\,e]$",
    "phi": r"$a_j\,\mathrm{E}[\sigma'(\lambda_j)\,\lambda_l\,e]$",
    "chi": r"$a_j a_l\,\mathrm{E}[\sigma'(\lambda_j)\,\sigma'(\lambda_l)\,e^2]$",
}
NUMBERS_UP_TO = 6  # rows and columns


@in_house_style
def moments(
    result: Moments, figure: Figure | None = None, ax: Sequence[Axes] | None = None
) -> Figure:
    """The averages psi, phi and chi as matrices.

    Parameters
    ----------
    result : Moments
        From `moments`.

    Examples
    --------
    >>> from twolayer import Overlaps, Problem
    >>> from twolayer.gaussian.moments import moments as averages
    >>> figure = moments(averages(Problem("z1", "erf"), Overlaps([[1.0]], [[0.5]])))
    >>> [ax.get_xlabel() for ax in figure.axes[:3]]
    ['direction $r$', 'neuron $l$', 'neuron $l$']
    """
    require(
        isinstance(result, Moments),
        "result",
        type(result).__name__,
        "a result of moments",
    )
    figure, panels, whole = canvas(3, (9.2, 3.1), figure, ax)
    for panel, name in zip(panels, ("psi", "phi", "chi"), strict=True):
        matrix = getattr(result, name)
        rows, columns = matrix.shape
        bound = float(np.abs(matrix).max()) or 1.0
        # cells are numbered from 1, like neurons and directions
        edges = (0.5, columns + 0.5, rows + 0.5, 0.5)
        image = panel.imshow(
            matrix, cmap="RdBu_r", vmin=-bound, vmax=bound, aspect="auto", extent=edges
        )
        if max(rows, columns) <= NUMBERS_UP_TO:
            size = 7 if columns <= 4 else 6
            for (row, column), value in np.ndenumerate(matrix):
                colour = "white" if abs(value) > 0.6 * bound else "#333333"
                panel.text(
                    column + 1,
                    row + 1,
                    f"{value:.2g}",
                    ha="center",
                    va="center",
                    fontsize=size,
                    color=colour,
                )
        panel.grid(False)
        panel.set_title(f"{name}   {MEANING[name]}", fontsize=8.5)
        panel.set(
            xlabel="direction $r$" if name == "psi" else "neuron $l$",
            ylabel="neuron $j$",
        )
        for axis, count in ((panel.xaxis, columns), (panel.yaxis, rows)):
            axis.set_major_locator(
                MaxNLocator(min(count, 10), integer=True, min_n_ticks=1)
            )
        figure.colorbar(image, ax=panel)
    if whole:
        house_title(
            figure,
            f"risk {result.risk:.4g}   {result.engine}, error {result.error:.1e}",
        )
    return figure
