"""SGD, its SDE and its ODE from one and the same random start.

dX = b(X) dt + ((γ/pd) Σ(X))^{1/2} dB,    b: the ODE

At one start the noise does not shift the exit by its mean over all starts but by

    −E log(|x + √s g|²/|x|²)/(2c),    x = √d m(0),  g ~ N(0, I_p),  s = (γ/p) V_p/(2c)

which is large for a start that is worse than typical: there the noise helps. For a good start it is next to nothing.
The start taken here is the median of many random ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.gallery.measuring import agree, canvas, colours, growth, phase_retrieval, projected
from twolayer.gallery.registry import Plate, Verdict, figure

LENSES = ("chain", "sde", "ode")
LEVEL = 0.5  # a trajectory is dated by when its excess risk has fallen to half of its start
STARTS = 101
DRAWS = 200_000


@figure(
    "trajectories",
    "risk along runs of SGD and of the SDE, and along the ODE, from the same start",
    quick={"widths": (1,), "dim": 300},
)
def trajectories(
    *,
    seed: int = 0,
    widths: tuple[int, ...] = (1, 2),
    dim: int = 3000,
    lr: float = 0.1,
    noise: float = 1e-4,
    seeds: int = 10,
    time: float = 7.0,
) -> Plate:
    """Ten runs of each against the ODE; the crossing times of half the risk are compared."""
    risks, crossings, shifts = [], [], []
    points = np.linspace(0, time, 201)
    for p in widths:
        problem, algorithm = phase_retrieval(p, noise), projected(lr)
        start = _typical(problem, dim, seed)
        runs = []
        for lens in (tl.Chain(dim), tl.SDE(dim), tl.ODE()):
            result = tl.solve(problem, algorithm, lens, start, time=time, seeds=seeds, seed=seed)
            excess = np.broadcast_to(result.excess_risk.values, (seeds, result.sizes["time"]))
            runs.append([np.interp(points, result.time.values, row) for row in excess])
        risks.append(runs)
        crossings.append([[_crossing(points, run) for run in lens] for lens in runs])
        c, s = growth(problem, lr / p)
        shifts.append(_shift(np.sqrt(dim) * start.M[:, 0], c, s, seed))
    data = xr.Dataset(
        {
            "excess_risk": (("width", "lens", "seed", "time"), np.array(risks)),
            "crossing": (("width", "lens", "seed"), np.array(crossings)),
            "predicted_shift": ("width", shifts),
        },
        {"width": list(widths), "lens": list(LENSES), "time": points},
    )
    return Plate(_draw(data, dim, lr, noise), data, _verdict(data))


def _typical(problem: tl.Problem, dim: int, seed: int) -> tl.Overlaps:
    """Of many random starts the one whose overlap with the target is the median."""
    many = tl.Overlaps.random(problem, dim, seed, size=STARTS)
    i = int(np.argsort((many.M**2).sum((1, 2)))[STARTS // 2])
    return tl.Overlaps(many.Q[i], many.M[i], dim=dim)


def _crossing(times: np.ndarray, risk: np.ndarray) -> float:
    """First time at which the risk is at the level, by linear interpolation; NaN if it never is."""
    level = LEVEL * risk[0]
    below = np.flatnonzero(risk <= level)
    if not below.size:
        return float("nan")
    i = below[0]
    return float(np.interp(level, [risk[i], risk[i - 1]], [times[i], times[i - 1]]))


def _shift(x: np.ndarray, c: float, s: float, seed: int) -> float:
    """Mean shift of the exit from the start x = √d m(0) that noise of variance s makes."""
    noisy = x + np.sqrt(s) * np.random.default_rng(seed).normal(size=(DRAWS, len(x)))
    return float(-np.log((noisy**2).sum(1) / (x**2).sum()).mean() / (2 * c))


def _verdict(data: xr.Dataset) -> Verdict:
    parts, good = [], bool(np.isfinite(data.crossing).all())
    count = data.sizes["seed"]
    for p in data.width.values:
        here = data.sel(width=p)
        mean, error = here.crossing.mean("seed"), here.crossing.std("seed", ddof=1) / np.sqrt(count)
        chain, sde, ode = (float(mean.sel(lens=word)) for word in LENSES)
        chain_error, sde_error = (float(error.sel(lens=word)) for word in LENSES[:2])
        expected, both = float(here.predicted_shift), float(np.hypot(chain_error, sde_error))
        good &= agree(chain, sde, both) and agree(chain - ode, expected, chain_error)
        parts.append(
            f"p = {p}: half the risk at t = {chain:.3f} ± {chain_error:.3f} (chain), {sde:.3f} ± {sde_error:.3f} "
            f"(SDE), {ode:.3f} (ODE), so a shift of {chain - ode:+.3f}, predicted {expected:+.3f} from this start"
        )
    return Verdict(good, "; ".join(parts))


def _draw(data: xr.Dataset, dim: int, lr: float, noise: float) -> Any:
    palette = colours()
    figure, panels = canvas(data.sizes["width"], width=4.8, height=3.7)
    for ax, p in zip(panels, data.width.values, strict=True):
        here = data.excess_risk.sel(width=p)
        for word, label in (("sde", "SDE"), ("chain", "SGD (chain)")):
            rows = here.sel(lens=word).values
            ax.plot(
                data.time, rows.T, color=palette[word], lw=0.7, alpha=0.75, label=[label] + [None] * (len(rows) - 1)
            )
        ax.plot(data.time, here.sel(lens="ode").values[0], color=palette["ode"], lw=2.4, label="ODE", zorder=5)
        ax.axhline(LEVEL * float(here[0, 0, 0]), color="#888888", lw=0.9, ls=":")
        ax.set(yscale="log", xlabel=r"time $t = \gamma\nu/(pd)$", ylabel=r"excess risk $\mathcal{R} - \Delta/2$")
        ax.set_title(rf"$p = {p}$, $\gamma/p = {lr / p:g}$")
        ax.legend(loc="lower left")
    figure.suptitle(rf"Same start: $d = {dim}$, $\gamma = {lr:g}$, $\Delta = {noise:g}$", fontsize=10)
    return figure
