"""Batches from a fixed set: how often a sample is in batch t, as a law that every path
draws for itself.

    in sequence    c^t = 1 if t ≡ i (mod B),  i uniform on 0 … B − 1, drawn once
    reshuffled     the same with i drawn anew in every epoch of B batches
    subset         Bernoulli(1/B), independent at every step
    replacement    Poisson(1/B), independent at every step: a count, not 0 or 1

B = n/n_b is the number of batches in the set. Patterns differ in the law of c alone; c
is independent of the fields. Where a batch is used in r steps, t counts batches,
⌊step/r⌋; without a set every batch is made of new samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, pdtr

__all__ = ["Pattern"]


class DrawLaw(NamedTuple):
    """The number of the draw that decides on batch t, and c from this draw, which is
    uniform on (0, 1).
    """

    draw: Callable[[int, float], int]
    copies: Callable[[np.ndarray, int, float], np.ndarray]


def _turn(uniform: np.ndarray, t: int, B: float) -> np.ndarray:
    return np.asarray(np.floor(B * uniform) == t % B)


def _poisson(uniform: np.ndarray, t: int, B: float) -> np.ndarray:
    return np.searchsorted(
        pdtr(np.arange(40), 1 / B), uniform
    )  # by inversion; the mean is at most 1


LAWS = {
    "sequence": DrawLaw(lambda t, B: 0, _turn),
    "reshuffled": DrawLaw(lambda t, B: int(t // B), _turn),
    "subset": DrawLaw(lambda t, B: t, lambda uniform, t, B: uniform < 1 / B),
    "replacement": DrawLaw(lambda t, B: t, _poisson),
}


@dataclass(frozen=True)
class Pattern:
    """How samples come back: the word for the law, B, r, and whether every batch is a
    fresh one.

    Examples
    --------
    >>> pattern = Pattern("sequence", 2.0)
    >>> pattern.draw(3), pattern.copies(np.array([-1.0, 1.0]), 3).tolist()
    (0, [0.0, 1.0])
    """

    sampling: str
    batches: float
    repeat: int = 1
    fresh: bool = False

    def draw(self, step: int) -> int | None:
        """The number of the draw that decides on the batch of a step; None if every
        sample is in every batch, once.
        """
        if self.batches == 1 and self.sampling != "replacement":
            return None
        return LAWS[self.sampling].draw(step // self.repeat, self.batches)

    def copies(self, normal: np.ndarray, step: int) -> np.ndarray:
        """How often every path is in the batch of a step, from its standard normal
        draw.
        """
        return (
            LAWS[self.sampling]
            .copies(ndtr(normal), step // self.repeat, self.batches)
            .astype(float)
        )

    def renews(self, step: int) -> bool:
        """Whether a step begins with samples that nothing has seen before, after others
        have been used.
        """
        return self.fresh and step > 0 and step % self.repeat == 0
