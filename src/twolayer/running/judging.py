"""Whether the runs of a method agree with a theory: a trial (numerics/verdict.py) of
the whole trajectory.

    observed, expected   mean over seeds − theory at every time, and 0
    error                its standard error
    allowance            what a finite dimension does (finite_size.py), and the error of
                         the theory's averages
    resolution           a part of the range, by default a tenth: a theory that is off
                         by more would have been seen by runs that agree with it

The limit leaves a chance `LEVEL` of a false alarm to all times, quantities and entries
of a method together (numerics/significance.py).

Entries are compared one by one: the risk, every M_jr, Q_jl and, where it is trained,
a_j. All methods start from the same overlaps, so neurons keep their numbers, and the
mean of an overlap that is never learned is zero at every d; the mean of its square
would be of order 1/d. The range of a quantity is how far the theory moves, or its
natural size where that is lost in the fluctuations d^(−1/2) of single runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.special import stdtr, stdtrit

from twolayer.numerics.significance import limit_of_curves, path_length
from twolayer.numerics.verdict import AGREE, DIFFER, UNDECIDED, Trial
from twolayer.running.dataset import quantities

__all__ = [
    "Correction",
    "Deviation",
    "Judgement",
    "at_times",
    "deviations",
    "entries",
    "judge",
    "linear",
    "ranges",
]

SHARE = 0.1
"""Part of the range that a theory may be off without being seen, for a verdict of
agreement, unless another one is asked for.
"""

ROUNDING = 1e-9  # of the natural size: below this numbers are equal


@dataclass(frozen=True)
class Judgement:
    """The verdict on one quantity of one method, with the numbers that it rests on.
    Made by `compare`.

    Attributes
    ----------
    method, dim, quantity
        What was judged: ``"risk"``, ``"M1"`` for the overlaps M_j1 of all neurons,
        ``"Q"``, ``"a"``.
    verdict, reason : str
        ``"agree"``, ``"differ"`` or ``"undecided"``, and why, where it does not agree;
        ``"suspect"`` where samples contradict the averages behind it.
    entry : str
        The entry that the numbers belong to: the one with the largest deviation over
        its tolerance.
    reference, mean, standard_error, deviation, allowance, tolerance : float
        At the end of the run.
    worst_ratio, worst_time, worst_deviation, worst_tolerance : float
        Where the deviation over the tolerance is largest; above 1 the two differ.
    seen : float
        A theory that is off by more than this at some time would have been seen.
    range, limit : float
        The range of the quantity, and c.
    resolution : float
        The part of the range up to which ``seen`` makes an agreement.
    """

    method: str
    dim: int
    quantity: str
    verdict: str
    reason: str = ""
    entry: str = ""
    reference: float = np.nan
    mean: float = np.nan
    standard_error: float = np.nan
    deviation: float = np.nan
    allowance: float = np.nan
    tolerance: float = np.nan
    worst_ratio: float = np.nan
    worst_time: float = np.nan
    worst_deviation: float = np.nan
    worst_tolerance: float = np.nan
    seen: float = np.nan
    range: float = np.nan
    limit: float = np.nan
    resolution: float = np.nan

    @property
    def figure(self) -> str:
        """The part of the range that the theory is nowhere off by more than."""
        part = self.seen / self.range if self.range > 0 else np.inf
        if part < 0.0995:
            return f"{part:.1%}"
        return f"{part:.0%}" if part < 9.995 else ">999%"

    @property
    def words(self) -> str:
        """The verdict with its figure, such as "agree to 4.1%"."""
        if np.isnan(self.seen):
            return self.verdict
        known = {
            AGREE: f"{AGREE} to {self.figure}",
            UNDECIDED: f"{UNDECIDED} ({self.figure})",
        }
        return known.get(self.verdict, self.verdict)


class Deviation(NamedTuple):
    """Mean over seeds less the theory and its standard error, (time, entries), and the
    path length of each entry.
    """

    mean: np.ndarray
    error: np.ndarray
    length: np.ndarray
    points: np.ndarray


class Correction(NamedTuple):
    """What finite size does to one quantity, (time, entries) or a number: a known
    shift, an allowance for the rest.
    """

    shift: float | np.ndarray
    allowance: float | np.ndarray


def entries(dataset: xr.Dataset) -> dict[str, np.ndarray]:
    """The quantities of a result, (seed, time, entries) each."""
    M, a = dataset.M.values, dataset.a.values
    found = {"risk": quantities(dataset)["risk"][..., None]}
    found |= {f"M{r + 1}": M[..., r] for r in range(M.shape[-1])}
    if "Q" in dataset:
        j, l = np.triu_indices(M.shape[2])
        found["Q"] = dataset.Q.values[..., j, l]
    if np.ptp(a, axis=1).max() > 0:
        found["a"] = a
    return found


def _label(quantity: str, entry: int, p: int) -> str:
    """An entry as people write it.

    >>> _label("M2", 0, 3), _label("Q", 1, 3)
    ('M[1,2]', 'Q[1,2]')
    """
    if quantity == "risk":
        return "risk"
    if quantity == "Q":
        j, l = (int(x[entry]) + 1 for x in np.triu_indices(p))
        return f"Q[{j},{l}]"
    return f"a[{entry + 1}]" if quantity == "a" else f"M[{entry + 1},{quantity[1:]}]"


def at_times(times: np.ndarray, values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Smooth curves at other times."""
    if times.shape == where.shape and np.allclose(times, where, rtol=1e-12, atol=0):
        return values
    from scipy.interpolate import (
        make_interp_spline,
    )  # takes a tenth of a second to import

    spline = make_interp_spline(times, values, k=min(3, len(times) - 1), axis=1)
    return np.asarray(spline(np.clip(where, times[0], times[-1])))


