"""Weak recovery measured: the first step at which student and target overlap by η, and
how it grows with d.

    T = min{ t : ‖M_t‖_F ≥ η },    median over runs ~ d^θ
    T_r = min{ t : ‖M_t e_r‖ ≥ η },    direction by direction
    s = ‖M_0‖_F ~ √(p tr P / d),    s ≤ η/2
    T = d^θ A F_ℓ(s/η)^b,    b ~ N(0, 1)
    F_1 = 1 − x,    F_2 = 2 log(1/x)/log d,    F_ℓ = 1 − x^{ℓ−2}

Runs of the exact chain at several dimensions, each from its own random start; where
samples are used again there is no chain of the overlaps, and weights are simulated
instead. Directions are looked at on a logarithmic scale of steps. A run that has not
recovered by the last step is censored: it counts as later than all others. For odd ℓ a
neuron with m_0 < 0 is pushed to m = 0 and must wait for the noise, so its sign is the
user's choice.

The runs of different dimensions are independent: the dimension is folded into their
seeds. F_ℓ is what the leading order of the drift, dm ∝ m^{ℓ−1}, says a finite start
does to the power law. Random starts and higher orders make it more or less, so its
power b is fitted as far as the medians show it, and the rest is part of the error of θ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from twolayer.analysis.exponents import analyse
from twolayer.analysis.first_looks import first_looks
from twolayer.analysis.passage_times import first_passage
from twolayer.analysis.phases import phase_diagram
from twolayer.analysis.recovery_steps import (
    RecoverySteps,
    recovery_steps,
    undisturbed_steps,
)
from twolayer.analysis.small_overlap import expansion
from twolayer.analysis.target_coordinates import framed
from twolayer.functions.activation import Activation
from twolayer.methods.chain import Chain, tail_of
from twolayer.methods.vectors import Vectors
from twolayer.numerics.arguments import Array, End, Options, Progress
from twolayer.numerics.errors import (
    InputError,
    choice,
    finite_number,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.html import card, curves, field_summary
from twolayer.numerics.random import check_seed, fold
from twolayer.numerics.statistics import (
    Fit,
    Median,
    MedianLaw,
    median,
    median_law,
    plus_minus,
    resolved,
    told,
)
from twolayer.running.cost import Cost, cost_of
from twolayer.running.progress import listener_for
from twolayer.running.solve import make_task, solve
from twolayer.running.support import check_description
from twolayer.running.work_bounds import check_work
from twolayer.task.algorithm import SGD
from twolayer.task.method import Snapshot, Task, Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.scaling import positive_law

__all__ = [
    "WeakRecovery",
    "foreseen_recovery",
    "growth_of",
    "oriented",
    "threshold_of",
    "weak_recovery",
]

SIGNS = ("positive", "negative", "random")
NEAR = 0.9  # of the threshold: the factor of starts that are nearer is none
# steps that every measurement may take: blocks of random numbers then have one size,
# compiled once
LEAST = 64
GAUSSIAN_ABOVE = 2**14
GIVEN_UP = 10_000  # steps, where nothing is foreseen
# what neurons and directions take beyond the time of each by itself: they share the
# label, and a direction at random is not the one that is seen best
TOGETHER = 3
LATE = 0.19  # 15 % of the random starts have |m_0| √d below this
# times of a crossing of m = 0 by noise; for ℓ = 3 half of them take 5, and 1 % more
# than 18
PATIENCE = 20


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
        How T should grow (`Phase.growth`); None where nothing should be learned, and
        where samples are used again.
    directions : array (dims, seeds, k) or None
        T_r of every direction, where it was asked for: the first step looked at, up to
        some percent late.

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
        """Whether T has a factor log d, as for ℓ = 2: exponents are then those of T/log
        d.
        """
        return self.growth is not None and self.growth.removesuffix(
            "log log d"
        ).endswith("log d")

    @property
    def starts(self) -> list[float]:
        """Typical ‖M_0‖_F of a random start at each dimension."""
        return [_start_of(self.problem, d) for d in self.dims]

    def start_factor(self, dim: Array) -> np.ndarray:
        """F_ℓ: T over the power law of the phase diagram at dimensions ``dim``, to the
        leading order of the drift.

        Examples
        --------
        >>> algorithm = SGD("0.1/d", geometry="projected")
        >>> known = (np.ones((1, 8)), (50,), ("exact",), "d^1")
        >>> one = WeakRecovery(Problem("z1", "linear"), algorithm, 0.5, (64,), *known)
        >>> one.start_factor([64, 256]).tolist()
        [0.75, 0.875]
        """
        d = np.asarray(dim, dtype=float)
        size = np.array([_start_of(self.problem, x) for x in d.ravel()])
        x = np.minimum(size.reshape(d.shape) / self.threshold, NEAR)
        if self.logarithmic:
            return -2 * np.log(x) / np.log(d)
        return 1 - x ** max(1, _order(self.problem) - 2)

    def law(self, start: bool = True) -> MedianLaw | None:
        """The power law of the medians of T (of T/log d if `logarithmic`) and whether
        they bend; None where too few runs have a T > 0.

        ``start`` says whether the factor of a finite start is part of the law. Without
        it the error is that of the runs alone.
        """
        known = [i for i, row in enumerate(self.steps) if resolved(row)]
        if len(known) < 2 or not self.learned or self.steps.shape[1] < 2:
            return None
        dims = np.array([self.dims[i] for i in known], dtype=float)
        scale = np.log(dims) if self.logarithmic else np.ones(len(dims))
        law = median_law(
            dims,
            [self.steps[i] / scale[n] for n, i in enumerate(known)],
            factor=np.log(self.start_factor(dims)) if start else None,
            grain=1 / scale,
        )
        return law if math.isfinite(law.fit.error) else None

    @cached_property
    def _law(self) -> MedianLaw | None:
        return self.law()

    def fit(self) -> Fit | None:
        """Exponent of the median of T (of T/log d if `logarithmic`) against d; None
        where too few runs have a T > 0.

        Its error is that of the runs, of T in whole steps, and of what a finite start
        does to the power law.
        """
        return None if self._law is None else self._law.fit

    @property
    def bends(self) -> bool | None:
        """Whether log T bends against log d, so that no power law holds; None where
        fewer than three dimensions cannot tell.
        """
        return None if self._law is None else self._law.bends

    @property
    def theta(self) -> float | None:
        """The fitted exponent θ; None where no power law holds."""
        fit = self.fit()
        return None if fit is None or self.bends else fit.slope

    @property
    def theta_error(self) -> float | None:
        """Its standard error: that of the runs, which are independent at different
        dimensions, and that of a finite start.
        """
        fit = self.fit()
        return None if fit is None or self.bends else fit.error

    def exponent(self) -> str | None:
        """What the runs say about θ, in words; None where they say nothing.

        Examples
        --------
        >>> algorithm = SGD("0.1/d", geometry="projected")
        >>> steps = np.array([[90.0] * 8, [400.0] * 8, [2600.0] * 8])
        >>> known = (0.5, (100, 200, 400), steps, (9000,) * 3, ("exact",) * 3, "d^1")
        >>> print(WeakRecovery(Problem("z1", "linear"), algorithm, *known).exponent())
        theta: bends from 2.15 (d = 100 to 200) to 2.70 (d = 200 to 400), no power of d
        """
        law = self._law
        if law is None:
            return None
        unit = " of T/log d" if self.logarithmic else ""
        if not law.bends:
            few = " (two dimensions cannot tell whether it bends)"
            said = few if law.bends is None else ""
            return f"theta = {plus_minus(law.fit.slope, law.fit.error)}{unit}{said}"
        known = [
            d for d, row in zip(self.dims, self.steps, strict=True) if resolved(row)
        ]
        ends = sorted(known)
        first, last = law.local[0], law.local[-1]
        return (
            f"theta{unit}: bends from {first:.2f} (d = {ends[0]} to {ends[1]}) to"
            f" {last:.2f} (d = {ends[-2]} to {ends[-1]}), no power of d"
        )

    def __repr__(self) -> str:
        return field_summary(self, ("threshold", "dims", "steps", "growth"))

    def _repr_html_(self) -> str:
        rows = [
            (f"d = {d}", f"T = {m.value:.5g} (95 %: {m.low:.5g} to {m.high:.5g})")
            for d, m in zip(self.dims, self.medians, strict=True)
        ]
        said = self.exponent()
        if said is not None:
            rows.append(("θ", said.removeprefix("theta").lstrip(" =:")))
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
        rows = []
        for i, m in enumerate(self.medians):
            text = f"d = {self.dims[i]:<9} T = {told(m.value, 5):<9}"
            text += f" (95 %: {m.interval(5)})"
            if self.censored[i]:
                lost = f"{self.censored[i]} of {self.steps.shape[1]}"
                text += f"   {lost} not in {self.limits[i]} steps"
            early = int((self.steps[i] == 0).sum())
            if early:
                text += f"   {early} of {self.steps.shape[1]} start there"
            rows.append(text)
            if self.directions is not None:
                rows.append(f"              {self._each(i)}")
        said = self.exponent()
        return "\n".join(rows if said is None else [*rows, said])

    def _each(self, i: int) -> str:
        """Medians of the directions at one dimension."""
        assert self.directions is not None
        parts = []
        for r, row in enumerate(self.directions[i].T, 1):
            m = median(row)
            if math.isfinite(m.value):
                parts.append(f"z{r} {m.value:.5g} (95 %: {m.interval(5)})")
            else:
                lost = f"{int(np.isinf(row).sum())} of {len(row)}"
                parts.append(f"z{r} {lost} not in {self.limits[i]} steps")
        return ", ".join(parts)


def weak_recovery(
    problem: Problem,
    algorithm: SGD,
    dim: Sequence[int] | int,
    *,
    threshold: float | None = None,
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
    """Measure the steps of weak recovery with the exact chain, or on explicit weights
    where samples come back.

    Parameters
    ----------
    problem : Problem
        A target of one or several directions, and a student.
    algorithm : SGD
        Projected or spherical; ``lr``, ``batch`` and ``dataset`` as laws in d.
    dim : int or sequence of int
        Dimensions at which to measure; three or more show how the steps grow with d,
        and whether by a power of it.
    threshold : float, optional
        η, between twice the typical ‖M_0‖_F = √(p tr P/d) of a random start and the
        largest ‖M‖_F, √p for orthonormal directions; half of the latter by default.
    seeds, seed : int
        Runs at each dimension, each from its own start. Those at different dimensions
        are independent: the numbers of one depend on ``seed`` and on d alone.
    sign : str
        For odd ℓ: ``"positive"`` turns the starts towards the target, ``"negative"``
        away from it, ``"random"`` leaves them. For even ℓ signs do not matter, nor
        where samples come back and the first drift leads nowhere.
    start : str
        ``"random"``: uniform on the sphere; ``"typical"``: |m_0| = d^{−1/2} exactly
        (one neuron, one direction).
    steps : int, Scaling or str, optional
        When to give up, a law in d; by default a multiple of what the leading order of
        the drift predicts for these signs, and for several neurons or directions no
        less than 10 000.
    batch_sums : str
        As for `Chain`; ``"auto"`` draws the sums over more than 2¹⁴ samples from their
        Gaussian limit, where tails are as heavy as those of h4 over more than 57 000
        (`methods.chain.tail_of`).
    per_direction : bool
        Whether to measure every target direction by itself (``.directions``); runs then
        go on until all of them have passed η, or to the last step.
    progress, force
        As for `solve`; the bounds are for all dimensions together.

    Notes
    -----
    Cost per step and run: O(n_b) for exact sums; independent of n_b for Gaussian ones,
    and of d for both.

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
    # refused before anything is measured
    seed = check_seed(seed)
    listener_for(progress)
    cells = []
    for size in sizes:
        limit = _limit(
            problem, algorithm, size, eta, sign, start, steps, every=per_direction
        )
        facing = sign if not algorithm.reused or _draws(problem) else "random"
        own = fold(seed, size)
        starts = _starts(problem, size, seeds, own, facing, start)
        sums = _sums(problem, algorithm, size, starts, batch_sums, own)
        method = (
            Vectors(size)
            if algorithm.reused
            else Chain(
                size, batch_sums="gaussian" if sums == "gaussian" else batch_sums
            )
        )
        cells.append(_RunsAtOneDimension(starts, method, limit, own, sums))
    check_work([(cell.task(problem, algorithm), cell.method) for cell in cells], force)
    common: Options = {"progress": progress, "force": force}
    rows = []
    each = []
    for cell in cells:
        if per_direction:
            found = cell.directions(problem, algorithm, eta, progress)
            rows.append(found[:, 0])
            each.append(found[:, 1:])
        else:
            rows.append(cell.passages(problem, algorithm, eta, common))
    return WeakRecovery(
        problem,
        algorithm,
        eta,
        sizes,
        np.array(rows),
        tuple(cell.limit for cell in cells),
        tuple(cell.sums for cell in cells),
        None if algorithm.reused else growth_of(problem, algorithm),
        np.array(each) if per_direction else None,
    )


