"""One place for how figures look, and how they are written.

    house   screens and pages: PNG
    paper   one column of a journal is 3.4 inches wide, two are 7.0: small type,
            PDF with embedded fonts
    talk    large type and thick lines
    dark    light on dark: PNG

Colours are told apart by readers with deuteranopia, protanopia and tritanopia: within a
palette, CIEDE2000 ≥ 15 after each of them is simulated. Theory is drawn in ink, which
is black, or nearly white on dark paper.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text

from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import InputError, choice, expect, path_of, short
from twolayer.numerics.writing import write_atomically
from twolayer.plot.screen import watched

__all__ = [
    "COLOURS",
    "DIRECTIONS",
    "FORMATS",
    "GREY",
    "house_style",
    "house_title",
    "numbered",
    "panel_size",
    "positive",
    "save_figure",
    "style",
]

FORMATS = (".png", ".pdf", ".svg")
GREY = "#777777"
"""For what is neither theory nor measurement: levels, guides, thresholds."""

LIGHT = {
    "ink": "#1a1a1a",
    "blue": "#0072b2",
    "amber": "#e69f00",
    "brown": "#8f3f00",
    "aqua": "#5ad1d1",
}
DARK = {
    "ink": "#f2f2f2",
    "blue": "#3399ff",
    "amber": "#eb9c00",
    "brown": "#805500",
    "aqua": "#4dffa6",
}

MEANING = {
    "theory": "ink",
    "ode": "ink",
    "map": "ink",
    "corrected": "ink",
    "chain": "blue",
    "vectors": "brown",
    "sde": "amber",
    "other": "aqua",
    "annealed": "amber",
    "quenched": "brown",
    "SGD": "blue",
    "correlation": "amber",
    "spherical": "brown",
}
"""What is drawn, and the colour of the palette that it has."""

LIGHT_DIRECTIONS = (
    "#0072b2",
    "#d55e00",
    "#00cccc",
    "#591b30",
    "#eba481",
    "#002b80",
    "#a60000",
)
DARK_DIRECTIONS = (
    "#4aa8ff",
    "#ff8c1a",
    "#ffd4bf",
    "#805500",
    "#bfeaff",
    "#466380",
    "#8000ff",
)

HOUSE: Options = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "mathtext.fontset": "dejavusans",
    # fonts inside the file, as text that can be searched and edited
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
}
STYLES: dict[str, Options] = {
    "house": {},
    "paper": {
        "font.size": 7.5,
        "axes.titlesize": 7.5,
        "legend.fontsize": 6.5,
        "lines.linewidth": 1.1,
        "axes.linewidth": 0.6,
        "savefig.dpi": 300,
        "savefig.format": "pdf",
    },
    "talk": {
        "font.size": 13,
        "axes.titlesize": 13.5,
        "legend.fontsize": 11,
        "lines.linewidth": 2.4,
        "lines.markersize": 8,
        "axes.linewidth": 1.2,
    },
    "dark": {
        "figure.facecolor": "#161616",
        "axes.facecolor": "#161616",
        "savefig.facecolor": "#161616",
        "text.color": "#f2f2f2",
        "axes.labelcolor": "#f2f2f2",
        "axes.edgecolor": "#bbbbbb",
        "xtick.color": "#dddddd",
        "ytick.color": "#dddddd",
        "grid.color": "#333333",
    },
}
COLUMN, PAGE = (
    3.4,
    7.0,
)  # inches: widths of figures of one panel and of several on paper
ENLARGED = 1.35  # talks: panels grow with their type

_current = "house"


class _Colours(Mapping[str, str]):
    """Colours by what they mean, in the style that is in use."""

    def __getitem__(self, name: str) -> str:
        return (DARK if _current == "dark" else LIGHT)[MEANING[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(MEANING)

    def __len__(self) -> int:
        return len(MEANING)


class _Directions:
    """Colours by number, again from the first after the last; going through them ends
    at the last.
    """

    def __getitem__(self, i: int) -> str:
        every = tuple(self)
        return every[i % len(every)]

    def __iter__(self) -> Iterator[str]:
        return iter(DARK_DIRECTIONS if _current == "dark" else LIGHT_DIRECTIONS)


COLOURS = _Colours()
"""Theory is drawn in ink, simulations and algorithms in colour."""

DIRECTIONS = _Directions()
"""Colours of target directions, of orders of Hermite polynomials and of whatever else
is numbered.
"""


def numbered(count: int) -> list[str]:
    """So many colours that can be told apart: those of `DIRECTIONS`, or of more a scale
    that goes from dark to light.

    Examples
    --------
    >>> numbered(2) == [DIRECTIONS[0], DIRECTIONS[1]], len(set(numbered(20)))
    (True, 20)
    """
    known = list(DIRECTIONS)
    if count <= len(known):
        return known[:count]
    # neither end: black on black and yellow on white are not seen
    places = np.linspace(0.15, 0.9, count)
    return [to_hex(mpl.colormaps["viridis"](place)) for place in places]


class style:
    """Choose how figures look from here on, or inside a ``with`` block.

    Parameters
    ----------
    name : str
        ``"house"``, ``"paper"`` (widths of journal columns, PDF with embedded fonts),
        ``"talk"`` or ``"dark"``.

    Examples
    --------
    >>> with style("paper"):
    ...     panel_size(2, (9.2, 3.6))
    (7.0, 2.74)
    >>> panel_size(2, (9.2, 3.6))
    (9.2, 3.6)
    """

    def __init__(self, name: str) -> None:
        global _current
        self.before = _current
        _current = choice("name", name, STYLES)

    def __enter__(self) -> style:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _current
        _current = self.before


def panel_size(columns: int, size: tuple[float, float]) -> tuple[float, float]:
    """Inches of a figure in the style that is in use, from those of the house."""
    if _current == "talk":
        return ENLARGED * size[0], ENLARGED * size[1]
    if _current != "paper":
        return size
    width = COLUMN if columns == 1 else PAGE
    return width, round(
        size[1] * max(width / size[0], 0.55), 2
    )  # not so flat that type fills it


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the style of the package without touching the user's settings."""
    # pyplot is imported before settings are changed, for it keeps some of its own among
    # them
    watched()
    settings: Any = {**HOUSE, **STYLES[_current]}
    with mpl.rc_context(settings):
        yield


