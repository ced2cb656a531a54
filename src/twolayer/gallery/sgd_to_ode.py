"""How fast SGD approaches the ODE.

    sup_t ‖Ω_SGD(t) − Ω_ODE(t)‖_∞ ≤ e^{Ct} √(γ/(pd))     (claimed)

One base point, and rows through it along d, p and γ; every run starts from the same overlaps as its ODE. The maximum is
over p(p + 1)/2 + pk entries, and the largest of so many fluctuations grows with p as √(log p) by itself. So the root
mean square over entries is followed too: it is what has to scale along p.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.gallery.measuring import canvas, plain_ticks, points
from twolayer.gallery.parts import part
from twolayer.gallery.registry import Plate, Verdict, figure
from twolayer.gallery.wide import committee, online, rms_overlap, sup_overlap
from twolayer.statistics import power_law

ROWS = ("d", "p", "γ")
SLACK = 0.1  # of the exponent: corrections of relative order √(γ/(pd)) over the range


@figure(
    "sgd-to-ode",
    "largest deviation of SGD from the ODE against √(γ/(pd))",
    quick={"dims": (200, 1600), "widths": (2,), "rates": (0.5,), "seeds": 64, "time": 0.5},
    group="mean-field",
)
def sgd_to_ode(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (50, 100, 200, 400, 800, 1600),
    widths: tuple[int, ...] = (2, 4, 8, 16),
    rates: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0, 2.0),
    seeds: int = 32,
    time: float = 1.0,
) -> Plate:
    """The first width and the middle rate and dimension are the base point."""
    dim, p, gamma = dims[len(dims) // 2], widths[0], rates[len(rates) // 2]
    cells = [(0, d, p, gamma) for d in dims]
    cells += [(1, dim, w, gamma) for w in widths if w != p] + [(2, dim, p, g) for g in rates if g != gamma]
    rows = [part(f"d={d} p={w} γ={g}", lambda d=d, w=w, g=g: _cell(d, w, g, seeds, time, seed)) for _, d, w, g in cells]  # type: ignore[misc]
    data = xr.Dataset(
        {
            "row": ("cell", [cell[0] for cell in cells]),
            "dim": ("cell", [cell[1] for cell in cells]),
            "width": ("cell", [cell[2] for cell in cells]),
            "base": ("cell", [cell[1:] == (dim, p, gamma) for cell in cells]),
            "gamma": ("cell", [cell[3] for cell in cells]),
            "deviation": (("cell", "seed"), np.stack([r.deviation.values for r in rows])),
            "typical": (("cell", "seed"), np.stack([r.typical.values for r in rows])),
        }
    )
    data["scale"] = np.sqrt(data.gamma / (data.width * data.dim))
    return Plate(_draw(data), data, _verdict(data))


def _cell(dim: int, p: int, gamma: float, seeds: int, time: float, seed: int) -> dict[str, Any]:
    problem = committee("erf", 2, p, noise=0.1)
    start = tl.Overlaps.random(problem, 50, seed)
    start = tl.Overlaps(start.Q, start.M, problem.P, start.a, dim)
    runs = tl.solve(problem, online(gamma), tl.Chain(dim), start, time=time, save=20, seeds=seeds, seed=seed)
    theory = tl.solve(problem, online(gamma), tl.ODE(), start, time=runs.time.values[1:])
    return {"deviation": sup_overlap(runs, theory), "typical": rms_overlap(runs, theory)}


def _fit(data: xr.Dataset, of: str = "deviation") -> Any:
    values = data[of].values
    mean, error = values.mean(1), values.std(1, ddof=1) / np.sqrt(values.shape[1])
    return power_law(data.scale.values, mean, error)


def _verdict(data: xr.Dataset) -> Verdict:
    parts, good = [], True
    for i, name in enumerate(ROWS):
        here = data.isel(cell=np.flatnonzero((data.row == i) | data.base))
        if len(np.unique(here.scale)) > 1:
            largest, typical = _fit(here), _fit(here, "typical")
            judged = typical if name == "p" else largest
            good &= judged.low - SLACK <= 1 <= judged.high + SLACK
            parts.append(
                f"along {name} {largest.slope:.3f} ± {largest.error:.3f} (root mean square over entries "
                f"{typical.slope:.3f} ± {typical.error:.3f})"
            )
    everything = _fit(data, "typical")
    ratio = float((data.deviation.mean("seed") / data.scale).max())
    return Verdict(
        bool(good),
        f"exponent of the largest deviation in √(γ/(pd)), claimed bound 1: {', '.join(parts)}; root mean square, all "
        f"points {everything.slope:.3f}, 95 % interval {everything.low:.3f} to {everything.high:.3f}; largest "
        f"deviation at most {ratio:.2f} √(γ/(pd)); judged along d and γ by the maximum, along p, where the number of "
        "entries grows, by the root mean square",
    )


def _draw(data: xr.Dataset) -> Any:
    shown, axes = canvas(2, width=4.8, height=4.2)
    labels = ("largest entry", "root mean square over entries")
    for ax, of, label in zip(axes, ("deviation", "typical"), labels, strict=True):
        values = data[of].values
        mean, error = values.mean(1), values.std(1, ddof=1) / np.sqrt(values.shape[1])
        styles = zip(ROWS, ("#1f77b4", "#d95f02", "#1b9e77"), "os^", strict=True)
        for i, (name, colour, marker) in enumerate(styles):
            cells = np.flatnonzero(data.row.values == i)
            if cells.size:
                points(ax, data.scale.values[cells], mean[cells], error[cells], colour, f"along ${name}$", marker)
        fit = _fit(data, of)
        x = np.array([data.scale.min(), data.scale.max()])
        ax.plot(
            x, np.exp(fit.intercept) * x**fit.slope, color="#1a1a1a", lw=1.2, label=f"fit, exponent {fit.slope:.2f}"
        )
        middle = float(np.exp(np.log(x).mean()))
        at = float(np.exp(fit.intercept) * middle**fit.slope)
        ax.plot(x, 0.5 * at * x / middle, color="#888888", ls="--", lw=1.2, label="exponent 1 (claimed)")
        ax.set(xscale="log", yscale="log", xlabel=r"$\sqrt{\gamma/(pd)}$", title=label)
        plain_ticks(ax.xaxis)
        ax.legend(fontsize=7.5)
    axes[0].set_ylabel(r"$\sup_t |\Omega_{\mathrm{SGD}} - \Omega_{\mathrm{ODE}}|$")
    shown.suptitle("erf committees, $k = 2$, $\\Delta = 0.1$", fontsize=10)
    return shown
