"""Orthonormal directions of a target: completed, on coordinate axes where they lie
there, and as text.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["complement", "sparse_basis", "varies", "written"]


def sparse_basis(directions: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the row space that uses coordinate axes wherever they lie
    in it.
    """
    m = len(directions)
    projector = directions.T @ directions
    rows: list[np.ndarray] = []
    rest = projector.copy()
    while len(rows) < m:
        norms = np.sqrt(np.maximum(np.diag(rest), 0.0))
        axis = int(np.argmax(np.round(norms, 6)))
        v = rest[axis] / np.linalg.norm(rest[axis])
        v = v * np.sign(v[np.argmax(np.abs(v))])
        rows.append(v)
        rest = rest - np.outer(v, v)
    return np.array(rows).reshape(m, directions.shape[1])


def complement(known: np.ndarray, k: int) -> np.ndarray:
    """Orthonormal rows that complete the known ones."""
    if not len(known):
        return np.eye(k)
    _, _, vt = np.linalg.svd(known, full_matrices=True)
    return sparse_basis(vt[len(known) :])


def written(*rows: np.ndarray) -> str:
    """Directions as they are printed."""
    return "; ".join(
        "(" + ", ".join(f"{x:.4g}" for x in row.round(4) + 0.0) + ")" for row in rows
    )


def varies(
    label: Callable[[np.ndarray], np.ndarray], hidden: np.ndarray, accuracy: float
) -> bool:
    """Whether a label changes when only the hidden fields are drawn again."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(4096, hidden.shape[1]))
    moved = z + (rng.normal(size=z.shape) - z) @ hidden.T @ hidden
    y, other = label(z), label(moved)
    return bool(np.mean((y - other) ** 2) > accuracy * max(np.var(y), 1e-300))
