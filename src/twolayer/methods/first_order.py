"""General first-order methods on explicit weights, samples and what they remember.

    h^s = W^s z,  λ* = W* z,    v = f(h, earlier v, y),    Γ = (lr/N) mean_ν v^ν (z^ν)ᵀ,
        W' = g(W, …, Γ, …)

Samples are the streams of `Vectors` (equations/sample_source.py), drawn again at each
visit; only products are kept, m of them for every sample of the set. Target and start
lie on the first coordinates, but where g is a function of single coordinates: then they
are random directions, and g sees √d·W.

Cost of a step and seed O(n_b m p d); memory O(m p (d + n)) for each seed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from twolayer.equations.first_order import RowFunction, SampleFunction, check_functions
from twolayer.equations.increment_kernel import kernel_of
from twolayer.equations.optimiser_step import coefficients_of, form_of
from twolayer.equations.orthogonal import embed
from twolayer.equations.sample_source import (
    SampleForm,
    draw,
    draw_again,
    inputs,
    sample_numbers,
)
from twolayer.gaussian.engines import select
from twolayer.gaussian.nodes import target_frame
from twolayer.loops.stopping import DIVERGED, LIMIT, REACHED
from twolayer.methods.dmft.ensemble import Watcher
from twolayer.numerics import random
from twolayer.numerics.types import Number, Real, Tree
from twolayer.task.first_order import FirstOrder
from twolayer.task.method import Evolution, Snapshot, Task

__all__ = ["ExplicitFirstOrder"]

FRAME = 0xF0  # besides a seed and a run, what random directions are drawn from


class Walk(NamedTuple):
    """Every seed's rows and products, newest first, with a leading axis of seeds.

    ``iterates`` and ``gradients`` (seeds, m, p, d), ``products`` (seeds, m, n, p) of
    the samples that come back, ``taken`` steps, outcome codes and where runs stopped,
    and the ``values`` that a threshold watches at the start and at the last two steps.
    """

    iterates: np.ndarray
    gradients: np.ndarray
    products: np.ndarray
    taken: int
    code: np.ndarray
    stop: np.ndarray
    values: np.ndarray


@partial(jax.jit, static_argnames=("spec",))
def new_chunk(
    spec: SampleForm,
    keys: Real,
    star: Real,
    noise: Number,
    number: Number,
    chunk: Number,
) -> tuple[Real, Real, Real, Real]:
    """Inputs and labels of a chunk, the numbers of its samples in the set, and which of
    them are in the batch.
    """
    batch = draw(spec, keys, number, chunk)
    z = inputs(spec, batch)
    spoilt = spec.kernel.labels.spoil(batch.noise, noise)
    place, inside = sample_numbers(spec, keys, number, chunk)
    return z, spec.kernel.label(z @ star.T, spoilt), place, inside


@partial(jax.jit, static_argnames=("spec",))
def old_chunk(
    spec: SampleForm,
    keys: Real,
    star: Real,
    noise: Number,
    visit: Number,
    taken: Number,
) -> tuple[Real, Real, Real]:
    """Inputs and labels of a chunk of the samples that come back, and which count."""
    batch, inside = draw_again(spec, keys, visit, taken)
    z = inputs(spec, batch)
    spoilt = spec.kernel.labels.spoil(batch.noise, noise)
    return z, spec.kernel.label(z @ star.T, spoilt), inside


class ExplicitFirstOrder(Evolution):
    """Rows of all seeds, one step after the other."""

    def __init__(self, dim: int, task: Task) -> None:
        problem, algorithm = task.problem, task.algorithm
        assert isinstance(algorithm, FirstOrder)
        self.dim, self.task, self.method = dim, task, algorithm
        kernel = kernel_of(problem, algorithm)
        check_functions(algorithm, kernel, problem.p, int(task.points[-1]))
        self.spec = SampleForm(
            kernel,
            form_of(algorithm),
            dim,
            algorithm.batch_at(dim),
            None,
            algorithm.dataset_at(dim),
            algorithm.sampling,
            algorithm.repeat,
        )
        self.rate = float(coefficients_of(algorithm, problem.divisor, dim).step)
        self.Q, self.M, self.a = task.starts()
        self.rows = RowFunction(algorithm, problem.p)
        self.samples = [SampleFunction(algorithm, kernel, a) for a in self.a]
        roles = [random.Role.INPUTS, random.Role.LABELS, random.Role.BATCHES]
        self.keys = np.stack(
            [random.stream(task.seed, role, task.runs) for role in roles], axis=1
        )
        self.watcher = None
        if task.until is not None:
            risky = task.until.quantity in ("risk", "excess_risk")
            engine = select(problem, "squared").engine if risky else None
            self.watcher = Watcher(task.until, engine, problem.noise)
        self.start, self.star = self._placed()

    def _placed(self) -> tuple[np.ndarray, np.ndarray]:
        """W (seeds, p, d) and W* (seeds, k, d) with the overlaps of the start."""
        problem, task = self.task.problem, self.task
        L, inverse = target_frame(problem.P)
        rank = L.shape[1]
        A, B = embed(self.Q, self.M, inverse, min(problem.p, self.dim - rank))
        inside = np.concatenate([A, B], axis=-1)
        size = inside.shape[-1]
        W = np.zeros((task.seeds, problem.p, self.dim))
        star = np.zeros((task.seeds, problem.k, self.dim))
        for i, run in enumerate(task.runs):
            frame = np.eye(size, self.dim)
            if self.method.coordinatewise:
                rng = np.random.default_rng([task.seed, int(run), FRAME])
                frame = np.linalg.qr(rng.standard_normal((self.dim, size)))[0].T
            W[i] = inside[i] @ frame
            star[i] = L @ frame[:rank]
        return W, star

    def initial(self) -> Walk:
        """All iterates at the start, no gradient and no product yet."""
        m, seeds, p = self.method.memory, self.task.seeds, self.task.problem.p
        iterates = np.repeat(self.start[:, None], m, axis=1)
        products = np.zeros((seeds, m, self.spec.size, p))
        code = np.zeros(seeds, np.int32)
        stop = np.full(seeds, np.nan)
        walk = Walk(
            iterates=iterates,
            gradients=np.zeros_like(iterates),
            products=products,
            taken=0,
            code=code,
            stop=stop,
            values=np.zeros((seeds, 3)),
        )
        for i in range(seeds):
            self._watch(walk, i)
        return walk

    def stopped(self, state: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Outcome codes and steps."""
        return state.code, state.stop

    def snapshot(self, state: Tree) -> Snapshot:
        """Overlaps of all seeds, and the training risk where samples come back."""
        W = state.iterates[:, 0]
        Q, M = W @ W.swapaxes(1, 2), W @ self.star.swapaxes(1, 2)
        risk = None
        if self.spec.remembers:
            each = [self._training_risk(state, i) for i in range(len(W))]
            risk = np.array(each)[:, None]
        return Snapshot(Q[:, None], M[:, None], self.a[:, None], risk)

    def advance(
        self, state: Tree, first: int, tick: Callable[[float], None]
    ) -> tuple[Tree, Snapshot]:
        """To the next save point, one seed after the other."""
        # steps are taken in place, and what an interrupted call has begun is dropped
        state = Walk(
            iterates=state.iterates.copy(),
            gradients=state.gradients.copy(),
            products=state.products.copy(),
            taken=int(state.taken),
            code=state.code.copy(),
            stop=state.stop.copy(),
            values=state.values.copy(),
        )
        end = int(self.task.points[first + 1])
        steps = end - state.taken
        for i in range(self.task.seeds):
            for t in range(state.taken, end):
                if state.code[i] != 0:
                    break
                self._step(state, i, t)
                part = (i * steps + t + 1 - state.taken) / self.task.seeds
                tick(state.taken + part)
        state = state._replace(taken=end)
        return state, self.snapshot(state)

    def _step(self, state: Walk, i: int, t: int) -> None:
        """One step of seed number i, in place."""
        spec, W, star = self.spec, state.iterates[i], self.star[i]
        m, p, dim = W.shape
        if spec.dataset is None and t % spec.repeat == 0:
            state.products[i] = 0.0  # of a batch that nothing has seen
        made = np.zeros_like(state.products[i, 0])
        gradient = np.zeros((p, dim))
        for chunk in range(spec.chunks):
            found = new_chunk(
                spec, self.keys[i], star, self.task.problem.noise, t, chunk
            )
            z, labels, place, inside = map(np.asarray, found)
            z, labels, place = z[inside], labels[inside], place[inside]
            fields = (z @ W.reshape(m * p, dim).T).reshape(-1, m, p).swapaxes(0, 1)
            products = state.products[i][:, place]
            v = self.samples[i].products(t, fields, products, labels)
            made[place] = v
            gradient += v.T @ z
        state.products[i] = np.concatenate([made[None], state.products[i, :-1]])
        gradient *= self.rate / spec.batch
        gradients = np.concatenate([gradient[None], state.gradients[i, :-1]])
        state.gradients[i] = gradients
        if self.method.coordinatewise:
            unit = np.sqrt(dim)
            new = self.rows.function(t, unit * W, unit * gradients) / unit
        else:
            new = self.rows.moved(t, W, gradients)
        if not ((new**2).sum(1) < LIMIT).all():
            state.code[i], state.stop[i] = DIVERGED, t + 1.0
            return
        state.iterates[i] = np.concatenate([new[None], W[:-1]])
        self._watch(state, i, t + 1)

    def _watch(self, state: Walk, i: int, t: int = 0) -> None:
        """Stop seed number i where its threshold is passed."""
        if self.watcher is None:
            return
        W = state.iterates[i, 0]
        value = self.watcher.value(W @ W.T, W @ self.star[i].T, self.a[i])
        if t == 0:
            state.values[i] = value
        state.values[i, 1:] = state.values[i, 2], value
        known = [state.values[i, 0]] if t == 0 else state.values[i].tolist()
        part = self.watcher.crossing(known)
        if part is not None:
            last = len(known) - 1
            state.code[i], state.stop[i] = REACHED, t - last + part

    def _training_risk(self, state: Walk, i: int) -> float:
        """½ mean (y − f)² over the samples that come back."""
        spec, W, total = self.spec, state.iterates[i, 0], 0.0
        noise = self.task.problem.noise
        for visit in range(spec.visits):
            found = old_chunk(
                spec, self.keys[i], self.star[i], noise, visit, state.taken
            )
            z, labels, inside = map(np.asarray, found)
            f = np.asarray(spec.kernel.output(z @ W.T, self.a[i]))
            total += float(((labels - f)[inside] ** 2).sum())
        return total / (2 * spec.size)
