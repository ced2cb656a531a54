"""One neuron near m = 0: what its drift, its self-interaction and its noise are, and
how many steps they amount to.

    E[y σ'(λ) z] = g(m) w* + r(m) w,   g = Σ q c_q b_q m^{q−1} ≈ c m^{ℓ−1},
        c = ℓ c_ℓ b_ℓ,   r(0) = √2 c_2 b_0
    E[σ σ'(λ) z] = κ w,                κ = E[λ σ σ'],       s² = E[σ'² e²] at m = 0,
        x = γ² s² d/n_b
    T = (m_0^{2−ℓ} − η^{2−ℓ}) / ((ℓ−2) γ_eff c),    γ_eff = γ/(1 − γκ)  (projected),  γ
        (spherical)

σ = Σ c_q h_q, y = Σ b_q h_q in orthonormal Hermite polynomials; T = log(η/m_0)/(γ_eff
c) for ℓ = 2. With the contraction by noise, dm/dτ = γ_eff c m^{ℓ−1} − (x/2) m has a
closed solution too: in v = m^{2−ℓ} it is linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from twolayer.analysis.escape_formulas import check_threshold
from twolayer.analysis.exponents import analyse
from twolayer.analysis.small_overlap import Expansion, expansion
from twolayer.analysis.target_coordinates import framed
from twolayer.gaussian.moments import moments
from twolayer.numerics.errors import (
    InputError,
    finite_number,
    positive_integer,
    reject,
    require,
)
from twolayer.running.support import check_description
from twolayer.task.algorithm import SGD
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["RecoverySteps", "recovery_steps", "undisturbed_steps"]


@dataclass(frozen=True)
class RecoverySteps:
    """Predicted steps of weak recovery, and what they are made of.

    Attributes
    ----------
    ell : int
        ℓ, the information exponent of the target.
    steps : float
        T without noise; infinite if the drift does not lead to the target.
    contracted : float
        T with the contraction by noise; infinite below the unstable point. For ℓ = 2
        with finite steps, too.
    growth : float
        γ_eff c: dm/dτ = growth · m^{ℓ−1}.
    contraction : float
        x/(1 − γκ)²: what noise adds to the squared norm in one step, relative to it.
    self_interaction : float
        γκ of the projected step; 0 for a spherical one.
    unstable : float
        m_c: from below it noise wins (ℓ ≥ 3; 0 for ℓ ≤ 2).

    Examples
    --------
    >>> algorithm = SGD(lr="0.2", batch="2*d", loss="correlation", geometry="projected")
    >>> found = recovery_steps(Problem("h2(z1)", "h2"), algorithm, 1000)
    >>> found.ell, round(found.steps, 1)
    (2, 6.9)
    """

    ell: int
    steps: float
    contracted: float
    growth: float
    contraction: float
    self_interaction: float
    unstable: float


def recovery_steps(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: float = 0.5,
    *,
    start: float | None = None,
) -> RecoverySteps:
    """Steps until one neuron has overlap ``threshold`` with the target direction, from
    the leading order near m = 0.

    Parameters
    ----------
    problem : Problem
        One neuron, one direction.
    algorithm : SGD
        Projected or spherical, squared or correlation loss.
    dim : int
        d.
    threshold : float
        η in (0, 1).
    start : float, optional
        m_0 > 0; d^{−1/2} by default.

    Notes
    -----
    Relative corrections are of the order of γ_eff c η^{ℓ−2} (a step is finite) and of
    η² (higher orders of m).

    Examples
    --------
    >>> algorithm = SGD(lr=0.02, batch="d**2", geometry="projected")
    >>> round(recovery_steps(Problem("h3(z1)", "h3"), algorithm, 10**6).steps)
    15635
    """
    check_description(problem, algorithm)
    algorithm.check_gradient_steps("the steps of recovery")
    algorithm.check_plain("recovery_steps")
    problem.require_isotropic("The theory of recovery")
    dim = positive_integer("dim", dim, 2)
    eta = check_threshold(threshold)
    if (problem.p, problem.k) != (1, 1):
        raise InputError(
            "Argument `problem` must have one neuron and one direction for these"
            f" formulas, but has {problem.p} and {problem.k}: measure with"
            " weak_recovery."
        )
    if algorithm.loss.name not in ("squared", "correlation"):
        reject(
            "loss", algorithm.loss.name, "'squared' or 'correlation' for these formulas"
        )
    if (
        algorithm.geometry == "free"
        or algorithm.momentum
        or algorithm.weight_decay
        or algorithm.train_second_layer
    ):
        raise InputError(
            "Argument `algorithm` must be projected or spherical SGD on the first"
            f" layer, without momentum and weight decay, but got {algorithm!r}."
        )
    m = finite_number(
        "start",
        dim**-0.5 if start is None else start,
        accepted=f"a number in (0, {eta})",
    )
    require(0 < m < eta, "start", start, f"a number in (0, {eta})")
    noise = float(
        moments(problem, Overlaps([[1.0]], [[0.0]], problem.P), algorithm.loss).chi[
            0, 0
        ]
    )
    x = algorithm.lr(dim) ** 2 * noise * dim / algorithm.batch_at(dim)
    found = expansion(framed(problem).target, problem.activation)
    return _solution(found.ell, found, problem, algorithm, dim, m, eta, x)


def undisturbed_steps(
    problem: Problem, algorithm: SGD, dim: int, threshold: float, every: bool = False
) -> float:
    """T of ‖M‖_F for any number of neurons and directions, of each neuron as if it were
    alone and without noise: an order of magnitude, infinite where the drift leads
    nowhere.

    ``every`` adds what later leaps take to the directions that they show, with drifts
    of the same size.
    """
    target = framed(problem).target
    found = expansion(target, problem.activation)
    orders = [found.ell]
    if every:
        orders += [order for order, _ in analyse(target).chain[1:]]
    m = math.sqrt(float(np.trace(problem.P)) / dim)
    eta = max(threshold / math.sqrt(problem.p), m)
    steps = 0.0
    for ell in orders:
        steps += _solution(ell, found, problem, algorithm, dim, m, eta, 0.0).steps
    return steps


def _solution(
    ell: int,
    found: Expansion,
    problem: Problem,
    algorithm: SGD,
    dim: int,
    m: float,
    eta: float,
    x: float,
) -> RecoverySteps:
    """The closed solution from overlap m to η, with the noise x."""
    a = float(np.sqrt((problem.a() ** 2).mean())) * float(np.sign(problem.a()[0]))
    a, gamma = a / problem.divisor, algorithm.lr(dim)
    own = (
        gamma * found.self_interaction(algorithm.loss.name, a)
        if algorithm.geometry == "projected"
        else 0.0
    )
    drift = found.drift * a
    if ell % 2 or problem.p > 1 or problem.k > 1:
        # towards the target for one sign of m_0 or of a, or in one of the directions,
        # which is the one meant
        drift = abs(drift)
    if own >= 1 or drift <= 0:
        return RecoverySteps(ell, math.inf, math.inf, 0.0, x, own, 1.0)
    growth, contraction = gamma * drift / (1 - own), x / (1 - own) ** 2
    if ell == 2:
        steps = math.log(eta / m) / growth
        # each step multiplies m: exact near m = 0
        rest = math.log1p(growth) - math.log1p(contraction) / 2
        contracted = math.log(eta / m) / rest if rest > 0 else math.inf
        return RecoverySteps(ell, steps, contracted, growth, contraction, own, 0.0)
    first, last, order = m ** (2 - ell), eta ** (2 - ell), ell - 2
    steps = (first - last) / (order * growth)
    slow = growth - contraction / 2 * max(first, last)
    contracted = math.inf
    if slow > 0 and contraction > 0:
        ratio = contraction / 2 * (first - last) / (growth - contraction / 2 * first)
        contracted = 2 / (order * contraction) * math.log1p(ratio)
    unstable = (contraction / (2 * growth)) ** (1 / order) if ell > 2 else 0.0
    return RecoverySteps(ell, steps, contracted, growth, contraction, own, unstable)
