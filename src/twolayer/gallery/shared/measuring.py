"""What the figures of escape share: the problem, measured first passages, and what predictions leave out.

The corrected escape time holds for T d ≫ 1 + s, with relative corrections of that ratio inside its logarithm: the
allowance of a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

import twolayer as tl

if TYPE_CHECKING:
    from twolayer.analysis.escape import EscapeTime
    from twolayer.analysis.passage import Passage

__all__ = [
    "canvas",
    "colours",
    "growth",
    "known",
    "measured",
    "median_points",
    "phase_retrieval",
    "plain_ticks",
    "points",
    "power",
    "predicted",
    "projected",
]

PIECES = 64
"""A run stops at the first of so many save points at which all its seeds have crossed."""


def phase_retrieval(width: int = 1, noise: float = 0.0) -> tl.Problem:
    """σ = x² and y = z1² + noise: the problem of all these figures."""
    return tl.Problem("z1**2", "square", width=width, noise=noise)


def projected(gamma: float) -> tl.SGD:
    """Projected SGD with lr = γ/d."""
    return tl.SGD(lr=gamma * tl.d**-1, geometry="projected")


def growth(problem: tl.Problem, rho: float) -> tuple[float, float]:
    """Rate c of the overlaps at ρ = γ/p, and s, by how much noise multiplies the variance of the start less one."""
    from twolayer.analysis.mediocrity import growth_rate, noise_gain

    return growth_rate(problem, rho), noise_gain(problem, rho)


class Prediction(NamedTuple):
    """Escape times of the formulas, how long to run for their measurement, and what they leave out."""

    theory: EscapeTime
    end: float
    allowance: float


def predicted(problem: tl.Problem, gamma: float, dim: int, threshold: float, seed: int = 0) -> Prediction:
    """The formulas at γ; a start closer to m = 0 than the end allows for is not met."""
    c, s = growth(problem, gamma / problem.p)
    theory = tl.escape_time(problem, projected(gamma), dim, threshold, seed=seed)
    return Prediction(theory, 4 * theory.ode + 5 / c, (1 + s) / (threshold * dim) / (2 * c))


def known(value: float | None) -> float:
    """A number of theory; NaN, which is not drawn, where its formula does not hold.

    Examples
    --------
    >>> known(1.5), known(None)
    (1.5, nan)
    """
    return np.nan if value is None else value


def measured(
    problem: tl.Problem, gamma: float, method: Any, starts: tl.Overlaps, threshold: float, end: float, seed: int
) -> Passage:
    """First passages of the excess risk through (1 − T) of its start, from the given starts."""
    until = tl.Until("excess_risk", 1 - threshold, relative=True)
    run = tl.solve(
        problem, projected(gamma), method, starts, time=end, save=PIECES, seed=seed, until=until, throw=False
    )
    return tl.escape.first_passage(run)


def canvas(columns: int, rows: int = 1, width: float = 4.4, height: float = 3.5) -> tuple[Figure, Sequence[Axes]]:
    """A figure and its panels in reading order."""
    from twolayer.plot.canvas import Drawing

    figure = Drawing(figsize=(columns * width, rows * height))
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def colours() -> dict[str, str]:
    """Colours of methods and of the lines of theory."""
    from twolayer.plot.style import COLOURS

    return {**COLOURS, "annealed": "#d95f02", "quenched": "#1b9e77", "corrected": "#1a1a1a"}


def points(
    ax: Axes, x: Any, y: Any, error: Any, colour: str, label: str, marker: str = "o", face: str | None = None
) -> None:
    """Measured means with bars of two standard errors."""
    fill = face or colour
    ax.errorbar(x, y, 2 * error, fmt=marker, color=colour, mfc=fill, ms=4.5, capsize=2.5, lw=1.2, label=label, zorder=5)


def median_points(ax: Axes, x: Any, runs: Any, colour: str, label: str, marker: str = "o", factor: Any = 1.0) -> None:
    """Medians with their intervals; an end that is not known is an arrow to the edge of the axes."""
    scale = np.broadcast_to(factor, len(runs))
    known = [i for i, m in enumerate(runs) if np.isfinite(m.value)]
    place = np.asarray(x, dtype=float)[known]
    middle, low, high = (
        np.array([getattr(runs[i], k) for i in known]) * scale[known] for k in ("value", "low", "high")
    )
    bars = [np.where(np.isfinite(end), np.abs(end - middle), 0.0) for end in (low, high)]
    ax.errorbar(place, middle, bars, fmt=marker, color=colour, ms=4.5, capsize=2.5, lw=1.2, label=label, zorder=5)
    for edge, ends in ((0.0, low), (1.0, high)):
        for at, value in zip(place[~np.isfinite(ends)], middle[~np.isfinite(ends)], strict=True):
            ax.annotate(
                "",
                (at, edge),
                (at, value),
                xycoords=("data", "axes fraction"),
                textcoords="data",
                arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.0, "shrinkA": 0, "shrinkB": 0},
            )


def plain_ticks(axis: Axis) -> None:
    """Numbers such as 20 and 50 on a logarithmic axis of few decades."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def power(number: float) -> str:
    """A power of ten, or the number, for titles in mathematics.

    Examples
    --------
    >>> power(1000), power(3000)
    ('10^{3}', '3000')
    """
    exponent = np.log10(number)
    return f"10^{{{exponent:.0f}}}" if abs(exponent - round(exponent)) < 1e-9 and exponent >= 3 else f"{number:g}"
