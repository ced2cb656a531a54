"""Training the second layer does not change how the first layer escapes.

ȧ_j = E[𝓔 λ_j²] = (1 − ā) − 2 a_j/p + O(m²)   at a random start

The second layer moves by O(1/p) while the overlaps grow as e^{ct}: largest overlaps
with a fixed and a trained second layer leave together.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, holds, near, verdict
from twolayer.gallery.shared.measuring import (
    crossing,
    growth,
    on_sphere,
    phase_retrieval,
)
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.errors import positive_integer
from twolayer.numerics.statistics import standard_error

LAYERS = ("fixed", "trained")
LENSES = ("chain", "ode")
FAR, CLOSE = 0.3, 0.15  # of the time: shifts by noise and by training that must be seen
SHARE = 0.05  # of the time: what the linear law of growth leaves out


@figure(
    "second-layer",
    "growth of the largest overlap with the second layer fixed and trained",
    quick={"widths": (3, 6), "dim": 300, "seeds": 16, "time": 2.0},
    fixed={
        "target": (
            "the shift of the exit has the growth and the noise of phase retrieval,"
            " z1**2"
        ),
        "activation": (
            "the shift of the exit has the growth and the noise of phase retrieval,"
            " squares"
        ),
    },
)
def second_layer(
    *,
    seed: int = 0,
    widths: tuple[int, ...] = (20, 50),
    dim: int = 1000,
    rho: float = 0.05,
    noise: float = 0.0,
    seeds: int = 32,
    time: float = 1.6,
    level: float = 0.4,
    geometry: str = "projected",
) -> Finding:
    """max_j |m_j| of the chain and of the ODE from the same random starts; dated by
    when it reaches the level.
    """
    positive_integer("seeds", seeds, 2)
    points = np.linspace(0, time, 161)
    grown = []
    for p in widths:
        problem = phase_retrieval(p, noise)
        starts = tl.Overlaps.random(problem, dim, seed, size=seeds)
        for trained in (False, True):
            algorithm = on_sphere(rho * p, geometry, train_second_layer=trained)
            for lens in (tl.Chain(dim), tl.ODE()):
                result = tl.solve(
                    problem, algorithm, lens, starts, time=time, save=160, seed=seed
                )
                largest = np.abs(result.M.values[..., 0]).max(-1)
                grown.append(
                    [np.interp(points, result.time.values, row) for row in largest]
                )
    shape = (len(widths), len(LAYERS), len(LENSES), seeds, len(points))
    data = xr.Dataset(
        {
            "largest": (
                ("width", "layer", "lens", "seed", "time"),
                np.array(grown).reshape(shape),
            )
        },
        {
            "width": list(widths),
            "layer": list(LAYERS),
            "lens": list(LENSES),
            "time": points,
        },
    )
    data["crossing"] = (
        data.largest.dims[:-1],
        np.apply_along_axis(
            partial(crossing, points, level=level), -1, data.largest.values
        ),
    )
    data["predicted_shift"] = (
        "width",
        [_shift(phase_retrieval(p, noise), rho) for p in widths],
    )
    first = task_of(phase_retrieval(1, noise)).replace(
        "p = 1, a = 1", "width p, a = 1, fixed or trained"
    )
    return Finding(data, _verdict(data, level), first)


def _shift(problem: tl.Problem, rho: float) -> float:
    """Mean shift of the exit through noise, second layer fixed."""
    c, s = growth(problem, rho)
    return float(-np.log1p(s) / (2 * c))


def _verdict(data: xr.Dataset, level: float) -> Verdict:
    checks = [holds(np.isfinite(data.crossing).all(), f"all runs reach {level:g}")]
    runs, notes = data.sizes["seed"], []
    for p in data.width.values:
        here = data.sel(width=p)
        shift = here.crossing.sel(lens="chain", drop=True) - here.crossing.sel(
            lens="ode", drop=True
        )
        later = here.crossing.sel(layer="trained", drop=True) - here.crossing.sel(
            layer="fixed", drop=True
        )
        mean = here.crossing.mean("seed")
        size = float(mean.max())
        count = 2 * data.sizes["width"]
        for word in LAYERS:
            own = shift.sel(layer=word)
            checks.append(
                near(
                    f"p = {p}, {word}: exit of SGD − ODE",
                    float(own.mean()),
                    float(here.predicted_shift),
                    float(standard_error(own)),
                    allowance=SHARE * size,
                    resolution=FAR * size,
                    freedom=runs - 1,
                    count=count,
                )
            )
        gap = later.sel(lens="chain") - later.sel(lens="ode")
        checks.append(
            near(
                f"p = {p}: trained − fixed, SGD − ODE",
                float(gap.mean()),
                0.0,
                float(standard_error(gap)),
                allowance=SHARE * size / 2,
                resolution=CLOSE * size,
                freedom=runs - 1,
                count=data.sizes["width"],
            )
        )
        notes.append(
            f"p = {p}: max m_j reaches {level:g} at t ="
            f" {float(mean.sel(lens='chain', layer='fixed')):.3f}, with the second"
            f" layer trained {float(later.sel(lens='chain').mean()):+.3f} (ODE"
            f" {float(later.sel(lens='ode').mean()):+.3f})"
        )
    return verdict(
        "a trained second layer changes next to nothing in the escape",
        checks,
        "; ".join(notes),
    )


def draw(data: xr.Dataset) -> Figure:
    """A panel for each width: single runs, their geometric means, and those of
    the ODE.
    """
    from twolayer.plot.style import COLOURS, GREY

    chosen = told(data)
    looks = {
        "fixed": (COLOURS["chain"], "-", "o"),
        "trained": (COLOURS["annealed"], "--", "s"),
    }
    figure, panels = sheet(data.sizes["width"], width=4.8, height=3.9)
    for ax, p in zip(panels, data.width.values, strict=True):
        for word, (colour, style, mark) in looks.items():
            chain, ode = (
                data.largest.sel(width=p, layer=word, lens=lens).values
                for lens in LENSES
            )
            ax.plot(data.time, chain.T, color=colour, lw=0.5, alpha=0.35)
            every = slice(0 if word == "fixed" else 6, None, 12)
            mean = np.exp(np.log(chain).mean(0))
            ax.plot(
                data.time[every],
                mean[every],
                mark,
                color=colour,
                ms=5,
                label=f"chain, {word} $a$",
            )
            ax.plot(
                data.time,
                np.exp(np.log(ode).mean(0)),
                style,
                color=COLOURS["ode"],
                lw=1.4,
                label=f"ODE, {word} $a$",
            )
        ax.axhline(
            chosen.level, color=GREY, lw=0.9, ls=":", label=f"exit at {chosen.level:g}"
        )
        ax.set(
            yscale="log",
            xlabel=r"time $t = \gamma\nu/(pd)$",
            ylabel=r"largest overlap $\max_j |m_j|$",
        )
        ax.set_title(
            rf"$p = {p}$, $d = {chosen.dim}$, $\gamma/p = {chosen.rho:g}$,"
            rf" {chosen.geometry}"
        )
        ax.legend(loc="lower right")
    headline(
        figure,
        data,
        "Thin: single runs of the chain. Marks and lines: geometric means over the same"
        " starts",
    )
    return figure
