"""The exact-in-law simulation: SGD in d dimensions that carries only the overlaps.

    state: rows (A, B) of W in an orthonormal basis;
        step: equations/orthogonal.py, exact in law

Batches that fit are drawn sample by sample, many steps at a time; larger ones chunk
after chunk; very large ones from the Gaussian limit of their sums
(gaussian/batch_sums.py). Plain steps of small networks have machine code of their own
(compiled/); this file has the rest, in JAX.

Cost per step and seed: O(n_b p (p + k) + p³), whatever d. Memory O(seeds · (p² +
min(n_b (p + k), 2¹⁴))).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from twolayer.compiled.device import DeviceStepper
from twolayer.compiled.stepper import WrittenStepper
from twolayer.compiled.supported_chains import no_machine_code, unwritten
from twolayer.equations.averages import Engine
from twolayer.equations.block_coordinates import BlockLayout
from twolayer.equations.block_refusals import rules_of_rotations
from twolayer.equations.increment_kernel import kernel_of
from twolayer.equations.optimiser_step import (
    Coefficients,
    Layers,
    Memory,
    form_of,
    rates_now,
)
from twolayer.equations.orthogonal import (
    Frame,
    Reduced,
    Sums,
    batch_sums,
    embed,
    exact_step,
    lq,
    overlaps,
)
from twolayer.gaussian.batch_sums import gaussian_sums, size_of_features, tail
from twolayer.gaussian.engines import adapt
from twolayer.gaussian.nodes import target_frame
from twolayer.gaussian.sample_parts import FieldRows
from twolayer.gaussian.single_samples import (
    CHECKED,
    Choice,
    Place,
    Samples,
    choose,
    typical_rows,
)
from twolayer.loops.stepwise import Lanes, Stepper, Stepwise, for_each_group, lane_axes
from twolayer.loops.stopping import Watch, accept, watched_value
from twolayer.numerics import random
from twolayer.numerics.arguments import Notes
from twolayer.numerics.errors import InputError, Refused, choice, keep_integers
from twolayer.numerics.precision import float64
from twolayer.numerics.types import Number, Real, Tree
from twolayer.numerics.wishart import GramFactor, GramFactors
from twolayer.task.algorithm import SGD
from twolayer.task.method import Evolution, Snapshot, Stackable, Task, register_method
from twolayer.task.overlaps import rank_of
from twolayer.task.problem import Problem
from twolayer.task.rules import Rule
from twolayer.task.schedule_factors import Tempo

__all__ = ["Chain"]

SAMPLES_AT_ONCE = 2**14  # normals of one seed held at once
STEPS_AT_ONCE = 64
More = Real | None  # what only some rules draw
EXACT_BATCH = 2**17  # smaller batches are drawn sample by sample unless asked otherwise
# and larger ones up to so many times the tail of g, where the Gaussian limit begins,
QUIET = 100
LARGEST_SIZED = 128  # samples of a batch whose Gram matrix is drawn
STREAMED = 2**24  # but no more than this
NANOSECONDS = {
    "jax": (25.0, 25.0),
    "compiled": (8.0, 0.3),
    "device": (8.0, 0.3),
}  # for estimates: drawing and using a normal, p³ of a step
SECONDS = {"jax": 6.0, "compiled": 0.6, "device": 6.0}


@dataclass(frozen=True)
class ChainForm:
    """Shapes and choices that fix the compiled code; Gaussian sums take the batch as
    data.
    """

    at: Reduced
    quantity: str | None
    gaussian: bool

    @property
    def chunk(self) -> int:
        """Samples drawn at once."""
        return min(self.at.batch, max(1, SAMPLES_AT_ONCE // self.at.width))

    @property
    def held(self) -> bool:
        """Whether all random numbers of a step are held at once."""
        return self.gaussian or self.chunk == self.at.batch

    @property
    def draws(self) -> int:
        """Normals per step that make the sums of a batch, if held."""
        at = self.at
        return (
            size_of_features(at.p, at.rank, at.columns)
            if self.gaussian
            else at.batch * at.width
        )


class ChainNumbers(NamedTuple):
    """Numbers that the compiled code takes as data; rates, table, noise and watch have
    their own value in each lane.
    """

    rates: Coefficients
    tempo: Tempo | None
    L: Real
    inverse: np.ndarray
    table: Tree
    noise: Real
    batch: Number
    samples: Samples | None
    average: Any
    engine: Engine | None
    watch: Watch | None
    scale: Real | None = None
    spread: Real | None = None

    @property
    def frame(self) -> Frame:
        """What one step takes of them."""
        return Frame(
            self.rates, self.L, self.table, self.noise, self.scale, self.spread
        )

    def now(self, state: Memory) -> ChainNumbers:
        """With the rates of the step that follows a state."""
        return (
            self
            if self.tempo is None
            else self._replace(rates=rates_now(self.rates, self.tempo, state))
        )


def streamed_sums(
    spec: ChainForm,
    frame: Frame,
    layers: Layers,
    key: Real,
    number: Real,
    own: More = None,
) -> Sums:
    """Sums over a batch too large to hold: chunk after chunk of samples; ``own`` is the
    key of a rule that draws.
    """
    at, chunk = spec.at, spec.chunk
    index = jnp.arange(chunk * at.width, dtype=jnp.uint32)

    def draw(i: Real) -> Array:
        chunk_key = jnp.stack(
            random.threefry((key[0], key[1]), jnp.uint32(0x5EED), i.astype(jnp.uint32))
        )
        return random.normal(chunk_key, number.astype(jnp.uint32), index).reshape(
            chunk, at.width
        )

    def add(i: Real, carry: tuple[Sums, Array]) -> tuple[Sums, Array]:
        # the normals travel in the carry: inside one body XLA would compute them anew
        # for each of their uses
        total, normals = carry
        mine = None if own is None else jax.random.fold_in(own, i)
        part = batch_sums(at, frame, layers, normals, i * chunk, key=mine)
        C = lq(jnp.concatenate([total.C, part.C], axis=1))
        sums = Sums(
            total.star + part.star, total.own + part.own, C, total.second + part.second
        )
        return sums, draw(i + 1)

    p = at.p
    empty = Sums(
        jnp.zeros((p, at.rank)),
        jnp.zeros((p, at.columns)),
        jnp.zeros((p, p)),
        jnp.zeros(p),
    )
    return jax.lax.fori_loop(
        0, -(-at.batch // chunk), add, (empty, draw(jnp.asarray(0)))
    )[0]


def sums_of(
    spec: ChainForm,
    params: ChainNumbers,
    layers: Layers,
    normals: Array,
    T: Tree,
    key: More = None,
) -> Sums:
    """Sums of a batch from all its normals: sample by sample, or drawn from their
    Gaussian limit.
    """
    at, (W, a) = spec.at, layers
    if not spec.gaussian:
        return batch_sums(
            at, params.frame, layers, normals.reshape(at.batch, at.width), T=T, key=key
        )
    assert params.samples is not None
    rows, frame = (
        (W[:, : at.rank], W[:, at.rank :], a),
        (params.L, params.inverse, params.noise),
    )
    count = params.rates.batch if at.varies else params.batch
    return gaussian_sums(params.samples, count, *rows, *frame, params.average, normals)


def one_step(
    spec: ChainForm,
    params: ChainNumbers,
    carry: Tree,
    number: Real,
    on: Real,
    sums: Sums,
    T: Tree,
    jitter: More,
) -> Tree:
    """Take step ``number`` of one seed unless it has stopped."""
    state, lane = carry
    new, size = exact_step(spec.at, params.rates, state, sums, T, jitter, params.spread)
    Q, M = overlaps(new.now.W, params.L, params.scale)
    value = watched_value(spec.quantity, params.engine, Q, M, new.now.a, params.noise)
    return accept(state, new, lane, size, value, params.watch, number, on)


@partial(jax.jit, static_argnames=("spec", "block"))
def advance(
    spec: ChainForm,
    block: int,
    params: ChainNumbers,
    keys: Real,
    carry: Tree,
    start: Real,
    stop: Real,
) -> Tree:
    """Steps start … stop − 1 of all groups of seeds; all but shared parameters have
    leading axes (groups, lanes).
    """
    return for_each_group(
        partial(advance_group, spec, block), params, keys, carry, start, stop
    )


def advance_group(
    spec: ChainForm,
    block: int,
    params: ChainNumbers,
    keys: Real,
    carry: Tree,
    start: Real,
    stop: Real,
) -> Tree:
    """The same for one group, ``block`` steps of normals at a time."""
    axes, longest, factor = lane_axes(params), (stop - start).max(), spec.at.factor

    def normals_of(role: int, numbers: Real, count: int) -> Array:
        index = jnp.arange(count, dtype=jnp.uint32)
        return random.normal(
            keys[None, :, None, role], numbers.astype(jnp.uint32)[:, :, None], index
        )

    def jitter_of(numbers: Real) -> More:
        """Noise on the steps along the known directions, (…, p, r + c)."""
        at = spec.at
        if not at.form.jitter:
            return None
        count = at.p * (at.rank + at.columns)
        return normals_of(2, numbers, count).reshape(
            *numbers.shape, at.p, at.rank + at.columns
        )

    def keys_of(numbers: Real) -> More:
        """Keys of a rule that draws random numbers, one for each step."""
        return (
            random.rule_key(keys[None, :, 2], numbers) if spec.at.kernel.draws else None
        )

    def single(
        params: ChainNumbers,
        stop: Real,
        carry: Tree,
        number: Real,
        source: Tree,
        T: Tree,
        jitter: More,
        own: More,
    ) -> Tree:
        """One step of one seed, from the normals of its batch where they are held, else
        from their key.
        """
        here = params.now(carry[0])
        layers = carry[0].aimed(spec.at.form, here.rates)
        if spec.held:
            sums = sums_of(spec, here, layers, source, T, own)
        else:
            sums = streamed_sums(spec, here.frame, layers, source, number, own)
        return one_step(spec, here, carry, number, number < stop, sums, T, jitter)

    every = jax.vmap(single, (axes, 0, 0, 0, 0, 0, 0, 0))

    def held(b: Array, carry: Tree) -> Tree:
        """A block of steps whose batches are held in memory."""
        numbers = start + (b * block + jnp.arange(block))[:, None]
        normals = normals_of(0, numbers, spec.draws)
        T = factor.build(normals_of(1, numbers, factor.draws), params.table)

        def body(carry: Tree, xs: Tree) -> tuple[Tree, None]:
            return every(params, stop, carry, *xs), None

        return jax.lax.scan(
            body, carry, (numbers, normals, T, jitter_of(numbers), keys_of(numbers))
        )[0]

    def streamed(i: Array, carry: Tree) -> Tree:
        """One step whose batch is drawn chunk by chunk."""
        numbers = start + i
        T = jax.tree.map(
            lambda x: x[0],
            factor.build(normals_of(1, numbers[None], factor.draws), params.table),
        )
        jitter, drawn = (
            None if x is None else x[0]
            for x in (jitter_of(numbers[None]), keys_of(numbers[None]))
        )
        return every(params, stop, carry, numbers, keys[:, 0], T, jitter, drawn)

    if spec.held:
        return jax.lax.fori_loop(0, (longest + block - 1) // block, held, carry)
    return jax.lax.fori_loop(0, longest, streamed, carry)


def brought(rows: Real, rank: int, columns: int) -> Array:
    """Rows (…, n, rank + c) with as many columns outside the target's as asked for, and
    the same overlaps.

    Examples
    --------
    >>> wide = np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 3.0, 4.0, 0.0]])
    >>> narrow = brought(wide, 1, 2)
    >>> narrow.shape, bool(np.allclose(narrow @ narrow.T, wide @ wide.T))
    ((2, 3), True)
    """
    own, short = rows[..., rank:], columns - (rows.shape[-1] - rank)
    if short < 0:
        own, short = (
            jnp.swapaxes(jnp.linalg.qr(jnp.swapaxes(own, -1, -2), mode="r"), -1, -2),
            columns - own.shape[-2],
        )
    padded = jnp.pad(own, [(0, 0)] * (own.ndim - 1) + [(0, max(short, 0))])[
        ..., :columns
    ]
    return jnp.concatenate([rows[..., :rank], padded], axis=-1)


def batches(method: Chain, task: Task) -> tuple[int, int]:
    """The smallest and the largest batch of a run."""
    if task.algorithm.batch.schedule is None:
        return (task.algorithm.batch_at(method.dim),) * 2
    return task.clocks.steps_line.check(int(task.points[-1]))[:2]


def unsummed(rule: Rule) -> str | None:
    """What a rule asks of single samples that Gaussian sums over a batch do not have;
    None where they will do.
    """
    if rule.sizes:
        return (
            f"the rule {rule} sees the length of every input, which sums of Gaussian"
            " batches do not have"
        )
    if rule.relabels or rule.draws:
        return (
            f"the rule {rule} draws a number for every sample, which sums of Gaussian"
            " batches do not know"
        )
    return None


def layout_of(method: Chain, task: Task) -> BlockLayout | None:
    """Where rows lie, where inputs have blocks."""
    if task.problem.inputs.plain:
        return None
    most = task.problem.p * form_of(task.algorithm).copies
    return BlockLayout.of(task.problem.inputs, task.start.P, method.dim, most)


def gram_factor(method: Chain, task: Task) -> tuple[int, int, GramFactor | GramFactors]:
    """Rank of the target, columns of B, and how to draw what the samples have outside
    both.
    """
    problem, algorithm, rule = task.problem, task.algorithm, task.algorithm.rule
    most, layout = batches(method, task)[1], layout_of(method, task)
    count, noise = (
        min(problem.p, most),
        problem.p if form_of(algorithm).jitter else 0,
    )  # in every direction
    if layout is not None:
        return (
            layout.L.shape[1],
            sum(layout.own),
            GramFactors.of(count + noise, layout.outside),
        )
    if noise or (rule is not None and rule.sizes):  # a row for every sample
        count = noise + (most if rule is not None and rule.sizes else 0)
    rank = rank_of(problem.P)
    columns = min(problem.p * form_of(algorithm).copies, method.dim - rank)
    return rank, columns, GramFactor(count, method.dim - rank - columns)


@float64
def tail_of(
    problem: Problem, algorithm: SGD, Q: np.ndarray, M: np.ndarray, a: np.ndarray
) -> float:
    """Batch from which on the sums at these overlaps are near their Gaussian limit.

    Examples
    --------
    >>> round(
    ...     tail_of(
    ...         Problem("h2(z1)", "h2"),
    ...         SGD(lr=0.1),
    ...         np.eye(1),
    ...         np.zeros((1, 1)),
    ...         np.ones(1),
    ...     ),
    ...     6,
    ... )
    54.0
    """
    kernel, L = kernel_of(problem, algorithm), target_frame(problem.P)[0]
    A, B = embed(Q, M, target_frame(problem.P)[1], problem.p)
    rows = Place(A, B, jnp.asarray(a), jnp.asarray(problem.noise, float))
    chosen = choose(kernel, L, [rows], problem.noise > 0, both=False)
    return float(tail(chosen.samples, FieldRows.of(A, B, L), rows.a, rows.noise))


def table_of(method: Chain, task: Task) -> Tree:
    """The numbers of the Gram factor of a task."""
    layout, factor = layout_of(method, task), gram_factor(method, task)[2]
    if isinstance(factor, GramFactor):
        return factor.table()
    assert layout is not None
    return factor.tables(layout.outside)


def compiled_form(
    method: Chain, task: Task
) -> tuple[ChainForm, int, GramFactor | GramFactors]:
    """What fixes the compiled code of a task: shapes and choices, and steps in a block;
    and its own Gram factor.
    """
    problem, algorithm = task.problem, task.algorithm
    least, batch = batches(method, task)
    rank, columns, factor = gram_factor(method, task)
    gaussian = method.batch_sums == "gaussian"
    plain = problem.inputs.plain and (
        algorithm.rule is None or not unsummed(algorithm.rule)
    )
    if method.batch_sums == "auto" and plain and least > EXACT_BATCH:
        Q, M, a = (x[0] for x in task.starts())
        gaussian = least > STREAMED or least > QUIET * tail_of(
            problem, algorithm, Q, M, a
        )
    kernel, form, held = (
        kernel_of(problem, algorithm),
        form_of(algorithm),
        0 if gaussian else batch,
    )
    varies = algorithm.batch.schedule is not None
    shape = (kernel, form, problem.p, rank, columns, held)
    if isinstance(factor, GramFactor):
        at = Reduced(*shape, factor.compiled, varies)
    else:
        at = Reduced(*shape, factor, varies, problem.p * form.copies)
    spec = ChainForm(at, None if task.until is None else task.until.quantity, gaussian)
    stride = int(np.diff(task.points).min()) if len(task.points) > 1 else 1
    room = SAMPLES_AT_ONCE // spec.draws
    return spec, 2 ** int(np.log2(max(1, min(STEPS_AT_ONCE, stride, room)))), factor


class ChainStepper(Stepper):
    """Rows and second layer of all seeds of one task, or of several of the same
    compiled form.
    """

    def __init__(self, methods: Sequence[Chain], lanes: Lanes) -> None:
        self.lanes, task = lanes, lanes.task
        problem, algorithm = task.problem, task.algorithm
        L, inverse = target_frame(problem.P)
        self.spec, self.block, _ = compiled_form(methods[0], task)
        at, average, self._sums = self.spec.at, None, "exact"
        self.choice: Choice | None = None
        if self.spec.gaussian:
            # typical rows, whatever the starts: tasks of one compiled form share a rule
            noisy, a = problem.noise > 0, np.ones(problem.p)
            level = np.asarray(float(noisy))
            places = typical_rows(problem.p, at.rank, at.columns, a, level)
            both = algorithm.train_second_layer
            self.choice = choose(at.kernel, L, places, noisy, both=both)
            averager = adapt(problem, algorithm.drive, *task.starts())[0]
            average, self._sums = (
                averager.engine,
                f"gaussian (mean: {averager.label}; covariance: {self.choice.label})",
            )
        tables = [table_of(*pair) for pair in zip(methods, lanes.tasks, strict=True)]
        table = jax.tree.map(lambda *x: lanes.fold(lanes.spread(x)), *tables)
        self.layout = layout_of(methods[0], task)
        blocks: tuple[Array | None, ...] = (None, None)
        if self.layout is not None:
            L, blocks = (
                self.layout.L,
                (jnp.asarray(self.layout.scale), jnp.asarray(self.layout.spread)),
            )
        samples = None if self.choice is None else self.choice.samples
        rates = lanes.rates([method.dim for method in methods])
        batch = float(algorithm.batch_at(methods[0].dim))
        frame = (rates, lanes.tempo, L, inverse, table, lanes.noise)
        self.params = ChainNumbers(
            *frame, batch, samples, average, lanes.engine, lanes.watch, *blocks
        )
        self.last = [x[:CHECKED] for x in task.starts()]
        noise = (random.Role.DIFFUSION,) if at.form.jitter or at.kernel.draws else ()
        self.streams = lanes.keys(random.Role.FIELDS, random.Role.ORTHOGONAL, *noise)

    def start(self) -> Memory:
        """Rows of the start in the orthonormal basis, or where an earlier stage left
        them.
        """
        memory, columns = self.lanes.resumed(self.spec.at.form), self.spec.at.columns
        if memory is not None:
            rank, p = self.spec.at.rank, self.spec.at.p
            if self.layout is not None:
                return self._held_alike(memory)
            held = brought(
                jnp.concatenate([x.W for x in memory.every], axis=-2), rank, columns
            )
            parts = [
                held[..., i * p : (i + 1) * p, :] for i in range(len(memory.every))
            ]
            return memory.moved(
                [Layers(W, x.a) for W, x in zip(parts, memory.every, strict=True)]
            )
        Q, M, a = self.lanes.starts()
        if self.layout is None:
            W = np.concatenate(embed(Q, M, self.params.inverse, columns), axis=-1)
        else:
            W = self.layout.place(*self.lanes.block_starts())
        return Memory.at_rest(
            self.spec.at.form, self.lanes.fold(W), self.lanes.fold(a), self.params.tempo
        )

    def run(self, carry: Tree, start: Real, stop: Real) -> Tree:
        """Compiled steps."""
        return advance(
            self.spec, self.block, self.params, self.streams, carry, start, stop
        )

    def snapshot(self, state: Memory) -> Snapshot:
        """Overlaps of all seeds."""
        self.lanes.see(self.spec.at.form, state.extra)
        seen: list[Any] = []
        for layers in (x for x in (state.now, state.average) if x is not None):
            W, a = (self.lanes.unfold(x)[:, None] for x in layers)
            seen += [
                *map(np.asarray, overlaps(W, self.params.L, self.params.scale)),
                a,
                None,
            ]
        snapshot = Snapshot(*seen)
        self.last = [np.asarray(x)[:CHECKED, 0] for x in seen[:3]]
        if self.layout is None:
            return snapshot
        Q, M = self.layout.seen(self.lanes.unfold(state.now.W)[:, None])
        return snapshot._replace(Q_block=Q, M_block=M)

    def _held_alike(self, memory: Memory) -> Memory:
        """What an earlier stage left, in the same coordinates."""
        if memory.now.W.shape[-1] != self.spec.at.rank + self.spec.at.columns:
            why = (
                "with inputs in blocks a stage carries as many rows as the one"
                " before it"
            )
            raise Refused(
                "Chain",
                f"{why}: use momentum, or an average, in all of them or in none",
                ["Vectors"],
            )
        return memory

    def left(self, state: Memory) -> Memory | None:
        """What the optimiser carries beyond the rows of now, whose overlaps say
        everything.
        """
        carried = len(state.every) > 1 or state.extra is not None
        return jax.tree.map(self.lanes.unfold, state) if carried else None

    def notes(self, diverged: bool) -> Notes:
        """How the batches were summed; and of Gaussian sums the error of their
        variances, where their rule was chosen and where the run ended.
        """
        notes: Notes = {"batch_sums": self._sums, "steps": "jax"}
        if self.choice is None:
            return notes
        problem, columns = self.lanes.task.problem, self.spec.at.columns
        places = [
            Place(*embed(Q, M, self.params.inverse, columns), a, problem.noise)
            for Q, M, a in zip(*self.last, strict=True)
            if np.isfinite(Q).all() and np.isfinite(a).all()
        ]
        error = max(self.choice.error, self.choice.error_at(places))
        return {**notes, "covariance_error": error}


@register_method
@dataclass(frozen=True)
class Chain(Stackable):
    """SGD in d dimensions simulated exactly in law through its overlaps: the cost does
    not grow with d.

    Parameters
    ----------
    dim : int
        d.
    batch_sums : str
        ``"exact"``: every sample is drawn. ``"gaussian"``: the sums over a batch are
        drawn from their Gaussian limit with exact moments. ``"auto"``: exact up to n_b
        = 2¹⁷, and up to 2²⁴ where g has heavy tails (below 100 times `tail_of`, which
        is 2 for linear neurons, 54 for h2, 1900 for h3, 57 000 for h4), Gaussian
        beyond. The result records which.
    engine : str
        ``"compiled"``: straight-line machine code over lanes of seeds, on all cores;
        for named and typed functions, plain SGD and small networks on CPUs. ``"jax"``:
        everything, on every device. ``"auto"``: compiled code where there is some. Both
        draw the same random numbers, so results agree up to rounding; the result
        records which.

    Notes
    -----
    Cost per step and seed O(n_b p (p + k) + p³); memory O(seeds · (p² + min(n_b (p +
    k), 2¹⁴))).

    Examples
    --------
    >>> Chain(dim=10_000)
    Chain(dim=10000, batch_sums='auto', engine='auto')
    """

    dim: int
    batch_sums: str = "auto"
    engine: str = "auto"
    stochastic: ClassVar[bool] = True
    resumes: ClassVar[bool] = True
    stepwise: ClassVar[bool] = True
    hands_over: ClassVar[bool] = True
    papers: ClassVar[tuple[str, ...]] = ("arnaboldi2023escaping", "benarous2021")

    def __post_init__(self) -> None:
        keep_integers(self, 1, "dim")
        choice("batch_sums", self.batch_sums, ("auto", "exact", "gaussian"))
        choice("engine", self.engine, ("auto", "jax", "compiled"))

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Reused samples are correlated with the weights, so the overlaps alone are not
        a Markov chain.
        """
        rule = algorithm.rule
        if rule is not None and rule.coordinates:
            return (
                f"the rule {rule} acts on every coordinate, so a run depends on how the"
                " weights lie to the axes, which the overlaps do not tell"
            )
        if algorithm.reused:
            return (
                f"samples are reused ({algorithm.reused}), so the weights are"
                " correlated with the data and the overlaps are no longer a Markov"
                " chain"
            )
        return None

    def chosen(self, task: Task, spec: ChainForm) -> str:
        """What takes the steps of a ``task`` of the form ``spec``, whatever its length:
        jax, compiled or device.
        """
        on_cpu = jax.default_backend() == "cpu"
        if self.engine == "jax" and on_cpu:
            return "jax"
        exact, blocks = spec.held and not spec.gaussian, spec.at.blocks
        reason = unwritten(task.problem, task.algorithm, spec.at, exact, spec.quantity)
        if (
            reason is None
            and not on_cpu
            and self.engine != "compiled"
            and spec.at.batch <= spec.at.p
            and not blocks
        ):
            return "device"
        reason = reason or no_machine_code()
        if reason is not None and self.engine == "compiled":
            raise InputError(
                f"Argument `engine` = 'compiled' has no code for this task: {reason};"
                " use engine='jax'."
            )
        return "compiled" if reason is None else "jax"

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Rules that see the fields, and noise on the steps."""
        return rules_of_rotations(algorithm)

    def objection(self, problem: Problem, algorithm: SGD) -> str | None:
        """Rules that look at |z|² want every sample of a batch, all of them at once."""
        if self.batch_sums == "gaussian" and not problem.inputs.plain:
            return (
                "sums of Gaussian batches are known for inputs N(0, I); with blocks"
                " every sample is drawn"
            )
        rule, other = algorithm.rule, super().objection(problem, algorithm)
        if rule is not None and other is None:
            reason = unsummed(rule) if self.batch_sums == "gaussian" else None
            if reason is not None:
                return reason
            if rule.sizes and (
                algorithm.batch_at(self.dim) > LARGEST_SIZED
                or algorithm.batch.schedule is not None
            ):
                return (
                    f"the rule {rule} sees the length of every input, for which the"
                    f" chain draws the Gram matrix of a whole batch: {LARGEST_SIZED}"
                    " samples at most, of constant number"
                )
        return other

    def stack_key(self, task: Task) -> Hashable | None:
        """Everything but the rates, the noise, the thresholds and, in the Gram factor,
        the dimension.
        """
        spec, block, _ = compiled_form(self, task)
        if spec.gaussian or spec.at.form.rule is not None or spec.at.blocks:
            return None
        return (
            spec,
            block,
            task.problem.gram,
            len(task.points),
            task.clocks.form,
            self.chosen(task, spec),
        )

    def prepare_stack(self, pairs: Sequence[tuple[Chain, Task]]) -> Evolution:
        """Set up the rows and the random streams."""
        methods, tasks = zip(*pairs, strict=True)
        spec, _, _ = compiled_form(self, tasks[0])
        chosen = self.chosen(tasks[0], spec)
        if chosen == "jax":
            lanes = Lanes(tasks)
            return Stepwise(lanes, ChainStepper(methods, lanes))
        stepper: type[WrittenStepper] = DeviceStepper
        if chosen == "compiled":
            from twolayer.compiled.advance import (
                CompiledStepper as stepper,
            )  # loads LLVM
        lanes, tables = Lanes(tasks, 1), [table_of(*pair) for pair in pairs]
        layout = layout_of(self, tasks[0])
        return Stepwise(
            lanes,
            stepper(spec.at, lanes, [method.dim for method in methods], tables, layout),
        )

    def cost(self, task: Task) -> float:
        """Steps, each of O(n_b p (p + k) + p³) for every block of the inputs."""
        spec, _, factor = compiled_form(self, task)
        normal, cube = NANOSECONDS[self.chosen(task, spec)]
        cubes = factor.count if isinstance(factor, GramFactors) else 1
        return (
            float(task.points[-1])
            * (normal * (spec.draws + factor.draws) + cube * cubes * spec.at.p**3)
            * 1e-9
        )

    def compilation(self, task: Task) -> float:
        """Seconds that the code takes to compile."""
        return SECONDS[self.chosen(task, compiled_form(self, task)[0])]
