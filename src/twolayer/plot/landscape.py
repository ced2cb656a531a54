"""The landscape of a single-index task: the population loss against the overlap, and
the flow down its slope.

φ(m) on the left,    dm/dτ = −φ'(m) (1 − m²) − (δ/2) V(m) m on the right
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from twolayer.analysis.population_loss import PopulationLoss
from twolayer.numerics.errors import finite_number, require
from twolayer.plot.canvas import canvas, in_house_style
from twolayer.plot.style import COLOURS, DIRECTIONS, GREY, house_title

__all__ = ["landscape"]

POINTS = 200


@in_house_style
def landscape(
    result: PopulationLoss,
    step: float = 0.0,
    figure: Figure | None = None,
    ax: Sequence[Axes] | None = None,
) -> Figure:
    """Population loss of a single-index task against the overlap m, and the velocity of
    m.

    Parameters
    ----------
    result : PopulationLoss
        From `tl.single_index.population_loss`.
    step : float
        δ = N·lr of a second curve of the velocity; 0 for the limit of small steps
        alone.

    Examples
    --------
    >>> import twolayer as tl
    >>> found = tl.single_index.population_loss(tl.Problem("h3(z1)", "h3"))
    >>> len(landscape(found, step=0.2).axes[1].get_lines())
    3
    """
    require(
        isinstance(result, PopulationLoss),
        "result",
        result,
        "a result of population_loss",
    )
    step = finite_number("step", step, minimum=0.0, accepted="a number ≥ 0")
    drawing, (left, right), whole = canvas(2, (8.4, 3.3), figure, ax)
    m = (
        np.sin(np.linspace(-1, 1, POINTS) * np.pi / 2) * 0.9999
    )  # φ of kinks is steep near ±1
    left.plot(m, result.phi(m), color=COLOURS["theory"])
    right.plot(
        m,
        result.flow(m),
        color=COLOURS["theory"],
        label="small steps, $\\delta \\to 0$",
    )
    if step:
        right.plot(
            m,
            result.flow(m, step),
            color=DIRECTIONS[0],
            ls="--",
            label=f"$\\delta = {step:g}$",
        )
        right.legend()
    right.axhline(0.0, color=GREY, lw=0.8)
    left.set(xlabel="overlap $m$", ylabel="population loss $\\varphi(m)$")
    right.set(xlabel="overlap $m$", ylabel="velocity $dm/d\\tau$")
    if whole:
        problem = result.problem
        task = (
            f"target {problem.target.name}, student {problem.activation.name},"
            f" {result.loss.name} loss"
        )
        house_title(drawing, task, f"information exponent {result.information}")
    return drawing
