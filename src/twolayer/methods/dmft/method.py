"""Dynamical mean-field theory: n = α d samples that are used again and again.

    h^t = M^t P⁺ h* + ω^t + Σ_{s<t} R_θ(t, s) F^s        what a sample sees: its own past comes back to it
    θ^{t+1} = θ^t + u^t + Σ_{s≤t} R_F(t, s) θ^s          what the weights outside the target directions do
    ω ~ GP(0, C_θ),   u ~ GP(0, C_F),   C_F = α E[F Fᵀ],   R_F = α E[∂F/∂ω]

The two sides determine each other step by step, without iteration: C_θ and R_θ up to t give the fields at t, whose
averages give C_F and R_F at t, which give C_θ and R_θ at t + 1 (dmft_weights.py, dmft_fields.py). Everything is
deterministic as d → ∞; the only error is that of the averages over the fields, estimated from independent replicates.
The test risk has fields N(0, Ω^t); the training risk has those above, and differs from the first step on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from twolayer.equations.kernel import Kernel
from twolayer.gaussian.engines import select
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.risk import excess_risks
from twolayer.loops.watching import LIMIT, watched_value
from twolayer.methods.dmft.fields import POINTS, Fields, Plan, draw_points
from twolayer.methods.dmft.weights import Averages, Rule, Weights
from twolayer.numerics.errors import choice, positive_integer
from twolayer.task.algorithm import SGD
from twolayer.task.method import Evolution, Method, Outcome, Snapshot, Task, register_method
from twolayer.task.problem import Problem

__all__ = ["DMFT"]

RESPONSES = ("auto", "derivative", "stein")
DIVERGED, REACHED = Outcome.CODES.index(Outcome.DIVERGED), Outcome.CODES.index(Outcome.REACHED)
NS_PER_PRODUCT = 1.5  # for estimates of cost


class Path:
    """One start with one set of points: weights, fields, and the training risk of every visit."""

    def __init__(self, weights: Weights, fields: Fields) -> None:
        self.weights, self.fields = weights, fields
        self.train_risk = np.zeros(len(weights.a))
        self._averages: Averages
        self._visit()

    def _visit(self) -> None:
        self._averages, self.train_risk[self.weights.at] = self.fields.visit(self.weights)
        self.weights.record(self._averages)

    def advance(self) -> None:
        """One step of the weights, and the visit of the samples that follows it."""
        self.weights.advance(self._averages)
        if self.finite:
            self._visit()

    @property
    def finite(self) -> bool:
        """Whether the weights are within bounds."""
        weights = self.weights
        size = np.diagonal(weights.Q[weights.at]).max()
        return bool(max(size, (weights.a[weights.at] ** 2).max()) < LIMIT)


class DMFTEvolution(Evolution):
    """Paths of all starts, several replicates each; what is reported is their mean."""

    def __init__(self, task: Task, method: DMFT) -> None:
        self.task, self.method = task, method
        problem, algorithm = task.problem, task.algorithm
        self.steps = int(task.points[-1])
        kernel = Kernel(problem.activation, problem.target, algorithm.loss)  # the geometry is that of the weights
        self.derivative = method.uses_derivatives(problem)
        self.L, inverse = target_frame(problem.P)
        assert algorithm.dataset is not None
        lr, alpha = algorithm.lr.coefficient, algorithm.dataset.coefficient
        batches = alpha / algorithm.batch.coefficient
        gain = lr / (problem.p * algorithm.batch.coefficient)
        plan = Plan(alpha, batches, algorithm.sampling == "replacement", float(np.sqrt(problem.noise)), gain)
        shrink = 1.0 - lr * algorithm.weight_decay
        rule = Rule(lr / problem.p, shrink, algorithm.momentum, algorithm.geometry, algorithm.train_second_layer)
        shape = (self.L.shape[1], problem.p, self.steps, method.log2_points)
        sets = [draw_points(plan, *shape, method.points, i) for i in range(method.replicates)]
        self.paths = [
            [
                Path(Weights(rule, M @ inverse.T, Q, a, self.steps), Fields(kernel, plan, x, self.L, self.derivative))
                for x in sets
            ]
            for Q, M, a in zip(*task.starts(), strict=True)
        ]
        until = task.until
        risky = until is not None and until.quantity in ("risk", "excess_risk")
        self.engine = select(problem, "squared").engine if risky else None
        self.watched = [self._watched(i, 0) for i in range(task.seeds)]
        self.levels = [0.0 if until is None else until.value * (x if until.relative else 1.0) for x in self.watched]

    def initial(self) -> Any:
        """Step 0, nothing stopped; the histories are kept in the paths."""
        n = self.task.seeds
        return np.zeros(n, int), np.zeros(n, np.int32), np.full(n, np.nan)

    def stopped(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and steps."""
        return state[1], state[2]

    def snapshot(self, state: Any) -> Snapshot:
        """Means over the replicates at the step of each start."""
        parts = [[x.mean(0)[None] for x in self._values(i, int(t))] for i, t in enumerate(state[0])]
        return Snapshot(*(np.stack(x) for x in zip(*parts, strict=True)))

    def _values(self, start: int, t: int) -> tuple[np.ndarray, ...]:
        """Q, M, a and the training risk at step t, replicates first."""
        paths = self.paths[start]
        Q = [path.weights.Q[t] for path in paths]
        M = [path.weights.A[t] @ self.L.T for path in paths]
        return tuple(map(np.array, (Q, M, [x.weights.a[t] for x in paths], [x.train_risk[t] for x in paths])))

    def _watched(self, start: int, t: int) -> float:
        until = self.task.until
        Q, M, a, _ = (x.mean(0) for x in self._values(start, t))
        quantity = None if until is None else until.quantity
        return float(watched_value(quantity, self.engine, Q, M, a, self.task.problem.noise))

    def advance(self, state: Any, first: int, tick: Callable[[float], None]) -> tuple[Any, Snapshot]:
        """To the next save point, one step of all starts after the other."""
        at, code, stop = (x.copy() for x in state)
        for t in range(int(self.task.points[first]), int(self.task.points[first + 1])):
            for i in np.flatnonzero(code == 0):
                for path in self.paths[i]:
                    path.advance()
                if not all(path.finite for path in self.paths[i]):
                    code[i], stop[i] = DIVERGED, t + 1.0
                    continue
                at[i] = t + 1
                if self.task.until is not None:
                    self._watch(int(i), t, code, stop)
            tick(t + 1.0)
        return (at, code, stop), self.snapshot((at, code, stop))

    def _watch(self, i: int, t: int, code: np.ndarray, stop: np.ndarray) -> None:
        """Mark a start that has passed the threshold, at the step interpolated linearly."""
        until = self.task.until
        assert until is not None
        before, now, level = self.watched[i], self._watched(i, t + 1), self.levels[i]
        self.watched[i] = now
        if (now >= level) if until.quantity == "overlap" else (now <= level):
            part = 1.0 if now == before else (before - level) / (before - now)
            code[i], stop[i] = REACHED, t + float(np.clip(part, 0.0, 1.0))

    def notes(self) -> dict[str, Any]:
        """How the averages were taken, and the largest standard error of M at the end."""
        n = len(self.paths[0][0].fields.points.star)
        kind = "Sobol" if self.method.points == "sobol" else "random"
        notes: dict[str, Any] = {
            "engine": f"{self.method.replicates} × {n} {kind} points",
            "response": "derivative" if self.derivative else "stein",
        }
        if self.method.replicates > 1:
            notes["engine_error"] = max(
                float(self._error(self._replicates(i)[1])[-1].max()) for i in range(self.task.seeds)
            )
        return notes

    def _replicates(self, start: int) -> list[np.ndarray]:
        """Q, M, a and the training risk at all save points, (time, replicate, …)."""
        last = self.paths[start][0].weights.at
        each = zip(*(self._values(start, min(int(t), last)) for t in self.task.points), strict=True)
        return [np.stack(x) for x in each]

    def _error(self, values: np.ndarray) -> np.ndarray:
        """Standard error of the mean over the replicates."""
        return np.asarray(values.std(1, ddof=1) / np.sqrt(self.method.replicates))

    def extras(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Standard errors, if there are replicates, and the kernels averaged over them."""
        found: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
        if self.method.replicates > 1:
            each_start = [self._replicates(i) for i in range(self.task.seeds)]
            risks = [excess_risks(self.task.problem, Q, M, a)[0] for Q, M, a, _ in each_start]
            values = [*zip(*each_start, strict=True), risks]
            Q, M, _, train, risk = (np.stack([self._error(x) for x in starts]) for starts in values)
            found["Q_error"] = ("seed", "time", "neuron", "neuron_"), Q
            found["M_error"] = ("seed", "time", "neuron", "direction"), M
            found["train_risk_error"] = ("seed", "time"), train
            found["risk_error"] = ("seed", "time"), risk
        dims = ("seed", "visit", "visit_", "neuron", "neuron_")
        for name in ("C_theta", "C_F", "R_theta", "R_F"):
            each = [np.mean([getattr(path.weights, name) for path in paths], axis=0) for paths in self.paths]
            found[name] = dims, np.stack(each)
        return found


@register_method
@dataclass(frozen=True)
class DMFT(Method):
    """The limit d → ∞ of steps of order one on n = α d samples that are reused.

    Parameters
    ----------
    log2_points : int
        Points for averages over the fields, as a power of two, in each replicate.
    replicates : int
        Independent sets of points: the result is their mean, their spread its error (none for a single one).
    response : str
        ``"derivative"``: derivatives of the push along each path, for smooth activations; ``"stein"``: Gaussian
        integration by parts, for any; ``"auto"``: the first unless σ has kinks, where σ'' is a delta function.
    points : str
        ``"sobol"`` (scrambled) or ``"random"``.

    Notes
    -----
    With N points and T steps: time O(N T² p²) and memory O(N T p) by integration by parts; time O(N T³ p³) and memory
    O(N T p²) with derivatives; both for each replicate and start.

    Examples
    --------
    >>> DMFT(replicates=2)
    DMFT(log2_points=17, replicates=2, response='auto', points='sobol')
    """

    log2_points: int = 17
    replicates: int = 4
    response: str = "auto"
    points: str = "sobol"
    stepwise: ClassVar[bool] = True
    papers: ClassVar[tuple[str, ...]] = ("dandi2024", "gerbelot2024", "celentano2021")

    def __post_init__(self) -> None:
        positive_integer("log2_points", self.log2_points, 4)
        positive_integer("replicates", self.replicates)
        choice("response", self.response, RESPONSES)
        choice("points", self.points, POINTS)

    def refusal(self, problem: Problem, algorithm: SGD) -> str | None:
        """Reused samples only, with n = α d, n_b = α_b d and lr of order one."""
        if algorithm.dataset is None:
            return (
                "every sample is new (dataset = None), so that nothing comes back to the fields; GiantSteps is the "
                "theory of fresh batches"
            )
        laws = f"lr = {algorithm.lr}, batch = {algorithm.batch}, dataset = {algorithm.dataset}"
        if (algorithm.lr.exponent, algorithm.batch.exponent, algorithm.dataset.exponent) != (0, 1, 1):
            return (
                f"with {laws} the limit d → ∞ is not one of finitely many steps on n = α d samples, which needs lr of "
                "order one and batch and dataset proportional to d"
            )
        return None

    def prepare(self, task: Task) -> Evolution:
        """Draw the points and visit them once."""
        return DMFTEvolution(task, self)

    def uses_derivatives(self, problem: Problem) -> bool:
        """Whether responses are derivatives."""
        return self.response == "derivative" or (self.response == "auto" and not problem.activation.kinks)

    def cost(self, task: Task) -> float:
        """Visits, each of O(N T p²), or O(N T² p³) with derivatives."""
        steps, p = float(task.points[-1]) + 1, task.problem.p
        work = 2**self.log2_points * self.replicates * steps**2 * p**2
        return NS_PER_PRODUCT * 1e-9 * work * (4 + (steps * p if self.uses_derivatives(task.problem) else 0))

    def footprint(self, task: Task) -> int:
        """Innovations, pushes and, with derivatives, slopes of all visits."""
        steps, p = int(task.points[-1]) + 1, task.problem.p
        held = 4 + (3 * p if self.uses_derivatives(task.problem) else 0)
        return super().footprint(task) + 8 * 2**self.log2_points * self.replicates * steps * p * held
