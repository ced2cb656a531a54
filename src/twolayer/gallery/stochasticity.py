"""Does stochasticity help? Exit times of the chain, the SDE and the ODE from the same starts.

⟨t⟩ − ⟨t⟩_ODE ≈ −log(1 + s)/(2c),   s = γ V_1/(2c)

Near m = 0 the noise of single samples adds s/d to the variance 1/d of the start. The exit is earlier by an amount that
does not depend on d: nothing against log d, and yet more than a tenth of the exit time at d = 1000 and γ_opt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.gallery.shared.judging import Verdict, holds, largest, near, verdict
from twolayer.gallery.shared.measuring import (
    canvas,
    colours,
    growth,
    known,
    measured,
    phase_retrieval,
    points,
    power,
    predicted,
)
from twolayer.gallery.shared.registry import Plate, figure
from twolayer.numerics.errors import positive_integer

LENSES = ("chain", "sde", "ode")
FAR = 0.3  # of the mean exit: deviations at single rates that must be seen


@figure(
    "stochasticity",
    "distributions of exit times of chain, SDE and ODE, and the shift of the mean against the learning rate",
    quick={"fractions": (0.5,), "dim": 1000, "seeds": 96},
)
def stochasticity(
    *,
    seed: int = 0,
    fractions: tuple[float, ...] = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75),
    dim: int = 3000,
    seeds: int = 512,
    noise: float = 0.0,
    threshold: float = 0.1,
) -> Plate:
    """Exit times at fractions of the largest admissible γ (p = 1); the distributions are shown at that nearest ½."""
    positive_integer("seeds", seeds, 2)
    problem = phase_retrieval(noise=noise)
    gammas = tl.escape.admissible_lr(problem)[1].coefficient * np.array(sorted(fractions))
    starts = tl.Overlaps.random(problem, dim, seed, size=seeds)
    times, means, shifts, allowances = [], [], [], []
    for gamma in gammas:
        theory, end, allowance = predicted(problem, gamma, dim, threshold)
        lenses = (tl.Chain(dim), tl.SDE(dim), tl.ODE())
        times.append([measured(problem, gamma, lens, starts, threshold, end, seed).times for lens in lenses])
        means.append(theory.ode)
        shifts.append(known(theory.corrected) - theory.ode)
        allowances.append(allowance)
    data = xr.Dataset(
        {"times": (("lr", "lens", "seed"), np.array(times)), "predicted": ("lr", shifts)},
        {"lr": gammas, "lens": list(LENSES), "seed": np.arange(seeds)},
    )
    data["allowance"] = ("lr", allowances)
    data["ode_mean"] = ("lr", means)
    # the mean of the ODE over all starts is known: differences start by start would only add their scatter
    shift = data.times - data.ode_mean
    data["shift"] = shift.mean("seed")
    data["shift_error"] = shift.std("seed", ddof=1) / np.sqrt(seeds)
    middle = int(np.abs(gammas - tl.optimal_lr(problem).coefficient).argmin())
    return Plate(_draw(data, problem, middle, dim, threshold), data, _verdict(data, middle))


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


def _draw(data: xr.Dataset, problem: tl.Problem, middle: int, dim: int, threshold: float) -> Any:
    palette = colours()
    figure, (left, right) = canvas(2)
    here = data.isel(lr=middle)
    high = np.arange(1, data.sizes["seed"] + 1) / data.sizes["seed"]
    for word, label in zip(LENSES, ("chain (SGD)", "SDE", "ODE"), strict=True):
        times = np.sort(here.times.sel(lens=word).values)
        left.step(times, high, where="post", color=palette[word], label=label, lw=1.5)
        left.axvline(times.mean(), color=palette[word], lw=0.9, ls=":")
    left.set(xlabel=r"exit time $t_{\mathrm{ext}}$", ylabel="fraction of runs that have left")
    left.set_title(rf"Exit times at $\gamma = {float(here.lr):.4g}$ (dotted: means)")
    left.legend(loc="lower right")
    top = tl.escape.admissible_lr(problem)[1].coefficient
    grid = np.linspace(0.001, min(0.95, 1.03 * float(data.lr.max()) / top), 200) * top
    law = [-np.log1p(s) / (2 * c) for c, s in (growth(problem, gamma) for gamma in grid)]
    right.axhline(0, color=palette["ode"], lw=1.0, ls="--")
    right.plot(grid, law, color=palette["corrected"], label=r"$-\log(1+s)/(2c)$")
    for word, label, marker, side in (
        ("chain", "chain (SGD)", "o", -1),
        ("sde", "SDE", "s", 1),
        ("ode", "ODE", "^", 0),
    ):
        row = data.sel(lens=word)
        points(right, data.lr + 0.0007 * side, row["shift"], row.shift_error, palette[word], label, marker)
    right.axvline(tl.optimal_lr(problem).coefficient, color="#888888", ls=":", lw=1.1, label=r"$\gamma_{\mathrm{opt}}$")
    right.set(xlabel=r"learning rate $\gamma$", ylabel=r"$\langle t\rangle - \langle t\rangle_{\mathrm{ODE}}$")
    right.set_title("Shift of the mean (bars: 2 s.e.)")
    right.legend(loc="lower left")
    figure.suptitle(rf"Phase retrieval, $p = 1$, $d = {power(dim)}$, $T = {threshold:g}$", fontsize=10)
    return figure
