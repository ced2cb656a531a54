"""Angles, norms and the cubic lower bound along one descent of several rectifiers.

    L ≥ ‖w_i‖² (θ_i − sin θ_i cos θ_i)/4π ≥ ‖w_i‖² θ_i³/4π³        for every student i

The norms settle with Σ‖w_i‖ → ‖v‖ long before the angles have gone, and no student's
bound is ever above the loss.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.last_mile import DASHES, POPULATION, descents_of, students_of
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, between, holds, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import require
from twolayer.numerics.statistics import power_law


@figure(
    "last-mile-angles",
    "angles and norms of rectifiers that learn one rectifier, and the cubic lower bound"
    " on their loss",
    quick={"steps": 100_000, "descents": 2},
    fixed={
        "target": "the bound ‖w‖² θ³/4π³ is proved for one rectifier as the teacher",
        "activation": "the bound ‖w‖² θ³/4π³ is proved for rectifiers",
        "geometry": (
            "norms of the students are learned, and their sum is what is learned first"
        ),
    },
    group="recovery",
    papers=("xu2023",),
)
def last_mile_angles(
    *,
    seed: int = 0,
    students: int = 4,
    steps: int = 1_000_000,
    descents: int = 16,
    lr: float = 0.2,
) -> Finding:
    """Descents from random starts; the first is drawn, the bound is checked along all
    of them.
    """
    require(students >= 2, "students", students, "at least 2")
    require(
        steps >= 10_000,
        "steps",
        steps,
        "at least 10000, for a last decade to be fitted",
    )
    data = part("descents", lambda: descents_of(students, steps, lr, seed, descents))
    late = data.step.values > steps / 10
    turns = [
        power_law(data.step.values[late], row[late]).slope
        for row in data.angle.max("neuron").transpose("descent", "point").values
    ]
    data["turn"] = "descent", turns
    task = task_of(students_of(students), tl.SGD(lr)).replace(
        "batch 1, fresh samples", POPULATION
    )
    return Finding(data, _verdict(data), task)


def draw(data: xr.Dataset) -> Figure:
    """Angles, norms and bounds of every student; marks stand at places of their own, so
    that no line is hidden.
    """
    from twolayer.plot.style import COLOURS, DIRECTIONS, positive

    drawing, (left, middle, right) = sheet(3, width=3.7, height=3.9)
    own = data.isel(descent=0, point=slice(1, None))
    t, count = told(data).lr * own.step.values, own.sizes["neuron"]
    for i in range(count):
        look: Options = {
            "color": DIRECTIONS[i],
            "ls": DASHES[i % len(DASHES)],
            "lw": (
                2.6 - 1.6 * i / max(1, count - 1)
            ),  # the first is drawn below the others, and is the widest
            "marker": "os^DvP*"[i % 7],
            "ms": 5,
            "markevery": (i * len(t) // (5 * count), max(1, len(t) // 5)),
        }
        left.plot(t, positive(own.angle[:, i]), label=rf"$\theta_{{{i + 1}}}$", **look)
        middle.plot(t, own.norm[:, i], label=rf"$\|w_{{{i + 1}}}\|$", **look)
        right.plot(
            t, positive(own.bound[:, i]), label=f"bound by student {i + 1}", **look
        )
    middle.plot(
        t, own.norm.sum("neuron"), color=COLOURS["theory"], lw=1.2, ls="--", label="sum"
    )
    right.plot(t, positive(own.loss), color=COLOURS["theory"], lw=2, label="loss")
    left.set(
        xscale="log",
        yscale="log",
        xlabel=r"$\eta T$",
        ylabel="angle to the teacher",
        title="angles",
    )
    middle.set(
        xscale="log", xlabel=r"$\eta T$", ylabel="norm", ylim=(0, None), title="norms"
    )
    right.set(
        xscale="log",
        yscale="log",
        xlabel=r"$\eta T$",
        ylabel="loss",
        title="lower bound",
    )
    left.legend(loc="lower left")
    middle.legend(loc="center right")
    right.legend(loc="lower left", fontsize=7.5)
    headline(
        drawing,
        data,
        f"{count} students from a random start: their sum is learned at once, the"
        " angles are not",
    )
    return drawing


def _verdict(data: xr.Dataset) -> Verdict:
    ratio = data.bound.max("neuron") / data.loss
    turns = data.turn.values
    whole = float(np.abs(data.norm.isel(point=-1).sum("neuron") - 1).max())
    count = data.sizes["descent"] * data.sizes["point"]
    checks = [
        between(
            f"largest bound over the loss, {count} points of {len(turns)} descents",
            0.0,
            float(ratio.max()),
            1.0,
        ),
        between("steepest fall of a widest angle", -1.05, float(turns.min()), -0.95),
        between("slowest fall of a widest angle", -1.05, float(turns.max()), -0.95),
        holds(whole < 1e-3, f"norms sum to 1 within {whole:.1g}, threshold 0.001"),
    ]
    note = (
        f"At the ends the bound is {float(ratio.isel(point=-1).mean()):.4f} of the loss"
        " on average"
    )
    return verdict("the cubic bound holds, and angles fall as 1/T", checks, note)
