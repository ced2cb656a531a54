"""One pass or the same batch again: what gradient descent learns in a few steps of n =
α d samples.

    fresh:    E[y z_V | z_U] ≠ 0                (information exponent 1, staircases)
    reused:   E[z_V | y, z_U] ≠ 0               (generative exponent 1)

tanh is learned either way, He3 by reused batches only, He2 by neither in finitely many
steps; so are the directions of z1 + z1 z2, of z1 + He3(z2) and of z1 z2 z3. Without
noise α = 3 samples show every one of these directions exactly: what a few steps leave
is left by the method, for the best possible is neurons along them, an overlap as long
as they.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.analysis.exponents import Staircase
from twolayer.gallery.shared.drawing import (
    headline,
    mark_steps,
    points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, holds, verdict
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.stepping import StepPair, agree, follow, strength
from twolayer.numerics.errors import positive_integer

TARGETS = ("tanh(z1)", "h3(z1)", "h2(z1)", "z1 + z1*z2", "z1 + h3(z2)", "z1*z2*z3")
WAYS = ("fresh", "reused")
LEARNED = 5.0  # standard errors of the theory's averages, and at least this overlap:
LEAST = 6e-3
EXACT = 3.0  # n/d from which on `best_possible` ends at exact recovery of all `TARGETS`


@figure(
    "reuse-or-fresh",
    "overlaps by fresh and by reused batches for targets that both, only reused, or"
    " neither learn",
    quick={
        "dim": 100,
        "seeds": (16, 16, 16, 16, 16, 16),
        "steps": 2,
        "tolerance": 4e-3,
    },
    group="giant-steps",
)
def reuse_or_fresh(
    *,
    seed: int = 0,
    targets: tuple[str, ...] = TARGETS,
    activation: str = "tanh(z + 0.7)",
    geometry: str = "free",
    dim: int = 1000,
    seeds: tuple[int, ...] = (128, 2400, 128, 128, 128, 128),
    alpha: float = 3.0,
    eta: float = 0.6,
    steps: int = 4,
    tolerance: float = 1e-3,
) -> Finding:
    """Root-mean-square overlaps with each direction, in theory (GiantSteps, DMFT) and
    runs (Chain, Vectors).

    A number of runs for each target: what reused batches learn of He3 is faint.
    """
    if len(seeds) != len(targets):
        raise tl.InputError(
            f"Argument `seeds` must have a number for each of {len(targets)} targets,"
            f" but got {seeds}."
        )
    for n in seeds:
        positive_integer("seeds", n, 2)
    positive_integer("steps", steps, 2)
    pairs: dict[tuple[str, str], StepPair] = {}
    stairs: dict[tuple[str, str], Staircase] = {}
    for target, runs in zip(targets, seeds, strict=True):
        problem = tl.Problem(
            target, activation, width=2, second_layer=[2**0.5, -(2**0.5)]
        )
        analysis = tl.analyse(target)
        fresh = tl.SGD(lr=alpha * eta, batch=alpha * tl.d, geometry=geometry)
        lenses = {
            "fresh": (fresh, tl.GiantSteps(), tl.Chain(dim)),
            "reused": (
                fresh.replace(dataset=fresh.batch),
                tl.DMFT(tl.Averages(accuracy=tolerance)),
                tl.Vectors(dim),
            ),
        }
        for way, (algorithm, theory, experiment) in lenses.items():
            key = f"{target}-{way}"
            pairs[target, way] = follow(
                key, problem, algorithm, theory, experiment, steps, runs, seed
            )
            stairs[target, way] = analysis.staircase(activation, reuse=way == "reused")
    data = _data(pairs, stairs, targets)
    task = (
        task_of(problem, fresh)
        .replace(f"target {target}", "targets as named")
        .replace("fresh samples", "fresh or the same")
    )
    return Finding(data, _verdict(data, pairs), task)


def _data(
    pairs: dict[tuple[str, str], StepPair],
    stairs: dict[tuple[str, str], Staircase],
    targets: tuple[str, ...],
) -> xr.Dataset:
    most = max(len(x) for x in stairs.values())
    steps = next(iter(pairs.values())).theory.sizes["time"]
    shape = (len(targets), len(WAYS), steps, most)
    overlap, error, runs, runs_error = (np.full(shape, np.nan) for _ in range(4))
    floor, length = np.full(shape[:3], np.nan), np.full(shape[:3], np.nan)
    predicted = np.full((*shape[:2], most), np.nan)
    for (target, way), pair in pairs.items():
        at = targets.index(target), WAYS.index(way)
        found = stairs[target, way]
        k = len(found)
        overlap[at][:, :k] = strength(pair.theory.M.values[0] @ found.directions.T)
        own = (
            pair.theory.M_error.values[0]
            if "M_error" in pair.theory
            else np.zeros_like(pair.theory.M.values[0])
        )
        error[at][:, :k] = strength(own @ np.abs(found.directions.T))
        mean, se = pair.mean("M")
        seen, spread = mean @ found.directions.T, np.sqrt(se**2 @ found.directions.T**2)
        runs[at][:, :k] = strength(seen)
        # of the root of a mean square, to first order in the errors of its terms
        runs_error[at][:, :k] = (
            strength(seen * spread)
            / np.maximum(strength(seen), 1e-12)
            / np.sqrt(mean.shape[1])
        )
        floor[at] = np.sqrt((se**2).mean((1, 2)))
        length[at] = np.sqrt(
            np.trace(pair.theory.Q.values[0], axis1=1, axis2=2) / mean.shape[1]
        )
        predicted[at][:k] = [np.inf if x is None else x for x in found]
    dims = ("target", "way", "step", "direction")
    return xr.Dataset(
        {
            "overlap": (dims, overlap),
            "error": (dims, error),
            "overlap_runs": (dims, runs),
            "overlap_runs_error": (dims, runs_error),
            "floor": (dims[:3], floor),
            "length": (dims[:3], length),
            "predicted": (("target", "way", "direction"), predicted),
        },
        {"target": list(targets), "way": list(WAYS), "step": np.arange(steps)},
    )


def _verdict(data: xr.Dataset, pairs: dict[tuple[str, str], StepPair]) -> Verdict:
    checks, notes = [], []
    for target in data.target.values:
        said = []
        for way in WAYS:
            cell = data.sel(target=target, way=way)
            there = ~np.isnan(cell.predicted.values)
            last, error = cell.overlap.values[-1, there], cell.error.values[-1, there]
            floor = np.maximum(LEARNED * error, LEAST)
            numbers = ", ".join(
                f"{x:.3f} over {y:.3f}" for x, y in zip(last, floor, strict=True)
            )
            checks.append(
                holds(
                    ((last > floor) == np.isfinite(cell.predicted.values[there])).all(),
                    f"{target}, {way}: the theory learns as predicted (overlaps over"
                    f" thresholds {numbers})",
                )
            )
            both = zip(last, cell.overlap_runs.values[-1, there], strict=True)
            said.append(f"{way} " + ", ".join(f"{x:.3f} ({y:.3f})" for x, y in both))
        notes.append(f"{target}: " + "; ".join(said))
    for way in WAYS:
        own = [pair for (_, kind), pair in pairs.items() if kind == way]
        checks.append(agree(f"{way} batches, runs − theory", own, ("M", "Q")))
    claim = (
        "fresh batches learn what has information exponent one, reused ones what has"
        " generative exponent one"
    )
    return verdict(claim, checks, "Overlaps, runs in brackets: " + " | ".join(notes))


LINEAR, TICKS = (
    0.05,
    (0, 0.02, 0.05, 0.1, 0.2, 0.5, 1),
)  # the axis of overlaps: linear to here, then logarithmic


def draw(data: xr.Dataset) -> Figure:
    """A panel for each target: fresh batches dashed and open, reused ones solid and
    full.
    """
    from twolayer.plot.best_possible import best_line
    from twolayer.plot.style import DIRECTIONS, GREY

    chosen = told(data)
    columns = min(3, data.sizes["target"])
    figure, panels = sheet(
        columns, rows=-(-data.sizes["target"] // columns), width=3.9, height=3.7
    )
    t = data.step.values
    for ax, target in zip(panels, data.target.values, strict=False):
        for way, style, face in (("fresh", "--", "none"), ("reused", "-", None)):
            cell = data.sel(target=target, way=way)
            label = "noise of the runs" if way == "reused" else "_"
            ax.fill_between(t, 0, cell.floor, color=GREY, alpha=0.2, lw=0, label=label)
            for r in range(int((~np.isnan(cell.predicted.values)).sum())):
                colour, mark = DIRECTIONS[r], "os^"[r % 3]
                ax.plot(
                    t,
                    cell.overlap[:, r],
                    style,
                    color=colour,
                    label=f"theory, $v_{r + 1}$, {way}",
                )
                seen, error = cell.overlap_runs[:, r], cell.overlap_runs_error[:, r]
                points(
                    ax, t, seen, error, colour, f"runs, $v_{r + 1}$, {way}", mark, face
                )
        if chosen.alpha >= EXACT and target in TARGETS:
            best_line(ax, t[1:], data.length.sel(target=target, way="reused")[1:])
        mark_steps(ax, len(t) - 1)
        ax.set(title=str(target), ylabel="overlap, rms over neurons")
        ax.set_yscale("symlog", linthresh=LINEAR)
        ax.set(ylim=(0, 3), yticks=TICKS, yticklabels=[f"{x:g}" for x in TICKS])
        ax.minorticks_off()
    for ax in panels[data.sizes["target"] :]:
        ax.set_axis_off()
    entries = {
        label: mark
        for ax in panels
        for mark, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        entries.values(), entries, loc="outside lower center", ncols=4, fontsize=7.5
    )
    least, most = min(chosen.seeds), max(chosen.seeds)
    runs = f"{least} runs" if least == most else f"{least} to {most} runs"
    headline(
        figure,
        data,
        f"Fresh (dashed, open) and reused batches (solid, full); {runs} at d ="
        f" {chosen.dim}",
    )
    return figure