@dataclass(frozen=True, eq=False)
class _RunsAtOneDimension:
    """What is run at one dimension."""

    starts: Overlaps
    method: Chain | Vectors
    limit: int
    seed: int
    sums: str

    def task(self, problem: Problem, algorithm: SGD) -> Task:
        """As the bounds on work see it."""
        return make_task(
            problem,
            algorithm,
            self.method,
            self.starts,
            steps=self.limit,
            save=1,
            seed=self.seed,
        )

    def passages(
        self, problem: Problem, algorithm: SGD, eta: float, common: Options
    ) -> np.ndarray:
        """T of every run."""
        run = solve(
            problem,
            algorithm,
            self.method,
            self.starts,
            steps=self.limit,
            save=1,
            seed=self.seed,
            until=Until("overlap", eta),
            **common,
        )
        began = np.sqrt((self.starts.M**2).sum((1, 2))) >= eta
        return np.where(began, 0.0, np.ceil(first_passage(run).steps))

    def directions(
        self, problem: Problem, algorithm: SGD, eta: float, progress: Progress
    ) -> np.ndarray:
        """T and T_r of every run, (seeds, 1 + k)."""

        def sizes(seen: Snapshot) -> np.ndarray:
            square = seen.M**2
            whole = square.sum((2, 3))[..., None]
            return np.sqrt(np.concatenate([whole, square.sum(2)], axis=2))

        return first_looks(
            problem,
            algorithm,
            self.method,
            self.starts,
            sizes,
            eta,
            self.limit,
            self.seed,
            progress,
        ).steps


