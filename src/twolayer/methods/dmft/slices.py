"""Many passes of small batches: slices of the set in place of single samples.

    n_b = o(d),  lr = γ n_b/d,  n = α d      →      B slices of n/B samples,  lr = γ α/B
    X(B) = X + a/B + b/B² + …
    2 X(2B) − X(B) = X − b/(2B²) + …                      what is reported
    (8 X(2B) − 6 X(B) + X(B/2))/3 = X + O(1/B³)           what its error is taken from

As d → ∞ a sample has a process of visits and nothing else depends on the batch: a
sample is visited once in every pass, at a time of its own (reshuffled) or at the same
one (sequence), or with a constant rate (replacement, and random subsets, whose limit is
the same). Between two visits the weights move by order one. Inside of a slice samples
do not see what the others have done; that is the error a/B, and it goes away with the
slices. Slices that stand for draws with replacement are random subsets: a sample that
is drawn twice into one slice would see none of its own first visit, and X(B) is then
three to six times farther away.

Every X(B) is a run of the theory of finitely many steps (ensemble.py). Replicates are
extrapolated one by one, since those of equal number share their first points, and
their spread is the error of the paths. Paths are added until it is below the tolerance,
or below what the slices leave.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from twolayer.gaussian.engines import select
from twolayer.gaussian.risk import excess_risks
from twolayer.loops.stopping import DIVERGED, LIMIT, REACHED
from twolayer.methods.dmft.ensemble import Replicas, Watcher
from twolayer.methods.dmft.linear import LinearPasses
from twolayer.numerics.arguments import Notes
from twolayer.numerics.errors import Refused
from twolayer.numerics.statistics import standard_error
from twolayer.numerics.types import Tree
from twolayer.task.algorithm import SGD
from twolayer.task.clocks import Clocks
from twolayer.task.method import Evolution, Handover, Outcome, Snapshot, Task
from twolayer.task.problem import Problem
from twolayer.task.scaling import Scaling

if TYPE_CHECKING:
    from twolayer.methods.dmft.method import DMFT, DMFTEvolution

__all__ = [
    "ClosedEvolution",
    "SlicedEvolution",
    "in_slices",
    "pass_time",
    "unsliced",
]

LEVELS = (1, 2, 4)  # slices of each level, in those of the coarsest
EXTRAPOLATED = np.array([0.0, -1.0, 2.0])
HIGHER = np.array([1.0, -6.0, 8.0]) / 3
FINER = 2  # each refinement has 2**FINER times as many points
Row = tuple[tuple[str, ...], np.ndarray]


def unsliced(algorithm: SGD) -> str | None:
    """What of an algorithm is not the same in slices, or None."""
    if algorithm.repeat > 1:
        return (
            f"with repeat = {algorithm.repeat} small batches are used several times in"
            " a row, which slices are not"
        )
    if algorithm.momentum:
        return (
            f"momentum = {algorithm.momentum:g} lasts for a few small batches, and a"
            " slice is many of them"
        )
    if algorithm.average is not None:
        return (
            f"the average of the iterates (average = {algorithm.average}) is one over"
            " small batches, and a slice is many of them"
        )
    if algorithm.scheduled:
        return (
            f"lr = {algorithm.lr} changes within a slice; small batches of a fixed set"
            " are followed at a constant rate"
        )
    rule = algorithm.rule
    if rule is not None and (rule.adapts is not None or rule.products or rule.sizes):
        return (
            f"the rule {rule} looks at more than the fields of single samples, and"
            " slices stand for many"
        )
    return None


def in_slices(algorithm: SGD, slices: int) -> SGD:
    """The algorithm whose batches are the slices of the set, with as much drift in a
    pass.

    >>> in_slices(SGD(lr="1/d", dataset="2*d", sampling="reshuffled"), 8)
    SGD(lr='0.25', batch='0.25*d', dataset='2*d', sampling='reshuffled')
    """
    assert algorithm.dataset is not None
    share = algorithm.dataset.coefficient / slices
    ratio = share / algorithm.batch.coefficient
    second = algorithm.second_lr
    drawn = algorithm.sampling == "replacement"
    return algorithm.replace(
        lr=Scaling(algorithm.lr.coefficient * ratio),
        batch=Scaling(share, 1.0),
        dataset=Scaling(algorithm.dataset.coefficient, 1.0),
        second_lr=None if second is None else Scaling(second.coefficient * ratio),
        sampling="subset" if drawn else algorithm.sampling,
    )


def pass_time(problem: Problem, algorithm: SGD) -> float:
    """The time t = γ s/N of a pass, s = α."""
    assert algorithm.dataset is not None
    gamma = algorithm.lr.coefficient / algorithm.batch.coefficient
    return gamma * algorithm.dataset.coefficient / problem.divisor


class Values(NamedTuple):
    """Of one start at one point: Q, M, a and the training risk, as they are
    extrapolated in every replicate (replicates, …), and to higher order in the mean.
    """

    each: tuple[np.ndarray, ...]
    higher: tuple[np.ndarray, ...]

    @property
    def mean(self) -> tuple[np.ndarray, ...]:
        """Over the replicates."""
        return tuple(x.mean(0) for x in self.each)

    @property
    def path_errors(self) -> tuple[np.ndarray, ...]:
        """Standard errors over the replicates; zero where there is one."""
        if len(self.each[0]) == 1:
            return tuple(np.zeros_like(x[0]) for x in self.each)
        return tuple(map(standard_error, self.each))

    @property
    def slice_errors(self) -> tuple[np.ndarray, ...]:
        """What another power of 1/B changes."""
        pairs = zip(self.higher, self.mean, strict=True)
        return tuple(np.abs(higher - mean) for higher, mean in pairs)


def largest(errors: tuple[np.ndarray, ...], values: tuple[np.ndarray, ...]) -> float:
    """The largest error of Q and M; of entries larger than one, relative to them."""
    pairs = list(zip(errors, values, strict=True))[:2]
    return max(float((e / np.maximum(1.0, np.abs(x))).max()) for e, x in pairs)


class SlicedEvolution(Evolution):
    """All starts at three numbers of slices. A call advances them to their end, since
    early slices may be computed again on more paths.
    """

    def __init__(
        self,
        task: Task,
        method: DMFT,
        prepare: Callable[[Task, DMFT], DMFTEvolution],
    ) -> None:
        assert method.slices is not None
        if task.after is not None and not isinstance(task.after.state, list):
            raise Refused(
                "DMFT",
                "the stage before was a linear student in closed form, which keeps no"
                " paths: DMFT(closed=False)",
                ["Vectors"],
            )
        self.task, self.method = task, method
        self.counts = [method.slices // 2 * factor for factor in LEVELS]
        self.unit = pass_time(task.problem, task.algorithm) / self.counts[0]
        self.points = np.round(task.points / self.unit).astype(int)
        # paths are added to all levels at once, below
        once = dataclasses.replace(
            method, slices=None, max_log2_points=method.log2_points
        )
        self.levels = [
            prepare(self._level(number), once) for number in range(len(LEVELS))
        ]
        self.code = np.zeros(task.seeds, np.int32)
        self.stop = np.full(task.seeds, np.nan)
        self._interrupted = False
        self._known: dict[tuple[int, int], Values] = {}
        self._watcher: Watcher | None = None
        self._watched: list[list[float]] = [[] for _ in range(task.seeds)]
        if task.until is not None:
            risky = task.until.quantity in ("risk", "excess_risk")
            engine = select(task.problem, "squared").engine if risky else None
            self._watcher = Watcher(task.until, engine, task.problem.noise)
        for i in range(task.seeds):
            self._watch(i, 0)

    def _level(self, number: int) -> Task:
        """The run of one level, in its own steps."""
        task, factor = self.task, LEVELS[number]
        algorithm = in_slices(task.algorithm, self.counts[number])
        after = task.after
        return dataclasses.replace(
            task,
            algorithm=algorithm,
            clocks=Clocks(task.problem, algorithm, None),
            points=self.points * factor,
            until=None,
            after=(
                None
                if after is None
                else Handover(after.state[number], after.steps * 0)
            ),
        )

    def initial(self) -> Tree:
        """Nothing: the histories are kept in the ensembles."""
        return None

    def stopped(self, state: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and times."""
        return self.code, self.stop

    def snapshot(self, state: Tree) -> Snapshot:
        """The start."""
        return self._snapshots(self.points[:1])

    def values(self, i: int, point: int) -> Values:
        """What is extrapolated at a point of the coarsest level, or at the last one
        before it.
        """
        ends = [
            level.ensembles[i].at // factor
            for level, factor in zip(self.levels, LEVELS, strict=True)
        ]
        at = min(point, *ends)
        if (i, at) not in self._known:
            every = [
                level.ensembles[i].values(at * factor)
                for level, factor in zip(self.levels, LEVELS, strict=True)
            ]
            columns = [np.stack(x) for x in zip(*every, strict=True)]
            with np.errstate(invalid="ignore"):  # infinite training risks
                self._known[i, at] = Values(
                    tuple(np.tensordot(EXTRAPOLATED, x, 1) for x in columns),
                    tuple(np.tensordot(HIGHER, x.mean(1), 1) for x in columns),
                )
        return self._known[i, at]

    def _snapshots(self, points: np.ndarray) -> Snapshot:
        each = [
            [self.values(i, int(t)).mean for t in points]
            for i in range(self.task.seeds)
        ]
        Q, M, a, train = (
            np.array([[one[number] for one in times] for times in each])
            for number in range(4)
        )
        return Snapshot(Q, M, a, train)

    def advance(
        self, state: Tree, first: int, tick: Callable[[float], None]
    ) -> tuple[Tree, Snapshot]:
        """To the end, one slice of the coarsest level of all starts after the other;
        what was finished when interrupted is handed over.
        """
        if self._interrupted:
            raise KeyboardInterrupt
        last = int(self.points[first])
        try:
            while last < self.points[-1] and (self.code == 0).any():
                for start in np.flatnonzero(self.code == 0):
                    self._advance(int(start), last + 1)
                last += 1
                tick(last * self.unit)
            for i in range(self.task.seeds):
                self._refine(i, tick)
        except KeyboardInterrupt:
            self._interrupted = True
        running = self._interrupted or (self.code == 0).any()
        count = (
            int(np.searchsorted(self.points, last, "right"))
            if running
            else int(np.searchsorted(self.points, last)) + 1
        )
        if count == first + 1:
            raise KeyboardInterrupt
        return state, self._snapshots(self.points[first + 1 : count])

    def _advance(self, i: int, point: int) -> None:
        """All levels of a start to the next point of the coarsest one."""
        for level, factor in zip(self.levels, LEVELS, strict=True):
            one = level.ensembles[i]
            while one.code == 0 and one.at < point * factor:
                one.advance()
            if one.code == DIVERGED:
                self.code[i], self.stop[i] = DIVERGED, point * self.unit
        if self.code[i] == 0:
            self._watch(i, point)

    def _watch(self, i: int, point: int) -> None:
        """Stop a start that has reached the threshold."""
        if self._watcher is None:
            return
        Q, M, a, _ = self.values(i, point).mean
        self._watched[i].append(self._watcher.value(Q, M, a))
        stop = self._watcher.crossing(self._watched[i])
        if stop is not None:
            self.code[i], self.stop[i] = REACHED, stop * self.unit

    def _refine(self, i: int, tick: Callable[[float], None]) -> None:
        """Take more paths, from the first slice on, as long as their error is above the
        tolerance and above what the slices leave.
        """
        while self.code[i] != DIVERGED:
            log2_points = int(self.levels[0].log2_points[i])
            paths, slices = self._errors(i)
            enough = max(self.method.tolerance, slices)
            if paths <= enough or log2_points >= self.method.max_log2_points:
                return
            finer = min(log2_points + FINER, self.method.max_log2_points)
            again: list[Replicas] = []
            for level in self.levels:
                known = level.ensembles[i]
                level.log2_points[i] = finer
                one = known.again(level.points_of(i))
                while one.code == 0 and one.at < known.at:
                    one.advance()
                    tick(self.task.points[-1])
                again.append(one)
            for level, one in zip(self.levels, again, strict=True):
                level.ensembles[i] = one
            self._known = {x: v for x, v in self._known.items() if x[0] != i}

    def _errors(self, i: int) -> tuple[float, float]:
        """The largest error of the paths and of the slices of a start, up to where it
        is.
        """
        seen = [self.values(i, int(t)) for t in self.points]
        paths = max(largest(x.path_errors, x.mean) for x in seen)
        slices = max(largest(x.slice_errors, x.mean) for x in seen)
        return paths, slices

    def left(self, state: Tree) -> list[list[Replicas]]:
        """Everything, of every level."""
        return [level.ensembles for level in self.levels]

    def notes(self) -> Notes:
        """How the averages were taken, and their largest errors."""
        method = self.method
        kind = "Sobol" if method.points == "sobol" else "random"
        finest = max(int(level.log2_points.max()) for level in self.levels)
        coarse, middle, fine = self.counts
        engine = (
            f"{method.replicates} × {2**finest} {kind} points at {coarse}, {middle} and"
            f" {fine} slices of a pass"
        )
        grows = (
            "the weights grow without bound: use a smaller lr or geometry='projected'"
        )
        errors = [self._errors(i) for i in range(self.task.seeds)]
        paths = max(x for x, _ in errors)
        slices = max(x for _, x in errors)
        return {
            "engine": engine,
            "advice": {Outcome.DIVERGED: grows},
            "engine_error": math.hypot(paths, slices),
            "path_error": paths,
            "slice_error": slices,
            "tolerance": method.tolerance,
        }

    def extras(self) -> dict[str, Row]:
        """Errors of paths and slices together."""
        problem, seeds = self.task.problem, range(self.task.seeds)
        seen = [[self.values(i, int(t)) for t in self.points] for i in seeds]
        names = ("Q_error", "M_error", "a_error", "train_risk_error")
        rows = ("seed", "time")
        dims = (
            (*rows, "neuron", "neuron_"),
            (*rows, "neuron", "direction"),
            (*rows, "neuron"),
            rows,
        )
        found: dict[str, Row] = {}
        with np.errstate(invalid="ignore"):
            for number, name in enumerate(names):
                paths = np.array(
                    [[x.path_errors[number] for x in times] for times in seen]
                )
                slices = np.array(
                    [[x.slice_errors[number] for x in times] for times in seen]
                )
                found[name] = dims[number], np.hypot(paths, slices)
        if not self.task.algorithm.train_second_layer:
            del found["a_error"]
        if not np.isfinite(found["train_risk_error"][1]).all():
            del found["train_risk_error"]
        found["risk_error"] = rows, np.stack([_risk_error(problem, x) for x in seen])
        return found


