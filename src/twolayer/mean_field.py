"""Infinitely wide networks: a measure of particles, and what it looks like.

`twolayer.MeanField` follows it.
"""

from __future__ import annotations

from twolayer.analysis.neuron_measure import measure_histogram, measure_moments
from twolayer.analysis.particle_velocity import MeanFieldAt, mean_field_at
from twolayer.task.particles import Particles

__all__ = [
    "MeanFieldAt",
    "Particles",
    "mean_field_at",
    "measure_histogram",
    "measure_moments",
]
