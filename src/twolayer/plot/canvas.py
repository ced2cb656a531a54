"""Where figures are drawn, and who can look at them.

    in a notebook            the last line of a cell shows its figure; plt.show() and
                             the end of a cell show all of them
    in a script or a shell   plt.show() opens windows, where pyplot has been imported
                             and there is a screen
    everywhere else          a figure is just an object, to be saved

pyplot shows the figures that it manages, and keeps them until they are closed. So
figures are handed to it only where somebody can look at them, and in scripts no more
than a few at a time: a loop that saves a hundred leaves nothing behind.
"""

from __future__ import annotations

import base64
import functools
import inspect
import io
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from twolayer.numerics.errors import InputError, reject
from twolayer.plot.screen import inline, pyplot, watched
from twolayer.plot.style import house_style, panel_size

__all__ = ["Canvas", "Drawing", "canvas", "in_house_style"]

P = ParamSpec("P")
MOST = 10  # figures that a script leaves to plt.show(): the last ones
PLACE = """
figure : matplotlib Figure, optional
    Where to draw: an empty figure.
ax : Axes, or sequence of Axes, optional
    The panel, or all panels from left to right, in a figure of your own.
"""


class Drawing(Figure):
    """A figure that notebooks show."""

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The figure as the last line of a cell shows it, once: pyplot is not to show
        it again after the cell.
        """
        text = {"text/plain": repr(self)}
        if self.canvas.manager is not None:
            if not inline():
                return text  # its window shows it
            pyplot().close(self)
        buffer = io.BytesIO()
        with house_style():
            self.savefig(buffer, format="png", dpi="figure")
        return {
            "image/png": base64.b64encode(buffer.getvalue()).decode("ascii"),
            **text,
        }


_handed: list[weakref.ref[Drawing]] = []
"""Figures that pyplot has been given, oldest first."""


def new_figure(size: tuple[float, float]) -> Drawing:
    """An empty figure of a size in inches."""
    if not watched():
        return Drawing(figsize=size)
    plt = pyplot()
    if not plt.isinteractive():
        _handed[:] = [
            ref
            for ref in _handed
            if (old := ref()) is not None and plt.fignum_exists(old.number)
        ]
        for ref in _handed[: max(0, len(_handed) - MOST + 1)]:
            plt.close(ref())
    with mpl.rc_context({"figure.max_open_warning": 0}):
        figure: Drawing = plt.figure(figsize=size, FigureClass=Drawing)
    _handed.append(weakref.ref(figure))
    return figure


class Canvas(NamedTuple):
    """A figure and its panels; ``whole`` unless only panels of it were given, so that
    titles are not ours to set.
    """

    figure: Figure
    axes: list[Axes]
    whole: bool


def canvas(
    columns: int,
    size: tuple[float, float],
    figure: Figure | None = None,
    ax: Axes | Sequence[Axes] | None = None,
    overlay: bool = False,
    **options: Any,
) -> Canvas:
    """Panels side by side: new ones, those of a figure, or given axes.

    An empty figure is divided into panels; one with as many panels is drawn into, if
    ``overlay``.
    """
    if ax is not None:
        axes = list(np.ravel(np.asarray(ax, dtype=object)))
        if (
            figure is not None
            or len(axes) != columns
            or not all(isinstance(one, Axes) for one in axes)
        ):
            accepted = (
                "matplotlib axes"
                if columns == 1
                else f"{columns} matplotlib axes, one for each panel"
            )
            reject("ax", ax, f"{accepted}, without `figure`")
        return Canvas(cast(Figure, axes[0].figure), axes, False)
    if figure is None:
        figure = new_figure(panel_size(columns, size))
    elif not isinstance(figure, Figure | SubFigure):
        reject("figure", figure, "a matplotlib Figure")
    there = [one for one in figure.axes if one.get_label() != "<colorbar>"]
    if not there:
        panels = figure.subplots(1, columns, squeeze=False, **options)
        return Canvas(figure, list(panels.ravel()), True)
    if not overlay or len(there) != columns:
        same = f", or one with its {columns} panels" if overlay else ""
        raise InputError(
            f"Argument `figure` must be an empty figure{same}, but has {len(there)}"
            " axes: to draw into some of them, give `ax`."
        )
    return Canvas(figure, there, True)


def in_house_style(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Let a function draw in the style of the house, and say what its ``figure`` and
    ``ax`` are.
    """

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with house_style():
            return draw(*args, **kwargs)

    words, examples, rest = inspect.cleandoc(draw.__doc__ or "").partition(
        "\nExamples\n"
    )
    drawn.__doc__ = f"{words.rstrip()}{PLACE}{examples}{rest}"
    return drawn
