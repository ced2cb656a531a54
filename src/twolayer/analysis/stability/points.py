"""Fixed points of the limit, and what leads away from them.

    F(x) = 0,    J = ∂F/∂x,    n_u = number of eigenvalues of J with positive real part,
        κ = the largest real part
    a saddle that is left along κ from an amplitude of order d^(−1/2) lasts
        t ≈ log(d)/(2κ) + const

Starting points are those at which a run stalls, where |F| has a minimum along it, or
any that are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from twolayer.analysis.stability.linear import SINGULAR, Flow
from twolayer.analysis.stability.newton import settle
from twolayer.equations.state import Overlap
from twolayer.numerics.arguments import Progress
from twolayer.numerics.errors import (
    InputError,
    Interrupted,
    Refused,
    finite_number,
    positive_integer,
    reject,
    require,
)
from twolayer.numerics.html import card, matrix, table
from twolayer.numerics.precision import float64
from twolayer.running.progress import listener_for
from twolayer.running.support import check_description
from twolayer.task.algorithm import SGD
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["FixedPoint", "FixedPoints", "fixed_points"]

# real parts below this share of the largest eigenvalue are neither growth nor decay
NEUTRAL = 1e-6
SAME = 1e-6  # two points of the same risk and spectrum are one, or images of each other
CANDIDATES = 8  # stalled points of a run, at most
# of the extent of a run: stalled points closer than this lead to one fixed point
APART = 0.05


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A point at which nothing moves as d → ∞. Made by `fixed_points`.

    Attributes
    ----------
    overlaps : Overlaps
        Where it is.
    excess_risk : float
        The risk there, without what label noise adds.
    residual : float
        The largest |dx/dt| that is left.
    eigenvalues : array (F,)
        Of the linearisation, the largest real part first; complex only where some are.
    unstable, neutral : int
        How many grow, and how many neither grow nor decay.
    rate : float
        κ, the largest real part: how fast the point is left if it is positive, else how
        fast it is reached in the end.
    distance : float
        How far the run or the start stayed away from it, in the largest entry.
    time : float
        When the run came closest; nan where there is no run.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2", noise=0.2),
    ...     tl.SGD(lr="0.05/d", geometry="projected"),
    ... )
    >>> point = tl.fixed_points(problem, algorithm, near=tl.Overlaps([[1.0]], [[0.0]]))[
    ...     0
    ... ]
    >>> (
    ...     point.unstable,
    ...     round(point.rate, 6),
    ...     round(point.excess_risk, 6),
    ...     round(point.lasts(10_000), 3),
    ... )
    (1, 2.78, 2.0, 1.657)
    """

    overlaps: Overlaps
    excess_risk: float
    residual: float
    eigenvalues: np.ndarray
    unstable: int
    neutral: int
    rate: float
    distance: float
    time: float
    _flow: Flow = field(repr=False)
    _vectors: np.ndarray = field(repr=False)

    @property
    def kind(self) -> str:
        """In one word: saddle, stable or marginal."""
        return "saddle" if self.unstable else "marginal" if self.neutral else "stable"

    def mode(self, number: int = 0) -> Overlap:
        """The eigenvector that belongs to an eigenvalue, as changes Q (p, p), M (p, k)
        and a (p,).

        Its largest entry is 1. The ``number`` counts from the largest real part: 0 is
        the way out of a saddle.
        """
        number = positive_integer("number", number, 0)
        count = len(self.eigenvalues)
        require(
            number < count,
            "number",
            number,
            f"less than {count}, the number of eigenvalues",
        )
        v = self._vectors[:, number]
        v = v / v[np.abs(v).argmax()]
        return self._flow.direction(v if np.abs(v.imag).max() > 1e-9 else v.real)

    def lasts(self, dim: float, constant: float = 0.0) -> float:
        """The time log(d)/(2κ) + constant that a run with d = ``dim`` spends here;
        infinite where nothing leads away.

        The ``constant`` depends on the start and on what counts as the end;
        `stability.plateaus` measures it.
        """
        dim = finite_number(
            "dim", dim, minimum=1.0, accepted="a dimension, a number from 1 on"
        )
        return math.log(dim) / (2 * self.rate) + constant if self.unstable else math.inf

    def __str__(self) -> str:
        first = f"{self.kind}, excess risk {self.excess_risk:.6g}"
        if self.unstable:
            return f"{first}, {self.unstable} growing, κ = {self.rate:.5g}"
        return f"{first}, slowest decay {-self.rate + 0.0:.4g}" + (
            f", {self.neutral} neutral" if self.neutral else ""
        )

    def __repr__(self) -> str:
        return f"FixedPoint({self})"

    def _repr_html_(self) -> str:
        shown = ", ".join(f"{x:.4g}" for x in self.eigenvalues[:6]) + (
            ", …" if len(self.eigenvalues) > 6 else ""
        )
        rows = [
            ("excess risk", f"{self.excess_risk:.6g}"),
            ("growing", str(self.unstable)),
        ]
        rows += [
            ("κ", f"{self.rate:.6g}"),
            ("eigenvalues", shown),
            ("residual", f"{self.residual:.1g}"),
        ]
        fields = self.overlaps.fields(self._flow.problem.inputs)
        rows += [("M", matrix(fields.M)), ("Q", matrix(fields.Q))]
        return card(f"Fixed point ({self.kind})", "", rows)


