"""Staircases: which directions giant steps on fresh batches learn, and at which step,
for three activations.

    U_{t+1} = U_t + span_u E[y z_V | z_U = u],
        a coupling He_α(z_U) z_V passes only if E[σ^(|α|+1)] ≠ 0

Odd activations (erf) cannot use couplings of odd degree, ReLU none of even degree from
2 on, a shifted tanh all of them. What `analyse` predicts from the target and the
activation is compared with the map of the limit, and the map with runs at finite d.
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
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import positive_integer

TARGETS = (
    "z1 + z1*z2",
    "z1 + z1*z2 + z1*z2*z3",
    "z1 + He2(z1)*z2",
    "z1 + sign(z1*z2)",
    "tanh(z1 + He3(z2))",
    "z1 + He3(z2)",
    "z1*z2",
    "z1*z2*z3",
    "sign(z1*z2*z3) + He4(z1)",
)
ACTIVATIONS = ("tanh(z + 0.7)", "relu", "erf")
EDGE = 3e-4  # smallest overlap that is drawn where it is
SEEN, LEARNED = 1e-3, 5e-3  # overlaps at the step of discovery, and at the last one


@figure(
    "staircases",
    "steps at which fresh giant batches learn each direction of nine targets, for three"
    " activations",
    quick={"dim": 150, "seeds": 8, "log2_points": 18},
    group="giant-steps",
)
def staircases(
    *,
    seed: int = 0,
    targets: tuple[str, ...] = TARGETS,
    activations: tuple[str, ...] = ACTIVATIONS,
    dim: int = 8000,
    seeds: int = 96,
    alpha: float = 4.0,
    lr: float = 4.0,
    steps: int = 4,
    geometry: str = "projected",
    log2_points: int = 20,
) -> Finding:
    """Projected steps of four neurons that start orthogonal to the target.

    Overlaps that stay zero are told from small ones, which asks for more
    ``log2_points`` than a risk does. The map is that of the limit, which means of runs
    miss by a multiple of 1/d: 768 runs at d = 1000 see that (11 standard errors), 96 at
    d = 8000 scatter as little and do not.
    """
    positive_integer("seeds", seeds, 2)
    positive_integer("steps", steps, 3)
    algorithm = tl.SGD(lr=lr, batch=alpha * tl.d, geometry=geometry)
    pairs: dict[tuple[str, str], StepPair] = {}
    stairs: dict[tuple[str, str], Staircase] = {}
    for target in targets:
        analysis = tl.analyse(target)
        for activation in activations:
            problem = tl.Problem(
                target, activation, width=4, second_layer=[1.0, -1.2, 0.8, -0.9]
            )
            key = target, activation
            lenses = (
                tl.GiantSteps(averages=tl.Averages(points=2**log2_points)),
                tl.Chain(dim),
            )
            pairs[key] = follow(
                "-".join(key), problem, algorithm, *lenses, steps, seeds, seed
            )
            stairs[key] = analysis.staircase(activation)
    data = _data(pairs, stairs, targets, activations)
    task = task_of(problem, algorithm).replace(f"target {target}", "targets as named")
    return Finding(
        data,
        _verdict(data, pairs),
        task.replace(f"student {activation}", "students as named"),
    )


def _data(
    pairs: dict[tuple[str, str], StepPair],
    stairs: dict[tuple[str, str], Staircase],
    targets: tuple[str, ...],
    activations: tuple[str, ...],
) -> xr.Dataset:
    """Overlaps with the directions in the order learned; directions that a target does
    not have are NaN.
    """
    most = max(len(x) for x in stairs.values())
    steps = next(iter(pairs.values())).theory.sizes["time"]
    shape = (len(targets), len(activations))
    overlap, runs = (np.full((*shape, steps, most), np.nan) for _ in range(2))
    floor, predicted = np.full((*shape, steps), np.nan), np.full((*shape, most), np.nan)
    for (target, activation), pair in pairs.items():
        at = targets.index(target), activations.index(activation)
        found = stairs[target, activation]
        k = len(found)
        overlap[at][:, :k] = strength(pair.theory.M.values[0] @ found.directions.T)
        mean, se = pair.mean("M")
        runs[at][:, :k] = strength(mean @ found.directions.T)
        floor[at] = np.sqrt((se**2).mean((1, 2)))
        predicted[at][:k] = [np.inf if x is None else x for x in found]
    dims = ("target", "activation", "step", "direction")
    data = xr.Dataset(
        {
            "overlap": (dims, overlap),
            "overlap_runs": (dims, runs),
            "floor": (dims[:3], floor),
        },
        {
            "target": list(targets),
            "activation": list(activations),
            "step": np.arange(steps),
        },
    )
    data["predicted"] = (("target", "activation", "direction"), predicted)
    data["learned"] = (("target", "activation", "direction"), _learned(overlap))
    return data


def _learned(overlap: np.ndarray) -> np.ndarray:
    """First step at which a direction shows, infinite for one that is not there at the
    end either.
    """
    shown = np.argmax(overlap > SEEN, axis=-2).astype(float)
    last = overlap[..., -1, :]
    return np.where(np.isnan(last), np.nan, np.where(last > LEARNED, shown, np.inf))


def _verdict(data: xr.Dataset, pairs: dict[tuple[str, str], StepPair]) -> Verdict:
    there = np.isfinite(data.overlap.values[..., -1, :])
    right = data.predicted.values[there] == data.learned.values[there]
    wrong = [
        f"{target} with {activation}"
        for target in data.target.values
        for activation in data.activation.values
        if not _same(data.sel(target=target, activation=activation))
    ]
    checks = [
        holds(
            right.all(),
            f"{int(right.sum())} of {right.size} directions are learned by the map at"
            " the predicted step, or never as"
            f" predicted{': not ' + ', '.join(wrong) if wrong else ''}, all expected",
        ),
        agree("runs − map", pairs.values(), ("M", "Q")),
    ]
    return verdict(
        "fresh giant batches learn direction after direction, as the staircase of the"
        " target says",
        checks,
    )


def _same(cell: xr.Dataset) -> bool:
    return bool(
        np.array_equal(cell.predicted.values, cell.learned.values, equal_nan=True)
    )


def draw(data: xr.Dataset) -> Figure:
    """A row for each target, a column for each activation; what is below the axis is a
    mark at its foot, no slope.
    """
    from twolayer.plot.style import DIRECTIONS, GREY

    chosen = told(data)
    rows, columns = data.sizes["target"], data.sizes["activation"]
    figure, panels = sheet(
        columns, rows=rows, width=3.3, height=1.75 if rows > 3 else 2.6
    )
    t = data.step.values
    for i, ax in enumerate(panels):
        cell = data.isel(target=i // columns, activation=i % columns)
        floor = 2 * cell.floor.values[1:]
        ax.fill_between(
            t[1:], EDGE, floor, where=floor > EDGE, color=GREY, alpha=0.2, lw=0
        )
        for r in range(int((~np.isnan(cell.predicted.values)).sum())):
            step = cell.predicted.values[r]
            word = "never" if np.isinf(step) else f"step {int(step)}"
            overlap, colour, mark = (
                cell.overlap[:, r].values,
                DIRECTIONS[r],
                "os^"[r % 3],
            )
            seen = overlap >= EDGE
            ax.plot(
                t,
                np.where(seen, overlap, np.nan),
                "-",
                color=colour,
                label=f"$v_{r + 1}$: {word}",
            )
            below: Options = {
                "color": colour,
                "ms": 4,
                "clip_on": False,
                "transform": ax.get_xaxis_transform(),
            }
            ax.plot(t[~seen] + 0.06 * r, np.zeros((~seen).sum()), "v", **below)
            runs = cell.overlap_runs[1:, r].values
            points(
                ax,
                t[1:],
                np.where(runs >= EDGE, runs, np.nan),
                0 * t[1:],
                colour,
                "_",
                mark,
                "none",
            )
        ax.set(yscale="log", ylim=(EDGE, 1.5))
        mark_steps(ax, chosen.steps)
        ax.set_xlabel("step" if i // columns == rows - 1 else "")
        if i < columns:
            ax.set_title(str(cell.activation.values))
        if i % columns == 0:
            ax.set_ylabel(str(cell.target.values), fontsize=7.5)
        ax.legend(
            fontsize=6.5, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.2
        )
    runs = (
        f"open marks {chosen.seeds} runs at d = {chosen.dim}, grey their noise;"
        " legends: predicted step"
    )
    headline(
        figure,
        data,
        "Overlap with each direction: lines GiantSteps (▾ zero or below the axis),"
        f" {runs}",
    )
    return figure
