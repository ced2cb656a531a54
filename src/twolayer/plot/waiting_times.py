"""Figures of waiting times: escape from a random start, recovery of a direction, and
weak recovery against d.

Escape: the law of the quenched formula over random starts, measured passage times over
it, the formulas as lines. Recovery: the overlap along the limiting flow from m =
N^(−1/2), and the fraction of runs that have passed each level. Weak recovery: the steps
of every run, their medians, and the power law through these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from twolayer.analysis.escape import EscapeTime
from twolayer.analysis.passage_times import Passage
from twolayer.analysis.population_loss import PopulationLoss
from twolayer.analysis.recovery import Recovery
from twolayer.analysis.weak_recovery import WeakRecovery
from twolayer.numerics.errors import require
from twolayer.numerics.statistics import plus_minus
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.panels import clear_legends, plain_ticks
from twolayer.plot.style import COLOURS, DIRECTIONS, GREY, house_title
from twolayer.task.algorithm import SGD

__all__ = ["passage", "recovery", "weak_recovery"]

NAMES = {"ode": "ODE", "from_zero": "from m = 0"}
BINS = 40
EDGE = 1.15  # from the outer dimensions to the frame
BESIDE = 0.97  # where runs stand, by the median of their dimension
CURVE = 80


def _looks() -> dict[str, tuple[str, Any]]:
    """Colour and dash of each formula, in the style that is in use."""
    return {
        "annealed": (DIRECTIONS[1], ":"),
        "quenched": (DIRECTIONS[2], "--"),
        "ode": (COLOURS["theory"], "-."),
        "corrected": (COLOURS["theory"], "-"),
        "noisy": (COLOURS["theory"], ":"),
        "from_zero": (DIRECTIONS[3], (0, (1, 3))),
    }


@in_house_style
def passage(
    times: EscapeTime,
    law: object = None,
    measured: Passage | None = None,
    title: str = "",
    figure: Figure | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Escape times: their law over random starts, what was measured, and the formulas.

    Parameters
    ----------
    times : EscapeTime
        From `escape_time`.
    law : array, optional
        Times at many random starts, such as those of `tl.escape.passage_law`.
    measured : Passage, optional
        From `tl.escape.first_passage`.
    title : str
        What was solved.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, algorithm = (
    ...     tl.Problem("z1**2", "square"),
    ...     tl.SGD("0.08/d", geometry="projected"),
    ... )
    >>> drawn = passage(tl.escape_time(problem, algorithm, dim=1000))
    >>> drawn.axes[0].get_legend_handles_labels()[1][0]
    'annealed, 1.109'
    """
    require(
        isinstance(times, EscapeTime),
        "times",
        type(times).__name__,
        "a result of escape_time",
    )
    figure, (ax,), whole = canvas(1, (6.8, 3.8), figure, ax)
    looks = _looks()
    known = {
        name: value for name in looks if (value := getattr(times, name)) is not None
    }
    drawn = [
        np.asarray(x, dtype=float)
        for x in (law, None if measured is None else measured.reached)
    ]
    every = np.concatenate(
        [np.array(list(known.values())), *(x[np.isfinite(x)] for x in drawn if x.ndim)]
    )
    edges = np.linspace(0.0, float(np.quantile(every, 0.998)) * 1.05, BINS + 1)
    if law is not None:
        height, _ = np.histogram(drawn[0], edges)
        share = height / len(drawn[0]) / np.diff(edges)
        ax.stairs(
            share,
            edges,
            color=DIRECTIONS[2],
            lw=1.4,
            label="quenched formula over random starts",
        )
    if measured is not None:
        few = np.linspace(
            edges[0],
            edges[-1],
            min(BINS, max(6, round(2 * len(measured.times) ** 0.5))) + 1,
        )
        height, _ = np.histogram(measured.reached, few)
        ax.stairs(
            height / len(measured.times) / np.diff(few),
            few,
            fill=True,
            color=COLOURS["chain"],
            alpha=0.35,
            label=f"Chain, {measured}",
        )
    for name, value in known.items():
        colour, dash = looks[name]
        label = f"{NAMES.get(name, name)}, {value:.4g}"
        ax.axvline(value, color=colour, ls=dash, lw=1.5, label=label)
    ax.set(
        xlabel="time of escape  $t = \\mathrm{lr}\\cdot\\mathrm{step}\\,/\\,p$",
        xlim=(edges[0], edges[-1]),
    )
    ax.set_ylabel("density" if law is not None or measured is not None else "")
    if law is None and measured is None:
        ax.set_yticks([])
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=7.5)
    if whole and title:
        house_title(figure, *title.split("\n"))
    return figure


