"""Over-parametrised ReLU students of one rectifier: the last mile, in closed form."""

from __future__ import annotations

from twolayer.analysis.relu_students import (
    ReluStudents,
    SymmetricPair,
    aligned_excess,
    cubic_bound,
    relu_students,
    symmetric_pair,
)

__all__ = [
    "ReluStudents",
    "SymmetricPair",
    "aligned_excess",
    "cubic_bound",
    "relu_students",
    "symmetric_pair",
]
