"""Escape against width: a wide network needs fewer steps than one neuron, but never by
more than a constant factor.

C_p = 1 + 1/p + 4/p² + Δ/2,   γ_opt = p/(2 C_p),   gain C_1/C_p → (12 + Δ)/(2 + Δ)

First two panels: steps at γ_opt(p), and how many times fewer they are than for one
neuron. They serve a small threshold T only: the risk of a wide network at γ_opt never
falls far. Third: exit times of the ODE over the annealed formula, against p at four d
and fixed γ/p; the quenched formula has the same ratio, and merges with the annealed one
as the overlaps of many neurons average out. Last: exits of SGD over both formulas
against d, which tend to one as 1/log d.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.analysis.escape_formulas import annealed_time
from twolayer.gallery.shared.drawing import (
    headline,
    known,
    plain_ticks,
    points,
    power,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import (
    Check,
    Verdict,
    holds,
    largest,
    near,
    verdict,
)
from twolayer.gallery.shared.measuring import (
    growth,
    measured,
    on_sphere,
    phase_retrieval,
    predicted,
)
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.numerics.arguments import Variables
from twolayer.numerics.errors import positive_integer
from twolayer.numerics.statistics import standard_error

FAR = 0.3  # of times and of the gain: deviations that must be seen
# of the time: what linear growth and the mean effect of noise leave out for several
# neurons
SHARE = 0.05
# starts of the ODE, and of more neurons than WIDE, whose starts differ less and cost p³
STARTS = 32
FEW = 4
WIDE = 50


@figure(
    "escape-width",
    "steps of escape against width with the gain factor, and times over the formulas"
    " against p and d",
    quick={
        "widths": (1, 2, 4),
        "dim": 3000,
        "small": 0.05,
        "wide": (1, 2, 10),
        "ratios": (1, 2, 4),
        "dims": (300, 1000),
        "seeds": 48,
        "runs": 48,
    },
    fixed={
        "target": (
            "C_p and the gain (12 + Δ)/(2 + Δ) are formulas of phase retrieval, z1**2"
        ),
        "activation": (
            "C_p and the gain (12 + Δ)/(2 + Δ) are formulas of phase retrieval, squares"
        ),
    },
)
def escape_width(
    *,
    seed: int = 0,
    widths: tuple[int, ...] = (1, 2, 3, 5, 8),
    dim: int = 100_000,
    small: float = 0.01,
    wide: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 500),
    wide_dims: tuple[int, ...] = (1000, 2000, 5000, 10_000),
    wide_threshold: float = 0.01,
    ratios: tuple[int, ...] = (1, 2, 4),
    dims: tuple[int, ...] = (100, 300, 1000, 3000, 10_000),
    rho: float = 0.1,
    threshold: float = 0.1,
    noise: float = 0.0,
    seeds: int = 48,
    runs: int = 256,
    geometry: str = "projected",
) -> Finding:
    """First passages of the chain at γ_opt for each width, and at γ = ρp for each
    dimension; of the ODE for many p.

    ``seeds`` of the former, ``runs`` of the latter.
    """
    positive_integer("seeds", seeds, 2)
    positive_integer("runs", runs, 2)
    every, many = (
        np.arange(1, max(widths) + 1),
        np.unique(np.geomspace(1, max(wide), 25).round().astype(int)),
    )
    problems = {
        int(p): phase_retrieval(int(p), noise) for p in {*every, *ratios, *wide, *many}
    }
    at_best = {
        p: on_sphere(tl.optimal_lr(problems[p]).coefficient, geometry)
        for p in every.tolist()
    }
    at_rho = {p: on_sphere(rho * p, geometry) for p in problems}
    best = np.array(
        [_measure(problems[p], at_best[p], dim, small, seeds, seed) for p in widths]
    )
    fixed = np.array(
        [
            [_measure(problems[p], at_rho[p], n, threshold, runs, seed) for n in dims]
            for p in ratios
        ]
    )
    names = ("time", "error", "annealed", "quenched", "corrected", "allowance", "lost")
    data = xr.Dataset(
        {name: ("width", best[:, i]) for i, name in enumerate(names)}
        | {
            f"fixed_{name}": (("ratio", "dim"), fixed[:, :, i])
            for i, name in enumerate(names)
        },
        {"width": list(widths), "ratio": list(ratios), "dim": list(dims)},
    )
    per_time = (
        dim
        * data.width
        / xr.DataArray([at_best[p].lr.coefficient for p in widths], dims="width")
    )
    for name in ("time", "error", "annealed", "quenched", "corrected"):
        data[f"{name}_steps"] = data[name] * per_time
    lines = np.array(
        [_lines(problems[p], sgd, dim, small, seed) for p, sgd in at_best.items()]
    )
    for i, name in enumerate(("annealed", "quenched", "corrected")):
        data[f"{name}_line"] = "every", lines[:, i] * dim
    cs = {p: growth(problem, rho)[0] for p, problem in problems.items()}
    over = [
        [
            _over_annealed(problems[p], at_rho[p], cs[p], n, wide_threshold, seed)
            for n in wide_dims
        ]
        for p in many.tolist()
    ]
    data["quenched_over"] = ("many", "wide_dim"), np.array(over)
    data = data.assign_coords(every=every, many=many)
    fine = np.geomspace(1, max(widths), 60)
    data["gain"] = ("width", [tl.escape.escape_gain(problems[p]) for p in widths])
    data["gain_line"] = (
        "fine",
        (6 + noise / 2) / (1 + 1 / fine + 4 / fine**2 + noise / 2),
    )
    data["gain_limit"] = (12 + noise) / (2 + noise)
    cells = [
        [
            _ratio(problems[p], at_rho[p], cs[p], n, wide_threshold, seed)
            for n in wide_dims
        ]
        for p in wide
    ]
    for i, name in enumerate(("ode", "ode_error", "wide_annealed", "wide_quenched")):
        data[name] = (
            ("wide", "wide_dim"),
            np.array([[cell[i] for cell in row] for row in cells]),
        )
    data = data.assign_coords(fine=fine, wide=list(wide), wide_dim=list(wide_dims))
    return Finding(
        data,
        _verdict(data, seeds, runs),
        task_of(problems[1]).replace("p = 1", "width p"),
    )


def _lines(
    problem: tl.Problem, algorithm: tl.SGD, dim: int, threshold: float, seed: int
) -> list[float]:
    """Steps per dimension by the three formulas."""
    p, gamma = problem.p, algorithm.lr.coefficient

    def compute() -> Variables:
        theory = predicted(problem, algorithm, dim, threshold, seed).theory
        return {
            "row": [
                known(x) * p / gamma
                for x in (theory.annealed, theory.quenched, theory.corrected)
            ]
        }

    return [float(x) for x in part(f"line p={p}", compute).row.values]


def _law(
    problem: tl.Problem,
    algorithm: tl.SGD,
    c: float,
    dim: int,
    threshold: float,
    seed: int,
) -> tuple[np.ndarray, float]:
    """The quenched formula at random starts of several neurons, and the annealed
    one.
    """
    samples = max(64, 20_000 // problem.p)
    law = tl.escape.passage_law(
        problem, algorithm, dim, threshold, samples=samples, seed=seed
    )
    return law, annealed_time(problem.p, dim, threshold, c)


def _over_annealed(
    problem: tl.Problem,
    algorithm: tl.SGD,
    c: float,
    dim: int,
    threshold: float,
    seed: int,
) -> float:
    """The quenched formula over the annealed one."""
    if problem.p == 1:
        found = tl.escape_time(problem, algorithm, dim, threshold)
        return known(found.quenched) / known(found.annealed)
    law, annealed = _law(problem, algorithm, c, dim, threshold, seed)
    return float(law.mean() / annealed)


def _ratio(
    problem: tl.Problem,
    algorithm: tl.SGD,
    c: float,
    dim: int,
    threshold: float,
    seed: int,
) -> list[float]:
    """Mean exit time of the ODE over random starts with its error, and both
    formulas.
    """

    def compute() -> Variables:
        if problem.p == 1:
            found = tl.escape_time(problem, algorithm, dim, threshold)
            return {
                "row": [
                    found.ode,
                    found.ode_error,
                    known(found.annealed),
                    known(found.quenched),
                ]
            }
        law, annealed = _law(problem, algorithm, c, dim, threshold, seed)
        starts = tl.Overlaps.random(
            problem, dim, seed, size=STARTS if problem.p <= WIDE else FEW
        )
        exits = measured(
            problem, algorithm, tl.ODE(), starts, threshold, 3 * annealed + 5 / c, seed
        ).times
        # start by start the ODE is close to the formula: only their difference is
        # averaged over the few
        beyond = exits - law[: len(exits)]
        error = np.hypot(*(standard_error(x) for x in (law, beyond)))
        return {"row": [law.mean() + beyond.mean(), error, annealed, law.mean()]}

    return [float(x) for x in part(f"wide p={problem.p},d={dim}", compute).row.values]


def _measure(
    problem: tl.Problem,
    algorithm: tl.SGD,
    dim: int,
    threshold: float,
    seeds: int,
    seed: int,
) -> list[float]:
    theory, end, left_out = predicted(problem, algorithm, dim, threshold, seed)
    starts = tl.Overlaps.random(problem, dim, seed, size=seeds)
    passage = measured(problem, algorithm, tl.Chain(dim), starts, threshold, end, seed)
    allowance = left_out + (SHARE * known(theory.corrected) if problem.p > 1 else 0.0)
    error = float(np.hypot(passage.standard_error, known(theory.ode_error)))
    lost = passage.censored + passage.diverged
    lines = (known(x) for x in (theory.annealed, theory.quenched, theory.corrected))
    return [passage.mean, error, *lines, allowance, lost]


def _verdict(data: xr.Dataset, seeds: int, runs: int) -> Verdict:
    def follows(prefix: str, what: str, runs: int) -> Check:
        columns = [
            data[f"{prefix}{name}"].values
            for name in ("time", "corrected", "error", "allowance")
        ]
        time, expected, error, room = (
            x[np.isfinite(columns[1])] for x in columns
        )  # where the formula holds
        resolution = FAR * expected
        return largest(
            what,
            time - expected,
            error,
            allowance=room,
            resolution=resolution,
            freedom=runs - 1,
        )

    last, first = data.isel(width=-1), data.isel(width=0)
    gain = float(first.time_steps / last.time_steps)
    error = gain * float(np.hypot(first.error / first.time, last.error / last.time))
    finite = float(first.corrected_steps / last.corrected_steps)
    far = data.isel(dim=-1)
    gaps = np.abs(data.wide_quenched / data.wide_annealed - 1).values
    ratios = ", ".join(
        f"{float(far.fixed_time[i] / far.fixed_quenched[i]):.3f} (p = {p})"
        for i, p in enumerate(data.ratio.values)
    )
    lost = int(data.lost.max() + data.fixed_lost.max())
    checks = [
        follows("", f"time − corrected time at γ_opt, {FAR:.0%} of it resolved", seeds),
        follows("fixed_", f"the same at fixed γ/p against d, {FAR:.0%} resolved", runs),
        near(
            f"steps of p = {int(first.width)} over those of p = {int(last.width)}",
            gain,
            finite,
            error,
            allowance=SHARE * finite,
            resolution=FAR * finite,
            freedom=seeds - 1,
            digits=2,
        ),
        holds(
            (gaps[-1] < gaps[0]).all(),
            f"quenched over annealed − 1 is {gaps[-1].max():.3f} at most at p ="
            f" {int(data.wide[-1])}, less than the {gaps[0].min():.3f} expected at p ="
            f" {int(data.wide[0])}",
        ),
        holds(lost == 0, f"{lost} runs did not escape, none expected"),
    ]
    note = (
        f"The gain is {float(last.gain / first.gain):.2f} to leading order; measured"
        f" over quenched time at d = {int(far.dim)}: {ratios}"
    )
    return verdict(
        "wide networks escape in fewer steps, by the factor of the corrected formula",
        checks,
        note,
    )


def draw(data: xr.Dataset) -> Figure:
    """Steps, gain, the ODE over the formulas against p, SGD over the formulas against
    d.
    """
    from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

    chosen = told(data)
    figure, (left, gain, ratio, right) = sheet(2, rows=2)
    for name, style in {"annealed": "--", "quenched": "-.", "corrected": "-"}.items():
        left.plot(
            data.every,
            data[f"{name}_line"] / chosen.dim,
            style,
            color=COLOURS[name],
            label=name,
        )
    points(
        left,
        data.width,
        data.time_steps / chosen.dim,
        data.error_steps / chosen.dim,
        COLOURS["chain"],
        "chain",
    )
    left.set(
        xlabel="width $p$",
        ylabel=r"steps per dimension $n_{\mathrm{ext}}/d$",
        ylim=(0, None),
        xticks=data.width,
    )
    left.set_title(
        rf"at $\gamma_{{\mathrm{{opt}}}}(p)$, $d = {power(chosen.dim)}$, $T ="
        rf" {chosen.small:g}$"
    )
    left.legend()

    first = data.isel(width=0)
    fewer = first.time_steps / data.time_steps
    error = fewer * np.hypot(first.error / first.time, data.error / data.time).where(
        data.width > first.width, 0.0
    )
    gain.plot(
        data.fine,
        data.gain_line,
        "--",
        color=COLOURS["annealed"],
        label="leading order, $C_1/C_p$",
    )
    limit = float(data.gain_limit)
    gain.axhline(
        limit,
        color=GREY,
        ls=":",
        lw=1.2,
        label=rf"$(12+\Delta)/(2+\Delta) = {limit:.3g}$",
    )
    finite = data.corrected_line[0] / data.corrected_line
    gain.plot(
        data.every,
        finite,
        color=COLOURS["corrected"],
        label=f"corrected formula, $d = {power(chosen.dim)}$",
    )
    points(gain, data.width, fewer, error, COLOURS["chain"], "chain")
    gain.set(
        xlabel="width $p$",
        ylabel="steps of one neuron / steps",
        ylim=(0, None),
        xticks=data.width,
    )
    gain.set_title("gain of width")
    gain.legend(loc="lower right")

    for i, d in enumerate(data.wide_dim.values):
        row = data.isel(wide_dim=i)
        under = row.wide_annealed
        points(
            ratio,
            data.wide,
            row.ode / under,
            row.ode_error / under,
            DIRECTIONS[i],
            f"ODE, $d = {d}$",
            "os^D"[i % 4],
        )
        label = "quenched formula" if i == 0 else "_"
        ratio.plot(
            data.many, row.quenched_over, "-.", color=DIRECTIONS[i], lw=1.1, label=label
        )
    ratio.axhline(1, color=COLOURS["theory"], lw=0.9, label="annealed formula")
    ratio.set(xscale="log", xlabel="width $p$", ylabel="exit time / annealed formula")
    plain_ticks(ratio.xaxis)
    ratio.set_title(rf"at $\gamma/p = {chosen.rho:g}$, $T = {chosen.wide_threshold:g}$")
    ratio.legend(fontsize=7.5)

    for i, p in enumerate(data.ratio.values):
        row = data.isel(ratio=i)
        for name, marker, style in (("annealed", "s", "--"), ("quenched", "o", "-")):
            under = row[f"fixed_{name}"]
            face = "none" if name == "annealed" else None
            over, error = row.fixed_time / under, row.fixed_error / under
            points(
                right,
                data.dim,
                over,
                error,
                DIRECTIONS[i],
                f"$p = {p}$, {name}",
                marker + style,
                face,
            )
    right.axhline(1, color=COLOURS["theory"], lw=0.9)
    right.set(xscale="log", xlabel="dimension $d$", ylabel="time of SGD / formula")
    right.set_title(rf"at $\gamma/p = {chosen.rho:g}$, $T = {chosen.threshold:g}$")
    plain_ticks(right.xaxis)
    low, high = right.get_ylim()
    right.set_ylim(low, high + 0.35 * (high - low))  # room for the legend
    right.legend(ncols=2, loc="upper right", fontsize=7.5)
    headline(
        figure, data, f"Escape of wide networks, {chosen.geometry} SGD (bars: 2 s.e.)"
    )
    return figure
