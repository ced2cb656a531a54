"""The increment kernel: what one sample does to the weights.

    g_j = a_j σ'(λ_j) e,    e = y − f (squared loss)  or  e = y (correlation loss)
    W ← W + (lr/N) ḡ,    ḡ = mean_ν g^ν (z^ν)ᵀ;        a ← a + (lr/N) mean_ν e^ν σ(λ^ν)   if the second layer is trained

Every method follows from g and the fields: the step itself in d dimensions (Vectors) or in an orthonormal basis
of the few directions that matter (Chain), its mean (ODE) and its covariance. What else a step does is in step.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from jaxtyping import Array, Float

from twolayer.functions.activation import Activation
from twolayer.functions.normalisation import divisor
from twolayer.functions.target import Target
from twolayer.task.algorithm import SGD
from twolayer.task.labels import LabelNoise, Spoilt
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem

__all__ = ["Kernel", "Push", "Sample", "kernel_of"]


class Sample(NamedTuple):
    """Fields of a batch, λ (n, p) and λ* (n, k), and what is done to its labels (n,)."""

    student: Float[Array, "n p"]
    target: Float[Array, "n k"]
    noise: Spoilt


class Push(NamedTuple):
    """What a batch does to the two layers, sample by sample: g (n, p) and e σ(λ) (n, p)."""

    first: Float[Array, "n p"]
    second: Float[Array, "n p"]


@dataclass(frozen=True)
class Kernel:
    """g as a function of the fields; hashable, so that compiled code can be shared between runs."""

    activation: Activation
    target: Target
    loss: Loss
    normalisation: str = "mean"
    labels: LabelNoise = field(default_factory=LabelNoise)

    def label(self, target: Float[Array, "*n k"], noise: Spoilt) -> Float[Array, "*n"]:
        """Y = ± h + √Δ ξ. Cost O(1)."""
        return noise.sign * self.target(target) + noise.shift

    def output(self, fields: Float[Array, "*n p"], a: Float[Array, "*n p"]) -> Float[Array, "*n"]:
        """F = (1/N) Σ_j a_j σ(λ_j). Cost O(p)."""
        return (a * self.activation(fields)).sum(-1) / divisor(self.normalisation, fields.shape[-1])

    def push(self, sample: Sample, a: Float[Array, " p"]) -> Push:
        """G and e σ(λ) of every sample in the batch. Cost O(n p)."""
        sigma = self.activation(sample.student)
        f = (a * sigma).sum(-1) / divisor(self.normalisation, a.shape[-1])
        e = self.loss.residual(self.label(sample.target, sample.noise), f)[..., None]
        return Push(a * self.activation.slope(sample.student) * e, sigma * e)


def kernel_of(problem: Problem, algorithm: SGD) -> Kernel:
    """The increment kernel of a problem and an algorithm."""
    return Kernel(problem.activation, problem.target, algorithm.loss, problem.normalisation, problem.labels)
