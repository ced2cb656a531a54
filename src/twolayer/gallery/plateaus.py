"""Where runs stall: saddles that a run passes, how long it stays, and the rate beyond
which nothing is stable.

    F(x*) = 0,   κ = largest growth rate of ∂F/∂x at x*:      a plateau lasts
        t = log(d)/(2κ) + const
    C = Q − M − Mᵀ + P:   dC/dt = −(JC + CJ)/N + (γ/N³) K:C,      unstable for
        γ > γ_c = N²/μ

Left: a run from saddle to saddle. Middle: first passages of the exact chain from random
starts, with slopes 1/(2κ) of the saddles found. Runs of the committee leave before they
have come close to theirs, whose other eigenvalues are small: the slope is above 1/(2κ)
by up to a quarter. Right: γ_c of erf committees against the sign of the linearised
limit.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, points, sheet, told
from twolayer.gallery.shared.judging import (
    Verdict,
    between,
    holds,
    largest,
    near,
    unknown,
    verdict,
)
from twolayer.gallery.shared.measuring import growth, on_sphere, phase_retrieval, slope
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.wide import committee, online
from twolayer.numerics.arguments import Variables
from twolayer.numerics.errors import require

STRONG, WEAK = 1.0, 0.25  # strengths of the two directions of the run on the left
SPAN, DIM = 25.0, 10**6  # its length and the dimension of its start

RATE = 0.05  # d·lr of phase retrieval
SLOW = 1.25  # slope of the erf committee over 1/(2κ), at most
HALF = 0.5  # of the saddle's excess risk: the end of a plateau
NEAR = 0.003  # relative distance to γ_c at which the linearisation is asked
TOLERANCE = 0.005  # of γ_c
FAR = 0.4  # of a time: deviations that must be seen


@figure(
    "plateaus",
    "a run with its plateaus, their length against d with the law log(d)/(2κ), and the"
    " critical rate against width",
    quick={
        "dims": (200, 600, 2000),
        "slow_dims": (50, 200, 800),
        "seeds": 128,
        "slow_seeds": 32,
        "widths": (1, 2, 3),
    },
    fixed={
        "target": (
            "each panel has the target whose saddles are known: He2, z1**2, and"
            " committees' own teachers"
        )
    },
    group="escape",
    papers=("saad1995", "arnaboldi2023escaping"),
)
def plateaus(
    *,
    seed: int = 0,
    dims: tuple[int, ...] = (200, 600, 2000, 6000),
    slow_dims: tuple[int, ...] = (50, 150, 400, 1000),
    seeds: int = 200,
    slow_seeds: int = 64,
    widths: tuple[int, ...] = (1, 2, 3, 4, 5),
    activation: str = "erf",
    rate: float = 2.0,
    geometry: str = "projected",
) -> Finding:
    """Plateaus of the limit, first passages of the chain, and eigenvalues at perfect
    learning.

    ``activation`` is that of the committees, of which the two neurons learn at lr =
    ``rate``/d; ``geometry`` is that of the students of He2 and of phase retrieval.
    """
    fast, slow = (
        (phase_retrieval(), on_sphere(RATE, geometry)),
        (committee(activation, 2, 2), online(rate)),
    )
    saddles = (
        part("phase retrieval saddle", partial(_fast, *fast)),
        part("committee saddle", partial(_slow, *slow)),
    )
    run = part("run", partial(_run, geometry))
    data = xr.Dataset(
        {
            "time": ("save", run.time.values),
            "risk": ("save", run.risk.values),
            **{
                key: ("plateau", run[key].values)
                for key in ("begin", "end", "level", "rate")
            },
            "in_order": int(run.in_order),
        }
    )
    many = (("fast", fast, dims, seeds), ("slow", slow, slow_dims, slow_seeds))
    for saddle, (word, task, each, count) in zip(saddles, many, strict=True):
        rows = [
            part(
                f"{word} d={dim}",
                partial(_passages, *task, dim, count, seed + i, saddle),
            )
            for i, dim in enumerate(sorted(each))
        ]
        data = data.assign_coords({f"{word}_dim": sorted(each)})
        for key in ("mean", "error", "lost"):
            data[f"{word}_{key}"] = f"{word}_dim", [float(row[key]) for row in rows]
        for key in ("kappa", "constant", "allowance"):
            data[f"{word}_{key}"] = float(saddle[key])
    critical = [
        part(f"width {p}", partial(_critical, committee(activation, p, p)))
        for p in widths
    ]
    data = data.assign_coords(width=list(widths))
    for key in ("formula", "linearised"):
        data[key] = "width", [float(row[key]) for row in critical]
    asked = (
        f"He2 students ({geometry}) of He2(z1) + He2(z2)/4 and of z1²; {activation}"
        " committees; batch 1, lr = γ/d"
    )
    return Finding(data, _verdict(data, seeds, slow_seeds, activation), asked)


def _run(geometry: str) -> Variables:
    """Two neurons, each of the strength of a direction, from nearly nothing: first one
    learns, then the other.
    """
    problem = tl.Problem(
        f"He2(z1) + {WEAK}*He2(z2)", "He2", width=2, second_layer=[2 * STRONG, 2 * WEAK]
    )
    algorithm = on_sphere(0.02, geometry)
    start = tl.Overlaps(
        np.eye(2), DIM**-0.5 * np.array([[1.0, 0.6], [0.7, -1.0]]), dim=DIM
    )
    run = tl.solve(problem, algorithm, tl.ODE(), start, time=SPAN, save=400)
    found = tl.stability.plateaus(problem, algorithm, run)
    return {
        "time": run.time.values,
        "risk": run.excess_risk.values[0],
        "begin": [one.begin for one in found],
        "end": [one.end for one in found],
        "level": [one.point.excess_risk for one in found],
        "rate": [one.point.rate for one in found],
        "in_order": int(found.in_order is True),
    }


def _slow(problem: tl.Problem, algorithm: tl.SGD) -> Variables:
    """κ and the level of the saddle of a committee."""
    start = tl.Overlaps.random(problem, 1000, seed=0)
    run = tl.solve(problem, algorithm, tl.ODE(), start, time=300, save=200)
    found = [x for x in tl.fixed_points(problem, algorithm, run) if x.unstable]
    passes = "one whose committee passes a saddle at this rate by t = 300"
    require(len(found) > 0, "activation", problem.activation.name, passes)
    return {
        "kappa": found[0].rate,
        "level": found[0].excess_risk,
        "constant": np.nan,
        "allowance": np.nan,
    }


def _fast(problem: tl.Problem, algorithm: tl.SGD) -> Variables:
    """The same of phase retrieval, with the constant of random starts, sampling noise
    included.
    """
    start = tl.Overlaps([[1.0]], [[1e-4]], dim=10**8)
    run = tl.solve(problem, algorithm, tl.ODE(), start, time=6, save=400)
    (one,) = tl.stability.plateaus(problem, algorithm, run)
    kappa = one.point.rate
    # m of a random start and of the noise on the way is N(0, (1 + s)/d), and E log|N(0,
    # 1)| = −(γ_E + log 2)/2
    s = growth(problem, RATE)[1]
    shift = (np.euler_gamma + np.log(2) - np.log1p(s)) / (2 * kappa)
    known = {
        "kappa": kappa,
        "level": one.point.excess_risk,
        "constant": one.constant + shift,
    }
    return {**known, "allowance": (1 + s) / (HALF * 2 * kappa)}


def _passages(
    problem: tl.Problem,
    algorithm: tl.SGD,
    dim: int,
    seeds: int,
    seed: int,
    saddle: xr.Dataset,
) -> Variables:
    """When runs of the chain have left: their excess risk is half of the saddle's."""
    starts = tl.Overlaps.random(problem, dim, seed, size=seeds)
    until = tl.Until("excess_risk", HALF * float(saddle.level))
    end = (np.log(dim) / 2 + 12) / float(
        saddle.kappa
    )  # a start closer to the saddle than e^−11 is not met
    run = tl.solve(
        problem,
        algorithm,
        tl.Chain(dim),
        starts,
        time=end,
        save=64,
        seed=seed,
        until=until,
        throw=False,
    )
    passed = tl.escape.first_passage(run)
    return {
        "mean": passed.mean,
        "error": passed.standard_error,
        "lost": (passed.censored + passed.diverged) / seeds,
    }


