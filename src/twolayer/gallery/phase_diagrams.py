"""Phase diagrams of SGD, correlation loss and spherical SGD for ℓ = 2, 3, 4, with
measured points.

    learning rate γ0 d^(−δ), batch n0 d^μ, T ~ d^θ;
        θ = ℓ/2 − 1 + δ in the learning region, ℓ ≥ 2

Each point is a measurement of the exact chain at several dimensions: the median over
runs of the first step with |m| ≥ 1/2, from |m_0| = d^{−1/2}, and the exponent fitted to
it. Crosses: no run recovered.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.batching import (
    ALGORITHMS,
    SHARE,
    batch_of,
    fit_of,
    hermite,
    law,
    recovered,
    rounding,
)
from twolayer.gallery.shared.drawing import headline, sheet, told
from twolayer.gallery.shared.judging import Verdict, holds, largest, verdict
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import choice, positive_integer

RESOLUTION = 0.5  # of θ
QUIET, LOUD = (
    0.1,
    20.0,
)  # ratio of noise to drift where learning is expected, and where it is not
MOST = 2.0**52  # samples in a batch
SMALL = 64  # smallest dimension, and a quarter of the least largest one
# dimension at which fluctuations no longer learn what the drift does not
FAR = 100_000_000


@figure(
    "phase-diagrams",
    "the (μ, δ) and (μ, θ) planes of three algorithms for ℓ = 2, 3, 4, with measured"
    " exponents",
    quick={"seeds": 8, "steps": 100, "last": 10_000, "batch_sums": "gaussian"},
    fixed={
        "target": "h_ℓ(z1), set by ells",
        "activation": "h_ℓ, which matches the targets set by ells",
        "geometry": "projected and spherical steps are compared, set by algorithms",
    },
    group="phase-diagram",
)
def phase_diagrams(
    *,
    seed: int = 0,
    ells: tuple[int, ...] = (2, 3, 4),
    algorithms: tuple[str, ...] = tuple(ALGORITHMS),
    seeds: int = 48,
    steps: int = 6000,
    last: int = 1_000_000,
    batch_sums: str = "auto",
) -> Finding:
    """Measure four or five points of each diagram; ``steps`` bounds the predicted T at
    the largest dimension.

    Gaussian batch sums are compiled once for all batch sizes, exact ones once for each.
    """
    positive_integer("seeds", seeds, 2)
    names = [choice("algorithms", name, ALGORITHMS) for name in algorithms]
    rows = []
    for ell in ells:
        for name in names:
            diagram = tl.phase_diagram(ell=ell, **ALGORITHMS[name])
            options = {"seeds": seeds, "start": "typical", "batch_sums": batch_sums}
            runs = [
                _measure(ell, name, *point, seed, steps, last, options)
                for point in _points(ell, name)
            ]
            rows += [_row(ell, name, diagram, run) for run in runs]
    columns = (
        "ell",
        "algorithm",
        "mu",
        "delta",
        "expected",
        "theta",
        "error",
        "resolution",
        "learns",
        "learned",
    )
    data = xr.Dataset(
        {c: ("point", [row[i] for row in rows]) for i, c in enumerate(columns)}
    )
    task = (
        "target h_ℓ(z1)   student h_ℓ, p = 1, a = 1   fresh batches n0 d^μ, lr = γ0"
        " d^(−δ)"
    )
    return Finding(data, _verdict(data), task)


def _points(ell: int, name: str) -> list[tuple[float, float]]:
    """On the line of the fewest steps, inside, and outside."""
    half = ell / 2
    if name == "SGD":
        return [
            (half - 0.5, 0.5),
            (half, 0.0),
            (half + 0.5, 0.1),
            (half + 0.5, -0.3),
            (half - 0.5, 0.15),
        ]
    beyond = 1 - half
    points = [
        (ell - 1.0, beyond),
        (ell - 0.6, beyond + 0.3),
        (float(ell), (1.0 - ell) / 2),
    ]
    if ell > 2:
        points += [(half + 0.25, -0.25), (half, -0.4)]
    else:
        points += [(0.5, 0.5), (0.5, 0.1)]
    return points


def _measure(
    ell: int,
    name: str,
    mu: float,
    delta: float,
    seed: int,
    steps: int,
    last: int,
    options: Options,
) -> tl.single_index.WeakRecovery:
    point = tl.phase_diagram(ell=ell, **ALGORITHMS[name]).at(mu, delta)
    problem, key = hermite(ell), f"{ell}-{name}-{mu:g}-{delta:g}"
    if not point.learns:
        gamma = 0.5
        algorithm = law(name, mu, delta, gamma, batch_of(name, ell, gamma, LOUD))
        return recovered(
            key,
            problem,
            algorithm,
            (round(_largest(algorithm, FAR)),),
            seed,
            steps=200,
            **options,
        )
    gamma = 0.1 / ell if name == "SGD" else 0.2
    algorithm = law(name, mu, delta, gamma, batch_of(name, ell, gamma, QUIET))
    theta = point.theta or 0.0
    growth = ell * gamma * max(ell - 2, 0.2)
    largest = min(
        _largest(algorithm, last),
        (steps * growth) ** (1 / theta) if theta > 0 else np.inf,
    )
    dims = tuple(
        int(x)
        for x in np.geomspace(
            max(largest / 100, SMALL), max(largest, 4 * SMALL), 3
        ).round()
    )
    return recovered(key, problem, algorithm, dims, seed, **options)


def _largest(algorithm: tl.SGD, dim: int) -> float:
    """The dimension, or the largest at which the batch is still counted exactly in
    double precision.
    """
    return min(float(dim), (MOST / algorithm.batch.coefficient) ** (1 / algorithm.mu))


def _row(
    ell: int,
    name: str,
    diagram: tl.types.PhaseDiagram,
    run: tl.single_index.WeakRecovery,
) -> list[object]:
    point = diagram.at(run.mu, run.delta)
    fit = fit_of(run)
    theta, error = (np.nan, np.nan) if fit is None else (fit.slope, fit.error)
    expected = np.nan if point.theta is None else point.theta
    return [
        ell,
        name,
        run.mu,
        run.delta,
        expected,
        theta,
        error,
        rounding(run),
        point.learns,
        run.learned,
    ]


def _verdict(data: xr.Dataset) -> Verdict:
    same = (data.learns == data.learned).values
    known = data.isel(point=np.flatnonzero(data.learns.values & data.learned.values))
    gap = known.theta - known.expected
    checks = [
        holds(
            same.all(),
            f"{int(same.sum())} of {data.sizes['point']} points learn or not as"
            " predicted, all expected",
        ),
        largest(
            f"θ − predicted θ at the {known.sizes['point']} points that learn,"
            f" {RESOLUTION:g} resolved",
            gap,
            known.error,
            allowance=SHARE + known.resolution,
            resolution=RESOLUTION,
        ),
    ]
    note = (
        f"Measured − predicted θ is {float(gap.mean()):+.3f} on average and"
        f" {float(np.abs(gap).max()):.3f} at most (median error"
        f" {float(known.error.median()):.3f})"
    )
    return verdict(
        "the exact chain learns where and as fast as the diagrams say", checks, note
    )


def draw(data: xr.Dataset) -> Figure:
    """A row for each ℓ: the (μ, δ) plane of each algorithm, then the (μ, θ) plane with
    all their points.
    """
    from twolayer.analysis.phases import phase_diagram
    from twolayer.plot.phases import add_legend, draw_phases

    chosen = told(data)
    figure, axes = sheet(
        len(chosen.algorithms) + 1, len(chosen.ells), width=3.5, height=3.6
    )
    panels = iter(axes)
    for ell in chosen.ells:
        every: list[SimpleNamespace] = []
        for name in chosen.algorithms:
            own = _measured(
                data.isel(
                    point=np.flatnonzero(
                        (data.ell.values == ell) & (data.algorithm.values == name)
                    )
                )
            )
            every += own
            ax = next(panels)
            draw_phases(ax, phase_diagram(ell=ell, **ALGORITHMS[name]), "delta", own)
            ax.set_title(rf"$\ell = {ell}$, {name}")
        ax = next(panels)
        draw_phases(
            ax, phase_diagram(ell=ell, **ALGORITHMS["correlation"]), "theta", every
        )
        ax.set_title(rf"$\ell = {ell}$, steps of all three")
    add_legend(figure, measured=True)
    headline(
        figure,
        data,
        r"Regions: predicted. Numbers: measured exponents $\theta$ of the steps,"
        r" predicted in brackets",
    )
    return figure


def _measured(rows: xr.Dataset) -> list[SimpleNamespace]:
    """Points as diagrams draw them."""
    found = []
    for i in range(rows.sizes["point"]):
        row = {
            name: rows[name].values[i] for name in ("mu", "delta", "theta", "learned")
        }
        known = np.isfinite(row["theta"])
        row |= {
            "theta": row["theta"] if known else None,
            "theta_error": rows.error.values[i] if known else None,
        }
        found.append(SimpleNamespace(**row))
    return found
