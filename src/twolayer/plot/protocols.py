"""Figures of optimal protocols: the rate in force, and the excess risk beside that of
the best constant; a contest.

full line    the optimum
dashed       the best constant
dotted       the best schedule with a name
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from twolayer.analysis.protocols.contest import Contest
from twolayer.analysis.protocols.optimise import Optimum
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import require
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.style import COLOURS, DIRECTIONS, house_title

__all__ = ["contest", "optimum"]

SAID = {"wins": "beaten", "loses": "better", "undecided": "undecided"}
"""A rival of the optimum, by the verdict on the optimum."""


@in_house_style
def optimum(
    result: Optimum, figure: Figure | None = None, ax: Sequence[Axes] | None = None
) -> Figure:
    """Rate and excess risk of an optimum, of the best constant and of the best named
    schedule.

    Parameters
    ----------
    result : Optimum
        From `optimise`.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, start = (
    ...     tl.Problem("z1", "linear", noise=0.2),
    ...     tl.Overlaps([[0.0]], [[0.0]]),
    ... )
    >>> best = tl.optimise(
    ...     problem, tl.SGD(lr="0.2/d"), start, form="constant", horizon=10
    ... )
    >>> len(optimum(best).axes)
    2
    """
    require(isinstance(result, Optimum), "result", result, "a result of optimise")
    drawing, (left, right), _ = canvas(2, (8.4, 3.3), figure, ax)
    units, dim = result.path.lr.attrs.get("units") or "", result.start.dim
    # where d is known the rate is a number, and small
    scale = (
        dim
        if not units and dim is not None and result.algorithm.lr.exponent == -1
        else 1
    )
    # taken when drawn: the colours are those of the style that is in use
    looks: tuple[Options, ...] = (
        {"color": COLOURS["theory"], "lw": 1.8},
        {"color": DIRECTIONS[0], "ls": "--", "lw": 1.4},
        {"color": DIRECTIONS[1], "ls": ":", "lw": 1.6},
    )
    for (name, path), look in zip(result.paths.items(), looks, strict=False):
        x = path[result.clock]
        left.plot(x, scale * path.lr, label=name, **look)
        right.plot(x, path.excess_risk.mean("seed"), **look)
    rate = (
        "d·lr"
        if units == "d**-1" or scale != 1
        else "lr" + (f" / {units}" if units else "")
    )
    label = {"alpha": "samples/d", "time": "time t = lr·step/N", "step": "step"}[
        result.clock
    ]
    left.set(xlabel=label, ylabel=rate, ylim=(0, None))
    right.set(xlabel=label, ylabel="excess risk", yscale="log")
    left.legend()
    return drawing


@in_house_style
def contest(
    result: Contest, figure: Figure | None = None, ax: Axes | None = None
) -> Figure:
    """What each protocol reached at finite d: every run, means with two standard
    errors, and who wins.

    Parameters
    ----------
    result : Contest
        From `compare` of an optimum.

    Examples
    --------
    >>> import numpy as np
    >>> runs = {
    ...     "optimum": np.array([0.10, 0.12, 0.11]),
    ...     "constant": np.array([0.15, 0.16, 0.17]),
    ... }
    >>> drawn = contest(Contest(dim=500, seeds=3, objective="excess_risk", values=runs))
    >>> [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    ['optimum', 'constant: undecided']
    """
    require(
        isinstance(result, Contest),
        "result",
        type(result).__name__,
        "a result of Optimum.compare",
    )
    drawing, (panel,), whole = canvas(
        1, (5.6, 1.4 + 0.5 * len(result.values)), figure, ax
    )
    for row, (name, values) in enumerate(result.values.items()):
        mean, error = result.means[name]
        panel.plot(
            values, [row] * len(values), "|", color=COLOURS["chain"], alpha=0.5, ms=11
        )
        panel.errorbar(
            mean, row, xerr=2 * error, fmt="o", color=COLOURS["theory"], ms=5, capsize=3
        )
    told = [
        name
        + (f": {said}" if (said := SAID.get(result.verdicts.get(name, ""))) else "")
        for name in result.values
    ]
    panel.set_yticks(range(len(told)), told)
    panel.set(xlabel=result.objective.replace("_", " "), ylim=(len(told) - 0.5, -0.5))
    if whole:
        house_title(
            drawing,
            f"$d = {result.dim}$, {result.seeds} runs of each",
            "bars: two standard errors",
        )
    return drawing