def _critical(problem: tl.Problem) -> Variables:
    """γ_c of the formula, and where the largest growth rate at perfect learning passes
    zero.
    """
    law, at = tl.critical_lr(problem), tl.stability.perfect_point(problem)
    low, high = (
        tl.fixed_points(problem, tl.SGD(law * (1 + x)), at)[0].rate
        for x in (-NEAR, NEAR)
    )
    zero = 1 + NEAR * (low + high) / (low - high) if low < 0 < high else np.nan
    return {"formula": law.coefficient, "linearised": law.coefficient * zero}


def _slope(data: xr.Dataset, word: str) -> tuple[float, float]:
    """Slope of the mean length against log d, times 2κ, and its error."""
    steepness, error = slope(
        np.log(data[f"{word}_dim"]), data[f"{word}_mean"], data[f"{word}_error"]
    )
    scale = 2 * float(data[f"{word}_kappa"])
    return scale * steepness, scale * error


def _verdict(data: xr.Dataset, seeds: int, slow_seeds: int, activation: str) -> Verdict:
    law = np.log(data.fast_dim) / (2 * data.fast_kappa) + data.fast_constant
    fast, slow = _slope(data, "fast"), _slope(data, "slow")
    ratio = data.linearised / data.formula
    checks = [
        holds(
            data.sizes["plateau"] == 2 and int(data.in_order) == 1,
            f"the run passes {data.sizes['plateau']} saddles, 2 expected, and learns in"
            " the order of the leap chain",
        ),
        between(
            "phase retrieval: κ of the saddle",
            2.8 - 1e-6,
            float(data.fast_kappa),
            2.8 + 1e-6,
        ),
        largest(
            "phase retrieval: mean length − log(d)/(2κ) − constant",
            data.fast_mean - law,
            data.fast_error,
            allowance=data.fast_allowance / data.fast_dim,
            resolution=FAR,
            freedom=seeds - 1,
        ),
        near(
            "phase retrieval: slope against log d times 2κ",
            fast[0],
            1.0,
            fast[1],
            resolution=1.0,
            freedom=seeds - 1,
        ),
        (
            near(
                "committee: slope against log d times 2κ",
                slow[0],
                (1.0, SLOW),
                slow[1],
                resolution=1.5,
                freedom=slow_seeds - 1,
            )
            if activation == "erf"
            else unknown(
                f"committee: slope against log d times 2κ {slow[0]:.3f} ±"
                f" {slow[1]:.3f}, 1 expected for d → ∞"
            )
        ),
        holds(
            float(max(data.fast_lost.max(), data.slow_lost.max())) == 0,
            f"all runs leave: {float(data.fast_lost.max()):g} and"
            f" {float(data.slow_lost.max()):g} of them do not",
        ),
        between(
            "γ_c: largest deviation of the linearised limit from the formula",
            0.0,
            float(np.abs(ratio - 1).max()),
            TOLERANCE,
            digits=4,
        ),
    ]
    told = ", ".join(f"{x:.4g}" for x in data.formula.values)
    return verdict(
        "runs stall at the saddles of the limit, for log(d)/(2κ) and a constant",
        checks,
        f"γ_c: {told}",
    )


