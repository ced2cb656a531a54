"""What the figures of wide networks share: committees, random starts, and distances between runs and theory.

distance = sup over save points and entries of |Ω_SGD − Ω_theory|,    claimed to be O(√(γ/(pd)))
"""

from __future__ import annotations

import numpy as np
import xarray as xr

import twolayer as tl

__all__ = ["FLOW", "committee", "online", "sup_overlap", "sup_risk"]

FLOW = "d**-2"
"""A learning rate so small that only the gradient flow is left."""


def committee(activation: str, k: int, p: int, noise: float = 0.0) -> tl.Problem:
    """A teacher of k neurons, a student of p, both with a = 1."""
    return tl.Problem(tl.Teacher(activation, k), activation, width=p, noise=noise)


def online(gamma: float) -> tl.SGD:
    """Plain SGD with lr = γ/d."""
    return tl.SGD(lr=gamma * tl.d**-1)


def sup_overlap(runs: xr.Dataset, theory: xr.Dataset) -> np.ndarray:
    """Largest deviation of any entry of Q and M at any save point, for each seed."""
    parts = [np.abs(runs[name].values - theory[name].values).max(axis=(1, 2, 3)) for name in ("Q", "M")]
    return np.asarray(np.max(parts, axis=0))


def sup_risk(one: object, two: object) -> np.ndarray:
    """Largest difference of risks (seed, time) over time, for each seed."""
    return np.asarray(np.abs(np.asarray(one) - np.asarray(two)).max(axis=-1))
