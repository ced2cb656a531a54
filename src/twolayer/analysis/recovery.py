"""Search and descent: how many samples spherical online SGD needs to find a direction, and to learn it.

    w ← w − (δ/N)(∇ℓ − (∇ℓ·w) w), then normalised;    one sample a step,  lr = δ/N
    weak recovery   τ_η     = first step with m ≥ η          (search)
    strong recovery τ_{1−η} = first step with m ≥ 1 − η      (descent: what it takes beyond τ_η)
    two stages      δ ~ N^{−(k−2)/2} for the search, δ = O(1) for the descent, which then takes ≤ C N samples
    lower bound     sup_{t ≤ αN} |m_t| → 0  for α ≪ α_c

The overlap m is a Markov chain of its own (methods/chain.py), so the descent is simulated from the states in which the
searches ended, with random numbers of its own. A run that has not recovered when its samples are used up is censored:
it counts as later than all others, in medians and in probabilities.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twolayer.analysis.passage_times import crossing_curves, first_passage
from twolayer.analysis.population_loss import (
    PopulationLoss,
    critical_alpha,
    population_loss,
    sufficient_alpha,
)
from twolayer.gaussian.moments import check_start
from twolayer.methods.chain import Chain
from twolayer.numerics.arguments import Options, Progress
from twolayer.numerics.errors import (
    InputError,
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
from twolayer.running.progress import monitor_for
from twolayer.running.solve import solve
from twolayer.running.support import check_description
from twolayer.task.algorithm import SGD
from twolayer.task.method import Until
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
PATIENCE = 10.0  # runs end after so many times what the flow takes from m = N^{−1/2}, unless told otherwise
LAST = 3.0  # the slowest of many runs takes so many times what the flow takes
PIECES = 64  # a run stops at the first of so many save points at which all its seeds have crossed
STRIDE = 64  # and these are so many steps apart at least: blocks of random numbers then have one size, compiled once
LOOKS = 2000  # at which the largest overlap of a run is looked for
LATER = 0x5EA7  # added to the seed of the search gives that of the descent


@dataclass(frozen=True, eq=False)
class Recovery:
    """Samples until recovery, of all runs.

    Attributes
    ----------
    weak, strong : array (seeds,)
        Samples until the overlap reaches the two thresholds; infinite where the run is censored.
    thresholds : tuple
        η and 1 − η.
    dim, information : int
        N and the information exponent k.
    samples : float
        At which runs are censored.

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

    @property
    def search(self) -> Median:
        """Median of the samples until weak recovery."""
        return median(self.weak)

    @property
    def descents(self) -> np.ndarray:
        """Samples from weak to strong recovery; infinite where the latter is not reached."""
        return np.subtract(
            self.strong,
            self.weak,
            out=np.full_like(self.strong, np.inf),
            where=self.recovered,
        )

    @property
    def descent(self) -> Median:
        """Median of the samples from weak to strong recovery, over runs that recovered weakly."""
        found = np.isfinite(self.weak)
        return (
            median(self.descents[found])
            if found.any()
            else Median(np.inf, np.inf, np.inf)
        )

    @property
    def descent_share(self) -> Median:
        """Median of the fraction of samples spent in the descent, over runs that recovered strongly.

        Runs that start there have spent none and are left out; NaN if no others are left.
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
            escaped(line.split(": ", 1)[1]) for line in str(self).splitlines()
        )
        levels = [f"m ≥ {level:g}" for level in self.thresholds]
        rows = list(zip((*levels, "descent"), (weak, strong, descent), strict=True))
        picture = crossing_curves(
            (self.weak, self.strong), "samples", ("weak", "strong")
        )
        return card("Recovery", "", rows, picture)

    def __str__(self) -> str:
        (a, b), (p, q) = (
            self.thresholds,
            (self.weak_probability, self.strong_probability),
        )
        rows = []
        for threshold, part, chance in (
            (a, self.search, p),
            (b, median(self.strong), q),
        ):
            rows.append(
                f"m ≥ {threshold:g}: {told(part.value)} samples (95 %: {part.interval()}), probability "
                f"{chance.value:.3g} ({chance.low:.3g} to {chance.high:.3g})"
            )
        part, share = self.descent, self.descent_share
        spent = (
            f", {share.value:.3g} of all (95 %: {share.interval(3)})"
            if np.isfinite(share.value)
            else ""
        )
        rows.append(
            f"descent: {told(part.value)} samples (95 %: {part.interval()}){spent}"
        )
        return "\n".join(rows)


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
    """Measure weak and strong recovery of a single-index task by the exact chain, from random starts.

    Parameters
    ----------
    problem : Problem
        One neuron, one direction of norm 1.
    algorithm : SGD
        On the sphere: ``geometry="spherical"`` (tangent gradient) or ``"projected"``.
    dim : int
        N.
    threshold : float or pair
        η in (0, ½): recovery is weak at m ≥ η and strong at m ≥ 1 − η; or the two thresholds themselves.
    start : str or Overlaps
        ``"positive"``: uniform on the half sphere m > 0; ``"random"``: on the whole sphere; or unit overlaps, one
        start for all runs or one for each of the ``seeds``.
    samples : float, optional
        Runs are censored after so many samples; by default ten times what the flow takes from m = N^{−1/2}.
    seeds, seed : int
        Number of runs, and the seed of starts and runs.
    descent_lr : Scaling, str or float, optional
        Another learning rate for the descent: for k ≥ 3 the search needs steps of N^{−(k−2)/2}/N, and the descent takes
        of the order of N samples with steps of order 1/N. The state is followed up to weak recovery with one, and on
        with the other.
    progress, force
        As for `solve`.

    Returns
    -------
    Recovery
        ``.weak``, ``.strong`` (samples of every run), medians ``.search`` and ``.descent``, ``.weak_probability`` and
        ``.strong_probability`` with Wilson intervals, ``.censored``.

    Notes
    -----
    An even loss is recovered up to its sign: there m stands for |m|. Cost about 0.1 µs for each step of each run.

    Examples
    --------
    >>> algorithm = SGD(lr="0.2/d", geometry="spherical")
    >>> found = recovery(Problem("z1", "linear"), algorithm, dim=200, seeds=16)
    >>> found.weak_probability.value, bool(found.search.value < found.strong.max())
    (1.0, True)
    """
    monitor_for(progress)  # refused before anything is computed
    thresholds, landscape, starts, steps = _prepared(
        problem, algorithm, dim, threshold, start, samples, seeds, seed
    )
    batch = algorithm.batch_at(dim)
    pieces = max(1, min(PIECES, steps // STRIDE))
    quantity = "overlap" if landscape.even else "alignment"

    later = algorithm if descent_lr is None else algorithm.replace(lr=descent_lr)

    def run(
        algorithm: SGD, threshold: float, starts: Overlaps, seed: int
    ) -> xr.Dataset:
        options: Options = {
            "steps": steps,
            "save": pieces,
            "until": Until(quantity, threshold),
        }
        return solve(
            problem,
            algorithm,
            Chain(dim),
            starts,
            seed=seed,
            progress=progress,
            force=force,
            **options,
        )

    search = run(algorithm, thresholds[0], starts, seed)
    weak, strong = first_passage(search).steps, np.full(seeds, np.inf)
    found = np.isfinite(weak)
    if found.any():
        # runs that found nothing start at the end: as many as before, for the same compiled code
        there = np.where(found[:, None, None], search.M.values[:, -1], 1.0)
        further = first_passage(
            run(
                later,
                thresholds[1],
                Overlaps(search.Q.values[:, -1], there, dim=dim),
                seed + LATER,
            )
        ).steps
        # the state is that after the whole step in which the threshold was passed
        strong = np.where(
            found & (np.ceil(weak) + further <= steps), np.ceil(weak) + further, np.inf
        )
    return Recovery(
        weak * batch,
        strong * batch,
        thresholds,
        dim,
        landscape.information,
        float(steps * batch),
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
    """sup |m_t| of every run up to a number of samples: what the lower bound says vanishes for α ≪ α_c.

    The chain is exact; it is looked at 2000 times, or at every step where there are fewer, and once more at the end.

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
    _, _, starts, steps = _prepared(
        problem, algorithm, dim, eta, start, samples, seeds, seed
    )
    save = min(steps, LOOKS)
    like: Options = {"seed": seed, "progress": progress, "force": force}
    run = solve(problem, algorithm, Chain(dim), starts, steps=steps, save=save, **like)
    return np.asarray(np.abs(run.M.values[:, :, 0, 0]).max(1))


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
    """What `recovery` with these arguments would take: runs end when the last one has recovered, or are censored."""
    thresholds, landscape, starts, steps = _prepared(
        problem, algorithm, dim, threshold, start, samples, seeds, seed
    )
    with contextlib.suppress(InputError):
        expected = _expected(
            landscape, algorithm, dim, thresholds[1]
        ) / algorithm.batch_at(dim)
        steps = min(steps, math.ceil(LAST * expected))
    return cost_of(
        problem, algorithm, Chain(dim), starts, steps=steps, save=1, seed=seed
    )


