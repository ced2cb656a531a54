"""A multi-index target, by default tanh(z1 z2 z3): larger batches recover it in fewer
steps.

    ℓ = 3, three directions at once;  γ ∝ n_b at fixed noise,  T ∝ 1/n_b

Thirty tanh neurons, d = 512, correlation loss, projected. The target has no component
of order one or two, and the three directions can be found only together: the drift of
each overlap is the product of the other two. With γ ∝ n_b steps have the same drift and
the same noise in the time γ T, so that T ∝ 1/n_b for every target, student and
geometry.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import (
    headline,
    plain_ticks,
    points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, holds, near, unknown, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Variables
from twolayer.numerics.errors import InputError
from twolayer.numerics.statistics import power_law, standard_error

SLACK, RESOLUTION = (
    0.1,
    0.5,
)  # of the exponent: finite steps and sizes, and what must be seen
RISE = 1.6  # ‖M‖_F over that of its start, where the directions count as seen
SAVE = 40
COUNTS = {
    1: "the direction",
    2: "two directions at once",
    3: "three directions at once",
}


@figure(
    "multi-index",
    "tanh(z1 z2 z3) learned by thirty tanh neurons: steps against batch size",
    quick={
        "width": 6,
        "dim": 40,
        "batches": (256, 512, 1024),
        "seeds": 4,
        "steps": 200,
        "rate": 0.25,
    },
    group="phase-diagram",
)
def multi_index(
    *,
    seed: int = 0,
    target: str = "tanh(z1*z2*z3)",
    activation: str = "tanh",
    geometry: str = "projected",
    width: int = 30,
    dim: int = 512,
    batches: tuple[int, ...] = (1024, 4096, 16384),
    rate: float = 0.2,
    steps: int = 800,
    seeds: int = 4,
) -> Finding:
    """γ/p = ``rate`` at the second batch size and in proportion to n_b; ``steps``
    there, fewer for larger batches.
    """
    if len(batches) < 2:
        raise InputError(
            f"Argument `batches` must hold at least two sizes, but got {len(batches)}."
        )
    problem = tl.Problem(target, activation, width=width)
    runs = {}
    for batch in batches:
        scale = batch / batches[1]
        algorithm = tl.SGD(
            lr=rate * width * scale, batch=batch, loss="correlation", geometry=geometry
        )
        number = max(20, round(steps / scale))
        runs[batch] = part(
            f"n={batch}", partial(_path, problem, algorithm, dim, number, seeds, seed)
        )
    first = np.array([run.first.values for run in runs.values()])
    data = xr.Dataset(
        {
            "steps": (("batch", "seed"), first),
            "step": (
                ("batch", "point"),
                np.stack([run.step.values for run in runs.values()]),
            ),
            "norm": (
                ("batch", "seed", "point"),
                np.stack([run.norm.values for run in runs.values()]),
            ),
        },
        {"batch": list(batches)},
    )
    data["start"] = float(data.norm.isel(point=0).mean())
    task = task_of(problem, algorithm).replace(
        f"batch {batch}", "batches n_b, lr ∝ n_b"
    )
    return Finding(data, _verdict(data, problem.k), task.replace("lr = ", "lr up to "))


def _path(
    problem: tl.Problem, algorithm: tl.SGD, dim: int, steps: int, seeds: int, seed: int
) -> Variables:
    from twolayer.analysis.weak_recovery import oriented

    starts = oriented(problem, tl.Overlaps.random(problem, dim, seed, size=seeds))
    run = tl.solve(
        problem,
        algorithm,
        tl.Chain(dim, batch_sums="exact"),
        starts,
        steps=steps,
        save=SAVE,
        seed=seed,
    )
    norm = np.sqrt((run.M.values**2).sum((2, 3)))
    step = run.step.values
    first = [
        np.interp(RISE * row[0], np.maximum.accumulate(row), step)
        if row.max() > RISE * row[0]
        else np.inf
        for row in norm
    ]
    return {"step": step, "norm": norm, "first": np.array(first)}


def _verdict(data: xr.Dataset, k: int) -> Verdict:
    claim = f"steps to see {COUNTS.get(k, f'{k} directions at once')} fall as 1/n_b"
    late = int(np.isinf(data.steps.values).sum())
    if late:
        return verdict(
            claim,
            [unknown(f"{late} runs do not reach {RISE} times their first overlap")],
        )
    means = data.steps.mean("seed")
    error = np.maximum(
        standard_error(data.steps, data.steps.get_axis_num("seed")), 0.02 * means
    )
    fit = power_law(data.batch.values, means.values, error=error.values)
    times = ", ".join(
        f"{float(m):.1f} ± {float(e):.1f} (n_b = {int(n)})"
        for m, e, n in zip(means, error, data.batch, strict=True)
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
        holds(
            (np.diff(means.values) < 0).all(),
            "every larger batch needs fewer steps on average",
        ),
    ]
    return verdict(claim, checks, f"Steps to {RISE} ‖M(0)‖: {times}")


def draw(data: xr.Dataset) -> Figure:
    """Growth of the overlaps, and steps against the batch."""
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

    figure, (left, right) = sheet(2, height=3.9)
    for i, batch in enumerate(data.batch.values):
        row = data.isel(batch=i)
        names = [f"$n_b = {batch}$"] + [None] * (row.sizes["seed"] - 1)
        left.plot(
            row.step[1:],
            row.norm.T[1:],
            ("-", "--", "-.")[i % 3],
            color=DIRECTIONS[i],
            lw=1,
            label=names,
        )
    left.axhline(
        RISE * float(data.start), color=GREY, ls=":", lw=1, label=f"{RISE} of the first"
    )
    left.set(
        xscale="log",
        xlabel="step",
        ylabel=r"$\|M\|_F$",
        title=f"growth of the overlaps, $d = {told(data).dim}$",
    )
    left.legend()
    steps = data.steps.where(np.isfinite(data.steps))
    mean, error = steps.mean("seed"), standard_error(steps, steps.get_axis_num("seed"))
    right.plot(data.batch, steps.values, ".", color=COLOURS["chain"], ms=4, alpha=0.5)
    points(
        right,
        data.batch,
        mean,
        error,
        COLOURS["chain"],
        "means over runs (bars: 2 s.e.)",
    )
    fine = np.geomspace(float(data.batch[0]), float(data.batch[-1]), 40)
    middle = float(np.exp(np.log(data.batch * mean).mean()))
    right.plot(
        fine,
        middle / fine,
        ":",
        color=COLOURS["theory"],
        label=r"predicted $\propto 1/n_b$",
    )
    right.set(
        xscale="log",
        yscale="log",
        xlabel="batch size $n_b$",
        ylabel=rf"steps to {RISE} $\|M(0)\|_F$",
    )
    right.set_xticks(data.batch, [str(n) for n in data.batch.values])
    right.minorticks_off()
    plain_ticks(right.yaxis)
    right.set_title("larger batches, fewer steps")
    right.legend()
    headline(figure, data)
    return figure
