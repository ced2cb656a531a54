"""One start with one set of points: rows of the weights in reduced coordinates, moved
by the algorithm's own step.

    ḡ at the rows: a visit of the samples (samples.py);
        (rows, a) ← descend((rows, a), (ḡ, mean of e σ))
    M = m L_Pᵀ,   Q = w wᵀ,   C_θ(t, s) = l^t (l^s)ᵀ,   C_F(t, s) = α η² ⟨v^t (v^s)ᵀ⟩,
        w = (m, l),  η = lr/(p α_b)

m are the coordinates along the target, l all others: zero along directions that appear
later. The step is the very function that Vectors and Chain call in their coordinates,
with its schedules; gradients are taken where it takes them.

To samples that are new, past pushes are directions like any other, without an Onsager
term. Where every batch is fresh and used r times, the theory begins anew with each of
them, from all rows that the optimiser holds in an orthonormal basis of their own: l = B
G, with G of as many rows as there are l.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from twolayer.equations.increment_kernel import Kernel, Push
from twolayer.equations.optimiser_step import (
    Coefficients,
    Form,
    Layers,
    Memory,
    descend,
    rates_now,
)
from twolayer.loops.stopping import LIMIT
from twolayer.methods.dmft.patterns import Pattern
from twolayer.methods.dmft.points import Points
from twolayer.methods.dmft.samples import (
    Basis,
    Paths,
    Visit,
    VisitNumbers,
    begin,
    enlarge,
    risk_of,
    visit,
)
from twolayer.numerics.special import symmetric_root
from twolayer.numerics.types import Real
from twolayer.task.first_order import FirstOrder
from twolayer.task.labels import Spoilt
from twolayer.task.schedule_factors import Tempo

__all__ = ["Replicate", "Setting", "Start", "room_for"]

# h̃* is drawn with this standard deviation and weighted back, so that labels with long
# tails are seen
WIDER = 1.5**0.5
ROOM = 128  # vectors in the first basis of a long run
HISTORIES = (
    "rows",
    "outside",
    "a",
    "averages",
    "pushes",
    "gradients",
    "copies",
    "risks",
)  # of all visits


class Setting(NamedTuple):
    """What replicates share.

    G, how weights move and with what schedules, √Δ, α, the pattern of batches, P = L Lᵀ
    with L⁺, and the steps.
    """

    kernel: Kernel
    form: Form
    rates: Coefficients
    tempo: Tempo | None
    noise: float
    alpha: float
    pattern: Pattern
    L: np.ndarray
    inverse: np.ndarray
    steps: int
    method: FirstOrder | None = None

    @property
    def gain(self) -> float:
        """η = lr/(p α_b) without its schedule, so that F = η c g is d times what a
        sample adds to the weights.
        """
        return float(self.rates.step * self.pattern.batches / self.alpha)

    @property
    def visits(self) -> int:
        """Steps that one set of samples goes through, at most."""
        return (
            min(self.steps, self.pattern.repeat) if self.pattern.fresh else self.steps
        )

    @property
    def numbers(self) -> VisitNumbers:
        """Numbers of a visit."""
        return VisitNumbers(
            self.alpha, self.pattern.batches, float(self.rates.step > 0)
        )


class Start(NamedTuple):
    """Overlaps and second layer at the start."""

    Q: np.ndarray
    M: np.ndarray
    a: np.ndarray


@partial(jax.jit, static_argnames=("form",))
def step(
    form: Form,
    rates: Coefficients,
    tempo: Tempo | None,
    state: Memory,
    gradient: Real,
    second: Real,
) -> Memory:
    """One step of the algorithm, from the gradient at the rows and the batch mean of e
    σ.
    """
    return descend(form, rates_now(rates, tempo, state), state, Push(gradient, second))[
        0
    ]


class Replicate:
    """Weights and effective samples, with the rows, the second layer, pushes and
    training risk of every visit.

    ``rows`` on different samples are in different bases; ``outside`` are their
    coordinates l in one basis for all.
    """

    def __init__(self, setting: Setting, start: Start, points: Points) -> None:
        self.setting, self.points, self._begun, self._shift = setting, points, 0, 0
        self._everyone = np.ones(points.count)
        self.rows: list[np.ndarray] = []
        self.outside: list[np.ndarray] = []
        self.a: list[np.ndarray] = []
        self.averages: list[Layers | None] = []
        self.pushes: list[np.ndarray] = []
        self.gradients: list[np.ndarray] = []
        self.copies: list[np.ndarray] = []
        self.risks: list[tuple[float, ...]] = []
        A, p = start.M @ setting.inverse.T, len(start.Q)
        self._frame, self._known = np.eye(p), p
        self._begin(p)
        rows = np.zeros((p, self._first))
        rows[:, 1 : 1 + A.shape[1]], rows[:, -p:] = A, symmetric_root(start.Q - A @ A.T)
        self.state = self._at_rest(rows, start.a)
        self._visit()

    def _at_rest(self, rows: np.ndarray, a: np.ndarray) -> Any:
        """What the optimiser carries at the start."""
        return Memory.at_rest(self.setting.form, rows, a, self.setting.tempo)

    def _begin(self, outside: int) -> None:
        """Samples that nothing has seen, in a basis with so many directions outside the
        target's.
        """
        setting, rank = self.setting, self.setting.L.shape[1]
        noisy = int(setting.noise > 0 or setting.kernel.labels.flips > 0)
        self._columns, self._draw = 0, 0
        self._choice = (
            self._next(1)[0] if setting.pattern.draw(0) is not None else np.empty(0)
        )
        vectors = self._next(rank + noisy + outside)
        vectors[:rank] *= WIDER
        root = np.exp((1 / WIDER**2 - 1) * (vectors[:rank] ** 2).sum(0) / 4)
        root /= np.sqrt((root**2).mean())
        noises = np.ones(len(vectors), bool)
        noises[rank : rank + noisy] = False
        self.basis = begin(vectors, noises, root)
        self._first = len(self.basis.U)
        U = self.basis.U / root
        self._labels = U[rank + 1] if noisy else None
        noise = self._spoilt(U[rank + 1] if noisy else np.zeros(len(root)))
        self.paths = Paths(U[1 : rank + 1].T @ setting.L.T, noise, root)

    def _renew(self) -> None:
        """Go on with new samples, from the rows that the optimiser holds."""
        every, rank, p = (
            self.state.every,
            self.setting.L.shape[1],
            len(self.state.now.W),
        )
        rows = np.concatenate([np.asarray(layers.W) for layers in every])
        others = rows.copy()
        others[:, : 1 + rank] = 0.0
        G, B = np.linalg.qr(others.T)
        self._turn(G)
        self._frame = self._lifted(G.T)
        self._known, self._shift = (
            self._frame.shape[1],
            self._shift + int(self.basis.size),
        )
        self._begin(len(B))
        moved = np.zeros((len(rows), self._first))
        moved[:, 1 : 1 + rank], moved[:, -len(B) :] = rows[:, 1 : 1 + rank], B.T
        held = [
            Layers(moved[i * p : (i + 1) * p], layers.a)
            for i, layers in enumerate(every)
        ]
        self.state = self.state.moved(held)

    def _turn(self, G: np.ndarray) -> None:
        """Nothing: where the next basis lies in this one is known by its rows."""

    def _lifted(self, rows: np.ndarray) -> np.ndarray:
        """Coordinates outside the target's directions, in the one basis of all
        samples.
        """
        old, new = (
            rows[:, self._first - len(self._frame) : self._first] @ self._frame,
            rows[:, self._first :],
        )
        return np.concatenate(
            [np.pad(old, ((0, 0), (0, self._known - old.shape[1]))), new], axis=1
        )

    def resume(self, setting: Setting) -> None:
        """Go on under another algorithm, or with other labels for the same inputs: the
        last visit is made again.

        What that visit had added to the basis is a direction like any other, along
        which no row has gone.
        """
        old, self.setting, self._begun = self.setting, setting, len(self.rows) - 1
        self.state = self.state.under(setting.form, setting.tempo)
        for name in HISTORIES:
            getattr(self, name).pop()
        if setting.pattern.fresh or old.pattern.fresh:
            self._renew()
        elif setting.noise != old.noise:
            self._relabel()
        self._visit()

    def _relabel(self) -> None:
        """Another size of the label noise, for which a path keeps its number."""
        if self._labels is None:
            root, U = self.paths.root, np.asarray(self.basis.U)[: int(self.basis.size)]
            x = root * self._next(1)[0]
            for _ in range(2):
                x = x - (U @ x / len(x)) @ U
            x /= np.sqrt((x**2).mean())
            size = len(U)
            if size + 1 > len(self.basis.U):
                self._widen(power_of_two(size + 1))
            self.basis = self.basis._replace(
                U=self.basis.U.at[size].set(x), size=size + 1
            )
            self._labels = x / root
        self.paths = self.paths._replace(noise=self._spoilt(self._labels))

    def _spoilt(self, normals: np.ndarray) -> Spoilt:
        """What normals do to the labels of the paths."""
        return self.setting.kernel.labels.spoil(normals, self.setting.noise**2)

    @property
    def finite(self) -> bool:
        """Whether the weights are within bounds."""
        with np.errstate(over="ignore"):
            squares = (
                (np.asarray(self.state.now.W) ** 2).sum(1),
                np.asarray(self.state.now.a) ** 2,
            )
        return all((x < LIMIT).all() for x in squares)

    def advance(self) -> None:
        """One step of the weights and, if they are finite, the visit of the samples
        that follows it.
        """
        setting = self.setting
        self.state = self._moved()
        if not self.finite:
            return
        last = None
        if setting.pattern.renews(len(self.rows) - self._begun):
            last = (
                self._risks()
            )  # on the samples of this step, to which the weights owe it
            self._renew()
        self._visit(last)

    def _moved(self) -> Any:
        """What the optimiser carries after a step."""
        setting, found = self.setting, self.found
        return step(
            setting.form,
            setting.rates,
            setting.tempo,
            self.state,
            found.gradient,
            found.second,
        )

    def history(self, name: str) -> np.ndarray:
        """``rows``, ``outside``, ``pushes`` or ``gradients`` of all visits, (T+1, p,
        n); zero where there was none.
        """
        known = getattr(self, name)
        values = np.zeros(
            (
                self.setting.steps + 1,
                len(self.state.now.W),
                max(x.shape[1] for x in known),
            )
        )
        for t, x in enumerate(known):
            values[t, :, : x.shape[1]] = x
        return values

    def _visit(self, risks: tuple[float, ...] | None = None) -> None:
        """The samples at the present rows; training risks may be known already."""
        setting, p = self.setting, len(self.state.now.W)
        self.copies.append(self._chosen())
        self._make_room()
        labels, paths, key = setting.kernel.labels, self.paths, None
        if labels.more:
            paths = paths._replace(noise=labels.again(paths.noise, self._next(1)[0]))
        if setting.kernel.draws:
            key = jax.random.fold_in(
                jax.random.key(self.points.replicate), len(self.rows)
            )
        fresh, (now, average) = self._next(p), (self.state.now, self.state.average)
        self.risks.append(self._risks() if risks is None else risks)
        self.basis, self.found = self._looked(paths, fresh, key)
        self._columns -= p - int(self.found.new)  # what was not taken is drawn again
        self.rows.append(np.asarray(now.W))
        self.outside.append(self._lifted(self.rows[-1]))
        self.a.append(np.asarray(now.a))
        self.pushes.append(
            np.pad(np.asarray(self.found.pushes), ((0, 0), (self._shift, 0)))
        )
        self.gradients.append(np.asarray(self.found.gradient))
        self.averages.append(
            None if average is None else Layers(*map(np.asarray, average))
        )

    def _looked(
        self, paths: Paths, fresh: np.ndarray, key: jax.Array | None
    ) -> tuple[Basis, Visit]:
        """What the samples do to the rows at which gradients are taken."""
        setting = self.setting
        aimed = self.state.aimed(setting.form, setting.rates)
        return visit(
            setting.kernel,
            self.basis,
            paths,
            *aimed,
            self.copies[-1],
            fresh,
            setting.numbers,
            key,
        )

    def _risks(self) -> tuple[float, ...]:
        """Training risk of the rows and, where there is one, of their average."""
        looked = [x for x in (self.state.now, self.state.average) if x is not None]
        if self.setting.noise > 0 and self.setting.kernel.labels.law.moments <= 2:
            return (np.inf,) * len(looked)
        return tuple(
            float(
                risk_of(
                    self.setting.kernel, self.basis, self.paths, *x, self.setting.alpha
                )
            )
            for x in looked
        )

    def _next(self, count: int) -> np.ndarray:
        """The next columns of the points."""
        self._columns += count
        return np.stack(
            [self.points.column(i) for i in range(self._columns - count, self._columns)]
        )

    def _chosen(self) -> np.ndarray:
        """How often each sample is in the batch of this visit, in the mean 1/B of
        them.
        """
        pattern, t = self.setting.pattern, len(self.rows)
        draw = pattern.draw(t)
        if draw is None:
            return self._everyone
        if draw != self._draw:
            self._draw, self._choice = draw, self._next(1)[0]
        copies = pattern.copies(self._choice, t)
        return np.asarray(
            copies / (pattern.batches * (self.paths.root**2 * copies).mean())
        )

    def _make_room(self) -> None:
        """Room for what a visit may add; the first room of a short run is enough for
        all of it.
        """
        p, size = len(self.state.now.W), int(self.basis.size)
        room = power_of_two(size + 2 * p)
        if size == self._first:
            whole = size + (self._labels is None) + 2 * p * (self.setting.visits + 1)
            room = max(room, min(power_of_two(whole), ROOM))
        if room > len(self.basis.U):
            self._widen(room)

    def _widen(self, room: int) -> None:
        """The same basis and rows, with room for more directions."""
        self.basis = enlarge(self.basis, room)
        wide = [
            x._replace(W=np.pad(x.W, ((0, 0), (0, room - x.W.shape[1]))))
            for x in self.state.every
        ]
        self.state = self.state.moved(wide)


def room_for(rank: int, p: int, steps: int) -> int:
    """Vectors in the basis of a run, if all its pushes are new."""
    return power_of_two(2 + rank + p + 2 * p * (steps + 1))


def power_of_two(count: int) -> int:
    """The next one from ``count`` on: few sizes, so few shapes are compiled."""
    return 1 << (count - 1).bit_length()
