"""Theory and simulation in three regimes of learning rate and batch size: noise, both,
gradient flow.

    erf student and teacher, p = k = 2, d = 10⁴, Δ = 0.01, projected, by default:
    (n_b, lr) = (10, 0.0949), (100, 0.08), (100, 0.001)
    as laws     (d^{1/4}, 0.3 d^{−1/8}), (d^{1/2}, 8 d^{−1/2}), (d^{1/2}, d^{−3/4})

Points: the exact chain. Lines: Map, the mean of one step iterated at this d. Dashed:
ODE, the limit d → ∞ where there is one (Saad–Solla line, gradient flow). The first
point lies below (1 − μ)/2: a step changes the norms by order one and no differential
equation is left, but the map of the projected step is still right.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import (
    headline,
    points,
    power,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, largest, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.errors import choice
from twolayer.numerics.statistics import standard_error
from twolayer.task.method import Method

REGIMES = {
    "noise": (0.3, 0.125, 0.25),
    "noise and flow": (8.0, 0.5, 0.5),
    "flow": (1.0, 0.75, 0.5),
}
"""γ0, δ and μ of the three points."""

RESOLUTION = 0.1  # of the largest risk
SHARE = 0.02  # of the risk: what iterating means leaves out at d = 10⁴


@figure(
    "three-regimes",
    "risk in three regimes of learning rate and batch size: simulation, finite-d map"
    " and ODE",
    quick={"steps": 300, "seeds": 8, "dim": 2000},
    group="phase-diagram",
)
def three_regimes(
    *,
    seed: int = 0,
    dim: int = 10_000,
    steps: int = 10_000,
    noise: float = 0.01,
    seeds: int = 24,
    overlap: float = 0.1,
    target: str = "teacher",
    activation: str = "erf",
    geometry: str = "projected",
    regimes: tuple[str, ...] = tuple(REGIMES),
) -> Finding:
    """All methods from one start with diagonal overlaps ``overlap`` and a little less
    across.
    """
    problem = chosen_problem(target, activation, 2, width=2, noise=noise)
    start = tl.Overlaps(np.eye(2), [[overlap, 0.5 * overlap], [0.0, overlap]], dim=dim)
    few, many = (
        np.unique(np.round(np.geomspace(1, steps, n))).astype(int) for n in (40, 200)
    )
    curves = {}
    chosen = {choice("regimes", name, REGIMES): REGIMES[name] for name in regimes}
    methods: Options = {
        "map": tl.Map(dim),
        "ode": tl.ODE(),
        "chain": tl.Chain(dim),
    }  # what refuses comes first
    for (word, method), (name, (gamma, delta, mu)) in itertools.product(
        methods.items(), chosen.items()
    ):
        algorithm = tl.SGD(lr=gamma * tl.d**-delta, batch=tl.d**mu, geometry=geometry)
        if word != "ode" or "ODE" in tl.support(problem, algorithm):
            at = few if word == "chain" else np.union1d(few, many)
            arguments = (problem, algorithm, method, start, at, seeds, seed)
            curves[name, word] = part(f"{name}-{word}", partial(_risk, *arguments))
    data = xr.Dataset(
        coords={
            "step": np.concatenate([[0], few]),
            "fine": np.concatenate([[0], np.union1d(few, many)]),
        }
    )
    for (name, word), curve in curves.items():
        key, along = (
            f"{name}-{word}".replace(" ", "_"),
            "step" if word == "chain" else "fine",
        )
        data[key], data[f"{key}_error"] = (
            (along, curve.risk.values),
            (along, curve.error.values),
        )
    task = task_of(problem, algorithm).split("\n")[0]
    return Finding(
        data,
        _verdict(data, chosen, seeds),
        f"{task}\nlr = γ0 d^(−δ), batch d^μ, fresh samples, {geometry}",
    )


def _risk(
    problem: tl.Problem,
    algorithm: tl.SGD,
    method: Method,
    start: tl.Overlaps,
    points: np.ndarray,
    seeds: int,
    seed: int,
) -> Variables:
    run = tl.solve(
        problem, algorithm, method, start, steps=[0, *points], seeds=seeds, seed=seed
    )
    risk = run.excess_risk.values
    error = standard_error(risk) if len(risk) > 1 else np.zeros(risk.shape[1])
    return {"risk": risk.mean(0), "error": error}


def _verdict(
    data: xr.Dataset, chosen: dict[str, tuple[float, float, float]], seeds: int
) -> Verdict:
    checks, notes = [], []
    for name in chosen:
        key = name.replace(" ", "_")
        chain, error = data[f"{key}-chain"], data[f"{key}-chain_error"]
        top = float(chain.max())
        gap = chain - _at_steps(data, f"{key}-map")
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
        text = (
            f"{name}: chain − map at most {float(np.abs(gap).max() / top):.3f} of the"
            " largest risk"
        )
        if f"{key}-ode" in data:
            from_ode = np.abs(chain - _at_steps(data, f"{key}-ode")).max() / top
            text += f", chain − ODE {float(from_ode):.3f}"
        notes.append(text)
    return verdict(
        "the mean step follows SGD in every regime of lr and batch",
        checks,
        "; ".join(notes),
    )


def _at_steps(data: xr.Dataset, name: str) -> xr.DataArray:
    """A theory at the save points of the chain, which are among its own."""
    return data[name].sel(fine=data.step.values).rename(fine="step").drop_vars("step")


def draw(data: xr.Dataset) -> Figure:
    """All regimes in one axis, each with its name at the end of its line."""
    from twolayer.plot.style import COLOURS, DIRECTIONS, positive

    chosen = told(data)
    figure, (ax,) = sheet(1, width=7.4, height=4.6)
    few, fine = data.step.values > 0, data.fine.values > 0
    for i, name in enumerate(chosen.regimes):
        gamma, delta, mu = REGIMES[name]
        key, colour = name.replace(" ", "_"), DIRECTIONS[i]
        chain, error = data[f"{key}-chain"][few], data[f"{key}-chain_error"][few]
        points(
            ax,
            data.step[few],
            positive(chain),
            error,
            colour,
            "_",
            "os^"[i % 3],
            "none",
        )
        ax.plot(
            data.fine[fine], positive(data[f"{key}-map"][fine]), color=colour, lw=1.3
        )
        if f"{key}-ode" in data:
            ax.plot(
                data.fine[fine],
                positive(data[f"{key}-ode"][fine]),
                "--",
                color=COLOURS["ode"],
                lw=1.2,
            )
        size = rf"$n_b = {chosen.dim**mu:.0f}$, lr $= {gamma * chosen.dim**-delta:.3g}$"
        ax.plot(
            [],
            [],
            "os^"[i % 3],
            color=colour,
            mfc="none",
            ls="-",
            label=f"{name}: {size}",
        )
    for marker, dash, label in (
        ("o", "", "chain (bars: 2 s.e.)"),
        ("", "-", "Map, finite $d$"),
        ("", "--", "ODE"),
    ):
        ax.plot(
            [],
            [],
            marker=marker,
            ls=dash or "none",
            color=COLOURS["ode"],
            mfc="none",
            label=label,
        )
    ax.set(xscale="log", yscale="log", xlabel="step", ylabel="excess risk")
    ax.legend(loc="lower left", fontsize=8)
    headline(
        figure, data, rf"Three regimes of rate and batch at $d = {power(chosen.dim)}$"
    )
    return figure
