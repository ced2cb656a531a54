"""The figure of an optimal protocol: the rate in force, and the excess risk beside that of the best constant.

full line    the optimum
dashed       the best constant
dotted       the best schedule with a name
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from twolayer.analysis.protocols.optimise import Optimum
from twolayer.numerics.arguments import Options
from twolayer.numerics.errors import reject
from twolayer.plot.canvas import canvas
from twolayer.plot.style import DIRECTIONS, house_style

__all__ = ["optimum"]

LOOKS: tuple[Options, ...] = (
    {"color": "#1a1a1a", "lw": 1.8},
    {"color": DIRECTIONS[0], "ls": "--", "lw": 1.4},
    {"color": DIRECTIONS[1], "ls": ":", "lw": 1.6},
)


def optimum(result: Optimum, figure: Figure | None = None, ax: Sequence[Axes] | None = None) -> Figure:
    """Rate and excess risk of an optimum, of the best constant and of the best named schedule.

    Parameters
    ----------
    result : Optimum
        From `optimise`.
    figure : matplotlib Figure, optional
        Where to draw: an empty figure.
    ax : sequence of Axes, optional
        Two panels of a figure of your own.

    Examples
    --------
    >>> import twolayer as tl
    >>> problem, start = tl.Problem("z1", "linear", noise=0.2), tl.Overlaps([[0.0]], [[0.0]])
    >>> best = tl.optimise(problem, tl.SGD(lr="0.2/d"), start, form="constant", horizon=10)
    >>> len(optimum(best).axes)
    2
    """
    if not isinstance(result, Optimum):
        reject("result", result, "a result of optimise")
    with house_style():
        drawing, (left, right), _ = canvas(2, (8.4, 3.3), figure, ax)
        units, dim = result.path.lr.attrs.get("units") or "", result.start.dim
        # where d is known the rate is a number, and small
        scale = dim if not units and dim is not None and result.algorithm.lr.exponent == -1 else 1
        for (name, path), look in zip(result.paths.items(), LOOKS, strict=False):
            x = path[result.clock]
            left.plot(x, scale * path.lr, label=name, **look)
            right.plot(x, path.excess_risk.mean("seed"), **look)
        rate = "d·lr" if units == "d**-1" or scale != 1 else "lr" + (f" / {units}" if units else "")
        label = {"alpha": "samples/d", "time": "time t = lr·step/N", "step": "step"}[result.clock]
        left.set(xlabel=label, ylabel=rate, ylim=(0, None))
        right.set(xlabel=label, ylabel="excess risk", yscale="log")
        left.legend()
    return drawing
