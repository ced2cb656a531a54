"""Honest SGD in d dimensions with the same kernel: the experiment.

    λ = W z,  λ* = W* z,    W ← step(W, mean_ν g^ν (z^ν)ᵀ),
        z ~ N(0, I_d), new at every step or used again
    training risk = ½ mean_ν (y^ν − f^ν)² over the fixed set,
        or over the batch that is used again

The target rows are put on the first coordinates, W* = (L_P, 0), which is no restriction
for isotropic inputs; with blocks of variances, on the first of every block
(equations/block_coordinates.py). Inputs are streamed (inputs.py): at most 2¹⁸ numbers
of them exist at a time, and none is kept. They are drawn with the 24-bit mantissa of
single precision; all arithmetic is in double precision.

Cost per step and seed O(n_b p d), and O(n p d) at each save point with a set of n
samples; memory O(seeds · p d) plus the stream.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.averages import Engine
from twolayer.equations.block_coordinates import BlockLayout
from twolayer.equations.increment_kernel import Push, Sample, kernel_of
from twolayer.equations.optimiser_step import (
    Coefficients,
    Layers,
    Memory,
    Products,
    descend,
    form_of,
    rates_now,
)
from twolayer.equations.orthogonal import embed, overlaps
from twolayer.equations.sample_source import (
    INPUTS_AT_ONCE,
    Batch,
    SampleForm,
    draw,
    draw_again,
    inputs,
)
from twolayer.gaussian.nodes import target_frame
from twolayer.loops.stepwise import Lanes, Stepper, Stepwise, for_each_group, lane_axes
from twolayer.loops.stopping import Watch, accept, watched_value
from twolayer.numerics import random
from twolayer.numerics.arguments import Json
from twolayer.numerics.errors import InputError, positive_integer, require
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.algorithm import SGD
from twolayer.task.data import Data
from twolayer.task.inputs import Inputs
from twolayer.task.labels import Spoilt
from twolayer.task.method import Evolution, Snapshot, Stackable, Task, register_method
from twolayer.task.problem import Problem
from twolayer.task.schedule_factors import Tempo

__all__ = ["Vectors"]

NS_PER_INPUT, NS_PER_PRODUCT = 3.0, 1.0  # for estimates of cost
GROUP = 2**18  # seeds in a group times p d: the weights of a group stay in cache
DEVICE_NUMBERS = (
    2**28
)  # weights and inputs of a group on an accelerator, which works on all of them at once


class VectorNumbers(NamedTuple):
    """Numbers that the compiled code takes as data; rates, noise and watch have their
    own value in each lane.
    """

    rates: Coefficients
    tempo: Tempo | None
    L: Real
    noise: Real
    engine: Engine | None
    watch: Watch | None
    scale: Real | None = None
    rows: Any = None
    labels: Any = None

    def inputs(self, spec: SampleForm, batch: Batch) -> Real:
        """The inputs x (samples, d) of a chunk."""
        if spec.given:
            return self.rows[batch.halves[0]]
        z = inputs(spec, batch)
        return z if self.scale is None else z * self.scale

    def spoilt(self, spec: SampleForm, batch: Batch) -> Spoilt:
        """What is done to the labels of a chunk; given ones take the place of the
        target.
        """
        if spec.given:
            return Spoilt(0.0, self.labels[batch.halves[0]])
        return spec.kernel.labels.spoil(batch.noise, self.noise)


class VectorState(NamedTuple):
    """What the optimiser carries, with rows (p, d), their squared norms, and the number
    of steps taken.
    """

    memory: Memory
    square: Real
    taken: jax.Array


def contribution(
    spec: SampleForm,
    params: VectorNumbers,
    state: VectorState,
    batch: Batch,
    chunk: Number,
    key: jax.Array | None = None,
) -> tuple[Push, Products | None]:
    """What one chunk of samples adds to the batch means of g zᵀ and e σ(λ); ``key`` is
    for rules that draw.
    """
    rates = rates_now(params.rates, params.tempo, state.memory)
    z, star, (W, a) = (
        params.inputs(spec, batch),
        params.L.shape[1],
        state.memory.aimed(spec.form, rates),
    )
    label_noise, rule = (
        spec.kernel.labels.again(params.spoilt(spec, batch), batch.again),
        spec.kernel.rule,
    )
    # plain products fuse with the step, and the new norms are known without reading W
    # again
    if spec.batch == 1 and rule is None:
        fields = (z * W).sum(-1)
        push = spec.kernel.push(
            Sample(fields[None], z[:, :star] @ params.L.T, label_noise), a
        )
        g = push.first[0]
        products = Products(state.square, g * fields, g**2 * (z * z).sum())
        return Push(g[:, None] * z, push.second[0]), products
    sample = Sample(z @ W.T, z[:, :star] @ params.L.T, label_noise, key=key)
    if rule is not None and rule.sizes:
        inner = z @ z.T / spec.dim if rule.products else None
        sample = sample._replace(size=(z * z).sum(-1) / spec.dim, products=inner)
    push = spec.kernel.push(sample, a)
    count = rates.batch if spec.varies else spec.batch
    inside = chunk * spec.chunk + jnp.arange(spec.chunk) < count
    weight = jnp.where(inside, 1.0 / count, 0.0)[:, None]
    return Push((weight * push.first).T @ z, (weight * push.second).sum(0)), None


def step(
    spec: SampleForm,
    params: VectorNumbers,
    state: VectorState,
    mean: Push,
    products: Products | None,
    jitter: Real | None,
) -> tuple[VectorState, Real]:
    """One step of SGD from the batch means; and the largest squared norm met."""
    rates = rates_now(params.rates, params.tempo, state.memory)
    if jitter is not None:
        mean, products = (
            mean._replace(first=mean.first + spec.form.jitter * jitter),
            None,
        )
    memory, square, size = descend(spec.form, rates, state.memory, mean, products)
    return VectorState(memory, square, state.taken + 1), size


@partial(jax.jit, static_argnames=("spec",))
def advance(
    spec: SampleForm,
    params: VectorNumbers,
    keys: Real,
    carry: Tree,
    start: Real,
    stop: Real,
) -> Tree:
    """Steps start … stop − 1 of all groups of seeds; all but shared parameters have
    leading axes (groups, lanes).
    """
    return for_each_group(
        partial(advance_group, spec), params, keys, carry, start, stop
    )


def advance_group(
    spec: SampleForm,
    params: VectorNumbers,
    keys: Real,
    carry: Tree,
    start: Real,
    stop: Real,
) -> Tree:
    """The same for one group."""
    axes = lane_axes(params)

    def finish(
        params: VectorNumbers,
        keys: Real,
        carry: Tree,
        mean: Push,
        products: Products | None,
        number: Real,
        stop: Real,
    ) -> Tree:
        W, jitter = carry[0].memory.now.W, None
        if spec.form.jitter:
            index = jnp.arange(W.size, dtype=jnp.uint32)
            jitter = random.normal(
                keys[-1], jnp.asarray(number).astype(jnp.uint32), index
            ).reshape(W.shape)
        new, size = step(spec, params, carry[0], mean, products, jitter)
        W, a = new.memory.now
        Q, M = overlaps(W, params.L, params.scale)
        value = watched_value(spec.quantity, params.engine, Q, M, a, params.noise)
        return accept(
            carry[0], new, carry[1], size, value, params.watch, number, number < stop
        )

    def single(
        params: VectorNumbers,
        keys: Real,
        start: Real,
        stop: Real,
        carry: Tree,
        total: Push,
        batch: Batch,
        at: Real,
    ) -> Tree:
        number, chunk = start + at // spec.chunks, at % spec.chunks
        key = (
            jax.random.fold_in(random.rule_key(keys[-1], number), chunk)
            if spec.kernel.draws
            else None
        )
        part, products = contribution(spec, params, carry[0], batch, chunk, key)
        # the next inputs travel in the carry: inside one body XLA would compute them
        # anew for each of their uses
        following = draw(
            spec, keys, start + (at + 1) // spec.chunks, (at + 1) % spec.chunks
        )
        if spec.chunks == 1:
            return (
                finish(params, keys, carry, part, products, number, stop),
                total,
                following,
            )
        total = jax.tree.map(jnp.add, total, part)

        def last(carry: Tree, total: Push) -> Tree:
            return finish(params, keys, carry, total, None, number, stop), jax.tree.map(
                jnp.zeros_like, total
            )

        carry, total = jax.lax.cond(
            chunk == spec.chunks - 1, last, lambda c, t: (c, t), carry, total
        )
        return carry, total, following

    def body(at: Real, loop: Tree) -> Tree:
        carry, total, batch = loop
        return jax.vmap(single, (axes, 0, 0, 0, 0, 0, 0, None))(
            params, keys, start, stop, carry, total, batch, at
        )

    W, a = carry[0].memory.now
    width = spec.dim if spec.chunks > 1 else 0  # a single chunk needs no running sum
    total = Push(jnp.zeros((*W.shape[:-1], width)), jnp.zeros_like(a))
    first = jax.vmap(lambda keys, start: draw(spec, keys, start, 0))(keys, start)
    return jax.lax.fori_loop(
        0, (stop - start).max() * spec.chunks, body, (carry, total, first)
    )[0]


@partial(jax.jit, static_argnames=("spec",))
def training_risks(
    spec: SampleForm, params: VectorNumbers, keys: Real, layers: Layers, taken: Real
) -> Tree:
    """½ mean (y − f)² over the samples that come back, (groups, lanes)."""
    scale = 1 / (2 * spec.size)

    def single(params: VectorNumbers, keys: Real, layers: Layers, taken: Real) -> Tree:
        def body(visit: Real, total: Real) -> Tree:
            batch, inside = draw_again(spec, keys, visit, taken)
            z = params.inputs(spec, batch)
            spoilt = params.spoilt(spec, batch)
            label = spec.kernel.label(z[:, : params.L.shape[1]] @ params.L.T, spoilt)
            error = label - spec.kernel.output(z @ layers.W.T, layers.a)
            return total + jnp.where(inside, error**2, 0.0).sum()

        return scale * jax.lax.fori_loop(0, spec.visits, body, jnp.zeros(()))

    def group(params: VectorNumbers, layers: Layers, taken: Real, keys: Real) -> Tree:
        return jax.vmap(single, (lane_axes(params), 0, 0, 0))(
            params, keys, layers, taken
        )

    return for_each_group(group, params, layers, taken, keys)


seen = jax.jit(overlaps)


def spec_of(dim: int, task: Task, given: int = 0) -> SampleForm:
    """What fixes the compiled code of a task."""
    algorithm, quantity = (
        task.algorithm,
        None if task.until is None else task.until.quantity,
    )
    rules = (kernel_of(task.problem, algorithm), form_of(algorithm))
    varies, batch = algorithm.batch.schedule is not None, algorithm.batch_at(dim)
    if varies:
        batch = task.clocks.steps_line.check(int(task.points[-1]))[1]
    n, sampling, repeat = (
        algorithm.dataset_at(dim),
        algorithm.sampling,
        algorithm.repeat,
    )
    return SampleForm(*rules, dim, batch, quantity, n, sampling, repeat, varies, given)


def rotated(data: Data, layout: BlockLayout, inputs: Inputs) -> np.ndarray:
    """The given rows in the coordinates of a layout, (n, d): along the target's parts
    first, then beside them.
    """
    along, beside = [], {}
    for i, (V, L) in enumerate(zip(data.parts(inputs), layout.frames, strict=True)):
        inside = np.linalg.pinv(L) @ data.target @ V  # orthonormal rows
        basis = np.linalg.qr(np.concatenate([inside, np.eye(V.shape[1])]).T)[0]
        basis[:, : len(inside)] = inside.T
        along.append(data.X @ V @ basis[:, : len(inside)])
        beside[i] = data.X @ V @ basis[:, len(inside) :]
    return np.concatenate([*along, *(beside[i] for i in layout.order)], axis=1)


def lanes_of(dim: int, tasks: Sequence[Task]) -> Lanes:
    """Groups of any size give the same numbers for batch 1; matrix products of a batch
    do not, so one at a time.

    On accelerators that would leave most of them idle: there groups are large, and
    their size may show in the last bit.
    """
    spec, p, seeds = (
        spec_of(dim, tasks[0]),
        tasks[0].problem.p,
        sum(task.seeds for task in tasks),
    )
    if jax.default_backend() != "cpu":
        room = max(1, DEVICE_NUMBERS // ((p + spec.chunk) * dim))
        return Lanes(
            tasks, min(2 ** (seeds - 1).bit_length(), 2 ** (room.bit_length() - 1))
        )
    if spec.batch > 1:
        return Lanes(tasks, 1)
    return Lanes(tasks, min(seeds, max(1, min(16, GROUP // (p * dim)))))


class VectorsStepper(Stepper):
    """Weights of all seeds of one task, or of several of the same compiled form."""

    def __init__(self, dim: int, lanes: Lanes, data: Data | None = None) -> None:
        self.spec, self.lanes = (
            spec_of(dim, lanes.task, 0 if data is None else data.count),
            lanes,
        )
        self.L, self.inverse = target_frame(lanes.task.problem.P)
        self.layout, scale = None, None
        if not lanes.task.problem.inputs.plain:
            self.layout = BlockLayout.of(
                lanes.task.problem.inputs, lanes.task.start.P, dim
            )
            self.L, scale = self.layout.L, jnp.asarray(self.layout.scale)
        rates = lanes.rates([dim] * len(lanes.tasks))
        rows, labels = None, None
        if data is not None:
            assert self.layout is not None
            rows = jnp.asarray(rotated(data, self.layout, lanes.task.problem.inputs))
            labels = jnp.asarray(data.y)
        shared = (lanes.engine, lanes.watch, scale, rows, labels)
        self.params = VectorNumbers(rates, lanes.tempo, self.L, lanes.noise, *shared)
        choosing = (random.Role.BATCHES,) if self.spec.at_random else ()
        more = (
            self.spec.form.jitter
            or self.spec.kernel.labels.more
            or self.spec.kernel.draws
        )
        noise = (random.Role.DIFFUSION,) if more else ()
        self.streams = lanes.keys(
            random.Role.INPUTS, random.Role.LABELS, *choosing, *noise
        )

    def start(self) -> VectorState:
        """W with the overlaps of the start, or where an earlier stage left it."""
        Q, M, a = self.lanes.starts()
        memory, rank = self.lanes.resumed(self.spec.form), self.L.shape[1]
        taken = self.lanes.fold(self.lanes.before)
        if memory is not None:
            return VectorState(memory, (memory.now.W**2).sum(-1), taken)
        if self.layout is not None:
            W = self.lanes.fold(self.layout.place(*self.lanes.block_starts()))
            memory = Memory.at_rest(
                self.spec.form, W, self.lanes.fold(a), self.params.tempo
            )
            return VectorState(memory, (W**2).sum(-1), taken)
        A, B = embed(
            Q, M, self.inverse, min(self.lanes.task.problem.p, self.spec.dim - rank)
        )
        W = self.lanes.fold(np.concatenate([A, B], axis=-1))
        W = jnp.pad(W, [(0, 0)] * (W.ndim - 1) + [(0, self.spec.dim - W.shape[-1])])
        square = self.lanes.fold(np.diagonal(Q, axis1=1, axis2=2))
        return VectorState(
            Memory.at_rest(self.spec.form, W, self.lanes.fold(a), self.params.tempo),
            square,
            taken,
        )

    def run(self, carry: Tree, start: Real, stop: Real) -> Tree:
        """Compiled steps."""
        return advance(self.spec, self.params, self.streams, carry, start, stop)

    def snapshot(self, state: VectorState) -> Snapshot:
        """Overlaps of all seeds, and the training risk where samples come back."""
        self.lanes.see(self.spec.form, state.memory.extra)
        seen = (x for x in (state.memory.now, state.memory.average) if x is not None)
        snapshot = Snapshot(
            *(value for layers in seen for value in self._seen(layers, state.taken))
        )
        if self.layout is None:
            return snapshot
        Q, M = self.layout.seen(self.lanes.unfold(state.memory.now.W)[:, None])
        return snapshot._replace(Q_block=Q, M_block=M)

    def _seen(self, layers: Layers, taken: Real) -> tuple[Any, ...]:
        """Q, M, a and the training risk of all seeds at these layers."""
        risk = None
        if self.spec.remembers:
            risk = self.lanes.unfold(
                training_risks(self.spec, self.params, self.streams, layers, taken)
            )[:, None]
        a = self.lanes.unfold(layers.a)[:, None]
        if (
            self.layout is None and jax.default_backend() != "cpu"
        ):  # weights stay on the accelerator
            return (
                *(self.lanes.unfold(x)[:, None] for x in seen(layers.W, self.L)),
                a,
                risk,
            )
        W, scale = (
            self.lanes.unfold(layers.W)[:, None],
            None if self.layout is None else self.layout.scale,
        )
        return *map(np.asarray, overlaps(W, self.L, scale)), a, risk

    def left(self, state: VectorState) -> Memory:
        """What the optimiser carries: on a fixed set the overlaps do not say how
        weights lie to the samples.
        """
        memory: Memory = jax.tree.map(self.lanes.unfold, state.memory)
        return memory


@register_method
@dataclass(frozen=True)
class Vectors(Stackable):
    """SGD on explicit weight vectors in d dimensions.

    Parameters
    ----------
    dim : int
        d; with data, that of its rows.
    data : tuple (X, y) or (X, y, W_star), optional
        Given samples instead of drawn ones: rows (n, d), labels (n,) and the target's
        rows (k, d). Every seed takes them in an order of its own, in one pass, or in
        many with ``dataset=n``. The problem has the inputs of the Gaussian surrogate,
        ``Inputs.from_data(X)``; `twolayer.running.surrogate.surrogate` makes all of it.

    Notes
    -----
    With ``dataset=n`` every seed has its own n samples; they are drawn again when they
    are visited, never stored, and the result holds the training risk. With ``repeat``
    and no dataset that is the risk on the batch of the last step. Cost per step and
    seed O(n_b p d), and O(n p d) at each save point for the training risk; memory
    O(seeds · p d) plus a stream of 2¹⁸ numbers per seed in a group.

    Examples
    --------
    >>> Vectors(dim=500)
    Vectors(dim=500)
    """

    dim: int
    data: Data | None = None
    stochastic: ClassVar[bool] = True
    resumes: ClassVar[bool] = True
    stepwise: ClassVar[bool] = True
    hands_over: ClassVar[bool] = True
    papers: ClassVar[tuple[str, ...]] = ("saad1995",)

    def __init__(self, dim: int | None = None, data: object = None) -> None:
        if isinstance(data, str) and data.startswith("<"):
            raise InputError(
                "The data of this result are not kept in files: describe the method"
                " again to run it."
            )
        rows = data if data is None or isinstance(data, Data) else Data(data)
        if rows is not None:
            require(
                dim in (None, rows.dim), "dim", dim, f"{rows.dim}, that of the data"
            )
            dim = rows.dim
        object.__setattr__(self, "dim", positive_integer("dim", dim))
        object.__setattr__(self, "data", rows)

    def __repr__(self) -> str:
        return (
            f"Vectors(dim={self.dim})"
            if self.data is None
            else f"Vectors(data={self.data!r})"
        )

    def describe(self) -> Json:
        """The knobs; of data only what they are."""
        known: Json = {"name": self.name, "dim": self.dim}
        return known if self.data is None else {**known, "data": repr(self.data)}

    @classmethod
    def refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """None: it does what the algorithm says."""
        return None

    @classmethod
    def first_order_refusal(cls, problem: Problem, algorithm: SGD) -> str | None:
        """None: rows and samples are all that f and g look at."""
        return None

    @classmethod
    def structure(cls, problem: Problem, algorithm: SGD) -> str | None:
        """Rules of coordinates take these in a frame that mixes the blocks."""
        rule = algorithm.rule
        if rule is not None and rule.coordinates:
            return (
                f"the rule {rule} acts on coordinates, and how these lie to the blocks"
                " of the inputs is not said"
            )
        return None

    def objection(self, problem: Problem, algorithm: SGD) -> str | None:
        """Rules that see inner products of inputs want a whole batch at once."""
        rule = algorithm.rule
        if self.data is not None and problem.inputs.plain:
            return (
                "data have a covariance: give the problem `inputs=Inputs.from_data(X)`,"
                ' or start = "random"'
            )
        if self.data is not None and algorithm.dataset is not None:
            n = algorithm.dataset_at(self.dim)
            if n is not None and n > self.data.count:
                return (
                    f"the data have {self.data.count} rows, and dataset ="
                    f" {algorithm.dataset} asks for {n}"
                )
        if (
            rule is not None
            and rule.products
            and algorithm.batch_at(self.dim) * self.dim > INPUTS_AT_ONCE
        ):
            return f"the rule {rule} sees a whole batch at once, of 2¹⁸ numbers at most"
        return super().objection(problem, algorithm)

    def stack_key(self, task: Task) -> Hashable | None:
        """Everything but the rates, the noise and the thresholds; runs on fixed sets
        stand alone.
        """
        if (
            task.algorithm.reused
            or task.algorithm.first_order
            or not task.problem.inputs.plain
            or form_of(task.algorithm).rule is not None
        ):
            return None
        return (
            spec_of(self.dim, task),
            task.problem.p,
            task.problem.gram,
            len(task.points),
            task.clocks.form,
        )

    def prepare_stack(self, pairs: Sequence[tuple[Vectors, Task]]) -> Evolution:
        """Set up the weights and the random streams."""
        task = pairs[0][1]
        if task.algorithm.first_order:  # which runs alone
            from twolayer.methods.first_order import ExplicitFirstOrder

            return ExplicitFirstOrder(self.dim, task)
        lanes = lanes_of(self.dim, [task for _, task in pairs])
        if self.data is not None:
            self._check_rows(lanes.task)
        return Stepwise(lanes, VectorsStepper(self.dim, lanes, self.data))

    def _check_rows(self, task: Task) -> None:
        """The target lies in the data as the start says, and one pass is enough where
        samples are new.
        """
        assert self.data is not None
        P = self.data.overlaps(task.problem.inputs)
        if P.shape != task.start.P.shape or not np.allclose(
            P, task.start.P, atol=1e-6 * max(1.0, np.abs(P).max())
        ):
            raise InputError(
                "Argument `start` must have the overlaps of the data's target in every"
                " block: give the word random, or draw it with Overlaps.random(problem,"
                " dim, P=…), as twolayer.running.surrogate.surrogate does."
            )
        used = (
            float(task.points[-1])
            / task.algorithm.repeat
            * task.algorithm.batch_at(self.dim)
        )
        if task.algorithm.dataset is None and used > self.data.count:
            raise InputError(
                f"Argument `steps` must stay within one pass of {self.data.count} rows,"
                f" but takes {used:g} samples: use dataset={self.data.count} for many"
                " passes."
            )

    def cost(self, task: Task) -> float:
        """Steps, each of O(n_b p d), and visits to the whole set."""
        batch, p = task.algorithm.batch_at(self.dim), task.problem.p
        again = (
            (task.algorithm.dataset_at(self.dim) or batch)
            if task.algorithm.reused
            else 0
        )
        samples = float(task.points[-1]) * batch + len(task.points) * again
        return samples * self.dim * (NS_PER_INPUT + NS_PER_PRODUCT * p) * 1e-9

    def footprint(self, task: Task) -> int:
        """The weights, in a few copies, and the stream of inputs."""
        inputs = min(task.algorithm.batch_at(self.dim) * self.dim, INPUTS_AT_ONCE)
        return super().footprint(task) + 8 * (
            4 * task.problem.p * self.dim + 2 * inputs
        )
