"""One rectifier learned by one student and by several: exponential convergence against
T^−3.

    n = 1:  L ~ (1 − η/2)^{2T}        n ≥ 2:  L ~ T^−3,  angles ~ 1/T
        (gradient descent on the population loss)
    n = 2, symmetric:  λ2 → π/(2ηT),  L → π²/(6 (ηT)³)

Slopes are fitted to the last decade.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.stats import linregress

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import Check, Verdict, between, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import InputError, require
from twolayer.numerics.statistics import Fit, power_law

TOLERANCE = 0.02  # of slopes, relative
START = (0.3, 0.4)  # λ1, λ2 of the symmetric pair
DIM = 100
POPULATION = "gradient descent on the population loss"
DASHES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))


@figure(
    "last-mile",
    "loss against steps for one rectifier and for several that learn one rectifier",
    quick={"steps": 1_000_000},
    fixed={
        "target": "T^−3 and 1 − η/2 are proved for one rectifier as the teacher",
        "activation": "T^−3 and 1 − η/2 are proved for rectifiers",
        "geometry": (
            "norms of the students are learned, and their sum is what is learned first"
        ),
    },
    group="recovery",
    papers=("xu2023",),
)
def last_mile(
    *,
    seed: int = 0,
    students: tuple[int, ...] = (1, 2, 4, 10),
    steps: int = 10_000_000,
    lr: float = 0.2,
) -> Finding:
    """Descents from random starts on the sphere of radius 1/n, and the recursion of the
    symmetric pair.
    """
    if min(students) != 1 or len(students) < 2:
        raise InputError(
            f"Argument `students` must hold 1 and larger numbers, but got {students}."
        )
    require(
        steps >= 10_000,
        "steps",
        steps,
        "at least 10000, for a last decade to be fitted",
    )
    runs = {
        n: part(f"n={n}", partial(_run, n, steps, lr, seed))
        for n in sorted(set(students))
    }
    pair = tl.relu.symmetric_pair(*START, lr, steps)
    data = xr.concat(list(runs.values()), "students").assign_coords(students=list(runs))
    late = data.step.values > steps / 10
    slopes = {
        n: power_law(data.step.values[late], data.loss.sel(students=n).values[late])
        for n in runs
        if n > 1
    }
    turns = {
        n: power_law(data.step.values[late], data.angle.sel(students=n).values[late])
        for n in runs
        if n > 1
    }
    data["slope"] = "students", [slopes[n].slope if n > 1 else np.nan for n in runs]
    data["turn"] = "students", [turns[n].slope if n > 1 else np.nan for n in runs]
    data["pair"] = (
        ("kind", "pair_point"),
        np.stack([pair.step, pair.excess, pair.orthogonal, pair.loss]),
    )
    data = data.assign_coords(kind=["step", "excess", "orthogonal", "loss"])
    task = (
        task_of(students_of(2), tl.SGD(lr))
        .replace("p = 2, a = 2", "p = a = n")
        .replace("batch 1, fresh samples", POPULATION)
    )
    return Finding(data, _verdict(data, slopes, turns, lr), task)


def students_of(n: int) -> tl.Problem:
    """n rectifiers whose sum is to be one rectifier."""
    return tl.Problem(tl.Teacher("relu"), "relu", width=n, second_layer=[n] * n)


def descents_of(
    n: int, steps: int, lr: float, seed: int, descents: int | None = None
) -> xr.Dataset:
    """Losses, angles to the teacher, norms and bounds from random starts, at save
    points in geometric progression.
    """
    problem = students_of(n)
    drawn = tl.Overlaps.random(problem, DIM, seed, descents)
    starts = tl.Overlaps(drawn.Q / n**2, drawn.M / n, dim=DIM)
    run = tl.solve(
        problem, tl.SGD(lr), tl.Population(), starts, steps=steps, save="log"
    )
    found = tl.relu.relu_students(run)
    each = ("descent", "point", "neuron")
    return xr.Dataset(
        {
            "loss": (("descent", "point"), run.excess_risk.values),
            "angle": (each, found.angle),
            "norm": (each, found.norm),
            "bound": (each, found.bound),
        },
        {"step": ("point", run.step.values)},
    )


def _run(n: int, steps: int, lr: float, seed: int) -> xr.Dataset:
    """Loss, largest angle to the teacher and sum of the norms of one descent."""
    found = descents_of(n, steps, lr, seed).isel(descent=0).drop_vars("bound")
    return found.assign(angle=found.angle.max("neuron"), norm=found.norm.sum("neuron"))


def _rate(data: xr.Dataset) -> float:
    """Decay of the logarithm of the loss of one student per step, where it is small but
    not yet rounding.
    """
    loss, step = data.loss.sel(students=1).values, data.step.values
    seen = (loss < 1e-6) & (loss > 1e-26)
    return float(-linregress(step[seen], np.log(loss[seen])).slope)


def draw(data: xr.Dataset) -> Figure:
    """Losses and widest angles, with the laws of the symmetric pair."""
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY, positive

    lr = told(data).lr
    drawing, (left, right) = sheet(2, height=3.9)
    t = lr * data.step.values[1:]
    pair = data.pair.sel(kind=["step", "orthogonal", "loss"]).values[:, 1:]
    for i, n in enumerate(data.students.values):
        own, dash = data.sel(students=n), DASHES[i % len(DASHES)]
        label = (
            "n = 1: exponential" if n == 1 else f"n = {n}: slope {float(own.slope):.3f}"
        )
        left.plot(
            t, positive(own.loss.values[1:]), color=DIRECTIONS[i], ls=dash, label=label
        )
        if n > 1:
            right.plot(
                t,
                own.angle.values[1:],
                color=DIRECTIONS[i],
                ls=dash,
                label=f"n = {n}, widest angle",
            )
    left.plot(
        lr * pair[0], positive(pair[2]), color=GREY, lw=1.0, label="symmetric pair"
    )
    late = np.geomspace(10, t[-1], 50)
    law: Options = {"color": COLOURS["theory"], "ls": ":", "lw": 1.4}
    left.plot(late, np.pi**2 / (6 * late**3), label=r"$\pi^2/(6\,(\eta T)^3)$", **law)
    right.plot(
        lr * pair[0], pair[1], color=GREY, lw=1.0, label=r"symmetric pair, $\lambda_2$"
    )
    right.plot(late, np.pi / (2 * late), label=r"$\pi/(2\,\eta T)$", **law)
    left.set(
        xscale="log",
        yscale="log",
        xlabel=r"$\eta T$",
        ylabel="population loss",
        title="loss",
        ylim=(1e-26, 1e4),
    )
    right.set(
        xscale="log",
        yscale="log",
        xlabel=r"$\eta T$",
        ylabel="radians",
        title="what is left to turn",
    )
    left.legend(loc="upper right", fontsize=7.5)
    right.legend(loc="lower left")
    headline(
        drawing,
        data,
        "One student learns one rectifier exponentially fast, several only as $T^{-3}$",
    )
    return drawing


def _verdict(
    data: xr.Dataset, slopes: dict[int, Fit], turns: dict[int, Fit], lr: float
) -> Verdict:
    def close(what: str, value: float, expected: float) -> Check:
        ends = sorted((expected * (1 - TOLERANCE), expected * (1 + TOLERANCE)))
        return between(what, ends[0], value, ends[1], digits=4)

    step, _, orthogonal, loss = data.pair.values[:, -1]
    checks = [
        close(
            "n = 1: fall of log L in a step",
            _rate(data),
            float(-2 * np.log(1 - lr / 2)),
        )
    ]
    for n, fit in slopes.items():
        checks.append(close(f"n = {n}: slope of the loss", fit.slope, -3.0))
        checks.append(
            close(f"n = {n}: slope of the widest angle", turns[n].slope, -1.0)
        )
    checks.append(
        close(
            "symmetric pair: λ2·2ηT/π", float(orthogonal * 2 * lr * step / np.pi), 1.0
        )
    )
    checks.append(
        close(
            "symmetric pair: L·6(ηT)³/π²",
            float(loss * 6 * (lr * step) ** 3 / np.pi**2),
            1.0,
        )
    )
    ends = ", ".join(
        f"{float(data.loss.sel(students=n)[-1]):.3g} (n = {n})" for n in slopes
    )
    return verdict(
        "one student learns exponentially fast, several as T^−3",
        checks,
        f"L at the end {ends}",
    )
