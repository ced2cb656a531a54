"""From correlation to squared loss: weak recovery in few large steps, then learning to
the end.

    stage 1: correlation loss, δ = ℓ/2 − μ < 0,
        until the risk has fallen below a share of its start
    stage 2: squared loss, lr lower by a factor

The correlation loss has no reason to stop at f = y: its noise never vanishes and the
risk stays at a floor. The squared loss alone is unstable at such rates; at the largest
rate it bears it needs d^{ℓ/2−1} steps for weak recovery.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.batching import hermite, law
from twolayer.gallery.shared.drawing import headline, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, holds, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Variables
from twolayer.task.method import Method

LOOKS = {
    "switch": ("theory", "-", "correlation, then squared"),
    "correlation": ("correlation", "--", "correlation loss alone"),
    "squared": ("SGD", "-.", "squared loss alone, $\\delta = 0$"),
}
"""Colour, dash and name of the three plans."""

LEAST = 1e-8  # excess risks below this are rounding


@figure(
    "loss-switch",
    "correlation loss until weak recovery, then squared loss with a smaller rate",
    quick={"dim": 100, "steps": 60, "seeds": 8},
    fixed={
        "target": "h_ℓ(z1), set by ell",
        "activation": "h_ℓ, which matches the target set by ell",
        "geometry": (
            "on the sphere the squared loss bears the large rate, and nothing is to be"
            " switched"
        ),
    },
    group="phase-diagram",
)
def loss_switch(
    *,
    seed: int = 0,
    ell: int = 3,
    mu: float = 1.85,
    dim: int = 256,
    gamma: float = 0.5,
    n0: int = 1,
    share: float = 0.6,
    drop: float = 0.04,
    steps: int = 120,
    seeds: int = 16,
) -> Finding:
    """Median excess risk; each run switches at ``share`` of its first risk, and its lr
    is multiplied by ``drop``.

    The squared loss bears rates up to 1/κ = 1/ℓ only.
    """
    from twolayer.analysis.weak_recovery import oriented

    problem = hermite(ell)
    starts = oriented(problem, tl.Overlaps.random(problem, dim, seed, size=seeds))
    first = law("correlation", mu, ell / 2 - mu, gamma, n0)
    second = first.replace(loss="squared", lr=drop * first.lr)
    alone = first.replace(loss="squared", lr=0.3 / ell)
    until = tl.Until("risk", share, relative=True)
    plans = {
        "switch": [
            tl.Stage(first, steps=steps, until=until, save=steps),
            tl.Stage(second, steps=steps, save=steps),
        ],
        "correlation": [tl.Stage(first, steps=2 * steps, save=2 * steps)],
        "squared": [tl.Stage(alone, steps=2 * steps, save=2 * steps)],
    }
    grid = np.arange(2 * steps + 1)
    method = tl.Chain(dim, batch_sums="exact")
    curves = {
        name: part(name, partial(_curve, problem, plan, method, starts, grid, seed))
        for name, plan in plans.items()
    }
    data = xr.Dataset(
        {
            name: (("step", "quantile"), curve.risk.values)
            for name, curve in curves.items()
        },
        {"step": grid, "quantile": [0.1, 0.5, 0.9]},
    )
    data["switched"] = ("seed", curves["switch"].switched.values)
    return Finding(data, _verdict(data, share), task_of(problem, first))


def _curve(
    problem: tl.Problem,
    plan: list[tl.Stage],
    method: Method,
    starts: tl.Overlaps,
    grid: np.ndarray,
    seed: int,
) -> Variables:
    """Quantiles over seeds of the excess risk on a common clock of steps; and where the
    first stage ended.
    """
    run = tl.solve_stages(problem, plan, method, starts, seed=seed)
    risks = np.stack(
        [
            np.interp(grid, run.step.values[i], run.excess_risk.values[i])
            for i in range(run.sizes["seed"])
        ]
    )
    switched = np.where(
        run.outcome.values[:, 0] == "reached",
        np.ceil(run.stop_step.values[:, 0]),
        np.inf,
    )
    return {"risk": np.quantile(risks, [0.1, 0.5, 0.9], axis=0).T, "switched": switched}


def _verdict(data: xr.Dataset, share: float) -> Verdict:
    switched = np.isfinite(data.switched.values)
    middle = float(np.median(data.switched.values))
    last = data.sizes["step"] - 1
    end = (
        int(middle) + last // 2 if np.isfinite(middle) else last
    )  # where the second stage of the median run ends
    ends = {name: float(data[name][min(end, last), 1]) for name in LOOKS}
    start = float(data["switch"][0, 1])
    first = {name: _first(data[name][:, 1].values, 0.5 * start) for name in LOOKS}
    ratio = ends["switch"] / ends["correlation"]
    checks = [
        holds(
            switched.mean() > 0.75,
            f"{int(switched.sum())} of {len(switched)} runs switch at {share:g} of the"
            " risk, three quarters at least",
        ),
        holds(
            first["switch"] < first["squared"],
            f"half the median risk after {first['switch']:.0f} steps, before the"
            f" {first['squared']:.0f} of the squared loss alone",
        ),
        holds(
            ratio < 0.2,
            f"final median excess risk {ends['switch']:.2g}, {ratio:.2g} of that of the"
            f" correlation loss alone ({ends['correlation']:.2g}), a fifth at most",
        ),
    ]
    return verdict(
        "correlation loss first, squared loss then, beats either alone",
        checks,
        f"Median switch: {middle:.0f}",
    )


def _first(risk: np.ndarray, level: float) -> float:
    below = np.flatnonzero(risk < level)
    return float(below[0]) if below.size else float("inf")


def draw(data: xr.Dataset) -> Figure:
    """Median excess risks with the central 80 % of the runs."""
    from twolayer.plot.style import COLOURS, GREY, positive

    chosen = told(data)
    figure, (ax,) = sheet(1, width=6.6, height=4.2)
    for name, (word, dash, label) in LOOKS.items():
        low, middle, high = data[name].values.T
        ax.fill_between(data.step, low, high, color=COLOURS[word], alpha=0.18, lw=0)
        ax.plot(data.step, positive(middle), color=COLOURS[word], ls=dash, label=label)
    ax.axvline(
        float(np.median(data.switched)),
        color=GREY,
        ls=":",
        lw=1.1,
        label="median switch",
    )
    ax.set_yscale("log", nonpositive="clip")  # bands that reach zero reach the edge
    ax.set(xlabel="step", ylabel="excess risk", ylim=(LEAST, 3.0))
    figure.legend(loc="outside lower center", ncols=2)
    headline(
        figure,
        data,
        rf"$d = {chosen.dim}$, medians and central 80 %; then squared loss, lr ×"
        rf" {chosen.drop:g}",
    )
    return figure
