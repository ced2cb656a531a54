"""The limit d → ∞ against long runs of the chain at large d, where options meet: momentum, decay, noise, layers, blocks.

x_d = x_∞ + O(1/d):    means over seeds at d = 1500, within their standard errors and a small multiple of 1/d
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chance import sigmas
from cost import sized

import twolayer as tl
from twolayer import d
from twolayer.task.inputs import Inputs

START = tl.Overlaps([[1.0, 0.2], [0.2, 0.8]], [[0.5], [-0.3]])
IN_BLOCKS = tl.Overlaps(
    [[[0.6, 0.1], [0.1, 0.3]], [[0.4, 0.2], [0.2, 0.7]]],
    [[[0.3], [-0.2]], [[0.1], [0.4]]],
    [[[0.5]], [[0.5]]],
)
PROBLEM = tl.Problem("tanh(z1)", "erf", width=2, noise=0.2, second_layer=[1.5, -0.8])
BLOCKS = PROBLEM.replace(inputs=Inputs.blocks([1.6, 0.4], [0.4, 0.6]))

CASES: dict[str, tuple[tl.Problem, tl.SGD, tl.Overlaps]] = {
    "private, momentum": (
        PROBLEM,
        tl.SGD(1 / d, 2, momentum=0.5, rule="private(0.6)"),
        START,
    ),
    "momentum, decay, second rate": (
        PROBLEM,
        tl.SGD(
            1 / d,
            momentum=0.5,
            weight_decay=0.5,
            train_second_layer=True,
            second_lr=0.4 / d,
        ),
        START,
    ),
    "blocks, private, momentum": (
        BLOCKS,
        tl.SGD(1 / d, momentum=0.5, rule="private(0.6)"),
        IN_BLOCKS,
    ),
}
DIM, SEEDS, TIME = 1500, 16, 0.6


def entries(run: Any) -> list[np.ndarray]:
    """Overlaps and second layers at the end, seeds first; in blocks where there are any."""
    names = ("M_block", "Q_block") if "Q_block" in run else ("M", "Q")
    return [run[name].values[:, -1] for name in (*names, "a")]


@pytest.mark.parametrize("name", sized(CASES, slow=set(CASES) - {"private, momentum"}))
def test_the_limit_is_that_of_long_runs(name: str) -> None:
    """A wrong power of 1/(1 − β), a lost N, or a term that is dropped moves the end by ten percent or more."""
    problem, algorithm, start = CASES[name]
    theory = tl.solve(problem, algorithm, tl.ODE(), start, time=TIME, save=1)
    runs = tl.solve(
        problem, algorithm, tl.Chain(DIM), start, time=TIME, save=1, seeds=SEEDS
    )
    for limit, seen in zip(entries(theory), entries(runs), strict=True):
        error = seen.std(axis=0, ddof=1) / np.sqrt(SEEDS)
        gap = np.abs(seen.mean(axis=0) - limit[0])
        assert (gap < sigmas(seen[0].size, SEEDS - 1) * error + 8 / DIM).all(), (
            gap,
            error,
        )


@pytest.mark.slow
def test_adagrad_slows_down_as_long_runs_do() -> None:
    """A batch of two, a sum over two neurons and b ≠ 1: every number of dβ/dτ = tr χ/(p γ n_b) counts."""
    algorithm = tl.SGD(2 / d, 2, rule="adagrad_norm(0.4)")
    theory = tl.solve(PROBLEM, algorithm, tl.ODE(), START, time=1.0, save=1)
    runs = tl.solve(
        PROBLEM, algorithm, tl.Chain(DIM), START, time=1.0, save=1, seeds=SEEDS
    )
    for limit, seen in zip(entries(theory)[:2], entries(runs)[:2], strict=True):
        error = seen.std(axis=0, ddof=1) / np.sqrt(SEEDS)
        gap = np.abs(seen.mean(axis=0) - limit[0])
        assert (gap < sigmas(seen[0].size, SEEDS - 1) * error + 8 / DIM).all(), (
            gap,
            error,
        )
