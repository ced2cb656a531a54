"""SGD, its SDE and its ODE from one and the same random start.

    dX = b(X) dt + ((γ/pd) Σ(X))^{1/2} dB,    b: the ODE
    early noise as a change of the start:   m(0) → m(0) + (s/d)^{1/2} g,
        g ~ N(0, I_p),   s = (γ/p) V_p/(2c)

While the overlaps are small the noise adds up to a Gaussian that grows with them, as if
the ODE had started elsewhere. So the runs are spread as the ODE is over such starts,
and their mean exit is not that of the ODE from the true start. The start taken here is
the median of many random ones.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, holds, same_law, verdict
from twolayer.gallery.shared.measuring import (
    crossing,
    growth,
    on_sphere,
    phase_retrieval,
)
from twolayer.gallery.shared.registry import Finding, figure

LENSES = ("chain", "sde", "ode")
LEVEL = (
    0.5  # a trajectory is dated by when its excess risk has fallen to half of its start
)
STARTS = 101
NOISY = 255


@figure(
    "trajectories",
    "risk along runs of SGD and of the SDE, and along the ODE, from the same start",
    quick={"dim": 300, "seeds": 32},
    fixed={
        "target": (
            "the variance s/d of the noisy starts is a formula of phase retrieval,"
            " z1**2"
        ),
        "activation": (
            "the variance s/d of the noisy starts is a formula of phase retrieval,"
            " squares"
        ),
    },
)
def trajectories(
    *,
    seed: int = 0,
    widths: tuple[int, ...] = (1, 2),
    dim: int = 3000,
    lr: float = 0.1,
    noise: float = 1e-4,
    seeds: int = 64,
    shown: int = 10,
    time: float = 7.0,
    geometry: str = "projected",
) -> Finding:
    """Ten runs of each are drawn; the laws of the time at which half the risk is gone
    are compared for all of them.
    """
    risks, crossings, bands, expected = [], [], [], []
    points, algorithm = np.linspace(0, time, 201), on_sphere(lr, geometry)
    for p in widths:
        problem = phase_retrieval(p, noise)
        start = _typical(problem, dim, seed)
        runs = []
        for lens in (tl.Chain(dim), tl.SDE(dim)):
            result = tl.solve(
                problem, algorithm, lens, start, time=time, seeds=seeds, seed=seed
            )
            runs.append(_at(points, result))
        noisy = _noisy(start, growth(problem, lr / p)[1] / dim, seed)
        theory = _at(points, tl.solve(problem, algorithm, tl.ODE(), noisy, time=time))
        runs.append(np.broadcast_to(theory[0], runs[0].shape))
        risks.append(runs)
        crossings.append(
            [[crossing(points, -run, -LEVEL * run[0]) for run in lens] for lens in runs]
        )
        bands.append(np.quantile(theory[1:], [0.1, 0.9], axis=0))
        expected.append([crossing(points, -run, -LEVEL * run[0]) for run in theory[1:]])
    data = xr.Dataset(
        {
            "excess_risk": (("width", "lens", "seed", "time"), np.array(risks)),
            "crossing": (("width", "lens", "seed"), np.array(crossings)),
            "band": (("width", "edge", "time"), np.array(bands)),
            "expected": (("width", "noisy"), np.array(expected)),
        },
        {"width": list(widths), "lens": list(LENSES), "time": points},
    )
    first = task_of(phase_retrieval(1, noise), algorithm).replace("p = 1", "width p")
    return Finding(data, _verdict(data), first)


def _typical(problem: tl.Problem, dim: int, seed: int) -> tl.Overlaps:
    """Of many random starts the one whose overlap with the target is the median."""
    many = tl.Overlaps.random(problem, dim, seed, size=STARTS)
    i = int(np.argsort((many.M**2).sum((1, 2)))[STARTS // 2])
    return tl.Overlaps(many.Q[i], many.M[i], dim=dim)


def _at(points: np.ndarray, result: xr.Dataset) -> np.ndarray:
    """Excess risks of all runs at common times."""
    return np.array(
        [
            np.interp(points, result.time.values, row)
            for row in result.excess_risk.values
        ]
    )


def _noisy(start: tl.Overlaps, variance: float, seed: int) -> tl.Overlaps:
    """The start itself, and below it many with noise added to its overlaps with the
    target.
    """
    noise = np.random.default_rng(seed).normal(size=(NOISY, *start.M.shape)) * np.sqrt(
        variance
    )
    M = start.M + np.concatenate([np.zeros_like(noise[:1]), noise])
    return tl.Overlaps(
        np.broadcast_to(start.Q, (NOISY + 1, *start.Q.shape)), M, dim=start.dim
    )


def _verdict(data: xr.Dataset) -> Verdict:
    checks, medians = [], []
    for p in data.width.values:
        here = data.sel(width=p)
        law = here.expected.values
        chain, sde, ode = (here.crossing.sel(lens=word).values for word in LENSES)
        count = 3 * data.sizes["width"]
        # distances of distribution functions: medians and laws exist also where some
        # run has not crossed yet
        checks += [
            same_law(f"p = {p}, {names}", one, two, count)
            for names, one, two in (
                ("SGD and noisy starts", chain, law),
                ("SDE and noisy starts", sde, law),
                ("SGD and SDE", chain, sde),
            )
        ]
        checks.append(
            holds(
                np.isfinite(ode).all(),
                f"the ODE of p = {p} has left its start by the end",
            )
        )
        medians.append(
            f"p = {p}: {np.median(chain):.3f} (SGD), {np.median(sde):.3f} (SDE),"
            f" {np.median(law):.3f} (noisy starts), {ode[0]:.3f} (ODE)"
        )
    claim = (
        "runs leave their start when the ODE does from a start with their early noise"
    )
    return verdict(claim, checks, f"Median time of half the risk, {'; '.join(medians)}")


def draw(data: xr.Dataset) -> Figure:
    """A panel for each width: runs as thin lines, the ODE, and the band of noisy
    starts.
    """
    from twolayer.plot.style import COLOURS, GREY, positive

    chosen = told(data)
    figure, panels = sheet(data.sizes["width"], width=4.8, height=3.9)
    for ax, p in zip(panels, data.width.values, strict=True):
        here = data.excess_risk.sel(width=p)
        band = positive(data.band.sel(width=p).values)
        ax.fill_between(
            data.time,
            *band,
            color=GREY,
            alpha=0.25,
            lw=0,
            label="ODE, noisy starts, 80 %",
        )
        for word, label, style in (("sde", "SDE", "--"), ("chain", "SGD (chain)", "-")):
            rows = positive(here.sel(lens=word).values[: chosen.shown])
            names = [label] + [None] * (len(rows) - 1)
            ax.plot(data.time, rows.T, style, color=COLOURS[word], lw=0.8, label=names)
        ax.plot(
            data.time,
            positive(here.sel(lens="ode").values[0]),
            color=COLOURS["ode"],
            lw=2.4,
            label="ODE",
            zorder=5,
        )
        level = LEVEL * float(here[0, 0, 0])
        ax.axhline(level, color=GREY, lw=0.9, ls=":", label="half of the first risk")
        ax.set(
            yscale="log",
            xlabel=r"time $t = \gamma\nu/(pd)$",
            ylabel=r"excess risk $\mathcal{R} - \Delta/2$",
        )
        ax.set_title(rf"$p = {p}$, $\gamma/p = {chosen.lr / p:g}$")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5
    )
    headline(figure, data, rf"From one and the same start, $d = {chosen.dim}$")
    return figure
