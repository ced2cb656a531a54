"""Phase retrieval with batches of n_b ~ d: weak recovery in O(log d) steps, and how exact Gaussian batch sums are.

    ℓ = 2, μ = 1, δ = 0:    T = log(η √d)/(γ_eff c − x/2),    x = γ² s²/(n0 (1 − γκ)²)

Left: median steps against d up to 10⁶ (n_b up to 10⁷), linear in log d with the predicted slope. Right: steps with
batches drawn sample by sample and with Gaussian sums, at the same ratio d/n_b. They differ by less than the error bars
once n_b is large; polynomial activations have heavy tails and need the larger batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.batching import hermite, law, median_points, recovered
from twolayer.gallery.measuring import LIMIT, canvas, plain_ticks
from twolayer.gallery.registry import Plate, Verdict, figure
from twolayer.statistics import Median, power_law


@figure(
    "large-batches",
    "phase retrieval with batches of order d in log d steps, and exact against Gaussian batch sums",
    quick={"dims": (1000, 10_000, 100_000), "sizes": (1000,), "seeds": 32},
    group="phase-diagram",
)
def large_batches(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    gamma: float = 0.1,
    n0: int = 10,
    sizes: tuple[int, ...] = (100, 300, 1000, 3000, 10_000),
    seeds: int = 96,
) -> Plate:
    """T against log d; then mean log T with exact and Gaussian sums for n_b from ``sizes``, d = n_b/10."""
    problem, algorithm = hermite(2), law("SGD", 1, 0, gamma, n0)
    options: Any = {"seeds": seeds, "start": "typical", "steps": 300}
    runs = [recovered(f"d-{dim}", problem, algorithm, (dim,), seed, batch_sums="gaussian", **options) for dim in dims]
    predicted = [tl.recovery_steps(problem, algorithm, dim).contracted for dim in dims]
    logs = np.zeros((2, len(sizes), 2))
    for i, sums in enumerate(("exact", "gaussian")):
        for j, size in enumerate(sizes):
            small = tl.SGD(lr=gamma, batch=size, geometry="projected")
            # different seeds: independent runs
            one = recovered(
                f"{sums}-{size}", problem, small, (max(size // n0, 3),), seed + i, batch_sums=sums, **options
            )
            values = np.log(one.steps[0][np.isfinite(one.steps[0])])
            logs[i, j] = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    medians = [run.medians[0] for run in runs]
    data = xr.Dataset(
        {
            "steps": ("dim", [m.value for m in medians]),
            "low": ("dim", [m.low for m in medians]),
            "high": ("dim", [m.high for m in medians]),
            "predicted": ("dim", predicted),
            "log_steps": (("sums", "size"), logs[:, :, 0]),
            "log_error": (("sums", "size"), logs[:, :, 1]),
        },
        {"dim": list(dims), "sums": ["exact", "gaussian"], "size": list(sizes)},
    )
    return Plate(_draw(data, medians, n0), data, _verdict(data, [run.censored[0] for run in runs]))


def _slope(data: xr.Dataset, name: str) -> float:
    return float(np.polyfit(np.log(data.dim.values), data[name].values, 1)[0])


def _verdict(data: xr.Dataset, censored: list[int]) -> Verdict:
    measured, predicted = _slope(data, "steps"), _slope(data, "predicted")
    growth = power_law(data.dim.values, data.steps.values / np.log(data.dim.values))
    gap = data.log_steps.sel(sums="gaussian") - data.log_steps.sel(sums="exact")
    error = np.hypot(*(data.log_error.sel(sums=s) for s in ("gaussian", "exact")))
    last = float(gap[-1]), float(error[-1])
    ends = (-1, 0) if data.sizes["size"] > 1 else (-1,)
    differences = ", ".join(
        f"{float(gap[i]):+.3f} ± {float(error[i]):.3f} at n_b = {int(data['size'][i])}" for i in ends
    )
    text = (
        f"T = {measured:.3f} log d + const, predicted slope {predicted:.3f}; T/log d ~ "
        f"d^{growth.slope:.3f}±{growth.error:.3f}; Gaussian against exact sums: log T differs by {differences}"
    )
    good = abs(measured / predicted - 1) < 0.25 and abs(growth.slope) < 0.05 and abs(last[0]) < LIMIT * last[1]
    return Verdict(good and max(censored) == 0, text)


def _draw(data: xr.Dataset, medians: list[Median], n0: int) -> Figure:
    figure, (left, right) = canvas(2)
    median_points(left, data.dim, medians, "#1f77b4", "chain, median")
    left.plot(data.dim, data.predicted, color="#1a1a1a", label="formula")
    left.set(xscale="log", xlabel="dimension $d$", ylabel="steps $T$", ylim=(0, None))
    left.set_title(rf"Phase retrieval, $n_b = {n0}\,d$")
    left.legend(loc="upper left")
    for sums, colour, shift in (("exact", "#1a1a1a", 0.97), ("gaussian", "#d95f02", 1.03)):
        row = data.sel(sums=sums)
        right.errorbar(
            row["size"] * shift,
            row.log_steps,
            2 * row.log_error,
            fmt="o",
            color=colour,
            ms=4.5,
            capsize=2.5,
            label=f"{sums} sums",
        )
    ends = float(data["size"].min()) / 2, float(data["size"].max()) * 2
    right.set(xscale="log", xlim=ends, xlabel="batch size $n_b$", ylabel=r"mean of $\log T$")
    plain_ticks(right.xaxis)
    right.set_title(rf"Gaussian batch sums, $d = n_b/{n0}$ (bars: 2 s.e.)")
    right.legend()
    return figure