@in_house_style
def recovery(
    landscape: PopulationLoss | None,
    algorithm: SGD,
    dim: int,
    levels: tuple[float, float],
    measured: Recovery | None = None,
    title: str = "",
    figure: Figure | None = None,
    ax: Sequence[Axes] | None = None,
) -> Figure:
    """Recovery curves: the overlap along the flow, and the fraction of runs beyond each
    level against samples.

    Parameters
    ----------
    landscape : PopulationLoss or None
        From `tl.single_index.population_loss`. None for several neurons or directions:
        the fractions of runs are drawn alone.
    algorithm : SGD
        Gives the step δ = N·lr/n_b of the curves.
    dim : int
        N.
    levels : pair of float
        Overlaps of weak and strong recovery.
    measured : Recovery, optional
        From `recovery`; its fractions have a panel of their own.
    title : str
        What was solved.

    Examples
    --------
    >>> import twolayer as tl
    >>> landscape = tl.single_index.population_loss(tl.Problem("z1", "linear"))
    >>> drawn = recovery(
    ...     landscape, tl.SGD("0.2/d", geometry="spherical"), 1000, (0.25, 0.75)
    ... )
    >>> drawn.axes[0].get_ylabel()
    'overlap $m$'
    """
    require(
        landscape is None or isinstance(landscape, PopulationLoss),
        "landscape",
        type(landscape).__name__,
        "a result of population_loss, or None",
    )
    if landscape is None:
        require(measured is not None, "measured", None, "given without a landscape")
        assert measured is not None
        figure, axes, whole = canvas(1, (5.4, 3.7), figure, ax)
        _fractions(axes[0], measured, np.zeros(1), np.ones(1))
        if whole and title:
            house_title(figure, *title.split("\n"))
        return figure
    panels = 1 if measured is None else 2
    figure, axes, whole = canvas(panels, (4.6 * panels, 3.5), figure, ax)
    left = axes[0]
    samples, m = _flow(landscape, algorithm, dim)
    label = (
        "flow of this step from $m = N^{-1/2}$"
        if len(m) > 1
        else "the flow does not leave a random start"
    )
    left.plot(samples, m, color=COLOURS["theory"], label=label)
    for level, name, colour in zip(
        levels, ("weak", "strong"), DIRECTIONS, strict=False
    ):
        left.axhline(
            level,
            color=colour,
            ls="--",
            lw=1.0,
            label=f"{name} recovery, $m = {level:g}$",
        )
    left.set(xlabel="samples", ylabel="overlap $m$", ylim=(0, 1.02))
    left.legend(fontsize=7.5)
    if measured is not None:
        _fractions(axes[1], measured, samples, m)
    if whole and title:
        house_title(figure, *title.split("\n"))
    return figure


