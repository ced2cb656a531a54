"""The gallery: figures of the sources, each one a command that writes the figure, its data and a verdict in numbers.

    twolayer gallery list
    twolayer gallery run escape-dimension --out figures

    plate = twolayer.gallery.run("escape-dimension", quick=True)
    plate.figure, plate.data, plate.verdict

A figure is one file of this folder: a function with keyword settings under the decorator `figure`, which returns a
`Plate`. The files are found by themselves and import JAX only when their function runs.
"""

from __future__ import annotations

from twolayer.gallery.shared.registry import Plate, Verdict, figure, figures, run, write

__all__ = ["Plate", "Verdict", "figure", "figures", "run", "write"]
