"""One place for how figures look, and how they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from twolayer.numerics.errors import InputError, short
from twolayer.numerics.writing import write_atomically
from twolayer.plot.screen import watched

__all__ = ["COLOURS", "DIRECTIONS", "GREY", "TITLE", "house_style", "save_figure"]

COLOURS = {
    "theory": "#1a1a1a",
    "chain": "#1f77b4",
    "vectors": "#d95f02",
    "ode": "#1a1a1a",
    "sde": "#7570b3",
    "other": "#1b9e77",
}
"""Theory is drawn in black, simulations in colour."""

DIRECTIONS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d")
"""Colours of target directions, and of orders of Hermite polynomials."""

GREY = "#777777"

TITLE: Any = {"fontsize": 9.5, "x": 0.01, "ha": "left"}
"""Titles of whole figures."""

STYLE: Any = {
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
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the style of the package without touching the user's settings.

    Examples
    --------
    >>> with house_style():
    ...     mpl.rcParams["axes.spines.top"]
    False
    """
    watched()  # pyplot is imported before settings are changed, for it keeps some of its own among them
    with mpl.rc_context(STYLE):
        yield


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure, all or nothing; the format follows the name (.png, .pdf, .svg).

    Examples
    --------
    >>> save_figure(Figure(), "figure.gif")
    Traceback (most recent call last):
    twolayer.InputError: Argument `path` must end in .png, .pdf or .svg, but got 'figure.gif'.
    """
    suffix = Path(path).suffix
    if suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"Argument `path` must end in .png, .pdf or .svg, but got {short(str(path))}.")
    with house_style():
        return write_atomically(path, figure.savefig)