def draw(data: xr.Dataset) -> Figure:
    """The run, the lengths of two plateaus against d, and the critical rate against the
    width.
    """
    from twolayer.plot.stability import SHADE
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

    figure, (left, middle, right) = sheet(3, width=4.2, height=3.6)
    for i in range(data.sizes["plateau"]):
        one = data.isel(plateau=i)
        left.axvspan(
            float(one.begin),
            float(one.end),
            color=DIRECTIONS[i % 2],
            alpha=SHADE,
            lw=0,
            zorder=0,
        )
        left.hlines(
            float(one.level),
            float(one.begin),
            float(one.end),
            color=GREY,
            ls="--",
            lw=1.2,
        )
        left.annotate(
            rf"$\kappa = {float(one.rate):.3g}$",
            (float(one.begin), float(one.level)),
            (5, 6),
            textcoords="offset points",
            color=GREY,
            fontsize=8.5,
        )
    left.plot(data.time, data.risk, color=COLOURS["theory"])
    left.set(
        yscale="log",
        xlabel="time $t$",
        ylabel="excess risk",
        xlim=(0, SPAN),
        title="a run, and its saddles",
    )
    left.set_ylim(top=6 * float(data.risk.max()))
    committees = told(data).activation + " committee"
    marks = (
        ("fast", "phase retrieval", DIRECTIONS[0], "o"),
        ("slow", committees, DIRECTIONS[1], "s"),
    )
    for word, name, colour, mark in marks:
        x, kappa = data[f"{word}_dim"].values, float(data[f"{word}_kappa"])
        points(
            middle,
            x,
            kappa * data[f"{word}_mean"],
            kappa * data[f"{word}_error"],
            colour,
            f"chain, {name}",
            mark,
        )
        ends = np.array([x.min(), x.max()])
        constant = kappa * float(data[f"{word}_constant"])
        fitted = not np.isfinite(constant)
        if fitted:
            constant = float(
                (kappa * data[f"{word}_mean"] - np.log(data[f"{word}_dim"]) / 2).mean()
            )
        label = "slope of the law" if fitted else "law, with its constant"
        middle.plot(
            ends,
            np.log(ends) / 2 + constant,
            color=colour,
            ls="--" if fitted else "-",
            lw=1.2,
            label=label,
        )
    middle.set(
        xscale="log",
        xlabel="$d$",
        ylabel=r"$\kappa\,\times$ length",
        title="length of the plateau",
    )
    middle.set_ylim(top=middle.get_ylim()[1] + 1.2)
    middle.legend(fontsize=7.5, loc="upper left", ncols=2)
    right.plot(
        data.width, data.formula, color=COLOURS["theory"], label=r"$\gamma_c = N^2/\mu$"
    )
    right.plot(
        data.width,
        data.linearised,
        "o",
        color=DIRECTIONS[0],
        mfc="none",
        ms=7,
        label="linearised limit",
    )
    right.set(
        xlabel="width $p = k$",
        ylabel=r"critical rate $d\cdot$lr",
        title=f"{committees}s",
        ylim=(0, None),
    )
    right.set_xticks(data.width.values)
    right.legend(fontsize=7.5)
    headline(
        figure,
        data,
        f"chain: {told(data).seeds} and {told(data).slow_seeds} runs from random starts"
        " (bars: 2 s.e.)",
    )
    return figure
