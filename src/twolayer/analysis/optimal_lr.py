"""Learning rates of an escape: with the fewest steps, the largest that grows, and what
is left at the end.

    c(ρ)        the largest rate of growth on the plateau,  ρ = d·lr/(N n_b),
                steps = t d/(ρ n_b) ~ log(d) d/(2 n_b ρ c(ρ))
    fewest      the maximum of ρ c(ρ); rows of norm one and a fixed second layer have
                c = c0 − c1 ρ, so that it is at c0/(2 c1)

Phase retrieval, σ = x², h = z1², a = 1, rows of norm one:

    ṁ_j = c m_j,   c = 4 (1 − ρ C_p),   C_p = 1 + 1/p + 4/p² + Δ/2,   ρ = γ/(p n_b),
        γ = d·lr
    fewest steps  γ_opt = p n_b/(2 C_p),  where c = 2;   escape needs  γ < p n_b/C_p;
                  gain  C_1/C_p → (12 + Δ)/(2 + Δ)
    at the end    p = 1:  R∞ = γΔ/(1 − 6γ)  (γ → γ/n_b);
                  p ≥ 2: the fixed point with all neurons alike

Square activation and target, one direction, second layer of ones, projected or
spherical weights, squared loss. γ_opt minimises the number of steps n = t p d/γ of the
linear escape, not the time t, and not what comes after: for p ≥ 2 the aligned state it
leads to is stable only for γ/(p n_b) < 1/6 (Δ = 0).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from twolayer.analysis.alike_neurons import Alike, fewest_to_learn
from twolayer.analysis.escape_formulas import (
    check_threshold,
    contraction_of,
    growth_of,
    noise_strength_of,
)
from twolayer.analysis.escape_setting import FlatSetting, Retrieval, retrieval_of
from twolayer.analysis.mediocre_path import follow, plateau_of
from twolayer.analysis.rate_search import highest
from twolayer.numerics.errors import (
    InputError,
    choice,
    expect,
    finite_number,
    flag,
    positive_integer,
    require,
)
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling

__all__ = [
    "RateWindow",
    "admissible_lr",
    "escape_gain",
    "growth_rate",
    "learning_lr",
    "noise_gain",
    "noise_ratio",
    "optimal_lr",
    "require_growth",
    "stationary_risk",
    "window_of",
]

TINY = 1e-6  # of ρ: gradient flow, but for rounding


class RateWindow(NamedTuple):
    """The ratios ρ at which overlaps grow, as far as they are known without more work.

    Attributes
    ----------
    best : float or None
        The ρ with the fewest steps.
    largest : float or None
        From here on nothing grows.
    grows : bool
        Whether anything grows at any ρ.
    """

    best: float | None
    largest: float | None
    grows: bool

    def refusal(self, setting: FlatSetting) -> str:
        """Why there is no escape at the ρ of a setting, and where there is one."""
        problem, algorithm = setting.problem, setting.algorithm
        if not self.grows:
            return (
                "Argument `problem` must have a target that a student with small"
                " overlaps sees at second order (information exponent 2), but at no"
                f" learning rate do overlaps grow exponentially: {problem!r}. Other"
                " exponents: tl.recovery, tl.weak_recovery."
            )
        if self.largest is None:
            return (
                "Argument `lr` must be smaller for the overlap to grow: with"
                f" {algorithm.lr} norms run away or overlaps shrink where nothing is"
                " learned yet (tl.escape.admissible_lr)."
            )
        return (
            f"Argument `lr` must satisfy d·lr/(p·n_b) < {self.largest:.4g} for the"
            f" overlap to grow, but {algorithm.lr} with batch {algorithm.batch} and p ="
            f" {problem.p} gives {setting.rho:.4g}; optimal_lr(problem) is the best."
        )


def window_of(setting: FlatSetting) -> RateWindow:
    """Best and largest ρ of neurons that are followed one by one; where norms or the
    second layer move, only whether anything grows as ρ → 0.
    """
    known = setting.retrieval
    if known is not None:
        largest = 1 / contraction_of(known.p, known.noise) / known.unit
        return RateWindow(largest / 2, largest, True)
    if not setting.one_by_one:
        return RateWindow(None, None, True)
    values, _ = setting.groups
    if not setting.stationary:
        rest = plateau_of(setting.at(TINY).flat, values)
        grows = rest is None or bool(setting.at(TINY).flat.rates(*rest).max() > 0)
        return RateWindow(None, None, grows)
    one = np.ones(len(values))
    slow, fast = (setting.at(rho).flat.rates(one, values) for rho in (0.0, 1.0))
    gain, loss = slow.ravel(), (slow - fast).ravel()
    grows = (gain > 0) & (loss > 0)
    if not grows.any():
        return RateWindow(None, None, bool((gain > 0).any()))
    gain, loss = gain[grows], loss[grows]
    # ρ c = gain ρ − loss ρ² of each kind of overlap; the fastest one escapes
    fewest = int(np.argmax(gain**2 / loss))
    best = float(gain[fewest] / (2 * loss[fewest]))
    return RateWindow(best, float((gain / loss).max()), True)


def growth_rate(problem: Problem, rho: float) -> float:
    """Rate c = 4 (1 − ρ C_p) at which the overlaps of phase retrieval grow, with ρ =
    d·lr/(p n_b).
    """
    known = require_retrieval(problem)
    return growth_of(known.p, known.noise, rho * known.unit) * known.unit


def noise_gain(problem: Problem, rho: float) -> float:
    """The s = ρ V_p/(2c) by which the noise of single samples multiplies the variance
    of the start, less one.
    """
    p, noise, unit = require_retrieval(problem)
    own = rho * unit
    return own * noise_strength_of(p, noise) / (2 * growth_of(p, noise, own))


def require_retrieval(problem: Problem) -> Retrieval:
    """Refuse what is not phase retrieval."""
    expect(Problem, "problem", problem)
    problem.require_isotropic("The theory of escape")
    known = retrieval_of(problem) if problem.labels.plain else None
    if known is None:
        raise InputError(
            "These formulas hold for a square activation and target in one direction,"
            " with a second layer of equal entries that makes the student equal the"
            " target when it is aligned (Problem('z1**2', 'square', width=p,"
            f" noise=Δ)), but got {problem!r}."
        )
    return known


def optimal_lr(
    problem: Problem,
    batch: int = 1,
    *,
    geometry: str = "projected",
    train_second_layer: bool = False,
    second_ratio: float = 1.0,
    dim: int | None = None,
    threshold: float = 0.1,
) -> Scaling:
    """The learning rate with the fewest steps of escape, γ_opt/d.

    Phase retrieval has γ_opt = p n_b/(2 + 2/p + 8/p² + Δ). It minimises 1/(γ c(γ)),
    with c the rate on the plateau, where norms and second layer have come to rest:
    that counts as d → ∞. With ``dim`` the whole linearised path is counted.

    Parameters
    ----------
    problem : Problem
        One whose start is flat, as for `escape_time`.
    batch : int
        n_b.
    geometry : str
        ``"projected"``, ``"spherical"`` or ``"free"``.
    train_second_layer : bool
        Whether the second layer moves.
    second_ratio : float
        second_lr/lr, where it does.
    dim : int, optional
        d, for the fewest steps until R = (1 − T) R(0) at this dimension.
    threshold : float
        T, with ``dim``.

    Examples
    --------
    >>> optimal_lr(Problem("z1**2", "square", noise=0.3)).coefficient * 12.3
    1.0
    >>> optimal_lr(Problem("z1**2", "square"), geometry="free").coefficient.__round__(3)
    0.152
    """
    setting = _setting(problem, batch, geometry, train_second_layer, second_ratio)
    if dim is not None:
        size = positive_integer("dim", dim, 2)
        return _law(setting, _fewest_steps(setting, size, check_threshold(threshold)))
    window = window_of(setting)
    if not window.grows:
        raise InputError(window.refusal(setting))
    best = window.best
    if best is None and not setting.one_by_one:
        from twolayer.analysis.mediocre_jacobian import best_ratio

        best = best_ratio(setting)
    return _law(setting, _fastest(setting) if best is None else best)


def _setting(
    problem: Problem,
    batch: int,
    geometry: str,
    train_second_layer: bool,
    second_ratio: float = 1.0,
) -> FlatSetting:
    expect(Problem, "problem", problem)
    n_b = positive_integer("batch", batch)
    choice("geometry", geometry, ("projected", "spherical", "free"))
    flag("train_second_layer", train_second_layer)
    ratio = finite_number("second_ratio", second_ratio, accepted="a positive number")
    require(ratio > 0, "second_ratio", second_ratio, "a positive number")
    lr = Scaling(problem.divisor * n_b * TINY, -1.0)
    algorithm = SGD(
        lr,
        n_b,
        geometry=geometry,
        train_second_layer=train_second_layer,
        second_lr=lr * ratio if train_second_layer else None,
    )
    return FlatSetting.of(problem, algorithm)


def _law(setting: FlatSetting, rho: float) -> Scaling:
    return Scaling(rho * setting.scale, -1.0)


def _fastest(setting: FlatSetting) -> float:
    """The ρ with the largest ρ c(ρ), c on the plateau."""
    values, _ = setting.groups

    def speed(rho: float) -> float:
        flat = setting.at(rho).flat
        rest = plateau_of(flat, values)
        return 0.0 if rest is None else rho * float(flat.rates(*rest).max())

    if plateau_of(setting.at(TINY).flat, values) is None:
        raise InputError(
            "Argument `dim` must be given, for with free rows and a trained second"
            " layer nothing comes to rest before overlaps grow, and the rate with the"
            " fewest steps depends on how long that takes."
        )
    return highest(speed, _scale(setting))


def _scale(setting: FlatSetting) -> float | None:
    """The best ρ with rows of norm one and a fixed second layer: an order of
    magnitude.
    """
    algorithm = setting.algorithm.replace(
        geometry="projected", train_second_layer=False, second_lr=None
    )
    return window_of(FlatSetting.of(setting.problem, algorithm)).best


def _fewest_steps(setting: FlatSetting, dim: int, T: float) -> float:
    """The ρ with the fewest steps of the annealed path at a dimension."""
    values, _ = setting.groups

    def speed(rho: float) -> float:
        path = follow(setting.at(rho).flat, values, dim)
        if path is None:
            return 0.0
        time = float(path.passages(dim, T, path.counts[None])[0])
        return rho / time if 0 < time < math.inf else 0.0

    return highest(speed, _scale(setting))


def admissible_lr(
    problem: Problem,
    batch: int = 1,
    *,
    geometry: str = "projected",
    train_second_layer: bool = False,
) -> tuple[float, Scaling]:
    """Open interval of learning rates at which the overlap grows, (0, p n_b/(C_p d))
    for phase retrieval.

    Parameters
    ----------
    problem, batch, geometry, train_second_layer
        As for `optimal_lr`.

    Examples
    --------
    >>> low, high = admissible_lr(Problem("z1**2", "square"))
    >>> low, round(high.coefficient, 4)
    (0.0, 0.1667)
    """
    setting = _setting(problem, batch, geometry, train_second_layer)
    window = window_of(setting)
    if not window.grows:
        raise InputError(window.refusal(setting))
    largest = window.largest
    return 0.0, _law(setting, _last(setting) if largest is None else largest)


def _last(setting: FlatSetting) -> float:
    """The ρ at which the growth on the plateau ends, or the plateau itself."""
    values, _ = setting.groups

    def grows(rho: float) -> bool:
        flat = setting.at(rho).flat
        rest = plateau_of(flat, values)
        return rest is not None and float(flat.rates(*rest).max()) > 0

    best = _fastest(setting)
    low, high = best, 2 * best
    while grows(high):
        low, high = high, 2 * high
    while high - low > 1e-4 * low:
        middle = (low + high) / 2
        if grows(middle):
            low = middle
        else:
            high = middle
    return low


def escape_gain(problem: Problem) -> float:
    """C_1/C_p: how many times fewer steps than a single neuron, each at its γ_opt
    (leading logarithm).

    Parameters
    ----------
    problem : Problem
        Phase retrieval, as for `escape_time`.

    Examples
    --------
    >>> escape_gain(Problem("z1**2", "square", width=10_000, noise=1.0)).__round__(2)
    4.33
    """
    p, noise, _ = require_retrieval(problem)
    return contraction_of(1, noise) / contraction_of(p, noise)


def learning_lr(
    problem: Problem, dim: int, threshold: float = 0.99, batch: int = 1
) -> Scaling:
    """The learning rate with the fewest steps until R = (1 − T) R(0), for a T near one:
    until the target is learned.

    The rate of `optimal_lr` has the fewest steps until the overlap has left zero, and
    for p ≥ 2 it does not lead to learning. Here the whole ODE is followed, from m² =
    1/d, with all neurons alike (identical_neurons.py), where the escape leads; label
    noise has to leave a risk below the level.

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
    p, noise, unit = require_retrieval(problem)
    n, n_b = positive_integer("dim", dim, 2), positive_integer("batch", batch)
    T = check_threshold(threshold)
    best = fewest_to_learn(p, n, 1 / contraction_of(p, noise), noise, T)
    if best is None:
        raise InputError(
            "Argument `threshold` must be reached at some learning rate, but with"
            f" noise {problem.noise:g} the risk stays above {1 - T:.4g} of its start."
        )
    return Scaling(best / unit * problem.divisor * n_b, -1.0)


