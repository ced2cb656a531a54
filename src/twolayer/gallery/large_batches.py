"""Phase retrieval with batches of n_b ~ d: weak recovery in O(log d) steps, and how
exact Gaussian batch sums are.

The target is h2(z1) by default, or another of information exponent two.

    ℓ = 2, μ = 1, δ = 0:    T = log(η √d)/(γ_eff c − x/2),    x = γ² s²/(n0 (1 − γκ)²)

Left: median steps against d up to 10⁶ (n_b up to 10⁷), linear in log d with the
predicted slope. Middle: steps with batches drawn sample by sample and with Gaussian
sums, at the same ratio d/n_b. Right: mean overlap after one projected step whose noise
is as long as the weights, for h2, h3 and h4: heavier tails need larger batches, and the
size of the batch over the tail of the gradients (`tail_of`) says where the two ways
agree.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.stats import linregress

import twolayer as tl
from twolayer.gallery.shared.batching import hermite, recovered
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import (
    headline,
    median_points,
    plain_ticks,
    points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import (
    Verdict,
    between,
    holds,
    largest,
    near,
    verdict,
)
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.errors import require
from twolayer.numerics.statistics import power_law, standard_error

SLOPE = 0.25  # of the slope: the formula is the leading order in 1/log d
LOGARITHMIC = 0.1  # an exponent of T/log d that must be told from 0
CLOSE = 0.1  # relative difference of exact and Gaussian sums that must be seen
START = 0.3  # overlap before the single step
ENOUGH, ROUGH = (
    10.0,
    0.01,
)  # batches of so many tails agree up to this part of the overlap


@figure(
    "large-batches",
    "phase retrieval with batches of order d in log d steps, and exact against Gaussian"
    " batch sums",
    quick={
        "dims": (1000, 3000, 10_000, 30_000, 100_000),
        "sizes": (100, 300, 1000),
        "seeds": 16,
        "tails": (1, 10),
    },
    group="phase-diagram",
)
def large_batches(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    target: str = "h2(z1)",
    activation: str = "h2",
    geometry: str = "projected",
    gamma: float = 0.1,
    n0: int = 10,
    sizes: tuple[int, ...] = (100, 300, 1000, 3000, 10_000),
    seeds: int = 96,
    ells: tuple[int, ...] = (2, 3, 4),
    tails: tuple[float, ...] = (0.1, 0.3, 1, 3, 10),
) -> Finding:
    """T against log d; mean log T with exact and Gaussian sums for n_b from ``sizes``,
    d = n_b/10; single steps.
    """
    problem = chosen_problem(target, activation, 1)
    algorithm = tl.SGD(lr=gamma, batch=n0 * tl.d, geometry=geometry)
    fine = np.geomspace(min(dims), max(dims), 50).round().astype(int)
    steps = [
        tl.single_index.recovery_steps(problem, algorithm, int(dim)) for dim in fine
    ]
    require(
        steps[0].ell == 2,
        "target",
        target,
        f"of information exponent 2, as seen by {activation}",
    )
    predicted = [each.contracted for each in steps]
    require(
        max(predicted) < np.inf,
        "gamma",
        gamma,
        f"so small that {activation} learns {target} with {n0} d samples",
    )
    options: Options = {
        "seeds": seeds,
        "start": "typical",
        "steps": max(300, round(5 * predicted[-1])),
    }
    runs = [
        recovered(
            f"d-{dim}",
            problem,
            algorithm,
            (dim,),
            seed,
            batch_sums="gaussian",
            **options,
        )
        for dim in dims
    ]
    logs = np.zeros((2, len(sizes), 2))
    for i, sums in enumerate(("exact", "gaussian")):
        for j, size in enumerate(sizes):
            small = algorithm.replace(batch=size)
            # different seeds: independent runs
            one = recovered(
                f"{sums}-{size}",
                problem,
                small,
                (max(size // n0, 3),),
                seed + i,
                batch_sums=sums,
                **options,
            )
            values = np.log(one.steps[0][np.isfinite(one.steps[0])])
            logs[i, j] = values.mean(), standard_error(values)
    singles = {
        ell: [
            part(
                f"step-{ell}-{x:g}",
                partial(_single, ell, x, gamma, geometry, 8 * seeds, seed),
            )
            for x in tails
        ]
        for ell in ells
    }
    medians = [run.medians[0] for run in runs]
    data = xr.Dataset(
        {
            "steps": ("dim", [m.value for m in medians]),
            "steps_low": ("dim", [m.low for m in medians]),
            "steps_high": ("dim", [m.high for m in medians]),
            "predicted": ("fine", predicted),
            "log_steps": (("sums", "size"), logs[:, :, 0]),
            "log_error": (("sums", "size"), logs[:, :, 1]),
            **{
                name: (
                    ("ell", "tails"),
                    [[float(one[name]) for one in row] for row in singles.values()],
                )
                for name in ("batch", "gap", "gap_error")
            },
        },
        {
            "dim": list(dims),
            "fine": fine,
            "sums": ["exact", "gaussian"],
            "size": list(sizes),
            "ell": list(ells),
            "tails": np.array(tails, dtype=float),
        },
    )
    found = _verdict(data, [run.censored[0] for run in runs], seeds)
    return Finding(data, found, task_of(problem, algorithm))


def _single(
    ell: int, tails: float, gamma: float, geometry: str, seeds: int, seed: int
) -> Variables:
    """Mean overlap after one step with Gaussian sums, less and relative to that with
    exact ones.
    """
    from twolayer.methods.chain import tail_of

    problem, start = hermite(ell), tl.Overlaps([[1.0]], [[START]])
    square = float(tl.moments(problem, start).chi[0, 0])
    batch = max(
        4,
        round(tails * tail_of(problem, tl.SGD(lr=gamma), start.Q, start.M, np.ones(1))),
    )
    dim = max(10, round(batch / (gamma**2 * square)))  # noise of length one
    algorithm = tl.SGD(lr=gamma, batch=batch, geometry=geometry)
    means, errors = np.zeros(2), np.zeros(2)
    for i, sums in enumerate(("exact", "gaussian")):
        run = tl.solve(
            problem,
            algorithm,
            tl.Chain(dim, batch_sums=sums),
            start,
            steps=1,
            save=1,
            seeds=seeds,
            seed=seed + i,
        )
        m = run.M.values[:, -1, 0, 0]
        means[i], errors[i] = m.mean(), standard_error(m)
    return {
        "batch": batch,
        "gap": means[1] / means[0] - 1,
        "gap_error": np.hypot(*errors) / means[0],
    }


def _slope(data: xr.Dataset, name: str, against: str) -> float:
    return float(linregress(np.log(data[against].values), data[name].values).slope)


def _verdict(data: xr.Dataset, censored: list[int], seeds: int) -> Verdict:
    measured, predicted = (
        _slope(data, "steps", "dim"),
        _slope(data, "predicted", "fine"),
    )
    growth = power_law(data.dim.values, data.steps.values / np.log(data.dim.values))
    gap = data.log_steps.sel(sums="gaussian") - data.log_steps.sel(sums="exact")
    error = np.hypot(*(data.log_error.sel(sums=s) for s in ("gaussian", "exact")))
    far = data.isel(tails=np.flatnonzero(data.tails.values >= ENOUGH))
    checks = [
        between(
            "slope of T against log d over that of the formula, a leading order to"
            f" which {SLOPE:.0%} are allowed",
            1 - SLOPE,
            measured / predicted,
            1 + SLOPE,
        ),
        near(
            "exponent of T/log d",
            growth.slope,
            0.0,
            growth.error,
            allowance=0.03,
            resolution=LOGARITHMIC,
            freedom=data.sizes["dim"] - 2,
        ),
        near(
            f"log T, Gaussian − exact sums, n_b = {int(data['size'][-1])}",
            float(gap[-1]),
            0.0,
            float(error[-1]),
            resolution=CLOSE,
            freedom=2 * (seeds - 1),
        ),
        largest(
            f"one step at {ENOUGH:g} tails and more: Gaussian/exact − 1",
            far.gap,
            far.gap_error,
            allowance=ROUGH,
            resolution=CLOSE,
        ),
        holds(
            max(censored) == 0,
            f"{max(censored)} runs at one d did not recover, none expected",
        ),
    ]
    steps = "; ".join(
        f"ℓ = {int(row.ell)}: "
        + ", ".join(
            f"{float(x):+.3f} ± {float(e):.3f} at {int(n)}"
            for x, e, n in zip(row.gap, row.gap_error, row.batch, strict=True)
        )
        for row in (data.isel(ell=i) for i in range(data.sizes["ell"]))
    )
    note = (
        f"T = {measured:.3f} log d + const, slope of the formula {predicted:.3f}; after"
        f" one step the mean overlap differs, relative, by ({steps})"
    )
    return verdict(
        "batches of order d learn in log d steps, and their sums are Gaussian",
        checks,
        note,
    )


def draw(data: xr.Dataset) -> Figure:
    """Steps against d, the two ways of summing against the batch, and single steps
    against the tail.
    """
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

    n0 = told(data).n0
    figure, (left, right, single) = sheet(3, width=4.0, height=3.9)
    median_points(
        left, data.dim, data, "steps", COLOURS["chain"], "chain, median (bars: 95 %)"
    )
    left.plot(
        data.fine,
        data.predicted,
        color=COLOURS["theory"],
        label="formula, leading order",
    )
    middle = float(np.exp(np.log(data.fine.values).mean()))
    at, slope = (
        np.interp(middle, data.fine, data.predicted),
        _slope(data, "predicted", "fine"),
    )
    log = np.log(data.fine.values / middle)
    ends = [at + factor * slope * log for factor in (1 - SLOPE, 1 + SLOPE)]
    left.fill_between(
        data.fine,
        *ends,
        color=GREY,
        alpha=0.2,
        lw=0,
        label=f"slopes that pass: ± {SLOPE:.0%}",
    )
    left.set(
        xscale="log",
        xlabel="dimension $d$",
        ylabel="steps $T$ to $|m| = 1/2$",
        ylim=(0, None),
    )
    left.set_title(rf"$n_b = {n0}\,d$: steps grow as $\log d$")
    left.legend(loc="lower right")
    for sums, colour, shift, mark in (
        ("exact", COLOURS["chain"], 0.97, "o"),
        ("gaussian", COLOURS["sde"], 1.03, "s"),
    ):
        row = data.sel(sums=sums)
        points(
            right,
            row["size"] * shift,
            row.log_steps,
            row.log_error,
            colour,
            f"{sums} sums",
            mark,
        )
    window = float(data["size"].min()) / 2, float(data["size"].max()) * 2
    right.set(
        xscale="log", xlim=window, xlabel="batch size $n_b$", ylabel=r"mean of $\log T$"
    )
    plain_ticks(right.xaxis)
    right.set_title(rf"Gaussian batch sums, $d = n_b/{n0}$ (2 s.e.)")
    right.legend()
    for i, ell in enumerate(data.ell.values):
        row = data.sel(ell=ell)
        label = rf"$h_{{{ell}}}$"
        points(
            single,
            row.tails,
            100 * row.gap,
            100 * row.gap_error,
            DIRECTIONS[i],
            label,
            "os^D"[i % 4] + "-",
        )
    single.axhline(0, color=COLOURS["theory"], lw=0.8, label="no difference")
    single.set(
        xscale="log",
        xlabel="$n_b$ over the tail of the gradients",
        ylabel="mean overlap: Gaussian − exact (%)",
    )
    single.set_title("one step, noise of length one (2 s.e.)")
    single.legend()
    headline(figure, data)
    return figure