def _when(point: FixedPoint) -> str:
    return "–" if math.isnan(point.time) else f"{point.time:.4g}"


class FixedPoints(list[FixedPoint]):
    """Fixed points: in the order of a run, or as the starts were given.

    Parameters
    ----------
    points : sequence of FixedPoint
        The list itself.
    missed : sequence of str
        What became of the starting points that led to no fixed point; an attribute,
        too.

    Examples
    --------
    >>> FixedPoints(
    ...     missed=["from the first start the search left the unit ball"]
    ... ).missed[0][:20]
    'from the first start'
    """

    def __init__(
        self, points: Sequence[FixedPoint] = (), missed: Sequence[str] = ()
    ) -> None:
        super().__init__(points)
        self.missed = list(missed)

    def __str__(self) -> str:
        lines = [f"{'time':>9}  {'excess risk':>12}  growing  {'κ':>10}  residual"]
        for one in self:
            lines.append(
                f"{_when(one):>9}  {one.excess_risk:>12.6g}  {one.unstable:>7} "
                f" {one.rate:>10.5g}  {one.residual:.0e}"
            )
        return "\n".join(
            lines + [f"no fixed point: {reason}" for reason in self.missed]
        )

    def _repr_html_(self) -> str:
        rows = [
            (
                _when(one),
                f"{one.excess_risk:.6g}",
                str(one.unstable),
                f"{one.rate:.5g}",
                f"{one.residual:.0e}",
            )
            for one in self
        ]
        head = ("time", "excess risk", "growing", "κ", "residual")
        return card("Fixed points", table(head, rows), note="; ".join(self.missed))


