"""The best that n = αd samples allow: message passing on explicit data against state
evolution.

    q = F(α, q):  what Bayes-optimal message passing knows of the target, from nothing;
        α_c: below it, nothing

An odd target shows at every α > 0; an even one only from α_c on, where the trivial
fixed point loses its stability. Points: message passing on data drawn at dimension d,
from a small overlap, to which random starts come by themselves, some of them late.
Lines: state evolution, d → ∞.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.functions.target import Target
from twolayer.gallery.shared.drawing import headline, points, power, sheet, told
from twolayer.gallery.shared.judging import Verdict, largest, near, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.errors import positive_integer, require

RESOLUTION = 0.3  # of the overlap
FINITE = 2.0  # what a random start knows at finite d, in units of d^{−1/2}
# overlap at which message passing begins: from random starts some runs have not left by
# the last iteration
START = 0.1
EXACT = 0.5  # α_c of z1**2 without noise


@figure(
    "best-possible",
    "message passing on explicit data against state evolution, for targets that show at"
    " once or from α_c on",
    quick={
        "dim": 400,
        "seeds": 10,
        "alphas": (0.3, 2.0, 2.8),
        "grid": 40,
        "iterations": 12,
    },
    fixed={
        "activation": "message passing knows the target and has no student",
        "geometry": "message passing takes no gradient steps",
    },
    group="giant-steps",
    papers=("barbier2019", "mondelli2019"),
)
def best_possible(
    *,
    seed: int = 0,
    targets: tuple[str, ...] = ("tanh(z1)", "z1**2"),
    noise: float = 0.2,
    dim: int = 600,
    seeds: int = 16,
    alphas: tuple[float, ...] = (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.4, 3.0),
    grid: int = 80,
    iterations: int = 40,
) -> Finding:
    """Overlaps at the given α by message passing, and along α from 0.02 to 3 by state
    evolution.
    """
    positive_integer("seeds", seeds, 2)
    for target in targets:
        require(
            Target.of(target).directions == 1,
            "targets",
            target,
            "functions of z1 alone",
        )
    fine = np.unique(
        np.concatenate(
            [np.linspace(0.02, 3.0, positive_integer("grid", grid, 2)), alphas]
        )
    )
    rows = {
        target: part(
            target,
            partial(
                _measured, target, noise, fine, alphas, dim, seeds, seed, iterations
            ),
        )
        for target in targets
    }
    data = xr.Dataset(
        coords={"target": list(targets), "fine": fine, "alpha": list(alphas)}
    )
    for key, along in (("theory", "fine"), ("mean", "alpha"), ("error", "alpha")):
        data[key] = (
            ("target", along),
            np.array([rows[target][key].values for target in targets]),
        )
    data["threshold"] = (
        ("target",),
        np.array([float(rows[target]["threshold"]) for target in targets]),
    )
    data["exact"] = float(tl.thresholds("z1**2").alpha)
    return Finding(
        data,
        _verdict(data, seeds, dim),
        f"y = h(z1) + √Δ ξ, Δ = {noise:g}, n = αd fresh inputs in d = {dim}",
    )


def _measured(
    target: str,
    noise: float,
    fine: np.ndarray,
    alphas: tuple[float, ...],
    dim: int,
    seeds: int,
    seed: int,
    iterations: int,
) -> Variables:
    best = tl.best_possible(target, fine, noise=noise)
    options: Options = {
        "dim": dim,
        "seeds": seeds,
        "iterations": iterations,
        "start": START,
    }
    runs = [
        best.simulate(alpha, seed=seed + i, **options) for i, alpha in enumerate(alphas)
    ]
    return {
        "theory": best.overlap[:, 0, 0],
        "mean": np.array([float(run.mean[0]) for run in runs]),
        "error": np.array([float(run.error[0]) for run in runs]),
        "threshold": np.array(float(tl.thresholds(target, noise=noise).alpha)),
    }


def _verdict(data: xr.Dataset, seeds: int, dim: int) -> Verdict:
    checks = [
        largest(
            f"{target}: overlap of message passing − state evolution",
            data["mean"].sel(target=target)
            - data.theory.sel(target=target, fine=data.alpha.values).values,
            data.error.sel(target=target),
            allowance=FINITE / np.sqrt(dim),
            resolution=RESOLUTION,
            freedom=seeds - 1,
        )
        for target in data.target.values
    ]
    checks.append(
        near(
            "α_c of z1**2 without noise",
            float(data.exact),
            EXACT,
            0.0,
            resolution=0.01,
            allowance=1e-3,
        )
    )
    told = ", ".join(
        f"{t}: {float(data.threshold.sel(target=t)):.4g}" for t in data.target.values
    )
    return verdict(
        "message passing reaches what state evolution says is possible",
        checks,
        f"α_c with this noise: {told}",
    )


def draw(data: xr.Dataset) -> Figure:
    """One panel for each target, with its threshold."""
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

    chosen = told(data)
    figure, panels = sheet(data.sizes["target"], width=4.4, height=3.6)
    for i, (target, ax) in enumerate(zip(data.target.values, panels, strict=True)):
        each = data.sel(target=target)
        ax.plot(
            data.fine,
            each.theory,
            color=COLOURS["theory"],
            label="state evolution, best possible",
        )
        word = f"message passing, $d = {power(chosen.dim)}$, {chosen.seeds} runs"
        points(
            ax, data.alpha, each["mean"], each.error, DIRECTIONS[0], word, "o", "none"
        )
        threshold = float(each.threshold)
        if np.isfinite(threshold) and threshold > 0:
            ax.axvline(
                threshold,
                color=GREY,
                ls="--",
                lw=1.2,
                label=rf"$\alpha_c = {threshold:.3g}$",
            )
        ax.set(
            xlabel=r"$\alpha = n/d$",
            ylim=(-0.03, 1.0),
            xlim=(0, None),
            ylabel="overlap $q$" if i == 0 else "",
        )
        ax.set_title(str(target))
        ax.legend(fontsize=7.5, loc="lower right")
    headline(
        figure,
        data,
        f"The best possible, and what reaches it from q = {START:g} (bars: two standard"
        " errors)",
    )
    return figure
