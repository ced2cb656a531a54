"""What the figures of wide networks share: committees, random starts, and distances
between runs and theory.

distance = sup over save points and entries of |Ω_SGD − Ω_theory|,    claimed to be
O(√(γ/(pd)))
"""

from __future__ import annotations

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.numerics.statistics import standard_error

__all__ = [
    "FLOW",
    "averaged",
    "committee",
    "online",
    "small_weights",
    "sup_overlap",
    "sup_risk",
]

FLOW = "d**-2"
"""A learning rate so small that only the gradient flow is left."""


def committee(
    activation: str, k: int, p: int, noise: float = 0.0, target: str = "teacher"
) -> tl.Problem:
    """A student of p neurons with a = 1, and a teacher of k such neurons or another
    target.
    """
    asked = tl.Teacher(activation, k) if target == "teacher" else target
    return tl.Problem(asked, activation, width=p, noise=noise)


def small_weights(M: np.ndarray, dim: int, geometry: str) -> tl.Overlaps:
    """Neurons of which a part of norm ½ is independent of all others, beside their
    overlaps with a teacher.

    On the sphere they are brought to norm one.
    """
    Q = 0.25 * np.eye(len(M)) + M @ M.T
    if geometry != "free":
        norm = np.sqrt(np.diagonal(Q))[:, None]
        Q, M = Q / (norm * norm.T), M / norm
    return tl.Overlaps(Q, M, dim=dim)


def online(gamma: float, geometry: str = "free") -> tl.SGD:
    """SGD with lr = γ/d."""
    return tl.SGD(lr=gamma * tl.d**-1, geometry=geometry)


def sup_overlap(runs: xr.Dataset, theory: xr.Dataset) -> np.ndarray:
    """Largest deviation of any entry of Q and M at any save point, for each seed."""
    parts = [
        np.abs(runs[name].values - theory[name].values).max(axis=(1, 2, 3))
        for name in ("Q", "M")
    ]
    return np.asarray(np.max(parts, axis=0))


def sup_risk(one: object, two: object) -> np.ndarray:
    """Largest difference of risks (seed, time) over time, for each seed."""
    return np.asarray(np.abs(np.asarray(one) - np.asarray(two)).max(axis=-1))


def averaged(values: xr.DataArray, over: str = "seed") -> tuple[np.ndarray, np.ndarray]:
    """Mean over runs with its standard error."""
    return values.mean(over).values, standard_error(values, values.get_axis_num(over))
