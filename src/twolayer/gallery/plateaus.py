"""Plateaus: a run with its saddles, how long they last at finite d, and where perfect learning loses its stability.

    F(x) = 0,  κ the largest eigenvalue of ∂F/∂x:    t = log(d)/(2κ) + const        (a saddle left from order d^(−1/2))
    phase retrieval, projected:   du/dt = 2κ u(1 − u),  κ = 4(1 − 6γ),   mean exit (log d + γ_E + log 2)/(2κ)
    K:C = μ (JC + CJ),    γ_c = p² n_b/μ

Left: a committee of two neurons on its symmetric plateau. Middle: exits of the exact chain from random starts. Right:
the critical rate of committees, in the units of Saad and Solla, beside the formula that holds for C ∝ I.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer import d
from twolayer.gallery.shared.drawing import headline, plain_ticks, points, sheet, task_of, told
from twolayer.gallery.shared.judging import Check, Verdict, between, holds, near, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure

SQUARE = tl.Problem("He2(z1)", "He2")
ESCAPE = tl.SGD(lr=0.05 / d, geometry="projected")
COMMITTEE = tl.SGD(lr=0.5 / d)
BIAS = 0.05  # of the slope: what fluctuations on the way out change between the dimensions shown


def committee(p: int) -> tl.Problem:
    """Student and teacher of p neurons."""
    return tl.Problem(tl.Teacher("erf", k=p), "erf", width=p)


@figure(
    "plateaus",
    "a run with its plateau, lengths of plateaus against d, and the critical learning rate against width",
    quick={"dims": (200, 800, 3200), "seeds": 256, "widths": (1, 2, 3, 4, 6, 8), "judged": (1, 2)},
    papers=("saad1995", "arnaboldi2023escaping"),
)
def plateaus(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (200, 800, 3200, 12_800, 51_200),
    seeds: int = 512,
    widths: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24),
    judged: tuple[int, ...] = (1, 2, 3),
) -> Finding:
    """The ODE of a committee, exits of the chain, and the critical rates by two routes."""
    run = part("run", partial(_run, seed))
    exits = [part(f"d={dim}", partial(_exits, dim, seeds, seed)).exit.values for dim in dims]
    saddle = part("saddle", _saddle)
    rates = part("critical", partial(_critical, widths, judged))
    data = xr.merge([run, rates]).assign(exit=(("dim", "run"), np.array(exits)), kappa=float(saddle.kappa))
    data = data.assign_coords(dim=list(dims))
    return Finding(data, _verdict(data), task_of(committee(2), COMMITTEE))


def _run(seed: int) -> xr.Dataset:
    problem = committee(2)
    start = tl.Overlaps.random(problem, dim=1000, seed=seed + 1)
    run = tl.solve(problem, COMMITTEE, tl.ODE(), start, time=400, save=400)
    found = tl.stability.plateaus(problem, COMMITTEE, run)
    rows = {
        "begin": [x.begin for x in found],
        "end": [x.end for x in found],
        "level": [x.point.excess_risk for x in found],
        "rate": [x.point.rate for x in found],
        "growing": [x.point.unstable for x in found],
    }
    known: dict[str, Any] = {name: ("plateau", values) for name, values in rows.items()}
    known |= {"risk": ("time", run.excess_risk.values[0]), "learned": ("step_of_chain", found.learned)}
    known["in_order"] = int(found.in_order is True)
    return xr.Dataset(known, {"time": run.time.values})


def _saddle() -> dict[str, float]:
    point = tl.fixed_points(SQUARE, ESCAPE, tl.Overlaps([[1.0]], [[0.0]]))[0]
    return {"kappa": point.rate}


def _exits(dim: int, seeds: int, seed: int) -> dict[str, Any]:
    """When the excess risk of each run has fallen to half."""
    start = tl.Overlaps.random(SQUARE, dim, seed=seed, size=seeds)
    run = tl.solve(SQUARE, ESCAPE, tl.Chain(dim), start, time=6, save=600, seed=seed)
    below = run.excess_risk.values <= 1.0
    return {"exit": np.where(below.any(1), run.time.values[below.argmax(1)], np.nan)}


def _critical(widths: tuple[int, ...], judged: tuple[int, ...]) -> xr.Dataset:
    """γ_c, and the growth rate of the linearised ODE a hundredth below and above it."""
    law = [tl.critical_lr(committee(p)) for p in widths]
    sides = [
        [_top(p, tl.critical_lr(committee(p)) * factor) for factor in (0.99, 1.01)]
        for p in judged
    ]  # fmt: skip
    return xr.Dataset(
        {"critical": ("width", [x.coefficient for x in law]), "side": (("judged", "factor"), sides)},
        {"width": list(widths), "judged": list(judged), "factor": [0.99, 1.01]},
    )


def _top(p: int, lr: Any) -> float:
    problem = committee(p)
    return tl.fixed_points(problem, tl.SGD(lr=lr), tl.stability.perfect_point(problem))[0].rate


def _slope(data: xr.Dataset) -> tuple[float, float]:
    """Slope of the mean exit against log d, and its standard error."""
    x = np.log(data.dim.values) - np.log(data.dim.values).mean()
    means, errors = data.exit.mean("run").values, data.exit.std("run", ddof=1).values / np.sqrt(data.sizes["run"])
    weight = x / (x**2).sum()
    return float(weight @ means), float(np.sqrt((weight**2 * errors**2).sum()))


def _verdict(data: xr.Dataset) -> Verdict:
    checks = list[Check]()
    flow = 2 / math.pi * 3**-0.5 * 5**-1.5  # of gradient flow, γ → 0
    share = float(data.rate[0]) / flow
    checks.append(between("committee: κ over that of gradient flow in closed form", 0.98, share, 1.0))
    one = data.sizes["plateau"] == 1 and int(data.growing[0]) == 1
    checks.append(holds(one, f"committee: {data.sizes['plateau']} plateau with 1 growing direction, 1 expected"))
    text = ", ".join(f"{x:.0f}" for x in data.learned.values)
    checks.append(holds(bool(data.in_order), f"directions are learned at t = {text}, all in the order of the chain"))
    kappa = float(data.kappa)
    slope, error = _slope(data)
    what = "exits of the chain: 2κ × slope against log d"
    scale = 2 * kappa
    checks.append(near(what, scale * slope, 1.0, scale * error, resolution=0.3, allowance=BIAS))
    for p, (below, above) in zip(data.judged.values, data.side.values, strict=True):
        said = f"{below:.2g} and {above:.2g} at 0.99 and 1.01 of the critical rate, expected below and above 0"
        checks.append(holds(below < 0 < above, f"p = {p}: largest eigenvalues of the linearised ODE {said}"))
    return verdict(
        "runs stall at saddles of the limit, for a time log(d)/(2κ), and learn up to the critical rate", checks
    )


def draw(data: xr.Dataset) -> Figure:
    """The run, the exits and the critical rates."""
    drawn, (left, middle, right) = sheet(3, width=3.9)
    for begin, end, level, rate in zip(*(data[x].values for x in ("begin", "end", "level", "rate")), strict=True):
        left.axvspan(begin, min(end, float(data.time[-1])), color="#e8eef6", lw=0)
        left.axhline(level, color="#777777", ls="--", lw=1.2, label=rf"saddle, $\kappa$ = {rate:.4f}")
    left.plot(data.time, data.risk, color="#1a1a1a")
    for when, colour, word in zip(data.learned.values, ("#1f77b4", "#d95f02"), ("first", "second"), strict=False):
        left.axvline(when, color=colour, ls=":", lw=1.4, label=f"{word} direction learned")
    left.set(xlabel=r"$t$", ylabel="excess risk", yscale="log", ylim=(1e-7, 1), title="Committee of two (ODE)")
    left.legend(loc="lower left")
    kappa, dims = float(data.kappa), data.dim.values
    line = np.geomspace(dims[0] / 2, dims[-1] * 2, 50)
    shift = np.euler_gamma + math.log(2)
    middle.plot(line, (np.log(line) + shift) / (2 * kappa), color="#1a1a1a", label=r"$(\log d+\mathrm{const})/2\kappa$")
    errors = data.exit.std("run", ddof=1) / np.sqrt(data.sizes["run"])
    points(middle, dims, data.exit.mean("run"), errors, "#1f77b4", "exact chain, mean")
    middle.set(xscale="log", xlabel=r"$d$", ylabel=r"$t$ at half the risk", title="Phase retrieval, random start")
    middle.legend()
    p, scaled = data.width.values, data.critical / data.width**2
    wide = np.linspace(p[0], p[-1], 100)
    right.plot(
        wide, math.sqrt(3) * math.pi / (wide - 1 + 3 / math.sqrt(5)), "--", color="#777777", label=r"$C\propto I$"
    )
    right.plot(p, scaled, "o-", ms=4, color="#1a1a1a", label=r"$\gamma_c/p^2$")
    seen = data.critical.sel(width=data.judged.values) / data.judged.values**2
    right.plot(data.judged, seen, "o", ms=9, mfc="none", color="#d95f02", label="sign of the Jacobian")
    right.set(xscale="log", yscale="log", xlabel=r"$p$", ylabel=r"$\gamma_c/p^2$", title="Critical rate of committees")
    plain_ticks(right.xaxis)
    right.legend()
    about = told(data)
    headline(drawn, data, f"middle: $z_1^2 - 1$, lr = 0.05/d, projected, {about.seeds} runs at each d")
    return drawn
