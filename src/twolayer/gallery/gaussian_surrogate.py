"""Data and their Gaussian surrogate: rows from a random one-layer map, against Gaussian inputs of the same covariance.

    x = tanh(F c),  c ~ N(0, I_m):    fields w·x are Gaussian where many latent directions enter, m ≳ d

Both runs start from the same overlaps, and the surrogate is the exact chain at the dimension of the data: whatever
differs is the law of the inputs. Where m is small, fields are not Gaussian, and the figure tells how much that matters.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, points, sheet, told
from twolayer.gallery.shared.judging import holds, largest, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options

NOISE = 0.01
RESOLUTION = 0.25  # of the risk
UNIVERSAL = 0.1  # of the risk: what fields of a finite number of latent directions may add


@figure(
    "gaussian-surrogate",
    "SGD over rows of a random feature map against the chain of their Gaussian surrogate",
    quick={"rows": 3000, "seeds": 24, "latents": (3, 200)},
    group="inputs",
)
def gaussian_surrogate(
    *,
    seed: int = 0,
    dim: int = 50,
    rows: int = 20_000,
    latents: tuple[int, ...] = (3, 10, 50, 200),
    seeds: int = 48,
    gamma: float = 1.0,
    blocks: int = 12,
    save: int = 6,
) -> Finding:
    """Two erf neurons learn tanh of one direction, in one pass over the rows."""
    found = {m: part(f"m={m}", lambda m=m: _pair(seed, dim, rows, m, seeds, gamma, blocks, save)) for m in latents}  # type: ignore[misc]
    names = ("chain", "vectors")
    variables = {
        name: (("latent", "point", "seed"), np.stack([found[m][name].values.T for m in latents])) for name in names
    }
    data = xr.Dataset({**variables, "step": ("point", found[latents[0]].step.values)}, {"latent": list(latents)})
    gap, error = _gaps(data)
    checks = [
        largest(
            f"m = {latents[-1]}: risk of runs over rows over surrogate − 1",
            gap[-1],
            error[-1],
            resolution=RESOLUTION,
            allowance=UNIVERSAL,
            freedom=2 * seeds - 2,
        ),
        holds(
            np.abs(gap[0]).max() > 2 * np.abs(gap[-1]).max(),
            f"m = {latents[0]}: deviations up to {np.abs(gap[0]).max():.0%}, against {np.abs(gap[-1]).max():.0%} at "
            f"m = {latents[-1]}, at least twice as large expected",
        ),
    ]
    claim = "rows of many latent directions are learnt as Gaussian inputs of the same covariance, those of few are not"
    told_ = ", ".join(f"m = {m}: {np.abs(x).max():.1%}" for m, x in zip(latents, gap, strict=True))
    task = (
        f"rows tanh(F c) of dimension {dim}, labels tanh(z1)   student erf, p = 2, a = 1   Δ = {NOISE:g}\n"
        f"lr = {gamma:g}/d, batch 1, one pass over {rows} rows"
    )
    return Finding(data, verdict(claim, checks, f"largest deviation of the risk: {told_}"), task)


def _pair(
    seed: int, dim: int, rows: int, latent: int, seeds: int, gamma: float, blocks: int, save: int
) -> dict[str, np.ndarray]:
    """Risks of the surrogate's chain and of SGD over the rows, (seed, point) each, both of the fields."""
    from twolayer.running.surrogate import surrogate

    rng = np.random.default_rng([seed, latent])
    F = rng.normal(size=(latent, dim)) / np.sqrt(latent)
    X = np.tanh(1.5 * rng.normal(size=(rows, latent)) @ F)
    X /= X.std()
    w = rng.normal(size=(1, dim))
    centred = X - X.mean(0)
    field = centred @ w[0]
    w, field = w / field.std(), field / field.std()
    y = np.tanh(field) + np.sqrt(NOISE) * rng.normal(size=rows)
    problem = tl.Problem("tanh(z1)", "erf", width=2, noise=NOISE)
    given = surrogate(problem, X, y, w, blocks=blocks, seed=seed, size=seeds)
    run: Options = {"steps": rows, "save": save, "seed": seed}
    chain = tl.solve(given.problem, tl.SGD(gamma / tl.d), tl.Chain(dim), given.start, **run)
    vectors = tl.solve(given.problem, tl.SGD(gamma / tl.d), given.method, given.start, **run)
    return {"chain": chain.excess_risk.values, "vectors": vectors.excess_risk.values, "step": chain.step.values}


def _gaps(data: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Risk of runs over the rows over that of the surrogate − 1, and its standard error, without the start."""
    one, two = (data[name].values[:, 1:] for name in ("chain", "vectors"))
    n = one.shape[2]
    ratio = two.mean(2) / one.mean(2)
    error = ratio * np.sqrt(one.var(2, ddof=1) / one.mean(2) ** 2 / n + two.var(2, ddof=1) / two.mean(2) ** 2 / n)
    return ratio - 1, error


def draw(data: xr.Dataset) -> Figure:
    """Risks along the pass for few and many latent directions, and the largest deviation against their number."""
    from twolayer.plot.style import COLOURS, DIRECTIONS

    figure, (left, right) = sheet(2, width=4.6, height=3.7)
    n = data.sizes["seed"]
    for colour, i in zip(DIRECTIONS, (0, -1), strict=False):
        m = int(data.latent[i])
        left.plot(data.step, data.chain[i].mean("seed"), color=colour, label=f"surrogate, $m = {m}$")
        values = data.vectors[i].values
        points(left, data.step, values.mean(1), values.std(1, ddof=1) / np.sqrt(n), colour, f"rows, $m = {m}$")
    left.set(yscale="log", xlabel="step", ylabel="excess risk")
    left.legend(fontsize="small")
    gap, error = _gaps(data)
    worst = np.abs(gap).argmax(1)
    at = np.arange(len(gap))
    points(right, data.latent.values, np.abs(gap)[at, worst], error[at, worst], COLOURS["theory"], "largest deviation")
    right.axvline(told(data).dim, color="0.6", lw=1, label="$m = d$")
    right.set(xscale="log", xlabel="latent directions $m$", ylabel="|risk, rows/surrogate − 1|")
    right.legend(fontsize="small")
    headline(figure, data, "Rows of a random feature map, and Gaussian inputs of their covariance")
    return figure
