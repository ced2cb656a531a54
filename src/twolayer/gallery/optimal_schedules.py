"""Optimal schedules: the best learning rate at every moment, by gradients through the dynamics, and what it gains.

    minimise ε(S) over γ(s):    dX/ds = γ f₁(X) + γ² f₂(X),    lr = γ/d,  s = samples/d
    linear student:   γ* = ε/(ε + Δ/2) → 1/s,      ε(S) = Δ/(2W(x₀e^{x₀+S})),  x₀ = Δ/(2ε₀)
    phase retrieval:  γ* = (1 − u)/(12(1 − u) + Δ),   S = (3 + Δ/4) log(u/(1 − u)) + (Δ/4)/(1 − u) between u₀ and u

Two tasks have one order parameter, where greedy is optimal and known; the committee has seven, and a plateau. The law
found in the limit is run at finite d by the exact chain, against the best constant with the same random numbers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.optimize import brentq
from scipy.special import lambertw

import twolayer as tl
from twolayer import d
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import Check, Verdict, between, holds, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure

TASKS: dict[str, tuple[tl.Problem, tl.SGD, float]] = {
    "linear": (tl.Problem("z1", "linear", noise=0.2), tl.SGD(lr=0.2 / d), 10.0),
    "phase retrieval": (
        tl.Problem("z1**2", "square", noise=0.5),
        tl.SGD(lr=0.04 / d, geometry="projected"),
        60.0,
    ),
    "committee": (tl.Problem(tl.Teacher("erf", k=2), "erf", width=2, noise=0.01), tl.SGD(lr=2 / d), 200.0),
}
BEGIN = 1000  # the dimension of the random starts
OUTCOME = {"wins": "agrees", "loses": "differs", "undecided": "undecided"}


@figure(
    "optimal-schedules",
    "optimal learning rates and their excess risk against the best constant: linear, phase retrieval, committee",
    quick={"pieces": 16, "restarts": 1, "dim": 500, "seeds": 48},
    papers=("saad1995", "arnaboldi2023escaping"),
)
def optimal_schedules(
    *, seed: int = 0, pieces: int = 32, restarts: int = 3, dim: int = 2000, seeds: int = 256
) -> Finding:
    """Three optima in the limit, and contests with the best constant by the exact chain."""
    kept = [part(name, partial(_best, name, pieces, restarts, dim, seeds, seed)) for name in TASKS]
    data = xr.concat(kept, "task").assign_coords(task=list(TASKS))
    return Finding(data, _verdict(data), task_of(TASKS["committee"][0]))


def _start(name: str, seed: int) -> tl.Overlaps:
    if name == "linear":
        return tl.Overlaps([[0.0]], [[0.0]])
    if name == "phase retrieval":
        return tl.Overlaps([[1.0]], [[BEGIN**-0.5]])
    found = tl.Overlaps.random(TASKS[name][0], BEGIN, seed=seed + 1)
    return tl.Overlaps(found.Q, found.M, found.P, found.a)


def _best(name: str, pieces: int, restarts: int, dim: int, seeds: int, seed: int) -> xr.Dataset:
    problem, algorithm, span = TASKS[name]
    found = tl.optimise(
        problem, algorithm, _start(name, seed), horizon=span, pieces=pieces, restarts=restarts, bounds=(0, 8 / d)
    )
    contest = found.compare(dim, seeds, seed=seed)
    gain, error = contest.gains["constant"]
    held = found.paths["constant"]
    known: dict[str, Any] = {
        "alpha": ("save", found.path.alpha.values),
        "lr": ("save", found.path.lr.values),
        "constant_lr": found.constant.lr.coefficient,
        "risk": ("save", found.path.excess_risk.values[0]),
        "constant_risk": ("save", held.excess_risk.values[0]),
        "value": found.value,
        "constant": found.constant.value,
        "named": found.best_named.value if found.best_named is not None else np.nan,
        "certified": int(found.certified),
        "exact": _closed(name),
        "chain": ("protocol", [contest.means[x][0] for x in ("optimum", "constant")]),
        "chain_error": ("protocol", [contest.means[x][1] for x in ("optimum", "constant")]),
        "gain": gain,
        "gain_error": error,
        "verdict_of_chain": list(OUTCOME).index(contest.verdicts["constant"]),
    }
    return xr.Dataset(known)


def _closed(name: str) -> float:
    """The optimum where it is known."""
    problem, _, span = TASKS[name]
    noise = problem.noise
    if name == "linear":
        x = noise  # Δ/(2ε₀) with ε₀ = ½
        return float(noise / (2 * lambertw(x * np.exp(x + span)).real))
    if name == "committee":
        return float("nan")

    def length(u: float) -> float:
        return float((3 + noise / 4) * np.log(u / (1 - u)) + noise / 4 / (1 - u))

    u = brentq(lambda u: length(u) - length(1 / BEGIN) - span, 1 / BEGIN, 1 - 1e-9)
    return 2 * (1 - float(u))


def _verdict(data: xr.Dataset) -> Verdict:
    checks = list[Check]()
    for name in TASKS:
        one = data.sel(task=name)
        if np.isfinite(one.exact):
            ratio = float(one.value / one.exact)
            checks.append(between(f"{name}: value over the optimum in closed form", 0.99999, ratio, 1.005, digits=5))
        share = float(one.value / one.constant)
        text = f"{name}: {share:.3f} of the excess risk of the best constant, less than 1 expected"
        checks.append(holds(share < 1, text))
        near_named = float(one.value / one.named)
        text = f"{name}: {near_named:.4f} of the best named schedule, no more than 1 expected"
        checks.append(holds(near_named <= 1 + 1e-6, text))
        outcome = OUTCOME[list(OUTCOME)[int(one.verdict_of_chain)]]
        gain, error = float(one.gain), float(one.gain_error)
        text = f"{name}: the chain gains {gain:.5f} ± {error:.5f} over the best constant, above 0 expected"
        checks.append(Check(outcome, f"{text}, threshold {gain / error:.1f} of 4 standard errors"))
    return verdict("the optimal schedule beats every constant, in the limit and at finite d", checks)


def draw(data: xr.Dataset) -> Figure:
    """Rates above, excess risks below."""
    drawn, panels = sheet(3, rows=2, width=3.8, height=2.9)
    about = told(data)
    for i, name in enumerate(data.task.values):
        one, top, low = data.sel(task=name), panels[i], panels[3 + i]
        top.plot(one.alpha, one.lr, color="#1a1a1a", label="optimum")
        top.axhline(float(one.constant_lr), color="#1f77b4", ls="--", lw=1.4, label="best constant")
        low.plot(one.alpha, one.risk, color="#1a1a1a")
        low.plot(one.alpha, one.constant_risk, color="#1f77b4", ls="--", lw=1.4)
        end = float(one.alpha[-1])
        for j, colour in enumerate(("#1a1a1a", "#1f77b4")):
            low.errorbar(end, one.chain[j], 2 * one.chain_error[j], fmt="o", ms=4.5, color=colour, capsize=2.5)
        if np.isfinite(one.exact):
            low.plot(end, one.exact, "x", ms=8, color="#d95f02", label="closed form")
            low.legend()
        top.set(title=str(name), ylabel=r"$d\cdot$lr" if i == 0 else "", ylim=(0, None))
        low.set(xlabel=r"samples$/d$", ylabel="excess risk" if i == 0 else "", yscale="log")
    panels[0].legend()
    headline(
        drawn,
        data,
        f"lines: limit; points: exact chain at d = {about.dim}, {about.seeds} runs; right panels: this task",
    )
    return drawn
