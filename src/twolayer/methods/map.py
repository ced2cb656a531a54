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

from twolayer.loops.averaged import Precision, check_precision
from twolayer.loops.mean_step import MeanStepEvolution, StepRates, Terms, step_seconds
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
    engine, accuracy, effort, log2_points
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
    accuracy: float = 1e-4
    effort: float = 1.0
    log2_points: int | None = None
    stepwise: ClassVar[bool] = True
    in_comparisons: ClassVar[bool] = False  # as many evaluations of the averages as there are steps
    papers: ClassVar[tuple[str, ...]] = ("arnaboldi2024",)

    def __post_init__(self) -> None:
        positive_integer("dim", self.dim)
        names = (self.without,) if isinstance(self.without, str) else self.without
        if not isinstance(names, list | tuple):
            reject("without", names, f"some of {', '.join(CORRECTIONS)}")
        object.__setattr__(self, "without", tuple(choice("without", name, CORRECTIONS) for name in names))
        check_precision(self)

    def refusal(self, problem: Problem, algorithm: SGD) -> str | None:
        """Only fresh samples."""
        return None if algorithm.dataset is None else REUSED.format(algorithm.dataset)

    def prepare(self, task: Task) -> Evolution:
        """Evaluate the laws at d."""
        problem, algorithm = task.problem, task.algorithm
        lr, batch = algorithm.lr(self.dim), algorithm.batch_at(self.dim)
        rates = StepRates(
            lr / problem.p,
            1 - lr * algorithm.weight_decay,
            algorithm.momentum or None,
            self.dim / batch if "norm" not in self.without else 0.0,
            1 / batch,
            "pairs" not in self.without,
            problem.noise,
        )
        return MeanStepEvolution(task, self._precision, rates, self._terms(algorithm))

    @property
    def _precision(self) -> Precision:
        return Precision(self.engine, self.accuracy, self.effort, self.log2_points)

    def _terms(self, algorithm: SGD) -> Terms:
        return Terms("dimension" not in self.without, "ratio" not in self.without and not algorithm.momentum)

    def cost(self, task: Task) -> float:
        """One evaluation of the averages, and of the terms of a finite dimension, for every step."""
        seconds = step_seconds(task, self._precision, self._terms(task.algorithm))
        return super().cost(task) + float(task.points[-1]) * seconds
