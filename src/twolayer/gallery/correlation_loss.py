"""Four neurons learn h_ℓ, by default h3: squared loss, correlation loss and spherical
SGD along the line δ = ℓ/2 − μ.

    ℓ = 3: all learn at μ = 1, δ = 1/2; at μ = 1.75, δ = −1/4 steps grow with d,
        and projected SGD on the squared loss
    flips.  T ~ d^{ℓ−1−μ}:  d, d^{1/2}, d^{1/4} at μ = 1, 1.5, 1.75

Left: ‖M‖_F/√p at d = 256, median over runs with the central 80 %. Right: steps until it
is 1/2, against d. The activation is the target's own Hermite polynomial, so spherical
SGD is free of the neighbours' pull and behaves like the correlation loss.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.batching import (
    ALGORITHMS,
    SHARE,
    fit_of,
    hermite,
    law,
    recovered,
    rounding,
)
from twolayer.gallery.shared.drawing import ALGORITHMS as LOOKS
from twolayer.gallery.shared.drawing import (
    headline,
    known,
    median_points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, holds, near, unknown, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.errors import positive_integer

if TYPE_CHECKING:
    from twolayer.analysis.phases import Phase
    from twolayer.analysis.weak_recovery import WeakRecovery

RESOLUTION = 0.25  # of θ: the least distance of predictions


@figure(
    "correlation-loss",
    "SGD, correlation loss and spherical SGD with four neurons, in time at d = 256 and"
    " against d",
    quick={"width": 1, "gamma": 1.0, "dim": 64, "dims": (32, 64), "seeds": 8},
    fixed={
        "target": "h_ℓ(z1), set by ell",
        "activation": "h_ℓ, which matches the target set by ell",
        "geometry": "projected and spherical steps are compared",
    },
    group="phase-diagram",
)
def correlation_loss(
    *,
    seed: int = 0,
    ell: int = 3,
    width: int = 4,
    dim: int = 256,
    dims: tuple[int, ...] = (64, 128, 256, 512),
    times: tuple[float, ...] = (1.0, 1.75),
    mus: tuple[float, ...] = (1.0, 1.5, 1.75),
    gamma: float = 4.0,
    n0: int = 4,
    seeds: int = 12,
    steps: int = 40,
) -> Finding:
    """Runs of the exact chain, given up after ``steps`` steps at μ = ℓ/2 + 1/4 and more
    at smaller rates.
    """
    problem, half = hermite(positive_integer("ell", ell, 2), width), ell / 2
    paths, found = {}, {}
    for mu in times:
        for name in ALGORITHMS:
            arguments = (
                problem,
                law(name, mu, half - mu, gamma, n0),
                dim,
                _steps(mu - half, dim, steps),
                seeds,
                seed,
            )
            paths[mu, name] = part(f"path-{name}-{mu:g}", partial(_path, *arguments))
    for mu in mus:
        for name in ALGORITHMS:
            algorithm = law(name, mu, half - mu, gamma, n0)
            options: Options = {
                "seeds": seeds,
                "steps": steps * tl.d ** (0.25 + half - mu),
            }
            options["batch_sums"] = "gaussian" if width == 1 else "exact"
            found[mu, name] = recovered(
                f"{name}-{mu:g}", problem, algorithm, dims, seed, **options
            )
    rows = [
        (mu, name, dim_, m)
        for (mu, name), run in found.items()
        for dim_, m in zip(run.dims, run.medians, strict=True)
    ]
    data = xr.Dataset(
        {
            "mu": ("row", [r[0] for r in rows]),
            "algorithm": ("row", [r[1] for r in rows]),
            "dim": ("row", [r[2] for r in rows]),
            "steps": ("row", [r[3].value for r in rows]),
            **{
                f"steps_{k}": ("row", [getattr(r[3], k) for r in rows])
                for k in ("low", "high")
            },
            **{
                f"path_{n}_{mu:g}": ((f"point_{mu:g}", "quantile"), p.overlap.values)
                for (mu, n), p in paths.items()
            },
            **{
                f"step_{mu:g}": (f"point_{mu:g}", p.step.values)
                for (mu, _), p in paths.items()
            },
        }
    )
    data["theta"] = "row", [known(_at(ell, mu, name).theta) for mu, name, _, _ in rows]
    return Finding(data, _verdict(ell, paths, found), task_of(problem))


def _at(ell: int, mu: float, name: str) -> Phase:
    """What the diagram says on the line δ = ℓ/2 − μ."""
    return tl.phase_diagram(ell=ell, **ALGORITHMS[name]).at(mu, ell / 2 - mu)


def _steps(beyond: float, dim: int, steps: int) -> int:
    """As many as asked where μ − ℓ/2 is 1/4, more where the rate is smaller."""
    return max(50, round(steps * dim ** (0.25 - beyond)))


def _path(
    problem: tl.Problem, algorithm: tl.SGD, dim: int, steps: int, seeds: int, seed: int
) -> Variables:
    from twolayer.analysis.weak_recovery import oriented

    starts = oriented(problem, tl.Overlaps.random(problem, dim, seed, size=seeds))
    run = tl.solve(
        problem,
        algorithm,
        tl.Chain(dim, batch_sums="exact"),
        starts,
        steps=steps,
        save=50,
        seed=seed,
    )
    norm = np.sqrt((run.M.values**2).sum((2, 3)) / problem.p)
    return {
        "step": run.step.values,
        "overlap": np.quantile(norm, [0.1, 0.5, 0.9], axis=0).T,
    }


def _verdict(
    ell: int,
    paths: dict[tuple[float, str], xr.Dataset],
    found: dict[tuple[float, str], WeakRecovery],
) -> Verdict:
    checks = []
    for (mu, name), run in found.items():
        expected = _at(ell, mu, name)
        where, fit = f"{name}, μ = {mu:g}", fit_of(run)
        if run.learned != expected.learns or not expected.learns:
            seen, said = (
                "learns" if x else "does not learn"
                for x in (run.learned, expected.learns)
            )
            checks.append(
                holds(
                    run.learned == expected.learns,
                    f"{where}: {seen} at d = {run.dims[-1]}, {said} predicted",
                )
            )
        elif fit is None or expected.theta is None:
            checks.append(
                unknown(
                    f"{where}: no exponent from d = {', '.join(map(str, run.dims))}"
                )
            )
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
    ends = [
        f"{n} {float(p.overlap[-1, 1]):.2f} (μ = {mu:g})"
        for (mu, n), p in paths.items()
    ]
    claim = (
        "larger batches need the correlation loss or the sphere, and then take d^θ"
        " steps as predicted"
    )
    return verdict(claim, checks, "Final overlap " + ", ".join(ends) if ends else "")


def draw(data: xr.Dataset) -> Figure:
    """Overlaps in time at two μ, and steps against d at all of them with the predicted
    powers.
    """
    from twolayer.plot.style import COLOURS

    chosen = told(data)
    figure, axes = sheet(len(chosen.times) + len(chosen.mus), width=3.3, height=3.9)
    for ax, mu in zip(axes, chosen.times, strict=False):
        for name, look in LOOKS.items():
            low, middle, high = data[f"path_{name}_{mu:g}"].values.T
            step = data[f"step_{mu:g}"]
            ax.fill_between(step, low, high, color=COLOURS[name], alpha=0.2, lw=0)
            ax.plot(
                step, middle, color=COLOURS[name], ls=look["ls"], label=look["label"]
            )
        ax.set(xlabel="step", ylim=(0, 1.02))
        ax.set_title(
            rf"$\mu = {mu:g}$, $\delta = {chosen.ell / 2 - mu:g}$, $d = {chosen.dim}$"
        )
    axes[0].set_ylabel(r"$\|M\|_F/\sqrt{p}$")
    for ax, mu in zip(axes[len(chosen.times) :], chosen.mus, strict=True):
        for name, look in LOOKS.items():
            own = data.isel(
                row=np.flatnonzero(
                    (data.mu.values == mu) & (data.algorithm.values == name)
                )
            )
            median_points(ax, own.dim, own, "steps", COLOURS[name], "_", look["marker"])
            steps, theta = own.steps.values, float(own.theta[0])
            at = np.flatnonzero(np.isfinite(steps))
            if at.size and np.isfinite(theta):
                fine = np.geomspace(float(own.dim[0]), float(own.dim[-1]), 30)
                through = steps[at[-1]] * (fine / float(own.dim[at[-1]])) ** theta
                ax.plot(
                    fine,
                    through,
                    look["ls"],
                    color=COLOURS[name],
                    lw=1,
                    label=rf"$d^{{{theta:g}}}$, {name}",
                )
            else:
                ax.plot([], [], " ", label=f"{name}: not learned")
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="dimension $d$",
            title=rf"$\mu = {mu:g}$: steps to $\|M\|_F/\sqrt{{p}} = 1/2$",
        )
        ax.set_xticks(chosen.dims, [str(n) for n in chosen.dims])
        ax.minorticks_off()
        ax.legend(fontsize=7.5, title="lines: predicted", title_fontsize=7.5)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3
    )
    headline(
        figure,
        data,
        rf"Along $\delta = {chosen.ell}/2 - \mu$; bands: central 80 % of the runs,"
        r" bars: 95 % of the median",
    )
    return figure