def _sums(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    starts: Overlaps,
    batch_sums: str,
    seed: int,
) -> str:
    """How batches are summed, "exact" or "gaussian"."""
    batch = algorithm.batch_at(dim)
    if batch_sums != "auto" or batch <= GAUSSIAN_ABOVE or algorithm.reused:
        return "gaussian" if batch_sums == "gaussian" else "exact"
    a = problem.a(seed) if starts.a is None else np.atleast_2d(starts.a)[0]
    tail = tail_of(problem, algorithm, starts.Q[0], starts.M[0], a)
    return "gaussian" if batch > tail else "exact"


def foreseen_recovery(
    problem: Problem,
    algorithm: SGD,
    dim: Sequence[int] | int,
    *,
    threshold: float | None,
    seeds: int,
    seed: int,
    sign: str,
) -> Cost:
    """What `weak_recovery` with these arguments would take: half of the steps after
    which runs are given up.
    """
    eta, seeds, sizes = _checked(
        problem, algorithm, dim, threshold, seeds, sign, "random", "auto"
    )
    parts = []
    for size in sizes:
        steps = max(1, _limit(problem, algorithm, size, eta, sign, "random", None) // 2)
        sums = "gaussian" if algorithm.batch_at(size) > GAUSSIAN_ABOVE else "exact"
        own = fold(seed, size)
        starts = _starts(problem, size, seeds, own, sign, "random")
        parts.append(
            cost_of(
                problem,
                algorithm,
                Chain(size, batch_sums=sums),
                starts,
                steps=steps,
                save=1,
                seed=own,
            )
        )
    return Cost.total(parts)


def _checked(
    problem: Problem,
    algorithm: SGD,
    dim: object,
    threshold: float | None,
    seeds: int,
    sign: str,
    start: str,
    batch_sums: str,
) -> tuple[float, int, tuple[int, ...]]:
    """Level, seeds and dimensions."""
    check_description(problem, algorithm)
    algorithm.check_gradient_steps("tl.weak_recovery")
    algorithm.check_plain("weak_recovery")
    problem.require_isotropic("weak_recovery")
    eta = threshold_of(problem, threshold)
    choice("sign", sign, SIGNS)
    choice("start", start, ("random", "typical"))
    choice("batch_sums", batch_sums, ("auto", "exact", "gaussian"))
    seeds = positive_integer("seeds", seeds)
    sizes = tuple(
        positive_integer("dim", n, 2)
        for n in np.atleast_1d(np.asarray(dim, dtype=object))
    )
    require(len(sizes) > 0, "dim", dim, "at least one dimension")
    different = len(set(sizes)) == len(sizes)
    require(different, "dim", dim, "dimensions that differ from each other")
    if algorithm.loss.student is None:
        raise InputError(
            "Argument `loss` must be 'squared' or 'correlation', for which it is known"
            " where starts are drawn to and how long recovery takes, but got"
            f" {algorithm.loss.name!r}: measure it with solve(…, until=Until('overlap',"
            f" {eta:g})) and first_passage."
        )
    if algorithm.geometry == "free":
        reject(
            "geometry",
            "free",
            "'projected' or 'spherical': an overlap is a cosine only on the sphere",
        )
    if start == "typical" and (problem.p, problem.k) != (1, 1):
        reject("start", start, "'random' for several neurons or directions")
    _check_distance(problem, eta, min(sizes))
    return eta, seeds, sizes


def threshold_of(problem: Problem, threshold: float | None) -> float:
    """η as it was given, or half of the largest ‖M‖_F of unit rows, √(p λ) with λ the
    largest eigenvalue of P.
    """
    largest = math.sqrt(problem.p * float(np.linalg.eigvalsh(problem.P)[-1]))
    if threshold is None:
        return largest / 2
    accepted = f"a number in (0, {largest:.4g})"
    level = finite_number("threshold", threshold, accepted=accepted)
    require(0 < level < largest, "threshold", threshold, accepted)
    return level


def _start_of(problem: Problem, dim: float) -> float:
    """Typical ‖M_0‖_F of unit rows drawn at random: E m_jr² = P_rr/d."""
    return math.sqrt(problem.p * float(np.trace(problem.P)) / dim)


def _check_distance(problem: Problem, eta: float, dim: int) -> None:
    """Refuse levels that random starts have half reached: the time from there is none
    of growth, and of no power law.
    """
    first = _start_of(problem, dim)
    if first > eta / 2:
        # a whole number must not be raised by its rounding
        enough = math.ceil(dim * (2 * first / eta) ** 2 * (1 - 1e-12))
        raise InputError(
            f"Argument `threshold` must be at least twice the ‖M‖_F = {first:.3g} that"
            f" random starts have at d = {dim}, but is {eta:.3g}: take a larger one, or"
            f" d of at least {enough}."
        )


def growth_of(problem: Problem, algorithm: SGD) -> str | None:
    """How T should grow with d, from the phase diagram."""
    diagram = phase_diagram(
        problem, loss=algorithm.loss.name, geometry=algorithm.geometry
    )
    return diagram.at(algorithm.mu, algorithm.delta).growth


def _order(problem: Problem) -> int:
    """ℓ; 1 where the first drift leads nowhere, and reused samples alone can learn."""
    try:
        return expansion(framed(problem).target, problem.activation).ell
    except InputError:
        return 1


def _limit(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    eta: float,
    sign: str,
    start: str,
    steps: End,
    every: bool = False,
) -> int:
    """Last step at a dimension: as asked, or late enough for 85 % of the starts."""
    if steps is not None:
        return max(1, round(positive_law(steps, "steps")(dim)))
    if algorithm.reused:
        return GIVEN_UP
    late = 1.0 if start == "typical" else LATE ** min(0, 2 - _order(problem))
    patience = max(3.0, 2 * late)
    if (problem.p, problem.k) != (1, 1):
        alone = undisturbed_steps(problem, algorithm, dim, eta, every)
        if not math.isfinite(alone):
            return GIVEN_UP
        # a direction drawn at random sees √k times less of each factor of the drift
        factor = TOGETHER * problem.k ** (_order(problem) / 2)
        return max(GIVEN_UP, math.ceil(factor * patience * alone))
    predicted = recovery_steps(problem, algorithm, dim, eta)
    expected = (
        predicted.contracted if math.isfinite(predicted.contracted) else predicted.steps
    )
    if not math.isfinite(expected):
        return GIVEN_UP
    wait = (
        0.0
        if sign == "positive" or predicted.ell % 2 == 0
        else PATIENCE * _crossing(predicted, dim)
    )
    return math.ceil(LEAST + patience * expected + wait)


def _crossing(predicted: RecoverySteps, dim: int) -> float:
    """Unit of time in which noise carries a neuron of the wrong sign across m = 0.

    dm = g m^{ℓ−1} dτ + √D dW with D = x/d has no parameter left in units of m_* =
    (D/g)^{1/ℓ} and τ_* = m_*²/D.
    """
    diffusion = predicted.contraction / dim
    return float((diffusion / predicted.growth) ** (2 / predicted.ell) / diffusion)


def _draws(problem: Problem) -> bool:
    """Whether the first drift leads anywhere: samples that come back show directions to
    students that it does not.
    """
    try:
        return expansion(framed(problem).target, problem.activation).ell > 0
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
    """Starts with every neuron turned so that its first drift leads to the target, or
    away from it.

    Turning w to −w changes the sign of the drift along the target only for odd ℓ; for
    even ℓ nothing is changed.
    """
    target, frame, _ = framed(problem)
    ell = expansion(target, problem.activation).ell
    if ell % 2 == 0:
        return starts
    c = Activation.of(problem.activation).hermite(ell)[ell]
    # M = A Lᵀ with the coordinates A of the rows in the frame of the target
    A = starts.M @ np.linalg.pinv(frame).T
    pull = np.zeros(A.shape[:-1])
    for alpha, b in analyse(target).hermite.items():
        if sum(alpha) == ell:
            weight = b / math.sqrt(math.prod(math.factorial(n) for n in alpha))
            pull = pull + weight * np.prod(A ** np.array(alpha), axis=-1)
    a = problem.a() if starts.a is None else starts.a
    turn = np.where(c * a * pull < 0, -1.0, 1.0) * (-1.0 if away else 1.0)
    Q = starts.Q * turn[..., :, None] * turn[..., None, :]
    return Overlaps(Q, starts.M * turn[..., None], starts.P, starts.a, starts.dim)
