"""Data and their Gaussian surrogate: the same covariance, the same target, and nothing
else in common.

    x ~ data,  y given        against        x ~ N(0, Σ),  y = h(W* x) + √Δ ξ,
        Σ = covariance of the data

Where runs on both agree, the data are as good as Gaussian (universality); `compare`
says by how much they do not. At the dimension of the data the surrogate is exact in
`Chain`, so that nothing but the law of the inputs is tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from twolayer.methods.chain import Chain
from twolayer.methods.ode import ODE
from twolayer.methods.vectors import Vectors
from twolayer.numerics.arguments import Array
from twolayer.numerics.errors import InputError, choice
from twolayer.running.judging import SHARE, Judgement, judge, ranges
from twolayer.task.data import Data
from twolayer.task.inputs import BLOCKS, Inputs
from twolayer.task.method import Method
from twolayer.task.overlaps import LAWS, Overlaps
from twolayer.task.problem import Problem

__all__ = ["Surrogate", "beside", "fitted", "over_data", "surrogate", "universality"]


MEMORY = "of which a part is what the rows have taught, Gaussian or not"


class Surrogate(NamedTuple):
    """The problem with the inputs of the data, the method that runs over the data, and
    a start that fits both.
    """

    problem: Problem
    method: Vectors
    start: Overlaps


def surrogate(
    problem: Problem,
    X: Array,
    y: object,
    target: object = None,
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
        Target and noise as the surrogate has them; its inputs and gram are replaced by
        those of the data.
    X, y : arrays (n, d), (n,)
        Rows and labels.
    target : array (k, d), optional
        W*; by default, for one direction, that of least squares, with a field of
        variance one.
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
    found, start = _fitted(problem.replace(inputs=None), data, seed, size, law, blocks)
    return Surrogate(found, Vectors(data=data), start)


def _fitted(
    problem: Problem,
    data: Data,
    seed: int,
    size: int | None,
    law: str = "sphere",
    blocks: int = BLOCKS,
) -> tuple[Problem, Overlaps]:
    """The problem with the inputs of data, unless it has some, and a random start that
    has their target.
    """
    if len(data.target) != problem.k:
        raise InputError(
            f"The target has {problem.k} directions, but W_star has {len(data.target)}"
            " rows: give (X, y, W_star) with one for each."
        )
    inputs = (
        Inputs.from_data(data.X, blocks) if problem.inputs.plain else problem.inputs
    )
    P = data.overlaps(inputs)
    gram = sum(s * one for s, one in zip(inputs.variances, P, strict=True))
    found = problem.replace(inputs=inputs, gram=gram)
    law = "sphere" if law == "random" else choice("start", law, ("random", *LAWS))
    return found, Overlaps.random(found, data.dim, seed, size, law, P=P)


def fitted(
    problem: Problem, method: Method, start: str, seed: int, size: int
) -> tuple[Problem, Any]:
    """What `solve` follows where a method runs over data and the start is a word:
    inputs and starts fit the data.
    """
    if not isinstance(method, Vectors) or method.data is None:
        return problem, start
    return _fitted(problem, method.data, seed, size, start)


def over_data(
    problem: Problem, algorithm: object, methods: object, start: object, seed: int
) -> tuple[Problem, Any, Any]:
    """What `compare` follows where a method runs over data and no start is given.

    The problem and the random start are then those of the Gaussian surrogate, and where
    no other method is asked for it is followed by `ODE` and `Chain`; where rows come
    back, by `Vectors` over as many Gaussian rows.
    """
    if not isinstance(methods, Sequence) or not (
        start is None or isinstance(start, str)
    ):
        return problem, methods, start
    data = next(
        (x.data for x in methods if isinstance(x, Vectors) and x.data is not None), None
    )
    if data is None:
        return problem, methods, start
    found, begin = _fitted(problem, data, seed, None, start or "random")
    alone = all(isinstance(x, Vectors) and x.data is not None for x in methods)
    return found, [*beside(algorithm, data.dim), *methods] if alone else methods, begin


def beside(algorithm: object, dim: int) -> list[Method]:
    """What follows the surrogate where nothing is asked for: its limit and its chain,
    or runs over Gaussian rows.

    >>> from twolayer.task.algorithm import SGD
    >>> [
    ...     [method.name for method in beside(x, 20)]
    ...     for x in (SGD("1/d"), SGD("1/d", dataset=400))
    ... ]
    [['ode', 'chain'], ['vectors']]
    """
    stages = algorithm if isinstance(algorithm, Sequence) else [algorithm]
    if any(getattr(getattr(x, "algorithm", x), "reused", None) for x in stages):
        return [Vectors(dim)]
    return [ODE(), Chain(dim)]


def universality(
    methods: Mapping[str, Method], results: Mapping[str, xr.Dataset], gram: np.ndarray
) -> list[str]:
    """How far runs over data are from exact runs of their Gaussian surrogate, in words;
    nothing without both.
    """
    drawn = {
        x.dim: name
        for name, x in methods.items()
        if isinstance(x, Vectors) and x.data is None
    }
    exact = drawn | {x.dim: name for name, x in methods.items() if isinstance(x, Chain)}
    lines = []
    for name, method in methods.items():
        if not isinstance(method, Vectors) or method.data is None:
            continue
        other, rows = exact.get(method.dim), results[name]
        if other is not None and rows.sizes["seed"] == results[other].sizes["seed"] > 1:
            found = judge(
                name,
                method.dim,
                rows,
                results[other],
                ranges(results[other], gram, method.dim),
            )
            lines.append(f"{_spoken(found)} ({name} against {other})")
        at_the_end = (
            float(rows[x].values[:, -1].mean()) for x in ("train_risk", "risk")
        )
        on_rows, there = (f"{x:.3g}" for x in at_the_end)
        own = drawn.get(method.dim, "")
        known = own in results and "train_risk" in results[own]
        lines.append(
            f"at the end of {name} the risk on the rows is {on_rows}, that of the"
            f" surrogate at the same overlaps {there}: {_more(rows)}, "
            + (
                f"and {_more(results[own])} with the Gaussian rows of {own}"
                if known
                else MEMORY
            )
        )
    return lines


def _more(result: xr.Dataset) -> str:
    """The risk on the rows over that of a Gaussian law, at the end."""
    share = (
        float((result.train_risk.values[:, -1] / result.risk.values[:, -1]).mean()) - 1
    )
    return f"{abs(share):.1%} {'more' if share > 0 else 'less'}"


def _spoken(rows: list[Judgement]) -> str:
    """The verdict on universality: that of the worst quantity."""
    failing = [row for row in rows if row.verdict == "differ"]
    if failing:
        worst = max(failing, key=lambda row: abs(row.worst_deviation) / row.range)
        part = abs(worst.worst_deviation) / worst.range
        return (
            f"universality fails: {worst.entry} is off by {part:.1%} of its range at t"
            f" = {worst.worst_time:.3g}"
        )
    seen = max(row.seen / row.range for row in rows)
    if seen <= SHARE:
        return (
            f"universality holds: no entry is off by more than {seen:.1%} of its range"
        )
    return (
        f"universality is undecided: entries could be off by {seen:.0%} of their range"
        " without being seen"
    )
