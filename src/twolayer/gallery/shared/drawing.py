"""What the drawings of the gallery share: a sheet of panels, its title, points with
bars, ticks.

A drawing takes the data of its figure and nothing else: settings, task and verdict are
among the attributes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from twolayer.numerics.arguments import Array, Options

if TYPE_CHECKING:
    import twolayer as tl

__all__ = [
    "ALGORITHMS",
    "headline",
    "known",
    "mark_steps",
    "median_points",
    "plain_ticks",
    "points",
    "power",
    "sheet",
    "task_of",
    "told",
]

ALGORITHMS: dict[str, Options] = {
    "SGD": {"marker": "o", "ls": "-", "label": "squared loss, projected"},
    "correlation": {"marker": "s", "ls": "--", "label": "correlation loss"},
    "spherical": {"marker": "^", "ls": "-.", "label": "squared loss, spherical"},
}
"""The three algorithms of the batch papers are told apart by marker and dash as well as
by colour.
"""


def told(data: xr.Dataset) -> SimpleNamespace:
    """The settings that the data were computed with."""
    return SimpleNamespace(**json.loads(data.attrs["settings"]))


def task_of(problem: tl.Problem, algorithm: tl.SGD | None = None) -> str:
    """The task in one line, or in two with the algorithm, for the title of a figure."""
    from twolayer.plot.titles import algorithm_line, problem_line
    from twolayer.running.dataset import describe_problem

    first = problem_line(
        describe_problem(problem),
        algorithm is not None and algorithm.train_second_layer,
    )
    return (
        first
        if algorithm is None
        else f"{first}\n{algorithm_line(algorithm.describe())}"
    )


def sheet(
    columns: int, rows: int = 1, width: float = 4.4, height: float = 3.5
) -> tuple[Figure, Sequence[Axes]]:
    """A figure and its panels in reading order."""
    from twolayer.plot.canvas import Drawing
    from twolayer.plot.style import panel_size

    figure = Drawing(figsize=panel_size(columns, (columns * width, rows * height)))
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def headline(figure: Figure, data: xr.Dataset, text: str = "") -> None:
    """The house title: the task of the figure, and what is to be seen."""
    from twolayer.plot.style import house_title

    house_title(figure, *data.attrs["task"].split("\n"), text)


def known(value: float | None) -> float:
    """A number of theory; NaN, which is not drawn, where its formula does not hold.

    Examples
    --------
    >>> known(1.5), known(None)
    (1.5, nan)
    """
    return np.nan if value is None else value


def points(
    ax: Axes,
    x: Array,
    y: Array,
    error: float | np.ndarray | xr.DataArray,
    colour: str,
    label: str,
    marker: str = "o",
    face: str | None = None,
    size: float = 4.5,
) -> None:
    """Measured means with bars of two standard errors."""
    fill = face or colour
    ax.errorbar(
        x,
        y,
        2 * error,
        fmt=marker,
        color=colour,
        mfc=fill,
        ms=size,
        capsize=2.5,
        lw=1.2,
        label=label,
        zorder=5,
    )


def median_points(
    ax: Axes,
    x: object,
    row: xr.Dataset,
    name: str,
    colour: str,
    label: str,
    marker: str = "o",
    factor: object = 1.0,
) -> None:
    """Medians with their intervals, ``name``, ``name_low`` and ``name_high``; an end
    not known is an arrow outwards.
    """
    values = [
        np.asarray(row[key].values, dtype=float) * factor
        for key in (name, f"{name}_low", f"{name}_high")
    ]
    found = np.isfinite(values[0])
    place = np.asarray(x, dtype=float)[found]
    middle, low, high = (v[found] for v in values)
    bars = [
        np.where(np.isfinite(end), np.abs(end - middle), 0.0) for end in (low, high)
    ]
    ax.errorbar(
        place,
        middle,
        bars,
        fmt=marker,
        color=colour,
        ms=4.5,
        capsize=2.5,
        lw=1.2,
        label=label,
        zorder=5,
    )
    for edge, ends in ((0.0, low), (1.0, high)):
        for at, value in zip(
            place[~np.isfinite(ends)], middle[~np.isfinite(ends)], strict=True
        ):
            ax.annotate(
                "",
                (at, edge),
                (at, value),
                xycoords=("data", "axes fraction"),
                textcoords="data",
                arrowprops={
                    "arrowstyle": "->",
                    "color": colour,
                    "lw": 1.0,
                    "shrinkA": 0,
                    "shrinkB": 0,
                },
            )


def plain_ticks(axis: Axis) -> None:
    """Numbers such as 20 and 50 on a logarithmic axis of few decades; more of them keep
    their powers of ten.
    """
    low, high = axis.get_view_interval()
    if 0 < 300 * low < high:
        return
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def mark_steps(ax: Axes, steps: int) -> None:
    """Whole steps on the axis of x."""
    ax.set_xticks(range(0, steps + 1, max(1, steps // 6)))
    ax.set_xlabel("step")


def power(number: float) -> str:
    """A power of ten, or the number, for titles in mathematics.

    Examples
    --------
    >>> power(1000), power(3000)
    ('10^{3}', '3000')
    """
    exponent = np.log10(number)
    return (
        f"10^{{{exponent:.0f}}}"
        if abs(exponent - round(exponent)) < 1e-9 and exponent >= 3
        else f"{number:g}"
    )
