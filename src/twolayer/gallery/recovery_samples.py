"""Probability of weak recovery below and above the critical number of samples.

    α ≪ α_c(N, k): no recovery,    α ≫ α_c(N, k): recovery;    α = samples/N,
        α_c = 1, log N, N^{k−2}

Judged at α = c α_c N^{∓1/4}, where c α_c N is what the flow takes from m = N^{−1/2}: as
N grows the probability falls to 0 on one side and rises to 1 on the other.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, sheet, told
from twolayer.gallery.shared.judging import Check, Verdict, holds, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.recovering import (
    LEVELS,
    asked,
    flow_samples,
    require_exponents,
    task,
)
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Variables
from twolayer.numerics.significance import LEVEL, limit_of
from twolayer.numerics.statistics import wilson
from twolayer.numerics.verdict import compare_ranges

POWER = 0.25
LOW, HIGH = 0.15, 0.6  # probabilities at the largest N that are low and high
RANGES = {1: 64, 2: 64, 3: 4, 4: 1}
"""How many times larger than for k = 4 the dimensions may be at the same cost."""


@figure(
    "recovery-samples",
    "probability of finding the direction below and above the critical number of"
    " samples",
    quick={"dims": (20, 40), "seeds": 64},
    fixed={
        "target": "chosen by `exponents`: h_k is the task of information exponent k",
        "activation": (
            "chosen by `exponents`: h_k learns a target h_k, and has no other exponent"
        ),
    },
    group="recovery",
    papers=("benarous2021",),
)
def recovery_samples(
    *,
    seed: int = 0,
    exponents: tuple[int, ...] = (1, 2, 3),
    dims: tuple[int, ...] = (16, 48, 144),
    seeds: int = 256,
    geometry: str = "spherical",
) -> Finding:
    """First passages through η from random starts on the half sphere; dimensions are
    multiplied where k is small.
    """
    require_exponents(exponents, geometry)
    rows = []
    for k in exponents:
        for base in sorted(dims):
            n = base * RANGES[k]
            unit = flow_samples(k, n, n**-0.5, LEVELS[0])
            end = unit * n**POWER
            run = part(
                f"k={k},N={n}", partial(_weak, *task(k, geometry), n, end, seeds, seed)
            )
            low, high = (
                int((run.weak.values <= unit * n**x).sum()) for x in (-POWER, POWER)
            )
            rows.append(
                (k, n, unit, wilson(low, seeds), wilson(high, seeds), run.weak.values)
            )
    data = xr.Dataset(
        {
            "k": ("point", [row[0] for row in rows]),
            "dim": ("point", [row[1] for row in rows]),
            "unit": ("point", [row[2] for row in rows]),
            "below": (("point", "part"), np.array([row[3] for row in rows])),
            "above": (("point", "part"), np.array([row[4] for row in rows])),
            "weak": (("point", "seed"), np.array([row[5] for row in rows])),
        },
        {"part": ["value", "low", "high"]},
    )
    return Finding(data, _verdict(data, exponents), asked(geometry))


def _weak(
    problem: tl.Problem,
    algorithm: tl.SGD,
    dim: int,
    samples: float,
    seeds: int,
    seed: int,
) -> Variables:
    """Samples until weak recovery."""
    # what comes after weak recovery does not matter here: the levels are next to each
    # other
    levels = (LEVELS[0], LEVELS[0] + 1e-6)
    return {
        "weak": (
            tl.recovery(
                problem, algorithm, dim, levels, samples=samples, seeds=seeds, seed=seed
            ).weak
        )
    }


def draw(data: xr.Dataset) -> Figure:
    """A panel for each exponent: the share of runs that have recovered, at
    several N.
    """
    from twolayer.plot.style import DIRECTIONS, GREY

    exponents = told(data).exponents
    drawing, axes = sheet(len(exponents), width=3.6, height=3.9)
    for ax, k in zip(axes, exponents, strict=True):
        own = data.isel(point=np.flatnonzero(data.k.values == k))
        for i in range(own.sizes["point"]):
            row, colour, mark = own.isel(point=i), DIRECTIONS[i], "os^D"[i % 4]
            n, times = int(row.dim), np.sort(row.weak.values) / float(row.unit)
            share = np.arange(1, len(times) + 1) / len(times)
            seen = np.isfinite(times)
            first = min([n**-POWER / 2, *times[seen] / 2])
            x = np.concatenate([[first], times[seen], [n**POWER]])
            y = np.concatenate(
                [[0.0], share[seen], [share[seen][-1] if seen.any() else 0.0]]
            )
            dash = ("-", "--", "-.", ":")[i % 4]
            ax.step(x, y, where="post", color=colour, ls=dash, lw=1.4, label=f"N = {n}")
            for where, found in ((-POWER, row.below.values), (POWER, row.above.values)):
                error = np.abs(
                    [[found[0] - found[1]], [found[2] - found[0]]]
                )  # rounding may be negative
                ax.errorbar(
                    n**where, found[0], error, fmt=mark, ms=5, color=colour, capsize=2
                )
        ax.axvline(1.0, color=GREY, lw=0.8, ls=":", label="what the flow takes")
        for edge in (LOW, HIGH):
            ax.axhline(edge, color=GREY, lw=0.8, ls="--")
        unit = {1: "$c$", 2: r"$c\,\log N$", 3: r"$c\,N$"}.get(
            k, f"$c\\,N^{{{k - 2}}}$"
        )
        ax.set(
            xscale="log",
            ylim=(-0.03, 1.03),
            xlabel=f"samples/N in units of {unit}",
            title=f"information exponent {k}",
        )
        ax.legend(loc="upper left", fontsize=7.5)
    axes[0].set_ylabel(f"probability that m has reached {LEVELS[0]}")
    told_so = f"dashed levels: at most {LOW:g} and at least {HIGH:g} are expected"
    headline(
        drawing,
        data,
        rf"Marks: $\alpha = c\,\alpha_c N^{{\mp 1/4}}$ with 95 % intervals; {told_so}",
    )
    return drawing


def _verdict(data: xr.Dataset, exponents: tuple[int, ...]) -> Verdict:
    checks, notes = [], []
    runs, level = data.sizes["seed"], 1 - LEVEL / (2 * len(exponents))
    for k in exponents:
        own = data.isel(point=np.flatnonzero(data.k.values == k))
        below, above = own.below.values, own.above.values
        last = int(own.dim[-1])
        for side, found, sign, edge in (
            ("below", below, -1, LOW),
            ("above", above, 1, HIGH),
        ):
            few = wilson(round(found[-1, 0] * runs), runs, level)
            expected = {"most": edge} if sign < 0 else {"least": edge}
            checks.append(
                Check(
                    compare_ranges(few.low, few.high, **expected),
                    f"k = {k}, N = {last}: probability {few.value:.3f} ({few.low:.3f}"
                    f" to {few.high:.3f}) {side} the critical number,"
                    f" {'at most' if sign < 0 else 'at least'} {edge:g} expected",
                )
            )
            # probabilities move apart with N, if they have not arrived already
            change = sign * (found[-1, 0] - found[0, 0])
            error = np.sqrt(
                sum(p * (1 - p) + 1 / runs for p in found[[0, -1], 0]) / runs
            )
            back = -limit_of(2 * len(exponents)) * error
            checks.append(
                holds(
                    change >= back,
                    f"it has moved by {change:+.3f} to its side, threshold {back:+.3f}",
                )
            )
        notes.append(
            f"k = {k}: {below[0, 0]:.3f} and {above[0, 0]:.3f} at N = {int(own.dim[0])}"
        )
    return verdict(
        "recovery sets in at the critical number of samples", checks, "; ".join(notes)
    )
