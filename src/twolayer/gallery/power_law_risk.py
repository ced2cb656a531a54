"""Power-law inputs: the risk of a linear student decays as a power of the steps.

    λ_j ∝ j^(−a), a > 1, target spread evenly:    excess risk ≈ Σ_j λ_j e^(−2 lr λ_j n)/2d ~ n^(−(1 − 1/a))
    exactly:  C⁽ⁱ⁾' = [1 − 2 lr s_i + 2 lr² s_i²] C⁽ⁱ⁾ + lr² s_i d_i (Σ_l s_l C⁽ˡ⁾ + Δ),    2·excess = Σ_i s_i C⁽ⁱ⁾

The line is this recursion in the blocks of the inputs, points are means of the exact chain. The power of n wants
directions far beyond those learnt: a first run with a = 1.25 at d = 2000 had a slope of −0.31 instead of −0.2.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, points, sheet, task_of
from twolayer.gallery.shared.judging import between, largest, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure

SHARE = 0.1  # of the exponent: the window is finite, and so is d
RESOLUTION = 0.5  # of the risk


@figure(
    "power-law-risk",
    "decay of the risk of a linear student against the exponent of the inputs",
    quick={"dim": 2000, "steps": 2000, "seeds": 24},
    group="inputs",
)
def power_law_risk(
    *,
    seed: int = 0,
    dim: int = 20_000,
    exponents: tuple[float, ...] = (1.5, 1.75, 2.0),
    steps: int = 30_000,
    seeds: int = 64,
    rate: float = 0.2,
) -> Finding:
    """lr = rate/tr Σ, batch 1, from w = 0."""
    saved = np.unique(np.geomspace(10, steps, 12).astype(int))
    algorithm = tl.SGD(rate / tl.d)
    lines, averages, errors, slopes, checks = [], [], [], [], []
    early = steps / 30
    for a in exponents:
        problem, start = _task(a, dim)
        line = _recursion(problem, dim, rate / dim, steps)
        lines.append(line[saved])

        def compute(problem: tl.Problem = problem, start: tl.Overlaps = start) -> dict[str, np.ndarray]:
            runs = tl.solve(problem, algorithm, tl.Chain(dim), start, steps=saved, seeds=seeds, seed=seed)
            return {"risk": runs.excess_risk.values}

        risk = part(f"a={a}", compute).risk.values
        averages.append(risk.mean(0))
        errors.append(risk.std(0, ddof=1) / np.sqrt(seeds))
        slopes.append(float(np.log(line[steps] / line[int(early)]) / np.log(steps / int(early))))
        gaps, error = averages[-1] / line[saved] - 1, errors[-1] / line[saved]
        checks.append(largest(f"a = {a:g}: chain/recursion − 1", gaps, error, resolution=RESOLUTION, freedom=seeds - 1))
        checks.append(between(f"a = {a:g}: slope less −(1 − 1/a)", -SHARE, slopes[-1] + 1 - 1 / a, SHARE))
    data = xr.Dataset(
        {
            "recursion": (("exponent", "step"), np.stack(lines)),
            "risk": (("exponent", "step"), np.stack(averages)),
            "risk_error": (("exponent", "step"), np.stack(errors)),
            "slope": ("exponent", slopes),
        },
        {"exponent": list(exponents), "step": saved},
    )
    claim = "the risk decays with the exponent 1 − 1/a of the inputs' spectrum, along the exact recursion"
    first = (
        task_of(_task(exponents[0], dim)[0], algorithm).replace(f"j^−{exponents[0]:g}", "j^−a").replace(", P given", "")
    )
    return Finding(data, verdict(claim, checks), first)


def _task(exponent: float, dim: int) -> tuple[tl.Problem, tl.Overlaps]:
    inputs = tl.Inputs.power_law(exponent, dim)
    problem = tl.Problem("z1", "linear", inputs=inputs)
    share = np.array(inputs.fractions)[:, None, None]
    return problem, tl.Overlaps.in_blocks(0 * share, 0 * share, share, dim=dim)


def _recursion(problem: tl.Problem, dim: int, lr: float, steps: int) -> np.ndarray:
    """Excess risks after 0 … steps steps."""
    s, n = np.array(problem.inputs.variances), np.array(problem.inputs.sizes(dim))
    C, out = np.array(problem.inputs.fractions), np.empty(steps + 1)
    for step in range(steps + 1):
        out[step] = s @ C / 2
        C = (1 - 2 * lr * s + 2 * lr**2 * s**2) * C + lr**2 * s * n * (s @ C)
    return out


def draw(data: xr.Dataset) -> Figure:
    """Risks against steps, and slopes against the exponent."""
    from twolayer.plot.style import COLOURS, DIRECTIONS

    figure, (left, right) = sheet(2, width=4.6, height=3.7)
    for i, a in enumerate(data.exponent.values):
        left.plot(data.step, data.recursion[i], color=DIRECTIONS[i], label=f"recursion, $a = {a:g}$")
        points(
            left, data.step, data.risk[i].values, data.risk_error[i].values, DIRECTIONS[i], "chain" if i == 0 else ""
        )
    left.set(xscale="log", yscale="log", xlabel="step", ylabel="excess risk")
    left.legend(fontsize="small")
    fine = np.linspace(1.1, 1.1 * float(data.exponent[-1]), 100)
    right.plot(fine, 1 / fine - 1, color=COLOURS["theory"], label="$-(1 - 1/a)$")
    right.plot(
        data.exponent,
        data.slope,
        "o",
        color=DIRECTIONS[0],
        label="slope of the recursion",
    )
    right.set(xlabel="exponent $a$ of the inputs", ylabel="slope of the risk")
    right.legend(fontsize="small")
    headline(figure, data, "Decay of the risk with inputs of variances $j^{-a}$")
    return figure
