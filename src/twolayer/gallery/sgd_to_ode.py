"""How fast SGD approaches the ODE.

    sup_t ‖Ω_SGD(t) − Ω_ODE(t)‖_∞ ≤ e^{Ct} √(γ/(pd))     (claimed)

A grid of d, p and γ; every run starts from the same overlaps as its ODE. The maximum is over n = p(p + 1)/2 + pk
entries, and the largest of n Gaussian fluctuations of one size is √(2 log n) times that size: this factor, which the
constant of the bound hides, is taken out before the exponent is judged.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.gallery.shared.measuring import canvas, plain_ticks
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Plate, Verdict, figure
from twolayer.gallery.shared.wide import committee, online, standard_error, sup_overlap
from twolayer.numerics.statistics import Fit, power_law

AXES = {"d": "dim", "p": "width", "γ": "gamma"}
COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a")
MARKERS = "os^Dv"
SLACK = 0.1  # of the exponent: next orders, of relative size √(γ/(pd)), over the range
DIRECTIONS = 2


@figure(
    "sgd-to-ode",
    "largest deviation of SGD from the ODE against √(γ/(pd))",
    quick={"dims": (200, 1600), "widths": (2,), "rates": (0.5,), "seeds": 64, "time": 0.5},
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
) -> Plate:
    """Runs of the chain on all points of the grid."""
    cells = list(product(dims, widths, rates))
    rows = [
        part(f"d={d} p={p} γ={g}", lambda d=d, p=p, g=g: {"deviation": _cell(d, p, g, seeds, time, seed)})  # type: ignore[misc]
        for d, p, g in cells
    ]
    data = xr.Dataset(
        {
            **{name: ("cell", [cell[i] for cell in cells]) for i, name in enumerate(AXES.values())},
            "deviation": (("cell", "seed"), np.stack([r.deviation.values for r in rows])),
        }
    )
    data["scale"] = np.sqrt(data.gamma / (data.width * data.dim))
    entries = data.width * (data.width + 1) / 2 + data.width * DIRECTIONS
    data["typical"] = data.deviation / np.sqrt(2 * np.log(entries))
    return Plate(_draw(data), data, _verdict(data))


def _cell(dim: int, p: int, gamma: float, seeds: int, time: float, seed: int) -> np.ndarray:
    problem = committee("erf", DIRECTIONS, p, noise=0.1)
    start = tl.Overlaps.random(problem, 50, seed)
    start = tl.Overlaps(start.Q, start.M, problem.P, start.a, dim)
    runs = tl.solve(problem, online(gamma), tl.Chain(dim), start, time=time, save=20, seeds=seeds, seed=seed)
    theory = tl.solve(problem, online(gamma), tl.ODE(), start, time=runs.time.values)
    return sup_overlap(runs, theory)


def _fits(data: xr.Dataset, of: str) -> dict[str, Fit]:
    """Exponents in √(γ/(pd)) over the grid, and along each axis: one exponent, and a constant for each line."""
    mean, error = _mean(data[of])
    found = {"all": power_law(data.scale.values, mean, error)}
    for name, axis in AXES.items():
        if len(np.unique(data[axis])) > 1:
            others = np.stack([data[x].values for x in AXES.values() if x != axis])
            _, line = np.unique(others, axis=1, return_inverse=True)
            weight = (mean / error) ** 2
            # what the lines have in common is left when each is taken relative to its own weighted mean
            x, y = (
                np.exp(np.log(v) - (np.bincount(line, weight * np.log(v)) / np.bincount(line, weight))[line])
                for v in (data.scale.values, mean)
            )
            found[name] = power_law(x, y, error * y / mean)
    return found


def _mean(values: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over runs with its standard error."""
    return values.mean("seed").values, standard_error(values, "seed")


def _verdict(data: xr.Dataset) -> Verdict:
    fits, raw = _fits(data, "typical"), _fits(data, "deviation")
    good = all(fit.low - SLACK <= 1 <= fit.high + SLACK for fit in fits.values())
    ratio = data.typical.mean("seed") / data.scale
    rows = ", ".join(f"along {name} {fit.slope:.3f} ± {fit.error:.3f}" for name, fit in fits.items() if name != "all")
    everything = fits["all"]
    return Verdict(
        good,
        f"exponent of the largest deviation over √(2 log n) in √(γ/(pd)), claimed 1, {data.sizes['cell']} points: "
        f"{everything.slope:.3f} (95 %: {everything.low:.3f} to {everything.high:.3f}); {rows}; its constant is from "
        f"{float(ratio.min()):.2f} to {float(ratio.max()):.2f}; with the growing number n of entries left in, the "
        f"exponent is {raw['all'].slope:.3f} (95 %: {raw['all'].low:.3f} to {raw['all'].high:.3f})"
        + (f", along p {raw['p'].slope:.3f} ± {raw['p'].error:.3f}" if "p" in raw else ""),
    )


def _draw(data: xr.Dataset) -> Any:
    shown, axes = canvas(2, width=4.8, height=4.4)
    titles = ("largest of $n$ entries", r"largest entry over $\sqrt{2\,\log\,n}$")
    widths, rates = (list(np.unique(data[x])) for x in ("width", "gamma"))
    for ax, of, title in zip(axes, ("deviation", "typical"), titles, strict=True):
        mean, error = _mean(data[of])
        for i in range(data.sizes["cell"]):
            width, rate = data.width.values[i], data.gamma.values[i]
            look: Any = {"color": COLOURS[widths.index(width) % 5], "marker": MARKERS[rates.index(rate) % 5]}
            ax.errorbar(data.scale.values[i], mean[i], 2 * error[i], ms=4.5, capsize=2, lw=1.2, **look)
        fit = _fits(data, of)["all"]
        x = np.array([data.scale.min(), data.scale.max()])
        label = f"fit, exponent {fit.slope:.2f} ± {fit.error:.2f}"
        ax.plot(x, np.exp(fit.intercept) * x**fit.slope, color="#1a1a1a", lw=1.2, label=label)
        middle = float(np.exp(np.log(x).mean()))
        at = float(np.exp(fit.intercept) * middle**fit.slope)
        ax.plot(x, 0.5 * at * x / middle, color="#888888", ls="--", lw=1.2, label="exponent 1 (claimed)")
        ax.set(xscale="log", yscale="log", xlabel=r"$\sqrt{\gamma/(pd)}$", title=title)
        plain_ticks(ax.xaxis)
        ax.legend(fontsize=7.5)
    for i, width in enumerate(widths):
        axes[0].plot([], [], "o", color=COLOURS[i % 5], label=f"$p = {width}$")
    for i, rate in enumerate(rates):
        axes[0].plot([], [], MARKERS[i % 5], color="#777777", label=rf"$\gamma = {rate:g}$")
    handles, labels = axes[0].get_legend_handles_labels()
    axes[0].legend(handles[:2], labels[:2], fontsize=7.5)
    shown.legend(handles[2:], labels[2:], loc="outside lower center", ncols=8, fontsize=7.5)
    axes[0].set_ylabel(r"$\sup_t |\Omega_{\mathrm{SGD}} - \Omega_{\mathrm{ODE}}|$")
    shown.suptitle("erf committees, $k = 2$, $\\Delta = 0.1$", fontsize=10)
    return shown
