"""Inputs with three variances: the equation in every block, the exact chain, and honest
vectors.

    x⁽ⁱ⁾ ~ N(0, s_i I),  s = (2, 0.5, 0.1):
        M⁽ⁱ⁾ and Q⁽ⁱ⁾ of every block, the risk from Σ_i s_i Ω⁽ⁱ⁾

Lines are the limit d → ∞. What is judged are means over runs against the mean step at
the same d, which has all terms of order 1/d of one step.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import headline, points, sheet, task_of, told
from twolayer.gallery.shared.judging import largest, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.statistics import standard_error
from twolayer.task.method import Method

VARIANCES, FRACTIONS = (2.0, 0.5, 0.1), (0.2, 0.5, 0.3)
NAMES = ("M_block", "Q_block")
ITERATED = 2.0  # over d: what iterated means leave out, of overlaps of order one
RESOLUTION = 0.03  # of an overlap


@figure(
    "three-blocks",
    "overlaps in three blocks of the inputs: the ODE, the chain and vectors",
    quick={"dim": 200, "seeds": 48, "save": 4},
    group="inputs",
)
def three_blocks(
    *,
    seed: int = 0,
    target: str = "teacher",
    activation: str = "erf",
    geometry: str = "free",
    dim: int = 1000,
    seeds: int = 128,
    time: float = 4.0,
    gamma: float = 1.0,
    save: int = 8,
) -> Finding:
    """One neuron learns a direction that is spread evenly over all coordinates."""
    w, s = np.array(FRACTIONS), np.array(VARIANCES)
    inputs: Options = {
        "gram": [[float(s @ w)]],
        "inputs": tl.Inputs.blocks(VARIANCES, FRACTIONS),
    }
    problem = chosen_problem(target, activation, 1, noise=0.05, **inputs)
    Q, M, P = (
        np.array(x)[:, None, None]
        for x in ((0.3, 0.4, 0.3), (0.05, -0.04, 0.1), FRACTIONS)
    )
    start = tl.Overlaps.in_blocks(Q, M, P, dim=dim)
    algorithm = tl.SGD(gamma / tl.d, weight_decay=0.05, geometry=geometry)
    run: Options = {"time": time, "save": save, "seed": seed}
    theory = tl.solve(problem, algorithm, tl.ODE(), start, time=time, save=100)
    mean = tl.solve(problem, algorithm, tl.Map(dim), start, **run)
    found = {}
    methods: Options = {"chain": tl.Chain(dim), "vectors": tl.Vectors(dim)}
    for name, method in methods.items():

        def compute(method: Method = method) -> dict[str, np.ndarray]:
            return _kept(
                tl.solve(problem, algorithm, method, start, seeds=seeds, **run)
            )

        found[name] = part(name, compute)
    checks = []
    variables: Variables = {
        "ode_time": ("fine", theory.time.values),
        "time": ("point", mean.time.values),
    }
    for name, runs in found.items():
        gaps, errors = [], []
        for x in NAMES:
            values = runs[x].values
            average, error = values.mean(0), standard_error(values)
            variables |= {
                f"{name}_{x}": (("point", "block"), average),
                f"{name}_{x}_error": (("point", "block"), error),
            }
            gaps.append(average[1:] - mean[x].values[0, 1:, :, 0, 0])
            errors.append(error[1:])
        checks.append(
            largest(
                f"{name} − mean step, M and Q of every block",
                np.stack(gaps),
                np.stack(errors),
                resolution=RESOLUTION,
                allowance=ITERATED / dim,
                freedom=seeds - 1,
            )
        )
    for x in NAMES:
        variables[f"ode_{x}"] = ("fine", "block"), theory[x].values[0, :, :, 0, 0]
    data = xr.Dataset(variables, {"block": [1, 2, 3]})
    claim = "every block of the inputs has its own overlaps, as the equations say"
    return Finding(data, verdict(claim, checks), task_of(problem, algorithm))


def _kept(runs: xr.Dataset) -> dict[str, np.ndarray]:
    return {name: runs[name].values[..., 0, 0] for name in NAMES}


def draw(data: xr.Dataset) -> Figure:
    """M and Q of every block against time."""
    from twolayer.plot.style import DIRECTIONS

    figure, panels = sheet(2, width=4.6, height=3.7)
    for ax, name, letter in zip(panels, NAMES, "MQ", strict=True):
        for i, s in enumerate(VARIANCES):
            colour = DIRECTIONS[i]
            ax.plot(
                data.ode_time,
                data[f"ode_{name}"][:, i],
                color=colour,
                label=f"$s = {s:g}$, ODE",
            )
            for method, marker, face, size in (
                ("vectors", "s", "none", 7.0),
                ("chain", "o", colour, 3.5),
            ):
                values, error = (
                    data[f"{method}_{name}{end}"][:, i].values for end in ("", "_error")
                )
                points(
                    ax,
                    data.time,
                    values,
                    error,
                    colour,
                    method if i == 0 else "",
                    marker,
                    face,
                    size,
                )
        ax.set(xlabel="time $t$", ylabel=rf"${letter}^{{(i)}}$")
    panels[0].legend(loc="upper left", fontsize="small")
    headline(
        figure,
        data,
        f"Overlaps in every block of the inputs, runs at $d = {told(data).dim}$",
    )
    return figure
