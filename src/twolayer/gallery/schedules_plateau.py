"""Schedules through a plateau: phase retrieval with constant and with falling rates,
against the best there can be.

    u = m²:   du/ds = 8γ u(1 − u) − γ² u [48(1 − u) + 4Δ],   lr = γ(s)/d,  s = step/d
        (projected, y = z1² + √Δ ξ)
    best at every moment:   γ*(u) = (1 − u)/(12(1 − u) + Δ),
        s = (3 + Δ/4) log(u/(1 − u)) + (Δ/4)/(1 − u) + const

While nothing is learned the best rate is that of the escape, 1/(12 + Δ); afterwards it
has to fall, in the end as 1/(4s), or the noise of the labels stays in the weights. A
cosine that falls from the first step on loses its time on the plateau. There is one
order parameter: what is best at every moment is best.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer import d
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import (
    Check,
    Verdict,
    between,
    holds,
    near,
    verdict,
)
from twolayer.gallery.shared.measuring import SPHERES
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.errors import choice
from twolayer.numerics.statistics import standard_error
from twolayer.task.scaling import Scaling

NOISE, START, SPAN = (
    0.5,
    0.1,
    40.0,
)  # Δ, m at the start, and the length of the run in samples/d
FASTEST = 1 / (12 + NOISE)
PROBLEM = tl.Problem("z1**2", "square", noise=NOISE)
LAWS = {
    "constant": 0.0445310 / d,  # the best constant rate for this length
    "cosine": FASTEST / d * tl.schedules.cosine(SPAN),
    "late cosine": FASTEST / d * tl.schedules.cosine(18, floor=0.1, after=22),
    "inverse": FASTEST / d * tl.schedules.inverse(scale=4, after=22),
}
LOOKS = (
    ("o", "-"),
    ("s", "--"),
    ("^", "-."),
    ("D", (0, (4, 1, 1, 1, 1, 1))),
)  # marker and dash of each law
CLOSE = 0.1  # what a finite dimension may change, of the risk


@figure(
    "schedules-plateau",
    "excess risk of phase retrieval with constant and falling rates, and with the best",
    quick={"dim": 1000, "seeds": 64},
    fixed={
        "target": "the equation of u = m² and the best rate of all are those of z1**2",
        "activation": (
            "the equation of u = m² and the best rate of all are those of squares"
        ),
    },
    group="escape",
)
def schedules_plateau(
    *, seed: int = 0, dim: int = 4000, seeds: int = 128, geometry: str = "projected"
) -> Finding:
    """The limit and runs of three schedules, from an overlap of 0.1 to forty times d
    samples.
    """
    choice("geometry", geometry, SPHERES)
    found = [
        part(name, partial(_runs, law, geometry, dim, seeds, seed))
        for name, law in LAWS.items()
    ]
    data = xr.concat(found, "law", coords="minimal", compat="override").assign_coords(
        law=list(LAWS)
    )
    rate, risk = _best(data.alpha.values)
    data = data.assign(best=("save", risk), best_lr=("save", rate))
    return Finding(data, _verdict(data), task_of(PROBLEM))


def _runs(law: Scaling, geometry: str, dim: int, seeds: int, seed: int) -> xr.Dataset:
    algorithm, start = tl.SGD(law, geometry=geometry), tl.Overlaps([[1.0]], [[START]])
    limit = tl.solve(PROBLEM, algorithm, tl.ODE(), start, alpha=SPAN, save=80)
    runs = tl.solve(
        PROBLEM,
        algorithm,
        tl.Chain(dim),
        start,
        alpha=SPAN,
        save=80,
        seeds=seeds,
        seed=seed,
    )
    excess = {
        "ode": ("save", limit.excess_risk.values[0]),
        "chain": (("seed", "save"), runs.excess_risk.values),
    }
    return xr.Dataset(
        {"lr": ("save", limit.lr.values), **excess},
        {"alpha": ("save", limit.alpha.values)},
    )


def _best(alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best rate d·lr and the excess risk 2(1 − u) with it, from the implicit
    solution.
    """
    u = 1 / (1 + np.exp(-np.linspace(np.log(START**2 / (1 - START**2)), 20, 20_001)))
    s = (3 + NOISE / 4) * np.log(u / (1 - u)) + NOISE / 4 / (1 - u)
    here = np.interp(alpha, s - s[0], u)
    return (1 - here) / (12 * (1 - here) + NOISE), 2 * (1 - here)


