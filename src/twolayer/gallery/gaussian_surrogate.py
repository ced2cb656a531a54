"""Data and their Gaussian surrogate: rows from a random one-layer map, against Gaussian
inputs of the same covariance.

    x = tanh(F c),  c ~ N(0, I_m),  x in d dimensions:
        equations in blocks need Gaussian fields w·x, and nothing else
    fourth cumulant of w·x, mean over directions w:   3 (Var|x|² − 2 tr Σ²)/(tr Σ)²  =
        O(1/m) + O(1/d)

in units of the mean variance squared. Given x the field of a random direction is normal
with variance |x|²/d, so rows differ from Gaussian ones, of which Var|x|² = 2 tr Σ², by
the spread of their length. Two coordinates of x have a correlation of order m^(−1/2),
their squares one of order 1/m, and d² pairs of them enter Var|x|²: hence the two
orders. With few latent directions fields are far from Gaussian; with m ≫ d the
equations hold up to O(1/d).

Every quantity that `compare` judges is judged by its own measure: the risk, all M_jr
and Q_jl, along the whole run, against the exact chain of the surrogate from the same
starts, in parts of their range. A tenth of it is what `compare` calls agreement.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import headline, points, sheet
from twolayer.gallery.shared.judging import Check, largest, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.wide import online
from twolayer.numerics.arguments import Options
from twolayer.numerics.significance import limit_of
from twolayer.numerics.statistics import standard_error
from twolayer.numerics.verdict import compare_ranges
from twolayer.running.judging import SHARE, entries, ranges
from twolayer.running.surrogate import surrogate

NOISE = 0.01
FINER = 8  # points of the surrogate to one of the rows


@figure(
    "gaussian-surrogate",
    "SGD over rows of a random feature map against the chain of their Gaussian"
    " surrogate",
    quick={"rows": 1500, "seeds": 96, "latents": (2, 200), "save": 6},
    group="inputs",
)
def gaussian_surrogate(
    *,
    seed: int = 0,
    dim: int = 40,
    rows: int = 8000,
    latents: tuple[int, ...] = (2, 6, 20, 60, 200),
    seeds: int = 512,
    gamma: float = 0.8,
    blocks: int = 12,
    save: int = 12,
    target: str = "tanh(z1)",
    activation: str = "erf",
    geometry: str = "free",
) -> Finding:
    """Two neurons learn a function of one direction, in one pass over the rows; latent
    directions from few to many.
    """
    problem, algorithm = (
        chosen_problem(target, activation, 1, width=2, noise=NOISE),
        online(gamma, geometry),
    )
    run = (seed, dim, rows, seeds, blocks, save)
    found = {
        m: part(f"m={m}", partial(_pair, problem, algorithm, m, *run)) for m in latents
    }
    data = xr.concat(
        list(found.values()),
        "latent",
        data_vars=["surrogate", "rows", "cumulant", "gap"],
    )
    data = data.assign_coords(latent=list(latents))
    gap, error = _gaps(data)
    checks = [
        largest(
            f"m = {latents[-1]}: risk, M and Q of runs over rows less those of the"
            " surrogate, in parts of their range",
            gap[-1],
            error[-1],
            resolution=2 * SHARE,
            allowance=SHARE,
            freedom=seeds - 1,
        ),
        _apart(
            f"m = {latents[0]}: the same",
            np.abs(gap[0]),
            limit_of(gap[0].size, seeds - 1) * error[0],
        ),
    ]
    claim = (
        "rows of many latent directions are learned as Gaussian inputs of the same"
        " covariance, those of few are not"
    )
    told = ", ".join(
        f"m = {m}: {np.abs(x).max():.1%}, {k:+.2f}"
        for m, x, k in zip(latents, gap, data.cumulant.values, strict=True)
    )
    task = (
        f"rows tanh(F c) of dimension {dim}, labels {target}   student {activation}, p"
        f" = 2, a = 1   Δ = {NOISE:g}\nlr = {gamma:g}/d, batch 1, one pass over {rows}"
        f" rows{'' if geometry == 'free' else f', {geometry}'}"
    )
    return Finding(
        data,
        verdict(
            claim, checks, f"largest deviation, and fourth cumulant of fields: {told}"
        ),
        task,
    )


def _apart(what: str, gap: np.ndarray, tolerance: np.ndarray) -> Check:
    """Whether some deviation is surely more than compare calls agreement."""
    surely, possibly = float((gap - tolerance).max()), float((gap + tolerance).max())
    outcome = compare_ranges(surely, possibly, least=SHARE)
    return Check(
        outcome, f"{what}: surely {max(surely, 0.0):.2f}, more than {SHARE:g} expected"
    )


def _pair(
    problem: tl.Problem,
    algorithm: tl.SGD,
    latent: int,
    seed: int,
    dim: int,
    rows: int,
    seeds: int,
    blocks: int,
    save: int,
) -> xr.Dataset:
    """Mean risk of the surrogate's chain, (along,), risks of SGD over the rows, (seed,
    point), and what lies between.

    ``gap`` (seed, point, entry) holds the differences of risk, M and Q after the start,
    in parts of their range.
    """
    rng = np.random.default_rng([seed, latent])
    F = rng.normal(size=(latent, dim)) / np.sqrt(latent)
    X = np.tanh(1.5 * rng.normal(size=(rows, latent)) @ F)
    X = (X - X.mean(0)) / X.std()
    w = rng.normal(size=(1, dim))
    w /= (X @ w[0]).std()
    y = problem.target.on_host((X @ w[0])[:, None]) + np.sqrt(NOISE) * rng.normal(
        size=rows
    )
    given = surrogate(problem, X, y, w, blocks=blocks, seed=seed, size=seeds)

    run: Options = {"steps": rows, "seed": seed}
    fine = tl.solve(
        given.problem, algorithm, tl.Chain(dim), given.start, save=FINER * save, **run
    )
    over = tl.solve(
        given.problem, algorithm, given.method, given.start, save=save, **run
    )
    chain = fine.isel(time=np.searchsorted(fine.step, over.step))
    scales, one, two = (
        ranges(chain, given.problem.P, dim),
        entries(chain),
        entries(over),
    )
    spectrum = np.linalg.eigvalsh(np.cov(X.T, bias=True))
    beyond = (X**2).sum(1).var() - 2 * (spectrum**2).sum()
    gaps = np.concatenate(
        [(two[x] - one[x])[:, 1:] / scales[x][0] for x in one], axis=2
    )
    return xr.Dataset(
        {
            "surrogate": ("along", fine.excess_risk.values.mean(0)),
            "rows": (("seed", "point"), over.excess_risk.values),
            "gap": (("seed", "later", "entry"), gaps),
            "cumulant": 3 * beyond / spectrum.sum() ** 2,
            "step": ("point", over.step.values),
        },
        {"along": fine.step.values},
    )


def _gaps(data: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean deviations in parts of the range, (latent, point, entry), and their standard
    errors.
    """
    return data.gap.values.mean(1), standard_error(data.gap.values, 1)


