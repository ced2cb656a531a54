"""How often a student is wrong: squared, logistic and hinge loss on labels ±1, true and
flipped.

    f = a erf(λ/√2),    y = sign(z1):    error = q + (1 − 2q) arccos(M/√Q)/π,
        chain at d against the ODE in samples/d

Left: true labels. The hinge loss stops pushing samples beyond its margin, the others go
on for ever. Right: one label in ten is flipped, and with a constant rate the error
stays above its least value q. Lines are the limit, points the mean over runs of the
exact chain with three standard errors.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, holds, largest, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.wide import averaged
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import require

LOSSES = ("squared", "logistic", "hinge")
MARKERS = {"squared": "o", "logistic": "s", "hinge": "^"}
RESOLUTION = 0.05  # of the error
FINITE = 4.0  # the chain differs from its limit by no more than this over d


@figure(
    "classification-error",
    "classification error of squared, logistic and hinge loss, with true and with"
    " flipped labels",
    quick={"dim": 300, "seeds": 24, "alpha": 6.0},
    group="mean-field",
    papers=("saad1995", "goldt2019"),
)
def classification_error(
    *,
    seed: int = 0,
    dim: int = 1000,
    seeds: int = 48,
    alpha: float = 30.0,
    gamma: float = 1.0,
    scale: float = 2.0,
    flips: tuple[float, ...] = (0.0, 0.1),
    target: str = "sign(z1)",
    activation: str = "erf",
    geometry: str = "free",
) -> Finding:
    """Runs up to ``alpha`` samples per dimension at lr = γ/d; a = ``scale``, so that
    outputs reach the margin.
    """
    from twolayer.gaussian.loss_and_error import binary

    problem = chosen_problem(target, activation, 1, second_layer=[scale])
    require(
        binary(problem),
        "target",
        target,
        "a function of z1 with values ±1, such as 'sign(z1)'",
    )
    found = {}
    for q in flips:
        for loss in LOSSES:
            asked = (
                problem.replace(flips=q),
                tl.SGD(lr=gamma * tl.d**-1, loss=loss, geometry=geometry),
            )
            found[q, loss] = part(
                f"{loss}-{q:g}", partial(_pair, *asked, dim, seeds, gamma * alpha, seed)
            )
    data = xr.concat(list(found.values()), "row", data_vars=["limit", "error"])
    data = data.assign(
        flips=("row", [q for q, _ in found]), loss=("row", [loss for _, loss in found])
    )
    return Finding(data, _verdict(found, dim, seeds), task_of(problem))


def _pair(
    problem: tl.Problem, algorithm: tl.SGD, dim: int, seeds: int, time: float, seed: int
) -> xr.Dataset:
    """Classification errors of the limit, and mean and standard error over runs of the
    chain, at equal α.
    """
    start = tl.Overlaps([[1.0]], [[0.1]])
    ends: Options = {"time": time, "save": 24}
    limit = tl.solve(problem, algorithm, tl.ODE(), start, **ends)
    runs = tl.solve(
        problem, algorithm, tl.Chain(dim), start, seeds=seeds, seed=seed, **ends
    )
    return xr.Dataset(
        {
            "alpha": ("point", limit.alpha.values),
            "limit": ("point", limit.error.values[0]),
            "error": (("point", "moment"), np.stack(averaged(runs.error), axis=1)),
        }
    )


def _verdict(
    found: dict[tuple[float, str], xr.Dataset], dim: int, seeds: int
) -> Verdict:
    checks = []
    for (q, loss), runs in found.items():
        mean, error = runs.error.values[1:].T
        gap = mean - runs.limit.values[1:]
        what = f"{loss} loss, q = {q:g}: chain − ODE"
        room: Options = {
            "resolution": RESOLUTION,
            "allowance": FINITE / dim,
            "freedom": seeds - 1.0,
        }
        checks.append(largest(what, gap, error, **room))
    for q in dict.fromkeys(q for q, _ in found):
        ends = {loss: float(found[q, loss].limit[-1]) for loss in LOSSES}
        each = ", ".join(f"{loss} {value:.3f}" for loss, value in ends.items())
        checks.append(
            holds(
                all(q < value < 0.5 for value in ends.values()),
                f"q = {q:g}: between q and 1/2: {each}",
            )
        )
    return verdict("the error of every loss follows its equation", checks)


def draw(data: xr.Dataset) -> Figure:
    """A panel for each share of flipped labels."""
    from twolayer.plot.style import DIRECTIONS, GREY

    chosen = told(data)
    drawn, axes = sheet(len(chosen.flips), width=4.2)
    for ax, q in zip(axes, chosen.flips, strict=True):
        for loss, colour, dash in zip(
            LOSSES, DIRECTIONS, ("-", "--", "-."), strict=False
        ):
            row = data.isel(
                row=int(np.flatnonzero((data.flips == q) & (data.loss == loss))[0])
            )
            ax.plot(
                data.alpha, row.limit, dash, color=colour, label=f"ODE, {loss} loss"
            )
            mean, error = row.error.values[1:].T
            marks: Options = {
                "ls": "",
                "marker": MARKERS[loss],
                "ms": 3,
                "mfc": "none",
                "lw": 0.8,
            }
            ax.errorbar(
                data.alpha[1:],
                mean,
                3 * error,
                color=colour,
                label=f"chain, {loss} loss",
                **marks,
            )
        if q:
            ax.axhline(q, color=GREY, lw=0.8, ls=":")
        ax.set(
            xlabel=r"$\alpha$ = samples / $d$",
            title=f"{q:.0%} of the labels flipped" if q else "true labels",
        )
        ax.set_yscale("log")
    axes[0].set_ylabel("classification error")
    axes[0].legend(fontsize=7.5)
    sphere = "" if chosen.geometry == "free" else f", {chosen.geometry}"
    headline(
        drawn,
        data,
        f"lr = {chosen.gamma:g}/d{sphere}; runs at d = {chosen.dim} (bars: 3 s.e.)",
    )
    return drawn
