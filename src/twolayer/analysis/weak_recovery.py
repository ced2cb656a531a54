"""Weak recovery measured: the first step at which student and target overlap by η, and how it grows with d.

    T = min{ t : ‖M_t‖_F ≥ η },    median over runs ~ d^θ
    T_r = min{ t : ‖M_t e_r‖ ≥ η },    direction by direction

Runs of the exact chain at several dimensions, each from its own random start; where samples are used again there is no
chain of the overlaps, and weights are simulated instead. Directions are looked at on a logarithmic scale of steps. A
run that has not recovered by the last step is censored: it counts as later than all others. For odd ℓ a neuron with
m_0 < 0 is pushed to m = 0 and must wait for the noise, so its sign is the user's choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twolayer.analysis.escape_formulas import check_threshold
from twolayer.analysis.passage_times import first_passage
from twolayer.analysis.phases import phase_diagram
from twolayer.analysis.recovery_steps import RecoverySteps, recovery_steps
from twolayer.analysis.small_overlap import expansion
from twolayer.functions.activation import Activation
from twolayer.functions.exponents import analyse
from twolayer.methods.chain import Chain, tail_of
from twolayer.methods.vectors import Vectors
from twolayer.numerics.arguments import End, Options, Progress
from twolayer.numerics.errors import (
    InputError,
    choice,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.html import card, curves, field_summary
from twolayer.numerics.random import check_seed
from twolayer.numerics.statistics import (
    Fit,
    Median,
    median,
    median_power_law,
    resolved,
    told,
)
from twolayer.running.cost import Cost, cost_of
from twolayer.running.progress import monitor_for
from twolayer.running.solve import make_task, solve
from twolayer.running.support import check_description
from twolayer.running.work_bounds import check_work
from twolayer.task.algorithm import SGD
from twolayer.task.method import Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.scaling import positive_law

__all__ = [
    "WeakRecovery",
    "foreseen_recovery",
    "growth_of",
    "oriented",
    "weak_recovery",
]

SIGNS = ("positive", "negative", "random")
LOOKS = 300  # steps at which directions are looked at, spaced by some percent
LEAST = 64  # steps that every measurement may take: blocks of random numbers then have one size, compiled once
GAUSSIAN_ABOVE = 2**14
LATE = 0.19  # 15 % of the random starts have |m_0| √d below this
PATIENCE = 20  # times of a crossing of m = 0 by noise; for ℓ = 3 half of them take 5, and 1 % more than 18


@dataclass(frozen=True, eq=False)
class WeakRecovery:
    """Steps of weak recovery of all runs at all dimensions.

    Attributes
    ----------
    problem, algorithm : Problem, SGD
        What was measured.
    threshold : float
        η: the overlap at which a run has recovered.
    dims : tuple of int
        Dimensions, in the order in which they were given.
    steps : array (dims, seeds)
        T of every run; infinite where it is censored.
    limits : tuple of int
        Steps after which the runs of each dimension were given up.
    batch_sums : tuple of str
        How batches were summed at each dimension.
    growth : str or None
        How T should grow (`Phase.growth`); None where nothing should be learned, and where samples are used again.
    directions : array (dims, seeds, k) or None
        T_r of every direction, where it was asked for: the first step looked at, up to some percent late.

    Examples
    --------
    >>> algorithm = SGD(lr="0.2", batch="2*d", loss="correlation", geometry="projected")
    >>> steps = np.array(
    ...     [[8.0, 9.0, 8.0, 7.0, 9.0, 8.0], [9.0, 10.0, 8.0, 9.0, 11.0, 9.0]]
    ... )
    >>> known = (0.5, (100, 200), steps, (50, 50), ("exact", "exact"), "log d")
    >>> found = WeakRecovery(Problem("h2(z1)", "h2"), algorithm, *known)
    >>> found.mu, [median.value for median in found.medians]
    (1.0, [8.0, 9.0])
    """

    problem: Problem
    algorithm: SGD
    threshold: float
    dims: tuple[int, ...]
    steps: np.ndarray
    limits: tuple[int, ...]
    batch_sums: tuple[str, ...]
    growth: str | None
    directions: np.ndarray | None = None

    @property
    def mu(self) -> float:
        """μ of the batch size."""
        return self.algorithm.mu

    @property
    def delta(self) -> float:
        """δ of the learning rate."""
        return self.algorithm.delta

    @property
    def medians(self) -> list[Median]:
        """Median of T at each dimension, with its interval (95 %)."""
        return [median(row) for row in self.steps]

    @property
    def censored(self) -> list[int]:
        """Runs that did not recover, at each dimension."""
        return [int(np.isinf(row).sum()) for row in self.steps]

    @property
    def learned(self) -> bool:
        """Whether more than half of the runs recovered at the largest dimension."""
        return bool(np.isfinite(self.steps[int(np.argmax(self.dims))]).mean() > 0.5)

    @property
    def logarithmic(self) -> bool:
        """Whether T has a factor log d, as for ℓ = 2: exponents are then those of T/log d."""
        return self.growth is not None and self.growth.removesuffix(
            "log log d"
        ).endswith("log d")

    def fit(self) -> Fit | None:
        """Exponent of the median of T (of T/log d if `logarithmic`) against d; None where too few runs have a T > 0."""
        known = [
            i for i, row in enumerate(self.steps) if resolved(row) and row.min() > 0
        ]
        if len(known) < 2 or not self.learned or self.steps.shape[1] < 2:
            return None
        dims = np.array([self.dims[i] for i in known], dtype=float)
        rows = [
            self.steps[i] / (np.log(self.dims[i]) if self.logarithmic else 1.0)
            for i in known
        ]
        fit = median_power_law(dims, rows)
        return fit if math.isfinite(fit.error) else None

    @property
    def theta(self) -> float | None:
        """The fitted exponent θ."""
        fit = self.fit()
        return None if fit is None else fit.slope

    @property
    def theta_error(self) -> float | None:
        """Its standard error, from resampling the runs."""
        fit = self.fit()
        return None if fit is None else fit.error

    def __repr__(self) -> str:
        return field_summary(self, ("threshold", "dims", "steps", "growth"))

    def _repr_html_(self) -> str:
        rows = [
            (f"d = {d}", f"T = {m.value:.5g} (95 %: {m.low:.5g} to {m.high:.5g})")
            for d, m in zip(self.dims, self.medians, strict=True)
        ]
        if self.theta is not None:
            rows.append(("θ", f"{self.theta:.3g} ± {self.theta_error:.2g}"))
        known = [
            (d, m.value)
            for d, m in zip(self.dims, self.medians, strict=True)
            if math.isfinite(m.value)
        ]
        picture = ""
        if len(known) > 1:
            at, medians = np.log10(np.array(known)).T
            picture = curves(
                at,
                [medians],
                ("log₁₀ d", "log₁₀ T"),
                marks=list(zip(at, medians, strict=True)),
            )
        return card(f"Weak recovery at m = {self.threshold:g}", "", rows, picture)

    def __str__(self) -> str:
        rows = [
            f"d = {dim:<9} T = {told(m.value, 5):<9} (95 %: {m.interval(5)})"
            + (
                f"   {lost} of {self.steps.shape[1]} not in {limit} steps"
                if lost
                else ""
            )
            for dim, m, lost, limit in zip(
                self.dims, self.medians, self.censored, self.limits, strict=True
            )
        ]
        fit = self.fit()
        if fit is not None:
            rows.append(
                f"theta = {fit.slope:.4g} ± {fit.error:.2g}"
                + (" of T/log d" if self.logarithmic else "")
            )
        return "\n".join(rows)


def weak_recovery(
    problem: Problem,
    algorithm: SGD,
    dim: Sequence[int] | int,
    *,
    threshold: float = 0.5,
    seeds: int = 32,
    seed: int = 0,
    sign: str = "positive",
    start: str = "random",
    steps: End = None,
    batch_sums: str = "auto",
    per_direction: bool = False,
    progress: Progress = None,
    force: bool = False,
) -> WeakRecovery:
    """Measure the steps of weak recovery with the exact chain, or on explicit weights where samples come back.

    Parameters
    ----------
    problem : Problem
        A target of one or several directions, and a student.
    algorithm : SGD
        Projected or spherical; ``lr``, ``batch`` and ``dataset`` as laws in d.
    dim : int or sequence of int
        Dimensions at which to measure; several show how the steps grow with d.
    threshold : float
        η in (0, 1).
    seeds, seed : int
        Runs at each dimension, each from its own start.
    sign : str
        For odd ℓ: ``"positive"`` turns the starts towards the target, ``"negative"`` away from it, ``"random"`` leaves
        them. For even ℓ signs do not matter, nor where samples come back and the first drift leads nowhere.
    start : str
        ``"random"``: uniform on the sphere; ``"typical"``: |m_0| = d^{−1/2} exactly (one neuron, one direction).
    steps : int, Scaling or str, optional
        When to give up, a law in d; by default a multiple of what the formulas predict for these signs, or 10 000.
    batch_sums : str
        As for `Chain`; ``"auto"`` draws the sums over more than 2¹⁴ samples from their Gaussian limit, where tails are
        as heavy as those of h4 over more than 57 000 (`methods.chain.tail_of`).
    per_direction : bool
        Whether to measure every target direction by itself (``.directions``); runs then go on to the last step.
    progress, force
        As for `solve`; the bounds are for all dimensions together.

    Notes
    -----
    Cost per step and run: O(n_b) for exact sums; independent of n_b for Gaussian ones, and of d for both.

    Examples
    --------
    >>> algorithm = SGD(lr="0.2", batch="2*d", loss="correlation", geometry="projected")
    >>> result = weak_recovery(
    ...     Problem("h2(z1)", "h2"), algorithm, dim=(100, 200), seeds=16
    ... )
    >>> result.learned, result.steps.shape
    (True, (2, 16))
    """
    eta, seeds, sizes = _checked(
        problem, algorithm, dim, threshold, seeds, sign, start, batch_sums
    )
    seed, _ = (
        check_seed(seed),
        monitor_for(progress),
    )  # refused before anything is measured
    limits = tuple(
        _limit(problem, algorithm, size, eta, sign, start, steps) for size in sizes
    )
    facing = sign if not algorithm.reused or _draws(problem) else "random"
    rows, sums, each = [], [], []
    parts: list[tuple[Overlaps, Chain | Vectors, int]] = []
    for size, limit in zip(sizes, limits, strict=True):
        starts = _starts(problem, size, seeds, seed, facing, start)
        chosen, batch = batch_sums, algorithm.batch_at(size)
        if chosen == "auto" and batch > GAUSSIAN_ABOVE and not algorithm.reused:
            a = problem.a(seed) if starts.a is None else np.atleast_2d(starts.a)[0]
            chosen = (
                "gaussian"
                if batch > tail_of(problem, algorithm, starts.Q[0], starts.M[0], a)
                else "exact"
            )
        sums.append("gaussian" if chosen == "gaussian" else "exact")
        parts.append(
            (
                starts,
                Vectors(size) if algorithm.reused else Chain(size, batch_sums=chosen),
                limit,
            )
        )
    work = [
        (
            make_task(
                problem, algorithm, method, starts, steps=limit, save=1, seed=seed
            ),
            method,
        )
        for starts, method, limit in parts
    ]
    check_work(work, force)
    for starts, method, limit in parts:
        common: Options = {
            "steps": limit,
            "seed": seed,
            "progress": progress,
            "force": force,
        }
        if per_direction:
            looks = np.unique(
                np.round(np.geomspace(1, limit, min(LOOKS, limit)))
            ).astype(int)
            run = solve(
                problem,
                algorithm,
                method,
                starts,
                save=np.concatenate([[0], looks]),
                throw=False,
                **common,
            )
            M = run.M.values
            rows.append(_passed(run.step.values, np.sqrt((M**2).sum((2, 3))), eta))
            each.append(_passed(run.step.values, np.sqrt((M**2).sum(2)), eta))
        else:
            until = Until("overlap", eta)
            run = solve(
                problem, algorithm, method, starts, save=1, until=until, **common
            )
            began = np.sqrt((starts.M**2).sum((1, 2))) >= eta
            rows.append(np.where(began, 0.0, np.ceil(first_passage(run).steps)))
    return WeakRecovery(
        problem,
        algorithm,
        eta,
        sizes,
        np.array(rows),
        limits,
        tuple(sums),
        None if algorithm.reused else growth_of(problem, algorithm),
        np.array(each) if per_direction else None,
    )


def _passed(steps: np.ndarray, sizes: np.ndarray, eta: float) -> np.ndarray:
    """The first of the steps at which each size (seeds, steps, …) has reached the level; infinite where none has."""
    beyond = sizes >= eta
    return np.where(beyond.any(1), np.asarray(steps, float)[beyond.argmax(1)], np.inf)


def foreseen_recovery(
    problem: Problem,
    algorithm: SGD,
    dim: Sequence[int] | int,
    *,
    threshold: float,
    seeds: int,
    seed: int,
    sign: str,
) -> Cost:
    """What `weak_recovery` with these arguments would take: half of the steps after which runs are given up."""
    eta, seeds, sizes = _checked(
        problem, algorithm, dim, threshold, seeds, sign, "random", "auto"
    )
    parts = []
    for size in sizes:
        steps = max(1, _limit(problem, algorithm, size, eta, sign, "random", None) // 2)
        sums = "gaussian" if algorithm.batch_at(size) > GAUSSIAN_ABOVE else "exact"
        starts = _starts(problem, size, seeds, seed, sign, "random")
        parts.append(
            cost_of(
                problem,
                algorithm,
                Chain(size, batch_sums=sums),
                starts,
                steps=steps,
                save=1,
                seed=seed,
            )
        )
    return Cost.total(parts)


def _checked(
    problem: Problem,
    algorithm: SGD,
    dim: object,
    threshold: float,
    seeds: int,
    sign: str,
    start: str,
    batch_sums: str,
) -> tuple[float, int, tuple[int, ...]]:
    """Level, seeds and dimensions."""
    check_description(problem, algorithm)
    algorithm.check_plain("weak_recovery")
    problem.require_isotropic("weak_recovery")
    eta = check_threshold(threshold)
    choice("sign", sign, SIGNS)
    choice("start", start, ("random", "typical"))
    choice("batch_sums", batch_sums, ("auto", "exact", "gaussian"))
    seeds = positive_integer("seeds", seeds)
    sizes = tuple(
        positive_integer("dim", n, 2)
        for n in np.atleast_1d(np.asarray(dim, dtype=object))
    )
    require(len(sizes) > 0, "dim", dim, "at least one dimension")
    if algorithm.loss.student is None:
        raise InputError(
            f"Argument `loss` must be 'squared' or 'correlation', for which it is known where starts are drawn to and "
            f"how long recovery takes, but got {algorithm.loss.name!r}: measure it with solve(…, "
            f"until=Until('overlap', {eta:g})) and first_passage."
        )
    if algorithm.geometry == "free":
        reject(
            "geometry",
            "free",
            "'projected' or 'spherical': an overlap is a cosine only on the sphere",
        )
    if start == "typical" and (problem.p, problem.k) != (1, 1):
        reject("start", start, "'random' for several neurons or directions")
    return eta, seeds, sizes


def growth_of(problem: Problem, algorithm: SGD) -> str | None:
    """How T should grow with d, from the phase diagram."""
    diagram = phase_diagram(
        problem.target,
        loss=algorithm.loss.name,
        geometry=algorithm.geometry,
        activation=problem.activation,
        width=problem.p,
    )
    return diagram.at(algorithm.mu, algorithm.delta).growth


def _limit(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    eta: float,
    sign: str,
    start: str,
    steps: End,
) -> int:
    """Last step at a dimension: as asked, or late enough for 85 % of the starts."""
    if steps is not None:
        return max(1, round(positive_law(steps, "steps")(dim)))
    if (problem.p, problem.k) != (1, 1) or dim**-0.5 >= eta or algorithm.reused:
        return 10_000
    predicted = recovery_steps(problem, algorithm, dim, eta)
    late = 1.0 if start == "typical" else LATE ** min(0, 2 - predicted.ell)
    steps_ = (
        predicted.contracted if math.isfinite(predicted.contracted) else predicted.steps
    )
    if not math.isfinite(steps_):
        return 10_000
    wait = (
        0.0
        if sign == "positive" or predicted.ell % 2 == 0
        else PATIENCE * _crossing(predicted, dim)
    )
    return math.ceil(LEAST + max(3.0, 2 * late) * steps_ + wait)


def _crossing(predicted: RecoverySteps, dim: int) -> float:
    """Unit of time in which noise carries a neuron of the wrong sign across m = 0.

    dm = g m^{ℓ−1} dτ + √D dW with D = x/d has no parameter left in units of m_* = (D/g)^{1/ℓ} and τ_* = m_*²/D.
    """
    diffusion = predicted.contraction / dim
    return float((diffusion / predicted.growth) ** (2 / predicted.ell) / diffusion)


def _draws(problem: Problem) -> bool:
    """Whether the first drift leads anywhere: samples that come back show directions to students that it does not."""
    try:
        return expansion(problem.target, problem.activation).ell > 0
    except InputError:
        return False


def _starts(
    problem: Problem, dim: int, seeds: int, seed: int, sign: str, start: str
) -> Overlaps:
    starts = Overlaps.random(problem, dim, seed, size=seeds)
    if start == "typical":
        M = np.copysign(dim**-0.5, starts.M)
        starts = Overlaps(starts.Q, M, problem.P, starts.a, dim)
    return (
        starts
        if sign == "random"
        else oriented(problem, starts, away=sign == "negative")
    )


def oriented(problem: Problem, starts: Overlaps, away: bool = False) -> Overlaps:
    """Starts with every neuron turned so that its first drift leads to the target, or away from it.

    Turning w to −w changes the sign of the drift along the target only for odd ℓ; for even ℓ nothing is changed.
    """
    ell = expansion(problem.target, problem.activation).ell
    if ell % 2 == 0:
        return starts
    if not np.allclose(problem.P, np.eye(problem.k)):
        reject(
            "gram",
            problem.P.tolist(),
            "the identity for starts with a sign; use sign='random'",
        )
    c = Activation.of(problem.activation).hermite(ell)[ell]
    pull = np.zeros(starts.M.shape[:-1])
    for alpha, b in analyse(problem.target).hermite.items():
        if sum(alpha) == ell:
            weight = b / math.sqrt(math.prod(math.factorial(n) for n in alpha))
            pull = pull + weight * np.prod(starts.M ** np.array(alpha), axis=-1)
    a = problem.a() if starts.a is None else starts.a
    turn = np.where(c * a * pull < 0, -1.0, 1.0) * (-1.0 if away else 1.0)
    Q = starts.Q * turn[..., :, None] * turn[..., None, :]
    return Overlaps(Q, starts.M * turn[..., None], starts.P, starts.a, starts.dim)
