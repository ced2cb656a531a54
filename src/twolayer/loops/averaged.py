"""Evolutions of the overlaps whose rates are Gaussian averages: the engine, and how it is refined along the way.

engine(Q, M, a, Δ) → psi, phi, chi, second;    after each window: coarse − fine ≤ tolerance, or a finer engine
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from twolayer.equations.state import Overlap
from twolayer.gaussian.engines import LOG2_POINTS, ROUNDING, Averager, adapt, relative_error
from twolayer.loops.flow import FlowEvolution
from twolayer.task.method import Snapshot, Task

__all__ = ["AveragedEvolution", "Precision"]


class Precision(NamedTuple):
    """How averages are taken, and up to which relative error quadratures are refined."""

    engine: str = "auto"
    tolerance: float = 1e-6
    log2_points: int = LOG2_POINTS


class AveragedEvolution(FlowEvolution):
    """Overlaps of all starts; the engine is refined along the way where its error grows."""

    def __init__(self, task: Task, precision: Precision, rtol: float | None = None, max_steps: int = 100_000) -> None:
        super().__init__(task, max_steps)
        self.precision = precision
        Q, M, a = (x[0] for x in task.starts())
        self.averager, self.order = self._engine(Q, M, a)
        self.worst = 0.0
        risky = self.quantity in ("risk", "excess_risk")
        self.watcher = adapt(task.problem, "squared", Q, M, a)[0].engine if risky else None
        self.control = self.thresholds(rtol or (1e-6 if self.averager.sampled else 1e-8))

    def start(self) -> Any:
        """Overlaps of all starts."""
        return Overlap(*self.task.starts())

    def overlaps(self, state: Any) -> Overlap:
        """The overlaps of a state, or of states side by side."""
        return Overlap(*state)

    def seen(self, states: Any) -> Snapshot:
        """The overlaps at save points."""
        return Snapshot(*self.overlaps(states))

    def _engine(self, Q: np.ndarray, M: np.ndarray, a: np.ndarray, at_least: int = 12) -> tuple[Averager, int]:
        wanted = self.precision._asdict()
        return adapt(self.task.problem, self.task.algorithm.loss, Q, M, a, **wanted, at_least=at_least)

    def refine(self, end: Any) -> bool:
        """A finer engine, if the present one is too coarse here."""
        Q, M, a = self.overlaps(end)
        finer, order = self._engine(Q, M, a, self.order)
        if order != self.order:
            self.averager, self.order = finer, order
            return True
        self.worst = max(self.worst, self._truncation(Q, M, a))
        return False

    def _truncation(self, Q: np.ndarray, M: np.ndarray, a: np.ndarray) -> float:
        problem = self.task.problem
        if self.averager.coarse is None:
            return 0.0
        error = self.averager.truncation(Q, M, a, problem.noise)
        return relative_error(self.averager, error, problem, Q, M, a)

    def notes(self) -> dict[str, Any]:
        """The engine, and its error at the start (sampling included) and along the way."""
        Q, M, a = (x[0] for x in self.task.starts())
        problem, worst = self.task.problem, ROUNDING
        if self.averager.coarse is not None or self.averager.sampled:
            error = self.averager.error(Q, M, a, problem.noise)
            worst = max(self.worst, relative_error(self.averager, error, problem, Q, M, a))
        return {"engine": self.averager.label, "engine_error": worst}
