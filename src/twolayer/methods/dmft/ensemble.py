"""Replicates of one start: independent sets of points, whose mean is the result and
whose spread is its error.

    error at step t = max over the entries x of M and Q of  se(x)/max(1, |x|),
        se² = variance over replicates/R

An ensemble watches the threshold of `until` too. Kernels follow from the rows and
pushes that its replicates have kept. It knows its whole past, stage by stage, so that
it can be repeated on other points.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax
import numpy as np

from twolayer.equations.averages import Engine
from twolayer.loops.stopping import DIVERGED, REACHED, watched_value
from twolayer.methods.dmft.first_order import replicate_of
from twolayer.methods.dmft.points import Points
from twolayer.methods.dmft.replicate import Replicate, Setting, Start
from twolayer.methods.dmft.responses import responses
from twolayer.numerics.statistics import standard_error
from twolayer.task.method import Until

__all__ = ["Replicas", "Watcher"]

_watched = jax.jit(watched_value, static_argnums=0)


class Watcher(NamedTuple):
    """The threshold, the engine of the risk where it is one of the risk, and Δ."""

    until: Until
    engine: Engine | None
    noise: float

    def value(self, Q: np.ndarray, M: np.ndarray, a: np.ndarray) -> float:
        """The watched quantity."""
        return float(_watched(self.until.quantity, self.engine, Q, M, a, self.noise))

    def crossing(self, values: list[float]) -> float | None:
        """The step, interpolated linearly, at which the last of the values has passed
        the level; None if it has not.
        """
        level = self.until.value * (values[0] if self.until.relative else 1.0)
        now, before = values[-1], values[max(len(values) - 2, 0)]
        if self.until.sign * (now - level) > 0:
            return None
        part = 1.0 if now == before else (before - level) / (before - now)
        return (
            len(values) - 2 + float(np.clip(part, 0.0, 1.0)) if len(values) > 1 else 0.0
        )


class Past(NamedTuple):
    """Earlier stages: their settings, and the steps that were taken in each."""

    stages: tuple[tuple[Setting, int], ...] = ()

    @property
    def steps(self) -> int:
        """Of all of them."""
        return sum(steps for _, steps in self.stages)


class Replicas:
    """One start on several sets of points.

    ``at`` is the number of steps taken in the present stage, ``code`` and ``stop`` say
    how and where it ended; ``past`` are the settings of earlier stages with the steps
    that were taken in each.
    """

    def __init__(
        self,
        setting: Setting,
        start: Start,
        sets: list[Points],
        watcher: Watcher | None,
    ) -> None:
        self.setting, self.start, self.past = setting, start, Past()
        self.replicates = [replicate_of(setting, start, points) for points in sets]
        self._enter(watcher)

    def _enter(self, watcher: Watcher | None) -> None:
        self.watcher = watcher
        self.at, self.code, self.stop = 0, 0, np.nan
        self._watched: list[float] = []
        self._watch()

    def resume(self, setting: Setting, watcher: Watcher | None) -> None:
        """Begin another stage."""
        self.past = Past((*self.past.stages, (self.setting, self.at)))
        self.setting = setting
        for one in self.replicates:
            one.resume(setting)
        self._enter(watcher)

    @property
    def log2_points(self) -> int:
        """Points in each set, as a power of two."""
        return self.replicates[0].points.count.bit_length() - 1

    def again(self, sets: list[Points]) -> Replicas:
        """The same on other points, at the beginning of the present stage."""
        (setting, _), *others = (*self.past.stages, (self.setting, 0))
        found = Replicas(
            setting, self.start, sets, self.watcher if not others else None
        )
        for i, (later, _) in enumerate(others):
            for _ in range(self.past.stages[i][1]):
                found.advance()
            found.resume(later, self.watcher if i == len(others) - 1 else None)
        return found

    def advance(self) -> None:
        """One step of all replicates; none where the weights of one of them leave all
        bounds.
        """
        for one in self.replicates:
            one.advance()
            if not one.finite:
                self.code, self.stop = DIVERGED, self.at + 1.0
                return
        self.at += 1
        self._watch()

    def _watch(self) -> None:
        if self.watcher is None:
            return
        Q, M, a, _ = (x.mean(0) for x in self.values(self.at))
        self._watched.append(self.watcher.value(Q, M, a))
        stop = self.watcher.crossing(self._watched)
        if stop is not None:
            self.code, self.stop = REACHED, stop

    def values(self, t: int) -> tuple[np.ndarray, ...]:
        """Q, M, a and the training risk at step t, or at the last one before it,
        replicates first.
        """
        t = self.past.steps + min(t, self.at)
        return self._seen(
            (one.rows[t], one.a[t], one.risks[t][0]) for one in self.replicates
        )

    def averages(self, t: int) -> tuple[np.ndarray, ...]:
        """The same of the average of the iterates."""
        t = self.past.steps + min(t, self.at)
        each = []
        for one in self.replicates:
            average = one.averages[t]
            assert average is not None, "the algorithm keeps an average of its iterates"
            Q, M = map(np.asarray, average)
            each.append((Q, M, one.risks[t][1]))
        return self._seen(each)

    def _seen(
        self, each: Iterable[tuple[np.ndarray, np.ndarray, float]]
    ) -> tuple[np.ndarray, ...]:
        L = self.setting.L
        parts = [
            (w @ w.T, w[:, 1 : L.shape[1] + 1] @ L.T, a, risk) for w, a, risk in each
        ]
        return tuple(map(np.array, zip(*parts, strict=True)))

    def error(self, t: int) -> float:
        """The largest standard error of M and Q at step t; of entries larger than one,
        relative to them.
        """
        if len(self.replicates) == 1:
            return 0.0
        return max(
            float((standard_error(x) / np.maximum(1.0, np.abs(x.mean(0)))).max())
            for x in self.values(t)[:2]
        )

    def kernels(self, smooth: bool | None) -> dict[str, np.ndarray]:
        """Means over the replicates of C_θ and C_F, (T+1, T+1, p, p), zero where there
        was no visit.

        Unless ``smooth`` is None also R_F and R_θ, by derivatives if it is true, with
        their standard errors.
        """
        found = {
            name: np.mean(x, axis=0)
            for name, x in _each(correlations(one) for one in self.replicates).items()
        }
        if smooth is not None:
            for name, x in _each(
                responses(one, smooth) for one in self.replicates
            ).items():
                found[name] = np.mean(x, axis=0)
                if len(x) > 1:
                    found[f"{name}_error"] = standard_error(x)
        return found


def correlations(one: Replicate) -> dict[str, np.ndarray]:
    """C_θ = l lᵀ and C_F = α η² ⟨v vᵀ⟩ at all pairs of visits."""
    setting = one.setting
    outside, pushes = (
        one.history("outside"),
        np.sqrt(setting.alpha) * setting.gain * one.history("pushes"),
    )
    return {
        name: np.einsum("tin,sjn->tsij", x, x)
        for name, x in (("C_theta", outside), ("C_F", pushes))
    }


def _each(parts: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Replicates side by side, by name."""
    every = list(parts)
    return {name: np.stack([x[name] for x in every]) for name in every[0]}
