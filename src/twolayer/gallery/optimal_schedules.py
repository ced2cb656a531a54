"""Optimal schedules: the best rate as a function of time, its risk against that of the
best constant, and at finite d.

    minimise ε(S) over γ(s):   linear student   γ* = ε/(ε + Δ/2),
        ε = Δ/(2W(x₀ e^{x₀ + s})),   x₀ = Δ/(2ε₀)
    phase retrieval, one start:   s = (3 + Δ/4) log(u/(1 − u)) + (Δ/4)/(1 − u) + const,
        ε = 2(1 − u),   u = m²

The linear rate falls as 1/s. Phase retrieval begins at random and keeps the rate of the
escape until most starts have left; one schedule for all starts cannot be better than
one for each. The committee takes its plateau at a high rate and pays for it with a
higher risk on the way. The protocols are those of the limit; the exact chain says
whether they win.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer import d
from twolayer.gallery.shared.drawing import headline, plain_ticks, points, sheet, told
from twolayer.gallery.shared.judging import (
    Check,
    Verdict,
    between,
    holds,
    unknown,
    verdict,
)
from twolayer.gallery.shared.measuring import on_sphere, phase_retrieval
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.wide import committee
from twolayer.numerics.arguments import Options

CASES = {
    "linear": 10.0,
    "phase retrieval": 60.0,
    "committee": 150.0,
}  # length of the runs, in samples/d

PROTOCOLS = ("optimum", "constant", "named")
NAMED = ("cosine", "linear", "power", "inverse")
NOISE = {"linear": 0.2, "phase retrieval": 0.5, "committee": 0.01}
# of the linear student: its risk, and the rms of its rate, relative to closed forms
EXACT = 1e-3
RATE = 0.1
GAIN = 0.5  # the risk of the erf committee, of that of the best constant, at most


@figure(
    "optimal-schedules",
    "optimal learning rates, and their risk against that of the best constant, in the"
    " limit and at finite d",
    quick={"pieces": 4, "restarts": 1, "seeds": 16, "dim": 300},
    fixed={
        "target": (
            "closed forms are known for z1 and z1**2, and a committee learns one of its"
            " own kind"
        )
    },
    group="escape",
    papers=("saad1995", "arnaboldi2023escaping"),
)
def optimal_schedules(
    *,
    seed: int = 0,
    pieces: int = 16,
    restarts: int = 3,
    seeds: int = 64,
    dim: int = 1000,
    activation: str = "erf",
    geometry: str = "projected",
) -> Finding:
    """`optimise` for three tasks, and its contest with the best constant and the best
    named schedule.

    ``activation`` is that of the committee, ``geometry`` that of phase retrieval.
    """
    tasks = _tasks(activation, geometry, dim, seeds, seed)
    found = [
        part(
            case, partial(_best, case, tasks[case], pieces, restarts, seeds, dim, seed)
        )
        for case in CASES
    ]
    names = {
        "case": list(CASES),
        "protocol": list(PROTOCOLS),
        "rival": list(PROTOCOLS[1:]),
    }
    data = xr.concat(found, "case").assign_coords(names)
    students = (
        f"linear, square ({geometry}) and {activation} students of the same targets"
    )
    return Finding(
        data,
        _verdict(data, activation),
        f"{students}; batch 1, lr = γ(s)/d, s = samples/d",
    )


Task = tuple[tl.Problem, tl.SGD, tl.Overlaps]


def _tasks(
    activation: str, geometry: str, dim: int, starts: int, seed: int
) -> dict[str, Task]:
    """Problem, first guess of the algorithm and start of each case."""
    linear = tl.Problem("z1", "linear", noise=NOISE["linear"])
    square = phase_retrieval(noise=NOISE["phase retrieval"])
    pair = committee(activation, 2, 2, NOISE["committee"])
    random = tl.Overlaps.random(square, dim, seed, size=starts, law="hemisphere")
    return {
        "linear": (linear, tl.SGD(0.2 / d), tl.Overlaps([[0.0]], [[0.0]])),
        "phase retrieval": (square, on_sphere(0.04, geometry), random),
        "committee": (pair, tl.SGD(2 / d), tl.Overlaps.random(pair, dim, seed)),
    }


def _best(
    case: str, task: Task, pieces: int, restarts: int, seeds: int, dim: int, seed: int
) -> xr.Dataset:
    problem, algorithm, start = task
    best = tl.optimise(
        problem, algorithm, start, horizon=CASES[case], pieces=pieces, restarts=restarts
    )
    contest = best.compare(dim, seeds, seed)
    assert best.best_named is not None  # no bounds are given that it could leave
    names = ("optimum", "constant", best.best_named.name)
    scale = 1 if start.dim is None else start.dim
    verdicts = {"wins": 1, "loses": -1, "undecided": 0}
    along, risks = (
        ("protocol", "save"),
        [best.paths[name].excess_risk.mean("seed").values for name in names],
    )
    return xr.Dataset(
        {
            "x": ("save", best.path.alpha.values),
            "lr": (along, [scale * best.paths[name].lr.values for name in names]),
            "risk": (along, risks),
            "mean": ("protocol", [contest.means[name][0] for name in names]),
            "error": ("protocol", [contest.means[name][1] for name in names]),
            "gain": ("rival", [contest.gains[name][0] for name in names[1:]]),
            "gain_error": ("rival", [contest.gains[name][1] for name in names[1:]]),
            "won": ("rival", [verdicts[contest.verdicts[name]] for name in names[1:]]),
            "certified": int(best.certified),
            "word": NAMED.index(names[2]),
            "bound": _bound(case, start),
        }
    )


def _linear(s: np.ndarray) -> np.ndarray:
    """ε of the linear student at its best, from ε₀ = ½."""
    from scipy.special import lambertw

    noise = NOISE["linear"]
    return np.asarray(noise / (2 * lambertw(noise * np.exp(noise + s)).real))


def _bound(case: str, start: tl.Overlaps) -> float:
    """What no schedule goes below: closed forms, for phase retrieval with a schedule
    for each start.
    """
    if case == "linear":
        return float(_linear(np.array(CASES[case])))
    if case == "committee":
        return 0.0
    noise = NOISE[case]
    v = np.linspace(-40, 12, 200_001)  # log u/(1 − u)
    s = (3 + noise / 4) * v + noise / 4 * (1 + np.exp(v))
    u = np.asarray(start.M).ravel() ** 2
    first = np.interp(np.log(u / (1 - u)), v, s)
    return float(np.mean(2 / (1 + np.exp(np.interp(first + CASES[case], s, v)))))


def _verdict(data: xr.Dataset, activation: str) -> Verdict:
    end = data.risk.isel(save=-1)
    line = data.sel(case="linear", protocol="optimum")
    ratio = float(
        end.sel(case="linear", protocol="optimum") / data.bound.sel(case="linear")
    )
    inside = (line.x > 0.1 * CASES["linear"]) & (line.x < 0.9 * CASES["linear"])
    closed = _linear(line.x.values)
    apart = (line.lr.values * (1 + NOISE["linear"] / 2 / closed) - 1)[inside.values]
    checks = [
        between(
            "linear: risk over the closed form", 1 - 1e-6, ratio, 1 + EXACT, digits=5
        ),
        between(
            "linear: rms of rate over ε/(ε + Δ/2) less one",
            0.0,
            float(np.sqrt((apart**2).mean())),
            RATE,
        ),
    ]
    bounds = {
        "phase retrieval": (1.0, "a schedule for each start and the best constant"),
        "committee": (
            (GAIN, "0 and half the constant's")
            if activation == "erf"
            else (1.0, "0 and the best constant")
        ),
    }
    for case, (share, what) in bounds.items():
        best, constant = (
            float(end.sel(case=case, protocol=name)) for name in PROTOCOLS[:2]
        )
        checks.append(
            holds(
                float(data.bound.sel(case=case)) <= best <= constant * share,
                f"{case}: risk {best:.3g}, {best / constant:.2f} of the best"
                f" constant's, expected between {what}",
            )
        )
    for case in CASES:
        checks.append(
            holds(
                data.certified.sel(case=case),
                f"{case}: no constant and none of 4 named schedules is better",
            )
        )
        checks.append(_won(data.sel(case=case, rival="constant"), case))
    named = ", ".join(
        f"{case}: {float(row.gain):.2g} ± {float(row.gain_error):.1g}"
        f" ({NAMED[int(row.word)]})"
        for case, row in ((case, data.sel(case=case, rival="named")) for case in CASES)
    )
    return verdict(
        "the optimum of the limit beats the best constant there and at finite d",
        checks,
        f"Gain on the best named schedule at finite d: {named}",
    )


def _won(row: xr.Dataset, case: str) -> Check:
    """Whether the optimum still wins at finite d, by differences run by run."""
    text = (
        f"{case} at finite d: gain on the best constant {float(row.gain):.3g} ±"
        f" {float(row.gain_error):.2g}"
    )
    outcome = int(row.won)
    if outcome == 0:
        return unknown(f"{text}, within the tolerance")
    return holds(outcome > 0, f"{text}, beyond the tolerance, positive expected")


def draw(data: xr.Dataset) -> Figure:
    """Rates above, risks below; the chain's means at the end."""
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

    drawn, panels = sheet(3, 2, width=3.9, height=3.0)
    looks: tuple[Options, ...] = (
        {"color": COLOURS["theory"], "lw": 1.8},
        {"color": DIRECTIONS[0], "lw": 1.4, "ls": "--"},
        {"color": DIRECTIONS[1], "lw": 1.6, "ls": ":"},
    )
    titles = (
        "linear student",
        "phase retrieval, random starts",
        f"{told(data).activation} committee, two neurons",
    )
    for i, case in enumerate(CASES):
        above, below, row = panels[i], panels[3 + i], data.sel(case=case)
        names = ("optimum", "best constant", f"best named ({NAMED[int(row.word)]})")
        if case == "linear":
            closed = _linear(row.x.values)
            above.plot(
                row.x,
                closed / (closed + NOISE[case] / 2),
                color=GREY,
                lw=5,
                alpha=0.35,
                label="closed form",
            )
            below.plot(row.x, closed, color=GREY, lw=5, alpha=0.35)
        for j, (name, look) in enumerate(zip(names, looks, strict=True)):
            one = row.isel(protocol=j)
            above.plot(row.x, one.lr, label=name, **look)
            below.plot(row.x, one.risk, **look)
            place = CASES[case] * (1.03 + 0.025 * j)
            label = f"chain, $d = {told(data).dim}$" if j == 0 else ""
            points(
                below,
                place,
                float(one["mean"]),
                float(one.error),
                look["color"],
                label,
                "osD"[j],
            )
        above.set(title=titles[i], ylabel=r"$d\cdot$lr" if i == 0 else "")
        below.set(
            yscale="log", xlabel=r"samples$/d$", ylabel="excess risk" if i == 0 else ""
        )
        if case == "linear":  # not two decades
            plain_ticks(below.yaxis)
        above.set_ylim(0, 1.35 * float(row.lr.max()))  # room for the names
        above.legend(fontsize=7, loc="upper right")
        below.legend(fontsize=7)
    headline(
        drawn,
        data,
        "lines: the limit; points at the end: the exact chain (bars: two standard"
        " errors)",
    )
    return drawn
