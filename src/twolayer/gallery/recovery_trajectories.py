"""Overlaps along runs of online SGD on the sphere for information exponents 1, 2 and 3:
a long search, a short descent.

The descent is that of the limiting equation, ṁ = −φ'(m)(1 − m²) − ½ δ V(m) m, from η to
1 − η. Its spread over runs, a few percent, is small against that of the search, which
is decided by the random start.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, sheet, told
from twolayer.gallery.shared.judging import Verdict, near, unknown, verdict
from twolayer.gallery.shared.measuring import crossing
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.recovering import (
    LEVELS,
    asked,
    flow_samples,
    require_exponents,
    task,
)
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.statistics import median, standard_error

POINTS = 400
CURVE = np.round(
    np.linspace(0.05, 0.95, 91), 2
)  # overlaps at which the limiting equation is drawn
PATIENCE = 3.0
RESOLUTION = 0.2  # of the descent
ALLOWANCE = 0.06  # of the descent, relative: fluctuations at finite N shift it


@figure(
    "recovery-trajectories",
    "overlap along runs for information exponents 1, 2 and 3, with search and descent"
    " shaded",
    quick={"dim": 100, "seeds": 32},
    fixed={
        "target": "chosen by `exponents`: h_k is the task of information exponent k",
        "activation": (
            "chosen by `exponents`: h_k learns a target h_k, and has no other exponent"
        ),
    },
    group="recovery",
    papers=("benarous2021",),
)
def recovery_trajectories(
    *,
    seed: int = 0,
    exponents: tuple[int, ...] = (1, 2, 3),
    dim: int = 400,
    seeds: int = 32,
    shown: int = 8,
    geometry: str = "spherical",
) -> Finding:
    """Runs from random starts on the half sphere, shown to a little beyond the median
    of their strong recovery.
    """
    require_exponents(exponents, geometry)
    found = {
        k: part(f"k={k}", partial(_runs, k, geometry, dim, seeds, seed))
        for k in exponents
    }
    data = xr.concat(list(found.values()), "k").assign_coords(k=list(exponents))
    return Finding(data, _verdict(data), asked(geometry))


def _runs(k: int, geometry: str, dim: int, seeds: int, seed: int) -> xr.Dataset:
    problem, algorithm = task(k, geometry)
    starts = tl.Overlaps.random(problem, dim, seed, seeds, "hemisphere")
    steps = int(PATIENCE * flow_samples(k, dim, dim**-0.5, LEVELS[1]))
    run = tl.solve(
        problem,
        algorithm,
        tl.Chain(dim),
        starts,
        steps=steps,
        save=min(POINTS, steps),
        seed=seed,
    )
    m = run.M.values[:, :, 0, 0]
    m = np.abs(m) if k % 2 == 0 else m
    passed = np.array(
        [[crossing(run.step.values, row, level) for row in m] for level in LEVELS]
    )
    points = np.linspace(0, steps, POINTS + 1)
    return xr.Dataset(
        {
            "overlap": (
                ("seed", "point"),
                np.array([np.interp(points, run.step.values, row) for row in m]),
            ),
            "step": ("point", points),
            "passed": (("level", "seed"), passed),
            "predicted": ((), _flow(k, dim, np.array(LEVELS[1:]))[0]),
            "flow": ("level_m", _flow(k, dim, CURVE)),
        },
        {"level_m": CURVE},
    )


def _flow(k: int, dim: int, levels: np.ndarray) -> np.ndarray:
    """Steps of the limiting equation from η to each overlap; negative before it, NaN
    beyond what it reaches.
    """
    problem, algorithm = task(k)
    lr = algorithm.lr(dim)
    loss = tl.single_index.population_loss(problem, algorithm.loss)

    def steps(m: float) -> float:
        try:
            if m >= LEVELS[0]:
                return (
                    float(loss.time(LEVELS[0], m, step=lr * dim)) / lr
                    if m > LEVELS[0]
                    else 0.0
                )
            return -float(loss.time(m, LEVELS[0], step=lr * dim)) / lr
        except tl.InputError:  # beyond its fixed point
            return float("nan")

    return np.array([steps(float(m)) for m in levels])


def draw(data: xr.Dataset) -> Figure:
    """A panel for each exponent: runs, search and descent shaded, and the limiting
    equation through the first level.
    """
    from twolayer.plot.style import COLOURS, GREY

    chosen = told(data)
    dim = chosen.dim
    drawing, axes = sheet(len(data.k), width=3.6, height=3.9)
    for ax, k in zip(axes, data.k.values, strict=True):
        own = data.sel(k=k)
        weak, strong = (median(own.passed.values[i]).value / dim for i in range(2))
        last = float(own.step[-1]) / dim
        end = min(1.35 * strong, last) if np.isfinite(strong) else last
        ax.axvspan(
            0, min(weak, end), color=COLOURS["sde"], alpha=0.15, lw=0, label="search"
        )
        ax.axvspan(
            min(weak, end),
            min(strong, end),
            color=COLOURS["chain"],
            alpha=0.18,
            lw=0,
            label="descent",
        )
        rows = own.overlap.values[: chosen.shown]
        names = ["runs"] + [None] * (len(rows) - 1)
        ax.plot(
            own.step / dim,
            rows.T,
            color=COLOURS["chain"],
            lw=0.8,
            alpha=0.8,
            label=names,
        )
        if np.isfinite(weak):
            at = weak + own.flow.values / dim
            seen = at > 0
            ax.plot(
                at[seen],
                CURVE[seen],
                color=COLOURS["theory"],
                lw=2,
                zorder=6,
                label="limiting equation",
            )
        for level in LEVELS:
            ax.axhline(level, color=GREY, lw=0.7, ls=":")
        ax.set(
            xlim=(0, end),
            ylim=(-0.15, 1.02),
            xlabel="samples/N",
            title=f"information exponent {k}",
        )
    axes[0].set_ylabel("overlap m (|m| for even k)")
    drawing.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4
    )
    headline(
        drawing,
        data,
        f"From random starts at N = {dim}; the equation starts at the median of weak"
        " recovery",
    )
    return drawing


def _verdict(data: xr.Dataset) -> Verdict:
    checks, notes = [], []
    for k in data.k.values:
        own = data.sel(k=k)
        weak, strong = own.passed.values
        done = np.isfinite(strong)
        notes.append(
            f"k = {k}: {done.sum()} of {len(weak)} runs recovered, search"
            f" {median(weak).value:.3g}"
        )
        if done.sum() < 4:
            checks.append(unknown(f"k = {k}: only {done.sum()} runs recovered"))
            continue
        descent, expected = strong[done] - weak[done], float(own.predicted)
        checks.append(
            near(
                f"k = {k}: samples of the descent",
                descent.mean(),
                expected,
                float(standard_error(descent)),
                allowance=ALLOWANCE * expected,
                resolution=RESOLUTION * expected,
                freedom=done.sum() - 1,
                count=data.sizes["k"],
                digits=0,
            )
        )
    return verdict(
        "the descent takes as long as by the limiting equation",
        checks,
        "; ".join(notes),
    )
