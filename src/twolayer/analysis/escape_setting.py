"""What an escape depends on: ρ = d·lr/(N n_b), κ = second_lr/lr, which theory holds.

phase retrieval   σ = s x², h = b z1², a_j = α, α s p/N = b, rows of norm one:
in units of b it is s = b = α = 1, N = p, with
Δ → Δ/b²,  ρ → τρ,  t → τt,    τ = b² N/p
even activation, or one neuron and E[∇h] = 0:    neurons one by one (mediocrity.py)
everything else:  the Jacobian of the averages (mediocre_jacobian.py)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from twolayer.analysis.mediocrity import Mediocrity, is_even
from twolayer.analysis.target_averages import target_averages
from twolayer.analysis.target_coordinates import framed
from twolayer.functions.target import Target
from twolayer.numerics.errors import InputError, expect, reject
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem
from twolayer.task.regimes import regime_of

__all__ = ["FlatSetting", "Retrieval", "retrieval_of"]

FLAT = 1e-8  # of the size of h: a slope or curvature below this is none


class Retrieval(NamedTuple):
    """Phase retrieval in its own units.

    Attributes
    ----------
    p : int
        Neurons.
    noise : float
        Δ/b².
    unit : float
        τ: ρ and t of phase retrieval are τ times those of the problem.
    """

    p: int
    noise: float
    unit: float


def retrieval_of(problem: Problem) -> Retrieval | None:
    """The problem as phase retrieval: σ = s x² (+ constant), h = b z1² (+ a matching
    constant), all a_j alike; None where it is another one.

    Examples
    --------
    >>> retrieval_of(Problem("h2(z1)", "h2", width=2, noise=0.3)).noise.__round__(9)
    0.6
    >>> retrieval_of(Problem("z1**2", "square", width=2, second_layer=[1, 2])) is None
    True
    """
    sigma, alike = problem.activation.polynomial, _layer(problem)
    target = framed(problem).target
    h = target.polynomial
    if sigma is None or h is None or alike is None or target.directions != 1:
        return None
    terms = {alpha[0]: c for alpha, c in h.items() if c}
    if len(sigma) != 3 or sigma[1] != 0 or not set(terms) <= {0, 2} or 2 not in terms:
        return None
    b = terms[2]
    share = alike * problem.p / problem.divisor
    constant = share * sigma[0] - terms.get(0, 0.0)
    if not math.isclose(share * sigma[2], b, rel_tol=1e-12) or abs(constant) > 1e-12 * (
        abs(b)
    ):
        return None
    return Retrieval(
        problem.p, problem.noise / b**2, b**2 * problem.divisor / problem.p
    )


def _layer(problem: Problem) -> float | None:
    """The a that all neurons have in common."""
    if problem.second_layer == "ones":
        return 1.0
    if isinstance(problem.second_layer, str) or len(set(problem.second_layer)) > 1:
        return None
    return float(problem.second_layer[0])


@dataclass(frozen=True, eq=False)
class FlatSetting:
    """A problem and an algorithm whose start is flat.

    Attributes
    ----------
    problem, algorithm : Problem, SGD
    rho : float
        d·lr/(N n_b), in the limit or at a dimension.
    second : float
        κ = second_lr/lr; 0 where the second layer is fixed.
    scale : float
        N n_b: lr = ρ·scale/d.
    """

    problem: Problem
    algorithm: SGD
    rho: float
    second: float
    scale: float

    @classmethod
    def of(
        cls, problem: Problem, algorithm: SGD, dim: int | None = None
    ) -> FlatSetting:
        """The setting of a problem and an algorithm, refusing what the theory of escape
        does not describe.

        Examples
        --------
        >>> FlatSetting.of(Problem("z1**2", "square", width=2), SGD("0.4/d")).rho
        0.2
        """
        check(problem, algorithm)
        divisor = problem.divisor
        if dim is None:
            if algorithm.mu or algorithm.delta != 1:
                reject(
                    "algorithm",
                    algorithm,
                    "lr = γ/d and a batch that does not grow with d",
                )
            batch = algorithm.batch.coefficient
            rho = algorithm.lr.coefficient / (divisor * batch)
            lr = algorithm.lr.coefficient
        else:
            batch = algorithm.batch_at(dim)
            lr = algorithm.lr(dim)
            rho = dim * lr / (divisor * batch)
        second = 0.0
        if algorithm.train_second_layer:
            law = algorithm.second_lr
            own = algorithm.lr if law is None else law
            second = own(dim or 1) / algorithm.lr(dim or 1)
        return cls(problem, algorithm, rho, second, divisor * batch)

    def at(self, rho: float) -> FlatSetting:
        """The same at another ρ."""
        return dataclasses.replace(self, rho=rho)

    @property
    def free(self) -> bool:
        """Whether norms move."""
        return self.algorithm.geometry == "free"

    @property
    def stationary(self) -> bool:
        """Whether nothing moves before overlaps do."""
        return not self.free and not self.second

    @cached_property
    def retrieval(self) -> Retrieval | None:
        """Phase retrieval with rows of norm one and a fixed second layer, or None."""
        return retrieval_of(self.problem) if self.stationary else None

    @cached_property
    def target(self) -> Target:
        """The target in orthonormal directions."""
        return framed(self.problem).target

    @cached_property
    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """The different values of a, and to which of them each neuron belongs."""
        values, index = np.unique(self.problem.a(), return_inverse=True)
        return values, index

    @cached_property
    def one_by_one(self) -> bool:
        """Whether neurons can be followed one by one."""
        if is_even(self.problem.activation):
            return True
        averages = target_averages(self.target)
        size = math.sqrt(max(averages.square, 1e-300))
        level = float(np.abs(averages.slope).max()) <= max(FLAT * size, averages.error)
        # a neuron that is not even feels the signs of an h² that is not
        return self.problem.p == 1 and level and (self.stationary or self._even_target)

    @property
    def _even_target(self) -> bool:
        terms = self.target.polynomial
        if terms is not None:
            return all(sum(alpha) % 2 == 0 for alpha, c in terms.items() if c)
        z = np.random.default_rng(3).normal(size=(256, self.target.directions))
        right = self.target.on_host(z)
        left = self.target.on_host(-z)
        return bool(np.abs(right - left).max() <= FLAT * np.abs(right).max())

    @cached_property
    def flat(self) -> Mediocrity:
        """The dynamics of single neurons where nothing is learned."""
        values, index = self.groups
        return Mediocrity(
            self.problem.activation,
            target_averages(self.target),
            np.bincount(index, minlength=len(values)).astype(float),
            self.problem.divisor,
            self.rho,
            self.problem.noise,
            self.free,
            self.second,
        )


def check(problem: Problem, algorithm: SGD) -> None:
    """Refuse what no theory of escape describes."""
    expect(Problem, "problem", problem)
    expect(SGD, "algorithm", algorithm)
    algorithm.check_gradient_steps("escape times")
    problem.require_isotropic("The theory of escape")
    if not problem.labels.plain:
        raise InputError(
            "The theory of escape holds for Gaussian label noise without flips, but"
            f" got {problem!r}."
        )
    if isinstance(problem.second_layer, str) and problem.second_layer != "ones":
        reject(
            "second_layer",
            problem.second_layer,
            "'ones' or its values: a random one is another in every run",
        )
    if (
        algorithm.loss.name != "squared"
        or algorithm.momentum
        or algorithm.weight_decay
        or algorithm.average is not None
    ):
        raise InputError(
            "The theory of escape holds for SGD on the squared loss without momentum,"
            f" weight decay and averages of the iterates, but got {algorithm!r}."
        )
    if algorithm.reused or not algorithm.train_first_layer:
        raise InputError(
            "The theory of escape holds for fresh samples and a first layer that"
            f" moves, but got {algorithm!r}."
        )
    if not regime_of(algorithm).continuous:
        raise InputError(
            "The formulas of escape need steps that vanish as d grows, but got"
            f" {algorithm!r}."
        )
