"""Patterns of reuse: the same samples in one batch or in several, in turn, shuffled, at
random, or a few times each.

    v = c g:   c, how often a sample is in a batch, is all that patterns differ in

One theory covers them: in it c is a law that every sample draws for itself. As many
passes through as many samples cost the same work. They do not end at the same risks:
what comes back sooner and more often is fitted more closely.
"""

from __future__ import annotations

import xarray as xr
from matplotlib.figure import Figure

import twolayer as tl
from twolayer.gallery.shared.choosing import chosen_problem
from twolayer.gallery.shared.drawing import headline, points, sheet, task_of, told
from twolayer.gallery.shared.judging import Verdict, holds, verdict
from twolayer.gallery.shared.registry import Finding, figure
from twolayer.gallery.shared.stepping import JUDGED, StepPair, agree, follow
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import choice, positive_integer

PATTERNS: dict[str, Options] = {
    "full": {},
    "sequence": {"sampling": "sequence"},
    "reshuffled": {"sampling": "reshuffled"},
    "subset": {"sampling": "subset"},
    "replacement": {"sampling": "replacement"},
    "repeat": {},
}
WORDS = {
    "full": "full batch",
    "sequence": "in turn",
    "reshuffled": "reshuffled in every pass",
    "subset": "random subsets",
    "replacement": "with replacement",
    "repeat": "each as often, then a fresh one",
}
LOOKS: dict[
    str, tuple[str, str, float]
] = {  # marker, dash and size: patterns that learn alike stay visible
    "full": ("o", "-", 4.0),
    "sequence": ("s", "-", 7.0),
    "reshuffled": ("^", "--", 4.0),
    "subset": ("D", "-", 6.5),
    "replacement": ("v", "--", 3.5),
    "repeat": ("P", "-.", 4.5),
}
STANDARD = ("tanh(z1 + He2(z2)/2) + z2/2", "tanh(z + 0.7)", "free")  # the task
BEST = (
    (STANDARD[0], 2.0, 0.1),
    0.1118,
)  # target, n/d and Δ, and the excess risk of `best_possible` there


@figure(
    "reuse-patterns",
    "one set of samples in full batches, in turn, reshuffled, in random subsets, with"
    " replacement, or each batch again",
    quick={"dim": 150, "seeds": 8, "passes": 2, "parts": 2, "tolerance": 8e-3},
    group="giant-steps",
)
def reuse_patterns(
    *,
    seed: int = 0,
    target: str = STANDARD[0],
    activation: str = STANDARD[1],
    geometry: str = STANDARD[2],
    patterns: tuple[str, ...] = tuple(PATTERNS),
    dim: int = 1000,
    seeds: int = 256,
    alpha: float = 2.0,
    parts: int = 4,
    passes: int = 4,
    eta: float = 0.5,
    noise: float = 0.1,
    tolerance: float = 1e-3,
) -> Finding:
    """Overlaps and risks against samples seen; a full batch takes one step where the
    others take one for each part.
    """
    positive_integer("seeds", seeds, 2)
    problem = chosen_problem(
        target, activation, 2, width=2, second_layer=[2.0, -1.5], noise=noise
    )
    start = tl.Overlaps([[1.0, 0.1], [0.1, 0.8]], [[0.1, 0.0], [0.0, -0.2]])
    pairs = {}
    for name in patterns:
        settings = PATTERNS[choice("patterns", name, PATTERNS)]
        share = alpha if name == "full" else alpha / parts
        reuse = (
            {"repeat": passes}
            if name == "repeat"
            else {"dataset": alpha * tl.d, **settings}
        )
        algorithm = tl.SGD(
            lr=share * eta, batch=share * tl.d, geometry=geometry, **reuse
        )
        lenses = tl.DMFT(tl.Averages(accuracy=tolerance)), tl.Vectors(dim)
        steps = passes if name == "full" else passes * parts
        pairs[name] = follow(
            name, problem, algorithm, *lenses, steps, seeds, seed, start
        )
    standard = (target, activation, geometry) == STANDARD
    return Finding(_data(pairs), _verdict(pairs, dim, standard), task_of(problem))


def _data(pairs: dict[str, StepPair]) -> xr.Dataset:
    data = xr.Dataset()
    for name, pair in pairs.items():
        data[f"alpha_{name}"] = f"step_{name}", pair.theory.alpha.values
        for word in JUDGED:
            dims = (f"step_{name}", *pair.theory[word].dims[2:])
            mean, se = pair.mean(word)
            values = {"": pair.theory[word].values[0], "_runs": mean, "_runs_error": se}
            for suffix, x in values.items():
                data[f"{word}_{name}{suffix}"] = dims, x
    return data


def _verdict(pairs: dict[str, StepPair], dim: int, standard: bool) -> Verdict:
    checks = [
        agree(f"{name}, d = {dim}, runs − DMFT", [pair], JUDGED)
        for name, pair in pairs.items()
    ]
    gaps = {
        name: float(pair.theory.risk[0, -1] - pair.theory.train_risk[0, -1])
        for name, pair in pairs.items()
    }
    if standard and {"full", "repeat"} <= set(
        gaps
    ):  # other tasks may have it otherwise
        more = gaps["repeat"] - gaps["full"]
        checks.append(
            holds(
                more > 0,
                f"batches used up at once are overfitted by {more:.3f} more than the"
                " whole set",
            )
        )
    each = ", ".join(f"{name} {gap:.3f}" for name, gap in gaps.items())
    return verdict(
        "one theory covers all patterns of reuse",
        checks,
        f"Test less training risk at the end: {each}",
    )


def draw(data: xr.Dataset) -> Figure:
    """Test risk, training risk and an overlap of every pattern."""
    from twolayer.plot.best_possible import best_line
    from twolayer.plot.style import DIRECTIONS

    drawn, (risks, training, overlaps) = sheet(3)
    for (name, (marker, dash, size)), colour in zip(
        LOOKS.items(), DIRECTIONS, strict=False
    ):
        if f"risk_{name}" not in data:
            continue
        x = data[f"alpha_{name}"].values
        for ax, word in ((risks, "risk"), (training, "train_risk"), (overlaps, "M")):
            rows = [
                data[f"{word}_{name}{suffix}"].values
                for suffix in ("", "_runs", "_runs_error")
            ]
            theory, mean, se = (row[:, 0, 0] if word == "M" else row for row in rows)
            ax.plot(
                x, theory, ls=dash, color=colour, lw=1.4, label=f"DMFT, {WORDS[name]}"
            )
            points(
                ax,
                x,
                mean,
                se,
                colour,
                f"runs, {WORDS[name]}",
                marker,
                "none" if size > 6 else None,
                size,
            )
    chosen = told(data)
    steps = "" if chosen.geometry == "free" else f", {chosen.geometry}"
    if (chosen.target, chosen.alpha, chosen.noise) == BEST[0]:
        best_line(
            risks,
            [chosen.alpha],
            [BEST[1] + chosen.noise / 2],
            "best possible, whatever the method",
        )
    risks.set(title="test risk", ylabel="risk")
    training.set(title="training risk")
    overlaps.set(title="overlap $M_{11}$")
    for ax in (risks, training, overlaps):
        ax.set_xlabel("samples seen / $d$")
    drawn.legend(
        *risks.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        fontsize=7.5,
    )
    headline(
        drawn,
        data,
        f"{chosen.alpha:g} d samples{steps}; runs at d = {chosen.dim} (bars: 2 s.e.)",
    )
    return drawn
