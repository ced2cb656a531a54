"""Dynamical mean-field theory: n = α d samples that are used again and again.

    h = m·h̃* + Σ_i l_i (ξ_i + e_i/√α)
        what a sample sees: noise, and its own past that comes back to it
    rows w = (m, l) move by the algorithm's own step,
        with the gradient B ⟨v x_i⟩ along every direction i

Directions are those of the target, of the start, and one for every new push of the
samples (samples.py). In their coordinates the limit d → ∞ is the algorithm itself, with
rows of growing length (replicate.py). No equation is solved and no kernel factorised,
so a hundred steps are as stable as one. The only error is that of averages over
finitely many paths, estimated from independent replicates (ensemble.py); their number
is raised until it meets a tolerance. The test risk has fields N(0, Ω^t); the training
risk has those above, and differs from the first step on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from twolayer.equations.first_order import check_functions
from twolayer.equations.increment_kernel import Kernel, kernel_of
from twolayer.equations.optimiser_step import coefficients_of, form_of
from twolayer.gaussian.engines import select
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.risk import excess_risks
from twolayer.methods.dmft.ensemble import Replicas, Watcher
from twolayer.methods.dmft.linear import closed_reason
from twolayer.methods.dmft.patterns import Pattern
from twolayer.methods.dmft.points import KINDS, SOBOL, Points
from twolayer.methods.dmft.replicate import Setting, Start, room_for
from twolayer.methods.dmft.slices import (
    ClosedEvolution,
    SlicedEvolution,
    pass_time,
    unsliced,
)
from twolayer.numerics.arguments import End, Notes, Save
from twolayer.numerics.errors import (
    InputError,
    choice,
    flag,
    keep_integers,
    require,
)
from twolayer.numerics.statistics import standard_error
from twolayer.numerics.types import Tree
from twolayer.task.algorithm import SGD
from twolayer.task.averages import USUAL, Averages, keep_averages
from twolayer.task.clocks import Clocks
from twolayer.task.first_order import FirstOrder
from twolayer.task.heavy_tails import no_moment
from twolayer.task.method import (
    Evolution,
    Method,
    Outcome,
    Snapshot,
    Task,
    register_method,
)
from twolayer.task.problem import Problem
from twolayer.task.regimes import has_memory_theory, layers_apart, small_batches

__all__ = ["DMFT"]

NS_PER_PRODUCT = 2.5  # for estimates of cost
LOG2_POINTS = 14  # of the paths to begin with
TOLERANCE = 2e-3  # of M and Q, unless another accuracy is asked for
FEWEST = 4  # paths for each vector of the first basis
SLICES = 24  # of a pass, where their number is left open
FINER = 2  # each refinement has 2**FINER times as many points


class DMFTEvolution(Evolution):
    """Ensembles of all starts. A call advances all of them to their end, since early
    steps may be computed again.
    """

    def __init__(self, task: Task, method: DMFT) -> None:
        self.task, self.method = task, method
        problem, after = task.problem, task.after
        before = 0 if after is None else max(e.past.steps + e.at for e in after.state)
        self.setting = setting_of(task, before + int(task.points[-1]))
        self.watcher = None
        if task.until is not None:
            risky = task.until.quantity in ("risk", "excess_risk")
            engine = select(problem, "squared").engine if risky else None
            self.watcher = Watcher(task.until, engine, problem.noise)
        self.starts = [Start(*x) for x in zip(*task.starts(), strict=True)]
        least = (FEWEST * room_for(problem.k, problem.p, 0)).bit_length() - 1
        self.log2_points = np.full(task.seeds, max(method.log2_points, least))
        self._sets: dict[int, list[Points]] = {}
        self._interrupted = False
        if after is None:
            self.ensembles = [
                Replicas(self.setting, start, self.points_of(i), self.watcher)
                for i, start in enumerate(self.starts)
            ]
            return
        self.ensembles = after.state
        for i, one in enumerate(self.ensembles):
            self.log2_points[i] = one.log2_points
            one.resume(self.setting, self.watcher)

    def points_of(self, i: int) -> list[Points]:
        """The sets of points of start number i; starts with as many points share
        them.
        """
        n, method = int(self.log2_points[i]), self.method
        if n not in self._sets:
            self._sets[n] = [
                Points(n, method.points, r) for r in range(method.replicates)
            ]
        return self._sets[n]

    def initial(self) -> Tree:
        """Nothing: the histories are kept in the ensembles."""
        return None

    def stopped(self, state: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and steps."""
        return np.array([x.code for x in self.ensembles], np.int32), np.array(
            [x.stop for x in self.ensembles]
        )

    def snapshot(self, state: Tree) -> Snapshot:
        """The start."""
        return self._snapshots(self.task.points[:1])

    def _snapshots(self, points: np.ndarray) -> Snapshot:
        """Means over the replicates at save points."""
        looks = [Replicas.values, Replicas.averages][
            : 1 + bool(self.setting.form.average)
        ]
        each = [
            [[x.mean(0) for look in looks for x in look(e, int(t))] for t in points]
            for e in self.ensembles
        ]
        return Snapshot(
            *(
                np.array([[one[i] for one in times] for times in each])
                for i in range(4 * len(looks))
            )
        )

    def advance(
        self, state: Tree, first: int, tick: Callable[[float], None]
    ) -> tuple[Tree, Snapshot]:
        """To the end, one step of all starts after the other; what was finished when
        interrupted is handed over.
        """
        points = self.task.points
        if self._interrupted:
            raise KeyboardInterrupt
        last = int(points[first])
        try:
            while last < points[-1] and any(x.code == 0 for x in self.ensembles):
                for i in range(self.task.seeds):
                    if self.ensembles[i].code == 0:
                        self.ensembles[i].advance()
                        self._refine(i, tick)
                last += 1
                tick(float(last))
        except KeyboardInterrupt:
            self._interrupted = True  # told to the host loop at its next call
        running = self._interrupted or any(x.code == 0 for x in self.ensembles)
        count = (
            np.searchsorted(points, last, "right")
            if running
            else np.searchsorted(points, last) + 1
        )
        if count == first + 1:
            raise KeyboardInterrupt
        return state, self._snapshots(points[first + 1 : count])

    def _refine(self, i: int, tick: Callable[[float], None]) -> None:
        """Take more points for a start, from its first step on, as long as its error is
        above the tolerance.
        """
        known = self.ensembles[i]
        while (
            known.error(known.at) > self.method.tolerance
            and self.log2_points[i] < self.method.max_log2_points
        ):
            self.log2_points[i] = min(
                self.log2_points[i] + FINER, self.method.max_log2_points
            )
            finer = known.again(self.points_of(i))
            while finer.code == 0 and finer.at < known.at:
                finer.advance()
                tick(known.at - 1.0)
            self.ensembles[i] = known = finer

    def left(self, state: Tree) -> list[Replicas]:
        """Everything: weights, samples and what they owe to each other."""
        return self.ensembles

    def notes(self) -> Notes:
        """How the averages were taken, their largest error, and words for what went
        wrong.
        """
        method, polynomial = self.method, self.task.problem.activation.polynomial
        kind = "Sobol" if method.points == "sobol" else "random"
        engine = f"{method.replicates} × {2 ** self.log2_points.max()} {kind} points"
        tails = ""
        if polynomial is not None and len(polynomial) > 2:
            tails = (
                "; a polynomial activation raises the fields to a higher power at each"
                " visit, so that averages have heavy tails: use one that grows no"
                " faster than linearly"
            )
        diverged = (
            "the weights grow without bound: use a smaller lr or"
            f" geometry='projected'{tails}"
        )
        notes: Notes = {"engine": engine, "advice": {Outcome.DIVERGED: diverged}}
        if method.replicates > 1:
            error = max(e.error(t) for e in self.ensembles for t in range(e.at + 1))
            notes |= {"engine_error": error, "tolerance": method.tolerance}
        return notes

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Standard errors where there are replicates, and kernels."""
        found: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
        if self.method.replicates > 1:
            each = [
                [
                    np.stack(x, axis=1)
                    for x in zip(
                        *(e.values(int(t)) for t in self.task.points), strict=True
                    )
                ]
                for e in self.ensembles
            ]
            risks = [excess_risks(self.task.problem, Q, M, a)[0] for Q, M, a, _ in each]
            values = (*zip(*each, strict=True), risks)
            with np.errstate(
                invalid="ignore"
            ):  # training risks are infinite where labels have no variance
                Q, M, a, train, risk = (
                    np.stack([standard_error(x) for x in starts]) for starts in values
                )
            found["Q_error"] = ("seed", "time", "neuron", "neuron_"), Q
            found["M_error"] = ("seed", "time", "neuron", "direction"), M
            if self.setting.form.trained:
                found["a_error"] = ("seed", "time", "neuron"), a
            if np.isfinite(train).all():
                found["train_risk_error"] = ("seed", "time"), train
            found["risk_error"] = ("seed", "time"), risk
        smooth = None if not self.method.responses else not bends(self.setting.kernel)
        kernels = [e.kernels(smooth) for e in self.ensembles]
        for name in kernels[0]:
            found[name] = (
                ("seed", "visit", "visit_", "neuron", "neuron_"),
                np.stack([x[name] for x in kernels]),
            )
        return found


def check_task(task: Task) -> None:
    """Try the functions of a first-order method before any work."""
    algorithm = task.algorithm
    if isinstance(algorithm, FirstOrder):
        kernel = kernel_of(task.problem, algorithm)
        check_functions(algorithm, kernel, task.problem.p, int(task.points[-1]))


def bends(kernel: Kernel) -> bool:
    """Whether means of the derivative of a push miss a part: where it jumps or bends,
    and where a rule draws more.
    """
    again = kernel.labels.more and kernel.loss.student is None
    return bool(
        kernel.activation.kinks or kernel.loss.kinks or kernel.rule is not None or again
    )


def setting_of(task: Task, steps: int) -> Setting:
    """What the replicates of a task share, for so many steps in all its stages."""
    problem, algorithm = task.problem, task.algorithm
    per_batch = algorithm.batch.coefficient
    alpha = per_batch if algorithm.dataset is None else algorithm.dataset.coefficient
    pattern = Pattern(
        algorithm.sampling,
        alpha / per_batch,
        algorithm.repeat,
        algorithm.dataset is None,
    )
    rules = (
        kernel_of(problem, algorithm),
        form_of(algorithm),
        coefficients_of(algorithm, problem.divisor, None),
        task.clocks.tempo,
    )
    return Setting(
        *rules,
        float(np.sqrt(problem.noise)),
        alpha,
        pattern,
        *target_frame(problem.P),
        steps,
        algorithm if isinstance(algorithm, FirstOrder) else None,
    )


@register_method
@dataclass(frozen=True)
class DMFT(Method):
    """The limit d → ∞ of steps of order one on samples that are reused: n = α d of
    them, or fresh batches used r times.

    Parameters
    ----------
    averages : Averages
        Their points are the paths for averages over the samples, in each replicate, to
        begin with (2¹⁴). A start whose M or Q has a larger standard error than their
        accuracy (2e-3, relative to those entries that are larger than one) is computed
        again with four times as many paths.
    replicates : int
        Independent sets of paths: the result is their mean, their spread its error. A
        single one has no known error.
    max_log2_points : int
        Up to this number of them, as a power of two; an `AccuracyWarning` tells what
        was reached where that is not enough.
    points : str
        ``"sobol"`` (scrambled) or ``"random"``.
    responses : bool
        Report the response functions ``R_F`` and ``R_theta`` too; the dynamics does not
        need them.
    slices : int, optional
        For small batches, n_b = o(d), from n = α d samples, with lr = γ n_b/d: a pass
        is cut into so many slices, and into half and twice as many. The result is
        extrapolated from them, its error is that of the slices and of the paths
        together, and points are ends of the coarsest slices. An even number; `solve`
        and `compare` take 24 where none is given.
    closed : bool
        Linear students on small batches drawn with replacement by their closed form,
        without slices or paths.

    Notes
    -----
    With N paths, T steps and n ≤ 2 + k + p + 2 p T vectors in the basis: time O(N n p)
    for a step, memory O(N n), for each replicate and start; responses take O(N T³ p³)
    more unless the activation has kinks.

    Examples
    --------
    >>> DMFT(replicates=2)
    DMFT(averages=Averages(), replicates=2, max_log2_points=17, points='sobol',
    responses=False, slices=None, closed=True)
    """

    averages: Averages = USUAL
    replicates: int = 4
    max_log2_points: int = 17
    points: str = "sobol"
    responses: bool = False
    slices: int | None = None
    closed: bool = True
    hands_over: ClassVar[bool] = True
    papers: ClassVar[tuple[str, ...]] = ("dandi2024", "gerbelot2024", "celentano2021")

    def __post_init__(self) -> None:
        keep_averages(self, ("accuracy", "points"))
        keep_integers(self, 1, "replicates")
        keep_integers(self, 4, "max_log2_points")
        choice("points", self.points, KINDS)
        flag("responses", self.responses)
        flag("closed", self.closed)
        if self.slices is not None:
            keep_integers(self, 4, "slices")
            require(self.slices % 2 == 0, "slices", self.slices, "an even number")

    @property
    def stepwise(self) -> bool:  # type: ignore[override]
        """Batches of order d are steps; slices of small ones have a time."""
        return self.slices is None

    @property
    def own_points(self) -> bool:  # type: ignore[override]
        """Slices end where they end."""
        return self.slices is not None

    def suited(self, algorithm: SGD) -> DMFT:
        """With slices where batches are small and their number was left open."""
        if self.slices is not None or not small_batches(algorithm):
            return self
        return dataclasses.replace(self, slices=SLICES)

    def save_points(
        self, clocks: Clocks, time: End, steps: End, save: Save, alpha: End = None
    ) -> np.ndarray:
        """Steps, or the ends of the coarsest slices that are nearest."""
        found = super().save_points(clocks, time, steps, save, alpha)
        algorithm = clocks.algorithm
        if self.slices is None:
            return found
        most = None if clocks.dim is None else algorithm.dataset_at(clocks.dim)
        if most is not None and most < 2 * self.slices:
            raise InputError(
                f"Argument `slices` must leave a sample for every slice, of which"
                f" there are up to {2 * self.slices} to a pass, but dataset ="
                f" {algorithm.dataset} is {most} samples at dim = {clocks.dim}."
            )
        one = pass_time(clocks.problem, algorithm) / (self.slices // 2)
        ends = np.unique(np.round(found / one))
        if ends[-1] < 1:
            raise InputError(
                "The end of the run must be at least one slice, 1/"
                f"{self.slices // 2} of a pass (t = {one:.3g}), but is t ="
                f" {found[-1]:.3g}."
            )
        return np.asarray(ends * one)

    @property
    def log2_points(self) -> int:
        """Paths to begin with, as a power of two."""
        return self.averages.log2_points or LOG2_POINTS

    @property
    def tolerance(self) -> float:
        """The standard error of M and Q that is aimed at."""
        return self.averages.accuracy or TOLERANCE

    @property
    def largest_error(self) -> float:
        """The accuracy: beyond it a result comes with a warning."""
        return self.tolerance

    @property
    def mending(self) -> str:
        """What would make averages more accurate, as the end of a sentence."""
        slices = "" if self.slices is None else f", slices (now {self.slices})"
        return (
            f"; raise max_log2_points (now {self.max_log2_points}){slices}, or the"
            " accuracy"
        )

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """One process stands for all coordinates of the weights."""
        return (
            f"the inputs are {problem.inputs}, and one process stands here for all"
            " coordinates of the weights, which have one variance of the inputs"
        )

    @classmethod
    def first_order_refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Only for small batches: rows and samples are all that f and g look at."""
        if small_batches(algorithm):
            return (
                f"a pass of small batches (batch = {algorithm.batch}) is followed in"
                " slices, whose limit is that of gradient steps"
            )
        return None

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Reused samples only, with n = α d, n_b = α_b d and lr of order one."""
        rule = algorithm.rule
        if rule is not None and rule.jitter:
            return (
                f"the noise of the rule {rule} is of length √d, and steps of order one"
                " pass all of it on to the weights"
            )
        if rule is not None and not rule.single:
            return (
                f"the rule {rule} is not one of single samples, from whose fields the"
                " pushes are made"
            )
        if algorithm.batch.schedule is not None:
            return (
                f"with batch = {algorithm.batch} no sample has one law of how often it"
                " is in a batch"
            )
        if not algorithm.reused:
            return (
                "every sample is new (dataset = None), so that nothing comes back to"
                " the fields, and the theories of fresh samples apply"
            )
        if small_batches(algorithm):
            return (
                unsliced(algorithm)
                or layers_apart(algorithm)
                or no_moment(problem, algorithm, 2)
            )
        laws = f"lr = {algorithm.lr}, batch = {algorithm.batch}, {algorithm.reused}"
        if not has_memory_theory(algorithm):
            return (
                f"with {laws} there is no limit d → ∞ of passes through n = α d"
                " samples, which needs lr of order one and batch and dataset"
                " proportional to d, or small batches n_b with lr proportional to"
                " n_b/d and dataset proportional to d"
            )
        return layers_apart(algorithm) or no_moment(problem, algorithm, 2)

    def objection(self, problem: Problem, algorithm: SGD) -> str | None:
        """Response functions are those of gradient steps with one set of samples to the
        first layer; small batches come in slices.
        """
        small = small_batches(algorithm)
        if small and self.slices is None:
            return (
                f"a pass of small batches (batch = {algorithm.batch}) is cut into"
                f" slices: DMFT(slices={SLICES})"
            )
        if self.slices is not None and algorithm.reused and not small:
            return (
                f"slices = {self.slices} stand for small batches with lr proportional"
                f" to n_b/d, and with lr = {algorithm.lr}, batch = {algorithm.batch}"
                " every step is one already: slices = None"
            )
        if self.responses and self.slices is not None:
            return "response functions are those of single steps: responses = False"
        if self.responses and algorithm.first_order:
            return (
                "response functions are those of gradient steps, and f and g have no"
                " derivatives here: responses = False"
            )
        if self.responses and algorithm.reused and algorithm.dataset is None:
            return (
                "response functions follow one set of samples, and here every batch is"
                " a fresh one: responses = False"
            )
        if self.responses and (algorithm.scheduled or algorithm.nesterov):
            return (
                "response functions are those of steps of one size from where the"
                " gradients are: responses = False"
            )
        if self.responses and not algorithm.train_first_layer:
            return (
                "response functions are those of the first layer, which does not move:"
                " use responses = False"
            )
        return super().objection(problem, algorithm)

    def prepare(self, task: Task) -> Evolution:
        """Draw the points and visit them once."""
        check_task(task)
        if self.slices is None:
            return DMFTEvolution(task, self)
        exact = closed_reason(task.problem, task.algorithm) is None
        if self.closed and exact and task.after is None and task.until is None:
            return ClosedEvolution(task)
        return SlicedEvolution(task, self, DMFTEvolution)

    def _visits(self, task: Task) -> list[int]:
        """Visits of each run that is made."""
        if self.slices is None:
            return [int(task.points[-1]) + 1]
        passes = float(task.points[-1]) / pass_time(task.problem, task.algorithm)
        return [
            round(passes * number) + 1
            for number in (self.slices // 2, self.slices, 2 * self.slices)
        ]

    def cost(self, task: Task) -> float:
        """Visits, each of O(N n p), and the drawing of points, at the first number of
        them.
        """
        p, k = task.problem.p, task.problem.k
        products = task.seeds * sum(
            visits * (2 * p * (2 + k + p + p * visits) + 40)
            for visits in self._visits(task)
        )
        return (
            NS_PER_PRODUCT
            * 1e-9
            * 2**self.log2_points
            * self.replicates
            * (products + 10 * SOBOL)
        )

    def footprint(self, task: Task) -> int:
        """The bases of all paths, and their points."""
        vectors = sum(
            room_for(task.problem.k, task.problem.p, visits - 1)
            for visits in self._visits(task)
        )
        held = (
            8 * 2**self.log2_points * self.replicates * (task.seeds * vectors + SOBOL)
        )
        return super().footprint(task) + held
