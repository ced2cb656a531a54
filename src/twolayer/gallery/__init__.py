"""The gallery: figures of the sources, each one a command that writes the figure, its
data and a verdict in numbers.

    twolayer gallery list
    twolayer gallery run escape-dimension --out figures

    plate = twolayer.gallery.run("escape-dimension", quick=True)
    plate.figure, plate.data, plate.verdict
    twolayer.gallery.draw(twolayer.load("escape-dimension.nc")).figure

A figure is one file of this folder: a function with keyword settings under the
decorator `figure`, which computes data and a verdict, and ``draw``, which draws these
data. The files are found by themselves and import JAX only when their function runs.
"""

from __future__ import annotations

from twolayer.gallery.shared.judging import Check, Verdict
from twolayer.gallery.shared.records import record
from twolayer.gallery.shared.registry import (
    Finding,
    Plate,
    draw,
    figure,
    figures,
    run,
    write,
)
from twolayer.numerics.keywords import explained_names

__all__ = [
    "Check",
    "Finding",
    "Plate",
    "Verdict",
    "draw",
    "figure",
    "figures",
    "record",
    "run",
    "write",
]

# also where the package is imported by another of its rooms first
explained_names(__name__)
