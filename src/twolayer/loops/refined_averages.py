"""Motions of the overlaps by Gaussian averages: how fine these have to be, and what
error is left.

    quadrature    after each window: |coarse − fine|
                  ≤ accuracy/100 of every average at every start, or a higher order
    sampled       a second run with a quarter of the points goes along: |risk − risk'|/2
                  ≤ accuracy, or all begins again
                  with four times the points, as long as the work allowed by `effort` is
                      not used up

The integrator asks for no more digits than the averages have: 1e-8 where they are
closed, a fifth of the accuracy where they are sampled. With four times the points
sampled averages gain a factor of two or more, so half the difference of the two runs is
about the error of the better one, amplified as the dynamics amplifies it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from twolayer.equations.state import Overlap
from twolayer.gaussian.engines import ROUNDING, Averager, adapt
from twolayer.gaussian.risk import excess_risks
from twolayer.loops.host_loop import StartAgain
from twolayer.loops.runge_kutta import OK, REACHED, STAGES, Track
from twolayer.loops.windows import Kind, Known, Look, Motion, Pace, Windows, changed
from twolayer.numerics.arguments import Notes, Options
from twolayer.numerics.types import Tree
from twolayer.task.method import Accountable, RefinedMethod, Snapshot, Stand, Task
from twolayer.task.problem import Problem

__all__ = ["AveragedMotion", "Averaging", "Precision", "averaged"]

FIRST, MOST = (
    (14, 12, 10),
    20,
)  # Sobol points that a run may begin with, and never exceeds, as powers of two
TERMS_AT_FIRST = 2**21  # of the sampled part, for the choice between them
TERMS_PER_EFFORT = 4e9  # about twenty seconds of one core
CLOSED_RTOL = 1e-8
APART = 3.0  # distances of coarse averages that the error of fine ones stays below


class Precision(NamedTuple):
    """How averages are taken, which error in the risk is aimed at, and how much work
    that may cost.

    ``log2_points`` fixes the Sobol points; else they begin with 2^points. ``checked``:
    this is a second run itself.
    """

    engine: str = "auto"
    accuracy: float = 1e-4
    effort: float = 1.0
    log2_points: int | None = None
    points: int = 0
    checked: bool = False

    @classmethod
    def of(cls, method: RefinedMethod) -> Precision:
        """What a method asks for."""
        averages = method.averages
        return cls(
            averages.engine, method.accuracy, averages.effort, averages.log2_points
        )

    def begun(self, problem: Problem) -> Precision:
        """With the points that a run begins with: fewer for many neurons, over which
        errors average out.
        """
        if self.points:
            return self
        p, k = problem.p, problem.k
        cheap = (
            n for n in FIRST if 2**n * (8 + 4 * p + p * (p + k) / 5) <= TERMS_AT_FIRST
        )
        return self._replace(points=self.log2_points or next(cheap, FIRST[-1]))

    @property
    def tolerance(self) -> float:
        """Up to which relative error of every average quadratures are refined."""
        return self.accuracy / 100


class Averaging:
    """The averages of a run over overlaps: an engine, refined along the way where its
    error grows.
    """

    def __init__(self, task: Task, precision: Precision, noisy: bool = True) -> None:
        self.task, self.precision = task, precision.begun(task.problem)
        starts = task.starts()
        self.averager, self.order, self.worst = self._engine(Overlap(*starts))
        risky = task.until is not None and task.until.quantity in (
            "risk",
            "excess_risk",
        )
        self.watcher = (
            adapt(task.problem, "squared", *starts)[0].engine if risky else None
        )
        # whether anything that matters is sampled
        self.sampled = self.averager.first_sampled or (self.averager.sampled and noisy)
        self.difference = self.overlap_difference = 0.0  # from a second run

    @property
    def rtol(self) -> float:
        """What the integrator may ask for."""
        if self.sampled:
            return self.precision.accuracy / 5
        return CLOSED_RTOL if self.averager.closed else self.precision.tolerance / 10

    def _engine(
        self, at: Overlap, at_least: int | None = None
    ) -> tuple[Averager, int, float]:
        wanted: Options = {
            "engine": self.precision.engine,
            "tolerance": self.precision.tolerance,
        }
        if at_least is not None:
            wanted["at_least"] = at_least
        wanted["log2_points"] = self.precision.points
        problem, drive = self.task.as_trained.problem, self.task.algorithm.mean_drive
        return adapt(problem, drive, *map(np.asarray, at), **wanted)

    def refine(self, at: Overlap) -> bool:
        """A finer engine, if the present one is too coarse at any of these overlaps."""
        if self.precision.checked or self.averager.probe is None:
            return False  # a second run has the order of the first
        finer, order, error = self._engine(at, self.order)
        changed, self.averager, self.order = order != self.order, finer, order
        self.worst = max(self.worst, error)
        return changed

    @property
    def error(self) -> float:
        """The largest truncation of an average, or what sampling does to the risk."""
        return max(self.worst, self.difference, ROUNDING)

    def expensive(self, track: Track) -> str:
        """The averages, and how cheaper ones are had."""
        each = track.processor / max(track.tried * STAGES, 1)
        cheaper = "" if self.sampled else ", or sampled averages, engine='sobol'"
        return (
            f"averages by {self.averager.label} take {each:.2g} s each, and steps are"
            f" {float(np.min(track.lanes.h)):.2g} of {track.times[-1]:g} long; ask for"
            f" less accuracy (now {self.precision.accuracy:g}){cheaper}, or a shorter"
            " time"
        )

    def notes(self, pace: Pace) -> Notes:
        """The engine and its error, and the risk below which differences mean nothing.

        The error is the largest truncation of an average, or what sampling does to the
        risk. Risks are differences of averages of the size of E[h²]: below the errors
        of these they are noise, and may be cut off at zero. What sampling does to the
        overlaps is told beside it.
        """
        error = self.error
        Q, M, a = self.task.starts()
        silent = float(excess_risks(self.task.problem, Q[:1], M[:1], 0 * a[:1])[0][0])
        integration = 10 * pace.error  # errors of single steps add up
        resolved = (
            max(error if not self.averager.closed else 0.0, integration, 10 * ROUNDING)
            * silent
        )
        told = {
            "engine": self.averager.label,
            "engine_error": error,
            "risk_resolution": resolved,
        }
        return (
            {**told, "overlap_error": self.overlap_difference} if self.sampled else told
        )


class AveragedMotion(Motion):
    """A motion of overlaps by averages."""

    averaging: Averaging

    @abc.abstractmethod
    def stand(self, look: Look, y: Tree, lane: int, known: Known) -> Stand:
        """What is relied on at the states ``y`` of one of the starts."""

    def expensive(self, track: Track) -> str:
        """The averages."""
        return self.averaging.expensive(track)


class Relying(Windows[Any], Accountable):
    """A run by averages that can be asked for them."""

    def claims(self, state: Tree) -> list[Stand]:
        """At the first start, and at the end of the last one that came so far."""
        path, code, _ = state
        ends = np.flatnonzero(np.isin(code, [OK, REACHED]))
        stands = [self.stand(self.motion.start(), 0)]
        if len(ends):
            stands.append(self.stand(jax.tree.map(lambda x: x[:, -1], path), ends[-1]))
        return stands

    def stand(self, y: Tree, lane: int) -> Stand:
        """What is relied on at the states ``y`` of one of the starts."""
        motion, equation = self.motion, self.motion.equation()

        def look(kind: Kind, change: Callable[[Any], Any]) -> Tree:
            return self.pace.rates(motion, changed(equation, kind, change), y)

        return motion.stand(look, y, lane, {})


AveragedT = TypeVar("AveragedT", bound=AveragedMotion)
Make = Callable[[Precision], tuple[AveragedT, Pace]]


def averaged(make: Make[AveragedT], precision: Precision) -> Relying:
    """A run by averages; where these are sampled, a second one with a quarter of the
    points goes along.
    """
    motion, pace = make(precision)
    return (
        Sampled(make, motion, pace)
        if motion.averaging.sampled
        else Relying(motion, pace)
    )


class Sampled(Relying):
    """A run by sampled averages, and the second one that tells what sampling does to
    it; states are those of both.
    """

    def __init__(self, make: Make[Any], motion: Any, pace: Pace) -> None:
        super().__init__(motion, pace)
        self.make, self.averaging = make, motion.averaging
        fewer = self.averaging.precision
        self.second = Relying(
            *make(fewer._replace(points=fewer.points - 2, checked=True))
        )

    def initial(self) -> Tree:
        """Both runs at their starts."""
        return super().initial(), self.second.initial()

    def snapshot(self, state: Tree) -> Tree:
        """What is seen of the run itself."""
        return super().snapshot(state[0])

    def stopped(self, state: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Where the run itself has stopped."""
        return super().stopped(state[0])

    def left(self, state: Tree) -> Tree:
        """What the run itself leaves."""
        return super().left(state[0])

    def claims(self, state: Tree) -> list[Stand]:
        """Those of the run itself."""
        return super().claims(state[0])

    def stand(self, y: Tree, lane: int) -> Stand:
        """What is relied on, with its distance from averages over a quarter of the
        points: several times the error of the finer ones.
        """
        fine, coarse = super().stand(y, lane), self.second.stand(y, lane)
        claims = []
        for one, two in zip(fine.claims, coarse.claims, strict=True):
            sizes = {name: float(np.abs(x).max()) for name, x in one.values.items()}
            apart = max(
                float(np.abs(x - two.values[name]).max()) / max(sizes[name], 1e-300)
                for name, x in one.values.items()
            )
            errors = {name: APART * apart * size for name, size in sizes.items()}
            claims.append(one._replace(errors=errors))
        return fine._replace(claims=claims)

    def advance(
        self, state: Tree, first: int, tick: Callable[[float], None]
    ) -> tuple[Tree, Tree]:
        """A window of save points of both runs."""
        state, below = state
        state, snapshot = super().advance(state, first, tick)
        below, coarse = self.second.advance(below, first, lambda at: None)
        one, two = (Snapshot(*(x[:, -1:] for x in y[:3])) for y in (snapshot, coarse))
        self._judge(one, two, (first + snapshot.a.shape[1]) / (len(self.points) - 1))
        return (state, below), snapshot

    def _judge(self, fine: Snapshot, coarse: Snapshot, done: float) -> None:
        """Compare the risks of both runs; begin again with more points if they differ
        too much and it can be paid.
        """
        by, precision = self.averaging, self.averaging.precision
        problem = by.task.problem
        none = (fine.Q, fine.M, 0 * fine.a)
        one, two, silent = (
            excess_risks(problem, *x[:3])[0] for x in (fine, coarse, none)
        )
        # relative to a student that says nothing, or to the risk where a run grows
        # beyond it
        change = np.abs(one - two) / np.maximum(
            np.maximum(one, two), np.maximum(silent, 1e-300)
        )
        by.difference = max(by.difference, float(np.max(change)) / 2)
        # the risk is quadratic where nothing is learned: an overlap may be off by the
        # root of what the risk is off by
        apart = float(np.max(np.abs(fine.M - coarse.M), initial=0.0)) / 2
        by.overlap_difference = max(by.overlap_difference, apart)
        if by.difference > precision.accuracy and self._affordable(done):
            raise StartAgain(
                averaged(self.make, precision._replace(points=precision.points + 2))
            )

    def _affordable(self, done: float) -> bool:
        """Whether a run with four times the points stays within the effort."""
        precision = self.averaging.precision
        if precision.log2_points is not None or precision.points + 2 > MOST:
            return False
        work = self.averaging.averager.engine.work(self.averaging.task.problem.p)
        return (
            4 * work * self.pace.evaluations / done
            <= precision.effort * TERMS_PER_EFFORT
        )
