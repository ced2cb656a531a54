"""The mean of one step at finite d and n_b, iterated with every correction.

    X ← E[X after one step | X],    X = (M, Q, a)        (mean_step.py)

It has no sampling noise and contains every regime of lr and batch; each correction can
be left out by its name:

    "norm"       η² (d/n_b) chi                  the orthogonal part of the gradient
                 noise
    "pairs"      η² (1 − 1/n_b) v Ω⁺ vᵀ          pairs of different samples of a batch
    "dimension"  η² (chi₂ − (p+k) chi)/n_b
                 ‖z‖² is not d and is correlated with the fields: 1/d of "norm"
    "ratio"      ⅜ Var Q', −½ Cov(M', Q')
                 the mean of a ratio is not the ratio of means (normalised rows)

Means describe a run only where a batch averages. The measure is how much the squared
norm of a row fluctuates in one step, the largest of

    ( Var Q'_jj )^{1/2} / E Q'_jj.

From a few tenths on, the expansion of the ratio breaks down (overlaps above one), and
so does the drift at the mean. At 0.3 the mean of one projected step is off by less than
1 %, at 0.4 by up to 2 %, at 1 by 12 %, whatever the activation: batches of a few
samples with steps as long as the weights, and heavy tails, are for `Chain`.

Inputs with blocks have a mean step for each (equations/mean_step_in_blocks.py), in
which "ratio" is left out.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.equations.block_refusals import carried_in_blocks
from twolayer.equations.blocks import blocks_of
from twolayer.equations.mean_step import MeanStep, Rows, Terms, Weights
from twolayer.equations.mean_step_in_blocks import BlockMeanStep
from twolayer.equations.optimiser_step import coefficients_of, form_of
from twolayer.equations.state import Overlap
from twolayer.gaussian.step_fluctuations import StepSamples
from twolayer.loops.mean_step_loop import mean_steps, step_seconds
from twolayer.loops.refined_averages import Precision
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import Refused, choice, keep_integers, reject
from twolayer.numerics.types import Real, Tree
from twolayer.task.algorithm import SGD
from twolayer.task.averages import USUAL, Averages, keep_averages
from twolayer.task.heavy_tails import no_moment, two_laws
from twolayer.task.method import Evolution, RefinedMethod, Task, register_method
from twolayer.task.problem import Problem
from twolayer.task.regimes import instead_of_memory, memory_beyond
from twolayer.task.rules import unaveraged

__all__ = ["CORRECTIONS", "LARGEST_FLUCTUATION", "Map", "reuse_refused"]

CORRECTIONS = ("norm", "pairs", "dimension", "ratio")
LARGEST_FLUCTUATION = 0.4
"""Of the squared norm of a row in one step, relative: beyond it the mean step describes
no run.
"""


def reuse_refused(algorithm: SGD) -> str:
    """Why the mean of a step says nothing of reused samples."""
    return (
        f"samples are reused ({algorithm.reused}), so a step depends on the whole past"
        f" and its mean is no function of the overlaps; {instead_of_memory(algorithm)}"
    )


def affine(problem: Problem, algorithm: SGD) -> bool:
    """Whether the mean of a step is linear in the overlaps: iterated means are then
    exact, whatever fluctuates.
    """
    sigma, h = problem.activation.polynomial, problem.target.polynomial
    linear = (
        sigma is not None
        and len(sigma) <= 2
        and h is not None
        and max(map(sum, h), default=0) <= 1
    )
    return (
        linear
        and algorithm.loss.name == "squared"
        and algorithm.rule is None
        and not algorithm.train_second_layer
    )


@register_method
@dataclass(frozen=True)
class Map(RefinedMethod):
    """The mean of one step of SGD at dimension d, iterated: deterministic, with every
    1/d and 1/n_b term.

    Parameters
    ----------
    dim : int
        d.
    without : tuple of str
        Corrections to leave out, of ``"norm"``, ``"pairs"``, ``"dimension"`` and
        ``"ratio"``.
    averages : Averages
        How Gaussian averages are taken, and how accurate they shall be (1e-4).

    Notes
    -----
    The mean of one step from given overlaps is exact for free weights, and exact to
    second order in the fluctuations of the norms for normalised ones (with momentum, to
    first order). Iterating means leaves out what fluctuations do to later drifts, of
    order 1/d; nothing for free linear students. Where batches do not average (the
    squared norm of a row fluctuates in one step by more than 0.4 of its mean) it
    refuses. Cost per step: one evaluation of the averages, whatever d and n_b, and
    parts · p² (p + k) for "dimension" and "ratio".

    Examples
    --------
    >>> Map(dim=1000, without="pairs").without
    ('pairs',)
    """

    dim: int
    without: tuple[str, ...] = ()
    averages: Averages = USUAL
    stepwise: ClassVar[bool] = True
    hands_over: ClassVar[bool] = True
    in_comparisons: ClassVar[bool] = (
        False  # as many evaluations of the averages as there are steps
    )
    papers: ClassVar[tuple[str, ...]] = ("arnaboldi2024",)

    def __post_init__(self) -> None:
        keep_integers(self, 1, "dim")
        names = (self.without,) if isinstance(self.without, str) else self.without
        if not isinstance(names, list | tuple):
            reject("without", names, f"some of {', '.join(CORRECTIONS)}")
        object.__setattr__(
            self,
            "without",
            tuple(choice("without", name, CORRECTIONS) for name in names),
        )
        keep_averages(self)

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Only fresh samples, gradients that are functions of the fields, and noise
        whose fluctuations have a size.
        """
        rule = algorithm.rule
        if rule is not None and (not rule.single or rule.sizes):
            return (
                f"with the rule {rule} a step depends on more than the fields of its"
                " samples, so the terms of order 1/d of its mean are others"
            )
        if algorithm.reused:
            return reuse_refused(algorithm)
        reason = (
            memory_beyond(algorithm)
            or no_moment(problem, algorithm, 4)
            or unaveraged(rule)
        )
        return reason or two_laws(problem, algorithm, fluctuating=True)

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Rows of the step before have overlaps in blocks that are not followed."""
        return carried_in_blocks(algorithm)

    def prepare(self, task: Task) -> Evolution:
        """Evaluate the laws at d."""
        problem, algorithm = task.as_trained.problem, task.algorithm
        batch = algorithm.batch_at(self.dim)
        norm = self.dim / batch if "norm" not in self.without else 0.0
        weights = Weights(norm, 1 / batch, "pairs" not in self.without, problem.noise)
        rates = coefficients_of(algorithm, problem.divisor, self.dim)
        blocks = (
            None
            if problem.inputs.plain
            else blocks_of(problem.inputs, task.start.P, self.dim)
        )
        terms = self._terms if blocks is None else self._terms._replace(ratio=False)
        evolution = mean_steps(task, Precision.of(self), rates, weights, terms, blocks)
        exact = not form_of(algorithm).normalises and (
            task.points[-1] <= 1 or affine(problem, algorithm)
        )
        loudest = (
            task.clocks.steps_line.check(int(task.points[-1])).loudest
            if algorithm.scheduled
            else 1.0
        )
        step = evolution.motion.equation().step
        if isinstance(step, BlockMeanStep):
            size = 0.0 if exact else block_fluctuation(step, task, loudest)
        else:
            size = 0.0 if exact else fluctuation(step, task, loudest)
        if not size <= LARGEST_FLUCTUATION:
            raise Refused(
                "Map", self._scattered(algorithm, batch, size), ["Chain", "Vectors"]
            )
        return evolution

    def _scattered(self, algorithm: SGD, batch: int, size: float) -> str:
        """Why a mean says nothing."""
        return (
            f"with lr = {algorithm.lr}, batch = {algorithm.batch} at d = {self.dim} the"
            f" squared norm of a row fluctuates in one step by {size:.2g} of its mean,"
            f" and the mean step describes runs up to {LARGEST_FLUCTUATION:g} only:"
            f" {batch} sample{'s do' if batch > 1 else ' does'} not average"
        )

    @property
    def _terms(self) -> Terms:
        return Terms("dimension" not in self.without, "ratio" not in self.without)

    def cost(self, task: Task) -> float:
        """One evaluation of the averages, and of the terms of a finite dimension, for
        every step.
        """
        seconds = step_seconds(task, Precision.of(self), self._terms)
        return super().cost(task) + float(task.points[-1]) * seconds


def block_fluctuation(map_: BlockMeanStep, task: Task, loudest: float) -> float:
    """The same where inputs have blocks."""
    samples = StepSamples.of(task.problem, task.algorithm)
    step = dataclasses.replace(
        map_, form=map_.form.flow, terms=Terms(), samples=samples, tempo=None
    )
    starts = Rows(*task.block_starts(), task.starts()[2])
    return float(
        jax.jit(lambda y: jax.lax.map(lambda x: step.fluctuation(x, loudest), y))(
            starts
        ).max()
    )


def fluctuation(map_: MeanStep, task: Task, loudest: float = 1.0) -> float:
    """Largest relative standard deviation of Q'_jj in the first step, of all neurons
    and starts.

    ``loudest`` is the largest f²/b of a schedule: the step with the most noise is what
    counts.
    """
    samples = StepSamples.of(task.as_trained.problem, task.algorithm)
    rates = map_.rates._replace(step=map_.rates.step * np.sqrt(loudest))
    # numbers are data: one compilation serves all rates and batches
    rates, weights = jax.tree.map(jnp.asarray, (rates, map_.weights))
    parts: Options = {
        "form": map_.form.flow,
        "terms": Terms(),
        "samples": samples,
        "light": None,
        "tempo": None,
    }
    step = dataclasses.replace(map_, rates=rates, weights=weights, **parts)
    return float(jnp.sqrt(_relative_variances(step, task.starts()).max()))


@eqx.filter_jit
def _relative_variances(step: MeanStep, starts: Tree) -> Real:
    """Var Q'_jj/(E Q'_jj)² from each start."""

    def of_one(start: Tree) -> Array:
        now = Overlap(*start)
        done = step.mean(Rows(*now), step.engine)
        assert step.samples is not None
        own = step.samples.own_covariance(*step.around(now, done))
        norm = jnp.diagonal(done.rows.gram) / done.scale**2
        return (
            jnp.diagonal(own.norms) * step.rates.step**2 * step.weights.single / norm**2
        )

    return jax.lax.map(of_one, starts)
