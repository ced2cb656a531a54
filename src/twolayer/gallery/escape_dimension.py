"""Escape time against dimension: t grows as log d, steps as d log d.

t ≈ [log(T d) + log 2 + γ_E − log(1 + s)]/(2c) + O(1)        slope of t against log d: 1/(2c)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.gallery.shared.measuring import (
    LIMIT,
    agree,
    canvas,
    colours,
    growth,
    known,
    measured,
    phase_retrieval,
    points,
    predicted,
)
from twolayer.gallery.shared.registry import Plate, Verdict, figure
from twolayer.numerics.errors import positive_integer

WORK = 4_000_000  # runs times dimension: cheap dimensions get more runs than the least number
MOST = 512
LINES = ("annealed", "quenched", "ode", "corrected")
RESOLVED = 15.0  # the corrected formula is judged where T d is so many times 1 + s


@figure(
    "escape-dimension",
    "escape time against d, from 10² to 10⁶, with the log d law",
    quick={"dims": (100, 300, 1000, 3000), "most": 64},
)
def escape_dimension(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    seeds: int = 32,
    most: int = MOST,
    lr: float = 1 / 12,
    noise: float = 0.0,
    threshold: float = 0.1,
) -> Plate:
    """First passages of the chain at every d against annealed, quenched and corrected times (p = 1)."""
    positive_integer("seeds", seeds, 2)
    problem = phase_retrieval(noise=noise)
    c, s = growth(problem, lr)
    rows = []
    for dim in sorted(dims):
        count = min(most, max(seeds, WORK // dim))
        theory, end, allowance = predicted(problem, lr, dim, threshold)
        starts = tl.Overlaps.random(problem, dim, seed, size=count)
        passage = measured(problem, lr, tl.Chain(dim), starts, threshold, end, seed)
        lost = (passage.censored + passage.diverged) / count
        mean, error, steps = passage.mean, passage.standard_error, passage.mean_steps
        rows.append((count, mean, error, steps, lost, *(known(getattr(theory, name)) for name in LINES), allowance))
    names = ("seeds", "time", "error", "steps", "lost", *LINES, "allowance")
    columns = dict(zip(names, np.array(rows).T, strict=True))
    data = xr.Dataset({k: ("dim", v) for k, v in columns.items()}, {"dim": sorted(dims)})
    return Plate(_draw(data, c, lr, threshold), data, _verdict(data, c, s, threshold))


def _verdict(data: xr.Dataset, c: float, s: float, threshold: float) -> Verdict:
    scale = threshold * data.dim.values
    judged = scale >= RESOLVED * (1 + s)
    chosen = data.isel(dim=np.flatnonzero(judged))
    z = ((chosen.time - chosen.corrected) / chosen.error).values
    near = all(map(agree, *(chosen[name].values for name in ("time", "corrected", "error", "allowance"))))
    x, weight = np.log(chosen.dim.values), chosen.error.values**-2.0
    centred = x - np.average(x, weights=weight)
    spread = (weight * centred**2).sum()
    slope, error = float((weight * centred * chosen.time.values).sum() / spread), float(spread**-0.5)
    text = (
        f"measured − corrected is {z.mean():+.2f} standard errors on average, at most {abs(z).max():.2f}, for d ≥ "
        f"{chosen.dim.values[0]}; slope against log d {slope:.3f} ± {error:.3f}, predicted 1/(2c) = {1 / (2 * c):.3f}; "
        f"runs without escape {float(data.lost.max()):.0%}"
    )
    return Verdict(bool(near and abs(slope - 1 / (2 * c)) <= LIMIT * error and data.lost.max() == 0), text)


def _draw(data: xr.Dataset, c: float, lr: float, threshold: float) -> Any:
    palette = colours()
    figure, (left, right) = canvas(2)
    lines = {"annealed": "--", "quenched": "-.", "corrected": "-"}
    for name, style in lines.items():
        left.plot(data.dim, data[name], style, color=palette[name], label=name)
        right.plot(data.dim, data[name] * data.dim / lr, style, color=palette[name], label=name)
    span = data.dim.values[[0, -1]].astype(float)
    law = data.corrected.values[-1] + np.log(span / span[-1]) / (2 * c)
    left.plot(span, law, ":", color="#888888", lw=1.1, label=r"$\log d\,/(2c)$ + const.")
    low, high = int(data.seeds.min()), int(data.seeds.max())
    label = f"chain, {low} runs" if low == high else f"chain, {low} to {high} runs"
    points(left, data.dim, data.time, data.error, palette["chain"], label)
    points(right, data.dim, data.steps, data.error * data.dim / lr, palette["chain"], label)
    left.set(xscale="log", xlabel="dimension $d$", ylabel=r"escape time $t_{\mathrm{ext}}$", title="time")
    right.set(
        xscale="log", yscale="log", xlabel="dimension $d$", ylabel=r"steps $n = t\,p\,d/\gamma$", title="steps of SGD"
    )
    left.legend(loc="upper left")
    right.legend(loc="upper left")
    figure.suptitle(
        rf"Phase retrieval, $p = 1$, $\gamma = {lr:.4g}$, $T = {threshold:g}$: $O(d\log d)$ steps (bars: 2 s.e.)",
        fontsize=10,
    )
    return figure
