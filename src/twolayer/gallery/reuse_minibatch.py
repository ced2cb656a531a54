"""Mini-batches from a fixed set: z1 z2 z3 + He3(z4) has one direction that reused
samples can see.

    E[z4 | y] ≠ 0  (generative order 1),    E[z_r | y] = 0 for r = 1, 2, 3  (order 2)

Fresh batches of any size α d see neither part: its information exponent is 3. The
second visit to a sample sees functions of the label that are not linear, so z4 is
learned, from the second step of the full batch or the second pass of mini-batches on,
and in mini-batches drawn with replacement as soon as samples repeat; z1, z2, z3 are
not. The best possible with as many samples is all four exactly: neurons along them, an
overlap as long as they.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.drawing import (
    headline,
    mark_steps,
    points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, holds, largest, unknown, verdict
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.stepping import StepPair, follow
from twolayer.numerics.errors import positive_integer, require
from twolayer.numerics.significance import limit_of
from twolayer.numerics.statistics import standard_error

PARTS = 5  # mini-batches to a set
REPLICATES = 4  # that the errors of DMFT come from
TARGET = "z1*z2*z3 + He3(z4)"
EXACT = 5.0  # n/d from which on `best_possible` ends at exact recovery


@figure(
    "reuse-minibatch",
    "z1*z2*z3 + He3(z4): full batch, mini-batches in sequence and with replacement"
    " learn z4 alone",
    quick={"dim": 100, "seeds": 64, "passes": 1},
    fixed={
        "target": (
            "the published example: of its four directions reused samples see one"
        ),
    },
    group="giant-steps",
)
def reuse_minibatch(
    *,
    seed: int = 0,
    activation: str = "relu",
    geometry: str = "free",
    schedules: tuple[str, ...] = ("full", "sequence", "replacement"),
    dim: int = 1000,
    seeds: int = 64,
    alpha: float = 5.0,
    eta: float = 0.2,
    passes: int = 3,
    tolerance: float = 2e-2,
) -> Finding:
    """Overlaps with each direction, signed by the second layer and averaged over the
    neurons.
    """
    positive_integer("seeds", seeds, 2)
    stairs = tl.analyse(TARGET).staircase(activation, reuse=True)
    seen = [
        abs(v)
        for v, step in zip(stairs.directions, stairs, strict=True)
        if step is not None
    ]
    problem = tl.Problem(
        TARGET, activation, width=4, second_layer=[2.0, -2.0, 2.0, -2.0]
    )
    learns = len(seen) == 1 and np.allclose(seen[0], np.eye(4)[3])
    require(learns, "activation", activation, "one that learns z4 from reused samples")
    pairs = {}
    for word in schedules:
        share = alpha if word == "full" else alpha / PARTS
        sampling = "replacement" if word == "replacement" else "sequence"
        algorithm = tl.SGD(
            lr=share * eta,
            batch=share * tl.d,
            dataset=alpha * tl.d,
            sampling=sampling,
            geometry=geometry,
        )
        steps = 2 * passes if word == "full" else PARTS * passes
        pairs[word] = follow(
            word,
            problem,
            algorithm,
            tl.DMFT(tl.Averages(accuracy=tolerance)),
            tl.Vectors(dim),
            steps,
            seeds,
            seed,
        )
    data = _data(pairs)
    steps_of = (
        f"{'plain' if geometry == 'free' else geometry} steps of {eta:g} on the sum"
        f" over d, n = {alpha:g} d samples"
    )
    return Finding(
        data,
        _verdict(data, schedules, dim, seeds, passes),
        f"{task_of(problem)}\n{steps_of}",
    )


def _signed(result: xr.Dataset) -> np.ndarray:
    """Mean over the neurons of sign(a_j) M_jr: (seed, time, direction). Neurons of one
    sign are equal in law.
    """
    return np.asarray((np.sign(result.a.values)[..., None] * result.M.values).mean(2))


def _measured(pair: StepPair) -> tuple[np.ndarray, np.ndarray]:
    values = _signed(pair.runs)
    return values.mean(0), standard_error(values)


def _error(pair: StepPair) -> np.ndarray:
    """Error of the theory's mean over the neurons, as if those of each were
    independent: (time, direction).
    """
    error = pair.theory.M_error.values[0]
    return np.asarray(np.sqrt((error**2).sum(1)) / error.shape[1])


def _data(pairs: dict[str, StepPair]) -> xr.Dataset:
    data = xr.Dataset(coords={"direction": next(iter(pairs.values())).theory.direction})
    for word, pair in pairs.items():
        dims = (f"step_{word}", "direction")
        mean, se = _measured(pair)
        values = {
            "": _signed(pair.theory)[0],
            "_error": _error(pair),
            "_runs": mean,
            "_runs_error": se,
        }
        for suffix, x in values.items():
            data[f"overlap_{word}{suffix}"] = dims, x
        lengths = np.sqrt(np.diagonal(pair.theory.Q.values[0], axis1=1, axis2=2))
        data[f"length_{word}"] = dims[:1], lengths.mean(1)
    return data


def _verdict(
    data: xr.Dataset, schedules: tuple[str, ...], dim: int, seeds: int, passes: int
) -> Verdict:
    checks, notes = [], []
    ends = {
        word: [
            data[f"overlap_{word}{x}"].values[-1]
            for x in ("", "_error", "_runs", "_runs_error")
        ]
        for word in schedules
    }
    size, freedom = max(abs(theory[-1]) for theory, *_ in ends.values()), seeds - 1
    for word, (theory, error, mean, se) in ends.items():
        known, least = abs(theory[-1]) / error[-1], limit_of(len(ends))
        if word == "sequence" and passes == 1:  # no sample has been seen twice
            told = (
                f"{word}, first pass: z4 of DMFT is {known:.1f} of its errors from 0,"
                f" {least:.1f} at most allowed"
            )
            chance = known <= limit_of(
                len(ends), REPLICATES - 1
            )  # so few tell no zero from a small number
            checks.append(
                unknown(told)
                if least < known and chance
                else holds(known <= least, told)
            )
        else:
            told = (
                f"{word}: z4 of DMFT is {known:.1f} of its errors from 0, {least:.1f}"
                " at least"
            )
            checks.append(holds(known > least, told))
        checks += [
            largest(
                f"{word}: overlaps at the end, runs − DMFT, the overlap with z4"
                " resolved",
                mean - theory,
                np.hypot(se, error),
                resolution=size,
                freedom=freedom,
            ),
            largest(
                f"{word}: z1, z2, z3 in the runs",
                mean[:-1],
                se[:-1],
                resolution=size,
                freedom=freedom,
            ),
            largest(
                f"{word}: z1, z2, z3 in DMFT", theory[:-1], error[:-1], resolution=size
            ),
        ]
        notes.append(
            f"{word} {mean[-1]:.4f} ± {se[-1]:.4f} (DMFT {theory[-1]:.4f} ±"
            f" {error[-1]:.4f}), others at most {float(np.abs(mean[:-1]).max()):.4f}"
        )
    claim = "of z1 z2 z3 + He3(z4) reused samples learn z4, and z4 alone"
    return verdict(claim, checks, f"Overlap with z4 at d = {dim}: {'; '.join(notes)}")


LINEAR, TICKS = (
    0.1,
    (-1, -0.3, -0.1, 0, 0.1, 0.3, 1),
)  # the axis: linear to here, then logarithmic
TITLES = {
    "full": "full batch",
    "sequence": "batches of n/5 in sequence",
    "replacement": "of n/5, with replacement",
}


def draw(data: xr.Dataset) -> Figure:
    """A panel for each way through the samples; z4 is the only direction that leaves
    zero.
    """
    from twolayer.plot.best_possible import best_line
    from twolayer.plot.style import DIRECTIONS

    chosen = told(data)
    figure, panels = sheet(len(chosen.schedules), height=3.9)
    for ax, word in zip(panels, chosen.schedules, strict=True):
        theory, error, mean, se = (
            data[f"overlap_{word}{x}"].values
            for x in ("", "_error", "_runs", "_runs_error")
        )
        steps = len(theory) - 1
        t, k = np.arange(steps + 1), theory.shape[1]
        for r in range(k):
            colour = DIRECTIONS[(r + 1) % k]  # the one that is learned has the first
            low, high = theory[:, r] - 2 * error[:, r], theory[:, r] + 2 * error[:, r]
            ax.plot(t, theory[:, r], color=colour, lw=1.6, label=f"DMFT, $z_{r + 1}$")
            ax.fill_between(t, low, high, color=colour, alpha=0.2, lw=0)
            at = t + 0.012 * steps * (r - (k - 1) / 2)
            points(
                ax,
                at,
                mean[:, r],
                se[:, r],
                colour,
                f"runs, $z_{r + 1}$",
                "os^D"[r % 4],
            )
        if chosen.alpha >= EXACT:
            best_line(
                ax, t[1:], data[f"length_{word}"][1:], "best possible, up to the sign"
            )
            best_line(ax, t[1:], -data[f"length_{word}"][1:], "_")
        ax.set_yscale("symlog", linthresh=LINEAR, linscale=2)
        ax.set(ylim=(-2, 2), yticks=TICKS, yticklabels=[f"{x:g}" for x in TICKS])
        ax.minorticks_off()
        mark_steps(ax, steps)
        ax.set_title(TITLES[word])
    panels[0].set_ylabel(r"overlap, mean of sign$(a_j)\, M_{jr}$")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=min(4, 2 * len(panels)),
    )
    headline(
        figure,
        data,
        f"Bands: errors of DMFT; points: {chosen.seeds} runs at d = {chosen.dim} (bars:"
        " 2 s.e.)",
    )
    return figure
