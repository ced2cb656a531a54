"""Batches from a fixed set: how often a sample is in batch t, as a law that every path draws for itself.

    in sequence    c^t = 1 if t ≡ i (mod B),  i uniform on 0 … B − 1, drawn once
    reshuffled     the same with i drawn anew in every epoch of B batches
    subset         Bernoulli(1/B), independent at every step
    replacement    Poisson(1/B), independent at every step: a count, not 0 or 1

B = n/n_b is the number of batches in the set. Patterns differ in the law of c alone; c is independent of the fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, pdtr

__all__ = ["Pattern"]


class Law(NamedTuple):
    """The number of the draw that decides on batch t, and c from this draw, which is uniform on (0, 1)."""

    draw: Callable[[int, float], int]
    copies: Callable[[np.ndarray, int, float], np.ndarray]


def _turn(uniform: np.ndarray, t: int, B: float) -> np.ndarray:
    return np.asarray(np.floor(B * uniform) == t % B)


def _poisson(uniform: np.ndarray, t: int, B: float) -> np.ndarray:
    return np.searchsorted(pdtr(np.arange(40), 1 / B), uniform)  # by inversion; the mean is at most 1


LAWS = {
    "sequence": Law(lambda t, B: 0, _turn),
    "reshuffled": Law(lambda t, B: int(t // B), _turn),
    "subset": Law(lambda t, B: t, lambda uniform, t, B: uniform < 1 / B),
    "replacement": Law(lambda t, B: t, _poisson),
}


@dataclass(frozen=True)
class Pattern:
    """How batches are drawn from the set: the word for the law, and B.

    Examples
    --------
    >>> pattern = Pattern("sequence", 2.0)
    >>> pattern.draw(3), pattern.copies(np.array([-1.0, 1.0]), 3).tolist()
    (0, [0.0, 1.0])
    """

    sampling: str
    batches: float

    def draw(self, t: int) -> int | None:
        """The number of the draw that decides on batch t; None where every sample is in every batch, once."""
        if self.batches == 1 and self.sampling != "replacement":
            return None
        return LAWS[self.sampling].draw(t, self.batches)

    def copies(self, normal: np.ndarray, t: int) -> np.ndarray:
        """C^t of every path, from its standard normal draw."""
        return LAWS[self.sampling].copies(ndtr(normal), t, self.batches).astype(float)
