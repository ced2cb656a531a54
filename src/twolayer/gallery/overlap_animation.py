"""Cosines in motion: the neurons of a committee in the plane of two teachers, and the
measure of infinitely many.

    cosine_jr = M_jr / (Q_jj P_rr)^½ ∈ [−1, 1]

Left: cosines with two teachers (k = 2) of SGD and of its ODE from one start; a neuron
that has found its teacher sits at (1, 0) or (0, 1). Right: the histogram of the cosine
of particles with one teacher under the mean field, with the neurons of a finite
network, followed by its own ODE, on top; as the risk falls (insets), mass piles up at
±1.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, task_of
from twolayer.gallery.shared.judging import Verdict, holds, same_law, unknown, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.wide import (
    FLOW,
    committee,
    online,
    small_weights,
    sup_overlap,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

PANELS = 4
TIMES = 3.0  # the claimed order that the largest deviation may be
SPREAD = 0.3  # of the first overlaps: large enough for the plateau to be short
EDGES = np.linspace(-1.0, 1.0, 61)
COARSE = EDGES[::3]
ROOM = 40.0  # above the highest density: for the inset
AT_ENDS = 0.9  # |cosines| beyond this are counted as found
LEAST = 3 * (
    1 - AT_ENDS
)  # part of the mass there that counts as piled up: thrice that of even cosines


@figure(
    "overlap-animation",
    "student–teacher cosines (k = 2) and the distribution of cosines (k = 1), moving",
    quick={"dim": 200, "width": 4, "neurons": 64, "particles": 5000, "frames": 12},
    fixed={
        "target": (
            "cosines are those with the neurons of teachers of the students' own kind"
        )
    },
    group="mean-field",
    moves=True,
)
def overlap_animation(
    *,
    seed: int = 0,
    width: int = 10,
    dim: int = 500,
    lr: float = 4.0,
    neurons: int = 200,
    particles: int = 100_000,
    frames: int = 60,
    scatter_time: float = 200.0,
    histogram_time: float = 3.0,
    activation: str = "erf",
    field_activation: str = "square",
    geometry: str = "free",
) -> Finding:
    """Four panels of each are drawn, above of ``activation``, below of the other; the
    animation shows all frames.
    """
    above = committee(activation, 2, width), online(lr, geometry)
    below = committee(field_activation, 1, neurons), tl.SGD(lr=FLOW, geometry=geometry)
    plane = part("plane", partial(_plane, *above, dim, frames, scatter_time, seed))
    line = part(
        "line", partial(_line, *below, dim, particles, frames, histogram_time, seed)
    )
    data = xr.merge([plane, line])
    first, second = (task_of(*task).replace("\n", "   ") for task in (above, below))
    piling = (field_activation, geometry) == ("square", "free")
    found = _verdict(data, float(np.sqrt(lr / (width * dim))), piling)
    return Finding(data, found, f"above: {first}\nbelow: {second}")


def _verdict(data: xr.Dataset, scale: float, piling: bool) -> Verdict:
    """``piling`` is said of cosines of squares alone: how fast those of others gather
    is not known.
    """
    largest = float(data.deviation)
    size = 1.0  # overlaps with teachers of norm one
    text = (
        f"largest deviation of an overlap {largest:.4f}, at most {TIMES:g} √(γ/(pd)) ="
        f" {TIMES * scale:.4f} claimed"
    )
    first = (
        holds(largest <= TIMES * scale, text)
        if TIMES * scale <= 0.2 * size
        else unknown(f"{text}, a fifth of {size:.2g}")
    )
    law = same_law(
        "cosines of a finite network and of the mean field",
        data.network.values,
        data.cloud.values,
    )
    start, end = (float(data.ends[i]) for i in (0, -1))
    checks, note = [first, law], f"At the start {start:.0%} of the mass lies there"
    if piling:
        told = (
            f"{end:.0%} of the mass lies beyond ±{AT_ENDS:g} at the end, at least"
            f" {LEAST:.0%} expected"
        )
        checks.append(holds(end >= LEAST > start, told))
        return verdict(
            "SGD follows its ODE, a finite network the mean field, and cosines pile up"
            " at ±1",
            checks,
            note,
        )
    note = (
        f"Beyond ±{AT_ENDS:g} lies {start:.0%} of the mass at the start, and {end:.0%}"
        " at the end"
    )
    return verdict(
        "SGD follows its ODE, and a finite network the mean field", checks, note
    )


def _cosines(result: xr.Dataset) -> np.ndarray:
    """M_jr/(Q_jj P_rr)^½ with teachers of norm one: (seed, time, neuron, direction)."""
    if "q" in result:
        norm = result.q.values + (result.M.values**2).sum(-1)
    else:
        norm = np.diagonal(result.Q.values, axis1=2, axis2=3)
    return np.asarray(result.M.values / np.sqrt(norm)[..., None])


def _plane(
    problem: tl.Problem,
    algorithm: tl.SGD,
    dim: int,
    frames: int,
    time: float,
    seed: int,
) -> xr.Dataset:
    M = SPREAD * np.random.default_rng(seed).normal(size=(problem.p, 2))
    start = small_weights(M, dim, algorithm.geometry)
    runs = tl.solve(
        problem, algorithm, tl.Chain(dim), start, time=time, save=frames - 1, seed=seed
    )
    theory = tl.solve(problem, algorithm, tl.ODE(), start, time=runs.time.values)
    return xr.Dataset(
        {
            "sgd": (("frame", "neuron", "direction"), _cosines(runs)[0]),
            "ode": (("frame", "neuron", "direction"), _cosines(theory)[0]),
            "sgd_risk": ("frame", runs.excess_risk.values[0]),
            "ode_risk": ("frame", theory.excess_risk.values[0]),
            "deviation": sup_overlap(runs, theory)[0],
        },
        {"scatter_time": ("frame", runs.time.values)},
    )


def _line(
    problem: tl.Problem,
    algorithm: tl.SGD,
    dim: int,
    particles: int,
    frames: int,
    time: float,
    seed: int,
) -> xr.Dataset:
    cloud = tl.mean_field.Particles.sample(problem, particles, dim=dim, seed=seed)
    mean = tl.solve(
        problem, algorithm, tl.MeanField(dim), cloud, time=time, save=frames - 1
    )
    start = tl.Overlaps.random(problem, dim, seed)
    network = tl.solve(problem, algorithm, tl.ODE(), start, time=time, save=frames - 1)
    many, few = (_cosines(run)[0, :, :, 0] for run in (mean, network))
    return xr.Dataset(
        {
            "density": (
                ("frame", "bin"),
                [np.histogram(row, EDGES, density=True)[0] for row in many],
            ),
            "network_density": (
                ("frame", "coarse_bin"),
                [np.histogram(row, COARSE, density=True)[0] for row in few],
            ),
            "field_risk": ("frame", mean.excess_risk.values[0]),
            "network_risk": ("frame", network.excess_risk.values[0]),
            "network": ("student", few[-1]),
            "cloud": ("particle", many[-1]),
            "ends": ("frame", (np.abs(many) > AT_ENDS).mean(1)),
        },
        {"histogram_time": ("frame", mean.time.values)},
    )


def _frame(left: Axes, right: Axes, data: xr.Dataset, i: int) -> None:
    """Both panels at one frame, each with the risk up to then in an inset."""
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

    here = data.isel(frame=i)
    for ax in (left, right):
        for inset in list(ax.child_axes):
            inset.remove()
        ax.clear()
    left.plot(
        *data.ode[: i + 1].transpose("direction", "frame", "neuron").values,
        color=GREY,
        lw=0.6,
        alpha=0.6,
    )
    left.plot(*here.sgd.values.T, "o", color=COLOURS["chain"], ms=5, label="SGD")
    left.plot(*here.ode.values.T, "x", color=COLOURS["ode"], ms=6, label="ODE")
    left.plot(
        [1, 0],
        [0, 1],
        "*",
        color=COLOURS["sde"],
        ms=11,
        label="teachers",
        clip_on=False,
    )
    left.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal")
    left.set(xlabel=r"$M_{j1}/\sqrt{Q_{jj}}$", ylabel=r"$M_{j2}/\sqrt{Q_{jj}}$")
    left.set_title(f"$t = {float(here.scatter_time):.3g}$")
    right.stairs(
        here.density.values,
        EDGES,
        fill=True,
        color=DIRECTIONS[2],
        alpha=0.7,
        label="mean field",
    )
    right.stairs(
        here.network_density.values,
        COARSE,
        color=COLOURS["ode"],
        lw=1,
        label="network (ODE)",
    )
    top = ROOM * float(max(data.density.max(), data.network_density.max()))
    right.set(
        xlim=(-1, 1),
        ylim=(0.02, top),
        yscale="log",
        xlabel=r"cosine $m/\sqrt{Q}$",
        ylabel="density",
    )
    right.set_title(f"$t = {float(here.histogram_time):.3g}$")
    _inset(left, data, i, "scatter_time", "sgd_risk", "ode_risk", "chain")
    _inset(right, data, i, "histogram_time", "field_risk", "network_risk", "other")


def _inset(
    ax: Axes, data: xr.Dataset, i: int, clock: str, first: str, second: str, colour: str
) -> None:
    from twolayer.plot.style import COLOURS, positive

    inset = ax.inset_axes(
        (0.64, 0.06, 0.34, 0.26) if clock == "scatter_time" else (0.4, 0.7, 0.36, 0.22)
    )
    inset.plot(data[clock], positive(data[first]), color=COLOURS[colour], lw=1.2)
    inset.plot(data[clock], positive(data[second]), "--", color=COLOURS["ode"], lw=0.9)
    inset.plot(
        data[clock][i], positive(data[second])[i], "o", color=COLOURS["ode"], ms=3.5
    )
    inset.set(yscale="log", xticks=[])
    inset.tick_params(labelsize=6)
    inset.minorticks_off()
    inset.set_title("risk", fontsize=6.5, pad=1)


def draw(data: xr.Dataset) -> Figure:
    """Four frames of each."""
    from twolayer.plot.canvas import Drawing
    from twolayer.plot.style import panel_size

    frames = np.linspace(0, data.sizes["frame"] - 1, PANELS).round().astype(int)
    shown = Drawing(figsize=panel_size(PANELS, (3.0 * PANELS, 6.4)))
    axes = shown.subplots(2, PANELS)
    for column, i in enumerate(frames):
        _frame(axes[0, column], axes[1, column], data, int(i))
    _legend(shown, axes[0, 0], axes[1, 0])
    headline(shown, data)
    return shown


def _legend(shown: Figure, left: Axes, right: Axes) -> None:
    """One key for both panels, below them."""
    (marks, names), (more, others) = (
        ax.get_legend_handles_labels() for ax in (left, right)
    )
    shown.legend(
        [*marks, *more],
        [*names, *others],
        loc="outside lower center",
        ncols=5,
        fontsize=7.5,
    )


def animate(data: xr.Dataset) -> FuncAnimation:
    """All frames, one after the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    shown = Figure(figsize=(8.4, 4.4))
    FigureCanvasAgg(shown)
    left, right = shown.subplots(1, 2)
    _frame(left, right, data, 0)
    _legend(shown, left, right)

    def frame(i: int) -> list[Artist]:
        _frame(left, right, data, i)
        return [left, right]

    return FuncAnimation(shown, frame, frames=data.sizes["frame"], interval=80)
