"""Phase retrieval near a random start: growth rate, noise, and the learning rates that follow from them.

    ṁ_j = c m_j,   c = 4 (1 − ρ C_p),   C_p = 1 + 1/p + 4/p² + Δ/2,   ρ = γ/(p n_b),   γ = d·lr
    fewest steps  γ_opt = p n_b/(2 C_p),  where c = 2;   escape needs  γ < p n_b/C_p;   gain  C_1/C_p → (12 + Δ)/(2 + Δ)
    at the end    p = 1:  R∞ = γΔ/(1 − 6γ)  (γ → γ/n_b);   p ≥ 2: the fixed point with all neurons alike

Square activation and target, one direction, second layer of ones, projected or spherical weights, squared loss.
γ_opt minimises the number of steps n = t p d/γ of the linear escape, not the time t, and not what comes after: for
p ≥ 2 the aligned state it leads to is stable only for γ/(p n_b) < 1/6 (Δ = 0).
"""

from __future__ import annotations

import math

from twolayer.analysis.escape_formulas import (
    check_threshold,
    contraction_of,
    growth_of,
    noise_strength_of,
)
from twolayer.analysis.identical_neurons import drift, excess_risk, learning_time
from twolayer.numerics.errors import InputError, expect, positive_integer, reject
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling

__all__ = [
    "admissible_lr",
    "escape_gain",
    "growth_rate",
    "learning_lr",
    "noise_gain",
    "optimal_lr",
    "stationary_risk",
]


def check_problem(problem: Problem) -> None:
    """Refuse what is not phase retrieval: σ = x² (+ constant), h = z1² (+ the same constant), a = 1."""
    expect(Problem, "problem", problem)
    problem.require_isotropic("The theory of escape")
    sigma, h = problem.activation.polynomial, problem.target.polynomial
    square = sigma is not None and len(sigma) == 3 and sigma[1] == 0 and sigma[2] == 1
    shift = sigma[0] if sigma is not None else 0.0
    terms = None if h is None else {alpha: c for alpha, c in h.items() if c}
    matched = square and terms == {(2,): 1.0, **({(0,): shift} if shift else {})}
    alike = problem.second_layer == "ones" or set(problem.second_layer) == {1.0}
    if not (
        matched
        and alike
        and problem.P[0, 0] == 1
        and problem.divisor == problem.p
        and problem.labels.plain
    ):
        raise InputError(
            "The formulas of escape hold for the square activation and target in one direction of norm 1 and the mean "
            "over neurons with a second layer of ones (Problem('z1**2', 'square', width=p, noise=Δ)), but got "
            f"{problem!r}; for other problems measure with solve(…, until=Until('excess_risk', 1 − T, relative=True)) "
            "and first_passage."
        )


def growth_rate(problem: Problem, rho: float) -> float:
    """Rate c = 4 (1 − ρ C_p) at which the overlaps grow, with ρ = d·lr/(p n_b)."""
    check_problem(problem)
    return growth_of(problem.p, problem.noise, rho)


def noise_gain(problem: Problem, rho: float) -> float:
    """The s = ρ V_p/(2c) by which the noise of single samples multiplies the variance of the start, less one."""
    return (
        rho
        * noise_strength_of(problem.p, problem.noise)
        / (2 * growth_rate(problem, rho))
    )


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
    return Scaling(
        problem.p
        * positive_integer("batch", batch)
        / (2 * contraction_of(problem.p, problem.noise)),
        -1.0,
    )


def admissible_lr(problem: Problem, batch: int = 1) -> tuple[float, Scaling]:
    """Open interval of learning rates at which the overlap grows: (0, p n_b/(C_p d)).

    Parameters
    ----------
    problem, batch : Problem, int
        As for `optimal_lr`.

    Examples
    --------
    >>> low, high = admissible_lr(Problem("z1**2", "square"))
    >>> low, round(high.coefficient, 4)
    (0.0, 0.1667)
    """
    return 0.0, optimal_lr(problem, batch) * 2


def escape_gain(problem: Problem) -> float:
    """C_1/C_p: how many times fewer steps than a single neuron, each at its γ_opt (leading logarithm).

    Parameters
    ----------
    problem : Problem
        Phase retrieval, as for `escape_time`.

    Examples
    --------
    >>> escape_gain(Problem("z1**2", "square", width=10_000, noise=1.0)).__round__(2)
    4.33
    """
    check_problem(problem)
    return contraction_of(1, problem.noise) / contraction_of(problem.p, problem.noise)


