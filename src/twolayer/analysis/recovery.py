"""Search and descent: how many samples spherical online SGD needs to find a direction,
and to learn it.

    w ← w − (δ/N)(∇ℓ − (∇ℓ·w) w), then normalised;    one sample a step,  lr = δ/N
    weak recovery   τ_η     = first step with m ≥ η          (search)
    strong recovery τ_{1−η} = first step with m ≥ 1 − η
        (descent: what it takes beyond τ_η)
    two stages      δ ~ N^{−(k−2)/2} for the search, δ = O(1) for the descent,
                    which then takes ≤ C N samples
    lower bound     sup_{t ≤ αN} |m_t| → 0  for α ≪ α_c
    subspaces       σ_1 ≥ … ≥ σ_r: cosines of the principal angles between span(W) and
                    the directions V that the target depends on
                    weak: σ_1 ≥ η,    strong: σ_r ≥ 1 − η

One neuron and one direction: m counts with its sign where the information exponent is
odd. Where it is even, nothing in the search knows the sign, and |m| is meant. Several
neurons or directions: σ_r ≥ 1 − η says that span(W) contains V up to an angle arccos(1
− η), whatever single neurons do; for one neuron and one direction it is |m|.

The overlaps are a Markov chain of their own (methods/chain.py), so the descent is
simulated from the states in which the searches ended, with random numbers of its own. A
run that has not recovered when its samples are used up is censored: it counts as later
than all others, in medians and in probabilities.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twolayer.analysis.first_looks import first_looks
from twolayer.analysis.passage_times import crossing_curves, first_passage
from twolayer.analysis.population_loss import (
    PopulationLoss,
    critical_alpha,
    population_loss,
    sufficient_alpha,
)
from twolayer.analysis.recovery_steps import undisturbed_steps
from twolayer.analysis.small_overlap import expansion
from twolayer.analysis.subspaces import coordinates_of, spanned
from twolayer.analysis.target_coordinates import framed
from twolayer.analysis.weak_recovery import oriented
from twolayer.gaussian.moments import check_start
from twolayer.methods.chain import Chain
from twolayer.methods.ode import ODE
from twolayer.numerics.arguments import Options, Progress
from twolayer.numerics.errors import (
    InputError,
    Refused,
    choice,
    finite_number,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.html import card, escaped, field_summary
from twolayer.numerics.random import check_seed
from twolayer.numerics.statistics import Fraction, Median, median, told, wilson
from twolayer.running.cost import Cost, cost_of
from twolayer.running.progress import listener_for
from twolayer.running.solve import make_task, solve
from twolayer.running.support import check_description
from twolayer.running.work_bounds import check_work
from twolayer.task.algorithm import SGD
from twolayer.task.method import Snapshot, Until
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem
from twolayer.task.schedules import Law

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Recovery",
    "foreseen_recovery",
    "largest_overlaps",
    "recovery",
    "thresholds_of",
]

STARTS = {"positive": "hemisphere", "random": "sphere"}
# runs end after so many times what the flow takes from m = N^{−1/2}, unless told
# otherwise
PATIENCE = 10.0
LAST = 3.0  # the slowest of many runs takes so many times what the flow takes
# a run stops at the first of so many save points at which all its seeds have crossed
PIECES = 64
# and these are so many steps apart at least: blocks of random numbers then have one
# size, compiled once
STRIDE = 64
LOOKS = 2000  # at which the largest overlap of a run is looked for
# starts from which the ODE is followed, its save points, and how often the time doubles
FEW = 4
LEG = 64
DOUBLINGS = 9
LATER = 0x5EA7  # added to the seed of the search gives that of the descent


@dataclass(frozen=True, eq=False)
class Recovery:
    """Samples until recovery, of all runs.

    Attributes
    ----------
    weak, strong : array (seeds,)
        Samples until the overlap reaches the two thresholds; infinite where the run is
        censored.
    thresholds : tuple
        η and 1 − η.
    dim, information : int
        N and the information exponent k.
    samples : float
        At which runs are censored.
    overlap : str
        What the thresholds are for: ``"m"``, ``"|m|"`` where the information exponent
        is even, or ``"σ"``, the principal overlaps of several neurons or directions.
    weak_each, strong_each : array (seeds, r), optional
        Of several neurons or directions: samples until σ_1, …, σ_r have reached the two
        thresholds; ``weak`` is the first column of the one, ``strong`` the last of the
        other.

    Examples
    --------
    >>> weak, strong = np.array([100.0, 120.0, 90.0]), np.array([300.0, np.inf, 250.0])
    >>> found = Recovery(
    ...     weak, strong, (0.25, 0.75), dim=50, information=2, samples=500.0
    ... )
    >>> found.search.value, found.descents.tolist()
    (100.0, [200.0, inf, 160.0])
    """

    weak: np.ndarray
    strong: np.ndarray
    thresholds: tuple[float, float]
    dim: int
    information: int
    samples: float
    overlap: str = "m"
    weak_each: np.ndarray | None = None
    strong_each: np.ndarray | None = None

    @property
    def search(self) -> Median:
        """Median of the samples until weak recovery."""
        return median(self.weak)

    @property
    def descents(self) -> np.ndarray:
        """Samples from weak to strong recovery; infinite where the latter is not
        reached.
        """
        return np.subtract(
            self.strong,
            self.weak,
            out=np.full_like(self.strong, np.inf),
            where=self.recovered,
        )

    @property
    def descent(self) -> Median:
        """Median of the samples from weak to strong recovery, over runs that recovered
        weakly.
        """
        found = np.isfinite(self.weak)
        return (
            median(self.descents[found])
            if found.any()
            else Median(np.inf, np.inf, np.inf)
        )

    @property
    def descent_share(self) -> Median:
        """Median of the fraction of samples spent in the descent, over runs that
        recovered strongly.

        Runs that start there have spent none and are left out; NaN if no others are
        left.
        """
        spent = self.recovered & (self.strong > 0)
        if not spent.any():
            return Median(np.nan, np.nan, np.nan)
        return median(self.descents[spent] / self.strong[spent])

    @property
    def recovered(self) -> np.ndarray:
        """Which runs recovered strongly."""
        return np.isfinite(self.strong)

    @property
    def weak_probability(self) -> Fraction:
        """Fraction of runs that recovered weakly, with its 95 % Wilson interval."""
        return wilson(int(np.isfinite(self.weak).sum()), len(self.weak))

    @property
    def strong_probability(self) -> Fraction:
        """Fraction of runs that recovered strongly, with its 95 % Wilson interval."""
        return wilson(int(self.recovered.sum()), len(self.weak))

    @property
    def censored(self) -> tuple[int, int]:
        """How many runs are censored before weak and before strong recovery."""
        return int(np.isinf(self.weak).sum()), int(np.isinf(self.strong).sum())

    @property
    def critical_samples(self) -> float:
        """α_c N, the order of the number of samples that the search takes."""
        return self.dim * critical_alpha(self.dim, self.information)

    @property
    def sufficient_samples(self) -> float:
        """The number of samples far beyond which strong recovery is proved."""
        return self.dim * sufficient_alpha(self.dim, self.information)

    def __repr__(self) -> str:
        return field_summary(
            self, ("weak", "strong", "thresholds", "dim", "information", "samples")
        )

    def _repr_html_(self) -> str:
        weak, strong, descent = (
            escaped(line.split(": ", 1)[1]) for line in str(self).splitlines()[:3]
        )
        rows = list(
            zip((*self.levels, "descent"), (weak, strong, descent), strict=True)
        )
        picture = crossing_curves(
            (self.weak, self.strong), "samples", ("weak", "strong")
        )
        return card("Recovery", "", rows, picture)

    @property
    def levels(self) -> tuple[str, str]:
        """Weak and strong recovery as inequalities."""
        weak, strong = self.thresholds
        if self.overlap != "σ":
            return f"{self.overlap} ≥ {weak:g}", f"{self.overlap} ≥ {strong:g}"
        return f"largest σ ≥ {weak:g}", f"all σ ≥ {strong:g}"

    def __str__(self) -> str:
        weak, strong = self.levels
        rows = [
            _told_passage(weak, self.search, self.weak_probability),
            _told_passage(strong, median(self.strong), self.strong_probability),
        ]
        part = self.descent
        share = self.descent_share
        spent = (
            f", {share.value:.3g} of all (95 %: {share.interval(3)})"
            if np.isfinite(share.value)
            else ""
        )
        rows.append(
            f"descent: {told(part.value)} samples (95 %: {part.interval()}){spent}"
        )
        for level, each in zip(
            self.thresholds, (self.weak_each, self.strong_each), strict=True
        ):
            if each is not None and each.shape[1] > 1:
                rows.append(f"directions with σ ≥ {level:g}: {_told_count(each)}")
        return "\n".join(rows)


def _told_passage(level: str, part: Median, chance: Fraction) -> str:
    return (
        f"{level}: {told(part.value)} samples (95 %: {part.interval()}), probability"
        f" {chance.value:.3g} ({chance.low:.3g} to {chance.high:.3g})"
    )


def _told_count(each: np.ndarray) -> str:
    """After how many samples one, two, … principal overlaps are there."""
    parts = []
    for count, row in enumerate(each.T, 1):
        found = median(row).value
        late = f"{int(np.isinf(row).sum())} of {len(row)} never"
        when = f"after {told(found)}" if np.isfinite(found) else late
        parts.append(f"{count} {when}")
    return ", ".join(parts)


def recovery(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: float | tuple[float, float] = 0.25,
    *,
    start: str | Overlaps = "positive",
    samples: float | None = None,
    seeds: int = 64,
    seed: int = 0,
    descent_lr: Law | None = None,
    progress: Progress = None,
    force: bool = False,
) -> Recovery:
    """Measure weak and strong recovery of the directions of a target by the exact
    chain, from random starts.

    Parameters
    ----------
    problem : Problem
        One neuron and one direction of norm 1, where the overlap m counts; or at least
        as many neurons as the target depends on directions, where the principal
        overlaps σ_1 ≥ … ≥ σ_r of their span with that of the neurons count.
    algorithm : SGD
        On the sphere: ``geometry="spherical"`` (tangent gradient) or ``"projected"``.
    dim : int
        N.
    threshold : float or pair
        η in (0, ½): recovery is weak at m ≥ η and strong at m ≥ 1 − η (at σ_1 ≥ η and
        at σ_r ≥ 1 − η, all principal overlaps beyond it); or the two thresholds
        themselves.
    start : str or Overlaps
        ``"positive"``: uniform on the half sphere m > 0, several neurons turned so that
        their first drift leads to the target; ``"random"``: on the whole sphere; or
        unit overlaps, one start for all runs or one for each of the ``seeds``.
    samples : float, optional
        Runs are censored after so many samples; by default ten times what the flow
        takes from m = N^{−1/2}, or the ODE from random starts at N.
    seeds, seed : int
        Number of runs, and the seed of starts and runs.
    descent_lr : Scaling, str or float, optional
        Another learning rate for the descent: for k ≥ 3 the search needs steps of
        N^{−(k−2)/2}/N, and the descent takes of the order of N samples with steps of
        order 1/N. The state is followed up to weak recovery with one, and on with the
        other.
    progress, force
        As for `solve`.

    Returns
    -------
    Recovery
        ``.weak``, ``.strong`` (samples of every run), medians ``.search`` and
        ``.descent``, ``.weak_probability`` and ``.strong_probability`` with Wilson
        intervals, ``.censored``.

    Notes
    -----
    With an even information exponent directions are found up to their sign: there m
    stands for |m|. Subspaces are looked at every step at first and then 128 times while
    the samples double, so that their times are late by up to 1 %. A random span of p
    neurons has σ ≈ √(p/N) already. Cost about 0.1 µs for each step of each run of one
    neuron.

    Examples
    --------
    >>> algorithm = SGD(lr="0.2/d", geometry="spherical")
    >>> found = recovery(Problem("z1", "linear"), algorithm, dim=200, seeds=16)
    >>> found.weak_probability.value, bool(found.search.value < found.strong.max())
    (1.0, True)
    """
    listener_for(progress)  # refused before anything is computed
    plan = _prepared(
        problem, algorithm, dim, threshold, start, samples, seeds, seed, progress
    )
    later = algorithm if descent_lr is None else algorithm.replace(lr=descent_lr)
    common: Options = {"progress": progress, "force": force}
    if plan.coordinates is not None:
        return _subspace(problem, algorithm, later, plan, dim, seed, progress, force)
    return _single(problem, algorithm, later, plan, dim, seed, common)


def _single(
    problem: Problem,
    algorithm: SGD,
    later: SGD,
    plan: RecoveryPlan,
    dim: int,
    seed: int,
    common: Options,
) -> Recovery:
    """One neuron and one direction: every run stops at its own crossings."""
    seeds, steps = plan.starts.batch[0], plan.steps
    pieces = max(1, min(PIECES, steps // STRIDE))
    quantity = "overlap" if plan.overlap == "|m|" else "alignment"

    def run(
        algorithm: SGD, threshold: float, starts: Overlaps, seed: int
    ) -> xr.Dataset:
        return solve(
            problem,
            algorithm,
            Chain(dim),
            starts,
            steps=steps,
            save=pieces,
            seed=seed,
            until=Until(quantity, threshold),
            **common,
        )

    search = run(algorithm, plan.thresholds[0], plan.starts, seed)
    weak = first_passage(search).steps
    strong = np.full(seeds, np.inf)
    found = np.isfinite(weak)
    if found.any():
        # runs that found nothing start at the end: as many as before, for the same
        # compiled code
        there = np.where(found[:, None, None], search.M.values[:, -1], 1.0)
        states = Overlaps(search.Q.values[:, -1], there, dim=dim)
        descent = run(later, plan.thresholds[1], states, seed + LATER)
        # the state is that after the whole step in which the threshold was passed
        whole = np.ceil(weak) + first_passage(descent).steps
        strong = np.where(found & (whole <= steps), whole, np.inf)
    batch = algorithm.batch_at(dim)
    return Recovery(
        weak * batch,
        strong * batch,
        plan.thresholds,
        dim,
        plan.information,
        float(steps * batch),
        plan.overlap,
    )


def _subspace(
    problem: Problem,
    algorithm: SGD,
    later: SGD,
    plan: RecoveryPlan,
    dim: int,
    seed: int,
    progress: Progress,
    force: bool,
) -> Recovery:
    """Several neurons or directions: principal overlaps, look after look."""
    coordinates = plan.coordinates
    assert coordinates is not None
    low, high = plan.thresholds
    longest = make_task(
        problem, algorithm, Chain(dim), plan.starts, steps=plan.steps, save=1
    )
    check_work([(longest, Chain(dim))], force)

    def overlaps(seen: Snapshot) -> np.ndarray:
        return spanned(seen.Q, seen.M, coordinates)

    search = first_looks(
        problem,
        algorithm,
        Chain(dim),
        plan.starts,
        lambda seen: overlaps(seen)[..., :1],
        low,
        plan.steps,
        seed,
        progress,
    )
    count = coordinates.shape[1]
    each = np.full((len(search.steps), 2 * count), np.inf)
    found = np.flatnonzero(np.isfinite(search.steps[:, 0]))
    if found.size:
        # σ/η and σ/(1 − η) beside each other: one level for both
        def relative(seen: Snapshot) -> np.ndarray:
            sigma = overlaps(seen)
            return np.concatenate([sigma / low, sigma / high], axis=-1)

        descent = first_looks(
            problem,
            later,
            Chain(dim),
            search.there[found],
            relative,
            1.0,
            plan.steps,
            seed + LATER,
            progress,
        )
        each[found] = search.steps[found] + descent.steps
        each = np.where(each <= plan.steps, each, np.inf)
        each[:, 0] = search.steps[:, 0]
    each *= algorithm.batch_at(dim)
    weak, strong = each[:, :count], each[:, count:]
    return Recovery(
        weak[:, 0],
        strong[:, -1],
        plan.thresholds,
        dim,
        plan.information,
        float(plan.steps * algorithm.batch_at(dim)),
        plan.overlap,
        weak,
        strong,
    )


def largest_overlaps(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    samples: float,
    *,
    start: str | Overlaps = "random",
    seeds: int = 64,
    seed: int = 0,
    progress: Progress = None,
    force: bool = False,
) -> np.ndarray:
    """sup |m_t| of every run up to a number of samples, or of the largest principal
    overlap σ_1: what the lower bound says vanishes for α ≪ α_c.

    The chain is exact; it is looked at 2000 times, or at every step where there are
    fewer, and once more at the end.

    Parameters
    ----------
    problem, algorithm, dim
        As for `recovery`.
    samples : float
        αN.
    start : str or Overlaps
        As for `recovery`; by default the whole sphere.
    seeds, seed : int
        Number of runs, and what their starts and samples are drawn from.
    progress, force
        As for `solve`.

    Examples
    --------
    >>> algorithm = SGD(lr="0.05/d", loss="correlation", geometry="spherical")
    >>> largest = largest_overlaps(
    ...     Problem("h3(z1)", "h3"), algorithm, dim=1000, samples=1000, seeds=16
    ... )
    >>> largest.shape, bool(largest.max() < 0.3)
    ((16,), True)
    """
    eta = (0.25, 0.75)
    plan = _prepared(
        problem, algorithm, dim, eta, start, samples, seeds, seed, progress
    )
    run = solve(
        problem,
        algorithm,
        Chain(dim),
        plan.starts,
        steps=plan.steps,
        save=min(plan.steps, LOOKS),
        seed=seed,
        progress=progress,
        force=force,
    )
    if plan.coordinates is None:
        return np.asarray(np.abs(run.M.values[:, :, 0, 0]).max(1))
    return spanned(run.Q.values, run.M.values, plan.coordinates)[..., 0].max(1)


def foreseen_recovery(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: float | tuple[float, float] = 0.25,
    *,
    start: str | Overlaps = "positive",
    samples: float | None = None,
    seeds: int = 64,
    seed: int = 0,
) -> Cost:
    """What `recovery` with these arguments would take: runs end when the last one has
    recovered, or are censored.
    """
    plan = _prepared(problem, algorithm, dim, threshold, start, samples, seeds, seed)
    steps = plan.steps
    with contextlib.suppress(InputError):
        steps = min(steps, math.ceil(LAST * plan.expected() / plan.batch))
    return cost_of(
        problem, algorithm, Chain(dim), plan.starts, steps=steps, save=1, seed=seed
    )


@dataclass(frozen=True, eq=False)
class RecoveryPlan:
    """What is measured, from where and for how long."""

    thresholds: tuple[float, float]
    starts: Overlaps
    steps: int
    batch: int
    information: int
    overlap: str
    # A = M T of a subspace; None for one neuron and one direction
    coordinates: np.ndarray | None
    # samples that the flow takes to the strong threshold
    expected: Callable[[], float]


def _prepared(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: object,
    start: str | Overlaps,
    samples: float | None,
    seeds: int,
    seed: int,
    progress: Progress = None,
) -> RecoveryPlan:
    """The plan of a measurement, checked."""
    dim = positive_integer("dim", dim, 2)
    seeds = positive_integer("seeds", seeds)
    thresholds = thresholds_of(threshold)
    check_seed(seed)
    check_description(problem, algorithm)
    algorithm.check_gradient_steps("tl.recovery")
    algorithm.check_plain("recovery")
    if not isinstance(start, Overlaps):
        choice("start", start, STARTS)
    if samples is not None:
        finite_number("samples", samples, minimum=1.0, accepted="at least one batch")
    if algorithm.geometry == "free":
        raise InputError(
            "Argument `geometry` must be 'spherical' or 'projected' for recovery, but"
            " got 'free'."
        )
    if algorithm.train_second_layer or algorithm.momentum:
        raise InputError(
            "Argument `algorithm` must move the first layer alone and without momentum"
            " for recovery."
        )
    if (problem.p, problem.k) == (1, 1):
        landscape = population_loss(problem, algorithm.loss)
        information = landscape.information
        overlap = "m" if information % 2 else "|m|"
        coordinates = None
        starts = _starts_of(problem, start, dim, seed, seeds)

        def expected() -> float:
            return _expected(landscape, algorithm, dim, thresholds[1])

    else:
        problem.require_isotropic("recovery")
        found = coordinates_of(problem)
        _check_room(problem, found.shape[1], dim, thresholds[0], start)
        information = expansion(framed(problem).target, problem.activation).ell
        overlap = "σ"
        coordinates = found
        starts = _starts_of(problem, start, dim, seed, seeds)

        def expected() -> float:
            return _expected_of_subspace(
                problem, algorithm, dim, thresholds[1], found, starts, progress
            )

    batch = algorithm.batch_at(dim)
    if samples is None:
        samples = PATIENCE * expected()
    accepted = f"at least one batch, {batch}"
    number = finite_number("samples", samples, minimum=batch, accepted=accepted)
    return RecoveryPlan(
        thresholds,
        starts,
        int(number / batch),
        batch,
        information,
        overlap,
        coordinates,
        expected,
    )


def _starts_of(
    problem: Problem, start: str | Overlaps, dim: int, seed: int, seeds: int
) -> Overlaps:
    """One start for each seed."""
    if not isinstance(start, Overlaps):
        if (problem.p, problem.k) == (1, 1):
            return Overlaps.random(problem, dim, seed, seeds, STARTS[start])
        drawn = Overlaps.random(problem, dim, seed, seeds)
        return oriented(problem, drawn) if start == "positive" else drawn
    check_start(problem, start)
    if start.batch not in ((), (1,), (seeds,)):
        raise InputError(
            f"Argument `start` must hold one start or one for each of {seeds} seeds,"
            f" but has {start}."
        )
    norms = np.diagonal(start.Q, axis1=-2, axis2=-1)
    norm = float(norms.flat[np.argmax(np.abs(norms - 1))])
    if abs(norm - 1) > 1e-9:
        raise InputError(
            f"Argument `start` must lie on the sphere, Q = 1, but has Q = {norm:g}."
        )
    Q = np.broadcast_to(start.Q, (seeds, *start.Q.shape[-2:]))
    M = np.broadcast_to(start.M, (seeds, *start.M.shape[-2:]))
    a = start.a
    if a is not None and a.ndim > 1:
        a = np.broadcast_to(a, (seeds, a.shape[-1]))
    return Overlaps(Q, M, start.P, a, dim)


def _check_room(
    problem: Problem, count: int, dim: int, weak: float, start: str | Overlaps
) -> None:
    """Refuse spans that cannot hold the directions, and random ones that hold them."""
    if problem.p < count:
        raise InputError(
            "Argument `problem` must have at least as many neurons as its target"
            f" depends on directions, {count}, for recovery, but has {problem.p}."
        )
    first = math.sqrt(problem.p / dim)
    if first >= weak and not isinstance(start, Overlaps):
        raise InputError(
            f"Argument `threshold` must be beyond the overlap √(p/N) = {first:.3g} that"
            f" a random span of {problem.p} neurons has at N = {dim}, but is"
            f" {weak:g}."
        )


def thresholds_of(threshold: object) -> tuple[float, float]:
    """The thresholds of weak and strong recovery."""
    if not isinstance(threshold, tuple | list | np.ndarray) or np.ndim(threshold) == 0:
        accepted = "a number in (0, ½): recovery is weak at η and strong at 1 − η"
        weak = finite_number("threshold", threshold, accepted=accepted)
        require(0 < weak < 0.5, "threshold", threshold, accepted)
        return weak, 1 - weak
    accepted = "a number in (0, ½), or two values of the overlap, increasing, in (0, 1)"
    try:
        low, high = (
            finite_number("threshold", x, accepted=accepted) for x in threshold
        )
    except ValueError:
        reject("threshold", threshold, accepted)
    require(0 < low < high < 1, "threshold", threshold, accepted)
    return low, high


def _expected(
    landscape: PopulationLoss, algorithm: SGD, dim: int, threshold: float
) -> float:
    """Samples that the flow takes from m = N^{−1/2} to a threshold."""
    first = min(dim**-0.5, threshold / 2)
    try:
        return (
            landscape.time(first, threshold)
            / algorithm.lr(dim)
            * algorithm.batch_at(dim)
        )
    except InputError as error:
        raise InputError(
            "Argument `samples` must be given where the flow does not lead from a"
            f" random start to m = {threshold:g}: φ' is not negative in between."
        ) from error


def _expected_of_subspace(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: float,
    coordinates: np.ndarray,
    starts: Overlaps,
    progress: Progress,
) -> float:
    """Samples that the ODE takes from random starts until most of them have all
    principal overlaps beyond a threshold.
    """
    few = starts[:FEW]
    alone = undisturbed_steps(problem, algorithm, dim, threshold, every=True)
    steps = 0.0
    for leg in range(DOUBLINGS if math.isfinite(alone) else 0):
        span = math.ceil(alone * 2.0 ** max(0, leg - 1))
        try:
            run = solve(
                problem,
                algorithm,
                ODE(),
                few,
                steps=span,
                save=LEG,
                progress=progress,
            )
        except Refused as error:
            raise InputError(
                "Argument `samples` must be given where no limiting equation says how"
                f" long recovery takes: {error}"
            ) from error
        sigma = spanned(run.Q.values, run.M.values, coordinates)[..., -1]
        there = (sigma >= threshold).mean(0) > 0.5
        if there.any():
            steps += float(run.step.values[there.argmax()])
            return steps * algorithm.batch_at(dim)
        steps += span
        few = Overlaps(
            run.Q.values[:, -1], run.M.values[:, -1], few.P, run.a.values[:, -1], dim
        )
    raise InputError(
        "Argument `samples` must be given where the limiting equation does not lead"
        f" from random starts to principal overlaps of {threshold:g}: it was followed"
        f" for {steps:.4g} steps."
    )
