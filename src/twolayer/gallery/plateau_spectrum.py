"""How long a committee stays on its plateau, against the spectrum of the inputs.

    b distinct variances, evenly spaced, of mean 1 and variance v²:    T(b, v) = T(1, 0)/(1 + v²) ?

On the plateau all neurons are alike. What tells them apart grows at a rate that a block with variance s drives as s² in
the linear phase, so the mean of s² should set its length, and not how many distinct values there are.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, sheet, task_of
from twolayer.gallery.shared.judging import between, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure

LEVEL = 0.1  # of |M_11 − M_12|, at which the neurons are told apart
SAME, LAW = 0.02, 0.05  # lengths are equal, or follow the law, up to these parts


@figure(
    "plateau-spectrum",
    "length of the plateau of a committee against the number and the spread of distinct variances",
    quick={"counts": (2, 4), "spreads": (0.3, 0.5)},
    group="inputs",
)
def plateau_spectrum(
    *,
    seed: int = 0,
    counts: tuple[int, ...] = (2, 3, 4, 6, 8),
    spreads: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5),
    gamma: float = 0.5,
    time: float = 300.0,
    asymmetry: float = 1e-3,
) -> Finding:
    """Two erf neurons learn two, from overlaps that tell them apart by a thousandth; nothing here is random."""
    one, path = _length(1, 0.0, gamma, time, asymmetry)
    lengths, paths = np.zeros((len(spreads), len(counts))), {1: path}
    for i, spread in enumerate(spreads):
        for j, count in enumerate(counts):
            lengths[i, j], path = _length(count, spread, gamma, time, asymmetry)
            if i == len(spreads) - 1:
                paths[count] = path
    data = xr.Dataset(
        {
            "length": (("spread", "count"), lengths),
            "isotropic": one,
            "path": (("shown", "point"), np.stack([paths[c].risk.values for c in (1, counts[0], counts[-1])])),
            "time": ("point", paths[1].time.values),
        },
        {"spread": list(spreads), "count": list(counts), "shown": [1, counts[0], counts[-1]]},
    )
    law = one / (1 + np.array(spreads) ** 2)
    checks = []
    for i, spread in enumerate(spreads):
        ratio = lengths[i].max() / lengths[i].min()
        checks.append(
            between(f"v = {spread:g}: longest over shortest of {len(counts)} numbers of values", 1.0, ratio, 1 + SAME)
        )
        checks.append(
            between(f"v = {spread:g}: length over the law", 1 - LAW, float(lengths[i].mean() / law[i]), 1 + LAW)
        )
    claim = "the plateau shortens with the spread of the variances, 1/(1 + v²), whatever their number"
    task = task_of(_problem(1, 0.0), tl.SGD(gamma / tl.d))
    return Finding(data, verdict(claim, checks, f"isotropic inputs: {one:.1f}"), task)


def _problem(count: int, spread: float) -> tl.Problem:
    x = np.zeros(1) if count == 1 else np.linspace(-1, 1, count)
    values = 1 + spread * x / np.sqrt(max((x**2).mean(), 1e-300))
    return tl.Problem(tl.Teacher("erf", 2), "erf", width=2, inputs=tl.Inputs.blocks(values, np.full(count, 1 / count)))


def _length(count: int, spread: float, gamma: float, time: float, asymmetry: float) -> tuple[float, xr.Dataset]:
    """When |M_11 − M_12| of the fields passes the level, and the risk on the way."""

    def compute() -> dict[str, np.ndarray]:
        problem = _problem(count, spread)
        share = np.full((count, 1, 1), 1 / count)
        Q, M, P = share * np.diag([0.2, 0.25]), share * np.array([[asymmetry, 0.0], [0.0, 0.0]]), share * np.eye(2)
        start = tl.Overlaps(Q[0], M[0]) if count == 1 else tl.Overlaps.in_blocks(Q, M, P)
        result = tl.solve(problem, tl.SGD(gamma / tl.d), tl.ODE(), start, time=time, save=600)
        apart = np.abs(result.M.values[0, :, 0, 0] - result.M.values[0, :, 0, 1])
        return {"apart": apart, "risk": result.excess_risk.values[0], "time": result.time.values}

    found = part(f"b={count} v={spread}", compute)
    apart, t = found.apart.values, found.time.values
    after = int(np.argmax(apart > LEVEL))
    if after == 0:
        return np.nan, found
    return float(np.interp(np.log(LEVEL), np.log(apart[after - 1 : after + 1]), t[after - 1 : after + 1])), found


def draw(data: xr.Dataset) -> Figure:
    """Risks along the plateau, and its length against the spread."""
    from twolayer.plot.style import COLOURS, DIRECTIONS

    figure, (left, right) = sheet(2, width=4.6, height=3.7)
    spread = float(data.spread[-1])
    for i, (count, style) in enumerate(zip(data.shown.values, ("-", "-", "--"), strict=True)):
        label = "one variance" if count == 1 else f"{count} variances, $v = {spread:g}$"
        left.plot(data.time, data.path[i], style, color=DIRECTIONS[i], label=label)
    left.set(yscale="log", xlabel="time $t$", ylabel="excess risk")
    left.legend(fontsize="small")
    fine = np.linspace(0, 1.1 * spread, 100)
    right.plot(fine, float(data.isotropic) / (1 + fine**2), color=COLOURS["theory"], label=r"$T(0)/(1 + v^2)$")
    right.plot(0, float(data.isotropic), "k*", ms=8, label="one variance")
    for j, (count, marker) in enumerate(zip(data["count"].values, "os^Dv", strict=False)):
        size = 9 - 1.2 * j
        right.plot(
            data.spread,
            data.length[:, j],
            marker,
            mfc="none",
            color=DIRECTIONS[j % len(DIRECTIONS)],
            ms=size,
            label=f"{count} variances",
        )
    right.set(xlabel="standard deviation $v$ of the variances", ylabel="length $T$ of the plateau")
    right.legend(fontsize="small")
    headline(figure, data, "The plateau against number and spread of distinct variances")
    return figure