SMALLEST = 5.0  # points of type


def house_title(figure: Figure | SubFigure, *lines: str) -> None:
    r"""The title of a whole figure: what is asked, and how it is answered, each on one
    line that never wraps.

    A line that is wider than the figure is set in smaller type, and shortened where
    that does not help.

    Examples
    --------
    >>> figure = Figure(figsize=(3.0, 2.0))
    >>> house_title(figure, "target " + " + ".join(f"z{i}" for i in range(1, 60)))
    >>> figure.get_suptitle().endswith("…"), "\n" in figure.get_suptitle()
    (True, False)
    """
    size = FontProperties(size=mpl.rcParams["axes.titlesize"]).get_size_in_points()
    known = [line for line in lines if line]
    text = figure.suptitle("\n".join(known), x=0.01, ha="left", fontsize=size)
    room = 0.97 * figure.bbox.width

    while (width := _width(text)) > room and size > SMALLEST:
        size = max(SMALLEST, min(size - 0.25, size * room / width))
        text.set_fontsize(size)
    while _width(text) > room:
        widest = max(range(len(known)), key=lambda i: len(known[i]))
        known[widest] = known[widest].rstrip("…")[:-4].rstrip() + "…"
        if known[widest].count("$") % 2:  # never inside of mathematics
            known[widest] = known[widest][: known[widest].rindex("$")].rstrip() + "…"
        text.set_text("\n".join(known))


def _width(text: Text) -> float:
    """Pixels that a text takes."""
    return float(text.get_window_extent().width)


def positive(values: object) -> np.ndarray:
    """Values for a logarithmic axis: what is not positive is a gap."""
    array = np.asarray(values, dtype=float)
    return np.where(array > 0, array, np.nan)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure, all or nothing; the format follows the name (.png, .pdf, .svg),
    or the style if it has none.

    Parameters
    ----------
    figure : Figure
        What is written.
    path : path
        Its name, with or without an ending.

    Examples
    --------
    >>> save_figure(Figure(), "figure.gif")
    Traceback (most recent call last):
    twolayer.InputError: Argument `path` must end in .png, .pdf or .svg, but got
    'figure.gif'.
    """
    with house_style():
        expect(Figure, "figure", figure)
        goal = path_of("path", path)
        if not goal.suffix:
            goal = goal.with_suffix(f".{mpl.rcParams['savefig.format']}")
        if goal.suffix not in FORMATS:
            raise InputError(
                "Argument `path` must end in .png, .pdf or .svg, but got"
                f" {short(str(path))}."
            )
        drawn = io.BytesIO()
        figure.savefig(drawn, format=goal.suffix[1:])
        return write_atomically(goal, drawn.getbuffer())
