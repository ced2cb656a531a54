"""Escape against width: a wide network needs fewer steps than one neuron, but never by more than a constant factor.

C_p = 1 + 1/p + 4/p² + Δ/2,   γ_opt = p/(2 C_p),   gain C_1/C_p → (12 + Δ)/(2 + Δ)

Left: steps at γ_opt(p), which serve a small threshold T only: the risk of a wide network at γ_opt never falls far.
Right: measured over annealed and quenched times at fixed γ/p < 1/6, where the network goes on to learn; both tend to
one, as 1/log d.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

import twolayer as tl
from twolayer.gallery.shared.judging import Check, Verdict, holds, largest, near, verdict
from twolayer.gallery.shared.measuring import (
    canvas,
    colours,
    known,
    measured,
    phase_retrieval,
    points,
    power,
    predicted,
)
from twolayer.gallery.shared.registry import Plate, figure
from twolayer.numerics.errors import positive_integer

FAR = 0.3  # of times and of the gain: deviations that must be seen
SHARE = 0.05  # of the time: what linear growth and the mean effect of noise leave out for several neurons


@figure(
    "escape-width",
    "steps of escape against width with the gain factor, and the ratio to the formulas against d",
    quick={"widths": (1, 2), "dim": 3000, "small": 0.1, "ratios": (1,), "dims": (300, 1000), "seeds": 32},
)
def escape_width(
    *,
    seed: int = 0,
    widths: tuple[int, ...] = (1, 2, 3, 5, 8),
    dim: int = 100_000,
    small: float = 0.01,
    ratios: tuple[int, ...] = (1, 2, 4),
    dims: tuple[int, ...] = (100, 300, 1000, 3000, 10_000),
    rho: float = 0.1,
    threshold: float = 0.1,
    noise: float = 0.0,
    seeds: int = 48,
) -> Plate:
    """First passages of the chain at γ_opt for every width, and at γ = ρp for every dimension."""
    positive_integer("seeds", seeds, 2)
    optima = {p: tl.optimal_lr(phase_retrieval(p, noise)).coefficient for p in widths}
    best = np.array([_measure(p, noise, optima[p], dim, small, seeds, seed) for p in widths])
    fixed = np.array([[_measure(p, noise, rho * p, n, threshold, 2 * seeds, seed) for n in dims] for p in ratios])
    names = ("time", "error", "annealed", "quenched", "corrected", "allowance", "lost")
    data = xr.Dataset(
        {name: ("width", best[:, i]) for i, name in enumerate(names)}
        | {f"fixed_{name}": (("ratio", "dim"), fixed[:, :, i]) for i, name in enumerate(names)},
        {"width": list(widths), "ratio": list(ratios), "dim": list(dims)},
    )
    per_time = dim * data.width / xr.DataArray([optima[p] for p in widths], dims="width")
    for name in ("time", "error", "annealed", "quenched", "corrected"):
        data[f"{name}_steps"] = data[name] * per_time
    data["gain"] = ("width", [tl.escape.escape_gain(phase_retrieval(p, noise)) for p in widths])
    return Plate(_draw(data, dim, small, rho, threshold, noise), data, _verdict(data, seeds))


def _measure(p: int, noise: float, gamma: float, dim: int, threshold: float, seeds: int, seed: int) -> list[float]:
    problem = phase_retrieval(p, noise)
    theory, end, left_out = predicted(problem, gamma, dim, threshold, seed)
    starts = tl.Overlaps.random(problem, dim, seed, size=seeds)
    passage = measured(problem, gamma, tl.Chain(dim), starts, threshold, end, seed)
    allowance = left_out + (SHARE * known(theory.corrected) if p > 1 else 0.0)
    error = float(np.hypot(passage.standard_error, theory.ode_error))
    lost = passage.censored + passage.diverged
    lines = (known(x) for x in (theory.annealed, theory.quenched, theory.corrected))
    return [passage.mean, error, *lines, allowance, lost]


def _verdict(data: xr.Dataset, seeds: int) -> Verdict:
    def follows(prefix: str, what: str, runs: int) -> Check:
        columns = [data[f"{prefix}{name}"].values for name in ("time", "corrected", "error", "allowance")]
        time, expected, error, room = (x[np.isfinite(columns[1])] for x in columns)  # where the formula holds
        resolution = FAR * expected
        return largest(what, time - expected, error, allowance=room, resolution=resolution, freedom=runs - 1)

    last, first = data.isel(width=-1), data.isel(width=0)
    gain = float(first.time_steps / last.time_steps)
    error = gain * float(np.hypot(first.error / first.time, last.error / last.time))
    finite = float(first.corrected_steps / last.corrected_steps)
    far = data.isel(dim=-1)
    ratios = ", ".join(
        f"{float(far.fixed_time[i] / far.fixed_quenched[i]):.3f} (p = {p})" for i, p in enumerate(data.ratio.values)
    )
    lost = int(data.lost.max() + data.fixed_lost.max())
    checks = [
        follows("", f"time − corrected time at γ_opt, {FAR:.0%} of it resolved", seeds),
        follows("fixed_", f"the same at fixed γ/p against d, {FAR:.0%} resolved", 2 * seeds),
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
        holds(lost == 0, f"{lost} runs did not escape, none expected"),
    ]
    note = (
        f"The gain is {float(last.gain / first.gain):.2f} to leading order; measured over quenched time at d = "
        f"{int(far.dim)}: {ratios}"
    )
    return verdict("wide networks escape in fewer steps, by the factor of the corrected formula", checks, note)


def _draw(data: xr.Dataset, dim: int, small: float, rho: float, threshold: float, noise: float) -> Any:
    from twolayer.plot.style import DIRECTIONS

    palette = colours()
    figure, (left, right) = canvas(2)
    for name, style in {"annealed": "--", "quenched": "-.", "corrected": "-"}.items():
        left.plot(data.width, data[f"{name}_steps"] / dim, style, color=palette[name], label=name)
    points(left, data.width, data.time_steps / dim, data.error_steps / dim, palette["chain"], "chain")
    floor = (1 + noise / 2) / 2 * np.log((small * dim + 1 - small) / 2)
    left.axhline(floor, color="#888888", ls=":", lw=1.1, label=r"annealed, $p\to\infty$")
    left.set(xlabel="width $p$", ylabel=r"steps per dimension $n_{\mathrm{ext}}/d$", ylim=(0, None), xticks=data.width)
    left.set_title(rf"At $\gamma_{{\mathrm{{opt}}}}(p)$, $d = {power(dim)}$, $T = {small:g}$")
    left.legend()
    for i, p in enumerate(data.ratio.values):
        row = data.isel(ratio=i)
        for name, marker, style in (("annealed", "s", "--"), ("quenched", "o", "-")):
            under = row[f"fixed_{name}"]
            face = "white" if name == "annealed" else None
            ratio, error = row.fixed_time / under, row.fixed_error / under
            points(right, data.dim, ratio, error, DIRECTIONS[i], f"$p = {p}$, {name}", marker + style, face)
    right.axhline(1, color=palette["theory"], lw=0.9)
    right.set(xscale="log", xlabel="dimension $d$", ylabel="measured time / formula")
    right.set_title(rf"At $\gamma/p = {rho:g}$, $T = {threshold:g}$")
    low, high = right.get_ylim()
    right.set_ylim(low, high + 0.3 * (high - low))  # room for the legend
    right.legend(ncols=2, loc="upper right")
    figure.suptitle("Escape of wide networks (bars: 2 s.e.)", fontsize=10)
    return figure
