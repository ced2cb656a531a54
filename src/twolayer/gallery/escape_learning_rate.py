"""Steps of escape against the learning rate: fewest at γ_opt, none beyond the
admissible range.

n = t p d/γ,   t ∝ 1/(2c),   c = 4 (1 − γ C_1)        γ_opt = 1/(2 C_1) = 1/(12 + Δ),
admissible 0 < γ < 2 γ_opt

The corrected time also knows the noise, s = γ V_1/(2c), which shortens the escape more
and more towards the end of the range: its fewest steps lie a little beyond γ_opt.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import (
    headline,
    known,
    plain_ticks,
    points,
    power,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, holds, largest, verdict
from twolayer.gallery.shared.measuring import (
    measured,
    on_sphere,
    phase_retrieval,
    predicted,
)
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.errors import positive_integer

FAR = 0.3  # of a time: deviations that must be seen
LINES = {"annealed": "--", "quenched": "-.", "corrected": "-"}


@figure(
    "escape-learning-rate",
    "steps of escape against the learning rate, its optimum and its admissible range",
    quick={"fractions": (0.15, 0.5, 0.75), "dim": 1000, "seeds": 48},
    fixed={
        "target": (
            "γ_opt = 1/(12 + Δ) and the times are formulas of phase retrieval, z1**2"
        ),
        "activation": (
            "γ_opt = 1/(12 + Δ) and the times are formulas of phase retrieval, squares"
        ),
    },
)
def escape_learning_rate(
    *,
    seed: int = 0,
    fractions: tuple[float, ...] = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85),
    dim: int = 3000,
    seeds: int = 128,
    noise: float = 0.0,
    threshold: float = 0.1,
    geometry: str = "projected",
) -> Finding:
    """First passages of the chain at fractions of the largest admissible γ (p = 1)."""
    positive_integer("seeds", seeds, 2)
    problem = phase_retrieval(noise=noise)
    highest = tl.escape.admissible_lr(problem)[1].coefficient
    starts = tl.Overlaps.random(problem, dim, seed, size=seeds)
    rows = []
    for gamma in highest * np.array(sorted(fractions)):
        algorithm = on_sphere(gamma, geometry)
        theory, end, allowance = predicted(problem, algorithm, dim, threshold)
        passage = measured(
            problem, algorithm, tl.Chain(dim), starts, threshold, end, seed
        )
        lost = passage.censored + passage.diverged
        rows.append(
            (
                gamma,
                passage.mean,
                passage.standard_error,
                known(theory.corrected),
                allowance,
                lost,
            )
        )
    table = np.array(rows).T
    columns = dict(
        zip(("time", "error", "predicted", "allowance", "lost"), table[1:], strict=True)
    )
    grid = highest * np.linspace(0.04, 0.96, 93)
    theories = [
        tl.escape_time(problem, on_sphere(gamma, geometry), dim, threshold).steps
        for gamma in grid
    ]
    lines = {
        name: ("grid", [known(getattr(theory, name)) for theory in theories])
        for name in LINES
    }
    data = xr.Dataset(
        {**{k: ("lr", v) for k, v in columns.items()}, **lines},
        {"lr": table[0], "grid": grid},
    )
    data["steps"] = data.time * dim / data.lr
    data["optimum"], data["highest"] = tl.optimal_lr(problem).coefficient, highest
    return Finding(data, _verdict(data, seeds), task_of(problem))


def _verdict(data: xr.Dataset, seeds: int) -> Verdict:
    gap = data.time - data.predicted
    best, least = (
        float(x[np.nanargmin(y.values)])
        for x, y in ((data.lr, data.steps), (data.grid, data.corrected))
    )
    checks = [
        largest(
            f"time − corrected time at {data.sizes['lr']} rates, {FAR:.0%} of the time"
            " resolved",
            gap,
            data.error,
            allowance=data.allowance,
            resolution=FAR * data.predicted,
            freedom=seeds - 1,
        ),
        holds(
            data.lost.max() == 0,
            f"{int(data.lost.max())} runs at one rate did not escape, none expected",
        ),
    ]
    note = (
        f"Measured − corrected is {float((gap / data.error).mean()):+.2f} standard"
        f" errors on average; fewest steps measured at γ = {best:.4f}, γ_opt ="
        f" {float(data.optimum):.4f}, with the correction {least:.4f}"
    )
    return verdict(
        "steps of escape follow the corrected formula over the admissible range",
        checks,
        note,
    )


def draw(data: xr.Dataset) -> Figure:
    """Steps against γ, with the admissible range shaded."""
    from twolayer.plot.style import COLOURS, GREY

    chosen = told(data)
    figure, (ax,) = sheet(1, width=6.4, height=4.2)
    highest, dim = float(data.highest), chosen.dim
    ax.axvspan(0, highest, color=GREY, alpha=0.1, lw=0, label="admissible")
    ax.axvline(
        float(data.optimum),
        color=GREY,
        ls=":",
        lw=1.2,
        label=r"$\gamma_{\mathrm{opt}} = 1/(12 + \Delta)$",
    )
    for name, style in LINES.items():
        ax.plot(data.grid, data[name] / dim, style, color=COLOURS[name], label=name)
    label = f"chain, {chosen.seeds} runs, 2 s.e."
    points(ax, data.lr, data.steps / dim, data.error / data.lr, COLOURS["chain"], label)
    low, high = (
        float(data.annealed.min()) / dim,
        float(max(data.steps.max(), data.quenched.min() * 4)) / dim,
    )
    ax.set(xlim=(0, 1.08 * highest), ylim=(0.75 * low, 1.3 * high), yscale="log")
    ax.set(
        xlabel=r"learning rate $\gamma = d\cdot\mathrm{lr}$",
        ylabel=r"steps per dimension $n_{\mathrm{ext}}/d$",
    )
    plain_ticks(ax.yaxis)
    ax.legend(loc="upper center", ncols=2)
    headline(
        figure,
        data,
        rf"Steps of escape, {chosen.geometry} SGD, $d = {power(dim)}$, $T ="
        rf" {chosen.threshold:g}$",
    )
    return figure
