"""The increment kernel: what one sample does to the weights.

    g_j = a_j σ'(λ_j) e,    e = y − f (squared loss)  or  e = y (correlation loss)
    W ← W + (lr/N) ḡ,    ḡ = mean_ν g^ν (z^ν)ᵀ;        a ← a + (lr/N) mean_ν e^ν σ(λ^ν)
        if the second layer is trained

Every method follows from g and the fields: the step itself in d dimensions (Vectors) or
in an orthonormal basis of the few directions that matter (Chain), its mean (ODE) and
its covariance. A rule (task/rules.py) may put another ĝ in the place of g. What else a
step does is in optimiser_step.py.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from twolayer.functions.activation import Activation
from twolayer.functions.normalisation import divisor
from twolayer.functions.target import Target
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.algorithm import SGD
from twolayer.task.labels import LabelNoise, Spoilt
from twolayer.task.losses import Loss
from twolayer.task.problem import Problem
from twolayer.task.rules import Rule, RuledLoss, Sight

__all__ = ["Kernel", "Push", "Sample", "kernel_of"]


class Sample(NamedTuple):
    """Fields of a batch, λ (n, p) and λ* (n, k), and what is done to its labels; for
    rules also |z|²/d and z·z'/d.

    Where these are not known they are those of the limit, 1 and δ. ``key`` is for rules
    that draw random numbers.
    """

    student: Float[Real, "n p"]
    target: Float[Real, "n k"]
    noise: Spoilt
    size: Any = 1.0
    products: Tree = None
    key: Tree = None


class Push(NamedTuple):
    """What a batch does to the two layers, sample by sample: g (n, p) and e σ(λ) (n,
    p).
    """

    first: Float[Real, "n p"]
    second: Float[Real, "n p"]


@dataclass(frozen=True)
class Kernel:
    """g as a function of the fields; hashable, so that compiled code can be shared
    between runs.
    """

    activation: Activation
    target: Target
    loss: Loss
    normalisation: str = "mean"
    labels: LabelNoise = field(default_factory=LabelNoise)

    def label(self, target: Float[Real, "*n k"], noise: Spoilt) -> Float[Real, "*n"]:
        """y = ± h + √Δ ξ. Cost O(1)."""
        return noise.sign * self.target(target) + noise.shift

    def output(
        self, fields: Float[Real, "*n p"], a: Float[Real, " p"]
    ) -> Float[Real, "*n"]:
        """f = (1/N) Σ_j a_j σ(λ_j). Cost O(p)."""
        return (a * self.activation(fields)).sum(-1) / divisor(
            self.normalisation, fields.shape[-1]
        )

    def push(self, sample: Sample, a: Float[Real, " p"]) -> Push:
        """g and e σ(λ) of every sample in the batch. Cost O(n p)."""
        sigma = self.activation(sample.student)
        f = (a * sigma).sum(-1) / divisor(self.normalisation, a.shape[-1])
        e = self.loss.residual(self.label(sample.target, sample.noise), f)[..., None]
        g = a * self.activation.slope(sample.student) * e
        return Push(
            g if self.rule is None else self._ruled(sample, a, g, e[..., 0]), sigma * e
        )

    @property
    def rule(self) -> Rule | None:
        """What is made of g."""
        return self.loss.rule if isinstance(self.loss, RuledLoss) else None

    @property
    def draws(self) -> bool:
        """Whether that takes random numbers of its own."""
        return self.rule is not None and self.rule.draws

    def _ruled(self, sample: Sample, a: Real, g: Real, e: Real) -> Real:
        """ĝ of every sample in the batch."""
        loss, label = self.loss, self.label(sample.target, sample.noise)
        assert (
            isinstance(loss, RuledLoss)
            and loss.rule is not None
            and loss.rule.push is not None
        )
        s = loss.scale
        N = divisor(self.normalisation, a.shape[-1]) / s

        def shift(g: Real, rate: Number) -> Real:
            if sample.products is None:
                return (
                    rate
                    / (N * loss.batch)
                    * (g * sample.size[..., None] if jnp.ndim(sample.size) else g)
                )
            return rate / (N * loss.batch) * sample.products @ g

        def at(fields: Real) -> Real:
            return (
                a
                / s
                * self.activation.slope(fields)
                * loss.residual(label, self.output(fields, a))[..., None]
            )

        seen = Sight(
            g / s,
            sample.student,
            e,
            sample.size,
            shift,
            at,
            N,
            loss.batch,
            loss.rate,
            sample.key,
        )
        return s * loss.rule.push(seen)


def kernel_of(problem: Problem, algorithm: SGD) -> Kernel:
    """The increment kernel of a problem and an algorithm."""
    labels = problem.labels
    if algorithm.rule is not None and algorithm.rule.relabels:
        labels = dataclasses.replace(labels, more=algorithm.rule.relabels)
    return Kernel(
        problem.activation,
        problem.target,
        algorithm.drive,
        problem.normalisation,
        labels,
    )
