"""One start with one set of points: rows of the weights in reduced coordinates, moved by the algorithm's own step.

    ḡ at the rows: a visit of the samples (samples.py);    (rows, a) ← descend((rows, a), (ḡ, mean of e σ))
    M = m L_Pᵀ,   Q = w wᵀ,   C_θ(t, s) = l^t (l^s)ᵀ,   C_F(t, s) = α η² ⟨v^t (v^s)ᵀ⟩,    w = (m, l),  η = lr/(p α_b)

m are the coordinates along the target, l all others: zero along directions that appear later. The step is the very
function that Vectors and Chain call in their coordinates.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from twolayer.equations.kernel import Kernel, Push
from twolayer.equations.step import Form, Layers, Memory, Rates, descend
from twolayer.loops.watching import LIMIT
from twolayer.methods.dmft.patterns import Pattern
from twolayer.methods.dmft.points import Points
from twolayer.methods.dmft.samples import Paths, begin, enlarge, visit
from twolayer.numerics.special import symmetric_root

__all__ = ["Replicate", "Setting", "Start", "room_for"]

WIDER = 1.5**0.5  # h̃* is drawn with this standard deviation and weighted back, so that labels with long tails are seen
ROOM = 128  # vectors in the first basis of a long run


class Setting(NamedTuple):
    """What replicates share: g, how weights move, √Δ, α, the pattern of batches, P = L Lᵀ with L⁺, and the steps."""

    kernel: Kernel
    form: Form
    rates: Rates
    noise: float
    alpha: float
    pattern: Pattern
    L: np.ndarray
    inverse: np.ndarray
    steps: int

    @property
    def gain(self) -> float:
        """η = lr/(p α_b), so that F = η c g is d times what a sample adds to the weights."""
        return float(self.rates.step * self.pattern.batches / self.alpha)


class Start(NamedTuple):
    """Overlaps and second layer at the start."""

    Q: np.ndarray
    M: np.ndarray
    a: np.ndarray


@partial(jax.jit, static_argnames=("form",))
def step(form: Form, rates: Rates, state: Memory, gradient: Any, second: Any) -> Memory:
    """One step of the algorithm, from the gradient at the rows and the batch mean of e σ."""
    return descend(form, rates, state, Push(gradient, second))[0]


class Replicate:
    """Weights and effective samples, with the rows, the second layer, pushes and training risk of every visit."""

    def __init__(self, setting: Setting, start: Start, points: Points) -> None:
        self.setting, self.points = setting, points
        self._columns, self._draw = 0, 0
        self.rows: list[np.ndarray] = []
        self.a: list[np.ndarray] = []
        self.pushes: list[np.ndarray] = []
        self.gradients: list[np.ndarray] = []
        self.copies: list[np.ndarray] = []
        self.train_risk: list[float] = []
        p, rank, noisy = len(start.Q), setting.L.shape[1], int(setting.noise > 0 or setting.kernel.labels.flips > 0)
        self._choice = self._next(1)[0] if setting.pattern.draw(0) is not None else np.empty(0)
        vectors = self._next(rank + noisy + p)
        vectors[:rank] *= WIDER
        root = np.exp((1 / WIDER**2 - 1) * (vectors[:rank] ** 2).sum(0) / 4)
        root /= np.sqrt((root**2).mean())
        noises = np.ones(len(vectors), bool)
        noises[rank : rank + noisy] = False
        self.basis = begin(vectors, noises, root)
        U = self.basis.U / root
        normals = U[rank + 1] if noisy else np.zeros(len(root))
        noise = setting.kernel.labels.spoil(normals, setting.noise**2)
        self.paths = Paths(U[1 : rank + 1].T @ setting.L.T, noise, root)
        A = start.M @ setting.inverse.T
        rows = np.zeros((p, len(U)))
        rows[:, 1 : rank + 1], rows[:, -p:] = A, symmetric_root(start.Q - A @ A.T)
        self.state = Memory.at_rest(setting.form, rows, start.a)
        self._visit()

    @property
    def finite(self) -> bool:
        """Whether the weights are within bounds."""
        with np.errstate(over="ignore"):
            squares = (np.asarray(self.state.now.W) ** 2).sum(1), np.asarray(self.state.now.a) ** 2
        return all((x < LIMIT).all() for x in squares)

    def advance(self) -> None:
        """One step of the weights and, if they are finite, the visit of the samples that follows it."""
        setting, found = self.setting, self.found
        self.state = step(setting.form, setting.rates, self.state, found.gradient, found.second)
        if self.finite:
            self._visit()

    def history(self, name: str) -> np.ndarray:
        """``rows``, ``pushes`` or ``gradients`` of all visits, (T+1, p, n); zero where there was none."""
        n, known = len(self.basis.U), getattr(self, name)
        values = np.zeros((self.setting.steps + 1, len(self.state.now.W), n))
        for t, x in enumerate(known):
            values[t, :, : x.shape[1]] = x
        return values

    def _visit(self) -> None:
        setting, p = self.setting, len(self.state.now.W)
        self.copies.append(self._chosen())
        self._make_room()
        fresh = self._next(p)
        numbers = (setting.alpha, setting.pattern.batches)
        self.basis, self.found = visit(
            setting.kernel, self.basis, self.paths, *self.state.now, self.copies[-1], fresh, *numbers
        )
        self._columns -= p - int(self.found.new)  # what was not taken is drawn again
        self.rows.append(np.asarray(self.state.now.W))
        self.a.append(np.asarray(self.state.now.a))
        self.pushes.append(np.asarray(self.found.pushes))
        self.gradients.append(np.asarray(self.found.gradient))
        self.train_risk.append(float(self.found.train_risk))

    def _next(self, count: int) -> np.ndarray:
        """The next columns of the points."""
        self._columns += count
        return np.stack([self.points.column(i) for i in range(self._columns - count, self._columns)])

    def _chosen(self) -> np.ndarray:
        """How often each sample is in the batch of this visit, in the mean 1/B of them."""
        pattern, t = self.setting.pattern, len(self.rows)
        draw = pattern.draw(t)
        if draw is None:
            return self.copies[0] if t else np.ones(self.points.count)
        if draw != self._draw:
            self._draw, self._choice = draw, self._next(1)[0]
        copies = pattern.copies(self._choice, t)
        return np.asarray(copies / (pattern.batches * (self.paths.root**2 * copies).mean()))

    def _make_room(self) -> None:
        """Room for what a visit may add; the first room of a short run is enough for all of it."""
        have, p = len(self.basis.U), len(self.state.now.W)
        room = power_of_two(int(self.basis.size) + 2 * p)
        if not self.rows:
            room = max(room, min(room_for(self.setting.L.shape[1], p, self.setting.steps), ROOM))
        if room > have:
            self.basis = enlarge(self.basis, room)
            now, previous = self.state
            self.state = Memory(widened(now, room), previous and widened(previous, room))


def widened(layers: Layers, room: int) -> Layers:
    """The same rows with room for more directions."""
    return layers._replace(W=np.pad(layers.W, ((0, 0), (0, room - layers.W.shape[1]))))


def room_for(rank: int, p: int, steps: int) -> int:
    """Vectors in the basis of a run, if all its pushes are new.

    Examples
    --------
    >>> room_for(2, 2, 6)
    64
    """
    return power_of_two(2 + rank + p + 2 * p * (steps + 1))


def power_of_two(count: int) -> int:
    """The next one from ``count`` on: few sizes, so few shapes are compiled."""
    return 1 << (count - 1).bit_length()
