"""Layer-wise training: giant steps of the first layer, then ridge regression of the
second.

    risk = ½ (E[h²] + Δ − 2 c·b + cᵀ K c),    c = (K + ρ p² I)⁻¹ b
        at the overlaps after t steps

The theory takes the overlaps of the limit; runs take those of the chain at finite d,
and fit the second layer to finitely many samples. The risk is not linear in the
overlaps, so their fluctuations shift its mean by C/d; runs at d and d/4 remove that, (4
risk(d) − risk(d/4))/3.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, points, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, holds, largest, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.stepping import orthogonal
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import positive_integer
from twolayer.numerics.statistics import standard_error

RESOLUTION = 0.1  # of the fall of the risk
FINE = 9  # values of α of the lines of theory


@figure(
    "layerwise",
    "test risk after t giant steps and a ridge fit of the second layer, against steps"
    " and alpha",
    quick={"dim": 400, "seeds": 6, "samples": 500},
    group="giant-steps",
)
def layerwise(
    *,
    seed: int = 0,
    target: str = "z1 + z1*z2",
    activation: str = "relu",
    width: int = 6,
    geometry: str = "projected",
    alphas: tuple[float, ...] = (0.5, 1.0, 3.0, 10.0),
    lr: float = 4.0,
    ridge: float = 1e-4,
    dim: int = 1000,
    seeds: int = 24,
    samples: int = 4000,
    steps: int = 4,
) -> Finding:
    """Risk in theory (many samples, and n₂ of them) and of fits to n₂ samples after
    runs at dimension d.
    """
    positive_integer("seeds", seeds, 2)
    signs = [1.0 if j % 2 == 0 else -1.0 for j in range(width)]
    problem = tl.Problem(target, activation, width=width, second_layer=signs)
    algorithm = tl.SGD(lr=lr, batch=tl.d, geometry=geometry)
    fit: tuple[float, int, Options] = (
        ridge,
        samples,
        {"steps": steps, "save": steps, "seed": seed},
    )

    def batches(alpha: float) -> tl.SGD:
        return algorithm.replace(batch=alpha * tl.d)

    parts = [
        part(f"alpha={x:g}", partial(_measure, problem, batches(x), *fit, dim, seeds))
        for x in alphas
    ]
    data = xr.concat(parts, xr.DataArray(list(alphas), dims="alpha", name="alpha"))
    fine = np.geomspace(min(alphas), max(alphas), FINE)
    lines = [
        part(
            f"line-{x:.6g}", partial(_theory, problem, batches(float(x)), *fit)
        ).risk_finite.values
        for x in fine
    ]
    data["risk_line"] = ("fine_alpha", "step"), np.stack(lines)
    data = data.assign_coords(fine_alpha=fine)
    task = task_of(problem, algorithm).replace("batch d", "batches of αd")
    return Finding(data, _verdict(data, seeds), task)


def _theory(
    problem: tl.Problem, algorithm: tl.SGD, ridge: float, samples: int, run: Options
) -> xr.Dataset:
    """Risks of the limit, after a fit to infinitely many samples and to n₂ of them."""
    limit = tl.solve(problem, algorithm, tl.GiantSteps(), orthogonal(problem), **run)
    theory = tl.layers.layerwise(limit, ridge)
    finite = theory.risk.values[0] + theory.excess_per_sample.values[0] / samples
    return xr.Dataset(
        {"risk": ("step", theory.risk.values[0]), "risk_finite": ("step", finite)},
        {"step": np.arange(run["steps"] + 1)},
    )


def _measure(
    problem: tl.Problem,
    algorithm: tl.SGD,
    ridge: float,
    samples: int,
    run: Options,
    dim: int,
    seeds: int,
) -> xr.Dataset:
    data = _theory(problem, algorithm, ridge, samples, run)
    for suffix, d in (("", dim), ("_pilot", dim // 4)):
        runs = tl.solve(
            problem, algorithm, tl.Chain(d), orthogonal(problem), seeds=seeds, **run
        )
        risks = np.empty((seeds, run["steps"] + 1))
        for i, t in np.ndindex(*risks.shape):
            overlaps = tl.Overlaps(runs.Q.values[i, t], runs.M.values[i, t], problem.P)
            seed = run["seed"] + 1000 * i + t
            risks[i, t] = tl.layers.simulate_second_layer(
                problem, overlaps, samples, ridge, 1, seed
            )[0]
        data[f"risk_runs{suffix}"] = "step", risks.mean(0)
        data[f"risk_runs{suffix}_error"] = "step", standard_error(risks)
    return data


def _verdict(data: xr.Dataset, seeds: int) -> Verdict:
    limit = (4 * data.risk_runs - data.risk_runs_pilot) / 3
    error = np.hypot(4 * data.risk_runs_error, data.risk_runs_pilot_error) / 3
    fall = float(data.risk.max() - data.risk.min())
    checks = [
        largest(
            f"risk of the runs, extrapolated in d, − theory; {RESOLUTION:.0%} of the"
            f" fall {fall:.3f} resolved",
            limit - data.risk_finite,
            error,
            resolution=RESOLUTION * fall,
            freedom=seeds - 1,
        ),
        holds(
            (np.diff(data.risk.values, axis=1) < 1e-6).all(),
            "the risk falls with every step",
        ),
    ]
    parts = []
    for alpha in data.alpha.values:
        row = data.sel(alpha=alpha)
        parts.append(
            f"α = {alpha:g}: "
            + ", ".join(
                f"{float(x):.3f} ({float(y):.3f} ± {float(e):.3f})"
                for x, y, e in zip(
                    row.risk_finite, row.risk_runs, row.risk_runs_error, strict=True
                )
            )
        )
    note = f"Risk after 0, 1, … steps, runs in brackets: {'; '.join(parts)}"
    return verdict(
        "giant steps and a ridge fit of the second layer have the risk of the limit",
        checks,
        note,
    )


def draw(data: xr.Dataset) -> Figure:
    """The same risks against the steps and against α."""
    from twolayer.plot.style import DIRECTIONS

    chosen = told(data)
    figure, (left, right) = sheet(2, height=3.9)
    t, alphas, marks = data.step.values, data.alpha.values, "os^Dv"
    for i, alpha in enumerate(alphas):
        row = data.sel(alpha=alpha)
        left.plot(
            t,
            row.risk_finite,
            color=DIRECTIONS[i],
            label=rf"theory, $\alpha = {alpha:g}$",
        )
        points(
            left,
            t,
            row.risk_runs,
            row.risk_runs_error,
            DIRECTIONS[i],
            "runs" if i == 0 else "_",
            marks[i % 5],
        )
    for i, step in enumerate(t):
        row = data.sel(step=step)
        label = "theory, 1 step" if step == 1 else f"theory, {step} steps"
        right.plot(data.fine_alpha, row.risk_line, color=DIRECTIONS[i], label=label)
        points(
            right,
            alphas,
            row.risk_runs,
            row.risk_runs_error,
            DIRECTIONS[i],
            "runs" if i == 0 else "_",
            marks[i % 5],
        )
    left.set(xlabel="steps of the first layer", ylabel="test risk after the fit")
    left.set_xticks(t)
    right.set(xlabel=r"samples per step over $d$, $\alpha$", xscale="log")
    right.set_xticks(alphas, [f"{x:g}" for x in alphas])
    right.minorticks_off()
    for ax in (left, right):
        ax.legend(fontsize=7.5)
    headline(
        figure,
        data,
        f"Then a ridge fit of the second layer to {chosen.samples} samples; runs at d ="
        f" {chosen.dim} (2 s.e.)",
    )
    return figure
