"""From save point to save point in windows, with thresholds and blow-up, the averages
refined along the way.

    Motion   what moves: starts, the equation at the present accuracy,
             and what is seen of states
    Pace     how it moves through one window: an integrator of dy/dt = F(y), or steps y
             ← F(y)

After each window the averages behind F are tested at its end, and the window is run
again with finer ones while the test fails. A start that has stopped keeps its last
state.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import numpy as np

from twolayer.loops.runge_kutta import (
    OK,
    STAGES,
    Control,
    Equation,
    Track,
    slopes,
    watched_at,
)
from twolayer.numerics.arguments import Notes
from twolayer.numerics.errors import outside
from twolayer.numerics.types import Real, Tree
from twolayer.task.method import Evolution, Measure, Snapshot, Task

__all__ = [
    "CLOSE",
    "CostWarning",
    "Integration",
    "Kind",
    "Known",
    "Look",
    "Motion",
    "Pace",
    "Window",
    "Windows",
    "changed",
    "control_of",
    "quantity_of",
    "slopes_of_steps",
]

WINDOWS = 10  # of a run, between which the accuracy of the averages is looked at
LONG, JUDGED = (
    60.0,
    4.0,
)  # seconds that a run may take without a word, and after which that is foreseen


class CostWarning(UserWarning):
    """A run is going to take long; the message says why, and what to change.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter(
    ...         "ignore", CostWarning
    ...     )  # it is known that runs take long inside this block
    """


Known: TypeAlias = "dict[str, float]"
"""Numbers of a run that its witness has to be told."""
Kind: TypeAlias = "type | tuple[type, ...]"
Look: TypeAlias = "Callable[[Kind, Callable[[Any], Any]], Any]"
"""What becomes of states under an equation in which all tuples of a kind are
changed.
"""


SHORT = 1e-7  # a step that shows averages by what it changes
CLOSE = 1e-6  # of what there is: a step that changes more is not linear in its length


def slopes_of_steps(
    moved: Callable[[float], list[np.ndarray]], scale: float
) -> list[np.ndarray]:
    """What steps change, divided by their length: ``moved(length)`` is the change, and
    steps are so short that it stays small beside ``scale``.
    """
    length = SHORT
    room = CLOSE * scale if scale > 0 else np.inf
    for _ in range(4):
        change = moved(length)
        sizes = [float(np.nanmax(np.abs(x), initial=0.0)) for x in change]
        if not max(sizes) > room:
            break
        length *= room / (2 * max(sizes))
    # the square of the length is all that moves where slopes vanish, as Q does at W = 0
    half = moved(length / 2)
    return [(4 * y - x) / length for x, y in zip(change, half, strict=True)]


def changed(equation: Tree, kind: Kind, change: Callable[[Any], Any]) -> Tree:
    """An equation with other numbers, those in tuples of a kind."""
    return jax.tree.map(
        lambda x: change(x) if isinstance(x, kind) else x,
        equation,
        is_leaf=lambda x: isinstance(x, kind),
    )


class Motion(abc.ABC):
    """A method's own part of a run: what moves, and by which equation. States have a
    leading axis of starts.
    """

    task: Task

    @abc.abstractmethod
    def start(self) -> Tree:
        """States of all starts."""

    @abc.abstractmethod
    def equation(self) -> Equation:
        """The right-hand side at the present accuracy."""

    @abc.abstractmethod
    def seen(self, states: Tree) -> Snapshot | Measure:
        """What is kept of states (starts, save points, …)."""

    @abc.abstractmethod
    def notes(self, pace: Pace) -> Notes:
        """What the result should record about the numerics, after the run at this
        pace.
        """

    def refine(self, end: Tree) -> bool:
        """Test the averages at the states ``end``: True if they have been made finer
        for another try.
        """
        return False

    def expensive(self, track: Track) -> str:
        """Why a run takes long, and what to change."""
        return (
            f"steps of {float(np.min(track.lanes.h)):.2g} to time {track.times[-1]:g};"
            " shorten the time"
        )

    def left(self, end: Tree) -> Tree:
        """What a stage that follows needs to know of the states ``end`` beyond the
        overlaps.
        """
        return None

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """More variables of the result, after the run."""
        return {}


class Window(NamedTuple):
    """One window of all starts: states at its save points and at its end, where each
    stopped, and outcome codes.
    """

    saved: Tree
    end: Tree
    stop: Real
    code: Real


class Pace(abc.ABC):
    """How a motion goes through a window."""

    equal_windows: ClassVar[bool] = (
        False  # whether the last window begins earlier rather than be shorter
    )

    @abc.abstractmethod
    def window(
        self,
        motion: Motion,
        y: Tree,
        times: np.ndarray,
        code: np.ndarray,
        tick: Callable[[float], None],
    ) -> Window:
        """From states ``y`` at the first of ``times`` through the others; starts whose
        ``code`` is not 0 stay.
        """

    @abc.abstractmethod
    def again(self) -> None:
        """The equation has changed: what was known beyond the window's beginning is
        void.
        """

    @abc.abstractmethod
    def rates(self, motion: Motion, equation: Equation, y: Tree) -> Tree:
        """What an equation of the form of the motion's makes of states ``y``: their
        rates of change, or the states after a step, by the code of the run.
        """

    @property
    @abc.abstractmethod
    def evaluations(self) -> int:
        """Evaluations of the equation so far, of all starts."""

    @property
    @abc.abstractmethod
    def error(self) -> float:
        """What is left in the states beyond errors of the equation, relative."""


def quantity_of(task: Task) -> str | None:
    """What the threshold of a task refers to."""
    return None if task.until is None else task.until.quantity


def control_of(motion: Motion, rtol: float) -> Control:
    """Tolerances, and the level at which each start is to stop."""
    until, n = motion.task.until, motion.task.seeds
    level = np.zeros(n)
    if until is not None:
        level = np.full(n, until.value)
        if until.relative:
            level = until.value * np.asarray(
                watched_at(motion.equation(), until.quantity, motion.start())
            )
    sign = np.full(n, 1.0 if until is None else until.sign)
    # exact averages follow the smallest overlaps, which grow by many powers of ten;
    # sampled ones cannot
    atol = min(1e-2 * rtol, 1e3 * rtol**2)
    return Control(np.asarray(rtol), np.asarray(atol), level, sign)


class Integration(Pace):
    """The integrator of loops/runge_kutta.py; a run that is going to take long says so
    once, unless ``quiet``.
    """

    def __init__(
        self, motion: Motion, rtol: float, max_steps: int, quiet: bool = False
    ) -> None:
        self.control, self.max_steps = control_of(motion, rtol), max_steps
        self._track: Track | None = None
        self._warned = quiet
        self._tried = 0

    def window(
        self,
        motion: Motion,
        y: Tree,
        times: np.ndarray,
        code: np.ndarray,
        tick: Callable[[float], None],
    ) -> Window:
        """Integrate; steps do not end where windows do."""
        track, points = self._track, motion.task.points
        if track is None or track.times[track.at] != times[0]:
            guess = 0.0 if track is None else track.lanes.h
            ahead = points[np.searchsorted(points, times[0]) :]
            shape = (motion.equation(), quantity_of(motion.task), self.control)
            self._track = track = Track(*shape, y, ahead, self.max_steps, guess, code)
        return self._followed(motion, track, times, tick)

    def stretch(
        self,
        motion: Motion,
        y: Tree,
        times: np.ndarray,
        code: np.ndarray,
        tick: Callable[[float], None],
    ) -> Window:
        """Integrate from the first of ``times`` to the last, where the last step ends
        too.
        """
        guess = 0.0 if self._track is None else self._track.lanes.h
        self._tried = self.evaluations
        shape = (motion.equation(), quantity_of(motion.task), self.control)
        self._track = track = Track(*shape, y, times, self.max_steps, guess, code)
        return self._followed(motion, track, times, tick)

    def _followed(
        self,
        motion: Motion,
        track: Track,
        times: np.ndarray,
        tick: Callable[[float], None],
    ) -> Window:
        def at(position: float) -> None:
            tick(position)
            self._foresee(motion, track)

        saved = track.window(track.at + len(times) - 1, at)
        running = np.isnan(track.stop) | (track.stop > times[-1])
        return Window(
            saved, track.lanes.y, track.stop, np.where(running, OK, track.lanes.code)
        )

    def again(self) -> None:
        """A new equation, from the beginning of the window on."""
        self._track = None

    def rates(self, motion: Motion, equation: Equation, y: Tree) -> Tree:
        """dy/dt."""
        return slopes(equation, quantity_of(motion.task), self.control, y)

    def _foresee(self, motion: Motion, track: Track) -> None:
        """Say once if the rest of the run is going to take long."""
        if self._warned or track.processor < JUDGED or track.remaining < LONG:
            return
        self._warned = True
        minutes = track.remaining / 60
        warnings.warn(
            f"This run will take about {minutes:.1g} min: {motion.expensive(track)}.",
            CostWarning,
            stacklevel=outside(),
        )

    @property
    def evaluations(self) -> int:
        """Stages of all steps tried."""
        return self._tried + (
            1 if self._track is None else int(self._track.lanes.tried.sum()) * STAGES
        )

    @property
    def error(self) -> float:
        """What is allowed to a step."""
        return float(self.control.rtol)


MotionT = TypeVar("MotionT", bound=Motion)


class Windows(Evolution, Generic[MotionT]):
    """Several starts of a motion side by side, window after window."""

    def __init__(self, motion: MotionT, pace: Pace) -> None:
        self.motion, self.pace = motion, pace
        self.points = motion.task.points
        self.length = max(1, -(-(len(self.points) - 1) // WINDOWS))

    def initial(self) -> Tree:
        """The starts, nothing stopped; the save points of one window are kept to
        restart from.
        """
        n = self.motion.task.seeds
        return (
            jax.tree.map(lambda x: x[:, None], self.motion.start()),
            np.zeros(n, np.int32),
            np.full(n, np.nan),
        )

    def snapshot(self, state: Tree) -> Tree:
        """What is kept of the last save point."""
        return self.motion.seen(jax.tree.map(lambda x: x[:, -1:], state[0]))

    def stopped(self, state: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and times."""
        return state[1], state[2]

    def advance(
        self, state: Tree, first: int, tick: Callable[[float], None]
    ) -> tuple[Tree, Tree]:
        """A window of save points."""
        path, code, stop = state
        begin = (
            min(first, len(self.points) - 1 - self.length)
            if self.pace.equal_windows
            else first
        )
        times = self.points[begin : begin + self.length + 1]
        window = self._through(
            jax.tree.map(lambda x: x[:, begin - first - 1], path), times, code, tick
        )
        running = code == 0
        code = np.where(running, window.code, code).astype(np.int32)
        stop = np.where(running & (code != 0), window.stop, stop)
        # beyond the end of a start its last state is kept
        late = (times[None, 1:] > stop[:, None]) & (code != 0)[:, None]

        def frozen(x: np.ndarray, last: np.ndarray, old: np.ndarray) -> np.ndarray:
            kept = np.where(
                running.reshape(-1, *[1] * (last.ndim - 1)), last, old[:, -1]
            )
            shape = (*late.shape, *[1] * (x.ndim - 2))
            return np.where(late.reshape(shape), kept[:, None], x)[:, first - begin :]

        new = jax.tree.map(frozen, window.saved, window.end, path)
        path = jax.tree.map(
            lambda old, x: np.concatenate([old, x], axis=1)[:, -self.length - 1 :],
            path,
            new,
        )
        tick(float(times[-1]))
        return (path, code, stop), self.motion.seen(new)

    def _through(
        self,
        y: Tree,
        times: np.ndarray,
        code: np.ndarray,
        tick: Callable[[float], None],
    ) -> Window:
        """One window, again with finer averages while those used are too coarse at its
        end.
        """
        while True:
            window = jax.tree.map(
                np.asarray, self.pace.window(self.motion, y, times, code, tick)
            )
            run = np.flatnonzero(window.code == OK)
            if not len(run) or not self.motion.refine(
                jax.tree.map(lambda x, run=run: x[run], window.end)
            ):
                return window
            self.pace.again()

    def left(self, state: Tree) -> Tree:
        """What the motion leaves."""
        return self.motion.left(jax.tree.map(lambda x: x[:, -1], state[0]))

    def notes(self) -> Notes:
        """What the motion has to say."""
        return self.motion.notes(self.pace)

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Variables of the motion."""
        return self.motion.extras()