def draw(data: xr.Dataset) -> Figure:
    """Risks along the pass for few and many latent directions, and the largest
    deviation against their number.
    """
    from twolayer.plot.style import COLOURS, DIRECTIONS

    figure, (left, right) = sheet(2, width=4.6, height=3.7)
    for colour, i in zip(DIRECTIONS, (0, -1), strict=False):
        m = int(data.latent[i])
        left.plot(
            data.along, data.surrogate[i], color=colour, label=f"surrogate, $m = {m}$"
        )
        values = data["rows"][i].values
        points(
            left,
            data.step,
            values.mean(0),
            standard_error(values),
            colour,
            f"rows, $m = {m}$",
        )
    left.set(yscale="log", xlabel="step", ylabel="excess risk")
    left.legend(fontsize="small")
    gap, error = (x.reshape(data.sizes["latent"], -1) for x in _gaps(data))
    worst, at = np.abs(gap).argmax(1), np.arange(len(gap))
    label = "largest deviation, risk, $M$ and $Q$"
    points(
        right,
        data.latent.values,
        np.abs(gap)[at, worst],
        error[at, worst],
        COLOURS["theory"],
        label,
    )
    right.plot(
        data.latent,
        np.abs(data.cumulant),
        "s--",
        color=DIRECTIONS[1],
        mfc="none",
        label="|fourth cumulant of fields|",
    )
    right.axhline(SHARE, color="0.6", lw=1, label="a tenth: agreement")
    right.set(
        xscale="log",
        yscale="log",
        xlabel="latent directions $m$",
        ylabel="part of the range",
    )
    right.legend(fontsize="small")
    headline(
        figure,
        data,
        "Rows of a random feature map, and Gaussian inputs of their covariance",
    )
    return figure