@float64
def fixed_points(
    problem: Problem,
    algorithm: SGD,
    near: xr.Dataset | Overlaps | Sequence[Overlaps],
    *,
    seed: int = 0,
    tolerance: float = 1e-9,
    progress: Progress = None,
) -> FixedPoints:
    """Fixed points of the limit d → ∞ near a run or near given overlaps, with their
    linear stability.

    Parameters
    ----------
    problem, algorithm : Problem, SGD
        In a regime whose limit is a differential equation, without a schedule.
    near : Dataset, Overlaps or sequence of Overlaps
        A run, whose stalled points are starting points, or the starting points
        themselves.
    seed : int
        Which run, where the dataset holds several.
    tolerance : float
        The largest |dx/dt| at a point that counts as fixed.
    progress : bool, optional
        As in `solve`.

    Returns
    -------
    FixedPoints
        A list. Images of each other, as under permutations of the neurons, are listed
        once. Interrupted, it is in ``Interrupted.result`` as far as it was.

    Notes
    -----
    Cost: some twenty linearisations for each starting point, each of p k + p (p + 1)/2
    evaluations of the averages.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("He2(z1)", "He2", noise=0.2),
    ...     tl.SGD(lr="0.05/d"),
    ... )
    >>> point = tl.fixed_points(problem, algorithm, near=tl.Overlaps([[0.4]], [[0.0]]))[
    ...     0
    ... ]
    >>> point.unstable, round(point.rate, 5), round(float(point.overlaps.Q[0, 0]), 6)
    (1, 3.68853, 0.385246)
    """
    check_description(problem, algorithm)
    algorithm.check_gradient_steps("tl.fixed_points")
    algorithm.check_constant("fixed_points")
    tolerance = finite_number(
        "tolerance", tolerance, minimum=1e-13, accepted="a number from 1e-13 on"
    )
    path = times = None
    if isinstance(near, xr.Dataset):
        path, times = _path(problem, near, seed), near.time.values
        stalled = _stalled(problem, algorithm, path)
        starts = [
            Overlaps.unchecked(path.Q[i], path.M[i], problem.P, path.a[i])
            for i in stalled
        ]
        places = [f"from t = {times[i]:.4g}" for i in stalled]
    else:
        starts = _given(problem, near)
        places = [f"from start {i}" for i in range(len(starts))]
    found: list[FixedPoint] = []
    missed: list[str] = []
    monitor = listener_for(progress)
    monitor.begin("fixed points", float(len(starts)))
    try:
        for i, start in enumerate(starts):
            one, why = _fixed(
                Flow.at(problem, algorithm, start), tolerance, path, times
            )
            if one is None:
                missed.append(f"{places[i]}, {why}")
            elif not any(_same(one, other) for other in found):
                found.append(one)
            monitor.update(i + 1.0)
    except KeyboardInterrupt:
        raise Interrupted(FixedPoints(found, missed)) from None
    finally:
        monitor.finish()
    return FixedPoints(
        found if times is None else sorted(found, key=lambda x: x.time), missed
    )


def _given(problem: Problem, near: object) -> list[Overlaps]:
    """Starting points as they were given."""
    many = [near] if isinstance(near, Overlaps) else near
    if (
        not isinstance(many, Sequence)
        or not many
        or not all(isinstance(x, Overlaps) for x in many)
    ):
        reject(
            "near",
            near,
            "a run (a dataset of `solve`), overlaps or a sequence of overlaps",
        )
    other = next((x for x in many if (x.p, x.k) != (problem.p, problem.k)), None)
    if other is not None:
        reject(
            "near",
            other,
            f"overlaps of {problem.p} × {problem.k} neurons and directions, like the"
            " problem",
        )
    return [
        one
        for x in many
        for one in ([x[i] for i in range(x.batch[0])] if x.batch else [x])
    ]


def _path(problem: Problem, run: xr.Dataset, seed: int) -> Overlap:
    """The overlaps of one run at its save points, up to where it ended."""
    lacking = [name for name in ("Q", "M", "excess_risk") if name not in run]
    if lacking:
        raise InputError(
            "Argument `near` must be a run with Q, M and excess_risk, but has no"
            f" {lacking[0]}."
        )
    if not problem.inputs.plain:
        raise Refused(
            "fixed_points",
            "a run does not hold how the target lies in the blocks of the inputs: give"
            " overlaps in blocks",
        )
    seed = positive_integer("seed", seed, 0)
    require(
        seed < run.sizes["seed"],
        "seed",
        seed,
        f"less than {run.sizes['seed']}, the number of runs",
    )
    one = run.isel(seed=seed)
    Q, M = one.Q.values, one.M.values
    if M.shape[-2:] != (problem.p, problem.k):
        raise InputError(
            f"Argument `near` must be a run of this problem, with {problem.p} neurons"
            f" and {problem.k} directions, but has {M.shape[-2]} and {M.shape[-1]}."
        )
    a = np.broadcast_to(one.a.values if "a" in one else problem.a(), M.shape[:-1])
    keep = np.isfinite(one.excess_risk.values) & np.isfinite(Q).all((-1, -2))
    return Overlap(Q[keep], M[keep], a[keep])


