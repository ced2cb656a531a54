"""A chain whose step is written out, as a stepwise run: the numbers of every seed.

state of a seed: one row of numbers, W (p, r + p) in the orthonormal basis and a (p,);
    with blocks Wᵀ (coordinates, p) in the basis of equations/block_coordinates.py, a,
        and a factor of each row of W
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from twolayer.compiled.formula import formula_of_activation, formula_of_target
from twolayer.compiled.shape import BlockShape, Shape
from twolayer.equations.block_coordinates import BlockLayout
from twolayer.equations.optimiser_step import coefficients_of
from twolayer.equations.orthogonal import Reduced, embed, overlaps
from twolayer.gaussian.nodes import target_frame
from twolayer.loops.stepwise import Lanes, Stepper
from twolayer.numerics import random
from twolayer.numerics.types import Tree
from twolayer.numerics.wishart import GramFactors
from twolayer.task.problem import Problem

__all__ = ["STREAMS", "WrittenStepper"]

STREAMS = (
    random.Role.FIELDS,
    random.Role.ORTHOGONAL,
)  # of samples, and of Gram factors


def shape_of(
    problem: Problem,
    at: Reduced,
    quantity: str | None,
    noisy: bool,
    layout: BlockLayout | None,
) -> Shape:
    """What fixes the code of a chain that is suited."""
    activation, target = (
        formula_of_activation(problem.activation),
        formula_of_target(problem.target),
    )
    assert (
        activation is not None
        and target is not None
        and at.kernel.loss.student is not None
    )
    L = (
        np.zeros((0, 0))
        if layout is not None
        else np.asarray(target_frame(problem.P)[0], float)
    )
    frame = tuple(map(tuple, L.tolist()))
    student = at.kernel.loss.student
    blocks = None if layout is None else blocks_of(at, layout)
    return Shape(
        activation,
        target,
        student,
        at.form,
        at.p,
        at.rank,
        at.batch,
        frame,
        noisy,
        quantity,
        blocks,
    )


def blocks_of(at: Reduced, layout: BlockLayout) -> BlockShape:
    """What fixes the code where inputs have blocks: small ones have plain matrices T,
    and come first.
    """
    assert isinstance(at.factor, GramFactors)
    plain, first, outside = [], 0, iter(layout.outside)
    for group in at.factor.groups:
        for n in itertools.islice(outside, 0 if group.triangular else group.members):
            plain.append((first, group.width, n))
            first += group.draws
    return BlockShape(at.columns, tuple(plain), at.factor.count - len(plain))


class WrittenStepper(Stepper):
    """What a written-out step needs to know of all seeds, of one task or of several of
    the same compiled form.

    Seeds stand in groups of one lane; ``dims`` and ``tables`` are the dimension and the
    table of the Gram factor of each task. Where inputs have blocks there is one task,
    and a ``layout`` says where rows lie. ``numbers`` (seeds, n) are η, κ, √Δ,
    threshold, its sign, and the table unless there are blocks, in one row where all
    seeds share them; ``shared`` are those of blocks (in_blocks.py).
    """

    block = 64

    def __init__(
        self,
        at: Reduced,
        lanes: Lanes,
        dims: Sequence[int],
        tables: Sequence[Tree],
        layout: BlockLayout | None = None,
    ) -> None:
        self.at, self.lanes, self.layout, problem = (
            at,
            lanes,
            layout,
            lanes.task.problem,
        )
        self.L, self.inverse = (np.asarray(x) for x in target_frame(problem.P))
        n = 1 if len(dims) == 1 and lanes.watch is None else lanes.shape[0]
        spread = (lambda values: np.asarray(values, float)) if n == 1 else lanes.spread
        rates = [
            coefficients_of(x.algorithm, x.problem.divisor, dim)
            for x, dim in zip(lanes.tasks, dims, strict=True)
        ]
        noise = [task.problem.noise for task in lanes.tasks]
        own = spread(
            [(x.step, x.shrink, np.sqrt(y)) for x, y in zip(rates, noise, strict=True)]
        )
        watch = (
            np.array([[0.0, 1.0]])
            if lanes.watch is None
            else np.concatenate(lanes.watch, axis=1)
        )
        self.shared = np.zeros(1)
        if layout is None:
            table = spread(tables).reshape(n, -1)
        else:
            assert isinstance(at.factor, GramFactors)
            table, self.L = np.zeros((n, 0)), layout.L
            triangles = [
                x
                for x, group in zip(tables[0], at.factor.groups, strict=True)
                if group.triangular
            ]
            self.shared = np.concatenate(
                [
                    np.ravel(x)
                    for x in (layout.scale, layout.L, layout.spread, *triangles)
                ]
            )
        self.numbers = np.concatenate(
            [own, np.broadcast_to(watch, (n, 2)), table], axis=1
        )
        self.shape = shape_of(problem, at, lanes.quantity, max(noise) > 0, layout)

    def rows(self) -> np.ndarray:
        """The start in the orthonormal basis, W and a in one row of numbers for each
        seed; one row if all are alike.
        """
        only = self.lanes.only_start() if self.layout is None else None
        Q, M, a = self.lanes.starts() if only is None else only
        if self.layout is None:
            W = np.concatenate(embed(Q, M, self.inverse, self.at.columns), axis=-1)
            return np.concatenate([W.reshape(len(W), -1), a], axis=1)
        W = self.layout.place(*self.lanes.block_starts()).swapaxes(-1, -2)
        return np.concatenate([W.reshape(len(W), -1), a, np.ones_like(a)], axis=1)

    def overlaps(self, rows: np.ndarray) -> tuple[Any, Any, np.ndarray]:
        """Q, M and a of rows of numbers."""
        W, a = self.opened(rows)
        return *overlaps(
            W, self.L, None if self.layout is None else self.layout.scale
        ), a

    def opened(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """W and a of rows of numbers."""
        p = self.at.p
        if self.layout is None:
            return rows[:, :-p].reshape(len(rows), p, -1), rows[:, -p:]
        W = rows[:, : -2 * p].reshape(len(rows), -1, p) * rows[:, None, -p:]
        return W.swapaxes(-1, -2), rows[:, -2 * p : -p]