def _prepared(
    problem: Problem,
    algorithm: SGD,
    dim: int,
    threshold: object,
    start: str | Overlaps,
    samples: float | None,
    seeds: int,
    seed: int,
) -> tuple[tuple[float, float], PopulationLoss, Overlaps, int]:
    """Thresholds, landscape, starts and the number of steps, checked."""
    dim, seeds = positive_integer("dim", dim, 2), positive_integer("seeds", seeds)
    thresholds = thresholds_of(threshold)
    check_seed(seed)
    check_description(problem, algorithm)
    algorithm.check_plain("recovery")
    if not isinstance(start, Overlaps):
        choice("start", start, STARTS)
    if samples is not None:
        finite_number("samples", samples, minimum=1.0, accepted="at least one batch")
    landscape = population_loss(problem, algorithm.loss)
    if algorithm.geometry == "free":
        raise InputError(
            "Argument `geometry` must be 'spherical' or 'projected' for recovery, but got 'free'."
        )
    if algorithm.train_second_layer or algorithm.momentum:
        raise InputError(
            "Argument `algorithm` must move the first layer alone and without momentum for recovery."
        )
    batch = algorithm.batch_at(dim)
    if samples is None:
        samples = PATIENCE * _expected(landscape, algorithm, dim, thresholds[1])
    steps = int(
        finite_number(
            "samples", samples, minimum=batch, accepted=f"at least one batch, {batch}"
        )
        / batch
    )
    if isinstance(start, Overlaps):
        check_start(problem, start)
        if start.batch not in ((), (1,), (seeds,)):
            raise InputError(
                f"Argument `start` must hold one start or one for each of {seeds} seeds, but has {start}."
            )
        norm = float(start.Q.flat[np.argmax(np.abs(start.Q - 1))])
        if abs(norm - 1) > 1e-9:
            raise InputError(
                f"Argument `start` must lie on the sphere, Q = 1, but has Q = {norm:g}."
            )
        Q, M = (np.broadcast_to(x, (seeds, 1, 1)) for x in (start.Q, start.M))
        starts = Overlaps(Q, M, dim=dim)
    else:
        starts = Overlaps.random(problem, dim, seed, seeds, STARTS[start])
    return thresholds, landscape, starts, steps


def thresholds_of(threshold: object) -> tuple[float, float]:
    """The thresholds of weak and strong recovery."""
    if not isinstance(threshold, tuple | list | np.ndarray):
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
            f"Argument `samples` must be given where the flow does not lead from a random start to m = {threshold:g}: "
            f"φ' is not negative in between."
        ) from error
