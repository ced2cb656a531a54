"""Does stochasticity help? Exit times of the chain, the SDE and the ODE from the same
starts.

⟨t⟩ − ⟨t⟩_ODE ≈ −log(1 + s)/(2c),   s = γ V_1/(2c)

Near m = 0 the noise of single samples adds s/d to the variance 1/d of the start. The
exit is earlier by an amount that does not depend on d: nothing against log d, and yet
more than a tenth of the exit time at d = 1000 and γ_opt.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import (
    headline,
    known,
    points,
    power,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, holds, largest, near, verdict
from twolayer.gallery.shared.measuring import (
    growth,
    measured,
    on_sphere,
    phase_retrieval,
    predicted,
)
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.errors import positive_integer
from twolayer.numerics.statistics import standard_error

LENSES = ("chain", "sde", "ode")
FAR = 0.3  # of the mean exit: deviations at single rates that must be seen


@figure(
    "stochasticity",
    "distributions of exit times of chain, SDE and ODE, and the shift of the mean"
    " against the learning rate",
    quick={"fractions": (0.25, 0.5, 0.75), "dim": 1000, "seeds": 96},
    fixed={
        "target": "the shift −log(1 + s)/(2c) has c and s of phase retrieval, z1**2",
        "activation": (
            "the shift −log(1 + s)/(2c) has c and s of phase retrieval, squares"
        ),
    },
)
def stochasticity(
    *,
    seed: int = 0,
    fractions: tuple[float, ...] = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75),
    dim: int = 3000,
    seeds: int = 512,
    noise: float = 0.0,
    threshold: float = 0.1,
    geometry: str = "projected",
) -> Finding:
    """Exit times at fractions of the largest admissible γ (p = 1); the distributions
    are shown at that nearest ½.
    """
    positive_integer("seeds", seeds, 2)
    problem = phase_retrieval(noise=noise)
    highest = tl.escape.admissible_lr(problem)[1].coefficient
    gammas = highest * np.array(sorted(fractions))
    starts = tl.Overlaps.random(problem, dim, seed, size=seeds)
    times, means, shifts, allowances = [], [], [], []
    for gamma in gammas:
        algorithm = on_sphere(gamma, geometry)
        theory, end, allowance = predicted(problem, algorithm, dim, threshold)
        lenses = (tl.Chain(dim), tl.SDE(dim), tl.ODE())
        times.append(
            [
                measured(problem, algorithm, lens, starts, threshold, end, seed).times
                for lens in lenses
            ]
        )
        means.append(known(theory.ode))
        shifts.append(known(theory.corrected) - known(theory.ode))
        allowances.append(allowance)
    data = xr.Dataset(
        {
            "times": (("lr", "lens", "seed"), np.array(times)),
            "predicted": ("lr", shifts),
        },
        {"lr": gammas, "lens": list(LENSES), "seed": np.arange(seeds)},
    )
    data["allowance"] = ("lr", allowances)
    data["ode_mean"] = ("lr", means)
    # the mean of the ODE over all starts is known: differences start by start would
    # only add their scatter
    shift = data.times - data.ode_mean
    data["shift"] = shift.mean("seed")
    data["shift_error"] = (
        shift.mean("seed").dims,
        standard_error(shift, shift.get_axis_num("seed")),
    )
    middle = int(np.abs(gammas - tl.optimal_lr(problem).coefficient).argmin())
    grid = np.linspace(0.001, min(0.95, 1.03 * gammas.max() / highest), 200) * highest
    data["law"] = (
        "grid",
        [-np.log1p(s) / (2 * c) for c, s in (growth(problem, gamma) for gamma in grid)],
    )
    data = data.assign_coords(grid=grid)
    data["middle"], data["optimum"] = middle, tl.optimal_lr(problem).coefficient
    return Finding(data, _verdict(data, middle), task_of(problem))


def _verdict(data: xr.Dataset, middle: int) -> Verdict:
    runs = data.sizes["seed"]
    checks = []
    for word, name in (("chain", "SGD"), ("sde", "SDE")):
        row, here = data.sel(lens=word), data.isel(lr=middle).sel(lens=word)
        predicted = float(here.predicted)
        checks.append(
            near(
                f"{name} at γ = {float(here.lr):.4f}, shift of the mean exit",
                float(here["shift"]),
                predicted,
                float(here.shift_error),
                allowance=float(here.allowance),
                resolution=abs(predicted),
                freedom=runs - 1,
                count=2,
            )
        )
        checks.append(
            largest(
                f"{name} at all γ, shift − prediction",
                row["shift"] - row.predicted,
                row.shift_error,
                allowance=data.allowance,
                resolution=FAR * data.ode_mean,
                freedom=runs - 1,
            )
        )
    own = data.sel(lens="ode")
    checks.append(
        largest(
            "sampled ODE − its exact mean",
            own["shift"],
            own.shift_error,
            resolution=FAR * data.ode_mean,
            freedom=runs - 1,
        )
    )
    checks.append(holds(np.isfinite(data.times).all(), "every run escapes"))
    note = "Resolutions: the predicted shift, and 30 % of the mean exit"
    return verdict("the noise shortens the mean exit by log(1 + s)/(2c)", checks, note)


def draw(data: xr.Dataset) -> Figure:
    """Distributions of exits at γ near the optimum, and the shift of their means
    against γ.
    """
    from twolayer.plot.style import COLOURS, GREY

    chosen = told(data)
    figure, (left, right) = sheet(2)
    here = data.isel(lr=int(data.middle))
    high = np.arange(1, data.sizes["seed"] + 1) / data.sizes["seed"]
    looks = {
        "chain": ("chain (SGD)", "-", "o", -1),
        "sde": ("SDE", "--", "s", 1),
        "ode": ("ODE", ":", "^", 0),
    }
    for word, (label, style, _, _) in looks.items():
        times = np.sort(here.times.sel(lens=word).values)
        left.step(
            times,
            high,
            where="post",
            color=COLOURS[word],
            ls=style,
            label=label,
            lw=1.6,
        )
        left.plot(
            times.mean(), 0.0, "|", color=COLOURS[word], ms=16, mew=2, clip_on=False
        )
    left.set(
        xlabel=r"exit time $t_{\mathrm{ext}}$",
        ylabel="fraction of runs that have left",
        ylim=(0, 1.02),
    )
    left.set_title(rf"exit times at $\gamma = {float(here.lr):.4g}$ (ticks: means)")
    left.legend(loc="lower right")
    right.axhline(0, color=GREY, lw=1.0)
    right.plot(
        data.grid, data.law, color=COLOURS["corrected"], label=r"$-\log(1+s)/(2c)$"
    )
    side = 0.004 * float(data.grid.max())
    for word, (label, _, marker, place) in looks.items():
        row = data.sel(lens=word)
        points(
            right,
            data.lr + side * place,
            row["shift"],
            row.shift_error,
            COLOURS[word],
            label,
            marker,
        )
    right.axvline(
        float(data.optimum),
        color=GREY,
        ls=":",
        lw=1.1,
        label=r"$\gamma_{\mathrm{opt}}$",
    )
    right.set(
        xlabel=r"learning rate $\gamma$",
        ylabel=r"$\langle t\rangle - \langle t\rangle_{\mathrm{ODE}}$",
    )
    right.set_title("shift of the mean (bars: 2 s.e.)")
    right.legend(loc="lower left")
    told_so = (
        rf"The same starts for all, $d = {power(chosen.dim)}$, $T ="
        rf" {chosen.threshold:g}$, {chosen.geometry}"
    )
    headline(figure, data, told_so)
    return figure
