"""Steps and samples against the batch size at fixed d: where larger batches stop
helping.

    squared loss, projected:  γ = min(ρ n_b d^{−ℓ/2}, γ_max)    T ~ d^{ℓ−1}/n_b
        up to n_b ~ d^{ℓ/2}, then constant
    correlation loss:         γ = ρ n_b d^{−ℓ/2}                T ~ d^{ℓ−1}/n_b
        up to n_b ~ d^{ℓ−1}

Each batch size runs at the largest rate that its noise allows. Up to the optimum
batching is free: n_b T ~ d^{ℓ−1} samples in all. The bound γ_max < 1/κ of the squared
loss is its self-interaction.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.batching import ALGORITHMS, batch_of, hermite, recovered
from twolayer.gallery.shared.drawing import ALGORITHMS as LOOKS
from twolayer.gallery.shared.drawing import (
    headline,
    median_points,
    power,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import (
    Check,
    Verdict,
    holds,
    near,
    unknown,
    verdict,
)
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.errors import positive_integer
from twolayer.numerics.statistics import Median, power_law

NAMES = ("SGD", "correlation")
RESOLUTION = 0.5  # of exponents
RATIO = 0.25  # of noise to drift


@figure(
    "batch-size",
    "steps and samples of weak recovery against batch size at fixed d, squared and"
    " correlation loss",
    quick={"dim": 150, "batches": 6, "seeds": 16},
    fixed={
        "target": "h_ℓ(z1), set by ell",
        "activation": "h_ℓ, which matches the target set by ell",
        "geometry": (
            "the bound on the rate that ends the fall is that of projected steps"
        ),
    },
    group="phase-diagram",
)
def batch_size(
    *, seed: int = 0, ell: int = 3, dim: int = 2000, batches: int = 12, seeds: int = 32
) -> Finding:
    """Medians over runs from |m_0| = d^{−1/2} to |m| = 1/2."""
    positive_integer("ell", ell, 3)
    positive_integer("batches", batches, 4)
    mus = np.linspace(ell / 2 - 0.5, ell - 0.25, batches)
    found: dict[str, list[Median]] = {}
    rates: dict[str, list[float]] = {}
    for name in NAMES:
        # n0 at which γ0 = 1 has the ratio: then γ = n_b d^{−ℓ/2}/n0 has it at every
        # batch size
        n0 = batch_of(name, ell, 1.0, RATIO)
        largest = 0.7 / ell if name == "SGD" else np.inf
        rates[name] = [float(min(dim ** (mu - ell / 2) / n0, largest)) for mu in mus]
        found[name] = []
        for mu, lr in zip(mus, rates[name], strict=True):
            algorithm = tl.SGD(lr=lr, batch=round(dim**mu), **ALGORITHMS[name])
            options = {
                "seeds": seeds,
                "start": "typical",
                "batch_sums": "gaussian",
                "steps": _limit(ell, dim, lr, name),
            }
            found[name] += recovered(
                f"{name}-{mu:.4f}", hermite(ell), algorithm, (dim,), seed, **options
            ).medians
    sizes = np.array([round(dim**mu) for mu in mus], dtype=float)
    data = xr.Dataset(
        {
            field: (
                ("algorithm", "batch"),
                [[getattr(m, key) for m in found[name]] for name in NAMES],
            )
            for field, key in (
                ("steps", "value"),
                ("steps_low", "low"),
                ("steps_high", "high"),
            )
        }
        | {"lr": (("algorithm", "batch"), [rates[name] for name in NAMES])},
        {"algorithm": list(NAMES), "batch": sizes, "mu": ("batch", mus)},
    )
    # slopes are the prediction, constants those of the first batch size; the bound on
    # the rate ends the fall
    fine = np.geomspace(sizes[0], sizes[-1], 100)
    bound = batch_of("SGD", ell, 1.0, RATIO) * 0.7 / ell * float(dim) ** (ell / 2)
    ends = {"SGD": bound, "correlation": float(dim) ** (ell - 1)}
    law = [
        data.steps.values[i, 0] * sizes[0] / np.minimum(fine, ends[name])
        for i, name in enumerate(NAMES)
    ]
    data["law"] = ("algorithm", "fine"), np.maximum(law, 1.0)  # no fewer than one step
    data = data.assign_coords(fine=fine)
    data["bound"] = bound  # d^{ℓ/2} with its prefactor
    return Finding(data, _verdict(data, ell), task_of(hermite(ell)))


def _limit(ell: int, dim: int, lr: float, name: str) -> int:
    """Steps after which a run is given up: five times what the drift needs."""
    own = 1 - lr * ell if name == "SGD" else 1.0
    return 64 + round(5 * own * dim ** (ell / 2 - 1) / (lr * ell * (ell - 2)))


def _verdict(data: xr.Dataset, ell: int) -> Verdict:
    def falls(
        what: str, name: str, where: np.ndarray, expected: float, allowance: float
    ) -> Check:
        row = data.sel(algorithm=name).isel(batch=np.flatnonzero(where))
        if row.sizes["batch"] < 2 or not np.isfinite(row.steps).all():
            return unknown(f"{what}: fewer than two batch sizes with a median")
        error = np.maximum(
            (row.steps_high - row.steps_low).values / 4, 0.01 * row.steps.values
        )
        fit = power_law(row.batch.values, row.steps.values, error=error)
        return near(
            what,
            fit.slope,
            expected,
            fit.error,
            allowance=allowance,
            resolution=RESOLUTION,
            count=3,
        )

    squared, other = data.sel(algorithm="SGD"), data.sel(algorithm="correlation")
    free, many = (
        squared.lr.values < squared.lr.values.max() * 0.999,
        other.steps.values > 8,
    )
    samples = (other.steps * data.batch).values
    last = float(squared.steps[-1] / other.steps[-1])
    mu, bound = float(data.mu[-1]), float(data.bound)
    checks = [
        falls(
            "squared loss below γ_max: exponent of T in n_b", "SGD", free, -1.0, 0.12
        ),
        falls("correlation loss", "correlation", many, -1.0, 0.15),
        falls("squared loss at γ_max", "SGD", ~free, 0.0, 0.08),
        holds(
            last > 3,
            f"at n_b = d^{mu:.2f} correlation loss needs {last:.0f} times fewer steps,"
            " 3 at least",
        ),
    ]
    note = (
        "The samples of the correlation loss vary by a factor"
        f" {samples[many].max() / samples.min():.1f}; the bound on the rate of the"
        f" squared loss is met at n_b = {bound:.3g}, proportional to d^{ell / 2:g}"
    )
    claim = (
        f"batches help up to a constant times d^{ell / 2:g} (squared loss) and on to"
        f" d^{ell - 1} (correlation)"
    )
    return verdict(claim, checks, note)


def draw(data: xr.Dataset) -> Figure:
    """Steps on the left, samples on the right."""
    from twolayer.plot.style import COLOURS

    chosen = told(data)
    ell, dim = chosen.ell, chosen.dim
    figure, (left, right) = sheet(2, height=3.9)
    for name in NAMES:
        row, look = data.sel(algorithm=name), LOOKS[name]
        median_points(
            left, data.batch, row, "steps", COLOURS[name], look["label"], look["marker"]
        )
        median_points(
            right,
            data.batch,
            row,
            "steps",
            COLOURS[name],
            look["label"],
            look["marker"],
            data.batch.values,
        )
    for name in NAMES:
        line, label = (
            data.law.sel(algorithm=name),
            f"predicted slope, {LOOKS[name]['label']}",
        )
        dash = {"ls": LOOKS[name]["ls"], "color": COLOURS[name], "lw": 1.1}
        left.plot(data.fine, line, label=label, **dash)
        right.plot(data.fine, line * data.fine, **dash)
    prefactor = float(data.bound) / dim ** (ell / 2)
    marks = [
        (
            float(data.bound),
            COLOURS["SGD"],
            rf"$\gamma_{{\max}}$: $n_b = {prefactor:.2g}\,d^{{{ell}/2}}$",
        ),
        (float(dim) ** (ell - 1), COLOURS["correlation"], rf"$n_b = d^{{{ell - 1}}}$"),
    ]
    for ax in (left, right):
        ax.set(xscale="log", yscale="log", xlabel="batch size $n_b$")
        for (place, colour, text), side, align in zip(
            sorted(marks), (-3, 3), ("right", "left"), strict=True
        ):
            ax.axvline(place, color=colour, ls="--", lw=1)
            ax.annotate(
                text,
                (place, 0.98),
                (side, 0),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha=align,
                va="top",
                color=colour,
                fontsize=8,
            )
    left.set_ylabel("steps $T$ to $|m| = 1/2$")
    right.set_ylabel(r"samples $n_b\,T$")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=2
    )
    headline(
        figure,
        data,
        rf"Weak recovery at the largest stable rate, $d = {power(dim)}$, medians (bars:"
        r" 95 %)",
    )
    return figure