def _risk_error(problem: Problem, seen: list[Values]) -> np.ndarray:
    """Errors of the risk at the points of one start."""
    replicates = len(seen[0].each[0])

    def risks(points: list[tuple[np.ndarray, ...]]) -> np.ndarray:
        Q, M, a = (np.stack([x[number] for x in points])[None] for number in range(3))
        return excess_risks(problem, Q, M, a)[0][0]

    each = [
        risks([tuple(value[r] for value in x.each) for x in seen])
        for r in range(replicates)
    ]
    mean = risks([x.mean for x in seen])
    higher = risks([x.higher for x in seen])
    paths = standard_error(np.stack(each)) if replicates > 1 else np.zeros(len(seen))
    return np.asarray(np.hypot(paths, higher - mean))


class ClosedEvolution(Evolution):
    """A linear student on samples drawn with replacement (linear.py): every point from
    a formula.
    """

    def __init__(self, task: Task) -> None:
        assert task.algorithm.dataset is not None
        self.task = task
        alpha = task.algorithm.dataset.coefficient
        s = task.points / pass_time(task.problem, task.algorithm) * alpha
        Q, M, self.a = task.starts()
        every = []
        for q, m, a in zip(Q[:, 0, 0], M[:, 0, 0], self.a[:, 0], strict=True):
            student = LinearPasses.of(
                task.problem, task.algorithm, float(q), float(m), float(a)
            )
            with np.errstate(over="ignore", invalid="ignore"):
                every.append(student.at(s))
        self.Q, self.M, self.train = (np.stack(x) for x in zip(*every, strict=True))
        self.code = np.zeros(task.seeds, np.int32)
        self.stop = np.full(task.seeds, np.nan)
        for i in range(task.seeds):
            self._end(i)

    def _end(self, i: int) -> None:
        """Where a start leaves all bounds."""
        beyond = ~(self.Q[i] < LIMIT)
        if beyond.any():
            t = int(np.argmax(beyond))
            self.code[i], self.stop[i] = DIVERGED, self.task.points[t]
            for values in (self.Q, self.M, self.train):
                values[i, t:] = values[i, max(t - 1, 0)]

    def initial(self) -> Tree:
        """Nothing."""
        return None

    def stopped(self, state: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and times."""
        return self.code, self.stop

    def snapshot(self, state: Tree) -> Snapshot:
        """The start."""
        return self._snapshots(slice(0, 1))

    def _snapshots(self, points: slice) -> Snapshot:
        Q, M, train = (x[:, points] for x in (self.Q, self.M, self.train))
        a = np.broadcast_to(self.a[:, None], (*Q.shape, 1))
        return Snapshot(Q[..., None, None], M[..., None, None], a, train)

    def advance(
        self, state: Tree, first: int, tick: Callable[[float], None]
    ) -> tuple[Tree, Snapshot]:
        """All points at once."""
        return state, self._snapshots(slice(first + 1, None))

    def left(self, state: Tree) -> str:
        """The modes of the samples are not kept."""
        return "closed"

    def notes(self) -> Notes:
        """It is a formula."""
        return {"engine": "linear student in closed form", "engine_error": 0.0}
