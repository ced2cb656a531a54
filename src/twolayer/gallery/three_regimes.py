"""Theory and simulation in three regimes of learning rate and batch size: noise, both, gradient flow.

    erf student and teacher, p = k = 2, d = 10⁴, Δ = 0.01, projected:
    (n_b, lr) = (10, 0.0949), (100, 0.08), (100, 0.001)
    as laws     (d^{1/4}, 0.3 d^{−1/8}), (d^{1/2}, 8 d^{−1/2}), (d^{1/2}, d^{−3/4})

Blue: the exact chain. Black: Map, the mean of one step iterated at this d. Dashed: ODE, the limit d → ∞ where there is
one (Saad–Solla line, gradient flow). The first point lies below (1 − μ)/2: a step changes the norms by order one and no
differential equation is left, but the map of the projected step is still right.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.judging import Verdict, largest, verdict
from twolayer.gallery.shared.measuring import canvas, colours, power
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Plate, figure
from twolayer.numerics.errors import choice

REGIMES = {"noise": (0.3, 0.125, 0.25), "noise and flow": (8.0, 0.5, 0.5), "flow": (1.0, 0.75, 0.5)}
"""γ0, δ and μ of the three points."""

RESOLUTION = 0.1  # of the largest risk
SHARE = 0.02  # of the risk: what iterating means leaves out at d = 10⁴


@figure(
    "three-regimes",
    "risk in three regimes of learning rate and batch size: simulation, finite-d map and ODE",
    quick={"steps": 200, "seeds": 8, "dim": 2000, "regimes": ("flow",)},
    group="phase-diagram",
)
def three_regimes(
    *,
    seed: int = 0,
    dim: int = 10_000,
    steps: int = 10_000,
    noise: float = 0.01,
    seeds: int = 8,
    overlap: float = 0.1,
    regimes: tuple[str, ...] = tuple(REGIMES),
) -> Plate:
    """All methods from one start with diagonal overlaps ``overlap`` and a little less across."""
    problem = tl.Problem(tl.Teacher("erf", k=2), "erf", width=2, noise=noise)
    start = tl.Overlaps(np.eye(2), [[overlap, 0.5 * overlap], [0.0, overlap]], dim=dim)
    points = np.unique(np.round(np.geomspace(1, steps, 40))).astype(int)
    curves = {}
    chosen = {choice("regimes", name, REGIMES): REGIMES[name] for name in regimes}
    for name, (gamma, delta, mu) in chosen.items():
        algorithm = tl.SGD(lr=gamma * tl.d**-delta, batch=tl.d**mu, geometry="projected")
        methods: dict[str, Any] = {"chain": tl.Chain(dim), "map": tl.Map(dim)}
        if "ODE" in tl.support(problem, algorithm):
            methods["ode"] = tl.ODE()
        for word, method in methods.items():
            arguments = (problem, algorithm, method, start, points, seeds, seed)
            curves[name, word] = part(f"{name}-{word}", partial(_risk, *arguments))
    data = xr.Dataset(coords={"step": np.concatenate([[0], points])})
    for (name, word), curve in curves.items():
        key = f"{name}-{word}".replace(" ", "_")
        data[key], data[f"{key}_error"] = ("step", curve.risk.values), ("step", curve.error.values)
    return Plate(_draw(data, dim, chosen), data, _verdict(data, chosen, seeds))


def _risk(
    problem: tl.Problem, algorithm: tl.SGD, method: Any, start: tl.Overlaps, points: np.ndarray, seeds: int, seed: int
) -> dict[str, Any]:
    run = tl.solve(problem, algorithm, method, start, steps=[0, *points], seeds=seeds, seed=seed)
    risk = run.excess_risk.values
    error = risk.std(0, ddof=1) / np.sqrt(len(risk)) if len(risk) > 1 else np.zeros(risk.shape[1])
    return {"risk": risk.mean(0), "error": error}


def _verdict(data: xr.Dataset, chosen: dict[str, tuple[float, float, float]], seeds: int) -> Verdict:
    checks, notes = [], []
    for name in chosen:
        key = name.replace(" ", "_")
        chain, error = data[f"{key}-chain"], data[f"{key}-chain_error"]
        top = float(chain.max())
        gap = chain - data[f"{key}-map"]
        checks.append(
            largest(
                f"{name}: chain − map, {RESOLUTION:.0%} of the largest risk resolved",
                gap,
                error,
                allowance=SHARE * top,
                resolution=RESOLUTION * top,
                freedom=seeds - 1,
            )
        )
        text = f"{name}: chain − map at most {float(np.abs(gap).max() / top):.3f} of the largest risk"
        if f"{key}-ode" in data:
            text += f", chain − ODE {float(np.abs(chain - data[f'{key}-ode']).max() / top):.3f}"
        notes.append(text)
    return verdict("the mean step follows SGD in every regime of lr and batch", checks, "; ".join(notes))


def _draw(data: xr.Dataset, dim: int, chosen: dict[str, tuple[float, float, float]]) -> Figure:
    palette = colours()
    figure, axes = canvas(len(chosen), width=3.6)
    for ax, (name, (gamma, delta, mu)) in zip(axes, chosen.items(), strict=True):
        key = name.replace(" ", "_")
        at = data.step > 0
        chain, error = data[f"{key}-chain"][at], data[f"{key}-chain_error"][at]
        ax.fill_between(data.step[at], chain - 2 * error, chain + 2 * error, color=palette["chain"], alpha=0.35, lw=0)
        ax.plot(data.step[at], chain, color=palette["chain"], label="Chain")
        ax.plot(data.step[at], data[f"{key}-map"][at], color=palette["theory"], lw=1.1, label="Map")
        if f"{key}-ode" in data:
            ax.plot(data.step[at], data[f"{key}-ode"][at], "--", color="#d62728", lw=1.2, label="ODE")
        ax.set(xscale="log", yscale="log", xlabel="step")
        ax.set_title(rf"$n_b = {dim**mu:.0f}$, $\gamma = {gamma * dim**-delta:.3g}$ ({name})")
        ax.legend()
    axes[0].set_ylabel("excess risk")
    figure.suptitle(rf"erf, $p = k = 2$, $d = {power(dim)}$, projected SGD", fontsize=10)
    return figure
