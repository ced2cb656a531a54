"""The exact-in-law simulation: SGD in d dimensions that carries only the overlaps.

    rows of W in an orthonormal basis:  A (target span),  B (span of the students' own orthogonal parts);
    M = A L_Pᵀ,  Q = A Aᵀ + B Bᵀ,  fields  λ* = L_P ξ*,  λ = A ξ* + B ξ⊥
    A ← A + (lr/p n_b) Gᵀ ξ*,    B ← LQ[ B + (lr/p n_b) Gᵀ ξ⊥ ,  (lr/p n_b) C T ],    C Cᵀ = Gᵀ G

What a batch adds outside the known directions has a Gram matrix of Wishart law; T is its Bartlett factor with
d − rank − c degrees of freedom (wishart.py). Only B Bᵀ matters, so B is brought back to c columns by an LQ
decomposition: positivity cannot be lost, no matrix is inverted, and coincident neurons, singular Ω and d ≤ p + k
need no special case. Momentum carries the previous rows as p more rows.

Cost per step and seed: O(n_b p (p + k) + p³), whatever d. Memory O(seeds · (p² + min(n_b (p + k), 2¹⁴))).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.kernel import Kernel, Rates, Sample, kernel_of, move, move_second
from twolayer.gaussian.batch_sums import Nodes, Sums, covariance_nodes, gaussian_sums, size_of_features, tail
from twolayer.gaussian.engines import adapt
from twolayer.gaussian.nodes import target_frame
from twolayer.loops.stepwise import (
    StepwiseEvolution,
    Watch,
    accept,
    embed,
    in_groups,
    lane_axes,
    lane_numbers,
    watched_value,
)
from twolayer.numerics import random
from twolayer.numerics.errors import choice, positive_integer
from twolayer.numerics.precision import float64
from twolayer.numerics.wishart import GramFactor
from twolayer.task.algorithm import SGD
from twolayer.task.method import Evolution, Stackable, Task, register_method
from twolayer.task.overlaps import rank_of
from twolayer.task.problem import Problem

__all__ = ["Chain"]

SAMPLES_AT_ONCE = 2**14  # normals of one seed held at once
STEPS_AT_ONCE = 64
EXACT_BATCH = 2**17  # smaller batches are drawn sample by sample unless asked otherwise
QUIET = 100  # and larger ones up to so many times the tail of g, where the Gaussian limit begins,
STREAMED = 2**24  # but no more than this
NS_PER_NORMAL, NS_PER_CUBE = 25.0, 25.0  # for estimates of cost: drawing and using a normal, and p³ of a step
UNROLLED = (8, 32)  # LQ by unrolled reflections up to this many rows and columns, by LAPACK beyond


@dataclass(frozen=True)
class Spec:
    """Shapes and choices that fix the compiled code; Gaussian sums take the batch as data, and ``batch`` is 0."""

    kernel: Kernel
    p: int
    rank: int
    columns: int
    batch: int
    factor: GramFactor
    momentum: bool
    quantity: str | None
    gaussian: bool

    @property
    def width(self) -> int:
        """Normals per sample: ξ*, ξ⊥ and the label noise."""
        return self.rank + self.columns + 1

    @property
    def chunk(self) -> int:
        """Samples drawn at once."""
        return min(self.batch, max(1, SAMPLES_AT_ONCE // self.width))

    @property
    def held(self) -> bool:
        """Whether all random numbers of a step are held at once."""
        return self.gaussian or self.chunk == self.batch

    @property
    def draws(self) -> int:
        """Normals per step that make the sums of a batch, if held."""
        return size_of_features(self.p, self.rank, self.columns) if self.gaussian else self.batch * self.width


class Params(NamedTuple):
    """Numbers that the compiled code takes as data; rates, table, noise and watch have their own value in each lane."""

    rates: Rates
    L: Any
    inverse: Any
    table: Any
    noise: Any
    batch: Any
    nodes: Nodes | None
    average: Any
    engine: Any
    watch: Watch | None


class State(NamedTuple):
    """Rows of W (and below them the previous rows, with momentum) and the second layer."""

    A: Any
    B: Any
    a: Any
    previous_a: Any


def lq(X: Any) -> Any:
    """Lower triangular L (p, min(p, n)) with L Lᵀ = X Xᵀ, for X (p, n); signs of the diagonal are free."""
    p, n = X.shape
    if p > UNROLLED[0] or n > UNROLLED[1] or n == 0:
        return jnp.linalg.qr(X.T, mode="r").T
    columns = []
    for i in range(min(p, n)):
        row = X[0]
        norm = jnp.sqrt((row * row).sum())
        head = jnp.where(row[0] >= 0, norm, -norm)
        v = row.at[0].add(head)
        square = (v * v).sum()
        scale = jnp.where(square > 0, 2.0 / jnp.where(square > 0, square, 1.0), 0.0)
        X = X - (scale * (X * v).sum(1))[:, None] * v
        columns.append(jnp.concatenate([jnp.zeros(i), X[:, 0]]))
        X = X[1:, 1:]
    return jnp.stack(columns, 1)


def batch_sums(spec: Spec, params: Params, state: State, normals: Any, inside: Any = None) -> Sums:
    """Sums over samples given by their normals (samples, width), those ``inside`` the batch if a mask is given."""
    p, r, c = spec.p, spec.rank, spec.columns
    xi_star, xi_own = normals[:, :r], normals[:, r : r + c]
    student = xi_star @ state.A[:p].T + xi_own @ state.B[:p].T
    sample = Sample(student, xi_star @ params.L.T, params.rates.noise * normals[:, -1])
    push = spec.kernel.push(sample, state.a)
    weight = 1.0 / spec.batch if inside is None else jnp.where(inside, 1.0 / spec.batch, 0.0)[:, None]
    g = weight * push.first
    C = lq(g.T) if normals.shape[0] > p else g.T
    return Sums(g.T @ xi_star, g.T @ xi_own, C, (weight * push.second).sum(0))


def streamed_sums(spec: Spec, params: Params, state: State, key: Any, number: Any) -> Sums:
    """Sums over a batch too large to hold: chunk after chunk of samples."""
    index, samples = jnp.arange(spec.chunk * spec.width, dtype=jnp.uint32), jnp.arange(spec.chunk)

    def draw(i: Any) -> Any:
        chunk_key = jnp.stack(random.threefry((key[0], key[1]), jnp.uint32(0x5EED), i.astype(jnp.uint32)))
        return random.normal(chunk_key, number.astype(jnp.uint32), index).reshape(spec.chunk, spec.width)

    def add(i: Any, carry: tuple[Sums, Any]) -> tuple[Sums, Any]:
        # the normals travel in the carry: inside one body XLA would compute them anew for each of their uses
        total, normals = carry
        part = batch_sums(spec, params, state, normals, i * spec.chunk + samples < spec.batch)
        C = lq(jnp.concatenate([total.C, part.C], axis=1))
        sums = Sums(total.star + part.star, total.own + part.own, C, total.second + part.second)
        return sums, draw(i + 1)

    p = spec.p
    empty = Sums(jnp.zeros((p, spec.rank)), jnp.zeros((p, spec.columns)), jnp.zeros((p, p)), jnp.zeros(p))
    return jax.lax.fori_loop(0, -(-spec.batch // spec.chunk), add, (empty, draw(jnp.asarray(0))))[0]


def sums_of(spec: Spec, params: Params, state: State, normals: Any) -> Sums:
    """Sums of a batch from all its normals: sample by sample, or drawn from their Gaussian limit."""
    if not spec.gaussian:
        return batch_sums(spec, params, state, normals.reshape(spec.batch, spec.width))
    rows = (state.A[: spec.p], state.B[: spec.p], state.a)
    frame = (params.L, params.inverse, params.noise, params.nodes, params.average)
    return gaussian_sums(spec.kernel, params.batch, *rows, *frame, normals)


def step(spec: Spec, params: Params, state: State, sums: Sums, T: Any) -> tuple[State, Any]:
    """One step of SGD from the sums of its batch and the orthogonal factor T; and the largest squared norm met."""
    p, r, c, t = spec.p, spec.rank, spec.columns, T.shape[1]
    blank = jnp.zeros((p, t))
    W = jnp.concatenate([state.A[:p], state.B[:p], blank], axis=1)
    previous = jnp.concatenate([state.A[p:], state.B[p:], blank], axis=1) if spec.momentum else None
    gradient = jnp.concatenate([sums.star, sums.own, sums.C @ T], axis=1)
    rows, square = move(W, gradient, previous, params.rates, spec.kernel.geometry)
    if spec.momentum:
        rows = jnp.concatenate([rows, W])
    a, size = state.a, square.max()
    if spec.kernel.trained:
        a = move_second(state.a, sums.second, state.previous_a, params.rates)
        size = jnp.maximum(size, (a * a).max())
    B = rows[:, r:] if t == 0 else lq(rows[:, r:])
    return State(rows[:, :r], B[:, :c], a, state.a), size


def one_step(spec: Spec, params: Params, carry: Any, number: Any, on: Any, sums: Sums, T: Any) -> Any:
    """Take step ``number`` of one seed unless it has stopped."""
    state, lane = carry
    new, size = step(spec, params, state, sums, T)
    A, B = new.A[: spec.p], new.B[: spec.p]
    value = watched_value(spec.quantity, params.engine, A @ A.T + B @ B.T, A @ params.L.T, new.a, params.noise)
    return accept(state, new, lane, size, value, params.watch, number, on)


@partial(jax.jit, static_argnames=("spec", "block"))
def advance(spec: Spec, block: int, params: Params, keys: Any, carry: Any, start: Any, stop: Any) -> Any:
    """Steps start … stop − 1 of all groups of seeds; all but shared parameters have leading axes (groups, lanes)."""

    def group(own: dict[str, Any], keys: Any, carry: Any, start: Any, stop: Any) -> Any:
        return advance_group(spec, block, params._replace(**own), keys, carry, start, stop)

    return in_groups(group, lane_numbers(params), keys, carry, start, stop)


def advance_group(spec: Spec, block: int, params: Params, keys: Any, carry: Any, start: Any, stop: Any) -> Any:
    """The same for one group, ``block`` steps of normals at a time."""
    axes, longest = lane_axes(params), (stop - start).max()

    def normals_of(role: int, numbers: Any, count: int) -> Any:
        index = jnp.arange(count, dtype=jnp.uint32)
        return random.normal(keys[None, :, None, role], numbers.astype(jnp.uint32)[:, :, None], index)

    def held(b: Any, carry: Any) -> Any:
        """A block of steps whose batches are held in memory."""
        numbers = start + (b * block + jnp.arange(block))[:, None]
        normals = normals_of(0, numbers, spec.draws)
        T = spec.factor.build(normals_of(1, numbers, spec.factor.draws), params.table)

        def single(params: Params, stop: Any, carry: Any, number: Any, normals: Any, T: Any) -> Any:
            return one_step(spec, params, carry, number, number < stop, sums_of(spec, params, carry[0], normals), T)

        def body(carry: Any, xs: Any) -> tuple[Any, None]:
            return jax.vmap(single, (axes, 0, 0, 0, 0, 0))(params, stop, carry, *xs), None

        return jax.lax.scan(body, carry, (numbers, normals, T))[0]

    def streamed(i: Any, carry: Any) -> Any:
        """One step whose batch is drawn chunk by chunk."""
        numbers = start + i
        T = spec.factor.build(normals_of(1, numbers[None], spec.factor.draws), params.table)[0]

        def single(params: Params, key: Any, number: Any, stop: Any, carry: Any, T: Any) -> Any:
            sums = streamed_sums(spec, params, carry[0], key, number)
            return one_step(spec, params, carry, number, number < stop, sums, T)

        return jax.vmap(single, (axes, 0, 0, 0, 0, 0))(params, keys[:, 0], numbers, stop, carry, T)

    if spec.held:
        return jax.lax.fori_loop(0, (longest + block - 1) // block, held, carry)
    return jax.lax.fori_loop(0, longest, streamed, carry)


def gram_factor(method: Chain, task: Task) -> tuple[int, int, GramFactor]:
    """Rank of the target, columns of B, and how to draw what the samples have outside both."""
    problem, algorithm = task.problem, task.algorithm
    rank = rank_of(problem.P)
    rest = method.dim - rank
    columns = min(problem.p * (1 + (algorithm.momentum > 0)), rest)
    return rank, columns, GramFactor(min(problem.p, algorithm.batch_at(method.dim)), rest - columns)


@float64
def tail_of(problem: Problem, algorithm: SGD, Q: np.ndarray, M: np.ndarray, a: np.ndarray) -> float:
    """Batch from which on the sums at these overlaps are near their Gaussian limit.

    Examples
    --------
    >>> round(tail_of(Problem("h2(z1)", "h2"), SGD(lr=0.1), np.eye(1), np.zeros((1, 1)), np.ones(1)), 6)
    54.0
    """
    kernel, L = kernel_of(problem, algorithm), target_frame(problem.P)[0]
    A, B = embed(Q, M, problem.P, problem.p)
    nodes, _ = covariance_nodes(kernel, A.shape[1], B.shape[1], problem.noise > 0)
    return float(tail(kernel, A, B, jnp.asarray(a), L, problem.noise, nodes))


def compiled_form(method: Chain, task: Task) -> tuple[Spec, int, GramFactor]:
    """What fixes the compiled code of a task: shapes and choices, and steps in a block; and its own Gram factor."""
    problem, algorithm = task.problem, task.algorithm
    momentum, batch = algorithm.momentum > 0, algorithm.batch_at(method.dim)
    rank, columns, factor = gram_factor(method, task)
    gaussian = method.batch_sums == "gaussian"
    if method.batch_sums == "auto" and batch > EXACT_BATCH:
        Q, M, a = (x[0] for x in task.starts())
        gaussian = batch > STREAMED or batch > QUIET * tail_of(problem, algorithm, Q, M, a)
    quantity = None if task.until is None else task.until.quantity
    kernel = kernel_of(problem, algorithm)
    held = 0 if gaussian else batch
    spec = Spec(kernel, problem.p, rank, columns, held, factor.compiled, momentum, quantity, gaussian)
    stride = int(np.diff(task.points).min()) if len(task.points) > 1 else 1
    room = SAMPLES_AT_ONCE // spec.draws
    return spec, 2 ** int(np.log2(max(1, min(STEPS_AT_ONCE, stride, room)))), factor


class ChainEvolution(StepwiseEvolution):
    """Rows and second layer of all seeds of one task, or of several of the same compiled form."""

    def __init__(self, methods: Sequence[Chain], tasks: Sequence[Task]) -> None:
        super().__init__(tasks)
        problem, algorithm = self.task.problem, self.task.algorithm
        L, inverse = target_frame(problem.P)
        self.spec, self.block, _ = compiled_form(methods[0], self.task)
        nodes, average, self._sums = None, None, "exact"
        if self.spec.gaussian:
            nodes, rule = covariance_nodes(self.spec.kernel, self.spec.rank, self.spec.columns, problem.noise > 0)
            averager = adapt(problem, algorithm.loss, *self.task.starts())[0]
            average, self._sums = averager.engine, f"gaussian (mean: {averager.label}; covariance: {rule})"
        tables = [gram_factor(*pair)[2].table() for pair in zip(methods, tasks, strict=True)]
        table = self.grouped(self.spread(tables))
        rates = self.rates([method.dim for method in methods])
        batch = float(algorithm.batch_at(methods[0].dim))
        self.params = Params(rates, L, inverse, table, self.noise, batch, nodes, average, self.engine, self.watch)
        self.streams = self.keys(random.Role.FIELDS, random.Role.ORTHOGONAL)

    def initial_state(self) -> State:
        """Rows of the start in the orthonormal basis; with momentum, twice."""
        Q, M, a = self.starts()
        A, B = embed(Q, M, self.task.problem.P, self.spec.columns)
        if self.spec.momentum:
            A, B = np.concatenate([A, A], axis=1), np.concatenate([B, B], axis=1)
        return State(*map(self.grouped, (A, B, a, a)))

    def run(self, carry: Any, start: Any, stop: Any) -> Any:
        """Compiled steps."""
        return advance(self.spec, self.block, self.params, self.streams, carry, start, stop)

    def overlaps(self, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """M = A L_Pᵀ and Q = A Aᵀ + B Bᵀ."""
        A, B = np.asarray(state.A)[..., : self.spec.p, :], np.asarray(state.B)[..., : self.spec.p, :]
        Q = A @ A.swapaxes(-1, -2) + B @ B.swapaxes(-1, -2)
        return Q, A @ self.params.L.T, np.asarray(state.a)

    def notes(self) -> dict[str, Any]:
        """How the batches were summed."""
        return {"batch_sums": self._sums}


@register_method
@dataclass(frozen=True)
class Chain(Stackable):
    """SGD in d dimensions simulated exactly in law through its overlaps: the cost does not grow with d.

    Parameters
    ----------
    dim : int
        d.
    batch_sums : str
        ``"exact"``: every sample is drawn. ``"gaussian"``: the sums over a batch are drawn from their Gaussian limit
        with exact moments. ``"auto"``: exact up to n_b = 2¹⁷, and up to 2²⁴ where g has heavy tails (below 100 times
        `tail_of`, which is 2 for linear neurons, 54 for h2, 1900 for h3, 57 000 for h4), Gaussian beyond. The result
        records which.

    Notes
    -----
    Cost per step and seed O(n_b p (p + k) + p³); memory O(seeds · (p² + min(n_b (p + k), 2¹⁴))).

    Examples
    --------
    >>> Chain(dim=10_000)
    Chain(dim=10000, batch_sums='auto')
    """

    dim: int
    batch_sums: str = "auto"
    stochastic: ClassVar[bool] = True
    stepwise: ClassVar[bool] = True
    papers: ClassVar[tuple[str, ...]] = ("arnaboldi2023escaping", "benarous2021")

    def __post_init__(self) -> None:
        positive_integer("dim", self.dim)
        choice("batch_sums", self.batch_sums, ("auto", "exact", "gaussian"))

    def refusal(self, problem: Problem, algorithm: SGD) -> str | None:
        """Reused samples are correlated with the weights, so the overlaps alone are not a Markov chain."""
        if algorithm.dataset is not None:
            return (
                f"samples are reused (dataset = {algorithm.dataset}), so the weights are correlated with the data and "
                "the overlaps are no longer a Markov chain"
            )
        return None

    def stack_key(self, task: Task) -> Hashable | None:
        """Everything but the rates, the noise, the thresholds and, in the Gram factor, the dimension."""
        spec, block, _ = compiled_form(self, task)
        return None if spec.gaussian else (spec, block, task.problem.gram, len(task.points))

    def prepare_stack(self, pairs: Sequence[tuple[Chain, Task]]) -> Evolution:
        """Set up the rows and the random streams."""
        methods, tasks = zip(*pairs, strict=True)
        return ChainEvolution(methods, tasks)

    def cost(self, task: Task) -> float:
        """Steps, each of O(n_b p (p + k) + p³)."""
        spec, _, factor = compiled_form(self, task)
        return float(task.points[-1]) * (NS_PER_NORMAL * (spec.draws + factor.draws) + NS_PER_CUBE * spec.p**3) * 1e-9
