"""What the figures of recovery share: matched tasks of information exponent k, and
steps for which they are learned.

    h = σ = h_k,   spherical steps δ/N,   δ = c_k N^{−(k−2)/2} for k ≥ 3

Steps shrink with N for k ≥ 3 because the normalisation of larger ones undoes the growth
of an overlap of N^{−1/2} (analysis/population_loss.py). The squared loss has so much
noise for k ≥ 3 that the correlation loss is taken there.
"""

from __future__ import annotations

import numpy as np

import twolayer as tl
from twolayer.numerics.errors import InputError, choice

__all__ = [
    "LEVELS",
    "asked",
    "flow_samples",
    "law",
    "measured",
    "require_exponents",
    "task",
]

STEPS = {1: 0.2, 2: 0.05, 3: 0.2, 4: 0.12}
LEVELS = (0.4, 0.7)
"""The search ends at the first, the descent at the second."""


def asked(geometry: str) -> str:
    """What all these figures ask, in one line."""
    return (
        "target h_k(z1)   student h_k, p = 1, a = 1   single fresh samples,"
        f" {geometry}; correlation loss for k ≥ 3"
    )


def require_exponents(exponents: tuple[int, ...], geometry: str) -> None:
    """Refuse exponents without settings, and weights that are not on the sphere, where
    overlaps are no cosines.
    """
    choice("geometry", geometry, ("spherical", "projected"))
    for k in exponents:
        choice("exponents", str(k), map(str, STEPS))
    if len(set(exponents)) < len(exponents):
        raise InputError(
            f"Argument `exponents` must be different numbers, but got {exponents}."
        )


def task(k: int, geometry: str = "spherical") -> tuple[tl.Problem, tl.SGD]:
    """The problem and the algorithm of information exponent k."""
    lr = STEPS[k] * tl.d ** (-1 - max(k - 2, 0) / 2)
    loss = "squared" if k <= 2 else "correlation"
    return tl.Problem(f"h{k}(z1)", f"h{k}"), tl.SGD(lr, loss=loss, geometry=geometry)


def law(k: int) -> str:
    """How the search grows with N."""
    return {1: "N", 2: r"N\,\log N"}.get(k, f"N^{{{k - 1}}}")


def flow_samples(k: int, dim: int, start: float, end: float) -> float:
    """Samples that the flow takes from one overlap to another: the same in both
    geometries.
    """
    problem, algorithm = task(k)
    return tl.single_index.population_loss(problem, algorithm.loss).time(
        start, end
    ) / algorithm.lr(dim)


def measured(
    k: int, geometry: str, dim: int, patience: float, seeds: int, seed: int
) -> dict[str, np.ndarray]:
    """Samples until weak and strong recovery from random starts on the half sphere.

    Runs are censored after ``patience`` times what the flow takes from m = N^{−1/2}.
    """
    problem, algorithm = task(k, geometry)
    samples = patience * flow_samples(k, dim, min(dim**-0.5, 0.3), LEVELS[1])
    found = tl.recovery(
        problem, algorithm, dim, LEVELS, samples=samples, seeds=seeds, seed=seed
    )
    return {"weak": found.weak, "strong": found.strong}
