"""The increment kernel: what one sample does to the weights.

    g_j = a_j σ'(λ_j) e,    e = y − f (squared loss)  or  e = y (correlation loss)
    W ← W + (lr/N) ḡ,    ḡ = mean_ν g^ν (z^ν)ᵀ;        a ← a + (lr/N) mean_ν e^ν σ(λ^ν)   if the second layer is trained

Every method follows from g and the fields: the step itself in d dimensions (Vectors) or in an orthonormal basis
of the few directions that matter (Chain), its mean (ODE) and its covariance. What else a step does is in step.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float

from twolayer.functions.activation import Activation
from twolayer.functions.normalisation import divisor
from twolayer.functions.target import Target
from twolayer.numerics.types import Real
from twolayer.task.algorithm import SGD
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem

__all__ = ["Kernel", "Push", "Sample", "kernel_of"]


class Sample(NamedTuple):
    """Fields and label noise of a batch: λ (n, p), λ* (n, k), √Δ ξ (n,)."""

    student: Float[Real, "n p"]
    target: Float[Real, "n k"]
    noise: Float[Real, " n"]


class Push(NamedTuple):
    """What a batch does to the two layers, sample by sample: g (n, p) and e σ(λ) (n, p)."""

    first: Float[Real, "n p"]
    second: Float[Real, "n p"]


@dataclass(frozen=True)
class Kernel:
    """g as a function of the fields; hashable, so that compiled code can be shared between runs."""

    activation: Activation
    target: Target
    loss: Loss
    normalisation: str = "mean"

    def output(self, fields: Float[Real, "*n p"], a: Float[Real, " p"]) -> Float[Real, "*n"]:
        """F = (1/N) Σ_j a_j σ(λ_j). Cost O(p)."""
        return (a * self.activation(fields)).sum(-1) / divisor(self.normalisation, fields.shape[-1])

    def push(self, sample: Sample, a: Float[Real, " p"]) -> Push:
        """G and e σ(λ) of every sample in the batch. Cost O(n p)."""
        sigma = self.activation(sample.student)
        f = (a * sigma).sum(-1) / divisor(self.normalisation, a.shape[-1])
        e = self.loss.residual(self.target(sample.target) + sample.noise, f)[..., None]
        return Push(a * self.activation.slope(sample.student) * e, sigma * e)


def kernel_of(problem: Problem, algorithm: SGD) -> Kernel:
    """The increment kernel of a problem and an algorithm."""
    return Kernel(problem.activation, problem.target, algorithm.loss, problem.normalisation)
