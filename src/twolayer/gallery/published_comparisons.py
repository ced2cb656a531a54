"""The published comparisons of SGD with the ODE and with mean fields, at their own sizes.

1. erf, k = 4, p = 8, γ = 0.05, d = 10, several noises          4. mean field: x², k = 2, d = 5, γ = 1
2. erf, k = 2, p = 10: cosines of students with teachers         5. high-dimensional mean field: k = 5, d = 1000, γ = 10
3. erf, k = 5, p = 10, Δ = 1e-3: one start in several dimensions

Claimed: SGD is within O(√(γ/(pd))) of the ODE, and O(1/√p) more of a mean field. What is drawn in panels 2 and 3
shows why the ODE is called dimensionless: d enters through the start and √(γ/(pd)) only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.gallery.shared.measuring import canvas, colours
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Plate, Verdict, figure
from twolayer.gallery.shared.wide import committee, online, standard_error

SAVE = 60


@figure(
    "published-comparisons",
    "SGD against the ODE and mean fields at the sizes of the paper",
    quick={"panels": (1, 2), "noises": (0.0,), "seeds": 4, "time": 4.0},
    group="mean-field",
)
def published_comparisons(
    *,
    seed: int = 0,
    panels: tuple[int, ...] = (1, 2, 3, 4, 5),
    noises: tuple[float, ...] = (0.0, 0.01, 0.1),
    dims: tuple[int, ...] = (10, 20, 50),
    cosine_dim: int = 100,
    wide_square: int = 100,
    wide_erf: int = 50,
    seeds: int = 8,
    time: float = 60.0,
) -> Plate:
    """Each panel has its own clock; ``time`` is that of the panels with the erf ODE, others take a fraction."""
    lines: list[xr.Dataset] = []
    ways = {
        1: lambda: [_line(1, committee("erf", 4, 8, x), 0.05, 10, seeds, time, seed, f"Δ = {x:g}") for x in noises],
        2: lambda: [_line(2, committee("erf", 2, 10), 0.5, cosine_dim, seeds, time, seed, f"d = {cosine_dim}")],
        3: lambda: [
            _line(3, committee("erf", 5, 10, 1e-3), 0.5, x, seeds, time, seed, f"d = {x}", dims[0]) for x in dims
        ],
        4: lambda: [
            _line(4, committee("square", 2, wide_square), 1.0, 5, seeds, 2.0, seed, f"p = {wide_square}", field=5)
        ],
        5: lambda: [
            _line(5, committee("erf", 5, wide_erf), 10.0, 1000, seeds, time / 3, seed, f"p = {wide_erf}", field=np.inf)
        ],
    }
    for number in panels:
        if number not in ways:
            raise tl.InputError(f"Argument `panels` must be numbers from 1 to 5, but got {number}.")
        lines += ways[number]()
    data = xr.concat([line.drop_vars("cosine", errors="ignore") for line in lines], "line")
    return Plate(_draw(lines, panels), data, _verdict(data))


def _line(
    panel: int, problem: tl.Problem, gamma: float, dim: int, seeds: int, time: float, seed: int, label: str,
    start_dim: int | None = None, field: float | None = None,
) -> xr.Dataset:  # fmt: skip
    """One curve: SGD, and the theory of its panel, from the same random start."""

    def compute() -> dict[str, Any]:
        drawn = tl.Overlaps.random(problem, start_dim or dim, seed)
        start = tl.Overlaps(drawn.Q, drawn.M, problem.P, drawn.a, dim)
        runs = tl.solve(problem, online(gamma), tl.Chain(dim), start, time=time, save=SAVE, seeds=seeds, seed=seed)
        method = tl.ODE() if field is None else tl.MeanField(field)
        theory = tl.solve(problem, online(gamma), method, start, time=runs.time.values)
        found = {"time": runs.time.values, "sgd": runs.excess_risk.values, "theory": theory.excess_risk.values[0]}
        if panel == 2:
            both = [
                x.M.values[0] / np.sqrt(np.diagonal(x.Q.values[0], axis1=1, axis2=2))[..., None] for x in (runs, theory)
            ]
            found["cosine"] = np.stack(both)
        return found

    kept = part(f"{panel} {label}", compute)
    scale = np.sqrt(gamma / (problem.p * dim)) + (0 if field is None else problem.p**-0.5)
    size = float(np.abs(kept.sgd.mean(kept.sgd.dims[0]) - kept.theory.values).max() / kept.theory.values[0])
    out = xr.Dataset(
        {
            "time": ("save", kept.time.values),
            "sgd": (("seed", "save"), kept.sgd.values),
            "theory": ("save", kept.theory.values),
            "deviation": size,
            "claimed": float(scale),
            "panel": panel,
            "label": label,
        }
    )
    if "cosine" in kept:
        out["cosine"] = (("lens", "save", "neuron", "direction"), kept.cosine.values)
    return out


def _verdict(data: xr.Dataset) -> Verdict:
    good = bool((data.deviation <= data.claimed).all())
    parts = [
        f"({int(x.panel)}) {x.label.item()}: {float(x.deviation):.3f} (claimed order {float(x.claimed):.3f})"
        for x in (data.isel(line=i) for i in range(data.sizes["line"]))
    ]
    return Verdict(
        good, f"largest deviation of the mean risk of SGD from theory, relative to the start: {'; '.join(parts)}"
    )


TITLES = {
    1: "erf, $k = 4$, $p = 8$, $\\gamma = 0.05$, $d = 10$",
    2: "cosines, $k = 2$, $p = 10$",
    3: "$k = 5$, $p = 10$, $\\Delta = 10^{-3}$, one start",
    4: "mean field, $x^2$, $k = 2$, $d = 5$, $\\gamma = 1$",
    5: "mean field $d \\to \\infty$, $k = 5$, $d = 1000$, $\\gamma = 10$",
}


def _draw(lines: list[xr.Dataset], panels: tuple[int, ...]) -> Any:
    columns = min(3, len(panels))
    shown, axes = canvas(columns, rows=-(-len(panels) // columns), width=4.0, height=3.3)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    for ax, number in zip(axes, panels, strict=False):
        own = [line for line in lines if int(line.panel) == number]
        ax.set_title(TITLES[number], fontsize=9)
        ax.set_xlabel("time $t$")
        if number == 2:
            for r, colour in enumerate(("#1f77b4", "#d95f02")):
                first, *_ = ax.plot(own[0].time, own[0].cosine.values[0, :, :, r], color=colour, lw=1, alpha=0.6)
                first.set_label(f"SGD, teacher {r + 1}")
                ax.plot(own[0].time, own[0].cosine.values[1, :, :, r], color=colours()["ode"], lw=0.9, ls="--")
            ax.set_ylabel("$M_{jr}/\\sqrt{Q_{jj}}$ (dashed: ODE)")
            ax.legend(fontsize=7.5)
            continue
        for line, colour in zip(own, ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a"), strict=False):
            mean, error = line.sgd.mean("seed"), standard_error(line.sgd, "seed")
            bars = np.minimum(2 * error, 0.9 * mean)  # a bar beyond zero has no end on a logarithmic axis
            look: Any = {"fmt": "o", "color": colour, "ms": 3, "elinewidth": 0.8}
            ax.errorbar(line.time, mean, [bars, 2 * error], label=f"SGD, {line.label.item()}", **look)
            ax.plot(line.time, line.theory, color=colour if number == 1 else "#1a1a1a", lw=1.3)
        ax.set(yscale="log", ylabel="excess risk (lines: theory)")
        ax.legend(fontsize=7.5)
    return shown
