"""Labels with heavy tails: plain gradients blow up with the dimension, clipped ones
have a limit.

    y = h(z1) + √Δ t_ν,    W ← W + (γ/d) ĝ zᵀ,    ĝ = g,   g min(1, c/|g|)   or   g/|g|,
        g = σ'(λ) (y − σ(λ))
    plain:    the largest of α d noises is of order (α d)^{1/ν}:
              Q − M² ∝ γ² Δ d^{2/ν − 1},  which grows for ν < 2
    clipped:  dM/dt = E[ĝ λ*],   dQ/dt = 2 E[ĝ λ] + γ E[ĝ²],
              whose averages exist for noise of any law

Left: plain gradients jump with every outlier, and have no limit; clipped and normalised
ones follow their equations. Right: what the noise leaves in the weights, Q − M², at the
end of the run. The clipped students forget the dimension.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import headline, plain_ticks, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, largest, near, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Options, Variables
from twolayer.numerics.statistics import standard_error
from twolayer.task.method import Method

MARKS = {"clipped": "o", "plain": "s", "normalised": "^"}
FINITE = 4.0  # runs differ from their limit by no more than this over d
CLOSE = 0.1  # of the excess risk: deviations from the equation that have to be seen
BENT = 0.08  # of an exponent: what next orders change it by over few decades


@figure(
    "heavy-tails",
    "clipped and normalised against plain gradients under label noise without a"
    " variance",
    quick={"dims": (60, 400, 2400), "seeds": 80},
    fixed={"geometry": "weights that are normalised have no norm that could blow up"},
    group="mean-field",
    papers=("saad1995", "benarous2021"),
)
def heavy_tails(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (100, 300, 1000, 3000, 10_000),
    seeds: int = 192,
    alpha: float = 12.0,
    gamma: float = 0.5,
    nu: float = 1.5,
    noise: float = 1.0,
    threshold: float = 1.0,
    target: str = "z1",
    activation: str = "linear",
) -> Finding:
    """Runs up to ``alpha`` samples per dimension at lr = γ/d with noise √Δ t_ν; clipped
    at c = ``threshold``.
    """
    rules = {
        "plain": None,
        "clipped": f"clip({threshold:g})",
        "normalised": "normalised()",
    }
    problem = chosen_problem(
        target, activation, 1, noise=noise, noise_law=f"student({nu:g})"
    )
    found = {}
    for name, rule in rules.items():
        algorithm = tl.SGD(lr=gamma * tl.d**-1, rule=rule)
        for dim in dims:
            runs: Options = {"save": 24, "seeds": seeds, "seed": seed, "throw": False}
            found[name, dim] = part(
                f"{name}-{dim}",
                partial(_run, problem, algorithm, tl.Chain(dim), alpha, **runs),
            )
        if (
            rule is not None
        ):  # on a grid of its own: every tenth point is a save point of the runs
            ode = tl.ODE(tl.Averages(accuracy=1e-2), rtol=1e-4)
            found[name, 0] = part(
                f"{name}-limit", partial(_run, problem, algorithm, ode, alpha, save=240)
            )
    wide, cut = max(dims), [name for name, rule in rules.items() if rule is not None]
    data = xr.Dataset(
        {
            "excess": (
                ("rule", "seed", "save"),
                [found[name, wide].excess.values for name in rules],
            ),
            "left": (
                ("rule", "dim", "seed"),
                [[found[name, dim].left.values for dim in dims] for name in rules],
            ),
            "limit": (
                ("cut", "fine"),
                [found[name, 0].excess.values[0] for name in cut],
            ),
            "limit_left": ("cut", [float(found[name, 0].left[0]) for name in cut]),
        },
        {
            "rule": list(rules),
            "cut": cut,
            "dim": list(dims),
            "alpha": ("save", found["plain", wide].alpha.values),
            "fine_alpha": ("fine", found[cut[0], 0].alpha.values),
        },
    )
    return Finding(data, _verdict(data, nu), task_of(problem))


def _run(
    problem: tl.Problem, algorithm: tl.SGD, method: Method, alpha: float, **options: Any
) -> Variables:
    """Excess risks of all runs along α, and Q − M² of each at the end."""
    run = tl.solve(
        problem,
        algorithm,
        method,
        tl.Overlaps([[1.0]], [[0.0]]),
        alpha=alpha,
        **options,
    )
    left = (run.Q[:, -1, 0, 0] - run.M[:, -1, 0, 0] ** 2).values
    return {"alpha": run.alpha.values, "excess": run.excess_risk.values, "left": left}


def _slope(left: np.ndarray, dims: np.ndarray) -> tuple[float, float]:
    """Exponent of the median in d, and its standard error by resampling the runs."""
    rng, x = np.random.default_rng(0), np.log(dims) - np.log(dims).mean()

    def fitted(values: np.ndarray) -> float:
        return float(x @ np.log(np.median(values, axis=1)) / (x @ x))

    n = left.shape[1]
    others = [
        fitted(np.stack([row[rng.integers(0, n, n)] for row in left]))
        for _ in range(400)
    ]
    return fitted(left), float(np.std(others))


def _verdict(data: xr.Dataset, nu: float) -> Verdict:
    checks, dims, wide = [], data.dim.values.astype(float), int(data.dim.values.max())
    for name in data.cut.values:
        runs, limit = (
            data.excess.sel(rule=name).values[:, 1:],
            data.limit.sel(cut=name).values[10::10],
        )
        errors = standard_error(runs)
        room: Options = {
            "resolution": CLOSE,
            "allowance": FINITE / wide,
            "freedom": len(runs) - 1.0,
        }
        checks.append(
            largest(
                f"{name}, d = {wide}: excess risk of the runs − ODE",
                runs.mean(0) - limit,
                errors,
                **room,
            )
        )
    grows = 2 / nu - 1  # and what is to be told apart from it is no growth
    for name, expected in (
        ("plain", grows),
        *((name, 0.0) for name in data.cut.values),
    ):
        slope, error = _slope(data.left.sel(rule=name).values, dims)
        what = f"{name}: exponent in d of the median of Q − M²"
        checks.append(
            near(what, slope, expected, error, resolution=grows, allowance=BENT)
        )
    return verdict(
        "clipped gradients follow their equation where plain ones have none and blow up"
        " with d",
        checks,
    )


def draw(data: xr.Dataset) -> Figure:
    """Excess risks along the run, and what the noise leaves against the dimension."""
    from twolayer.plot.style import DIRECTIONS

    chosen = told(data)
    drawn, (left, right) = sheet(2, width=4.6)
    wide = int(data.dim.values.max())
    for (name, marker), colour in zip(MARKS.items(), DIRECTIONS, strict=False):
        marks: Options = {
            "color": colour,
            "marker": marker,
            "ls": "",
            "ms": 4,
            "mfc": "none",
        }
        runs = data.excess.sel(rule=name).values
        low, middle, high = np.quantile(runs, (0.1, 0.5, 0.9), axis=0)
        left.fill_between(data.alpha, low, high, color=colour, alpha=0.15, lw=0)
        left.plot(data.alpha[1:], middle[1:], label=f"{name}, d = {wide}", **marks)
        left_over = np.median(data.left.sel(rule=name).values, axis=1)
        right.plot(data.dim, left_over, label=name, **{**marks, "ms": 5})
        if name in data.cut.values:
            left.plot(
                data.fine_alpha,
                data.limit.sel(cut=name),
                color=colour,
                label=f"{name}, ODE",
            )
            right.axhline(
                float(data.limit_left.sel(cut=name)), color=colour, label=f"{name}, ODE"
            )
        else:
            left.plot(
                data.alpha, runs[0], color=colour, lw=0.8, label="one of these runs"
            )
            law = left_over[0] * (data.dim / data.dim[0]) ** (2 / chosen.nu - 1)
            right.plot(
                data.dim,
                law,
                "--",
                color=colour,
                label=rf"$d^{{2/\nu - 1}}$, $\nu$ = {chosen.nu:g}",
            )
    left.set(
        xlabel=r"$\alpha$ = samples / $d$",
        ylabel="excess risk",
        yscale="log",
        title="medians, 10 to 90 % of runs",
    )
    right.set(
        xlabel=r"$d$",
        ylabel=r"median of $Q - M^2$ at the end",
        xscale="log",
        yscale="log",
    )
    right.set_title("what the noise leaves")
    plain_ticks(right.yaxis)
    left.set_ylim(top=30 * left.get_ylim()[1])  # room for the legend
    left.legend(fontsize=7, ncols=2)
    right.legend(fontsize=7.5)
    rate = f"lr = {chosen.gamma:g}/d, batch 1; clipped at c = {chosen.threshold:g}"
    headline(drawn, data, rate)
    return drawn
