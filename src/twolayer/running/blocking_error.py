"""What is left of a spectrum in its blocks: the change of the risk when they are
doubled.

error = max_t |risk_b(t) − risk_2b(t)| / risk_2b(t),    overlaps of a block shared out
by numbers of eigenvalues
"""

from __future__ import annotations

import math

import numpy as np

from twolayer.gaussian.moments import check_start
from twolayer.numerics.arguments import End
from twolayer.numerics.errors import expect, require
from twolayer.running.solve import given_start, solve
from twolayer.task.algorithm import SGD
from twolayer.task.inputs import Inputs
from twolayer.task.method import Method
from twolayer.task.overlaps import Overlaps
from twolayer.task.problem import Problem

__all__ = ["blocking_error", "shared_out"]


def shared_out(start: Overlaps, inputs: Inputs, finer: Inputs) -> Overlaps:
    """Overlaps in finer blocks, each of which lies in one of the coarser ones and has
    its share of it.

    Where eigenvalues of a block differ, nothing changes: their mean is its variance.

    >>> coarse, fine = (
    ...     Inputs.blocks([1.5, 0.5], dims=[2, 2]),
    ...     Inputs.blocks([2, 1, 0.5], dims=[1, 1, 2]),
    ... )
    >>> one = np.array([0.6, 0.4])[:, None, None]
    >>> shared_out(
    ...     Overlaps.in_blocks(one, 0 * one, one), coarse, fine
    ... ).Q.ravel().tolist()
    [0.3, 0.3, 0.4]
    """
    ends = np.cumsum(inputs.dims or ())
    home = np.searchsorted(ends, np.cumsum(finer.dims or ()) - 1, side="right")
    share = np.asarray(finer.dims) / np.asarray(inputs.dims)[home]
    Q, M, P = (
        np.take(x, home, axis=-3) * share[:, None, None]
        for x in (start.Q, start.M, start.P)
    )
    return Overlaps(Q, M, P, start.a, start.dim)


def blocking_error(
    problem: Problem,
    algorithm: SGD,
    method: Method,
    start: Overlaps | str = "random",
    *,
    time: End = None,
    steps: End = None,
) -> float:
    """Largest relative change of the excess risk when the blocks of a power law are
    doubled.

    Parameters
    ----------
    problem : Problem
        With ``inputs=Inputs.power_law(…)``.
    algorithm, start
        As for `solve`; of several starts the worst counts.
    method : Method
        A deterministic one: differences of random runs are not those of the blocks.
    time, steps
        End of the run.

    Examples
    --------
    >>> from twolayer.methods.ode import ODE
    >>> start = Overlaps([[1.0]], [[0.1]])
    >>> blocking_error(Problem("z1", "linear"), SGD(lr="0.1/d"), ODE(), start, time=1)
    Traceback (most recent call last):
    twolayer.InputError: Only the blocks of a power law can be made finer: the others
    are what was given.
    """
    inputs, finer = problem.inputs, problem.inputs.finer()
    require(
        not method.stochastic,
        "method",
        method,
        "a deterministic one such as ODE() or Map(dim)",
    )
    begun = given_start(
        problem, start, sum(inputs.dims or ()), 0, why="the inputs have none"
    )
    check_start(problem, expect(Overlaps, "start", begun))
    other = shared_out(begun, inputs, finer)
    gram = other.fields(finer).P
    risks = []
    for one, begin in (
        (problem, begun),
        (problem.replace(inputs=finer, gram=gram), other),
    ):
        found = solve(
            one,
            algorithm,
            method,
            begin,
            time=time,
            steps=steps,
            save=10,
            seeds=math.prod(begun.batch),
        )
        risks.append(found.excess_risk.values)
    change = np.abs(risks[0] - risks[1])
    return float(
        np.max(np.divide(change, risks[1], out=np.zeros_like(change), where=change > 0))
    )
