"""A replicate under a general first-order method: rows of all remembered iterates and
gradients, and samples that remember what was made of them.

    rows W^t, …, W^{t−m+1}, Γ^t, …    in the basis of samples.py
        v = f(fields, earlier v, y) on every path,      W' = g(rows)

A linear g acts on the coordinates of the rows as it does on their entries in R^d. Any
other function of single coordinates needs those entries. They are a population of
their own beside the paths of the samples: along each direction i of the basis a
column ζ_i, of which a weight's coordinate √d W = Σ_i w_i ζ_i is made. ζ_i is a fresh
Gaussian for directions of the target, of the start and of pushes. What g makes of
them has a part along the known columns, and one that is orthogonal to all of these,

    g = Σ_i ⟨g ζ_i⟩ ζ_i + b

along which the inputs are fresh noise to the samples: a direction of the basis with
the column b/|b|, noise ξ and no e. So each side is conditioned on what the other has
seen of the inputs (Bolthausen), and the rest is independent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twolayer.equations.first_order import RowFunction, SampleFunction
from twolayer.equations.increment_kernel import Push
from twolayer.equations.optimiser_step import Layers
from twolayer.methods.dmft.points import Points
from twolayer.methods.dmft.replicate import Replicate, Setting, Start, power_of_two
from twolayer.methods.dmft.samples import (
    TOLERANCE,
    Basis,
    Paths,
    Visit,
    look,
    take,
)

__all__ = ["FirstOrderReplicate", "replicate_of"]

AXES = 10_000  # replicates of this number on have the points of weight coordinates


class Stack(NamedTuple):
    """What a first-order method carries: iterates and gradients, newest first."""

    iterates: tuple[Layers, ...]
    gradients: tuple[Layers, ...]

    @property
    def now(self) -> Layers:
        """The present layers."""
        return self.iterates[0]

    @property
    def average(self) -> None:
        """None: an average of iterates is an iterate of another g."""
        return

    @property
    def every(self) -> list[Layers]:
        """All rows that are held."""
        return [*self.iterates, *self.gradients]

    def moved(self, layers: list[Layers]) -> Stack:
        """The same with other rows, in the order of ``every``."""
        m = len(self.iterates)
        return Stack(tuple(layers[:m]), tuple(layers[m:]))


class FirstOrderReplicate(Replicate):
    """Rows and effective samples under f and g."""

    def __init__(self, setting: Setting, start: Start, points: Points) -> None:
        assert setting.method is not None
        p = len(start.Q)
        self.method = setting.method
        self._samples = SampleFunction(self.method, setting.kernel, np.asarray(start.a))
        self._rows = RowFunction(self.method, p)
        self._products = np.zeros((self.method.memory, points.count, p))
        self._axes: dict[int, np.ndarray] = {}
        self._turned: np.ndarray | None = None
        if self.method.coordinatewise:
            log2_points = points.count.bit_length() - 1
            self._axis_points = Points(
                log2_points, points.kind, AXES + points.replicate
            )
            self._axes_drawn = 0
        super().__init__(setting, start, points)

    def _at_rest(self, rows: np.ndarray, a: np.ndarray) -> Stack:
        """All iterates at the start, and no gradient yet."""
        m = self.method.memory
        return Stack((Layers(rows, a),) * m, (Layers(np.zeros_like(rows), a),) * m)

    def _begin(self, outside: int) -> None:
        """Samples that nothing was made of yet; axes stay with their directions."""
        super()._begin(outside)
        self._products = np.zeros_like(self._products)
        if self._turned is None:
            return
        rank = self.setting.L.shape[1]
        old = self._axes
        self._axes = {i: old[i] for i in range(1, rank + 1)}
        whole = np.zeros((len(self._turned), self.points.count))
        for i, axis in old.items():
            whole[i] = axis
        found = self._turned.T @ whole
        for i, axis in enumerate(found):
            # no row lies along directions that leave the columns known so far: these
            # get fresh ones
            if abs((axis**2).mean() - 1) < TOLERANCE:
                self._axes[self._first - outside + i] = axis

    def _turn(self, G: np.ndarray) -> None:
        """Keep how the next basis lies in this one."""
        if self.method.coordinatewise:
            self._complete_axes()
            self._turned = G

    def _looked(
        self, paths: Paths, fresh: np.ndarray, key: jax.Array | None
    ) -> tuple[Basis, Visit]:
        """Fields of all remembered iterates, and what f makes of them."""
        setting, copies = self.setting, self.copies[-1]
        m, count, p = self._products.shape
        rows = np.concatenate([layers.W for layers in self.state.iterates])
        h = np.asarray(look(self.basis, paths, rows, setting.alpha))
        fields = h.reshape(count, m, p).transpose(1, 0, 2)
        labels = np.asarray(setting.kernel.label(paths.target, paths.noise))
        v = self._samples.products(len(self.rows), fields, self._products, labels)
        visited = np.where(copies[:, None] > 0, v, 0.0)
        self._products = np.concatenate([visited[None], self._products[:-1]])
        push = Push(jnp.asarray(v), jnp.zeros_like(v))
        found: tuple[Basis, Visit] = take(
            self.basis, paths, push, copies, fresh, setting.numbers
        )
        return found

    def _moved(self) -> Stack:
        """The next iterate, and the gradient that it was made with."""
        state, a, t = self.state, self.state.now.a, len(self.rows) - 1
        gradient = self.setting.rates.step * np.asarray(self.found.gradient)
        gradients = (Layers(gradient, a), *state.gradients[:-1])
        stacks = [
            np.stack([layers.W for layers in each])
            for each in (state.iterates, gradients)
        ]
        if not self.method.coordinatewise:
            new = self._rows.moved(t, *stacks)
            return Stack((Layers(new, a), *state.iterates[:-1]), gradients)
        # widening the basis widens all rows, so those that are held must be complete
        self.state = Stack(state.iterates, gradients)
        new = self._moved_by_coordinates(t, *stacks)
        return Stack((Layers(new, a), *self.state.iterates[:-1]), self.state.gradients)

    def _moved_by_coordinates(
        self, t: int, iterates: np.ndarray, gradients: np.ndarray
    ) -> np.ndarray:
        """The next iterate where g is a function of single coordinates."""
        self._complete_axes()
        known = sorted(self._axes)
        axes = np.stack([self._axes[i] for i in known])
        out = self._rows.function(
            t, iterates[..., known] @ axes, gradients[..., known] @ axes
        )
        parts, rest = np.zeros((len(out), len(known))), out
        for _ in range(2):
            more = rest @ axes.T / axes.shape[1]
            parts, rest = parts + more, rest - more @ axes
        places: list[int] = []
        for row, b in zip(out, rest, strict=True):
            for place in places:
                b = b - (b @ self._axes[place]) / len(b) * self._axes[place]
            length = np.sqrt((b**2).mean())
            if length > TOLERANCE * np.sqrt((row**2).mean()):
                place = self._add_direction()
                self._axes[place] = b / length
                places.append(place)
        new = np.zeros((len(out), len(self.basis.U)))
        new[:, known] = parts
        for place in places:
            new[:, place] = rest @ self._axes[place] / axes.shape[1]
        return new

    def _add_direction(self) -> int:
        """A direction of the weights along which the inputs are fresh noise to the
        samples; its place in the basis.
        """
        size = int(self.basis.size)
        if size + 1 > len(self.basis.U):
            self._widen(power_of_two(size + 1))
        U, root = np.asarray(self.basis.U)[:size], self.paths.root
        x = _orthogonal(root * self._next(1)[0], U)
        self.basis = self.basis._replace(
            U=self.basis.U.at[size].set(x),
            noises=jnp.asarray(self.basis.noises).at[size].set(True),
            size=size + 1,
        )
        return size

    def _complete_axes(self) -> None:
        """Columns of all directions of the weights, fresh Gaussian ones where there is
        none yet.
        """
        for i in map(int, np.flatnonzero(np.asarray(self.basis.noises))):
            if i not in self._axes:
                column = self._axis_points.column(self._axes_drawn)
                self._axes_drawn += 1
                known = np.array(list(self._axes.values()))
                self._axes[i] = _orthogonal(column, known)


def _orthogonal(x: np.ndarray, known: np.ndarray) -> np.ndarray:
    """X without its parts along known orthonormal rows, and of mean square one."""
    if len(known):
        for _ in range(2):
            x = x - (known @ x / len(x)) @ known
    return np.asarray(x / np.sqrt((x**2).mean()))


def replicate_of(setting: Setting, start: Start, points: Points) -> Any:
    """A replicate under the algorithm of a setting."""
    kind = Replicate if setting.method is None else FirstOrderReplicate
    return kind(setting, start, points)
