"""Escape time against dimension: t grows as log d, steps as d log d.

t ≈ [log(T d) + log 2 + γ_E − log(1 + s)]/(2c) + O(1)        slope of t against log d:
1/(2c)
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import (
    headline,
    known,
    points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import (
    Verdict,
    holds,
    largest,
    near,
    unknown,
    verdict,
)
from twolayer.gallery.shared.measuring import (
    growth,
    measured,
    on_sphere,
    phase_retrieval,
    predicted,
    slope,
)
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.errors import positive_integer

# runs times dimension: cheap dimensions get more runs than the least number
WORK = 4_000_000
MOST = 512
LINES = {"annealed": "--", "quenched": "-.", "corrected": "-"}
GRID = 61  # dimensions at which formulas are drawn
FAR = 0.3  # of a time: deviations at single dimensions that must be seen
RESOLVED = 15.0  # the corrected formula is judged where T d is so many times 1 + s


@figure(
    "escape-dimension",
    "escape time against d, from 10² to 10⁶, with the log d law",
    quick={"dims": (100, 300, 1000, 3000), "most": 64},
    fixed={
        "target": "the three times are closed formulas of phase retrieval, z1**2",
        "activation": "the three times are closed formulas of phase retrieval, squares",
    },
)
def escape_dimension(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (
        100,
        300,
        1000,
        3000,
        10_000,
        30_000,
        100_000,
        300_000,
        1_000_000,
    ),
    seeds: int = 32,
    most: int = MOST,
    lr: float = 1 / 12,
    noise: float = 0.0,
    threshold: float = 0.1,
    geometry: str = "projected",
) -> Finding:
    """First passages of the chain at every d against annealed, quenched and corrected
    times (p = 1).
    """
    positive_integer("seeds", seeds, 2)
    problem, algorithm = phase_retrieval(noise=noise), on_sphere(lr, geometry)
    c, s = growth(problem, lr)
    rows = []
    for dim in sorted(dims):
        count = min(most, max(seeds, WORK // dim))
        theory, end, allowance = predicted(problem, algorithm, dim, threshold)
        starts = tl.Overlaps.random(problem, dim, seed, size=count)
        passage = measured(
            problem, algorithm, tl.Chain(dim), starts, threshold, end, seed
        )
        lost = (passage.censored + passage.diverged) / count
        mean, error, steps = passage.mean, passage.standard_error, passage.mean_steps
        rows.append(
            (count, mean, error, steps, lost, known(theory.corrected), allowance)
        )
    names = ("seeds", "time", "error", "steps", "lost", "predicted", "allowance")
    columns = dict(zip(names, np.array(rows).T, strict=True))
    data = xr.Dataset(
        {k: ("dim", v) for k, v in columns.items()}, {"dim": sorted(dims)}
    )
    grid = np.unique(np.geomspace(min(dims), max(dims), GRID).round().astype(int))
    theories = [tl.escape_time(problem, algorithm, int(dim), threshold) for dim in grid]
    for name in LINES:
        data[name] = "grid", [known(getattr(theory, name)) for theory in theories]
    data = data.assign_coords(grid=grid)
    data["rate"] = c
    return Finding(data, _verdict(data, c, s, threshold), task_of(problem, algorithm))


def _verdict(data: xr.Dataset, c: float, s: float, threshold: float) -> Verdict:
    claim = "the escape takes log d/(2c), less by what the noise saves"
    judged = threshold * data.dim.values >= RESOLVED * (1 + s)
    chosen = data.isel(dim=np.flatnonzero(judged))
    if chosen.sizes["dim"] < 2:
        return verdict(
            claim,
            [
                unknown(
                    f"T d is at least {RESOLVED:g} (1 + s) at fewer than two dimensions"
                )
            ],
        )
    time, error, corrected = (
        chosen[name].values for name in ("time", "error", "predicted")
    )
    allowance, weight = chosen.allowance.values, error**-2.0
    steepness, spread = slope(np.log(chosen.dim), time, error)
    law, saved = 1 / (2 * c), np.log1p(s) / (2 * c)
    mean, room = (
        float(np.average(v, weights=weight)) for v in (time - corrected, allowance)
    )
    first = chosen.dim.values[0]
    checks = [
        largest(
            f"time − corrected time at each d ≥ {first}",
            time - corrected,
            error,
            allowance=allowance,
            resolution=FAR * corrected,
            freedom=float(chosen.seeds.min()) - 1,
        ),
        near(
            "mean of these",
            mean,
            0.0,
            float(weight.sum() ** -0.5),
            allowance=room,
            resolution=saved,
        ),
        near(
            "slope of the time against log d",
            steepness,
            law,
            spread,
            resolution=0.2 * law,
        ),
        holds(
            data.lost.max() == 0,
            f"{float(data.lost.max()):.0%} of the runs did not escape, none expected",
        ),
    ]
    return verdict(
        claim, checks, f"Resolution of the mean: the {saved:.3f} that the noise saves"
    )


def draw(data: xr.Dataset) -> Figure:
    """Times on the left, steps on the right."""
    from twolayer.plot.style import COLOURS, GREY

    chosen = told(data)
    figure, (left, right) = sheet(2)
    for name, style in LINES.items():
        left.plot(data.grid, data[name], style, color=COLOURS[name], label=name)
        right.plot(
            data.grid,
            data[name] * data.grid / chosen.lr,
            style,
            color=COLOURS[name],
            label=name,
        )
    span = data.grid.values[[0, -1]].astype(float)
    law = data.corrected.values[-1] + np.log(span / span[-1]) / (2 * float(data.rate))
    left.plot(span, law, ":", color=GREY, lw=1.1, label=r"$\log d\,/(2c)$ + const.")
    low, high = int(data.seeds.min()), int(data.seeds.max())
    label = f"chain, {low} runs" if low == high else f"chain, {low} to {high} runs"
    points(left, data.dim, data.time, data.error, COLOURS["chain"], label)
    points(
        right,
        data.dim,
        data.steps,
        data.error * data.dim / chosen.lr,
        COLOURS["chain"],
        label,
    )
    left.set(
        xscale="log",
        xlabel="dimension $d$",
        ylabel=r"escape time $t_{\mathrm{ext}}$",
        title="time",
    )
    right.set(
        xscale="log",
        yscale="log",
        xlabel="dimension $d$",
        ylabel=r"steps $n = t\,p\,d/\gamma$",
        title="steps of SGD",
    )
    left.legend(loc="upper left")
    right.legend(loc="upper left")
    headline(
        figure,
        data,
        rf"Time until the risk has fallen by $T = {chosen.threshold:g}$ of its start"
        r" (bars: 2 s.e.)",
    )
    return figure
