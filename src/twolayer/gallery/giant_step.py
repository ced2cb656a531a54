"""One giant step: an overlap of order one after a single gradient.

    ℓ = 1:  n_b = α d, γ = O(1):          m = γ c/√((γ c)² + 1 + γ² s²/α)
    ℓ ≥ 2:  γ = γ0 d^{(ℓ−1)/2}, n_b ~ d^μ:  m_0 = d^{−1/2} → O(1) if μ ≥ ℓ,
            → 0 if μ < ℓ

Correlation loss, projected as in the formulas, or spherical. Left: linear target, runs
at finite d on the curve of GiantSteps (the limit, which starts at m = 0), below the
best possible with as many samples, m² = min(α, 1) for labels without noise. Right: h2
and h3 at two dimensions against the batch exponent, on the curves of Map at the same d.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.batching import hermite, law
from twolayer.gallery.shared.drawing import headline, points, power, sheet, told
from twolayer.gallery.shared.judging import Verdict, largest, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Variables
from twolayer.numerics.errors import choice
from twolayer.numerics.statistics import standard_error
from twolayer.task.method import Method

RATES = (0.5, 1.0, 2.0)
FINE = 41  # points of the curves of theory
SHARE = 0.01  # of the overlap: what the mean step leaves out at the smallest batches
RESOLUTION = 0.1  # of full overlap


@figure(
    "giant-step",
    "overlap after one giant step: linear targets with n_b = αd, and h2, h3 against the"
    " batch exponent",
    quick={"seeds": 96, "dims": (400, 1000), "count": 4, "dim": 400},
    fixed={
        "target": "z1 and h_ℓ(z1), set by ells",
        "activation": "linear and h_ℓ, which match the targets set by ells",
    },
    group="phase-diagram",
    papers=("arnaboldi2024", "dandi2023"),
)
def giant_step(
    *,
    seed: int = 0,
    dim: int = 2000,
    ells: tuple[int, ...] = (2, 3),
    dims: tuple[int, ...] = (400, 4000),
    count: int = 9,
    seeds: int = 128,
    geometry: str = "projected",
) -> Finding:
    """Means over runs of the overlap after one step, a cosine: free weights have the
    one of projected ones.
    """
    choice("geometry", geometry, ("projected", "spherical"))
    ratios = np.geomspace(0.1, 10, count)
    left = part("linear", partial(_linear, geometry, dim, ratios, seeds, seed))
    rows = {
        (ell, n): part(
            f"{ell}-{n}", partial(_powers, geometry, ell, n, count, seeds, seed)
        )
        for ell in ells
        for n in dims
    }
    data = xr.Dataset(
        {
            **{
                f"linear_{k}": (("rate", "ratio"), left[k].values)
                for k in ("mean", "error", "theory")
            },
            **{
                f"mu_{k}": (
                    ("curve", "point"),
                    np.stack([r[k].values for r in rows.values()]),
                )
                for k in ("mu", "mean", "error", "theory")
            },
            "linear_line": (("rate", "fine_ratio"), left.line.values),
            "mu_fine": (
                ("curve", "fine"),
                np.stack([r.fine.values for r in rows.values()]),
            ),
            "mu_line": (
                ("curve", "fine"),
                np.stack([r.line.values for r in rows.values()]),
            ),
        },
        {
            "rate": list(RATES),
            "ratio": ratios,
            "fine_ratio": left.fine.values,
            "ell": ("curve", [e for e, _ in rows]),
            "dim": ("curve", [n for _, n in rows]),
        },
    )
    task = "targets z1 and h_ℓ(z1)   students linear and h_ℓ, p = 1, a = 1"
    step = f"one step on a fresh batch, correlation loss, {geometry}"
    return Finding(data, _verdict(data, dim, seeds), f"{task}\n{step}")


def _step(
    problem: tl.Problem,
    algorithm: tl.SGD,
    method: Method,
    start: tl.Overlaps,
    seeds: int,
    seed: int,
) -> np.ndarray:
    run = tl.solve(
        problem, algorithm, method, start, steps=1, save=1, seeds=seeds, seed=seed
    )
    return np.asarray(run.M.values[:, -1, 0, 0])


def _law(geometry: str, mu: float, delta: float, gamma: float, n0: float) -> tl.SGD:
    return law("correlation", mu, delta, gamma, n0).replace(geometry=geometry)


def _linear(
    geometry: str, dim: int, ratios: np.ndarray, seeds: int, seed: int
) -> Variables:
    out = np.zeros((3, len(RATES), len(ratios)))
    problem, start = hermite(1), tl.Overlaps([[1.0]], [[0.0]], dim=dim)
    for i, rate in enumerate(RATES):
        for j, ratio in enumerate(ratios):
            algorithm = _law(geometry, 1, 0, rate, ratio)
            m = _step(
                problem,
                algorithm,
                tl.Chain(dim, batch_sums="gaussian"),
                start,
                seeds,
                seed,
            )
            theory = _step(problem, algorithm, tl.GiantSteps(), start, 1, 0)[0]
            out[:, i, j] = m.mean(), standard_error(m), theory
    fine = np.geomspace(ratios[0], ratios[-1], FINE)
    limit = [
        [
            _step(problem, _law(geometry, 1, 0, rate, x), tl.GiantSteps(), start, 1, 0)[
                0
            ]
            for x in fine
        ]
        for rate in RATES
    ]
    return {
        **dict(zip(("mean", "error", "theory"), out, strict=True)),
        "fine": fine,
        "line": limit,
    }


def _powers(
    geometry: str, ell: int, dim: int, count: int, seeds: int, seed: int
) -> Variables:
    mus = np.linspace(ell - 1, ell + 1, count)
    out = np.zeros((3, count))
    problem, start = hermite(ell), tl.Overlaps([[1.0]], [[dim**-0.5]], dim=dim)
    for j, mu in enumerate(mus):
        algorithm = _law(geometry, mu, (1 - ell) / 2, 0.5, 1.0)
        m = _step(
            problem, algorithm, tl.Chain(dim, batch_sums="gaussian"), start, seeds, seed
        )
        theory = _step(problem, algorithm, tl.Map(dim), start, 1, 0)[0]
        out[:, j] = m.mean(), standard_error(m), theory
    fine = np.linspace(mus[0], mus[-1], FINE)
    laws = (_law(geometry, mu, (1 - ell) / 2, 0.5, 1.0) for mu in fine)
    line = [_step(problem, each, tl.Map(dim), start, 1, 0)[0] for each in laws]
    return {
        "mu": mus,
        **dict(zip(("mean", "error", "theory"), out, strict=True)),
        "fine": fine,
        "line": line,
    }


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
        for m, ell, n in zip(
            data.mu_mean[:, -1].values, data.ell.values, data.dim.values, strict=True
        )
    )
    note = (
        f"Resolution: {RESOLUTION:g} of full overlap; at μ = ℓ + 1 one step ends at m ="
        f" {ends}"
    )
    return verdict("one giant step leads where the maps say", checks, note)


def _possible(alpha: np.ndarray) -> np.ndarray:
    """The best overlap with αd labels z1 without noise: so many linear equations."""
    return np.sqrt(np.minimum(alpha, 1.0))


def draw(data: xr.Dataset) -> Figure:
    """Linear targets against α on the left, h_ℓ against the exponent of the batch on
    the right.
    """
    from twolayer.plot.best_possible import best_line
    from twolayer.plot.style import DIRECTIONS

    figure, (left, right) = sheet(2, height=3.9)
    marks = "os^D"
    for i, rate in enumerate(data.rate.values):
        row = data.isel(rate=i)
        label = rf"$\gamma = {rate:g}$"
        left.plot(
            data.fine_ratio,
            row.linear_line,
            color=DIRECTIONS[i],
            lw=1.2,
            label=f"GiantSteps, {label}",
        )
        points(
            left,
            row.ratio,
            row.linear_mean,
            row.linear_error,
            DIRECTIONS[i],
            f"chain, {label}",
            marks[i % 4],
        )
    best_line(left, data.fine_ratio, _possible(data.fine_ratio.values))
    left.set(
        xscale="log",
        xlabel=r"$\alpha = n_b/d$",
        ylabel="overlap after one step",
        ylim=(0, 1.02),
    )
    left.set_title(
        rf"$\ell = 1$: chain at $d = {power(told(data).dim)}$, and the limit"
    )
    for i in range(data.sizes["curve"]):
        row = data.isel(curve=i)
        label = rf"$\ell = {int(row.ell)}$, $d = {power(int(row.dim))}$"
        right.plot(
            row.mu_fine - row.ell,
            row.mu_line,
            color=DIRECTIONS[i],
            lw=1.2,
            label=f"Map, {label}",
        )
        points(
            right,
            row.mu_mu - row.ell,
            row.mu_mean,
            row.mu_error,
            DIRECTIONS[i],
            f"chain, {label}",
            marks[i % 4],
        )
    right.set(
        xlabel=r"$\mu - \ell$   ($n_b = d^{\mu}$)",
        ylim=(0, 1.02),
        xticks=np.linspace(-1, 1, 5),
    )
    right.set_title(r"$\gamma = d^{(\ell-1)/2}/2$")
    left.legend(loc="upper left", fontsize=7)
    right.legend(loc="lower right", fontsize=7)
    headline(figure, data, "Points: means over runs (bars: 2 s.e.)")
    return figure
