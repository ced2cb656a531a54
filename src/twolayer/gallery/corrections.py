"""What finite d adds to the limit, term by term: each correction of the map switched
off, against d.

    relative to the flow:   norm d^{1−μ−δ},   pairs d^{−δ},   steps d^{−δ},
        dimension and ratio d^{−μ−δ}

The map of the mean step is followed to a fixed time t with and without each correction
(p = k = 2; by default erf and projected). Finite steps are the difference between the
map with all corrections off and the ODE of gradient flow.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import Check, between, unknown, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.errors import InputError, choice, require
from twolayer.numerics.statistics import power_law

ALL = ("norm", "pairs", "dimension", "ratio")
NAMES = (*ALL, "steps")
MARKERS = dict(zip(NAMES, "os^Dv", strict=True))
SHARE = 0.1  # of an exponent
LEAST = 1e-11  # smaller changes are rounding


@figure(
    "corrections",
    "size of the corrections at finite d, each switched off by name, against d",
    quick={"dims": (1000, 3000, 10_000), "time": 0.2},
    group="phase-diagram",
)
def corrections(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (1000, 3000, 10_000, 30_000, 100_000),
    mu: float = 0.75,
    delta: float = 0.5,
    gamma: float = 0.5,
    time: float = 1.0,
    target: str = "teacher",
    activation: str = "erf",
    geometry: str = "projected",
    names: tuple[str, ...] = NAMES,
) -> Finding:
    """Largest change of any overlap M at time t; nothing here is random.

    ``"ratio"`` is left out where steps are not projected: free weights are not divided
    by their norms, and tangent steps change these in second order only, where the power
    is another one.
    """
    if delta <= 1 - mu:
        raise InputError(
            "Argument `delta` must be above 1 − mu, where gradient flow is the limit,"
            f" but got {delta}."
        )
    if len(set(dims)) < 3:
        raise InputError(
            f"Argument `dims` must hold at least three dimensions, but got {dims}."
        )
    problem = chosen_problem(target, activation, 2, width=2, noise=0.01)
    algorithm = tl.SGD(lr=gamma * tl.d**-delta, batch=tl.d**mu, geometry=geometry)
    given = [choice("names", name, NAMES) for name in names]
    names = tuple(name for name in given if geometry == "projected" or name != "ratio")
    require(bool(names), "names", given, f"more than 'ratio' for {geometry} steps")
    sizes: dict[str, list[float]] = {name: [] for name in names}
    for dim in dims:
        found = part(f"d={dim}", partial(_ends, problem, algorithm, dim, time, names))
        for name in names:
            with_, without = ("none", "ode") if name == "steps" else ("all", name)
            sizes[name].append(
                float(np.abs(found[with_].values - found[without].values).max())
            )
    data = xr.Dataset(
        {name: ("dim", values) for name, values in sizes.items()}, {"dim": list(dims)}
    )
    expected = {
        "norm": 1 - mu - delta,
        "pairs": -delta,
        "dimension": -mu - delta,
        "ratio": -mu - delta,
        "steps": -delta,
    }
    expected = {name: expected[name] for name in sizes}
    checks = [
        _falls(name, dims, data[name].values, power) for name, power in expected.items()
    ]
    data["expected"] = "name", [expected[name] for name in names]
    data = data.assign_coords(name=list(names))
    judged = verdict("each correction goes away as its power of d", checks)
    return Finding(data, judged, task_of(problem, algorithm))


def _falls(name: str, dims: tuple[int, ...], sizes: np.ndarray, power: float) -> Check:
    """Whether a correction has the power of d; one that plays no part in this task has
    none.
    """
    if (sizes < LEAST).any():
        return unknown(
            f"slope of {name}: it changes M by less than {LEAST:g}, at least {LEAST:g}"
            " needed"
        )
    return between(
        f"slope of {name}", power - SHARE, power_law(dims, sizes).slope, power + SHARE
    )


def _ends(
    problem: tl.Problem,
    algorithm: tl.SGD,
    dim: int,
    time: float,
    names: tuple[str, ...],
) -> Variables:
    """M at the last step before t, of the map with all corrections, without each,
    without all, and of the ODE.
    """
    start = tl.Overlaps(np.eye(2), [[0.3, 0.15], [0.0, 0.3]], dim=dim)
    steps = max(1, int(time * problem.p / algorithm.lr(dim)))
    methods: Options = {
        name: tl.Map(dim, without=(name,)) for name in names if name != "steps"
    }
    methods |= {"all": tl.Map(dim)}
    if "steps" in names:
        methods["none"] = tl.Map(dim, without=ALL)
    ends = {
        name: tl.solve(problem, algorithm, m, start, steps=steps, save=1)
        for name, m in methods.items()
    }
    if "steps" in names:
        exact = steps * algorithm.lr(dim) / problem.p
        ends["ode"] = tl.solve(
            problem, algorithm, tl.ODE(rtol=1e-11), start, time=exact, save=1
        )
    return {name: run.M.values[0, -1] for name, run in ends.items()}


def draw(data: xr.Dataset) -> Figure:
    """One colour and marker for each correction, with the line of its power through the
    last point.
    """
    from twolayer.plot.style import COLOURS, DIRECTIONS

    figure, (ax,) = sheet(1, width=6.6, height=4.4)
    fine = np.geomspace(float(data.dim[0]), float(data.dim[-1]), 50)
    for i, name in enumerate(data.name.values):
        power, values = float(data.expected[i]), data[name].values
        ax.plot(
            data.dim,
            values,
            MARKERS[name],
            color=DIRECTIONS[i],
            ms=5.5,
            label=f"{name}",
        )
        line = values[-1] * (fine / fine[-1]) ** power
        ax.plot(
            fine,
            line,
            color=DIRECTIONS[i],
            lw=1,
            label=rf"predicted $d^{{{power:.3g}}}$",
        )
    ax.set(xscale="log", yscale="log", xlabel="dimension $d$")
    ax.set_ylabel(
        rf"largest change of $M$ at $t = {told(data).time:g}$", color=COLOURS["theory"]
    )
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    headline(
        figure,
        data,
        "What each term of the mean step at finite $d$ changes, against its predicted"
        " power",
    )
    return figure
