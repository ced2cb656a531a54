"""How fast SGD approaches the ODE.

    sup_t ‖Ω_SGD(t) − Ω_ODE(t)‖_∞ ≤ e^{Ct} √(γ/(pd))     (claimed)

A grid of d, p and γ; every run starts from the same overlaps as its ODE. The maximum is
over n = p(p + 1)/2 + pk entries, and the largest of n Gaussian fluctuations of one size
is √(2 log n) times that size: this factor, which the constant of the bound hides, is
taken out before the exponent is judged.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, plain_ticks, sheet, task_of
from twolayer.gallery.shared.judging import Verdict, near, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.wide import averaged, committee, online, sup_overlap
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.statistics import Fit, power_law

AXES = {"d": "dim", "p": "width", "γ": "gamma"}
MARKERS = "os^Dv"
SLACK = 0.1  # of the exponent: next orders, of relative size √(γ/(pd)), over the range
RESOLUTION = 0.3  # of the exponent
DIRECTIONS = 2
NOISE = 0.1


@figure(
    "sgd-to-ode",
    "largest deviation of SGD from the ODE against √(γ/(pd))",
    quick={"dims": (100, 400), "seeds": 16, "time": 0.5},
    group="mean-field",
)
def sgd_to_ode(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (50, 200, 800),
    widths: tuple[int, ...] = (2, 4, 8, 16),
    rates: tuple[float, ...] = (0.125, 0.5, 2.0),
    seeds: int = 32,
    time: float = 1.0,
    activation: str = "erf",
    target: str = "teacher",
    geometry: str = "free",
) -> Finding:
    """Runs of the chain on all points of the grid; a ``"teacher"`` has two neurons of
    the students' activation.
    """
    problem = committee(activation, DIRECTIONS, 1, NOISE, target)
    cells = list(product(dims, widths, rates))
    rows = [
        part(
            f"d={d} p={p} γ={g}",
            partial(
                _cell,
                problem.replace(width=p),
                online(g, geometry),
                d,
                seeds,
                time,
                seed,
            ),
        )
        for d, p, g in cells
    ]
    data = xr.Dataset(
        {
            **{
                name: ("cell", [cell[i] for cell in cells])
                for i, name in enumerate(AXES.values())
            },
            "deviation": (
                ("cell", "seed"),
                np.stack([r.deviation.values for r in rows]),
            ),
        }
    )
    data["scale"] = np.sqrt(data.gamma / (data.width * data.dim))
    norms = (
        1 if geometry == "free" else -1
    )  # on the sphere those of the weights do not move
    entries = np.maximum(
        data.width * (data.width + norms) / 2 + data.width * problem.k, 2
    )
    data["typical"] = data.deviation / np.sqrt(2 * np.log(entries))
    task = (
        task_of(problem, online(1.0, geometry))
        .replace("p = 1", "width p")
        .replace("lr = 1/d", "lr = γ/d")
    )
    return Finding(data, _verdict(data), task)


def _cell(
    problem: tl.Problem, algorithm: tl.SGD, dim: int, seeds: int, time: float, seed: int
) -> Variables:
    """The largest deviation of each run."""
    start = tl.Overlaps.random(problem, 50, seed)
    start = tl.Overlaps(start.Q, start.M, problem.P, start.a, dim)
    runs = tl.solve(
        problem,
        algorithm,
        tl.Chain(dim),
        start,
        time=time,
        save=20,
        seeds=seeds,
        seed=seed,
    )
    theory = tl.solve(problem, algorithm, tl.ODE(), start, time=runs.time.values)
    return {"deviation": sup_overlap(runs, theory)}


def _fits(data: xr.Dataset, of: str) -> dict[str, Fit]:
    """Exponents in √(γ/(pd)) over the grid, and along each axis: one exponent, and a
    constant for each line.
    """
    mean, error = averaged(data[of])
    found = {"all": power_law(data.scale.values, mean, error)}
    for name, axis in AXES.items():
        if len(np.unique(data[axis])) > 1:
            others = np.stack([data[x].values for x in AXES.values() if x != axis])
            _, line = np.unique(others, axis=1, return_inverse=True)
            weight = (mean / error) ** 2
            # what the lines have in common is left when each is taken relative to its
            # own weighted mean
            x, y = (
                np.exp(
                    np.log(v)
                    - (
                        np.bincount(line, weight * np.log(v))
                        / np.bincount(line, weight)
                    )[line]
                )
                for v in (data.scale.values, mean)
            )
            found[name] = power_law(x, y, error * y / mean)
    return found


def _verdict(data: xr.Dataset) -> Verdict:
    fits, raw = _fits(data, "typical"), _fits(data, "deviation")
    ratio = data.typical.mean("seed") / data.scale
    checks = [
        near(
            f"exponent {'over the grid' if name == 'all' else f'along {name}'}",
            fit.slope,
            1.0,
            fit.error,
            allowance=SLACK,
            resolution=RESOLUTION,
            count=len(fits),
        )
        for name, fit in fits.items()
    ]
    note = (
        f"{data.sizes['cell']} points; the constant is from {float(ratio.min()):.2f} to"
        f" {float(ratio.max()):.2f}; with the growing number n of entries left in, the"
        f" exponent is {raw['all'].slope:.3f} (95 %: {raw['all'].low:.3f} to"
        f" {raw['all'].high:.3f})"
        + (
            f", along p {raw['p'].slope:.3f} ± {raw['p'].error:.3f}"
            if "p" in raw
            else ""
        )
    )
    claim = (
        "the largest deviation of SGD from the ODE, over √(2 log n), is proportional to"
        " √(γ/(pd))"
    )
    return verdict(claim, checks, note)


def draw(data: xr.Dataset) -> Figure:
    """Deviations as they are, and with the factor of a maximum over many entries taken
    out.
    """
    from twolayer.plot.style import COLOURS, GREY
    from twolayer.plot.style import DIRECTIONS as HUES

    shown, axes = sheet(2, width=4.8, height=4.6)
    titles = ("largest of $n$ entries", r"largest entry over $\sqrt{2\,\log\,n}$")
    widths, rates = (list(np.unique(data[x])) for x in ("width", "gamma"))
    for ax, of, title in zip(axes, ("deviation", "typical"), titles, strict=True):
        mean, error = averaged(data[of])
        for i in range(data.sizes["cell"]):
            width, rate = data.width.values[i], data.gamma.values[i]
            look: Options = {
                "color": HUES[widths.index(width)],
                "marker": MARKERS[rates.index(rate) % 5],
            }
            ax.errorbar(
                data.scale.values[i],
                mean[i],
                2 * error[i],
                ms=4.5,
                capsize=2,
                lw=1.2,
                **look,
            )
        fit = _fits(data, of)["all"]
        x = np.geomspace(float(data.scale.min()), float(data.scale.max()), 50)
        label = f"fit, exponent {fit.slope:.2f} ± {fit.error:.2f}"
        ax.plot(
            x,
            np.exp(fit.intercept) * x**fit.slope,
            color=COLOURS["theory"],
            lw=1.2,
            label=label,
        )
        # the bound says at most, with a constant that it does not tell: here the least
        # that holds for all points
        constant = float((mean / data.scale.values).max())
        ax.plot(
            x,
            constant * x,
            color=GREY,
            ls="--",
            lw=1.2,
            label=rf"claimed bound, ${constant:.2f}\,\sqrt{{\gamma/(pd)}}$",
        )
        ax.set(xscale="log", yscale="log", xlabel=r"$\sqrt{\gamma/(pd)}$", title=title)
        plain_ticks(ax.xaxis)
        ax.legend(fontsize=7.5)
    marks: list[Any] = [
        axes[0].plot([], [], "o", color=HUES[i], label=f"$p = {p}$")[0]
        for i, p in enumerate(widths)
    ]
    for i, rate in enumerate(rates):
        marks += axes[0].plot(
            [], [], MARKERS[i % 5], color=GREY, label=rf"$\gamma = {rate:g}$"
        )
    shown.legend(handles=marks, loc="outside lower center", ncols=8, fontsize=7.5)
    axes[0].set_ylabel(r"$\sup_t |\Omega_{\mathrm{SGD}} - \Omega_{\mathrm{ODE}}|$")
    headline(
        shown,
        data,
        "Mean over runs (bars: 2 s.e.); the claim bounds from above with any constant:"
        " the least is drawn",
    )
    return shown