def _stalled(problem: Problem, algorithm: SGD, path: Overlap) -> np.ndarray:
    """Where |F| is smaller than at the save points beside, ends included; of many the
    slowest that lie apart, in order.

    A run that has come to rest, or whose noise keeps it moving, has many such points at
    one place.
    """
    if not len(path.M):
        raise InputError(
            "Argument `near` must be a run with finite overlaps, but has none."
        )
    flow = Flow.at(
        problem,
        algorithm,
        Overlaps.unchecked(path.Q[0], path.M[0], problem.P, path.a[0]),
    )
    speeds = flow.speeds(path)
    padded = np.concatenate([[np.inf], speeds, [np.inf]])
    lows = np.flatnonzero((speeds <= padded[:-2]) & (speeds <= padded[2:]))
    way = np.concatenate([x.reshape(len(speeds), -1) for x in path], axis=1)
    extent = np.linalg.norm(way - way[0], axis=1).max()
    chosen: list[int] = []
    for i in lows[np.argsort(speeds[lows], kind="stable")]:
        if all(np.linalg.norm(way[i] - way[j]) > APART * extent for j in chosen):
            chosen.append(int(i))
    return np.sort(chosen[:CANDIDATES])


def _fixed(
    flow: Flow, tolerance: float, path: Overlap | None, times: np.ndarray | None
) -> tuple[FixedPoint | None, str]:
    """The fixed point near a flow's state, or why there is none."""
    x, left = settle(flow, flow.x, tolerance)
    if left > tolerance:
        return None, f"|dx/dt| did not fall below {left:.1g}"
    if flow.lowest(x) < -SINGULAR:
        return (
            None,
            "the point found belongs to no vectors (Ω has a negative eigenvalue)",
        )
    slope = flow.slope(x)
    if not np.isfinite(slope).all():
        return None, "the linearisation is not finite"
    values, vectors = np.linalg.eig(slope)
    order = np.argsort(-values.real, kind="stable")
    values, vectors = values[order], vectors[:, order]
    scale = float(np.abs(values).max())
    grows, still = values.real > NEUTRAL * scale, np.abs(values.real) <= NEUTRAL * scale
    if np.abs(values.imag).max() <= 1e-12 * scale:
        values = values.real
    way = (
        flow.x[None]
        if path is None
        else np.stack([flow.packed(Overlap(*one)) for one in zip(*path, strict=True)])
    )
    apart = np.abs(way - x).max(-1)
    closest = int(apart.argmin())
    return (
        FixedPoint(
            flow.overlaps(x),
            max(flow.excess_risk(x), 0.0),
            left,
            values,
            int(grows.sum()),
            int(still.sum()),
            float(values[0].real),
            float(apart[closest]),
            math.nan if times is None else float(times[closest]),
            flow,
            vectors,
        ),
        "",
    )


def _same(one: FixedPoint, other: FixedPoint) -> bool:
    """Whether two points are one, or images of each other: risks and spectra agree."""
    scale = max(float(np.abs(one.eigenvalues).max()), 1e-300)
    return bool(
        abs(one.excess_risk - other.excess_risk) <= SAME * max(1e-3, one.excess_risk)
        and np.abs(
            np.sort(one.eigenvalues.real) - np.sort(other.eigenvalues.real)
        ).max()
        <= 10 * SAME * scale
    )
