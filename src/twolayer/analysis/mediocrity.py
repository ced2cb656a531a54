"""Phase retrieval near a random start: growth rate, noise, and the learning rates that follow from them.

    ṁ_j = c m_j,   c = 4 (1 − ρ C_p),   C_p = 1 + 1/p + 4/p² + Δ/2,   ρ = γ/(p n_b),   γ = d·lr
    fewest steps  γ_opt = p n_b/(2 C_p),  where c = 2;   escape needs  γ < p n_b/C_p;   gain  C_1/C_p → (12 + Δ)/(2 + Δ)
    at the end    p = 1:  R∞ = γΔ/(1 − 6γ)  (γ → γ/n_b);   p ≥ 2: the fixed point with all neurons alike

Square activation and target, one direction, second layer of ones, projected or spherical weights, squared loss.
γ_opt minimises the number of steps n = t p d/γ of the linear escape, not the time t, and not what comes after: for
p ≥ 2 the aligned state it leads to is stable only for γ/(p n_b) < 1/6 (Δ = 0).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from twolayer.gaussian.quadratic import quadratic_averages, quadratic_form
from twolayer.numerics.errors import InputError, expect, positive_integer, reject
from twolayer.numerics.precision import float64
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling

__all__ = [
    "admissible_lr",
    "contraction",
    "escape_gain",
    "growth_rate",
    "noise_gain",
    "noise_strength",
    "optimal_lr",
    "stationary_risk",
]


def check_problem(problem: Problem) -> None:
    """Refuse what is not phase retrieval: σ = x² (+ constant), h = z1² (+ the same constant), a = 1."""
    expect(Problem, "problem", problem)
    problem.require_isotropic("The theory of escape")
    sigma, form = problem.activation.polynomial, quadratic_form(problem.target.polynomial, problem.k)
    square = sigma is not None and len(sigma) == 3 and sigma[1] == 0 and sigma[2] == 1
    shift = sigma[0] if sigma is not None else 0.0
    matched = square and form is not None and problem.k == 1 and form[0][0, 0] == 1 and form[1] == shift
    alike = problem.second_layer == "ones" or set(problem.second_layer) == {1.0}
    if not (matched and alike and problem.P[0, 0] == 1 and problem.divisor == problem.p and problem.labels.plain):
        raise InputError(
            "The formulas of escape hold for the square activation and target in one direction of norm 1 and the mean "
            "over neurons with a second layer of ones (Problem('z1**2', 'square', width=p, noise=Δ)), but got "
            f"{problem!r}; for other problems measure with solve(…, until=Until('excess_risk', 1 − T, relative=True)) "
            "and first_passage."
        )


def contraction(problem: Problem) -> float:
    """C_p = 1 + 1/p + 4/p² + Δ/2.

    Examples
    --------
    >>> contraction(Problem("z1**2", "square"))
    6.0
    """
    check_problem(problem)
    p = problem.p
    return 1 + 1 / p + 4 / p**2 + problem.noise / 2


def noise_strength(problem: Problem) -> float:
    """V_p = 4 (10 − 6/p + 8/p² + Δ): variance of the increments of one m_j at m = 0, in units of lr/p.

    Examples
    --------
    >>> noise_strength(Problem("z1**2", "square"))
    48.0
    """
    check_problem(problem)
    p = problem.p
    return 4 * (10 - 6 / p + 8 / p**2 + problem.noise)


def growth_rate(problem: Problem, rho: float) -> float:
    """Rate c = 4 (1 − ρ C_p) at which the overlaps grow, with ρ = d·lr/(p n_b)."""
    return 4 * (1 - rho * contraction(problem))


def noise_gain(problem: Problem, rho: float) -> float:
    """The s = ρ V_p/(2c) by which the noise of single samples multiplies the variance of the start, less one.

    Examples
    --------
    >>> noise_gain(Problem("z1**2", "square"), 1 / 12)
    1.0
    """
    return rho * noise_strength(problem) / (2 * growth_rate(problem, rho))


def optimal_lr(problem: Problem, batch: int = 1) -> Scaling:
    """The learning rate with the fewest steps of escape, γ_opt/d with γ_opt = p n_b/(2 + 2/p + 8/p² + Δ).

    Parameters
    ----------
    problem : Problem
        Phase retrieval: ``Problem("z1**2", "square", width=p, noise=Δ)``.
    batch : int
        n_b.

    Examples
    --------
    >>> optimal_lr(Problem("z1**2", "square", noise=0.3)).coefficient * 12.3
    1.0
    """
    check_problem(problem)
    return Scaling(problem.p * positive_integer("batch", batch) / (2 * contraction(problem)), -1.0)


def admissible_lr(problem: Problem, batch: int = 1) -> tuple[float, Scaling]:
    """Open interval of learning rates at which the overlap grows: (0, p n_b/(C_p d)).

    Examples
    --------
    >>> low, high = admissible_lr(Problem("z1**2", "square"))
    >>> low, round(high.coefficient, 4)
    (0.0, 0.1667)
    """
    return 0.0, optimal_lr(problem, batch) * 2


def escape_gain(problem: Problem) -> float:
    """C_1/C_p: how many times fewer steps than a single neuron, each at its γ_opt (leading logarithm).

    Examples
    --------
    >>> escape_gain(Problem("z1**2", "square", width=10_000, noise=1.0)).__round__(2)
    4.33
    """
    many = contraction(problem)
    return contraction(problem.replace(width=1)) / many


@float64
def stationary_risk(problem: Problem, algorithm: SGD) -> float:
    """Excess risk at the stable fixed point of the projected ODE.

    p = 1: γΔ/(1 − 6γ), γ → γ/n_b. p ≥ 2: the fixed point with all neurons alike, m_j = m and Q_jl = q, found by
    Newton's method from the aligned state; it lies a little below the formula with γ → γ/p.

    Parameters
    ----------
    problem, algorithm : Problem, SGD

    Examples
    --------
    >>> problem, algorithm = Problem("z1**2", "square", noise=0.5), SGD(lr="0.1/d", geometry="projected")
    >>> round(stationary_risk(problem, algorithm), 6)
    0.125
    """
    rho = noise_ratio(problem, algorithm)
    algorithm.check_plain("stationary_risk")
    p, noise = problem.p, problem.noise
    if 6 * rho >= 1:
        raise InputError(
            f"Argument `lr` must be below {p * algorithm.batch.coefficient / 6:.4g}/d for the aligned state of "
            f"{p} neurons to be a stable fixed point, but got {algorithm.lr}."
        )
    if noise == 0:
        return 0.0
    if p == 1:
        require_growth(problem, algorithm, rho)
        return rho * noise / (1 - 6 * rho)

    def state(x: Any) -> tuple[np.ndarray, np.ndarray]:
        m, q = x
        return np.full((p, p), q) + (1 - q) * np.eye(p), np.full((p, 1), m)

    def averages(x: Any) -> Any:
        Q, M = state(x)
        return quadratic_averages(1.0, 0.0, np.eye(1), 0.0, 1.0, Q, M, np.eye(1), np.ones(p), noise)

    def drift(x: Any) -> list[float]:
        Q, M = state(x)
        v = averages(x)
        dM, dQ = np.asarray(v.psi), np.asarray(v.phi + v.phi.T + rho * v.chi)
        own = np.diagonal(dQ) / 2
        return [float((dM - M * own[:, None])[0, 0]), float((dQ - Q * (own[:, None] + own))[0, 1])]

    guess = np.sqrt(1 - rho * noise / 2 / (1 - 6 * rho))
    solution = optimize.root(drift, [guess, guess**2], tol=1e-13)
    return float(averages(solution.x).excess_risk)


def noise_ratio(problem: Problem, algorithm: SGD, dim: int | None = None) -> float:
    """ρ = d·lr/(p n_b), in the limit or at a dimension; refuses what the formulas do not describe."""
    check_problem(problem)
    expect(SGD, "algorithm", algorithm)
    plain = algorithm.geometry == "free"
    if plain or algorithm.loss.name != "squared" or algorithm.momentum or algorithm.weight_decay:
        raise InputError(
            "The formulas of escape hold for projected or spherical SGD on the squared loss without momentum and "
            f"weight decay, but got {algorithm!r}."
        )
    if algorithm.train_second_layer or algorithm.reused:
        raise InputError("The formulas of escape hold for a fixed second layer and fresh samples.")
    if dim is None:
        if algorithm.mu or algorithm.delta != 1:
            reject("algorithm", algorithm, "lr = γ/d and a batch that does not grow with d")
        return algorithm.lr.coefficient / (problem.p * algorithm.batch.coefficient)
    return dim * algorithm.lr(dim) / (problem.p * algorithm.batch_at(dim))


def require_growth(problem: Problem, algorithm: SGD, rho: float) -> float:
    """c, or an error that says which learning rates are admissible."""
    c = growth_rate(problem, rho)
    if c <= 0:
        high = 1 / contraction(problem)
        raise InputError(
            f"Argument `lr` must satisfy d·lr/(p·n_b) < {high:.4g} for the overlap to grow, but {algorithm.lr} with "
            f"batch {algorithm.batch} and p = {problem.p} gives {rho:.4g}; optimal_lr(problem) is half the largest."
        )
    return c
