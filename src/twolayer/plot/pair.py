"""A result on disk: its data and its figure side by side, NAME.nc and NAME.png."""

from __future__ import annotations

import os
from pathlib import Path

import xarray as xr

from twolayer.files import named
from twolayer.plot.dynamics import compare, trajectory
from twolayer.plot.style import save_figure
from twolayer.results import save

__all__ = ["keep"]


def keep(result: xr.Dataset | xr.DataTree, out: str | os.PathLike[str], figure: bool = True) -> list[Path]:
    """Write a result of `solve` or `compare`, with its figure; returns the files written.

    Parameters
    ----------
    result : xarray.Dataset or xarray.DataTree
    out : path
        The name that data and figure share; ``.nc`` or ``.png`` at its end is left out.
    figure : bool
        Whether the figure is drawn.
    """
    files = [save(result, named(out, ".nc"))]
    if figure:
        drawn = compare(result) if isinstance(result, xr.DataTree) else trajectory(result)
        files.append(save_figure(drawn, named(out, ".png")))
    return files
