"""How fast the ODE of p neurons approaches the mean field, and the mean field its limit
of infinite dimension.

    claimed:  sup_t |R_ODE − R_MF| ≲ 1/√p,   and + 1/√d for d → ∞
    measured: 1/p in the risk from the same start;
        1/√p in single overlaps and against fresh particles;  1/d

The bounds hold; they are not tight for the risk from a common start, because
first-order errors of single neurons average out.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import (
    headline,
    plain_ticks,
    points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, largest, near, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.wide import FLOW, averaged, committee, sup_risk
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.errors import require
from twolayer.numerics.statistics import power_law
from twolayer.task.method import Method
from twolayer.task.particles import Particles

CURVES: dict[str, tuple[str, float | tuple[float, float]]] = {
    "risk": ("risk, same start", -1.0),
    "overlap": ("single overlaps (rms)", -0.5),
    "fresh": (
        "risk, against $p = \\infty$",
        (-1.0, -0.5),
    ),  # p^(−1/2) and, at small widths, the 1/p of its mean
}
BOUND = (-np.inf, -0.5)  # claimed for both exponents
RESOLUTION = 0.5  # of an exponent: no convergence at all is 1/2 away
SLACK = 0.1  # of the exponents: next orders in 1/p and 1/d over these ranges

ROUGH = (
    0.25  # of what the finite width adds: it is not the same at all d, but nearly so
)
NETWORKS = 6
NAMES, TITLES = (
    {"square": "x²"},
    {"square": "$x^2$"},
)  # of activations, in words and in mathematics


@figure(
    "ode-to-mean-field",
    "distance between the ODE of p neurons and mean fields, against p and d",
    quick={
        "widths": (8, 32),
        "dims": (64, 128, 256),
        "wide": 32,
        "starts": 12,
        "particles": 4000,
        "time": 5.0,
    },
    group="mean-field",
)
def ode_to_mean_field(
    *,
    seed: int = 0,
    widths: tuple[int, ...] = (8, 16, 32, 64),
    dims: tuple[int, ...] = (16, 32, 64, 128, 256),
    dim: int = 20,
    wide: int = 256,
    starts: int = 64,
    particles: int = 50_000,
    time: float = 10.0,
    square_time: float = 1.5,
    activations: tuple[str, ...] = ("erf", "square"),
    target: str = "teacher",
    geometry: str = "free",
) -> Finding:
    """Left: one activation, against p at one dimension. Right: another, against d.

    By default these are erf and x², where the directions matter most; a ``"teacher"``
    is a neuron of the same activation.
    """
    require(
        len(activations) == 2,
        "activations",
        activations,
        "two names, those of the left and of the right panel",
    )
    left, right = (
        committee(activation, 1, 1, target=target) for activation in activations
    )
    sgd = tl.SGD(lr=FLOW, geometry=geometry)
    cloud = tl.mean_field.Particles.sample(left, particles, dim=dim, seed=seed + 1)
    field = tl.MeanField(dim, averages=tl.Averages(accuracy=1e-2))
    limit = part(
        "limit", lambda: {"risk": _run(left, sgd, field, cloud, time).risk.values}
    ).risk.values
    rows = [
        part(
            f"p={p}",
            partial(_width, left.replace(width=p), sgd, dim, starts, time, seed, limit),
        )
        for p in widths
    ]
    network = right.replace(width=wide)
    deep = [
        part(
            f"d={d}", partial(_dimension, network, sgd, particles, d, square_time, seed)
        )
        for d in dims
    ]
    data = xr.Dataset(
        {
            name: (("width", "start"), np.stack([r[name].values for r in rows]))
            for name in CURVES
        }
        | {
            "dimension": ("dim", [float(r.dimension) for r in deep]),
            "network": (
                ("dim", "network_start"),
                np.stack([r.network.values for r in deep]),
            ),
        },
        {"width": list(widths), "dim": list(dims)},
    )
    one, two = (NAMES.get(activation, activation) for activation in activations)
    students = f"{one} (left) or {two} (right)"
    task = (
        f"teacher neuron of {students}, k = 1, a* = 1   students of the same, p"
        " neurons, a = 1"
    )
    if target != "teacher":
        task = f"target {target}   students of {students}, p neurons, a = 1"
    how = task_of(left, sgd).split("\n")[1]
    known = (activations, target, geometry) == (("erf", "square"), "teacher", "free")
    return Finding(data, _verdict(data, wide, known), f"{task}\n{how}: gradient flow")


def _run(
    problem: tl.Problem,
    sgd: tl.SGD,
    method: Method,
    start: tl.Overlaps | Particles,
    time: float,
) -> xr.Dataset:
    return tl.solve(problem, sgd, method, start, time=time, save=10)


def _width(
    problem: tl.Problem,
    sgd: tl.SGD,
    dim: int,
    starts: int,
    time: float,
    seed: int,
    limit: np.ndarray,
) -> Variables:
    many = tl.Overlaps.random(problem, dim, seed, size=starts)
    field = tl.MeanField(dim, self_interaction=True, interaction="pairs")
    ode, mean = (_run(problem, sgd, method, many, time) for method in (tl.ODE(), field))
    rms = np.sqrt(((ode.M.values - mean.M.values) ** 2).mean((2, 3))).max(1)
    return {
        "risk": sup_risk(ode.risk, mean.risk),
        "overlap": rms,
        "fresh": sup_risk(ode.risk, limit),
    }


def _dimension(
    problem: tl.Problem, sgd: tl.SGD, particles: int, dim: int, time: float, seed: int
) -> Variables:
    """The limit d → ∞ against the mean field at d from the same particles, and against
    a network of p neurons.
    """
    cloud = tl.mean_field.Particles.sample(problem, particles, dim=dim, seed=seed)
    near, far = (
        _run(problem, sgd, method, cloud, time).risk
        for method in (tl.MeanField(dim), tl.MeanField())
    )
    start = tl.Overlaps.random(problem, dim, seed, size=NETWORKS)
    ode, mean = (
        _run(problem, sgd, method, start, time).risk
        for method in (tl.ODE(), tl.MeanField())
    )
    return {"dimension": sup_risk(near, far)[0], "network": sup_risk(ode, mean)}


def _fits(data: xr.Dataset) -> Variables:
    found = {
        name: power_law(data.width.values, *averaged(data[name], "start"))
        for name in CURVES
    }
    found["dimension"] = power_law(data.dim.values, data.dimension.values)
    return found


def _verdict(data: xr.Dataset, wide: int, known: bool) -> Verdict:
    """Exponents are ``known`` for the committees of the default; those of others are
    held against the bounds.
    """
    fits = _fits(data)
    checks = [
        near(
            f"exponent of p, {name}",
            fits[name].slope,
            expected if known else BOUND,
            fits[name].error,
            allowance=SLACK,
            resolution=RESOLUTION,
            count=len(CURVES),
        )
        for name, (_, expected) in CURVES.items()
    ]
    deep = fits["dimension"]
    freedom = data.sizes["dim"] - 2
    checks.append(
        near(
            "exponent of d",
            deep.slope,
            -1.0 if known else BOUND,
            deep.error,
            allowance=SLACK,
            resolution=RESOLUTION,
            freedom=freedom,
        )
    )
    # a network of finite width is as far from the limit as the mean field at d, and by
    # a constant more
    network, error = averaged(data.network, "network_start")
    more = network - data.dimension.values
    middle = float(np.average(more, weights=error**-2.0))
    checks.append(
        largest(
            f"what {wide} neurons add at each d, about {middle:.4f}",
            more - middle,
            error,
            allowance=ROUGH * abs(middle),
            resolution=abs(middle),
            freedom=data.sizes["dim"] * (data.sizes["network_start"] - 1),
        )
    )
    note = (
        f"The claimed bounds are p^−0.5 and d^−0.5; {wide} neurons add from"
        f" {more.min():.4f} to {more.max():.4f}"
    )
    return verdict(
        "the ODE of p neurons approaches mean fields no slower than the claimed bounds",
        checks,
        note,
    )


def draw(data: xr.Dataset) -> Figure:
    """Left: against p at one dimension. Right: against d. Claimed lines start at the
    largest point of their panel.
    """
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

    chosen = told(data)
    shown, (left, right) = sheet(2, width=4.8, height=4.8)
    fits, p = _fits(data), data.width.values.astype(float)
    for i, (name, (label, _)) in enumerate(CURVES.items()):
        fit, (mean, error) = fits[name], averaged(data[name], "start")
        words = f"{label}: $p^{{{fit.slope:.2f} \\pm {fit.error:.2f}}}$"
        points(left, p, mean, error, DIRECTIONS[i], words, "os^"[i])
        left.plot(p, np.exp(fit.intercept) * p**fit.slope, color=DIRECTIONS[i], lw=1)
    top = max(float(data[name].mean("start")[0]) for name in CURVES)
    claim: Options = {"color": GREY, "ls": "--", "lw": 1.2}
    left.plot(
        p,
        1.4 * top * (p / p[0]) ** -0.5,
        label="$p^{-1/2}$ (claimed, any constant)",
        **claim,
    )
    one, two = (TITLES.get(activation, activation) for activation in chosen.activations)
    left.set(
        xlabel="width $p$",
        ylabel="largest difference along the run",
        title=f"{one}, $d = {chosen.dim}$",
    )
    deep, d = fits["dimension"], data.dim.values.astype(float)
    words = f"mean field at $d$: $d^{{{deep.slope:.2f}}}$"
    right.plot(d, data.dimension, "D", color=DIRECTIONS[3], ms=5, label=words)
    right.plot(d, np.exp(deep.intercept) * d**deep.slope, color=DIRECTIONS[3], lw=1)
    network, error = averaged(data.network, "network_start")
    points(
        right,
        d,
        network,
        error,
        COLOURS["theory"],
        f"ODE of $p = {chosen.wide}$ neurons",
        "s",
    )
    right.plot(
        d,
        1.4 * float(network[0]) * (d / d[0]) ** -0.5,
        label="$d^{-1/2}$ (claimed, any constant)",
        **claim,
    )
    limit = f"{two}, limit $d \\to \\infty$"
    right.set(
        xlabel="dimension $d$", ylabel="largest difference of the risks", title=limit
    )
    for ax in (left, right):
        ax.set(xscale="log", yscale="log")
        plain_ticks(ax.xaxis)
        ax.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    headline(
        shown,
        data,
        "ODE of $p$ neurons against mean fields (bars: 2 s.e., thin lines: fits)",
    )
    return shown
