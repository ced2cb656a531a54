"""Samples until weak recovery against the dimension, and the share of them that the
descent takes.

    τ_η ~ N (k = 1),  N log N (k = 2),  N^{k−1} (k ≥ 3)
    descent/search ~ 1/log N (k = 2),  N^{−(k−2)/2} (k ≥ 3, one step size for both)

Medians over random starts on the half sphere. For k = 2 the exponents are those of
τ/log N and of ratio · log N.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from twolayer.gallery.shared.drawing import headline, median_points, plain_ticks, sheet
from twolayer.gallery.shared.judging import Verdict, near, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.recovering import (
    LEVELS,
    asked,
    law,
    measured,
    require_exponents,
)
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.errors import InputError
from twolayer.numerics.statistics import Fit, median, median_power_law

RANGES = {1: (100, 100_000, 6), 2: (100, 100_000, 6), 3: (64, 1024, 5), 4: (32, 128, 4)}
PATIENCE = {
    1: 6.0,
    2: 6.0,
    3: 10.0,
    4: 10.0,
}  # fewer than a quarter of the runs may be censored
RESOLUTION = 1.0  # of the exponent of the search: that of the next k
RATIO = 0.5  # of the exponent of the ratio: that of the next k
ALLOWANCE = 0.05  # of the exponent, relative: finite sizes


@figure(
    "recovery-times",
    "samples until a direction is found against the dimension, and the share spent on"
    " learning it",
    quick={"largest": 400, "seeds": 16},
    fixed={
        "target": "chosen by `exponents`: h_k is the task of information exponent k",
        "activation": (
            "chosen by `exponents`: h_k learns a target h_k, and has no other exponent"
        ),
    },
    group="recovery",
    papers=("benarous2021",),
)
def recovery_times(
    *,
    seed: int = 0,
    exponents: tuple[int, ...] = (1, 2, 3, 4),
    largest: int = 100_000,
    seeds: int = 192,
    geometry: str = "spherical",
) -> Finding:
    """Search times of all exponents at dimensions up to the largest, and fits of their
    medians.
    """
    require_exponents(exponents, geometry)
    rows: list[tuple[float, ...]] = []
    fits: dict[int, Fit] = {}
    shares: dict[int, Fit] = {}
    for k in exponents:
        dims = _dims(k, largest)
        runs = [
            part(
                f"k={k},N={n}",
                partial(measured, k, geometry, n, PATIENCE[k], seeds, seed),
            )
            for n in dims
        ]
        weak, strong = (
            np.array([run[name].values for run in runs]) for name in ("weak", "strong")
        )
        weak = np.maximum(
            weak, 1.0
        )  # a start beyond the level has seen no sample, and a logarithm needs one
        strong = np.maximum(
            strong, weak + 1.0
        )  # so has a run that passes both levels at once
        scale = np.log(dims) if k == 2 else np.ones(len(dims))
        fits[k] = median_power_law(dims, list(weak / scale[:, None]), seed=seed)
        descent = [
            s[np.isfinite(s)] - w[np.isfinite(s)]
            for w, s in zip(weak, strong, strict=True)
        ]
        shares[k] = _over(median_power_law(dims, descent, seed=seed), fits[k])
        for n, w, d in zip(dims, weak, descent, strict=True):
            rows.append((k, n, *median(w), *median(d), int(np.isinf(w).sum())))
    data = _dataset(rows, fits, shares)
    return Finding(data, _verdict(data, fits, shares, seeds), asked(geometry))


def _over(one: Fit, two: Fit) -> Fit:
    """The law of a ratio: medians of both scatter, so both errors count."""
    below, above = (
        np.hypot(one.slope - one.low, two.high - two.slope),
        np.hypot(one.high - one.slope, two.slope - two.low),
    )
    slope, error = one.slope - two.slope, float(np.hypot(one.error, two.error))
    return Fit(
        slope,
        error,
        one.intercept - two.intercept,
        slope - float(below),
        slope + float(above),
    )


def _dims(k: int, largest: int) -> list[int]:
    first, last, count = RANGES[k]
    if largest < 4 * first:
        raise InputError(
            f"Argument `largest` must be at least {4 * first} for k = {k}, but got"
            f" {largest}."
        )
    end = min(last, largest)
    return (
        np.geomspace(first, end, min(count, int(2 * np.log2(end / first)) + 1))
        .round()
        .astype(int)
        .tolist()
    )


def _dataset(
    rows: list[tuple[float, ...]], fits: dict[int, Fit], shares: dict[int, Fit]
) -> xr.Dataset:
    names = (
        "k",
        "dim",
        "search",
        "search_low",
        "search_high",
        "descent",
        "descent_low",
        "descent_high",
        "censored",
    )
    data = xr.Dataset(
        {
            name: ("point", np.array(column))
            for name, column in zip(names, zip(*rows, strict=True), strict=True)
        }
    )
    for name, found in (("exponent", fits), ("ratio_exponent", shares)):
        data[name] = (
            ("exponents", "part"),
            np.array([[f.slope, f.error, f.low, f.high] for f in found.values()]),
        )
    return data.assign_coords(
        exponents=list(fits), part=["slope", "error", "low", "high"]
    )


def draw(data: xr.Dataset) -> Figure:
    """Search on the left, descent over search on the right; lines have the predicted
    powers, through the means.
    """
    from twolayer.plot.style import DIRECTIONS

    drawing, (left, right) = sheet(2, height=4.6)
    for i, k in enumerate(data.exponents.values):
        own = data.isel(point=np.flatnonzero(data.k.values == k))
        n, colour, mark = own.dim.values, DIRECTIONS[i], "os^D"[i % 4]
        slope, error, *_ = data.exponent.values[i]
        label = rf"$k={k}$: exponent {slope:.2f} ± {2 * error:.2f}" + (
            r" of $\tau/\log N$" if k == 2 else ""
        )
        median_points(left, n, own, "search", colour, label, mark)
        fine = np.geomspace(n[0], n[-1], 60)
        predicted = _through(
            n, own.search.values, fine, max(k - 1.0, 1.0), float(k == 2)
        )
        left.plot(
            fine,
            predicted,
            color=colour,
            lw=1,
            ls="--",
            label=rf"predicted $\tau \propto {law(int(k))}$",
        )
        ratio = own.descent.values / own.search.values
        median_points(
            right, n, own, "descent", colour, f"$k={k}$", mark, 1 / own.search.values
        )
        if k > 1:
            words = r"$1/\log N$" if k == 2 else rf"$N^{{-{(k - 2) / 2:g}}}$"
            predicted = _through(n, ratio, fine, -(k - 2) / 2, -float(k == 2))
            right.plot(
                fine, predicted, color=colour, lw=1, ls="--", label=f"predicted {words}"
            )
    for ax in (left, right):
        ax.set(xscale="log", yscale="log", xlabel="dimension $N$")
        plain_ticks(ax.xaxis)
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=7.5
        )
    left.set(ylabel=rf"samples until $m \geq {LEVELS[0]}$", title="search")
    right.set(ylabel=rf"descent to $m \geq {LEVELS[1]}$ over search", title="descent")
    headline(
        drawing,
        data,
        "From random starts: for k ≥ 2 the descent is an ever smaller part (medians,"
        " bars: 95 %)",
    )
    return drawing


def _through(
    n: np.ndarray, values: np.ndarray, fine: np.ndarray, power: float, logs: float
) -> np.ndarray:
    """N^power (log N)^logs with the constant that fits best: the geometric mean of
    values over law.
    """

    def shape(x: np.ndarray) -> np.ndarray:
        return np.asarray(x**power * np.log(x) ** logs)

    seen = np.isfinite(values)
    return np.asarray(
        shape(fine) * np.exp(np.log(values[seen] / shape(n[seen].astype(float))).mean())
    )


def _verdict(
    data: xr.Dataset, fits: dict[int, Fit], shares: dict[int, Fit], seeds: int
) -> Verdict:
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
            # at finite N the search still gains on its own law, so for k ≥ 3 the ratio
            # may fall faster than its limit
            limit = -(k - 2) / 2
            checks.append(
                near(
                    f"k = {k}: exponent of"
                    f" descent/search{' · log N' if k == 2 else ''}",
                    share.slope,
                    0.0 if k == 2 else (-np.inf, limit),
                    share.error,
                    allowance=ALLOWANCE + 0.1 * (k - 2),
                    resolution=RATIO,
                    count=len(fits),
                )
            )
        notes.append(
            f"k = {k}: 95 % from {fit.low:.3f} to {fit.high:.3f}, descent/search"
            f" {ratio[0]:.3g} → {ratio[-1]:.3g} from N = {own.dim.values[0]:.0f} to"
            f" {own.dim.values[-1]:.0f}, {int(own.censored.sum())} of"
            f" {seeds * len(ratio)} runs censored"
        )
    return verdict(
        "the search takes N^max(k−1, 1) samples, and the descent an ever smaller part",
        checks,
        "; ".join(notes),
    )
