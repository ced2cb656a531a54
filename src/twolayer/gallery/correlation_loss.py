"""Four neurons learn h3: squared loss, correlation loss and spherical SGD along the line δ = ℓ/2 − μ.

    μ = 1, δ = 1/2: all learn.    μ = 1.75, δ = −1/4: steps grow with d, and projected SGD on the squared loss flips
    T ~ d^{ℓ−1−μ}:  d, d^{1/2}, d^{1/4} at μ = 1, 1.5, 1.75

Left: ‖M‖_F/√p at d = 256, median over runs with the central 80 %. Right: steps to ‖M‖_F = 1/2 against d. The activation
is the target's own Hermite polynomial, so spherical SGD is free of the neighbours' pull and behaves like the
correlation loss.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.batching import ALGORITHMS, SHARE, hermite, law, recovered, rounding
from twolayer.gallery.shared.judging import Verdict, holds, near, unknown, verdict
from twolayer.gallery.shared.measuring import canvas, median_points, plain_ticks
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Plate, figure

COLOURS = {"SGD": "#2b8a2b", "correlation": "#e07b00", "spherical": "#7570b3"}
MARKERS = ("o", "s", "^")
RESOLUTION = 0.25  # of θ: the least distance of predictions


@figure(
    "correlation-loss",
    "SGD, correlation loss and spherical SGD with four neurons, in time at d = 256 and against d",
    quick={"width": 1, "gamma": 1.0, "dims": (64,), "mus": (1.75,), "times": (), "seeds": 8},
    group="phase-diagram",
)
def correlation_loss(
    *,
    seed: int = 0,
    width: int = 4,
    dim: int = 256,
    dims: tuple[int, ...] = (64, 128, 256, 512),
    times: tuple[float, ...] = (1.0, 1.75),
    mus: tuple[float, ...] = (1.0, 1.5, 1.75),
    gamma: float = 4.0,
    n0: int = 4,
    seeds: int = 12,
    steps: int = 40,
) -> Plate:
    """Runs of the exact chain, given up after ``steps`` steps at μ = 1.75 and more at smaller rates."""
    problem = hermite(3, width)
    paths, found = {}, {}
    for mu in times:
        for name in list(ALGORITHMS)[:2]:
            arguments = (problem, law(name, mu, 1.5 - mu, gamma, n0), dim, _steps(mu, dim, steps), seeds, seed)
            paths[mu, name] = part(f"path-{name}-{mu:g}", partial(_path, *arguments))
    for mu in mus:
        for name in ALGORITHMS:
            algorithm, sizes = law(name, mu, 1.5 - mu, gamma, n0), dims
            options: Any = {"seeds": seeds, "steps": steps * tl.d ** (1.75 - mu)}
            options["batch_sums"] = "gaussian" if width == 1 else "exact"
            found[mu, name] = recovered(f"{name}-{mu:g}", problem, algorithm, sizes, seed, **options)
    rows = [
        (mu, name, dim_, m) for (mu, name), run in found.items() for dim_, m in zip(run.dims, run.medians, strict=True)
    ]
    data = xr.Dataset(
        {
            "mu": ("row", [r[0] for r in rows]),
            "algorithm": ("row", [r[1] for r in rows]),
            "dim": ("row", [r[2] for r in rows]),
            **{k: ("row", [getattr(r[3], k) for r in rows]) for k in ("value", "low", "high")},
            **{f"path_{n}_{mu:g}": ((f"step_{mu:g}", "quantile"), p.overlap.values) for (mu, n), p in paths.items()},
        }
    )
    return Plate(_draw(paths, found, dim, times), data, _verdict(paths, found))


def _steps(mu: float, dim: int, steps: int) -> int:
    """As many at μ = 1.75 as asked, more where the rate is smaller."""
    return max(50, round(steps * dim ** (1.75 - mu)))


def _path(problem: tl.Problem, algorithm: tl.SGD, dim: int, steps: int, seeds: int, seed: int) -> dict[str, Any]:
    from twolayer.analysis.weak_recovery import oriented

    starts = oriented(problem, tl.Overlaps.random(problem, dim, seed, size=seeds))
    run = tl.solve(problem, algorithm, tl.Chain(dim, batch_sums="exact"), starts, steps=steps, save=50, seed=seed)
    norm = np.sqrt((run.M.values**2).sum((2, 3)) / problem.p)
    return {"step": run.step.values, "overlap": np.quantile(norm, [0.1, 0.5, 0.9], axis=0).T}


def _verdict(paths: dict[Any, Any], found: dict[Any, Any]) -> Verdict:
    checks = []
    for (mu, name), run in found.items():
        expected = tl.phase_diagram(ell=3, **ALGORITHMS[name]).at(mu, 1.5 - mu)
        where, fit = f"{name}, μ = {mu:g}", run.fit()
        if run.learned != expected.learns or not expected.learns:
            seen, said = ("learns" if x else "does not learn" for x in (run.learned, expected.learns))
            checks.append(
                holds(run.learned == expected.learns, f"{where}: {seen} at d = {run.dims[-1]}, {said} predicted")
            )
        elif fit is None or expected.theta is None:
            checks.append(unknown(f"{where}: no exponent from d = {', '.join(map(str, run.dims))}"))
        else:
            checks.append(
                near(
                    f"{where}: θ",
                    fit.slope,
                    expected.theta,
                    fit.error,
                    allowance=SHARE + rounding(run),
                    resolution=RESOLUTION,
                    count=len(found),
                    digits=2,
                )
            )
    ends = [f"{n} {float(p.overlap[-1, 1]):.2f} (μ = {mu:g})" for (mu, n), p in paths.items()]
    claim = "larger batches need the correlation loss or the sphere, and then take d^θ steps as predicted"
    return verdict(claim, checks, "Final overlap " + ", ".join(ends) if ends else "")


def _draw(paths: dict[Any, Any], found: dict[Any, Any], dim: int, times: tuple[float, ...]) -> Figure:
    figure, axes = canvas(len(times) + 1, width=4.0)
    for ax, mu in zip(axes, times, strict=False):
        for name in list(ALGORITHMS)[:2]:
            path = paths[mu, name]
            low, middle, high = path.overlap.values.T
            ax.fill_between(path.step, low, high, color=COLOURS[name], alpha=0.25, lw=0)
            label = "squared loss" if name == "SGD" else "correlation loss"
            ax.plot(path.step, middle, color=COLOURS[name], label=label)
        ax.set(xlabel="step", ylim=(0, 1.02))
        ax.set_title(rf"$\mu = {mu:g}$, $\delta = {1.5 - mu:g}$, $d = {dim}$")
        ax.legend(loc="lower right" if mu < 1.5 else "center right")
    if times:
        axes[0].set_ylabel(r"$\|M\|_F/\sqrt{p}$")
    for i, mu in enumerate(dict.fromkeys(mu for mu, _ in found)):
        for name in ALGORITHMS:
            run = found[mu, name]
            label = (
                f"{name}, $\\mu = {mu:g}$" if run.learned else f"{name}, $\\mu = {mu:g}$: not at $d = {run.dims[-1]}$"
            )
            median_points(
                axes[-1], run.dims, run.medians, COLOURS[name], label, MARKERS[i % 3] + ("-" if run.learned else "")
            )
    axes[-1].set(xscale="log", yscale="log", xlabel="dimension $d$", ylabel=r"steps to $\|M\|_F = 1/2$")
    plain_ticks(axes[-1].xaxis)
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7.5)
    return figure