def _flow(
    landscape: PopulationLoss, algorithm: SGD, dim: int
) -> tuple[np.ndarray, np.ndarray]:
    """Samples and overlaps along the flow with the step of the algorithm, from m =
    N^(−1/2) as far as it leads.
    """
    first = dim**-0.5
    unit, step = (
        algorithm.batch_at(dim) / algorithm.lr(dim),
        algorithm.lr(dim) * dim / algorithm.batch_at(dim),
    )
    edges = np.concatenate(
        [np.geomspace(first, 0.5, CURVE), 1 - np.geomspace(0.5, 0.002, CURVE)[1:]]
    )
    points, weights = np.polynomial.legendre.leggauss(8)
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    speed = landscape.flow(
        (middle[:, None] + half[:, None] * points).ravel(), step
    ).reshape(len(half), -1)
    last = int(np.argmin((speed > 0).all(1))) if (speed <= 0).any() else len(half)
    taken = (half[:last, None] * weights / speed[:last]).sum(1)
    return np.concatenate([[0.0], np.cumsum(taken)]) * unit, edges[: last + 1]


def _fractions(
    ax: Axes, measured: Recovery, samples: np.ndarray, m: np.ndarray
) -> None:
    """The fraction of runs that have passed each level, with the samples that the flow
    takes.
    """
    rows = [
        (measured.weak, measured.thresholds[0], "weak", DIRECTIONS[0]),
        (measured.strong, measured.thresholds[1], "strong", DIRECTIONS[1]),
    ]
    flows = False
    for row, level, name, colour in rows:
        label = name if measured.overlap == "m" else f"{name}: {_level(measured, name)}"
        _steps(ax, row, measured.samples, colour, "-", label)
        if m[0] < level < m[-1]:
            flows = True
            ax.axvline(
                float(np.interp(level, m, samples)), color=colour, ls="--", lw=1.0
            )
    for each, colour in (
        (measured.weak_each, DIRECTIONS[0]),
        (measured.strong_each, DIRECTIONS[1]),
    ):
        # the other principal overlaps: not the first that is weak, nor the last that
        # makes recovery strong
        others = [] if each is None else list(each.T)
        others = others[1:] if colour == DIRECTIONS[0] else others[:-1]
        for row in others:
            _steps(ax, row, measured.samples, colour, ":", None)
    ends = [row[np.isfinite(row)] for row, *_ in rows]
    if measured.overlap != "σ":
        critical = measured.critical_samples
        ax.axvline(critical, color=GREY, ls=":", lw=1.2, label=r"$\alpha_c N$")
        ends.append(np.array([critical]))
    last = np.concatenate([*ends, [1.0]])
    ax.set(
        xlabel="samples",
        ylabel=f"fraction of {len(measured.weak)} runs",
        ylim=(0, 1.02),
        xlim=(0, 1.1 * last.max()),
    )
    many = measured.weak_each is not None and measured.weak_each.shape[1] > 1
    heading = "dashed: the flow" if flows else "dotted: the other σ" if many else None
    ax.legend(title=heading, title_fontsize="small", fontsize="small")


def _level(measured: Recovery, name: str) -> str:
    return measured.levels[0 if name == "weak" else 1]


def _steps(
    ax: Axes, row: np.ndarray, end: float, colour: str, dash: str, label: str | None
) -> None:
    """The fraction of runs that have passed, against samples."""
    reached = np.sort(row[np.isfinite(row)])
    part = np.arange(1, reached.size + 1) / len(row)
    ax.step(
        [0, *reached, end],
        [0, *part, part[-1] if part.size else 0],
        where="post",
        color=colour,
        ls=dash,
        lw=1.4 if label else 1.0,
        label=label,
    )