def stationary_risk(problem: Problem, algorithm: SGD) -> float:
    """Excess risk at the stable fixed point of the projected ODE.

    p = 1: γΔ/(1 − 6γ), γ → γ/n_b. p ≥ 2: the fixed point with all neurons alike, m_j =
    m and Q_jl = q, found by Newton's method from the aligned state; it lies a little
    below the formula with γ → γ/p.

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
    p, noise, unit = require_retrieval(problem)
    size = problem.noise / noise if noise else 1.0  # b², in which the risk is measured
    if 6 * rho >= 1:
        highest = problem.divisor * algorithm.batch.coefficient / (6 * unit)
        raise InputError(
            f"Argument `lr` must be below {highest:.4g}/d"
            f" for the aligned state of {p} neurons to be a stable fixed point, but got"
            f" {algorithm.lr}."
        )
    if noise == 0:
        return 0.0
    if p == 1:
        require_growth(FlatSetting.of(problem, algorithm))
        return size * rho * noise / (1 - 6 * rho)

    from scipy import optimize

    alike = Alike(np.array([float(p)]), rho, noise)

    def motion(x: np.ndarray) -> np.ndarray:
        dm, dq = alike.drift(x[:1], x[1:].reshape(1, 1))
        return np.concatenate([dm, dq.ravel()])

    guess = math.sqrt(1 - rho * noise / 2 / (1 - 6 * rho))
    found = optimize.root(motion, [guess, guess**2], tol=1e-13).x
    return size * alike.excess_risk(found[:1], found[1:].reshape(1, 1))


def noise_ratio(problem: Problem, algorithm: SGD, dim: int | None = None) -> float:
    """ρ = d·lr/(p n_b) of phase retrieval in its own units, in the limit or at a
    dimension; refuses what its closed forms do not describe.
    """
    known = require_retrieval(problem)
    setting = FlatSetting.of(problem, algorithm, dim)
    if not setting.stationary:
        raise InputError(
            "These formulas hold for projected or spherical SGD with a fixed second"
            f" layer, but got {algorithm!r}."
        )
    return setting.rho * known.unit


def require_growth(setting: FlatSetting) -> None:
    """Refuse a learning rate at which the overlaps of phase retrieval do not grow."""
    window = window_of(setting)
    if window.largest is not None and setting.rho >= window.largest:
        raise InputError(window.refusal(setting))
