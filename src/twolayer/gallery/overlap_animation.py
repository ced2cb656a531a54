"""Overlaps in motion: the neurons of a committee in the plane of two teachers, and the measure of infinitely many.

Left: student–teacher overlaps (k = 2) of SGD and of its ODE from one start. Right: the histogram of the overlap of
particles (k = 1) under the mean field, with the neurons of a finite network, followed by its own ODE, on top.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.judging import Verdict, holds, same_law, unknown, verdict
from twolayer.gallery.shared.measuring import colours
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Plate, figure
from twolayer.gallery.shared.wide import FLOW, committee, online, sup_overlap

PANELS = 4
TIMES = 3.0  # the claimed order that the largest deviation may be
SPREAD = 0.3  # of the first overlaps: large enough for the plateau to be short
EDGES = np.linspace(-2.2, 2.2, 67)


@figure(
    "overlap-animation",
    "student–teacher overlaps (k = 2) and the distribution of overlaps (k = 1), moving",
    quick={"dim": 200, "width": 4, "neurons": 64, "particles": 5000, "frames": 5},
    group="mean-field",
)
def overlap_animation(
    *,
    seed: int = 0,
    width: int = 10,
    dim: int = 500,
    lr: float = 4.0,
    neurons: int = 200,
    particles: int = 100_000,
    frames: int = 48,
    scatter_time: float = 200.0,
    histogram_time: float = 1.5,
) -> Plate:
    """Four panels of each are drawn; the animation shows all frames."""
    plane = part("plane", lambda: _plane(width, dim, lr, frames, scatter_time, seed))
    line = part("line", lambda: _line(neurons, dim, particles, frames, histogram_time, seed))
    data = xr.Dataset(
        {
            "sgd": (("frame", "neuron", "direction"), plane.sgd.values),
            "ode": (("frame", "neuron", "direction"), plane.ode.values),
            "density": (("frame", "bin"), line.density.values),
            "network": (("frame", "student"), line.network.values),
            "deviation": float(plane.deviation),
            "cloud": ("particle", line.cloud.values),
        },
        {
            "scatter_time": ("frame", plane.time.values),
            "histogram_time": ("frame", line.time.values),
            "bin": (EDGES[1:] + EDGES[:-1]) / 2,
        },
    )
    moving, draw = _moving(data)
    animation = FuncAnimation(moving, draw, frames=data.sizes["frame"], interval=80)
    return Plate(_still(data), data, _verdict(data, float(np.sqrt(lr / (width * dim)))), animation)


def _verdict(data: xr.Dataset, scale: float) -> Verdict:
    largest = float(data.deviation)
    size = float(np.abs(data.ode.isel(frame=-1)).max())
    text = f"largest deviation of an overlap {largest:.4f}, at most {TIMES:g} √(γ/(pd)) = {TIMES * scale:.4f} claimed"
    first = (
        holds(largest <= TIMES * scale, text)
        if TIMES * scale <= 0.2 * size
        else unknown(f"{text}, a fifth of {size:.2g}")
    )
    law = same_law("overlaps of a finite network and of the mean field", data.network[-1].values, data.cloud.values)
    return verdict("SGD follows its ODE, and a finite network the mean field", [first, law])


def _plane(p: int, dim: int, lr: float, frames: int, time: float, seed: int) -> dict[str, Any]:
    problem = committee("erf", 2, p)
    M = SPREAD * np.random.default_rng(seed).normal(size=(p, 2))
    start = tl.Overlaps(0.25 * np.eye(p) + M @ M.T, M, dim=dim)
    runs = tl.solve(problem, online(lr), tl.Chain(dim), start, time=time, save=frames - 1, seed=seed)
    theory = tl.solve(problem, online(lr), tl.ODE(), start, time=runs.time.values)
    worst = sup_overlap(runs, theory)[0]
    return {"sgd": runs.M.values[0], "ode": theory.M.values[0], "time": runs.time.values, "deviation": worst}


def _line(p: int, dim: int, particles: int, frames: int, time: float, seed: int) -> dict[str, Any]:
    problem = committee("square", 1, p)
    cloud = tl.mean_field.Particles.sample(problem, particles, dim=dim, seed=seed)
    mean = tl.solve(problem, tl.SGD(lr=FLOW), tl.MeanField(dim), cloud, time=time, save=frames - 1)
    start = tl.Overlaps.random(problem, dim, seed)
    network = tl.solve(problem, tl.SGD(lr=FLOW), tl.ODE(), start, time=time, save=frames - 1)
    density = tl.mean_field.measure_histogram(mean, "m1", len(EDGES) - 1, (EDGES[0], EDGES[-1])).values[0]
    last, shown = mean.M.values[0, -1, :, 0], network.M.values[0, :, :, 0]
    return {"density": density, "network": shown, "time": mean.time.values, "cloud": last}


def _frame(left: Any, right: Any, data: xr.Dataset, i: int) -> None:
    """Both panels at one frame."""
    palette = colours()
    left.clear()
    here = data.isel(frame=i)
    left.plot(*data.ode[: i + 1].transpose("direction", "frame", "neuron").values, color="#bbbbbb", lw=0.7)
    left.plot(*here.sgd.values.T, "o", color=palette["chain"], ms=5, label="SGD")
    left.plot(*here.ode.values.T, "x", color=palette["ode"], ms=6, label="ODE")
    left.plot([1, 0], [0, 1], "*", color="#d95f02", ms=11, label="teachers")
    ends = (min(-0.3, float(data.ode.min())) - 0.15, max(1.0, float(data.ode.max())) + 0.2)
    left.set(xlim=ends, ylim=ends, xlabel="$M_{j1}$", ylabel="$M_{j2}$")
    left.set_title(f"$t = {float(here.scatter_time):.3g}$")
    right.clear()
    right.stairs(here.density.values, EDGES, fill=True, color="#1b9e77", alpha=0.6, label="mean field")
    coarse = EDGES[::3]
    counts, _ = np.histogram(here.network.values, coarse)
    right.stairs(
        counts / (here.network.size * np.diff(coarse)), coarse, color=palette["ode"], lw=1, label="network (ODE)"
    )
    right.set(xlim=(EDGES[0], EDGES[-1]), xlabel="overlap $m$", ylabel="density")
    right.set_title(f"$t = {float(here.histogram_time):.3g}$")


def _still(data: xr.Dataset) -> Figure:
    frames = np.linspace(0, data.sizes["frame"] - 1, PANELS).round().astype(int)
    shown = Figure(figsize=(2.9 * PANELS, 5.6))
    axes = shown.subplots(2, PANELS)
    for column, i in enumerate(frames):
        _frame(axes[0, column], axes[1, column], data, int(i))
    _legend(shown, axes[0, 0], axes[1, 0])
    shown.suptitle("Above: overlaps with two teachers. Below: distribution of the overlap with one.", fontsize=10)
    return shown


def _legend(shown: Figure, left: Any, right: Any) -> None:
    """One key for both panels, below them."""
    (marks, names), (more, others) = (ax.get_legend_handles_labels() for ax in (left, right))
    shown.legend([*marks, *more], [*names, *others], loc="outside lower center", ncols=5, fontsize=7.5)


def _moving(data: xr.Dataset) -> tuple[Figure, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    shown = Figure(figsize=(8.4, 4.0))
    FigureCanvasAgg(shown)
    left, right = shown.subplots(1, 2)
    _frame(left, right, data, 0)
    _legend(shown, left, right)

    def draw(i: int) -> list[Any]:
        _frame(left, right, data, i)
        return [left, right]

    return shown, draw
