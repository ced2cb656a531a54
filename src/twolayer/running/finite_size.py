"""What a finite dimension adds to a limit: how fast it goes away, and how much of it is
left.

    x_d = x_∞ + C d^(−ε) + smaller terms

    limit                               goes away, relative to what is left
        ε
    gradient flow, δ > max(0, 1−μ)      norm d^(1−μ−δ);
        pairs of samples, finite steps d^(−δ)     min(μ+δ−1, δ)
    Saad–Solla,  δ = 1−μ                pairs, finite steps d^(−δ)
        δ
    pure noise                          drift d^(μ+δ−1);  finite steps d^(1−μ−2δ)
        min(1−μ−δ, 2δ+μ−1)
    giant steps, α = n_b/d fixed        fluctuations 1/d
        1
    the same, n_b ≫ d                   norm d^(1−μ)
        min(μ−1, 1)
    reused samples                      fluctuations 1/d
        1

C is measured by the same method at d/4 and at d/16. With y₀, y₁, y₂ the deviations from
the theory at d, d/4, d/16 and r = 4^(−ε), the bias at d is r y₁, and also (y₁ − y₀)
r/(1 − r), in which a wrong theory does not hide: it is in all of them. With b₀ either
of these, and r b₁ the same from one level below, the allowance is the smaller one of

    |b₀| + |b₀ − r b₁| + 2 standard errors,    and the largest of those up to each time:

what the power law says, and how badly it holds. Where the differences between d, d/4
and d/16 clearly shrink more slowly than r, the measured ratio takes its place. Where ε
is small this is large and mostly noise. There the mean step (`Map`) is taken out first.
It has all the terms of the table and leaves out what fluctuations do to later drifts,
d^(−μ−δ); it has no noise, so that its own limit is extrapolated from the three
dimensions. Batches are whole numbers; what their rounding does is allowed for, and
pilots run where it is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from twolayer.running.judging import Deviation
from twolayer.task.algorithm import SGD
from twolayer.task.regimes import regime_of

__all__ = [
    "LEVELS",
    "Extrapolated",
    "allowance",
    "dimensions",
    "extrapolate",
    "left_by_the_mean_step",
    "rounding",
    "slowest",
    "usable",
]

LEVELS = (4, 16)
"""Pilots run at the dimension divided by these."""

AROUND = 0.07  # pilots may be so far from d/4 and d/16, relative
SLOW = 0.05  # a power smaller than this is none: nothing is extrapolated from it
# ratio of differences at d and d/4 to those at d/4 and d/16 beyond which they do not
# shrink
SLOWEST = 0.9
TINY = 1e-300


def slowest(algorithm: SGD) -> float:
    """The smallest ε of the corrections to the limit of an algorithm, at most 1."""
    mu, delta, name = algorithm.mu, algorithm.delta, regime_of(algorithm).name
    known = {
        "gradient flow": (mu + delta - 1, delta),
        "Saad–Solla": (delta,),
        "pure noise": (1 - mu - delta, 2 * delta + mu - 1),
        "giant steps": (mu - 1,) if mu > 1 + SLOW else (1.0,),
        "noise map": (mu,),
        "blow-up": (mu,),
    }["giant steps" if algorithm.reused else name]
    return min(*known, 1.0)


def left_by_the_mean_step(algorithm: SGD) -> float:
    """ε of what the mean step leaves out: the effect of fluctuations on later
    drifts.
    """
    mu, delta, name = algorithm.mu, algorithm.delta, regime_of(algorithm).name
    if name in ("noise map", "blow-up"):
        return min(mu, 1.0)
    return min(2 * (mu + delta) - 1 if name == "pure noise" else mu + delta, 1.0)


def usable(epsilon: float) -> bool:
    """Whether a correction goes away fast enough for pilots to say anything."""
    return epsilon > SLOW


def allowance(
    here: Deviation, near: Deviation, far: Deviation, ratios: tuple[float, float]
) -> np.ndarray:
    """What finite size may do at d, (time, entries), from deviations at d, d/4 and
    d/16.

    ``ratios`` are (d₁/d)^ε and (d₂/d₁)^ε.
    """
    r, s = ratios
    last, before = near.mean - here.mean, far.mean - near.mean
    last_error, before_error = (
        np.hypot(near.error, here.error),
        np.hypot(far.error, near.error),
    )
    # where the differences shrink more slowly than expected, and that is no chance, as
    # they do
    largest, smallest = (
        np.maximum.accumulate(np.abs(x), axis=0) for x in (last, before)
    )
    seen = np.maximum(largest - 2 * last_error, 0.0) / np.maximum(
        smallest + 2 * before_error, TINY
    )
    slow = np.clip(seen, r, SLOWEST)
    up, down = r / (1 - r), r * s / (1 - s)
    noise = up * last_error + np.hypot(up * last_error, down * before_error)
    between = (
        slow / (1 - slow) * np.abs(last) + np.abs(up * last - down * before) + 2 * noise
    )
    noise = r * (near.error + np.hypot(near.error, s * far.error))
    below = slow * np.abs(near.mean) + r * np.abs(near.mean - s * far.mean) + 2 * noise
    return np.maximum.accumulate(np.minimum(between, below), axis=0)


def rounding(algorithm: SGD, dim: int) -> float:
    """By how much the batch, and the set it is drawn from, are off their laws because
    samples are whole, relative.

    >>> (
    ...     rounding(SGD(lr="1/d"), 10),
    ...     round(rounding(SGD(lr="1/d", batch="d**0.5"), 10), 3),
    ... )
    (0.0, 0.051)
    """
    off = abs(algorithm.batch_at(dim) / algorithm.batch(dim) - 1)
    if algorithm.dataset is None:
        return off
    return max(off, abs((algorithm.dataset_at(dim) or 0) / algorithm.dataset(dim) - 1))


def dimensions(algorithms: Sequence[SGD], dim: int) -> tuple[int, int, int]:
    """D, and dimensions near d/4 and d/16 at which the batches of all stages are
    rounded least.

    >>> (
    ...     dimensions([SGD(lr="1/d")], 1600),
    ...     dimensions([SGD(lr="1/d", batch="d**0.5")], 16000),
    ... )
    ((1600, 400, 100), (16000, 3969, 1024))
    """

    def off(n: int) -> float:
        return max(round(rounding(algorithm, n), 4) for algorithm in algorithms)

    def near(place: float) -> int:
        few = np.unique(
            np.linspace((1 - AROUND) * place, (1 + AROUND) * place, 401)
            .round()
            .astype(int)
        )
        return int(
            min((n for n in few if n > 0), key=lambda n: (off(n), abs(n - place)))
        )

    return dim, near(dim / LEVELS[0]), near(dim / LEVELS[1])


class Extrapolated(NamedTuple):
    """A limit, and by how much it may be off."""

    value: np.ndarray
    error: np.ndarray


def extrapolate(
    values: Sequence[np.ndarray], dims: tuple[int, int, int], power: float
) -> Extrapolated:
    """The limit of numbers without noise at three dimensions, from the largest on.

    The error is twice what the same extrapolation from one level below differs by, the
    largest up to each time.
    """
    r, s = (dims[1] / dims[0]) ** power, (dims[2] / dims[1]) ** power
    here, below = (
        (values[0] - r * values[1]) / (1 - r),
        (values[1] - s * values[2]) / (1 - s),
    )
    return Extrapolated(here, np.maximum.accumulate(2 * np.abs(here - below), axis=0))
