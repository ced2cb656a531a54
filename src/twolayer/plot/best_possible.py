"""Figures of what n = αd samples allow: the staircase of thresholds, and overlap and
error of the best possible.

full line      from nothing, by message passing
dotted line    from full knowledge
dashed line    the equilibrium: the best possible, whatever the computation costs
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from twolayer.analysis.thresholds.alpha_c import Thresholds, written
from twolayer.analysis.thresholds.amp import MessagePassing
from twolayer.analysis.thresholds.best_possible import BestPossible
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import expect, reject, require
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.style import COLOURS, DIRECTIONS, GREY

__all__ = ["best_line", "best_possible", "message_passing", "thresholds"]

LOOKS: Options = {
    "informed": {"ls": ":", "lw": 1.4},
    "equilibrium": {"ls": "--", "lw": 1.4},
    "uninformed": {"ls": "-", "lw": 1.8},
}
NAMES = {
    "informed": "from full knowledge",
    "equilibrium": "best possible",
    "uninformed": "from nothing",
}


@in_house_style
def thresholds(
    result: Thresholds, figure: Figure | None = None, ax: Axes | None = None
) -> Figure:
    """How many directions n = αd samples show, against α.

    Parameters
    ----------
    result : Thresholds
        From `thresholds`.

    Examples
    --------
    >>> import twolayer as tl
    >>> len(thresholds(tl.thresholds("z1**2")).axes)
    1
    """
    require(isinstance(result, Thresholds), "result", result, "a result of thresholds")
    drawing, (panel,), _ = canvas(1, (5.2, 3.2), figure, ax)
    finite = [s for s in result.staircase if np.isfinite(s.alpha)]
    right = 1.6 * max([s.alpha for s in finite], default=0.0) or 1.0
    known, x, y = 0, [0.0], [0]
    for i, step in enumerate(finite):
        x += [step.alpha, step.alpha]
        y += [known, known := known + len(step.directions)]
        panel.annotate(
            f" {written(step.directions)}"
            + (f"\n α = {step.alpha:.4g}" if step.alpha else "\n at every α > 0"),
            (step.alpha, known),
            color=DIRECTIONS[i],
            va="bottom",
            fontsize=8.5,
        )
    panel.plot([*x, right], [*y, known], color=COLOURS["theory"])
    never = [s for s in result.staircase if not np.isfinite(s.alpha)]
    if never:
        rows = "; ".join(written(s.directions) for s in never)
        panel.text(
            0.98,
            0.04,
            f"never with n = O(d): {rows}",
            transform=panel.transAxes,
            ha="right",
            color=GREY,
            fontsize=8.5,
        )
    panel.set(
        xlabel="α = n/d",
        ylabel="directions that show",
        xlim=(0, right),
        ylim=(0, result.target.directions + 0.6),
    )
    panel.set_yticks(range(result.target.directions + 1))
    noise = f", noise {result.noise:g}" if result.noise else ""
    panel.set_title(f"{result.target.name}{noise}")
    return drawing


@in_house_style
def best_possible(
    result: BestPossible, figure: Figure | None = None, ax: Sequence[Axes] | None = None
) -> Figure:
    """Overlap and prediction error of the best possible against α, with the hard phase
    shaded.

    Parameters
    ----------
    result : BestPossible
        From `best_possible`.

    Examples
    --------
    >>> import twolayer as tl
    >>> len(best_possible(tl.best_possible("tanh(z1)", [0.5, 1.0], noise=0.1)).axes)
    2
    """
    require(
        isinstance(result, BestPossible), "result", result, "a result of best_possible"
    )
    drawing, (left, right), _ = canvas(2, (8.4, 3.3), figure, ax)
    for branch, look in LOOKS.items():
        if branch not in result.data.branch:  # of an interrupted search
            continue
        part = result.data.sel(branch=branch)
        values = np.linalg.eigvalsh(part.overlap.values)[:, ::-1][:, : result.law.k]
        for r in range(values.shape[1]):
            left.plot(result.alphas, values[:, r], color=DIRECTIONS[r], **look)
        right.plot(
            result.alphas,
            part.mmse.values,
            color=COLOURS["theory"],
            label=NAMES[branch],
            **look,
        )
    if result.hard is not None and np.isfinite(result.hard[0]):
        for panel in (left, right):
            low, high = result.hard
            high = high if np.isfinite(high) else result.alphas[-1]
            panel.axvspan(low, high, color="#f2d9d9", lw=0, zorder=0)
        right.plot([], [], color="#f2d9d9", lw=7, label="hard")
    left.set(xlabel="α = n/d", ylabel="eigenvalues of the overlap", ylim=(-0.03, 1.03))
    right.set(xlabel="α = n/d", ylabel="mmse", ylim=(0, None))
    right.legend()
    noise = f", noise {result.noise:g}" if result.noise else ""
    left.set_title(f"{result.target.name}{noise}")
    return drawing


def best_line(
    ax: Axes, alphas: object, values: object, label: str = "best possible"
) -> None:
    """Add the best possible to a panel of other methods: a dashed line over α, or a
    level at a single α.

    Parameters
    ----------
    ax : Axes
        The panel, which is drawn on.
    alphas : array of float
        n/d of the panel's axis; a single one draws a horizontal line, for panels over
        other quantities.
    values : array of float
        What the panel shows, at the best possible: an overlap, or ``excess_risk`` of
        `best_possible`.
    label : str
        Its name in the legend.

    Examples
    --------
    >>> made = canvas(1, (3.0, 2.0))
    >>> best_line(made.axes[0], [2.0], [0.1])
    >>> made.axes[0].lines[0].get_linestyle()
    '--'
    """
    look: Options = {"color": GREY, "ls": "--", "lw": 1.4, "label": label}
    expect(Axes, "ax", ax)
    x, y = _numbers("alphas", alphas), _numbers("values", values)
    require(
        x.shape == y.shape and len(x) > 0,
        "values",
        values,
        "as many numbers as `alphas`",
    )
    if len(x) == 1:
        ax.axhline(float(y[0]), **look)
    else:
        ax.plot(x, y, **look)


def _numbers(name: str, values: object) -> np.ndarray:
    """Numbers in a row; those that are missing are not drawn."""
    try:
        return np.ravel(np.asarray(values, float))
    except (TypeError, ValueError, OverflowError):
        reject(name, values, "an array of numbers")


@in_house_style
def message_passing(
    result: MessagePassing, figure: Figure | None = None, ax: Axes | None = None
) -> Figure:
    """Overlaps with the target along runs of message passing on explicit data.

    Parameters
    ----------
    result : MessagePassing
        From `simulate` of `best_possible`.

    Examples
    --------
    >>> runs = MessagePassing(
    ...     alpha=1.5,
    ...     dim=400,
    ...     path=np.array([[[0.0], [0.3], [0.5]], [[0.0], [0.2], [0.4]]]),
    ... )
    >>> len(message_passing(runs).axes[0].get_lines())
    3
    """
    require(
        isinstance(result, MessagePassing),
        "result",
        type(result).__name__,
        "a result of BestPossible.simulate",
    )
    drawing, (panel,), whole = canvas(1, (5.2, 3.2), figure, ax)
    seeds, length, k = result.path.shape
    for r, colour in zip(range(k), DIRECTIONS, strict=False):
        panel.plot(
            np.arange(length), result.path[:, :, r].T, color=colour, alpha=0.35, lw=0.9
        )
        panel.plot(
            np.arange(length),
            result.path[:, :, r].mean(0),
            color=colour,
            label=f"singular value {r + 1}",
        )
    panel.set(xlabel="iteration", ylabel="overlap with the target", ylim=(0, 1.02))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if k > 1:
        panel.legend()
    if whole:
        panel.set_title(
            f"α = {result.alpha:.4g}, d = {result.dim}, {seeds} runs and their mean"
        )
    return drawing
