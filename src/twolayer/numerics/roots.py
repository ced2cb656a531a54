"""C^{1/2} of matrices of NumPy: descriptions need no other."""

from __future__ import annotations

import numpy as np

__all__ = ["host_root"]


def host_root(C: np.ndarray) -> np.ndarray:
    """C^{1/2} of positive semidefinite matrices; rounding below zero is cut off."""
    values, vectors = np.linalg.eigh(C)
    return np.asarray(
        (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])
        @ np.swapaxes(vectors, -1, -2)
    )
