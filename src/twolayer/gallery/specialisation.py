"""The specialisation plateau of erf committees, with as many student neurons as the
teacher has, and with more.

From small overlaps all students first learn the mean of the teacher: the ODE goes to a
fixed point on the symmetric manifold, where every M_jr is the same, and stays near it
until differences have grown. That fixed point is found here by starting on the
manifold, which the equations never leave.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, holds, unknown, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.wide import committee, online, small_weights
from twolayer.numerics.arguments import Options
from twolayer.numerics.statistics import median

# relative distance of the risk from that of the symmetric fixed point that counts as
# plateau
NEAR = 0.1
LONG = 0.3  # part of the time until its end that a plateau takes at least
# relative: differences between runs of SGD grow from fluctuations, which the ODE does
# not have
LATE = 0.1
FACTOR = 3.0  # within which the end of the plateau must be known
# largest difference of overlaps on the symmetric manifold; averages by quadrature are
# coarser
EVEN = 1e-8
ROUGH = 1e-3


@figure(
    "specialisation",
    "the symmetric plateau of erf committees and its end, p = k and p > k",
    quick={"seeds": 8, "dim": 100},
    fixed={
        "target": "students specialise on the neurons of a teacher of their own kind"
    },
    group="mean-field",
    papers=("saad1995", "arnaboldi2023dimensionless"),
)
def specialisation(
    *,
    seed: int = 0,
    directions: int = 2,
    widths: tuple[int, ...] = (2, 4),
    dim: int = 500,
    lr: float = 4.0,
    noise: float = 0.0,
    seeds: int = 8,
    time: float = 400.0,
    spread: float = 0.1,
    activation: str = "erf",
    geometry: str = "free",
) -> Finding:
    """Runs of the chain and the ODE start from the same small random overlaps, of size
    ``spread``.
    """
    problem, algorithm = (
        committee(activation, directions, 1, noise),
        online(lr, geometry),
    )
    settings = (dim, seeds, time, spread, seed)
    rows = [
        part(f"p={p}", partial(_one, problem.replace(width=p), algorithm, *settings))
        for p in widths
    ]
    data = xr.concat([row.drop_vars("M") for row in rows], "width").assign_coords(
        width=list(widths)
    )
    data["length"] = ("width", [_length(data, p) for p in widths])
    data["end"] = (
        "width",
        [_end(data.ode.sel(width=p), data.plateau.sel(width=p)) for p in widths],
    )
    data["chain_end"] = (
        ("width", "seed"),
        [
            [_end(run, data.plateau.sel(width=p)) for run in data.chain.sel(width=p)]
            for p in widths
        ],
    )
    for p, row in zip(widths, rows, strict=True):
        data[f"M_{p}"] = ("save", f"neuron_{p}", "direction"), row.M.values
    known = directions if (activation, geometry) == ("erf", "free") else None
    found = _verdict(data, known, EVEN if activation == "erf" else ROUGH)
    return Finding(data, found, task_of(problem, algorithm).replace("p = 1", "width p"))


def _one(
    problem: tl.Problem,
    algorithm: tl.SGD,
    dim: int,
    seeds: int,
    time: float,
    spread: float,
    seed: int,
) -> xr.Dataset:
    shape = (problem.p, problem.k)
    each = (
        spread * np.random.default_rng(seed).normal(size=shape),
        np.full(shape, spread),
    )
    start, even = (small_weights(M, dim, algorithm.geometry) for M in each)
    both = tl.Overlaps(
        np.stack([start.Q, even.Q]), np.stack([start.M, even.M]), problem.P, dim=dim
    )
    ode = tl.solve(problem, algorithm, tl.ODE(), both, time=time, save=200)
    chain = tl.solve(
        problem,
        algorithm,
        tl.Chain(dim),
        start,
        time=time,
        save=200,
        seeds=seeds,
        seed=seed,
    )
    M_t, times = ode.M.values[0], ode.time.values
    return xr.Dataset(
        {
            "ode": ("save", ode.excess_risk.values[0]),
            "plateau": ode.excess_risk.values[1, -1],
            "unequal": np.ptp(ode.M.values[1, -1]),
            "chain": (
                ("seed", "save"),
                [
                    np.interp(times, chain.time.values, row)
                    for row in chain.excess_risk.values
                ],
            ),
            "overlap": (
                "save",
                M_t.max(axis=2).mean(axis=1) - M_t.min(axis=2).mean(axis=1),
            ),
            "M": (("save", "neuron", "direction"), M_t),
        },
        {"save": times},
    )


def _length(data: xr.Dataset, p: int) -> float:
    """Time that the risk of the ODE spends within a tenth of the symmetric fixed
    point.
    """
    here = data.sel(width=p)
    near = np.abs(here.ode.values / float(here.plateau) - 1) < NEAR
    return float(near.sum() * (data.save[1] - data.save[0]))


def _end(risk: xr.DataArray, plateau: xr.DataArray) -> float:
    """When the risk has fallen to half of that of the symmetric fixed point."""
    below = risk.values < 0.5 * float(plateau)
    return float(risk.save[np.argmax(below)]) if below.any() else np.inf


def _verdict(data: xr.Dataset, k: int | None, even: float) -> Verdict:
    """The plateau is a fixed point of the symmetric manifold, long, and ends for SGD
    when it ends for the ODE.

    ``k`` is that of free erf committees, of which those with p > k are known to be slow
    in the end.
    """
    checks, notes = [], []
    for p in data.width.values:
        here = data.sel(width=p)
        final, level, length = (
            float(here.ode[-1]),
            float(here.plateau),
            float(here.length),
        )
        end, runs = float(here.end), median(here.chain_end.values)
        low, high = runs.low * (1 - LATE), runs.high * (1 + LATE)
        known = (
            np.isfinite([low, high, end]).all() and max(high / end, end / low) <= FACTOR
        )
        told = (
            f"p = {p}: the ODE leaves the plateau at t = {end:.0f}, the median of"
            f" {here.sizes['seed']} runs of SGD at {runs.value:.0f} (95 %:"
            f" {runs.low:.0f} to {runs.high:.0f}, {LATE:.0%} more allowed, a factor"
            f" {FACTOR:g} resolved)"
        )
        checks += [
            holds(
                float(here.unequal) < even,
                f"p = {p}: on the symmetric manifold overlaps differ by"
                f" {float(here.unequal):.0e}, threshold {even:.0e}",
            ),
            holds(
                length > LONG * end,
                f"the plateau lasts {length:.0f}, {LONG:g} of its end {end:.0f} at"
                " least",
            ),
            holds(
                final < 0.1 * level,
                f"the risk falls to {final:.2g}, below a tenth of the plateau's"
                f" {level:.4f}",
            ),
            (
                holds(low <= end <= high, told)
                if known or not low <= end <= high
                else unknown(told)
            ),
        ]
        notes.append(
            f"p = {p}: SGD ends at {float(here.chain[:, -1].mean()):.2g} on average;"
            " largest minus smallest overlap of a neuron at the end"
            f" {float(here.overlap[-1]):.2f}"
        )
    widths, last = data.width.values, data.ode[:, -1].values
    if k is not None and k in widths and widths.max() > k:
        ratio = float(last[widths.argmax()] / last[list(widths).index(k)])
        checks.append(
            holds(
                ratio > 10,
                f"with p > k the risk at the end is {ratio:.0f} times that of p = k, 10"
                " at least",
            )
        )
    return verdict(
        "committees stay at the symmetric fixed point, and SGD leaves it with the ODE",
        checks,
        "; ".join(notes),
    )


def draw(data: xr.Dataset) -> Figure:
    """A row for each width: risks on the left, overlaps of the ODE on the right."""
    from twolayer.plot.style import COLOURS, DIRECTIONS, positive

    widths, runs = data.width.values, data.sizes["seed"]
    shown, axes = sheet(2, rows=len(widths), width=4.6, height=3.3)
    for i, p in enumerate(widths):
        left, right, here = axes[2 * i], axes[2 * i + 1], data.sel(width=p)
        names = ["SGD (chain)"] + [None] * (runs - 1)
        left.plot(
            data.save,
            positive(here.chain.T),
            color=COLOURS["chain"],
            lw=0.7,
            alpha=0.7,
            label=names,
        )
        left.plot(
            data.save, positive(here.ode), color=COLOURS["ode"], lw=2, label="ODE"
        )
        level: Options = {"color": COLOURS["sde"], "ls": "--", "lw": 1.4}
        left.axhline(float(here.plateau), label="symmetric fixed point", **level)
        left.set(yscale="log", ylabel="excess risk", title=f"$p = {p}$")
        left.legend()
        M = data[f"M_{p}"]
        for r in range(data.sizes["direction"]):
            names = [f"teacher neuron {r + 1}"] + [None] * (M.shape[1] - 1)
            dash = ("-", "--", "-.", ":")[r % 4]
            right.plot(
                data.save,
                M.values[:, :, r],
                dash,
                color=DIRECTIONS[r],
                lw=1.2,
                label=names,
            )
        right.set(ylabel="overlaps $M_{jr}$ of the ODE", title=f"$p = {p}$")
        right.legend()
        for ax in (left, right):
            ax.set_xlabel("time $t$")
    headline(
        shown, data, f"From small random overlaps, {runs} runs at d = {told(data).dim}"
    )
    return shown
