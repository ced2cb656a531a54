"""A multi-index target, tanh(z1 z2 z3): larger batches recover it in fewer steps.

    ℓ = 3, three directions at once;  γ ∝ n_b at fixed noise,  T ∝ 1/n_b

Thirty tanh neurons, d = 512, correlation loss, projected. The target has no component of order one or two, and the
three directions can be found only together: the drift of each overlap is the product of the other two.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.judging import Verdict, holds, near, unknown, verdict
from twolayer.gallery.shared.measuring import canvas
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Plate, figure
from twolayer.numerics.errors import InputError
from twolayer.numerics.statistics import power_law

SLACK, RESOLUTION = 0.1, 0.5  # of the exponent: finite steps and sizes, and what must be seen
RISE = 1.6  # ‖M‖_F over that of its start, where the directions count as seen
COLOURS = ("#a6bddb", "#3690c0", "#034e7b", "#1a1a1a")


@figure(
    "multi-index",
    "tanh(z1 z2 z3) learned by thirty tanh neurons: steps against batch size",
    quick={"width": 6, "dim": 40, "batches": (256, 1024), "seeds": 4, "steps": 200, "rate": 0.25},
    group="phase-diagram",
)
def multi_index(
    *,
    seed: int = 0,
    width: int = 30,
    dim: int = 512,
    batches: tuple[int, ...] = (1024, 4096, 16384),
    rate: float = 0.2,
    steps: int = 800,
    seeds: int = 4,
) -> Plate:
    """γ/p = ``rate`` at the second batch size and in proportion to n_b; ``steps`` there, fewer for larger batches."""
    if len(batches) < 2:
        raise InputError(f"Argument `batches` must hold at least two sizes, but got {len(batches)}.")
    problem = tl.Problem("tanh(z1*z2*z3)", "tanh", width=width)
    runs = {}
    for batch in batches:
        scale = batch / batches[1]
        algorithm = tl.SGD(lr=rate * width * scale, batch=batch, loss="correlation", geometry="projected")
        number = max(20, round(steps / scale))
        runs[batch] = part(f"n={batch}", partial(_path, problem, algorithm, dim, number, seeds, seed))
    first = np.array([run.first.values for run in runs.values()])
    data = xr.Dataset({"steps": (("batch", "seed"), first)}, {"batch": list(batches)})
    return Plate(_draw(runs, data, width, dim), data, _verdict(data))


def _path(problem: tl.Problem, algorithm: tl.SGD, dim: int, steps: int, seeds: int, seed: int) -> dict[str, Any]:
    from twolayer.analysis.weak_recovery import oriented

    starts = oriented(problem, tl.Overlaps.random(problem, dim, seed, size=seeds))
    run = tl.solve(problem, algorithm, tl.Chain(dim, batch_sums="exact"), starts, steps=steps, save=40, seed=seed)
    norm = np.sqrt((run.M.values**2).sum((2, 3)))
    step = run.step.values
    first = [
        np.interp(RISE * row[0], np.maximum.accumulate(row), step) if row.max() > RISE * row[0] else np.inf
        for row in norm
    ]
    return {"step": step, "norm": norm, "first": np.array(first)}


def _verdict(data: xr.Dataset) -> Verdict:
    claim = "steps to see three directions at once fall as 1/n_b"
    late = int(np.isinf(data.steps.values).sum())
    if late:
        return verdict(claim, [unknown(f"{late} runs do not reach {RISE} times their first overlap")])
    means = data.steps.mean("seed")
    error = np.maximum(data.steps.std("seed", ddof=1) / np.sqrt(data.sizes["seed"]), 0.02 * means)
    fit = power_law(data.batch.values, means.values, error=error.values)
    times = ", ".join(
        f"{float(m):.1f} ± {float(e):.1f} (n_b = {int(n)})" for m, e, n in zip(means, error, data.batch, strict=True)
    )
    checks = [
        near(
            "exponent of T in n_b",
            fit.slope,
            -1.0,
            fit.error,
            allowance=SLACK,
            resolution=RESOLUTION,
            freedom=data.sizes["batch"] * (data.sizes["seed"] - 1),
        ),
        holds((np.diff(means.values) < 0).all(), "every larger batch needs fewer steps on average"),
    ]
    return verdict(claim, checks, f"Steps to {RISE} ‖M(0)‖: {times}")


def _draw(runs: dict[int, Any], data: xr.Dataset, width: int, dim: int) -> Figure:
    figure, (left, right) = canvas(2)
    for colour, (batch, run) in zip(COLOURS, runs.items(), strict=False):
        for i, row in enumerate(run.norm.values):
            left.plot(run.step[1:], row[1:], color=colour, lw=1, label=f"$n_b = {batch}$" if i == 0 else None)
    left.set(xscale="log", xlabel="step", ylabel=r"$\|M\|_F$")
    left.set_title(rf"tanh$(z_1 z_2 z_3)$, $p = {width}$, $d = {dim}$")
    left.legend()
    for row in data.steps.values.T:
        right.plot(data.batch, row, "o", color="#3690c0", ms=5)
    mean = data.steps.mean("seed").values
    right.plot(
        data.batch, mean[0] * data.batch.values[0] / data.batch.values, ":", color="#888888", label=r"$\propto 1/n_b$"
    )
    right.set(xscale="log", yscale="log", xlabel="batch size $n_b$", ylabel=rf"steps to {RISE} $\|M(0)\|_F$")
    right.legend()
    return figure
