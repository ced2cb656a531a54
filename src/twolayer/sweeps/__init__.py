"""Sweeps: a grid of problems and algorithms, many seeds, a reduction; resumable, on one
machine or on a cluster.
"""

from __future__ import annotations

from twolayer.numerics.keywords import explained_names
from twolayer.sweeps.api import plan_sweep, sweep
from twolayer.sweeps.files import load_sweep, merge_sweeps

__all__ = ["load_sweep", "merge_sweeps", "plan_sweep", "sweep"]

# also where the package is imported by another of its rooms first
explained_names(__name__)