def _flow(law: str) -> float:
    """The excess risk at the end from the equation of u, by steps of its own."""
    gammas: dict[str, Callable[[float], float]] = {
        "constant": lambda s: 0.0445310,
        "cosine": lambda s: FASTEST * (1 + np.cos(np.pi * s / SPAN)) / 2,
        "late cosine": lambda s: (
            FASTEST
            * (0.1 + 0.9 * (1 + np.cos(np.pi * np.clip((s - 22) / 18, 0, 1))) / 2)
        ),
        "inverse": lambda s: FASTEST / (1 + np.maximum(s - 22, 0) / 4),
    }
    gamma, u, h = gammas[law], START**2, SPAN / 40_000

    def rate(s: float, u: float) -> float:
        return float(
            u * (8 * gamma(s) * (1 - u) - gamma(s) ** 2 * (48 * (1 - u) + 4 * NOISE))
        )

    for n in range(40_000):
        middle = u + h / 2 * rate(n * h, u)
        u = u + h * rate((n + 0.5) * h, middle)
    return float(2 * (1 - u))


def _verdict(data: xr.Dataset) -> Verdict:
    end, checks = data.isel(save=-1), list[Check]()
    best = float(end.best)
    for law in LAWS:
        limit, runs = float(end.ode.sel(law=law)), end.chain.sel(law=law).values
        checks.append(
            between(
                f"{law}: the ODE over the equation of u",
                0.9999,
                limit / _flow(law),
                1.0001,
                digits=4,
            )
        )
        spread = 1.2533 * float(
            standard_error(np.log(runs))
        )  # of the logarithm of a median
        ratio = float(np.log(np.median(runs) / limit))
        what = f"{law}: logarithm of the median of the runs over the ODE"
        checks.append(
            near(
                what,
                ratio,
                0.0,
                spread,
                resolution=1.0,
                allowance=CLOSE,
                freedom=len(runs) - 1,
                count=len(LAWS),
            )
        )
        checks.append(
            holds(
                limit > best,
                f"{law} leaves {limit:.5f}, above the best possible {best:.5f}",
            )
        )
    constant = float(end.ode.sel(law="constant"))
    for law in list(LAWS)[1:]:
        share = float(end.ode.sel(law=law)) / constant
        expected = "more, for it falls on the plateau" if law == "cosine" else "less"
        text = f"{law} leaves {share:.2f} of what the best constant leaves, {expected}"
        checks.append(holds(share > 1 if law == "cosine" else share < 1, text))
    return verdict(
        "rates that fall after the plateau beat the best constant one, and none beats"
        " the optimum",
        checks,
    )


def draw(data: xr.Dataset) -> Figure:
    """The rates, and the excess risk that they lead to."""
    from twolayer.plot.style import COLOURS, DIRECTIONS

    drawn, (left, right) = sheet(2)
    for law, colour, (marker, dash) in zip(LAWS, DIRECTIONS, LOOKS, strict=False):
        here = data.sel(law=law)
        left.plot(data.alpha, here.lr, ls=dash, color=colour, label=law)
        right.plot(data.alpha, here.ode, ls=dash, color=colour, label=f"ODE, {law}")
        low, middle, high = np.quantile(here.chain.values, (0.1, 0.5, 0.9), axis=0)
        right.fill_between(data.alpha, low, high, color=colour, alpha=0.15, lw=0)
        right.plot(
            data.alpha[::5],
            middle[::5],
            marker,
            ms=3.5,
            color=colour,
            label=f"runs, {law}",
        )
    left.plot(
        data.alpha,
        data.best_lr,
        ":",
        color=COLOURS["theory"],
        label="best there can be",
    )
    right.plot(
        data.alpha, data.best, ":", color=COLOURS["theory"], label="best there can be"
    )
    left.set(xlabel=r"samples$/d$", ylabel=r"$d\cdot$lr", title="Rate in force")
    right.set(
        xlabel=r"samples$/d$",
        ylabel="excess risk",
        yscale="log",
        title="medians, 80 % of runs",
    )
    left.legend()
    right.legend(fontsize=7.5, loc="lower left")
    headline(
        drawn, data, f"{told(data).geometry}, batch 1; runs at d = {told(data).dim}"
    )
    return drawn
