"""How long a committee stays on its plateau, against the number of distinct variances
of the inputs.

    variances s_i on fractions w_i of the directions, Σ_i w_i s_i = 1, Σ_i w_i s_i²
        = 1 + v², target spread evenly:
    M⁽ⁱ⁾ = w_i M,  Q⁽ⁱ⁾ = w_i Q
        is a fixed point of the blocks where M, Q is one of N(0, I):
            s_i is in front of all
    κ = κ₀ Σ_i w_i s_i² = κ₀ (1 + v²),    κ₀ = (2/π) (2p − 1)^(−1/2) (2p + 1)^(−3/2),
        T = log(level/ε)/κ

On the plateau of gradient flow M_jr = 1/√(p(2p − 1)), and all neurons coincide. What
tells them apart is δM with vanishing sums over rows and columns. In the equation of a
block, dM⁽ⁱ⁾/dt = s_i (H_λ M⁽ⁱ⁾ + H_* P⁽ⁱ⁾), it changes H_* alone, H_λ annihilates it,
and H sees the fields δM = Σ_l s_l δM⁽ˡ⁾. So dδM⁽ⁱ⁾/dt = κ₀ s_i w_i δM, and after
multiplying by s_i and summing dδM/dt = κ₀ Σ_i w_i s_i² δM: how many distinct values
there are plays no part.

Predicted without a fit is the time that δM takes from ε to a level, for runs that begin
on the plateau. Runs from small overlaps reach it late, if ever: for N(0, I) the slope
of their length in log ε is 4 to 20 % off 1/κ₀ (`OFF`).
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import headline, sheet, task_of
from twolayer.gallery.shared.judging import between, verdict
from twolayer.gallery.shared.parts import part
from twolayer.gallery.shared.registry import Finding, figure

p = 2
M = 1 / np.sqrt(p * (2 * p - 1))
RATE = 2 / np.pi * (2 * p - 1) ** -0.5 * (2 * p + 1) ** -1.5
LEVEL = 0.05  # of |M_11 − M_12|, an eighth of M: the linear phase
# parts of the length: from the plateau (γ > 0 shifts κ by 1 %, the level as much), and
# from elsewhere
ON = 0.03
OFF = 0.2
SAME = 0.02  # between numbers of distinct values


@figure(
    "plateau-spectrum",
    "length of the plateau of a committee against the number and the spread of distinct"
    " variances",
    quick={"counts": (2, 5), "spreads": (0.25, 0.45)},
    fixed={
        "target": "the rate of escape is a closed formula of erf committees",
        "activation": "the rate of escape is a closed formula of erf committees",
        "geometry": "the plateau and its rate are those of free weights",
    },
    group="inputs",
)
def plateau_spectrum(
    *,
    seed: int = 0,
    counts: tuple[int, ...] = (2, 3, 5, 9),
    spreads: tuple[float, ...] = (0.15, 0.25, 0.35, 0.45),
    gamma: float = 0.2,
    time: float = 300.0,
    asymmetry: float = 1e-3,
) -> Finding:
    """Two erf neurons learn two, from overlaps that tell them apart by a thousandth;
    nothing here is random.
    """
    one, path = _lengths(1, 0.0, gamma, time, asymmetry)
    lengths, paths = np.zeros((len(spreads), len(counts), 2)), {1: path}
    for i, spread in enumerate(spreads):
        for j, count in enumerate(counts):
            lengths[i, j], path = _lengths(count, spread, gamma, time, asymmetry)
            if i == len(spreads) - 1:
                paths[count] = path
    shown = [1, counts[0], counts[-1]]
    law = np.log(LEVEL / asymmetry) / RATE / (1 + np.array(spreads) ** 2)
    data = xr.Dataset(
        {
            "length": (("spread", "count", "start"), lengths),
            "one": ("start", one),
            "law": ("spread", law),
            "path": (
                ("shown", "point"),
                np.stack([paths[c].risk.values for c in shown]),
            ),
            "time": ("point", paths[1].time.values),
        },
        {
            "spread": list(spreads),
            "count": list(counts),
            "start": ["plateau", "elsewhere"],
            "shown": shown,
        },
    )
    checks = []
    for i, spread in enumerate(spreads):
        there, off = lengths[i, :, 0], lengths[i, :, 1] / one[1] * (1 + spread**2)
        for ratio, text, share in (
            (there / law[i], "length over the law", ON),
            (off, "the same from small overlaps, over that of one variance", OFF),
        ):
            worst = float(ratio[np.abs(ratio - 1).argmax()])
            checks.append(
                between(
                    f"v = {spread:g}: {text}, at worst", 1 - share, worst, 1 + share
                )
            )
        ratio = float(there.max() / there.min())
        checks.append(
            between(
                f"v = {spread:g}: longest over shortest of {len(counts)} numbers",
                1.0,
                ratio,
                1 + SAME,
            )
        )
    claim = (
        "a spectrum shortens the plateau by Σ w s² = 1 + v², whatever the number of its"
        " distinct values"
    )
    task = task_of(_problem(1, 0.0)[0], tl.SGD(gamma / tl.d))
    note = (
        f"one variance: {one[0]:.1f} from the plateau,"
        f" {np.log(LEVEL / asymmetry) / RATE:.1f} predicted"
    )
    return Finding(
        data, verdict(claim, checks, f"{note}, {one[1]:.1f} from small overlaps"), task
    )


def _problem(count: int, spread: float) -> tuple[tl.Problem, np.ndarray]:
    """Evenly spaced variances, the larger the rarer, and their fractions."""
    w = np.arange(count, 0, -1) / (count * (count + 1) / 2)
    x = np.arange(count) - w @ np.arange(count)
    values = 1 + spread * x / (np.sqrt(w @ x**2) if count > 1 else 1.0)
    return (
        tl.Problem(
            tl.Teacher("erf", p), "erf", width=p, inputs=tl.Inputs.blocks(values, w)
        ),
        w,
    )


def _lengths(
    count: int, spread: float, gamma: float, time: float, asymmetry: float
) -> tuple[np.ndarray, xr.Dataset]:
    """When |M_11 − M_12| of the fields passes the level, from the plateau and from
    small overlaps, and the risk.
    """

    def compute() -> dict[str, np.ndarray]:
        problem, w = _problem(count, spread)
        A = M + asymmetry / 2 * np.array([[1, -1], [-1, 1]])
        apart = []
        for Q, overlap in (
            (A @ A.T, A),
            (np.diag([0.2, 0.25]), np.array([[asymmetry, 0.0], [0.0, 0.0]])),
        ):
            share = w[:, None, None]
            blocks = tl.Overlaps.in_blocks(
                share * Q, share * overlap, share * np.eye(p)
            )
            start = tl.Overlaps(Q, overlap) if count == 1 else blocks
            result = tl.solve(
                problem, tl.SGD(gamma / tl.d), tl.ODE(), start, time=time, save=600
            )
            apart.append(
                np.abs(result.M.values[0, :, 0, 0] - result.M.values[0, :, 0, 1])
            )
        return {
            "apart": np.stack(apart),
            "risk": result.excess_risk.values[0],
            "time": result.time.values,
        }

    found = part(f"b={count} v={spread}", compute)
    return np.array([_passed(found.time.values, x) for x in found.apart.values]), found


def _passed(t: np.ndarray, apart: np.ndarray) -> float:
    after = int(np.argmax(apart > LEVEL))
    if after == 0:
        return np.nan
    return float(
        np.interp(
            np.log(LEVEL),
            np.log(apart[after - 1 : after + 1]),
            t[after - 1 : after + 1],
        )
    )


def draw(data: xr.Dataset) -> Figure:
    """Risks along the plateau, and its length against the number of distinct
    variances.
    """
    from twolayer.plot.style import COLOURS, DIRECTIONS

    figure, (left, right) = sheet(2, width=4.6, height=3.7)
    spread = float(data.spread[-1])
    for i, (count, style) in enumerate(
        zip(data.shown.values, ("-", "-", "--"), strict=True)
    ):
        label = "one variance" if count == 1 else f"{count} variances, $v = {spread:g}$"
        left.plot(data.time, data.path[i], style, color=DIRECTIONS[i], label=label)
    left.set(yscale="log", xlabel="time $t$", ylabel="excess risk, from small overlaps")
    left.legend(fontsize="small")
    counts, names = data["count"].values, ("from the plateau", "from small overlaps")
    right.plot(1, 1, "*", color=COLOURS["theory"], ms=8, label="one variance")
    for i, v in enumerate(data.spread.values):
        colour = DIRECTIONS[i]
        right.plot(
            [1, counts[-1]],
            np.full(2, 1 / (1 + v**2)),
            color=colour,
            lw=1,
            label=f"$1/(1 + v^2)$, $v = {v:g}$",
        )
        for j, (marker, face) in enumerate((("o", colour), ("s", "none"))):
            length = data.length[i, :, j] / data.one[j]
            right.plot(
                counts,
                length,
                marker,
                color=colour,
                mfc=face,
                label=names[j] if i == 0 else None,
            )
    right.set(
        xlabel="number of distinct variances",
        ylabel="length, over that of one variance",
        ylim=(0.8, 1.2),
    )
    right.set_xticks([1, *counts])
    right.legend(fontsize="small", ncols=2, loc="upper right")
    headline(
        figure, data, "The plateau against number and spread of distinct variances"
    )
    return figure
