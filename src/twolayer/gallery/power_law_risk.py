"""Power-law inputs: the risk of a linear student decays as a power of the steps.

    λ_j ∝ j^(−a), a > 1, target spread evenly, lr = r/tr Σ, batch 1, w = 0:
    C⁽ⁱ⁾' = [1 − 2 lr s_i + 2 lr² s_i²] C⁽ⁱ⁾ + lr² s_i d_i · 2 excess,
        2 excess = Σ_i s_i C⁽ⁱ⁾    exactly
    excess → λ_1/(2 d) · Γ(1 − 1/a)/a · c^(−(1 − 1/a))/(1 − κ),    c = 2 lr λ_1 n,
        κ = Σ_j ½ lr λ_j/(1 − lr λ_j)

Solved for the risk, the recursion is 2 excess(n) = F(n) + Σ_{m<n} K(n − 1 − m) · 2
excess(m). F(n) = Σ_j λ_j q_jⁿ/d is the risk without the noise of samples, K(n) = lr²
Σ_j λ_j² q_jⁿ, and q = 1 − 2 lr λ + 2 lr² λ². Late, F sees small λ alone, where qⁿ =
e^(−2 lr λ n); as its sum is an integral in u = c j^(−a), it is the power above without
its last factor. K falls as n^(−(2 − 1/a)), faster than F, with Σ_n K(n) = κ: samples
multiply the risk by 1/(1 − κ) in the end and leave the exponent alone. κ is r/2 only
where lr λ_1 is small, and at the top of a power law it is not.

What is left out: directions beyond d, a part (a/(a − 1)) d^(1−a)/(Γ(1 − 1/a) c^(−(1 −
1/a))) of the risk, 1 % here, and the memory of K, of relative order r c^(−(1 − 1/a))
and again some per cent. Blocks know no d, so that d may be 10⁶. The line is the
recursion in blocks; points are means of the exact chain, over fewer steps. They have
standard errors where E(1 − lr λ_1 x²)⁴ < 1, which is lr λ_1 < 0.38: beyond, the squared
risk of single runs has no bounded mean.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.special import gamma as gamma_function

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, points, sheet, task_of
from twolayer.gallery.shared.judging import between, largest, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.statistics import standard_error

SLOPE, FACTOR = (
    0.02,
    0.05,
)  # what the limit may be off: in the exponent, and of the risk
WINDOW = 30  # the exponent is that over the last factor of this many steps
# of the risk: half of it, or half as much again, has to be seen in the mean of the
# chain
RESOLUTION = 0.5


@figure(
    "power-law-risk",
    "decay of the risk of a linear student against the exponent of the inputs",
    quick={"steps": 1000, "seeds": 128},
    fixed={
        "target": "the recursion is exact for a linear target",
        "activation": "the recursion is exact for a linear student",
        "geometry": "the recursion is that of free weights",
    },
    group="inputs",
)
def power_law_risk(
    *,
    seed: int = 0,
    dim: int = 1_000_000,
    exponents: tuple[float, ...] = (1.6, 1.9, 2.4),
    steps: int = 20_000,
    horizon: int = 100_000,
    seeds: int = 256,
    rate: float = 0.2,
) -> Finding:
    """lr = rate/tr Σ, batch 1, from w = 0."""
    saved = np.unique(np.geomspace(10, steps, 10).astype(int))
    fine = np.unique(np.geomspace(10, horizon, 80).astype(int))
    algorithm = tl.SGD(rate / tl.d)
    found: dict[str, list[np.ndarray]] = {
        name: [] for name in ("recursion", "limit", "risk", "risk_error")
    }
    slopes, checks = [], []
    for a in exponents:
        problem, start = _task(a, dim)
        line, limit = (
            _recursion(problem, dim, rate / dim, horizon),
            _limit(problem, a, dim, rate, fine),
        )

        def compute(
            problem: tl.Problem = problem, start: tl.Overlaps = start
        ) -> dict[str, np.ndarray]:
            runs = tl.solve(
                problem,
                algorithm,
                tl.Chain(dim),
                start,
                steps=saved,
                seeds=seeds,
                seed=seed,
            )
            return {"risk": runs.excess_risk.values}

        risk = part(f"a={a}", compute).risk.values
        mean, error = risk.mean(0), standard_error(risk)
        for name, values in zip(found, (line[fine], limit, mean, error), strict=True):
            found[name].append(values)
        slopes.append(
            float(np.log(line[horizon] / line[horizon // WINDOW]) / np.log(WINDOW))
        )
        exact = line[saved]
        what = f"a = {a:g}: chain/recursion − 1"
        checks += [
            largest(
                what,
                mean / exact - 1,
                error / exact,
                resolution=RESOLUTION,
                freedom=seeds - 1,
            ),
            between(
                f"a = {a:g}: slope of the recursion less −(1 − 1/a)",
                -SLOPE,
                slopes[-1] + 1 - 1 / a,
                SLOPE,
            ),
            between(
                f"a = {a:g}: recursion over the limit",
                1 - FACTOR,
                float(line[horizon] / limit[-1]),
                1 + FACTOR,
            ),
        ]
    data = xr.Dataset(
        {
            **{
                x: (
                    ("exponent", "point" if x in ("recursion", "limit") else "step"),
                    np.stack(found[x]),
                )
                for x in found
            },
            "slope": ("exponent", slopes),
        },
        {"exponent": list(exponents), "step": saved, "point": fine},
    )
    claim = (
        "the risk decays with the exponent 1 − 1/a of the inputs' spectrum, along the"
        " exact recursion"
    )
    first = (
        task_of(_task(exponents[0], dim)[0], algorithm)
        .replace(f"j^−{exponents[0]:g}", "j^−a")
        .replace(", P given", "")
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
    kept, noise = 1 - 2 * lr * s + 2 * lr**2 * s**2, lr**2 * s * n
    for step in range(steps + 1):
        risk = s @ C
        out[step] = risk / 2
        C = kept * C + noise * risk
    return out


def _limit(
    problem: tl.Problem, a: float, dim: int, rate: float, steps: np.ndarray
) -> np.ndarray:
    """The power of the steps that the risk tends to."""
    s, n = np.array(problem.inputs.variances), np.array(problem.inputs.sizes(dim))
    first, small = s.max(), rate / dim * s
    memory = (n * small / (1 - small)).sum() / 2
    c = 2 * rate / dim * first * steps
    return (
        first
        / (2 * dim)
        * gamma_function(1 - 1 / a)
        / a
        * c ** (1 / a - 1)
        / (1 - memory)
    )


def draw(data: xr.Dataset) -> Figure:
    """Risks against steps, and slopes against the exponent."""
    from twolayer.plot.style import COLOURS, DIRECTIONS

    figure, (left, right) = sheet(2, width=4.6, height=3.7)
    for i, a in enumerate(data.exponent.values):
        left.plot(
            data.point,
            data.recursion[i],
            color=DIRECTIONS[i],
            label=f"recursion, $a = {a:g}$",
        )
        left.plot(
            data.point,
            data.limit[i],
            ":",
            color=COLOURS["theory"],
            label="its power law" if i == 0 else None,
        )
        points(
            left,
            data.step,
            data.risk[i].values,
            data.risk_error[i].values,
            DIRECTIONS[i],
            "chain" if i == 0 else "",
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
