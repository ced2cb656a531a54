"""The mean of one step at finite d and n_b, iterated with every correction.

    X ← E[X after one step | X],    X = (M, Q, a)        (mean_step.py)

It has no sampling noise and contains every regime of lr and batch; each correction can be left out by its name:

    "norm"       η² (d/n_b) chi                  the orthogonal part of the gradient noise
    "pairs"      η² (1 − 1/n_b) v Ω⁺ vᵀ          pairs of different samples of a batch
    "dimension"  η² (chi₂ − (p+k) chi)/n_b       ‖z‖² is not d and is correlated with the fields: 1/d of "norm"
    "ratio"      ⅜ Var Q', −½ Cov(M', Q')        the mean of a ratio is not the ratio of means (normalised rows)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from twolayer.equations.mean import Terms, Weights
from twolayer.equations.step import rates_of
from twolayer.gaussian.engines import ENGINES, LOG2_POINTS
from twolayer.loops.averaged import Precision
from twolayer.loops.mean_step import MeanStepEvolution, step_seconds
from twolayer.numerics.errors import choice, positive_integer, reject
from twolayer.task.algorithm import SGD
from twolayer.task.method import Evolution, Method, Task, register_method
from twolayer.task.problem import Problem

__all__ = ["CORRECTIONS", "Map"]

CORRECTIONS = ("norm", "pairs", "dimension", "ratio")
REUSED = (
    "samples are reused (dataset = {}), so a step depends on the whole past and its mean is no function of the "
    "overlaps; DMFT is the theory of reused batches of order d with lr of order one"
)


@register_method
@dataclass(frozen=True)
class Map(Method):
    """The mean of one step of SGD at dimension d, iterated: deterministic, with every 1/d and 1/n_b term.

    Parameters
    ----------
    dim : int
        d.
    without : tuple of str
        Corrections to leave out, of ``"norm"``, ``"pairs"``, ``"dimension"`` and ``"ratio"``.
    engine, tolerance, log2_points
        As in `ODE`.

    Notes
    -----
    The mean of one step from given overlaps is exact for free weights, and exact to second order in the fluctuations of
    the norms for normalised ones (with momentum, to first order). Iterating means leaves out what fluctuations do to
    later drifts, of order 1/d. Cost per step: one evaluation of the averages, whatever d and n_b, and nodes · p (p + k)
    for "dimension" and "ratio".

    Examples
    --------
    >>> Map(dim=1000, without="pairs").without
    ('pairs',)
    """

    dim: int
    without: tuple[str, ...] = ()
    engine: str = "auto"
    tolerance: float = 1e-6
    log2_points: int = LOG2_POINTS
    stepwise: ClassVar[bool] = True
    in_comparisons: ClassVar[bool] = False  # as many evaluations of the averages as there are steps
    papers: ClassVar[tuple[str, ...]] = ("arnaboldi2024",)

    def __post_init__(self) -> None:
        positive_integer("dim", self.dim)
        names = (self.without,) if isinstance(self.without, str) else self.without
        if not isinstance(names, list | tuple):
            reject("without", names, f"some of {', '.join(CORRECTIONS)}")
        object.__setattr__(self, "without", tuple(choice("without", name, CORRECTIONS) for name in names))
        choice("engine", self.engine, ENGINES)
        positive_integer("log2_points", self.log2_points, 4)

    def refusal(self, problem: Problem, algorithm: SGD) -> str | None:
        """Only fresh samples."""
        return None if algorithm.dataset is None else REUSED.format(algorithm.dataset)

    def prepare(self, task: Task) -> Evolution:
        """Evaluate the laws at d."""
        problem, algorithm = task.problem, task.algorithm
        batch = algorithm.batch_at(self.dim)
        norm = self.dim / batch if "norm" not in self.without else 0.0
        weights = Weights(norm, 1 / batch, "pairs" not in self.without, problem.noise)
        rates = rates_of(algorithm, problem.p, algorithm.lr(self.dim))
        return MeanStepEvolution(task, self._precision, rates, weights, self._terms)

    @property
    def _precision(self) -> Precision:
        return Precision(self.engine, self.tolerance, self.log2_points)

    @property
    def _terms(self) -> Terms:
        return Terms("dimension" not in self.without, "ratio" not in self.without)

    def cost(self, task: Task) -> float:
        """One evaluation of the averages, and of the terms of a finite dimension, for every step."""
        seconds = step_seconds(task, self._precision, self._terms)
        return super().cost(task) + float(task.points[-1]) * seconds