def linear(times: np.ndarray, values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Values (time, entries) at other times, point to point."""
    return np.stack([np.interp(where, times, column) for column in values.T], axis=1)


def deviations(
    result: xr.Dataset, theory: xr.Dataset, unit: float = 1.0
) -> dict[str, Deviation]:
    """The deviations of a result from a theory, seed by seed where the theory has as
    many.

    ``unit`` is how many units of time of the result make one of the theory.
    """
    mine, other, times = entries(result), entries(theory), result.time.values
    found = {}
    for name in mine.keys() & other.keys():
        gap = mine[name] - at_times(theory.time.values, other[name], times / unit)
        n = len(gap)
        mean = gap.mean(axis=0)
        if n == 1:
            zero = np.zeros(gap.shape[2])
            found[name] = Deviation(mean, np.zeros_like(mean), zero, np.ones_like(zero))
            continue
        gap -= mean
        spread = np.sqrt((gap**2).sum(axis=0) / (n - 1))
        loud = spread > ROUNDING * np.maximum(1.0, np.abs(mean))
        both = loud[1:] & loud[:-1]
        product = (gap[:, 1:] * gap[:, :-1]).sum(axis=0) / (n - 1)
        # a point without fluctuations is no step of the path
        correlation = np.where(
            both, product / np.where(both, spread[1:] * spread[:-1], 1.0), 1.0
        )
        found[name] = Deviation(
            mean, spread / np.sqrt(n), path_length(correlation), loud.sum(axis=0)
        )
    return {name: found[name] for name in mine if name in found}


def ranges(
    theory: xr.Dataset, gram: np.ndarray, dim: int | None
) -> dict[str, tuple[float, float]]:
    """The range and the natural size of every quantity of a theory."""
    curves = {name: values.mean(axis=0) for name, values in entries(theory).items()}
    moved = {name: float(np.ptp(curve, axis=0).max()) for name, curve in curves.items()}
    norm = float(np.abs(curves["Q"]).max()) if "Q" in curves else 1.0
    overlap = max(size for name, size in moved.items() if name.startswith("M"))
    out = {}
    for name, curve in curves.items():
        moves, natural = moved[name], float(np.abs(curve).max())
        if name == "risk":
            natural = float(theory.excess_risk.values.mean(axis=0).max())
        elif name.startswith("M"):
            moves, natural = overlap, float(np.sqrt(norm * np.diagonal(gram).max()))
        elif name == "Q":
            moves = max(moves, overlap)
        lost = 0.0 if dim is None else natural * dim**-0.5
        out[name] = (moves if moves > lost else natural), natural
    return out


def _own_errors(theory: xr.Dataset, times: np.ndarray) -> dict[str, np.ndarray]:
    """Standard errors of the theory's own averages, (time, entries), where it gives
    them.
    """
    named = {
        name: theory[f"{name}_error"]
        for name in ("risk", "M", "Q")
        if f"{name}_error" in theory
    }
    if not named:
        return {}
    known = entries(theory.assign(named))
    return {
        name: linear(theory.time.values, values.mean(axis=0), times)
        for name, values in known.items()
        if name in named or name[0] in named
    }


def _explain(trial: Trial, times: np.ndarray, seeds: int, share: float) -> str:
    """Say what a verdict that is not agreement rests on, and what would decide it;
    ``share`` is the resolution as a part of the range.
    """
    if trial.verdict == AGREE:
        return ""
    if trial.verdict == DIFFER:
        many = (trial.ratio > 1).any(axis=1).mean()
        when = f"at t = {times[_worst(trial)[0]]:.3g}, and at {many:.0%} of the times"
        return f"off by {trial.ratio.max():.1f} tolerances {when}"
    at = np.unravel_index(int(np.argmax(trial.seen)), trial.seen.shape)
    size = np.broadcast_to(trial.resolution, trial.seen.shape)[at] / share
    finite = float(np.broadcast_to(trial.allowance, trial.seen.shape)[at] / size)
    random = float(trial.noise[at] / size)
    gap = float(trial.deviation[at] / size)
    what = []
    give = []
    if random > share / 3:
        left = share - gap - (finite if finite < share / 2 else share / 4)
        enough = _enough(seeds, trial.limit, random, max(left, share / 5))
        what.append(f"noise may hide {random:.0%}")
        give.append(f"about {enough} seeds")
    if finite > share / 3:
        what.append(f"finite size may take {finite:.0%}")
        give.append("a larger dim")
    when = f"of the range at t = {times[at[0]]:.3g}"
    return f"{' and '.join(what)} {when}: give {' and '.join(give)}"


def _worst(trial: Trial) -> tuple[int, int]:
    """Time and entry of the largest ratio."""
    t, e = np.unravel_index(int(np.argmax(trial.ratio)), trial.ratio.shape)
    return int(t), int(e)


def _enough(seeds: int, limit: float, noise: float, wanted: float) -> int:
    """How many seeds bring c standard errors down, in steps of √2 and to two digits: c
    falls with their number too.

    >>> _enough(16, 7.0, 0.2, 0.1), _enough(4, 60.0, 2.0, 0.1)
    (46, 23)
    """
    tail = float(stdtr(seeds - 1, -limit))
    more = float(seeds)
    while -stdtrit(more - 1, tail) / limit * np.sqrt(seeds / more) * noise > wanted:
        more *= np.sqrt(2)
    digits = max(0, int(np.log10(more)) - 1)
    return int(np.ceil(more / 10**digits)) * 10**digits


def judge(
    label: str,
    dim: int | None,
    result: xr.Dataset,
    theory: xr.Dataset,
    scales: dict[str, tuple[float, float]],
    base: xr.Dataset | None = None,
    corrections: dict[str, Correction] | None = None,
    unit: float = 1.0,
    whole: float = 0.0,
    resolution: float = SHARE,
) -> list[Judgement]:
    """One verdict for each quantity, at the ``scales`` of `ranges`.

    ``base`` is what deviations are taken from where the theory itself is reached by a
    shift: the mean step at this dimension. ``corrections`` are the shift and the
    allowance of finite size, none where nothing is left out; ``unit`` is as for
    `deviations`. ``whole`` is the relative error of the sizes of batches, which are
    whole numbers: that part of the range is allowed for. ``resolution`` is the part of
    the range that the theory may be off for an agreement.
    """
    times, n = result.time.values, result.sizes["seed"]
    found = (
        deviations(result, theory, unit) if base is None else deviations(result, base)
    )
    own = _own_errors(theory, times / unit)
    averages = (
        0.0
        if own
        else float(json.loads(theory.attrs.get("notes", "{}")).get("engine_error", 0.0))
    )
    averages += whole
    limit = limit_of_curves(
        np.concatenate([x.length for x in found.values()]),
        np.concatenate([np.maximum(x.points, 1) for x in found.values()]),
        max(n - 1, 1),
    )
    rows = []
    for name, deviation in found.items():
        size, natural = scales[name]
        known = (corrections or {}).get(name, Correction(0.0, 0.0))
        mean = deviation.mean + known.shift
        error = np.hypot(deviation.error, own.get(name, 0.0))
        room = np.broadcast_to(known.allowance + averages * size, mean.shape)
        rounding = ROUNDING * natural
        trial = Trial(mean, 0.0, error, resolution * size, room + rounding, limit)
        values = entries(result)[name]
        still = (
            np.ptp(values, axis=1).max() <= rounding and np.abs(mean).max() <= rounding
        )
        if natural > 0 and not still:  # as the norms of normalised rows are
            t, e = _worst(trial)
            last = -1
            end = at_times(theory.time.values, entries(theory)[name], times[-1:] / unit)
            rows.append(
                Judgement(
                    method=label,
                    dim=dim or 0,
                    quantity=name,
                    verdict=trial.verdict,
                    reason=_explain(trial, times, n, resolution),
                    entry=_label(name, e, result.sizes["neuron"]),
                    reference=float(end[:, 0, e].mean()),
                    mean=float(values[:, -1, e].mean()),
                    standard_error=float(error[last, e]),
                    deviation=float(mean[last, e]),
                    allowance=float(room[last, e]),
                    tolerance=float(trial.tolerance[last, e]),
                    worst_ratio=float(trial.ratio[t, e]),
                    worst_time=float(times[t]),
                    worst_deviation=float(mean[t, e]),
                    worst_tolerance=float(trial.tolerance[t, e]),
                    seen=float(trial.seen.max()),
                    range=size,
                    limit=limit,
                    resolution=resolution,
                )
            )
    return rows
