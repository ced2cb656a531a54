"""One direction: every fixed point of state evolution, read off one curve.

    α(q) = q / ((1 − q) E[g_out²](q)),
        2 (f − f(0)) = q + ln(1 − q) + α ∫_0^q E[g_out²]

Rising parts of α(q) are stable fixed points, its extrema are spinodals, α(0⁺) is the
threshold of weak recovery. From nothing the overlap climbs to the first q at which the
curve reaches α; from full knowledge it falls to the last one. E[g_out²] is tabulated on
Chebyshev points of s = 1 − (1 − q)^{1/4} in a few panels, doubled until they suffice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.interpolate import BarycentricInterpolator
from scipy.optimize import brentq

from twolayer.analysis.thresholds.label_law import LabelLaw
from twolayer.analysis.thresholds.level_sets import LevelSets
from twolayer.analysis.thresholds.noisy_labels import NoisyLine
from twolayer.numerics.arguments import Array, ArrayFunction

__all__ = ["INVISIBLE", "Curve", "channel_of", "curve_of"]

POWER = 4  # 1 − q = (1 − s)⁴, a power at which square roots of 1 − q are smooth
PANELS = (
    0.0,
    0.06,
    0.25,
    1.0,
)  # of s: the series in q does not converge, so that small q wants a panel of its own
LEVELS = (8, 16, 32)
DENSE = 6001
CLOSEST = 0.03  # 1 − s at the last point of the table, for noisy labels
ACCURATE = 1e-6
INVISIBLE = 1e-7  # E[ζ²] below this is zero


def channel_of(law: LabelLaw, order: int = 8) -> LevelSets | NoisyLine:
    """The averages over (ω, y) of one direction."""
    return NoisyLine(law, order) if law.noise > 0 else LevelSets(law, order)


@dataclass(frozen=True, eq=False)
class Curve:
    """α(q) on a dense grid, with the integral that gives the free entropy."""

    q: np.ndarray
    alpha: np.ndarray  # α(0⁺) first
    gain: np.ndarray  # ∫_0^q E[g_out²]
    error: (
        float  # of α(q), relative: the change when the points of the table are doubled
    )
    _rate: ArrayFunction

    def climb(self, alpha: float) -> float:
        """The overlap reached from nothing."""
        above = np.flatnonzero(self.alpha >= alpha)
        if not len(above):
            return self._beyond(alpha)
        return 0.0 if above[0] == 0 else self._between(above[0] - 1, alpha)

    def fall(self, alpha: float) -> float:
        """The overlap reached from full knowledge."""
        below = np.flatnonzero(self.alpha < alpha)
        if not len(below):
            return 0.0
        return (
            self._beyond(alpha)
            if below[-1] == len(self.q) - 1
            else self._between(below[-1], alpha)
        )

    def best(self, alpha: float) -> float:
        """The overlap with the largest free entropy."""
        stable = [self.climb(alpha), self.fall(alpha)]
        rising = np.flatnonzero((self.alpha[:-1] < alpha) & (self.alpha[1:] >= alpha))
        stable += [self._between(int(i), alpha) for i in rising]
        return max(stable, key=lambda q: self.entropy(alpha, q))

    def entropy(self, alpha: float, q: float) -> float:
        """f(q) − f(0)."""
        if q == 1.0:  # both logarithms diverge, with opposite signs
            return math.inf if alpha > self.alpha[-1] else -math.inf
        gain = float(np.interp(q, self.q, self.gain))
        return (q + math.log1p(-q) + alpha * gain) / 2

    @property
    def folded(self) -> tuple[float, float, float] | None:
        """(α_sp, α_IT, α_alg) where the two ends of the curve differ, or None where
        they never do.
        """
        reached, left = (
            np.maximum.accumulate(self.alpha),
            np.minimum.accumulate(self.alpha[::-1])[::-1],
        )
        apart = reached > left * (1 + 1e-9)
        if not apart.any():
            return None
        spinodal, algorithm = float(left[apart].min()), float(reached[apart].max())
        return spinodal, self._crossing(spinodal, algorithm), algorithm

    def _crossing(self, low: float, high: float) -> float:
        """Where the informed fixed point overtakes the other one in free entropy."""
        top = high if math.isfinite(high) else max(1e4 * low, 1e4)

        def lead(alpha: float) -> float:
            first, last = self.climb(alpha), self.fall(alpha)
            ahead = self.entropy(alpha, last) - self.entropy(alpha, first)
            return float(np.clip(ahead, -1.0, 1.0))

        inside = 1e-10 * low
        a, b = low + inside, top - inside
        if lead(a) > 0:
            return low
        if lead(b) < 0:
            return high
        return float(brentq(lead, a, b, xtol=1e-10))

    def _between(self, i: int, alpha: float) -> float:
        """The fixed point between two points of the dense grid."""
        q = (self.q[i], self.q[i + 1])
        flat = (self._rate(q[0]) - alpha) * (
            self._rate(q[1]) - alpha
        ) >= 0  # as at α = 1 of linear equations
        if i == 0 or i + 2 >= len(self.q) or flat:
            return float(np.interp(alpha, self.alpha[i : i + 2], q))
        return float(brentq(lambda x: self._rate(x) - alpha, *q, xtol=1e-14))

    def _beyond(self, alpha: float) -> float:
        """Past the end of the table 1 − q falls like a power of α, or is zero for sharp
        labels.
        """
        if self.q[-1] == 1.0:
            return 1.0
        V, a = 1 - self.q[[-40, -1]], self.alpha[[-40, -1]]
        power = math.log(V[0] / V[1]) / math.log(a[1] / a[0])
        return 1 - float(V[1]) * (float(a[1]) / alpha) ** power


def curve_of(
    law: LabelLaw, tick: Callable[[float], None] = lambda share: None
) -> Curve:
    """Tabulate the curve of a law with one direction; ``tick`` is told the share of the
    work that is done.
    """
    from scipy.integrate import cumulative_simpson

    channel = channel_of(law)
    first, second = channel.visible()
    trivial = first > INVISIBLE
    sharp = channel.sharp if isinstance(channel, LevelSets) else 0.0
    # E[g²] stays finite with noise, and grows like 1/(1 − q) for sharp labels, like its
    # root for classes
    growth = 0.0 if law.noise > 0 else 1.0 if sharp > 1e-9 else 0.5
    end = 1.0 if growth == 1.0 else 1 - CLOSEST

    def tabulated(s: float) -> float:
        """What is interpolated: (1 − q)^growth E[g²], divided by q where it starts
        linearly.
        """
        if s == 0:
            return first if trivial else second
        V = (1 - s) ** POWER
        if growth == 1.0 and V < 1e-9:
            return sharp
        return channel.fisher(1 - V) * V**growth / (1.0 if trivial else 1 - V)

    dense = np.linspace(0, end, DENSE)
    table = _Table(tabulated, (*PANELS[:-1], end), tick)
    fine = table(dense)
    V = (1 - dense) ** POWER
    q = 1 - V

    def rate(x: Any) -> Any:
        """α(q)."""
        v = 1 - np.asarray(x)
        return (x if trivial else 1.0) / (
            table(1 - v ** (1 / POWER)) * v ** (1 - growth)
        )

    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.maximum(fine, 0.0)
        alpha = np.where(
            value > 0, (q if trivial else 1.0) / (value * V ** (1 - growth)), np.inf
        )
        # dq = 4 (1 − s)³ ds, and 1 − q = (1 − s)⁴
        slope = (
            value
            * (1.0 if trivial else q)
            * POWER
            * (1 - dense) ** (POWER - 1 - POWER * growth)
        )
    if not trivial and second <= INVISIBLE:
        alpha[0] = np.inf
    if growth == 1.0:
        slope[-1] = slope[-2]  # the integral diverges here, and nobody asks for it
        alpha = np.where(
            np.abs(alpha * sharp - 1) < 10 * table.error, 1 / sharp, alpha
        )  # no folds from rounding
    gain = np.asarray(cumulative_simpson(slope, dx=dense[1], initial=0.0))
    return Curve(q, alpha, gain, table.error, rate)


class _Table:
    """A function on panels of Chebyshev points, doubled in each panel until it does not
    change.
    """

    def __init__(
        self,
        f: Callable[[float], float],
        edges: tuple[float, ...],
        tick: Callable[[float], None],
    ) -> None:
        self.edges, self.parts, self.error = edges, [], 0.0
        for i, (a, b) in enumerate(itertools.pairwise(edges)):
            known: dict[int, float] = {}
            probe, coarse = np.linspace(a, b, 501), None
            for n in LEVELS:
                at = a + (b - a) * (1 - np.cos(math.pi * np.arange(n + 1) / n)) / 2
                for j, s in enumerate(at):
                    place = j * (LEVELS[-1] // n)
                    if place not in known:
                        known[place] = f(float(s))
                        tick((i + len(known) / LEVELS[-1]) / (len(edges) - 1))
                part = BarycentricInterpolator(
                    at, [known[j * (LEVELS[-1] // n)] for j in range(n + 1)], rng=0
                )
                fine = part(probe)
                if coarse is not None:
                    change = np.abs(fine - coarse) / np.maximum(
                        np.abs(fine), 1e-4 * np.abs(fine).max() + 1e-300
                    )
                    if change.max() < ACCURATE:
                        break
                coarse = fine
            self.parts.append(part)
            self.error = max(self.error, float(change.max()))

    def __call__(self, s: Array) -> np.ndarray:
        s = np.asarray(s, float)
        out, which = np.empty_like(s), np.searchsorted(self.edges[1:-1], s)
        for i, part in enumerate(self.parts):
            mine = which == i
            if mine.any():
                out[mine] = part(s[mine])
        return out
