"""Which equation is left as d → ∞: the plane of batch sizes n0 d^μ and learning rates
γ0 d^(−δ), with three points run.

    dM = A psi dt,   dQ = A (phi + phiᵀ) dt + B (γ0/(p n0)) chi dt
    δ > 1 − μ             A = 1, B = 0    gradient flow,
        what is left out falls as d^(1−μ−δ)
    δ = 1 − μ             A = 1, B = 1    Saad and Solla,                        as 1/d
    (1−μ)/2 < δ < 1 − μ   A = 0, B = 1    pure noise,
        as d^(−(1−μ−δ))

Points of the other panels: the exact chain at two dimensions, from one start; lines:
the ODE that its laws select.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import headline, points, power, sheet, task_of
from twolayer.gallery.shared.judging import Verdict, largest, unknown, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Variables
from twolayer.numerics.errors import choice
from twolayer.numerics.statistics import standard_error

POINTS = {
    "gradient flow": (0.5, 1.0, 1.0),
    "Saad–Solla": (0.0, 1.0, 0.3),
    "pure noise": (0.0, 0.75, 0.3),
}
"""μ, δ and γ0 of the points."""

FADES = {"gradient flow": 0.5, "Saad–Solla": 1.0, "pure noise": 0.25}
"""Power of 1/d with which the limit is approached."""

RESOLUTION = 0.5  # of the range of an overlap
SHARE = 1.0  # of the range, times d^(−power): what the limit leaves out of the task
STANDARD = (
    "He2(z1)",
    "He2",
    "projected",
)  # for others it is read off at the first dimension
END = {"gradient flow": 1.0, "Saad–Solla": 1.0, "pure noise": 2.5}
"""Where runs end, on the clock of their regime: t, or t d^(1−μ−δ) where noise alone is
left.
"""


@figure(
    "ode-regimes",
    "the regimes of the limiting equation in the (μ, δ) plane, with runs at one point"
    " of each",
    quick={"dims": (100, 1000), "far": (1000, 100_000), "seeds": 16},
    group="phase-diagram",
)
def ode_regimes(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (1000, 10_000),
    far: tuple[int, ...] = (10_000, 1_000_000),
    seeds: int = 32,
    target: str = "He2(z1)",
    activation: str = "He2",
    geometry: str = "projected",
    noise: float = 0.1,
    saves: int = 8,
) -> Finding:
    """M_11 of the chain and of the limit; pure noise, which is approached slowly, at
    the dimensions ``far``.

    Free weights are left out: noise lengthens them and moves no overlap.
    """
    problem = chosen_problem(target, activation, 1, width=2, noise=noise)
    choice("geometry", geometry, ("projected", "spherical"))
    rows: dict[str, list[xr.Dataset]] = {}
    for name, (mu, delta, gamma) in POINTS.items():
        algorithm = tl.SGD(lr=gamma * tl.d**-delta, batch=tl.d**mu, geometry=geometry)
        rows[name] = [
            part(
                f"{name}-{dim}",
                partial(_both, problem, algorithm, dim, END[name], saves, seeds, seed),
            )
            for dim in (far if name == "pure noise" else dims)
        ]
    data = xr.Dataset(
        coords={
            "regime": list(POINTS),
            "size": np.arange(len(dims)),
            "save": np.arange(saves + 1),
        }
    )
    data["dim"] = (
        ("regime", "size"),
        np.array([far if name == "pure noise" else dims for name in POINTS]),
    )
    for key in ("clock", "limit", "mean", "error"):
        data[key] = (
            ("regime", "size", "save"),
            np.array([[row[key].values for row in rows[name]] for name in POINTS]),
        )
    for key in ("fine", "line"):
        data[key] = (
            ("regime", "point"),
            np.array([rows[name][-1][key].values for name in POINTS]),
        )
    laws = f"fresh batches n0 d^μ, lr = γ0 d^(−δ), {geometry}"
    return Finding(
        data,
        _verdict(data, seeds, (target, activation, geometry) == STANDARD),
        f"{task_of(problem)}\n{laws}",
    )


def _both(
    problem: tl.Problem,
    algorithm: tl.SGD,
    dim: int,
    end: float,
    saves: int,
    seeds: int,
    seed: int,
) -> Variables:
    """M_11 of the chain and of the limit at the same steps."""
    start = tl.Overlaps([[1.0, 0.1], [0.1, 1.0]], [[0.5], [0.3]], dim=dim)
    unit = float(dim) ** max(1 - algorithm.mu - algorithm.delta, 0.0)
    end = end / unit
    coarse = tl.solve(problem, algorithm, tl.ODE(), start, time=end, save=saves)
    steps = np.maximum(np.round(coarse.step.values), np.arange(saves + 1)).astype(int)
    runs = tl.solve(
        problem, algorithm, tl.Chain(dim), start, steps=steps, seeds=seeds, seed=seed
    )
    clock = np.interp(steps, coarse.step.values, coarse.time.values)
    fine = tl.solve(problem, algorithm, tl.ODE(), start, time=end, save=200)
    M = runs.M.values[:, :, 0, 0]
    return {
        "clock": clock * unit,
        "limit": np.interp(clock, fine.time.values, fine.M.values[0, :, 0, 0]),
        "mean": M.mean(0),
        "error": standard_error(M),
        "fine": fine.time.values * unit,
        "line": fine.M.values[0, :, 0, 0],
    }


def _verdict(data: xr.Dataset, seeds: int, standard: bool) -> Verdict:
    checks, notes = [], []
    for name in map(str, data.regime.values):
        each = data.sel(regime=name)
        span = float(each.limit.max() - each.limit.min())
        last = each.isel(size=-1)
        worst = np.abs(each["mean"] - each.limit).max("save").values / span
        share = SHARE if standard else worst[0] * float(each.dim[0]) ** FADES[name]
        if not standard and data.sizes["size"] < 2:
            checks.append(
                unknown(
                    f"{name}: what the limit leaves out needs two dimensions at least"
                )
            )
            continue
        checks.append(
            largest(
                f"{name}, d = {int(last.dim)}: chain − limit, {RESOLUTION:.0%} of the"
                " range of M resolved",
                (last["mean"] - last.limit)[1:],
                last.error[1:],
                allowance=share * span * float(last.dim) ** -FADES[name],
                resolution=RESOLUTION * span,
                freedom=seeds - 1,
            )
        )
        told = " and ".join(
            f"{x:.3f} of the range at d = {int(n)}"
            for x, n in zip(worst, each.dim.values, strict=True)
        )
        notes.append(f"{name}: off by {told}")
    return verdict(
        "in each regime SGD follows the equation that its laws select",
        checks,
        "; ".join(notes),
    )


def draw(data: xr.Dataset) -> Figure:
    """The plane with its regimes, and one panel for each point."""
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

    figure, (plane, *panels) = sheet(2, rows=2, width=4.4, height=3.4)
    mu = np.linspace(0, 1.6, 201)
    line = np.where(mu < 1, 1 - mu, 0)
    for low, high, colour in (
        (line, 1.4, DIRECTIONS[0]),
        (line / 2, line, DIRECTIONS[2]),
        (-0.4, line / 2, GREY),
    ):
        plane.fill_between(mu, low, high, color=colour, alpha=0.22, lw=0)
    plane.plot([0, 1], [1, 0], color=DIRECTIONS[1], lw=2.2, label="Saad–Solla")
    plane.plot(
        [0, 1], [0.5, 0], "--", color=COLOURS["theory"], lw=1.2, label="noise map"
    )
    plane.plot([1, 1.6], [0, 0], color=COLOURS["theory"], lw=2.2, label="giant steps")
    for text, x, y in (
        ("gradient flow", 0.75, 0.75),
        ("pure\nnoise", 0.1, 0.56),
        ("blow-up in one step", 0.5, -0.22),
    ):
        plane.text(x, y, text, fontsize=8)
    plane.set(xlim=(0, 1.6), ylim=(-0.4, 1.4))
    plane.set(
        xlabel=r"$\mu$   ($n_b \sim d^{\mu}$)",
        ylabel=r"$\delta$   (lr $\sim d^{-\delta}$)",
    )
    plane.set_title(r"what is left as $d \to \infty$")
    plane.legend(fontsize=7, loc="upper right")
    for i, (name, ax) in enumerate(zip(data.regime.values, panels, strict=True)):
        each = data.sel(regime=name)
        x, y = POINTS[str(name)][:2]
        plane.plot(
            [x],
            [y],
            "os^"[i],
            color=COLOURS["theory"],
            mfc="white",
            ms=7,
            zorder=6,
            clip_on=False,
        )
        ax.plot(each.fine, each.line, color=COLOURS["theory"], label="ODE, its limit")
        for j, dim in enumerate(each.dim.values):
            word = f"chain, $d = {power(int(dim))}$"
            points(
                ax,
                each.clock[j],
                each["mean"][j],
                each.error[j],
                DIRECTIONS[j],
                word,
                "os"[j % 2],
                "none",
            )
        ax.set_title(rf"{'○□△'[i]} {name}: $\mu = {x:g}$, $\delta = {y:g}$", fontsize=9)
        ax.set(
            xlabel=r"$t\,d^{1-\mu-\delta}$" if name == "pure noise" else "$t$",
            ylabel=r"$M_{11}$",
        )
        ax.legend(fontsize=7)
    headline(
        figure, data, "The regimes of the limiting equation (bars: two standard errors)"
    )
    return figure
