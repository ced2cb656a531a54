"""Figures of where runs stall: fixed points by their eigenvalues, a run with its
plateaus.

bars       what grows (up) and what decays (down) at each fixed point
shaded     the plateaus of a run, between the excess risks of their saddles (dashed)
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from twolayer.analysis.stability.plateaus import Plateaus
from twolayer.analysis.stability.points import FixedPoints
from twolayer.numerics.errors import reject, require
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.panels import (
    clear_legends,
    end_where_resolved,
    headed_legend,
    plain_ticks,
)
from twolayer.plot.style import COLOURS, DIRECTIONS, GREY, positive

__all__ = ["fixed_points", "plateaus"]

SHADE = 0.12  # opacity, on light paper and on dark
ROOM = 2.5  # above the largest risk, for the growth rate of a plateau that begins there
FLAT = 1e-5  # growth rates below this share of the largest are drawn on the line


@in_house_style
def fixed_points(
    result: FixedPoints, figure: Figure | None = None, ax: Axes | None = None
) -> Figure:
    """Real parts of all eigenvalues at each fixed point, growing ones above zero.

    Parameters
    ----------
    result : FixedPoints
        From `fixed_points`.

    Examples
    --------
    >>> import twolayer as tl
    >>> near = tl.Overlaps([[0.4]], [[0.0]])
    >>> points = tl.fixed_points(
    ...     tl.Problem("He2(z1)", "He2"), tl.SGD(lr="0.05/d"), near
    ... )
    >>> len(fixed_points(points).axes)
    1
    """
    if not isinstance(result, FixedPoints) or not result:
        reject("result", result, "a result of fixed_points with at least one point")
    drawing, (panel,), _ = canvas(1, (5.2, 3.4), figure, ax)
    for i, point in enumerate(result):
        values = np.real(point.eigenvalues)
        for sign, colour in ((1, DIRECTIONS[1]), (-1, DIRECTIONS[0])):
            here = values[np.sign(values) == sign]
            panel.scatter(
                np.full(len(here), i), here, marker="_", s=340, color=colour, lw=1.6
            )
    panel.axhline(0.0, color=GREY, lw=0.8)
    every = np.concatenate([np.real(x.eigenvalues) for x in result])
    top = max(float(np.abs(every).max()), 1e-12)
    small = np.abs(every)[np.abs(every) > FLAT * top].min(initial=top)
    # a power of ten below all that grows or decays: no labels crowd around zero
    panel.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(small)))
    panel.set_ylim(min(2.5 * every.min(), -small), max(2.5 * every.max(), small))
    panel.set_xticks(
        range(len(result)), [f"{x.kind}\n{x.excess_risk:.3g}" for x in result]
    )
    panel.set(
        xlim=(-0.7, len(result) - 0.3),
        ylabel="growth rates per unit of t",
        xlabel="excess risk",
    )
    return drawing


@in_house_style
def plateaus(
    result: Plateaus,
    run: xr.Dataset,
    figure: Figure | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Excess risk of a run against time, with its plateaus shaded and the risks of
    their saddles dashed.

    Parameters
    ----------
    result : Plateaus
        From `stability.plateaus`.
    run : Dataset
        The run.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2"),
    ...     tl.SGD(lr="0.05/d", geometry="projected"),
    ... )
    >>> run = tl.solve(
    ...     problem, algorithm, tl.ODE(), tl.Overlaps([[1.0]], [[0.01]]), time=4
    ... )
    >>> len(plateaus(tl.stability.plateaus(problem, algorithm, run), run).axes)
    1
    """
    require(
        isinstance(result, Plateaus), "result", result, "a result of stability.plateaus"
    )
    require(
        isinstance(run, xr.Dataset) and "excess_risk" in run,
        "run",
        run,
        "the run that the plateaus are those of",
    )
    grow = figure is None and ax is None
    drawing, (panel,), _ = canvas(1, (5.2, 3.4), figure, ax)
    last = float(run.time[-1])
    for i, one in enumerate(result):
        end = min(one.end, last)
        shade = DIRECTIONS[i % 2]
        panel.axvspan(one.begin, end, color=shade, alpha=SHADE, lw=0, zorder=0)
        panel.hlines(one.point.excess_risk, one.begin, end, color=GREY, ls="--", lw=1.2)
        panel.annotate(
            f"κ = {one.point.rate:.3g}",
            (0.5 * (one.begin + end), one.point.excess_risk),
            (0, 6),
            textcoords="offset points",
            ha="center",
            color=GREY,
            fontsize=8.5,
        )
    risk = run.excess_risk.isel(seed=0).values
    panel.plot(run.time, positive(risk), color=COLOURS["theory"])
    for i, (when, (order, _)) in enumerate(
        zip(result.learned, result.chain, strict=True)
    ):
        if np.isfinite(when):
            panel.axvline(
                when,
                color=DIRECTIONS[i],
                lw=1.0,
                ls=":",
                label=f"order {order} learned",
            )
    panel.set(
        xlabel="time t = lr·step/N", ylabel="excess risk", yscale="log", xlim=(0, last)
    )
    plain_ticks(panel.yaxis)
    seen = risk[risk > 0]
    if seen.size:
        panel.set_ylim(top=ROOM * seen.max())
    note = ""
    if seen.size:
        note = end_where_resolved(panel, seen.min(), seen.max(), run)
    if note or any(np.isfinite(result.learned)):
        heading = [note] if note else []
        headed_legend(panel, *panel.get_legend_handles_labels(), heading=heading)
        clear_legends(drawing, [panel], grow)
    return drawing