@in_house_style
def weak_recovery(
    result: WeakRecovery, figure: Figure | None = None, ax: Axes | None = None
) -> Figure:
    """Steps of weak recovery against the dimension: every run, the medians, and the
    fitted power law.

    Parameters
    ----------
    result : WeakRecovery
        From `weak_recovery`.

    Examples
    --------
    >>> import twolayer as tl
    >>> algorithm = tl.SGD(
    ...     lr="0.2", batch="2*d", loss="correlation", geometry="projected"
    ... )
    >>> found = tl.weak_recovery(
    ...     tl.Problem("h2(z1)", "h2"), algorithm, dim=(100, 200), seeds=6
    ... )
    >>> weak_recovery(found).axes[0].get_xlabel()
    'dimension $d$'
    """
    require(
        isinstance(result, WeakRecovery),
        "result",
        type(result).__name__,
        "a result of weak_recovery",
    )
    grow = figure is None and ax is None
    figure, (panel,), whole = canvas(1, (5.4, 3.7), figure, ax)
    dims, runs = np.array(result.dims, dtype=float), result.steps
    shown = np.broadcast_to(BESIDE * dims[:, None], runs.shape)
    kept = np.isfinite(runs) & (runs > 0)
    panel.plot(
        shown[kept],
        runs[kept],
        ".",
        color=COLOURS["chain"],
        alpha=0.3,
        ms=5,
        mew=0,
        label="runs",
    )
    for dim, found, limit in zip(dims, result.medians, result.limits, strict=True):
        panel.plot(
            [dim, dim],
            [found.low, min(found.high, limit)],
            color=COLOURS["theory"],
            lw=1.2,
        )
    panel.plot(
        dims,
        [x.value for x in result.medians],
        "o",
        color=COLOURS["theory"],
        ms=5,
        label="median, 95 %",
    )
    law = result.law()
    if law is not None and law.bends:
        panel.plot([], [], " ", label=result.exponent())
    elif law is not None:
        x = np.geomspace(dims.min(), dims.max(), CURVE)
        curve = np.exp(law.fit.intercept) * x**law.fit.slope
        curve = curve * result.start_factor(x) ** law.factor
        curve = curve * (np.log(x) if result.logarithmic else 1.0)
        unit = "$T/\\log d$" if result.logarithmic else "$T$"
        value = plus_minus(law.fit.slope, law.fit.error).replace("±", "\\pm")
        named = f"{unit} ~ $d^\\theta$, $\\theta = {value}$"
        panel.plot(x, curve, "--", color=DIRECTIONS[1], lw=1.4, label=named)
    lost = [
        (dim, limit, n)
        for dim, limit, n in zip(dims, result.limits, result.censored, strict=True)
        if n
    ]
    for i, (dim, limit, n) in enumerate(lost):
        label = None if i else "given up"
        panel.plot(dim, limit, "^", color=GREY, ms=6, label=label)
        panel.annotate(
            f"{n}",
            (dim, limit),
            (0, 5),
            textcoords="offset points",
            ha="center",
            color=GREY,
            fontsize=8,
        )
    alone = (result.problem.p, result.problem.k) == (1, 1)
    overlap = "$|m|$" if alone else "$\\|M\\|_F$"
    panel.set(
        xscale="log",
        yscale="log",
        xlabel="dimension $d$",
        ylabel=f"steps $T$ until {overlap} = {result.threshold:.3g}",
    )
    # the dimensions themselves, and no powers of ten that nobody chose
    panel.set_xticks(dims, [f"{dim:g}" for dim in result.dims])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlim(dims.min() / EDGE, dims.max() * EDGE)
    plain_ticks(panel.yaxis)
    panel.legend(fontsize=8)
    if whole:
        if result.growth is None:
            expected = "no law is known for this task"
        else:
            expected = f"expected: $T \\sim {_law_text(result.growth)}$"
        house_title(
            figure,
            f"target {result.problem.target.name}, student"
            f" {result.problem.activation.name}",
            expected,
        )
    clear_legends(figure, [panel], grow)
    return figure


def _law_text(growth: str) -> str:
    r"""A law of growth as TeX.

    >>> print(_law_text("d^1 log d"), _law_text("d^0.5"), _law_text("log log d"))
    d\log d d^{0.5} \log\log d
    """
    text = re.sub(r"\^([\d.]+)", r"^{\1}", growth).replace("d^{1}", "d")
    return re.sub(r" ?log", r"\\log", text)
