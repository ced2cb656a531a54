"""Layer by layer: ridge fits of the second layer on top of a first one that has been
trained.
"""

from __future__ import annotations

from twolayer.analysis.second_layer import (
    SecondLayer,
    fit_second_layer,
    layerwise,
    simulate_second_layer,
)

__all__ = ["SecondLayer", "fit_second_layer", "layerwise", "simulate_second_layer"]
