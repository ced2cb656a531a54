"""One giant step: an overlap of order one after a single gradient.

    ℓ = 1:  n_b = α d, γ = O(1):          m = γ c/√((γ c)² + 1 + γ² s²/α)
    ℓ ≥ 2:  γ = γ0 d^{(ℓ−1)/2}, n_b ~ d^μ:  m_0 = d^{−1/2} → O(1) if μ ≥ ℓ,   → 0 if μ < ℓ

Correlation loss, projected. Left: linear target, runs at finite d on the curve of GiantSteps (the limit, which starts
at m = 0). Right: h2 and h3 at two dimensions against the batch exponent, on the curves of Map at the same d.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.batching import hermite, law
from twolayer.gallery.shared.judging import Verdict, largest, verdict
from twolayer.gallery.shared.measuring import canvas, power
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Plate, figure

RATES = (0.5, 1.0, 2.0)
COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3")
SHARE = 0.01  # of the overlap: what the mean step leaves out at the smallest batches
RESOLUTION = 0.1  # of full overlap


@figure(
    "giant-step",
    "overlap after one giant step: linear targets with n_b = αd, and h2, h3 against the batch exponent",
    quick={"seeds": 16, "ells": (2,), "dims": (1000,), "points": 4, "dim": 400},
    group="phase-diagram",
    papers=("arnaboldi2024", "dandi2023"),
)
def giant_step(
    *,
    seed: int = 0,
    dim: int = 2000,
    ells: tuple[int, ...] = (2, 3),
    dims: tuple[int, ...] = (300, 3000),
    points: int = 9,
    seeds: int = 64,
) -> Plate:
    """Means over runs of the overlap after one step."""
    ratios = np.geomspace(0.1, 10, points)
    left = part("linear", partial(_linear, dim, ratios, seeds, seed))
    rows = {(ell, n): part(f"{ell}-{n}", partial(_powers, ell, n, points, seeds, seed)) for ell in ells for n in dims}
    data = xr.Dataset(
        {
            **{f"linear_{k}": (("rate", "ratio"), left[k].values) for k in ("mean", "error", "theory")},
            **{
                f"mu_{k}": (("curve", "point"), np.stack([r[k].values for r in rows.values()]))
                for k in ("mu", "mean", "error", "theory")
            },
        },
        {
            "rate": list(RATES),
            "ratio": ratios,
            "ell": ("curve", [e for e, _ in rows]),
            "dim": ("curve", [n for _, n in rows]),
        },
    )
    return Plate(_draw(data, dim), data, _verdict(data, dim, seeds))


def _step(problem: tl.Problem, algorithm: tl.SGD, method: Any, start: tl.Overlaps, seeds: int, seed: int) -> np.ndarray:
    run = tl.solve(problem, algorithm, method, start, steps=1, save=1, seeds=seeds, seed=seed)
    return np.asarray(run.M.values[:, -1, 0, 0])


def _linear(dim: int, ratios: np.ndarray, seeds: int, seed: int) -> dict[str, Any]:
    out = np.zeros((3, len(RATES), len(ratios)))
    problem, start = hermite(1), tl.Overlaps([[1.0]], [[0.0]], dim=dim)
    for i, rate in enumerate(RATES):
        for j, ratio in enumerate(ratios):
            algorithm = law("correlation", 1, 0, rate, ratio)
            m = _step(problem, algorithm, tl.Chain(dim, batch_sums="gaussian"), start, seeds, seed)
            theory = _step(problem, algorithm, tl.GiantSteps(), start, 1, 0)[0]
            out[:, i, j] = m.mean(), m.std(ddof=1) / np.sqrt(seeds), theory
    return dict(zip(("mean", "error", "theory"), out, strict=True))


def _powers(ell: int, dim: int, points: int, seeds: int, seed: int) -> dict[str, Any]:
    mus = np.linspace(ell - 1, ell + 1, points)
    out = np.zeros((3, points))
    problem, start = hermite(ell), tl.Overlaps([[1.0]], [[dim**-0.5]], dim=dim)
    for j, mu in enumerate(mus):
        algorithm = law("correlation", mu, (1 - ell) / 2, 0.5, 1.0)
        m = _step(problem, algorithm, tl.Chain(dim, batch_sums="gaussian"), start, seeds, seed)
        theory = _step(problem, algorithm, tl.Map(dim), start, 1, 0)[0]
        out[:, j] = m.mean(), m.std(ddof=1) / np.sqrt(seeds), theory
    return {"mu": mus, **dict(zip(("mean", "error", "theory"), out, strict=True))}


def _verdict(data: xr.Dataset, dim: int, seeds: int) -> Verdict:
    checks = [
        largest(
            "linear target: overlap of SGD − GiantSteps",
            data.linear_mean - data.linear_theory,
            data.linear_error,
            allowance=2 / dim,
            resolution=RESOLUTION,
            freedom=seeds - 1,
        ),
        largest(
            "h_ℓ: overlap of SGD − Map",
            data.mu_mean - data.mu_theory,
            data.mu_error,
            allowance=SHARE,
            resolution=RESOLUTION,
            freedom=seeds - 1,
        ),
    ]
    ends = ", ".join(
        f"{float(m):.3f} (ℓ = {ell}, d = {n})"
        for m, ell, n in zip(data.mu_mean[:, -1].values, data.ell.values, data.dim.values, strict=True)
    )
    note = f"Resolution: {RESOLUTION:g} of full overlap; at μ = ℓ + 1 one step ends at m = {ends}"
    return verdict("one giant step leads where the maps say", checks, note)


def _draw(data: xr.Dataset, dim: int) -> Figure:
    figure, (left, right) = canvas(2)
    for i, rate in enumerate(data.rate.values):
        row = data.isel(rate=i)
        left.plot(row.ratio, row.linear_theory, color=COLOURS[i], lw=1.2)
        left.errorbar(
            row.ratio,
            row.linear_mean,
            2 * row.linear_error,
            fmt="o",
            color=COLOURS[i],
            ms=4,
            label=rf"$\gamma = {rate:g}$",
        )
    overlap = tl.best_possible("z1", data.ratio.values).overlap[:, 0, 0]
    tl.plot.best_line(left, data.ratio, np.sqrt(overlap))  # of unit vectors
    left.set(xscale="log", xlabel=r"$\alpha = n_b/d$", ylabel="overlap after one step", ylim=(0, 1))
    left.set_title(rf"$\ell = 1$, chain at $d = {power(dim)}$ on GiantSteps")
    left.legend()
    for i in range(data.sizes["curve"]):
        row = data.isel(curve=i)
        label = rf"$\ell = {int(row.ell)}$, $d = {power(int(row.dim))}$"
        right.plot(row.mu_mu - row.ell, row.mu_theory, color=COLOURS[i], lw=1.2)
        right.errorbar(row.mu_mu - row.ell, row.mu_mean, 2 * row.mu_error, fmt="o", color=COLOURS[i], ms=4, label=label)
    right.set(xlabel=r"$\mu - \ell$   ($n_b = d^{\mu}$)", ylim=(0, 1), xticks=np.linspace(-1, 1, 5))
    right.set_title(r"$\gamma = d^{(\ell-1)/2}/2$, chain on Map")
    right.legend(loc="upper left")
    return figure
