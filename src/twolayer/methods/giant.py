"""Giant steps: lr = O(1) and batches of order d or more, as d → ∞. The limit is a map
from step to step.

    M' = M + η psi,    Q' = Q + η (phi + phiᵀ) + η² [ chi/α + v Ω⁺ vᵀ ],    n_b = α d,
        η = lr/N

then rows are divided by their norms if they are projected or spherical. With larger
batches, n_b ≫ d, the term with chi is gone: gradient descent on the population risk
with a finite step. Fluctuations are of order d^(−1/2). With inputs in blocks the same
holds in each (equations/mean_step_in_blocks.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from twolayer.equations.block_refusals import carried_in_blocks, rules_of_rotations
from twolayer.equations.blocks import blocks_of
from twolayer.equations.mean_step import Terms, Weights
from twolayer.equations.optimiser_step import coefficients_of, form_of
from twolayer.equations.state import size_of
from twolayer.loops.mean_step_loop import mean_steps, step_seconds
from twolayer.loops.refined_averages import Precision
from twolayer.methods.map import reuse_refused
from twolayer.numerics.errors import flag
from twolayer.task.algorithm import SGD
from twolayer.task.averages import USUAL, Averages, keep_averages
from twolayer.task.heavy_tails import no_moment, two_laws
from twolayer.task.method import Evolution, RefinedMethod, Task, register_method
from twolayer.task.problem import Problem
from twolayer.task.regimes import layers_apart, memory_beyond, regime_of
from twolayer.task.rules import unaveraged

__all__ = ["GiantSteps"]


@register_method
@dataclass(frozen=True)
class GiantSteps(RefinedMethod):
    """The limit d → ∞ of steps of order one on fresh batches of order d: a
    deterministic map of the overlaps.

    Parameters
    ----------
    band : bool
        Follow the fluctuations too: ``M_band`` and ``Q_band`` in the result are
        standard deviations of M and Q times d^(1/2). They come from the linearised map
        and the noise of every step, not from the last step alone.
    averages : Averages
        How Gaussian averages are taken, and how accurate they shall be (1e-4). Those of
        a `FirstOrder` method are means over points, as in `DMFT`, and so are their
        number and accuracy; the result has their errors.

    Notes
    -----
    α is read from ``batch=α*d``. Cost per step: one evaluation of the averages; with a
    band also 2F evaluations on 2¹³ points and nodes · F², F = p k + p (p + 1)/2.

    Examples
    --------
    >>> GiantSteps().name
    'giantsteps'
    """

    band: bool = False
    averages: Averages = USUAL
    stepwise: ClassVar[bool] = True
    hands_over: ClassVar[bool] = True
    papers: ClassVar[tuple[str, ...]] = ("dandi2023", "arnaboldi2024")

    def __post_init__(self) -> None:
        flag("band", self.band)
        keep_averages(self)

    @classmethod
    def first_order_refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Not where a batch comes back, and with batches of order d."""
        if algorithm.batch.exponent != 1:
            return (
                "the steps of a first-order method have a limit on batches of order d,"
                f" such as 2*d, and here batch = {algorithm.batch}"
            )
        return None

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Only fresh samples, and only where steps stay of order one."""
        if algorithm.reused:
            return reuse_refused(algorithm)
        rule = algorithm.rule
        if rule is not None and not rule.single:
            return (
                f"the rule {rule} is not one of single samples, whose batch averages"
                " are what giant steps are made of"
            )
        if regime_of(algorithm).name == "giant steps":
            reason = (
                layers_apart(algorithm)
                or memory_beyond(algorithm)
                or no_moment(problem, algorithm, 2)
            )
            return reason or unaveraged(rule) or two_laws(problem, algorithm)
        return (
            "giant steps have lr = O(1) and batches of at least order d, such as lr ="
            f" 0.5, batch = 4*d, but with lr = {algorithm.lr}, batch ="
            f" {algorithm.batch} the limit is another one; Map iterates the mean step"
            " at a finite d where batches average, and Chain is exact at any lr and"
            " batch"
        )

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Rows of the step before have overlaps in blocks that are not followed."""
        return rules_of_rotations(algorithm) or carried_in_blocks(algorithm)

    def objection(self, problem: Problem, algorithm: SGD) -> str | None:
        """The band is that of overlaps alone."""
        if self.band and algorithm.first_order:
            return (
                "the linearised map of the band is that of gradient steps: use band ="
                " False"
            )
        if self.band and not problem.inputs.plain:
            return (
                "the linearised map of the band is that of inputs N(0, I): use band ="
                " False"
            )
        if self.band and algorithm.rule is not None:
            return (
                "the covariances of the band are those of plain gradients, which the"
                f" rule {algorithm.rule} changes"
            )
        if self.band and form_of(algorithm).carries:
            return (
                "the linearised map of the band has no rows of the step before: use"
                " momentum = 0 or band = False"
            )
        if self.band and (
            algorithm.second_lr is not None or not algorithm.train_first_layer
        ):
            return (
                "the band is that of one lr for all: leave out second_lr and train the"
                " first layer, or use band = False"
            )
        return super().objection(problem, algorithm) or (
            no_moment(problem, algorithm, 4) if self.band else None
        )

    def prepare(self, task: Task) -> Evolution:
        """Read lr and α off the laws."""
        if task.algorithm.first_order:
            from twolayer.methods.dmft.fresh import fresh_steps

            return fresh_steps(task, self.averages)
        problem, algorithm = task.as_trained.problem, task.algorithm
        batch = algorithm.batch
        norm = 1 / batch.coefficient if batch.exponent < 1 + 1e-9 else 0.0
        weights = Weights(norm, 0.0, True, problem.noise)
        rates = coefficients_of(algorithm, problem.divisor, None)
        blocks = (
            None if problem.inputs.plain else blocks_of(problem.inputs, task.start.P)
        )
        return mean_steps(
            task, Precision.of(self), rates, weights, Terms(band=self.band), blocks
        )

    def cost(self, task: Task) -> float:
        """One evaluation of the averages for every step, and the linearised map for a
        band.
        """
        seconds = step_seconds(task, Precision.of(self), Terms(band=self.band))
        return super().cost(task) + float(task.points[-1]) * seconds

    def footprint(self, task: Task) -> int:
        """With a band, also the covariance of all F overlaps at the save points."""
        band = (
            8 * len(task.points) * size_of(task.problem.p, task.problem.k) ** 2
            if self.band
            else 0
        )
        return super().footprint(task) + band
