"""Data and their Gaussian surrogate: the same covariance, the same target, and nothing else in common.

    x ~ data,  y given        against        x ~ N(0, Σ),  y = h(W* x) + √Δ ξ,    Σ = covariance of the data

Where runs on both agree, the data are as good as Gaussian (universality); `compare` says by how much they do not. At
the dimension of the data the surrogate is exact in `Chain`, so that nothing but the law of the inputs is tested.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from twolayer.methods.vectors import Vectors
from twolayer.task.data import Data
from twolayer.task.inputs import BLOCKS, Inputs
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["Surrogate", "surrogate"]


class Surrogate(NamedTuple):
    """The problem with the inputs of the data, the method that runs over the data, and a start that fits both."""

    problem: Problem
    method: Vectors
    start: Overlaps


def surrogate(
    problem: Problem,
    X: Any,
    y: Any,
    target: Any = None,
    *,
    blocks: int = BLOCKS,
    seed: int = 0,
    size: int | None = None,
    law: str = "sphere",
) -> Surrogate:
    """The Gaussian surrogate of data, ready for `solve` and `compare`.

    Parameters
    ----------
    problem : Problem
        Target and noise as the surrogate has them; its inputs and gram are replaced by those of the data.
    X, y : arrays (n, d), (n,)
        Rows and labels.
    target : array (k, d), optional
        W*; by default, for one direction, that of least squares, with a field of variance one.
    blocks : int
        Groups of eigenvalues at most.
    seed, size, law
        Of the random start, as for `Overlaps.random`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.tanh(rng.normal(size=(400, 20)))
    >>> found = surrogate(Problem("z1", "linear"), X, X[:, 0], np.eye(1, 20), blocks=4)
    >>> found.problem.inputs.count, found.start.blocks, found.method.dimension
    (4, 4, 20)
    """
    data = Data((X, y) if target is None else (X, y, target))
    inputs = Inputs.from_data(X, blocks)
    P = data.overlaps(inputs)
    gram = sum(s * one for s, one in zip(inputs.variances, P, strict=True))
    found = problem.replace(inputs=inputs, gram=gram)
    return Surrogate(found, Vectors(data=data), Overlaps.random(found, data.dim, seed, size, law, P=P))
