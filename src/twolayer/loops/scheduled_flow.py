"""Flows with schedules: any motion, integrated in the time τ of the rates without their
schedules.

    dy/dτ = F(y) with f, f²/b and f in the place of the weights 1 of flow,
        noise and decay
    dt/dτ = f,   ds/dτ = b        the clocks on which f and b depend, carried along

Where a schedule jumps or bends, one integration ends and another begins (timeline.py
knows where).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.optimiser_step import Limit
from twolayer.loops.runge_kutta import OK, Equation, Track
from twolayer.loops.windows import (
    Integration,
    Known,
    Look,
    Motion,
    Pace,
    Window,
    changed,
)
from twolayer.numerics.arguments import Notes
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.method import Measure, Snapshot, Stand
from twolayer.task.schedule_factors import Clock, Tempo

__all__ = ["Carried", "PacedEquation", "PacedMotion", "integrated"]


class Carried(NamedTuple):
    """A state, and what is carried beside it."""

    y: Tree
    more: Any


class PacedEquation(Equation):
    """An equation whose rates have factors, made of what is carried beside its
    states.
    """

    inner: Any

    def size(self, y: Carried) -> Real:
        """The largest squared norm."""
        return self.inner.size(y.y)

    def watched(self, quantity: str | None, y: Carried) -> Real:
        """What a threshold refers to."""
        return self.inner.watched(quantity, y.y)

    def with_limit(self, change: Callable[[Limit], Limit]) -> Any:
        """The equation inside with other weights of flow, noise and decay."""
        return changed(self.inner, Limit, change)


class PacedMotion(Motion):
    """A motion with something beside its states."""

    def __init__(self, inner: Motion) -> None:
        self.inner, self.task = inner, inner.task

    def __getattr__(self, name: str) -> Any:
        """What else a motion has is that of the one inside."""
        return getattr(self.inner, name)

    def seen(self, states: Carried) -> Snapshot | Measure:
        """What is kept of states."""
        return self.inner.seen(states.y)

    def notes(self, pace: Pace) -> Notes:
        """What the motion has to say."""
        return self.inner.notes(pace)

    def refine(self, end: Carried) -> bool:
        """Finer averages, if the present ones are too coarse."""
        return self.inner.refine(end.y)

    def expensive(self, track: Track) -> str:
        """Why a run takes long."""
        return self.inner.expensive(track)

    def left(self, end: Carried) -> Tree:
        """What a stage that follows needs; what is carried beside it begins anew."""
        return self.inner.left(end.y)

    def stand(self, look: Look, y: Carried, lane: int, known: Known) -> Stand:
        """That of the motion inside, with what is carried."""
        more = jax.tree.map(lambda x: x[lane], y.more)
        within: Look = lambda kind, change: look(kind, change).y  # noqa: E731
        inner: Any = self.inner  # a motion by averages
        return inner.stand(within, y.y, lane, {**known, **self.carried(more)})

    def carried(self, more: Any) -> Known:
        """What is carried beside one run, as numbers for its witness."""
        return {}

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Variables of the motion."""
        return self.inner.extras()


class TimedEquation(PacedEquation):
    """The factors are those of the clocks."""

    tempo: Tempo

    def __call__(self, t: Number, y: Carried, args: object = None) -> Carried:
        """dy/dτ."""
        f, b = (x * jnp.ones(()) for x in self.tempo(y.more))
        paced = self.with_limit(lambda limit: limit.scaled(f, b))
        return Carried(paced(t, y.y), Clock(jnp.ones(()), f, b))


class TimedMotion(PacedMotion):
    """The clocks beside the states; ``tempo`` is that of the piece that is being
    integrated.
    """

    def __init__(self, inner: Motion, unit: float) -> None:
        super().__init__(inner)
        line = inner.task.clocks.flow_line(unit)
        self.pieces = line.pieces(float(inner.task.points[-1]))
        self.tempo = self.pieces[0][1]

    def start(self) -> Carried:
        """The starts, with all clocks at zero."""
        return Carried(self.inner.start(), Clock.zero((self.task.seeds,)))

    def carried(self, more: Clock) -> Known:
        """The factors of rate and batch."""
        f, b = self.tempo(Clock(*map(float, more)))
        return {"rate": float(f), "batch": float(b)}

    def equation(self) -> Equation:
        """The equation on the present piece."""
        return TimedEquation(
            self.inner.equation(), jax.tree.map(jnp.asarray, self.tempo)
        )


class PacePieces(Pace):
    """One integration after the other, from break to break and from window to
    window.
    """

    def __init__(
        self, motion: TimedMotion, rtol: float, max_steps: int, quiet: bool
    ) -> None:
        self.whole = Integration(motion, rtol, max_steps, quiet)

    def window(
        self,
        motion: Motion,
        y: Tree,
        times: np.ndarray,
        code: np.ndarray,
        tick: Callable[[float], None],
    ) -> Window:
        """Integrate each piece of a window."""
        assert isinstance(motion, TimedMotion)
        begins = np.array([begin for begin, _ in motion.pieces])
        inside = begins[(begins > times[0]) & (begins < times[-1])]
        edges = np.concatenate([times[:1], inside, times[-1:]])
        saved, stop = [], np.full(len(code), np.nan)
        for begin, end in itertools.pairwise(edges):
            motion.tempo = motion.pieces[
                int(np.searchsorted(begins, begin, side="right")) - 1
            ][1]
            here = times[(times > begin) & (times < end)]
            part = self.whole.stretch(
                motion, y, np.concatenate([[begin], here, [end]]), code, tick
            )
            count = len(here) + int(end in times)
            saved.append(jax.tree.map(lambda x, count=count: x[:, :count], part.saved))
            stop = np.where((code == OK) & (part.code != OK), part.stop, stop)
            y, code = part.end, np.where(code == OK, part.code, code)
        return Window(
            jax.tree.map(lambda *x: np.concatenate(x, axis=1), *saved), y, stop, code
        )

    def again(self) -> None:
        """Nothing is known beyond the window."""

    def rates(self, motion: Motion, equation: Equation, y: Tree) -> Tree:
        """dy/dτ on the present piece."""
        return self.whole.rates(motion, equation, y)

    @property
    def evaluations(self) -> int:
        """Stages of all steps tried."""
        return self.whole.evaluations

    @property
    def error(self) -> float:
        """What is allowed to a step."""
        return self.whole.error


def integrated(
    motion: Motion, rtol: float, max_steps: int, quiet: bool = False, unit: float = 0.0
) -> tuple[Any, Pace]:
    """A motion and its integration, with the clocks of its schedules where there are
    any.
    """
    if not motion.task.algorithm.scheduled:
        return motion, Integration(motion, rtol, max_steps, quiet)
    timed = TimedMotion(motion, unit)
    return timed, PacePieces(timed, rtol, max_steps, quiet)
