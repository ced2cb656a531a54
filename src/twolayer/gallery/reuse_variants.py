"""First-order methods on reused samples: momentum, weight decay, projected and
spherical steps.

    w ← D [ k w + β (w − w₋) + (lr/p) ⟨g x⟩ ]
        k: decay and tangent, D: norms, x: what samples see of a direction

Whatever a method does with gradients and past weights it does in the coordinates of the
theory as in d dimensions, so one theory covers them all; here each is compared with
gradient descent in d dimensions.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import (
    headline,
    mark_steps,
    points,
    sheet,
    task_of,
    told,
)
from twolayer.gallery.shared.judging import Verdict, verdict
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.stepping import JUDGED, StepPair, agree, follow, stack_runs
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import choice, positive_integer

VARIANTS: dict[str, Options] = {
    "momentum": {"momentum": 0.5},
    "weight-decay": {"weight_decay": 0.2},
    "projected": {"geometry": "projected", "momentum": 0.5},
    "spherical": {"geometry": "spherical"},
}
BEST = (
    ("tanh(z1 + He3(z2))", 3.0, 0.1),
    0.1189,
)  # target, n/d and Δ, and the excess risk of `best_possible` there


@figure(
    "reuse-variants",
    "momentum, weight decay, projected and spherical steps on reused samples, DMFT and"
    " simulation",
    quick={"dim": 200, "seeds": 8, "steps": 3, "tolerance": 4e-3},
    fixed={
        "geometry": "projected and spherical steps are among the variants",
    },
    group="giant-steps",
)
def reuse_variants(
    *,
    seed: int = 0,
    variants: tuple[str, ...] = tuple(VARIANTS),
    target: str = "tanh(z1 + He3(z2))",
    activation: str = "relu",
    dim: int = 2000,
    seeds: int = 96,
    alpha: float = 3.0,
    eta: float = 0.2,
    noise: float = 0.1,
    steps: int = 6,
    tolerance: float = 1e-3,
) -> Finding:
    """Overlaps and risks of each variant from a start that knows a little."""
    positive_integer("seeds", seeds, 2)
    for name in variants:
        choice("variants", name, VARIANTS)
    problem = chosen_problem(
        target, activation, 2, width=2, second_layer=[2**0.5, -(2**0.5)], noise=noise
    )
    start = tl.Overlaps([[1.0, 0.2], [0.2, 1.0]], [[0.1, 0.0], [0.0, 0.1]])
    pairs = {}
    for name in variants:
        algorithm = tl.SGD(
            lr=alpha * eta, batch=alpha * tl.d, dataset=alpha * tl.d, **VARIANTS[name]
        )
        lenses = (tl.DMFT(tl.Averages(accuracy=tolerance)), tl.Vectors(dim))
        pairs[name] = follow(
            name, problem, algorithm, *lenses, steps, seeds, seed, start
        )
    task = task_of(
        problem, tl.SGD(lr=alpha * eta, batch=alpha * tl.d, dataset=alpha * tl.d)
    )
    return Finding(_data(pairs), _verdict(pairs, dim), task)


def _data(pairs: dict[str, StepPair]) -> xr.Dataset:
    data = xr.Dataset(stack_runs(pairs, "variant"), {"variant": list(pairs)})
    for name in JUDGED:
        data[name] = (
            data[f"{name}_runs"].dims,
            np.stack([pair.theory[name].values[0] for pair in pairs.values()]),
        )
    return data


def _verdict(pairs: dict[str, StepPair], dim: int) -> Verdict:
    checks, notes = [], []
    for name, pair in pairs.items():
        checks.append(agree(f"{name}, d = {dim}, runs − DMFT", [pair], JUDGED))
        M, (mean, se) = pair.theory.M.values[0, -1, 0, 0], pair.mean("M")
        notes.append(f"{name} {M:.4f} (runs {mean[-1, 0, 0]:.4f} ± {se[-1, 0, 0]:.4f})")
    return verdict(
        "one theory covers first-order methods on reused samples",
        checks,
        f"Final M_11: {', '.join(notes)}",
    )


def draw(data: xr.Dataset) -> Figure:
    """A column for each variant: overlaps above, risks below."""
    from twolayer.plot.best_possible import best_line
    from twolayer.plot.style import DIRECTIONS

    chosen, count = told(data), data.sizes["variant"]
    figure, panels = sheet(count, rows=2, width=3.4, height=3.1)
    t = np.arange(chosen.steps + 1)
    for i, name in enumerate(data.variant.values):
        row, top, bottom = data.sel(variant=name), panels[i], panels[i + count]
        for j, r in np.ndindex(row.sizes["neuron"], row.sizes["direction"]):
            label = rf"$M_{{{j + 1}{r + 1}}}$"
            top.plot(
                t,
                row.M[:, j, r],
                ("-", "--")[j % 2],
                color=DIRECTIONS[r],
                lw=1.4,
                label=f"DMFT, {label}",
            )
            mean, error = row.M_runs[:, j, r], row.M_runs_error[:, j, r]
            points(
                top,
                t,
                mean,
                error,
                DIRECTIONS[r],
                f"runs, {label}",
                "os"[j % 2],
                "none" if j else None,
            )
        for k, (word, label) in enumerate(
            (("train_risk", "training"), ("risk", "test"))
        ):
            bottom.plot(
                t,
                row[word],
                ("-", "--")[k],
                color=DIRECTIONS[k + 2],
                lw=1.4,
                label=f"DMFT, {label}",
            )
            colour = DIRECTIONS[k + 2]
            points(
                bottom,
                t,
                row[f"{word}_runs"],
                row[f"{word}_runs_error"],
                colour,
                f"runs, {label}",
                "^D"[k],
            )
        if (chosen.target, chosen.alpha, chosen.noise) == BEST[0]:
            best_line(
                bottom,
                [chosen.alpha],
                [BEST[1] + chosen.noise / 2],
                "best possible test risk",
            )
        settings = ", ".join(
            f"{k.replace('_', ' ')} {v}" for k, v in VARIANTS[name].items()
        )
        top.set(title=settings, ylabel="overlaps $M_{jr}$" if not i else "")
        bottom.set(ylabel="risk" if not i else "")
        for ax in (top, bottom):
            mark_steps(ax, chosen.steps)
    (marks, names), (more, others) = (
        panels[i].get_legend_handles_labels() for i in (0, count)
    )
    figure.legend(
        [*marks, *more],
        [*names, *others],
        loc="outside lower center",
        ncols=6,
        fontsize=7.5,
    )
    headline(
        figure,
        data,
        f"The same samples at every step; runs at d = {chosen.dim} (bars: 2 s.e.)",
    )
    return figure