def learning_lr(
    problem: Problem, dim: int, threshold: float = 0.99, batch: int = 1
) -> Scaling:
    """The learning rate with the fewest steps until R = (1 − T) R(0), for a T near one: until the target is learned.

    The rate of `optimal_lr` has the fewest steps until the overlap has left zero, and for p ≥ 2 it does not lead to
    learning. Here the whole ODE is followed, from m² = 1/d, with all neurons alike (identical_neurons.py), where
    the escape leads; label noise has to leave a risk below the level.

    Parameters
    ----------
    problem, dim, threshold
        As for `escape_time`.
    batch : int
        n_b.

    Examples
    --------
    >>> two = Problem("z1**2", "square", width=2)
    >>> (
    ...     round(learning_lr(two, 10_000).coefficient, 2),
    ...     round(optimal_lr(two).coefficient, 2),
    ... )
    (0.23, 0.4)
    """
    from scipy import optimize

    check_problem(problem)
    n, n_b = positive_integer("dim", dim, 2), positive_integer("batch", batch)
    T = check_threshold(threshold)
    p, noise = problem.p, problem.noise

    def steps(x: float) -> float:
        """The logarithm of the steps, up to a constant; of rates that do not learn, more than any other."""
        return math.log(
            min(learning_time(p, n, math.exp(x), noise, T) / math.exp(x), 1e300)
        )

    grid = [math.log(0.97 * 0.7**i / contraction_of(p, noise)) for i in range(16)]
    values = [steps(x) for x in grid]
    best = min(range(len(grid)), key=values.__getitem__)
    if values[best] > 600:
        raise InputError(
            f"Argument `threshold` must be reached at some learning rate, but with noise {noise:g} the risk stays "
            f"above {1 - T:.4g} of its start."
        )
    low, high = grid[min(best + 1, len(grid) - 1)], grid[max(best - 1, 0)]
    found = optimize.minimize_scalar(
        steps, bounds=(low, high), method="bounded", options={"xatol": 1e-4}
    )
    return Scaling(math.exp(found.x) * p * n_b, -1.0)


def stationary_risk(problem: Problem, algorithm: SGD) -> float:
    """Excess risk at the stable fixed point of the projected ODE.

    p = 1: γΔ/(1 − 6γ), γ → γ/n_b. p ≥ 2: the fixed point with all neurons alike, m_j = m and Q_jl = q, found by
    Newton's method from the aligned state; it lies a little below the formula with γ → γ/p.

    Parameters
    ----------
    problem, algorithm : Problem, SGD
        Phase retrieval, as for `escape_time`; projected or spherical weights, lr = γ/d.

    Examples
    --------
    >>> problem, algorithm = (
    ...     Problem("z1**2", "square", noise=0.5),
    ...     SGD(lr="0.1/d", geometry="projected"),
    ... )
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

    from scipy import optimize

    guess = math.sqrt(1 - rho * noise / 2 / (1 - 6 * rho))
    solution = optimize.root(
        lambda x: drift(p, x[0], x[1], rho, noise), [guess, guess**2], tol=1e-13
    )
    return excess_risk(p, float(solution.x[0]), float(solution.x[1]))


def noise_ratio(problem: Problem, algorithm: SGD, dim: int | None = None) -> float:
    """ρ = d·lr/(p n_b), in the limit or at a dimension; refuses what the formulas do not describe."""
    check_problem(problem)
    expect(SGD, "algorithm", algorithm)
    plain = algorithm.geometry == "free"
    if (
        plain
        or algorithm.loss.name != "squared"
        or algorithm.momentum
        or algorithm.weight_decay
    ):
        raise InputError(
            "The formulas of escape hold for projected or spherical SGD on the squared loss without momentum and "
            f"weight decay, but got {algorithm!r}."
        )
    if algorithm.train_second_layer or algorithm.reused:
        raise InputError(
            "The formulas of escape hold for a fixed second layer and fresh samples."
        )
    if dim is None:
        if algorithm.mu or algorithm.delta != 1:
            reject(
                "algorithm", algorithm, "lr = γ/d and a batch that does not grow with d"
            )
        return algorithm.lr.coefficient / (problem.p * algorithm.batch.coefficient)
    return dim * algorithm.lr(dim) / (problem.p * algorithm.batch_at(dim))


def require_growth(problem: Problem, algorithm: SGD, rho: float) -> float:
    """c, or an error that says which learning rates are admissible."""
    c = growth_rate(problem, rho)
    if c <= 0:
        high = 1 / contraction_of(problem.p, problem.noise)
        raise InputError(
            f"Argument `lr` must satisfy d·lr/(p·n_b) < {high:.4g} for the overlap to grow, but {algorithm.lr} with "
            f"batch {algorithm.batch} and p = {problem.p} gives {rho:.4g}; optimal_lr(problem) is half the largest."
        )
    return c
