"""One place for how figures look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

__all__ = ["COLOURS", "house_style"]

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
    "mathtext.fontset": "cm",
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
    with mpl.rc_context(STYLE):
        yield
