"""From saddle to saddle: the plateaus of a run, how long each lasts, and which
directions are learned at its end.

    end of a plateau:   excess risk = (r_i + r_{i+1})/2,
                        r_i that of the run where it is closest to the saddle i
    its law:            t(d) = log(d)/(2κ) + const,
                        const from the run itself, where its d is known
    learned, V:         the smallest eigenvalue of  V Mᵀ Q⁺ M Vᵀ  exceeds ½

The last is the share of the directions V (orthonormal rows, P = I) that lies in the
span of the student's rows. The order in which the steps of the leap chain (`analyse`)
are learned is compared with the chain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from twolayer.analysis.exponents import analyse
from twolayer.analysis.stability.points import FixedPoint, FixedPoints, fixed_points
from twolayer.numerics.arguments import Progress
from twolayer.numerics.errors import expect
from twolayer.numerics.html import card, table
from twolayer.running.dataset import description_of
from twolayer.task.algorithm import SGD
from twolayer.task.problem import Problem

__all__ = ["Plateau", "Plateaus", "plateaus"]

LEARNED = 0.5


@dataclass(frozen=True, eq=False)
class Plateau:
    """A time that a run spends near a saddle.

    Attributes
    ----------
    begin, end : float
        Times; the end is infinite where the run is still there.
    excess_risk : float
        Of the run where it is closest to the saddle.
    point : FixedPoint
        The saddle.
    dim : int or None
        d of the run's start.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2", noise=0.2),
    ...     tl.SGD(lr="0.05/d", geometry="projected"),
    ... )
    >>> saddle = tl.fixed_points(
    ...     problem, algorithm, near=tl.Overlaps([[1.0]], [[0.0]])
    ... )[0]
    >>> stay = Plateau(begin=0.0, end=1.7, excess_risk=2.0, point=saddle, dim=10_000)
    >>> stay.length, round(stay.at(1_000_000) - stay.length, 3)
    (1.7, 0.828)
    """

    begin: float
    end: float
    excess_risk: float
    point: FixedPoint
    dim: int | None

    @property
    def length(self) -> float:
        """How long it lasts."""
        return self.end - self.begin

    @property
    def constant(self) -> float:
        """What the run adds to log(d)/(2κ); nan where d or the end is not known."""
        known = self.dim is not None and math.isfinite(self.end)
        return (
            self.length - self.point.lasts(float(self.dim or 1)) if known else math.nan
        )

    def at(self, dim: float) -> float:
        """The length log(d)/(2κ) + constant at another d = ``dim``; without a constant
        where that is not known.
        """
        return self.point.lasts(
            dim, 0.0 if math.isnan(self.constant) else self.constant
        )

    def __repr__(self) -> str:
        return f"Plateau({self})"

    def __str__(self) -> str:
        when = f"{self.begin:.4g} to {self.end:.4g}"
        return (
            f"{when}: excess risk {self.excess_risk:.4g}, {self.point.unstable}"
            f" growing, κ = {self.point.rate:.4g}"
        )


class Plateaus(list[Plateau]):
    """Plateaus in the order of a run.

    Parameters
    ----------
    found : sequence of Plateau
        The list itself.

    Attributes
    ----------
    learned : list of float
        When each step of the target's leap chain was learned; infinite where it was
        not.
    chain : list of (order, number of directions)
        The leap chain of the target.
    in_order : bool or str
        Whether the steps were learned one after the other as in the chain; "undecided"
        where the run ended before.
    points : FixedPoints
        All fixed points near the run, the one at its end too.

    Examples
    --------
    >>> none = Plateaus(
    ...     [], learned=[1.5], chain=[(2, 1)], in_order=True, points=FixedPoints()
    ... )
    >>> print(none)
    no plateau
    chain: 1 of order 2 at t = 1.5: in this order
    """

    def __init__(
        self,
        found: Sequence[Plateau],
        learned: Sequence[float],
        chain: Sequence[tuple[int, int]],
        in_order: bool | str,
        points: FixedPoints,
    ) -> None:
        super().__init__(found)
        self.learned, self.chain, self.in_order, self.points = (
            list(learned),
            list(chain),
            in_order,
            points,
        )

    def __str__(self) -> str:
        return "\n".join([*(map(str, self) if self else ["no plateau"]), self._order()])

    def _order(self) -> str:
        steps = [
            f"{n} of order {q} at t = {t:.4g}"
            for (q, n), t in zip(self.chain, self.learned, strict=True)
        ]
        words = {True: "in this order", False: "in another order"}
        return f"chain: {', '.join(steps)}: {words.get(self.in_order, 'undecided')}"  # type: ignore[arg-type]

    def _repr_html_(self) -> str:
        rows = [
            (
                f"{x.begin:.4g}",
                f"{x.end:.4g}",
                f"{x.excess_risk:.4g}",
                str(x.point.unstable),
                f"{x.point.rate:.4g}",
            )
            for x in self
        ]
        return card(
            "Plateaus",
            table(("from", "to", "excess risk", "growing", "κ"), rows),
            note=self._order(),
        )


def plateaus(
    problem: Problem,
    algorithm: SGD,
    run: xr.Dataset,
    *,
    seed: int = 0,
    tolerance: float = 1e-9,
    progress: Progress = None,
) -> Plateaus:
    """The plateaus of a run: saddles it passes, in their order, with their lengths and
    laws.

    Parameters
    ----------
    problem, algorithm : Problem, SGD
        Those of the run, which may be one of any method: the saddles are those of the
        limit d → ∞.
    run : Dataset
        From `solve`, with enough save points to show its plateaus.
    seed, tolerance, progress
        As in `fixed_points`.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2"),
    ...     tl.SGD(lr="0.05/d", geometry="projected"),
    ... )
    >>> start = tl.Overlaps([[1.0]], [[0.01]], dim=10_000)
    >>> run = tl.solve(problem, algorithm, tl.ODE(), start, time=4)
    >>> found = tl.stability.plateaus(problem, algorithm, run)
    >>> round(found[0].point.rate, 4), found.in_order
    (2.8, True)
    """
    expect(xr.Dataset, "run", run, " of `solve`")
    points = fixed_points(
        problem, algorithm, run, seed=seed, tolerance=tolerance, progress=progress
    )
    one = run.isel(seed=seed)
    times, risk = np.asarray(one.time.values, float), one.excess_risk.values
    saddles = [point for point in points if point.unstable]
    at = [int(np.argmin(np.abs(times - point.time))) for point in saddles]
    last = int(np.flatnonzero(np.isfinite(risk))[-1])
    found: list[Plateau] = []
    begin = float(times[0])
    for i, (point, where) in enumerate(zip(saddles, at, strict=True)):
        below = at[i + 1] if i + 1 < len(at) else last
        end = _falls(times, risk, where, (risk[where] + risk[below]) / 2)
        if end > begin and risk[where] > risk[below]:
            found.append(Plateau(begin, end, float(risk[where]), point, _dim(run)))
            begin = end
    return Plateaus(found, *_order(problem, one, times), points)


def _falls(times: np.ndarray, risk: np.ndarray, after: int, level: float) -> float:
    """When the risk falls to a level, between save points along the straight line of
    its logarithm.
    """
    below = np.flatnonzero(risk[after:] <= level)
    if not len(below):
        return math.inf
    i = after + int(below[0])
    if i == 0:
        return float(times[0])
    high, low = np.log(np.maximum(risk[i - 1 : i + 1], 1e-300))
    share = (high - math.log(max(level, 1e-300))) / (high - low)
    return float(times[i - 1] + share * (times[i] - times[i - 1]))


def _dim(run: xr.Dataset) -> int | None:
    """The dimension of the start, or else that of the method."""
    known = description_of(run)
    value = known["run"]["start_dim"] or known["method"].get("dim")
    return None if value is None else int(value)


def _order(
    problem: Problem, one: xr.Dataset, times: np.ndarray
) -> tuple[list[float], list[tuple[int, int]], bool | str]:
    """When each step of the chain is learned, the chain, and whether it was kept."""
    seen = analyse(problem)
    # overlaps with the orthonormal directions of the frame, λ* = L u
    along = one.M.values @ np.linalg.pinv(seen.frame).T
    learned: list[float] = []
    begin = 0
    for _, count in seen.chain:
        V = seen.directions[begin : begin + count]
        begin += count
        share = [_share(V, Q, M) for Q, M in zip(one.Q.values, along, strict=True)]
        above = np.flatnonzero(np.array(share) > LEARNED)
        learned.append(float(times[above[0]]) if len(above) else math.inf)
    if any(later < earlier for earlier, later in itertools.pairwise(learned)):
        return learned, seen.chain, False
    whole = bool(learned) and all(math.isfinite(t) for t in learned)
    return learned, seen.chain, True if whole else "undecided"


def _share(V: np.ndarray, Q: np.ndarray, M: np.ndarray) -> float:
    """The smallest share of the directions V in the span of the rows; 0 where overlaps
    are not finite.
    """
    if not (np.isfinite(Q).all() and np.isfinite(M).all()):
        return 0.0
    return float(
        np.linalg.eigvalsh(
            V @ M.T @ np.linalg.pinv(Q, rcond=1e-9, hermitian=True) @ M @ V.T
        )[0]
    )
