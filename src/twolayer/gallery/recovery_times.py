"""Samples until weak recovery against the dimension, and the share of them that the descent takes.

    τ_η ~ N (k = 1),  N log N (k = 2),  N^{k−1} (k ≥ 3)
    descent/search ~ 1/log N (k = 2),  N^{−(k−2)/2} (k ≥ 3, one step size for both)

Medians over random starts on the half sphere. For k = 2 the exponents are those of τ/log N and of ratio · log N.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from twolayer.gallery.shared.judging import Verdict, near, verdict
from twolayer.gallery.shared.measuring import canvas, median_points
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.recovering import COLOURS, LEVELS, law, measured, require_exponents
from twolayer.gallery.shared.registry import Plate, figure
from twolayer.numerics.errors import InputError
from twolayer.numerics.statistics import Fit, Median, median, median_power_law

RANGES = {1: (100, 100_000, 6), 2: (100, 100_000, 6), 3: (64, 1024, 5), 4: (32, 96, 4)}
PATIENCE = {1: 6.0, 2: 6.0, 3: 10.0, 4: 10.0}  # fewer than a quarter of the runs may be censored
RESOLUTION = 1.0  # of the exponent of the search: that of the next k
RATIO = 0.5  # of the exponent of the ratio: that of the next k
ALLOWANCE = 0.05  # of the exponent, relative: finite sizes


@figure(
    "recovery-times",
    "samples until a direction is found against the dimension, and the share spent on learning it",
    quick={"exponents": (1, 2), "largest": 400, "seeds": 32},
    group="recovery",
    papers=("benarous2021",),
)
def recovery_times(
    *, seed: int = 0, exponents: tuple[int, ...] = (1, 2, 3, 4), largest: int = 100_000, seeds: int = 48
) -> Plate:
    """Search times of all exponents at dimensions up to the largest, and fits of their medians."""
    require_exponents(exponents)
    rows: list[tuple[float, ...]] = []
    fits: dict[int, Fit] = {}
    shares: dict[int, Fit] = {}
    for k in exponents:
        dims = _dims(k, largest)
        runs = [part(f"k={k},N={n}", partial(measured, k, n, PATIENCE[k], seeds, seed)) for n in dims]
        weak, strong = (np.array([run[name].values for run in runs]) for name in ("weak", "strong"))
        weak = np.maximum(weak, 1.0)  # a start beyond the level has seen no sample, and a logarithm needs one
        scale = np.log(dims) if k == 2 else np.ones(len(dims))
        fits[k] = median_power_law(dims, list(weak / scale[:, None]), seed=seed)
        descent = [s[np.isfinite(s)] - w[np.isfinite(s)] for w, s in zip(weak, strong, strict=True)]
        ratio = [d / median(w).value for d, w in zip(descent, weak, strict=True)]
        shares[k] = median_power_law(dims, [r * s for r, s in zip(ratio, scale, strict=True)], seed=seed)
        for n, w, d in zip(dims, weak, descent, strict=True):
            rows.append((k, n, *median(w), *median(d), int(np.isinf(w).sum())))
    data = _dataset(rows, fits, shares)
    return Plate(_draw(data, fits, shares), data, _verdict(data, fits, shares, seeds))


def _dims(k: int, largest: int) -> np.ndarray:
    first, last, count = RANGES[k]
    if largest < 4 * first:
        raise InputError(f"Argument `largest` must be at least {4 * first} for k = {k}, but got {largest}.")
    end = min(last, largest)
    return np.geomspace(first, end, min(count, int(2 * np.log2(end / first)) + 1)).round().astype(int)


def _dataset(rows: list[tuple[float, ...]], fits: dict[int, Fit], shares: dict[int, Fit]) -> xr.Dataset:
    names = ("k", "dim", "search", "search_low", "search_high", "descent", "descent_low", "descent_high", "censored")
    data = xr.Dataset(
        {name: ("point", np.array(column)) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    )
    for name, found in (("exponent", fits), ("ratio_exponent", shares)):
        data[name] = ("exponents", "part"), np.array([[f.slope, f.error, f.low, f.high] for f in found.values()])
    return data.assign_coords(exponents=list(fits), part=["slope", "error", "low", "high"])


def _draw(data: xr.Dataset, fits: dict[int, Fit], shares: dict[int, Fit]) -> Any:
    from twolayer.plot.style import TITLE

    drawing, (left, right) = canvas(2, height=4.2)
    for k, fit in fits.items():
        own = data.isel(point=np.flatnonzero(data.k.values == k))
        n, search = own.dim.values, own.search.values
        label = rf"$k={k}$: $\tau \sim {law(k)}$, measured {fit.slope:.2f} ± {2 * fit.error:.2f}"
        median_points(left, n, _medians(own, "search"), COLOURS[k], label)
        fine = np.geomspace(n[0], n[-1], 60)
        curve = np.exp(fit.intercept) * fine**fit.slope * (np.log(fine) if k == 2 else 1.0)
        left.plot(fine, curve, color=COLOURS[k], lw=1)
        slope = "" if k <= 2 else rf" $\sim N^{{{shares[k].slope:.2f}}}$"
        median_points(right, n, _medians(own, "descent"), COLOURS[k], f"$k={k}${slope}", "o-", 1 / search)
    for ax in (left, right):
        ax.set(xscale="log", yscale="log", xlabel="dimension $N$")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=len(fits) if ax is right else 1)
    left.set(ylabel=rf"samples until $m \geq {LEVELS[0]}$", title="search")
    right.set(ylabel=rf"descent to $m \geq {LEVELS[1]}$ over search", title="descent")
    drawing.suptitle("Spherical online SGD from random starts: for k ≥ 2 the descent is an ever smaller part", **TITLE)
    return drawing


def _medians(own: xr.Dataset, name: str) -> list[Median]:
    columns = (own[key].values for key in (name, f"{name}_low", f"{name}_high"))
    return [Median(*row) for row in zip(*columns, strict=True)]


def _verdict(data: xr.Dataset, fits: dict[int, Fit], shares: dict[int, Fit], seeds: int) -> Verdict:
    checks, notes = [], []
    for k, fit in fits.items():
        expected = max(k - 1, 1)
        checks.append(
            near(
                f"k = {k}: exponent of {'τ/log N' if k == 2 else 'τ'}",
                fit.slope,
                expected,
                fit.error,
                allowance=ALLOWANCE * expected,
                resolution=RESOLUTION,
                count=len(fits),
            )
        )
        own = data.isel(point=np.flatnonzero(data.k.values == k))
        ratio, share = (own.descent / own.search).values, shares[k]
        if k >= 2:
            # at finite N the search still gains on its own law, so for k ≥ 3 the ratio may fall faster than its limit
            limit = -(k - 2) / 2
            checks.append(
                near(
                    f"k = {k}: exponent of descent/search{' · log N' if k == 2 else ''}",
                    share.slope,
                    0.0 if k == 2 else (-np.inf, limit),
                    share.error,
                    allowance=ALLOWANCE + 0.1 * (k - 2),
                    resolution=RATIO,
                    count=len(fits),
                )
            )
        notes.append(
            f"k = {k}: 95 % from {fit.low:.3f} to {fit.high:.3f}, descent/search {ratio[0]:.3g} → {ratio[-1]:.3g} from "
            f"N = {own.dim.values[0]:.0f} to {own.dim.values[-1]:.0f}, {int(own.censored.sum())} of "
            f"{seeds * len(ratio)} runs censored"
        )
    return verdict(
        "the search takes N^max(k−1, 1) samples, and the descent an ever smaller part", checks, "; ".join(notes)
    )
