"""A chain whose step is written out, as a stepwise run: the numbers of every seed.

state of a seed: one row of numbers, W (p, r + p) in the orthonormal basis and a (p,)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from twolayer.compiled.formula import formula_of_activation, formula_of_target
from twolayer.compiled.shape import Shape
from twolayer.equations.orthogonal import Reduced, embed, overlaps
from twolayer.gaussian.nodes import target_frame
from twolayer.loops.lanes import Lanes
from twolayer.loops.stepwise import Stepper
from twolayer.numerics import random
from twolayer.task.problem import Problem

__all__ = ["WrittenStepper"]


def shape_of(problem: Problem, at: Reduced, quantity: str | None, noisy: bool) -> Shape:
    """What fixes the code of a chain that is suited."""
    activation, target = formula_of_activation(problem.activation), formula_of_target(problem.target)
    assert activation is not None and target is not None and at.kernel.loss.student is not None
    frame = tuple(map(tuple, np.asarray(target_frame(problem.P)[0], float).tolist()))
    student = at.kernel.loss.student
    return Shape(activation, target, student, at.form, at.p, at.rank, at.batch, frame, noisy, quantity)


class WrittenStepper(Stepper):
    """What a written-out step needs to know of all seeds, of one task or of several of the same compiled form.

    Parameters
    ----------
    at : Reduced
    lanes : Lanes
        Groups of one lane.
    dims : sequence of int
    tables : sequence of arrays
        Dimension, and table of the Gram factor, of each task.

    Attributes
    ----------
    shape : Shape
    numbers : array (seeds or 1, numbers of a lane)
        η, κ, √Δ, threshold, its sign, and the table; one row where all seeds share it.
    keys : array of uint32 (seeds, 4)
    """

    block = 64

    def __init__(self, at: Reduced, lanes: Lanes, dims: Sequence[int], tables: Sequence[np.ndarray]) -> None:
        self.at, self.lanes, problem = at, lanes, lanes.task.problem
        self.L, self.inverse = (np.asarray(x) for x in target_frame(problem.P))
        noise, rates = np.asarray(lanes.noise), lanes.rates(dims)
        watch = [np.zeros_like(noise), np.ones_like(noise)] if lanes.watch is None else list(lanes.watch)
        columns = [rates.step, rates.shrink, np.sqrt(noise), *watch]
        n = 1 if len(dims) == 1 and lanes.watch is None else len(noise)
        table = np.asarray(tables[0])[None] if n == 1 else lanes.spread(tables)
        self.numbers = np.concatenate([*(np.asarray(x, float)[:n] for x in columns), table.reshape(n, -1)], axis=1)
        self.shape = shape_of(problem, at, lanes.quantity, bool((noise > 0).any()))
        self.keys = np.asarray(lanes.keys(random.Role.FIELDS, random.Role.ORTHOGONAL)).reshape(-1, 4)

    def rows(self) -> np.ndarray:
        """The start in the orthonormal basis, W and a in one row of numbers for each seed; one row if all are alike."""
        only = self.lanes.only_start()
        Q, M, a = self.lanes.starts() if only is None else only
        W = np.concatenate(embed(Q, M, self.inverse, self.at.columns), axis=-1)
        return np.concatenate([W.reshape(len(W), -1), a], axis=1)

    def overlaps(self, rows: Any) -> tuple[Any, Any, Any]:
        """Q, M and a of rows of numbers."""
        p = self.at.p
        return *overlaps(rows[:, :-p].reshape(len(rows), p, -1), self.L), rows[:, -p:]
